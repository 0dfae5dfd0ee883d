//! Every schedule: depth first, each run from the start, no further from a state that was met.
//!
//! Protocols are futures and cannot be copied, so a run is repeated up to the last choice that has
//! another alternative. From there on each new state is remembered; where a state comes again the
//! run ends, since everything that can follow it was or will be seen. With N states and a few
//! alternatives each this costs some N runs instead of one per interleaving.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use farlock_fabric::Nanos;

use super::Schedule;
use crate::fault::Ratio;
use crate::oracle::{Candidates, Choice, Oracle};

/// A choice on the way from the start.
#[derive(Clone, Copy, Debug)]
struct Branch {
    chosen: u32,
    of: u32,
}

/// All schedules of a configuration, each state once.
#[derive(Clone, Debug, Default)]
pub struct Exhaustive {
    path: Vec<Branch>,
    /// The next question's place in the path.
    place: usize,
    /// Choices of this run that an earlier run has made as well.
    repeated: usize,
    begun: bool,
    met: HashSet<u64, BuildHasherDefault<Identity>>,
    /// The longest path.
    depth_max: usize,
}

impl Exhaustive {
    /// From the first schedule on.
    pub fn new() -> Self {
        Self::default()
    }

    /// Different states met at a choice so far.
    pub fn states(&self) -> u64 {
        self.met.len() as u64
    }

    /// The most choices of a run so far.
    pub fn depth_max(&self) -> usize {
        self.depth_max
    }

    fn answer(&mut self, of: u32) -> u32 {
        if self.place == self.path.len() {
            self.path.push(Branch { chosen: 0, of });
            self.depth_max = self.depth_max.max(self.path.len());
        }
        let branch = self.path[self.place];
        assert_eq!(branch.of, of, "a run depends on its choices alone");
        self.place += 1;
        branch.chosen
    }
}

impl Schedule for Exhaustive {
    fn begin(&mut self) -> bool {
        self.place = 0;
        if !std::mem::replace(&mut self.begun, true) {
            return true;
        }
        while let Some(branch) = self.path.last_mut() {
            branch.chosen += 1;
            if branch.chosen < branch.of {
                self.repeated = self.path.len();
                return true;
            }
            self.path.pop();
        }
        false
    }
}

impl Oracle for Exhaustive {
    fn next(&mut self, candidates: &Candidates<'_>) -> Option<u32> {
        if self.place >= self.repeated && !self.met.insert(candidates.state_hash()) {
            return None;
        }
        Some(self.answer(candidates.list().len() as u32))
    }

    fn pick(&mut self, _: Choice, n: u32) -> u32 {
        self.answer(n)
    }

    fn chance(&mut self, _: Choice, _: Ratio) -> bool {
        self.answer(2) == 1
    }

    fn jitter(&mut self, _: u32) -> Nanos {
        0
    }
}

/// The hash of a number that is a hash.
#[derive(Clone, Copy, Debug, Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers of 64 bits are hashed");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}
