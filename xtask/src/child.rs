//! A child process under a time limit, in a process group of its own.
//!
//! Every line it writes is handed on as it comes. The group ends with the child: what outlives its
//! leader, or the limit, is killed by the group's id. A process that leaves the group (a daemon)
//! is beyond this module's reach, and no step may start one.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// How often limits are looked at.
const TICK: Duration = Duration::from_millis(20);
/// What a group gets between the polite signal and the other one.
const GRACE: Duration = Duration::from_secs(3);
/// Lines under way between the readers and the caller that takes them; beyond, the child waits.
const LINES_MAX: usize = 4096;

/// How the names begin of what cargo tells this program about itself. A build script of another
/// package that asks for them runs again, and all that rests on it is built anew, wherever they
/// differ: here, and where people call cargo by hand.
const OURS: [&[u8]; 2] = [b"CARGO_PKG_", b"CARGO_MANIFEST_"];

/// Where a line was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// How a child ended.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// By itself, with this status.
    Exited(ExitStatus),
    /// Killed, for it ran past its limit.
    OverLimit,
    /// By itself, but processes it had started were still writing and had to be killed.
    LeftBehind,
    /// Killed, because our caller asked us to stop.
    Interrupted,
}

/// Runs `command` for at most `limit`, handing each line it writes to `each`.
///
/// # Errors
/// The command could not be started or awaited.
pub(crate) fn run(
    command: &mut Command,
    limit: Duration,
    stop: &AtomicBool,
    mut each: impl FnMut(Stream, &str),
) -> io::Result<End> {
    let deadline = Instant::now() + limit;
    for (name, _) in std::env::vars_os() {
        if OURS.iter().any(|ours| name.as_encoded_bytes().starts_with(ours)) {
            command.env_remove(name);
        }
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let (sender, lines) = mpsc::sync_channel(LINES_MAX);
    forward(child.stdout.take().expect("it is piped"), Stream::Out, sender.clone());
    forward(child.stderr.take().expect("it is piped"), Stream::Err, sender);

    let mut exited_at = None;
    let mut written = true;
    while written || exited_at.is_none() {
        if written {
            match lines.recv_timeout(TICK) {
                Ok((stream, line)) => each(stream, &line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => written = false,
            }
        } else {
            thread::sleep(TICK);
        }
        if exited_at.is_none() && child.try_wait()?.is_some() {
            exited_at = Some(Instant::now());
        }
        let end = if stop.load(Ordering::Relaxed) {
            End::Interrupted
        } else if exited_at.is_some_and(|at| at.elapsed() > GRACE) {
            End::LeftBehind
        } else if Instant::now() > deadline {
            End::OverLimit
        } else {
            continue;
        };
        end_group(&mut child)?;
        lines.try_iter().for_each(|(stream, line)| each(stream, &line));
        return Ok(end);
    }
    Ok(End::Exited(child.wait()?))
}

fn forward(from: impl Read + Send + 'static, stream: Stream, to: SyncSender<(Stream, String)>) {
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n') {
            let Ok(line) = line else { return };
            let line = String::from_utf8_lossy(&line).into_owned();
            if to.send((stream, line)).is_err() {
                return;
            }
        }
    });
}

/// Asks the child's group to end, waits, and ends what remains of it.
fn end_group(child: &mut Child) -> io::Result<()> {
    let group = Pid::from_child(child);
    // An error means that no process is left, which is what we want.
    let _ = kill_process_group(group, Signal::TERM);
    let patience = Instant::now() + GRACE;
    while child.try_wait()?.is_none() && Instant::now() < patience {
        thread::sleep(TICK);
    }
    let _ = kill_process_group(group, Signal::KILL);
    child.wait()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str, limit: Duration) -> (End, Vec<String>) {
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let end = run(&mut command, limit, &AtomicBool::new(false), |_, line| {
            lines.push(line.to_owned());
        });
        (end.expect("sh starts"), lines)
    }

    #[test]
    fn lines_of_both_streams_arrive_and_so_does_the_status() {
        let (end, mut lines) = shell("echo one; echo two >&2; exit 3", LONG);
        lines.sort();
        assert_eq!(lines, ["one", "two"]);
        assert!(matches!(end, End::Exited(status) if status.code() == Some(3)));
    }

    #[test]
    fn what_cargo_says_of_this_program_is_not_said_of_others() {
        assert_eq!(std::env::var("CARGO_PKG_NAME").as_deref(), Ok("xtask"));
        let (_, lines) = shell("env", LONG);
        assert!(lines.iter().any(|line| line.starts_with("PATH=")), "{lines:?}");
        assert!(!lines.iter().any(|line| line.starts_with("CARGO_PKG_")), "{lines:?}");
        assert!(!lines.iter().any(|line| line.starts_with("CARGO_MANIFEST_")), "{lines:?}");
    }

    #[test]
    fn a_child_over_its_limit_dies_with_its_whole_group() {
        let (end, lines) = shell("sleep 77 & echo $!; wait", Duration::from_millis(300));
        assert_eq!(end, End::OverLimit);
        let grandchild = format!("/proc/{}/cmdline", lines[0]);
        let command = std::fs::read_to_string(grandchild).unwrap_or_default();
        assert!(!command.contains("sleep"), "the grandchild lives on");
    }

    #[test]
    fn a_child_that_leaves_processes_behind_is_found_out() {
        let (end, _) = shell("sleep 77 &", LONG);
        assert_eq!(end, End::LeftBehind);
    }

    #[test]
    fn a_request_to_stop_ends_the_child() {
        let mut command = Command::new("sleep");
        let end = run(command.arg("77"), LONG, &AtomicBool::new(true), |_, _| {});
        assert_eq!(end.expect("sleep starts"), End::Interrupted);
    }
}
