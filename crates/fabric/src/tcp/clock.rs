//! The boot-time clock: it counts suspended time.

use rustix::time::{ClockId, clock_gettime};

use crate::endpoint::Nanos;

pub(super) fn boot_time() -> Nanos {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
