//! The clock that all processes share, for those that have no endpoint to ask.

use farlock_fabric::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// The time since this machine began, in nanoseconds.
#[inline]
pub(crate) fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as Nanos * 1_000_000_000 + time.tv_nsec as Nanos
}

/// Lets so much time pass as if working.
pub(crate) fn work(nanos: Nanos) {
    let end = now() + nanos;
    while now() < end {
        std::hint::spin_loop();
    }
}
