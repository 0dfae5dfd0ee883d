//! What every record lock must do, on every fabric: one suite, run on simulated far memory under
//! many seeds and on real shared memory.

mod blocks;
mod cases;
mod crash;
mod explored;
mod lapse;
mod lease;
mod ledger;
mod local;
mod long_ranges;
#[cfg(feature = "museum")]
mod museum;
mod options;
mod range_verbs;
mod region;
mod scene;
mod shm;
mod sim;
mod tcp;
mod turns;
mod txn;
mod unlisted;
mod updates;

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Mutex;

use farlock_fabric::{Addr, Nanos, SyncedClock, WideAtomics};
use farlock_locks::lock::Server;
use farlock_locks::registry::{self, Visitor};
use farlock_locks::{Client, Lock, LockKind, Options};

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

/// The leases here, in nanoseconds.
pub(crate) const LEASE_NS: Nanos = 4_000_000;

/// Every lock of the registry, its variants, larger ones, and with leases; where it has options,
/// its clients look at a word about once in a round trip.
pub(crate) fn specs() -> impl Iterator<Item = &'static str> {
    static SPECS: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
    let all = || {
        let mut all: Vec<_> = registry::RECORD_LOCKS.iter().map(|l| l.name.to_owned()).collect();
        for lock in registry::RECORD_LOCKS {
            let proof = registry::promises(lock.name).expect("it is registered").proof;
            let hurried = if proof.hurried.is_empty() {
                String::new()
            } else {
                format!(":{}", proof.hurried)
            };
            let mut add = |options: &str| all.push(format!("{}:{options}{hurried}", lock.name));
            proof.variants.iter().chain(proof.larger).for_each(|options| add(options));
            proof.leased.iter().for_each(|options| add(&format!("lease={LEASE_NS}:{options}")));
        }
        all
    };
    SPECS.get_or_init(all).iter().map(String::as_str)
}

/// A case: what is played with one lock on one stage.
pub(crate) trait Case {
    fn play<S: Stage, L: Lock<S::Endpoint>>(stage: &mut S, lock: L, promise: Promise);
}

/// Plays a case with every lock but the canary, each on a stage of its own.
pub(crate) fn play<S: Stage, C: Case>(stage: impl Fn() -> S) {
    specs().for_each(|spec| play_with::<S, C>(stage(), spec));
}

/// So many locks at once are played by [`play_at_once`].
const PLAYED_AT_ONCE: usize = 8;

/// The same with several locks at once: of cases that wait for time to pass.
pub(crate) fn play_at_once<S: Stage, C: Case>(stage: impl Fn() -> S + Sync) {
    let specs = Mutex::new(specs());
    let next = || specs.lock().expect("nobody panics with it").next();
    std::thread::scope(|scope| {
        for _ in 0..PLAYED_AT_ONCE {
            scope.spawn(|| {
                while let Some(spec) = next() {
                    play_with::<S, C>(stage(), spec);
                }
            });
        }
    });
}

fn play_with<S: Stage, C: Case>(mut stage: S, spec: &'static str) {
    let player = Player::<'_, S, C> { stage: &mut stage, spec, case: PhantomData };
    registry::visit(spec, player).expect("the suite names locks of the registry");
}

struct Player<'s, S, C> {
    stage: &'s mut S,
    spec: &'static str,
    case: PhantomData<C>,
}

impl<S: Stage, C: Case> Visitor<S::Endpoint> for Player<'_, S, C> {
    type Output = ();

    fn visit<L: Lock<S::Endpoint>>(self, mut lock: L) {
        let promises = lock.promises();
        if !promises.excludes || (promises.lease_ns.is_some() && !S::PUNCTUAL) {
            return;
        }
        if let Some(server) = lock.server() {
            let served = server.serve(Rc::new(self.stage.endpoint()));
            self.stage.serve(served);
        }
        let promise = Promise {
            spec: self.spec,
            fifo: promises.order.bypass_max == Some(0),
            writers_before_reader: promises.order.writers_before_reader.map(usize::from),
        };
        C::play(self.stage, lock, promise);
    }
}

/// From one lock to the next, in bytes.
pub(crate) const fn room<L: LockKind>() -> u64 {
    L::BYTES.next_multiple_of(64)
}

/// How long a shared hold of this lock may keep writers out after its release.
pub(crate) fn lingers_ns<E: SyncedClock, L: Lock<E>>(lock: &L, endpoint: &E) -> Nanos {
    lock.promises().lingers_ns + 3 * endpoint.clock_error()
}

/// A client on this stage.
pub(crate) fn client<S: Stage, L: Lock<S::Endpoint>>(
    stage: &mut S,
    lock: &L,
) -> Client<S::Endpoint, L> {
    Client::new(stage.endpoint(), lock.clone(), Options::new(1))
}
