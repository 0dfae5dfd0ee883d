//! What every range lock of this crate can do, ours and the ones it is measured against.
//!
//! A raw lock guards nothing by itself: it hands out tokens and takes them back. The typed faces
//! stand on these traits, and so do benchmarks and data structures that choose their lock.

use std::time::Instant;

use crate::Range;

/// Exclusive locks on ranges: no two tokens of overlapping ranges exist at once.
///
/// A thread that waits for a range which it holds itself waits for ever.
///
/// ```
/// use farlock_local::{IndexedLock, ListEx, Range, RawRangeLock};
///
/// /// Runs something while no other thread holds any of these positions.
/// fn alone<T>(lock: &impl RawRangeLock, range: Range, run: impl FnOnce() -> T) -> T {
///     let token = lock.lock(range);
///     let result = run();
///     lock.unlock(token);
///     result
/// }
///
/// assert_eq!(alone(&ListEx::new(), Range::one(3), || 1), 1);
/// assert_eq!(alone(&IndexedLock::default(), Range::FULL, || 2), 2);
/// ```
pub trait RawRangeLock: Send + Sync {
    /// The right to a range. Losing it leaves the range locked for ever.
    type Token: Send;

    /// What reports and records call this lock.
    const NAME: &'static str;

    /// Waits until no token overlaps `range`, then takes it exclusively.
    #[must_use = "a lost token leaves its range locked"]
    fn lock(&self, range: Range) -> Self::Token;

    /// Takes `range` exclusively if that needs no waiting.
    ///
    /// May also fail because another thread is about to take an overlapping range and gives up.
    #[must_use = "a lost token leaves its range locked"]
    fn try_lock(&self, range: Range) -> Option<Self::Token>;

    /// Gives a token back to the lock that issued it.
    fn unlock(&self, token: Self::Token);
}

/// Shared locks beside exclusive ones: shared tokens may overlap each other.
pub trait RawRangeRwLock: RawRangeLock {
    /// Waits until no exclusive token overlaps `range`, then takes it shared.
    #[must_use = "a lost token leaves its range locked"]
    fn lock_shared(&self, range: Range) -> Self::Token;

    /// Takes `range` shared if that needs no waiting.
    #[must_use = "a lost token leaves its range locked"]
    fn try_lock_shared(&self, range: Range) -> Option<Self::Token>;
}

/// Exclusive locks that give up waiting.
pub trait RawRangeLockTimed: RawRangeLock {
    /// Waits for `range` until `deadline`, and takes it exclusively if it came free by then.
    #[must_use = "a lost token leaves its range locked"]
    fn lock_until(&self, range: Range, deadline: Instant) -> Option<Self::Token>;
}

/// Shared locks that give up waiting.
pub trait RawRangeRwLockTimed: RawRangeRwLock + RawRangeLockTimed {
    /// Waits for `range` until `deadline`, and takes it shared if it came free by then.
    #[must_use = "a lost token leaves its range locked"]
    fn lock_shared_until(&self, range: Range, deadline: Instant) -> Option<Self::Token>;
}
