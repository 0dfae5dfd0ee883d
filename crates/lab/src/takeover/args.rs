//! What is asked of takeovers.

use crate::bench::placement::Placement;

/// What kind of takeovers.
#[derive(Clone, Debug, clap::Args)]
pub struct TakeoverArgs {
    /// The lock, as the registry names it, or `all` whose clients stand in line and outlive each
    /// other.
    #[arg(long, default_value = "all")]
    pub protocol: String,
    /// How many sleep in line when the holder dies.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub waiters: u16,
    /// How many holders of each lock are killed.
    #[arg(long, default_value_t = 1_000)]
    pub kills: u64,
    /// How much memory each of them has touched, in MiB.
    #[arg(long, default_value_t = 0)]
    pub resident: usize,
    /// How many holders of each lock are stopped past the end of their lease. For locks that have
    /// leases, such as `dslr:lease=10000000`.
    #[arg(long, default_value_t = 0)]
    pub stops: u64,
    /// Where clients run: the holder on the first core, waiters from the second on.
    #[arg(long, value_enum, default_value = "spread")]
    pub placement: Placement,
    /// Prints a line of JSON for each lock.
    #[arg(long)]
    pub json: bool,
}
