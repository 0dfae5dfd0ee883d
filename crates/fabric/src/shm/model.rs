//! The same as [`primitive`](super::primitive) names, under a scheduler: before every access
//! shuttle chooses which thread goes on. Time passes only when all who take part sleep, up to the
//! end of the shortest sleep; one whose end is far away, as that of a wait for something that must
//! be told, ends by a wake-up alone. So a wake-up that is lost is a deadlock.
//!
//! Shuttle's threads take turns on one thread of the system. What that thread owns, as the mutexes
//! of its endpoints' beacons, they own together: nobody dies here but by dropping its endpoint.
//! Attaching and detaching take locks of the system, with which no other may be chosen:
//! [`undisturbed`] is for them.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;
pub use std::sync::atomic::Ordering;

use shuttle::sync::{Condvar, Mutex};

use super::planted::Planted;
use super::times::LOOK_AGAIN_NS;
use crate::endpoint::Nanos;

thread_local! {
    /// Whether others may be chosen.
    static PLAYS: Cell<bool> = const { Cell::new(false) };
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
    static SLEEPERS: RefCell<Vec<Sleeper>> = const { RefCell::new(Vec::new()) };
    /// How many take part.
    static PLAYERS: Cell<usize> = const { Cell::new(0) };
    static NOW: Cell<Nanos> = const { Cell::new(0) };
}

/// Sleeps that last longer end by a wake-up alone: half of that after which every wait looks again.
const TIMER_MAX: Nanos = LOOK_AGAIN_NS / 2;

/// Plays a scene, with this mistake.
pub fn play<T>(mistake: Option<Planted>, scene: impl FnOnce() -> T) -> T {
    // What a schedule left behind that ended in a panic is no part of this one.
    SLEEPERS.take();
    PLAYERS.set(0);
    PLANTED.set(mistake);
    during(true, scene)
}

/// Takes part in a scene, on a thread of its own. Others who sleep may wait for it.
pub fn take_part<T>(part: impl FnOnce() -> T) -> T {
    struct Leaves;
    impl Drop for Leaves {
        fn drop(&mut self) {
            PLAYERS.set(PLAYERS.get().saturating_sub(1));
            if !std::thread::panicking() {
                pass_time();
            }
        }
    }
    PLAYERS.set(PLAYERS.get() + 1);
    let _leaves = Leaves;
    part()
}

/// Does something in a scene as if it took no time.
pub fn undisturbed<T>(act: impl FnOnce() -> T) -> T {
    during(false, act)
}

fn during<T>(plays: bool, act: impl FnOnce() -> T) -> T {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            PLAYS.set(self.0);
        }
    }
    let _back = Back(PLAYS.replace(plays));
    act()
}

pub(super) fn planted(mistake: Planted) -> bool {
    PLANTED.get() == Some(mistake)
}

/// Another thread may be chosen here.
pub(super) fn point() {
    if PLAYS.get() && !std::thread::panicking() {
        shuttle::sync::atomic::AtomicBool::new(false).load(Ordering::SeqCst);
    }
}

/// Orders nothing: accesses here are sequentially consistent, all of them.
pub fn fence(_: Ordering) {}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        /// An atomic of the standard library, before each access to which others may be chosen.
        #[repr(transparent)]
        #[derive(Debug, Default)]
        pub struct $name(std::sync::atomic::$name);

        #[allow(missing_docs, clippy::missing_errors_doc, reason = "as the standard library says")]
        impl $name {
            pub const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $value {
                point();
                self.0.load(order)
            }

            pub fn store(&self, value: $value, order: Ordering) {
                point();
                self.0.store(value, order);
            }

            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.swap(value, order)
            }

            pub fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(old, new, success, failure)
            }

            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_add(value, order)
            }

            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_or(value, order)
            }

            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_and(value, order)
            }

            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut new: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut old = self.load(fetch);
                while let Some(value) = new(old) {
                    match self.compare_exchange(old, value, set, fetch) {
                        Ok(old) => return Ok(old),
                        Err(now) => old = now,
                    }
                }
                Err(old)
            }

            pub fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }
        }
    };
}

atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);

/// A thread that sleeps.
struct Sleeper {
    /// Where the words lie on which it does.
    words: Vec<*const AtomicU32>,
    /// When it wakes by itself.
    until: Option<Nanos>,
    bed: Arc<Bed>,
}

impl Sleeper {
    fn wakes(self, by: Woken) {
        *self.bed.woken.lock().expect("nobody panics with it") = Some(by);
        self.bed.wakes.notify_one();
    }
}

#[derive(Default)]
struct Bed {
    woken: Mutex<Option<Woken>>,
    wakes: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    ByWord,
    ByTimer,
}

/// A word to sleep on while it has a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    word: *const AtomicU32,
    expected: u32,
}

impl Source {
    pub(super) fn of(word: &AtomicU32, expected: u32) -> Self {
        Self { word, expected }
    }
}

/// Sleeps until one of these words is woken or differs from its value, or `timeout` nanoseconds
/// have passed. Returns whether that ended it.
pub(super) fn sleep(sources: &[Source], timeout: Nanos) -> bool {
    point();
    // The kernel compares and goes to sleep under a lock: nobody is chosen in between.
    let differs = |source: &Source| {
        // SAFETY: a thread that makes a source keeps its word until it has slept on it.
        let word = unsafe { &*source.word };
        word.0.load(Ordering::SeqCst) != source.expected
    };
    if sources.iter().any(differs) {
        return false;
    }
    let words = sources.iter().map(|source| source.word).collect();
    let until = (timeout < TIMER_MAX).then(|| NOW.get() + timeout);
    let bed = Arc::<Bed>::default();
    let sleeper = Sleeper { words, until, bed: Arc::clone(&bed) };
    SLEEPERS.with_borrow_mut(|sleepers| sleepers.push(sleeper));
    pass_time();
    let mut woken = bed.woken.lock().expect("nobody panics with it");
    loop {
        match *woken {
            Some(by) => return by == Woken::ByTimer,
            None => woken = bed.wakes.wait(woken).expect("nobody panics with it"),
        }
    }
}

/// Where all who take part sleep, the one that sleeps for the shortest time wakes.
fn pass_time() {
    let first = SLEEPERS.with_borrow_mut(|sleepers| {
        if sleepers.len() < PLAYERS.get() {
            return None;
        }
        let timed = sleepers.iter().enumerate().filter_map(|(at, s)| Some((s.until?, at)));
        let (until, at) = timed.min()?;
        NOW.set(NOW.get().max(until));
        Some(sleepers.remove(at))
    });
    if let Some(sleeper) = first {
        sleeper.wakes(Woken::ByTimer);
    }
}

/// The time in the scene, in nanoseconds. Looking at it takes one.
pub(super) fn boot_time() -> Nanos {
    NOW.set(NOW.get() + 1);
    NOW.get()
}

/// Wakes the sleepers on this word.
pub(super) fn wake_all(word: &AtomicU32) {
    point();
    let woken: Vec<_> = SLEEPERS.with_borrow_mut(|sleepers| {
        sleepers.extract_if(.., |sleeper| sleeper.words.contains(&ptr::from_ref(word))).collect()
    });
    woken.into_iter().for_each(|sleeper| sleeper.wakes(Woken::ByWord));
}
