//! This process: what others are told of it, and how many places its threads keep.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

#[cfg(feature = "tcp")]
use std::os::fd::OwnedFd;

#[cfg(feature = "tcp")]
use rustix::process::{PidfdFlags, pidfd_open};
#[cfg(any(feature = "tcp", test))]
use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

use crate::error::ConnectError;

/// Places that one thread keeps at most, for one region handle: the kernel looks at 2048 robust
/// mutexes of a thread that ends, and the program may have some of its own.
pub const KEEPERS_MAX: u32 = 2000;

/// How many places each thread of a process keeps, for one region handle.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    counts: Mutex<HashMap<ThreadId, u32>>,
}

impl Keepers {
    fn counts(&self) -> MutexGuard<'_, HashMap<ThreadId, u32>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the calling thread can keep another place.
    pub(super) fn check(&self) -> Result<(), ConnectError> {
        let keepers = self.counts().get(&std::thread::current().id()).copied().unwrap_or(0);
        if keepers < KEEPERS_MAX { Ok(()) } else { Err(ConnectError::ThreadFull { keepers }) }
    }

    pub(super) fn add(&self, thread: ThreadId) {
        *self.counts().entry(thread).or_default() += 1;
    }

    pub(super) fn remove(&self, thread: ThreadId) {
        let mut counts = self.counts();
        let count = counts.get_mut(&thread).expect("a keeper was counted");
        *count -= 1;
        if *count == 0 {
            counts.remove(&thread);
        }
    }
}

/// A process, as `ls` shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// When it started, in clock ticks after boot; 0 where that cannot be read.
    pub(crate) started_ticks: u64,
}

impl Process {
    /// The calling one. Reads a file of the system's, which takes longer than to attach.
    pub(super) fn own() -> Self {
        let started_ticks = Stat::of("self").and_then(|stat| stat.started_ticks()).unwrap_or(0);
        Self { pid: std::process::id(), started_ticks }
    }

    /// Whether it has ended, or is on its way out, as far as this process can see those of its own
    /// namespace. Where that cannot be told it has not.
    #[cfg(any(feature = "tcp", test))]
    pub(crate) fn is_gone(&self) -> bool {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return false };
        let is_reaped = || test_kill_process(pid) == Err(Errno::SRCH);
        if is_reaped() {
            return true;
        }
        // Its parent may have reaped it meanwhile.
        let Some(stat) = Stat::of(&self.pid.to_string()) else { return is_reaped() };
        let is_another = |ticks| self.started_ticks != 0 && ticks != self.started_ticks;
        stat.started_ticks().is_some_and(is_another)
            || stat.has_ended() && !has_running_threads(self.pid)
    }

    /// A descriptor that can be read once it has ended, if the system gives one.
    #[cfg(feature = "tcp")]
    pub(crate) fn open(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        pidfd_open(pid, PidfdFlags::empty()).ok()
    }
}

/// What the system says of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunState {
    /// It runs, or may.
    Runs,
    /// It is stopped: by Ctrl-Z, a debugger.
    Stopped,
    /// It has ended, or was killed and is about to.
    Ends,
}

impl RunState {
    /// Of the process of this number that started then, in clock ticks after boot, if this process
    /// can see it.
    pub fn of(pid: u32, started_ticks: u64) -> Option<Self> {
        let stat = Stat::of(&pid.to_string())?;
        if stat.started_ticks() != Some(started_ticks) {
            return None;
        }
        Some(match stat.field(Stat::STATE) {
            // Its first thread may have ended by itself.
            _ if stat.has_ended() && has_running_threads(pid) => Self::Runs,
            _ if stat.has_ended() || is_being_killed(&pid.to_string()) => Self::Ends,
            Some("T" | "t") => Self::Stopped,
            _ => Self::Runs,
        })
    }
}

/// Whether this process was begun by the one of this number, or by one that was, as far as it can
/// see those between.
pub fn runs_under(pid: u32) -> bool {
    let parent = |of: &u64| Stat::of(&of.to_string())?.number(Stat::PARENT);
    let own = u64::from(std::process::id());
    // A number may have been given to another meanwhile: no chain is longer than this.
    std::iter::successors(parent(&own), parent).take(1000).any(|above| above == u64::from(pid))
}

/// Whether a process goes on of which the first thread has ended.
fn has_running_threads(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let mut threads = threads.into_iter().flatten().flatten();
    threads.any(|thread| {
        let Ok(id) = thread.file_name().into_string() else { return false };
        let thread = format!("{pid}/task/{id}");
        Stat::of(&thread).is_some_and(|stat| !stat.has_ended()) && !is_being_killed(&thread)
    })
}

/// Whether a thread, as it is called below `/proc`, was sent the signal that it cannot catch, and
/// has not run since.
fn is_being_killed(thread: &str) -> bool {
    const KILL: u64 = 1 << (rustix::process::Signal::KILL.as_raw() - 1);
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let pending = |line: &str| {
        let set = line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(set.trim(), 16).ok()
    };
    status.lines().filter_map(pending).any(|set| set & KILL != 0)
}

/// What the system tells of a process, behind its name, which may contain anything.
struct Stat(String);

impl Stat {
    const STATE: usize = 0;
    const PARENT: usize = 1;
    const FLAGS: usize = 6;
    const STARTED: usize = 19;

    fn of(process: &str) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat.rsplit_once(')').map(|(_, rest)| Self(rest.to_owned()))
    }

    fn field(&self, number: usize) -> Option<&str> {
        self.0.split_whitespace().nth(number)
    }

    fn number(&self, field: usize) -> Option<u64> {
        self.field(field)?.parse().ok()
    }

    fn started_ticks(&self) -> Option<u64> {
        self.number(Self::STARTED)
    }

    /// Whether it has ended, or is on its way out.
    fn has_ended(&self) -> bool {
        /// Of the flags: it is on its way out (`PF_EXITING` of the kernel).
        const EXITING: u64 = 4;
        matches!(self.field(Self::STATE), Some("Z" | "X"))
            || self.number(Self::FLAGS).is_some_and(|flags| flags & EXITING != 0)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_gone_when_it_has_ended() {
        assert!(!Process::own().is_gone());
        assert!(Process { started_ticks: 1, ..Process::own() }.is_gone(), "it is another one");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let started_ticks = Stat::of(&child.id().to_string()).unwrap().started_ticks().unwrap();
        let process = Process { pid: child.id(), started_ticks };
        assert!(!process.is_gone());
        child.kill().unwrap();
        while !process.is_gone() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(process.is_gone());
        assert!(!Process { pid: 0, started_ticks: 0 }.is_gone(), "nothing is known of it");
    }

    /// Ends the first thread of this process, which runs the tests in others.
    #[allow(unsafe_code, reason = "no safe call does it")]
    fn end_first_thread() {
        extern "C" fn end(_: libc::c_int) {
            // SAFETY: the thread ends here, and nothing of it is used any more.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        let first = libc::pid_t::try_from(std::process::id()).expect("a process has a number");
        let handler = end as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: the handler does nothing but a system call.
        unsafe {
            libc::signal(libc::SIGUSR1, handler);
            libc::syscall(libc::SYS_tgkill, first, first, libc::SIGUSR1);
        }
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_runs() {
        const CHILD: &str = "FARLOCK_TEST_ENDS_ITS_FIRST_THREAD";
        if std::env::var_os(CHILD).is_some() {
            end_first_thread();
            return std::thread::sleep(std::time::Duration::from_secs(60));
        }
        let this = "shm::process::tests::a_process_whose_first_thread_has_ended_runs";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([this, "--exact"])
            .env(CHILD, "yes")
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id();
        let stat = || Stat::of(&pid.to_string()).unwrap();
        while stat().field(Stat::STATE) != Some("Z") {
            std::thread::yield_now();
        }
        let process = Process { pid, started_ticks: stat().started_ticks().unwrap() };
        assert!(!process.is_gone());
        assert_eq!(RunState::of(pid, process.started_ticks), Some(RunState::Runs));
        child.kill().unwrap();
        while !process.is_gone() {
            std::thread::yield_now();
        }
        assert_eq!(RunState::of(pid, process.started_ticks), Some(RunState::Ends));
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_is_reaped_while_it_is_looked_at_is_gone() {
        for _ in 0..300 {
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let process = Process { pid: child.id(), started_ticks: 0 };
            child.kill().unwrap();
            while !process.is_gone() {
                std::hint::spin_loop();
            }
            let reaper = std::thread::spawn(move || child.wait().unwrap());
            while !reaper.is_finished() {
                assert!(process.is_gone());
            }
            reaper.join().unwrap();
        }
    }
}
