//! Lanes: endpoints whose verbs any thread executes, and the keepers of their places.
#![cfg(all(feature = "shm", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

#[path = "shm_support/mod.rs"]
mod support;

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use farlock_fabric::shm::{Host, KEEPERS_MAX, Lane, Options, Region, Unparker, park_all};
use farlock_fabric::{
    Addr, ConnectError, Connection as _, Endpoint, EndpointId, Fault, Mailbox, Patience, Slot,
    Verb, Wait, Woken, block_on,
};
use support::{TestDir, listen, part, say};

const PATIENT: Duration = Duration::from_secs(10);

/// Plays a part in another process; does nothing in the test run itself.
#[test]
fn child() {
    let Some((part, options)) = part() else { return };
    let region = Region::open(&options).unwrap();
    match part.as_str() {
        "adder" => {
            let (lane, keeper) = region.lane(false).unwrap();
            let word = region.heap().0;
            std::thread::spawn(move || {
                loop {
                    block_on(&lane, lane.faa64(word, 1)).unwrap();
                }
            });
            say(keeper.id().bits());
            listen();
        }
        "crowd" => {
            let keepers: Vec<_> = (0..KEEPERS_MAX).map(|_| region.lane(false).unwrap()).collect();
            say(keepers.len());
            listen();
        }
        "holder" => {
            let (lane, _keeper) = region.lane(false).unwrap();
            say(lane.id().bits());
            listen();
        }
        other => panic!("no such part: {other}"),
    }
}

fn for_mail() -> Wait<'static> {
    Wait { mail: Some(Slot(0)), patience: Patience::PARK, ..Wait::default() }
}

fn for_change(word: Addr, value: u64) -> Wait<'static> {
    Wait { word: Some((word, value)), patience: Patience::PARK, ..Wait::default() }
}

fn read(endpoint: &impl Endpoint, word: Addr) -> u64 {
    let mut cx = Context::from_waker(Waker::noop());
    assert!(pin!(endpoint.read64(word)).poll(&mut cx) == Poll::Ready(Ok(())));
    endpoint.old() as u64
}

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < PATIENT, "{what} did not happen");
        std::thread::yield_now();
    }
}

#[test]
fn a_lane_works_on_whatever_thread_has_it() {
    let dir = TestDir::new("lane-moves");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let (lane, keeper) = region.lane(false).unwrap();
    let (id, word) = (lane.id(), region.heap().0);
    block_on(&lane, lane.faa64(word, 1)).unwrap();
    let lane = std::thread::scope(|scope| {
        let there = scope.spawn(move || {
            block_on(&lane, lane.cas64(word, 1, 2)).unwrap();
            assert_eq!(block_on(&lane, lane.wait(for_change(word, 2))), Woken::Changed);
            assert_eq!(block_on(&lane, lane.wait(for_mail())), Woken::Mail);
            assert_eq!(lane.receive(Slot(0)).unwrap().message, [7; 4]);
            lane.publish(Slot(0), 3, 99);
            lane
        });
        until("the other thread's change", || read(&e, word) == 2);
        std::thread::sleep(Duration::from_millis(20));
        block_on(&e, e.faa64(word, 1)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let to = Mailbox { endpoint: id, slot: Slot(0) };
        block_on(&e, e.send(to, [7; 4])).unwrap();
        there.join().unwrap()
    });
    assert_eq!(read(&e, e.record(id.index, Slot(0)).plus(24)), 99);
    block_on(&lane, lane.faa64(word, 1)).unwrap();
    assert_eq!(read(&e, word), 4);
    assert!(e.is_alive(id) && keeper.id() == id);
    drop(lane);
    assert!(e.is_alive(id), "it lives as long as its keeper");
    drop(keeper);
    assert!(!e.is_alive(id));
}

/// A region with room for two endpoints.
fn narrow(dir: &TestDir) -> Region {
    Region::open(&Options { endpoints: 2, ..dir.options() }).unwrap()
}

#[test]
fn a_lane_without_its_keeper_is_refused_and_its_place_nobody_elses() {
    let dir = TestDir::new("lane-refused");
    let region = narrow(&dir);
    let e = region.endpoint().unwrap();
    let (lane, keeper) = region.lane(false).unwrap();
    let (id, word) = (lane.id(), region.heap().0);
    drop(keeper);
    assert!(!e.is_alive(id));
    assert_eq!(block_on(&lane, lane.faa64(word, 1)), Err(Fault::Revoked));
    assert_eq!(block_on(&lane, lane.read64(word)), Err(Fault::Revoked));
    let to = Mailbox { endpoint: e.id(), slot: Slot(0) };
    assert_eq!(block_on(&lane, lane.send(to, [1; 4])), Err(Fault::Revoked));
    assert_eq!(block_on(&lane, lane.wait(for_mail())), Woken::Changed);
    lane.publish(Slot(0), 0, 1);
    assert!(lane.receive(Slot(0)).is_none());
    let to = Mailbox { endpoint: id, slot: Slot(0) };
    assert_eq!(block_on(&e, e.send(to, [1; 4])), Err(Fault::PeerGone));
    // An attacher that moved in would share its gate and its mailboxes.
    assert!(matches!(region.endpoint(), Err(ConnectError::Full { .. })));
    let other = narrow(&dir);
    assert!(matches!(other.lane(false), Err(ConnectError::Full { .. })));
    drop(lane);
    let successor = region.endpoint().unwrap();
    assert_eq!(successor.id().index, id.index);
    assert_ne!(successor.id(), id);
    assert_eq!(read(&e, e.record(id.index, Slot(0))), 0);
}

#[test]
fn a_place_is_free_when_lane_and_keeper_are_gone() {
    let dir = TestDir::new("lane-free");
    let region = narrow(&dir);
    let _e = region.endpoint().unwrap();
    for _ in 0..20 {
        let (lane, keeper) = region.lane(false).unwrap();
        drop(lane);
        assert!(matches!(region.endpoint(), Err(ConnectError::Full { .. })));
        drop(keeper);
        let (lane, keeper) = region.lane(true).unwrap();
        drop((keeper, lane));
    }
}

#[test]
fn a_keeper_ends_a_busy_lane_between_two_verbs() {
    let dir = TestDir::new("lane-busy");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let word = region.heap().0;
    for _ in 0..50 {
        let (lane, keeper) = region.lane(false).unwrap();
        std::thread::scope(|scope| {
            let adding = scope.spawn(move || {
                while block_on(&lane, lane.faa64(word, 1)).is_ok() {}
                lane
            });
            let before = read(&e, word);
            until("an addition", || read(&e, word) > before);
            drop(keeper);
            let after = read(&e, word);
            drop(adding.join().unwrap());
            assert_eq!(read(&e, word), after, "a verb took effect after the death");
        });
    }
}

/// A thread that attaches a lane, hands it over, and ends as it is told.
fn kept_by(region: &Region, end: impl FnOnce(farlock_fabric::shm::Keeper) + Send) -> Lane {
    std::thread::scope(|scope| {
        let (hand_over, lane) = mpsc::channel();
        let keeping = scope.spawn(move || {
            let (lane, keeper) = region.lane(false).unwrap();
            hand_over.send(lane).unwrap();
            end(keeper);
        });
        let lane = lane.recv().unwrap();
        let _ = keeping.join();
        lane
    })
}

#[test]
fn the_end_of_the_keepers_thread_is_the_endpoints_death() {
    let dir = TestDir::new("lane-orphan");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let word = region.heap().0;
    let panicked = kept_by(&region, |_keeper| std::panic::resume_unwind(Box::new("as told")));
    let forgotten = kept_by(&region, std::mem::forget);
    for lane in [panicked, forgotten] {
        let peers = [lane.id()];
        let wait = Wait { peers: &peers, ..Wait::default() };
        assert_eq!(block_on(&e, e.wait(wait)), Woken::PeerGone(lane.id()));
        assert_eq!(block_on(&lane, lane.faa64(word, 1)), Err(Fault::Revoked));
    }
    assert_eq!(read(&e, word), 0);
}

#[test]
fn a_waiting_lane_learns_that_its_keeper_is_gone() {
    let dir = TestDir::new("lane-waits");
    let region = dir.region();
    let (lane, keeper) = region.lane(false).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || block_on(&lane, lane.wait(for_mail())));
        std::thread::sleep(Duration::from_millis(20));
        drop(keeper);
        assert_eq!(waiting.join().unwrap(), Woken::Changed);
    });
}

#[test]
fn no_verb_of_a_killed_process_takes_effect_after_its_death() {
    let dir = TestDir::new("lane-killed");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let word = region.heap().0;
    for _ in 0..30 {
        let mut peer = dir.child("adder");
        let id = EndpointId::from_bits(peer.hear().parse().unwrap());
        let before = read(&e, word);
        until("an addition", || read(&e, word) > before);
        peer.kill();
        until("its death", || !e.is_alive(id));
        let after = read(&e, word);
        peer.wait_for_end();
        assert_eq!(read(&e, word), after, "a verb took effect after the death");
    }
}

#[test]
fn the_places_of_a_killed_process_are_free() {
    let dir = TestDir::new("lane-freed");
    let region = narrow(&dir);
    let e = region.endpoint().unwrap();
    for _ in 0..3 {
        let mut peer = dir.child("holder");
        let id = EndpointId::from_bits(peer.hear().parse().unwrap());
        assert!(matches!(region.endpoint(), Err(ConnectError::Full { .. })));
        peer.kill_and_reap();
        assert!(!e.is_alive(id));
        drop(region.lane(false).unwrap());
    }
}

#[test]
fn a_thread_parks_for_several_lanes() {
    let dir = TestDir::new("lanes-park");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let (lanes, _keepers): (Vec<_>, Vec<_>) = (0..3).map(|_| region.lane(false).unwrap()).unzip();
    let word = |number: usize| region.heap().0.plus(number as u64 * 64);
    let unparker = Unparker::new();
    let (waiting, woken) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let lanes = lanes;
            let waits = (0..3).map(|n| Box::pin(lanes[n].wait(for_change(word(n), 0))));
            let mut waits: Vec<_> = waits.map(Some).collect();
            let mut cx = Context::from_waker(Waker::noop());
            while waits.iter().any(Option::is_some) {
                for (number, slot) in waits.iter_mut().enumerate() {
                    let Some(wait) = slot else { continue };
                    if wait.as_mut().poll(&mut cx).is_ready() {
                        assert_ne!(read(&lanes[number], word(number)), 0, "the right lane woke");
                        woken.fetch_add(1 << (8 * number), Ordering::SeqCst);
                        *slot = None;
                    }
                }
                waiting.fetch_add(1, Ordering::SeqCst);
                Host::park_all(lanes.iter(), &unparker);
            }
            assert!(!park_all(lanes.iter(), &unparker), "nothing is pending");
        });
        for (number, all) in [(1, 0x100), (2, 0x1_0100), (0, 0x1_0101)] {
            let turns = waiting.load(Ordering::SeqCst);
            until("a sleep", || waiting.load(Ordering::SeqCst) > 0);
            std::thread::sleep(Duration::from_millis(10));
            let begun = Instant::now();
            block_on(&e, e.faa64(word(number), 1)).unwrap();
            until("a wake", || woken.load(Ordering::SeqCst) == all);
            assert!(begun.elapsed() < Duration::from_secs(1), "by the bell, not by the clock");
            assert!(waiting.load(Ordering::SeqCst) <= turns + 3, "it slept");
        }
    });
}

#[test]
fn more_lanes_than_the_kernel_takes_at_once_are_parked_for() {
    let dir = TestDir::new("lanes-many");
    let region = Region::open(&Options { endpoints: 200, slots: 1, ..dir.options() }).unwrap();
    let e = region.endpoint().unwrap();
    let (lanes, _keepers): (Vec<_>, Vec<_>) = (0..150).map(|_| region.lane(false).unwrap()).unzip();
    let last = lanes[149].id();
    let parking = std::thread::spawn(move || {
        let mut waits: Vec<_> = lanes.iter().map(|lane| Box::pin(lane.wait(for_mail()))).collect();
        let unparker = Unparker::new();
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            for (number, wait) in waits.iter_mut().enumerate() {
                if wait.as_mut().poll(&mut cx).is_ready() {
                    return number;
                }
            }
            park_all(lanes.iter(), &unparker);
        }
    });
    std::thread::sleep(Duration::from_millis(20));
    let to = Mailbox { endpoint: last, slot: Slot(0) };
    block_on(&e, e.send(to, [1; 4])).unwrap();
    assert_eq!(parking.join().unwrap(), 149);
}

#[test]
fn an_unparker_of_ones_own_ends_a_park_for_lanes() {
    let dir = TestDir::new("lanes-unpark");
    let region = dir.region();
    let (lane, _keeper) = region.lane(false).unwrap();
    let (unparker, is_over) = (Unparker::new(), AtomicBool::new(false));
    let begun = std::thread::scope(|scope| {
        scope.spawn(|| {
            let lane = lane;
            let mut wait = pin!(lane.wait(for_mail()));
            let mut cx = Context::from_waker(Waker::noop());
            while !is_over.load(Ordering::SeqCst) {
                assert!(wait.as_mut().poll(&mut cx).is_pending());
                assert!(park_all(std::iter::once(&lane), &unparker));
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        let begun = Instant::now();
        is_over.store(true, Ordering::SeqCst);
        unparker.unpark();
        begun
    });
    assert!(begun.elapsed() < Duration::from_secs(1), "not by the clock");
}

#[test]
fn the_lowest_places_are_taken_and_a_look_around_costs_by_who_is_there() {
    let dir = TestDir::new("lanes-lowest");
    let region = Region::open(&Options { endpoints: 4096, slots: 2, ..dir.options() }).unwrap();
    let first = region.endpoint().unwrap();
    let others: Vec<_> = (2..=70).map(|_| region.endpoint().unwrap()).collect();
    assert!(others.iter().zip(2..).all(|(e, index)| e.id().index == index));
    assert!(first.occupied().eq(1..=70));
    drop(others);
    // Places that were left are looked for when the 64 of a word are all taken.
    let next = region.endpoint().unwrap();
    assert_eq!(next.id().index, 2);
    for _ in 0..10_000 {
        let (lane, _keeper) = region.lane(false).unwrap();
        assert!(lane.id().index <= 70, "{:?}", lane.id());
    }
    assert!(first.occupied().count() <= 70);
}

#[test]
fn a_look_around_passes_over_nobody_while_many_come_and_go() {
    let dir = TestDir::new("lanes-census");
    let region = Region::open(&Options { endpoints: 150, slots: 1, ..dir.options() }).unwrap();
    let observer = region.endpoint().unwrap();
    let mut residents: Vec<_> = (0..100).map(|_| region.endpoint().unwrap()).collect();
    residents.retain(|resident| resident.id().index % 10 == 0);
    let word = region.heap().0;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while begun.elapsed() < Duration::from_millis(800) {
                    let (lane, keeper) = region.lane(false).unwrap();
                    // A reader of this name in the word must find its bearer, while it lives.
                    block_on(
                        &lane,
                        lane.verb(Verb::Write { addr: word, data: &[lane.id().bits()] }),
                    )
                    .unwrap();
                    assert!(lane.occupied().any(|index| index == keeper.id().index));
                    std::thread::yield_now();
                }
            });
        }
        let mut seen = 0;
        while begun.elapsed() < Duration::from_millis(700) {
            for resident in &residents {
                let index = resident.id().index;
                assert_eq!(observer.occupied_from(index), Some(index), "it has always been there");
            }
            let id = EndpointId::from_bits(read(&observer, word));
            let is_found = observer.occupied_from(id.index) == Some(id.index);
            if id.index != 0 && observer.is_alive(id) {
                assert!(is_found, "{id:?} lives and was passed over");
                seen += 1;
            }
        }
        assert!(seen > 100, "it saw some of them alive");
    });
}

#[test]
fn a_thread_keeps_as_many_places_as_the_kernel_looks_after() {
    let dir = TestDir::new("lanes-crowd");
    let endpoints = KEEPERS_MAX as u16 + 10;
    let region = Region::open(&Options { endpoints, slots: 1, ..dir.options() }).unwrap();
    let e = region.endpoint().unwrap();
    let mut peer = dir.child("crowd");
    assert_eq!(peer.hear(), KEEPERS_MAX.to_string());
    assert_eq!(region.peers().len() as u32, KEEPERS_MAX + 1);
    peer.kill_and_reap();
    assert_eq!(region.peers().len(), 1, "the kernel told of every one");
    assert_eq!(e.occupied().filter_map(|index| e.occupant(index)).count(), 1);

    let kept: Vec<_> = (1..KEEPERS_MAX).map(|_| region.lane(false).unwrap()).collect();
    assert!(matches!(region.endpoint(), Err(ConnectError::ThreadFull { keepers: KEEPERS_MAX })));
    std::thread::scope(|scope| {
        scope.spawn(|| drop(region.endpoint().unwrap()));
    });
    drop(kept);
    drop(region.endpoint().unwrap());
}
