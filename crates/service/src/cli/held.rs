//! What a command runs under: a lock, or a range of a table.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::Duration;

use farlock::session::{Lost, RangeGuard, RangeLock, RangeRequest, Request};
use farlock::{AcquireError, Guard, Lock, LostReason, ReleaseError, Token};

/// What can be asked for.
pub(super) enum Wanted {
    Lock(Lock),
    Range(RangeLock, Range<u64>),
}

/// What was asked for.
pub(super) enum Asked {
    Lock(Request),
    Range(RangeRequest),
}

/// What was granted.
pub(super) enum Held {
    Lock(Guard),
    Range(RangeGuard),
}

impl Wanted {
    pub(super) fn ask(&self, is_shared: bool) -> Asked {
        match (self, is_shared) {
            (Self::Lock(lock), true) => Asked::Lock(lock.shared()),
            (Self::Lock(lock), false) => Asked::Lock(lock.exclusive()),
            (Self::Range(table, range), true) => Asked::Range(table.shared(range.clone())),
            (Self::Range(table, range), false) => Asked::Range(table.exclusive(range.clone())),
        }
    }
}

impl Asked {
    pub(super) fn at_once(self) -> Self {
        match self {
            Self::Lock(request) => Self::Lock(request.at_once()),
            Self::Range(request) => Self::Range(request.at_once()),
        }
    }

    pub(super) fn within(self, limit: Duration) -> Self {
        match self {
            Self::Lock(request) => Self::Lock(request.within(limit)),
            Self::Range(request) => Self::Range(request.within(limit)),
        }
    }

    pub(super) fn blocking(self) -> Result<Held, AcquireError> {
        match self {
            Self::Lock(request) => request.blocking().map(Held::Lock),
            Self::Range(request) => request.blocking().map(Held::Range),
        }
    }
}

impl Held {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Lock(guard) => guard.name(),
            Self::Range(guard) => guard.name(),
        }
    }

    pub(super) fn token(&self) -> Token {
        match self {
            Self::Lock(guard) => guard.token(),
            Self::Range(guard) => guard.token(),
        }
    }

    pub(super) fn tether(&self) -> Option<OwnedFd> {
        match self {
            Self::Lock(guard) => guard.tether(),
            Self::Range(guard) => guard.tether(),
        }
    }

    pub(super) fn tether_is_passed_on(&self, tether: &OwnedFd) {
        match self {
            Self::Lock(guard) => guard.tether_is_passed_on(tether),
            Self::Range(guard) => guard.tether_is_passed_on(tether),
        }
    }

    pub(super) fn remaining(&self) -> Option<Duration> {
        match self {
            Self::Lock(guard) => guard.remaining(),
            Self::Range(guard) => guard.remaining(),
        }
    }

    pub(super) fn outlasts_lease(&self) -> bool {
        match self {
            Self::Lock(guard) => guard.outlasts_lease(),
            Self::Range(guard) => guard.outlasts_lease(),
        }
    }

    /// Resolves if it is lost.
    pub(super) fn lost(&self) -> Lost<'_> {
        match self {
            Self::Lock(guard) => guard.lost(),
            Self::Range(guard) => guard.lost(),
        }
    }

    pub(super) fn lost_reason(&self) -> Option<LostReason> {
        match self {
            Self::Lock(guard) => guard.lost_reason(),
            Self::Range(guard) => guard.lost_reason(),
        }
    }

    pub(super) fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Lock(guard) => guard.release().blocking(),
            Self::Range(guard) => guard.release().blocking(),
        }
    }
}
