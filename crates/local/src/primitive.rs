//! The machine underneath: atomics, mutual exclusion, threads.
//!
//! Everything concurrent in this crate is written on what this module exports, so that a build with
//! `--cfg loom` or `--cfg shuttle` runs the same text under a model checker. Never name
//! `std::sync::atomic` elsewhere.

#[cfg(not(any(loom, shuttle)))]
#[allow(unused_imports, reason = "one list for all users")]
mod imp {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread;
}

#[cfg(loom)]
#[allow(unused_imports, reason = "one list for all users")]
mod imp {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use loom::thread;
}

#[cfg(all(shuttle, not(loom)))]
#[allow(unused_imports, reason = "one list for all users")]
mod imp {
    pub(crate) use shuttle::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::thread;
}

#[allow(unused_imports, reason = "one list for all users")]
pub(crate) use imp::*;
