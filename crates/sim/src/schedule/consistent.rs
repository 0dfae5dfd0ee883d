//! Random schedules by which a world is tested: whether equal states have equal futures.
//!
//! An exploration turns back where a state's hash was met before, which is right only if each
//! choice leads from equal hashes to equal hashes. So it is remembered what followed.

use std::collections::HashMap;

use farlock_fabric::Nanos;

use super::oracle::Schedule;
use super::random::Random;
use crate::fault::Ratio;
use crate::oracle::{Candidates, Choice, Oracle};

/// Random schedules that remember what followed each choice in each state.
#[derive(Clone, Debug)]
pub struct Consistent {
    random: Random,
    /// The last state, and what was chosen since.
    last: Option<(u64, u64)>,
    followed: HashMap<(u64, u64), u64>,
    conflicts: u64,
    repeats: u64,
}

impl Consistent {
    /// Schedules of this seed.
    pub fn new(seed: u64) -> Self {
        let (last, followed) = (None, HashMap::new());
        Self { random: Random::new(seed), last, followed, conflicts: 0, repeats: 0 }
    }

    /// How often the same choice in the same state has led elsewhere.
    pub fn conflicts(&self) -> u64 {
        self.conflicts
    }

    /// How often it has led to where it led before.
    pub fn repeats(&self) -> u64 {
        self.repeats
    }

    fn chooses(&mut self, what: u64) {
        if let Some((_, chosen)) = &mut self.last {
            *chosen = chosen.rotate_left(9).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ what;
        }
    }

    /// What was chosen last has led here.
    fn leads_to(&mut self, state: u64) {
        let Some(from) = self.last.take() else { return };
        match self.followed.insert(from, state) {
            None => {}
            Some(before) if before == state => self.repeats += 1,
            Some(_) => self.conflicts += 1,
        }
    }
}

impl Schedule for Consistent {
    fn begin(&mut self) -> bool {
        self.leads_to(0);
        self.random.begin()
    }
}

impl Oracle for Consistent {
    fn next(&mut self, candidates: &Candidates<'_>) -> Option<u32> {
        let state = candidates.state_hash();
        self.leads_to(state);
        let chosen = self.random.next(candidates)?;
        self.last = Some((state, 0));
        self.chooses(candidates.event_hash(chosen));
        Some(chosen)
    }

    fn pick(&mut self, choice: Choice, n: u32) -> u32 {
        let answer = self.random.pick(choice, n);
        self.chooses(answer.into());
        answer
    }

    fn chance(&mut self, choice: Choice, ratio: Ratio) -> bool {
        let answer = self.random.chance(choice, ratio);
        self.chooses(answer.into());
        answer
    }

    fn jitter(&mut self, _: u32) -> Nanos {
        0
    }
}
