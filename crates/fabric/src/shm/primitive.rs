//! What shared memory is made of: atomics, a clock, and sleeping until one of them is rung.
//!
//! What threads share is written on what this module exports, so that a build with `--cfg shuttle`
//! runs the same text under a scheduler that chooses who goes on before every access. It never
//! decides anything: it names things.

#[cfg(not(shuttle))]
pub(super) use super::futexes::{Source, boot_time, sleep, wake_all};
#[cfg(shuttle)]
pub(super) use super::model::{
    AtomicU32, AtomicU64, Ordering, Source, boot_time, fence, planted, point, sleep, wake_all,
};
#[cfg(not(shuttle))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A mistake in how threads sleep, wake each other and leave, planted so that tests find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(shuttle), expect(unreachable_pub, reason = "the scheduler's tests plant them"))]
pub enum Planted {
    /// Whoever changes a word rings before it does.
    RingsEarly,
    /// Whoever is about to sleep does not look again once it has armed the bells.
    LooksOnce,
    /// A ring wakes the sleepers before the bell says that it rang.
    WakesFirst,
    /// A park does not know of an unpark that came before it.
    UnparkForgotten,
    /// A message whose sender ended is passed over without a second look at it.
    PassesOver,
    /// An owner that leaves while a child has its tether leaves the child in its place.
    LeavesOrphan,
    /// An owner that leaves while a child has its tether leaves the tether held.
    LeavesTether,
}

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
