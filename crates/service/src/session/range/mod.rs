//! Ranges of a table by its name: those that overlap exclude each other, shared ones do not.
//!
//! Each range that is awaited has a place of its own in the region. So has each that is held as
//! long as a session has few; more are written down on the region's shelf. Thus those of one
//! session exclude each other like those of others. A thread that waits waits itself; for a task
//! the session's thread does. By a server that does all that a task asks for, since each verb is a
//! round trip.

pub(super) mod divide;
mod holds;
mod job;
pub(super) mod leaving;
pub(super) mod merge;
mod table;
pub(super) mod together;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::mem::take;
use std::ops::{Bound, Range, RangeBounds};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use farlock_fabric::Tether;
use farlock_locks::{Mode, Token};

use super::guard::{Losable, Lost, Release};
use super::pool::RangePlace;
use super::root::Session;
use super::state::{Ending, Errand, Grant, HeldBy, Hub, Patience, Table};
use super::waiter::{Anew, Fate};
use crate::AcquireError;
use crate::error::LostReason;
use crate::inspect::Participant;
use holds::{Hold, Holds};
use table::{Asked, Came, Tried};

impl Session {
    /// The table of ranges of this name: 1 to 255 bytes of UTF-8 without NUL. Asks nobody yet.
    ///
    /// What a range counts is the program's business: bytes of a file, rows, blocks. A table and a
    /// lock may have the same name, and have nothing to do with each other. Keep the
    /// [`RangeLock`]: it knows where the table lies.
    ///
    /// ```no_run
    /// # use farlock::{RegionOptions, Session};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let session = Session::open(&RegionOptions::for_user())?;
    /// let file = session.range("ledger.dat").in_units_of(4096);
    /// let guard = file.exclusive(8192..16384).blocking()?;
    /// // Nobody else has any of these bytes.
    /// guard.release().blocking()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn range(&self, name: impl AsRef<str>) -> RangeLock {
        RangeLock { table: Arc::new(Table::new(Arc::clone(&self.root), name.as_ref(), 1)) }
    }
}

/// A table of ranges by its name.
#[derive(Clone)]
pub struct RangeLock {
    table: Arc<Table>,
}

impl RangeLock {
    /// The same, but locked in units of so many positions: ranges that share a unit exclude each
    /// other. All users of a table must agree; the first makes it so. A table has 268 million
    /// units (2^28 - 2^18), and one more for all positions behind them. Those behind the first
    /// 2^18 take memory of the region when they are asked for, 87 kB for 2^18 of them.
    ///
    /// # Panics
    /// If a unit has no positions.
    #[must_use]
    pub fn in_units_of(&self, positions: u64) -> Self {
        assert!(positions > 0, "a unit has positions");
        Self { table: Arc::new(self.table.in_units_of(positions)) }
    }

    /// Asks for these positions alone: `10..20`, `10..` up to the end, or `..`.
    pub fn exclusive(&self, positions: impl RangeBounds<u64>) -> RangeRequest {
        self.request(Mode::Exclusive, positions)
    }

    /// Asks for these positions together with other shared holders.
    pub fn shared(&self, positions: impl RangeBounds<u64>) -> RangeRequest {
        self.request(Mode::Shared, positions)
    }

    /// The holders of any of these positions, in whatever mode, as `F_GETLK` asks the kernel: a
    /// picture, in which this session is too. A moment later it may be another one; only an
    /// acquisition that is granted keeps others out.
    ///
    /// # Errors
    /// As an acquisition that has nobody in its way.
    pub fn holders(
        &self,
        positions: impl RangeBounds<u64>,
    ) -> Result<Vec<Participant>, AcquireError> {
        self.table.seen_holders(&positions_of(positions))
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        self.table.name()
    }

    fn request(&self, mode: Mode, positions: impl RangeBounds<u64>) -> RangeRequest {
        let (table, range) = (Arc::clone(&self.table), positions_of(positions));
        RangeRequest { table, asked: Asked::of(mode, range), patience: Patience::Endless }
    }
}

/// From the first position to the one behind the last.
fn positions_of(positions: impl RangeBounds<u64>) -> Range<u64> {
    let start = match positions.start_bound() {
        Bound::Included(&first) => first,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match positions.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => u64::MAX,
    };
    start..end
}

impl fmt::Debug for RangeLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RangeLock").field(&self.name()).finish()
    }
}

/// An acquisition that can be asked for: await it, or call [`RangeRequest::blocking`]. Nothing is
/// asked before.
#[must_use = "a range is acquired by awaiting its request, or by `blocking`"]
#[derive(Clone)]
pub struct RangeRequest {
    table: Arc<Table>,
    asked: Asked,
    patience: Patience,
}

impl RangeRequest {
    /// Gives up with [`AcquireError::TimedOut`] when so long has passed since it was asked for.
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
    pub fn acquire(self) -> RangeAcquire {
        let (stage, deadline, anew) = (Stage::New, None, Anew::default());
        RangeAcquire { request: self, stage, deadline, anew }
    }

    /// Acquires the range, blocking this thread. Not for async tasks.
    ///
    /// A holder of a range that waits for another may wait for ever for one that does the same the
    /// other way round, as with any locks. Ask for both in one range, or with a limit.
    ///
    /// # Errors
    /// See [`AcquireError`].
    pub fn blocking(self) -> Result<RangeGuard, AcquireError> {
        if self.table.hub().is_far && matches!(self.patience, Patience::For(_)) {
            return self.acquire().block();
        }
        let (deadline, mut anew) = (self.patience.deadline(), Anew::default());
        loop {
            match self.block(deadline) {
                Ok(Some(grant)) => return self.guard(grant),
                Ok(None) => return Err(self.refused()),
                Err(error) if anew.is_due(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn block(&self, deadline: Option<Instant>) -> Ending {
        let (table, asked) = (&self.table, &self.asked);
        match self.patience {
            Patience::None => match table.try_acquire(asked)? {
                Tried::Held(grant) => Ok(Some(grant)),
                Tried::Busy => Ok(None),
                Tried::Doubtful(place) => table.decide(place),
            },
            Patience::Endless | Patience::For(_) => match table.open(asked)? {
                Came::Held(grant) => Ok(Some(grant)),
                Came::Waits(place) => table.wait(place, deadline),
            },
        }
    }

    /// What was granted, unless the region's file is gone: see [`Request::guard`].
    ///
    /// [`Request::guard`]: super::Request::guard
    fn guard(&self, grant: Grant) -> Result<RangeGuard, AcquireError> {
        let Grant { by, token } = grant;
        let (table, Asked { mode, range, .. }) = (Arc::clone(&self.table), self.asked.clone());
        let guard = RangeGuard { table, holds: Hold { by, range, mode }.into(), token };
        let hub = self.table.hub();
        match hub.finds_region() {
            true => Ok(guard),
            false => Err(self.table.lost(LostReason::without(&hub.region))),
        }
    }

    /// Why it was not granted in time.
    fn refused(&self) -> AcquireError {
        self.patience.refused(self.table.name(), self.table.holders(&self.asked.range))
    }
}

impl IntoFuture for RangeRequest {
    type Output = Result<RangeGuard, AcquireError>;
    type IntoFuture = RangeAcquire;

    fn into_future(self) -> RangeAcquire {
        self.acquire()
    }
}

impl fmt::Debug for RangeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, asked: Asked { mode, range, .. }, patience } = self;
        write!(f, "RangeRequest({:?} {range:?} {mode:?}, {patience:?})", table.name())
    }
}

/// An acquisition. Dropping it withdraws it.
#[must_use = "a range is acquired by awaiting its acquisition"]
#[derive(Debug)]
pub struct RangeAcquire {
    request: RangeRequest,
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
    /// The session's thread waits, or decides; by a server it asks too.
    Waits { fate: Arc<Fate<Ending>>, timer: Option<(Instant, u64)> },
    /// It has ended.
    Done,
}

impl Future for RangeAcquire {
    type Output = Result<RangeGuard, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match ready!(this.poll_once(cx)) {
                Err(error) if this.anew.is_due(&error) => {
                    this.stop_watching();
                    this.stage = Stage::New;
                }
                ending => return Poll::Ready(this.end(ending)),
            }
        }
    }
}

impl RangeAcquire {
    /// Blocks this thread as a task would wait: a server that falls silent does not keep it for
    /// longer than it wants to wait.
    fn block(mut self) -> Result<RangeGuard, AcquireError> {
        loop {
            let ending = self.begin_far(false).unwrap_or_else(|| self.block_once());
            match ending {
                Err(error) if self.anew.is_due(&error) => self.stop_watching(),
                ending => return self.end(ending),
            }
        }
    }

    /// Waits for what the session's thread does.
    fn block_once(&self) -> Ending {
        let Stage::Waits { fate, .. } = &self.stage else {
            panic!("the session's thread goes on");
        };
        fate.block(self.deadline).unwrap_or_else(|| self.give_up(fate))
    }

    /// The session's thread is to leave the line.
    fn give_up(&self, fate: &Fate<Ending>) -> Ending {
        let ending = fate.abandon().unwrap_or(Ok(None));
        self.request.table.hub().nudge();
        ending
    }

    fn poll_once(&mut self, cx: &mut Context<'_>) -> Poll<Ending> {
        if let Stage::New = self.stage
            && let Some(ending) = self.begin()
        {
            return Poll::Ready(ending);
        }
        let Stage::Waits { fate, .. } = &self.stage else {
            panic!("a finished acquisition is not polled again");
        };
        match fate.poll(cx) {
            Poll::Pending if self.deadline.is_none_or(|at| Instant::now() < at) => Poll::Pending,
            Poll::Pending => Poll::Ready(self.give_up(fate)),
            ended => ended,
        }
    }

    /// Asks. `None`: the session's thread goes on.
    fn begin(&mut self) -> Option<Ending> {
        let RangeRequest { table, asked, patience } = &self.request;
        let tries = *patience == Patience::None;
        if table.hub().is_far {
            return self.begin_far(tries);
        }
        let place = if tries {
            match table.try_acquire(asked) {
                Ok(Tried::Held(grant)) => return Some(Ok(Some(grant))),
                Ok(Tried::Busy) => return Some(Ok(None)),
                Ok(Tried::Doubtful(place)) => place,
                Err(error) => return Some(Err(error)),
            }
        } else {
            match table.open(asked) {
                Ok(Came::Held(grant)) => return Some(Ok(Some(grant))),
                Ok(Came::Waits(place)) => place,
                Err(error) => return Some(Err(error)),
            }
        };
        if let Some(ending) = Self::look_at_once(table, &place, tries) {
            return Some(table.ended(place, ending));
        }
        self.leave_to_session(|fate| Errand::Wait { place, fate: Some(fate), tries });
        None
    }

    /// The same by a server, where the session's thread does all of it.
    #[cold]
    fn begin_far(&mut self, tries: bool) -> Option<Ending> {
        let RangeRequest { table, asked, .. } = &self.request;
        let want = match table.extent(asked) {
            Ok(want) => want,
            Err(error) => return Some(Err(error)),
        };
        let place = table.idle_place();
        self.leave_to_session(|fate| Errand::Acquire { want, tries, place, fate });
        None
    }

    fn leave_to_session(&mut self, errand: impl FnOnce(Arc<Fate<Ending>>) -> Errand) {
        let RangeRequest { table, patience, .. } = &self.request;
        let (hub, fate) = (table.hub(), Arc::<Fate<Ending>>::default());
        let deadline = self.deadline.or_else(|| patience.deadline());
        let timer = deadline.map(|at| hub.set_timer(at, Arc::<Fate<Ending>>::clone(&fate)));
        hub.watch();
        table.start(errand(Arc::clone(&fate)));
        (self.stage, self.deadline) = (Stage::Waits { fate, timer }, deadline);
    }

    /// Whether the range is held, if that can be told at once: a thread that runs tasks does not
    /// wait for it.
    fn look_at_once(
        table: &Table,
        place: &RangePlace,
        tries: bool,
    ) -> Option<Result<bool, AcquireError>> {
        let (seat, mut cx) = (&place.seat, Context::from_waker(Waker::noop()));
        let polled = seat.endpoint().briefly(|| match tries {
            true => pin!(seat.try_beside()).poll(&mut cx),
            false => pin!(seat.wait()).poll(&mut cx),
        });
        match polled {
            Poll::Ready(is_held) => Some(is_held.map_err(|fault| table.failed(fault))),
            Poll::Pending => None,
        }
    }

    fn end(&mut self, ending: Ending) -> Result<RangeGuard, AcquireError> {
        self.stop_watching();
        self.stage = Stage::Done;
        let request = &self.request;
        match ending {
            Ok(Some(grant)) => request.guard(grant),
            Ok(None) => Err(request.refused()),
            Err(error) => Err(error),
        }
    }

    fn stop_watching(&self) {
        if let Stage::Waits { timer, .. } = &self.stage {
            let hub = self.request.table.hub();
            hub.watch_no_more();
            if let Some(timer) = *timer {
                hub.clear_timer(timer);
            }
        }
    }
}

impl Drop for RangeAcquire {
    fn drop(&mut self) {
        let Stage::Waits { fate, .. } = &self.stage else { return };
        let hub: &Hub = self.request.table.hub();
        // A forked child waits for nothing, and its parent goes on.
        if hub.is_forked() {
            return;
        }
        if let Some(Ok(Some(grant))) = fate.abandon() {
            self.request.table.let_go(grant.by);
        }
        self.stop_watching();
        hub.nudge();
    }
}

/// A held range. Dropping it releases the range; [`RangeGuard::release`] also tells whether it was
/// held to the end.
///
/// By a server a drop does not wait for the answer: others may find the range taken for as long as
/// the news travels.
///
/// If the process dies, the next waiter has the range within microseconds.
#[must_use = "a range is held as long as its guard lives"]
pub struct RangeGuard {
    table: Arc<Table>,
    holds: Holds,
    token: Token,
}

impl Losable for Table {
    fn hub(&self) -> &Arc<Hub> {
        self.hub()
    }

    fn reason(&self) -> Option<LostReason> {
        self.look()
    }
}

impl RangeGuard {
    /// The fencing token of this grant: above those of all exclusive grants of the table before.
    /// Shared holders may have the same one.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        self.table.name()
    }

    /// Which positions are held; up to `u64::MAX` where there is no end.
    pub fn range(&self) -> Range<u64> {
        self.holds.range()
    }

    /// In which mode they are held.
    pub fn mode(&self) -> Mode {
        self.holds.mode()
    }

    /// For how long the range is certain to be held if nothing is heard any more: as
    /// [`Guard::remaining`](super::Guard::remaining).
    pub fn remaining(&self) -> Option<Duration> {
        match self.lost_reason() {
            Some(_) => Some(Duration::ZERO),
            None => self.table.hub().region.valid_for(),
        }
    }

    /// Whether the server keeps the range beyond its lease: as
    /// [`Guard::outlasts_lease`](super::Guard::outlasts_lease).
    pub fn outlasts_lease(&self) -> bool {
        self.table.hub().region.is_kept_by_connection()
    }

    /// How the range was lost, if it was: with its region or session alone. In a child made by
    /// `fork` it is lost, for the parent holds it.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.table.look()
    }

    /// Resolves if the range is lost while it is held: as [`Guard::lost`](super::Guard::lost).
    pub fn lost(&self) -> Lost<'_> {
        Lost { held: &*self.table, watch: None }
    }

    /// The tether of what is held: as [`Guard::tether`](super::Guard::tether). `None` of a range
    /// that was merged as well, of which each part keeps the one that it had.
    pub fn tether(&self) -> Option<OwnedFd> {
        let mut tethers = self.tethers();
        let tether = tethers.next().filter(|_| self.holds.by().len() == 1)?;
        tether.duplicate().ok()
    }

    /// Says that every process that had an earlier tether has this one now: as
    /// [`Guard::tether_is_passed_on`](super::Guard::tether_is_passed_on).
    pub fn tether_is_passed_on(&self, tether: &OwnedFd) {
        self.tethers().for_each(|own| own.is_passed_on(tether));
    }

    fn tethers(&self) -> impl Iterator<Item = &Tether> {
        let is_own = !self.table.hub().is_forked();
        self.holds.by().filter(move |_| is_own).filter_map(|by| match by {
            HeldBy::Place(place) => place.tether.as_ref(),
            HeldBy::Shelf(_) => None,
        })
    }

    /// Makes an exclusive hold a shared one, at once and without letting go: nobody writes in
    /// between. Its token is a new one. A shared hold stays as it is.
    ///
    /// It stays exclusive, as [`RangeGuard::mode`] says, if it is lost, or if a process is stopped
    /// that was just about to ask for a part of it (ask again then), or if this session held 64
    /// ranges before it: such a hold keeps its mode, and a merged range with such a part. Of a
    /// merged range a part may stay exclusive because of that stopped process while the rest
    /// becomes shared, as the mode says then: it keeps others out until that is asked again. If
    /// this process dies meanwhile, the next waiters have the range as they do at any other time.
    pub fn downgrade(mut self) -> Self {
        self.convert(Mode::Shared);
        self
    }

    /// Makes a shared hold an exclusive one if nobody else has any of it, with a new token; does
    /// not wait for others to leave, since two that do would wait for each other for ever. This
    /// session's other holds of the same positions are others too. Of a merged range all becomes
    /// exclusive or nothing: what did is shared again if another part cannot, with no moment in
    /// which others write.
    ///
    /// If this process dies meanwhile, the next waiters have the range as they do at any other
    /// time.
    ///
    /// # Errors
    /// The guard, as it was: others have some of the range, or their wait for it comes first; or
    /// what a dead process has left is in the way, until one that waits has cleared it; or this
    /// session held 64 ranges before it. Release it and ask for it anew to wait.
    pub fn try_upgrade(mut self) -> Result<Self, Self> {
        self.convert(Mode::Exclusive);
        if self.mode() == Mode::Exclusive { Ok(self) } else { Err(self) }
    }

    /// Holds the range in this mode, if it can be.
    fn convert(&mut self, mode: Mode) {
        if let Some(token) = self.holds.convert(&self.table, mode) {
            self.token = token;
        }
    }

    /// Releases the range: await it, or call [`Release::blocking`], for how it went. In shared
    /// memory it is free when this returns. By a server it is once that was asked for, or dropped.
    pub fn release(mut self) -> Release {
        take(&mut self.holds).release(&self.table)
    }
}

impl Drop for RangeGuard {
    fn drop(&mut self) {
        self.holds.let_go(&self.table);
    }
}

impl fmt::Debug for RangeGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (range, mode) = (self.range(), self.mode());
        write!(f, "RangeGuard({:?} {range:?} {mode:?}, token {})", self.name(), self.token)
    }
}
