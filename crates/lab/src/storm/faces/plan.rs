//! A storm, decided: which face, over what, for how long; and where its files are.

use std::path::Path;
use std::time::Duration;

use farlock::RegionOptions;

use super::super::links::Links;
use super::super::part::{END, Part};
use crate::face;

/// The file that tells that the storm is over.
pub(super) const OVER: &str = "over";

/// What is stormed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Face {
    /// Sessions of the library.
    Session,
    /// `farlock lock`.
    Command,
    /// Ranges of sessions.
    Range,
    /// `farlock lock -r`.
    RangeCommand,
    /// A key-value store of sessions.
    Kv,
}

impl Face {
    /// What the command line calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Command => "command",
            Self::Range => "range",
            Self::RangeCommand => "range-command",
            Self::Kv => "kv",
        }
    }

    /// Whether each operation is a command.
    pub(super) const fn is_command(self) -> bool {
        matches!(self, Self::Command | Self::RangeCommand)
    }

    /// Whether positions of tables are asked for, and not locks.
    pub(super) const fn has_ranges(self) -> bool {
        matches!(self, Self::Range | Self::RangeCommand)
    }

    /// How long a process that runs may take from its grant until it says that it holds: a command
    /// starts two others for that.
    pub(super) const fn entering_ns(self) -> u64 {
        if self.is_command() { 100_000_000 } else { 30_000_000 }
    }

    /// Of so many stops one is long.
    pub(super) const fn long_one_in(self) -> u32 {
        if self.is_command() { 10 } else { 25 }
    }

    /// The mean time between two strikes: who is killed must have had time to start.
    pub(super) const fn lull_us(self) -> u64 {
        if self.is_command() { 20_000 } else { 6_000 }
    }
}

/// What is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Taken {
    /// farlock's locks.
    Farlock,
    /// The kernel's: flock(2), or flock(1). They have no tokens.
    Kernel,
    /// None.
    Nothing,
    /// Of each range less than is said.
    Less,
}

impl Taken {
    /// What the command line calls it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Farlock => "farlock",
            Self::Kernel => "kernel",
            Self::Nothing => "nothing",
            Self::Less => "less",
        }
    }

    /// Whether farlock is asked.
    pub(super) const fn is_farlocks(self) -> bool {
        matches!(self, Self::Farlock | Self::Less)
    }

    /// What is said to be held, where this is.
    pub(super) const fn said(self, part: Part) -> Part {
        match self {
            Self::Less => Part { end: END, ..part },
            _ => part,
        }
    }
}

/// A storm, decided.
pub(super) struct Storm<'a> {
    pub(super) face: Face,
    pub(super) dir: &'a Path,
    pub(super) clients: u16,
    /// How many threads of a session ask at the same time.
    pub(super) threads: u16,
    pub(super) locks: u64,
    pub(super) kills: u64,
    pub(super) stops: u64,
    /// How often the server is killed, and another one started.
    pub(super) restarts: u64,
    pub(super) seed: u64,
    pub(super) taken: Taken,
    pub(super) limit: Duration,
    /// How often connections of clients to the server are broken.
    pub(super) cuts: u64,
    /// Where a server of its region is, by which every other client takes its locks.
    pub(super) server: Option<String>,
    /// Over TLS.
    pub(super) is_secured: bool,
    /// What lies between, where connections are broken.
    pub(super) links: Option<Links>,
}

impl Storm<'_> {
    /// Whether this client takes its locks by a server.
    pub(super) fn is_served(&self, who: u64) -> bool {
        self.server.is_some() && who % 2 == 1
    }

    /// Where this client finds the server by which it takes its locks, if it does.
    pub(super) fn server_of(&self, who: u64) -> anyhow::Result<Option<String>> {
        let Some(server) = self.server.as_ref().filter(|_| self.is_served(who)) else {
            return Ok(None);
        };
        let address = self.links.as_ref().map(|links| links.address_of(who)).transpose()?;
        Ok(Some(address.unwrap_or_else(|| server.clone())))
    }
}

/// The file that the kernel locks instead.
pub(super) fn kernel_file(dir: &Path, lock: u64) -> std::path::PathBuf {
    dir.join(format!("kernel-{lock}"))
}

/// How many positions of a table of ranges a unit has: tables differ.
pub(super) const fn unit(table: u64) -> u64 {
    const UNITS: [u64; 4] = [1, 64, 4096, 1000];
    UNITS[table as usize % UNITS.len()]
}

/// Which unit of a table its first one is here: some lie where the near units end, some among far
/// ones, where two blocks meet.
pub(super) const fn origin(table: u64) -> u64 {
    const NEAR_UNITS: u64 = 1 << 18;
    const ORIGINS: [u64; 4] = [0, NEAR_UNITS - 40, 5 * NEAR_UNITS - 100, 0];
    ORIGINS[table as usize % ORIGINS.len()]
}

/// Positions of a table that need just these units. Where in its first and last unit it begins and
/// ends these numbers decide.
pub(super) const fn positions(units: Part, (first, last): (u64, u64)) -> std::ops::Range<u64> {
    let (unit, origin, Part { start, end, .. }) = (unit(units.lock), origin(units.lock), units);
    if end == END {
        // What is whole is not told from what is open from its first position on.
        return if start == 0 { 0..END } else { (origin + start) * unit..END };
    }
    let (start, end) = (origin + start, origin + end);
    let first = first % unit;
    // Of one unit that begins late at most what is left of it.
    let last = last % (unit - first);
    start * unit + first..end * unit - last
}

/// The region of a storm in this directory.
pub(super) fn region_options(dir: &Path) -> RegionOptions {
    face::region_options(dir)
}

pub(super) fn is_over(dir: &Path) -> bool {
    dir.join(OVER).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_need_all_of_their_units_and_no_others() {
        let part = |lock, start, end| Part { lock, start, end };
        for inset in [(0, 0), (7, 9), (63, 63), (4095, 1), (u64::MAX, u64::MAX)] {
            for table in 0..4 {
                let (unit, origin) = (unit(table), origin(table));
                for (start, end) in [(0, 1), (5, 6), (5, 21), (1000, 1256)] {
                    let positions = positions(part(table, start, end), inset);
                    assert!(!positions.is_empty(), "{inset:?} {unit}");
                    assert_eq!(
                        positions.start / unit..positions.end.div_ceil(unit),
                        origin + start..origin + end
                    );
                }
                let open = (origin + 3) * unit;
                assert_eq!(positions(part(table, 3, END), inset), open..END);
            }
        }
        assert_eq!(positions(part(3, 2, 3), (1, 2)), 2001..2998);
        assert_eq!(positions(Part::all(2), (8, 8)), 0..END);
    }
}
