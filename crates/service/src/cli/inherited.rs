//! What this process was given by its caller, and its double.
//!
//! A command under a lock is to find what it would find without one: the same blocked and ignored
//! signals, the same closed descriptors. This program changes them for itself, so it remembers
//! them, from the first: it begins where the C library hands the process over, before the runtime
//! of Rust would change some.
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::Pid;

use super::exit::Exit;

/// Whether SIGPIPE was ignored at the start.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
/// Whether standard output was closed then, or open to read alone.
static OUTPUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);
/// Whether standard input was, or open to write alone.
static INPUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Prepares what every program of Rust relies on: that nothing else takes the number of a standard
/// descriptor, and that to write to where nobody reads is an error.
pub(super) fn prepare() {
    for fd in 0..=2 {
        // SAFETY: asking for the flags of a descriptor changes nothing, whether it is open or not.
        // What is opened gets the lowest number that is free, and is closed to other programs.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            // The library of Rust takes what is refused for the lack of a writer for written, and
            // for the lack of a reader for read to its end.
            let is_without = |mode| flags == -1 || flags & libc::O_ACCMODE == mode;
            match fd {
                libc::STDIN_FILENO => {
                    INPUT_WAS_CLOSED.store(is_without(libc::O_WRONLY), Ordering::Relaxed);
                }
                libc::STDOUT_FILENO => {
                    OUTPUT_WAS_CLOSED.store(is_without(libc::O_RDONLY), Ordering::Relaxed);
                }
                _ => {}
            }
            if flags == -1 {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            }
        }
    }
    // A heap of its own for each thread would take longer to make than all that is put there.
    #[cfg(target_env = "gnu")]
    // SAFETY: nothing is allocated by another thread yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1)
    };
    PIPE_WAS_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    // SAFETY: no function of this program is called by the signal.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Whether what is printed arrives anywhere.
pub(super) fn output_is_open() -> io::Result<()> {
    was_open(&OUTPUT_WAS_CLOSED)
}

/// Whether there is anything that can be read.
pub(super) fn input_is_open() -> io::Result<()> {
    was_open(&INPUT_WAS_CLOSED)
}

fn was_open(was_closed: &AtomicBool) -> io::Result<()> {
    match was_closed.load(Ordering::Relaxed) {
        true => Err(io::Error::from_raw_os_error(libc::EBADF)),
        false => Ok(()),
    }
}

/// Whether a signal does nothing in this process.
pub(super) fn is_ignored(signal: i32) -> bool {
    let mut found = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is changed, and what is found is written to a local that any bits are a
    // value of.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), found.as_mut_ptr());
        found.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// What a process has from its caller, and its command is to have too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inherited {
    /// Signals that are blocked.
    blocked: SigSet,
}

impl Inherited {
    /// Looks at this process, which has not changed its signals yet.
    pub(super) fn look() -> io::Result<Self> {
        let blocked = SigSet::thread_get_mask()?;
        Ok(Self { blocked })
    }

    /// Whether a signal does not reach a program that was started like this.
    pub(super) fn keeps_out(&self, signal: Signal) -> bool {
        self.blocked.contains(signal) || is_ignored(signal as i32)
    }

    /// Makes the calling thread's blocked signals those that it was given.
    pub(super) fn unblock(&self) -> io::Result<()> {
        Ok(nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.blocked), None)?)
    }

    /// Makes everything as it was given, for a command that takes this process over.
    pub(super) fn restore(&self) -> io::Result<()> {
        if !PIPE_WAS_IGNORED.load(Ordering::Relaxed) {
            by_default(libc::SIGPIPE);
        }
        self.unblock()
    }
}

/// Has a signal do what it does in a program that says nothing of it.
fn by_default(signal: i32) {
    // SAFETY: no function of this program is called by the signal from now on.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Has the ends of children be told, though the caller ignores those of its own.
pub(super) fn heed_children() {
    by_default(libc::SIGCHLD);
}

/// What is said when memory of a region's file is gone, and with which status this program ends.
const GONE: &[u8] =
    b"farlock: memory of the region is gone, or of a store: its file was cut short \
    [region-damaged]\n   hint: `farlock region reset REGION` creates a region anew, and tokens go \
    on increasing; `farlock kv drop STORE` removes a store\n";
const DAMAGED: i32 = 70;

extern "C" fn memory_is_gone(_: i32) {
    // SAFETY: both may be called where a signal arrives.
    unsafe {
        libc::write(2, GONE.as_ptr().cast(), GONE.len());
        libc::_exit(DAMAGED);
    }
}

/// Has this program end with a status of its own where memory of a region's file is gone, which the
/// kernel tells by SIGBUS. A command that it executes is told nothing.
pub(super) fn end_where_memory_is_gone() {
    // SAFETY: the function calls nothing but what may be called where a signal arrives.
    unsafe { libc::signal(libc::SIGBUS, memory_is_gone as *const () as libc::sighandler_t) };
}

/// Ends a process that was forked: what it shares with the other one, that one cleans up.
pub(super) fn exit(exit: Exit) -> ! {
    // SAFETY: it ends this process, and nothing is left half done for others.
    unsafe { libc::_exit(exit.0.into()) }
}

/// Which of two processes this is.
pub(super) enum Fork {
    /// The one that was there, and its child.
    Parent(Pid),
    /// The new one.
    Child,
}

/// Doubles this process, which has one thread.
pub(super) fn fork() -> io::Result<Fork> {
    let threads = || Some(std::fs::read_dir("/proc/self/task").ok()?.count());
    debug_assert!(threads().is_none_or(|threads| threads == 1), "one thread");
    // SAFETY: this process has one thread, so no other holds a lock that the child would miss.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Child => Ok(Fork::Child),
        nix::unistd::ForkResult::Parent { child } => {
            Ok(Fork::Parent(Pid::from_raw(child.as_raw()).expect("a child has a number")))
        }
    }
}
