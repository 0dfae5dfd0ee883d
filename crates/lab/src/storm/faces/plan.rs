//! A storm, decided: which face, over what, for how long; and where its files are.

use std::path::Path;
use std::time::Duration;

use farlock::RegionOptions;

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
}

impl Face {
    /// What the command line calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Command => "command",
        }
    }

    /// How long a process that runs may take from its grant until it says that it holds: a command
    /// starts two others for that.
    pub(super) const fn entering_ns(self) -> u64 {
        match self {
            Self::Session => 30_000_000,
            Self::Command => 100_000_000,
        }
    }

    /// Of so many stops one is long.
    pub(super) const fn long_one_in(self) -> u32 {
        match self {
            Self::Session => 25,
            Self::Command => 10,
        }
    }

    /// The mean time between two strikes: who is killed must have had time to start.
    pub(super) const fn lull_us(self) -> u64 {
        match self {
            Self::Session => 6_000,
            Self::Command => 20_000,
        }
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
}

impl Taken {
    /// What the command line calls it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Farlock => "farlock",
            Self::Kernel => "kernel",
            Self::Nothing => "nothing",
        }
    }
}

/// A storm, decided.
pub(super) struct Storm<'a> {
    pub(super) face: Face,
    pub(super) dir: &'a Path,
    pub(super) clients: u16,
    pub(super) locks: u64,
    pub(super) kills: u64,
    pub(super) stops: u64,
    pub(super) seed: u64,
    pub(super) taken: Taken,
    pub(super) limit: Duration,
}

/// The file that the kernel locks instead.
pub(super) fn kernel_file(dir: &Path, lock: u64) -> std::path::PathBuf {
    dir.join(format!("kernel-{lock}"))
}

/// The region of a storm in this directory.
pub(super) fn region_options(dir: &Path) -> RegionOptions {
    face::region_options(dir)
}

pub(super) fn is_over(dir: &Path) -> bool {
    dir.join(OVER).exists()
}
