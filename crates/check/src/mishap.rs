//! What befalls a client as it posts one of its verbs, besides death: data with units, drawn at
//! random, and part of a run's line.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use farlock_fabric::Nanos;
use farlock_sim::{Choice, Oracle, Outcome, Reset};

use crate::faults::Faults;

/// Among how many of its first verbs something befalls a client.
const VERBS: u32 = 24;
/// Of so many scenarios one has mishaps of each kind.
const ONE_IN: u32 = 4;
/// The most pauses of a scenario: what one client misses, another does, and pauses in turn.
const PAUSES_MAX: u32 = 3;

/// An outcome that is for the schedule to choose.
const ANY: &str = "any";

/// Something befalls client `who` as it posts its verb with this number, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mishap {
    /// Who.
    pub who: u16,
    /// At which of its verbs.
    pub verb: u64,
    /// What.
    pub what: What,
}

/// What befalls a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// It posts the verb and does nothing more for at least so many nanoseconds.
    Pause(Nanos),
    /// It posts the verb and does nothing more until all others have come to an end. Who holds is
    /// paused instead.
    Stop,
    /// It does nothing more from its next wait on, the verb before which was this or a later one.
    StopInWait,
    /// Its clock jumps by so many nanoseconds, which nobody promises not to happen.
    Jump(i64),
    /// The completion of the verb is lost. What becomes of the verb; `None`: as the schedule likes.
    Lost(Option<Outcome>),
    /// The memory node remembers what its memory holds.
    Save,
    /// The memory node restarts, in a new incarnation: with its memory as it was, as it was saved,
    /// or zeroed.
    Restart(Reset),
}

/// What stops are called, at a verb and in a wait.
const STOP: &str = "stop";
const STOP_IN_WAIT: &str = "stop-in-wait";
/// What resets are called.
const RESETS: [(Reset, &str); 3] =
    [(Reset::Zeroed, "zeroed"), (Reset::Kept, "kept"), (Reset::Saved, "saved")];

/// The lengths of pauses, in quarters of a lease and nanoseconds more: short of one, around one and
/// around the two after which others take the lock, within the next holder's, and many.
const PAUSES: [(u64, i64); 7] = [(2, 0), (4, -1), (4, 1), (8, 1), (9, 0), (12, 0), (40, 0)];

impl Mishap {
    /// Mishaps of a scenario with so many clients, which may lose completions if their lock
    /// outlives them, and be stopped for good if it says that it passes them over then.
    pub fn draw(clients: u16, faults: &Faults, oracle: &mut impl Oracle) -> Vec<Self> {
        let mut draw = |n| oracle.pick(Choice::Event, n);
        let (lease_ns, loses) = (faults.lease_ns, faults.deaths);
        let pauses = if draw(ONE_IN) == 0 { 1 + draw(PAUSES_MAX) } else { 0 };
        let pause = |_| {
            let (quarters, more) = PAUSES[draw(PAUSES.len() as u32) as usize];
            let what = What::Pause((lease_ns * quarters / 4).saturating_add_signed(more));
            // Early verbs more often: every client gets to them.
            let verb = 1 + draw(VERBS);
            Self { who: draw(clients.into()) as u16, verb: draw(verb).into(), what }
        };
        let mut mishaps: Vec<Self> = (0..pauses).map(pause).collect();
        if draw(ONE_IN) == 0 && !faults.timely {
            let length = lease_ns as i64 * (1 + i64::from(draw(12))) / 4;
            let what = What::Jump(if draw(2) == 0 { length } else { -length });
            mishaps.push(Self { who: draw(clients.into()) as u16, verb: draw(VERBS).into(), what });
        }
        if loses && draw(ONE_IN) == 0 {
            let what = What::Lost(Some(Outcome::ALL[draw(3) as usize]));
            let verb = 1 + draw(VERBS);
            mishaps.push(Self { who: draw(clients.into()) as u16, verb: draw(verb).into(), what });
        }
        if loses && draw(2 * ONE_IN) == 0 {
            let mut at = |what| {
                let verb = 1 + draw(VERBS);
                Self { who: draw(clients.into()) as u16, verb: draw(verb).into(), what }
            };
            mishaps.push(at(What::Save));
            let which = at(What::Save).verb as usize % RESETS.len();
            mishaps.push(at(What::Restart(RESETS[which].0)));
        }
        if faults.declares.passes && draw(2) == 0 {
            // A client that attaches anew has no verbs with these numbers.
            mishaps.retain(|mishap| !matches!(mishap.what, What::Restart(_)));
            for _ in 0..=draw(2) {
                let what = if draw(2) == 0 { What::Stop } else { What::StopInWait };
                let verb = 1 + draw(VERBS);
                let who = draw(clients.into()) as u16;
                mishaps.push(Self { who, verb: draw(verb).into(), what });
            }
        }
        mishaps
    }
}

/// A client's clock goes at a rate of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Whose.
    pub who: u16,
    /// How much faster than the world's time, in parts per billion.
    pub ppb: i64,
}

/// How fast a clock goes at most if any two are to drift apart as slowly as the contract says.
pub const RATE_PPB_MAX: i64 = 50_000;

/// Rates of clocks: as slow and fast as the contract allows, and beyond.
const RATES: [i64; 6] =
    [-RATE_PPB_MAX, RATE_PPB_MAX, -900_000_000, -400_000_000, 1_000_000_000, 9_000_000_000];

impl Rate {
    /// Rates of the clocks of so many clients: none, those that the contract allows, or any, unless
    /// they are `timely`.
    pub fn draw(clients: u16, timely: bool, oracle: &mut impl Oracle) -> Vec<Self> {
        let mut draw = |n| oracle.pick(Choice::Event, n);
        let rates = match draw(6) {
            0 if !timely => &RATES[..],
            0 | 1 => &RATES[..2],
            _ => return Vec::new(),
        };
        let mut rate = |who| Self { who, ppb: rates[draw(rates.len() as u32) as usize] };
        (0..clients).map(&mut rate).collect()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.who, self.ppb)
    }
}

impl FromStr for Rate {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (who, ppb) = text.split_once('.').context("a clock's rate is as 1.-50000")?;
        let (who, ppb) = (who.parse()?, ppb.parse()?);
        let may_be = -999_999_999..=RATE_MAX_PPB;
        ensure!(may_be.contains(&ppb), "a clock goes on, at most ten times as fast as the world");
        Ok(Self { who, ppb })
    }
}

impl fmt::Display for Mishap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.who, self.verb, self.what)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pause(ns) => write!(f, "pause.{ns}"),
            Self::Stop => f.write_str(STOP),
            Self::StopInWait => f.write_str(STOP_IN_WAIT),
            Self::Jump(ns) => write!(f, "jump.{ns}"),
            Self::Save => f.write_str("save"),
            Self::Restart(reset) => {
                let named = RESETS.iter().find(|(other, _)| other == reset);
                write!(f, "restart.{}", named.expect("every reset has a name").1)
            }
            Self::Lost(outcome) => write!(f, "lost.{}", outcome.map_or(ANY, outcome_name)),
        }
    }
}

impl FromStr for Mishap {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [who, verb, what] = parts[..] else { bail!("a mishap is as 1.5.pause.2000") };
        Ok(Self { who: who.parse()?, verb: verb.parse()?, what: what.parse()? })
    }
}

/// The longest time that a line may name, in nanoseconds: eleven days.
const DURATION_MAX: Nanos = 1_000_000_000_000_000;
/// By how many parts per billion a clock may be faster than the world.
const RATE_MAX_PPB: i64 = 9_000_000_000;

/// How long a hold or a pause is.
pub(crate) fn duration(text: &str) -> anyhow::Result<Nanos> {
    let nanos = text.parse()?;
    ensure!(nanos <= DURATION_MAX, "nothing lasts longer than {DURATION_MAX} ns");
    Ok(nanos)
}

impl FromStr for What {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text {
            "save" => return Ok(Self::Save),
            STOP => return Ok(Self::Stop),
            STOP_IN_WAIT => return Ok(Self::StopInWait),
            _ => {}
        }
        let (name, how) = text.split_once('.').context("a mishap has a measure")?;
        Ok(match name {
            "pause" => Self::Pause(duration(how)?),
            "jump" => Self::Jump(how.parse()?),
            "restart" => {
                let named = RESETS.iter().find(|&&(_, name)| name == how);
                Self::Restart(named.context("memory is zeroed, kept or saved")?.0)
            }
            "lost" if how == ANY => Self::Lost(None),
            "lost" => Self::Lost(Some(outcome_named(how)?)),
            _ => bail!("nothing is called '{name}'"),
        })
    }
}

/// What an outcome is called.
pub fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Never => "never",
        Outcome::Executed => "executed",
        Outcome::Late => "late",
    }
}

/// The outcome that is called this.
pub fn outcome_named(name: &str) -> anyhow::Result<Outcome> {
    let outcome = Outcome::ALL.into_iter().find(|&outcome| outcome_name(outcome) == name);
    outcome.context("a verb ends as never, executed or late")
}
