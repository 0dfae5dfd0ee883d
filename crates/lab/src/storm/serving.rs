//! A server in a storm.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::face;

/// How long those live that die while there is no server, or while its end is in doubt.
pub(super) const LEASE: Duration = Duration::from_secs(2);

/// A server of the storm's region, as people start one.
pub(super) struct Serving {
    child: Child,
    pub(super) address: String,
    pub(super) doubts: bool,
}

impl Serving {
    /// One that doubts does not take the end of a connection for that of its client.
    pub(super) fn on(dir: &Path, address: &str, doubts: bool) -> anyhow::Result<Self> {
        let mut serve = Command::new(face::farlock()?);
        serve.args(["serve", "--listen", address, "--lease", &LEASE.as_secs().to_string()]);
        serve.args(["--closed", if doubts { "doubt" } else { "auto" }]);
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
