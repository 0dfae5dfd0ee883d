//! A command as a job: started behind a guardian, in a group of its own, served with signals and
//! the terminal until it ends.
//!
//! ```text
//! farlock lock (F)  --  guardian (S), head of a group  --  the command and its children
//! ```
//!
//! | dies | what happens |
//! | --- | --- |
//! | the command | S ends with its status, then F with the same |
//! | F, however | S kills the whole group, itself included |
//! | S | F kills the group and ends without releasing: the lock is free when the last process that inherited F's tether is gone |
//!
//! In every row the lock passes on only when nothing that runs under it is left in the group. What
//! moved to another group on purpose (a daemon) is not killed; it keeps the lock in the last two
//! rows, not in the first.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, kill_process_group, waitid,
};
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2,
};
use signal_hook::iterator::Signals;

use super::guardian;
use super::report::{Exit, Failure};
use super::terminal::Terminal;

/// Signals that are meant for the command.
pub(super) const FORWARDED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM];

/// How a job ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// Its command has ended, and this is its status.
    Command(Exit),
    /// Its guardian was killed by this signal, and the group with it. Not all of it may be gone
    /// yet: only the end of this process may release what the command ran under.
    Guardian(i32),
}

/// A running job.
pub(super) struct Job {
    guardian: Child,
    group: Pid,
    signals: Signals,
    terminal: Option<Terminal>,
}

impl Job {
    /// Starts a command with these variables in its environment.
    pub(super) fn start(
        command: &[OsString],
        variables: &[(&str, Option<&OsStr>)],
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::system("the command could not be started", error);
        let ignored = guardian::ignored_signals();
        let caught = FORWARDED.iter().chain(&[SIGTSTP]);
        let wanted = caught.filter(|signal| !ignored.contains(signal));
        let signals = Signals::new(wanted.chain(&[SIGCHLD, SIGCONT])).map_err(failed)?;
        let terminal = Terminal::open();
        // What a script starts in the background reads nothing: the terminal stays the script's.
        let reads = rustix::termios::isatty(io::stdin());
        let foreground = terminal.as_ref().filter(|terminal| reads && terminal.is_ours());

        // The running program itself, even where its file was replaced meanwhile.
        let mut guardian = Command::new("/proc/self/exe");
        guardian.arg0("farlock").process_group(0);
        guardian.args(guardian::arguments(getpid(), foreground.is_some()));
        guardian.args(command);
        for (name, value) in variables {
            match value {
                Some(value) => guardian.env(name, value),
                None => guardian.env_remove(name),
            };
        }
        let guardian = guardian.spawn().map_err(failed)?;
        let group = Pid::from_child(&guardian);
        if let Some(terminal) = foreground {
            terminal.hand_to(group);
        }
        Ok(Self { guardian, group, signals, terminal })
    }

    /// Serves the job until it ends.
    pub(super) fn finish(mut self) -> Result<Ended, Failure> {
        loop {
            let pending: Vec<i32> = self.signals.wait().collect();
            for signal in pending {
                match signal {
                    SIGCHLD => {
                        if let Some(ended) = self.look()? {
                            return Ok(ended);
                        }
                    }
                    SIGCONT => self.resume(),
                    SIGTSTP => {
                        // The terminal is ours, not the command's: it is told by us alone.
                        self.forward(SIGTSTP);
                        let _ = kill_process(getpid(), Signal::STOP);
                    }
                    other => self.forward(other),
                }
            }
        }
    }

    /// What became of the guardian. A dead one is not yet reaped, so its group cannot be another.
    fn look(&mut self) -> Result<Option<Ended>, Failure> {
        let failed = |error: io::Error| Failure::system("the command could not be awaited", error);
        let options = WaitIdOptions::EXITED
            | WaitIdOptions::STOPPED
            | WaitIdOptions::NOHANG
            | WaitIdOptions::NOWAIT;
        let status = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(self.group), options));
        let Some(status) = status.map_err(|errno| failed(errno.into()))? else { return Ok(None) };
        if status.stopped() {
            self.stop();
            return Ok(None);
        }
        if !status.exited() {
            // The command outlived its guardian.
            let _ = kill_process_group(self.group, Signal::KILL);
        }
        let status = self.guardian.wait().map_err(failed)?;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        let signal = status.signal().unwrap_or_default();
        Ok(Some(code.map_or(Ended::Guardian(signal), |code| Ended::Command(Exit(code)))))
    }

    /// The job was stopped from the terminal, so we stop too, and our shell takes over.
    fn stop(&self) {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        // Only takes note of what was just seen.
        let _ = waitid(WaitId::Pid(self.group), options);
        let _ = kill_process(getpid(), Signal::STOP);
    }

    /// We go on, so the job does, in the foreground if we are there.
    fn resume(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.hand_to(self.group);
        }
        let _ = kill_process_group(self.group, Signal::CONT);
    }

    /// To the whole group; one that has just ended needs no signal any more.
    fn forward(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = kill_process_group(self.group, signal);
        }
    }
}
