//! Every schedule: depth first, each run from the start, no further from a state that was met.
//!
//! Protocols are futures and cannot be copied, so a run is repeated up to the last choice that has
//! another alternative. From there on each new state is remembered; where a state comes again the
//! run ends, since everything that can follow it was or will be seen. With N states and a few
//! alternatives each this costs some N runs instead of one per interleaving.
//!
//! A run that ends where it has been before may go round for ever. So it is remembered as well
//! which state follows which, and when every run has been, [`Exhaustive::doomed`] are the states
//! from which no run ends as it should: whatever happens, a task waits.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use farlock_fabric::Nanos;

use super::oracle::Schedule;
use crate::fault::Ratio;
use crate::oracle::{Candidates, Choice, Oracle};

/// A state, in the order in which they were met; the first is where every run begins.
type State = u32;
const START: State = 0;

/// A choice on the way from the start.
#[derive(Clone, Copy, Debug)]
struct Branch {
    chosen: u32,
    of: u32,
    /// The last state before it.
    state: State,
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
    /// Every state met at a choice, by its hash.
    met: HashMap<u64, State, BuildHasherDefault<Identity>>,
    /// The last state of this run.
    at: State,
    /// Which state followed which.
    steps: Vec<(State, State)>,
    /// The last states of runs that ended as they should.
    ends: Vec<State>,
    /// Hashes of states, sorted: the first of them that is met is the end.
    sought: Vec<u64>,
    found: bool,
    /// The longest path.
    depth_max: usize,
}

impl Exhaustive {
    /// From the first schedule on.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Exhaustive::new`], but the schedules end with the first that reaches a state of one of
    /// these hashes.
    pub fn until(mut states: Vec<u64>) -> Self {
        states.sort_unstable();
        Self { sought: states, ..Self::default() }
    }

    /// Different states met at a choice so far.
    pub fn states(&self) -> u64 {
        self.met.len() as u64
    }

    /// The most choices of a run so far.
    pub fn depth_max(&self) -> usize {
        self.depth_max
    }

    /// The last run was not abandoned: everybody came to an end in it.
    pub fn ended(&mut self) {
        self.ends.push(self.at);
    }

    /// Once every run has been, the hashes of the states from which none ends: a few choices may be
    /// left, but whatever is chosen leads round in circles.
    pub fn doomed(&self) -> Vec<u64> {
        let mut before: Vec<Vec<State>> = vec![Vec::new(); self.met.len() + 1];
        for &(from, to) in &self.steps {
            before[to as usize].push(from);
        }
        let mut ends = vec![false; before.len()];
        let mut left = self.ends.clone();
        while let Some(state) = left.pop() {
            if !std::mem::replace(&mut ends[state as usize], true) {
                left.extend_from_slice(&before[state as usize]);
            }
        }
        let doomed = self.met.iter().filter(|&(_, &state)| !ends[state as usize]);
        doomed.map(|(&hash, _)| hash).collect()
    }

    /// The run comes to a state. Whether it was there before.
    fn meets(&mut self, hash: u64) -> bool {
        let next = self.met.len() as State + 1;
        let state = *self.met.entry(hash).or_insert(next);
        self.steps.push((self.at, state));
        self.at = state;
        self.found |= self.sought.binary_search(&hash).is_ok();
        state != next
    }

    fn answer(&mut self, of: u32) -> u32 {
        if self.place == self.path.len() {
            self.path.push(Branch { chosen: 0, of, state: self.at });
            self.depth_max = self.depth_max.max(self.path.len());
        }
        let branch = self.path[self.place];
        assert_eq!(branch.of, of, "a run depends on its choices alone");
        self.at = branch.state;
        self.place += 1;
        branch.chosen
    }
}

impl Schedule for Exhaustive {
    fn begin(&mut self) -> bool {
        self.place = 0;
        self.at = START;
        if !std::mem::replace(&mut self.begun, true) {
            return true;
        }
        if self.found {
            return false;
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
        if self.place >= self.repeated && (self.meets(candidates.state_hash()) || self.found) {
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
