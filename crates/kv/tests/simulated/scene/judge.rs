//! What a key is, said apart from the store: a value or none, and what each operation makes of it.

use std::collections::BTreeMap;

use farlock_kv::WriteError;
use farlock_sim::check::{History, NotLinearizable, Object};

/// What was asked.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Ask {
    Get,
    Insert(Vec<u8>),
    Update(Vec<u8>),
    Upsert(Vec<u8>),
    Delete,
    CompareAndSet(Vec<u8>, Vec<u8>),
    Increment(u64),
}

/// What was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Value(Option<Vec<u8>>),
    Done,
    Sum(u64),
    No(WriteError),
    /// It said that nothing was done.
    Nothing,
}

/// A call, with its answer once that is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    pub ask: Ask,
    pub answer: Option<Answer>,
}

/// A key.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Cell(Option<Vec<u8>>);

impl Cell {
    /// What an operation makes of it, and what it answers.
    fn follow(&self, ask: &Ask) -> (Self, Answer) {
        let put = |value: &[u8]| (Self(Some(value.to_vec())), Answer::Done);
        let no = |error| (self.clone(), Answer::No(error));
        match (ask, &self.0) {
            (Ask::Get, value) => (self.clone(), Answer::Value(value.clone())),
            (Ask::Insert(_), Some(_)) => no(WriteError::Exists),
            (Ask::Insert(value), None) | (Ask::Upsert(value), _) => put(value),
            (Ask::Update(_) | Ask::Delete | Ask::CompareAndSet(..), None) => {
                no(WriteError::NotFound)
            }
            (Ask::Update(value), Some(_)) => put(value),
            (Ask::Delete, Some(_)) => (Self(None), Answer::Done),
            (Ask::CompareAndSet(old, new), Some(value)) if old == value => put(new),
            (Ask::CompareAndSet(..), Some(_)) => no(WriteError::Mismatch),
            (Ask::Increment(by), value) => {
                let old = value
                    .as_ref()
                    .map_or(Ok(0), |old| old.as_slice().try_into().map(u64::from_le_bytes));
                let Ok(old) = old else { return no(WriteError::NotANumber) };
                let sum = old.wrapping_add(*by);
                (Self(Some(sum.to_le_bytes().to_vec())), Answer::Sum(sum))
            }
        }
    }
}

impl Object for Cell {
    type Operation = Call;

    fn after(&self, call: &Call) -> Option<Self> {
        if call.answer == Some(Answer::Nothing) {
            return Some(self.clone());
        }
        let (after, answer) = self.follow(&call.ask);
        call.answer.as_ref().is_none_or(|given| *given == answer).then_some(after)
    }
}

/// An operation that was called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Called {
    in_history: farlock_sim::check::Called,
    /// Which event of the log it was.
    in_log: usize,
}

/// What happened at the face of the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    Called {
        key: Vec<u8>,
        ask: Ask,
    },
    /// The call that is the `call`-th event.
    Returned {
        call: usize,
        answer: Answer,
    },
}

/// The histories of all keys.
#[derive(Debug, Default)]
pub struct Judge {
    keys: BTreeMap<Vec<u8>, History<Call>>,
    /// The same for the second judge.
    log: Vec<Event>,
    pub answered: u64,
    pub open: u64,
}

impl Judge {
    pub fn call(&mut self, key: &[u8], ask: Ask) -> Called {
        self.open += 1;
        let in_log = self.log.len();
        self.log.push(Event::Called { key: key.to_vec(), ask: ask.clone() });
        let in_history =
            self.keys.entry(key.to_vec()).or_default().call(Call { ask, answer: None });
        Called { in_history, in_log }
    }

    /// What is unknown, dropped or died is never answered.
    pub fn answer(&mut self, key: &[u8], called: Called, ask: Ask, answer: Answer) {
        self.open -= 1;
        self.answered += 1;
        self.log.push(Event::Returned { call: called.in_log, answer: answer.clone() });
        let history = self.keys.get_mut(key).expect("it was called");
        history.answer(called.in_history, Call { ask, answer: Some(answer) });
    }

    /// The judge of another history.
    pub fn of(log: &[Event]) -> Self {
        let mut judge = Self::default();
        let mut calls = BTreeMap::new();
        for (at, event) in log.iter().enumerate() {
            match event {
                Event::Called { key, ask } => {
                    calls.insert(at, (key, ask, judge.call(key, ask.clone())));
                }
                Event::Returned { call, answer } => {
                    let (key, ask, called) = calls[call];
                    judge.answer(key, called, ask.clone(), answer.clone());
                }
            }
        }
        judge
    }

    /// What happened, in order.
    pub fn log(&self) -> &[Event] {
        &self.log
    }

    /// Whether each key's history is one of a key.
    pub fn verdict(&self) -> Result<(), String> {
        for (key, history) in &self.keys {
            history.check(Cell::default()).map_err(|NotLinearizable { operation }| {
                let spans: Vec<String> = history
                    .spans()
                    .map(|(call, from, to)| format!("{from:3} {to:?} {call:?}"))
                    .collect();
                format!("key {key:?}: operation {operation} of\n{}", spans.join("\n"))
            })?;
        }
        Ok(())
    }
}
