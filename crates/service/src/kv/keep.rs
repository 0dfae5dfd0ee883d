//! The thread of a store: it keeps the places of handles, gives the store memory ahead of need, and
//! waits for tasks that watch keys.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::task::{Context, Waker};

use farlock_fabric::{
    ConnectError, Connection as _, Endpoint as _, EndpointId, Nanos, block_on, keep_signals_out,
};
use farlock_kv::Sight;

use crate::connection::{Keeper, Lane, Region, Unparker};
use crate::session::{Fate, Report};

/// Bytes of a chunk: room for the longest pair.
pub(super) const CHUNK_BYTES: u64 = 2 << 20;

/// The store grows by so many chunks at a time, and has as many ahead of need. To give more memory
/// at once to a file keeps the operation that needs some for longer: it takes about a millisecond
/// for 4 MiB. And what is ahead of need counts as taken.
pub(super) const GROWTH_CHUNKS: u32 = 1;

/// What a handle asks the thread for.
pub(super) enum Order {
    /// A place.
    Attach(Report<Result<Lane, ConnectError>>),
    /// The place with this index is used no more.
    Leave(u16),
    /// Memory for so many bytes, before an operation needs it.
    Reserve(u64),
    /// To wait for a task.
    Wait(Errand),
}

/// A wait for a task: until a key is not what was seen, its owner is dead, or time has passed.
pub(super) struct Errand {
    pub(super) sight: Sight,
    pub(super) owner: Option<EndpointId>,
    pub(super) interval: Nanos,
    /// Whether the key is to be looked at again.
    pub(super) fate: Arc<Fate<Result<bool, ConnectError>>>,
}

/// A wait for a task, and when it is over.
struct Waiting {
    errand: Errand,
    until: Nanos,
}

struct Thread<'r> {
    region: &'r Region,
    unparker: &'r Unparker,
    keepers: Vec<(u16, Keeper)>,
    /// How many bytes of memory there are to be.
    reserved: u64,
    /// By which it waits, once it has to.
    lane: Option<Lane>,
    waits: Vec<Waiting>,
    /// Whether it has slept until one of their words changed, and nobody told it to wake.
    has_watched: bool,
    /// Until when it sleeps whatever changes, and for how long that was to be.
    rests_until: Nanos,
    rest: Nanos,
}

/// Words that are watched at most: the system sleeps on so many. Of more it looks now and then.
const WATCHED_MAX: usize = 96;

/// How long the thread rests at least after it was woken for nothing. See [`Sight::until_changed`].
const REST_NS: Nanos = 1_000_000;

/// How long at most; and how long at least after it has looked at more than it can watch.
const REST_NS_MAX: Nanos = 32_000_000;

/// To look at more than it can watch takes it one part of so many of its time, as long as it does
/// not rest for longer than that.
const LOOKS_A_PART: Nanos = 50;
const LATE_NS_MAX: Nanos = 100_000_000;

/// Does as it is told until nobody can tell it any more. Gives the store memory meanwhile that will
/// be needed, a step at a time.
pub(super) fn keep(region: &Region, ordered: &Receiver<Order>, unparker: &Unparker) {
    keep_signals_out();
    let _own = region.own_thread();
    let mut thread = Thread {
        region,
        unparker,
        keepers: Vec::new(),
        reserved: 0,
        lane: None,
        waits: Vec::new(),
        has_watched: false,
        rests_until: 0,
        rest: 0,
    };
    loop {
        let order = match thread.waits.is_empty() && !thread.has_to_reserve() {
            true => ordered.recv().map_err(TryRecvError::from),
            false => ordered.try_recv(),
        };
        match order {
            Ok(order) => thread.obey(order),
            Err(TryRecvError::Empty) if thread.has_to_reserve() => thread.reserve(),
            Err(TryRecvError::Empty) => thread.wait(),
            Err(TryRecvError::Disconnected) => return,
        }
    }
}

impl Thread<'_> {
    fn obey(&mut self, order: Order) {
        self.has_watched = false;
        match order {
            Order::Attach(report) => report.send(self.attach()),
            Order::Leave(index) => self.keepers.retain(|(kept, _)| *kept != index),
            Order::Reserve(bytes) => self.reserved = self.reserved.max(bytes),
            Order::Wait(errand) => self.begin(errand),
        }
    }

    fn has_to_reserve(&self) -> bool {
        self.region.heap().1 < self.reserved
    }

    /// Gives the store some of the memory that it is to have.
    fn reserve(&mut self) {
        let step = self.region.heap().1 + u64::from(GROWTH_CHUNKS) * CHUNK_BYTES;
        if self.region.lengthen(self.reserved.min(step)).is_err() {
            // The operation that needs it is told why.
            self.reserved = 0;
        }
    }

    fn attach(&mut self) -> Result<Lane, ConnectError> {
        let (lane, keeper) = self.region.lane(false)?;
        self.keepers.push((lane.id().index, keeper));
        Ok(lane)
    }

    fn begin(&mut self, errand: Errand) {
        if self.lane.is_none() {
            match self.attach() {
                Ok(lane) => self.lane = Some(lane),
                Err(error) => return errand.tell(Err(error)),
            }
        }
        let Some(lane) = &self.lane else { return };
        let until = lane.now().saturating_add(errand.interval);
        // Others may rest for a while yet.
        match errand.is_over(lane) {
            true => errand.tell(Ok(true)),
            false => self.waits.push(Waiting { errand, until }),
        }
    }

    /// Looks what has become of all waits, and sleeps until there may be more or an order has come.
    fn wait(&mut self) {
        let Some(lane) = &self.lane else { return };
        let now = lane.now();
        if now >= self.rests_until {
            let (mut has_changed, mut has_ended) = (false, false);
            self.waits.retain(|Waiting { errand, until }| {
                let changed = errand.is_over(lane);
                has_changed |= changed;
                has_ended |= *until <= now;
                let goes_on = !changed && *until > now;
                if !goes_on {
                    errand.tell(Ok(changed));
                }
                goes_on
            });
            let is_in_vain = self.has_watched && !has_changed && !has_ended;
            self.rest = match is_in_vain {
                true => (2 * self.rest).clamp(REST_NS, REST_NS_MAX),
                false => 0,
            };
            if self.waits.iter().map(|wait| wait.errand.sight.slots()).sum::<usize>() > WATCHED_MAX
            {
                let took = lane.now().saturating_sub(now);
                self.rest = took.saturating_mul(LOOKS_A_PART).clamp(REST_NS_MAX, LATE_NS_MAX);
            }
            self.rests_until = now.saturating_add(self.rest);
        }
        let Some(first) = self.waits.iter().map(|wait| wait.until).min() else { return };
        let left = self.rests_until.saturating_sub(now);
        self.has_watched = left == 0;
        if left > 0 {
            self.sleep(lane, vec![lane.sleep(left)]);
            return;
        }
        let owners: Vec<Option<EndpointId>> =
            self.waits.iter().map(|wait| wait.errand.owner).collect();
        let interval = first.saturating_sub(now);
        let waits =
            self.waits.iter().zip(&owners).flat_map(|(wait, owner)| {
                wait.errand.sight.waits(lane, owner.as_slice(), interval)
            });
        self.sleep(lane, waits.collect());
    }

    fn sleep(&self, lane: &Lane, mut waits: Vec<farlock_fabric::Waiting<'_, Lane>>) {
        let mut cx = Context::from_waker(Waker::noop());
        if waits.iter_mut().all(|wait| Pin::new(wait).poll(&mut cx).is_pending()) {
            Region::park_all(std::iter::once(lane), self.unparker);
        }
    }
}

impl Errand {
    /// Whether the key is to be looked at again.
    fn is_over(&self, lane: &Lane) -> bool {
        self.owner.is_some_and(|owner| !lane.is_alive(owner))
            || block_on(lane, self.sight.has_changed(lane))
    }

    fn tell(&self, outcome: Result<bool, ConnectError>) {
        // It may be gone.
        if let Ok(wake) = self.fate.offer(outcome) {
            wake.now();
        }
    }
}
