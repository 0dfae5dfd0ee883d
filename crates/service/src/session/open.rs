//! Opening a session from a task.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::root::Session;
use super::waiter::Wake;
use crate::{RegionOptions, SessionError};

/// A session that is being opened, by a thread that is started at the first poll. If this is
/// dropped the session ends as soon as it is open.
#[must_use = "futures do nothing until they are awaited"]
pub struct Open {
    options: Option<RegionOptions>,
    opening: Arc<Mutex<Opening>>,
}

#[derive(Default)]
struct Opening {
    opened: Option<Result<Session, SessionError>>,
    waker: Option<Waker>,
}

fn lock(opening: &Mutex<Opening>) -> MutexGuard<'_, Opening> {
    // Nothing that can panic runs under this mutex.
    opening.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Opens a session as [`Session::open`] does, without blocking the task that awaits it: a
    /// thread opens it.
    pub fn open_async(options: &RegionOptions) -> Open {
        Open::new(options.clone())
    }
}

impl Open {
    pub(super) fn new(options: RegionOptions) -> Self {
        Self { options: Some(options), opening: Arc::default() }
    }
}

impl Future for Open {
    type Output = Result<Session, SessionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut opening = lock(&self.opening);
        if let Some(opened) = opening.opened.take() {
            return Poll::Ready(opened);
        }
        opening.waker = Some(cx.waker().clone());
        drop(opening);
        if let Some(options) = self.options.take() {
            let opening = Arc::clone(&self.opening);
            let thread = std::thread::Builder::new().name("farlock-open".to_owned());
            let started = thread.spawn(move || {
                let opened = Session::open(&options);
                let mut opening = lock(&opening);
                opening.opened = Some(opened);
                let waker = opening.waker.take();
                drop(opening);
                Wake(waker).now();
            });
            if let Err(error) = started {
                return Poll::Ready(Err(SessionError::Thread(error)));
            }
        }
        Poll::Pending
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").finish_non_exhaustive()
    }
}
