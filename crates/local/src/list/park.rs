//! Where threads and tasks sleep until an entry is released.
//!
//! A table of queues, by entry. A sleeper first sets the parked bit of the entry's link, then joins
//! the queue if the link is still the same; a releaser marks the link, and only if it finds the bit
//! set does it come here. Assumes that the check and the joining happen under the queue's mutex. It
//! never wakes too few; it may wake too many, and every sleeper looks again.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Instant;

use crate::primitive::{Condvar, Mutex, hold, of_process};

/// Queues; entries share them by index.
const QUEUES: usize = if cfg!(any(loom, shuttle)) { 1 } else { 256 };

#[repr(align(64))]
struct Queue(Mutex<Sleepers>);

struct Sleepers {
    waiting: Vec<Sleeper>,
    tickets: u64,
}

struct Sleeper {
    entry: u32,
    ticket: u64,
    waker: Waker,
}

struct ParkingTable([Queue; QUEUES]);

impl ParkingTable {
    #[cfg(not(any(loom, shuttle)))]
    const fn new() -> Self {
        Self([const { Queue(Mutex::new(Sleepers { waiting: Vec::new(), tickets: 0 })) }; QUEUES])
    }

    #[cfg(any(loom, shuttle))]
    fn new() -> Self {
        Self([Queue(Mutex::new(Sleepers { waiting: Vec::new(), tickets: 0 }))])
    }

    fn queue(&self, entry: u32) -> &Mutex<Sleepers> {
        &self.0[entry as usize % QUEUES].0
    }
}

of_process! {
    /// One for all lists: a lock costs no memory for waiting.
    static TABLE: ParkingTable = ParkingTable::new();
}

/// A place in a queue.
pub(super) struct Place {
    entry: u32,
    ticket: u64,
}

/// Joins the queue of an entry if `unchanged` says so, under the queue's mutex.
///
/// Foreign code, a waker's clone and drop, runs outside the mutex: it may release ranges.
pub(super) fn join(entry: u32, waker: Waker, unchanged: impl FnOnce() -> bool) -> Option<Place> {
    let mut sleepers = hold(TABLE.queue(entry));
    if !unchanged() {
        drop(sleepers);
        return None;
    }
    sleepers.tickets += 1;
    let ticket = sleepers.tickets;
    sleepers.waiting.push(Sleeper { entry, ticket, waker });
    Some(Place { entry, ticket })
}

/// Leaves the queue, woken or not.
pub(super) fn leave(place: &Place) {
    let mut sleepers = hold(TABLE.queue(place.entry));
    let at = sleepers.waiting.iter().position(|sleeper| sleeper.ticket == place.ticket);
    let left = at.map(|at| sleepers.waiting.remove(at));
    drop(sleepers);
    drop(left);
}

/// Wakes all that sleep until `entry` is released.
#[cold]
pub(super) fn wake(entry: u32) {
    let mut sleepers = hold(TABLE.queue(entry));
    let woken: Vec<Sleeper> =
        sleepers.waiting.extract_if(.., |sleeper| sleeper.entry == entry).collect();
    drop(sleepers);
    for sleeper in woken {
        sleeper.waker.wake();
    }
}

/// What a sleeping thread listens to.
pub(super) struct Bell {
    rung: Mutex<bool>,
    ring: Condvar,
}

impl Bell {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { rung: Mutex::new(false), ring: Condvar::new() })
    }

    /// Sleeps until the bell has rung, or until the deadline: then the answer is false.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> bool {
        let mut rung = hold(&self.rung);
        while !*rung {
            rung = match deadline {
                None => self.ring.wait(rung).expect("no holder panics"),
                // A model has no clock: there, every deadline comes before any sleep.
                Some(_) if cfg!(any(loom, shuttle)) => return false,
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    self.ring.wait_timeout(rung, left).expect("no holder panics").0
                }
            };
        }
        true
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *hold(&self.rung) = true;
        self.ring.notify_one();
    }
}
