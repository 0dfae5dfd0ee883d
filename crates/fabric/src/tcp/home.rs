//! Where a process lives: what one of the same home can say of its life.

use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;

use super::clock::boot_id;

/// What names this boot of this kernel and those processes that this one can see, its namespace of
/// process numbers; 0 where either is unknown. A client of another home has come by a tunnel or
/// from a container, and its process number is that of another process here.
pub(super) fn home_id() -> u128 {
    static HOME_ID: OnceLock<u128> = OnceLock::new();
    *HOME_ID.get_or_init(|| {
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino());
        match (boot_id(), namespace) {
            (0, _) | (_, 0) => 0,
            (boot, namespace) => boot ^ u128::from(namespace),
        }
    })
}
