//! What the session's thread does for ranges: it waits for tasks, and for those that gave up. By a
//! server it does all that tasks ask for, of many at a time: each verb is a round trip, for which
//! no thread of an executor is blocked.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use super::table::wait;
use crate::error::{AcquireError, LostReason};
use crate::protocol::RangeProtocol;
use crate::session::pool::{AnyCell, PlaceCell};
use crate::session::state::{Ending, Errand, RangeAsking, RangeJob, Released, Table};
use crate::session::waiter::Fate;

impl RangeAsking {
    /// Of which table it was asked, if nobody wants it any more.
    pub(in crate::session) fn left(&self) -> Option<&str> {
        self.fate.is_gone().then(|| self.table.name())
    }
}

/// A task of the session's thread, and where the place lies by which it waits.
type Begun = (Rc<dyn AnyCell>, Pin<Box<dyn Future<Output = ()>>>);

impl Table {
    /// Leaves something for the session's thread to do.
    pub(super) fn start(self: &Arc<Self>, errand: Errand) {
        self.hub().start(RangeJob { table: Arc::clone(self), errand });
    }
}

impl RangeJob {
    /// The session has ended before it began.
    pub(in crate::session) fn refuse(self, reason: LostReason) {
        let error = self.table.lost(reason);
        self.fail(error);
    }

    /// It is not done.
    pub(in crate::session) fn fail(self, error: AcquireError) {
        let Self { table, errand } = self;
        match errand {
            Errand::Acquire { place, fate, .. } => {
                place.into_iter().for_each(|place| table.recycle(place));
                tell(&table, Some(&fate), Err(error));
            }
            Errand::Wait { place, fate, .. } => {
                table.recycle(place);
                tell(&table, fate.as_deref(), Err(error));
            }
            // What is held ends with the session.
            Errand::Release { fate, .. } => drop(TellingReleased { table, fate }),
        }
    }

    /// What it is as an acquisition by a server, if it is one.
    pub(in crate::session) fn asking(&self) -> Option<RangeAsking> {
        match &self.errand {
            Errand::Acquire { fate, .. } => {
                Some(RangeAsking { table: Arc::clone(&self.table), fate: Arc::clone(fate) })
            }
            Errand::Wait { .. } | Errand::Release { .. } => None,
        }
    }

    /// It was given up before it began: nothing was asked.
    pub(in crate::session) fn forget(self) {
        let Self { table, errand } = self;
        if let Errand::Acquire { place: Some(place), .. } = errand {
            table.recycle(place);
        }
    }

    /// Whether it has a place; if it has none it takes an idle one.
    pub(in crate::session) fn has_place(&mut self) -> bool {
        match &mut self.errand {
            Errand::Acquire { place, .. } => {
                *place = place.take().or_else(|| self.table.idle_place());
                place.is_some()
            }
            Errand::Wait { .. } | Errand::Release { .. } => true,
        }
    }

    /// The same as a task of the session's thread.
    pub(in crate::session) fn begin(self) -> Begun {
        let Self { table, errand } = self;
        let cell = Rc::new(PlaceCell::empty());
        let own = Rc::clone(&cell);
        match errand {
            Errand::Acquire { want, tries, place, fate } => {
                cell.put(place.expect("it was given one"));
                let telling = Telling { table, fate: Some(Arc::clone(&fate)) };
                let future = async move {
                    let ending = telling.table.acquire_at(&own, want, tries, &fate).await;
                    tell(&telling.table, Some(&fate), ending);
                };
                (cell, Box::pin(future))
            }
            Errand::Wait { place, fate, tries } => {
                cell.put(place);
                (cell, Box::pin(wait_at(own, Telling { table, fate }, tries)))
            }
            Errand::Release { held, fate } => {
                let telling = TellingReleased { table, fate };
                let future = async move {
                    let mut released = Ok(());
                    for by in held {
                        released = released.and(telling.table.release_at(&own, by).await);
                    }
                    telling.tell(released);
                };
                (cell, Box::pin(future))
            }
        }
    }
}

/// Goes on with a wait, or an attempt, of the place that lies here.
async fn wait_at(cell: Rc<PlaceCell<RangeProtocol>>, telling: Telling, tries: bool) {
    let (table, fate) = (&telling.table, telling.fate.as_deref());
    let place = cell.look().expect("a place that waits, or that of an attempt");
    let is_held = match tries {
        true => place.seat.try_beside().await,
        false => wait(&place, fate).await,
    };
    drop(place);
    tell(table, fate, table.ended(cell.take(), is_held.map_err(|fault| table.failed(fault))));
}

/// Tells a task what became of it. One that has gone wants nothing any more.
fn tell(table: &Arc<Table>, fate: Option<&Fate<Ending>>, ending: Ending) {
    let left = match fate {
        Some(fate) => fate.offer_last(ending),
        None => Err(ending),
    };
    match left {
        Ok(wake) => wake.now(),
        Err(Ok(Some(grant))) => table.let_go(grant.by),
        Err(_) => {}
    }
}

/// A task that waits is told, however the session's thread ends.
struct Telling {
    table: Arc<Table>,
    fate: Option<Arc<Fate<Ending>>>,
}

impl Drop for Telling {
    fn drop(&mut self) {
        let error = self.table.lost(reason(&self.table));
        tell(&self.table, self.fate.as_deref(), Err(error));
    }
}

/// The same of one that waits for a release.
struct TellingReleased {
    table: Arc<Table>,
    fate: Option<Arc<Fate<Released>>>,
}

impl TellingReleased {
    fn tell(&self, released: Released) {
        if let Some(Ok(wake)) = self.fate.as_ref().map(|fate| fate.offer_last(released)) {
            wake.now();
        }
    }
}

impl Drop for TellingReleased {
    fn drop(&mut self) {
        self.tell(Err(self.table.lost_hold(reason(&self.table))));
    }
}

fn reason(table: &Table) -> LostReason {
    table.hub().check().err().unwrap_or(LostReason::SessionEnded)
}
