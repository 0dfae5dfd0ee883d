//! What is measured, as arguments of the command.

use anyhow::{Context, bail};
use clap::{Args, ValueEnum, value_parser};
use serde::Serialize;

use super::course::{FsCourse, Workload, planes};
use crate::bench::placement::Placement;
use crate::bench::{Fabric, seconds};
use crate::testbed::Testbed;

/// The testbed that is simulated, if no other is named.
const TESTBED: &str = "citron";
/// Bytes of a unit of a lock: a page; of BT-IO as many as let a lock of 2^28 units have its 135.8
/// GB.
const OLTP_UNIT: u64 = 4096;
const BTIO_UNIT: u64 = 512;
/// The most clients: each has a place in a region's table.
const CLIENTS_MAX: i64 = 1_000;

/// What clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadKind {
    /// Filebench's OLTP: of 61 clients of a machine 50 read data files, 10 write them, one a log
    Oltp,
    /// NAS's BT-IO: rows of a cube are written to one file and read back; clients are a square
    Btio,
}

/// What to measure.
#[derive(Clone, Debug, Args)]
pub struct FsArgs {
    /// Who executes the verbs
    #[arg(long, value_enum, default_value = "sim")]
    pub fabric: Fabric,
    /// What clients do
    #[arg(long, value_enum, default_value = "oltp")]
    pub workload: WorkloadKind,
    /// What each file is protected by: range locks, or locks that are had as a whole, with their
    /// options; `=exact` as a value stands for as many units as a request has
    #[arg(long = "lock", value_name = "NAME[,NAME..]", value_delimiter = ',')]
    #[arg(default_value = "citron")]
    pub locks: Vec<String>,
    /// Clients: processes on shm, tasks in sim
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = value_parser!(u16).range(1..=CLIENTS_MAX))]
    pub clients: u16,
    /// Whose machines are simulated (sim), by its name [default: citron]
    #[arg(long, value_name = "NAME")]
    pub testbed: Option<String>,
    /// How long each lock is measured [default: 1; in sim 0.02, virtual]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// How long clients run unmeasured first [default: a fifth of that]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub warmup: Option<f64>,
    /// Bytes of a file that a unit of its lock stands for, a multiple of 8 [default: 4096; of BT-IO
    /// 512]
    #[arg(long, value_name = "BYTES", value_parser = value_parser!(u64).range(8..=1 << 30))]
    pub unit: Option<u64>,
    /// Requests take all of a file's lock, as of an inode's mutex, also of one that is had in parts
    #[arg(long)]
    pub whole: bool,
    /// Readers hold what they read alone, as in the paper
    #[arg(long)]
    pub exclusive_reads: bool,
    /// Of OLTP: how long a reader computes between two reads
    #[arg(long, value_name = "NS", default_value_t = 0)]
    #[arg(value_parser = value_parser!(u64).range(..=1_000_000_000))]
    pub think_ns: u64,
    /// Of BT-IO: points of an edge of the cube; of class D 408, of class A 64
    #[arg(long, value_name = "N", default_value_t = 408)]
    #[arg(value_parser = value_parser!(u64).range(1..=1024))]
    pub grid: u64,
    /// Of BT-IO: how much of what it writes is written, before it begins anew
    #[arg(long, value_name = "PERCENT", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u64).range(1..=100))]
    pub percent: u64,
    /// Of BT-IO: move lengths, not bytes (sim); they take their time, and nothing is judged
    #[arg(long)]
    pub lengths_only: bool,
    /// Where clients run (shm)
    #[arg(long, value_enum, default_value = "spread")]
    pub placement: Placement,
    /// Decides everything random
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// One line of JSON per lock
    #[arg(long)]
    pub json: bool,
}

impl FsArgs {
    /// The testbed that is simulated; `None` on this machine.
    ///
    /// # Errors
    /// There is no such testbed, or nothing is simulated.
    pub(super) fn testbed(&self) -> anyhow::Result<Option<Testbed>> {
        match (self.fabric, &self.testbed) {
            (Fabric::Sim, _) => Testbed::named(self.testbed_name()).map(Some),
            (Fabric::Shm, None) => Ok(None),
            (Fabric::Shm, Some(_)) => bail!("other machines than this one are simulated"),
        }
    }

    /// The name of the testbed, where one is simulated.
    pub(super) fn testbed_name(&self) -> &str {
        self.testbed.as_deref().unwrap_or(TESTBED)
    }

    /// What clients do.
    ///
    /// # Errors
    /// It makes no sense.
    pub(super) fn course(&self, testbed: Option<&Testbed>) -> anyhow::Result<FsCourse> {
        let clients = usize::from(self.clients);
        let (unit, workload) = match self.workload {
            WorkloadKind::Oltp => (OLTP_UNIT, Workload::Oltp),
            WorkloadKind::Btio => {
                let planes = planes(self.grid, self.percent);
                (BTIO_UNIT, Workload::Btio { grid: self.grid, planes })
            }
        };
        let machines = match testbed {
            None => 1,
            Some(testbed) => {
                let there = testbed.client("machines").context("how many machines of clients?")?;
                // Each has a log writer, a writer and a reader at least.
                (there as usize).min(clients / 3).max(1)
            }
        };
        let course = FsCourse {
            workload,
            clients,
            machines,
            unit: self.unit.unwrap_or(unit),
            whole: self.whole,
            shares: !self.exclusive_reads,
            think_ns: self.think_ns,
            has_bytes: !self.lengths_only,
        };
        if let Some(flaw) = self.flaw(&course) {
            bail!("{flaw}");
        }
        Ok(course)
    }

    /// What is wrong with it, if something is.
    fn flaw(&self, course: &FsCourse) -> Option<String> {
        if !course.unit.is_multiple_of(8) {
            return Some("a unit is a multiple of 8 bytes".to_owned());
        }
        let moves_none = self.lengths_only;
        if moves_none && (self.fabric != Fabric::Sim || self.workload != WorkloadKind::Btio) {
            return Some("lengths alone are moved by BT-IO in a simulation".to_owned());
        }
        course.flaw()
    }
}
