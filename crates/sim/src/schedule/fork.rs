//! A stored schedule up to some question, then another one.

use farlock_fabric::Nanos;

use super::oracle::Schedule;
use super::replay::Replay;
use super::trail::Trail;
use crate::fault::Ratio;
use crate::oracle::{Candidates, Choice, Oracle};

/// Runs that all begin like one that was, as far as its trail is followed, and then go their own
/// ways: what else could have happened from there.
#[derive(Clone, Debug)]
pub struct Fork<S> {
    trail: Trail,
    /// Questions that the trail answers.
    until: u32,
    asked: u32,
    replay: Replay,
    then: S,
}

impl<S> Fork<S> {
    /// Runs of `then` from the start.
    pub fn new(then: S) -> Self {
        let trail = Trail::default();
        Self { replay: Replay::new(trail.clone()), trail, until: 0, asked: 0, then }
    }

    /// From the next run on, the trail answers the first `until` questions.
    pub fn set_origin(&mut self, trail: Trail, until: u32) {
        (self.trail, self.until) = (trail, until);
    }

    /// The schedule that goes on.
    pub fn then(&mut self) -> &mut S {
        &mut self.then
    }

    fn follows(&mut self) -> bool {
        self.asked += 1;
        self.asked <= self.until
    }
}

impl<S: Schedule> Schedule for Fork<S> {
    fn begin(&mut self) -> bool {
        self.replay = Replay::new(self.trail.clone());
        self.asked = 0;
        self.then.begin()
    }
}

impl<S: Schedule> Oracle for Fork<S> {
    fn next(&mut self, candidates: &Candidates<'_>) -> Option<u32> {
        if self.follows() { self.replay.next(candidates) } else { self.then.next(candidates) }
    }

    fn pick(&mut self, choice: Choice, n: u32) -> u32 {
        if self.follows() { self.replay.pick(choice, n) } else { self.then.pick(choice, n) }
    }

    fn chance(&mut self, choice: Choice, ratio: Ratio) -> bool {
        match self.follows() {
            true => self.replay.chance(choice, ratio),
            false => self.then.chance(choice, ratio),
        }
    }

    fn jitter(&mut self, mean_ns: u32) -> Nanos {
        self.then.jitter(mean_ns)
    }
}
