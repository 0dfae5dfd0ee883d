//! Mistakes that tests plant in shared memory.

/// A mistake in how threads sleep, wake each other and leave, planted so that tests find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(shuttle), expect(unreachable_pub, reason = "the scheduler's tests plant them"))]
pub enum Planted {
    /// A changer of a word rings before it changes it.
    RingsEarly,
    /// A sleeper does not look again once it has armed the bells.
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
