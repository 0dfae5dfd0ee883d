//! What shared memory is made of: atomics, a clock, and sleeping until one of them is rung.
//!
//! What threads share is written on what this module exports, so that a build with `--cfg shuttle`
//! runs the same text under a scheduler that chooses who goes on before every access. It never
//! decides anything: it names things.

#[cfg(not(shuttle))]
pub(super) use super::futexes::boot_time;
#[cfg(not(shuttle))]
pub(crate) use super::futexes::{Source, sleep, wake_all};
#[cfg(shuttle)]
pub(super) use super::model::{
    AtomicU32, AtomicU64, Ordering, Source, boot_time, fence, planted, point, sleep, wake_all,
};
pub(super) use super::planted::Planted;
#[cfg(not(shuttle))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Whether this mistake is made.
#[cfg(not(shuttle))]
#[inline(always)]
pub(super) const fn planted(_: Planted) -> bool {
    false
}

/// What follows is done at once; others may be chosen before.
#[cfg(not(shuttle))]
#[inline(always)]
pub(super) const fn point() {}
