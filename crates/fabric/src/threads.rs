//! What threads of these libraries ask of the system.

use nix::sys::signal::{SigSet, Signal};

/// Has no signal delivered to this thread any more. Signals are for the program's own threads, but
/// for those by which a thread is told that it went wrong itself: blocked, they would kill it,
/// whatever the program does about them.
pub fn keep_signals_out() {
    let mut blocked = SigSet::all();
    let own = [Signal::SIGBUS, Signal::SIGSEGV, Signal::SIGFPE, Signal::SIGILL, Signal::SIGSYS];
    own.into_iter().for_each(|signal| blocked.remove(signal));
    // If they stay, nothing is lost.
    let _ = blocked.thread_block();
}
