//! Sessions: locks by name for the threads of one process.
//!
//! A session has one thread of its own, the *progress thread*. It owns the endpoint and runs every
//! acquisition; handles in other threads only ask and listen. So a program that gives up waiting
//! and then computes for seconds delays nobody: its withdrawal, its releases and what a queue lock
//! asks of those in line happen on the progress thread at once.
//!
//! ```text
//! any thread                       progress thread
//! Lock -> Acquire --- ask ------>  acquires, holds, releases: a small task per ask
//! Guard           <-- granted ---
//!                 --- release -->
//! ```
//!
//! A process that dies leaves its locks to be taken over by whoever waits, within microseconds.

mod ask;
mod guard;
mod progress;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use farlock_fabric::shm::Region;
use farlock_locks::Mode;

use crate::{AcquireError, RegionOptions, SessionError};
use ask::Ask;
pub use guard::{Guard, Lost, Release};
use progress::Progress;

/// A connection to a region. Clones are the same session; it ends with its last clone and guard.
#[derive(Clone)]
pub struct Session {
    progress: Arc<Progress>,
}

impl Session {
    /// Opens a session in a region, which is created where it is missing.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn open(options: &RegionOptions) -> Result<Self, SessionError> {
        let region = Region::open(&options.to_shm())?;
        Ok(Self { progress: Arc::new(Progress::start(region)?) })
    }

    /// The lock of this name: 1 to 255 bytes of UTF-8 without NUL. Asks nobody yet.
    pub fn lock(&self, name: impl Into<String>) -> Lock {
        Lock { session: self.clone(), name: name.into() }
    }

    /// The region.
    pub fn region(&self) -> &Region {
        self.progress.region()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("region", &self.region().name()).finish_non_exhaustive()
    }
}

/// A lock by its name.
#[derive(Clone, Debug)]
pub struct Lock {
    session: Session,
    name: String,
}

impl Lock {
    /// Asks for the lock alone.
    pub fn exclusive(&self) -> Request {
        self.request(Mode::Exclusive)
    }

    /// Asks for the lock together with other shared holders.
    pub fn shared(&self) -> Request {
        self.request(Mode::Shared)
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn request(&self, mode: Mode) -> Request {
        let (session, name) = (self.session.clone(), self.name.clone());
        Request { session, name, mode, patience: Patience::Endless }
    }
}

/// How long an acquisition waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// Until it is granted.
    Endless,
    /// Not at all.
    None,
    /// So long from when it was asked for.
    Until(Instant, Duration),
}

/// An acquisition that can be asked for: await it, or call [`Request::blocking`].
#[must_use = "a lock is acquired by awaiting its request, or by `blocking`"]
#[derive(Clone, Debug)]
pub struct Request {
    session: Session,
    name: String,
    mode: Mode,
    patience: Patience,
}

impl Request {
    /// Gives up with [`AcquireError::TimedOut`] when so long has passed from now.
    pub fn within(mut self, limit: Duration) -> Self {
        // A limit beyond what the clock can express is none.
        self.patience = match Instant::now().checked_add(limit) {
            Some(deadline) => Patience::Until(deadline, limit),
            None => Patience::Endless,
        };
        self
    }

    /// Gives up with [`AcquireError::Busy`] if it would have to wait.
    pub fn at_once(mut self) -> Self {
        self.patience = Patience::None;
        self
    }

    /// Acquires the lock, blocking this thread. Not for async tasks.
    ///
    /// # Errors
    /// See [`AcquireError`].
    pub fn blocking(self) -> Result<Guard, AcquireError> {
        let acquire = self.into_future();
        let ask = Arc::clone(&acquire.ask);
        ask.wait_granted().map(|token| acquire.guard(token))
    }
}

impl IntoFuture for Request {
    type Output = Result<Guard, AcquireError>;
    type IntoFuture = Acquire;

    fn into_future(self) -> Acquire {
        let ask = Arc::new(Ask::new(self.name, self.mode, self.patience));
        self.session.progress.ask(Arc::clone(&ask));
        Acquire { session: self.session, ask, finished: false }
    }
}

/// An acquisition under way. Dropping it withdraws it, at once.
#[must_use = "a lock is acquired by awaiting its acquisition"]
pub struct Acquire {
    session: Session,
    ask: Arc<Ask>,
    finished: bool,
}

impl Acquire {
    fn guard(mut self, token: farlock_locks::Token) -> Guard {
        self.finished = true;
        Guard::new(self.session.clone(), Arc::clone(&self.ask), token)
    }
}

impl Future for Acquire {
    type Output = Result<Guard, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(!self.finished, "a finished acquisition is not polled again");
        let polled = self.ask.poll_granted(cx);
        polled.map(|granted| {
            self.finished = true;
            granted.map(|token| Guard::new(self.session.clone(), Arc::clone(&self.ask), token))
        })
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if !self.finished {
            self.ask.let_go();
            self.session.progress.nudge();
        }
    }
}
