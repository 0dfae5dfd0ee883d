//! Verbs of a lock that are on their way: by a server each takes a round trip, for which no thread
//! of an executor is blocked. Those of many tasks travel together.
//!
//! While one is under way its caller has the place, and is the name's asker: those that come later
//! wait behind it. A caller that goes leaves the rest to the session's thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farlock_fabric::{Addr, BiasedGuard, Fault};
use farlock_locks::{Begun, Mode, Opened};

use super::Came;
use crate::error::{AcquireError, LostReason, ReleaseError};
use crate::protocol::{HELD_BACK, PATIENCE};
use crate::session::pool::{Place, UnderWay};
use crate::session::state::{Asking, Hold, Job, Line, Name, Patience};
use crate::session::waiter::Who;

// Opening.

impl Name {
    /// Opens a lock of a server by a place that is aimed at it. A thread waits for the verb, and
    /// keeps no other from the name meanwhile.
    pub(super) fn open_far(
        self: &Arc<Self>,
        mut line: BiasedGuard<'_, Line>,
        place: Box<Place>,
        lock: Addr,
        (mode, who): (Mode, Who),
    ) -> Result<Came, AcquireError> {
        place.undate();
        let endpoint = place.seat.endpoint();
        let begin = || endpoint.defer(|| place.seat.begin_open(lock, mode));
        let limit = match who {
            Who::Thread { limit } => limit,
            Who::Task => Some(Duration::ZERO),
        };
        // For one that gives up sooner a server holds nothing back.
        let is_patient = limit.is_none_or(|limit| limit >= HELD_BACK);
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let begun = if is_patient { endpoint.patiently(PATIENCE, begin) } else { begin() };
        match begun {
            Ok(Begun::Posted(ticket)) => {
                line.asking = Asking::Task;
                let under_way = UnderWay::new(place, ticket);
                if who == Who::Task {
                    return Ok(Came::IsUnderWay(Box::new(under_way)));
                }
                drop(line);
                match under_way.block(until) {
                    Some(completed) => self.opened(under_way, (mode, who), completed),
                    None => {
                        self.leave_under_way(under_way);
                        let patience = limit.map_or(Patience::Endless, Patience::For);
                        Err(patience.refused(&self.text, self.holders()))
                    }
                }
            }
            Ok(Begun::Done(Opened::Held)) => Ok(Came::Held(self.install(&mut line, place, mode))),
            Ok(Begun::Done(Opened::InLine)) => Ok(self.ask(line, place, mode, who)),
            Err(fault) => {
                self.recycle(&mut line, place);
                Err(self.lost(self.hub.reason(fault)))
            }
        }
    }

    /// The opening verb has completed.
    pub(in crate::session) fn opened(
        self: &Arc<Self>,
        under_way: UnderWay,
        (mode, who): (Mode, Who),
        completed: Result<(), Fault>,
    ) -> Result<Came, AcquireError> {
        let place = under_way.place;
        match place.seat.end_open(completed) {
            Ok(Opened::Held) => Ok(Came::Held(self.granted(place, mode))),
            Ok(Opened::InLine) => Ok(self.ask(self.line(), place, mode, who)),
            Err(fault) => {
                self.ask_no_more(place);
                Err(self.lost(self.hub.reason(fault)))
            }
        }
    }

    /// Its caller goes.
    pub(in crate::session) fn leave_under_way(self: &Arc<Self>, under_way: UnderWay) {
        let UnderWay { place, ticket, .. } = under_way;
        let mut line = self.line();
        line.asking = Asking::Session(line.pop_first());
        drop(line);
        let job = Job { sent: Some(ticket), ..Job::new(self, Some(place)) };
        self.hub.start(job);
    }
}

// Releasing.

/// How far a release by a server has come.
#[derive(Debug)]
pub(in crate::session) enum Released {
    /// Its verb is on its way.
    IsUnderWay(UnderWay),
    /// It has ended.
    Ended(Result<(), ReleaseError>),
}

impl Name {
    /// Releases a hold by a server, perhaps by a verb that is not waited for, or hands it on to the
    /// next who waits here.
    #[cold]
    pub(in crate::session) fn begin_release(self: &Arc<Self>, mode: Mode) -> Released {
        self.post_closing(mode).unwrap_or_else(|| Released::Ended(self.release(mode)))
    }

    /// `None`, and nothing was done: there is more to do than a verb.
    fn post_closing(self: &Arc<Self>, mode: Mode) -> Option<Released> {
        if mode != Mode::Exclusive || self.hub.is_forked() {
            return None;
        }
        let mut line = self.line();
        // A hold that was tried for, or upgraded, may be beside an asker.
        let Asking::Nobody = line.asking else { return None };
        if !line.waiters.is_empty() || line.hold != Hold::Alone {
            return None;
        }
        let place = line.place.take().expect("a hold has a place");
        line.hold = Hold::Nothing;
        let begun = place.seat.endpoint().defer(|| place.seat.begin_close());
        Some(match begun {
            Ok(Begun::Posted(ticket)) => {
                line.asking = Asking::Task;
                Released::IsUnderWay(UnderWay::new(place, ticket))
            }
            Ok(Begun::Done(closed)) => Released::Ended(self.close_slowly(line, place, Ok(closed))),
            Err(fault) => Released::Ended(self.close_slowly(line, place, Err(fault))),
        })
    }

    /// The closing verb has completed.
    pub(in crate::session) fn closed(
        self: &Arc<Self>,
        under_way: UnderWay,
        completed: Result<(), Fault>,
    ) -> Result<(), ReleaseError> {
        let place = under_way.place;
        let closed = place.seat.end_close(completed);
        let mut line = self.line();
        line.asking = Asking::Nobody;
        self.close_slowly(line, place, closed)?;
        match self.hub.finds_region() {
            true => Ok(()),
            false => Err(self.lost_hold(LostReason::without(&self.hub.region))),
        }
    }

    /// The same, blocking this thread until it has.
    pub(in crate::session) fn close_blocking(
        self: &Arc<Self>,
        under_way: UnderWay,
    ) -> Result<(), ReleaseError> {
        let endpoint = under_way.place.seat.endpoint();
        let completed = endpoint.complete(under_way.ticket);
        self.closed(under_way, completed)
    }
}
