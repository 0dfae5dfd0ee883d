//! Which region a command works on.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use farlock::{DEFAULT_REGION, RegionOptions};
use farlock_fabric::{ConnectError, Host, HostOptions, chain};

use super::report::{Failure, say};

/// Which region a command works on.
#[derive(Clone, Debug, Args)]
pub(super) struct RegionArg {
    /// The region: locks of the same name in different regions are different locks.
    #[arg(long, value_name = "REGION", default_value = DEFAULT_REGION)]
    pub(super) region: String,
    /// The server whose region it is, as `farlock serve` is one; without one, or where the variable
    /// is empty, the region is this host's.
    #[arg(long, value_name = "HOST:PORT", env = SERVER)]
    pub(super) server: Option<String>,
    /// Reach the server over TLS, by authority.pem, client.pem and client.key in this directory;
    /// `farlock tls` makes them. The variable says nothing where no server is named.
    #[arg(long, value_name = "DIR", env = TLS)]
    pub(super) tls: Option<OsString>,
}

/// Which regions a command works on, where it may be several.
#[derive(Clone, Debug, Args)]
pub(super) struct RegionsArg {
    /// The region. Said several times, without --server: a store is over these regions of this
    /// host; with as many servers, over the region of each.
    #[arg(long, value_name = "REGION", default_value = DEFAULT_REGION)]
    region: Vec<String>,
    /// The server whose region it is, as `farlock serve` is one; without one, or where the variable
    /// is empty, the region is this host's. Said several times, or with commas between: a store is
    /// over the regions of these servers, named in this order each time.
    #[arg(long, value_name = "HOST:PORT", env = SERVER, value_delimiter = ',')]
    server: Vec<String>,
    /// Reach the servers over TLS, by authority.pem, client.pem and client.key in this directory;
    /// `farlock tls` makes them. The variable says nothing where no server is named.
    #[arg(long, value_name = "DIR", env = TLS)]
    tls: Option<OsString>,
}

/// Which region of this host a command works on.
#[derive(Debug, Args)]
pub(super) struct HereArg {
    /// The region, of this host.
    #[arg(long, value_name = "REGION", default_value = DEFAULT_REGION)]
    region: String,
    #[command(flatten)]
    here: Here,
}

/// That a command is about this host.
#[derive(Debug, Args)]
pub(super) struct Here {
    /// Refused: what is asked for cannot be asked of a server.
    #[arg(long, value_name = "HOST:PORT", env = SERVER, hide = true)]
    server: Option<String>,
}

impl Here {
    /// Refuses a command that names a server: it would be done where it is not meant.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.server.as_deref().filter(|server| !server.is_empty()) {
            None => Ok(()),
            Some(server) => Err(Failure::usage(
                format_args!("that cannot be asked of the server {server}"),
                "do it on its host, without --server and FARLOCK_SERVER",
            )),
        }
    }
}

/// The variable that names a server.
const SERVER: &str = "FARLOCK_SERVER";

/// The variable that names the directory of certificates.
const TLS: &str = "FARLOCK_TLS";

impl RegionArg {
    /// The server, if there is one: a variable that is empty names none.
    pub(super) fn server(&self) -> Option<&str> {
        self.server.as_deref().filter(|server| !server.is_empty())
    }
}

/// The regions of this user, of which a command names one.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) options: RegionOptions,
}

impl Places {
    pub(super) fn region(&self, region: &RegionArg) -> Result<RegionOptions, Failure> {
        let options = match region.server() {
            None => self.options.clone(),
            Some(server) => {
                let tls = region.tls.as_deref().filter(|dir| !dir.is_empty());
                RegionOptions::reached(server, tls.map(Path::new))?
            }
        };
        Ok(options.named(&region.region))
    }

    /// The regions of a store that may be over several.
    pub(super) fn regions(&self, said: &RegionsArg) -> Result<Vec<RegionOptions>, Failure> {
        let RegionsArg { region: regions, server, tls } = said;
        // A variable that is empty names none.
        let none = vec![None];
        let servers = match server.iter().any(|server| !server.is_empty()) {
            true => server.iter().cloned().map(Some).collect(),
            false => none,
        };
        let places = servers.len().max(regions.len());
        if ![1, places].contains(&servers.len()) || ![1, places].contains(&regions.len()) {
            return Err(Failure::usage(
                format_args!("{} regions are named, and {} servers", regions.len(), servers.len()),
                "name one region, which all of them have, or one of each server",
            ));
        }
        let place = |(server, region): (&Option<String>, &String)| {
            let (server, tls, region) = (server.clone(), tls.clone(), region.clone());
            self.region(&RegionArg { region, server, tls })
        };
        servers.iter().cycle().zip(regions.iter().cycle()).take(places).map(place).collect()
    }

    /// Says so where the directory that was named for what keeps tokens from going back keeps
    /// nothing: the region is used all the same.
    pub(super) fn heed_state_dir(&self, region: &str) {
        let RegionOptions { dir, state_dir, .. } = &self.options;
        let is_said = std::env::var_os("FARLOCK_STATE_DIR").is_some_and(|dir| !dir.is_empty());
        if !is_said || Host::check_name(region).is_err() {
            return;
        }
        match Host::check_state(&HostOptions::new(dir, state_dir, region)) {
            Ok(()) => {}
            // That is an error of the region, which says so.
            Err(ConnectError::Io { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => say(format_args!(
                "farlock: FARLOCK_STATE_DIR keeps nothing, and tokens increase by the clock alone: \
                 {}\n   hint: name a directory of this user's own, or leave it out",
                chain(&error)
            )),
        }
    }

    /// A region of this host, for what it alone can do.
    pub(super) fn here(&self, region: &HereArg) -> Result<RegionOptions, Failure> {
        region.here.check()?;
        Ok(self.options.clone().named(&region.region))
    }
}

/// Refuses words by which something else would be used than what is meant: those that name no
/// server, and those that say by which certificate one is reached where none is named.
pub(super) fn check_server(matches: &ArgMatches) -> Result<(), Failure> {
    let innermost = std::iter::successors(Some(matches), |matches| Some(matches.subcommand()?.1));
    let matches = innermost.last().unwrap_or(matches);
    // Some commands have no server.
    let Ok(servers) = matches.try_get_many::<String>("server") else { return Ok(()) };
    let servers: Vec<&String> = servers.into_iter().flatten().collect();
    let has_server = servers.iter().any(|server| !server.is_empty());
    let is_said = |id| {
        let is_known = matches.try_contains_id(id).is_ok();
        is_known && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    if is_said("server") && servers.iter().any(|server| server.is_empty()) {
        return Err(Failure::usage(
            "--server is empty, and names no server",
            "is a variable unset? Leave --server out where a region of this host is meant",
        ));
    }
    if !is_said("tls") {
        return Ok(());
    }
    if matches.get_one::<OsString>("tls").is_some_and(|dir| dir.is_empty()) {
        return Err(Failure::usage(
            "--tls is empty, and names no directory",
            "is a variable unset? Leave --tls out where nothing is to be encrypted",
        ));
    }
    if !has_server {
        return Err(Failure::usage(
            "--tls is for a server, and none is named",
            "say which: --server HOST:PORT, or FARLOCK_SERVER; or leave --tls out",
        ));
    }
    Ok(())
}
