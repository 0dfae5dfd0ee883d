//! Which region a command works on.

use std::path::PathBuf;

use clap::Args;
use farlock::{DEFAULT_REGION, RegionOptions, TlsFiles};

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
    /// Reach the server over TLS, by authority.pem, client.pem and client.key in this directory;
    /// `farlock tls` makes them.
    #[arg(long, value_name = "DIR", env = TLS)]
    pub(super) tls: Option<PathBuf>,
}

/// The variable that names a server.
const SERVER: &str = "FARLOCK_SERVER";

/// The variable that names the directory of certificates.
const TLS: &str = "FARLOCK_TLS";

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
    pub(super) fn region(&self, region: &RegionArg) -> Result<RegionOptions, Failure> {
        let server = region.server.as_deref().unwrap_or_default();
        let (is_plain, is_secured) = (server.strip_prefix("tcp://"), server.strip_prefix("tls://"));
        let address = is_plain.or(is_secured).unwrap_or(server);
        // A variable that is empty is none; a scheme alone names no server.
        if server.is_empty() {
            return Ok(self.options.clone().named(&region.region));
        }
        let options = RegionOptions::of_server(address).named(&region.region);
        match region.tls.as_ref().filter(|dir| !dir.as_os_str().is_empty()) {
            None if is_secured.is_some() => Err(Failure::usage(
                format_args!("{server} is reached over TLS, and nothing says by which certificate"),
                "say by --tls, or FARLOCK_TLS, where this client's certificate is",
            )),
            Some(_) if is_plain.is_some() => Err(Failure::usage(
                format_args!("{server} is reached in the clear, and a certificate is given"),
                "leave out either tcp:// or --tls and FARLOCK_TLS",
            )),
            None => Ok(options),
            Some(dir) => Ok(options.over_tls(TlsFiles::of_client(dir))),
        }
    }
}
