//! A server in a storm.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use farlock::{RegionOptions, Session};

use super::args::StormArgs;
use super::links::Links;
use crate::face;

/// How long those live that die while there is no server, or while its end is in doubt.
pub(super) const LEASE: Duration = Duration::from_secs(2);

/// How long what a client says may not arrive, before it may lose what it has: the rest is for
/// restarts of the server, and to come back.
pub(super) const LOSES: Duration = Duration::from_secs(1);

/// How long a client that was cut off may take to come back before it is hurt otherwise.
pub(super) const COMES_BACK: Duration = Duration::from_millis(200);

/// How long a worker tries to reach a server that is being started again, and how often.
pub(super) const PATIENCE: Duration = Duration::from_secs(4);
pub(super) const NAP: Duration = Duration::from_millis(5);

/// A server of the storm's region, as people start one.
pub(super) struct Serving {
    child: Child,
    pub(super) address: String,
    /// It does not take the end of a connection for that of its client.
    doubts: bool,
}

impl Serving {
    /// The one that is asked for, if it is; for a storm in this directory.
    pub(super) fn asked(args: &StormArgs, dir: &Path) -> anyhow::Result<Option<Self>> {
        if args.tls {
            make_certificates(dir)?;
        }
        args.served.then(|| Self::on(dir, "127.0.0.1:0", args.cuts > 0)).transpose()
    }

    fn on(dir: &Path, address: &str, doubts: bool) -> anyhow::Result<Self> {
        let mut serve = Command::new(face::farlock()?);
        serve.args(["serve", "--listen", address, "--lease", &LEASE.as_secs().to_string()]);
        serve.args(["--closed", if doubts { "doubt" } else { "auto" }]);
        if let Some(certificates) = certificates(dir) {
            serve.arg("--tls").arg(certificates);
        }
        serve.envs(face::environment(dir)).stderr(Stdio::piped());
        let mut child = serve.spawn().context("cannot start a server")?;
        let mut said = String::new();
        BufReader::new(child.stderr.take().expect("it is piped")).read_line(&mut said)?;
        let address = said.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        ensure!(address.parse::<SocketAddr>().is_ok(), "the server says: {said}");
        Ok(Self { child, address, doubts })
    }

    /// It is killed, and another one started.
    pub(super) fn restart(&mut self, dir: &Path) -> anyhow::Result<()> {
        self.end()?;
        *self = Self::on(dir, &self.address, self.doubts)?;
        Ok(())
    }

    /// What lies between it and its clients, where their connections are broken.
    pub(super) fn links(&self) -> anyhow::Result<Option<Links>> {
        self.doubts.then(|| Links::to(&self.address)).transpose()
    }

    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("cannot kill the server")?;
        self.child.wait().context("cannot await the server")?;
        Ok(())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // What counts is that none is left.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A session by a server, also where that is just being started again; over TLS if the storm in
/// this directory is.
pub(super) fn connect(server: &str, dir: &Path) -> anyhow::Result<Session> {
    let options = RegionOptions::reached(server, certificates(dir).as_deref())?;
    let begun = Instant::now();
    loop {
        match Session::open(&options) {
            Err(_) if begun.elapsed() < PATIENCE => std::thread::sleep(NAP),
            connected => return Ok(connected?),
        }
    }
}

/// An authority, and certificates of a server on loopback and of its clients.
fn make_certificates(dir: &Path) -> anyhow::Result<()> {
    let mut make = Command::new(face::farlock()?);
    make.args(["tls", "init", "--dir"]).arg(certificates_dir(dir)).stdout(Stdio::null());
    let made = make.status().context("cannot make certificates")?;
    ensure!(made.success(), "certificates: {made}");
    Ok(())
}

fn certificates_dir(dir: &Path) -> PathBuf {
    dir.join("tls")
}

/// Those of a storm in this directory, if it is over TLS.
fn certificates(dir: &Path) -> Option<PathBuf> {
    Some(certificates_dir(dir)).filter(|certificates| certificates.is_dir())
}

/// The environment by which commands find them.
pub(super) fn tls_environment(dir: &Path) -> Option<(&'static str, PathBuf)> {
    certificates(dir).map(|certificates| ("FARLOCK_TLS", certificates))
}
