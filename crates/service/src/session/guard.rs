//! Guards: held locks, in the hands of any thread.

use std::fmt;
use std::future::Future;
use std::mem::replace;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use farlock_locks::{Mode, Token};

use super::name::under_way::Released;
use super::pool::UnderWay;
use super::range::leaving::Leaving;
use super::state::{Handle, Hub};
use crate::ReleaseError;
use crate::error::LostReason;

/// A held lock. Dropping it releases the lock; [`Guard::release`] also tells whether it was held to
/// the end.
///
/// By a server a drop does not wait for the answer: others may find the lock taken for as long as
/// the news travels. Where a program takes lock after lock without a pause, and nobody waits for
/// them, a release travels with the next acquisition, and the last one within some milliseconds.
///
/// If the process dies, the next waiter has the lock within microseconds.
#[must_use = "a lock is held as long as its guard lives"]
pub struct Guard {
    handle: Arc<Handle>,
    token: Token,
    mode: Mode,
    /// Whether it was released.
    is_over: bool,
}

impl Guard {
    #[inline]
    pub(super) fn new(handle: Arc<Handle>, token: Token, mode: Mode) -> Self {
        Self { handle, token, mode, is_over: false }
    }

    /// The fencing token of this grant. Give it to every resource the lock protects, and let the
    /// resource refuse a token below the highest it has seen. Shared holders may have the same one.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.handle.name.text
    }

    /// In which mode the lock is held.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// For how long the lock is certain to be held if nothing is heard of the server any more, by
    /// this host's clock, suspended time counted: `None` where no lease bounds it, which in shared
    /// memory is always so. There it is held until it is released or the process dies. Zero once
    /// it is lost.
    pub fn remaining(&self) -> Option<Duration> {
        match self.lost_reason() {
            Some(_) => Some(Duration::ZERO),
            None => self.handle.name.hub.region.valid_for(),
        }
    }

    /// Whether the server keeps the lock for as long as the connection stands, however long this
    /// process says nothing: [`remaining`](Self::remaining) counts from its end then. A server does
    /// so for processes of its own host, unless it is told otherwise (`farlock serve --closed`).
    pub fn outlasts_lease(&self) -> bool {
        self.handle.name.hub.region.is_kept_by_connection()
    }

    /// How the lock was lost, if it was: in shared memory only with its region or session. In a
    /// child made by `fork` it is lost, for the parent holds it.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.handle.name.look()
    }

    /// The tether of what is held, in a session that was opened by
    /// [`Session::open_tethered`](super::Session::open_tethered): while any process has this
    /// descriptor, nobody else is granted the lock though this process has died. Give it to
    /// children that work under the lock and may survive this process; it is of no other use to
    /// them. Children do not inherit it by themselves. A release is one, whichever process has it.
    ///
    /// By a server it is a connection, which ends with that server: it hangs up. Where the session
    /// goes on by the next one, it has another tether soon.
    ///
    /// `None` in other sessions, in a forked child, and where there are too many descriptors.
    pub fn tether(&self) -> Option<OwnedFd> {
        if self.handle.name.hub.is_forked() {
            None
        } else {
            self.handle.name.tether()?.duplicate().ok()
        }
    }

    /// Says that every process that had an earlier tether has this one now, or is gone. A server
    /// that went on where another one was killed cannot know it: when this process dies it keeps
    /// the lock until the lease ends, lest a child with that earlier tether be there.
    pub fn tether_is_passed_on(&self, tether: &OwnedFd) {
        let own = if self.handle.name.hub.is_forked() { None } else { self.handle.name.tether() };
        own.iter().for_each(|own| own.is_passed_on(tether));
    }

    /// Resolves if the lock is lost while it is held. Then stop, and let go of what it protects.
    pub fn lost(&self) -> Lost<'_> {
        Lost { held: self, watch: None }
    }

    /// Makes an exclusive hold a shared one, at once and without letting go: nobody writes in
    /// between. Its token is the next one, but while others are in line it may keep its own, which
    /// readers beside it then have as well. A shared hold stays as it is.
    pub fn downgrade(mut self) -> Self {
        if self.mode == Mode::Exclusive
            && !self.handle.name.hub.is_forked()
            && let Some(token) = self.handle.name.downgrade()
        {
            (self.token, self.mode) = (token, Mode::Shared);
        }
        self
    }

    /// Makes a shared hold an exclusive one if nobody else holds the lock, with a new token; does
    /// not wait for others to leave, since two that do would wait for each other for ever.
    ///
    /// # Errors
    /// The guard, as it was: the lock has other holders too, or its waiters come first.
    pub fn try_upgrade(mut self) -> Result<Self, Self> {
        if self.mode == Mode::Shared {
            let name = &self.handle.name;
            let upgraded = if name.hub.is_forked() { None } else { name.try_upgrade() };
            let Some(token) = upgraded else { return Err(self) };
            (self.token, self.mode) = (token, Mode::Exclusive);
        }
        Ok(self)
    }

    /// Releases the lock: await it, or call [`Release::blocking`], for how it went, and the lock is
    /// free then and the next waiter told. In shared memory it is when this returns. By a server
    /// that is a round trip, which this does not wait for; nor does a drop of what it returns.
    ///
    /// Where the region's file was deleted meanwhile, so that others may have found another one,
    /// this tells: a session looks whether it is there once in a tick of the kernel's coarse clock,
    /// 1 to 10 ms.
    #[inline]
    pub fn release(mut self) -> Release {
        self.is_over = true;
        if self.handle.name.hub.is_far {
            return self.begin_release();
        }
        Release::of(self.handle.name.release(self.mode))
    }

    #[cold]
    fn begin_release(&self) -> Release {
        match self.handle.name.begin_release(self.mode) {
            Released::Ended(released) => Release::of(released),
            Released::IsUnderWay(under_way) => {
                let closing = Closing::new(Arc::clone(&self.handle), under_way);
                Release(State::IsUnderWay(Box::new(closing)))
            }
        }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if !self.is_over {
            self.handle.name.let_go(self.mode);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guard({:?} {:?}, token {})", self.name(), self.mode(), self.token)
    }
}

/// How a release went.
#[derive(Debug)]
#[must_use = "awaiting it tells how the release went"]
pub struct Release(State);

/// What is rare is boxed: a release that has ended well is two registers.
#[derive(Debug)]
enum State {
    Done,
    Failed(Box<ReleaseError>),
    /// Its verb is on its way.
    IsUnderWay(Box<Closing>),
    /// It is one of ranges, by a server.
    OfRanges(Box<Leaving>),
    /// It was asked.
    Told,
}

/// A verb on its way that closes a lock, while its caller waits for it.
struct Closing {
    handle: Arc<Handle>,
    /// Until it has completed.
    under_way: Option<UnderWay>,
    /// Whether the session's thread takes in what comes, for a task.
    is_watched: bool,
}

impl Closing {
    const fn new(handle: Arc<Handle>, under_way: UnderWay) -> Self {
        Self { handle, under_way: Some(under_way), is_watched: false }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ReleaseError>> {
        let name = &self.handle.name;
        if !replace(&mut self.is_watched, true) {
            name.hub.watch();
        }
        let completed = ready!(self.under_way.as_mut().expect(ASKED).poll(cx));
        let under_way = self.take().expect(ASKED);
        Poll::Ready(self.handle.name.closed(under_way, completed))
    }

    fn take(&mut self) -> Option<UnderWay> {
        if replace(&mut self.is_watched, false) {
            self.handle.name.hub.watch_no_more();
        }
        self.under_way.take()
    }
}

impl fmt::Debug for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closing").field("name", &self.handle.name.text).finish_non_exhaustive()
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        // A forked child waits for nothing, and its parent goes on.
        if self.handle.name.hub.is_forked() {
            return;
        }
        if let Some(under_way) = self.take() {
            self.handle.name.leave_under_way(under_way);
        }
    }
}

/// A release is asked once how it went.
const ASKED: &str = "a finished release is not asked again";

impl Release {
    #[inline]
    pub(super) fn of(released: Result<(), ReleaseError>) -> Self {
        Self(released.map_or_else(|error| State::Failed(Box::new(error)), |()| State::Done))
    }

    #[cold]
    pub(super) fn of_ranges(leaving: Leaving) -> Self {
        Self(State::OfRanges(Box::new(leaving)))
    }

    /// How it went. By a server it blocks this thread for a round trip, which is not for async
    /// tasks; in shared memory it has ended already.
    ///
    /// # Errors
    /// See [`ReleaseError`].
    #[inline]
    pub fn blocking(self) -> Result<(), ReleaseError> {
        match self.0 {
            State::Done => Ok(()),
            State::Failed(error) => Err(*error),
            State::IsUnderWay(mut closing) => {
                let under_way = closing.take().expect(ASKED);
                closing.handle.name.close_blocking(under_way)
            }
            State::OfRanges(leaving) => leaving.block(),
            State::Told => panic!("{ASKED}"),
        }
    }
}

impl Release {
    #[cold]
    fn tell_failure(&mut self) -> Result<(), ReleaseError> {
        match replace(&mut self.0, State::Told) {
            State::Failed(error) => Err(*error),
            state => panic!("{ASKED}: {state:?}"),
        }
    }
}

impl Future for Release {
    type Output = Result<(), ReleaseError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Done => self.0 = State::Told,
            State::IsUnderWay(closing) => return closing.poll(cx),
            State::OfRanges(leaving) => return leaving.poll(cx),
            State::Failed(_) | State::Told => return Poll::Ready(self.tell_failure()),
        }
        Poll::Ready(Ok(()))
    }
}

/// What can be lost with its session.
pub(super) trait Losable: Sync {
    fn hub(&self) -> &Arc<Hub>;
    fn reason(&self) -> Option<LostReason>;
}

impl Losable for Guard {
    fn hub(&self) -> &Arc<Hub> {
        &self.handle.name.hub
    }

    fn reason(&self) -> Option<LostReason> {
        self.lost_reason()
    }
}

/// Resolves with how a lock, or a range, was lost; pending while it is held.
#[must_use = "futures do nothing until they are awaited"]
pub struct Lost<'g> {
    pub(super) held: &'g dyn Losable,
    /// Without the guard's lifetime: this may be dropped after the guard was released.
    pub(super) watch: Option<Watch>,
}

/// The task that is woken at the end of a session.
pub(super) struct Watch {
    hub: Arc<Hub>,
    key: Option<u64>,
}

impl Future for Lost<'_> {
    type Output = LostReason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LostReason> {
        let this = &mut *self;
        let hub = this.held.hub();
        if !hub.is_forked() {
            let watch = || Watch { hub: Arc::clone(hub), key: None };
            // First, so that an end between the two wakes the task.
            hub.watch_end(&mut this.watch.get_or_insert_with(watch).key, cx.waker());
        }
        this.held.reason().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(key) = self.key
            && !self.hub.is_forked()
        {
            self.hub.watch_end_no_more(key);
        }
    }
}
