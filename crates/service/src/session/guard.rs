//! Guards: held locks, in the hands of any thread.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use farlock_locks::{Mode, Token};

use super::Session;
use super::ask::Ask;
use crate::ReleaseError;
use crate::error::LostReason;

/// A held lock. Dropping it releases the lock on the session's own thread, at once;
/// [`Guard::release`] also waits until it is free, and tells whether it was held to the end.
///
/// If the process dies, whoever waits has the lock within microseconds.
#[must_use = "a lock is held as long as its guard lives"]
pub struct Guard {
    session: Session,
    ask: Arc<Ask>,
    token: Token,
}

impl Guard {
    pub(super) fn new(session: Session, ask: Arc<Ask>, token: Token) -> Self {
        Self { session, ask, token }
    }

    /// The fencing token of this grant. Give it to every resource the lock protects, and let the
    /// resource refuse a token below the highest it has seen.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.ask.name
    }

    /// In which mode the lock is held.
    pub fn mode(&self) -> Mode {
        self.ask.mode
    }

    /// For how long the lock is certain to be held if nothing is heard any more: `None` where no
    /// lease bounds it, which in shared memory is always so. There it is held until it is released
    /// or the process dies. Zero once it is lost.
    pub fn remaining(&self) -> Option<Duration> {
        self.ask.lost().map(|_| Duration::ZERO)
    }

    /// How the lock was lost, if it was: in shared memory only with its region.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.ask.lost()
    }

    /// Resolves if the lock is lost while it is held. Then stop, and let go of what it protects.
    pub fn lost(&self) -> Lost<'_> {
        Lost { guard: self }
    }

    /// Releases the lock: await it, or call [`Release::blocking`]. The lock is free when it ends.
    pub fn release(self) -> Release {
        let release = Release { session: self.session.clone(), ask: Arc::clone(&self.ask) };
        drop(self);
        release
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.ask.let_go();
        self.session.progress.nudge();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guard({:?} {:?}, token {})", self.name(), self.mode(), self.token)
    }
}

/// A release under way. It goes on if this is dropped.
#[must_use = "awaiting it tells when the lock is free"]
pub struct Release {
    /// Keeps the session until the release has ended.
    session: Session,
    ask: Arc<Ask>,
}

impl Release {
    /// Waits for the end of the release, blocking this thread.
    ///
    /// # Errors
    /// See [`ReleaseError`].
    pub fn blocking(self) -> Result<(), ReleaseError> {
        let result = self.ask.wait_released();
        drop(self.session);
        result
    }
}

impl Future for Release {
    type Output = Result<(), ReleaseError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.ask.poll_released(cx)
    }
}

/// Resolves with how the lock was lost; pending while it is held.
#[must_use = "futures do nothing until they are awaited"]
pub struct Lost<'g> {
    guard: &'g Guard,
}

impl Future for Lost<'_> {
    type Output = LostReason;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LostReason> {
        self.guard.ask.poll_lost(cx)
    }
}
