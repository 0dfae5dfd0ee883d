//! One stored schedule.

use farlock_fabric::Nanos;

use super::oracle::Schedule;
use super::trail::{Trail, named, obvious};
use crate::fault::Ratio;
use crate::oracle::{Candidates, Choice, Oracle};

/// The run of a trail. An answer that does not fit, since the trail was cut, is the obvious one.
#[derive(Clone, Debug)]
pub struct Replay {
    trail: Trail,
    cursor: usize,
    asked: u32,
    begun: bool,
}

impl Replay {
    /// The run of this trail, once.
    pub fn new(trail: Trail) -> Self {
        Self { trail, cursor: 0, asked: 0, begun: false }
    }

    fn answer(&mut self) -> Option<u32> {
        let answer = self.trail.answer(&mut self.cursor, self.asked);
        self.asked += 1;
        answer
    }
}

impl Schedule for Replay {
    fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.begun, true)
    }
}

impl Oracle for Replay {
    fn next(&mut self, candidates: &Candidates<'_>) -> Option<u32> {
        let stored = self.answer().and_then(|name| named(candidates.list(), name));
        Some(stored.unwrap_or_else(|| obvious(candidates.list(), candidates.last())))
    }

    fn pick(&mut self, _: Choice, n: u32) -> u32 {
        self.answer().unwrap_or(0).min(n - 1)
    }

    fn chance(&mut self, _: Choice, _: Ratio) -> bool {
        self.answer().is_some_and(|answer| answer != 0)
    }

    fn jitter(&mut self, _: u32) -> Nanos {
        0
    }
}
