//! The lock of sessions in shared memory, where waiters sleep.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use farlock_fabric::shm::{Options, Region};
use farlock_fabric::{Endpoint, Nanos, block_on};
use farlock_locks::record::claim::{Claim, ClaimWord};
use farlock_locks::{Client, Mode};

/// Far less than the longest sleep.
const SOON_NS: Nanos = 400_000_000;

/// Whoever frees the lock changes the word and then wakes who watches it; it may be stopped between
/// the two. Here the word is changed by hand, which wakes nobody.
#[test]
fn a_lock_that_was_freed_without_waking_anybody_is_claimed_soon() {
    let dir = PathBuf::from(format!("/dev/shm/farlock-asleep-{}", std::process::id()));
    let region = Region::open(&Options {
        endpoints: 8,
        heap_bytes: 1 << 16,
        max_bytes: 1 << 16,
        ..Options::new(dir.join("region"), dir.join("state"), "test")
    });
    let region = region.expect("a region of its own");
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
