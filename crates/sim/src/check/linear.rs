//! Whether a history of overlapping operations could have come from an object that does one after
//! the other.
//!
//! The algorithm is just-in-time linearization (Lowe, *Testing for linearizability*, 2017): the
//! history is gone through once, with the set of all states the object may be in and of the
//! operations that have taken effect in each; an operation takes effect no sooner than a return
//! demands it. Operations that never return, because their client died or lost the completion, may
//! take effect at any later time, or never.

use std::collections::HashSet;
use std::hash::Hash;

use thiserror::Error;

/// A sequential object: a state, and what operations do to it.
pub trait Object: Clone + Eq + Hash {
    /// An operation together with its answer, as far as that is known.
    type Operation;

    /// The object after this operation; `None` if it would have answered differently.
    fn after(&self, operation: &Self::Operation) -> Option<Self>;
}

/// A register, as the simplest object. Its value at first is 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Value(pub u64);

/// An operation on a [`Value`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueOperation {
    /// What was read; `None` if nobody learned.
    Read(Option<u64>),
    /// What was written.
    Write(u64),
}

impl Object for Value {
    type Operation = ValueOperation;

    fn after(&self, operation: &ValueOperation) -> Option<Self> {
        match *operation {
            ValueOperation::Write(value) => Some(Self(value)),
            ValueOperation::Read(seen) => seen.is_none_or(|seen| seen == self.0).then_some(*self),
        }
    }
}

/// An operation that was called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Called(usize);

/// The history has no explanation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("nothing explains how operation {operation}, in the order of calls, returned as it did")]
pub struct NotLinearizable {
    /// The first operation whose return cannot be explained, in the order of calls.
    pub operation: usize,
}

/// Calls and returns in the order in which they happened.
#[derive(Clone, Debug)]
pub struct History<O> {
    operations: Vec<O>,
    events: Vec<Event>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Call(usize),
    Return(usize),
}

impl<O> Default for History<O> {
    fn default() -> Self {
        Self { operations: Vec::new(), events: Vec::new() }
    }
}

/// What may be true at a moment: the object's state, and which of the operations under way have
/// taken effect.
type Possibility<T> = (T, u128);

impl<O> History<O> {
    /// The most operations that may be under way at one time, those that never return included.
    pub const UNDER_WAY_MAX: usize = u128::BITS as usize;

    /// A client calls an operation.
    pub fn call(&mut self, operation: O) -> Called {
        let number = self.operations.len();
        self.operations.push(operation);
        self.events.push(Event::Call(number));
        Called(number)
    }

    /// It returns; `operation` now has its answer.
    pub fn answer(&mut self, called: Called, operation: O) {
        self.operations[called.0] = operation;
        self.events.push(Event::Return(called.0));
    }

    /// How many operations were called.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Each operation, in the order of calls, with the moments at which it was called and returned.
    pub fn spans(&self) -> impl Iterator<Item = (&O, usize, Option<usize>)> {
        let count = self.operations.len();
        let (mut called, mut returned) = (vec![0; count], vec![None; count]);
        for (at, event) in self.events.iter().enumerate() {
            match *event {
                Event::Call(number) => called[number] = at,
                Event::Return(number) => returned[number] = Some(at),
            }
        }
        let spans = self.operations.iter().zip(called).zip(returned);
        spans.map(|((operation, called), returned)| (operation, called, returned))
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Whether the history is one of an object that began as `initial`.
    ///
    /// # Errors
    /// The first return that nothing explains.
    ///
    /// # Panics
    /// If more than [`History::UNDER_WAY_MAX`] operations are under way at one time.
    pub fn check<T>(&self, initial: T) -> Result<(), NotLinearizable>
    where
        T: Object<Operation = O>,
    {
        // Where in a possibility's set each operation under way stands.
        let mut under_way: [Option<usize>; u128::BITS as usize] = [None; u128::BITS as usize];
        let mut possible: HashSet<Possibility<T>> = HashSet::from([(initial, 0)]);
        for event in &self.events {
            match *event {
                Event::Call(number) => {
                    let free = under_way.iter_mut().find(|place| place.is_none());
                    *free.expect("no more than 128 operations under way") = Some(number);
                }
                Event::Return(number) => {
                    let place = under_way.iter().position(|&other| other == Some(number));
                    let place = place.expect("what returns was called, and returns once");
                    possible = self.returning(possible, &under_way, place);
                    if possible.is_empty() {
                        return Err(NotLinearizable { operation: number });
                    }
                    under_way[place] = None;
                }
            }
        }
        Ok(())
    }

    /// What is still possible once the operation at `place` has returned: it has taken effect,
    /// maybe after others under way.
    fn returning<T>(
        &self,
        possible: HashSet<Possibility<T>>,
        under_way: &[Option<usize>],
        place: usize,
    ) -> HashSet<Possibility<T>>
    where
        T: Object<Operation = O>,
    {
        let bit = 1 << place;
        let mut still = HashSet::new();
        let mut seen = HashSet::new();
        let mut left: Vec<Possibility<T>> = possible.into_iter().collect();
        while let Some((state, done)) = left.pop() {
            if done & bit != 0 {
                still.insert((state, done & !bit));
                continue;
            }
            for (at, number) in under_way.iter().enumerate() {
                let Some(number) = *number else { continue };
                if done & 1 << at != 0 {
                    continue;
                }
                let Some(after) = state.after(&self.operations[number]) else { continue };
                let next = (after, done | 1 << at);
                if seen.insert(next.clone()) {
                    left.push(next);
                }
            }
        }
        still
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ValueOperation::{Read, Write};

    /// The definition: some order of all operations that returned and of some that did not, in
    /// which an operation that returned before another was called comes first, and every answer is
    /// right.
    fn has_an_order(history: &History<ValueOperation>) -> bool {
        let count = history.len();
        let (mut called, mut returned) = (vec![0; count], vec![usize::MAX; count]);
        for (at, event) in history.events.iter().enumerate() {
            match *event {
                Event::Call(number) => called[number] = at,
                Event::Return(number) => returned[number] = at,
            }
        }
        let before = |a: usize, b: usize| returned[a] < called[b];
        let mut left: Vec<usize> = (0..count).collect();
        try_orders(history, Value::default(), &mut left, &returned, &before)
    }

    fn try_orders(
        history: &History<ValueOperation>,
        value: Value,
        left: &mut Vec<usize>,
        returned: &[usize],
        before: &impl Fn(usize, usize) -> bool,
    ) -> bool {
        if left.iter().all(|&number| returned[number] == usize::MAX) {
            return true;
        }
        (0..left.len()).any(|at| {
            let number = left[at];
            if left.iter().any(|&other| before(other, number)) {
                return false;
            }
            let Some(value) = value.after(&history.operations[number]) else { return false };
            left.remove(at);
            let found = try_orders(history, value, left, returned, before);
            left.insert(at, number);
            found
        })
    }

    /// A history of a few clients whose reads see anything that any of them writes.
    fn random_history(mut draw: impl FnMut(usize) -> usize) -> History<ValueOperation> {
        let mut history = History::default();
        let mut busy: [Option<(Called, ValueOperation)>; 3] = [None; 3];
        for _ in 0..12 {
            let client = draw(busy.len());
            match busy[client].take() {
                // Some never return.
                Some(_) if draw(8) == 0 => {}
                Some((called, operation)) => history.answer(called, operation),
                None if draw(2) == 0 => {
                    let operation = Write(draw(3) as u64);
                    busy[client] = Some((history.call(operation), operation));
                }
                None => {
                    let seen = Read(Some(draw(3) as u64));
                    busy[client] = Some((history.call(Read(None)), seen));
                }
            }
        }
        history
    }

    #[test]
    fn the_verdict_is_that_of_the_definition() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut verdicts = [0; 2];
        for _ in 0..20_000 {
            let history = random_history(|bound| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 33) as usize % bound
            });
            let linearizable = history.check(Value::default()).is_ok();
            assert_eq!(linearizable, has_an_order(&history), "{history:?}");
            verdicts[usize::from(linearizable)] += 1;
        }
        assert!(verdicts.iter().all(|&count| count > 2_000), "{verdicts:?}");
    }

    #[test]
    fn a_read_that_goes_back_in_time_is_found() {
        let mut history = History::default();
        for value in [1, 2] {
            let called = history.call(Write(value));
            history.answer(called, Write(value));
        }
        let called = history.call(Read(None));
        history.answer(called, Read(Some(1)));
        assert_eq!(history.check(Value(0)), Err(NotLinearizable { operation: 2 }));
    }

    #[test]
    fn a_write_of_the_dead_may_land_late_and_only_once() {
        let mut history = History::default();
        history.call(Write(7));
        for seen in [0, 7] {
            let called = history.call(Read(None));
            history.answer(called, Read(Some(seen)));
        }
        assert_eq!(history.check(Value(0)), Ok(()));
        let called = history.call(Read(None));
        history.answer(called, Read(Some(0)));
        assert_eq!(history.check(Value(0)), Err(NotLinearizable { operation: 3 }));
    }
}
