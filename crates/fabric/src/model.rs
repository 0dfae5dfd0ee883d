//! The reference model: the contract executed on a plain vector, for the tests of this crate.
//!
//! Everything happens at once and in order, in one thread; time passes only when nothing else can
//! happen. A [`World`] can be told to serve reads late, as the contract allows, and to break one
//! promise: the suite must notice.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::addr::{Addr, EndpointId, Mailbox, RegionId, Slot};
use crate::endpoint::{
    Endpoint, Envelope, LinkDone, MaskedAtomics, Nanos, Park, Posted, RECORD_WORDS, Revoke, Ticket,
    Wait, WaitState, WideAtomics, Woken,
};
use crate::error::Fault;
use crate::listed;
use crate::verb::{
    CHAIN_MAX, Link, MaskedCas, Verb, WORDS_MAX, masked_cas64, masked_cas128, masked_faa64,
    masked_faa128,
};

const REGION: RegionId = RegionId(1);
/// A region that exists, but not for these endpoints.
pub(crate) const FORBIDDEN: Addr = Addr::new(RegionId(2), 0);
const MEMORY_WORDS: usize = 16_384;
const SEATS: usize = 12;
const SLOTS: usize = 4;
const CELLS: usize = 6;

listed! {
    /// One promise broken.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum Flaw {
        CarriesCross,
        CompareIgnoresMask,
        SwapIgnoresMask,
        FailedCompareWrites,
        FailedCompareHidesOld,
        NewForOld,
        HintTrusted,
        HighHalfForgotten,
        BoundsByFirstWord,
        RefusalWrites,
        LongReadCut,
        MisalignedTaken,
        NoRightIgnored,
        FaultStopsChain,
        FenceIgnored,
        ChainReversed,
        StatusOfFirst,
        MessageTwice,
        MessagesReversed,
        MessageLost,
        SlotsMixed,
        OldestOverwritten,
        DeadReceives,
        IncarnationIgnored,
        ArrivalAtReceipt,
        ForgedSender,
        RevokeForgotten,
        RevokedBystander,
        StaleTaken,
        IdentityReused,
        DeadComeBack,
        PublishLost,
        PublishMisplaced,
        WaitEarly,
        WordUnseen,
        MailUnseen,
        DeathUnseen,
        TimeReversed,
        SameChance,
    }
}

/// One memory node and everybody attached to it.
#[derive(Clone, Debug)]
pub(crate) struct World(Rc<RefCell<State>>);

#[derive(Debug)]
struct State {
    memory: Vec<u64>,
    /// By index; the first is nobody's.
    seats: Vec<Seat>,
    clock: Nanos,
    incarnation: u64,
    free_word: usize,
    deadlines: Vec<Nanos>,
    /// Whether something happened since the last park that may have ended a wait.
    happened: bool,
    /// Whether an unfenced chain's reads are served after everything else.
    reads_late: bool,
    flaw: Option<Flaw>,
}

#[derive(Clone, Debug, Default)]
struct Seat {
    incarnation: u16,
    alive: bool,
    revoked: bool,
    mail: [VecDeque<Envelope>; SLOTS],
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(false, None)
    }

    pub(crate) fn with(reads_late: bool, flaw: Option<Flaw>) -> Self {
        Self(Rc::new(RefCell::new(State {
            memory: vec![0; MEMORY_WORDS],
            seats: vec![Seat::default(); SEATS + 1],
            clock: 0,
            incarnation: 1,
            free_word: (SEATS + 1) * SLOTS * RECORD_WORDS,
            deadlines: Vec::new(),
            happened: false,
            reads_late,
            flaw,
        })))
    }

    /// A new endpoint at the first free seat.
    pub(crate) fn endpoint(&self) -> ModelEndpoint {
        let mut state = self.0.borrow_mut();
        let reuse = state.flaw == Some(Flaw::IdentityReused);
        let index = (1..=SEATS).find(|&index| !state.seats[index].alive).expect("a free seat");
        let seat = &mut state.seats[index];
        let incarnation = if reuse { 1 } else { seat.incarnation + 1 };
        *seat = Seat { incarnation, alive: true, ..Seat::default() };
        let same = state.flaw == Some(Flaw::SameChance);
        let chance = if same { 1 } else { (index as u64) << 16 | u64::from(incarnation) };
        ModelEndpoint {
            world: self.clone(),
            id: EndpointId { index: index as u16, incarnation },
            attached: state.incarnation,
            last: RefCell::default(),
            chance: Cell::new(chance.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        }
    }

    /// Zeroed, 64-byte aligned memory.
    pub(crate) fn scratch(&self, bytes: u64) -> Addr {
        let mut state = self.0.borrow_mut();
        let word = state.free_word;
        state.free_word += (bytes as usize).div_ceil(64) * 8;
        assert!(state.free_word <= MEMORY_WORDS, "out of scratch");
        Addr::new(REGION, word as u64 * 8)
    }

    /// The first address behind the region.
    pub(crate) fn end(&self) -> Addr {
        Addr::new(REGION, MEMORY_WORDS as u64 * 8)
    }

    pub(crate) fn reset(&self) {
        self.0.borrow_mut().incarnation += 1;
    }
}

/// What one verb did.
#[derive(Clone, Debug)]
struct Done {
    status: Result<(), Fault>,
    old: u128,
    read: Vec<u64>,
}

impl State {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn living(&self, id: EndpointId) -> bool {
        let here = |seat: &Seat| seat.alive && seat.incarnation == id.incarnation;
        id.is_somebody() && self.seats.get(usize::from(id.index)).is_some_and(here)
    }

    /// The index of the first word of an access, if the access is allowed.
    fn place(&self, addr: Addr, words: usize, align: u64) -> Result<usize, Fault> {
        if addr.region() == FORBIDDEN.region() && !self.has(Flaw::NoRightIgnored) {
            return Err(Fault::NoRight);
        }
        if !addr.offset().is_multiple_of(align) && !self.has(Flaw::MisalignedTaken) {
            return Err(Fault::Misaligned);
        }
        let first = addr.offset() as usize / 8;
        let checked = if self.has(Flaw::BoundsByFirstWord) { 1 } else { words };
        let known = addr.region() == REGION || self.has(Flaw::NoRightIgnored);
        if !known || !(1..=WORDS_MAX).contains(&words) || first + checked > MEMORY_WORDS {
            return Err(Fault::OutOfBounds);
        }
        Ok(first)
    }

    fn execute(&mut self, by: &ModelEndpoint, verb: &Verb<'_>) -> Done {
        self.happened = true;
        let mut done = Done { status: Ok(()), old: 0, read: Vec::new() };
        done.status = self.admit(by).and_then(|()| self.apply(by, verb, &mut done));
        done
    }

    fn admit(&self, by: &ModelEndpoint) -> Result<(), Fault> {
        if by.attached != self.incarnation && !self.has(Flaw::StaleTaken) {
            return Err(Fault::Stale);
        }
        if self.seats[usize::from(by.id.index)].revoked {
            return Err(Fault::Revoked);
        }
        Ok(())
    }

    fn apply(&mut self, by: &ModelEndpoint, verb: &Verb<'_>, done: &mut Done) -> Result<(), Fault> {
        match *verb {
            Verb::Read { addr, words } => {
                let first = self.place(addr, usize::from(words), 8)?;
                let cut = if self.has(Flaw::LongReadCut) { 511 } else { usize::from(words) };
                let end = (first + usize::from(words).min(cut)).min(MEMORY_WORDS);
                done.read = self.memory[first..end].to_vec();
                let high = done.read.get(1).copied().unwrap_or(0);
                done.old = u128::from(done.read[0]) | u128::from(high) << 64;
            }
            Verb::Write { addr, data } => {
                if self.has(Flaw::RefusalWrites) && addr.region() == REGION {
                    let first = addr.offset() as usize / 8;
                    for (word, value) in self.memory.iter_mut().skip(first).zip(data) {
                        *word = *value;
                    }
                }
                let first = self.place(addr, data.len(), 8)?;
                for (word, value) in self.memory[first..].iter_mut().zip(data) {
                    *word = *value;
                }
            }
            Verb::Cas64 { addr, compare, swap } => {
                let mask = u64::MAX;
                let op = MaskedCas { compare, compare_mask: mask, swap, swap_mask: mask };
                self.narrow(addr, done, |state, old| state.cas64(old, &op))?;
            }
            Verb::Faa64 { addr, add } => {
                self.narrow(addr, done, |_, old| Some(old.wrapping_add(add)))?;
            }
            Verb::MaskedCas64 { addr, op } => {
                self.narrow(addr, done, |state, old| state.cas64(old, &op))?;
            }
            Verb::MaskedFaa64 { addr, mut op } => {
                if self.has(Flaw::CarriesCross) {
                    op.boundary = 0;
                }
                self.narrow(addr, done, |_, old| Some(masked_faa64(old, &op)))?;
            }
            Verb::MaskedCas128 { addr, op, hint } => {
                self.wide(addr, hint, done, |old| masked_cas128(old, &op))?;
            }
            Verb::MaskedFaa128 { addr, op, hint } => {
                self.wide(addr, hint, done, |old| Some(masked_faa128(old, &op)))?;
            }
            Verb::Send { to, message } => return self.deliver(by, to, message),
        }
        Ok(())
    }

    fn cas64(&self, old: u64, op: &MaskedCas<u64>) -> Option<u64> {
        let mut op = *op;
        if self.has(Flaw::CompareIgnoresMask) {
            op.compare_mask = u64::MAX;
        }
        if self.has(Flaw::SwapIgnoresMask) {
            op.swap_mask = u64::MAX;
        }
        if self.has(Flaw::FailedCompareWrites) {
            op.compare_mask = 0;
        }
        masked_cas64(old, &op)
    }

    fn narrow(
        &mut self,
        addr: Addr,
        done: &mut Done,
        change: impl FnOnce(&Self, u64) -> Option<u64>,
    ) -> Result<(), Fault> {
        let at = self.place(addr, 1, 8)?;
        let old = self.memory[at];
        let new = change(self, old);
        let hidden = new.is_none() && self.has(Flaw::FailedCompareHidesOld);
        done.old = if hidden { 0 } else { u128::from(old) };
        if let Some(new) = new {
            self.memory[at] = new;
            if self.has(Flaw::NewForOld) {
                done.old = u128::from(new);
            }
        }
        Ok(())
    }

    fn wide(
        &mut self,
        addr: Addr,
        hint: Option<u128>,
        done: &mut Done,
        change: impl FnOnce(u128) -> Option<u128>,
    ) -> Result<(), Fault> {
        let at = self.place(addr, 2, 16)?;
        let read = u128::from(self.memory[at]) | u128::from(self.memory[at + 1]) << 64;
        let old = hint.filter(|_| self.has(Flaw::HintTrusted)).unwrap_or(read);
        done.old = old;
        if let Some(new) = change(old) {
            self.memory[at] = new as u64;
            if !self.has(Flaw::HighHalfForgotten) {
                self.memory[at + 1] = (new >> 64) as u64;
            }
        }
        Ok(())
    }

    fn deliver(&mut self, by: &ModelEndpoint, to: Mailbox, message: [u64; 4]) -> Result<(), Fault> {
        let mut receiver = to.endpoint;
        let index = usize::from(receiver.index);
        if self.has(Flaw::IncarnationIgnored) && index < self.seats.len() {
            receiver.incarnation = self.seats[index].incarnation;
        }
        let dead_receives = self.has(Flaw::DeadReceives) && (1..=SEATS).contains(&index);
        if !self.living(receiver) && !dead_receives {
            return Err(Fault::PeerGone);
        }
        let slot = if self.has(Flaw::SlotsMixed) { 0 } else { usize::from(to.slot.0) };
        if usize::from(to.slot.0) >= SLOTS {
            return Err(Fault::OutOfBounds);
        }
        let from = if self.has(Flaw::ForgedSender) { receiver } else { by.id };
        let envelope = Envelope { from, arrived: self.clock, message };
        let (twice, reversed) = (self.has(Flaw::MessageTwice), self.has(Flaw::MessagesReversed));
        let (lost, overwrites) = (self.has(Flaw::MessageLost), self.has(Flaw::OldestOverwritten));
        let mail = &mut self.seats[index].mail[slot];
        if mail.len() >= CELLS {
            if !overwrites {
                return Err(Fault::MailboxFull);
            }
            mail.pop_front();
        }
        if reversed {
            mail.push_front(envelope);
        } else if !lost {
            mail.push_back(envelope);
        }
        if twice {
            mail.push_back(envelope);
        }
        Ok(())
    }

    fn woken(&self, by: EndpointId, wait: &Wait<'_>, deadline: Option<Nanos>) -> Option<Woken> {
        if let Some((addr, value)) = wait.word
            && (self.memory[addr.offset() as usize / 8] ^ value) & !wait.ignoring != 0
            && !self.has(Flaw::WordUnseen)
        {
            return Some(Woken::Changed);
        }
        let mail = |slot: Slot| &self.seats[usize::from(by.index)].mail[usize::from(slot.0)];
        if wait.mail.is_some_and(|slot| !mail(slot).is_empty()) && !self.has(Flaw::MailUnseen) {
            return Some(Woken::Mail);
        }
        let gone = wait.peers.iter().find(|&&peer| !self.living(peer));
        if let Some(&peer) = gone
            && !self.has(Flaw::DeathUnseen)
        {
            return Some(Woken::PeerGone(peer));
        }
        deadline.filter(|&deadline| deadline <= self.clock).map(|_| Woken::Elapsed)
    }
}

/// A client of the model.
#[derive(Debug)]
pub(crate) struct ModelEndpoint {
    world: World,
    id: EndpointId,
    /// The node's incarnation when this endpoint attached.
    attached: u64,
    last: RefCell<Vec<Done>>,
    chance: Cell<u64>,
}

impl ModelEndpoint {
    fn state(&self) -> std::cell::RefMut<'_, State> {
        self.world.0.borrow_mut()
    }

    /// The order in which the verbs of a chain are served.
    fn order(&self, chain: &[Link<'_>]) -> Vec<usize> {
        let state = self.world.0.borrow();
        let fences_hold = !state.has(Flaw::FenceIgnored);
        if state.has(Flaw::ChainReversed) {
            return (0..chain.len()).rev().collect();
        }
        if fences_hold && !state.reads_late {
            return (0..chain.len()).collect();
        }
        let (mut order, mut late) = (Vec::new(), Vec::new());
        for (index, link) in chain.iter().enumerate() {
            if link.fence && fences_hold {
                order.append(&mut late);
            }
            let is_read = matches!(link.verb, Verb::Read { .. });
            if is_read { late.push(index) } else { order.push(index) }
        }
        order.append(&mut late);
        order
    }
}

/// Leaving is dying: the seat may be given to the next.
impl Drop for ModelEndpoint {
    fn drop(&mut self) {
        let mut state = self.state();
        state.happened = true;
        if !state.has(Flaw::DeadComeBack) {
            state.seats[usize::from(self.id.index)].alive = false;
        }
    }
}

impl Endpoint for ModelEndpoint {
    const COMPLETES_IN_POST: bool = true;
    const WATCHES_MEMORY: bool = true;
    const LOOKS_AROUND_CHEAPLY: bool = true;
    const SHARES_PROCESSORS: bool = false;

    fn id(&self) -> EndpointId {
        self.id
    }

    fn slots(&self) -> u8 {
        SLOTS as u8
    }

    fn post(&self, verb: Verb<'_>) -> Posted {
        let done = self.state().execute(self, &verb);
        let status = done.status;
        self.last.replace(vec![done]);
        Posted::Done(status)
    }

    fn post_chain(&self, chain: &[Link<'_>]) -> Posted {
        if !(1..=CHAIN_MAX).contains(&chain.len()) {
            return Posted::Done(Err(Fault::Unsupported));
        }
        let skipped = Done { status: Ok(()), old: 0, read: Vec::new() };
        let mut done = vec![skipped; chain.len()];
        for index in self.order(chain) {
            done[index] = self.state().execute(self, &chain[index].verb);
            if done[index].status.is_err() && self.state().has(Flaw::FaultStopsChain) {
                break;
            }
        }
        let first_fault = done.iter().find_map(|done| done.status.err());
        if self.state().has(Flaw::StatusOfFirst) {
            let first = done[0].status;
            done.iter_mut().for_each(|done| done.status = first);
        }
        self.last.replace(done);
        Posted::Done(first_fault.map_or(Ok(()), Err))
    }

    fn poll_posted(&self, _: Ticket, _: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        unreachable!("every verb is done when post returns")
    }

    fn abandon(&self, _: Ticket) {}

    fn old(&self) -> u128 {
        self.last.borrow().first().map_or(0, |done| done.old)
    }

    fn link(&self, index: usize) -> LinkDone {
        let Done { status, old, .. } = self.last.borrow()[index];
        LinkDone { status, old }
    }

    fn copy_read(&self, index: usize, into: &mut [u64]) -> usize {
        let last = self.last.borrow();
        let copied = last[index].read.len().min(into.len());
        into[..copied].copy_from_slice(&last[index].read[..copied]);
        copied
    }

    fn receive(&self, slot: Slot) -> Option<Envelope> {
        let mut state = self.state();
        let (now, late) = (state.clock, state.has(Flaw::ArrivalAtReceipt));
        let mail = &mut state.seats[usize::from(self.id.index)].mail[usize::from(slot.0)];
        let mut envelope = mail.pop_front()?;
        if late {
            envelope.arrived = now;
        }
        Some(envelope)
    }

    fn poll_wait(
        &self,
        wait: &Wait<'_>,
        state: &mut WaitState,
        _: &mut Context<'_>,
    ) -> Poll<Woken> {
        let mut world = self.state();
        if !state.begun {
            state.begun = true;
            let early = if world.has(Flaw::WaitEarly) { 2 } else { 1 };
            state.deadline =
                wait.interval.map(|interval| world.clock.saturating_add(interval / early));
        }
        match world.woken(self.id, wait, state.deadline) {
            Some(woken) => {
                *state = WaitState::default();
                Poll::Ready(woken)
            }
            None => {
                world.deadlines.extend(state.deadline);
                Poll::Pending
            }
        }
    }

    fn end_wait(&self, state: &mut WaitState) {
        *state = WaitState::default();
    }

    fn now(&self) -> Nanos {
        let state = self.state();
        if state.has(Flaw::TimeReversed) { u64::MAX / 2 - state.clock } else { state.clock }
    }

    fn random(&self) -> u64 {
        let state = self.chance.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.chance.set(state);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 31
    }

    fn publish(&self, slot: Slot, word: usize, value: u64) {
        assert!(word < RECORD_WORDS, "a record has {RECORD_WORDS} words");
        let addr = self.record(self.id.index, slot);
        let mut state = self.state();
        let word = if state.has(Flaw::PublishMisplaced) { word ^ 1 } else { word };
        if !state.has(Flaw::PublishLost) {
            state.memory[addr.offset() as usize / 8 + word] = value;
        }
    }

    fn record(&self, index: u16, slot: Slot) -> Addr {
        assert!(usize::from(index) <= SEATS && slot.0 < SLOTS as u8, "such a slot exists");
        let line = usize::from(index) * SLOTS + usize::from(slot.0);
        Addr::new(REGION, (line * RECORD_WORDS * 8) as u64)
    }

    fn endpoints(&self) -> u16 {
        SEATS as u16
    }

    fn occupant(&self, index: u16) -> Option<EndpointId> {
        let state = self.state();
        let seat = state.seats.get(usize::from(index))?;
        let id = EndpointId { index, incarnation: seat.incarnation };
        state.living(id).then_some(id)
    }

    fn is_alive(&self, id: EndpointId) -> bool {
        self.state().living(id)
    }
}

impl Revoke for ModelEndpoint {
    fn revoke(&self, peer: EndpointId) -> Result<(), Fault> {
        let mut state = self.state();
        if state.living(peer) && !state.has(Flaw::RevokeForgotten) {
            state.seats[usize::from(peer.index)].revoked = true;
        }
        if state.has(Flaw::RevokedBystander) {
            state.seats[usize::from(self.id.index)].revoked = true;
        }
        Ok(())
    }
}

impl MaskedAtomics for ModelEndpoint {}

impl WideAtomics for ModelEndpoint {}

impl Park for ModelEndpoint {
    /// Where nothing else can happen, time passes to the next deadline.
    ///
    /// # Panics
    /// If there is none, for then nothing will ever happen.
    fn park(&self) {
        let mut state = self.state();
        let next = state.deadlines.iter().min().copied();
        state.deadlines.clear();
        if std::mem::take(&mut state.happened) {
            return;
        }
        let next = next.expect("a deadlock: everybody waits, nobody for a time");
        state.clock = state.clock.max(next);
    }
}
