//! What has come for one lane, or one call, and was not asked for yet.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::bell::Unparker;
use super::log::Log;
use super::ticket::is_unsignalled;
use crate::addr::Slot;
use crate::endpoint::{Envelope, Woken};
use crate::error::Fault;

/// How a posted verb or chain ended.
#[derive(Debug)]
pub(super) enum Done {
    /// A single verb with no more than an old word.
    Old(Result<(), Fault>, u128),
    /// A single read, or a chain: the fields of its frame behind the ticket.
    Long(Vec<u8>),
}

/// What has come.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    state: Mutex<Arrivals>,
}

#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// By ticket.
    pub(super) done: Vec<(u32, Done)>,
    /// Tickets whose completions are not asked for.
    pub(super) abandoned: Vec<u32>,
    /// Messages by slot, with their numbers.
    pub(super) mail: Vec<VecDeque<(u64, Envelope)>>,
    /// By slot, the number of the message that is taken next.
    pub(super) next_mail: Vec<u64>,
    /// What is said again where the connection broke.
    pub(super) log: Log,
    /// How often the connection broke.
    pub(super) epoch: u32,
    /// Waits that ended, by key.
    pub(super) woken: Vec<(u32, Woken)>,
    /// The frame that a call, or an attachment, waits for.
    pub(super) answer: Option<Vec<u8>>,
    /// The server knows it as a lane.
    pub(super) is_attached: bool,
    /// How much came since the last park that its waiter has not taken.
    pub(super) news: u32,
    /// The channel is over, or the lane is dead.
    pub(super) is_over: bool,
    /// A verb that was unsignalled has failed: nobody knows what its caller takes for done.
    pub(super) has_failed: bool,
    /// Tasks that wait for anything here.
    pub(super) wakers: Vec<Waker>,
    /// The sleep of the thread that waits for anything here.
    pub(super) bell: Unparker,
}

impl Inbox {
    pub(super) fn of(slots: u8, bell: Unparker) -> Self {
        let mail = (0..slots).map(|_| VecDeque::new()).collect();
        let slots = usize::from(slots);
        let (next_mail, log) = (vec![0; slots], Log::of(slots));
        let state = Arrivals { mail, next_mail, log, bell, ..Arrivals::default() };
        Self { state: Mutex::new(state) }
    }

    /// The connection broke: waits are forgotten, and messages that were not taken come again.
    pub(super) fn begin_epoch(&self, epoch: u32) {
        self.put(|state| {
            state.epoch = epoch;
            state.mail.iter_mut().for_each(VecDeque::clear);
        });
    }

    pub(super) fn state(&self) -> MutexGuard<'_, Arrivals> {
        // Nothing that can panic runs under this mutex.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something comes, and its waiter is woken.
    pub(super) fn put(&self, arrive: impl FnOnce(&mut Arrivals)) {
        self.arrive(arrive, &mut Wakes::default()).ring();
    }

    /// Something comes with other things. Tasks that wait for it are woken behind all of them, so
    /// that what these do next goes together too; `own` is the bell of the thread that brings it,
    /// which does not sleep.
    pub(super) fn bring(
        &self,
        own: &Unparker,
        wakes: &mut Wakes,
        arrive: impl FnOnce(&mut Arrivals),
    ) {
        let bell = self.arrive(arrive, wakes);
        if !own.is(&bell) {
            bell.ring();
        }
    }

    fn arrive(&self, arrive: impl FnOnce(&mut Arrivals), wakes: &mut Wakes) -> Unparker {
        let mut state = self.state();
        arrive(&mut state);
        state.news = state.news.saturating_add(1);
        wakes.wakers.append(&mut state.wakers);
        state.bell.clone()
    }
}

/// Tasks to be woken, which are when this is dropped: when no mutex is held any more, for a waker
/// may do anything. What it does to itself harms no other.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    wakers: Vec<Waker>,
    /// How many verbs were answered.
    pub(super) answers: u32,
}

impl Drop for Wakes {
    fn drop(&mut self) {
        for waker in self.wakers.drain(..) {
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }
}

impl Arrivals {
    /// A verb completed; nothing is kept of one that was abandoned.
    pub(super) fn complete(&mut self, ticket: u32, done: Done) {
        self.log.answered(ticket);
        if is_unsignalled(ticket) {
            self.has_failed = true;
            return;
        }
        match self.abandoned.iter().position(|abandoned| *abandoned == ticket) {
            Some(at) => drop(self.abandoned.swap_remove(at)),
            None => self.done.push((ticket, done)),
        }
    }

    /// Takes the next message of a slot, and its number.
    pub(super) fn take_mail(&mut self, slot: Slot) -> Option<(u64, Envelope)> {
        let number = usize::from(slot.0);
        let (message, envelope) = self.mail[number].pop_front()?;
        self.next_mail[number] = message + 1;
        Some((message, envelope))
    }

    pub(super) fn take_done(&mut self, ticket: u32) -> Option<Done> {
        let at = self.done.iter().position(|(done, _)| *done == ticket)?;
        self.news = self.news.saturating_sub(1);
        Some(self.done.swap_remove(at).1)
    }

    pub(super) fn take_woken(&mut self, key: u32) -> Option<Woken> {
        let at = self.woken.iter().position(|(woken, _)| *woken == key)?;
        Some(self.woken.swap_remove(at).1)
    }

    /// Has this task woken when anything comes.
    pub(super) fn watch(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|known| known.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }
}
