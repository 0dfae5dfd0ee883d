//! The machine underneath: atomics, mutual exclusion, what a process and a thread own.
//!
//! Everything concurrent in this crate is written on what this module exports, so that a build with
//! `--cfg loom` or `--cfg shuttle` runs the same text under a model checker. It never decides
//! anything: it names things.

#[cfg(loom)]
mod imp {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use loom::{lazy_static, thread_local};
}

#[cfg(all(shuttle, not(loom)))]
mod imp {
    pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::{lazy_static, thread_local};
}

#[cfg(not(any(loom, shuttle)))]
#[allow(unused_imports, reason = "the locks to measure against, a feature, use more")]
mod imp {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread;
}

pub(crate) use imp::*;

/// A `static` of the process; under a model checker, of one execution.
#[cfg(not(any(loom, shuttle)))]
macro_rules! of_process {
    ($(#[$doc:meta])* static $name:ident: $type:ty = $init:expr;) => {
        $(#[$doc])* static $name: $type = $init;
    };
}
#[cfg(any(loom, shuttle))]
macro_rules! of_process {
    ($(#[$doc:meta])* static $name:ident: $type:ty = $init:expr;) => {
        crate::primitive::lazy_static! { $(#[$doc])* static ref $name: $type = $init; }
    };
}

/// A value of each thread.
#[cfg(not(any(loom, shuttle)))]
macro_rules! of_thread {
    ($(#[$doc:meta])* static $name:ident: $type:ty = $init:expr;) => {
        std::thread_local! { $(#[$doc])* static $name: $type = const { $init }; }
    };
}
#[cfg(any(loom, shuttle))]
macro_rules! of_thread {
    ($(#[$doc:meta])* static $name:ident: $type:ty = $init:expr;) => {
        crate::primitive::thread_local! { $(#[$doc])* static $name: $type = $init; }
    };
}

/// A function that is `const` where the atomics allow it.
macro_rules! const_fn {
    (
        $(#[$doc:meta])*
        $vis:vis fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty $body:block
    ) => {
        #[cfg(not(any(loom, shuttle)))]
        $(#[$doc])* $vis const fn $name($($arg: $type),*) -> $out $body
        #[cfg(any(loom, shuttle))]
        $(#[$doc])* $vis fn $name($($arg: $type),*) -> $out $body
    };
}

pub(crate) use {const_fn, of_process, of_thread};

/// A sequentially consistent read-modify-write has just been done; the loads that follow, which are
/// sequentially consistent too, must not be served before it.
///
/// The language promises that. Loom treats such accesses as acquire and release only, and has to be
/// told with a fence.
pub(crate) fn order_loads_after_insertion() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// The lock of a mutex whose holders never panic.
pub(crate) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of an inner mutex panics")
}

/// A model checker has found an error and is unwinding: its world must not be touched any more.
pub(crate) fn world_has_ended() -> bool {
    cfg!(any(loom, shuttle)) && std::thread::panicking()
}
