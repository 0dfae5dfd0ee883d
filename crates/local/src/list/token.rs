//! The two lists as raw locks, what they hand out, and how they treat the impatient.

use std::time::Instant;

use super::pool::{Claim, Entry};
use super::word::Link;
use super::{Entrance, List};
use crate::Range;
use crate::primitive::{AtomicU32, Ordering, const_fn};
use crate::raw::{RawRangeLock, RawRangeLockTimed, RawRangeRwLock, RawRangeRwLockTimed};

/// The right to a range of a [`ListEx`] or [`ListRw`].
///
/// Giving it to another list than its own releases the range all the same. Losing it leaves the
/// range locked for ever.
#[must_use = "a lost token leaves its range locked"]
pub struct Token {
    entry: &'static Entry,
}

impl Token {
    pub(super) fn new(entry: &'static Entry) -> Self {
        Self { entry }
    }
}

/// Who stays when a reader and a writer of overlapping ranges meet while they insert themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// The writer leaves and tries again.
    #[default]
    Readers,
    /// The reader leaves and tries again; new readers wait for waiting writers.
    Writers,
}

/// An error put into the algorithm on purpose, to see that the tests find it.
#[cfg(any(loom, shuttle))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// None.
    No,
    /// A writer that gave way inserts the same entry again, as the paper's listing 2 does.
    Reinsert,
    /// Nobody looks again after inserting.
    NoValidation,
    /// The second look takes what an entry says now for what it said in its place.
    NoSecondLook,
    /// An entry is used again while late threads still look at it, and they do not find out.
    Reuse,
    /// The same, but only where the fast path uses it again.
    ReuseAlone,
}

/// Exclusive range locks in a lock-free list: `list-ex`.
pub struct ListEx {
    list: List<false>,
}

/// Reader-writer range locks in a lock-free list: `list-rw`.
pub struct ListRw {
    list: List<true>,
}

impl<const RW: bool> List<RW> {
    const_fn! {
        fn new(preference: Preference) -> Self {
            Self {
                head: Link::new(),
                impatience: Impatience::new(),
                preference,
                #[cfg(any(loom, shuttle))]
                planted: Planted::No,
            }
        }
    }

    #[cfg(any(loom, shuttle))]
    fn plant(&mut self, planted: Planted) {
        self.planted = planted;
        self.head.plant(planted == Planted::Reuse);
    }
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

    /// Takes `range` as the thread `owner` if nobody is in the way.
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

impl RawRangeLock for ListEx {
    type Token = Token;
    const NAME: &'static str = "list-ex";

    #[inline]
    fn lock(&self, range: Range) -> Token {
        self.lock_as(0, range, None).expect(NO_DEADLINE)
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

impl RawRangeLockTimed for ListEx {
    fn lock_until(&self, range: Range, deadline: Instant) -> Option<Token> {
        self.lock_as(0, range, Some(deadline))
    }
}

impl RawRangeLock for ListRw {
    type Token = Token;
    const NAME: &'static str = "list-rw";

    #[inline]
    fn lock(&self, range: Range) -> Token {
        self.lock_as(0, range, false, None).expect(NO_DEADLINE)
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

impl RawRangeLockTimed for ListRw {
    fn lock_until(&self, range: Range, deadline: Instant) -> Option<Token> {
        self.lock_as(0, range, false, Some(deadline))
    }
}

impl RawRangeRwLockTimed for ListRw {
    fn lock_shared_until(&self, range: Range, deadline: Instant) -> Option<Token> {
        self.lock_as(0, range, true, Some(deadline))
    }
}

/// How often a newcomer lets others run before it naps, or, if it is a task, goes ahead.
pub(super) const STAND_BACK_YIELDS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 16 };

/// How many acquisitions have been set back too often.
///
/// While there are any, newcomers stand back, each once and at most some two milliseconds, whatever
/// happens: so a holder that needs a second range is delayed, never locked out.
pub(super) struct Impatience {
    waiting: AtomicU32,
}

impl Impatience {
    const_fn! {
        fn new() -> Self {
            Self { waiting: AtomicU32::new(0) }
        }
    }

    /// A hint: exclusion does not rest on it.
    #[inline]
    pub(super) fn nobody(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    pub(super) fn begin(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Lets the impatient go first, for a bounded time.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn stand_back(&self, deadline: Option<Instant>) {
        const NAPS: u32 = 20;
        const NAP: std::time::Duration = std::time::Duration::from_micros(50);
        for turn in 0..STAND_BACK_YIELDS + NAPS {
            if self.nobody() {
                return;
            }
            if turn < STAND_BACK_YIELDS {
                std::thread::yield_now();
            } else if deadline.is_some_and(|deadline| deadline < Instant::now() + NAP) {
                return;
            } else {
                std::thread::sleep(NAP);
            }
        }
    }

    /// A model has no time to wait for.
    #[cfg(any(loom, shuttle))]
    pub(super) fn stand_back(&self, _: Option<Instant>) {}
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
    fn standing_back_does_not_outlast_a_deadline() {
        let lock = ListEx::new();
        let held = lock.lock(Range::one(1));
        lock.list.impatience.begin();
        assert!(lock.lock_until(Range::one(1), Instant::now()).is_none());
        lock.list.impatience.end();
        lock.unlock(held);
    }
}
