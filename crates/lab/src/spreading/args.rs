//! What may be asked of `spreading`.

use clap::{ValueEnum, value_parser};

use super::asked::Written;
use crate::bench::Fabric;

/// The lock of ranges that sessions use, without its shelf: 2^18 units near, the others in blocks.
const TABLE: &str = "citron-rw:levels=12:crown=5:exact=yes:back=255";
/// Clients by default: few threads on this machine, and in the simulation the writers of the paper.
const CLIENTS: [u16; 2] = [2, 64];
/// For how long each number of units is asked for by default, in milliseconds.
const PHASE_MS: [f64; 2] = [500.0, 50.0];
/// The longest time that a block's memory may take, in nanoseconds.
const LENGTHEN_MAX: u64 = 1_000_000_000;

/// What clients ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum WorkloadKind {
    /// 1, 16 or 256 units anywhere in a space that becomes four times as large after each phase.
    Random,
    /// Writers of 47,008 bytes each behind the other in one file, by units of 4 KiB (IO500).
    HardWrite,
}

impl WorkloadKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::HardWrite => "hard-write",
        }
    }
}

/// What is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct SpreadingArgs {
    /// Who executes the verbs
    #[arg(long, value_enum, default_value = "shm")]
    pub fabric: Fabric,
    /// What clients ask for
    #[arg(long, value_enum, default_value = "random")]
    pub workload: WorkloadKind,
    /// Sessions that ask for ranges, each on a thread [default: 2]; in sim clients [default: 64]
    #[arg(long, value_parser = value_parser!(u16).range(1..=1000))]
    pub clients: Option<u16>,
    /// How long each number of units is asked for at random, in milliseconds [default: 500; in sim
    /// 50, virtual]
    #[arg(long, value_parser = millis)]
    pub phase_ms: Option<f64>,
    /// How many writes a hard-write has
    #[arg(long, default_value_t = Written::WRITES, value_parser = value_parser!(u64).range(1..))]
    pub writes: u64,
    /// The server through which every second one asks, as HOST:PORT (shm)
    #[arg(long)]
    pub server: Option<String>,
    /// The lock: citron or citron-rw, with its options (sim) [default: that of sessions]
    #[arg(long, default_value = TABLE)]
    pub lock: String,
    /// All blocks are there from the first: what is measured otherwise without growth (sim)
    #[arg(long)]
    pub whole: bool,
    /// What the memory's owner computes to make it longer by a block, in nanoseconds (sim). Here
    /// the system takes 30 us for 128 KiB of shared memory
    #[arg(long, default_value_t = 30_000, value_parser = value_parser!(u64).range(..=LENGTHEN_MAX))]
    pub lengthen_ns: u64,
    /// Whose machines are simulated, by its name (sim)
    #[arg(long, default_value = "citron")]
    pub testbed: String,
    /// Decides what is asked for
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A line of JSON for each number of units instead of a table
    #[arg(long)]
    pub json: bool,
}

fn millis(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(millis) if (0.001..=60_000.0).contains(&millis) => Ok(millis),
        _ => Err("a number of milliseconds from 0.001 to 60000".to_owned()),
    }
}

impl SpreadingArgs {
    pub(super) fn by_fabric<T: Copy>(&self, [shm, sim]: [T; 2]) -> T {
        if self.fabric == Fabric::Sim { sim } else { shm }
    }

    pub(super) fn clients(&self) -> u16 {
        self.clients.unwrap_or(self.by_fabric(CLIENTS))
    }

    /// How long each number of units is asked for, in nanoseconds.
    pub(super) fn phase_ns(&self) -> u64 {
        (self.phase_ms.unwrap_or(self.by_fabric(PHASE_MS)) * 1e6) as u64
    }
}
