//! A table of ranges as a session uses it: where it lies, and by which places.

use std::future::{Future as _, poll_fn};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use farlock_fabric::{Addr, ConnectError, Endpoint, Fault, Posted, Slot, block_on};
use farlock_locks::blocks::BlockError;
use farlock_locks::{
    Attempt, Begun, BlockNumbers, Closed, Extent, Holding, Mode, OnShelf, Opened, Seat, Token,
    Want as _,
};

use crate::connection::Lane;
use crate::directory::{DirectoryError, Located};
use crate::error::{AcquireError, Holders, LostReason, ReleaseError};
use crate::inspect::Participant;
use crate::protocol::{RANGE_KIND, RANGE_UNITS, RangeProtocol, UNIT_AT, far_ends};
use crate::reason::DivideReason;
use crate::session::pool::{PlaceCell, RangePlace};
use crate::session::progress::too_many;
use crate::session::state::{
    Ending, Errand, Grant, HeldBy, Hub, RangeGrant, Released, Root, Spot, Table,
};
use crate::session::waiter::Fate;

/// Idle places that a table keeps for its next acquisitions.
const KEPT_MAX: usize = 8;

/// A session that has more places for ranges writes down what it holds, and uses the place again. A
/// place costs the kernel and all that look around more than an entry does.
const PLACES_MAX: usize = 64;

/// How often, and for how long, a holder tries to let readers in or to divide what it has, while
/// another is just about to come. Beside busy processes it gets few turns, and so does the other.
const TRIES_MAX: u32 = 1000;
const TRYING_MAX: Duration = Duration::from_millis(100);

/// What is held of a table that is written down.
type Shelved = OnShelf<Extent, RangeGrant>;

/// What is held of a table.
type RangeHolding = Holding<Extent, RangeGrant>;

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) mode: Mode,
    pub(super) range: Range<u64>,
    /// Where what the asker holds before it ends, until it has this as well; and what of that it
    /// writes. 0 for none.
    pub(super) held_before: [u64; 2],
}

impl Asked {
    /// These positions alone.
    pub(super) const fn of(mode: Mode, range: Range<u64>) -> Self {
        Self { mode, range, held_before: [0; 2] }
    }
}

/// What came of asking.
pub(super) enum Came {
    /// The range is held.
    Held(Grant),
    /// It is to be waited for by this place.
    Waits(Box<RangePlace>),
}

/// What came of an attempt that does not wait.
pub(super) enum Tried {
    /// The range is held.
    Held(Grant),
    /// Another has some of it.
    Busy,
    /// Another has some of it, which may be dead.
    Doubtful(Box<RangePlace>),
}

/// How a thread's wait ended.
enum End {
    /// As the lock says.
    Waited(Result<bool, Fault>),
    /// The session has ended.
    Lost(LostReason),
    /// The deadline has passed.
    Elapsed,
}

impl Table {
    pub(super) fn new(root: Arc<Root>, text: &str, unit: u64) -> Self {
        Self { root, text: text.into(), unit, spot: Mutex::default() }
    }

    pub(super) fn in_units_of(&self, unit: u64) -> Self {
        Self::new(Arc::clone(&self.root), &self.text, unit)
    }

    pub(super) fn name(&self) -> &str {
        &self.text
    }

    pub(super) fn hub(&self) -> &Arc<Hub> {
        &self.root.hub
    }

    fn spot(&self) -> MutexGuard<'_, Spot> {
        // A panic under this mutex is a broken invariant; the next caller finds it too.
        self.spot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lost(&self, reason: LostReason) -> AcquireError {
        AcquireError::Lost { name: self.text.to_string(), reason }
    }

    pub(super) fn failed(&self, fault: Fault) -> AcquireError {
        self.lost(self.hub().reason(fault))
    }

    /// The units that have these positions, if anything can be asked for.
    pub(super) fn extent(&self, asked: &Asked) -> Result<Extent, AcquireError> {
        let Asked { mode, range, held_before } = asked;
        if range.is_empty() {
            let (name, Range { start, end }) = (self.text.to_string(), range.clone());
            return Err(AcquireError::EmptyRange { name, start, end });
        }
        if self.hub().is_forked() {
            return Err(AcquireError::Forked { name: self.text.to_string() });
        }
        self.hub().check().map_err(|reason| self.lost(reason))?;
        let short = |units: u64| u32::try_from(units).unwrap_or(u32::MAX);
        let first = short(range.start / self.unit).min(u32::MAX - 1);
        let extent = Extent::new(*mode, first..short(range.end.div_ceil(self.unit)));
        let [held_to, written_to] = held_before.map(|end| short(end / self.unit));
        Ok(extent.behind(held_to, written_to))
    }

    /// A place that does nothing, if there is one.
    pub(super) fn idle_place(&self) -> Option<Box<RangePlace>> {
        let aimed = self.spot().idle.pop();
        aimed.or_else(|| self.hub().range_pool.take())
    }

    /// A place that does nothing.
    fn a_place(&self) -> Result<Box<RangePlace>, AcquireError> {
        let hub = self.hub();
        loop {
            if let Some(place) = self.idle_place() {
                return Ok(place);
            }
            let ordered = hub.order_places(true);
            ordered.map_err(|error| too_many(&self.text, hub, error))?;
            hub.check().map_err(|reason| self.lost(reason))?;
        }
    }

    /// Where the table lies; it is entered in the region's directory where it is new. The place is
    /// aimed at it then.
    pub(super) async fn find(&self, place: &RangePlace) -> Result<Located, AcquireError> {
        let known = self.spot().found;
        if let Some(found) = aimed_at(known, place) {
            return Ok(found);
        }
        let lane = place.seat.endpoint();
        let directory = self.hub().range_directory(lane).await;
        let directory = directory.map_err(|error| too_many(&self.text, self.hub(), error))?;
        let aim = |lock| place.seat.aim(lock);
        let found = match known {
            Some(found) => directory.aim_again(lane, found, aim).await,
            None => Ok(false),
        };
        let found = match (found, known) {
            (Ok(true), Some(found)) => Ok(found),
            (Ok(_), _) => directory.enter(lane, &self.text, RANGE_KIND, aim).await,
            (Err(error), _) => Err(error),
        };
        let found = found.map_err(|error| match error {
            DirectoryError::Fabric(fault) => self.failed(fault),
            source => AcquireError::Directory { name: self.text.to_string(), source },
        })?;
        self.agree_on_unit(place, found.lock()).await?;
        // A caller that finds it meanwhile finds the same: the place is aimed at it.
        self.spot().found = Some(found);
        Ok(found)
    }

    /// The first user of a table says how long its units are.
    async fn agree_on_unit(&self, place: &RangePlace, lock: Addr) -> Result<(), AcquireError> {
        let lane = place.seat.endpoint();
        let written = lane.cas64(lock.plus(UNIT_AT), 0, self.unit).await;
        written.map_err(|fault| self.failed(fault))?;
        match lane.old() as u64 {
            0 => Ok(()),
            made if made == self.unit => Ok(()),
            made => {
                let (name, asked) = (self.text.to_string(), self.unit);
                Err(AcquireError::OtherUnit { name, asked, made })
            }
        }
    }

    /// Where the blocks lie in which this begins and ends: those that there are not yet it takes.
    async fn placed(
        &self,
        lane: &Lane,
        table: Located,
        extent: Extent,
    ) -> Result<Extent, AcquireError> {
        let (ends, mut numbers) = (far_ends(extent), [0; 2]);
        for (number, subtree) in numbers.iter_mut().zip(ends) {
            if let Some(subtree) = subtree {
                let block = self.hub().block_of(lane, (table, subtree)).await;
                *number = block.map_err(|error| match error {
                    BlockError::Fabric(fault) => self.failed(fault),
                    BlockError::Memory(ConnectError::Stale) => self.lost(LostReason::RegionGone),
                    BlockError::Memory(error) => {
                        let (name, source) = (self.text.to_string(), Arc::new(error.into()));
                        AcquireError::NoUnits { name, source }
                    }
                })?;
            }
        }
        Ok(extent.lying_in(BlockNumbers::of_ends(ends, numbers)))
    }

    /// A place that knows where the table lies, and where this lies there.
    fn aimed_place(&self, extent: Extent) -> Result<(Box<RangePlace>, Addr, Extent), AcquireError> {
        let place = self.a_place()?;
        let is_near = far_ends(extent) == [None; 2];
        if let Some(found) = aimed_at(self.spot().found, &place).filter(|_| is_near) {
            return Ok((place, found.lock(), extent));
        }
        let lane = place.seat.endpoint();
        let found = block_on(lane, async {
            let found = self.find(&place).await?;
            self.placed(lane, found, extent).await.map(|extent| (found.lock(), extent))
        });
        match found {
            Ok((lock, extent)) => Ok((place, lock, extent)),
            Err(error) => {
                self.hub().give_range_back(place);
                Err(error)
            }
        }
    }

    /// Asks for a range.
    pub(super) fn open(&self, asked: &Asked) -> Result<Came, AcquireError> {
        let extent = self.extent(asked)?;
        let (mut place, lock, extent) = self.aimed_place(extent)?;
        place.undate();
        match place.seat.open(lock, extent) {
            Ok(Opened::Held) => Ok(Came::Held(self.held(place))),
            Ok(Opened::InLine) => Ok(Came::Waits(place)),
            Err(fault) => {
                self.recycle(place);
                Err(self.failed(fault))
            }
        }
    }

    /// What a place holds.
    fn held(&self, place: Box<RangePlace>) -> Grant {
        self.date_hold(&place);
        let shelved = match self.is_one_too_many(&place) {
            true => block_on(place.seat.endpoint(), self.write_down(&place)),
            false => None,
        };
        self.granted(place, shelved)
    }

    /// The same of the place that lies here, which is awaited.
    async fn held_at(&self, cell: &PlaceCell<RangeProtocol>) -> Grant {
        let place = cell.look().expect("a place that holds");
        self.date_hold(&place);
        let shelved = match self.is_one_too_many(&place) {
            true => place.seat.endpoint().deferring(self.write_down(&place)).await,
            false => None,
        };
        drop(place);
        self.granted(cell.take(), shelved)
    }

    /// Notes since when it is held, for sessions that do.
    fn date_hold(&self, place: &RangePlace) {
        if self.hub().dates_holds {
            place.date();
        }
    }

    /// Whether what a place holds is to be written down. A tether keeps one range from others, not
    /// all that are written down.
    fn is_one_too_many(&self, place: &RangePlace) -> bool {
        place.tether.is_none()
            && self.hub().range_pool.places() > PLACES_MAX
            && self.spot().idle.is_empty()
    }

    /// What a place was granted holds by it, or by what was written down of that.
    fn granted(&self, place: Box<RangePlace>, shelved: Option<(Token, Shelved)>) -> Grant {
        match shelved {
            Some((token, shelved)) => {
                self.recycle(place);
                Grant { by: HeldBy::Shelf(Box::new(shelved)), token }
            }
            None => {
                let token = token_of(&place);
                Grant { by: HeldBy::Place(place), token }
            }
        }
    }

    /// Writes down what a place holds, if there is room on the shelf. Its token is told too.
    #[cold]
    async fn write_down(&self, place: &RangePlace) -> Option<(Token, Shelved)> {
        let hub = self.hub();
        if !hub.has_clerk() {
            return None;
        }
        let (entry, token) = (hub.free_entry(place.seat.endpoint()).await?, token_of(place));
        // If it fails, the release of what the place holds finds out.
        let shelved = place.seat.shelve(entry, place.since() / 1000).await.ok()?;
        Some((token, shelved))
    }

    /// Acquires a range by the place that lies here, for a task by a server: for the session's
    /// thread.
    pub(super) async fn acquire_at(
        &self,
        cell: &PlaceCell<RangeProtocol>,
        want: Extent,
        tries: bool,
        fate: &Fate<Ending>,
    ) -> Ending {
        let place = cell.look().expect("a place that does nothing");
        let lane = place.seat.endpoint();
        let found = async {
            let found = self.find(&place).await?;
            self.placed(lane, found, want).await.map(|want| (found.lock(), want))
        };
        let (lock, want) = match lane.deferring(found).await {
            Ok(found) => found,
            Err(error) => {
                drop(place);
                // It may be aimed at what was forgotten.
                self.hub().give_range_back(cell.take());
                return Err(error);
            }
        };
        place.undate();
        let asked = match fate.is_gone() {
            true => Ok(false),
            false => lane.deferring(ask(&place, (lock, want), tries, fate)).await,
        };
        drop(place);
        match asked {
            Ok(true) => Ok(Some(self.held_at(cell).await)),
            Ok(false) => {
                self.recycle(cell.take());
                Ok(None)
            }
            Err(fault) => {
                self.recycle(cell.take());
                Err(self.failed(fault))
            }
        }
    }

    /// Waits by a place that has asked, blocking this thread. `None`: the deadline has passed.
    pub(super) fn wait(
        self: &Arc<Self>,
        place: Box<RangePlace>,
        deadline: Option<Instant>,
    ) -> Ending {
        match self.block(&place, deadline) {
            End::Waited(waited) => self.ended(place, waited.map_err(|fault| self.failed(fault))),
            End::Lost(reason) => {
                self.recycle(place);
                Err(self.lost(reason))
            }
            End::Elapsed => self.leave(place),
        }
    }

    fn block(&self, place: &RangePlace, deadline: Option<Instant>) -> End {
        let lane = place.seat.endpoint();
        let mut wait = pin!(place.seat.wait());
        // What is free needs neither a clock nor a list.
        let mut cx = Context::from_waker(Waker::noop());
        if let Poll::Ready(waited) = wait.as_mut().poll(&mut cx) {
            return End::Waited(waited);
        }
        place.date();
        self.hub().begin_range_wait(lane);
        self.hub().watch();
        let mut sleep = deadline.map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            lane.sleep(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))
        });
        let end = block_on(
            lane,
            poll_fn(|cx| {
                if let Poll::Ready(waited) = wait.as_mut().poll(cx) {
                    return Poll::Ready(End::Waited(waited));
                }
                if let Err(reason) = self.hub().check() {
                    return Poll::Ready(End::Lost(reason));
                }
                let sleep = sleep.as_mut();
                let elapsed = sleep.is_some_and(|sleep| Pin::new(sleep).poll(cx).is_ready());
                if elapsed { Poll::Ready(End::Elapsed) } else { Poll::Pending }
            }),
        );
        self.hub().watch_no_more();
        self.hub().end_range_wait(lane);
        end
    }

    /// Gives up: leaves at once, or has the session's thread leave. Returns the grant if there was
    /// one meanwhile.
    fn leave(self: &Arc<Self>, place: Box<RangePlace>) -> Ending {
        place.seat.withdraw(true);
        let mut cx = Context::from_waker(Waker::noop());
        let polled = pin!(place.seat.wait()).poll(&mut cx);
        match polled {
            Poll::Ready(Ok(is_held)) => self.ended(place, Ok(is_held)),
            Poll::Ready(Err(_)) => {
                self.recycle(place);
                Ok(None)
            }
            Poll::Pending => {
                self.start(Errand::Wait { place, fate: None, tries: false });
                Ok(None)
            }
        }
    }

    /// What comes of a wait or an attempt.
    pub(super) fn ended(
        &self,
        place: Box<RangePlace>,
        is_held: Result<bool, AcquireError>,
    ) -> Ending {
        if let Ok(true) = is_held {
            return Ok(Some(self.held(place)));
        }
        self.recycle(place);
        is_held.map(|_| None)
    }

    /// Acquires a range if that needs no waiting.
    pub(super) fn try_acquire(&self, asked: &Asked) -> Result<Tried, AcquireError> {
        let extent = self.extent(asked)?;
        let (mut place, lock, extent) = self.aimed_place(extent)?;
        place.undate();
        match place.seat.try_open(lock, extent) {
            Ok(Attempt::Held) => Ok(Tried::Held(self.held(place))),
            Ok(Attempt::Doubtful) => Ok(Tried::Doubtful(place)),
            Ok(Attempt::Busy) => {
                self.recycle(place);
                Ok(Tried::Busy)
            }
            Err(fault) => {
                self.recycle(place);
                Err(self.failed(fault))
            }
        }
    }

    /// Decides an attempt that is in doubt, blocking this thread.
    pub(super) fn decide(&self, place: Box<RangePlace>) -> Ending {
        let is_held = block_on(place.seat.endpoint(), place.seat.try_beside());
        self.ended(place, is_held.map_err(|fault| self.failed(fault)))
    }

    /// Turns what is held into a hold in this mode, which is not its own, if it can be: by which
    /// token it is held then.
    pub(super) fn convert(&self, by: &mut HeldBy, mode: Mode) -> Option<Token> {
        let hub = self.hub();
        if hub.is_forked() || hub.check().is_err() {
            return None;
        }
        match by {
            HeldBy::Place(place) => {
                let is_held = place.seat.is_seen_to_hold();
                let is_converted = is_held && convert(place, mode);
                if is_converted { place.seat.token() } else { None }
            }
            // What is written down stays as it is.
            HeldBy::Shelf(_) => None,
        }
    }

    /// Whether a range has units on either side of a position, and none has some on both.
    pub(super) fn divides_at(&self, range: &Range<u64>, position: u64) -> bool {
        let is_within = range.start < position && position < range.end;
        is_within && position.is_multiple_of(self.unit) && position / self.unit < RANGE_UNITS
    }

    /// What can be let go of a range that is held, if not these positions of it are to be kept: as
    /// many units, of which nothing is. `None`: no unit.
    pub(super) fn freed(&self, held: &Range<u64>, positions: &Range<u64>) -> Option<Range<u64>> {
        // The last unit has all positions behind it.
        let last = self.unit.saturating_mul(RANGE_UNITS - 1);
        let start = match positions.start <= held.start {
            true => held.start,
            false => positions.start.div_ceil(self.unit).saturating_mul(self.unit),
        };
        let end = match held.end <= positions.end {
            true => held.end,
            false => (positions.end - positions.end % self.unit).min(last),
        };
        (start < end && (start <= last || start == held.start)).then_some(start..end)
    }

    /// Holds these parts of what is held in this mode, and nothing else. Or by what it is held as
    /// before, if it is.
    pub(super) fn divide(
        &self,
        by: HeldBy,
        mode: Mode,
        kept: &[Range<u64>],
    ) -> Result<Vec<Grant>, (Option<HeldBy>, DivideReason)> {
        let hub = self.hub();
        let reason = if hub.is_forked() { Some(LostReason::Forked) } else { hub.check().err() };
        let reason = reason.or_else(|| (!by.is_held(hub)).then(|| hub.taken_over()));
        if let Some(reason) = reason {
            return Err((Some(by), DivideReason::Lost(reason)));
        }
        let mut parts = Vec::new();
        for part in kept {
            match self.take_part(mode, part, by.holding()) {
                Ok(place) => parts.push(place),
                Err(reason) => {
                    parts.into_iter().for_each(|part| self.forgo(part, by.holding()));
                    return Err((Some(by), reason));
                }
            }
        }
        let holdings: Vec<_> = parts.iter().map(|place| place.seat.holding()).collect();
        let leave = |seat: &Seat<Lane, RangeProtocol>| {
            block_on(seat.endpoint(), async {
                seat.leave_to(&holdings).await?;
                if hub.is_far { shown(seat.endpoint()).await } else { Ok(()) }
            })
        };
        let left = match &by {
            HeldBy::Place(whole) => leave(&whole.seat),
            HeldBy::Shelf(shelved) => hub.by_clerk(|clerk| {
                clerk.seat.take_down(shelved);
                let left = leave(&clerk.seat);
                if left.is_ok() {
                    hub.give_entry_back(shelved.entry());
                }
                left
            }),
        };
        if let HeldBy::Place(whole) = by {
            self.recycle(whole);
        }
        match left {
            Ok(()) => Ok(parts.into_iter().map(|part| self.held(part)).collect()),
            Err(fault) => {
                parts.into_iter().for_each(|part| drop(self.release(HeldBy::Place(part))));
                Err((None, DivideReason::Lost(hub.reason(fault))))
            }
        }
    }

    /// Holds a part of what is held. Those that were just about to come give way to it in some
    /// verbs of theirs, unless they are stopped.
    fn take_part(
        &self,
        mode: Mode,
        part: &Range<u64>,
        whole: RangeHolding,
    ) -> Result<Box<RangePlace>, DivideReason> {
        let found = self.extent(&Asked::of(mode, part.clone()));
        let found = found.and_then(|extent| self.aimed_place(extent));
        let (place, _, extent) = found.map_err(|error| DivideReason::NoPlace(Box::new(error)))?;
        place.undate();
        for () in tries() {
            let seat = &place.seat;
            match block_on(seat.endpoint(), seat.take_part(extent, whole)) {
                Ok(true) => return Ok(place),
                Ok(false) => {}
                Err(fault) => {
                    self.recycle(place);
                    return Err(DivideReason::Lost(self.hub().reason(fault)));
                }
            }
        }
        self.recycle(place);
        Err(DivideReason::InTheWay)
    }

    /// Gives up a part of what is held as before.
    fn forgo(&self, part: Box<RangePlace>, whole: RangeHolding) {
        // If a verb failed its place is not used again, and what it had is mended as of the dead.
        let _ = block_on(part.seat.endpoint(), part.seat.leave_to(&[whole]));
        self.recycle(part);
    }

    /// Releases a range.
    pub(super) fn release(&self, by: HeldBy) -> Released {
        let hub = self.hub();
        if hub.is_forked() {
            // The place is the parent's; here nobody may use it.
            let _ = ManuallyDrop::new(by);
            return Err(self.lost_hold(LostReason::Forked));
        }
        let released = match by {
            HeldBy::Place(place) if hub.is_far => {
                let closed = block_on(place.seat.endpoint(), close_far(&place));
                self.recycle(place);
                closed.or_else(|fault| if hub.ends_hold(fault) { Ok(true) } else { Err(fault) })
            }
            HeldBy::Place(mut place) => {
                let is_held = place.seat.is_seen_to_hold();
                if !is_held {
                    place.seat.forsake();
                }
                let released = if is_held { self.close(&mut place) } else { Ok(false) };
                self.recycle(place);
                released
            }
            HeldBy::Shelf(shelved) => hub.by_clerk(|clerk| {
                if !clerk.seat.is_on_shelf(&shelved) {
                    return Ok(false);
                }
                clerk.seat.take_down(&shelved);
                let released = match hub.is_far {
                    true => block_on(clerk.seat.endpoint(), close_far(clerk)),
                    false => close(clerk),
                };
                if released.is_ok() {
                    hub.give_entry_back(shelved.entry());
                }
                released
            }),
        };
        self.released(released)
    }

    /// What the end of a release means, of which `false` is that nothing was held any more.
    fn released(&self, released: Result<bool, Fault>) -> Released {
        let hub = self.hub();
        match released {
            Ok(true) if hub.finds_region() => Ok(()),
            Ok(true) => Err(self.lost_hold(LostReason::without(&hub.region))),
            Ok(false) => Err(self.lost_hold(hub.taken_over())),
            Err(fault) => Err(self.lost_hold(hub.reason(fault))),
        }
    }

    /// Releases a range of which nobody asks how that goes. By a server this does not wait for its
    /// answer, nor does what this session asks for next find the range taken.
    pub(super) fn let_go(self: &Arc<Self>, by: HeldBy) {
        let hub = self.hub();
        if !hub.is_far || hub.is_forked() {
            // A region that is gone has nothing to release.
            return drop(self.release(by));
        }
        match by {
            HeldBy::Place(place) if place.seat.close_unasked() => self.recycle(place),
            // An entry of the shelf is free again when it is known that nothing stands there.
            by => self.start(Errand::Release { held: vec![by], fate: None }),
        }
    }

    /// Releases a range, for the session's thread.
    pub(super) async fn release_at(&self, cell: &PlaceCell<RangeProtocol>, by: HeldBy) -> Released {
        let (place, entry) = match by {
            HeldBy::Place(place) => (place, None),
            HeldBy::Shelf(shelved) => match self.idle_place() {
                Some(place) => {
                    place.seat.take_down(&shelved);
                    (place, Some(shelved.entry()))
                }
                None => return self.release(HeldBy::Shelf(shelved)),
            },
        };
        cell.put(place);
        let place = cell.look().expect("it was put there");
        let closed = place.seat.endpoint().deferring(close_far(&place)).await;
        drop(place);
        self.recycle(cell.take());
        if let (Ok(_), Some(entry)) = (closed, entry) {
            self.hub().give_entry_back(entry);
        }
        self.released(match closed {
            Err(fault) if self.hub().ends_hold(fault) => Ok(true),
            closed => closed,
        })
    }

    fn close(&self, place: &mut RangePlace) -> Result<bool, Fault> {
        match close(place) {
            Err(fault) if self.hub().ends_hold(fault) => Ok(true),
            closed => closed,
        }
    }

    pub(super) fn lost_hold(&self, reason: LostReason) -> ReleaseError {
        ReleaseError::Lost { name: self.text.to_string(), reason }
    }

    /// A place does nothing any more: it is kept for the next acquisition, or goes back.
    pub(super) fn recycle(&self, place: Box<RangePlace>) {
        let mut spot = self.spot();
        let is_aimed = spot.found.is_some_and(|found| found.lock() == place.seat.lock());
        if is_aimed && place.is_idle() && spot.idle.len() < KEPT_MAX {
            spot.idle.push(place);
            return;
        }
        drop(spot);
        self.hub().give_range_back(place);
    }

    /// How what is held was lost, if it was.
    pub(super) fn look(&self) -> Option<LostReason> {
        let hub = self.hub();
        if hub.is_forked() {
            return Some(LostReason::Forked);
        }
        if let Err(reason) = hub.check() {
            return Some(reason);
        }
        if hub.finds_region_now() { None } else { hub.check().err() }
    }

    /// The holders of what overlaps a range, once the table is found.
    pub(super) fn seen_holders(
        &self,
        range: &Range<u64>,
    ) -> Result<Vec<Participant>, AcquireError> {
        self.extent(&Asked::of(Mode::Shared, range.clone()))?;
        let (place, ..) = self.aimed_place(Extent::from(Mode::Shared))?;
        self.recycle(place);
        Ok(self.holders(range).list())
    }

    /// The holders of what overlaps a range, for an error that may be shown later.
    pub(super) fn holders(&self, range: &Range<u64>) -> Holders {
        let lock = self.spot().found.map(Located::lock);
        let hub = Arc::downgrade(self.hub());
        Holders::new(hub, self.hub().region.clone(), lock).of_range(range.clone())
    }
}

impl HeldBy {
    /// What is held.
    fn holding(&self) -> RangeHolding {
        match self {
            Self::Place(place) => place.seat.holding(),
            Self::Shelf(shelved) => shelved.holding(),
        }
    }

    /// Whether what says that it is held still stands there.
    fn is_held(&self, hub: &Hub) -> bool {
        match self {
            Self::Place(place) => place.seat.is_seen_to_hold(),
            Self::Shelf(shelved) => hub.by_clerk(|clerk| clerk.seat.is_on_shelf(shelved)),
        }
    }
}

/// Asks for a range by verbs that are awaited, as long as it is wanted.
async fn ask(
    place: &RangePlace,
    (lock, want): (Addr, Extent),
    tries: bool,
    fate: &Fate<Ending>,
) -> Result<bool, Fault> {
    let seat = &place.seat;
    if tries {
        return match seat.try_opening(lock, want).await? {
            Attempt::Held => Ok(true),
            Attempt::Busy => Ok(false),
            Attempt::Doubtful => seat.try_beside().await,
        };
    }
    let opened = match seat.begin_open(lock, want)? {
        Begun::Done(opened) => opened,
        Begun::Posted(ticket) => {
            seat.end_open(seat.endpoint().completion(Posted::Pending(ticket)).await)?
        }
    };
    match opened {
        Opened::Held => Ok(true),
        Opened::InLine => wait(place, Some(fate)).await,
    }
}

/// Waits as long as anybody wants it.
pub(super) async fn wait(place: &RangePlace, fate: Option<&Fate<Ending>>) -> Result<bool, Fault> {
    let mut wait = pin!(place.seat.wait());
    poll_fn(|cx| {
        place.seat.withdraw(fate.is_none_or(Fate::is_gone));
        wait.as_mut().poll(cx)
    })
    .await
}

/// Turns what a place holds into a hold in this mode, if it can be. Those that were just about to
/// come give way to it in some verbs of theirs, unless they are stopped.
fn convert(place: &mut RangePlace, mode: Mode) -> bool {
    match mode {
        Mode::Shared => tries().any(|()| place.seat.downgrade() == Ok(true)),
        Mode::Exclusive => place.seat.try_upgrade() == Ok(true),
    }
}

/// The times at which a holder tries: at once, and again whenever others had the processor.
fn tries() -> impl Iterator<Item = ()> {
    let mut begun = None;
    (0..TRIES_MAX).map_while(move |time| {
        if time == 0 {
            return Some(());
        }
        let begun = *begun.get_or_insert_with(Instant::now);
        std::thread::yield_now();
        (time == 1 || begun.elapsed() < TRYING_MAX).then_some(())
    })
}

/// Releases what a place holds. `false`: it was not held any more.
fn close(place: &mut RangePlace) -> Result<bool, Fault> {
    match place.seat.close()? {
        Closed::Free => Ok(true),
        Closed::InHand => block_on(place.seat.endpoint(), place.seat.hand_over()),
    }
}

/// The same by a server, in one trip if its verbs need not be asked for. A server refuses the verbs
/// of those that it has told others are dead: nobody is asked whether it is still held.
async fn close_far(place: &RangePlace) -> Result<bool, Fault> {
    let seat = &place.seat;
    let is_released = seat.close_unasked() || {
        let closed = match seat.begin_close()? {
            Begun::Done(closed) => closed,
            Begun::Posted(ticket) => {
                seat.end_close(seat.endpoint().completion(Posted::Pending(ticket)).await)?
            }
        };
        match closed {
            Closed::Free => true,
            Closed::InHand => seat.hand_over().await?,
        }
    };
    shown(seat.endpoint()).await?;
    Ok(is_released)
}

/// Whatever was posted and published by this lane has taken effect: others see nothing of it that
/// is over.
async fn shown(lane: &Lane) -> Result<(), Fault> {
    lane.read64(lane.record(lane.id().index, Slot(0))).await?;
    // A verb of which nobody asked has failed before this one.
    lane.refusal().map_or(Ok(()), Err)
}

/// Where the table lies that was found, if a place is aimed at it.
fn aimed_at(found: Option<Located>, place: &RangePlace) -> Option<Located> {
    found.filter(|found| found.lock() == place.seat.lock())
}

fn token_of(place: &RangePlace) -> Token {
    place.seat.token().expect("a service's locks have tokens")
}

impl Drop for Table {
    fn drop(&mut self) {
        let idle = std::mem::take(&mut self.spot().idle);
        if self.hub().is_forked() {
            // They are the parent's.
            let _ = ManuallyDrop::new(idle);
        } else {
            idle.into_iter().for_each(|place| self.hub().give_range_back(place));
        }
    }
}
