//! The slots of one endpoint and what they hold or await: what a [`Client`](crate::Client) and a
//! [`Seat`](crate::Seat) have in common.
//!
//! What opens and closes at once does so here, on the caller's stack. What waits for others is an
//! async function that borrows the slots; who runs it, and whether its end frees the slot for
//! another acquisition, is its owner's business. There is no task and no count of references, so
//! slots may go from thread to thread wherever their endpoint may.

use std::cell::Cell;
use std::task::{Context, Poll, Waker};

use farlock_fabric::{Addr, Endpoint, Fault, Mailbox, Origin, Posted, Slot, Ticket};

use crate::event::EventCounts;
use crate::kept::Kept;
use crate::lock::{Lock, Tried};
use crate::promise::{Granted, TokenSource};
use crate::site::{Outcome, Site, SlotCache};
use crate::slot::{self, Phase, SlotWord};
use crate::token::Token;
use crate::want::{Mode, Want};

/// What a client is made with besides its endpoint and its kind of lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// The durable incarnation of the memory the locks live in: the upper bits of every token.
    pub incarnation: u16,
    /// What the counts of tokens begin at: added to those of the locks' words.
    pub first_count: u64,
}

impl Options {
    /// Counts begin at zero.
    pub const fn new(incarnation: u16) -> Self {
        Self { incarnation, first_count: 0 }
    }

    /// The token of a grant with this count.
    #[inline(always)]
    pub(crate) const fn token(&self, count: u64) -> Token {
        Token::new(self.incarnation, self.first_count.wrapping_add(count))
    }
}

impl From<Origin> for Options {
    /// Tokens begin where those of the region do.
    fn from(Origin { incarnation, first_count }: Origin) -> Self {
        Self { incarnation, first_count }
    }
}

/// Attempts of one try to learn the word of a lock that keeps changing under shared holders.
const TRY_ATTEMPTS_MAX: u32 = 64;

/// `N` slots of one endpoint, used from the first on: an index needs no check.
pub(crate) struct Slots<E: Endpoint, L: Lock<E>, const N: usize> {
    pub(crate) endpoint: E,
    pub(crate) kind: L,
    pub(crate) options: Options,
    pub(crate) slots: [SlotState<L::Want, L::Grant>; N],
    pub(crate) events: Cell<EventCounts>,
    /// What clients in line have done for each other.
    pub(crate) kept: Kept,
    /// The outcome of one of its verbs is unknown.
    pub(crate) broken: Cell<bool>,
}

/// Aligned so that an index becomes a place by a shift, and in this order so that an uncontended
/// cycle touches one line of it.
#[repr(C, align(128))]
pub(crate) struct SlotState<W, G> {
    pub(crate) cache: SlotCache,
    pub(crate) lock: Cell<Addr>,
    pub(crate) grant: Cell<Option<G>>,
    pub(crate) want: Cell<W>,
}

impl<W: Want, G> SlotState<W, G> {
    const fn new() -> Self {
        Self {
            lock: Cell::new(Addr::from_bits(0)),
            want: Cell::new(W::NONE),
            grant: Cell::new(None),
            cache: SlotCache::new(),
        }
    }
}

/// What came of an opening verb.
pub(crate) enum Opening {
    /// The slot holds.
    Held,
    /// It waits in line; the old word is with the endpoint.
    InLine,
    /// The verb failed, and [`Slots::fail`] knows it.
    Failed(Fault),
    /// The verb is on its way.
    Posted(Ticket),
}

/// What came of a closing verb.
pub(crate) enum Closing {
    /// The slot is free.
    Free,
    /// The lock is to be handed over. There was no verb, or the old word is with the endpoint.
    InHand {
        /// Whether there was a verb.
        posted: bool,
    },
    /// The verb failed, and [`Slots::fail`] knows it.
    Failed(Fault),
    /// The verb is on its way.
    Posted(Ticket),
}

/// What came of an attempt that never waits.
pub(crate) type Tries<G> = Outcome<Option<G>>;

impl<E: Endpoint, L: Lock<E>, const N: usize> Slots<E, L, N> {
    pub(crate) fn new(endpoint: E, kind: L, options: Options) -> Self {
        assert!(usize::from(endpoint.slots()) >= N.min(1), "an endpoint has at least one slot");
        Self {
            // Copies of one constant: made one by one they cost a short simulated run a quarter.
            slots: [const { SlotState::new() }; N],
            events: Cell::new(EventCounts::default()),
            kept: Kept::new(),
            broken: Cell::new(false),
            endpoint,
            kind,
            options,
        }
    }

    #[inline(always)]
    pub(crate) fn slot(&self, index: u8) -> &SlotState<L::Want, L::Grant> {
        &self.slots[usize::from(index) % N]
    }

    #[inline(always)]
    pub(crate) fn site(&self, index: u8) -> Site<'_, E> {
        self.site_at(index, self.slot(index).lock.get())
    }

    /// The site of a slot whose lock is at hand.
    #[inline(always)]
    pub(crate) fn site_at(&self, index: u8, lock: Addr) -> Site<'_, E> {
        Site {
            endpoint: &self.endpoint,
            lock,
            me: Mailbox { endpoint: self.endpoint.id(), slot: Slot(index) },
            cache: &self.slot(index).cache,
            kept: &self.kept,
            events: &self.events,
        }
    }

    /// The grant of a slot that holds.
    #[inline(always)]
    pub(crate) fn grant(&self, index: u8) -> L::Grant {
        self.slot(index).grant.get().expect("a slot that holds has a grant")
    }

    /// The fencing token of what a slot holds; `None` if this kind of lock has none.
    #[inline]
    pub(crate) fn token(&self, index: u8) -> Option<Token> {
        match L::TOKENS {
            TokenSource::Word if self.kind.counts_grants() => {
                Some(self.options.token(self.grant(index).count()))
            }
            TokenSource::Word | TokenSource::Nowhere => None,
        }
    }

    /// Publishes what a slot is doing.
    #[inline(always)]
    fn publish(&self, index: u8, phase: Phase, mode: Mode, generation: u64, ticket: u32) {
        let state = SlotWord::of(phase, mode, generation, ticket);
        self.endpoint.publish(Slot(index), slot::STATE, state.0);
    }

    /// Publishes which lock a slot is about to open.
    #[inline(always)]
    pub(crate) fn aim(&self, index: u8, lock: Addr) {
        let slot = self.slot(index);
        if slot.lock.get() != lock {
            slot.lock.set(lock);
            self.endpoint.publish(Slot(index), slot::LOCK, lock.bits());
        }
    }

    /// Takes a free slot and publishes that it opens `lock`.
    #[inline(always)]
    pub(crate) fn take(&self, index: u8, lock: Addr, want: L::Want) {
        self.aim(index, lock);
        let slot = self.slot(index);
        slot.want.set(want);
        // A store less where nothing changes: the opening verb waits for every store.
        if slot.cache.withdrawn.get() {
            slot.cache.withdrawn.set(false);
        }
        self.announce(index, lock, want);
    }

    /// Publishes that a slot begins an acquisition.
    #[inline(always)]
    fn announce(&self, index: u8, lock: Addr, want: L::Want) {
        let ticket = self.kind.begin(&self.site_at(index, lock), want);
        self.publish(index, Phase::Opening, want.mode(), 0, ticket);
    }

    /// The slot holds its lock from now on.
    #[inline(always)]
    pub(crate) fn hold(&self, index: u8, want: L::Want, grant: L::Grant) {
        self.slot(index).grant.set(Some(grant));
        if L::TOKENS == TokenSource::Word && self.kind.counts_grants() {
            let token = self.options.token(grant.count());
            self.endpoint.publish(Slot(index), slot::TOKEN, token.get());
        }
        self.publish(index, Phase::Held, want.mode(), grant.generation(), grant.ticket());
    }

    /// The slot was granted its lock. Whether it holds it from now on; else it is to acquire anew.
    #[inline(always)]
    fn is_in(&self, index: u8, want: L::Want, grant: L::Grant) -> bool {
        self.hold(index, want, grant);
        let is_believed = self.kind.is_believed(&self.site(index), want);
        if !is_believed {
            self.leave_behind(index, want);
        }
        is_believed
    }

    /// The slot does not hold what it was granted.
    #[cold]
    fn leave_behind(&self, index: u8, want: L::Want) {
        let site = self.site(index);
        self.slot(index).grant.set(None);
        self.kind.begin(&site, want);
        self.kind.kept_out(&site, want);
    }

    /// The slot has nothing to do any more.
    #[inline(always)]
    pub(crate) fn give_back(&self, index: u8) {
        self.slot(index).grant.set(None);
        self.publish(index, Phase::Idle, Mode::Shared, 0, 0);
    }

    /// The slot's verb failed. Where its outcome is unknown the slot may still stand in a queue,
    /// so its identity is never used again.
    #[cold]
    pub(crate) fn fail(&self, index: u8, fault: Fault) {
        match fault.is_refusal() {
            true => self.give_back(index),
            false => self.broken.set(true),
        }
    }

    /// A verb failed that a slot's hold would have outlived.
    #[cold]
    pub(crate) fn fail_within(&self, fault: Fault) -> Fault {
        self.broken.set(self.broken.get() || !fault.is_refusal());
        fault
    }

    // Acquiring.

    /// Opens the lock of a slot that was taken.
    #[inline(always)]
    pub(crate) fn open(&self, index: u8, lock: Addr, want: L::Want) -> Opening {
        let site = self.site_at(index, lock);
        match self.kind.open(&site, want) {
            Posted::Done(Ok(())) => self.judge(&site, index, want),
            Posted::Done(Err(fault)) => {
                self.fail(index, fault);
                Opening::Failed(fault)
            }
            Posted::Pending(ticket) => Opening::Posted(ticket),
        }
    }

    /// The opening verb has completed after a while.
    pub(crate) fn opened(&self, index: u8, completed: Outcome<()>) -> Opening {
        match completed {
            Ok(()) => self.judge(&self.site(index), index, self.slot(index).want.get()),
            Err(fault) => {
                self.fail(index, fault);
                Opening::Failed(fault)
            }
        }
    }

    /// What the old word, which is with the endpoint, says of the opening verb.
    #[inline(always)]
    fn judge(&self, site: &Site<'_, E>, index: u8, want: L::Want) -> Opening {
        match self.kind.opened(site, want, self.endpoint.old()) {
            Some(grant) if self.is_in(index, want, grant) => Opening::Held,
            Some(_) => Opening::InLine,
            None => {
                self.kind.kept_out(site, want);
                Opening::InLine
            }
        }
    }

    /// The rest of an acquisition whose opening verb found `old` and did not acquire the lock; none
    /// where it goes on with a wait that was dropped. `false`: it was withdrawn and has left.
    pub(crate) async fn wait(&self, index: u8, mut old: Option<u128>) -> Outcome<bool> {
        let site = self.site(index);
        let want = self.slot(index).want.get();
        loop {
            match self.kind.wait_or_leave(&site, want, old).await {
                Ok(Some(grant)) if self.is_in(index, want, grant) => return Ok(true),
                Ok(Some(_)) => old = Some(0),
                Ok(None) => {
                    assert!(site.is_withdrawn(), "only who withdrew leaves");
                    self.give_back(index);
                    return Ok(false);
                }
                Err(fault) => {
                    self.fail(index, fault);
                    return Err(fault);
                }
            }
        }
    }

    /// Acquires the lock exclusively, for a hold that nothing withdraws.
    pub(crate) async fn acquire(&self, site: &Site<'_, E>) -> Outcome<L::Grant> {
        let want: L::Want = Mode::Exclusive.into();
        self.endpoint.completion(self.kind.open(site, want)).await?;
        let old = self.endpoint.old();
        match self.kind.opened(site, want, old) {
            Some(grant) => Ok(grant),
            None => self.kind.wait_in_line(site, want, old).await,
        }
    }

    /// The owner wants no more what the slot waits for, or does again.
    pub(crate) fn withdraw(&self, index: u8, withdrawn: bool) {
        self.slot(index).cache.withdrawn.set(withdrawn);
    }

    /// The first verb of an attempt that never waits; `None` where an attempt takes more.
    #[inline]
    pub(crate) fn first_try(&self, index: u8) -> Option<Posted> {
        let (site, want) = (self.site(index), self.slot(index).want.get());
        self.kind.trying(&site, want, None).map(|verb| self.endpoint.post(verb))
    }

    /// Goes on with attempts that never wait. `Busy`: the old word is with the endpoint.
    pub(crate) async fn keep_trying(
        &self,
        index: u8,
        posted: Option<Posted>,
    ) -> Outcome<Tried<L::Grant>> {
        let (site, want, mut seen) = (self.site(index), self.slot(index).want.get(), None);
        let Some(mut posted) = posted else {
            let tried = self.kind.attempt(&site, want).await?;
            return Ok(tried.map_or(Tried::Busy, Tried::Granted));
        };
        for _ in 0..TRY_ATTEMPTS_MAX {
            self.endpoint.completion(posted).await?;
            match self.kind.tried(&site, want, seen, self.endpoint.old()) {
                Tried::Again(word) => seen = Some(word),
                Tried::Granted(grant) if !self.is_in(index, want, grant) => {
                    seen = None;
                    self.announce(index, site.lock, want);
                }
                decided => return Ok(decided),
            }
            let verb = self.kind.trying(&site, want, seen);
            posted = self.endpoint.post(verb.expect("it was tried by a verb before"));
        }
        Ok(Tried::Busy)
    }

    /// The same where every verb completes at once.
    #[inline]
    pub(crate) fn try_now(&self, index: u8, first: Option<Posted>) -> Outcome<Tried<L::Grant>> {
        now(self.keep_trying(index, first))
    }

    /// What an attempt does that found the lock taken by `old`, before it fails.
    pub(crate) async fn try_beside(&self, index: u8, old: u128) -> Tries<L::Grant> {
        let (site, want) = (self.site(index), self.slot(index).want.get());
        loop {
            match self.kind.try_beside(&site, want, old).await? {
                Some(grant) if !self.is_in(index, want, grant) => {}
                decided => return Ok(decided),
            }
        }
    }

    /// The slot holds what its attempt was granted (`true`), or is free again.
    pub(crate) fn tried(&self, index: u8, tried: Tries<L::Grant>) -> Outcome<bool> {
        match tried {
            Ok(Some(grant)) => self.hold(index, self.slot(index).want.get(), grant),
            Ok(None) => self.give_back(index),
            Err(fault) => self.fail(index, fault),
        }
        tried.map(|granted| granted.is_some())
    }

    // Releasing.

    /// Closes the lock of a slot that holds it.
    #[inline(always)]
    pub(crate) fn close(&self, index: u8, want: L::Want) -> Closing {
        let site = self.site(index);
        let grant = self.slot(index).grant.get().expect("only a held lock is released");
        match self.kind.close(&site, want, grant) {
            None => Closing::InHand { posted: false },
            Some(Posted::Done(Ok(()))) => {
                let old = self.endpoint.old();
                if self.kind.closed(&site, want, grant, old) {
                    self.give_back(index);
                    return Closing::Free;
                }
                Closing::InHand { posted: true }
            }
            Some(Posted::Done(Err(fault))) => {
                self.slot(index).grant.set(None);
                self.fail(index, fault);
                Closing::Failed(fault)
            }
            Some(Posted::Pending(ticket)) => Closing::Posted(ticket),
        }
    }

    /// The closing verb has completed after a while.
    pub(crate) fn closed(&self, index: u8, completed: Outcome<()>) -> Closing {
        let slot = self.slot(index);
        let (want, grant) = (slot.want.get(), self.grant(index));
        if let Err(fault) = completed {
            slot.grant.set(None);
            self.fail(index, fault);
            return Closing::Failed(fault);
        }
        if self.kind.closed(&self.site(index), want, grant, self.endpoint.old()) {
            self.give_back(index);
            return Closing::Free;
        }
        Closing::InHand { posted: true }
    }

    /// The rest of a release whose closing verb, if it had one, found `old` and did not release.
    pub(crate) async fn hand_over(&self, index: u8, old: Option<u128>) -> Outcome<()> {
        let slot = self.slot(index);
        let (want, grant) = (slot.want.get(), self.grant(index));
        let result = self.kind.hand_over(&self.site(index), want, grant, old).await;
        slot.grant.set(None);
        match result {
            Ok(()) => self.give_back(index),
            Err(fault) => self.fail(index, fault),
        }
        result
    }
}

/// The output of a future all of whose verbs complete at once.
#[inline]
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    let mut cx = Context::from_waker(Waker::noop());
    match std::pin::pin!(future).poll(&mut cx) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("verbs of this endpoint complete at once"),
    }
}
