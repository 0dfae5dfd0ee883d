//! Tasks of one client that are handed a hold, and are gone by then.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use farlock_fabric::shm::{Options, Region};
use farlock_locks::local::HandoverTable;
use farlock_locks::record::claim::Claim;
use farlock_locks::{Client, Mode};

fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// A task may be told that it has the hold, or is to ask for it, and be dropped before it looks.
#[test]
fn what_a_task_was_given_that_is_dropped_before_it_looks_goes_on() {
    let dir = PathBuf::from(format!("/dev/shm/farlock-handed-on-{}", std::process::id()));
    let region = Region::open(&Options::new(dir.join("region"), dir.join("state"), "test"));
    let region = region.expect("a region of its own");
    let word = region.heap().0;
    for handovers_max in [1, 8] {
        let endpoint = region.endpoint().expect("a place");
        let client = Client::new(endpoint, Claim::default(), farlock_locks::Options::new(1));
        let table = HandoverTable::new(client, handovers_max);
        for _ in 0..3 {
            let mut first = Box::pin(table.acquire(word, Mode::Exclusive));
            let Poll::Ready(Ok(guard)) = poll(&mut first) else { panic!("nobody has it") };
            let mut second = Box::pin(table.acquire(word, Mode::Exclusive));
            let mut third = Box::pin(table.acquire(word, Mode::Exclusive));
            let mut fourth = Box::pin(table.acquire(word, Mode::Exclusive));
            assert!(poll(&mut second).is_pending() && poll(&mut third).is_pending());
            assert!(poll(&mut fourth).is_pending());
            let mut release = Box::pin(guard.release());
            assert!(poll(&mut release).is_ready());
            drop(second);
            drop(third);
            // A hold that was handed on often enough is given back by the client's own work.
            assert!(poll(&mut Box::pin(table.client().settle())).is_ready());
            let Poll::Ready(Ok(guard)) = poll(&mut fourth) else { panic!("it is its turn") };
            assert!(poll(&mut Box::pin(guard.release())).is_ready());
        }
        assert!(!table.client().is_unsettled());
    }
    std::fs::remove_dir_all(&dir).expect("the region's files");
}

/// A release may be dropped before it is awaited at all.
#[test]
fn a_release_that_was_never_begun_is_left_to_the_client() {
    let dir = PathBuf::from(format!("/dev/shm/farlock-unbegun-{}", std::process::id()));
    let region = Region::open(&Options::new(dir.join("region"), dir.join("state"), "test"));
    let region = region.expect("a region of its own");
    let (word, endpoint) = (region.heap().0, region.endpoint().expect("a place"));
    let client = Client::new(endpoint, Claim::default(), farlock_locks::Options::new(1));
    drop(client.lock(word, Mode::Exclusive).expect("nobody has it").release());
    assert!(client.is_unsettled());
    assert!(poll(&mut Box::pin(client.settle())).is_ready());
    assert!(!client.is_unsettled());
    let again = client.block_on(client.try_acquire(word, Mode::Exclusive));
    assert!(again.expect("no verb fails").is_some(), "it is free");
    std::fs::remove_dir_all(&dir).expect("the region's files");
}
