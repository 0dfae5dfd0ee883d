//! Changes of a lock's parameters while clients use it: what a client does as its *manager* instead
//! of acquiring.

use std::fmt;
use std::str::FromStr;

use anyhow::Context;
use farlock_fabric::Nanos;
use farlock_locks::Tuning;
use farlock_sim::{Choice, Oracle, Seeded};

/// The most changes that are drawn for a scenario.
const DRAWN_MAX: u32 = 2;
/// What is drawn, of m and of the time that owners wait.
const DISTANCES: [u8; 3] = [1, 2, 4];
const WAITS_NS: [Nanos; 3] = [5_000, 15_000, 30_000];

/// Parameters to which a lock is tuned, as `2:30000`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct To(pub Tuning);

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.distance, self.0.wait_ns)
    }
}

impl FromStr for To {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (distance, wait_ns) = text.split_once(':').context("parameters are as 2:30000")?;
        Ok(Self(Tuning { distance: distance.parse()?, wait_ns: wait_ns.parse()? }))
    }
}

/// A client's acquisition that is a change of the lock's parameters instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tune {
    /// Which client.
    pub who: u16,
    /// Which of its acquisitions.
    pub round: u16,
    /// To what.
    pub to: To,
}

impl Tune {
    /// Some, of so many clients that acquire so often.
    pub fn draw(clients: u16, acquisitions: u16, oracle: &mut Seeded) -> Vec<Self> {
        let mut draw = |n| oracle.pick(Choice::Event, n);
        let mut tunes: Vec<Self> = Vec::new();
        for _ in 0..1 + draw(DRAWN_MAX) {
            let (who, round) = (draw(clients.into()) as u16, draw(acquisitions.into()) as u16);
            let distance = DISTANCES[draw(DISTANCES.len() as u32) as usize];
            let wait_ns = WAITS_NS[draw(WAITS_NS.len() as u32) as usize];
            tunes.push(Self { who, round, to: To(Tuning { distance, wait_ns }) });
        }
        tunes
    }
}

impl fmt::Display for Tune {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.who, self.round, self.to)
    }
}

impl FromStr for Tune {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parts: Vec<&str> = text.split('.').collect();
        let [who, round, to] = parts[..] else { anyhow::bail!("a change is as 1.0.2:30000") };
        Ok(Self { who: who.parse()?, round: round.parse()?, to: to.parse()? })
    }
}
