//! A waiter of this session for a lock: a thread or a task.
//!
//! What becomes of it is decided by the thread that has its name's mutex, and kept here until it
//! looks. So a thread that times out, or a task whose future is dropped, learns under that mutex
//! whether it was granted the lock meanwhile.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use farlock_locks::{Mode, Token};

use super::pool::Place;
use crate::AcquireError;

/// Who waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Who {
    /// A thread, which may wait in line itself, for as long as this.
    Thread { limit: Option<Duration> },
    /// A task, for which the session's thread waits in line.
    Task,
}

/// How often an acquisition was begun anew, since its place was of no use any more: the server was
/// killed when nobody could tell how a verb had ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Anew(u8);

impl Anew {
    /// A server that is killed so often is none.
    const MAX: u8 = 8;

    /// Whether an acquisition that failed is begun once more.
    pub(super) fn is_due(&mut self, error: &AcquireError) -> bool {
        self.0 += 1;
        self.0 <= Self::MAX && error.is_of_lost_verb()
    }
}

/// What became of a waiter.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It holds the lock.
    Granted(Token),
    /// It is to wait in line by this place, which has got in line. Only threads do.
    Ask(Box<Place>),
    /// It will not have the lock.
    Failed(AcquireError),
}

/// A thread or a task that waits for a lock.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) mode: Mode,
    pub(super) who: Who,
    /// Its place among the waiters of this session for its name.
    pub(super) ticket: AtomicU64,
    fate: Fate<Outcome>,
}

impl Waiter {
    pub(super) fn new(mode: Mode, who: Who) -> Self {
        Self { mode, who, ticket: AtomicU64::new(0), fate: Fate::default() }
    }

    pub(super) fn ticket(&self) -> u64 {
        self.ticket.load(Ordering::Relaxed)
    }
}

impl Deref for Waiter {
    type Target = Fate<Outcome>;

    fn deref(&self) -> &Fate<Outcome> {
        &self.fate
    }
}

/// What becomes of one that waits.
#[derive(Debug)]
pub(crate) struct Fate<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    outcome: Option<T>,
    is_settled: bool,
    /// Whether it looks no more. Only of those that wait for nothing under their name's mutex.
    is_gone: bool,
    waker: Option<Waker>,
}

impl<T> Default for Fate<T> {
    fn default() -> Self {
        let state = State { outcome: None, is_settled: false, is_gone: false, waker: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

/// One that looks at the time when its task is woken.
pub(super) trait Timed: Send + Sync {
    /// Makes its task look at the time.
    fn nudge(&self) -> Wake;
}

impl Timed for Waiter {
    fn nudge(&self) -> Wake {
        self.fate.nudge()
    }
}

impl<T: Send> Timed for Fate<T> {
    fn nudge(&self) -> Wake {
        Wake(self.state().waker.take())
    }
}

impl<T> Fate<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        // Nothing that can panic runs under this mutex.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides what becomes of it. The caller has its name's mutex, and wakes it afterwards.
    pub(super) fn settle(&self, outcome: T) -> Wake {
        match self.offer(outcome) {
            Ok(wake) => wake,
            Err(_) => panic!("a waiter comes and goes under its name's mutex"),
        }
    }

    /// The same for one that may have gone, without that mutex: then the outcome comes back.
    pub(crate) fn offer(&self, outcome: T) -> Result<Wake, T> {
        let mut state = self.state();
        if state.is_gone {
            return Err(outcome);
        }
        assert!(!state.is_settled, "a waiter is settled once");
        state.is_settled = true;
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        self.changed.notify_one();
        Ok(Wake(waker))
    }

    /// The same for one that may have been settled before.
    pub(crate) fn offer_last(&self, outcome: T) -> Result<Wake, T> {
        if self.state().is_settled { Err(outcome) } else { self.offer(outcome) }
    }

    /// Whether it looks no more.
    pub(super) fn is_gone(&self) -> bool {
        self.state().is_gone
    }

    /// It goes. Returns what has become of it, if anything has.
    pub(super) fn abandon(&self) -> Option<T> {
        let mut state = self.state();
        state.is_gone = true;
        state.outcome.take()
    }

    /// What has become of it, if anything has.
    pub(super) fn outcome(&self) -> Option<T> {
        self.state().outcome.take()
    }

    /// Blocks this thread until something has become of it; `None` when the deadline has passed.
    pub(crate) fn block(&self, deadline: Option<Instant>) -> Option<T> {
        let mut state = self.state();
        loop {
            if let Some(outcome) = state.outcome.take() {
                return Some(outcome);
            }
            state = match deadline {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.checked_duration_since(Instant::now())?;
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// What has become of it, or the task is woken when something has.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<T> {
        // Wakers are made and dropped outside of the mutex: they may do anything.
        let mut waker = Some(cx.waker().clone());
        let mut state = self.state();
        if let Some(outcome) = state.outcome.take() {
            return Poll::Ready(outcome);
        }
        std::mem::swap(&mut state.waker, &mut waker);
        drop(state);
        Poll::Pending
    }
}

/// Tells a thread what came of something it waits for by [`Fate::block`]: nothing, where this is
/// dropped first. (A channel of the standard library parks the thread that waits, and so takes the
/// wake-up that an executor may have left there for its tasks.)
pub(crate) struct Report<T>(Arc<Fate<Option<T>>>);

impl<T> Report<T> {
    /// With what the thread waits for.
    pub(crate) fn new() -> (Self, Arc<Fate<Option<T>>>) {
        let fate = Arc::default();
        (Self(Arc::clone(&fate)), fate)
    }

    pub(crate) fn send(self, outcome: T) {
        self.settle(Some(outcome));
    }

    fn settle(&self, outcome: Option<T>) {
        // Its thread blocks: there is no task to wake.
        let _ = self.0.offer_last(outcome);
    }
}

impl<T> Drop for Report<T> {
    fn drop(&mut self) {
        self.settle(None);
    }
}

/// A task to wake, when no mutex is held any more.
#[derive(Debug, Default)]
#[must_use = "a task that is not woken sleeps on"]
pub(crate) struct Wake(pub(super) Option<Waker>);

impl Wake {
    /// A waker may do anything; what it does to itself harms nobody else.
    pub(crate) fn now(self) {
        if let Some(waker) = self.0 {
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }
}
