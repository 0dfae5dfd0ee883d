//! Probabilistic concurrency testing (Burckhardt, Kothari, Musuvathi, Nagarakatte: A Randomized
//! Scheduler with Probabilistic Guarantees of Finding Bugs, ASPLOS'10).
//!
//! Each endpoint has a random priority, and of the events that may be next one of the endpoint with
//! the highest priority is. At d - 1 random steps the endpoint that would go on falls behind all
//! others. A bug of depth d among n endpoints in k steps is found in a run with a probability of at
//! least 1 / (n k^(d-1)), where uniform schedules need a number of runs exponential in k.
//!
//! Two things the paper does not have: an endpoint that waits by the clock falls behind the others
//! when its timer goes off, or else a poller would keep everybody from what it waits for; and the
//! death of an endpoint is an actor with a priority of its own, and so are its going on after a
//! pause and what it sent outside.

use farlock_fabric::Nanos;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::oracle::Schedule;
use crate::fault::Ratio;
use crate::oracle::{Candidates, Choice, Oracle, Seeded, StepKind};

/// Steps of a run before any was seen.
const STEPS_AT_FIRST: u32 = 16;

/// Few preemptions, at random places.
#[derive(Clone, Debug)]
pub struct Pct {
    seeds: Xoshiro256PlusPlus,
    oracle: Seeded,
    depth: u32,
    /// The most steps of any run so far.
    steps_max: u32,
    step: u32,
    /// The steps at which an actor falls behind.
    changes: Vec<u32>,
    /// By actor; 0 until it is first seen.
    priorities: Vec<u64>,
    /// The lowest priority so far.
    lowest: u64,
}

impl Pct {
    /// Schedules of this depth, at least 1, that follow from this seed.
    pub fn new(seed: u64, depth: u32) -> Self {
        assert!(depth >= 1, "a bug has a depth of at least 1");
        Self {
            seeds: Xoshiro256PlusPlus::seed_from_u64(seed),
            oracle: Seeded::new(seed),
            depth,
            steps_max: STEPS_AT_FIRST,
            step: 0,
            changes: Vec::new(),
            priorities: Vec::new(),
            lowest: 0,
        }
    }

    /// The depth.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// From the next run on, schedules of this depth.
    pub fn set_depth(&mut self, depth: u32) {
        assert!(depth >= 1, "a bug has a depth of at least 1");
        self.depth = depth;
    }

    fn priority(&mut self, actor: usize) -> u64 {
        if self.priorities.len() <= actor {
            self.priorities.resize(actor + 1, 0);
        }
        if self.priorities[actor] == 0 {
            // Above every priority that anybody falls to.
            let draw = u64::from(self.oracle.pick(Choice::Event, u32::MAX));
            self.priorities[actor] = 1 << 63 | draw << 16 | actor as u64;
        }
        self.priorities[actor]
    }

    fn falls_behind(&mut self, actor: usize) {
        self.lowest -= 1;
        self.priorities[actor] = self.lowest;
    }
}

/// Who an event belongs to: an endpoint, its death, what it sent outside, or its going on.
fn actor(owner: u16, kind: StepKind) -> usize {
    let role = match kind {
        StepKind::Verb | StepKind::Timer => 0,
        StepKind::Death => 1,
        StepKind::Packet => 2,
        StepKind::Wake => 3,
    };
    usize::from(owner) * 4 + role
}

impl Schedule for Pct {
    fn begin(&mut self) -> bool {
        self.oracle = Seeded::new(self.seeds.next_u64());
        self.step = 0;
        self.lowest = 1 << 62;
        self.priorities.clear();
        self.changes.clear();
        for _ in 1..self.depth {
            let change = self.oracle.pick(Choice::Event, self.steps_max);
            self.changes.push(change);
        }
        true
    }
}

impl Oracle for Pct {
    fn next(&mut self, candidates: &Candidates<'_>) -> Option<u32> {
        let mut chosen = (0, 0, 0);
        let is_change = self.changes.contains(&self.step);
        for attempt in 0..=u32::from(is_change) {
            chosen = (0, 0, 0);
            for (index, candidate) in (0..).zip(candidates.list()) {
                let actor = actor(candidate.owner, candidate.kind);
                let priority = self.priority(actor);
                if priority > chosen.0 {
                    chosen = (priority, index, actor);
                }
            }
            if is_change && attempt == 0 {
                self.falls_behind(chosen.2);
            }
        }
        if candidates.list()[chosen.1 as usize].kind == StepKind::Timer {
            self.falls_behind(chosen.2);
        }
        self.step += 1;
        self.steps_max = self.steps_max.max(self.step);
        Some(chosen.1)
    }

    fn pick(&mut self, choice: Choice, n: u32) -> u32 {
        self.oracle.pick(choice, n)
    }

    fn chance(&mut self, choice: Choice, ratio: Ratio) -> bool {
        self.oracle.chance(choice, ratio)
    }

    fn jitter(&mut self, mean_ns: u32) -> Nanos {
        self.oracle.jitter(mean_ns)
    }
}
