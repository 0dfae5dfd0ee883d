//! A seat: one place in line, whose owner acquires or holds by it.
//!
//! A [`Client`](crate::Client) serves the tasks of one thread. A seat serves nobody in particular:
//! it is a value, `Send` where its endpoint is, and what it does it does for its owner, on the
//! thread that calls it. It holds or awaits one lock at a time. The uncontended cycle is
//! [`Seat::open`] and [`Seat::close`]: a verb each.
//!
//! Every verb of its endpoint completes at once ([`Endpoint::COMPLETES_IN_POST`]), so that only
//! waiting for others waits; but for those of an owner that has its endpoint wait for none. Such an
//! owner is told which verb is on its way ([`Seat::begin_open`], [`Seat::begin_close`]), and drops
//! no acquisition or handover before it has ended.
//!
//! Where the lock withdraws ([`Promises::withdraws`]) a wait may be dropped at any point, and
//! another one, maybe on another thread, goes on where it was.
//!
//! A seat that is dropped while it holds or awaits leaves what a crash of its endpoint would.

use std::cell::Cell;
use std::fmt;

use farlock_fabric::{Addr, Endpoint, Fault, Posted, Slot, Ticket, Verb};

use crate::lock::{Convert, Divide, Lock, Renew, Shelve, Tried, true_want};
#[cfg(doc)]
use crate::promise::Promises;
use crate::shelf::{Entry, Shelved};
use crate::slot::{self, Phase, SlotRecord};
use crate::slots::{Closing, Opening, Options, Slots, now};
use crate::token::Token;
use crate::want::{Mode, Want};

/// What came of [`Seat::open`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opened {
    /// The lock is held.
    Held,
    /// Another client has it: [`Seat::wait`].
    InLine,
}

/// What came of [`Seat::close`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closed {
    /// The lock is released.
    Free,
    /// Others wait for it: [`Seat::hand_over`].
    InHand,
}

/// How far a verb has come that its seat does not wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun<T> {
    /// It has completed.
    Done(T),
    /// It is on its way: its completion is the endpoint's to tell.
    Posted(Ticket),
}

impl<T> Begun<T> {
    /// Of a verb that has completed.
    fn at_once(self) -> T {
        match self {
            Self::Done(done) => done,
            Self::Posted(_) => unreachable!("it has completed"),
        }
    }
}

/// What came of [`Seat::try_open`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// The lock is held.
    Held,
    /// Another client has it.
    Busy,
    /// Another client had it, which may be dead: [`Seat::try_beside`].
    Doubtful,
}

/// One slot of an endpoint, and the lock that it holds or awaits.
pub struct Seat<E: Endpoint, L: Lock<E>> {
    slots: Slots<E, L, 1>,
    /// What the last verb found that left something to be done.
    old: Cell<Option<u128>>,
}

/// The seat's only slot.
const SLOT: u8 = 0;

impl<E: Endpoint, L: Lock<E>> Seat<E, L> {
    /// A seat at the first slot of `endpoint`, for `kind` locks.
    pub fn new(endpoint: E, kind: L, options: Options) -> Self {
        const { assert!(E::COMPLETES_IN_POST, "a seat's verbs complete at once") };
        assert!(!kind.promises().served, "a seat asks no server");
        Self { slots: Slots::new(endpoint, kind, options), old: Cell::new(None) }
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &E {
        &self.slots.endpoint
    }

    /// The slot whose record a service may annotate.
    pub const fn slot(&self) -> Slot {
        Slot(SLOT)
    }

    /// The lock that it holds or awaits, or did last, or is aimed at; at first none, of address 0.
    pub fn lock(&self) -> Addr {
        self.slots.slot(SLOT).lock.get()
    }

    /// Has its record name a lock from now on, while it does nothing: those who look whether a
    /// lock's word is used by anybody see it. What is published takes effect before the next verb.
    ///
    /// # Panics
    /// If it holds or awaits.
    pub fn aim(&self, lock: Addr) {
        assert!(!self.is_held() && !self.is_in_line(), "a seat that does nothing is aimed");
        self.slots.aim(SLOT, lock);
    }

    /// What of the lock was asked for, or is held.
    #[inline(always)]
    pub fn want(&self) -> L::Want {
        self.slots.slot(SLOT).want.get()
    }

    /// In which mode.
    #[inline(always)]
    pub fn mode(&self) -> Mode {
        self.want().mode()
    }

    /// Whether it holds.
    pub fn is_held(&self) -> bool {
        self.slots.slot(SLOT).grant.get().is_some()
    }

    /// Whether it waits: it has opened a lock, does not hold it, and was not told that it has left.
    pub fn is_in_line(&self) -> bool {
        self.old.get().is_some() && !self.is_held()
    }

    /// Whether others see that it lives and holds, as it has published. Where that was overwritten,
    /// they may have taken this client for dead. The word of a shared hold cannot tell.
    pub fn is_seen_to_hold(&self) -> bool {
        const WORDS: usize = slot::WORDS;
        let (endpoint, id) = (self.endpoint(), self.endpoint().id());
        if endpoint.occupied_from(id.index) != Some(id.index) || !endpoint.is_alive(id) {
            return false;
        }
        let addr = endpoint.record(id.index, self.slot());
        let read = endpoint.post(Verb::Read { addr, words: WORDS as u16 });
        let mut words = [0; WORDS];
        endpoint.copy_read(0, &mut words);
        let record = SlotRecord::decode(&words).and_then(|record| record.at(self.lock()));
        read == Posted::Done(Ok(())) && record.is_some_and(|record| record.phase == Phase::Held)
    }

    /// Gives a hold up without a verb, as a crash would: for one that others may have taken off the
    /// word already. If they have not, they take it off as that of a dead client.
    pub fn forsake(&mut self) {
        self.slots.give_back(SLOT);
    }

    /// The fencing token of what it holds; `None` if this kind of lock has none.
    ///
    /// # Panics
    /// If it holds nothing.
    #[inline]
    pub fn token(&self) -> Option<Token> {
        self.slots.token(SLOT)
    }

    /// Whether the outcome of one of its verbs is unknown: then its endpoint is of no use any more.
    pub fn is_broken(&self) -> bool {
        self.slots.broken.get()
    }

    /// Acquires the lock whose word lies at `lock`, or a part of it, or gets in line for it.
    ///
    /// # Errors
    /// The verb failed; nothing is held.
    #[inline(always)]
    pub fn open(&mut self, lock: Addr, want: impl Into<L::Want>) -> Result<Opened, Fault> {
        // One branch at the door, not one at every step.
        let want = true_want::<E, L>(want.into());
        match want.mode() {
            Mode::Exclusive => self.open_as(lock, want.in_mode(Mode::Exclusive)),
            Mode::Shared => self.open_as(lock, want.in_mode(Mode::Shared)),
        }
    }

    #[inline(always)]
    fn open_as(&mut self, lock: Addr, want: L::Want) -> Result<Opened, Fault> {
        debug_assert!(!self.is_held(), "a seat holds one lock at a time; hot path");
        self.slots.take(SLOT, lock, want);
        match self.slots.open(SLOT, lock, want) {
            Opening::Held => Ok(Opened::Held),
            opening => self.came_of(opening).map(Begun::at_once),
        }
    }

    fn came_of(&self, opening: Opening) -> Result<Begun<Opened>, Fault> {
        match opening {
            Opening::Held => Ok(Begun::Done(Opened::Held)),
            Opening::InLine => {
                self.old.set(Some(self.slots.endpoint.old()));
                Ok(Begun::Done(Opened::InLine))
            }
            Opening::Failed(fault) => Err(fault),
            Opening::Posted(ticket) => Ok(Begun::Posted(ticket)),
        }
    }

    /// [`Seat::open`] by an endpoint that does not wait for this verb. Until that has completed,
    /// and [`Seat::end_open`] was told, the seat is its caller's alone, and does nothing else.
    ///
    /// # Errors
    /// The verb failed; nothing is held.
    pub fn begin_open(&self, lock: Addr, want: impl Into<L::Want>) -> Result<Begun<Opened>, Fault> {
        assert!(!self.is_held() && !self.is_in_line(), "a seat holds one lock at a time");
        let want = true_want::<E, L>(want.into());
        self.slots.take(SLOT, lock, want);
        self.came_of(self.slots.open(SLOT, lock, want))
    }

    /// The verb of [`Seat::begin_open`] has completed.
    ///
    /// # Errors
    /// It failed; nothing is held.
    pub fn end_open(&self, completed: Result<(), Fault>) -> Result<Opened, Fault> {
        self.came_of(self.slots.opened(SLOT, completed)).map(Begun::at_once)
    }

    /// Waits for the lock after [`Opened::InLine`]. `false`: it was withdrawn, and has left. Where
    /// the lock withdraws, this may be dropped and called again.
    ///
    /// # Errors
    /// A verb failed; nothing is held.
    pub async fn wait(&self) -> Result<bool, Fault> {
        // A wait that was dropped before it stood in line gets in line anew.
        let stands = self.slots.slot(SLOT).cache.position.get() != 0;
        let old = self.old.get().filter(|_| !stands);
        let waited = self.slots.wait(SLOT, old).await;
        self.old.set(None);
        waited
    }

    /// Nobody wants any more what it waits for: the next [`Seat::wait`] leaves as soon as it can.
    /// Or its owner does again.
    pub fn withdraw(&self, withdrawn: bool) {
        self.slots.withdraw(SLOT, withdrawn);
    }

    /// From its next [`Seat::wait`] on it waits for this of the lock, where it may go on with a
    /// wait that was dropped.
    pub fn wait_as(&self, want: impl Into<L::Want>) {
        assert!(self.slots.kind.promises().withdraws, "waits of this lock are not dropped");
        self.slots.slot(SLOT).want.set(true_want::<E, L>(want.into()));
    }

    /// Acquires the lock if that needs no waiting.
    ///
    /// # Errors
    /// A verb failed; nothing is held.
    #[inline]
    pub fn try_open(&mut self, lock: Addr, want: impl Into<L::Want>) -> Result<Attempt, Fault> {
        self.slots.take(SLOT, lock, true_want::<E, L>(want.into()));
        self.tried(self.slots.try_now(SLOT, self.slots.first_try(SLOT)))
    }

    /// [`Seat::try_open`] by an endpoint that does not wait for verbs.
    ///
    /// # Errors
    /// A verb failed; nothing is held.
    pub async fn try_opening(
        &self,
        lock: Addr,
        want: impl Into<L::Want>,
    ) -> Result<Attempt, Fault> {
        assert!(!self.is_held() && !self.is_in_line(), "a seat holds one lock at a time");
        self.slots.take(SLOT, lock, true_want::<E, L>(want.into()));
        self.tried(self.slots.keep_trying(SLOT, self.slots.first_try(SLOT)).await)
    }

    #[inline]
    fn tried(&self, tried: Result<Tried<L::Grant>, Fault>) -> Result<Attempt, Fault> {
        let tried = match tried {
            Ok(Tried::Granted(grant)) => Ok(Some(grant)),
            Ok(_) if self.slots.kind.promises().tries_tell_truth => {
                self.old.set(Some(self.slots.endpoint.old()));
                return Ok(Attempt::Doubtful);
            }
            Ok(_) => Ok(None),
            Err(fault) => Err(fault),
        };
        let held = self.slots.tried(SLOT, tried)?;
        Ok(if held { Attempt::Held } else { Attempt::Busy })
    }

    /// Decides a doubtful attempt: whether the holders of the lock live. It may wait a while, and
    /// be dropped and called again.
    ///
    /// # Errors
    /// A verb failed; nothing is held.
    pub async fn try_beside(&self) -> Result<bool, Fault> {
        let old = self.old.get().expect("an attempt that is in doubt found something");
        let tried = self.slots.try_beside(SLOT, old).await;
        self.old.set(None);
        self.slots.tried(SLOT, tried)
    }

    /// Releases the lock, or finds that it is to be handed over.
    ///
    /// # Errors
    /// The verb failed: whether the lock is free is unknown, and repair will free it.
    ///
    /// # Panics
    /// If it holds nothing.
    #[inline(always)]
    pub fn close(&mut self) -> Result<Closed, Fault> {
        let want = self.want();
        let closing = match want.mode() {
            Mode::Exclusive => self.slots.close(SLOT, want.in_mode(Mode::Exclusive)),
            Mode::Shared => self.slots.close(SLOT, want.in_mode(Mode::Shared)),
        };
        match closing {
            Closing::Free => Ok(Closed::Free),
            closing => self.left_by(closing).map(Begun::at_once),
        }
    }

    fn left_by(&self, closing: Closing) -> Result<Begun<Closed>, Fault> {
        match closing {
            Closing::Free => Ok(Begun::Done(Closed::Free)),
            Closing::InHand { posted } => {
                self.old.set(posted.then(|| self.slots.endpoint.old()));
                Ok(Begun::Done(Closed::InHand))
            }
            Closing::Failed(fault) => Err(fault),
            Closing::Posted(ticket) => Ok(Begun::Posted(ticket)),
        }
    }

    /// [`Seat::close`] by an endpoint that does not wait for this verb. Until it has completed,
    /// which [`Seat::end_close`] is to be told, the seat is its caller's alone, and does nothing
    /// else.
    ///
    /// # Errors
    /// As those of [`Seat::close`].
    ///
    /// # Panics
    /// If it holds nothing.
    pub fn begin_close(&self) -> Result<Begun<Closed>, Fault> {
        self.left_by(self.slots.close(SLOT, self.want()))
    }

    /// The verb of [`Seat::begin_close`] has completed.
    ///
    /// # Errors
    /// As those of [`Seat::close`].
    pub fn end_close(&self, completed: Result<(), Fault>) -> Result<Closed, Fault> {
        self.left_by(self.slots.closed(SLOT, completed)).map(Begun::at_once)
    }

    /// Releases the lock without learning how that went, so without a round trip, where its closing
    /// verb leaves nothing to do whatever it finds; perhaps some milliseconds late, where nobody is
    /// known to wait. `false`, and nothing was done: [`Seat::close`].
    ///
    /// # Panics
    /// If it holds nothing.
    pub fn close_unasked(&self) -> bool {
        let (slots, want) = (&self.slots, self.want());
        let is_closed = slots.kind.close_unasked(&slots.site(SLOT), want, slots.grant(SLOT));
        if is_closed {
            slots.give_back(SLOT);
        }
        is_closed
    }

    /// Hands the lock over after [`Closed::InHand`]. It must not be dropped before its end.
    /// `false`: it was not held any more, since others had been certain that this client was dead.
    ///
    /// # Errors
    /// A verb failed: whether the lock is free is unknown, and repair will free it.
    pub async fn hand_over(&self) -> Result<bool, Fault> {
        let (old, superseded) = (self.old.take(), || self.slots.events.get().superseded);
        let before = superseded();
        self.slots.hand_over(SLOT, old).await?;
        Ok(superseded() == before)
    }
}

impl<E: Endpoint, L: Renew<E>> Seat<E, L> {
    /// Begins an exclusive hold anew for another task of its owner, with the next token: see
    /// [`Renew::renew`]. `false`, and nothing has changed: release it instead.
    ///
    /// # Errors
    /// A verb failed. Where it was lost the seat is broken, and what it holds is unknown.
    pub fn renew(&mut self) -> Result<bool, Fault> {
        let slots = &self.slots;
        let renewed = now(slots.kind.renew(&slots.site(SLOT), slots.grant(SLOT)));
        let renewed = renewed.map_err(|fault| slots.fail_within(fault))?;
        Ok(self.hold_as(Mode::Exclusive, renewed))
    }
}

impl<E: Endpoint, L: Convert<E>> Seat<E, L> {
    /// Makes an exclusive hold a shared one: see [`Convert::downgrade`].
    ///
    /// # Errors
    /// A verb failed. Where it was lost the seat is broken, and what it holds is unknown.
    pub fn downgrade(&mut self) -> Result<bool, Fault> {
        let (slots, want) = (&self.slots, self.want());
        let downgraded = now(slots.kind.downgrade(&slots.site(SLOT), want, slots.grant(SLOT)));
        let downgraded = downgraded.map_err(|fault| slots.fail_within(fault))?;
        Ok(self.hold_as(Mode::Shared, downgraded))
    }

    /// Makes a shared hold an exclusive one if no other is inside: see [`Convert::try_upgrade`].
    ///
    /// # Errors
    /// A verb failed. Where it was lost the seat is broken, and what it holds is unknown.
    pub fn try_upgrade(&mut self) -> Result<bool, Fault> {
        let (slots, want) = (&self.slots, self.want());
        let upgraded = now(slots.kind.try_upgrade(&slots.site(SLOT), want, slots.grant(SLOT)));
        let upgraded = upgraded.map_err(|fault| slots.fail_within(fault))?;
        Ok(self.hold_as(Mode::Exclusive, upgraded))
    }
}

/// What is held of a lock, and how.
#[derive(Clone, Copy, Debug)]
pub struct Holding<W, G> {
    lock: Addr,
    want: W,
    grant: G,
}

impl<E: Endpoint, L: Divide<E>> Seat<E, L> {
    /// What it holds.
    ///
    /// # Panics
    /// If it holds nothing.
    pub fn holding(&self) -> Holding<L::Want, L::Grant> {
        Holding { lock: self.lock(), want: self.want(), grant: self.slots.grant(SLOT) }
    }

    /// Holds a part of what another seat of its owner holds, or has on the shelf, as well: see
    /// [`Divide::take_part`]. `false`: not just now, and it has nothing.
    ///
    /// # Errors
    /// A verb failed; it has nothing, or its endpoint is broken.
    ///
    /// # Panics
    /// If it holds or awaits.
    pub async fn take_part(
        &self,
        part: impl Into<L::Want>,
        whole: Holding<L::Want, L::Grant>,
    ) -> Result<bool, Fault> {
        assert!(!self.is_held() && !self.is_in_line(), "a seat that does nothing takes a part");
        let part = true_want::<E, L>(part.into());
        let slots = &self.slots;
        slots.take(SLOT, whole.lock, part);
        let held = (whole.want, whole.grant);
        let taken = slots.kind.take_part(&slots.site(SLOT), part, held).await;
        slots.tried(SLOT, taken)
    }

    /// Releases what it holds but for these parts, which others of its owner's seats have: see
    /// [`Divide::leave_to`].
    ///
    /// # Errors
    /// A verb failed: whether the rest is free is unknown, and repair will free it.
    ///
    /// # Panics
    /// If it holds nothing.
    pub async fn leave_to(&self, parts: &[Holding<L::Want, L::Grant>]) -> Result<(), Fault> {
        let (slots, own) = (&self.slots, self.holding());
        let parts: Vec<_> = parts.iter().map(|part| (part.want, part.grant)).collect();
        let left = slots.kind.leave_to(&slots.site(SLOT), (own.want, own.grant), &parts).await;
        match left {
            Ok(()) => slots.give_back(SLOT),
            Err(fault) => {
                slots.slot(SLOT).grant.set(None);
                slots.fail(SLOT, fault);
            }
        }
        left
    }
}

impl<E: Endpoint, L: Lock<E>> Seat<E, L> {
    /// The slot holds by another grant, if there is one.
    fn hold_as(&self, mode: Mode, grant: Option<L::Grant>) -> bool {
        if let Some(grant) = grant {
            let want = self.want().in_mode(mode);
            self.slots.slot(SLOT).want.set(want);
            self.slots.hold(SLOT, want, grant);
        }
        grant.is_some()
    }
}

/// What a seat held that is written down on a shelf.
#[derive(Clone, Copy, Debug)]
pub struct OnShelf<W, G> {
    want: W,
    grant: G,
    shelved: Shelved,
    entry: Entry,
}

impl<W: Want, G: Copy> OnShelf<W, G> {
    /// What is held.
    pub const fn holding(&self) -> Holding<W, G> {
        Holding { lock: self.shelved.lock, want: self.want, grant: self.grant }
    }
}

impl<W: Want, G> OnShelf<W, G> {
    /// The lock.
    pub const fn lock(&self) -> Addr {
        self.shelved.lock
    }

    /// Where it is written down: free again once it is released.
    pub const fn entry(&self) -> Entry {
        self.entry
    }
}

impl<E: Endpoint, L: Shelve<E>> Seat<E, L> {
    /// Writes what it holds down at this entry, whose owner lives as long as this client. From then
    /// on it holds nothing, and may acquire something else. `since_us` is since when it is held, in
    /// microseconds; 0 where nobody looked.
    ///
    /// # Errors
    /// A verb failed; it holds as before, or its endpoint is broken.
    ///
    /// # Panics
    /// If it holds nothing.
    pub async fn shelve(
        &self,
        entry: Entry,
        since_us: u64,
    ) -> Result<OnShelf<L::Want, L::Grant>, Fault> {
        let (slots, want, site) = (&self.slots, self.want(), self.slots.site(SLOT));
        let token = self.token().map_or(0, Token::get);
        let shelved = slots.kind.shelved(&site, want, slots.grant(SLOT), token, since_us);
        let grant = slots.kind.shelve(&site, slots.grant(SLOT), entry, shelved).await?;
        slots.give_back(SLOT);
        Ok(OnShelf { want, grant, shelved, entry })
    }

    /// Holds again what was written down, to release it.
    ///
    /// # Panics
    /// If it holds or awaits.
    pub fn take_down(&self, held: &OnShelf<L::Want, L::Grant>) {
        self.aim(held.lock());
        let slot = self.slots.slot(SLOT);
        slot.want.set(held.want);
        slot.grant.set(Some(held.grant));
    }

    /// Whether what was written down still stands where it was put.
    pub fn is_on_shelf(&self, held: &OnShelf<L::Want, L::Grant>) -> bool {
        now(held.entry.says(self.endpoint(), held.shelved)) == Ok(true)
    }
}

impl<E: Endpoint, L: Lock<E>> fmt::Debug for Seat<E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let site = self.slots.site(SLOT);
        let held = if self.is_held() { "holds" } else { "holds not" };
        write!(f, "Seat({:?} {held} {:?} {:?})", site.me, site.lock, self.want())
    }
}
