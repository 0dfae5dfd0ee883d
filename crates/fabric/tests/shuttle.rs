//! How threads sleep and wake each other in shared memory, in random orders of all their accesses:
//! words, bells, mailboxes, beacons, unparkers. A wake-up that is lost is a deadlock here.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p farlock-fabric --release --test shuttle`. There are
//! `FARLOCK_SCHEDULES` schedules of each scene, which `FARLOCK_SEED` decides. Shuttle models no
//! weak memory: ThreadSanitizer and the ping-pong of processors (`shm_wakes`) do their part.
#![cfg(all(shuttle, feature = "shm", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

#[path = "shm_support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use farlock_fabric::shm::model::{play, take_part, undisturbed};
use farlock_fabric::shm::{Options, Planted, Region, ShmEndpoint, Unparker};
use farlock_fabric::{
    Addr, Endpoint, EndpointId, Fault, Mailbox, Park, Slot, Verb, Wait, Woken, block_on,
};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::mpsc::{Receiver, Sender, channel};
use shuttle::thread::JoinHandle;
use shuttle::{Config, Runner, thread};
use support::TestDir;

/// Changes of priority in a schedule.
const DEPTH: usize = 3;
/// Of one region: each of its places is good for 65,535 attaches.
const SCHEDULES_A_REGION: u64 = 10_000;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Half of the schedules by PCT, half by tossing a coin at every access.
fn explore(name: &str, mistake: Option<Planted>, scene: fn(&Region)) {
    let (mut left, mut seed) = (setting("FARLOCK_SCHEDULES", 10_000), setting("FARLOCK_SEED", 1));
    while left > 0 {
        let dir = TestDir::new(name);
        let region = dir.region();
        let body = move || {
            let word = |at| &region.words()[at];
            play(mistake, || {
                undisturbed(|| (0..WORDS).for_each(|at| word(at).store(0, Ordering::SeqCst)));
                scene(&region);
            });
        };
        let some = left.min(SCHEDULES_A_REGION);
        let half = some.div_ceil(2) as usize;
        let by_priorities = PctScheduler::new_from_seed(seed, DEPTH, half);
        Runner::new(by_priorities, Config::default()).run(body.clone());
        Runner::new(RandomScheduler::new_from_seed(seed, half), Config::default()).run(body);
        (left, seed) = (left - some, seed + 1);
    }
}

/// Words of the region that scenes use.
const WORDS: usize = 16;

/// A client of its own thread, which tells who it is before it begins.
fn client<T: 'static>(
    region: &Region,
    told: &Sender<EndpointId>,
    act: impl FnOnce(ShmEndpoint) -> T + 'static + Send,
) -> JoinHandle<T>
where
    T: Send,
{
    let (region, told) = (region.clone(), told.clone());
    thread::spawn(move || {
        take_part(|| {
            let endpoint = undisturbed(|| region.endpoint().unwrap());
            told.send(endpoint.id()).unwrap();
            act(endpoint)
        })
    })
}

/// It goes, as if at once.
fn leaves(endpoint: ShmEndpoint) {
    undisturbed(|| drop(endpoint));
}

fn word(region: &Region, number: u64) -> Addr {
    region.heap().0.plus(8 * number)
}

/// Waits, with no patience at all, until a word is another; what it is then.
async fn changed(e: &ShmEndpoint, word: Addr, from: u64) -> u64 {
    loop {
        e.verb(Verb::Read { addr: word, words: 1 }).await.unwrap();
        if e.old() as u64 != from {
            return e.old() as u64;
        }
        e.wait(Wait { word: Some((word, from)), ..Wait::default() }).await;
    }
}

async fn next(e: &ShmEndpoint) -> [u64; 4] {
    loop {
        if let Some(envelope) = e.receive(Slot(0)) {
            return envelope.message;
        }
        e.wait(Wait { mail: Some(Slot(0)), ..Wait::default() }).await;
    }
}

async fn send(e: &ShmEndpoint, to: EndpointId, message: [u64; 4]) {
    loop {
        match e.send(Mailbox { endpoint: to, slot: Slot(0) }, message).await {
            Ok(()) => return,
            Err(Fault::MailboxFull) => thread::yield_now(),
            Err(fault) => panic!("{fault}"),
        }
    }
}

/// Two count in turns.
fn turns(region: &Region) {
    const ROUNDS: u64 = 3;
    let (told, _hear) = channel();
    let at = word(region, 0);
    let threads = [0, 1].map(|parity| {
        client(region, &told, move |e| {
            block_on(&e, async {
                for round in 0..ROUNDS {
                    let mut count = 0;
                    while count < 2 * round + parity {
                        count = changed(&e, at, count).await;
                    }
                    e.faa64(at, 1).await.unwrap();
                }
            });
            leaves(e);
        })
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Three wait for words of one line, which one changes by verbs of all kinds.
fn neighbours(region: &Region) {
    let (told, _hear) = channel();
    let words = [0, 1, 3].map(|number| word(region, number));
    let both = word(region, 2);
    let waiters = words.map(|at| {
        client(region, &told, move |e| {
            block_on(&e, changed(&e, at, 0));
            leaves(e);
        })
    });
    let changer = client(region, &told, move |e| {
        block_on(&e, async {
            e.verb(Verb::Write { addr: words[0], data: &[1] }).await.unwrap();
            e.cas64(words[1], 0, 1).await.unwrap();
            let op = farlock_fabric::MaskedFaa { add: 1 << 64, boundary: 0 };
            e.verb(Verb::MaskedFaa128 { addr: both, op, hint: None }).await.unwrap();
        });
        leaves(e);
    });
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    changer.join().unwrap();
}

/// Two senders, one receiver, more messages than a mailbox holds.
fn mail(region: &Region) {
    const EACH: u64 = 4;
    let (told, hear): (_, Receiver<EndpointId>) = channel();
    let receiver = client(region, &told, |e| {
        let mut from = [0; 2];
        block_on(&e, async {
            for _ in 0..2 * EACH {
                let [sender, number, ..] = next(&e).await;
                assert_eq!(number, from[sender as usize], "in order of each sender");
                from[sender as usize] += 1;
            }
        });
        leaves(e);
    });
    let to = hear.recv().unwrap();
    let senders = [0, 1].map(|me| {
        client(region, &told, move |e| {
            block_on(&e, async {
                for number in 0..EACH {
                    send(&e, to, [me, number, 0, 0]).await;
                }
            });
            leaves(e);
        })
    });
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    receiver.join().unwrap();
}

/// Who waits for a message is told of one that came before its sender ended, and of the end.
fn last_words(region: &Region) {
    let (told, hear): (_, Receiver<EndpointId>) = channel();
    let (whom, from) = channel::<EndpointId>();
    let receiver = client(region, &told, move |e| {
        let peer = from.recv().unwrap();
        block_on(&e, async {
            let mut heard = false;
            let peers = [peer];
            loop {
                let wait = Wait { mail: Some(Slot(0)), peers: &peers, ..Wait::default() };
                let woken = e.wait(wait).await;
                heard |= e.receive(Slot(0)).is_some();
                if woken == Woken::PeerGone(peer) {
                    break;
                }
            }
            assert!(heard, "a message was lost");
        });
        leaves(e);
    });
    let to = hear.recv().unwrap();
    let sender = client(region, &told, move |e| {
        block_on(&e, send(&e, to, [1; 4]));
        leaves(e);
    });
    whom.send(hear.recv().unwrap()).unwrap();
    sender.join().unwrap();
    receiver.join().unwrap();
}

/// An owner that leaves while a child of its command has its tether is gone, and a waiter is told.
fn leaves_a_child(region: &Region) {
    let (told, hear): (_, Receiver<EndpointId>) = channel();
    let (whom, from) = channel::<EndpointId>();
    let watcher = client(region, &told, move |e| {
        let peers = [from.recv().unwrap()];
        let wait = || Wait { peers: &peers, ..Wait::default() };
        while block_on(&e, e.wait(wait())) != Woken::PeerGone(peers[0]) {}
        leaves(e);
    });
    hear.recv().unwrap();
    let region = region.clone();
    let leaver = thread::spawn(move || {
        take_part(|| {
            let e = undisturbed(|| region.endpoint_tethered().unwrap());
            let child =
                undisturbed(|| e.keeper().tether_fd().unwrap().try_clone_to_owned().unwrap());
            whom.send(e.id()).unwrap();
            leaves(e);
            child
        })
    });
    let child = leaver.join().unwrap();
    watcher.join().unwrap();
    drop(child);
}

/// The places of those that left children behind are others' soon, while the children live.
fn children_keep_no_place(mistake: Option<Planted>) {
    let scene = || {
        let dir = TestDir::new("children");
        let region = Region::open(&Options { endpoints: 2, ..dir.options() }).unwrap();
        let mut children = Vec::new();
        for _ in 0..6 {
            let e = region.endpoint_tethered().expect("there is a place");
            children.push(e.keeper().tether_fd().unwrap().try_clone_to_owned().unwrap());
        }
    };
    play(mistake, || undisturbed(scene));
}

/// An unpark ends the park that there is, or the next one.
fn unparks(region: &Region) {
    let done = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&done);
    let (told, _hear) = channel();
    let (lend, borrow) = channel::<Unparker>();
    let at = word(region, 0);
    let parker = client(region, &told, move |e| {
        lend.send(e.unparker()).unwrap();
        let mut wait = Box::pin(changed(&e, at, 0));
        while seen.load(Ordering::SeqCst) < 2 {
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            assert_eq!(wait.as_mut().poll(&mut cx), Poll::Pending);
            e.park();
        }
        drop(wait);
        leaves(e);
    });
    let unparker = borrow.recv().unwrap();
    for _ in 0..2 {
        done.fetch_add(1, Ordering::SeqCst);
        unparker.unpark();
    }
    parker.join().unwrap();
}

#[test]
fn words_wake_who_waits_for_them() {
    explore("turns", None, turns);
    explore("neighbours", None, neighbours);
}

#[test]
fn messages_wake_who_waits_for_them() {
    explore("mail", None, mail);
    explore("last-words", None, last_words);
}

#[test]
fn an_unpark_is_not_lost() {
    explore("unparks", None, unparks);
}

#[test]
fn a_child_that_lives_on_keeps_nothing_of_an_endpoint_that_left() {
    explore("leaves-a-child", None, leaves_a_child);
    children_keep_no_place(None);
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_orphan_that_was_left_in_a_place_is_found() {
    explore("leaves-orphan", Some(Planted::LeavesOrphan), leaves_a_child);
}

#[test]
#[should_panic(expected = "there is a place")]
fn a_tether_that_is_left_with_a_child_is_found() {
    children_keep_no_place(Some(Planted::LeavesTether));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_ring_before_the_change_is_found() {
    explore("rings-early", Some(Planted::RingsEarly), turns);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_sleep_without_a_second_look_is_found() {
    explore("looks-once", Some(Planted::LooksOnce), turns);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_receiver_without_a_second_look_is_found() {
    explore("mail-looks-once", Some(Planted::LooksOnce), mail);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_wake_before_the_bell_says_that_it_rang_is_found() {
    explore("wakes-first", Some(Planted::WakesFirst), turns);
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_unpark_that_is_forgotten_is_found() {
    explore("unpark-forgotten", Some(Planted::UnparkForgotten), unparks);
}

#[test]
#[should_panic(expected = "a message was lost")]
fn a_message_that_is_passed_over_is_found() {
    explore("passes-over", Some(Planted::PassesOver), last_words);
}
