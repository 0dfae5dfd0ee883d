//! What every record lock must do, on every fabric: one suite, run on simulated far memory under
//! many seeds and on real shared memory.

mod cases;
mod crash;
mod ledger;
mod shm;
mod sim;

use std::future::Future;
use std::pin::Pin;

use farlock_fabric::{Addr, Nanos, WideAtomics};
use farlock_locks::registry::{self, Visitor};
use farlock_locks::{Client, Options, RecordLock};

/// A world in which a case plays.
pub(crate) trait Stage {
    type Endpoint: WideAtomics;

    /// One unit of time long enough for any verb to complete, in nanoseconds.
    const STEP_NS: Nanos;

    fn endpoint(&mut self) -> Self::Endpoint;

    /// Zeroed memory on a 64-byte boundary.
    fn memory(&mut self, bytes: u64) -> Addr;

    /// Sets one 64-bit word before anything runs.
    fn poke(&mut self, addr: Addr, value: u64);

    /// Runs these clients together to their end. False if some did not end in time.
    fn run(&mut self, tasks: Vec<Task>) -> bool;
}

pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What is promised of a lock beyond exclusion and liveness.
#[derive(Clone, Copy)]
pub(crate) struct Promise {
    pub(crate) spec: &'static str,
    /// Writers are granted in the order in which they got in line.
    pub(crate) fifo: bool,
    /// A waiting writer keeps later readers out, and a reader waits for at most so many writers.
    pub(crate) writers_before_reader: Option<usize>,
}

/// Every lock of the registry but the canary, and options worth a run of their own.
pub(crate) const PROMISES: &[Promise] = &[
    Promise { spec: "cas", fifo: false, writers_before_reader: None },
    Promise { spec: "cas-nb", fifo: false, writers_before_reader: None },
    Promise { spec: "mcs", fifo: true, writers_before_reader: None },
    Promise { spec: "shiftlock", fifo: true, writers_before_reader: Some(16) },
    Promise { spec: "shiftlock:n=1", fifo: true, writers_before_reader: Some(1) },
    Promise { spec: "shiftlock:n=4", fifo: true, writers_before_reader: Some(4) },
];

#[test]
fn no_registered_lock_escapes_the_suite() {
    for lock in registry::RECORD_LOCKS {
        let judged = PROMISES.iter().any(|p| p.spec == lock.name);
        assert!(judged || lock.name == "none", "{} is not in the suite", lock.name);
    }
}

/// A case: what is played with one lock on one stage.
pub(crate) trait Case {
    fn play<S: Stage, L: RecordLock<S::Endpoint>>(stage: &mut S, lock: L, promise: Promise);
}

/// Plays a case with every lock, each on a stage of its own.
pub(crate) fn play<S: Stage, C: Case>(mut stage: impl FnMut() -> S) {
    for &promise in PROMISES {
        let mut stage = stage();
        let player = Player::<'_, S, C> { stage: &mut stage, promise, case: Default::default() };
        registry::visit(promise.spec, player).expect("the suite names locks of the registry");
    }
}

struct Player<'s, S, C> {
    stage: &'s mut S,
    promise: Promise,
    case: std::marker::PhantomData<C>,
}

impl<S: Stage, C: Case> Visitor<S::Endpoint> for Player<'_, S, C> {
    type Output = ();

    fn visit<L: RecordLock<S::Endpoint>>(self, lock: L) {
        C::play(self.stage, lock, self.promise);
    }
}

/// A client on this stage.
pub(crate) fn client<S: Stage, L: RecordLock<S::Endpoint>>(
    stage: &mut S,
    lock: &L,
) -> Client<S::Endpoint, L> {
    Client::new(stage.endpoint(), lock.clone(), Options { incarnation: 1 })
}
