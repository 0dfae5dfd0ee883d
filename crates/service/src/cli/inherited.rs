//! What this process was given by its caller, and its double.
//!
//! A command under a lock is to find what it would find without one: the same blocked and ignored
//! signals, the same closed descriptors. This program changes them for itself, so it remembers
//! them. The runtime changes some before `main`, so they are looked at before that.
//!
//! The one module of the command line with unsafe code.
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::Pid;

use super::report::Exit;

/// Bits of [`BEFORE`]: that a standard descriptor was closed, by its number.
const CLOSED: [u8; 3] = [1, 2, 4];
/// That SIGPIPE was ignored.
const PIPE_IGNORED: u8 = 8;

/// What the runtime changes before `main`.
static BEFORE: AtomicU8 = AtomicU8::new(0);

/// Has [`before_main`] called by the C library, before the runtime of Rust begins.
// SAFETY: the section is a list of functions to call, of this type: the C library passes arguments
// that such a function may leave alone.
#[used]
#[unsafe(link_section = ".init_array")]
static CALLED_BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    let mut found = 0;
    for (fd, bit) in CLOSED.into_iter().enumerate() {
        // SAFETY: asking for the flags of a descriptor changes nothing, whether it is open or not.
        if unsafe { libc::fcntl(fd as i32, libc::F_GETFD) } == -1 {
            found |= bit;
        }
    }
    if is_ignored(libc::SIGPIPE) {
        found |= PIPE_IGNORED;
    }
    BEFORE.store(found, Ordering::Relaxed);
}

fn is_ignored(signal: i32) -> bool {
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
    before: u8,
}

impl Inherited {
    /// Looks at this process, which has not changed its signals yet.
    pub(super) fn look() -> io::Result<Self> {
        let blocked = SigSet::thread_get_mask()?;
        Ok(Self { blocked, before: BEFORE.load(Ordering::Relaxed) })
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
        for (fd, bit) in CLOSED.into_iter().enumerate() {
            if self.before & bit != 0 {
                // SAFETY: the runtime opened it in place of a closed one, and this process uses
                // no standard descriptor from here on, but to say why the command does not run.
                unsafe { libc::close(fd as i32) };
            }
        }
        if self.before & PIPE_IGNORED == 0 {
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
    b"farlock: memory of the region is gone: its file was cut short [region-damaged]\n   \
    hint: `farlock region reset REGION` creates the region anew; tokens go on increasing\n";
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
