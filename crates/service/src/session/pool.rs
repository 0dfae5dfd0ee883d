//! The places of a session in its region: by each it holds or awaits one lock.
//!
//! A thread or task that acquires a name owns a place until it has released, so no thread waits for
//! another's. Idle places lie here, or with the names that used them last. New ones are made by the
//! session's thread, which keeps them alive.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::mem::replace;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use farlock_fabric::{Addr, Endpoint, EndpointId, Fault, Nanos, Origin, Tether, Ticket};
use farlock_locks::lock::Lock;
use farlock_locks::{Options, Seat, slot};

use crate::connection::Lane;
use crate::inspect;
use crate::protocol::{Protocol, RangeProtocol};

/// Idle places that a session keeps beyond those that names keep; more are given back.
const IDLE_MAX: usize = 32;

/// Names that keep the place that they were held by, for their next acquisition.
const KEPT_MAX: usize = 64;

/// The address of no lock: an idle place keeps none from being forgotten.
const NOWHERE: Addr = Addr::from_bits(0);

/// A kind of lock that sessions hold by places.
pub(super) trait Kind: Lock<Lane> + fmt::Debug {}

impl<L: Lock<Lane> + fmt::Debug> Kind for L {}

/// A seat, and what its record says of the time.
#[derive(Debug)]
pub(super) struct Place<L: Kind = Protocol> {
    pub(super) seat: Seat<Lane, L>,
    /// Since when, as its record says; 0 if it does not.
    since: Cell<Nanos>,
    /// How many its record says wait in this session.
    company: Cell<u64>,
    /// Its holders, children of this process, keep what is held from others when this one dies.
    pub(super) tether: Option<Tether>,
}

/// A place by which a range is held.
pub(super) type RangePlace = Place<RangeProtocol>;

impl<L: Kind> Place<L> {
    pub(super) fn new(lane: Lane, kind: L, origin: Origin, tether: Option<Tether>) -> Self {
        let seat = Seat::new(lane, kind, Options::from(origin));
        seat.endpoint().publish(seat.slot(), inspect::PID, inspect::own_process());
        Self { seat, since: Cell::new(0), company: Cell::new(0), tether }
    }

    /// Whether it does nothing, and could.
    pub(super) fn is_idle(&self) -> bool {
        !self.seat.is_broken() && !self.seat.is_held() && !self.seat.is_in_line()
    }

    /// Notes in its record that what it does has just begun.
    #[cold]
    pub(super) fn date(&self) {
        let endpoint = self.seat.endpoint();
        self.since.set(endpoint.now());
        endpoint.publish(self.seat.slot(), slot::SINCE, self.since.get());
    }

    /// Since when it does what it does, if its record says so; else 0.
    pub(super) fn since(&self) -> Nanos {
        self.since.get()
    }

    /// Notes in its record how many of the session wait behind what it does.
    pub(super) fn show_company(&self, company: u64) {
        if self.company.replace(company) != company {
            self.seat.endpoint().publish(self.seat.slot(), inspect::COMPANY, company);
        }
    }

    /// Notes that nobody looked at a clock when what it does began.
    #[inline]
    pub(super) fn undate(&self) {
        if self.since.replace(0) != 0 {
            self.seat.endpoint().publish(self.seat.slot(), slot::SINCE, 0);
        }
    }
}

/// A verb under way, and the place that it is of.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) place: Box<Place>,
    pub(super) ticket: Ticket,
    /// Whether the other tasks of its executor had their turn, so that theirs travel with it.
    has_yielded: bool,
}

impl UnderWay {
    pub(super) const fn new(place: Box<Place>, ticket: Ticket) -> Self {
        Self { place, ticket, has_yielded: false }
    }

    /// Blocks the thread until it has completed, and no longer than to this time. `None`: it has
    /// not.
    pub(super) fn block(&self, until: Option<Instant>) -> Option<Result<(), Fault>> {
        let endpoint = self.place.seat.endpoint();
        match until {
            Some(until) => endpoint.complete_by(self.ticket, until),
            None => Some(endpoint.complete(self.ticket)),
        }
    }

    /// Whether it has completed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        if !replace(&mut self.has_yielded, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.place.seat.endpoint().poll_posted(self.ticket, cx)
    }
}

/// One by whose lane the session's thread sleeps.
pub(super) trait HasLane {
    fn lane(&self) -> &Lane;
}

impl<L: Kind> HasLane for Box<Place<L>> {
    fn lane(&self) -> &Lane {
        self.seat.endpoint()
    }
}

/// Where a task of the session's thread keeps the place by which it stands in line, so that the
/// thread can sleep where that is told anything. A task that uses its place takes it out.
#[derive(Debug)]
pub(super) struct PlaceCell<L: Kind = Protocol>(RefCell<Option<Rc<Box<Place<L>>>>>);

/// The same, whatever the kind of lock.
pub(super) trait AnyCell {
    /// The place, if it is here.
    fn look_at_lane(&self) -> Option<Rc<dyn HasLane>>;
}

impl<L: Kind> AnyCell for PlaceCell<L> {
    fn look_at_lane(&self) -> Option<Rc<dyn HasLane>> {
        self.look().map(|place| place as Rc<dyn HasLane>)
    }
}

impl<L: Kind> PlaceCell<L> {
    pub(super) fn new(place: Box<Place<L>>) -> Self {
        Self(RefCell::new(Some(Rc::new(place))))
    }

    /// One in which none lies yet.
    pub(super) const fn empty() -> Self {
        Self(RefCell::new(None))
    }

    /// The place, if it is here.
    pub(super) fn look(&self) -> Option<Rc<Box<Place<L>>>> {
        self.0.borrow().clone()
    }

    /// Takes the place out.
    ///
    /// # Panics
    /// If it is not here, or anybody looks at it.
    pub(super) fn take(&self) -> Box<Place<L>> {
        let place = self.0.take().expect("a task puts its place back before it waits");
        Rc::into_inner(place).expect("nobody sleeps on what does not wait")
    }

    /// Puts a place in.
    pub(super) fn put(&self, place: Box<Place<L>>) {
        self.0.replace(Some(Rc::new(place)));
    }
}

/// The idle places of a session for locks of a kind, and the names of all of them.
#[derive(Debug)]
pub(super) struct Pool<L: Kind = Protocol> {
    inner: Mutex<Inner<L>>,
}

impl<L: Kind> Default for Pool<L> {
    fn default() -> Self {
        let inner = Inner { idle: Vec::new(), own: HashMap::new(), keeping: 0 };
        Self { inner: Mutex::new(inner) }
    }
}

#[derive(Debug)]
struct Inner<L: Kind> {
    idle: Vec<Box<Place<L>>>,
    /// The incarnation at each index that is this session's.
    own: HashMap<u16, u16>,
    /// Names that keep a place.
    keeping: usize,
}

impl<L: Kind> Pool<L> {
    fn inner(&self) -> MutexGuard<'_, Inner<L>> {
        // Nothing that can panic runs under this mutex.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An idle place, if there is one.
    pub(super) fn take(&self) -> Option<Box<Place<L>>> {
        self.inner().idle.pop()
    }

    /// Puts a place back that does nothing. One that is of no use any more, or one too many, is
    /// returned by its name: its keeper is to let go of it.
    pub(super) fn put(&self, place: Box<Place<L>>) -> Option<EndpointId> {
        let mut inner = self.inner();
        if inner.idle.len() < IDLE_MAX && place.is_idle() {
            place.seat.aim(NOWHERE);
            inner.idle.push(place);
            return None;
        }
        let id = place.seat.endpoint().id();
        inner.own.remove(&id.index);
        drop(inner);
        Some(id)
    }

    /// A place is the session's from now on.
    pub(super) fn admit(&self, id: EndpointId) {
        self.inner().own.insert(id.index, id.incarnation);
    }

    /// Whether a place is the session's.
    pub(super) fn owns(&self, id: EndpointId) -> bool {
        self.inner().own.get(&id.index) == Some(&id.incarnation)
    }

    /// How many places the session has.
    pub(super) fn places(&self) -> usize {
        self.inner().own.len()
    }

    /// Whether one more name may keep its place.
    pub(super) fn keep(&self) -> bool {
        let mut inner = self.inner();
        let may = inner.keeping < KEPT_MAX;
        inner.keeping += usize::from(may);
        may
    }

    /// A name keeps its place no more.
    pub(super) fn keep_no_more(&self) {
        self.inner().keeping -= 1;
    }
}
