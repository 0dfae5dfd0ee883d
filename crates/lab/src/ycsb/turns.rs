//! Every scheme as one type, so that the store is compiled once for each index and not once more
//! for each scheme.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use farlock_fabric::hook::Hook;
use farlock_fabric::{Addr, Endpoint, Nanos, Wait, WaitState, Woken};
use farlock_kv::Scheme;
use farlock_kv::sync::{
    Backoff, Cider, CiderCounts, CiderRules, CiderTurn, Effect, Ended, Entered, LocalCombining,
    LocalTurn, Locked, Optimistic,
};
use farlock_locks::record::cas::Cas;
use farlock_locks::record::mcs::Mcs;
use farlock_locks::{Client, Guard, LockKind, Options};
use farlock_sim::SimEndpoint;

/// How long a client waits for a turn, in nanoseconds. None dies here, and a client that loses
/// patience with a line joins those outside of it, which hold the line up.
pub(super) const PATIENCE_NS: Nanos = 1_000_000_000;

/// Locks of each memory node that its keys share, by their hashes. Zeroed memory costs nothing.
pub(super) const LOCKS: u64 = 1 << 20;

/// Bytes of such a table of locks.
pub(super) const TABLE_BYTES: u64 =
    LOCKS * if Mcs::BYTES > Cas::BYTES { Mcs::BYTES } else { Cas::BYTES };

/// What a thread that sleeps for less is asleep for at least: the kernel's slack for timers, with
/// which CIDER's artifact backs off.
const SLEEP_NS_MIN: Nanos = 50_000;

/// An endpoint whose waits on a lock's word may last as long as a thread sleeps at least.
#[derive(Clone)]
pub(super) struct Sleeper {
    inner: SimEndpoint,
    at_least_ns: Nanos,
    /// Whether there was a wait for a holder.
    has_waited: Rc<Cell<bool>>,
}

impl Hook for Sleeper {
    type Inner = SimEndpoint;

    fn inner(&self) -> &SimEndpoint {
        &self.inner
    }

    fn poll_wait(
        &self,
        wait: &Wait<'_>,
        state: &mut WaitState,
        cx: &mut Context<'_>,
    ) -> Poll<Woken> {
        let backs_off = wait.word.is_some() && wait.mail.is_none();
        if backs_off || wait.mail.is_some() {
            self.has_waited.set(true);
        }
        let interval = wait.interval.filter(|_| backs_off).map(|ns| ns.max(self.at_least_ns));
        self.inner.poll_wait(&Wait { interval: interval.or(wait.interval), ..*wait }, state, cx)
    }
}

/// What a compute node has of a scheme.
#[derive(Clone)]
pub(super) enum Party {
    Optimistic(Sleeper, Backoff),
    Cas(Client<Sleeper, Cas>, bool),
    Mcs(Client<Sleeper, Mcs>, bool),
    Cider(Client<Sleeper, Mcs>, CiderRules),
}

/// How writers take turns, by what a compute node's clients have in common.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Plan {
    Optimistic {
        at_once: bool,
    },
    /// Optimistic, by stores that absorb.
    Absorbing,
    Cas {
        as_published: bool,
    },
    Mcs {
        as_published: bool,
    },
    Cider(CiderRules),
}

impl Plan {
    /// Of a compute node at this endpoint.
    pub(super) fn party(self, inner: SimEndpoint) -> Party {
        let sleeps = matches!(self, Self::Cas { as_published: true });
        let at_least_ns = if sleeps { SLEEP_NS_MIN } else { 0 };
        let sleeper = Sleeper { inner, at_least_ns, has_waited: Rc::default() };
        let mcs = |sleeper| Client::new(sleeper, Mcs::default(), Options::default());
        match self {
            Self::Optimistic { at_once: true } | Self::Absorbing => {
                Party::Optimistic(sleeper, Backoff::NONE)
            }
            Self::Optimistic { at_once: false } => Party::Optimistic(sleeper, Backoff::DEFAULT),
            Self::Cas { as_published } => {
                let client = Client::new(sleeper, Cas::with_backoff(), Options::default());
                Party::Cas(client, as_published)
            }
            Self::Mcs { as_published } => Party::Mcs(mcs(sleeper), as_published),
            Self::Cider(rules) => {
                Party::Cider(mcs(sleeper), CiderRules { patience_ns: PATIENCE_NS, ..rules })
            }
        }
    }
}

impl Party {
    /// Its turns at the keys of a memory node whose locks lie here.
    pub(super) fn turns(&self, table: Addr, combines_locally: bool) -> Turns {
        let turns = match self.clone() {
            Self::Optimistic(endpoint, backoff) => {
                Inner::Optimistic(Optimistic::new(endpoint, backoff))
            }
            Self::Cas(client, as_published) => {
                let locked = Locked::new(client, table, LOCKS, PATIENCE_NS);
                Inner::Cas(if as_published { locked.reading_before() } else { locked })
            }
            Self::Mcs(client, as_published) => {
                let locked = Locked::new(client, table, LOCKS, PATIENCE_NS);
                Inner::Mcs(if as_published { locked.reading_before() } else { locked })
            }
            Self::Cider(client, rules) => Inner::Cider(Cider::new(client, table, LOCKS, rules)),
        };
        let scheme = match combines_locally {
            true => Combining::Local(LocalCombining::new(turns, PATIENCE_NS)),
            false => Combining::Plain(turns),
        };
        Turns { scheme, blocked: Cell::new(0) }
    }
}

/// A scheme, and how many operations waited for others before they had their turn.
pub(super) struct Turns {
    scheme: Combining,
    blocked: Cell<u64>,
}

/// A scheme, with local combining or without.
enum Combining {
    Local(LocalCombining<Inner>),
    Plain(Inner),
}

/// A scheme.
pub(super) enum Inner {
    Optimistic(Optimistic<Sleeper>),
    Cas(Locked<Sleeper, Cas>),
    Mcs(Locked<Sleeper, Mcs>),
    Cider(Cider<Sleeper>),
}

/// A turn of [`Turns`].
pub(super) enum Turn<'s> {
    Local(LocalTurn<'s, Inner>),
    Plain(InnerTurn<'s>),
}

/// A turn of [`Inner`].
pub(super) enum InnerTurn<'s> {
    Optimistic,
    Cas(Option<Guard<'s, Sleeper, Cas>>),
    Mcs(Option<Guard<'s, Sleeper, Mcs>>),
    Cider(CiderTurn<'s, Sleeper>),
}

impl Turns {
    fn inner(&self) -> &Inner {
        match &self.scheme {
            Combining::Local(local) => local.scheme(),
            Combining::Plain(inner) => inner,
        }
    }

    /// Operations that waited for others of their key, of this node or of any, and were not
    /// combined with one.
    pub(super) fn blocked(&self) -> u64 {
        self.blocked.get()
    }

    /// Enters, and tells whether that took a wait for a holder, or for another of this node.
    async fn enter_counted(&self, hash: u64, effect: Effect) -> (Entered<Turn<'_>>, bool) {
        let mut has_waited = match &self.scheme {
            Combining::Local(local) => local.is_under_way(hash),
            Combining::Plain(_) => false,
        };
        let mut entering = pin!(async {
            match &self.scheme {
                Combining::Local(scheme) => as_one(scheme.enter(hash, effect).await, Turn::Local),
                Combining::Plain(scheme) => as_one(scheme.enter(hash, effect).await, Turn::Plain),
            }
        });
        let waits = &self.endpoint().has_waited;
        let entered = poll_fn(|cx| {
            waits.set(false);
            let polled = entering.as_mut().poll(cx);
            has_waited |= waits.get();
            polled
        });
        let entered = entered.await;
        (entered, has_waited)
    }

    /// What it counts of lines, where so many operations were changes: of the other schemes all of
    /// them are in line or none.
    pub(super) fn counts(&self, changes: u64) -> CiderCounts {
        match self.inner() {
            Inner::Optimistic(_) => CiderCounts { optimistic: changes, ..CiderCounts::default() },
            Inner::Cider(cider) => cider.counts(),
            Inner::Cas(_) | Inner::Mcs(_) => {
                CiderCounts { pessimistic: changes, ..CiderCounts::default() }
            }
        }
    }

    /// Operations that were combined with one of the same node, and with how many.
    pub(super) fn local(&self) -> (u64, u64) {
        match &self.scheme {
            Combining::Local(local) => (local.combined(), local.batches()),
            Combining::Plain(_) => (0, 0),
        }
    }
}

/// What came of entering, with its turn as one of all.
fn as_one<T, U>(entered: Entered<T>, one: impl FnOnce(T) -> U) -> Entered<U> {
    match entered {
        Entered::Turn(turn) => Entered::Turn(one(turn)),
        Entered::Combined => Entered::Combined,
    }
}

impl Scheme for Inner {
    type Endpoint = Sleeper;
    type Turn<'s> = InnerTurn<'s>;

    fn endpoint(&self) -> &Sleeper {
        match self {
            Self::Optimistic(scheme) => scheme.endpoint(),
            Self::Cas(scheme) => scheme.endpoint(),
            Self::Mcs(scheme) => scheme.endpoint(),
            Self::Cider(scheme) => scheme.endpoint(),
        }
    }

    fn reads_before(&self) -> bool {
        match self {
            Self::Cas(scheme) => scheme.reads_before(),
            Self::Mcs(scheme) => scheme.reads_before(),
            Self::Optimistic(_) | Self::Cider(_) => false,
        }
    }

    async fn enter(&self, hash: u64, effect: Effect) -> Entered<InnerTurn<'_>> {
        match self {
            Self::Optimistic(_) => Entered::Turn(InnerTurn::Optimistic),
            Self::Cas(scheme) => as_one(scheme.enter(hash, effect).await, InnerTurn::Cas),
            Self::Mcs(scheme) => as_one(scheme.enter(hash, effect).await, InnerTurn::Mcs),
            Self::Cider(scheme) => as_one(scheme.enter(hash, effect).await, InnerTurn::Cider),
        }
    }

    async fn missed(&self, times: u32) {
        match self {
            Self::Optimistic(scheme) => scheme.missed(times).await,
            Self::Cas(scheme) => scheme.missed(times).await,
            Self::Mcs(scheme) => scheme.missed(times).await,
            Self::Cider(scheme) => scheme.missed(times).await,
        }
    }

    async fn leave(&self, turn: Self::Turn<'_>, ended: Ended) {
        match (self, turn) {
            (Self::Cas(scheme), InnerTurn::Cas(turn)) => scheme.leave(turn, ended).await,
            (Self::Mcs(scheme), InnerTurn::Mcs(turn)) => scheme.leave(turn, ended).await,
            (Self::Cider(scheme), InnerTurn::Cider(turn)) => scheme.leave(turn, ended).await,
            (Self::Optimistic(_), _) => {}
            _ => unreachable!("a turn is left where it was entered"),
        }
    }

    async fn settle(&self) {
        match self {
            Self::Optimistic(_) => {}
            Self::Cas(scheme) => scheme.settle().await,
            Self::Mcs(scheme) => scheme.settle().await,
            Self::Cider(scheme) => scheme.settle().await,
        }
    }
}

impl Scheme for Turns {
    type Endpoint = Sleeper;
    type Turn<'s> = Turn<'s>;

    fn endpoint(&self) -> &Sleeper {
        self.inner().endpoint()
    }

    fn reads_before(&self) -> bool {
        self.inner().reads_before()
    }

    async fn enter(&self, hash: u64, effect: Effect) -> Entered<Turn<'_>> {
        let (entered, has_waited) = self.enter_counted(hash, effect).await;
        if has_waited && matches!(entered, Entered::Turn(_)) {
            self.blocked.set(self.blocked.get() + 1);
        }
        entered
    }

    async fn missed(&self, times: u32) {
        self.inner().missed(times).await;
    }

    async fn leave(&self, turn: Self::Turn<'_>, ended: Ended) {
        match (&self.scheme, turn) {
            (Combining::Local(scheme), Turn::Local(turn)) => scheme.leave(turn, ended).await,
            (Combining::Plain(scheme), Turn::Plain(turn)) => scheme.leave(turn, ended).await,
            _ => unreachable!("a turn is left where it was entered"),
        }
    }

    async fn settle(&self) {
        self.inner().settle().await;
    }
}

/// The endpoint of a scheme, as the simulated world has it.
pub(super) fn endpoint_of<S: Scheme<Endpoint = Sleeper>>(scheme: &S) -> &SimEndpoint {
    scheme.endpoint().inner()
}
