//! What the owner of a directory has for locks beyond their records.

use farlock_fabric::Addr;

/// Empties what locks have beyond their records.
pub(crate) trait Emptier<X> {
    /// Whether a lock has anything there.
    fn is_full(&self, lock: Addr) -> impl Future<Output = Result<bool, X>>;

    /// Empties it. Nobody uses the lock meanwhile.
    fn empty(&self, lock: Addr) -> impl Future<Output = Result<(), X>>;
}
