//! What threads of this library ask of the system.

use nix::sys::signal::{SigSet, Signal};
use rustix::time::{ClockId, clock_gettime};

/// The kernel's coarse clock, in nanoseconds.
#[inline(always)]
pub(crate) fn coarse_tick() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Signals are for the program's own threads, but for those by which a thread is told that it went
/// wrong itself: blocked, they would kill it, whatever the program does about them.
pub(crate) fn keep_signals_out() {
    let mut blocked = SigSet::all();
    let own = [Signal::SIGBUS, Signal::SIGSEGV, Signal::SIGFPE, Signal::SIGILL, Signal::SIGSYS];
    own.into_iter().for_each(|signal| blocked.remove(signal));
    // If they stay, nothing is lost.
    let _ = blocked.thread_block();
}
