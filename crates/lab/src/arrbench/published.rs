//! The crates for range locking that others have published, as far as they can take part.
//!
//! | crate | how it locks | how it waits |
//! | --- | --- | --- |
//! | `range-mutex` | a sorted vector of held ranges in a mutex | parks; a release wakes who overlaps |
//! | `range-lock` | a sorted map of held ranges in a mutex | not at all |
//!
//! Both lock elements of a slice they own, exclusively. The second can only be tried: a thread that
//! fails lets others run and tries again, which is what callers of that crate are told to do.

use std::sync::TryLockError;
use std::thread;

use farlock_local::Range;
use range_lock::{VecRangeLock, VecRangeLockGuard};
use range_mutex::{RangeMutex, RangeMutexGuard};

use super::subject::Subject;

/// Elements of their slices, which nobody touches: more than any measurement asks for.
pub(super) const POSITIONS: usize = 1 << 21;

/// The crate `range-mutex`.
pub(super) struct RangeMutexCrate(RangeMutex<u8, Box<[u8]>>);

impl RangeMutexCrate {
    pub(super) const NAME: &'static str = "range-mutex";
}

impl Default for RangeMutexCrate {
    fn default() -> Self {
        Self(RangeMutex::new(vec![0; POSITIONS].into_boxed_slice()))
    }
}

impl Subject for RangeMutexCrate {
    type Token<'a> = RangeMutexGuard<'a, u8>;

    fn take(&self, range: Range, _: bool) -> RangeMutexGuard<'_, u8> {
        self.0.lock(range.start() as usize..=range.last() as usize)
    }

    fn give<'a>(&'a self, token: RangeMutexGuard<'a, u8>) {
        drop(token);
    }
}

/// The crate `range-lock`.
pub(super) struct RangeLockCrate(VecRangeLock<u8>);

impl RangeLockCrate {
    pub(super) const NAME: &'static str = "range-lock";
}

impl Default for RangeLockCrate {
    fn default() -> Self {
        Self(VecRangeLock::new(vec![0; POSITIONS]))
    }
}

impl Subject for RangeLockCrate {
    type Token<'a> = VecRangeLockGuard<'a, u8>;

    fn take(&self, range: Range, _: bool) -> VecRangeLockGuard<'_, u8> {
        loop {
            match self.0.try_lock(range.start() as usize..=range.last() as usize) {
                Ok(guard) => return guard,
                Err(TryLockError::WouldBlock) => thread::yield_now(),
                Err(TryLockError::Poisoned(_)) => panic!("nobody panics in this crate's mutex"),
            }
        }
    }

    fn give<'a>(&'a self, token: VecRangeLockGuard<'a, u8>) {
        drop(token);
    }
}
