//! Servers that a measurement starts, each at a port of loopback, and ends.

use std::fs::File;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take until it answers.
const STARTING_MAX: Duration = Duration::from_secs(10);
/// How long it may take to end, before it is killed.
const ENDING_MAX: Duration = Duration::from_secs(5);
/// How long between two looks at one that starts or ends.
const LOOKS_APART: Duration = Duration::from_millis(5);

/// A server. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    /// What ends it and its children.
    ending: Signal,
}

/// A port at which nobody listens.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// `redis-server` at this port, which keeps nothing.
pub(crate) fn redis(port: u16) -> Command {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.args(["--port", &port.to_string()]);
    command
}

impl Daemon {
    /// Starts a server, in this directory, and waits until it answers at this port. `None`: it is
    /// not installed.
    pub(crate) fn start(
        name: &str,
        mut command: Command,
        (dir, port): (&Path, u16),
    ) -> anyhow::Result<Option<Self>> {
        let said = File::create(dir.join(format!("{name}-said")))?;
        command.current_dir(dir).stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        let child = match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            child => child.with_context(|| format!("cannot start {name}"))?,
        };
        let mut daemon = Self { child, ending: Signal::KILL };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = daemon.child.try_wait()? {
                bail!("{name} ended, {status}");
            }
            if begun.elapsed() > STARTING_MAX {
                bail!("{name} does not answer");
            }
            std::thread::sleep(LOOKS_APART);
        }
        Ok(Some(daemon))
    }

    /// The same, but it is ended by this signal, which it takes for its children too.
    #[must_use]
    pub(crate) fn ended_by(mut self, ending: Signal) -> Self {
        self.ending = ending;
        self
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        let begun = Instant::now();
        // One that has ended cannot be killed, which is what is wanted.
        let _ = kill_process(pid, self.ending);
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < ENDING_MAX {
            std::thread::sleep(LOOKS_APART);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
