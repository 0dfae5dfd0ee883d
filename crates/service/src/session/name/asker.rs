//! Who stands in line for a name: a thread by itself, or the session's thread for others.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use farlock_fabric::{BiasedGuard, Connection as _, Endpoint, Fault, Posted, Ticket, block_on};
use farlock_locks::{Closed, Mode, Opened, Token};

use super::{After, Tried};
use crate::connection::Region;
use crate::error::{AcquireError, LostReason};
use crate::session::pool::{Place, PlaceCell};
use crate::session::progress::{Deciding, LOOK_FOR_REGION_NS};
use crate::session::state::{Asking, Job, Line, Name, Patience};
use crate::session::waiter::{Outcome, Waiter};

/// How a thread's wait in line ended.
enum End {
    /// As the lock says.
    Waited(Result<bool, Fault>),
    /// The session has ended.
    Lost(LostReason),
    /// The deadline has passed.
    Elapsed,
}

// A thread asks.

impl Name {
    /// Waits in line by a place that has opened the lock, blocking this thread. `None`: the
    /// deadline has passed.
    pub(in crate::session) fn wait_in_line(
        self: &Arc<Self>,
        mode: Mode,
        place: Box<Place>,
        deadline: Option<Instant>,
    ) -> Result<Option<Token>, AcquireError> {
        match self.block_in_line(&place, deadline) {
            End::Waited(Ok(true)) => Ok(Some(self.granted(place, mode))),
            End::Waited(Ok(false)) => panic!("a thread that waits does not withdraw"),
            End::Waited(Err(fault)) => {
                self.ask_no_more(place);
                Err(self.lost(self.hub.reason(fault)))
            }
            End::Lost(reason) => {
                self.ask_no_more(place);
                Err(self.lost(reason))
            }
            End::Elapsed => Ok(self.leave_line(mode, place)),
        }
    }

    fn block_in_line(&self, place: &Place, deadline: Option<Instant>) -> End {
        let endpoint = place.seat.endpoint();
        let mut wait = pin!(place.seat.wait());
        let mut sleep = deadline.map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            endpoint.sleep(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))
        });
        // It looks itself whether the region is there: to wake the session's thread for that takes
        // longer than most waits.
        let mut look = (!self.hub.is_far).then(|| endpoint.sleep(LOOK_FOR_REGION_NS));
        let end = poll_fn(|cx| {
            if let Poll::Ready(waited) = wait.as_mut().poll(cx) {
                return Poll::Ready(End::Waited(waited));
            }
            while let Some(sleep) = &mut look
                && Pin::new(sleep).poll(cx).is_ready()
            {
                look = self.hub.finds_region_now().then(|| endpoint.sleep(LOOK_FOR_REGION_NS));
            }
            if let Err(reason) = self.hub.check() {
                return Poll::Ready(End::Lost(reason));
            }
            let elapsed = sleep.as_mut().is_some_and(|sleep| Pin::new(sleep).poll(cx).is_ready());
            if elapsed { Poll::Ready(End::Elapsed) } else { Poll::Pending }
        });
        block_on(endpoint, end)
    }

    /// The asker was granted the lock.
    pub(super) fn granted(self: &Arc<Self>, place: Box<Place>, mode: Mode) -> Token {
        let mut line = self.line();
        line.asking = Asking::Nobody;
        let token = self.install(&mut line, place, mode);
        let mut after = After::default();
        self.admit(&mut line, &mut after);
        drop(line);
        after.run(&self.hub);
        token
    }

    /// The asker left the line, or was turned away: the next one asks.
    pub(super) fn ask_no_more(self: &Arc<Self>, place: Box<Place>) {
        let mut line = self.line();
        line.asking = Asking::Nobody;
        self.recycle(&mut line, place);
        let mut after = After::default();
        self.advance(&mut line, &mut after);
        drop(line);
        after.run(&self.hub);
    }

    /// The asker gives up. Others of this session go on in its place; or it leaves the line, where
    /// it can, or the session's thread does later. Returns a token if it was granted meanwhile.
    fn leave_line(self: &Arc<Self>, mode: Mode, place: Box<Place>) -> Option<Token> {
        let mut line = self.line();
        if let Some(next) = line.pop_first() {
            self.leave_to_session(line, place, Some(next));
            return None;
        }
        drop(line);
        place.seat.withdraw(true);
        let mut cx = Context::from_waker(Waker::noop());
        let polled = pin!(place.seat.wait()).poll(&mut cx);
        match polled {
            Poll::Ready(Ok(true)) => return Some(self.granted(place, mode)),
            Poll::Ready(Ok(false) | Err(_)) => self.ask_no_more(place),
            Poll::Pending => {
                let mut line = self.line();
                let next = line.pop_first();
                self.leave_to_session(line, place, next);
            }
        }
        None
    }

    fn leave_to_session(
        self: &Arc<Self>,
        mut line: BiasedGuard<'_, Line>,
        place: Box<Place>,
        waiter: Option<Arc<Waiter>>,
    ) {
        line.asking = Asking::Session(waiter);
        drop(line);
        self.hub.start(Job::new(self, Some(place)));
    }

    /// A waiter gives up. Returns what has become of it, if anything had.
    pub(in crate::session) fn cancel(&self, waiter: &Arc<Waiter>) -> Option<Outcome> {
        let mut line = self.line();
        if let Some(outcome) = waiter.outcome() {
            return Some(outcome);
        }
        if line.waiters.remove(&waiter.ticket()).is_some() {
            line.show_waiters();
            return None;
        }
        if let Asking::Session(Some(asker)) = &line.asking
            && Arc::ptr_eq(asker, waiter)
        {
            line.asking = Asking::Session(line.pop_first());
            drop(line);
            self.hub.nudge();
        }
        None
    }

    /// The session has ended: everybody who waits is told.
    pub(in crate::session) fn end(&self, reason: LostReason) {
        let mut line = self.line();
        let mut failed: Vec<Arc<Waiter>> =
            std::mem::take(&mut line.waiters).into_values().collect();
        match &mut line.asking {
            // A verb under way ends with its place.
            Asking::Nobody | Asking::Task => {}
            Asking::Thread(unparker) => Region::unpark(unparker),
            Asking::Session(waiter) => failed.extend(waiter.take()),
        }
        let fail = |waiter: Arc<Waiter>| waiter.settle(Outcome::Failed(self.lost(reason)));
        let wakes = failed.into_iter().map(fail).collect();
        drop(line);
        After { wakes, job: None }.run(&self.hub);
    }
}

// The session's thread asks.

/// What is left of a job.
enum Next {
    /// To await the verb under way.
    Await(Ticket),
    /// To wait in line.
    Wait,
    /// To open the lock again.
    Open,
}

impl Name {
    /// Asks for the waiter of [`Asking::Session`], until that one has the lock, or nobody wants it
    /// and the line is left.
    pub(in crate::session) async fn serve(
        self: Arc<Self>,
        cell: Rc<PlaceCell>,
        sent: Option<Ticket>,
    ) {
        let is_in_line = cell.look().is_some_and(|place| place.seat.is_in_line());
        let mut next = match sent {
            Some(ticket) => Next::Await(ticket),
            None if is_in_line => Next::Wait,
            None => Next::Open,
        };
        loop {
            let more = match next {
                Next::Await(ticket) => {
                    let completed = await_verb(&cell, ticket).await;
                    self.sent_is_done(&cell, completed).await
                }
                Next::Open => self.open_for(cell.take()).map(|place| (place, Next::Wait)),
                Next::Wait => {
                    let waited = self.serve_in_line(&cell).await;
                    self.served(cell.take(), waited)
                }
            };
            let Some((place, then)) = more else { return };
            cell.put(place);
            next = then;
        }
    }

    /// The verb is done that a caller left behind: one that closes what its place holds, or else
    /// opens the lock.
    async fn sent_is_done(
        self: &Arc<Self>,
        cell: &PlaceCell,
        completed: Result<(), Fault>,
    ) -> Option<(Box<Place>, Next)> {
        let place = cell.look().expect("the place of the verb");
        if place.seat.is_held() {
            if let Ok(Closed::InHand) = place.seat.end_close(completed) {
                // Nobody is there to be told how it went.
                let _ = place.seat.hand_over().await;
            }
            drop(place);
            return Some((cell.take(), Next::Open));
        }
        drop(place);
        let place = cell.take();
        match place.seat.end_open(completed) {
            Ok(Opened::Held) => self.settle_granted(place),
            Ok(Opened::InLine) => {
                place.date();
                Some((place, Next::Wait))
            }
            Err(fault) => {
                self.fail_asker(Some(place), self.lost(self.hub.reason(fault)));
                None
            }
        }
    }

    /// Decides an attempt that is in doubt, for a task.
    pub(in crate::session) async fn decide(
        self: Arc<Self>,
        cell: Rc<PlaceCell>,
        waiter: Arc<Waiter>,
    ) {
        let deciding = Deciding { name: self, waiter };
        let (this, waiter) = (&deciding.name, &deciding.waiter);
        let is_held = decide_at(&cell).await;
        let outcome = match this.decided(cell.take(), waiter.mode, is_held) {
            Ok(Tried::Held(token)) => Outcome::Granted(token),
            Ok(_) => Outcome::Failed(Patience::None.refused(&this.text, this.holders())),
            Err(error) => Outcome::Failed(error),
        };
        match waiter.offer(outcome) {
            Ok(wake) => wake.now(),
            // Nobody wants it any more, nor how its release went.
            Err(Outcome::Granted(_)) => drop(this.release(waiter.mode)),
            Err(_) => {}
        }
    }

    /// Waits in line in the mode that is wanted at last. `None`: in another mode.
    async fn serve_in_line(&self, cell: &PlaceCell) -> Option<Result<bool, Fault>> {
        let place = cell.look().expect("a place that waits");
        let mut wait = pin!(place.seat.wait());
        poll_fn(|cx| {
            let wanted = self.wanted();
            place.seat.withdraw(wanted.is_none());
            if wanted.is_some_and(|mode| mode != place.seat.mode()) {
                return Poll::Ready(None);
            }
            wait.as_mut().poll(cx).map(Some)
        })
        .await
    }

    /// In which mode the session's thread is to ask; `None`: not any more.
    fn wanted(&self) -> Option<Mode> {
        match &self.line().asking {
            Asking::Session(waiter) => waiter.as_ref().map(|waiter| waiter.mode),
            Asking::Nobody | Asking::Task | Asking::Thread(..) => {
                panic!("the session's thread asks")
            }
        }
    }

    /// What comes after a wait.
    fn served(
        self: &Arc<Self>,
        place: Box<Place>,
        waited: Option<Result<bool, Fault>>,
    ) -> Option<(Box<Place>, Next)> {
        match waited {
            None => {
                if let Some(mode) = self.wanted() {
                    place.seat.wait_as(mode);
                }
                Some((place, Next::Wait))
            }
            Some(Ok(true)) => self.settle_granted(place),
            Some(Ok(false)) => Some((place, Next::Open)),
            Some(Err(fault)) => {
                self.fail_asker(Some(place), self.lost(self.hub.reason(fault)));
                None
            }
        }
    }

    /// The lock was granted: to the waiter, or to nobody any more.
    fn settle_granted(self: &Arc<Self>, mut place: Box<Place>) -> Option<(Box<Place>, Next)> {
        let mut line = self.line();
        let Asking::Session(wanted) = &mut line.asking else {
            panic!("the session's thread asks");
        };
        let mode = wanted.as_ref().map(|waiter| waiter.mode);
        if mode.is_some_and(|mode| fit(&mut place, mode)) {
            let waiter = wanted.take().expect("it is wanted");
            line.asking = Asking::Nobody;
            self.grant(line, place, &waiter);
            return None;
        }
        drop(line);
        if let Ok(Closed::InHand) = place.seat.close() {
            // Whether it went well shows in the next verb.
            let _ = block_on(place.seat.endpoint(), place.seat.hand_over());
        }
        Some((place, Next::Open))
    }

    /// The waiter holds by this place from now on, and those that share with it.
    fn grant(
        self: &Arc<Self>,
        mut line: BiasedGuard<'_, Line>,
        place: Box<Place>,
        waiter: &Waiter,
    ) {
        let token = self.install(&mut line, place, waiter.mode);
        let mut after = After::default();
        after.wakes.push(waiter.settle(Outcome::Granted(token)));
        self.admit(&mut line, &mut after);
        drop(line);
        after.run(&self.hub);
    }

    /// Opens the lock for the waiter, if there is one. Returns the place if that is in line.
    pub(in crate::session) fn open_for(
        self: &Arc<Self>,
        mut place: Box<Place>,
    ) -> Option<Box<Place>> {
        let mut line = self.line();
        let Asking::Session(Some(waiter)) = &line.asking else {
            drop(line);
            self.ask_no_more(place);
            return None;
        };
        let waiter = Arc::clone(waiter);
        match self.open(&mut line, &mut place, waiter.mode) {
            Ok(Opened::InLine) => {
                place.date();
                return Some(place);
            }
            Ok(Opened::Held) => {
                line.asking = Asking::Nobody;
                self.grant(line, place, &waiter);
            }
            Err(error) => {
                drop(line);
                self.fail_asker(Some(place), error);
            }
        }
        None
    }

    /// The asker is turned away.
    pub(in crate::session) fn fail_asker(
        self: &Arc<Self>,
        place: Option<Box<Place>>,
        error: AcquireError,
    ) {
        let mut line = self.line();
        let asking = std::mem::replace(&mut line.asking, Asking::Nobody);
        let mut after = After::default();
        if let Asking::Session(Some(waiter)) = asking {
            after.wakes.push(waiter.settle(Outcome::Failed(error)));
        }
        if let Some(place) = place {
            self.recycle(&mut line, place);
        }
        self.advance(&mut line, &mut after);
        drop(line);
        after.run(&self.hub);
    }
}

/// Awaits the verb of the place that lies here.
async fn await_verb(cell: &PlaceCell, ticket: Ticket) -> Result<(), Fault> {
    let place = cell.look().expect("the place of the verb");
    place.seat.endpoint().completion(Posted::Pending(ticket)).await
}

/// Decides the attempt in doubt of the place that lies here.
async fn decide_at(cell: &PlaceCell) -> Result<bool, Fault> {
    let place = cell.look().expect("the place of an attempt");
    place.seat.try_beside().await
}

/// Makes what a place holds a hold in this mode, if it can.
fn fit(place: &mut Place, mode: Mode) -> bool {
    let fits = match (place.seat.mode(), mode) {
        (Mode::Exclusive, Mode::Shared) => place.seat.downgrade(),
        (Mode::Shared, Mode::Exclusive) => place.seat.try_upgrade(),
        _ => Ok(true),
    };
    fits == Ok(true)
}

// From one mode to the other.

impl Name {
    /// Makes a hold alone a shared one. Returns its token; `None`, and nothing has changed.
    pub(in crate::session) fn downgrade(self: &Arc<Self>) -> Option<Token> {
        let mut line = self.line();
        let place = line.place.as_mut().expect("a hold has a place");
        if place.seat.downgrade() != Ok(true) {
            return None;
        }
        let token = super::token_of(place);
        line.hold = super::Hold::Shared(1);
        let mut after = After::default();
        self.admit(&mut line, &mut after);
        drop(line);
        after.run(&self.hub);
        Some(token)
    }

    /// Makes a shared hold one alone, if nobody else holds the lock. Returns its token; `None`, and
    /// nothing has changed.
    pub(in crate::session) fn try_upgrade(&self) -> Option<Token> {
        let mut line = self.line();
        if line.hold != super::Hold::Shared(1) {
            return None;
        }
        let place = line.place.as_mut().expect("a hold has a place");
        if place.seat.try_upgrade() != Ok(true) {
            return None;
        }
        let token = super::token_of(place);
        line.hold = super::Hold::Alone;
        Some(token)
    }
}
