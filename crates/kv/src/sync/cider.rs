//! CIDER: global write combining in the queue of a key's lock, and the choice between that queue
//! and none by how contended the key is (CIDER, sections 4.2 and 4.3).
//!
//! ```text
//! coordinator   has the lock and sees a waiter behind it: reads who is the last in line, asks it
//! executor      the last in line: carries its own operation out, and answers; stays in line
//! coordinator   is done without having written; hands the lock over with the key's hash
//! participants  are granted the lock with that hash: are done too, and hand both on
//! executor      is granted the lock at last, and releases it without the hash
//! ```
//!
//! Each participant got in line before the executor did, and the executor began only when it was
//! asked. So its write lies between the call and the answer of all of them, and they count as right
//! before it. Lock, queue, repair and the word that is handed over are the MCS lock's
//! ([`errand`](farlock_locks::record::errand)); here is what is asked, and who may answer what.
//!
//! A key is told from another by 64 bits of its hash. A client that finds another hash with the
//! lock, or none, carries its operation out as any holder does.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use farlock_fabric::{Addr, Nanos, WideAtomics};
use farlock_locks::record::errand::Asked;
use farlock_locks::record::mcs::Mcs;
use farlock_locks::{Acquire, AcquireError, Client, Guard, LockKind, within};

use super::backoff::Backoff;
use super::credit::{CreditRules, Credits};
use super::scheme::{Effect, Ended, Entered, Scheme};

/// When a client of [`Cider`] gets in line, and how long it stays there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CiderRules {
    /// By what keys are told hot; `None`: each operation but an insertion gets in line.
    pub credits: Option<CreditRules>,
    /// Whether operations in line are combined. If not, they take turns.
    pub combines: bool,
    /// How long a client waits in line, and again until its release is through, in nanoseconds. A
    /// coordinator waits for its executor for half as long.
    pub patience_ns: Nanos,
    /// How an operation waits whose compare has failed.
    pub backoff: Backoff,
}

impl CiderRules {
    /// The paper's credits and its retries at once; a millisecond of patience.
    pub const DEFAULT: Self = Self {
        credits: Some(CreditRules::DEFAULT),
        combines: true,
        patience_ns: 1_000_000,
        backoff: Backoff::NONE,
    };
}

/// How often things happened at one client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CiderCounts {
    /// Operations that got in line.
    pub pessimistic: u64,
    /// Operations that did not.
    pub optimistic: u64,
    /// Operations that were answered since another client's was carried out.
    pub combined: u64,
    /// Executors' operations by which others were.
    pub batches: u64,
    /// Coordinators' questions that were refused, or not answered in time.
    pub refusals: u64,
    /// Operations that left their line since they had no patience left, or no slot.
    pub impatient: u64,
    /// Operations that got in line and met others there.
    pub accompanied: u64,
    /// Operations that did not get in line and missed more often than makes a key hot.
    pub overlooked: u64,
}

/// Turns in line for a hot key, and none for others.
///
/// An executor returns before it has had the lock, and leaves its release to [`Scheme::settle`] and
/// to the waits of its client's later operations. Where neither runs, those behind it in line wait
/// as long as they have patience. A client needs a slot for each place in line that it has not left
/// yet: two for each of its tasks let a task go on at once.
///
/// What is said at [`Locked`](super::Locked) of clients that give up or are broken holds here too.
#[derive(Debug)]
pub struct Cider<E: WideAtomics> {
    client: Client<E, Mcs>,
    table: Addr,
    locks: u64,
    rules: CiderRules,
    credits: RefCell<Credits>,
    counts: Cell<CiderCounts>,
}

/// A turn of [`Cider`].
pub struct CiderTurn<'s, E: WideAtomics> {
    hash: u64,
    effect: Effect,
    role: Role<'s, E>,
}

/// What an operation is in its line.
enum Role<'s, E: WideAtomics> {
    /// It stands in none.
    Optimist,
    /// It has left it.
    Impatient,
    /// It has the lock, for itself.
    Holder(Guard<'s, E, Mcs>),
    /// It was asked to write for all before it, and stays in line.
    Executor(Acquire<'s, E, Mcs>, Asked),
}

/// What ends a wait in line.
enum Call<'s, E: WideAtomics> {
    Granted(Guard<'s, E, Mcs>),
    Asked(Asked),
    Failed(AcquireError),
}

impl<E: WideAtomics> Cider<E> {
    /// By `locks` locks that lie one after the other from `table` on, in zeroed memory of which
    /// each takes [`Mcs`]'s `BYTES`. Every client of a store has the same table.
    ///
    /// # Panics
    /// If there are no locks, or credits would not come to an end.
    pub fn new(client: Client<E, Mcs>, table: Addr, locks: u64, rules: CiderRules) -> Self {
        assert!(locks > 0, "a table has locks");
        let credits = Credits::new(rules.credits.unwrap_or(CreditRules::DEFAULT));
        let (credits, counts) = (RefCell::new(credits), Cell::default());
        Self { client, table, locks, rules, credits, counts }
    }

    /// What has happened so far.
    pub fn counts(&self) -> CiderCounts {
        self.counts.get()
    }

    fn count(&self, change: impl FnOnce(&mut CiderCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// Whether an operation gets in line: insertions never do (CIDER, section 4.2.2).
    fn queues(&self, hash: u64, effect: Effect) -> bool {
        let hot = || self.rules.credits.is_none() || self.credits.borrow_mut().spend(hash);
        effect != Effect::Insert && !self.client.is_broken() && hot()
    }

    /// Gets in line; `None`: the operation was combined.
    async fn line_up(&self, hash: u64, effect: Effect) -> Option<Role<'_, E>> {
        let waits = self.wait(hash, effect);
        let role = within(self.endpoint(), self.rules.patience_ns, waits).await;
        match role.unwrap_or(Role::Impatient) {
            Role::Holder(guard) => self.combine(guard, hash, effect).await.map(Role::Holder),
            Role::Impatient => {
                self.count(|counts| counts.impatient += 1);
                Some(Role::Impatient)
            }
            role => Some(role),
        }
    }

    /// Waits in line until the lock is granted, or a coordinator asks for what this operation does.
    async fn wait(&self, hash: u64, effect: Effect) -> Role<'_, E> {
        let lock = self.table.plus(hash % self.locks * Mcs::BYTES);
        let mut place = self.client.exclusive(lock);
        loop {
            match poll_fn(|cx| self.poll_call(&mut place, cx)).await {
                Call::Granted(guard) => return Role::Holder(guard),
                Call::Asked(asked) if asked.word() == hash && effect.hides_overwrites() => {
                    return Role::Executor(place, asked);
                }
                Call::Asked(asked) => self.client.answer(&asked, false).await,
                // Each slot has a place in line that an earlier operation has not left yet.
                Call::Failed(AcquireError::NoSlot) if self.client.is_unsettled() => {
                    self.client.settle().await;
                    place = self.client.exclusive(lock);
                }
                Call::Failed(_) => return Role::Impatient,
            }
        }
    }

    fn poll_call<'s>(
        &'s self,
        place: &mut Acquire<'s, E, Mcs>,
        cx: &mut Context<'_>,
    ) -> Poll<Call<'s, E>> {
        if self.client.is_unsettled() {
            let _ = Pin::new(&mut self.client.settle()).poll(cx);
        }
        match Pin::new(&mut *place).poll(cx) {
            Poll::Ready(Ok(guard)) => Poll::Ready(Call::Granted(guard)),
            Poll::Ready(Err(error)) => Poll::Ready(Call::Failed(error)),
            Poll::Pending => place.asked().map_or(Poll::Pending, |q| Poll::Ready(Call::Asked(q))),
        }
    }

    /// Is a participant, or tries to be a coordinator: `None`, the operation is done, and the lock
    /// handed on. Else the holder has it for itself.
    async fn combine<'s>(
        &'s self,
        guard: Guard<'s, E, Mcs>,
        hash: u64,
        effect: Effect,
    ) -> Option<Guard<'s, E, Mcs>> {
        let brought = guard.brought();
        if effect != Effect::Overwrite || !self.rules.combines {
            return Some(guard);
        }
        if brought != Some(hash) {
            // Whether there is a waiter is looked at once (CIDER, section 4.2.1).
            if !guard.is_followed() {
                return Some(guard);
            }
            if !guard.ask_last(hash, self.rules.patience_ns / 2).await {
                self.count(|counts| counts.refusals += 1);
                return Some(guard);
            }
        }
        self.count(|counts| counts.combined += 1);
        self.count(|counts| counts.accompanied += 1);
        self.credits.borrow_mut().raise(hash);
        let released = guard.release_with(hash);
        let _ = within(self.endpoint(), self.rules.patience_ns, released).await;
        None
    }

    /// The holder has carried its operation out alone. One that could not be combined anyhow has
    /// met others if one is behind it.
    async fn release(&self, guard: Guard<'_, E, Mcs>, hash: u64, effect: Effect) {
        let is_followed = guard.is_followed();
        self.count(|counts| counts.accompanied += u64::from(is_followed));
        let combines = effect != Effect::Exact && self.rules.combines;
        match is_followed && !combines {
            true => self.credits.borrow_mut().raise(hash),
            false => self.credits.borrow_mut().lower(hash),
        }
        // As for `Locked`.
        let _ = within(self.endpoint(), self.rules.patience_ns, guard.release()).await;
    }
}

impl<E: WideAtomics> Scheme for Cider<E> {
    type Endpoint = E;
    type Turn<'s> = CiderTurn<'s, E>;

    fn endpoint(&self) -> &E {
        self.client.endpoint()
    }

    async fn enter(&self, hash: u64, effect: Effect) -> Entered<CiderTurn<'_, E>> {
        let role = if self.queues(hash, effect) {
            self.count(|counts| counts.pessimistic += 1);
            self.line_up(hash, effect).await
        } else {
            self.count(|counts| counts.optimistic += 1);
            Some(Role::Optimist)
        };
        role.map_or(Entered::Combined, |role| Entered::Turn(CiderTurn { hash, effect, role }))
    }

    async fn missed(&self, times: u32) {
        self.rules.backoff.wait(self.endpoint(), times).await;
    }

    async fn leave(&self, turn: Self::Turn<'_>, ended: Ended) {
        let CiderTurn { hash, effect, role } = turn;
        match role {
            Role::Optimist => {
                let hot = self.rules.credits.is_some_and(|rules| ended.misses > rules.threshold);
                self.count(|counts| counts.overlooked += u64::from(hot));
                self.credits.borrow_mut().missed(hash, ended.misses);
            }
            Role::Impatient => {}
            Role::Holder(guard) => self.release(guard, hash, effect).await,
            Role::Executor(place, asked) => {
                if ended.replaced {
                    self.count(|counts| counts.batches += 1);
                    self.count(|counts| counts.accompanied += 1);
                    self.credits.borrow_mut().raise(hash);
                }
                self.client.answer(&asked, ended.replaced).await;
                // What it has of the line it leaves when the others before it have had the lock.
                drop(place);
            }
        }
        if effect == Effect::Delete && ended.replaced {
            self.credits.borrow_mut().forget(hash);
        }
    }

    async fn settle(&self) {
        within(self.endpoint(), self.rules.patience_ns, self.client.settle()).await;
    }
}

impl<E: WideAtomics> std::fmt::Debug for CiderTurn<'_, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let role = match self.role {
            Role::Optimist => "optimist",
            Role::Impatient => "impatient",
            Role::Holder(_) => "holder",
            Role::Executor(..) => "executor",
        };
        write!(f, "CiderTurn({role}, {:?})", self.effect)
    }
}
