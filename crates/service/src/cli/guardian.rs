//! The guardian: a process between `farlock lock` and its command that outlives neither.
//!
//! It runs the command in its own group, ends with the command's status, and kills the whole group
//! when `farlock lock` dies. It catches what is forwarded to the group instead of dying of it, and
//! it is the one that hands the terminal back.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpgid, getpid, getppid, kill_process,
    kill_process_group, pidfd_open, waitpid,
};
use signal_hook::consts::{SIGCHLD, SIGTSTP};

use super::job::FORWARDED;
use super::report::{Exit, Failure};
use super::terminal::Terminal;

/// The hidden command by which `farlock` starts its guardian.
pub(super) const NAME: &str = "__guardian";

const FOREGROUND: &str = "foreground";
const BACKGROUND: &str = "background";

/// The guardian's arguments before the command: what it is, whose, and where.
pub(super) fn arguments(parent: Pid, is_foreground: bool) -> [String; 3] {
    let place = if is_foreground { FOREGROUND } else { BACKGROUND };
    [NAME.to_owned(), parent.as_raw_nonzero().to_string(), place.to_owned()]
}

/// Runs as a guardian; the arguments are those after its name.
pub(super) fn main(mut arguments: impl Iterator<Item = OsString>) -> Exit {
    let mut next = || arguments.next().and_then(|argument| argument.into_string().ok());
    let parent = next().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
    let is_foreground = next().is_some_and(|place| place == FOREGROUND);
    let command: Vec<OsString> = arguments.collect();
    let (Some(parent), false) = (parent, command.is_empty()) else {
        eprintln!("farlock: {NAME} is started by `farlock lock` alone");
        return Exit::USAGE;
    };
    match guard(parent, is_foreground, &command) {
        Ok(exit) => exit,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit
        }
    }
}

fn guard(parent: Pid, is_foreground: bool, command: &[OsString]) -> Result<Exit, Failure> {
    let failed = |error: io::Error| Failure::system("the command cannot be guarded", error);
    // A parent that is ours after its descriptor was opened is the one behind the descriptor.
    let watched = pidfd_open(parent, PidfdFlags::empty());
    if getppid() != Some(parent) {
        return Ok(Exit::killed_by(Signal::KILL.as_raw()));
    }
    let watched = watched.map_err(|errno| failed(errno.into()))?;
    let mut news = catch_signals().map_err(failed)?;
    let terminal = Terminal::open();
    if let Some(terminal) = terminal.as_ref().filter(|_| is_foreground) {
        terminal.await_ours();
    }
    let result = start(command).and_then(|child| {
        let child = Pid::from_child(&child);
        loop {
            let mut fds = [PollFd::new(&watched, PollFlags::IN), PollFd::new(&news, PollFlags::IN)];
            rustix::io::retry_on_intr(|| poll(&mut fds, None))
                .map_err(|errno| failed(errno.into()))?;
            if !fds[0].revents().is_empty() {
                hand_back(terminal.as_ref(), parent);
                // Everybody in the group, ourselves included: nothing follows.
                let _ = kill_process_group(rustix::process::getpgrp(), Signal::KILL);
            }
            // Which signal it was is told by looking.
            let _ = news.read(&mut [0; 64]);
            if let Some(exit) = look(child, terminal.as_ref(), parent)? {
                return Ok(exit);
            }
        }
    });
    hand_back(terminal.as_ref(), parent);
    result
}

/// Signals that this process was told to ignore when it was started, as `nohup` does: they stay
/// ignored, here and in the command.
pub(super) fn ignored_signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (1..=64).filter(|signal| mask >> (signal - 1) & 1 == 1).collect()
}

/// Catches everything that the group gets, since what is caught is not inherited by the command,
/// while what is ignored would be. What comes of the command rings the returned stream.
fn catch_signals() -> io::Result<UnixStream> {
    let ignored = ignored_signals();
    for signal in FORWARDED.iter().filter(|signal| !ignored.contains(signal)) {
        signal_hook::flag::register(*signal, Arc::new(AtomicBool::new(false)))?;
    }
    let (news, bell) = UnixStream::pair()?;
    news.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGCHLD, bell.try_clone()?)?;
    if !ignored.contains(&SIGTSTP) {
        signal_hook::low_level::pipe::register(SIGTSTP, bell)?;
    }
    Ok(news)
}

fn start(command: &[OsString]) -> Result<Child, Failure> {
    let program = command[0].to_string_lossy();
    Command::new(&command[0]).args(&command[1..]).spawn().map_err(|error| {
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NOT_FOUND,
            _ => Exit::CANNOT_RUN,
        };
        Failure::system(format!("cannot run '{program}'"), error).exiting(exit)
    })
}

/// What became of the command. Stopped in the foreground, we stop too, after handing the terminal
/// back; elsewhere somebody stopped the command and will let it go on.
fn look(child: Pid, terminal: Option<&Terminal>, parent: Pid) -> Result<Option<Exit>, Failure> {
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
    let waited = rustix::io::retry_on_intr(|| waitpid(Some(child), options));
    let waited = waited.map_err(|errno| {
        Failure::system("the command cannot be awaited", io::Error::from(errno))
    })?;
    let Some((_, status)) = waited else { return Ok(None) };
    if status.stopped() {
        if terminal.is_some_and(Terminal::is_ours) {
            hand_back(terminal, parent);
            let _ = kill_process(getpid(), Signal::STOP);
        }
        return Ok(None);
    }
    let status = std::process::ExitStatus::from_raw(status.as_raw());
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(Some(match (code, status.signal()) {
        (Some(code), _) => Exit(code),
        (None, signal) => Exit::killed_by(signal.unwrap_or_default()),
    }))
}

/// Puts the parent's group back into the foreground, if ours is there.
fn hand_back(terminal: Option<&Terminal>, parent: Pid) {
    if let Some(terminal) = terminal
        && let Ok(group) = getpgid(Some(parent))
    {
        terminal.hand_to(group);
    }
}
