//! What is asked of a storm, and the region in which it is.

use std::path::Path;

use anyhow::ensure;
use farlock_check::Unchecked;
use farlock_fabric::shm;
use farlock_locks::registry::RECORD_LOCKS;

use super::faces::Face;
use super::kv::workload::{StoreIndex, Workload};

/// Locks by default.
const LOCKS: u16 = 2;
/// The most kills, and stops.
const STRIKES_MAX: u64 = 1_000_000_000;

/// What kind of storm.
#[derive(Clone, Debug, clap::Args)]
pub struct StormArgs {
    /// The lock, as the registry names it, or `all`.
    #[arg(long, default_value = "all")]
    pub protocol: String,
    /// How many clients live at a time.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(2..=64))]
    pub clients: u16,
    /// How many locks they share
    /// [default: 2; at a face 4]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub locks: Option<u16>,
    /// How many clients are killed in all, spread evenly over the locks [default: 10000; at a face
    /// 200]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=STRIKES_MAX))]
    pub kills: Option<u64>,
    /// Storms over what people use, the library's sessions or the command, instead of the locks'
    /// clients below
    #[arg(long, value_enum, conflicts_with = "protocol")]
    pub face: Option<Face>,
    /// At a face: how many are stopped [default: as many as are killed]
    #[arg(long, requires = "face", value_parser = clap::value_parser!(u64).range(..=STRIKES_MAX))]
    pub stops: Option<u64>,
    /// At a face: the storm ends after so long in any case [default: 100, and a tenth for every
    /// kill and stop]
    #[arg(long, value_name = "S", requires = "face", value_parser = crate::bench::seconds)]
    pub seconds: Option<f64>,
    /// At a face of sessions: how many threads of each ask for locks at the same time
    #[arg(long, requires = "face", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=16))]
    pub threads: u16,
    /// At a face: every other client takes its locks, or uses the store, by a server, over TCP
    #[arg(long, requires = "face", conflicts_with_all = ["canary", "reference", "exaggerated"])]
    pub served: bool,
    /// At a face: over TLS, with certificates on both sides
    #[arg(long, requires = "served")]
    pub tls: bool,
    /// At a face: how often that server is killed, and another one started
    #[arg(long, requires = "served", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=STRIKES_MAX))]
    pub restarts: u64,
    /// At a face: how often connections between a client and that server are broken: reset, closed
    /// within a frame, silent for less or more than the lease, one way or both
    #[arg(long, requires = "served", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=STRIKES_MAX))]
    pub cuts: u64,
    /// Over a store: what clients do, as YCSB has it [default: both]
    #[arg(long, value_enum, requires = "face")]
    pub workload: Option<Workload>,
    /// Over a store: its index [default: hash]
    #[arg(long, value_enum, requires = "face")]
    pub index: Option<StoreIndex>,
    /// Over a store: over how many regions it is, a part in each
    #[arg(long, requires = "face", conflicts_with = "served", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=16))]
    pub parts: u8,
    /// Of ranges: everybody says of each hold that it goes on to the end, and the judge must see
    /// it
    #[arg(long, hide = true, conflicts_with_all = ["canary", "reference"])]
    pub exaggerated: bool,
    /// At a face: nobody takes a lock, and the judge must see it
    #[arg(long, requires = "face", hide = true)]
    pub canary: bool,
    /// At a face: the kernel's locks are taken instead, and the judge may not object
    #[arg(long, requires = "face", hide = true, conflicts_with = "canary")]
    pub reference: bool,
    /// Decides when and whom. The processes' own timing decides as well.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Prints a line of JSON for each lock.
    #[arg(long)]
    pub json: bool,
}

impl StormArgs {
    /// Refuses what only a storm at a face heeds.
    pub(super) fn check_heeded(&self) -> anyhow::Result<()> {
        let asked = [(self.stops.is_some(), "--stops"), (self.seconds.is_some(), "--seconds")];
        let unheeded = asked.iter().filter(|(is_asked, _)| *is_asked).map(|(_, name)| *name);
        let unheeded: Vec<_> = unheeded.collect();
        ensure!(
            unheeded.is_empty(),
            Unchecked(format!("without --face a storm does not heed {}", unheeded.join(", ")))
        );
        Ok(())
    }

    /// How many locks clients share.
    pub(super) fn locks(&self) -> usize {
        self.locks.unwrap_or(LOCKS).into()
    }
}

/// The region of processes that are killed in this directory, as its clients open it.
pub(crate) fn region_options(dir: &Path, name: &str) -> shm::Options {
    let options = shm::Options::new(dir.join("region"), dir.join("state"), name);
    shm::Options { create: false, endpoints: 128, ..options }
}

/// The locks that an option means: the one it names, or all of which this holds.
pub(crate) fn named_or_all(name: &str, holds: impl Fn(&str) -> bool) -> Vec<&str> {
    if name != "all" {
        return vec![name];
    }
    RECORD_LOCKS.iter().map(|lock| lock.name).filter(|name| holds(name)).collect()
}
