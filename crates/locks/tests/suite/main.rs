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
mod setting;
mod shm;
mod sim;
mod tcp;
mod tuning;
mod turns;
mod txn;
mod unlisted;
mod updates;

use std::future::Future;
use std::pin::Pin;

use farlock_fabric::{Addr, Nanos, SyncedClock, WideAtomics};
use farlock_locks::LockKind;
use farlock_locks::lock::Server;
use farlock_locks::registry;

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

/// From one lock to the next, in bytes.
pub(crate) const fn room<L: LockKind>() -> u64 {
    L::BYTES.next_multiple_of(64)
}
