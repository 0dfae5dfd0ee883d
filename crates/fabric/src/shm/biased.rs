//! A mutex that costs next to nothing for the thread that uses it again and again.
//!
//! What one thread uses for long has it as *favourite*: that thread locks and unlocks by plain
//! stores, without a locked instruction. Anybody else locks a mutex first, and then ends the
//! favour: takes the favourite's name away, makes every thread of this process pass a memory
//! barrier, and waits until the favourite is not inside.
//!
//! Each thread says in a *slot* of its own where it is inside. Were that a word of the mutex, a
//! thread that was the favourite once, and was interrupted before it says so, would overwrite what
//! the next favourite says.
//!
//! ```text
//! favourite:  slot = here; is it still me? yes: inside; slot = nowhere    no: slot = nowhere,
//!                                                                         and as anybody
//! others:     mutex; favourite = nobody; barrier; wait until its slot is not here: inside
//! ```
//!
//! The barrier supplies the order that the favourite's two plain accesses lack: it falls before the
//! favourite's store, and then the favourite sees that it is none any more; or after, and then who
//! waits sees the store. It costs microseconds, so a favour is given only to who has locked many
//! times in a row, and each one that is ended makes the next one twice as hard to get.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::barrier::{barrier, register_for_barriers};

/// So often in a row a thread locks before it is the favourite for the first time.
const TIMES_FIRST: u32 = 8;
/// So often at most.
const TIMES_MAX: u32 = 1 << 16;

/// A mutex with a favourite. What is inside must be short: a thread that waits for the favourite
/// yields its processor, and is not woken.
///
/// In a child made by `fork` it must not be used: another thread of the parent may be inside.
///
/// A panic inside leaves the value as it is, for the next thread.
#[repr(C)]
pub struct Biased<T> {
    /// The slot of the thread that need not lock the mutex; null: nobody's. Stored under the mutex.
    favourite: AtomicPtr<Slot>,
    value: UnsafeCell<T>,
    others: Mutex<Others>,
}

/// Where a thread says in which [`Biased`] it is inside as the favourite: by its address; zero in
/// none. Only its thread stores it. It is that thread's name as well; a thread that ends leaves it
/// to another, and with it whatever favours it has.
#[repr(align(64))]
#[derive(Debug)]
struct Slot {
    inside: AtomicUsize,
}

/// What decides who is to be the favourite.
#[derive(Debug)]
struct Others {
    /// The slot of who has locked last.
    last: *const Slot,
    /// How often in a row.
    times: u32,
    /// How often it takes.
    enough: u32,
}

// SAFETY: the pointer is a name, and nothing is reached through it.
unsafe impl Send for Others {}

// SAFETY: the value is reached by one thread at a time: the favourite while its slot says so, or
// who has the mutex once there is no favourite any more (see the module). So it goes from thread to
// thread.
unsafe impl<T: Send> Sync for Biased<T> {}

/// The value of a [`Biased`], as long as this exists.
#[must_use = "the value is locked as long as its guard lives"]
pub struct BiasedGuard<'b, T> {
    biased: &'b Biased<T>,
    unlock: Unlock<'b>,
    /// It unlocks as the thread that locked.
    _not_send: PhantomData<*mut T>,
}

/// How a guard unlocks.
enum Unlock<'b> {
    /// By this slot, as the favourite.
    Slot(&'static Slot),
    /// As anybody.
    Mutex { _others: MutexGuard<'b, Others> },
}

impl<T> Biased<T> {
    /// Has no favourite yet.
    pub const fn new(value: T) -> Self {
        let others = Others { last: std::ptr::null(), times: 0, enough: TIMES_FIRST };
        Self {
            favourite: AtomicPtr::new(std::ptr::null_mut()),
            value: UnsafeCell::new(value),
            others: Mutex::new(others),
        }
    }

    /// Locks it.
    ///
    /// # Panics
    /// If this thread is its favourite and has locked it already; where it is not, it waits for
    /// itself.
    #[inline(always)]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        self.lock_after(|| {})
    }

    /// The same; a favourite that has seen that it is one calls `pause` before it says anything.
    #[inline(always)]
    fn lock_after(&self, pause: impl FnOnce()) -> BiasedGuard<'_, T> {
        let slot = own_slot();
        if self.is_favourite(slot) {
            pause();
            let inside = slot.inside.load(Ordering::Relaxed);
            assert_ne!(inside, self.address(), "a thread locks once");
            // Who is inside another one, which is seldom, locks as anybody.
            if inside == 0 {
                slot.inside.store(self.address(), Ordering::Relaxed);
                compiler_fence(Ordering::SeqCst);
                if self.is_favourite(slot) {
                    return self.guard(Unlock::Slot(slot));
                }
                slot.inside.store(0, Ordering::Release);
            }
        }
        self.lock_as_any(slot)
    }

    #[inline(always)]
    fn is_favourite(&self, slot: &Slot) -> bool {
        std::ptr::eq(self.favourite.load(Ordering::Relaxed), slot)
    }

    #[inline(always)]
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[inline(always)]
    fn guard<'b>(&'b self, unlock: Unlock<'b>) -> BiasedGuard<'b, T> {
        BiasedGuard { biased: self, unlock, _not_send: PhantomData }
    }

    #[cold]
    #[inline(never)]
    fn lock_as_any(&self, slot: &'static Slot) -> BiasedGuard<'_, T> {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if self.end_favour() {
            others.enough = (others.enough * 2).min(TIMES_MAX);
        }
        others.times = if std::ptr::eq(others.last, slot) { others.times + 1 } else { 1 };
        others.last = slot;
        let is_elsewhere = slot.inside.load(Ordering::Relaxed) != 0;
        if others.times < others.enough || is_elsewhere || !register_for_barriers() {
            return self.guard(Unlock::Mutex { _others: others });
        }
        others.times = 0;
        slot.inside.store(self.address(), Ordering::Relaxed);
        self.favourite.store(std::ptr::from_ref(slot).cast_mut(), Ordering::Relaxed);
        // Who has the mutex next waits until this thread is not inside any more.
        drop(others);
        self.guard(Unlock::Slot(slot))
    }

    /// Nobody is the favourite any more, and who was is not inside. The caller has the mutex.
    /// Returns whether anybody was.
    fn end_favour(&self) -> bool {
        const YIELDS_MAX: u32 = 1000;
        /// The favourite may need this processor to come to an end.
        const NAP: Duration = Duration::from_micros(100);
        let favourite = self.favourite.swap(std::ptr::null_mut(), Ordering::SeqCst);
        // SAFETY: it is null, or was made from a reference to a slot, and slots are never freed.
        let Some(slot) = (unsafe { favourite.as_ref() }) else { return false };
        assert!(barrier(true), "a system that registers for barriers has them");
        let mut turns = 0;
        while slot.inside.load(Ordering::Acquire) == self.address() {
            match turns {
                YIELDS_MAX => std::thread::sleep(NAP),
                _ => {
                    turns += 1;
                    std::thread::yield_now();
                }
            }
        }
        true
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: a guard is the only one of its value, and borrows it shared here.
        unsafe { &*self.biased.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: a guard is the only one of its value, and is borrowed alone here.
        unsafe { &mut *self.biased.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Unlock::Slot(slot) = self.unlock {
            compiler_fence(Ordering::SeqCst);
            slot.inside.store(0, Ordering::Release);
        }
    }
}

impl<T> fmt::Debug for Biased<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let favourite = self.favourite.load(Ordering::Relaxed);
        f.debug_struct("Biased").field("favourite", &favourite).finish_non_exhaustive()
    }
}

impl<T: fmt::Debug> fmt::Debug for BiasedGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

thread_local! {
    /// The calling thread's slot, once it has one.
    static SLOT: Cell<Option<&'static Slot>> = const { Cell::new(None) };
    /// Leaves it to another thread in the end.
    static LEAVING: Leaving = const { Leaving };
}

/// Slots whose threads have ended.
static LEFT: Mutex<Vec<&'static Slot>> = Mutex::new(Vec::new());

struct Leaving;

impl Drop for Leaving {
    fn drop(&mut self) {
        let slot = SLOT.take().expect("who leaves a slot has one");
        left().push(slot);
    }
}

fn left() -> MutexGuard<'static, Vec<&'static Slot>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calling thread's slot, which no other thread has while this one lives.
#[inline(always)]
fn own_slot() -> &'static Slot {
    SLOT.get().unwrap_or_else(take_slot)
}

#[cold]
fn take_slot() -> &'static Slot {
    let slot = left().pop();
    let slot = slot.unwrap_or_else(|| Box::leak(Box::new(Slot { inside: AtomicUsize::new(0) })));
    SLOT.set(Some(slot));
    // A thread that is nearly over cannot leave it any more, and keeps it for good.
    let _ = LEAVING.try_with(|_| {});
    slot
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the calling thread is the favourite; `None`: nobody is.
    fn is_favourite<T>(biased: &Biased<T>) -> Option<bool> {
        let favourite = biased.favourite.load(Ordering::Relaxed);
        (!favourite.is_null()).then(|| biased.is_favourite(own_slot()))
    }

    #[test]
    fn who_locks_often_becomes_the_favourite_until_another_comes() {
        let biased = Biased::new(0_u32);
        for _ in 0..TIMES_FIRST {
            assert_eq!(is_favourite(&biased), None);
            *biased.lock() += 1;
        }
        if !register_for_barriers() {
            return;
        }
        assert_eq!(is_favourite(&biased), Some(true));
        *biased.lock() += 1;
        std::thread::scope(|scope| {
            scope.spawn(|| *biased.lock() += 1);
        });
        assert_eq!(is_favourite(&biased), None);
        for _ in 1..2 * TIMES_FIRST {
            *biased.lock() += 1;
        }
        assert_eq!(is_favourite(&biased), None, "twice as hard");
        *biased.lock() += 1;
        assert_eq!(is_favourite(&biased), Some(true));
        assert_eq!(*biased.lock(), 3 * TIMES_FIRST + 2);
    }

    /// A thread has one slot: while it says that the thread is inside one, it cannot say that of
    /// another.
    #[test]
    fn who_is_inside_one_does_not_become_the_favourite_of_another() {
        let (outer, inner) = (Biased::new(0_u32), Biased::new(0_u32));
        for _ in 0..TIMES_FIRST {
            *outer.lock() += 1;
        }
        let inside = outer.lock();
        for _ in 0..4 * TIMES_FIRST {
            *inner.lock() += 1;
            assert_eq!(is_favourite(&inner), None);
        }
        let has_entered = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _guard = outer.lock();
                has_entered.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!has_entered.load(Ordering::SeqCst), "two are inside");
            drop(inside);
        });
    }

    /// Threads come and go in rows of all lengths, so that favours are given and ended all the
    /// time; each looks whether it is alone, in memory that is not atomic.
    #[test]
    fn one_is_inside_at_a_time() {
        const THREADS: u64 = 4;
        const ROWS: u64 = 300;
        let biased = Biased::new([0_u64; 4]);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let biased = &biased;
                scope.spawn(move || {
                    for row in 0..ROWS {
                        for _ in 0..(row * 7 + thread * 13) % 97 {
                            let mut value = biased.lock();
                            let seen = value[0];
                            assert_eq!(*value, [seen; 4]);
                            for word in &mut *value {
                                *word = std::hint::black_box(seen + 1);
                            }
                        }
                        if row % 16 == 0 {
                            // A new row is not always begun by who has ended one.
                            biased.others.lock().unwrap().enough = TIMES_FIRST;
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        let expected: u64 = (0..THREADS)
            .flat_map(|thread| (0..ROWS).map(move |row| (row * 7 + thread * 13) % 97))
            .sum();
        assert_eq!(*biased.lock(), [expected; 4]);
    }

    #[test]
    fn a_panic_inside_unlocks() {
        let biased = Biased::new(0);
        for _ in 0..2 * TIMES_FIRST {
            let inside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                *biased.lock() += 1;
                let _guard = biased.lock();
                panic!("inside");
            }));
            assert!(inside.is_err());
        }
        assert_eq!(*biased.lock(), 2 * TIMES_FIRST);
    }

    #[test]
    fn its_favourite_locks_it_once_at_a_time() {
        let biased = Biased::new(());
        (0..=TIMES_FIRST).for_each(|_| drop(biased.lock()));
        if is_favourite(&biased) != Some(true) {
            return;
        }
        let guard = biased.lock();
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| biased.lock()));
        assert!(again.is_err());
        drop(again);
        drop(guard);
        drop(biased.lock());
    }

    /// It was to store where it is inside into a word of the mutex, and overwrote what the next
    /// favourite had stored: a third thread then came inside beside that one.
    #[test]
    fn a_favourite_of_before_that_was_interrupted_hides_nobody() {
        use std::sync::mpsc::channel;
        let biased = Biased::new(0);
        (0..=TIMES_FIRST).for_each(|_| drop(biased.lock()));
        if is_favourite(&biased) != Some(true) {
            return;
        }
        let (tell_inside, is_inside) = channel();
        let (tell_leave, may_leave) = channel::<()>();
        let (tell_entered, has_entered) = channel();
        let biased = &biased;
        std::thread::scope(|scope| {
            let next = move || {
                for _ in 0..=4 * TIMES_FIRST {
                    drop(biased.lock());
                }
                assert_eq!(is_favourite(biased), Some(true));
                let _guard = biased.lock();
                tell_inside.send(()).unwrap();
                may_leave.recv().unwrap();
            };
            // It says that it is inside, and finds that it is none; then it waits as anybody.
            drop(biased.lock_after(move || {
                scope.spawn(next);
                is_inside.recv().unwrap();
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(100));
                    scope.spawn(move || {
                        drop(biased.lock());
                        // Who waited for this may have given up.
                        let _ = tell_entered.send(());
                    });
                    std::thread::sleep(Duration::from_millis(100));
                    assert!(has_entered.try_recv().is_err(), "two are inside");
                    tell_leave.send(()).unwrap();
                });
            }));
        });
    }

    /// It has seen that it is the favourite, is interrupted, and says too late that it is inside.
    #[test]
    fn a_favourite_that_was_interrupted_looks_again() {
        use std::sync::atomic::AtomicBool;
        use std::sync::mpsc::channel;
        let biased = Biased::new(());
        (0..=TIMES_FIRST).for_each(|_| drop(biased.lock()));
        if is_favourite(&biased) != Some(true) {
            return;
        }
        let is_inside = AtomicBool::new(false);
        let (tell_inside, has_come) = channel();
        std::thread::scope(|scope| {
            let guard = biased.lock_after(|| {
                scope.spawn(|| {
                    let _guard = biased.lock();
                    is_inside.store(true, Ordering::SeqCst);
                    tell_inside.send(()).unwrap();
                    std::thread::sleep(Duration::from_millis(100));
                    is_inside.store(false, Ordering::SeqCst);
                });
                has_come.recv().unwrap();
            });
            assert!(!is_inside.load(Ordering::SeqCst), "two are inside");
            drop(guard);
        });
    }

    #[test]
    fn threads_that_end_leave_their_slots() {
        let slot = || std::thread::spawn(|| std::ptr::from_ref(own_slot()).addr());
        let slots: std::collections::BTreeSet<usize> =
            (0..100).map(|_| slot().join().unwrap()).collect();
        // Other tests have threads, too.
        assert!(slots.len() < 50, "{}", slots.len());
    }

    #[test]
    fn two_are_locked_one_within_the_other() {
        let (outer, inner) = (Biased::new(0), Biased::new(0));
        for _ in 0..4 * TIMES_FIRST {
            let mut first = outer.lock();
            *first += 1;
            *inner.lock() += *first;
            *first += 1;
        }
        (0..4 * TIMES_FIRST).for_each(|_| *inner.lock() += 1);
        let mut first = outer.lock();
        *first += *inner.lock();
        drop(first);
        std::thread::scope(|scope| {
            scope.spawn(|| *outer.lock() += 1);
            scope.spawn(|| *inner.lock() += 1);
        });
    }
}
