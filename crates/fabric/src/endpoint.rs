//! The seam: what a protocol asks of the world, and nothing else.
//!
//! A protocol is an async function over an [`Endpoint`]. The endpoint executes verbs, delivers
//! messages, waits, tells the time and draws random numbers. Endpoints stay on one thread; they
//! and the futures made of them are not `Send`.
//!
//! Results stay small on purpose: a verb completes with `Result<(), Fault>`, and what it read stays
//! with the endpoint until the next completion ([`Endpoint::old`], [`Endpoint::link`]). A value of
//! 16 bytes handed through several futures costs more than the atomic that produced it.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::addr::{Addr, EndpointId, Mailbox, Slot};
use crate::error::Fault;
use crate::verb::{Link, MaskedCas, MaskedFaa, Message, Verb};

/// What the contract calls time: nanoseconds on a monotonic clock that counts suspended time.
/// Readings of different endpoints may differ, and drift apart by at most 1e-4.
pub type Nanos = u64;

/// 64-bit words in a slot's record: one cache line.
pub const RECORD_WORDS: usize = 8;

/// What became of a posted verb or chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    /// It completed at once; what it read is with the endpoint.
    Done(Result<(), Fault>),
    /// It is on its way.
    Pending(Ticket),
}

/// A verb or chain on its way. Its meaning is the endpoint's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(pub u64);

/// How one link of the last completed chain ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkDone {
    /// Whether it took effect.
    pub status: Result<(), Fault>,
    /// An atomic's old word, or the first one or two words of a read; a 64-bit value is the low
    /// half.
    pub old: u128,
}

/// A message that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Who sent it.
    pub from: EndpointId,
    /// When it reached the mailbox, by the receiver's clock.
    pub arrived: Nanos,
    /// What it says.
    pub message: Message,
}

/// A word of a slot's record, and what it is to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Publication {
    /// Whose record, of the poster's slots.
    pub slot: Slot,
    /// Which of its words.
    pub word: usize,
    /// What that says.
    pub value: u64,
}

/// What ends a wait. Everything that is set ends it; nothing set would be forever and is refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait<'a> {
    /// The 8-byte word at this address differs from this value. An endpoint that does not watch
    /// memory does not look: it returns [`Woken::Elapsed`] after `interval`, and the caller reads
    /// again.
    pub word: Option<(Addr, u64)>,
    /// But for these bits, of which others may come and go meanwhile. A change of them may end it
    /// all the same.
    pub ignoring: u64,
    /// A message lies in this slot's mailbox.
    pub mail: Option<Slot>,
    /// One of these peers died.
    pub peers: &'a [EndpointId],
    /// So many nanoseconds have passed. A wait of none ends as soon as it has yielded, if it is
    /// patient enough to yield.
    pub interval: Option<Nanos>,
    /// How to spend the time.
    pub patience: Patience,
}

/// Why a wait ended. A spurious [`Woken::Changed`] is allowed: look again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// The word changed, or may have.
    Changed,
    /// A message is there.
    Mail,
    /// This peer is dead: none of its verbs will take effect any more.
    PeerGone(EndpointId),
    /// The interval passed.
    Elapsed,
}

/// How a waiter spends its time where the back end has a choice: first it spins, then it yields its
/// processor, then it sleeps until woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// Looks at the word, with a pause instruction between them. Of more than
    /// [`Patience::BRIEF`] a back end makes fewer where that does not pay.
    pub spins: u32,
    /// Then looks with a yield of the processor between them.
    pub yields: u32,
}

impl Patience {
    /// Sleep at once.
    pub const PARK: Self = Self { spins: 0, yields: 0 };

    /// So few spins cost no more than a yield, and are made in any case.
    pub const BRIEF: u32 = 50;

    /// A short spin, a few yields, then sleep. A back end spins less where that does not pay.
    pub const DEFAULT: Self = Self { spins: 200, yields: 20 };
}

impl Default for Patience {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// How a server may hold a verb back ([`Endpoint::post_patiently`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldBack {
    /// For so long at most.
    pub at_most: Nanos,
    /// What the poster's record says from then on if the comparison fails in the end, also where
    /// the poster is stopped before it hears of that: so nobody has to guess whether it has what
    /// it asked for. A fabric that holds no verbs back need not do so: it answers soon.
    pub otherwise: Option<Publication>,
}

impl Default for HoldBack {
    fn default() -> Self {
        Self { at_most: Nanos::MAX, otherwise: None }
    }
}

/// A client's connection to the fabric: 64-bit verbs, messages, waiting, time and chance.
pub trait Endpoint: Sized + 'static {
    /// Every verb completes within [`Endpoint::post`]. So [`Posted::Pending`] never comes, and what
    /// a peer does next takes as long as its processor, not a round trip.
    const COMPLETES_IN_POST: bool;

    /// A wait looks at [`Wait::word`], so that a change ends it and no interval is needed. Where it
    /// does not, a waiter polls by the clock, and may miss a word that changes there and back.
    const WATCHES_MEMORY: bool;

    /// To read the slot records of all endpoints costs no round trips, so that a waiter may look
    /// around as soon as it doubts, and again after milliseconds.
    const LOOKS_AROUND_CHEAPLY: bool;

    /// Waiters and holders run on the same processors: a yield may let a holder go on, and work in
    /// a critical section keeps a processor busy.
    const SHARES_PROCESSORS: bool;

    /// What is posted later takes effect later, also by another post.
    const KEEPS_ORDER: bool = Self::COMPLETES_IN_POST;

    /// Who this is.
    fn id(&self) -> EndpointId;

    /// How many slots this endpoint has; their numbers are below this.
    fn slots(&self) -> u8;

    /// Posts one verb. Where [`Endpoint::COMPLETES_IN_POST`] it is done on return.
    fn post(&self, verb: Verb<'_>) -> Posted;

    /// Posts one verb whose end nobody waits for soon. It need not be done on return, also where
    /// [`Endpoint::COMPLETES_IN_POST`]: where that is a round trip it travels with what is posted
    /// next, or a little later by itself.
    #[inline(always)]
    fn post_aside(&self, verb: Verb<'_>) -> Posted {
        self.post(verb)
    }

    /// Posts one verb that is of no use if its comparison fails, and that its poster would only
    /// post again. Where a server executes it, and its lane says so, it is held back for a while
    /// for others to change what is compared: it is slow then, and nothing else.
    #[inline(always)]
    fn post_patiently(&self, verb: Verb<'_>, hold: HoldBack) -> Posted {
        let _ = hold;
        self.post(verb)
    }

    /// Whether what is posted patiently now may be held back.
    #[inline(always)]
    fn holds_back(&self) -> bool {
        false
    }

    /// Posts 1 to [`CHAIN_MAX`](crate::verb::CHAIN_MAX) verbs to one memory node with one doorbell.
    /// The chain completes when its last verb has, with its first fault; [`Endpoint::link`] tells
    /// each verb's own end. A fault does not stop the verbs after it.
    fn post_chain(&self, chain: &[Link<'_>]) -> Posted;

    /// Whether the verb or chain behind this ticket has completed. `Ready` once, then the ticket is
    /// spent.
    fn poll_posted(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<(), Fault>>;

    /// Nobody will ask for this ticket's completion. The verb takes effect all the same.
    fn abandon(&self, ticket: Ticket);

    /// Posts a single verb, which is no read, of which nobody will ask how it ended: unsignalled,
    /// in the terms of RDMA. Where it costs a round trip to know that, it costs none. It comes
    /// before later verbs where the endpoint keeps order; if it failed, one of those may say so. If
    /// it `may_lie` it may take effect some milliseconds late, to travel with the next verb.
    #[inline(always)]
    fn post_unsignalled(&self, verb: Verb<'_>, may_lie: bool) {
        let _ = may_lie;
        if let Posted::Pending(ticket) = self.post(verb) {
            self.abandon(ticket);
        }
    }

    /// The same of several verbs, which travel together and take effect in this order.
    #[inline(always)]
    fn post_all_unsignalled<'v>(&self, verbs: impl Iterator<Item = Verb<'v>>) {
        verbs.for_each(|verb| self.post_unsignalled(verb, false));
    }

    /// The old word of the last completed atomic, or the first words of the last completed read; a
    /// 64-bit value is the low half.
    fn old(&self) -> u128;

    /// How the `index`-th verb of the last completed chain ended; also if that was refused, or is
    /// lost, as a whole.
    fn link(&self, index: usize) -> LinkDone;

    /// Copies what the `index`-th verb of the last completed chain read (0 for a single verb).
    /// Returns how many words were copied.
    fn copy_read(&self, index: usize, into: &mut [u64]) -> usize;

    /// Takes the oldest message out of a slot's mailbox. Local: no verb.
    fn receive(&self, slot: Slot) -> Option<Envelope>;

    /// Whether a slot's mailbox holds something that [`Endpoint::receive`] does not give yet, since
    /// its sender is still writing it.
    fn has_unread(&self, slot: Slot) -> bool {
        let _ = slot;
        false
    }

    /// Begins a wait, or goes on with it; `state` is [`WaitState::default`] at first. The only
    /// place where time passes.
    fn poll_wait(
        &self,
        wait: &Wait<'_>,
        state: &mut WaitState,
        cx: &mut Context<'_>,
    ) -> Poll<Woken>;

    /// The wait in this state was dropped before it ended.
    fn end_wait(&self, state: &mut WaitState);

    /// The time.
    fn now(&self) -> Nanos;

    /// A uniformly random number from this endpoint's own seeded stream.
    fn random(&self) -> u64;

    /// Stores one word of a slot's record. Only its owner stores; every endpoint of the region can
    /// read the record at [`Endpoint::record`]. Takes effect before any later verb of this
    /// endpoint, costs no round trip, completes at once.
    fn publish(&self, slot: Slot, word: usize, value: u64);

    /// Returns when what was published has taken effect, and what was sent to this endpoint before
    /// that can be received. So of two, of whom one publishes and then looks for mail, and the
    /// other sends mail and then reads what is published, one sees what the other did. Costs a
    /// round trip, for which it blocks, where either takes one.
    #[inline(always)]
    fn show(&self) {}

    /// Where the record of some endpoint's slot lies: [`RECORD_WORDS`] words. Behind it lies that
    /// of the next slot, and behind that of the last slot that of the next index's first: one verb
    /// reads many.
    fn record(&self, index: u16, slot: Slot) -> Addr;

    /// The indices of endpoints that may exist are 1 to this.
    fn endpoints(&self) -> u16;

    /// The lowest index from this one on that may be occupied: what was passed over was nobody's.
    /// Where a fabric knows no better it is this index itself. A peer that has learnt of an
    /// endpoint, by a word it changed or a message, finds it until it is dead.
    #[inline]
    fn occupied_from(&self, index: u16) -> Option<u16> {
        (index <= self.endpoints()).then_some(index.max(1))
    }

    /// The indices that may be occupied, in order. Costs by who is there, not by who could be,
    /// where the fabric knows.
    fn occupied(&self) -> impl Iterator<Item = u16> {
        let next = |last: &u16| last.checked_add(1).and_then(|index| self.occupied_from(index));
        std::iter::successors(self.occupied_from(1), next)
    }

    /// Who has this index, if a living endpoint does, as far as this endpoint has been told: it is
    /// told of a newcomer before it can see any effect of it. Costs no round trip.
    fn occupant(&self, index: u16) -> Option<EndpointId>;

    /// Whether this endpoint lives, as far as the one that asks has been told. An endpoint that it
    /// knew and that is dead is dead for good, and none of its verbs will take effect any more.
    /// Costs no round trip.
    fn is_alive(&self, id: EndpointId) -> bool;

    /// A loop of a protocol begins another turn, and `survivors` is all that it carries over from
    /// the turn before. An explorer that meets the same survivors in the same world has been here.
    #[inline(always)]
    fn checkpoint(&self, survivors: &[u64]) {
        let _ = survivors;
    }

    // What follows is the async face, the same for every endpoint.

    /// Posts a verb; await it for its completion.
    #[inline(always)]
    fn verb(&self, verb: Verb<'_>) -> Completion<'_, Self> {
        Completion { endpoint: self, posted: self.post(verb) }
    }

    /// Posts a chain; await it for its completion.
    #[inline]
    fn chain(&self, chain: &[Link<'_>]) -> Completion<'_, Self> {
        Completion { endpoint: self, posted: self.post_chain(chain) }
    }

    /// Goes on with a ticket that [`Endpoint::post`] gave.
    #[inline(always)]
    fn completion(&self, posted: Posted) -> Completion<'_, Self> {
        Completion { endpoint: self, posted }
    }

    /// Reads one word.
    #[inline]
    fn read64(&self, addr: Addr) -> Completion<'_, Self> {
        self.verb(Verb::Read { addr, words: 1 })
    }

    /// Compares and swaps one word; [`Endpoint::old`] has the old one.
    #[inline(always)]
    fn cas64(&self, addr: Addr, compare: u64, swap: u64) -> Completion<'_, Self> {
        self.verb(Verb::Cas64 { addr, compare, swap })
    }

    /// Adds to one word; [`Endpoint::old`] has the old one.
    #[inline(always)]
    fn faa64(&self, addr: Addr, add: u64) -> Completion<'_, Self> {
        self.verb(Verb::Faa64 { addr, add })
    }

    /// Sends a message.
    #[inline]
    fn send(&self, to: Mailbox, message: Message) -> Completion<'_, Self> {
        self.verb(Verb::Send { to, message })
    }

    /// Waits.
    ///
    /// # Panics
    /// If nothing could ever end the wait.
    #[inline]
    fn wait<'a>(&'a self, wait: Wait<'a>) -> Waiting<'a, Self> {
        let endless = wait.word.is_none()
            && wait.mail.is_none()
            && wait.peers.is_empty()
            && wait.interval.is_none();
        assert!(!endless, "nothing can end this wait");
        Waiting { endpoint: self, wait, state: WaitState::default() }
    }

    /// Waits for so many nanoseconds.
    #[inline]
    fn sleep(&self, interval: Nanos) -> Waiting<'_, Self> {
        self.wait(Wait { interval: Some(interval), patience: Patience::PARK, ..Wait::default() })
    }
}

/// The ability to change some bits of a 64-bit word.
pub trait MaskedAtomics: Endpoint {
    /// [`masked_cas64`](crate::verb::masked_cas64) on a word of far memory.
    #[inline(always)]
    fn masked_cas64(&self, addr: Addr, op: MaskedCas<u64>) -> Completion<'_, Self> {
        self.verb(Verb::MaskedCas64 { addr, op })
    }

    /// [`masked_faa64`](crate::verb::masked_faa64) on a word of far memory.
    #[inline(always)]
    fn masked_faa64(&self, addr: Addr, op: MaskedFaa<u64>) -> Completion<'_, Self> {
        self.verb(Verb::MaskedFaa64 { addr, op })
    }
}

/// The ability to change a 128-bit word.
pub trait WideAtomics: MaskedAtomics {
    /// [`masked_cas128`](crate::verb::masked_cas128) on a word of far memory.
    #[inline(always)]
    fn masked_cas128(
        &self,
        addr: Addr,
        op: MaskedCas<u128>,
        hint: Option<u128>,
    ) -> Completion<'_, Self> {
        self.verb(Verb::MaskedCas128 { addr, op, hint })
    }

    /// [`masked_faa128`](crate::verb::masked_faa128) on a word of far memory.
    #[inline(always)]
    fn masked_faa128(
        &self,
        addr: Addr,
        op: MaskedFaa<u128>,
        hint: Option<u128>,
    ) -> Completion<'_, Self> {
        self.verb(Verb::MaskedFaa128 { addr, op, hint })
    }
}

/// The ability to end the effects of a peer that lives. No lock asks for it.
pub trait Revoke: Endpoint {
    /// After this returns `Ok`, no verb of `peer` takes effect any more; its own next verb is
    /// refused with [`Fault::Revoked`].
    fn revoke(&self, peer: EndpointId) -> Result<(), Fault>;
}

/// The ability to compare clocks of different endpoints. Only DrTM asks for it.
pub trait SyncedClock: Endpoint {
    /// Readings of any two endpoints at one moment differ by at most this.
    fn clock_error(&self) -> Nanos;
}

/// An endpoint that can block its thread: the base of the blocking face.
pub trait Park: Endpoint {
    /// Blocks until a wait of this endpoint that was polled may have ended.
    fn park(&self);
}

/// Runs a future of this endpoint to its end on this thread, which sleeps while the future waits.
#[inline]
pub fn block_on<E: Park, F: Future>(endpoint: &E, future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        endpoint.park();
    }
}

/// What an endpoint remembers of one wait between polls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WaitState {
    /// Whether the wait has begun.
    pub begun: bool,
    /// When its interval ends, by the endpoint's clock.
    pub deadline: Option<Nanos>,
    /// The endpoint's own handle of it.
    pub key: u64,
    /// How often it has looked in vain at something that rings nobody.
    pub naps: u32,
}

/// The completion of a verb or chain that was posted. Dropping it forgets the result, never the
/// verb.
#[must_use = "a verb's completion says whether it took effect"]
#[derive(Debug)]
pub struct Completion<'e, E: Endpoint> {
    endpoint: &'e E,
    posted: Posted,
}

impl<E: Endpoint> Future for Completion<'_, E> {
    type Output = Result<(), Fault>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.posted {
            Posted::Done(result) => Poll::Ready(result),
            Posted::Pending(ticket) => {
                let polled = self.endpoint.poll_posted(ticket, cx);
                if let Poll::Ready(result) = polled {
                    self.posted = Posted::Done(result);
                }
                polled
            }
        }
    }
}

impl<E: Endpoint> Drop for Completion<'_, E> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Posted::Pending(ticket) = self.posted {
            self.endpoint.abandon(ticket);
        }
    }
}

/// A wait in progress.
#[must_use = "a wait does nothing until it is awaited"]
#[derive(Debug)]
pub struct Waiting<'a, E: Endpoint> {
    endpoint: &'a E,
    wait: Wait<'a>,
    state: WaitState,
}

impl<E: Endpoint> Future for Waiting<'_, E> {
    type Output = Woken;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Woken> {
        let this = &mut *self;
        this.endpoint.poll_wait(&this.wait, &mut this.state, cx)
    }
}

impl<E: Endpoint> Drop for Waiting<'_, E> {
    #[inline]
    fn drop(&mut self) {
        if self.state.begun {
            self.endpoint.end_wait(&mut self.state);
        }
    }
}

/// Marks a type as bound to its thread.
pub type NotSend = PhantomData<*const ()>;
