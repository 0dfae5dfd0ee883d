//! The pairs of a store that are whole, and what is said of the others.

use farlock::KvError;
use farlock::kv::{Pair, Scan};

use crate::cli::report::{Exit, Failure};

/// The pairs of a store that are whole.
pub(super) struct Whole<'k> {
    pairs: Scan<'k>,
    damaged: u64,
}

impl<'k> Whole<'k> {
    pub(super) fn of(pairs: Scan<'k>) -> Self {
        Self { pairs, damaged: 0 }
    }

    pub(super) fn next(&mut self) -> Result<Option<Pair>, Failure> {
        loop {
            match self.pairs.next() {
                Some(Err(KvError::Corrupt)) => self.damaged += 1,
                pair => return Ok(pair.transpose()?),
            }
        }
    }

    /// It was gone through: says what was left out.
    pub(super) fn end(self) -> Result<(), Failure> {
        let Self { damaged, .. } = self;
        if damaged == 0 {
            return Ok(());
        }
        let what = format!("at {damaged} places pairs are damaged and were left out");
        let error = KvError::Corrupt;
        Err(Failure::new(Exit::UNAVAILABLE, error.code(), what, error.hint()))
    }
}
