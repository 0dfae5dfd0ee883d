//! Which region a command works on.

use clap::Args;
use farlock::{DEFAULT_REGION, RegionOptions};

/// Which region a command works on.
#[derive(Debug, Args)]
pub(super) struct RegionArg {
    /// The region: locks of the same name in different regions are different locks.
    #[arg(long, value_name = "REGION", default_value = DEFAULT_REGION)]
    pub(super) region: String,
}

/// The regions of this user, of which a command names one.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) options: RegionOptions,
}

impl Places {
    pub(super) fn region(&self, region: &RegionArg) -> RegionOptions {
        self.options.clone().named(&region.region)
    }
}
