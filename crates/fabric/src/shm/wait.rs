//! Waiting: look, spin, yield, then sleep on everything at once.
//!
//! A wait that is polled looks at what may end it. The first time it then spins and yields as its
//! patience says; it never ends in vain at the first poll, so that tasks of one thread that wait
//! for each other all come to run. If nothing came it arms the bells of its word and mailbox,
//! watches the beacons of its peers, looks once more and is pending. [`park_all`] sleeps on all
//! that the pending waits of some endpoints armed, and then wakes all their tasks: each looks again
//! and arms again.

use std::task::{Context, Poll, Waker};

use super::endpoint::Shm;
use super::keeper::PlaceKeeper;
use super::mailbox::Next;
use super::parked::Pending;
use super::parking::{Unparker, bucket_of};
use super::primitive::{Ordering, Planted, Source, boot_time, planted, sleep};
use super::table::Vital;
use super::times::{LOOK_AGAIN_NS, POLL_NS};
use crate::addr::{Addr, EndpointId, Slot};
use crate::endpoint::{Nanos, Park, Patience, Wait, WaitState, Woken};

/// Looks at the clock after so many spins; reading it costs as much as some of them.
const SPINS_A_CLOCK: u32 = 16;

/// So many waits in a row end before their task lets others of its thread run: where what it waits
/// for changes all the time, no other would come to run, nor would anybody look at the clock.
const AT_ONCE_MAX: u32 = 64;

/// Who waits behind an orphan looks after 1 ms, and then ever more seldom, down to every 32 ms.
const NAPS_MAX: u32 = 5;

impl<K> Shm<K> {
    pub(super) fn wait_on(
        &self,
        wait: &Wait<'_>,
        state: &mut WaitState,
        cx: &mut Context<'_>,
    ) -> Poll<Woken> {
        if let Some(woken) = self.look(wait) {
            if state.begun {
                self.note_late(state);
                return self.end_with(state, woken);
            }
            return self.end_at_once(wait, state, woken, cx);
        }
        let first = !state.begun;
        if first {
            self.begin(wait, state);
            if let Some(woken) = self.spin(wait, state) {
                return self.end_at_once(wait, state, woken, cx);
            }
        }
        if is_past(state.deadline) {
            if first {
                // Another task of this thread may be the one to end this wait.
                return self.let_others_run(state, cx);
            }
            return self.end_with(state, Woken::Elapsed);
        }
        self.arm(wait, state, cx.waker());
        // What changed before the bell was armed rang in vain.
        if !planted(Planted::LooksOnce)
            && let Some(woken) = self.look(wait)
        {
            return self.end_with(state, woken);
        }
        Poll::Pending
    }

    /// Ends a wait at its first poll, but for one in some.
    fn end_at_once(
        &self,
        wait: &Wait<'_>,
        state: &mut WaitState,
        woken: Woken,
        cx: &Context<'_>,
    ) -> Poll<Woken> {
        let at_once = self.parked.borrow().at_once + 1;
        self.parked.borrow_mut().at_once = at_once % AT_ONCE_MAX;
        if at_once < AT_ONCE_MAX {
            return self.end_with(state, woken);
        }
        if !state.begun {
            self.begin(wait, state);
        }
        self.let_others_run(state, cx)
    }

    /// Polled again as soon as others of this thread have been.
    fn let_others_run(&self, state: &WaitState, cx: &Context<'_>) -> Poll<Woken> {
        let (key, waker, until) = (state.key, cx.waker().clone(), 0);
        let pending = Pending { key, waker, until, is_last_resort: false };
        self.parked.borrow_mut().waits.push(pending);
        Poll::Pending
    }

    /// A wait that has begun has a reason to end. Where nothing woke it, its wake-up was lost.
    fn note_late(&self, state: &WaitState) {
        let mut parked = self.parked.borrow_mut();
        parked.late += u64::from(parked.overslept.contains(&state.key));
    }

    /// How often a wait of this endpoint slept until its last resort, 2 s, though it had a reason
    /// to end: a wake-up was lost. An endpoint that dies between a change and its ring loses some.
    pub fn late_wakes(&self) -> u64 {
        self.parked.borrow().late
    }

    pub(super) fn forget_wait(&self, state: &mut WaitState) {
        self.parked.borrow_mut().forget(state.key);
        state.begun = false;
    }

    #[inline]
    fn end_with(&self, state: &mut WaitState, woken: Woken) -> Poll<Woken> {
        if state.begun {
            self.forget_wait(state);
        }
        Poll::Ready(woken)
    }

    fn begin(&self, wait: &Wait<'_>, state: &mut WaitState) {
        let mut parked = self.parked.borrow_mut();
        parked.last_key += 1;
        state.begun = true;
        state.key = parked.last_key;
        state.naps = 0;
        state.deadline = wait.interval.map(|interval| boot_time().saturating_add(interval));
    }

    /// Whether the wait has ended, but for its interval.
    #[inline]
    pub(super) fn look(&self, wait: &Wait<'_>) -> Option<Woken> {
        if let Some(slot) = wait.mail
            && self.has_mail(slot)
        {
            return Some(Woken::Mail);
        }
        if let Some((addr, value)) = wait.word
            && self.differs(addr, value, wait.ignoring)
        {
            return Some(Woken::Changed);
        }
        if let Some(peer) = wait.peers.iter().find(|peer| self.is_dead(**peer)) {
            return Some(Woken::PeerGone(*peer));
        }
        // A waiter that may do nothing any more should learn it; its next verb says why.
        (!self.control().is_open()).then_some(Woken::Changed)
    }

    /// Whether a word has another value. A word that cannot be read has: the caller's next read
    /// tells why.
    #[inline]
    fn differs(&self, addr: Addr, value: u64, ignoring: u64) -> bool {
        match self.readable(addr, 1) {
            Ok(words) => (words[0].load(Ordering::SeqCst) ^ value) & !ignoring != 0,
            Err(_) => true,
        }
    }

    fn is_dead(&self, peer: EndpointId) -> bool {
        self.region.mapping().vital(peer) == Vital::Dead
    }

    /// Whether a message can be taken. Passes over messages whose senders died writing them, and
    /// over those of nobody.
    #[inline(always)]
    pub(super) fn has_mail(&self, slot: Slot) -> bool {
        !self.is_mailbox_empty(slot) && self.has_message(slot)
    }

    #[cold]
    #[inline(never)]
    fn has_message(&self, slot: Slot) -> bool {
        let receiver = self.identity().incarnation;
        // At most every cell is passed over once before one is free.
        loop {
            let (cells, position) = self.mailbox(slot);
            let sender = match cells.next(receiver, position) {
                Next::Empty => return false,
                Next::Here if cells.sender(position).is_somebody() => return true,
                Next::Here => {
                    cells.free(receiver, position);
                    self.advance(slot);
                    continue;
                }
                Next::Coming(sender) => sender,
            };
            // A server that comes back finishes what the last one of its client began.
            if matches!(self.region.mapping().vital(sender), Vital::Alive | Vital::Leased) {
                return false;
            }
            // It may have finished just before it died.
            if cells.next(receiver, position) == Next::Coming(sender)
                || planted(Planted::PassesOver)
            {
                cells.free(receiver, position);
                self.advance(slot);
            }
        }
    }

    /// Looks again and again, as long as patience and interval last.
    fn spin(&self, wait: &Wait<'_>, state: &WaitState) -> Option<Woken> {
        let patience = self.spinning.allowed(wait.patience);
        let spins = self.spinning.spins(patience.spins);
        let is_adapted = patience.spins > Patience::BRIEF;
        for turn in 0..spins {
            std::hint::spin_loop();
            if let Some(woken) = self.look(wait) {
                if is_adapted {
                    self.spinning.paid();
                }
                return Some(woken);
            }
            if turn % SPINS_A_CLOCK == SPINS_A_CLOCK - 1 && is_past(state.deadline) {
                return None;
            }
        }
        if is_adapted && spins > 0 {
            self.spinning.failed();
        }
        for _ in 0..patience.yields {
            rustix::thread::sched_yield();
            if let Some(woken) = self.look(wait) {
                return Some(woken);
            }
            if is_past(state.deadline) {
                break;
            }
        }
        None
    }

    /// Does something whose waits do not keep its thread: they neither spin nor yield.
    pub fn briefly<T>(&self, act: impl FnOnce() -> T) -> T {
        self.spinning.turned_off(act)
    }

    /// Arms everything that can end this wait.
    fn arm(&self, wait: &Wait<'_>, state: &mut WaitState, waker: &Waker) {
        let key = state.key;
        let mut guard = self.parked.borrow_mut();
        let parked = &mut *guard;
        parked.forget(key);
        let last_resort = boot_time() + LOOK_AGAIN_NS;
        let mut until = last_resort.min(state.deadline.unwrap_or(last_resort));
        if let Some((addr, _)) = wait.word {
            match self.heap_offset(addr) {
                Some(at) => {
                    let bell = &self.bucket(bucket_of(at)).bell;
                    parked.sources.push((key, Source::of(bell.futex(), bell.arm())));
                }
                // A record: its owner stores without a look at any bell.
                None => until = until.min(boot_time() + POLL_NS),
            }
        }
        let (mut coming, mut is_behind_an_orphan) = (None, false);
        if let Some(slot) = wait.mail {
            let (cells, position) = self.mailbox(slot);
            parked.sources.push((key, Source::of(cells.bell.futex(), cells.bell.arm())));
            // Behind a message that is being written, its sender's death matters too.
            if let Next::Coming(sender) = cells.next(self.identity().incarnation, position) {
                coming = Some(sender);
            }
        }
        for peer in wait.peers.iter().copied().chain(coming) {
            let Some(place) = self.region.mapping().place(peer.index) else { continue };
            match place.beacon.watch() {
                Some((futex, value)) => {
                    parked.sources.push((key, Source::of(futex, value)));
                    parked.beacons.push((key, peer.index));
                }
                // Only a tether or a lease keeps it alive, and nothing rings when that ends.
                None => is_behind_an_orphan = true,
            }
        }
        if is_behind_an_orphan {
            // What has lasted may last: nobody waits twice as long as the orphan lives.
            until = until.min(boot_time() + (POLL_NS << state.naps.min(NAPS_MAX)));
            state.naps = state.naps.saturating_add(1);
        }
        let is_last_resort = until == last_resort;
        parked.waits.push(Pending { key, waker: waker.clone(), until, is_last_resort });
    }
}

impl<K> Shm<K> {
    /// When to look again at the latest, if anything is pending.
    pub(super) fn looks_again(&self) -> Option<Nanos> {
        self.parked.borrow().waits.iter().map(|wait| wait.until).min()
    }

    pub(super) fn add_sources(&self, sources: &mut Vec<Source>) {
        sources.extend(self.parked.borrow().sources.iter().map(|source| source.1));
    }

    /// A sleep is over, by its timer if it was woken by nothing else. Nothing is pending any more:
    /// every task looks again and arms again.
    pub(super) fn take_pending(&self, is_by_timer: bool, woken: &mut Vec<Pending>) {
        let mut guard = self.parked.borrow_mut();
        let parked = &mut *guard;
        if is_by_timer {
            let overslept = |wait: &&Pending| wait.is_last_resort && wait.until <= boot_time();
            let keys = parked.waits.iter().filter(overslept).map(|wait| wait.key);
            parked.overslept.extend(keys);
        }
        // The kernel wakes one watcher of a dead thread's beacon; that one wakes the others.
        for (_, index) in parked.beacons.drain(..) {
            let place = self.region.mapping().place(index).expect("a watched place");
            if !place.beacon.is_lit() {
                place.beacon.pass_on();
            }
        }
        parked.sources.clear();
        woken.append(&mut parked.waits);
    }
}

impl<K: PlaceKeeper> Park for Shm<K> {
    /// Sleeps until something that a pending wait of this endpoint waits for happens, its
    /// [`Unparker`] is used, or 2 s have passed. Returns at once where nothing is pending.
    fn park(&self) {
        park_all(std::iter::once(self), &self.unparker);
    }
}

/// Sleeps until something that a pending wait of one of these endpoints waits for happens, the
/// unparker is used, or 2 s have passed; then wakes the tasks of all their pending waits. Returns
/// at once where nothing is pending, and whether anything was.
///
/// The unparker is the thread's own: those of the endpoints end only their own
/// [`Park::park`]. What all wait for together may be more than the kernel sleeps on at once, 128
/// words; then the sleep lasts 1 ms at most.
pub fn park_all<'e, K: 'static>(
    endpoints: impl Iterator<Item = &'e Shm<K>> + Clone,
    unparker: &Unparker,
) -> bool {
    let Some(until) = endpoints.clone().filter_map(Shm::looks_again).min() else { return false };
    let left = until.saturating_sub(boot_time());
    let mut is_by_timer = false;
    if let Some(source) = unparker.listen()
        && left > 0
    {
        // First, so that it is never the one too many.
        let mut sources = vec![source];
        endpoints.clone().for_each(|endpoint| endpoint.add_sources(&mut sources));
        is_by_timer = sleep(&sources, left);
    }
    unparker.hear();
    let mut woken = Vec::new();
    endpoints.for_each(|endpoint| endpoint.take_pending(is_by_timer, &mut woken));
    for wait in woken {
        wait.waker.wake();
    }
    true
}

fn is_past(deadline: Option<Nanos>) -> bool {
    deadline.is_some_and(|deadline| boot_time() >= deadline)
}
