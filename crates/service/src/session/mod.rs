//! Sessions: locks by name for the threads and tasks of one process.
//!
//! A caller acquires where it runs: an uncontended acquisition is one verb on the caller's thread,
//! and so is a release. The session has *places* in the region, and each acquisition owns one until
//! it has released. A thread that has to wait waits in line itself. The session has one
//! thread of its own, which keeps the places alive, waits in line for tasks, and leaves lines for
//! those that gave up where the line cannot be left at once. So a program that gives up and then
//! computes for seconds delays nobody.
//!
//! ```text
//! any thread        acquires, waits, holds, releases, by a place that it owns meanwhile
//! session's thread  keeps places alive; waits in line for tasks; withdraws
//! ```
//!
//! A process that dies leaves its locks to be taken over by the next waiter, within microseconds.

#![allow(clippy::vec_box, clippy::redundant_allocation, reason = "places are large, and moved")]

mod guard;
mod hub;
mod name;
mod open;
mod pool;
mod progress;
mod range;
mod root;
mod state;
mod waiter;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use farlock_fabric::block_on;
use farlock_locks::{Mode, Token};

use crate::{AcquireError, LostReason};
pub use guard::{Guard, Lost, Release};
use name::{Came, Tried};
pub use open::Open;
use pool::UnderWay;
pub use range::divide::DivideError;
pub use range::merge::MergeError;
pub use range::together::{RangesGuard, RangesRequest};
pub use range::{RangeAcquire, RangeGuard, RangeLock, RangeRequest};
pub use root::Session;
use state::{Handle, Job, Patience};
use waiter::{Anew, Outcome, Waiter, Who};
pub(crate) use waiter::{Fate, Report};

impl Session {
    /// The lock of this name: 1 to 255 bytes of UTF-8 without NUL. Asks nobody yet.
    ///
    /// To acquire the same lock again and again, keep the [`Lock`]: it knows where the lock lies.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        let root = &self.root;
        let make = |name| Handle { name, root: Arc::clone(root) };
        Lock { handle: root.hub.handle(name.as_ref(), make) }
    }
}

/// A lock by its name.
#[derive(Clone)]
pub struct Lock {
    handle: Arc<Handle>,
}

impl Lock {
    /// Asks for the lock alone.
    #[inline]
    pub fn exclusive(&self) -> Request {
        self.request(Mode::Exclusive)
    }

    /// Asks for the lock together with other shared holders.
    #[inline]
    pub fn shared(&self) -> Request {
        self.request(Mode::Shared)
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.handle.name.text
    }

    #[inline]
    fn request(&self, mode: Mode) -> Request {
        Request { handle: Arc::clone(&self.handle), mode, patience: Patience::Endless }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lock").field(&self.name()).finish()
    }
}

/// An acquisition that can be asked for: await it, or call [`Request::blocking`]. Nothing is asked
/// before.
#[must_use = "a lock is acquired by awaiting its request, or by `blocking`"]
#[derive(Clone)]
pub struct Request {
    handle: Arc<Handle>,
    mode: Mode,
    patience: Patience,
}

impl Request {
    /// Gives up with [`AcquireError::TimedOut`] when so long has passed since it was asked for:
    /// since [`Request::blocking`] was called, or its future was polled first.
    pub fn within(mut self, limit: Duration) -> Self {
        self.patience = Patience::For(limit);
        self
    }

    /// Gives up with [`AcquireError::Busy`] if it would have to wait.
    pub fn at_once(mut self) -> Self {
        self.patience = Patience::None;
        self
    }

    /// The acquisition as a future. Asking begins when it is first polled.
    pub fn acquire(self) -> Acquire {
        let (stage, deadline, anew) = (Stage::New, None, Anew::default());
        Acquire { request: Some(self), stage, deadline, anew }
    }

    /// Acquires the lock, blocking this thread. Not for async tasks.
    ///
    /// # Errors
    /// See [`AcquireError`].
    #[inline]
    pub fn blocking(self) -> Result<Guard, AcquireError> {
        if self.patience == Patience::None {
            return self.try_blocking();
        }
        match self.handle.name.acquire(self.mode, self.patience.of_thread()) {
            Ok(Came::Held(token)) => self.guard(token),
            came => self.block(came),
        }
    }

    /// What was granted, unless the region's file is gone: others may have the lock of this name
    /// by another one, and this is nothing then.
    #[inline]
    fn guard(self, token: Token) -> Result<Guard, AcquireError> {
        match self.handle.name.hub.still_finds_region() {
            true => Ok(Guard::new(self.handle, token, self.mode)),
            false => Err(self.void(token)),
        }
    }

    #[cold]
    fn void(self, token: Token) -> AcquireError {
        let name = Arc::clone(&self.handle.name);
        drop(Guard::new(self.handle, token, self.mode));
        name.lost(LostReason::without(&name.hub.region))
    }

    /// Why it was not granted in time.
    fn refused(&self) -> AcquireError {
        assert!(self.patience != Patience::Endless, "who has no limit does not time out");
        let name = &self.handle.name;
        self.patience.refused(&name.text, name.holders())
    }

    /// Waits, blocking this thread.
    #[cold]
    fn block(self, mut came: Result<Came, AcquireError>) -> Result<Guard, AcquireError> {
        let (deadline, mut anew) = (self.patience.deadline(), Anew::default());
        loop {
            match came.and_then(|came| self.block_for(came, deadline)) {
                Ok(Some(token)) => return self.guard(token),
                Ok(None) => return Err(self.refused()),
                Err(error) if anew.is_due(&error) => {
                    came = self.handle.name.acquire(self.mode, self.patience.of_thread());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn block_for(
        &self,
        came: Came,
        deadline: Option<Instant>,
    ) -> Result<Option<Token>, AcquireError> {
        match came {
            Came::Held(token) => Ok(Some(token)),
            Came::Asks(place) => self.handle.name.wait_in_line(self.mode, place, deadline),
            Came::Waits(waiter) => self.block_here(&waiter, deadline),
            Came::IsUnderWay(_) => panic!("a thread waits for its verbs"),
        }
    }

    /// Waits behind others of this session.
    fn block_here(
        &self,
        waiter: &Arc<Waiter>,
        deadline: Option<Instant>,
    ) -> Result<Option<Token>, AcquireError> {
        let name = &self.handle.name;
        name.hub.watch();
        let outcome = waiter.block(deadline);
        name.hub.watch_no_more();
        match outcome.or_else(|| name.cancel(waiter)) {
            None => Ok(None),
            Some(Outcome::Granted(token)) => Ok(Some(token)),
            Some(Outcome::Ask(place)) => name.wait_in_line(self.mode, place, deadline),
            Some(Outcome::Failed(error)) => Err(error),
        }
    }

    fn try_blocking(self) -> Result<Guard, AcquireError> {
        let mut anew = Anew::default();
        loop {
            match self.try_once() {
                Ok(Tried::Held(token)) => return self.guard(token),
                Ok(Tried::Busy | Tried::Doubtful(_)) => return Err(self.refused()),
                Err(error) if anew.is_due(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Tries, blocking this thread while that is in doubt.
    fn try_once(&self) -> Result<Tried, AcquireError> {
        match self.try_at_once()? {
            Tried::Doubtful(place) => {
                let is_held = block_on(place.seat.endpoint(), place.seat.try_beside());
                self.handle.name.decided(place, self.mode, is_held)
            }
            decided => Ok(decided),
        }
    }

    fn try_at_once(&self) -> Result<Tried, AcquireError> {
        let name = &self.handle.name;
        loop {
            if let Some(tried) = name.try_acquire(self.mode)? {
                return Ok(tried);
            }
            let ordered = name.hub.order_places(false);
            ordered.map_err(|error| progress::too_many(&name.text, &name.hub, error))?;
            name.hub.check().map_err(|reason| name.lost(reason))?;
        }
    }
}

impl IntoFuture for Request {
    type Output = Result<Guard, AcquireError>;
    type IntoFuture = Acquire;

    fn into_future(self) -> Acquire {
        self.acquire()
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({:?} {:?}, {:?})", self.handle.name.text, self.mode, self.patience)
    }
}

/// An acquisition. Dropping it withdraws it, at once.
///
/// Once it was polled it is in line, whether or not it is polled again: the lock may be granted to
/// it, and then others wait until it is polled to its end, or dropped. So a branch of a `select!`
/// that was not taken is dropped, not put aside.
///
/// Its task is woken by whichever thread decides, perhaps the session's own. A waker that panics
/// harms nobody; one that blocks, as those of executors never do, delays the others that the thread
/// serves meanwhile.
#[must_use = "a lock is acquired by awaiting its acquisition"]
#[derive(Debug)]
pub struct Acquire {
    /// Until it has ended.
    request: Option<Request>,
    stage: Stage,
    /// When it gives up, once it waits.
    deadline: Option<Instant>,
    anew: Anew,
}

/// How far an acquisition has come.
#[derive(Debug)]
enum Stage {
    /// Nothing was asked yet.
    New,
    /// The verb is on its way that opens the lock.
    Opens(Opening),
    /// It waits.
    Waits(Waiting),
    /// Its attempt, which does not wait, is decided by the session's thread.
    Tries(Arc<Waiter>),
    /// It has ended.
    Done,
}

/// A verb that opens a lock for a task.
#[derive(Debug)]
struct Opening {
    under_way: UnderWay,
    alarm: Option<Alarm>,
}

/// Wakes a task at its deadline.
#[derive(Debug)]
struct Alarm {
    fate: Arc<Fate<()>>,
    timer: (Instant, u64),
}

/// What a task waits for.
#[derive(Debug)]
struct Waiting {
    waiter: Arc<Waiter>,
    timer: Option<(Instant, u64)>,
}

impl Future for Acquire {
    type Output = Result<Guard, AcquireError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let (Stage::New, Some(request)) = (&this.stage, &this.request)
            && request.patience != Patience::None
        {
            match request.handle.name.acquire(request.mode, Who::Task) {
                Ok(Came::Held(token)) => return Poll::Ready(this.guard(token)),
                came => return this.poll_slowly(Some(came), cx),
            }
        }
        this.poll_slowly(None, cx)
    }
}

impl Acquire {
    #[inline]
    fn guard(&mut self, token: Token) -> Result<Guard, AcquireError> {
        self.stage = Stage::Done;
        self.request.take().expect("it is granted once").guard(token)
    }

    fn request(&self) -> &Request {
        self.request.as_ref().expect("a finished acquisition is not polled again")
    }

    #[cold]
    fn poll_slowly(
        &mut self,
        mut came: Option<Result<Came, AcquireError>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Guard, AcquireError>> {
        loop {
            match ready!(self.poll_once(came, cx)) {
                Err(error) if self.anew.is_due(&error) => {
                    self.stop_watching();
                    self.stage = Stage::New;
                    let Request { handle, mode, patience } = self.request();
                    let waits = *patience != Patience::None;
                    came = waits.then(|| handle.name.acquire(*mode, Who::Task));
                }
                ended => return self.ended(ended),
            }
        }
    }

    fn poll_once(
        &mut self,
        came: Option<Result<Came, AcquireError>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Token, AcquireError>> {
        let came = match came {
            Some(Ok(Came::IsUnderWay(under_way))) => {
                self.begin_opening(*under_way);
                Some(ready!(self.poll_opening(cx)))
            }
            None if matches!(self.stage, Stage::Opens(_)) => Some(ready!(self.poll_opening(cx))),
            came => came,
        };
        match (came, &self.stage) {
            (Some(Ok(Came::Waits(waiter))), _) => self.begin_to_wait(waiter),
            (Some(Ok(Came::IsUnderWay(_))), _) => panic!("its verb has completed"),
            (Some(Ok(Came::Held(token))), _) => return Poll::Ready(Ok(token)),
            (Some(Ok(Came::Asks(_))), _) => panic!("a task does not stand in line"),
            (Some(Err(error)), _) => return Poll::Ready(Err(error)),
            (None, Stage::New) => {
                if let Some(tried) = self.try_at_once() {
                    return Poll::Ready(tried);
                }
            }
            (None, _) => {}
        }
        let (waiter, deadline) = match &self.stage {
            Stage::Waits(waiting) => (&waiting.waiter, self.deadline),
            Stage::Tries(waiter) => (waiter, None),
            Stage::New | Stage::Opens(_) | Stage::Done => {
                panic!("a finished acquisition is not polled again")
            }
        };
        let outcome = match waiter.poll(cx) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending if deadline.is_none_or(|at| Instant::now() < at) => return Poll::Pending,
            Poll::Pending => self.request().handle.name.cancel(waiter),
        };
        Poll::Ready(match outcome {
            Some(Outcome::Granted(token)) => Ok(token),
            Some(Outcome::Failed(error)) => Err(error),
            Some(Outcome::Ask(_)) => panic!("tasks do not stand in line"),
            None => Err(self.request().refused()),
        })
    }

    fn begin_opening(&mut self, under_way: UnderWay) {
        self.deadline = self.deadline.or_else(|| self.request().patience.deadline());
        let hub = &self.request().handle.root.hub;
        // Its thread takes in what comes.
        hub.watch();
        let alarm = self.deadline.map(|at| {
            let fate: Arc<Fate<()>> = Arc::default();
            Alarm { timer: hub.set_timer(at, Arc::<Fate<()>>::clone(&fate)), fate }
        });
        self.stage = Stage::Opens(Opening { under_way, alarm });
    }

    fn poll_opening(&mut self, cx: &mut Context<'_>) -> Poll<Result<Came, AcquireError>> {
        let Stage::Opens(opening) = &mut self.stage else { panic!("it opens") };
        if let Some(alarm) = &opening.alarm {
            let _ = alarm.fate.poll(cx);
        }
        let polled = opening.under_way.poll(cx);
        if polled.is_pending() && self.deadline.is_none_or(|at| Instant::now() < at) {
            return Poll::Pending;
        }
        self.stop_watching();
        let Stage::Opens(opening) = std::mem::replace(&mut self.stage, Stage::New) else {
            panic!("it opens")
        };
        let Request { handle, mode, .. } = self.request();
        Poll::Ready(match polled {
            Poll::Ready(completed) => {
                handle.name.opened(opening.under_way, (*mode, Who::Task), completed)
            }
            Poll::Pending => {
                handle.name.leave_under_way(opening.under_way);
                Err(self.request().refused())
            }
        })
    }

    fn begin_to_wait(&mut self, waiter: Arc<Waiter>) {
        self.deadline = self.deadline.or_else(|| self.request().patience.deadline());
        let hub = &self.request().handle.root.hub;
        hub.watch();
        let timer = self.deadline.map(|at| hub.set_timer(at, Arc::<Waiter>::clone(&waiter)));
        self.stage = Stage::Waits(Waiting { waiter, timer });
    }

    fn ended(&mut self, result: Result<Token, AcquireError>) -> Poll<Result<Guard, AcquireError>> {
        self.stop_watching();
        self.stage = Stage::Done;
        Poll::Ready(match result {
            Ok(token) => self.guard(token),
            Err(error) => {
                self.request = None;
                Err(error)
            }
        })
    }

    fn stop_watching(&self) {
        let timer = match &self.stage {
            Stage::Opens(opening) => opening.alarm.as_ref().map(|alarm| alarm.timer),
            Stage::Waits(waiting) => waiting.timer,
            Stage::New | Stage::Tries(_) | Stage::Done => return,
        };
        let hub = &self.request().handle.root.hub;
        hub.watch_no_more();
        if let Some(timer) = timer {
            hub.clear_timer(timer);
        }
    }

    /// Attempts to acquire. `None`: the session's thread decides.
    fn try_at_once(&mut self) -> Option<Result<Token, AcquireError>> {
        let (name, mode) = (&self.request().handle.name, self.request().mode);
        let tried = match self.request().try_at_once() {
            Ok(Tried::Doubtful(place)) => {
                let mut cx = Context::from_waker(Waker::noop());
                let polled = pin!(place.seat.try_beside()).poll(&mut cx);
                match polled {
                    Poll::Ready(is_held) => name.decided(place, mode, is_held),
                    Poll::Pending => {
                        let waiter = Arc::new(Waiter::new(mode, Who::Task));
                        let attempt = Some(Arc::clone(&waiter));
                        let job = Job { attempt, ..Job::new(name, Some(place)) };
                        name.hub.start(job);
                        self.stage = Stage::Tries(waiter);
                        return None;
                    }
                }
            }
            decided => decided,
        };
        Some(match tried {
            Ok(Tried::Held(token)) => Ok(token),
            Ok(Tried::Busy | Tried::Doubtful(_)) => Err(self.request().refused()),
            Err(error) => Err(error),
        })
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(Request { handle, mode, .. }) = &self.request else { return };
        let name = &handle.name;
        // A forked child waits for nothing, and its parent goes on.
        if matches!(self.stage, Stage::New | Stage::Done) || name.hub.is_forked() {
            return;
        }
        self.stop_watching();
        let outcome = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::New | Stage::Done => None,
            Stage::Opens(opening) => {
                name.leave_under_way(opening.under_way);
                None
            }
            Stage::Waits(waiting) => name.cancel(&waiting.waiter),
            Stage::Tries(waiter) => waiter.abandon(),
        };
        if let Some(Outcome::Granted(_)) = outcome {
            name.let_go(*mode);
        }
    }
}
