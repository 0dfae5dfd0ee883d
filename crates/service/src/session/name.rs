//! A name as this session uses it: its holds, its asker, and the waiters behind.
//!
//! ```text
//!            +------------------- one mutex a name --------------------+
//! newcomer ->| nobody here has or awaits it: opens the lock, one verb  |-> holds
//!            | else: waits behind those of this session                |
//!            +----------------------------------------------------------+
//! ```
//!
//! At most one of a session stands in line for a lock: the *asker*. A thread that asks waits in
//! line itself; for a task, and for a waiter that gave up but could not leave the line at once, the
//! session's thread does. Those that come later wait here, first come, first served: behind an
//! asker, or behind an exclusive holder. A release hands the lock on among them as long as the lock
//! lets it ([`Seat::renew`](farlock_locks::Seat::renew)), else the next of them asks.
//!
//! Shared holders are counted. One more is counted too if nobody is in line; else it asks, by a
//! place of its own.
//!
//! The mutex is never held while anybody waits, and no waker is called under it.

mod asker;
pub(super) mod under_way;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farlock_fabric::{
    Addr, Biased, BiasedGuard, Connection as _, Endpoint, Fault, Posted, Tether, Verb, block_on,
};
use farlock_locks::{Attempt, Closed, Mode, Opened, Token};

use super::pool::{Place, UnderWay};
use super::state::{Asking, Hold, Hub, Job, Line, Name};
use super::waiter::{Outcome, Waiter, Wake, Who};
use crate::connection::Region;
use crate::directory::{DirectoryError, Located};
use crate::error::{AcquireError, Holders, LostReason, ReleaseError};
use crate::inspect;
use crate::protocol::{LOCK_KIND, lock_protocol};

/// What is left to do when the mutex is let go.
#[derive(Default)]
struct After {
    wakes: Vec<Wake>,
    job: Option<Job>,
}

/// What came of asking.
pub(super) enum Came {
    /// The lock is held.
    Held(Token),
    /// The caller is a waiter of this name.
    Waits(Arc<Waiter>),
    /// The caller is to wait in line by this place.
    Asks(Box<Place>),
    /// The opening verb is on its way. Only those of tasks are not waited for. Boxed, since what
    /// has come at once pays for its size.
    IsUnderWay(Box<UnderWay>),
}

/// What came of an attempt that does not wait.
pub(super) enum Tried {
    /// The lock is held.
    Held(Token),
    /// The lock has a holder.
    Busy,
    /// The lock has a holder, which may be dead.
    Doubtful(Box<Place>),
}

impl Line {
    /// Whether nobody of this session has the lock or awaits it.
    #[inline(always)]
    fn is_clear(&self) -> bool {
        self.hold == Hold::Nothing
            && matches!(self.asking, Asking::Nobody)
            && self.waiters.is_empty()
    }

    /// The first of those that wait here.
    fn first(&self) -> Option<&Arc<Waiter>> {
        self.waiters.first_key_value().map(|(_, waiter)| waiter)
    }

    /// Has the record of the hold say who waits here: they have none of their own.
    fn show_waiters(&self) {
        if let (Hold::Alone, Some(place)) = (self.hold, &self.place) {
            let shared = self.waiters.values().filter(|w| w.mode == Mode::Shared).count();
            place.show_company(inspect::company(self.waiters.len() - shared, shared));
        }
    }

    fn pop_first(&mut self) -> Option<Arc<Waiter>> {
        self.waiters.pop_first().map(|(_, waiter)| waiter)
    }
}

const fn held(mode: Mode) -> Hold {
    match mode {
        Mode::Exclusive => Hold::Alone,
        Mode::Shared => Hold::Shared(1),
    }
}

fn token_of(place: &Place) -> Token {
    place.seat.token().expect("a service's locks have tokens")
}

// Acquiring.

impl Name {
    pub(super) fn new(hub: Arc<Hub>, text: Arc<str>) -> Self {
        let line = Line {
            found: None,
            hold: Hold::Nothing,
            place: None,
            more: Vec::new(),
            asking: Asking::Nobody,
            waiters: BTreeMap::new(),
            tickets: 0,
            keeps: false,
        };
        Self { hub, text, line: Biased::new(line) }
    }

    #[inline(always)]
    fn line(&self) -> BiasedGuard<'_, Line> {
        // A panic under this mutex is a broken invariant; the next caller finds it too.
        self.line.lock()
    }

    /// Acquires the lock, or becomes a waiter.
    #[inline]
    pub(super) fn acquire(self: &Arc<Self>, mode: Mode, who: Who) -> Result<Came, AcquireError> {
        self.check_fork()?;
        let mut line = self.line();
        if line.is_clear()
            && self.hub.check().is_ok()
            && let Some(found) = line.found
            && let Some(place) = &mut line.place
        {
            if self.hub.is_far {
                return self.open_by_kept(line, found.lock(), (mode, who));
            }
            if let Ok(Opened::Held) = place.seat.open(found.lock(), mode) {
                let token = token_of(place);
                self.date_hold(place);
                line.hold = held(mode);
                return Ok(Came::Held(token));
            }
            return self.opened_late(line, mode, who);
        }
        self.acquire_slowly(line, mode, who)
    }

    /// Opens the lock of a server by the kept place.
    #[cold]
    fn open_by_kept(
        self: &Arc<Self>,
        mut line: BiasedGuard<'_, Line>,
        lock: Addr,
        (mode, who): (Mode, Who),
    ) -> Result<Came, AcquireError> {
        let place = line.place.take().expect("it is kept");
        self.open_far(line, place, lock, (mode, who))
    }

    /// What becomes of the kept place's opening verb that did not acquire the lock.
    #[cold]
    fn opened_late(
        self: &Arc<Self>,
        mut line: BiasedGuard<'_, Line>,
        mode: Mode,
        who: Who,
    ) -> Result<Came, AcquireError> {
        let place = line.place.take().expect("it has just opened");
        if !place.seat.is_in_line() {
            // The verb failed, and the next one says why.
            self.recycle(&mut line, place);
            return self.acquire_slowly(line, mode, who);
        }
        Ok(self.ask(line, place, mode, who))
    }

    #[cold]
    fn acquire_slowly(
        self: &Arc<Self>,
        mut line: BiasedGuard<'_, Line>,
        mode: Mode,
        who: Who,
    ) -> Result<Came, AcquireError> {
        self.hub.check().map_err(|reason| self.lost(reason))?;
        if !self.may_open(&line) {
            let waiter = Arc::new(Waiter::new(mode, who));
            line.tickets += 1;
            waiter.ticket.store(line.tickets, Ordering::Relaxed);
            let ticket = line.tickets;
            line.waiters.insert(ticket, Arc::clone(&waiter));
            line.show_waiters();
            return Ok(Came::Waits(waiter));
        }
        if let Some(token) = self.join(&mut line, mode) {
            return Ok(Came::Held(token));
        }
        let Some(mut place) = line.idle_place().or_else(|| self.hub.pool.take()) else {
            // The session's thread makes a place, seldom.
            let waiter = Arc::new(Waiter::new(mode, who));
            line.asking = Asking::Session(Some(Arc::clone(&waiter)));
            drop(line);
            self.hub.start(Job::new(self, None));
            return Ok(Came::Waits(waiter));
        };
        if self.hub.is_far {
            return match self.find(&mut line, &place) {
                Ok(lock) => self.open_far(line, place, lock, (mode, who)),
                Err(error) => {
                    self.recycle(&mut line, place);
                    Err(error)
                }
            };
        }
        match self.open(&mut line, &mut place, mode) {
            Ok(Opened::Held) => Ok(Came::Held(self.install(&mut line, place, mode))),
            Ok(Opened::InLine) => Ok(self.ask(line, place, mode, who)),
            Err(error) => {
                self.recycle(&mut line, place);
                Err(error)
            }
        }
    }

    /// Whether a newcomer may open the lock: nobody of this session is before it.
    fn may_open(&self, line: &Line) -> bool {
        matches!(line.asking, Asking::Nobody) && line.hold != Hold::Alone && line.waiters.is_empty()
    }

    /// One more shared holder, without a verb that changes anything: where the session has the lock
    /// shared, and nobody is in line.
    fn join(&self, line: &mut Line, mode: Mode) -> Option<Token> {
        let (Hold::Shared(holders), Mode::Shared) = (line.hold, mode) else { return None };
        let place = line.place.as_ref().expect("a hold has a place");
        let endpoint = place.seat.endpoint();
        let read = Verb::Read { addr: line.found?.lock(), words: 2 };
        if endpoint.post(read) != Posted::Done(Ok(())) || is_awaited(endpoint.old()) {
            return None;
        }
        let token = token_of(place);
        line.hold = Hold::Shared(holders + 1);
        Some(token)
    }

    /// Opens the lock by a place that was idle.
    fn open(&self, line: &mut Line, place: &mut Place, mode: Mode) -> Result<Opened, AcquireError> {
        let addr = self.find(line, place)?;
        place.undate();
        place.seat.open(addr, mode).map_err(|fault| self.lost(self.hub.reason(fault)))
    }

    /// Where the lock's word lies; the name is entered in the region's directory where it is new.
    /// The place is aimed at it then.
    fn find(&self, line: &mut Line, place: &Place) -> Result<Addr, AcquireError> {
        if let Some(found) = line.found
            && place.seat.lock() == found.lock()
        {
            return Ok(found.lock());
        }
        match block_on(place.seat.endpoint(), self.enter(line.found, place)) {
            Ok(found) => {
                line.found = Some(found);
                Ok(found.lock())
            }
            Err(error) => {
                // A place that may be aimed at what was forgotten is not taken for one that is not.
                if line.hold == Hold::Nothing {
                    line.found = None;
                }
                Err(match error {
                    DirectoryError::Fabric(fault) => self.lost(self.hub.reason(fault)),
                    source => AcquireError::Directory { name: self.text.to_string(), source },
                })
            }
        }
    }

    async fn enter(
        &self,
        found: Option<Located>,
        place: &Place,
    ) -> Result<Located, DirectoryError> {
        let (directory, endpoint) = (&self.hub.directory, place.seat.endpoint());
        let aim = |lock| place.seat.aim(lock);
        if let Some(found) = found
            && directory.aim_again(endpoint, found, aim).await?
        {
            return Ok(found);
        }
        directory.enter(endpoint, &self.text, LOCK_KIND, aim).await
    }

    /// Begins to wait in line by a place that has opened the lock: as the thread that calls, or by
    /// the session's thread.
    fn ask(
        self: &Arc<Self>,
        mut line: BiasedGuard<'_, Line>,
        place: Box<Place>,
        mode: Mode,
        who: Who,
    ) -> Came {
        place.date();
        match who {
            Who::Thread { .. } => {
                let unparker = Region::unparker(place.seat.endpoint());
                line.asking = Asking::Thread(unparker);
                Came::Asks(place)
            }
            Who::Task => {
                let waiter = Arc::new(Waiter::new(mode, who));
                line.asking = Asking::Session(Some(Arc::clone(&waiter)));
                drop(line);
                self.hub.start(Job::new(self, Some(place)));
                Came::Waits(waiter)
            }
        }
    }

    /// The session holds the lock by this place from now on.
    fn install(&self, line: &mut Line, place: Box<Place>, mode: Mode) -> Token {
        let token = token_of(&place);
        self.date_hold(&place);
        match line.hold {
            Hold::Nothing => {
                line.hold = held(mode);
                if let Some(idle) = line.place.replace(place) {
                    self.give_back(idle);
                }
            }
            Hold::Shared(holders) => {
                assert_eq!(mode, Mode::Shared, "a lock excludes");
                line.hold = Hold::Shared(holders + 1);
                line.more.push(place);
            }
            Hold::Alone => panic!("a lock that is held alone was granted to another"),
        }
        token
    }

    /// A place does nothing any more: it is kept for the next acquisition, or goes back.
    fn recycle(&self, line: &mut Line, place: Box<Place>) {
        place.show_company(0);
        let is_aimed = line.found.is_some_and(|found| found.lock() == place.seat.lock());
        let is_kept = line.hold == Hold::Nothing
            && line.place.is_none()
            && is_aimed
            && place.is_idle()
            && (line.keeps || self.hub.pool.keep());
        if is_kept {
            line.keeps = true;
            line.place = Some(place);
        } else {
            self.give_back(place);
        }
    }

    fn give_back(&self, place: Box<Place>) {
        self.hub.give_back(place);
    }

    /// Nobody uses the name any more: its idle place goes back.
    pub(super) fn forget_place(&self) {
        let mut line = self.line();
        if std::mem::take(&mut line.keeps) {
            self.hub.pool.keep_no_more();
        }
        if let Some(place) = line.idle_place() {
            self.give_back(place);
        }
    }

    /// Whether the session's thread does something for this name.
    pub(super) fn is_served(&self) -> bool {
        matches!(self.line().asking, Asking::Session(_))
    }

    /// Notes since when the lock is held, for sessions that do.
    #[inline]
    fn date_hold(&self, place: &Place) {
        if self.hub.dates_holds { place.date() } else { place.undate() }
    }

    /// How what is held was lost, if it was.
    pub(super) fn look(&self) -> Option<LostReason> {
        if self.hub.is_forked() {
            return Some(LostReason::Forked);
        }
        if let Err(reason) = self.hub.check() {
            return Some(reason);
        }
        if !self.hub.finds_region_now() {
            return self.hub.check().err();
        }
        let line = self.line();
        let place = line.place.as_ref()?;
        if place.seat.is_broken() {
            return Some(LostReason::Fabric(Fault::Lost));
        }
        // A server tells of the region's end by itself, and a look would wait for the server.
        if self.hub.region.valid_for().is_some() {
            return None;
        }
        let endpoint = place.seat.endpoint();
        match endpoint.post(Verb::Read { addr: line.found?.lock(), words: 1 }) {
            Posted::Done(Err(fault)) => Some(self.hub.reason(fault)),
            _ => None,
        }
    }

    /// The tether of what is held.
    pub(super) fn tether(&self) -> Option<Tether> {
        self.line().place.as_ref()?.tether.clone()
    }

    #[inline]
    fn check_fork(&self) -> Result<(), AcquireError> {
        match self.hub.is_forked() {
            false => Ok(()),
            true => Err(AcquireError::Forked { name: self.text.to_string() }),
        }
    }

    pub(super) fn lost(&self, reason: LostReason) -> AcquireError {
        AcquireError::Lost { name: self.text.to_string(), reason }
    }

    /// The holders of the lock, for an error that may be shown later.
    pub(super) fn holders(&self) -> Holders {
        let lock = self.line().found.map(Located::lock);
        let hub = Arc::downgrade(&self.hub);
        Holders::new(hub, self.hub.region.clone(), lock)
    }
}

/// Whether others can see that a place holds. Of a hold alone the word says so when it is released.
#[inline(always)]
fn is_seen(place: &Place, mode: Mode) -> bool {
    mode == Mode::Exclusive || place.seat.is_seen_to_hold()
}

#[inline(always)]
fn close(place: &mut Place, is_seen: bool) -> Result<Closed, Fault> {
    if is_seen {
        return place.seat.close();
    }
    place.seat.forsake();
    Ok(Closed::Free)
}

fn is_awaited(word: u128) -> bool {
    lock_protocol(false).is_awaited(word)
}

impl After {
    /// Does what is left, when no mutex is held any more.
    fn run(self, hub: &Hub) {
        if let Some(job) = self.job {
            hub.start(job);
        }
        self.wakes.into_iter().for_each(Wake::now);
    }
}

impl Line {
    /// The place that is kept for the next acquisition, if it is idle.
    fn idle_place(&mut self) -> Option<Box<Place>> {
        if self.hold == Hold::Nothing { self.place.take() } else { None }
    }
}

// Attempts that do not wait.

impl Name {
    /// Acquires the lock if that needs no waiting. `None`: there is no idle place.
    #[inline]
    pub(super) fn try_acquire(&self, mode: Mode) -> Result<Option<Tried>, AcquireError> {
        self.check_fork()?;
        self.hub.check().map_err(|reason| self.lost(reason))?;
        let mut line = self.line();
        if line.hold == Hold::Alone || line.hold != Hold::Nothing && mode == Mode::Exclusive {
            return Ok(Some(Tried::Busy));
        }
        if line.waiters.is_empty()
            && let Some(token) = self.join(&mut line, mode)
        {
            return Ok(Some(Tried::Held(token)));
        }
        let Some(mut place) = line.idle_place().or_else(|| self.hub.pool.take()) else {
            return Ok(None);
        };
        let tried = self.try_open(&mut line, &mut place, mode);
        if let Ok(Attempt::Doubtful) = tried {
            return Ok(Some(Tried::Doubtful(place)));
        }
        self.tried(&mut line, place, mode, tried.map(|attempt| attempt == Attempt::Held)).map(Some)
    }

    fn try_open(
        &self,
        line: &mut Line,
        place: &mut Place,
        mode: Mode,
    ) -> Result<Attempt, AcquireError> {
        let addr = self.find(line, place)?;
        place.undate();
        place.seat.try_open(addr, mode).map_err(|fault| self.lost(self.hub.reason(fault)))
    }

    fn tried(
        &self,
        line: &mut Line,
        place: Box<Place>,
        mode: Mode,
        is_held: Result<bool, AcquireError>,
    ) -> Result<Tried, AcquireError> {
        if let Ok(true) = is_held {
            return Ok(Tried::Held(self.install(line, place, mode)));
        }
        self.recycle(line, place);
        is_held.map(|_| Tried::Busy)
    }

    /// An attempt that was in doubt is decided.
    pub(super) fn decided(
        &self,
        place: Box<Place>,
        mode: Mode,
        is_held: Result<bool, Fault>,
    ) -> Result<Tried, AcquireError> {
        let is_held = is_held.map_err(|fault| self.lost(self.hub.reason(fault)));
        self.tried(&mut self.line(), place, mode, is_held)
    }
}

// Releasing.

impl Name {
    /// Releases a hold, or hands it on to the next who waits here.
    #[inline]
    pub(super) fn release(self: &Arc<Self>, mode: Mode) -> Result<(), ReleaseError> {
        if self.hub.is_forked() {
            return Err(self.lost_hold(LostReason::Forked));
        }
        self.release_hold(mode)?;
        if self.hub.finds_region() {
            return Ok(());
        }
        Err(self.lost_hold(LostReason::without(&self.hub.region)))
    }

    /// Releases a hold of which nobody asks how that went.
    #[inline]
    pub(super) fn let_go(self: &Arc<Self>, mode: Mode) {
        if !self.hub.is_far || !self.release_unasked(mode) {
            // Nobody is there to be told; a region that is gone has nothing to release.
            let _ = self.release(mode);
        }
    }

    /// Releases a hold without a round trip, if nothing has to be done behind it.
    #[cold]
    fn release_unasked(&self, mode: Mode) -> bool {
        if mode != Mode::Exclusive || self.hub.is_forked() {
            return false;
        }
        let mut line = self.line();
        let is_last = line.waiters.is_empty() && line.hold == Hold::Alone && line.keeps;
        let place = line.place.as_mut().filter(|_| is_last);
        let is_released = place.is_some_and(|place| place.seat.close_unasked());
        if is_released {
            line.hold = Hold::Nothing;
        }
        is_released
    }

    #[inline(always)]
    fn release_hold(self: &Arc<Self>, mode: Mode) -> Result<(), ReleaseError> {
        let mut line = self.line();
        if line.waiters.is_empty() && line.hold == held(mode) {
            // Nobody of this session waits, and this is the last hold.
            let place = line.place.as_mut().expect("a hold has a place");
            let is_seen = is_seen(place, mode);
            let closed = close(place, is_seen);
            line.hold = Hold::Nothing;
            if closed == Ok(Closed::Free) && line.keeps && is_seen {
                return Ok(());
            }
            let place = line.place.take().expect("it has just closed");
            let released = self.close_slowly(line, place, closed);
            return released.and_then(|()| self.check_seen(is_seen));
        }
        self.release_slowly(line, mode)
    }

    #[cold]
    fn release_slowly(
        self: &Arc<Self>,
        mut line: BiasedGuard<'_, Line>,
        mode: Mode,
    ) -> Result<(), ReleaseError> {
        let mut place = match (line.hold, mode) {
            (Hold::Alone, Mode::Exclusive) => {
                let mut after = After::default();
                if self.hand_on(&mut line, &mut after) {
                    return self.finish(line, after, Ok(()));
                }
                line.hold = Hold::Nothing;
                line.place.take().expect("a hold has a place")
            }
            (Hold::Shared(holders), Mode::Shared) if holders > 1 => {
                line.hold = Hold::Shared(holders - 1);
                let Some(place) = line.more.pop() else {
                    let is_seen = line.place.as_ref().is_some_and(|place| is_seen(place, mode));
                    drop(line);
                    self.hub.check().map_err(|reason| self.lost_hold(reason))?;
                    return self.check_seen(is_seen);
                };
                place
            }
            (Hold::Shared(1), Mode::Shared) => {
                line.hold = Hold::Nothing;
                line.place.take().expect("a hold has a place")
            }
            (hold, mode) => panic!("a guard holds {mode:?}, its session {hold:?}"),
        };
        let is_seen = is_seen(&place, mode);
        let closed = close(&mut place, is_seen);
        self.close_slowly(line, place, closed)?;
        self.check_seen(is_seen)
    }

    fn check_seen(&self, is_seen: bool) -> Result<(), ReleaseError> {
        if is_seen { Ok(()) } else { Err(self.lost_hold(self.hub.taken_over())) }
    }

    /// Ends a release whose closing verb was executed.
    #[cold]
    fn close_slowly(
        self: &Arc<Self>,
        line: BiasedGuard<'_, Line>,
        place: Box<Place>,
        closed: Result<Closed, Fault>,
    ) -> Result<(), ReleaseError> {
        let mut released = Ok(());
        let (mut line, closed) = match closed {
            Ok(Closed::Free) => (line, Ok(())),
            Ok(Closed::InHand) => {
                drop(line);
                let handed = block_on(place.seat.endpoint(), place.seat.hand_over());
                if handed == Ok(false) {
                    released = Err(self.lost_hold(self.hub.taken_over()));
                }
                (self.line(), handed.map(|_| ()))
            }
            Err(fault) => (line, Err(fault)),
        };
        self.recycle(&mut line, place);
        let mut after = After::default();
        self.advance(&mut line, &mut after);
        self.finish(line, after, closed).and(released)
    }

    fn finish(
        &self,
        line: BiasedGuard<'_, Line>,
        after: After,
        released: Result<(), Fault>,
    ) -> Result<(), ReleaseError> {
        drop(line);
        after.run(&self.hub);
        match released {
            Err(fault) if !self.hub.ends_hold(fault) => Err(self.lost_hold(self.hub.reason(fault))),
            _ => Ok(()),
        }
    }

    pub(super) fn lost_hold(&self, reason: LostReason) -> ReleaseError {
        ReleaseError::Lost { name: self.text.to_string(), reason }
    }

    /// Hands a hold alone on to the first who waits here, if the lock lets it.
    fn hand_on(self: &Arc<Self>, line: &mut Line, after: &mut After) -> bool {
        // The asker stands before those that wait here.
        let Asking::Nobody = line.asking else { return false };
        let Some(mode) = line.first().map(|first| first.mode) else { return false };
        let place = line.place.as_mut().expect("a hold has a place");
        let goes_on = match mode {
            Mode::Exclusive => place.seat.renew(),
            Mode::Shared => place.seat.downgrade(),
        };
        if goes_on != Ok(true) {
            return false;
        }
        let place = line.place.as_ref().expect("a hold has a place");
        if self.hub.dates_holds || mode == Mode::Shared {
            place.date();
        } else {
            place.undate();
        }
        let token = token_of(place);
        let first = line.pop_first().expect("it was there");
        line.hold = held(mode);
        after.wakes.push(first.settle(Outcome::Granted(token)));
        self.admit(line, after);
        line.show_waiters();
        true
    }

    /// Lets those in who are next and share with who holds the lock shared.
    fn admit(self: &Arc<Self>, line: &mut Line, after: &mut After) {
        let Hold::Shared(mut holders) = line.hold else { return };
        let token = token_of(line.place.as_ref().expect("a hold has a place"));
        while line.first().is_some_and(|first| first.mode == Mode::Shared) {
            let next = line.pop_first().expect("it was there");
            holders += 1;
            after.wakes.push(next.settle(Outcome::Granted(token)));
        }
        line.hold = Hold::Shared(holders);
        self.advance(line, after);
    }

    /// Has the next who waits here ask, if nobody does and nobody holds the lock alone.
    fn advance(self: &Arc<Self>, line: &mut Line, after: &mut After) {
        while let Asking::Nobody = line.asking
            && line.hold != Hold::Alone
            && let Some(next) = line.pop_first()
        {
            let Some(mut place) = line.idle_place().or_else(|| self.hub.pool.take()) else {
                line.asking = Asking::Session(Some(next));
                after.job = Some(Job::new(self, None));
                return;
            };
            match self.open(line, &mut place, next.mode) {
                Ok(Opened::Held) => {
                    let token = self.install(line, place, next.mode);
                    after.wakes.push(next.settle(Outcome::Granted(token)));
                    return self.admit(line, after);
                }
                Ok(Opened::InLine) => return self.ask_for(line, place, next, after),
                Err(error) => {
                    self.recycle(line, place);
                    after.wakes.push(next.settle(Outcome::Failed(error)));
                }
            }
        }
    }

    /// Has a waiter ask by a place that has opened the lock.
    fn ask_for(
        self: &Arc<Self>,
        line: &mut Line,
        place: Box<Place>,
        waiter: Arc<Waiter>,
        after: &mut After,
    ) {
        place.date();
        match waiter.who {
            Who::Thread { .. } => {
                let unparker = Region::unparker(place.seat.endpoint());
                line.asking = Asking::Thread(unparker);
                after.wakes.push(waiter.settle(Outcome::Ask(place)));
            }
            Who::Task => {
                line.asking = Asking::Session(Some(waiter));
                after.job = Some(Job::new(self, Some(place)));
            }
        }
    }
}
