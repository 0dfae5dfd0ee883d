//! Uniformly random schedules, each with a seed of its own.

use farlock_fabric::Nanos;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::oracle::Schedule;
use crate::fault::Ratio;
use crate::oracle::{Choice, Oracle, Seeded};

/// Whatever may be next is next with equal probability.
#[derive(Clone, Debug)]
pub struct Random {
    seeds: rand_xoshiro::Xoshiro256PlusPlus,
    oracle: Seeded,
}

impl Random {
    /// Schedules that follow from this seed.
    pub fn new(seed: u64) -> Self {
        let seeds = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { seeds, oracle: Seeded::new(seed) }
    }
}

impl Schedule for Random {
    fn begin(&mut self) -> bool {
        self.oracle = Seeded::new(self.seeds.next_u64());
        true
    }
}

impl Oracle for Random {
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
