//! How the program ends: an exit status.

/// An exit status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Exit(pub(super) u8);

impl Exit {
    pub(super) const OK: Self = Self(0);
    /// A check failed, or a lock was not granted.
    pub(super) const CONFLICT: Self = Self(1);
    /// EX_USAGE: the command line is wrong.
    pub(super) const USAGE: Self = Self(64);
    /// EX_UNAVAILABLE: the region cannot be used.
    pub(super) const UNAVAILABLE: Self = Self(69);
    /// EX_SOFTWARE: the region's memory is damaged.
    pub(super) const DAMAGED: Self = Self(70);
    /// EX_OSERR: the system refused.
    pub(super) const SYSTEM: Self = Self(71);
    /// The command cannot be run.
    pub(super) const CANNOT_RUN: Self = Self(126);
    /// The command cannot be found.
    pub(super) const NOT_FOUND: Self = Self(127);

    /// A process that was killed by this signal.
    pub(super) fn killed_by(signal: i32) -> Self {
        Self(u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }
}
