//! What clients ask for: how many locks, which of them how often, how many reads.
//!
//! The same seed draws the same requests on every machine: the generator is portable and the
//! distributions use portable mathematics. Nothing here knows who executes the requests.

use std::fmt;
use std::str::FromStr;

use farlock_locks::Mode;
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::range_course::RangeCourse;

/// The most locks of a workload: a request packs a lock's number and its mode into 32 bits.
pub const LOCKS_MAX: u64 = 1 << 31;

/// Requests drawn at a time.
const RING: usize = 128;

/// How often each lock is asked for.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Dist {
    /// Each as often as any other.
    Uniform,
    /// The lock with number `k`, from 0, with a probability proportional to `(k + 1)^-theta`. Hot
    /// locks are adjacent.
    Zipf(f64),
}

impl FromStr for Dist {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "uniform" {
            return Ok(Self::Uniform);
        }
        let theta = text.strip_prefix("zipf:").and_then(|theta| theta.parse().ok());
        match theta {
            Some(theta) if (0.0..=10.0).contains(&theta) => Ok(Self::Zipf(theta)),
            _ => Err(format!("'{text}' is neither uniform nor zipf:T with T from 0 to 10")),
        }
    }
}

impl fmt::Display for Dist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(theta) => write!(f, "zipf:{theta}"),
        }
    }
}

impl From<Dist> for String {
    fn from(dist: Dist) -> Self {
        dist.to_string()
    }
}

impl TryFrom<String> for Dist {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// What all clients of a run ask for.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Workload {
    /// How many locks there are, 1 to [`LOCKS_MAX`].
    pub locks: u64,
    /// Which of them how often.
    pub dist: Dist,
    /// Requests in a hundred that are shared.
    pub reads: u8,
    /// With a client's number, the seed of its requests.
    pub seed: u64,
    /// Among how many neighbouring clients the locks are dealt out, so that each has its own: the
    /// threads of a process, where there are locks enough. 1: all ask for all.
    pub dealt: u64,
    /// If a request is for a range of one lock: which. Then its number is the place where that
    /// begins.
    pub ranges: Option<RangeCourse>,
}

impl Workload {
    /// Among how many the client with this number chooses.
    fn places(&self, client: usize) -> u64 {
        self.ranges.map_or(self.locks / self.dealt, |ranges| ranges.places(client))
    }

    /// The requests of the client with this number.
    pub fn draws(&self, client: usize) -> Draws {
        // Neighbouring seeds and clients draw unrelated requests.
        let mixed = self.seed ^ (client as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Draws {
            rng: Xoshiro256PlusPlus::seed_from_u64(mixed),
            mishaps: Xoshiro256PlusPlus::seed_from_u64(!mixed),
            locks: Sampler::new(self.places(client), self.dist),
            dealt: (self.dealt as u32, (client as u64 % self.dealt) as u32),
            shared_below: (u64::from(self.reads) << 32) / 100,
            ring: Box::new([0; RING]),
            next: RING,
        }
    }
}

enum Sampler {
    One,
    Uniform(u32),
    Zipf(Zipf<f64>),
}

impl Sampler {
    fn new(locks: u64, dist: Dist) -> Self {
        assert!((1..=LOCKS_MAX).contains(&locks), "from one lock to {LOCKS_MAX}");
        match dist {
            _ if locks == 1 => Self::One,
            Dist::Uniform => Self::Uniform(locks as u32),
            Dist::Zipf(theta) => {
                let zipf = Zipf::new(locks as f64, theta);
                Self::Zipf(zipf.expect("its parameters were checked when they were read"))
            }
        }
    }

    fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> u32 {
        match self {
            Self::One => 0,
            Self::Uniform(locks) => rng.random_range(0..*locks),
            Self::Zipf(zipf) => zipf.sample(rng) as u32 - 1,
        }
    }
}

/// One client's requests, drawn ahead into a small ring so that drawing stands in nobody's way.
pub struct Draws {
    rng: Xoshiro256PlusPlus,
    mishaps: Xoshiro256PlusPlus,
    locks: Sampler,
    /// Of so many neighbouring locks this one is the client's own.
    dealt: (u32, u32),
    /// A draw of 32 bits below this is a shared request.
    shared_below: u64,
    ring: Box<[u32; RING]>,
    next: usize,
}

impl Draws {
    /// The next request: a lock's number and the mode.
    #[inline(always)]
    pub fn draw(&mut self) -> (u32, Mode) {
        if self.next >= RING {
            self.refill();
        }
        let request = self.ring[self.next];
        self.next += 1;
        (request >> 1, if request & 1 == 0 { Mode::Shared } else { Mode::Exclusive })
    }

    /// A number of which all are equally likely, for what happens now and then. Who asks for none
    /// gets the same requests as without.
    pub fn chance(&mut self) -> u32 {
        self.mishaps.next_u32()
    }

    /// What decides the requests, for those who draw others.
    pub fn rng(&mut self) -> &mut impl Rng {
        &mut self.rng
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self) {
        let (never, always) = (0, 1 << 32);
        for request in self.ring.iter_mut() {
            let lock = self.locks.draw(&mut self.rng) * self.dealt.0 + self.dealt.1;
            let exclusive = match self.shared_below {
                below if below == never => true,
                below if below == always => false,
                below => u64::from(self.rng.next_u32()) >= below,
            };
            *request = lock << 1 | u32::from(exclusive);
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(locks: u64, dist: Dist, reads: u8) -> Workload {
        Workload { locks, dist, reads, seed: 1, dealt: 1, ranges: None }
    }

    #[test]
    fn a_seed_and_a_client_name_one_stream() {
        let stream = |seed, client| {
            let mut draws = Workload { seed, ..workload(1000, Dist::Uniform, 50) }.draws(client);
            (0..100).map(|_| draws.draw()).collect::<Vec<_>>()
        };
        assert_eq!(stream(1, 0), stream(1, 0));
        assert_ne!(stream(1, 0), stream(1, 1));
        assert_ne!(stream(1, 0), stream(2, 0));
    }

    #[test]
    fn who_is_dealt_locks_asks_for_no_others() {
        let workload = Workload { dealt: 2, ..workload(7, Dist::Uniform, 0) };
        for client in 0..4 {
            let mut draws = workload.draws(client);
            let drawn: std::collections::BTreeSet<u32> =
                (0..1_000).map(|_| draws.draw().0).collect();
            let own = (0..6).filter(|lock| *lock as usize % 2 == client % 2);
            assert!(drawn.into_iter().eq(own), "client {client}");
        }
    }

    #[test]
    fn shares_are_as_asked() {
        for (reads, least, most) in [(0, 0, 0), (50, 4_800, 5_200), (100, 10_000, 10_000)] {
            let mut draws = workload(10, Dist::Uniform, reads).draws(0);
            let shared = (0..10_000).filter(|_| draws.draw().1 == Mode::Shared).count();
            assert!((least..=most).contains(&shared), "{shared} of 10,000 at {reads} %");
        }
    }

    #[test]
    fn zipf_prefers_low_numbers_and_stays_in_range() {
        let mut draws = workload(100, Dist::Zipf(0.99), 0).draws(0);
        let mut counts = [0_u32; 100];
        (0..100_000).for_each(|_| counts[draws.draw().0 as usize] += 1);
        // The sum of k^-0.99 for k from 1 to 100 is 5.30: the hottest lock has 18.9 %.
        assert!((18_300..19_500).contains(&counts[0]), "{}", counts[0]);
        assert!(counts[99] > 0);
    }

    #[test]
    fn distributions_read_as_they_are_written() {
        for text in ["uniform", "zipf:0.99", "zipf:1.5"] {
            assert_eq!(text.parse::<Dist>().unwrap().to_string(), text);
        }
        for text in ["", "zipf", "zipf:", "zipf:-1", "zipf:nan", "normal"] {
            assert!(text.parse::<Dist>().is_err(), "{text}");
        }
    }
}
