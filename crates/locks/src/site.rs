//! Where a protocol works: one slot of one client, at one lock.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::Pin;
use std::task::Poll;

use farlock_fabric::{
    Addr, Endpoint, EndpointId, Fault, Mailbox, MaskedCas, Nanos, Slot, Verb, Wait, WideAtomics,
    Woken,
};

use crate::event::{Event, EventCounts};
use crate::kept::Kept;
use crate::slot::{self, PartWord, Phase, SlotWord};
use crate::want::Mode;

/// What a protocol sees of its client: the endpoint, its own identity, and the lock it works on.
#[derive(Debug)]
pub struct Site<'a, E> {
    /// Executes the verbs.
    pub endpoint: &'a E,
    /// The lock's word.
    pub lock: Addr,
    /// Who this slot is: what a queue's tail names.
    pub me: Mailbox,
    pub(crate) cache: &'a SlotCache,
    pub(crate) kept: &'a Kept,
    pub(crate) events: &'a Cell<EventCounts>,
}

impl<E> Clone for Site<'_, E> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Site<'_, E> {}

/// A lock's protocol at a site: what is done there by the lock's rules.
#[derive(Debug)]
pub(crate) struct Protocol<'a, E, L> {
    /// The lock: its parameters, and its state of one client.
    pub(crate) rules: &'a L,
    pub(crate) site: &'a Site<'a, E>,
}

impl<E, L> Clone for Protocol<'_, E, L> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<E, L> Copy for Protocol<'_, E, L> {}

impl<'a, E, L> Deref for Protocol<'a, E, L> {
    type Target = Site<'a, E>;

    #[inline(always)]
    fn deref(&self) -> &Site<'a, E> {
        self.site
    }
}

/// How long a slot that had to wait acquires before it yields to others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Barging {
    /// The count of releases when it acquired at last.
    pub began: u64,
    /// How many releases later the turn is over.
    pub length: u64,
}

impl Barging {
    /// Of a slot that nobody waits for.
    pub const ENDLESS: Self = Self { began: 0, length: u64::MAX };
}

/// What a slot remembers besides its grant.
#[derive(Debug)]
pub(crate) struct SlotCache {
    /// The lock whose word `hint` guesses.
    pub(crate) hint_lock: Cell<u64>,
    /// What that lock's whole word was when this slot let go of it.
    pub(crate) hint: Cell<u128>,
    /// The turn of this slot at that lock.
    pub(crate) barging: Cell<Barging>,
    /// The one that reported to be next in line; nobody is zero.
    pub(crate) successor: Cell<u64>,
    /// When the opening verb was posted, where a lease counts from there.
    pub(crate) opened_at: Cell<Nanos>,
    /// Whether nobody wants any more what this slot waits for.
    pub(crate) withdrawn: Cell<bool>,
    /// Which of its acquisitions the slot is at: the lower [`NUMBER_BITS`] count all of them, the
    /// upper ones those in which it stood in line; both wrap.
    pub(crate) acquisition: Cell<u32>,
    /// Where it stands in line, as its lock puts it; zero is nowhere.
    pub(crate) position: Cell<u64>,
    /// How often it was asked for a sign of life; wraps.
    pub(crate) signs: Cell<u64>,
    /// Which of its acquisitions is doubted, by its number; or [`NO_NUMBER`].
    pub(crate) doubted: Cell<u32>,
    /// Which of its acquisitions holds, for doubts come too late; or [`NO_NUMBER`].
    pub(crate) believed: Cell<u32>,
}

impl SlotCache {
    pub(crate) const fn new() -> Self {
        Self {
            hint_lock: Cell::new(0),
            hint: Cell::new(0),
            barging: Cell::new(Barging::ENDLESS),
            successor: Cell::new(0),
            opened_at: Cell::new(0),
            withdrawn: Cell::new(false),
            acquisition: Cell::new(0),
            position: Cell::new(0),
            signs: Cell::new(0),
            doubted: Cell::new(NO_NUMBER),
            believed: Cell::new(NO_NUMBER),
        }
    }
}

impl SlotCache {
    /// A hash of what is acted upon in the next acquisition.
    pub(crate) fn mixed_into(&self, hash: u64) -> u64 {
        const PRIME: u64 = 0x0100_0000_01b3;
        let (hint, barging) = (self.hint.get(), self.barging.get());
        let stood = u64::from(self.acquisition.get() >> NUMBER_BITS);
        [
            self.hint_lock.get(),
            hint as u64,
            (hint >> 64) as u64,
            barging.began,
            barging.length,
            stood,
        ]
        .iter()
        .fold(hash, |hash, word| (hash ^ word).wrapping_mul(PRIME).rotate_left(29))
    }
}

/// The bits of an acquisition that count all acquisitions of its slot. Those above them count how
/// often that stood in line.
pub(crate) const NUMBER_BITS: u32 = 26;
/// No acquisition has this number.
const NO_NUMBER: u32 = u32::MAX;

/// The number of an acquisition among all of its slot.
#[inline(always)]
pub(crate) const fn number_of(acquisition: u32) -> u32 {
    acquisition & ((1 << NUMBER_BITS) - 1)
}

/// Signs of life are told apart among so many.
const SIGNS: u64 = 4;

impl<E> Site<'_, E> {
    /// Which of its acquisitions the slot is at.
    #[inline(always)]
    pub(crate) fn acquisition(&self) -> u32 {
        self.cache.acquisition.get()
    }
}

impl<'a, E: Endpoint> Site<'a, E> {
    /// The protocol of a lock with these rules at this site.
    #[inline(always)]
    pub(crate) fn by<'p, L>(&'p self, rules: &'p L) -> Protocol<'p, E, L> {
        Protocol { rules, site: self }
    }

    /// The same site at another word of its lock.
    #[inline]
    pub(crate) fn at(&self, lock: Addr) -> Self {
        Site { lock, ..*self }
    }
}

impl<E: Endpoint> Site<'_, E> {
    /// The slot this site works in.
    #[inline]
    pub fn slot(&self) -> Slot {
        self.me.slot
    }

    /// The slot's next acquisition begins, in which it may stand in line. Returns which it is.
    #[inline(always)]
    pub(crate) fn begin_acquisition(&self) -> u32 {
        const NEXT: u32 = 1 << NUMBER_BITS | 1;
        let acquisition = self.cache.acquisition.get().wrapping_add(NEXT);
        self.cache.acquisition.set(acquisition);
        acquisition
    }

    /// If another client doubts that the slot holds its lock by this acquisition, goes on as by the
    /// next one, where it stands. It must be certain that it does not hold by this one.
    #[inline]
    pub(crate) fn begin_anew_if_doubted(&self) {
        if self.is_doubted() {
            let acquisition = self.acquisition();
            let stood = acquisition & !number_of(u32::MAX);
            self.cache.acquisition.set(stood | number_of(acquisition.wrapping_add(1)));
        }
    }

    /// The slot has not stood in line in this acquisition, and will not: where it does the next
    /// time is told apart from where it did the last time, however many there are between.
    #[inline(always)]
    pub(crate) fn stood_in_no_line(&self) {
        self.cache.acquisition.set(self.acquisition().wrapping_sub(1 << NUMBER_BITS));
    }

    /// It may, after all.
    #[inline]
    pub(crate) fn may_stand_in_line(&self) {
        self.cache.acquisition.set(self.acquisition().wrapping_add(1 << NUMBER_BITS));
    }

    /// What the lock's word probably is: as this slot left it.
    #[inline(always)]
    pub fn hint(&self) -> Option<u128> {
        // Loaded in any case: one branch less, and the load is never wasted where it counts.
        let hint = self.cache.hint.get();
        (self.cache.hint_lock.get() == self.lock.bits()).then_some(hint)
    }

    /// Remembers how this slot left the lock's word.
    #[inline(always)]
    pub fn left(&self, word: u128) {
        // A store less where nothing changes: the next locked instruction waits for every store.
        if self.cache.hint_lock.get() != self.lock.bits() {
            self.cache.hint_lock.set(self.lock.bits());
        }
        self.cache.hint.set(word);
    }

    /// The turn of this slot at this lock.
    #[inline(always)]
    pub fn barging(&self) -> Barging {
        self.cache.barging.get()
    }

    /// Begins a turn.
    #[inline]
    pub fn set_barging(&self, barging: Barging) {
        self.cache.barging.set(barging);
    }

    /// The one that reported to be next in line.
    #[inline]
    pub fn successor(&self) -> Option<Mailbox> {
        match self.cache.successor.get() {
            0 => None,
            bits => Some(Mailbox::from_bits(bits)),
        }
    }

    /// The same as a number, for loops that carry it from turn to turn; nobody is zero.
    #[inline]
    pub(crate) fn successor_bits(&self) -> u64 {
        self.cache.successor.get()
    }

    /// Remembers or forgets the next in line.
    #[inline]
    pub fn set_successor(&self, successor: Option<Mailbox>) {
        self.cache.successor.set(successor.map_or(0, Mailbox::bits));
    }

    /// Remembers the one behind in line, as its lock puts it.
    #[inline]
    pub(crate) fn set_behind(&self, behind: u64) {
        self.cache.successor.set(behind);
    }

    /// The one behind in line, once.
    #[inline]
    pub(crate) fn take_behind(&self) -> Option<u64> {
        Some(self.cache.successor.take()).filter(|behind| *behind != 0)
    }

    /// Where the slot stands in line, as its lock puts it; zero is nowhere.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.cache.position.get()
    }

    /// Remembers where the slot stands in line.
    #[inline]
    pub(crate) fn set_position(&self, position: u64) {
        self.cache.position.set(position);
    }

    /// The slot stands in no line, and nobody is behind it.
    #[inline]
    pub(crate) fn forget_position(&self) {
        self.cache.position.set(0);
        self.cache.successor.set(0);
    }

    /// The signs of life that the slot has given, and whether its acquisition is doubted, as a
    /// number that changes with each.
    #[inline]
    pub(crate) fn signs(&self) -> u64 {
        self.cache.signs.get() | u64::from(self.is_doubted()) << 8
    }

    /// Another client doubts that the slot will hold its lock by this acquisition.
    pub(crate) fn set_doubted(&self) {
        let number = number_of(self.acquisition());
        if self.cache.believed.get() != number {
            self.cache.doubted.set(number);
        }
    }

    /// The slot holds its lock by this acquisition: doubts come too late from now on.
    pub(crate) fn set_believed(&self) {
        self.cache.believed.set(number_of(self.acquisition()));
    }

    /// Whether that was said of this acquisition.
    pub(crate) fn was_believed(&self) -> bool {
        self.cache.believed.get() == number_of(self.acquisition())
    }

    /// Whether another client doubts this acquisition.
    #[inline(always)]
    pub(crate) fn is_doubted(&self) -> bool {
        self.cache.doubted.get() == number_of(self.acquisition())
    }

    /// Gives a sign of life, which is seen in the slot's record.
    pub(crate) fn give_sign(&self) {
        let signs = (self.cache.signs.get() + 1) % SIGNS;
        self.cache.signs.set(signs);
        self.endpoint.publish(self.slot(), slot::SIGN, signs);
    }

    /// Executes a verb, and returns what it found.
    #[inline]
    pub(crate) async fn verb(&self, verb: Verb<'_>) -> Outcome<u128> {
        self.endpoint.verb(verb).await?;
        Ok(self.endpoint.old())
    }

    /// Reads the first half of the lock's word, or all of it if that has eight bytes.
    #[inline]
    pub(crate) async fn read(&self) -> Outcome<u64> {
        self.read_at(self.lock).await
    }

    /// Reads eight bytes.
    #[inline]
    pub(crate) async fn read_at(&self, addr: Addr) -> Outcome<u64> {
        self.endpoint.read64(addr).await?;
        Ok(self.endpoint.old() as u64)
    }

    /// Reads the lock's word of sixteen bytes. It may be torn.
    #[inline]
    pub(crate) async fn read128(&self) -> Outcome<u128> {
        self.verb(Verb::Read { addr: self.lock, words: 2 }).await
    }

    /// Compares and swaps the lock's word of eight bytes, and returns what it was.
    #[inline]
    pub(crate) async fn cas64(&self, compare: u64, swap: u64) -> Outcome<u64> {
        self.endpoint.cas64(self.lock, compare, swap).await?;
        Ok(self.endpoint.old() as u64)
    }

    /// The same with some fields of the lock's word of sixteen bytes.
    #[inline]
    pub(crate) async fn masked_cas128(
        &self,
        op: MaskedCas<u128>,
        hint: Option<u128>,
    ) -> Outcome<u128>
    where
        E: WideAtomics,
    {
        self.endpoint.masked_cas128(self.lock, op, hint).await?;
        Ok(self.endpoint.old())
    }

    /// Waits, unless the slot is withdrawn from what it waits for, or is wanted again, since it was
    /// last looked whether it is: then `None`.
    pub(crate) async fn wait_or_withdraw(&self, wait: Wait<'_>, withdrawn: bool) -> Option<Woken> {
        let mut waiting = self.endpoint.wait(wait);
        poll_fn(|cx| {
            if self.is_withdrawn() != withdrawn {
                return Poll::Ready(None);
            }
            Pin::new(&mut waiting).poll(cx).map(Some)
        })
        .await
    }

    /// When the opening verb was posted, where a lease counts from there.
    #[inline]
    pub fn opened_at(&self) -> Nanos {
        self.cache.opened_at.get()
    }

    /// Remembers that the opening verb is posted at this time.
    #[inline]
    pub fn opens_at(&self, now: Nanos) {
        self.cache.opened_at.set(now);
    }

    /// Whether nobody wants any more what this slot waits for: then leave.
    #[inline]
    pub fn is_withdrawn(&self) -> bool {
        self.cache.withdrawn.get()
    }

    /// Publishes what this slot is doing at this lock.
    #[inline]
    pub fn publish(&self, phase: Phase, mode: Mode, generation: u64) {
        self.publish_ticket(phase, mode, generation, 0);
    }

    /// Publishes which part of this lock the slot wants, and how much of it it has.
    pub(crate) fn publish_part(&self, part: PartWord) {
        self.endpoint.publish(self.slot(), slot::PART, part.0);
        self.endpoint.publish(self.slot(), slot::LOCK, self.lock.bits() | slot::IN_PARTS);
    }

    /// Publishes what this slot is doing at this lock, and with which ticket.
    #[inline]
    pub fn publish_ticket(&self, phase: Phase, mode: Mode, generation: u64, ticket: u32) {
        let state = SlotWord::of(phase, mode, generation, ticket);
        self.endpoint.publish(self.slot(), slot::STATE, state.0);
    }

    /// Counts an event.
    #[cold]
    pub fn event(&self, event: Event) {
        let mut counts = self.events.get();
        counts.add(event);
        self.events.set(counts);
    }

    /// Counts that a peer was found dead at this lock.
    #[cold]
    pub fn peer_died(&self, peer: EndpointId) {
        self.event(Event::PeerDied { lock: self.lock, peer });
    }
}

/// The outcome of a verb that a protocol cannot go on without: a lost completion is an error here,
/// since the failure-free protocols cannot tell what happened.
pub type Outcome<T> = Result<T, Fault>;
