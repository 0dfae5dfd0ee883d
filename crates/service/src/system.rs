//! What threads of this library ask of the system.

use rustix::time::{ClockId, clock_gettime};

/// The kernel's coarse clock, in nanoseconds.
#[inline(always)]
pub(crate) fn coarse_tick() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
