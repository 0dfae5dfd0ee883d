//! Which region a command works on.

use clap::Args;
use farlock::{DEFAULT_REGION, RegionOptions};

use super::report::Failure;

/// Which region a command works on.
#[derive(Debug, Args)]
pub(super) struct RegionArg {
    /// The region: locks of the same name in different regions are different locks.
    #[arg(long, value_name = "REGION", default_value = DEFAULT_REGION)]
    pub(super) region: String,
    /// The server whose region it is; without one it is this host's. `farlock serve` is one.
    #[arg(long, value_name = "HOST:PORT", env = SERVER)]
    pub(super) server: Option<String>,
}

/// The variable that names a server.
const SERVER: &str = "FARLOCK_SERVER";

impl RegionArg {
    /// Refuses what only the host itself can do.
    pub(super) fn is_here(&self) -> Result<(), Failure> {
        match &self.server {
            None => Ok(()),
            Some(server) => Err(Failure::usage(
                format_args!("that cannot be asked of the server {server}"),
                "do it on its host, without --server and FARLOCK_SERVER",
            )),
        }
    }
}

/// The regions of this user, of which a command names one.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) options: RegionOptions,
}

impl Places {
    pub(super) fn region(&self, region: &RegionArg) -> RegionOptions {
        let here = self.options.clone().named(&region.region);
        match region.server.as_deref().map(|server| server.trim_start_matches("tcp://")) {
            None | Some("") => here,
            Some(server) => RegionOptions::of_server(server).named(&region.region),
        }
    }
}
