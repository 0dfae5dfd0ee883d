//! Range locks: hold a part of something, while others hold other parts.
//!
//! A mutex around a file, an array or an address space makes all threads wait for each other,
//! though most touch different parts of it. A lock per page or per element costs memory, and a
//! thread that needs many takes many. A **range lock** is one lock of which a caller holds the
//! positions it needs, any range of 64-bit numbers:
//!
//! ```
//! use farlock_local::{Range, RangeMutex};
//!
//! let file = RangeMutex::new();
//! std::thread::scope(|scope| {
//!     for record in 0..4 {
//!         let file = &file;
//!         scope.spawn(move || {
//!             let held = file.lock(Range::new(record * 512, (record + 1) * 512)?);
//!             // No other thread is in these 512 bytes; the others are in theirs.
//!             drop(held);
//!             Ok::<(), farlock_local::RangeError>(())
//!         });
//!     }
//! });
//! ```
//!
//! # What to choose
//!
//! | for | use |
//! | --- | --- |
//! | parts of anything, exclusively | [`RangeMutex`] |
//! | parts of anything, some only to read | [`RangeRwLock`] |
//! | parts of a slice, as `&[T]` and `&mut [T]` | [`RangeLocked`] |
//! | a structure that chooses its lock | [`RawRangeLock`], [`RawRangeRwLock`] |
//! | thousands of ranges held at once, exclusively | [`IndexedLock`] |
//! | a sorted map or set of numbers that many threads update | [`skiplist`] |
//! | the book that a kernel keeps of its mappings | [`address_space`] |
//!
//! The locks can be tried, and waited for with a timeout; the first three can be awaited, on any
//! executor:
//!
//! ```
//! # use farlock_local::{Range, RangeRwLock};
//! # use std::time::Duration;
//! async fn index(lock: &RangeRwLock) {
//!     let held = lock.read_async(Range::FULL).await;
//!     assert!(lock.try_write_for(Range::one(7), Duration::from_millis(1)).is_none());
//!     drop(held);
//! }
//! # let lock = RangeRwLock::default();
//! # let mut future = std::pin::pin!(index(&lock));
//! # let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
//! # assert!(future.as_mut().poll(&mut cx).is_ready());
//! ```
//!
//! # What you can rely on
//!
//! - **Exclusion.** Held ranges do not overlap, except shared ones with each other. What a holder
//!   did is visible to the next.
//! - **Release never waits.** It is one atomic operation, and a wake-up if a waiter sleeps.
//! - **Disjoint ranges do not wait for each other**, and no lock is taken inside, except to sleep.
//! - **Cheap when no holder is in the way.** Two atomic operations: 1.1 times a bare
//!   compare-and-swap and a fetch-and-add if nothing is held, 1.6 to 1.8 times if something else is
//!   (13 and 18 to 20 ns on an AMD EPYC 9005; `cargo bench -p farlock-local` shows it on your
//!   machine).
//! - **More threads than cores do no harm.** A waiter spins for about two microseconds, then
//!   sleeps: sixteen threads on two cores get as much done as two.
//! - **Giving up leaves nothing behind**: a timeout, a failed try, a future dropped at any point.
//!   No other waiter's wake-up goes with it.
//! - **Memory** is 64 bytes for each range held at once, used again and never returned to the
//!   system.
//! - **Full range.** [`Range::FULL`] holds all 2^64 positions; empty and inverted ranges are errors
//!   before they reach a lock.
//!
//! # What you cannot
//!
//! - **Not reentrant.** A thread that waits for a range it holds itself waits for ever. Debug
//!   builds panic instead, where a guard of this thread is in the way.
//! - **No deadlock detection** between threads that hold one range and wait for another. Take
//!   ranges in ascending order, or try.
//! - **Not strictly fair.** A waiter that was set back sixteen times makes newcomers stand back,
//!   each for at most some two milliseconds. So no holder of a range is ever locked out by a
//!   waiter's impatience, and a wait among holders that stay for long may be long.
//! - **No poisoning.** A guard dropped by a panic releases.
//! - **Not for many held ranges.** The list is walked from its start: each held range before yours
//!   costs two to three nanoseconds while they are few thousands, more beyond. Then use
//!   [`IndexedLock`].
//! - **One process.** For ranges among processes and machines, see the `farlock` crate.
//!
//! # How it is known to work
//!
//! `cargo xtask ci loom shuttle` runs the lists, their timeouts and their futures under two model
//! checkers: every order of two threads that meet, three to five preemptions in longer meetings,
//! and random orders of four threads (a million at night). Errors planted on purpose (no second
//! look after insertion, an entry inserted twice, an entry used again unnoticed) must be found.
//! Property tests compare what is granted with a plain model.
//!
//! The algorithm is that of Kogan, Dice and Issa, "Scalable Range Locks for Scalable Address Spaces
//! and Beyond" (EuroSys 2020), mended where it is wrong as printed; the lists' own documentation in
//! the source says where and why.
#![deny(unsafe_code)]

#[cfg(not(any(loom, shuttle)))]
pub mod address_space;
#[cfg(all(feature = "baseline", not(any(loom, shuttle))))]
pub mod baseline;
mod guard;
#[cfg(not(any(loom, shuttle)))]
mod indexed;
mod list;
mod primitive;
mod range;
mod raw;
#[cfg(not(any(loom, shuttle)))]
pub mod skiplist;
mod slice;

pub use guard::{
    OfTask, OfThread, RangeGuard, RangeMutex, RangeMutexGuard, RangeRwLock, RangeRwLockGuard,
};
#[cfg(not(any(loom, shuttle)))]
pub use indexed::{IndexedLock, IndexedToken};
#[cfg(any(loom, shuttle))]
pub use list::Planted;
pub use list::{ListEx, ListRw, Preference, Token};
pub use range::{Range, RangeError};
pub use raw::{RawRangeLock, RawRangeLockTimed, RawRangeRwLock, RawRangeRwLockTimed};
pub use slice::{PartMut, PartRef, RangeLocked, Sequence, SliceError};
