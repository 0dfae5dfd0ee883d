//! What the clients of a storm over a store do, and which index the store has.

use clap::ValueEnum;
use farlock::kv::Index;
use rand::{Rng, RngExt};

/// What clients do: a workload of YCSB, with keys drawn as unevenly as there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Workload {
    /// Half reads, half updates
    A,
    /// Half reads, half changes of what was read: compared and set, or inserted
    F,
    /// Half of what they do is A, half F
    #[default]
    Both,
}

/// What a client does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It reads a value.
    Read,
    /// It writes one, whatever was there.
    Update,
    /// It reads a value, and changes it if it is still that.
    Change,
}

impl Workload {
    /// What the command line calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::F => "f",
            Self::Both => "both",
        }
    }

    /// What a client does next.
    pub fn draw(self, chance: &mut impl Rng) -> Step {
        match (self, chance.random_range(0..4)) {
            (_, 0 | 1) => Step::Read,
            (Self::A, _) | (Self::Both, 2) => Step::Update,
            _ => Step::Change,
        }
    }
}

/// The index of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum StoreIndex {
    /// A hash table
    #[default]
    Hash,
    /// A tree, with the keys in order
    Ordered,
}

impl StoreIndex {
    /// As farlock is asked for it.
    pub const fn index(self) -> Index {
        match self {
            Self::Hash => Index::Hash,
            Self::Ordered => Index::Ordered,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn half_of_each_workload_is_reads_and_half_is_what_it_says() {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(1);
        for (workload, updates, changes) in
            [(Workload::A, 500, 0), (Workload::F, 0, 500), (Workload::Both, 250, 250)]
        {
            let drawn: Vec<Step> = (0..1000).map(|_| workload.draw(&mut chance)).collect();
            let count = |step: Step| drawn.iter().filter(|drawn| **drawn == step).count();
            for (step, expected) in
                [(Step::Read, 500), (Step::Update, updates), (Step::Change, changes)]
            {
                assert!(count(step).abs_diff(expected) < 60, "{workload:?}: {step:?}");
            }
            assert_eq!(count(Step::Update) == 0, updates == 0);
            assert_eq!(count(Step::Change) == 0, changes == 0);
        }
    }
}
