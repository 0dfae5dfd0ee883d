//! The processes below this one: which they are, and how they are ended.
//!
//! A process that says so inherits those below it whose parents end ([`adopt_orphans`]). So
//! whatever a command starts stays below its guardian, in whichever group or session, until the
//! guardian ends.

use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, getpgid, getpgrp, getpid, kill_process, set_child_subreaper, wait,
};

/// Makes this process the parent of all below it whose parents end.
pub(super) fn adopt_orphans() {
    // Every Linux since 3.4 can; the tether holds for those that are lost.
    let _ = set_child_subreaper(Some(getpid()));
}

/// Those below this process that it has not itself started, nor theirs: what became this program
/// may have had children.
#[derive(Debug, Default)]
pub(super) struct Strangers(Vec<Pid>);

impl Strangers {
    /// The children there are now.
    pub(super) fn look() -> Self {
        let options = WaitOptions::NOHANG;
        // One that has ended is nobody's concern.
        match rustix::process::waitpid(None, options) {
            Err(rustix::io::Errno::CHILD) => Self::default(),
            _ => Self(children(getpid())),
        }
    }
}

/// The children of a process, of all its threads; none where the system does not tell.
fn children(of: Pid) -> Vec<Pid> {
    let tasks = format!("/proc/{of}/task");
    let tasks = std::fs::read_dir(tasks).into_iter().flatten().flatten();
    let list = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).ok();
    let parse = |list: String| -> Vec<Pid> {
        list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
    };
    tasks.filter_map(list).flat_map(parse).collect()
}

/// All processes below this one, but for strangers; some of them have ended.
pub(super) fn descendants(strangers: &Strangers) -> Vec<Pid> {
    let mut found: Vec<Pid> = children(getpid());
    found.retain(|child| !strangers.0.contains(child));
    let mut looked_at = 0;
    while looked_at < found.len() {
        let below = children(found[looked_at]);
        found.extend(below);
        looked_at += 1;
    }
    found
}

/// Sends a signal to a command, and to all below it that are in this process's group: to whom it
/// would go from a terminal, and to the command wherever it went.
pub(super) fn signal(command: Pid, signal: Signal) {
    let group = getpgrp();
    let is_addressed = |pid: &Pid| *pid == command || getpgid(Some(*pid)) == Ok(group);
    for pid in descendants(&Strangers::default()).into_iter().filter(is_addressed) {
        // It may have ended, or be another user's by now.
        let _ = kill_process(pid, signal);
    }
}

/// Whether nobody is below this process. Those that have ended are waited for.
pub(super) fn is_empty() -> bool {
    loop {
        match rustix::io::retry_on_intr(|| wait(WaitOptions::NOHANG)) {
            Ok(Some(_)) => {}
            Ok(None) => return false,
            // No child: nobody below.
            Err(_) => return true,
        }
    }
}

/// Kills all below this process, but for strangers, and returns when all are gone: those that may
/// not be killed when they end by themselves. `known` is one that is killed where the system lists
/// none; `ended` is told of each that was waited for.
pub(super) fn end(strangers: &Strangers, known: Option<Pid>, mut ended: impl FnMut(Pid, i32)) {
    const NAP: Duration = Duration::from_micros(50);
    const NAP_MAX: Duration = Duration::from_millis(10);
    let mut nap = NAP;
    let mut known = known;
    loop {
        let found = descendants(strangers);
        for pid in found.iter().copied().chain(known.take()) {
            // Another user's is awaited.
            let _ = kill_process(pid, Signal::KILL);
        }
        loop {
            match rustix::io::retry_on_intr(|| wait(WaitOptions::NOHANG)) {
                Ok(Some((pid, status))) => ended(pid, status.as_raw()),
                Ok(None) => break,
                // No child: nobody below.
                Err(_) => return,
            }
        }
        if found.is_empty() && !strangers.0.is_empty() {
            return;
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(NAP_MAX);
    }
}
