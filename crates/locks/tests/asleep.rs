//! The locks of sessions in shared memory, where waiters sleep.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use farlock_fabric::hook::Counted;
use farlock_fabric::shm::{Options, Region};
use farlock_fabric::{Endpoint, Nanos, block_on};
use farlock_locks::record::citron_rw::Shared;
use farlock_locks::record::claim::{Claim, ClaimWord};
use farlock_locks::{Client, Extent, Mode};

/// Far less than the longest sleep.
const SOON_NS: Nanos = 400_000_000;

/// A region of its own, and where it lies.
fn room(name: &str) -> (PathBuf, Region) {
    let dir = PathBuf::from(format!("/dev/shm/farlock-asleep-{name}-{}", std::process::id()));
    let region = Region::open(&Options {
        endpoints: 8,
        heap_bytes: 1 << 18,
        max_bytes: 1 << 18,
        ..Options::new(dir.join("region"), dir.join("state"), "test")
    });
    (dir, region.expect("a region of its own"))
}

/// A client that frees the lock changes the word and then wakes its watchers; it may be stopped
/// between the two. Here the word is changed by hand, which wakes nobody.
#[test]
fn a_lock_that_was_freed_without_waking_anybody_is_claimed_soon() {
    let (dir, region) = room("word");
    let word = region.heap().0;
    let client = || {
        let endpoint = region.endpoint().expect("a place");
        let lock = Claim { bypass: 64, ..Claim::default() };
        Client::new(endpoint, lock, farlock_locks::Options::new(1))
    };
    let holder = client();
    for held_ms in [5, 60, 120] {
        let guard = holder.lock(word, Mode::Exclusive).expect("nobody else wants it");
        let freed = AtomicBool::new(false);
        let (freed_at, granted_at) = thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let client = client();
                let guard = client.lock(word, Mode::Exclusive).expect("it is freed");
                assert!(freed.load(Ordering::SeqCst), "the lock excludes");
                let granted_at = client.endpoint().now();
                guard.unlock().expect("it is held");
                granted_at
            });
            block_on(holder.endpoint(), holder.endpoint().sleep(held_ms * 1_000_000));
            let freed_at = holder.endpoint().now();
            freed.store(true, Ordering::SeqCst);
            let [low, high] = [&region.words()[0], &region.words()[1]];
            high.fetch_add((ClaimWord::COUNT.place(1) >> 64) as u64, Ordering::SeqCst);
            low.fetch_and(!(ClaimWord::HOLDER.mask() as u64), Ordering::SeqCst);
            (freed_at, waiter.join().expect("the waiter is granted"))
        });
        assert!(granted_at - freed_at < SOON_NS, "after {held_ms} ms");
        // It finds that others took it for dead.
        guard.unlock().expect("a release that comes too late is none");
    }
    std::fs::remove_dir_all(&dir).expect("the region's files");
}

/// A waiter for a range looks around now and then, and sleeps meanwhile.
#[test]
fn a_waiter_for_a_range_sleeps() {
    const HELD_NS: Nanos = 300_000_000;
    /// One look around takes two dozen.
    const VERBS_MAX: u64 = 5_000;
    let (dir, region) = room("range");
    let word = region.heap().0;
    let client = || {
        let endpoint = Counted::new(region.endpoint().expect("a place"));
        Client::new(endpoint, Shared::default(), farlock_locks::Options::new(1))
    };
    let holder = client();
    for units in [0..1, 0..64, 64..320] {
        let want = Extent::new(Mode::Exclusive, units.clone());
        let guard = holder.lock(word, want).expect("nobody else wants it");
        let verbs = thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let client = client();
                client.lock(word, want).expect("it is freed").unlock().expect("it is held");
                let counts = client.endpoint().counts();
                counts.verbs()
            });
            block_on(holder.endpoint(), holder.endpoint().sleep(HELD_NS));
            guard.unlock().expect("it is held");
            waiter.join().expect("the waiter is granted")
        });
        assert!(verbs < VERBS_MAX, "{verbs} verbs for {units:?}");
    }
    std::fs::remove_dir_all(&dir).expect("the region's files");
}
