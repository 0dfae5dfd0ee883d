//! The boot-time clock: it counts suspended time.

use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

use crate::endpoint::Nanos;

pub(super) fn boot_time() -> Nanos {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What names this boot of this kernel; 0 where that is unknown.
pub(super) fn boot_id() -> u128 {
    static BOOT_ID: OnceLock<u128> = OnceLock::new();
    *BOOT_ID.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        u128::from_str_radix(&digits, 16).unwrap_or(0)
    })
}
