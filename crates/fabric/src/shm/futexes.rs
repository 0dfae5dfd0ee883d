//! Sleeping on words of shared memory, by the kernel's futexes.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use rustix::thread::{ClockId, futex};
use rustix::time::Timespec;

use super::times::POLL_NS;
use crate::endpoint::Nanos;

/// A futex to sleep on while it has a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    futex: NonNull<AtomicU32>,
    expected: u32,
}

impl Source {
    /// The futex must outlive its last [`sleep`]: an endpoint keeps its region mapped, and a thread
    /// that parks keeps its unparker.
    pub(crate) fn of(futex: &AtomicU32, expected: u32) -> Self {
        Self { futex: NonNull::from(futex), expected }
    }
}

// SAFETY: it names a word that every thread may sleep on; `Source::of` demands that the word
// outlives the sleep, wherever that is.
unsafe impl Send for Source {}

/// Wakes everybody who sleeps on this word.
pub(crate) fn wake_all(word: &AtomicU32) {
    // The only failures are bad arguments; a wake of nobody is none.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Sleeps until one of the futexes is woken or differs from its value, or `timeout` nanoseconds
/// have passed, or for no reason. Returns whether it slept on all of them until the time was over.
pub(crate) fn sleep(sources: &[Source], timeout: Nanos) -> bool {
    /// What the kernel takes at once.
    const SOURCES_MAX: usize = 128;
    let shown = &sources[..sources.len().min(SOURCES_MAX)];
    let timeout = if shown.len() < sources.len() { timeout.min(POLL_NS) } else { timeout };
    let deadline =
        nanos_of(rustix::time::clock_gettime(ClockId::Monotonic)).saturating_add(timeout);
    let mut waits = [futex::Wait::new(); SOURCES_MAX];
    for (wait, source) in waits.iter_mut().zip(shown) {
        wait.val = source.expected.into();
        wait.uaddr = futex::WaitPtr::new(source.futex.as_ptr().cast());
        wait.flags = futex::WaitFlags::SIZE_U32;
    }
    let slept = futex::waitv(
        &waits[..shown.len()],
        futex::WaitvFlags::empty(),
        Some(&timespec_of(deadline)),
        ClockId::Monotonic,
    );
    if slept == Err(rustix::io::Errno::NOSYS) {
        sleep_on_first(sources, timeout.min(POLL_NS));
    }
    slept == Err(rustix::io::Errno::TIMEDOUT) && shown.len() == sources.len()
}

/// What kernels before 5.16 can do: sleep on one futex, and look at the others once in a while.
#[cold]
fn sleep_on_first(sources: &[Source], timeout: Nanos) {
    let Some(first) = sources.first() else { return };
    // SAFETY: `Source::of` demands that the futex outlives this sleep.
    let word = unsafe { first.futex.as_ref() };
    let _ = futex::wait(word, futex::Flags::empty(), first.expected, Some(&timespec_of(timeout)));
}

/// The boot-time clock, in nanoseconds: it counts suspended time.
pub(super) fn boot_time() -> Nanos {
    nanos_of(rustix::time::clock_gettime(ClockId::Boottime))
}

fn nanos_of(time: Timespec) -> Nanos {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn timespec_of(nanos: Nanos) -> Timespec {
    let tv_sec = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: (nanos % 1_000_000_000) as _ }
}
