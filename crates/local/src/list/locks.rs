//! The two lists as raw locks.

use std::time::Instant;

use super::entrance::Entrance;
use super::pool::Claim;
use super::token::Token;
#[cfg(any(loom, shuttle))]
use super::walk::Planted;
use super::walk::{List, Preference};
use crate::Range;
use crate::primitive::const_fn;
use crate::raw::{RawRangeLock, RawRangeLockTimed, RawRangeRwLock, RawRangeRwLockTimed};

/// Exclusive range locks in a lock-free list: `list-ex`.
///
/// ```
/// use farlock_local::{ListEx, Range, RawRangeLock};
///
/// let lock = ListEx::new();
/// let first = lock.lock(Range::new(0, 10)?);
/// assert!(lock.try_lock(Range::new(5, 15)?).is_none());
/// let beside = lock.lock(Range::new(10, 20)?);
/// lock.unlock(first);
/// lock.unlock(beside);
/// # Ok::<(), farlock_local::RangeError>(())
/// ```
pub struct ListEx {
    list: List<false>,
}

/// Reader-writer range locks in a lock-free list: `list-rw`.
///
/// ```
/// use farlock_local::{ListRw, Preference, Range, RawRangeLock, RawRangeRwLock};
///
/// let lock = ListRw::new(Preference::Writers);
/// let readers = [lock.lock_shared(Range::FULL), lock.lock_shared(Range::one(7))];
/// assert!(lock.try_lock(Range::one(7)).is_none());
/// readers.into_iter().for_each(|token| lock.unlock(token));
/// assert!(lock.try_lock(Range::one(7)).is_some());
/// ```
pub struct ListRw {
    list: List<true>,
}

impl ListEx {
    const_fn! {
        /// A list in which nothing is held.
        #[must_use]
        pub fn new() -> Self {
            Self { list: List::new(Preference::Readers) }
        }
    }

    /// A list with an error in it.
    #[cfg(any(loom, shuttle))]
    #[must_use]
    pub fn planted(planted: Planted) -> Self {
        let mut lock = Self::new();
        lock.list.plant(planted);
        lock
    }

    /// Waits for `range` as the thread `owner`, as [`owner_of_thread`] numbers them.
    #[inline]
    pub(crate) fn lock_as(
        &self,
        owner: u64,
        range: Range,
        deadline: Option<Instant>,
    ) -> Option<Token> {
        self.list.lock(Claim { range, shared: false, owner }, deadline)
    }

    /// Takes `range` as the thread `owner` if no holder is in the way.
    #[inline]
    pub(crate) fn try_lock_as(&self, owner: u64, range: Range) -> Option<Token> {
        self.list.try_lock(Claim { range, shared: false, owner })
    }

    /// Waits for `range` without blocking a thread. Dropping the future gives up.
    pub(crate) fn enter(&self, range: Range) -> Entrance<'_, false> {
        Entrance::new(&self.list, Claim { range, shared: false, owner: 0 })
    }
}

impl ListRw {
    const_fn! {
        /// A list in which nothing is held.
        #[must_use]
        pub fn new(preference: Preference) -> Self {
            Self { list: List::new(preference) }
        }
    }

    /// A list with an error in it.
    #[cfg(any(loom, shuttle))]
    #[must_use]
    pub fn planted(preference: Preference, planted: Planted) -> Self {
        let mut lock = Self::new(preference);
        lock.list.plant(planted);
        lock
    }

    #[inline]
    pub(crate) fn lock_as(
        &self,
        owner: u64,
        range: Range,
        shared: bool,
        deadline: Option<Instant>,
    ) -> Option<Token> {
        self.list.lock(Claim { range, shared, owner }, deadline)
    }

    #[inline]
    pub(crate) fn try_lock_as(&self, owner: u64, range: Range, shared: bool) -> Option<Token> {
        self.list.try_lock(Claim { range, shared, owner })
    }

    pub(crate) fn enter(&self, range: Range, shared: bool) -> Entrance<'_, true> {
        Entrance::new(&self.list, Claim { range, shared, owner: 0 })
    }
}

impl Default for ListEx {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for ListRw {
    fn default() -> Self {
        Self::new(Preference::default())
    }
}

pub(crate) const NO_DEADLINE: &str = "without a deadline the wait ends with the range";

/// A list as a lock that excludes.
macro_rules! exclusive {
    ($lock:ty, $name:literal) => {
        impl RawRangeLock for $lock {
            type Token = Token;
            const NAME: &'static str = $name;

            #[inline]
            fn lock(&self, range: Range) -> Token {
                self.list.lock(Claim { range, shared: false, owner: 0 }, None).expect(NO_DEADLINE)
            }

            #[inline]
            fn try_lock(&self, range: Range) -> Option<Token> {
                self.list.try_lock(Claim { range, shared: false, owner: 0 })
            }

            #[inline]
            fn unlock(&self, token: Token) {
                self.list.release(token.entry);
            }
        }

        impl RawRangeLockTimed for $lock {
            fn lock_until(&self, range: Range, deadline: Instant) -> Option<Token> {
                self.list.lock(Claim { range, shared: false, owner: 0 }, Some(deadline))
            }
        }
    };
}

exclusive!(ListEx, "list-ex");
exclusive!(ListRw, "list-rw");

impl RawRangeRwLock for ListRw {
    #[inline]
    fn lock_shared(&self, range: Range) -> Token {
        self.lock_as(0, range, true, None).expect(NO_DEADLINE)
    }

    #[inline]
    fn try_lock_shared(&self, range: Range) -> Option<Token> {
        self.list.try_lock(Claim { range, shared: true, owner: 0 })
    }
}

impl RawRangeRwLockTimed for ListRw {
    fn lock_shared_until(&self, range: Range, deadline: Instant) -> Option<Token> {
        self.lock_as(0, range, true, Some(deadline))
    }
}

/// A number for the calling thread, never 0, by which debug builds notice that it waits for itself.
pub(crate) fn owner_of_thread() -> u64 {
    #[cfg(all(debug_assertions, not(any(loom, shuttle))))]
    {
        std::thread_local! {
            static HERE: u8 = const { 0 };
        }
        HERE.with(|here| std::ptr::from_ref(here).addr() as u64)
    }
    #[cfg(not(all(debug_assertions, not(any(loom, shuttle)))))]
    {
        0
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::list::impatience::STAND_BACK_YIELDS;

    #[test]
    fn newcomers_stand_back_for_the_impatient_but_not_for_ever() {
        let lock = ListEx::new();
        lock.list.impatience.begin();
        let mut task = pin!(lock.enter(Range::one(1)));
        let context = &mut Context::from_waker(Waker::noop());
        for _ in 0..STAND_BACK_YIELDS {
            assert!(task.as_mut().poll(context).is_pending());
        }
        assert!(task.as_mut().poll(context).is_ready());
        lock.unlock(lock.lock(Range::one(2)));
        lock.list.impatience.end();
    }

    #[test]
    fn a_waiter_that_was_set_back_often_is_impatient_until_it_goes() {
        let lock = ListEx::new();
        let held = lock.lock(Range::one(1));
        let context = &mut Context::from_waker(Waker::noop());
        {
            let mut task = pin!(lock.enter(Range::one(1)));
            assert!(task.as_mut().poll(context).is_pending());
            assert!(lock.list.impatience.is_none());
            for _ in 0..100 {
                assert!(task.as_mut().poll(context).is_pending());
            }
            assert!(!lock.list.impatience.is_none());
        }
        assert!(lock.list.impatience.is_none());
        lock.unlock(held);
    }

    #[test]
    fn readers_with_a_deadline_share_and_wait_for_writers() {
        let lock = ListRw::default();
        let soon = || Instant::now() + std::time::Duration::from_secs(60);
        let one = lock.lock_shared_until(Range::one(1), soon()).unwrap();
        let two = lock.lock_shared_until(Range::one(1), soon()).unwrap();
        lock.unlock(one);
        lock.unlock(two);
        let held = lock.lock(Range::one(1));
        assert!(lock.lock_shared_until(Range::one(1), Instant::now()).is_none());
        lock.unlock(held);
    }

    #[test]
    fn standing_back_does_not_outlast_a_deadline() {
        let lock = ListEx::new();
        let held = lock.lock(Range::one(1));
        lock.list.impatience.begin();
        assert!(lock.lock_until(Range::one(1), Instant::now()).is_none());
        lock.list.impatience.end();
        lock.unlock(held);
    }
}
