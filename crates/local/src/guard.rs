//! Range locks with guards: [`RangeMutex`] and [`RangeRwLock`].
//!
//! They stand on the lists and add what people expect of a lock: a guard that releases, timeouts,
//! futures. They guard no data: the holder of a range knows what it stands for. For a slice whose
//! parts are handed out, see [`RangeLocked`](crate::RangeLocked).

use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::list::{NO_DEADLINE, owner_of_thread};
use crate::primitive::const_fn;
use crate::{ListEx, ListRw, Preference, Range, RawRangeLock};

/// The moment `patience` from now; none if no clock can tell it, which is to wait for ever.
pub(crate) fn deadline_after(patience: Duration) -> Option<Instant> {
    Instant::now().checked_add(patience)
}

/// A guard that stays with the thread that took it; debug builds notice a thread that waits for
/// itself.
#[derive(Debug)]
pub struct OfThread(PhantomData<*const ()>);

/// A guard that a task took, and may carry to another thread.
#[derive(Debug)]
pub struct OfTask(());

/// A held range. Dropping it releases the range, in one step that never waits.
#[must_use = "a guard that is dropped at once protects nothing"]
pub struct RangeGuard<'a, L: RawRangeLock, H = OfThread> {
    lock: &'a L,
    token: Option<L::Token>,
    range: Range,
    holder: PhantomData<H>,
}

impl<'a, L: RawRangeLock, H> RangeGuard<'a, L, H> {
    pub(crate) fn new(lock: &'a L, token: L::Token, range: Range) -> Self {
        Self { lock, token: Some(token), range, holder: PhantomData }
    }

    /// The range that is held.
    pub fn range(&self) -> Range {
        self.range
    }
}

impl<L: RawRangeLock, H> Drop for RangeGuard<'_, L, H> {
    fn drop(&mut self) {
        if let Some(token) = self.token.take() {
            self.lock.unlock(token);
        }
    }
}

impl<L: RawRangeLock, H> fmt::Debug for RangeGuard<'_, L, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} held in {}", self.range, L::NAME)
    }
}

/// Exclusive locks on ranges: holders of ranges that do not overlap run at the same time.
///
/// ```
/// use farlock_local::{Range, RangeMutex};
///
/// static FILE: RangeMutex = RangeMutex::new();
///
/// let header = FILE.lock(Range::new(0, 4096)?);
/// let body = FILE.lock(Range::from_start(4096));
/// assert!(FILE.try_lock(Range::FULL).is_none());
/// drop((header, body));
/// assert!(FILE.try_lock(Range::FULL).is_some());
/// # Ok::<(), farlock_local::RangeError>(())
/// ```
#[derive(Default)]
pub struct RangeMutex {
    list: ListEx,
}

/// What [`RangeMutex::lock`] hands out.
pub type RangeMutexGuard<'a, H = OfThread> = RangeGuard<'a, ListEx, H>;

impl RangeMutex {
    const_fn! {
        /// A lock of which no range is held.
        #[must_use]
        pub fn new() -> Self {
            Self { list: ListEx::new() }
        }
    }

    /// Waits until no thread holds a range that overlaps `range`, then holds it.
    ///
    /// # Panics
    ///
    /// In debug builds, if this thread holds an overlapping range and would wait for itself.
    /// Release builds wait, for ever.
    pub fn lock(&self, range: Range) -> RangeMutexGuard<'_> {
        self.wait(range, None).expect(NO_DEADLINE)
    }

    /// Holds `range` if no holder is in the way now.
    pub fn try_lock(&self, range: Range) -> Option<RangeMutexGuard<'_>> {
        let token = self.list.try_lock_as(owner_of_thread(), range)?;
        Some(RangeGuard::new(&self.list, token, range))
    }

    /// Waits for `range` for at most `patience`.
    pub fn try_lock_for(&self, range: Range, patience: Duration) -> Option<RangeMutexGuard<'_>> {
        self.wait(range, deadline_after(patience))
    }

    /// Waits for `range` until `deadline`.
    pub fn try_lock_until(&self, range: Range, deadline: Instant) -> Option<RangeMutexGuard<'_>> {
        self.wait(range, Some(deadline))
    }

    fn wait(&self, range: Range, deadline: Option<Instant>) -> Option<RangeMutexGuard<'_>> {
        let token = self.list.lock_as(owner_of_thread(), range, deadline)?;
        Some(RangeGuard::new(&self.list, token, range))
    }

    /// Waits for `range` without blocking a thread, on any executor. Dropping the future gives up.
    pub async fn lock_async(&self, range: Range) -> RangeMutexGuard<'_, OfTask> {
        RangeGuard::new(&self.list, self.list.enter(range).await, range)
    }
}

impl fmt::Debug for RangeMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeMutex").finish_non_exhaustive()
    }
}

/// Reader-writer locks on ranges: shared holders may overlap each other.
///
/// Whom a meeting of readers and writers favours is chosen when the lock is made ([`Preference`]).
///
/// ```
/// use farlock_local::{Range, RangeRwLock};
///
/// let index = RangeRwLock::default();
/// let one = index.read(Range::new(0, 100)?);
/// let two = index.read(Range::new(50, 150)?);
/// assert!(index.try_write(Range::one(120)).is_none());
/// drop(two);
/// assert!(index.try_write(Range::one(120)).is_some());
/// # drop(one);
/// # Ok::<(), farlock_local::RangeError>(())
/// ```
#[derive(Default)]
pub struct RangeRwLock {
    list: ListRw,
}

/// What [`RangeRwLock::read`] and [`RangeRwLock::write`] hand out.
pub type RangeRwLockGuard<'a, H = OfThread> = RangeGuard<'a, ListRw, H>;

impl RangeRwLock {
    const_fn! {
        /// A lock of which no range is held.
        #[must_use]
        pub fn new(preference: Preference) -> Self {
            Self { list: ListRw::new(preference) }
        }
    }

    /// Waits until no holder writes in a range that overlaps `range`, then reads in it.
    ///
    /// # Panics
    ///
    /// In debug builds, if this thread itself writes in an overlapping range. Release builds wait,
    /// for ever. With [`Preference::Writers`], a thread that reads in a range twice may also wait
    /// for a writer that waits for the first time.
    pub fn read(&self, range: Range) -> RangeRwLockGuard<'_> {
        self.wait(range, true, None).expect(NO_DEADLINE)
    }

    /// Waits until no holder reads or writes in a range that overlaps `range`, then writes in it.
    ///
    /// # Panics
    ///
    /// In debug builds, if this thread itself holds an overlapping range. Release builds wait, for
    /// ever.
    pub fn write(&self, range: Range) -> RangeRwLockGuard<'_> {
        self.wait(range, false, None).expect(NO_DEADLINE)
    }

    /// Reads in `range` if no holder is in the way now.
    pub fn try_read(&self, range: Range) -> Option<RangeRwLockGuard<'_>> {
        self.attempt(range, true)
    }

    /// Writes in `range` if no holder is in the way now.
    pub fn try_write(&self, range: Range) -> Option<RangeRwLockGuard<'_>> {
        self.attempt(range, false)
    }

    /// Waits for at most `patience` to read in `range`.
    pub fn try_read_for(&self, range: Range, patience: Duration) -> Option<RangeRwLockGuard<'_>> {
        self.wait(range, true, deadline_after(patience))
    }

    /// Waits for at most `patience` to write in `range`.
    pub fn try_write_for(&self, range: Range, patience: Duration) -> Option<RangeRwLockGuard<'_>> {
        self.wait(range, false, deadline_after(patience))
    }

    /// Waits until `deadline` to read in `range`.
    pub fn try_read_until(&self, range: Range, deadline: Instant) -> Option<RangeRwLockGuard<'_>> {
        self.wait(range, true, Some(deadline))
    }

    /// Waits until `deadline` to write in `range`.
    pub fn try_write_until(&self, range: Range, deadline: Instant) -> Option<RangeRwLockGuard<'_>> {
        self.wait(range, false, Some(deadline))
    }

    /// Waits to read in `range` without blocking a thread. Dropping the future gives up.
    pub async fn read_async(&self, range: Range) -> RangeRwLockGuard<'_, OfTask> {
        RangeGuard::new(&self.list, self.list.enter(range, true).await, range)
    }

    /// Waits to write in `range` without blocking a thread. Dropping the future gives up.
    pub async fn write_async(&self, range: Range) -> RangeRwLockGuard<'_, OfTask> {
        RangeGuard::new(&self.list, self.list.enter(range, false).await, range)
    }

    pub(crate) fn attempt(&self, range: Range, shared: bool) -> Option<RangeRwLockGuard<'_>> {
        let token = self.list.try_lock_as(owner_of_thread(), range, shared)?;
        Some(RangeGuard::new(&self.list, token, range))
    }

    pub(crate) fn wait(
        &self,
        range: Range,
        shared: bool,
        deadline: Option<Instant>,
    ) -> Option<RangeRwLockGuard<'_>> {
        let token = self.list.lock_as(owner_of_thread(), range, shared, deadline)?;
        Some(RangeGuard::new(&self.list, token, range))
    }
}

impl fmt::Debug for RangeRwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeRwLock").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use super::*;

    fn range(start: u64, end: u64) -> Range {
        Range::new(start, end).expect("a range")
    }

    #[derive(Default)]
    struct Calls(AtomicU32);

    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_timeout_ends_a_wait_and_leaves_nothing() {
        let lock = RangeRwLock::default();
        let held = lock.write(range(0, 10));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let patience = Duration::from_millis(5);
                assert!(lock.try_read_for(range(5, 6), patience).is_none());
                assert!(lock.try_write_for(range(5, 20), patience).is_none());
                assert!(lock.try_write_for(range(10, 20), patience).is_some());
            });
        });
        drop(held);
        assert!(lock.try_write(Range::FULL).is_some());
    }

    #[test]
    fn a_release_wakes_the_task_that_waits_and_a_dropped_task_waits_no_more() {
        let lock = RangeMutex::new();
        let (calls, dropped) = (Arc::new(Calls::default()), Arc::new(Calls::default()));
        let held = lock.lock(range(0, 10));
        let mut waits = pin!(lock.lock_async(range(5, 15)));
        let waker = Waker::from(calls.clone());
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        {
            let waker = Waker::from(dropped.clone());
            let mut gives_up = pin!(lock.lock_async(range(0, 1)));
            assert!(gives_up.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        drop(held);
        assert_eq!((calls.0.load(Ordering::Relaxed), dropped.0.load(Ordering::Relaxed)), (1, 0));
        let Poll::Ready(guard) = waits.as_mut().poll(&mut Context::from_waker(&waker)) else {
            panic!("the range is free");
        };
        assert!(lock.try_lock(range(14, 16)).is_none());
        std::thread::scope(|scope| drop(scope.spawn(|| drop(guard))));
        assert!(lock.try_lock(Range::FULL).is_some());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "this thread holds an overlapping range itself")]
    fn a_thread_that_would_wait_for_itself_is_stopped() {
        let lock = RangeMutex::new();
        let _held = lock.lock(range(0, 10));
        let _never = lock.lock(range(9, 11));
    }

    #[test]
    fn a_future_and_its_guard_may_move_between_threads() {
        fn moves<T: Send>(_: &T) {}
        let lock = RangeRwLock::default();
        moves(&lock.write_async(Range::FULL));
        moves(&RangeGuard::<_, OfTask>::new(&lock.list, lock.list.lock(Range::FULL), Range::FULL));
    }

    /// A task that is dropped with its waker may hold ranges itself. The queue of sleepers was once
    /// locked while it dropped a waker, and the release in there waited for itself.
    #[test]
    fn a_waker_may_release_a_range_when_it_is_dropped() {
        static LOCK: RangeMutex = RangeMutex::new();

        struct Holder {
            _held: RangeMutexGuard<'static, OfTask>,
        }

        impl Wake for Holder {
            fn wake(self: Arc<Self>) {}
        }

        let now = |future: std::pin::Pin<&mut dyn Future<Output = _>>, waker: &Waker| {
            future.poll(&mut Context::from_waker(waker))
        };
        let Poll::Ready(held) = now(pin!(LOCK.lock_async(range(0, 10))), Waker::noop()) else {
            panic!("nobody is in the way");
        };
        let mut second = Box::pin(LOCK.lock_async(range(5, 15)));
        assert!(now(second.as_mut(), Waker::noop()).is_pending());
        let holder = Arc::new(Holder { _held: held });
        let mut third = Box::pin(LOCK.lock_async(range(0, 1)));
        assert!(now(third.as_mut(), &Waker::from(holder)).is_pending());
        drop(third);
        assert!(now(second.as_mut(), Waker::noop()).is_ready());
    }
}
