//! A stage: regions of its own for real processes, gone when the test ends.

#![allow(dead_code, reason = "each test file uses some of it")]

pub(crate) mod serving;
pub(crate) mod terminal;
pub(crate) mod turns;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use farlock::{RegionOptions, Session};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

/// How long anything on a stage may take.
const LIMIT: Duration = Duration::from_secs(20);

/// Directories that tests have to themselves.
pub(crate) struct Stage {
    regions: tempfile::TempDir,
    state: tempfile::TempDir,
}

/// Marks a process that an actor runs in.
const ACTOR: &str = "FARLOCK_TEST_ACTOR";

/// Whether this process was started to act, not to test.
pub(crate) fn is_actor() -> bool {
    std::env::var_os(ACTOR).is_some()
}

impl Stage {
    pub(crate) fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let regions = tempfile::Builder::new().prefix("farlock-test-").tempdir_in(memory).unwrap();
        Self { regions, state: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.regions.path()
    }

    pub(crate) fn state_dir(&self) -> &Path {
        self.state.path()
    }

    /// A file beside the durable state.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.state.path().join(name)
    }

    pub(crate) fn options(&self) -> RegionOptions {
        RegionOptions::new(self.dir(), self.state_dir())
    }

    pub(crate) fn session(&self) -> Session {
        Session::open(&self.options()).unwrap()
    }

    /// `farlock` with these arguments.
    pub(crate) fn farlock(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_farlock"));
        command.args(arguments);
        command
    }

    /// This test program again, running one of its actors, `module::name`, as another process.
    pub(crate) fn actor(&self, test: &str) -> Command {
        assert!(test.contains("::"), "no actor is called {test}: its module is missing");
        let mut command = self.program(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture"]).env(ACTOR, "1");
        command
    }

    /// A program on this stage.
    pub(crate) fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("FARLOCK_DIR", self.dir()).env("FARLOCK_STATE_DIR", self.state_dir());
        command.stdin(Stdio::null());
        command
    }

    /// Runs `farlock` to its end: its status and what it printed.
    pub(crate) fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        ended(self.farlock(arguments).output().unwrap())
    }

    /// Runs a shell line under the lock `name` in the background, once it holds the lock.
    pub(crate) fn hold(&self, name: &str, shell: &str) -> Child {
        let child = self.farlock(&["lock", name, "--", "sh", "-c", shell]).spawn().unwrap();
        self.until(|| self.ls().contains(&format!("\"pid\":{},", child.id())));
        child
    }

    pub(crate) fn ls(&self) -> String {
        self.run(&["ls", "--json"]).1
    }

    /// Waits until so many wait for locks.
    pub(crate) fn until_waiting(&self, count: usize) {
        self.until(|| {
            let waiters = |line: &str| {
                let rest = line.split_once("\"waiters\":").unwrap().1;
                rest.matches("\"pid\"").count()
            };
            self.ls().lines().map(waiters).sum::<usize>() >= count
        });
    }

    /// Stops a process, and waits until it has: it goes on for a while after it was told.
    pub(crate) fn stop(&self, pid: Pid) {
        kill(pid, Signal::STOP);
        let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat =
                std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 'Z', 'X']))
        };
        self.until(|| std::fs::read_dir(&tasks).unwrap().all(is_stopped));
    }

    pub(crate) fn until(&self, done: impl Fn() -> bool) {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < LIMIT, "this takes too long; ls says: {}", self.ls());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The stage that an actor was started on.
pub(crate) fn options_from_environment() -> RegionOptions {
    let variable = |name| std::env::var_os(name).expect("an actor is started by a stage");
    RegionOptions::new(variable("FARLOCK_DIR"), variable("FARLOCK_STATE_DIR"))
}

pub(crate) fn ended(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

pub(crate) fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

pub(crate) fn kill(pid: Pid, signal: Signal) {
    kill_process(pid, signal).unwrap();
}

/// Whether a process of this number runs.
pub(crate) fn is_running(pid: i32) -> bool {
    /// Of the flags, the seventh field behind the name: it is on its way out, and runs no more.
    const EXITING: u64 = 4;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| {
        let flags: u64 = rest.split(' ').nth(6).unwrap().parse().unwrap();
        !rest.starts_with(['Z', 'X']) && flags & EXITING == 0
    })
}

/// The number a file holds, once it holds one.
pub(crate) fn number(stage: &Stage, path: &Path) -> i64 {
    let read = || std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'));
    stage.until(|| read().is_some());
    read().unwrap().trim().parse().unwrap()
}

/// The boot clock, the same for all processes, in nanoseconds.
pub(crate) fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Adds one, in two acts that a lock alone makes one.
pub(crate) fn add_one(sum: &AtomicU64) {
    let seen = sum.load(Ordering::Relaxed);
    std::thread::yield_now();
    sum.store(seen + 1, Ordering::Relaxed);
}

/// A waker that ends the park of a thread.
pub(crate) struct Unpark(pub(crate) Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor: sessions work on any.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        thread::park();
    }
}
