//! Locks over shared memory in random orders of all their accesses. Time passes only when all
//! sleep, and never ends a wait for something that others must tell: a wake-up that is lost is a
//! deadlock.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p farlock-locks --release --test shuttle`, with
//! `FARLOCK_SCHEDULES` and `FARLOCK_SEED`. What a lock does is the checker's to explore; this is
//! for what lies between its text and the processor's.
#![cfg(shuttle)]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use farlock_fabric::Addr;
use farlock_fabric::shm::model::{play, take_part, undisturbed};
use farlock_fabric::shm::{Options as RegionOptions, Region, ShmEndpoint};
use farlock_locks::registry::{self, Visitor};
use farlock_locks::{Client, Lock, Mode, Options};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};

const CLIENTS: u32 = 3;
const ROUNDS: u32 = 3;
/// Changes of priority in a schedule.
const DEPTH: usize = 3;
/// What a writer does to the number of those inside.
const WRITER: i32 = 100;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// A client that comes and goes, as a reader and as a writer.
struct Cycles {
    endpoint: ShmEndpoint,
    word: Addr,
    who: u32,
    /// Those inside.
    inside: Arc<AtomicI32>,
}

impl Visitor<ShmEndpoint> for Cycles {
    type Output = ();

    fn visit<L: Lock<ShmEndpoint>>(self, lock: L) {
        let client = Client::new(self.endpoint, lock, Options::default());
        for round in 0..ROUNDS {
            let is_shared = L::SHARES && (self.who + round).is_multiple_of(2);
            let (mode, mine) =
                if is_shared { (Mode::Shared, 1) } else { (Mode::Exclusive, WRITER) };
            let guard = client.lock(self.word, mode).unwrap();
            let before = self.inside.fetch_add(mine, Ordering::SeqCst);
            assert!(before == 0 || is_shared && before < WRITER, "{mode:?} beside {before}");
            thread::yield_now();
            self.inside.fetch_sub(mine, Ordering::SeqCst);
            guard.unlock().unwrap();
        }
        undisturbed(|| drop(client));
    }
}

fn crowd(lock: &'static str, region: &Region) {
    let inside = Arc::new(AtomicI32::new(0));
    let word = region.heap().0;
    let clients = (0..CLIENTS).map(|who| {
        let (region, inside) = (region.clone(), Arc::clone(&inside));
        thread::spawn(move || {
            take_part(|| {
                let endpoint = undisturbed(|| region.endpoint().unwrap());
                registry::visit(lock, Cycles { endpoint, word, who, inside }).unwrap();
            });
        })
    });
    let clients: Vec<_> = clients.collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
}

/// Half of the schedules by PCT, half by tossing a coin at every access.
fn explore(lock: &'static str) {
    let half = (setting("FARLOCK_SCHEDULES", 3_000) / 2) as usize;
    let seed = setting("FARLOCK_SEED", 1);
    let dir = format!("/dev/shm/farlock-shuttle-{}-{}", std::process::id(), lock.replace(':', "-"));
    let options = RegionOptions::new(format!("{dir}/shm"), format!("{dir}/state"), "test");
    let region = Region::open(&RegionOptions { heap_bytes: 64 << 10, ..options }).unwrap();
    let body = move || {
        play(None, || {
            let reset = || region.words()[..2].iter().for_each(|w| w.store(0, Ordering::SeqCst));
            undisturbed(reset);
            crowd(lock, &region);
        });
    };
    let mut config = Config::new();
    // A client lies on its thread's stack.
    config.stack_size = 1 << 18;
    let by_priorities = PctScheduler::new_from_seed(seed, DEPTH, half);
    Runner::new(by_priorities, config.clone()).run(body.clone());
    Runner::new(RandomScheduler::new_from_seed(seed, half), config).run(body);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn queues_wake_who_waits() {
    explore("mcs");
    explore("shiftlock");
}

#[test]
fn claim_wakes_who_waits() {
    explore("claim");
    explore("claim:bypass=1");
}

#[test]
fn dslr_wakes_who_waits() {
    explore("dslr");
}
