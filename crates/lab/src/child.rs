//! Processes that the laboratory starts: clients of its benches, storms and takeovers.

use std::process::Command;

use anyhow::{Context, bail};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

/// This program again, under one of its hidden commands; it is told who its parent is.
pub(crate) fn command(hidden: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("where is this program?")?);
    command.arg(hidden).args(["--parent", &std::process::id().to_string()]);
    Ok(command)
}

/// From now on this process ends with `parent`, which must have started it. `public` is the command
/// that people run instead.
pub(crate) fn die_with(parent: i32, public: &str) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that died before the line above sends no signal any more.
    if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
        bail!("this command is started by `farlock-lab {public}` alone");
    }
    Ok(())
}

/// Lets this process open as many files as it may at all: a session needs several.
pub(crate) fn raise_file_limit() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    setrlimit(Resource::Nofile, raised).context("cannot open many files")
}
