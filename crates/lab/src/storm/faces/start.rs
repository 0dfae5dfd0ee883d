//! How a process in a storm over sessions is started.

use std::path::PathBuf;

use super::plan::Taken;

/// Of so many guards one is dropped, without waiting for the end of its release.
pub(super) const DROP_ONE_IN: u32 = 4;

/// How a worker is started.
#[derive(Clone, Debug, clap::Args)]
pub struct FaceWorkerArgs {
    /// Where the region, the log and the marks are.
    #[arg(long)]
    pub dir: PathBuf,
    /// The process that started it.
    #[arg(long)]
    pub parent: i32,
    /// Its number in the storm.
    #[arg(long)]
    pub who: u64,
    /// How many locks there are.
    #[arg(long)]
    pub locks: u64,
    /// How many threads ask for locks at the same time.
    #[arg(long, default_value_t = 1)]
    pub threads: u64,
    /// Decides what it asks for.
    #[arg(long)]
    pub seed: u64,
    /// It asks for ranges.
    #[arg(long)]
    pub ranges: bool,
    /// It only tries what it reads, a line each: a lock, its first position, the one behind its
    /// last.
    #[arg(long)]
    pub probe: bool,
    /// The server by which it takes its locks; without one it does on its own.
    #[arg(long)]
    pub server: Option<String>,
    /// What it takes.
    #[arg(long, value_enum)]
    pub taken: Taken,
}
