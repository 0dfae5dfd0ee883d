//! The core of a client: its endpoint, its slots, and what they wait for.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use farlock_fabric::{Addr, Endpoint, Fault, Park, Posted, Ticket, block_on};

use crate::error::{ReleaseError, TuneError};
use crate::event::EventCounts;
use crate::lock::{Lock, Tried, Tuning};
use crate::promise::Granted;
use crate::site::Outcome;
use crate::slots::{Closing, Opening, Options, SlotState, Slots, Tries};
use crate::want::{Mode, Want};

/// The most slots of a client.
const SLOTS_MAX: usize = u64::BITS as usize;

/// A client of locks of one kind over one endpoint. Stays on its thread; clones share everything.
pub struct Client<E: Endpoint, L: Lock<E>> {
    pub(super) core: Rc<Core<E, L>>,
}

pub(super) struct Core<E: Endpoint, L: Lock<E>> {
    pub(super) slots: Slots<E, L, SLOTS_MAX>,
    /// One bit per slot that is free.
    free: Cell<u64>,
    /// One bit per slot whose owner lost interest and that has something left to do.
    unsettled: Cell<u64>,
    /// One bit per slot whose last hold ended before it was released.
    lost: Cell<u64>,
    work: [Work; SLOTS_MAX],
}

/// What a slot waits for: a verb, or others.
pub(super) struct Work {
    /// The verb that the slot waits for, if no task does.
    verb: Cell<Option<(Step, Ticket)>>,
    task: RefCell<Option<Task>>,
}

impl Work {
    const fn new() -> Self {
        Self { verb: Cell::new(None), task: RefCell::new(None) }
    }
}

/// What the verb of a slot is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// It acquires the lock or gets in line.
    Opening,
    /// It releases the lock or finds out that it cannot.
    Closing,
}

/// The part of an acquisition or a release that waits for others. An acquisition leaves its grant
/// in the slot.
pub(super) type Task = Pin<Box<dyn Future<Output = Outcome<()>>>>;

impl<E: Endpoint, L: Lock<E>> Client<E, L> {
    /// A client of `kind` locks that uses all of `endpoint`'s slots (at most 64).
    pub fn new(endpoint: E, kind: L, options: Options) -> Self {
        let count = endpoint.slots().min(SLOTS_MAX as u8);
        assert!(count > 0, "an endpoint has at least one slot");
        let core = Core {
            free: Cell::new(u64::MAX >> (64 - u32::from(count))),
            unsettled: Cell::new(0),
            lost: Cell::new(0),
            slots: Slots::new(endpoint, kind, options),
            work: [const { Work::new() }; SLOTS_MAX],
        };
        Self { core: Rc::new(core) }
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &E {
        &self.core.slots.endpoint
    }

    /// How often each kind of event happened at this client.
    pub fn events(&self) -> EventCounts {
        self.core.slots.events.get()
    }

    /// What this client remembers from one acquisition to the next and acts upon, as a number: a
    /// survivor of [`Endpoint::checkpoint`] where a loop acquires in each turn.
    #[doc(hidden)]
    pub fn memory(&self) -> u64 {
        if !self.core.slots.kind.promises().acts_on_memory {
            return 0;
        }
        let count = usize::from(self.core.slots.endpoint.slots()).min(SLOTS_MAX);
        let slots = &self.core.slots.slots[..count];
        slots.iter().fold(0, |hash, slot| slot.cache.mixed_into(hash))
    }

    /// Changes the parameters of the lock that lies there, while clients use it:
    /// [`Tune::tune`](crate::lock::Tune::tune).
    ///
    /// # Errors
    /// Those of that; [`TuneError::Fixed`] where the lock has no such parameters.
    pub async fn tune(&self, lock: Addr, to: Tuning) -> Result<(), TuneError> {
        let Some(tuning) = self.core.slots.kind.tuning() else { return Err(TuneError::Fixed) };
        tuning.tune(self.endpoint(), lock, to).await
    }

    /// Finishes what dropped futures and dropped guards left behind: withdraws from queues,
    /// releases what is held. Resolves when nothing is left. Until it has run, a lock that was
    /// granted to a dropped acquisition stays taken.
    pub fn settle(&self) -> Settle<'_, E, L> {
        Settle { client: self }
    }

    /// A mistake, for the museum: settles one slot, the first or the last, and forgets all others
    /// that were left behind.
    #[cfg(feature = "museum")]
    pub async fn settle_one(&self, last: bool) {
        let left = self.core.unsettled.get();
        if left != 0 {
            let index = if last { left.ilog2() } else { left.trailing_zeros() } as u8;
            std::future::poll_fn(|cx| self.core.poll_settle_slot(index, cx)).await;
        }
        self.core.unsettled.set(0);
    }

    /// Whether the outcome of one of this client's verbs is unknown: it ended with
    /// [`Fault::Lost`], maybe while [`Client::settle`] ran. Then the lock of that verb may stay
    /// taken, or a line wait for this client, as long as its endpoint lives, since nobody repairs
    /// what the living left. Release what else it holds, and let go of the endpoint.
    pub fn is_broken(&self) -> bool {
        self.core.slots.broken.get()
    }

    /// Whether [`Client::settle`] has something to do.
    #[inline]
    pub fn is_unsettled(&self) -> bool {
        self.core.unsettled.get() != 0
    }
}

/// The blocking face: the same futures, run to their end on this thread. While it waits it also
/// settles; a program that stops calling it with something unsettled delays others.
impl<E: Park, L: Lock<E>> Client<E, L> {
    /// Runs a future of this client to its end.
    #[inline]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        let both = std::future::poll_fn(|cx| {
            let polled = future.as_mut().poll(cx);
            if polled.is_pending() && self.is_unsettled() {
                let _ = self.core.poll_settle(cx);
            }
            polled
        });
        block_on(&self.core.slots.endpoint, both)
    }

    /// Runs the slot's work to its end.
    #[cold]
    #[inline(never)]
    pub(super) fn block_on_slot(&self, index: u8) -> Outcome<()> {
        self.block_on(InLine { core: &self.core, index, finished: false })
    }
}

impl<E: Endpoint, L: Lock<E>> Clone for Client<E, L> {
    fn clone(&self) -> Self {
        Self { core: Rc::clone(&self.core) }
    }
}

impl<E: Endpoint, L: Lock<E>> fmt::Debug for Client<E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoint", &self.core.slots.endpoint.id())
            .field("free", &format_args!("{:#b}", self.core.free.get()))
            .field("unsettled", &format_args!("{:#b}", self.core.unsettled.get()))
            .finish_non_exhaustive()
    }
}

impl<E: Endpoint, L: Lock<E>> Core<E, L> {
    #[inline(always)]
    pub(super) fn slot(&self, index: u8) -> &SlotState<L::Want, L::Grant> {
        self.slots.slot(index)
    }

    #[inline(always)]
    fn work(&self, index: u8) -> &Work {
        &self.work[usize::from(index) % SLOTS_MAX]
    }

    /// Takes a free slot and publishes that it opens `lock`.
    #[inline(always)]
    pub(super) fn take_slot(&self, lock: Addr, want: L::Want) -> Option<u8> {
        let free = self.free.get();
        if free == 0 {
            return None;
        }
        let index = free.trailing_zeros() as u8;
        self.free.set(free & (free - 1));
        self.slots.take(index, lock, want);
        Some(index)
    }

    /// The slot was given back.
    #[inline(always)]
    pub(super) fn set_free(&self, index: u8) {
        self.free.set(self.free.get() | 1 << index);
    }

    /// The slot was given back, unless the outcome of its verb is unknown.
    #[cold]
    pub(super) fn failed(&self, index: u8, fault: Fault) -> Fault {
        if fault.is_refusal() {
            self.set_free(index);
        }
        fault
    }

    /// The slot waits for a verb.
    #[inline]
    fn await_verb(&self, index: u8, step: Step, ticket: Ticket) {
        let before = self.work(index).verb.replace(Some((step, ticket)));
        assert!(before.is_none(), "a slot does one thing at a time");
    }

    /// The slot waits for others.
    #[cold]
    pub(super) fn start_task(&self, index: u8, task: Task) {
        let before = self.work(index).task.replace(Some(task));
        assert!(before.is_none(), "a slot does one thing at a time");
    }

    /// Goes on with what the slot waits for.
    #[cold]
    fn poll_slot(self: &Rc<Self>, index: u8, cx: &mut Context<'_>) -> Poll<Outcome<()>> {
        let (slot, work) = (self.slot(index), self.work(index));
        if let Some((step, ticket)) = work.verb.get() {
            let Poll::Ready(completed) = self.slots.endpoint.poll_posted(ticket, cx) else {
                return Poll::Pending;
            };
            work.verb.set(None);
            let done = match step {
                Step::Opening => {
                    let opening = self.slots.opened(index, completed);
                    self.go_on_opening(index, opening)
                }
                Step::Closing => {
                    // What an earlier release of this slot was told is not this one's.
                    self.lost.set(self.lost.get() & !(1 << index));
                    let closing = self.slots.closed(index, completed);
                    self.go_on_closing(index, closing)
                }
            };
            if let Some(result) = done {
                return Poll::Ready(result);
            }
        }
        let mut task = work.task.take().expect("a slot that waits for no verb has a task");
        let is_leased = slot.grant.get().and_then(Granted::expires).is_some();
        let before = self.slots.events.get();
        let polled = task.as_mut().poll(cx);
        // Nobody but this task has had events meanwhile.
        let now = self.slots.events.get();
        if is_leased && (now.expired, now.superseded) != (before.expired, before.superseded) {
            self.lost.set(self.lost.get() | 1 << index);
        }
        if polled.is_pending() {
            work.task.replace(Some(task));
        }
        polled
    }

    /// What a holder is told of a release that took more than one verb.
    #[cold]
    pub(super) fn release_result(
        &self,
        index: u8,
        released: Outcome<()>,
    ) -> Result<(), ReleaseError> {
        released?;
        let lost = self.lost.get() & 1 << index;
        if lost == 0 { Ok(()) } else { Err(ReleaseError::Lost) }
    }

    /// The slot's owner lost interest.
    #[cold]
    pub(super) fn leave_to_settle(&self, index: u8) {
        if self.slot(index).grant.get().is_none() {
            self.slots.withdraw(index, true);
        }
        self.unsettled.set(self.unsettled.get() | 1 << index);
    }

    fn poll_settle(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut left = self.unsettled.get();
        while left != 0 {
            let index = left.trailing_zeros() as u8;
            left &= left - 1;
            if self.poll_settle_slot(index, cx).is_ready() {
                self.unsettled.set(self.unsettled.get() & !(1 << index));
            }
        }
        if self.unsettled.get() == 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    /// First lets the slot's work end; if that leaves the slot holding, releases.
    fn poll_settle_slot(self: &Rc<Self>, index: u8, cx: &mut Context<'_>) -> Poll<()> {
        let (slot, work) = (self.slot(index), self.work(index));
        loop {
            if work.verb.get().is_none() && work.task.borrow().is_none() {
                if slot.grant.get().is_none() || self.release_at_once(index).is_some() {
                    return Poll::Ready(());
                }
            } else {
                match self.poll_slot(index, cx) {
                    Poll::Pending => return Poll::Pending,
                    // The fault was dealt with where it happened; nobody waits for the news.
                    Poll::Ready(Ok(()) | Err(_)) => {}
                }
            }
        }
    }

    /// Opens the lock with a verb that completes at once; `None` if the slot now waits in line.
    #[inline(always)]
    pub(super) fn open_at_once(
        self: &Rc<Self>,
        index: u8,
        lock: Addr,
        want: L::Want,
    ) -> Option<Outcome<()>> {
        let opening = self.slots.open(index, lock, want);
        self.go_on_opening(index, opening)
    }

    #[inline(always)]
    fn go_on_opening(self: &Rc<Self>, index: u8, opening: Opening) -> Option<Outcome<()>> {
        match opening {
            Opening::Held => Some(Ok(())),
            Opening::InLine => {
                self.start_waiting(index, self.slots.endpoint.old());
                None
            }
            Opening::Failed(fault) => Some(Err(self.failed(index, fault))),
            Opening::Posted(ticket) => {
                self.await_verb(index, Step::Opening, ticket);
                None
            }
        }
    }

    /// Tries with verbs that complete at once: on `Ok` the slot holds or was given back; `None` if
    /// the slot's task goes on trying.
    pub(super) fn try_at_once(self: &Rc<Self>, index: u8) -> Option<Outcome<()>> {
        let slots = &self.slots;
        let mut tried = None;
        let first = slots.first_try(index);
        if E::COMPLETES_IN_POST && first.is_some() {
            match slots.try_now(index, first) {
                Ok(Tried::Granted(grant)) => return Some(self.tried(index, Ok(Some(grant)))),
                Ok(_) if !slots.kind.promises().tries_tell_truth => {
                    return Some(self.tried(index, Ok(None)));
                }
                Err(fault) => return Some(self.tried(index, Err(fault))),
                Ok(_) => tried = Some(slots.endpoint.old()),
            }
        }
        let core = Rc::clone(self);
        let task = Box::pin(async move {
            let tried = core.keep_trying(index, first, tried).await;
            core.tried(index, tried)
        });
        self.start_task(index, task);
        None
    }

    /// Tries until it is decided, if an attempt has not already found the lock taken by `busy`.
    async fn keep_trying(
        &self,
        index: u8,
        posted: Option<Posted>,
        busy: Option<u128>,
    ) -> Tries<L::Grant> {
        let old = match busy {
            Some(old) => old,
            None => match self.slots.keep_trying(index, posted).await? {
                Tried::Granted(grant) => return Ok(Some(grant)),
                _ => self.slots.endpoint.old(),
            },
        };
        self.slots.try_beside(index, old).await
    }

    /// The slot holds what its attempt was granted, or is free again.
    fn tried(&self, index: u8, tried: Tries<L::Grant>) -> Outcome<()> {
        match self.slots.tried(index, tried) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.set_free(index);
                Ok(())
            }
            Err(fault) => Err(self.failed(index, fault)),
        }
    }

    /// The rest of an acquisition whose opening verb found `old` and did not acquire the lock.
    #[cold]
    fn start_waiting(self: &Rc<Self>, index: u8, old: u128) {
        let core = Rc::clone(self);
        let task = async move {
            match core.slots.wait(index, Some(old)).await {
                Ok(true) => Ok(()),
                Ok(false) => {
                    core.set_free(index);
                    Ok(())
                }
                Err(fault) => Err(core.failed(index, fault)),
            }
        };
        self.start_task(index, Box::pin(task));
    }

    /// Closes the lock with a verb that completes at once; `None` if there is more to do, which the
    /// slot's task does.
    #[inline(always)]
    pub(super) fn release_at_once(self: &Rc<Self>, index: u8) -> Option<Outcome<()>> {
        let want = self.slot(index).want.get();
        let closing = match want.mode() {
            Mode::Exclusive => self.slots.close(index, want.in_mode(Mode::Exclusive)),
            Mode::Shared => self.slots.close(index, want.in_mode(Mode::Shared)),
        };
        self.go_on_closing(index, closing)
    }

    #[inline(always)]
    fn go_on_closing(self: &Rc<Self>, index: u8, closing: Closing) -> Option<Outcome<()>> {
        match closing {
            Closing::Free => {
                self.set_free(index);
                Some(Ok(()))
            }
            Closing::InHand { posted } => {
                self.start_handing_over(index, posted.then(|| self.slots.endpoint.old()));
                None
            }
            Closing::Failed(fault) => Some(Err(self.failed(index, fault))),
            Closing::Posted(ticket) => {
                self.await_verb(index, Step::Closing, ticket);
                None
            }
        }
    }

    /// The rest of a release whose closing verb, if it had one, found `old` and did not release.
    #[cold]
    fn start_handing_over(self: &Rc<Self>, index: u8, old: Option<u128>) {
        self.lost.set(self.lost.get() & !(1 << index));
        let core = Rc::clone(self);
        let task = async move {
            match core.slots.hand_over(index, old).await {
                Ok(()) => {
                    core.set_free(index);
                    Ok(())
                }
                Err(fault) => Err(core.failed(index, fault)),
            }
        };
        self.start_task(index, Box::pin(task));
    }
}

impl<E: Endpoint, L: Lock<E>> Drop for Client<E, L> {
    /// What a slot waits for keeps the core that keeps it. With the last client nobody is left to
    /// go on with it: it is let go, and with it the endpoint, whose peers then see it dead.
    fn drop(&mut self) {
        let waits = |work: &&Work| work.task.borrow().is_some();
        if Rc::strong_count(&self.core) == 1 + self.core.work.iter().filter(waits).count() {
            for work in &self.core.work {
                drop(work.task.take());
            }
        }
    }
}

impl<E: Endpoint, L: Lock<E>> Drop for Core<E, L> {
    fn drop(&mut self) {
        if E::COMPLETES_IN_POST {
            return;
        }
        for work in &self.work {
            if let Some((_, ticket)) = work.verb.get() {
                self.slots.endpoint.abandon(ticket);
            }
        }
    }
}

/// The slot's work, on behalf of a caller. Dropped before its end, it goes on in
/// [`Client::settle`].
pub(super) struct InLine<'c, E: Endpoint, L: Lock<E>> {
    pub(super) core: &'c Rc<Core<E, L>>,
    pub(super) index: u8,
    pub(super) finished: bool,
}

impl<E: Endpoint, L: Lock<E>> Future for InLine<'_, E, L> {
    type Output = Outcome<()>;

    #[cold]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.core.poll_slot(self.index, cx);
        self.finished = polled.is_ready();
        polled
    }
}

impl<E: Endpoint, L: Lock<E>> Drop for InLine<'_, E, L> {
    fn drop(&mut self) {
        if !self.finished {
            self.core.leave_to_settle(self.index);
        }
    }
}

/// How far a caller's business has come.
pub(super) enum At<'c, E: Endpoint, L: Lock<E>> {
    Start,
    InLine(InLine<'c, E, L>),
    Done,
}

/// Finishes what was left behind.
#[must_use = "futures do nothing until they are awaited"]
pub struct Settle<'c, E: Endpoint, L: Lock<E>> {
    client: &'c Client<E, L>,
}

impl<E: Endpoint, L: Lock<E>> Future for Settle<'_, E, L> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.client.core.poll_settle(cx)
    }
}
