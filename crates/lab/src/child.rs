//! Processes that the laboratory starts: clients of its benches, storms and takeovers.

use std::fs::{read_dir, read_to_string};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getpid, getrlimit, kill_process, set_child_subreaper, setrlimit,
};

/// How often those that are left are looked for when this process is ended, and how long between.
const ROUNDS_MAX: u32 = 200;
const ROUND: Duration = Duration::from_millis(5);

/// Whether this process is being ended by a signal.
static ENDING: AtomicBool = AtomicBool::new(false);

/// This program again, under one of its hidden commands; it is told who its parent is.
pub(crate) fn command(hidden: &str) -> anyhow::Result<Command> {
    none_more_at_the_end();
    let mut command = Command::new(std::env::current_exe().context("where is this program?")?);
    command.arg(hidden).args(["--parent", &std::process::id().to_string()]);
    Ok(command)
}

/// Does not return once this process is being ended: it starts nobody any more.
pub(crate) fn none_more_at_the_end() {
    while ENDING.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// Kills all that this process has started and what those have, stopped ones too, before it ends.
pub(crate) fn end_all() {
    ENDING.store(true, Ordering::SeqCst);
    // A process that loses its parent meanwhile becomes ours, and is found in the next round. If
    // that is refused, what it has started may be left.
    let _ = set_child_subreaper(Some(getpid()));
    for _ in 0..ROUNDS_MAX {
        let left = descendants();
        if left.is_empty() {
            return;
        }
        for process in left {
            // It may have ended since.
            let _ = kill_process(process, Signal::KILL);
        }
        std::thread::sleep(ROUND);
    }
}

/// Those below this process that run, as far as they are there by now.
fn descendants() -> Vec<Pid> {
    let mut found = children(getpid());
    let mut next = 0;
    while let Some(&process) = found.get(next) {
        found.extend(children(process));
        next += 1;
    }
    found.retain(|process| is_running(*process));
    found
}

fn children(of: Pid) -> Vec<Pid> {
    let Ok(tasks) = read_dir(format!("/proc/{}/task", of.as_raw_pid())) else { return Vec::new() };
    let of_task = |task: std::fs::DirEntry| read_to_string(task.path().join("children"));
    let lists: Vec<String> = tasks.flatten().filter_map(|task| of_task(task).ok()).collect();
    let pids = lists.iter().flat_map(|list| list.split_whitespace());
    pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Whether it has not ended, though nobody may have looked how.
fn is_running(process: Pid) -> bool {
    let stat = read_to_string(format!("/proc/{}/stat", process.as_raw_pid()));
    let stat = stat.unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
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
