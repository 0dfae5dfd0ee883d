//! What every record lock must do, on every fabric: one suite, run on simulated far memory under
//! many seeds and on real shared memory.

mod cases;
mod crash;
mod lease;
mod ledger;
mod local;
mod options;
mod shm;
mod sim;
mod turns;

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;

use farlock_fabric::{Addr, Nanos, SyncedClock, WideAtomics};
use farlock_locks::record::Server;
use farlock_locks::record::table::TableLock;
use farlock_locks::registry::{self, Visitor};
use farlock_locks::{Client, Options, RecordLock};

/// A world in which a case plays.
pub(crate) trait Stage {
    type Endpoint: WideAtomics + SyncedClock;

    /// One unit of time long enough for any verb to complete, in nanoseconds.
    const STEP_NS: Nanos;

    /// Whether time passes for nobody else's work: where it does, a lease may end at any moment.
    const PUNCTUAL: bool;

    fn endpoint(&mut self) -> Self::Endpoint;

    /// Zeroed memory on a 64-byte boundary.
    fn memory(&mut self, bytes: u64) -> Addr;

    /// Sets one 64-bit word before anything runs.
    fn poke(&mut self, addr: Addr, value: u64);

    /// Runs this beside all clients.
    fn serve(&mut self, server: Server);

    /// Runs these clients together to their end. False if some did not end in time.
    fn run(&mut self, tasks: Vec<Task>) -> bool;
}

pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What is promised of a lock beyond exclusion and liveness; the lock itself says so.
#[derive(Clone, Copy)]
pub(crate) struct Promise {
    pub(crate) spec: &'static str,
    /// Writers are granted in the order in which they got in line.
    pub(crate) fifo: bool,
    /// A waiting writer keeps later readers out, and a reader waits for at most so many writers.
    pub(crate) writers_before_reader: Option<usize>,
}

/// Options worth a run of their own.
const VARIANTS: &[&str] = &[
    "shiftlock:n=1",
    "shiftlock:n=4",
    "shiftlock:bypass=2",
    "shiftlock:n=2:keep:poll=20000",
    "shiftlock:strict:poll=20000",
    "shiftlock:attempts=2:poll=20000",
    "shiftlock:lease=4000000:poll=20000",
    "dslr:lease=4000000:omega=50000",
    "dslr-64:lease=4000000:omega=50000",
    "dslr-64:lease=4000000:omega=50000:max=12",
    "dslr-64:max=4",
    "rma-rw:writers=2:readers=3",
];

/// Every lock of the registry, and the variants.
pub(crate) fn specs() -> impl Iterator<Item = &'static str> {
    registry::RECORD_LOCKS.iter().map(|lock| lock.name).chain(VARIANTS.iter().copied())
}

/// A case: what is played with one lock on one stage.
pub(crate) trait Case {
    fn play<S: Stage, L: RecordLock<S::Endpoint>>(stage: &mut S, lock: L, promise: Promise);
}

/// Plays a case with every lock but the canary, and with that on whole tables, each on a stage of
/// its own.
pub(crate) fn play<S: Stage, C: Case>(mut stage: impl FnMut() -> S) {
    for spec in specs() {
        let mut stage = stage();
        let player = Player::<'_, S, C> { stage: &mut stage, spec, case: PhantomData };
        registry::visit(spec, player).expect("the suite names locks of the registry");
    }
    let mut stage = stage();
    let player = Player::<'_, S, C> { stage: &mut stage, spec: "table", case: PhantomData };
    player.visit(TableLock::whole());
}

struct Player<'s, S, C> {
    stage: &'s mut S,
    spec: &'static str,
    case: PhantomData<C>,
}

impl<S: Stage, C: Case> Visitor<S::Endpoint> for Player<'_, S, C> {
    type Output = ();

    fn visit<L: RecordLock<S::Endpoint>>(self, mut lock: L) {
        if !L::EXCLUDES || (lock.lease_ns().is_some() && !S::PUNCTUAL) {
            return;
        }
        if L::SERVED {
            let server = lock.serve(Rc::new(self.stage.endpoint())).expect("it is served");
            self.stage.serve(server);
        }
        let promise = Promise {
            spec: self.spec,
            fifo: lock.bypass_max() == Some(0),
            writers_before_reader: lock.writers_before_reader().map(usize::from),
        };
        C::play(self.stage, lock, promise);
    }
}

/// A client on this stage.
pub(crate) fn client<S: Stage, L: RecordLock<S::Endpoint>>(
    stage: &mut S,
    lock: &L,
) -> Client<S::Endpoint, L> {
    Client::new(stage.endpoint(), lock.clone(), Options::new(1))
}
