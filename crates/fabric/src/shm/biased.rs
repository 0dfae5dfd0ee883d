//! A mutex that costs next to nothing for the thread that uses it again and again.
//!
//! What one thread uses for long has it as *favourite*: that thread locks and unlocks by plain
//! stores, without a locked instruction. Anybody else locks a mutex first, and then ends the
//! favour: takes the favourite's name away, makes every thread of this process pass a memory
//! barrier, and waits until the favourite is not inside.
//!
//! ```text
//! favourite:  busy = 1; is it still me? yes: inside; busy = 0     no: busy = 0, as anybody else
//! others:     mutex; favourite = nobody; barrier; wait until busy = 0: inside
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
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::table::{barrier, register_for_barriers};

/// So often in a row a thread locks before it is the favourite for the first time.
const TIMES_FIRST: u32 = 8;
/// So often at most.
const TIMES_MAX: u32 = 1 << 16;

/// Nobody's name.
const NOBODY: u64 = 0;

/// A mutex with a favourite. What is inside must be short: who waits for the favourite yields its
/// processor, and is not woken.
///
/// In a child made by `fork` it must not be used: another thread of the parent may be inside.
///
/// A panic inside leaves the value as it is, for whoever comes next.
#[repr(C)]
pub struct Biased<T> {
    /// The thread that need not lock the mutex. Stored under the mutex.
    favourite: AtomicU64,
    /// Whether the favourite is inside. Only the favourite stores it.
    busy: AtomicU64,
    value: UnsafeCell<T>,
    others: Mutex<Others>,
}

/// What decides who is to be the favourite.
#[derive(Debug)]
struct Others {
    /// Who has locked last.
    last: u64,
    /// How often in a row.
    times: u32,
    /// How often it takes.
    enough: u32,
}

// SAFETY: the value is reached by one thread at a time: the favourite while it is busy, or who has
// the mutex once there is no favourite any more (see the module). So it goes from thread to thread.
unsafe impl<T: Send> Sync for Biased<T> {}

/// The value of a [`Biased`], as long as this exists.
#[must_use = "the value is locked as long as its guard lives"]
pub struct BiasedGuard<'b, T> {
    biased: &'b Biased<T>,
    /// `None`: the favourite's.
    others: Option<MutexGuard<'b, Others>>,
    /// It unlocks as the thread that locked.
    _not_send: PhantomData<*mut T>,
}

impl<T> Biased<T> {
    /// Has no favourite yet.
    pub const fn new(value: T) -> Self {
        let others = Others { last: NOBODY, times: 0, enough: TIMES_FIRST };
        Self {
            favourite: AtomicU64::new(NOBODY),
            busy: AtomicU64::new(0),
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
        let me = own_name();
        if self.favourite.load(Ordering::Relaxed) == me {
            assert!(self.busy.load(Ordering::Relaxed) == 0, "a thread locks once");
            self.busy.store(1, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            if self.favourite.load(Ordering::Relaxed) == me {
                return BiasedGuard { biased: self, others: None, _not_send: PhantomData };
            }
            self.busy.store(0, Ordering::Release);
        }
        self.lock_as_any(me)
    }

    #[cold]
    #[inline(never)]
    fn lock_as_any(&self, me: u64) -> BiasedGuard<'_, T> {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if self.favourite.load(Ordering::Relaxed) != NOBODY {
            self.end_favour();
            others.enough = (others.enough * 2).min(TIMES_MAX);
        }
        others.times = if others.last == me { others.times + 1 } else { 1 };
        others.last = me;
        if others.times < others.enough || !register_for_barriers() {
            return BiasedGuard { biased: self, others: Some(others), _not_send: PhantomData };
        }
        others.times = 0;
        self.busy.store(1, Ordering::Relaxed);
        self.favourite.store(me, Ordering::Relaxed);
        // Who has the mutex next waits until this one is not busy any more.
        drop(others);
        BiasedGuard { biased: self, others: None, _not_send: PhantomData }
    }

    /// Nobody is the favourite any more, and who was is not inside. The caller has the mutex.
    fn end_favour(&self) {
        const YIELDS_MAX: u32 = 1000;
        /// The favourite may need this processor to come to an end.
        const NAP: Duration = Duration::from_micros(100);
        self.favourite.store(NOBODY, Ordering::SeqCst);
        assert!(barrier(true), "a system that registers for barriers has them");
        let mut turns = 0;
        while self.busy.load(Ordering::Acquire) != 0 {
            match turns {
                YIELDS_MAX => std::thread::sleep(NAP),
                _ => {
                    turns += 1;
                    std::thread::yield_now();
                }
            }
        }
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
        if self.others.is_none() {
            compiler_fence(Ordering::SeqCst);
            self.biased.busy.store(0, Ordering::Release);
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

/// The calling thread's name, which no other thread of this process ever has.
#[inline(always)]
fn own_name() -> u64 {
    thread_local! {
        static NAME: Cell<u64> = const { Cell::new(NOBODY) };
    }
    let name = NAME.get();
    if name == NOBODY { draw_name(&NAME) } else { name }
}

#[cold]
fn draw_name(name: &'static std::thread::LocalKey<Cell<u64>>) -> u64 {
    static DRAWN: AtomicU64 = AtomicU64::new(NOBODY);
    name.set(DRAWN.fetch_add(1, Ordering::Relaxed) + 1);
    name.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn favourite<T>(biased: &Biased<T>) -> u64 {
        biased.favourite.load(Ordering::Relaxed)
    }

    #[test]
    fn who_locks_often_becomes_the_favourite_until_another_comes() {
        let biased = Biased::new(0_u32);
        for _ in 0..TIMES_FIRST {
            assert_eq!(favourite(&biased), NOBODY);
            *biased.lock() += 1;
        }
        if !register_for_barriers() {
            return;
        }
        assert_eq!(favourite(&biased), own_name());
        *biased.lock() += 1;
        std::thread::scope(|scope| {
            scope.spawn(|| *biased.lock() += 1);
        });
        assert_eq!(favourite(&biased), NOBODY);
        for _ in 1..2 * TIMES_FIRST {
            *biased.lock() += 1;
        }
        assert_eq!(favourite(&biased), NOBODY, "twice as hard");
        *biased.lock() += 1;
        assert_eq!(favourite(&biased), own_name());
        assert_eq!(*biased.lock(), 3 * TIMES_FIRST + 2);
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
        if favourite(&biased) != own_name() {
            return;
        }
        let guard = biased.lock();
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| biased.lock()));
        assert!(again.is_err());
        drop(again);
        drop(guard);
        drop(biased.lock());
    }
}
