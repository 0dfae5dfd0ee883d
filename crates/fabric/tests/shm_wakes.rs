//! Wake-ups in shared memory: a sleeper is woken by what it waits for, not by a timer.
#![cfg(all(feature = "shm", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

#[path = "shm_support/mod.rs"]
mod support;

use std::sync::Barrier;

use farlock_fabric::shm::ShmEndpoint;
use farlock_fabric::{Addr, Endpoint, Mailbox, Slot, Verb, Wait, block_on};
use support::TestDir;

/// Rounds of two who wake each other: enough for every order of a look, an arming, a change and a
/// ring on two processors.
const ROUNDS: u64 = 5_000;

/// Waits, with no patience at all, until a word is another.
async fn changed(e: &ShmEndpoint, word: Addr, from: u64) {
    loop {
        e.verb(Verb::Read { addr: word, words: 1 }).await.unwrap();
        if e.old() as u64 != from {
            return;
        }
        e.wait(Wait { word: Some((word, from)), ..Wait::default() }).await;
    }
}

/// Two clients that each wait for the other, so often. Nobody was woken by a timer alone.
fn play(first: impl Fn(&ShmEndpoint, Mailbox) + Sync, second: impl Fn(&ShmEndpoint) + Sync) {
    let dir = TestDir::new("wakes");
    let region = dir.region();
    let (told, tell) = std::sync::mpsc::channel();
    let met = Barrier::new(2);
    std::thread::scope(|scope| {
        let theirs = region.clone();
        let (second, met) = (&second, &met);
        let other = scope.spawn(move || {
            let e = theirs.endpoint().unwrap();
            told.send(Mailbox { endpoint: e.id(), slot: Slot(0) }).unwrap();
            second(&e);
            met.wait();
            e.late_wakes()
        });
        let e = region.endpoint().unwrap();
        first(&e, tell.recv().unwrap());
        met.wait();
        assert_eq!((e.late_wakes(), other.join().unwrap()), (0, 0), "woken by a timer");
    });
}

#[test]
fn a_change_of_a_word_wakes_who_waits_for_it() {
    let word = |e: &ShmEndpoint| e.region().heap().0;
    let first = |e: &ShmEndpoint, _| {
        block_on(e, async {
            for round in 0..ROUNDS {
                e.faa64(word(e), 1).await.unwrap();
                changed(e, word(e), 2 * round + 1).await;
            }
        });
    };
    let second = |e: &ShmEndpoint| {
        block_on(e, async {
            for round in 0..ROUNDS {
                changed(e, word(e), 2 * round).await;
                e.faa64(word(e), 1).await.unwrap();
            }
        });
    };
    play(first, second);
}

#[test]
fn a_message_wakes_its_receiver() {
    async fn next(e: &ShmEndpoint) -> Mailbox {
        loop {
            if let Some(envelope) = e.receive(Slot(0)) {
                return Mailbox { endpoint: envelope.from, slot: Slot(0) };
            }
            e.wait(Wait { mail: Some(Slot(0)), ..Wait::default() }).await;
        }
    }
    let first = |e: &ShmEndpoint, to| {
        block_on(e, async {
            for round in 0..ROUNDS {
                e.send(to, [round; 4]).await.unwrap();
                next(e).await;
            }
        });
    };
    let second = |e: &ShmEndpoint| {
        block_on(e, async {
            for round in 0..ROUNDS {
                let from = next(e).await;
                e.send(from, [round; 4]).await.unwrap();
            }
        });
    };
    play(first, second);
}

/// The judge of this file sees a wake-up that is lost: a word that changes without a ring.
#[test]
fn a_lost_wake_up_is_seen() {
    let dir = TestDir::new("lost-wake");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let word = region.heap().0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            // What is done to the words themselves is no verb: it wakes nobody.
            region.words()[0].store(1, std::sync::atomic::Ordering::SeqCst);
        });
        block_on(&e, changed(&e, word, 0));
    });
    assert_eq!(e.late_wakes(), 1);
}
