//! Who decides what is not determined.
//!
//! The world asks one [`Oracle`] for every choice, in an order that depends on earlier answers
//! alone. So an oracle that answers the same way sees the same run: a seed replays, an explorer
//! enumerates. Nothing else in this crate draws a random number, but for each endpoint's own
//! stream, which belongs to the protocol.

use farlock_fabric::Nanos;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::fault::Ratio;

/// What is being decided. An explorer may treat kinds differently; a random oracle ignores them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Which pending event happens next; asked only when [`Mode::Explored`](crate::Mode).
    Event,
    /// Whether a verb or message is late, and by how many nanoseconds.
    Late,
    /// Whether a read or write is torn.
    Tear,
    /// In which order and in what pieces its words are served, and when the next piece is.
    TearPiece,
    /// Whether later verbs of its chain overtake a read, and by how many nanoseconds.
    Overtake,
    /// Whether a completion is lost.
    Lose,
    /// What became of a verb whose completion was lost.
    LostOutcome,
    /// Whether an endpoint crashes as it posts a verb.
    Crash,
    /// What becomes of a verb in flight when its endpoint crashes.
    CrashOutcome,
    /// After how many nanoseconds a crash is noticed.
    Detection,
    /// An endpoint's clock: its offset and its phase.
    Clock,
    /// Whether a caller gives up what it waits for.
    Cancel,
    /// Whether something else befalls a client as it posts a verb.
    Mishap,
}

/// What kind of event may happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepKind {
    /// A verb or a message goes on: takes effect, as a whole or in part.
    Verb,
    /// The interval of a wait is over.
    Timer,
    /// A paused client goes on.
    Wake,
    /// A death becomes known.
    Death,
    /// What an endpoint sent to the outside arrives.
    Packet,
}

/// An event that may be next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The index of the endpoint whose event it is.
    pub owner: u16,
    /// What it is.
    pub kind: StepKind,
}

/// The events that may be next, two or more, and the world in which they may.
#[derive(Clone, Copy)]
pub struct Candidates<'a> {
    pub(crate) list: &'a [Candidate],
    pub(crate) last: u16,
    pub(crate) world: &'a dyn Hashed,
}

/// A world in which something may happen, as far as an explorer tells it from others.
pub(crate) trait Hashed {
    /// Of what the event with this number in the list does.
    fn event_hash(&self, index: u32) -> u64;
    /// Of everything on which the rest of the run depends.
    fn state_hash(&self) -> u64;
}

impl Candidates<'_> {
    /// The events, in the order in which they became possible.
    pub fn list(&self) -> &[Candidate] {
        self.list
    }

    /// Whose event happened last; 0 if none has.
    pub fn last(&self) -> u16 {
        self.last
    }

    /// A hash of what the event with this number in the list does: equal for equal events, wherever
    /// they stand.
    pub fn event_hash(&self, index: u32) -> u64 {
        self.world.event_hash(index)
    }

    /// A hash of everything on which the rest of the run depends; see
    /// [`Handle::state_hash`](crate::Handle::state_hash).
    pub fn state_hash(&self) -> u64 {
        self.world.state_hash()
    }
}

/// Answers every undetermined question of a world.
pub trait Oracle {
    /// Which event is next in explored mode; `None` ends the run, with
    /// [`Ended::Abandoned`](crate::Ended::Abandoned). The number of one of
    /// [`Candidates::list`].
    fn next(&mut self, candidates: &Candidates<'_>) -> Option<u32> {
        let n = u32::try_from(candidates.list().len()).expect("there are fewer than 2^32 events");
        Some(self.pick(Choice::Event, n))
    }

    /// One of `n` alternatives, 0 to `n - 1`; `n` is at least 1.
    fn pick(&mut self, choice: Choice, n: u32) -> u32;

    /// Whether something happens that has this probability.
    fn chance(&mut self, choice: Choice, ratio: Ratio) -> bool;

    /// How much longer than the least possible a verb is on its way, in nanoseconds.
    fn jitter(&mut self, mean_ns: u32) -> Nanos;
}

/// Stands in for an oracle that is being asked.
pub(crate) struct Nobody;

impl Oracle for Nobody {
    fn pick(&mut self, _: Choice, _: u32) -> u32 {
        0
    }

    fn chance(&mut self, _: Choice, _: Ratio) -> bool {
        false
    }

    fn jitter(&mut self, _: u32) -> Nanos {
        0
    }
}

/// The random oracle: everything follows from one seed, on every machine alike.
#[derive(Clone, Debug)]
pub struct Seeded(Xoshiro256PlusPlus);

impl Seeded {
    /// The oracle of this seed.
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }
}

impl Oracle for Seeded {
    #[inline]
    fn pick(&mut self, _: Choice, n: u32) -> u32 {
        // Multiply and shift: biased by less than 2^-32, and no loop.
        (((self.0.next_u64() >> 32) * u64::from(n)) >> 32) as u32
    }

    #[inline]
    fn chance(&mut self, choice: Choice, ratio: Ratio) -> bool {
        self.pick(choice, ratio.of) < ratio.part
    }

    #[inline]
    fn jitter(&mut self, mean_ns: u32) -> Nanos {
        exponential(self.0.next_u64(), mean_ns)
    }
}

/// Table steps per doubling.
const STEPS: usize = 256;

/// log2 of the middle of each step between 1 and 2, in units of 2^-16.
const LOG2: [u32; STEPS] = {
    let mut table = [0; STEPS];
    let mut i = 0;
    while i < STEPS {
        // Squaring a number between 1 and 2 yields the next binary digit of its logarithm.
        let (mut x, mut log, mut digit) = (((2 * STEPS + 2 * i + 1) as u64) << 22, 0, 0);
        while digit < 16 {
            x = ((x as u128 * x as u128) >> 31) as u64;
            log <<= 1;
            if x >> 32 != 0 {
                x >>= 1;
                log |= 1;
            }
            digit += 1;
        }
        table[i] = log;
        i += 1;
    }
    table
};

/// log2(x) in units of 2^-16, to about 0.003; `x` is not zero. Integer arithmetic only: the same on
/// every machine.
pub(crate) const fn log2(x: u64) -> u64 {
    let zeros = x.leading_zeros();
    let step = ((x << zeros) >> 55) as usize & (STEPS - 1);
    ((63 - zeros as u64) << 16) + LOG2[step] as u64
}

/// An exponentially distributed number of nanoseconds out of 64 uniform bits.
#[inline]
fn exponential(uniform: u64, mean_ns: u32) -> Nanos {
    /// The natural logarithm of 2 in units of 2^-16.
    const LN2: u64 = 45_426;
    let log = (64 << 16) - log2(uniform | 1);
    let doublings = (u64::from(mean_ns) * log) >> 16;
    (doublings * LN2 + (1 << 15)) >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_exact_to_three_parts_in_a_thousand() {
        for x in [1_u64, 2, 3, 5, 240, 1000, u64::MAX / 3, u64::MAX] {
            let exact = (x as f64).log2() * 65536.0;
            assert!((log2(x) as f64 - exact).abs() < 0.003 * 65536.0, "log2({x})");
        }
    }

    #[test]
    fn jitter_has_its_mean_and_its_tail() {
        let mut oracle = Seeded::new(1);
        let draws: Vec<u64> = (0..100_000).map(|_| oracle.jitter(1000)).collect();
        let mean = draws.iter().sum::<u64>() / 100_000;
        assert!((980..1020).contains(&mean), "mean {mean}");
        let beyond_three_means = draws.iter().filter(|&&ns| ns > 3000).count();
        assert!((4500..5500).contains(&beyond_three_means), "{beyond_three_means} of 4979");
    }

    #[test]
    fn picks_are_uniform() {
        let mut oracle = Seeded::new(2);
        let mut seen = [0; 3];
        (0..30_000).for_each(|_| seen[oracle.pick(Choice::Event, 3) as usize] += 1);
        assert!(seen.iter().all(|&n| (9_500..10_500).contains(&n)), "{seen:?}");
    }
}
