//! Lanes: endpoints over a channel.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::bell::Unparker;
use super::channel::Channel;
use super::inbox::{Arrivals, Done, Inbox};
use super::ticket;
use crate::addr::{Addr, EndpointId, Slot};
use crate::connection::Tether;
use crate::endpoint::{
    Endpoint, Envelope, HoldBack, LinkDone, MaskedAtomics, Nanos, NotSend, Park, Posted,
    Publication, RECORD_WORDS, SyncedClock, Ticket, Wait, WaitState, WideAtomics, Woken,
};
use crate::error::{Fault, Garbled};
use crate::hook::Hook;
use crate::results::Results;
use crate::tcp::clock::boot_time;
use crate::tcp::wire::{
    Ended, Fields, PATIENT, Patience, UNSIGNALLED, put_ids, put_link, put_publication, put_watch,
    request, take_end,
};
use crate::verb::{CHAIN_MAX, Link, Verb, WORDS_MAX};

/// How long what a lane was told of a peer's life counts as fresh.
const FRESH_NS: Nanos = 2_000_000;

/// Peers of whose lives it is asked in one go.
const ASKED_MAX: usize = 64;

/// An endpoint over TCP that may be moved from thread to thread. It lives as long as its
/// [`TcpKeeper`] and the connection.
///
/// Once the keeper is gone or the connection is over, verbs under way end with
/// [`Lost`](Fault::Lost), later ones with [`Revoked`](Fault::Revoked), and every wait ends.
#[derive(Debug)]
pub struct TcpLane {
    channel: Arc<Channel>,
    number: u32,
    id: EndpointId,
    inbox: Arc<Inbox>,
    bell: Unparker,
    results: Results,
    random: Cell<u64>,
    next_ticket: Cell<u32>,
    /// Verbs posted whose completions were not asked for yet.
    under_way: Cell<usize>,
    /// Waits that are pending.
    waits: RefCell<Vec<Begun>>,
    next_key: Cell<u32>,
    /// Peers whose lives are to be asked for, and when that was done last.
    doubted: RefCell<Vec<EndpointId>>,
    asked_at: Cell<Nanos>,
    /// Messages that were taken, and the server was perhaps not told yet.
    untold: Cell<u8>,
    /// Whether anything was published since that was waited for.
    has_published: Cell<bool>,
    /// Whether a completion was looked for in vain since anything was sent.
    has_looked: Cell<bool>,
    /// For how long a verb that is posted patiently may be held back.
    patience: Cell<Patience>,
}

/// A wait that is pending.
#[derive(Clone, Copy, Debug)]
struct Begun {
    key: u32,
    /// When it ends by itself.
    deadline: Option<Nanos>,
    /// How often the connection had broken when it began, if it is the server's.
    epoch: Option<u32>,
}

/// Keeps a lane's endpoint alive. Dropping it ends the endpoint: the server declares it dead.
#[derive(Debug)]
#[must_use = "the endpoint lives as long as its keeper"]
pub struct TcpKeeper {
    channel: Arc<Channel>,
    number: u32,
    inbox: Arc<Inbox>,
    /// The process that attached: a forked child is another.
    pid: u32,
    _not_send: NotSend,
}

impl TcpKeeper {
    pub(super) fn new(channel: &Arc<Channel>, number: u32, inbox: &Arc<Inbox>) -> Self {
        let (channel, inbox) = (Arc::clone(channel), Arc::clone(inbox));
        let pid = std::process::id();
        Self { channel, number, inbox, pid, _not_send: PhantomData }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn tether(&self) -> Option<Tether> {
        self.channel.ties.of(self.number)
    }
}

impl Drop for TcpKeeper {
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            return;
        }
        self.channel.say(request::DETACH, |frame| {
            frame.u32(self.number);
        });
        self.channel.flush();
        self.channel.leave(self.number);
        self.channel.ties.cut(self.number);
        self.inbox.put(|state| state.is_over = true);
    }
}

/// A lane with its keeper: an endpoint of the thread that attached it.
#[derive(Debug)]
pub struct TcpEndpoint {
    pub(super) lane: TcpLane,
    pub(super) _keeper: TcpKeeper,
}

impl Hook for TcpEndpoint {
    type Inner = TcpLane;

    fn inner(&self) -> &TcpLane {
        &self.lane
    }
}

impl TcpLane {
    pub(super) fn new(
        channel: &Arc<Channel>,
        number: u32,
        id: EndpointId,
        (inbox, bell): (&Arc<Inbox>, &Unparker),
        seed: u64,
    ) -> Self {
        Self {
            channel: Arc::clone(channel),
            number,
            id,
            inbox: Arc::clone(inbox),
            bell: bell.clone(),
            results: Results::default(),
            random: Cell::new(seed ^ id.bits().wrapping_mul(0xd6e8_feb8_6659_fd93)),
            next_ticket: Cell::new(0),
            under_way: Cell::new(0),
            waits: RefCell::default(),
            next_key: Cell::new(0),
            doubted: RefCell::default(),
            asked_at: Cell::new(0),
            untold: Cell::new(0),
            has_published: Cell::new(false),
            has_looked: Cell::new(false),
            patience: Cell::default(),
        }
    }

    pub(super) fn unparker(&self) -> Unparker {
        self.bell.clone()
    }

    pub(super) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    /// Posts verbs; `is_chain` if what they end with is asked for link by link.
    fn post_all(&self, links: &[Link<'_>], is_chain: bool) -> Posted {
        let asked_for = if is_chain { links.len() as u8 } else { 0 };
        if let Some(fault) = self.refusal() {
            return Posted::Done(self.fail(asked_for, fault));
        }
        self.post_as(links, asked_for.into(), asked_for, None)
    }

    fn post_as(
        &self,
        links: &[Link<'_>],
        remainder: u32,
        asked_for: u8,
        asks: Option<(Patience, Option<Publication>)>,
    ) -> Posted {
        let ticket = self.say(links, remainder, asked_for, asks);
        self.under_way.set(self.under_way.get() + 1);
        self.has_looked.set(false);
        Posted::Pending(Ticket(ticket.into()))
    }

    /// For how long a verb that is posted patiently may be held back from now on.
    pub fn be_patient(&self, patience: Patience) {
        self.patience.set(patience);
    }

    /// Why no verb can be posted any more.
    pub fn refusal(&self) -> Option<Fault> {
        let state = self.inbox.state();
        let (is_over, has_failed) = (state.is_over, state.has_failed);
        drop(state);
        match is_over || self.channel.is_over() {
            true => Some(Fault::Revoked),
            false => has_failed.then_some(Fault::Lost),
        }
    }

    /// Says verbs of which so much is asked. Returns their ticket.
    fn say(
        &self,
        links: &[Link<'_>],
        remainder: u32,
        asked_for: u8,
        asks: Option<(Patience, Option<Publication>)>,
    ) -> u32 {
        let ticket = self.next_ticket.get() | remainder;
        self.next_ticket.set(self.next_ticket.get().wrapping_add(ticket::STEP));
        self.channel.say_verbs(ticket, |frame| {
            frame.u32(self.number).u32(ticket).u8(asked_for);
            if let Some((patience, otherwise)) = asks {
                patience.put(frame);
                put_publication(frame, otherwise);
            }
            links.iter().for_each(|link| put_link(frame, link));
            self.inbox.state().log.post(ticket, frame);
        });
        ticket
    }

    /// A verb of this lane among those of its channel.
    fn verb(&self, ticket: Ticket) -> u64 {
        u64::from(self.number) << 32 | (ticket.0 & 0xffff_ffff)
    }

    /// Blocks until what was posted has completed.
    pub(super) fn complete(&self, posted: Posted) -> Posted {
        let Posted::Pending(ticket) = posted else { return posted };
        Posted::Done(self.block_until(|state| self.take_done(state, ticket.0 as u32)))
    }

    /// Blocks until what was posted has completed, or until this time of [`boot_time`]. `None`: it
    /// has not.
    pub(super) fn complete_by(&self, ticket: Ticket, limit: Nanos) -> Option<Result<(), Fault>> {
        self.block_by(Some(limit), |state| self.take_done(state, ticket.0 as u32))
    }

    /// Blocks until something has come.
    fn block_until<T>(&self, take: impl FnMut(&mut Arrivals) -> Option<T>) -> T {
        self.block_by(None, take).expect("no limit ends it")
    }

    fn block_by<T>(
        &self,
        limit: Option<Nanos>,
        mut take: impl FnMut(&mut Arrivals) -> Option<T>,
    ) -> Option<T> {
        self.flush();
        let bell = self.inbox.state().bell.clone();
        // What else comes is fresh for the next park.
        self.channel.block_until((&bell, limit), || take(&mut self.inbox.state()))
    }

    /// Sends what was said, and first what is to be asked.
    fn flush(&self) {
        self.say_doubts();
        self.channel.flush();
    }

    /// The same for a task ([`Channel::flush_together`]).
    fn flush_together(&self) {
        self.say_doubts();
        self.channel.flush_together();
    }

    fn say_doubts(&self) {
        let mut doubted = self.doubted.borrow_mut();
        if !doubted.is_empty() {
            let now = boot_time();
            if now.saturating_sub(self.asked_at.get()) >= FRESH_NS {
                self.asked_at.set(now);
                self.ask(&doubted);
                doubted.clear();
            }
        }
        drop(doubted);
        self.untold.set(0);
    }

    fn ask(&self, peers: &[EndpointId]) {
        self.channel.say(request::ASK, |frame| put_ids(frame.u32(self.number), peers));
    }

    /// This peer is said to live, by what was told last: it is asked for again.
    fn doubt(&self, id: EndpointId) {
        let mut doubted = self.doubted.borrow_mut();
        if doubted.len() < ASKED_MAX && !doubted.contains(&id) && id != self.id {
            doubted.push(id);
        }
    }

    /// Nothing is known of the links of a chain, if it is one, but this.
    fn fail(&self, links: u8, fault: Fault) -> Result<(), Fault> {
        if links > 0 {
            self.results.fail_chain(links.into(), fault);
        }
        Err(fault)
    }

    /// What a completion brought is the lane's now.
    fn settle(&self, ticket: u32, done: Done) -> Result<(), Fault> {
        let asked_for = ticket::links(ticket) as u8;
        match done {
            Done::Old(status, old) if asked_for == 0 => {
                self.results.set_old(old);
                status
            }
            // What cannot be understood may have taken effect.
            Done::Old(..) => self.fail(asked_for, Fault::Lost),
            Done::Long(fields) => {
                let settled = self.settle_long(asked_for, Fields(&fields));
                settled.unwrap_or_else(|Garbled(_)| self.fail(asked_for, Fault::Lost))
            }
        }
    }

    fn settle_long(
        &self,
        asked_for: u8,
        mut fields: Fields<'_>,
    ) -> Result<Result<(), Fault>, Garbled> {
        let count = fields.u8()?;
        // Links that are not there would be looked for.
        if count != asked_for {
            return Err(Garbled("it is of a chain of another length"));
        }
        let mut words = Vec::new();
        if count == 0 {
            let ended = take_end(&mut fields, &mut words)?;
            fields.end()?;
            return Ok(self.keep(ended, &words));
        }
        self.results.begin_chain();
        let mut first_fault = Ok(());
        for _ in 0..count {
            let ended = take_end(&mut fields, &mut words).inspect_err(|_| {
                self.results.end_chain();
            })?;
            let status = self.keep(ended, &words);
            self.results.end_link(status);
            first_fault = first_fault.and(status);
        }
        self.results.end_chain();
        fields.end()?;
        Ok(first_fault)
    }

    fn keep(&self, ended: Ended, words: &[u64]) -> Result<(), Fault> {
        match ended {
            Ended::Old(status, old) => {
                self.results.set_old(old);
                status
            }
            Ended::Words => {
                self.results.keep(words.len(), |index| words[index]);
                Ok(())
            }
        }
    }

    /// Whether a completion is there, or will never be.
    fn take_done(&self, state: &mut Arrivals, ticket: u32) -> Option<Result<(), Fault>> {
        let ended = self.take_end(state, ticket)?;
        Some(match ended {
            Some(done) => self.settle(ticket, done),
            None => self.fail(ticket::links(ticket) as u8, Fault::Lost),
        })
    }

    /// The same; nothing in it where there will never be a completion.
    fn take_end(&self, state: &mut Arrivals, ticket: u32) -> Option<Option<Done>> {
        let done = state.take_done(ticket);
        if done.is_none() && !state.is_over {
            return None;
        }
        self.under_way.set(self.under_way.get() - 1);
        Some(done)
    }

    /// Whether a wait has ended, but for its interval.
    fn take_woken(&self, state: &mut Arrivals, wait: &Wait<'_>, key: u32) -> Option<Woken> {
        if let Some(woken) = state.take_woken(key) {
            self.waits.borrow_mut().retain(|known| known.key != key);
            return Some(woken);
        }
        let has_mail = |slot: Slot| !state.mail[usize::from(slot.0)].is_empty();
        if wait.mail.is_some_and(has_mail) {
            return Some(Woken::Mail);
        }
        // The next server knows nothing of it: the caller looks, and waits again.
        let is_it = |known: &&Begun| known.key == key;
        let begun_in = self.waits.borrow().iter().find(is_it).and_then(|known| known.epoch);
        let is_forgotten = begun_in.is_some_and(|epoch| epoch != state.epoch);
        (state.is_over || is_forgotten).then_some(Woken::Changed)
    }

    fn begin_wait(&self, wait: &Wait<'_>, state: &mut WaitState) {
        let key = self.next_key.get();
        self.next_key.set(key.wrapping_add(1));
        state.begun = true;
        state.key = key.into();
        state.deadline = wait.interval.map(|interval| boot_time().saturating_add(interval));
        let concerns_server = wait.word.is_some() || wait.mail.is_some() || !wait.peers.is_empty();
        if !concerns_server {
            // Mail that is not waited for comes when it is asked for.
            self.ask(&[]);
            let (deadline, epoch) = (state.deadline, None);
            return self.waits.borrow_mut().push(Begun { key, deadline, epoch });
        }
        let epoch = self.channel.say(request::WAIT, |frame| {
            frame.u32(self.number).u32(key);
            put_watch(frame, wait);
        });
        let (deadline, epoch) = (state.deadline, Some(epoch));
        self.waits.borrow_mut().push(Begun { key, deadline, epoch });
    }

    /// The wait is over for a reason that the server need not know.
    fn forget_wait(&self, state: &mut WaitState) {
        let key = state.key as u32;
        let mut waits = self.waits.borrow_mut();
        if let Some(at) = waits.iter().position(|known| known.key == key) {
            waits.swap_remove(at);
            drop(waits);
            // It may have ended there meanwhile.
            if self.inbox.state().take_woken(key).is_none() {
                self.channel.say(request::END_WAIT, |frame| {
                    frame.u32(self.number).u32(key);
                });
                self.channel.flush_soon();
            }
        }
        state.begun = false;
    }

    /// When to look again at the latest; `None` if nothing is pending.
    pub(super) fn looks_again(&self) -> Option<Option<Nanos>> {
        let waits = self.waits.borrow();
        let is_pending = self.under_way.get() > 0 || !waits.is_empty();
        is_pending.then(|| waits.iter().filter_map(|wait| wait.deadline).min())
    }

    /// Whether anything came since the last park; from now on `bell` rings for what comes.
    pub(super) fn listen(&self, bell: &Unparker) -> bool {
        let mut state = self.inbox.state();
        state.bell = bell.clone();
        std::mem::take(&mut state.news) > 0
    }

    /// The park is over: everything pending is looked at again.
    pub(super) fn heard(&self) {
        let wakers = {
            let mut state = self.inbox.state();
            state.news = 0;
            state.bell = self.bell.clone();
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    pub(super) fn before_sleep(&self) {
        self.flush();
    }
}

impl Endpoint for TcpLane {
    const COMPLETES_IN_POST: bool = false;
    const WATCHES_MEMORY: bool = true;
    const LOOKS_AROUND_CHEAPLY: bool = false;
    const SHARES_PROCESSORS: bool = false;
    const KEEPS_ORDER: bool = true;

    fn id(&self) -> EndpointId {
        self.id
    }

    fn slots(&self) -> u8 {
        self.channel.facts.slots
    }

    fn post(&self, verb: Verb<'_>) -> Posted {
        // What is too long is not sent only to be refused.
        if matches!(verb, Verb::Write { data, .. } if data.len() > WORDS_MAX) {
            return Posted::Done(Err(Fault::OutOfBounds));
        }
        self.post_all(&[verb.into()], false)
    }

    fn post_patiently(&self, verb: Verb<'_>, hold: HoldBack) -> Posted {
        let patience = self.patience.get().min(Patience::fixed(hold.at_most));
        match (patience.still, self.refusal(), verb) {
            (1.., None, Verb::MaskedCas64 { .. } | Verb::MaskedCas128 { .. }) => {
                let asks = Some((patience, hold.otherwise));
                self.post_as(&[verb.into()], ticket::PATIENT, PATIENT, asks)
            }
            _ => self.post(verb),
        }
    }

    fn holds_back(&self) -> bool {
        self.patience.get().still > 0
    }

    fn post_chain(&self, chain: &[Link<'_>]) -> Posted {
        if chain.is_empty() || chain.len() > CHAIN_MAX {
            return Posted::Done(Err(Fault::Unsupported));
        }
        self.post_all(chain, true)
    }

    fn poll_posted(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let verb = self.verb(ticket);
        // What has come with something else takes no look at the connection.
        if let Some(ended) = self.take_done(&mut self.inbox.state(), ticket.0 as u32) {
            self.channel.looks_no_more(verb, true);
            return Poll::Ready(ended);
        }
        self.say_doubts();
        let looks = self.channel.looks(verb, !self.has_looked.replace(true), cx.waker());
        if looks {
            self.channel.read_now(&self.bell);
        }
        let mut state = self.inbox.state();
        if let Some(ended) = self.take_done(&mut state, ticket.0 as u32) {
            drop(state);
            self.channel.looks_no_more(verb, true);
            return Poll::Ready(ended);
        }
        state.watch(cx.waker());
        drop(state);
        if looks {
            self.channel.look_again(verb, cx.waker());
        }
        Poll::Pending
    }

    fn abandon(&self, ticket: Ticket) {
        self.channel.looks_no_more(self.verb(ticket), false);
        let ticket = ticket.0 as u32;
        self.under_way.set(self.under_way.get() - 1);
        let mut state = self.inbox.state();
        if state.take_done(ticket).is_none() {
            state.abandoned.push(ticket);
        }
        drop(state);
        self.flush();
    }

    fn post_unsignalled(&self, verb: Verb<'_>, may_lie: bool) {
        if self.refusal().is_some() {
            return;
        }
        self.say(&[verb.into()], ticket::UNSIGNALLED, UNSIGNALLED, None);
        if may_lie && self.channel.rides() {
            self.channel.flush_soon();
        } else if may_lie {
            self.flush_together();
        } else {
            self.flush();
        }
    }

    fn post_all_unsignalled<'v>(&self, verbs: impl Iterator<Item = Verb<'v>>) {
        if self.refusal().is_some() {
            return;
        }
        for verb in verbs {
            self.say(&[verb.into()], ticket::UNSIGNALLED, UNSIGNALLED, None);
        }
        self.flush();
    }

    fn old(&self) -> u128 {
        self.results.old()
    }

    fn link(&self, index: usize) -> LinkDone {
        self.results.link(index)
    }

    fn copy_read(&self, index: usize, into: &mut [u64]) -> usize {
        self.results.copy(index, into)
    }

    fn receive(&self, slot: Slot) -> Option<Envelope> {
        let number = usize::from(slot.0);
        // What came before the end of an own verb is there already.
        let (message, envelope) = self.inbox.state().take_mail(slot)?;
        self.channel.say(request::TOOK, |frame| {
            frame.u32(self.number).u8(slot.0).u64(message);
        });
        self.untold.set(self.untold.get() + 1);
        let left = self.inbox.state().mail[number].len();
        // A mailbox that is full keeps senders from sending.
        if left > 1 || self.untold.get() > 1 {
            self.flush();
        } else {
            self.channel.flush_soon();
        }
        Some(envelope)
    }

    fn poll_wait(
        &self,
        wait: &Wait<'_>,
        state: &mut WaitState,
        cx: &mut Context<'_>,
    ) -> Poll<Woken> {
        let first = !state.begun;
        if first {
            let has_mail = |slot: Slot| !self.inbox.state().mail[usize::from(slot.0)].is_empty();
            if wait.mail.is_some_and(has_mail) {
                return Poll::Ready(Woken::Mail);
            }
            self.begin_wait(wait, state);
            self.flush();
        } else {
            self.channel.read_now(&self.bell);
        }
        let ended = {
            let mut arrivals = self.inbox.state();
            let ended = self.take_woken(&mut arrivals, wait, state.key as u32);
            if ended.is_none() {
                arrivals.watch(cx.waker());
            }
            ended
        };
        let is_past = |deadline| boot_time() >= deadline;
        // At first other tasks of this thread run, which may be those that are waited for.
        let elapsed = || (!first && state.deadline.is_some_and(is_past)).then_some(Woken::Elapsed);
        match ended.or_else(elapsed) {
            Some(woken) => {
                self.forget_wait(state);
                Poll::Ready(woken)
            }
            None => Poll::Pending,
        }
    }

    fn end_wait(&self, state: &mut WaitState) {
        if state.begun {
            self.forget_wait(state);
        }
    }

    fn now(&self) -> Nanos {
        boot_time()
    }

    /// SplitMix64, as in shared memory.
    fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn publish(&self, slot: Slot, word: usize, value: u64) {
        assert!(slot.0 < self.slots() && word < RECORD_WORDS, "a word of an own record");
        self.channel.say(request::PUBLISH, |frame| {
            frame.u32(self.number).u8(slot.0).u8(word as u8).u64(value);
            self.inbox.state().log.publish((slot, word), value, frame);
        });
        self.has_published.set(true);
        self.channel.flush_soon();
    }

    /// A read of a word of its own, of which the result is dropped.
    fn show(&self) {
        if !self.has_published.take() {
            return;
        }
        let addr = self.record(self.id.index, Slot(0));
        if let Posted::Pending(ticket) = self.post(Verb::Read { addr, words: 1 }) {
            self.block_until(|state| self.take_end(state, ticket.0 as u32));
        }
    }

    /// # Panics
    /// If there is no such index or slot.
    fn record(&self, index: u16, slot: Slot) -> Addr {
        let facts = &self.channel.facts;
        let is_there = (1..=facts.all).contains(&index) && slot.0 < facts.slots;
        assert!(is_there, "an endpoint's index and slot");
        let number = u64::from(index - 1) * u64::from(facts.slots) + u64::from(slot.0);
        facts.records.plus(number * (RECORD_WORDS as u64 * 8))
    }

    fn endpoints(&self) -> u16 {
        self.channel.facts.all
    }

    fn occupied_from(&self, index: u16) -> Option<u16> {
        // A caller that goes through all of them reads once: among hundreds of clients that count
        // each other, a system call for each is more than all that they say. What this lane has
        // learnt of an endpoint came behind the news of it.
        if index <= 1 {
            self.channel.read_now(&self.bell);
        }
        self.channel.occupied_from(index)
    }

    fn occupant(&self, index: u16) -> Option<EndpointId> {
        self.channel.read_now(&self.bell);
        let occupant = self.channel.occupant(index)?;
        self.doubt(occupant);
        Some(occupant)
    }

    fn is_alive(&self, id: EndpointId) -> bool {
        self.occupant(id.index) == Some(id)
    }
}

impl MaskedAtomics for TcpLane {}

impl WideAtomics for TcpLane {}

/// On the server's own host, all read the clock of one kernel. Elsewhere nothing is known of how
/// far clocks lie apart, so that no lease ends safely: there users of this ability wait for ever.
impl SyncedClock for TcpLane {
    fn clock_error(&self) -> Nanos {
        /// As in shared memory.
        const ONE_CLOCK_NS: Nanos = 1_000;
        if self.channel.facts.has_one_clock() { ONE_CLOCK_NS } else { Nanos::MAX }
    }
}

impl Park for TcpLane {
    fn park(&self) {
        park(&self.channel, std::iter::once(self), &self.bell);
    }
}

/// Sleeps until anything has come for one of these lanes of a channel, the bell rings, or the first
/// of their waits ends by itself. Returns at once where nothing is pending.
pub(super) fn park<'l>(
    channel: &Channel,
    lanes: impl Iterator<Item = &'l TcpLane> + Clone,
    bell: &Unparker,
) {
    let pending = lanes.clone().filter_map(TcpLane::looks_again);
    let earliest = pending.reduce(|a, b| match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    });
    let Some(until) = earliest else { return };
    sleep(channel, lanes, bell, (until, false));
}

/// The same where nothing need be pending, until a time of the boot clock at the latest: it reads
/// for all whose verbs are on their way and who do not sleep themselves.
pub(super) fn watch<'l>(
    channel: &Channel,
    lanes: impl Iterator<Item = &'l TcpLane> + Clone,
    bell: &Unparker,
    until: Option<Nanos>,
) {
    let pending = lanes.clone().filter_map(TcpLane::looks_again);
    let is_for_others = pending.clone().next().is_none();
    let until = pending.flatten().chain(until).min();
    sleep(channel, lanes, bell, (until, is_for_others));
}

fn sleep<'l>(
    channel: &Channel,
    lanes: impl Iterator<Item = &'l TcpLane> + Clone,
    bell: &Unparker,
    (until, reads_for_tasks): (Option<Nanos>, bool),
) {
    lanes.clone().for_each(TcpLane::before_sleep);
    let is_fresh = lanes.clone().fold(false, |is_fresh, lane| lane.listen(bell) | is_fresh);
    if !is_fresh {
        channel.sleep(bell, until, reads_for_tasks);
    }
    lanes.for_each(TcpLane::heard);
}
