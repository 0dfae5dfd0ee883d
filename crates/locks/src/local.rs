//! Local handover: the tasks of one client pass a lock among themselves before they give it back.
//!
#![doc = include_str!("../../../docs/protocols/local.md")]

mod place;
mod together;

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::task::Poll;

use farlock_fabric::{Addr, Endpoint, Nanos};

use crate::client::{self, Client};
use crate::lock::{Lock, true_want};
use crate::token::Token;
use crate::wait::within;
use crate::want::{Mode, Want};
use crate::{AcquireError, ReleaseError};

use place::{Answer, Places, Waiter};
pub use together::together;

/// How often a hold is handed on by default (Sherman, SIGMOD'22, section 4.3, and SMART after it).
pub const HANDOVERS_MAX: u32 = 8;

/// A lock, or a part of one, whatever the mode.
type Key<E, L> = (Addr, <L as Lock<E>>::Want);

/// A client and the locks that its tasks hold or await: its local lock table.
///
/// Every client of a lock must use such a table, or none must: they make different tokens of one
/// count. Tables of one lock may differ in how often they hand on. Clones share everything.
///
/// Tasks wake each other by the wakers that they are polled with. Where those do nothing, as in
/// [`Client::block_on`], run them [`together`].
pub struct HandoverTable<E: Endpoint, L: Lock<E>> {
    client: Client<E, L>,
    places: Rc<RefCell<Places<Key<E, L>>>>,
}

impl<E: Endpoint, L: Lock<E>> HandoverTable<E, L> {
    /// The most that `handovers_max` may be: a token tells so many turns apart.
    pub const HANDOVERS_LIMIT: u32 = (1 << Token::TURN_BITS) - 1;

    /// A table of this client, of which each hold is handed on at most `handovers_max` times before
    /// it is given back to the fabric; 0 for never: then nobody waits for another task.
    ///
    /// # Panics
    /// If `handovers_max` is above [`HandoverTable::HANDOVERS_LIMIT`].
    pub fn new(client: Client<E, L>, handovers_max: u32) -> Self {
        assert!(handovers_max <= Self::HANDOVERS_LIMIT, "a token has room for each turn");
        Self { client, places: Rc::new(RefCell::new(Places::new(handovers_max))) }
    }

    /// The client. It settles what dropped acquisitions, guards and releases left behind.
    pub fn client(&self) -> &Client<E, L> {
        &self.client
    }

    /// Acquires the lock whose word lies at `lock`: from a task of this client that has it, or from
    /// the fabric. Writers among the tasks are granted in the order in which they came.
    ///
    /// Dropping the future withdraws. A crash leaves what it leaves of the client.
    ///
    /// # Errors
    /// As [`Client::acquire`]. A task that waits for another takes no slot; one that asks the
    /// fabric does.
    pub async fn acquire(
        &self,
        lock: Addr,
        want: impl Into<L::Want>,
    ) -> Result<Guard<'_, E, L>, AcquireError> {
        let want = true_want::<E, L>(want.into());
        let key = (lock, want.in_mode(Mode::Exclusive));
        let entered = self.places.borrow_mut().enter(key, want.mode());
        let answer = match entered {
            Ok(answer) => answer,
            Err(waiter) => Waiting { table: self, lock: key, waiter: Some(waiter) }.answer().await,
        };
        let lead = match answer {
            Answer::Held { index, turn } => {
                return Ok(Guard { table: self, lock: key, index, turn });
            }
            Answer::Leads => Lead { table: self, lock: key },
        };
        let granted = self.client.acquire(lock, want).await?;
        Ok(lead.granted(granted))
    }

    /// Acquires the lock, or gives up with [`AcquireError::TimedOut`] after `nanos` nanoseconds.
    ///
    /// # Errors
    /// As [`Client::acquire_within`].
    pub async fn acquire_within(
        &self,
        lock: Addr,
        want: impl Into<L::Want>,
        nanos: Nanos,
    ) -> Result<Guard<'_, E, L>, AcquireError> {
        let acquired = within(self.client.endpoint(), nanos, self.acquire(lock, want)).await;
        acquired.unwrap_or(Err(AcquireError::TimedOut))
    }

    /// Acquires the lock if that needs no waiting; `None` if another holder has it.
    ///
    /// # Errors
    /// As [`Client::try_acquire`].
    pub async fn try_acquire(
        &self,
        lock: Addr,
        want: impl Into<L::Want>,
    ) -> Result<Option<Guard<'_, E, L>>, AcquireError> {
        let want = true_want::<E, L>(want.into());
        let key = (lock, want.in_mode(Mode::Exclusive));
        let entered = self.places.borrow_mut().try_enter(key, want.mode());
        let lead = match entered {
            None => return Ok(None),
            Some(Answer::Held { index, turn }) => {
                return Ok(Some(Guard { table: self, lock: key, index, turn }));
            }
            Some(Answer::Leads) => Lead { table: self, lock: key },
        };
        let granted = self.client.try_acquire(lock, want).await?;
        Ok(granted.map(|granted| lead.granted(granted)))
    }

    /// A task lets go of its hold, which another may get if it `hands_on`. If nobody here has it
    /// then: the client's own guard.
    fn leaves(
        &self,
        lock: Key<E, L>,
        index: u8,
        hands_on: bool,
    ) -> Option<client::Guard<'_, E, L>> {
        let released = self.places.borrow_mut().leaves(lock, index, hands_on);
        released.then(|| client::Guard::of_slot(&self.client, index))
    }
}

impl<E: Endpoint, L: Lock<E>> Clone for HandoverTable<E, L> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), places: Rc::clone(&self.places) }
    }
}

impl<E: Endpoint, L: Lock<E>> fmt::Debug for HandoverTable<E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandoverTable").field("client", &self.client).finish_non_exhaustive()
    }
}

/// A task in line here. Dropped, it leaves the line, and what it was given meanwhile goes on.
struct Waiting<'t, E: Endpoint, L: Lock<E>> {
    table: &'t HandoverTable<E, L>,
    lock: Key<E, L>,
    /// `None` once its answer was taken.
    waiter: Option<Rc<Waiter>>,
}

impl<E: Endpoint, L: Lock<E>> Waiting<'_, E, L> {
    async fn answer(mut self) -> Answer {
        poll_fn(|cx| {
            let waiter = self.waiter.as_ref().expect("a finished wait is not polled again");
            let Some(answer) = waiter.poll(cx) else { return Poll::Pending };
            self.waiter = None;
            Poll::Ready(answer)
        })
        .await
    }
}

impl<E: Endpoint, L: Lock<E>> Drop for Waiting<'_, E, L> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        match waiter.answer() {
            None => self.table.places.borrow_mut().withdraws(self.lock, &waiter),
            Some(Answer::Leads) => drop(Lead { table: self.table, lock: self.lock }),
            Some(Answer::Held { index, .. }) => {
                drop(self.table.leaves(self.lock, index, true));
            }
        }
    }
}

/// A task that asks the fabric for all that are in line here. Dropped before it was granted the
/// lock, it leaves that to the next.
struct Lead<'t, E: Endpoint, L: Lock<E>> {
    table: &'t HandoverTable<E, L>,
    lock: Key<E, L>,
}

impl<'t, E: Endpoint, L: Lock<E>> Lead<'t, E, L> {
    fn granted(self, granted: client::Guard<'_, E, L>) -> Guard<'t, E, L> {
        // What is left of a hold that ends by itself is not for others.
        let lasts = granted.expires().is_none();
        let (mode, index) = (granted.mode(), granted.into_slot());
        let this = ManuallyDrop::new(self);
        this.table.places.borrow_mut().granted(this.lock, mode, index, lasts);
        Guard { table: this.table, lock: this.lock, index, turn: 0 }
    }
}

impl<E: Endpoint, L: Lock<E>> Drop for Lead<'_, E, L> {
    fn drop(&mut self) {
        self.table.places.borrow_mut().leads_no_more(self.lock);
    }
}

/// A lock held by a task. Release it with [`Guard::release`]. A dropped guard is released by
/// [`Client::settle`] and not handed on: the task that drops it may not have come to an end, and
/// what that task has posted may still take effect.
#[must_use = "a lock is held as long as its guard lives"]
pub struct Guard<'t, E: Endpoint, L: Lock<E>> {
    table: &'t HandoverTable<E, L>,
    lock: Key<E, L>,
    /// The slot of the client's own hold.
    index: u8,
    turn: u32,
}

impl<E: Endpoint, L: Lock<E>> Guard<'_, E, L> {
    /// The fencing token of this grant, which is above that of every earlier exclusive one; `None`
    /// if this kind of lock has none. See [`Token::at_turn`].
    pub fn token(&self) -> Option<Token> {
        self.fabric_token().map(|token| token.at_turn(self.turn))
    }

    /// The token of the client's own hold, which all have in common to whom it is handed on.
    pub fn fabric_token(&self) -> Option<Token> {
        self.inner().token()
    }

    /// How often the hold was handed on before this grant.
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// In which mode the lock is held.
    pub fn mode(&self) -> Mode {
        self.inner().mode()
    }

    /// When this hold ends by itself, if it does: see [`client::Guard::expires`](crate::Guard).
    pub fn expires(&self) -> Option<Nanos> {
        self.inner().expires()
    }

    /// Releases the lock: it is free, or another task of this client has it, when the future
    /// resolves. Dropped earlier, the release goes on in [`Client::settle`].
    ///
    /// # Errors
    /// As of the client's own guard.
    pub async fn release(self) -> Result<(), ReleaseError> {
        let this = ManuallyDrop::new(self);
        match this.table.leaves(this.lock, this.index, true) {
            Some(guard) => guard.release().await,
            None => Ok(()),
        }
    }

    /// Lets go of a hold that ends by itself without releasing it: as of the client's own guard,
    /// once the last task that shares the hold lets go of it.
    ///
    /// # Panics
    /// As of the client's own guard.
    pub fn abandon(self) {
        let this = ManuallyDrop::new(self);
        if let Some(guard) = this.table.leaves(this.lock, this.index, false) {
            guard.abandon();
        }
    }

    /// The client's own guard, to be looked at.
    fn inner(&self) -> ManuallyDrop<client::Guard<'_, E, L>> {
        ManuallyDrop::new(client::Guard::of_slot(&self.table.client, self.index))
    }
}

impl<E: Endpoint, L: Lock<E>> fmt::Debug for Guard<'_, E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at turn {}", *self.inner(), self.turn)
    }
}

impl<E: Endpoint, L: Lock<E>> Drop for Guard<'_, E, L> {
    fn drop(&mut self) {
        drop(self.table.leaves(self.lock, self.index, false));
    }
}
