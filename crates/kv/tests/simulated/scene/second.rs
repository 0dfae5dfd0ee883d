//! A second judge of histories, which shares nothing with the first but what was asked and
//! answered: another algorithm, another text of what a key is.
//!
//! The algorithm is Wing and Gong's (Testing and verifying concurrent objects, 1993) with Lowe's
//! memory of what was tried: a search for an order of the operations in which each answers as it
//! did. The next in the order is any that was called before the first of the others returned. What
//! never returned may come anywhere behind its call, or nowhere.

use std::collections::{BTreeMap, BTreeSet};

use farlock_kv::WriteError;

use super::judge::{Answer, Ask, Event, Judge};

/// An operation on one key, with its moments.
struct Operation<'a> {
    ask: &'a Ask,
    answer: Option<&'a Answer>,
    called: usize,
    returned: usize,
}

const NEVER: usize = usize::MAX;

/// What both judges say: whether something is wrong.
///
/// # Panics
/// If they disagree.
pub fn agreed(judge: &Judge) -> bool {
    let (first, second) = (judge.verdict(), refuted(judge.log()));
    let log = judge.log();
    let agree = first.is_err() == second.is_some();
    assert!(agree, "the judges disagree: {first:?} and {second:?} of {log:#?}");
    first.is_err()
}

/// The key whose history nothing explains, if there is one.
pub fn refuted(log: &[Event]) -> Option<&[u8]> {
    let mut keys: BTreeMap<&[u8], Vec<Operation<'_>>> = BTreeMap::new();
    let mut returns = vec![None; log.len()];
    for (at, event) in log.iter().enumerate() {
        if let Event::Returned { call, answer } = event {
            returns[*call] = Some((at, answer));
        }
    }
    for (called, event) in log.iter().enumerate() {
        if let Event::Called { key, ask } = event {
            let (returned, answer) = returns[called].map_or((NEVER, None), |(r, a)| (r, Some(a)));
            keys.entry(key).or_default().push(Operation { ask, answer, called, returned });
        }
    }
    let mut wrong = keys.iter().filter(|(_, operations)| !Search::new(operations).ends());
    wrong.next().map(|(key, _)| *key)
}

struct Search<'a> {
    operations: &'a [Operation<'a>],
    tried: BTreeSet<(Vec<u64>, Option<Vec<u8>>)>,
}

impl<'a> Search<'a> {
    fn new(operations: &'a [Operation<'a>]) -> Self {
        Self { operations, tried: BTreeSet::new() }
    }

    /// Whether there is an order.
    fn ends(&mut self) -> bool {
        let mut stack = vec![(vec![0_u64; self.operations.len().div_ceil(64)], None)];
        while let Some((placed, value)) = stack.pop() {
            if !self.tried.insert((placed.clone(), value.clone())) {
                continue;
            }
            let is_placed = |at: usize| placed[at / 64] >> (at % 64) & 1 == 1;
            let rest = || (0..self.operations.len()).filter(|&at| !is_placed(at));
            let first_return = rest().map(|at| self.operations[at].returned).min();
            if first_return.is_none_or(|first| first == NEVER) {
                return true;
            }
            for at in rest() {
                let operation = &self.operations[at];
                if operation.called > first_return.unwrap_or(NEVER) {
                    continue;
                }
                if let Some(next) = step(value.as_ref(), operation.ask, operation.answer) {
                    let mut placed = placed.clone();
                    placed[at / 64] |= 1 << (at % 64);
                    stack.push((placed, next));
                }
            }
        }
        false
    }
}

/// The value after this operation; `None` if it cannot have answered so.
fn step(value: Option<&Vec<u8>>, ask: &Ask, answer: Option<&Answer>) -> Option<Option<Vec<u8>>> {
    use WriteError::{Exists, Mismatch, NotANumber, NotFound};
    let same = || value.cloned();
    let is = |wanted: Answer| answer.is_none_or(|answer| *answer == wanted);
    if answer == Some(&Answer::Nothing) {
        return Some(same());
    }
    // What it says if it is refused, and the value that it leaves otherwise.
    let (refusal, next) = match ask {
        Ask::Get => return is(Answer::Value(same())).then(same),
        Ask::Increment(by) => {
            let number = match value {
                None => Some(0),
                Some(bytes) => <[u8; 8]>::try_from(&bytes[..]).ok().map(u64::from_le_bytes),
            };
            let Some(number) = number else { return is(Answer::No(NotANumber)).then(same) };
            let sum = number.wrapping_add(*by);
            return is(Answer::Sum(sum)).then(|| Some(sum.to_le_bytes().to_vec()));
        }
        Ask::Insert(new) => (value.map(|_| Exists), Some(new)),
        Ask::Update(new) => (value.is_none().then_some(NotFound), Some(new)),
        Ask::Upsert(new) => (None, Some(new)),
        Ask::Delete => (value.is_none().then_some(NotFound), None),
        Ask::CompareAndSet(old, new) => match value {
            None => (Some(NotFound), Some(new)),
            Some(found) => ((found != old).then_some(Mismatch), Some(new)),
        },
    };
    match refusal {
        Some(error) => is(Answer::No(error)).then(same),
        None => is(Answer::Done).then(|| next.cloned()),
    }
}

/// The same history with one answer changed: a read has found what another one has, or nothing.
/// `None`: there is nothing to change.
pub fn twisted(log: &[Event], chance: usize) -> Option<Vec<Event>> {
    let found = |event: &Event| match event {
        Event::Returned { answer: Answer::Value(value), .. } => Some(value.clone()),
        _ => None,
    };
    let reads: Vec<usize> = (0..log.len()).filter(|&at| found(&log[at]).is_some()).collect();
    let at = *reads.get(chance % reads.len().max(1))?;
    let others = reads.iter().filter_map(|&other| found(&log[other]));
    let mut others: Vec<_> = others.chain([None]).collect();
    others.retain(|other| Some(other) != found(&log[at]).as_ref());
    let other = others.get(chance / 7 % others.len().max(1))?.clone();
    let mut log = log.to_vec();
    if let Event::Returned { answer, .. } = &mut log[at] {
        *answer = Answer::Value(other);
    }
    Some(log)
}
