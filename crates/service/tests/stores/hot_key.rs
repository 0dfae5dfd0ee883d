//! Specification of a key that many clients of a server change at a time: none of them is kept from
//! it by the others, and none waits for long for one that is stopped.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use farlock::{Kv, RegionOptions};
use rustix::process::Signal;

use crate::stage::serving::Serving;
use crate::stage::{Stage, is_actor, kill, pid};

const CLIENTS: u64 = 8;

/// Changes that all of them make together.
const CHANGES: u64 = 16_000;

/// The least that each of them makes: an eighth of its share.
const LEAST: u64 = CHANGES / CLIENTS / 8;

/// Shares are counted, not time: beside busy processors all take longer.
#[test]
fn no_client_is_kept_from_a_key_that_many_change() {
    let (_stage, serving) = Serving::alone();
    let (made, start) = (AtomicU64::new(0), Barrier::new(CLIENTS as usize));
    let changes = || {
        let kv = Kv::open(&serving.options(), "default").unwrap();
        start.wait();
        let mut own = 0;
        while made.fetch_add(1, Ordering::Relaxed) < CHANGES {
            match own % 4 {
                0 => kv.put("last", own.to_string()).unwrap(),
                _ => drop(kv.add("sum", 1).unwrap()),
            }
            own += 1;
        }
        own
    };
    let shares: Vec<u64> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(changes)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let kv = Kv::open(&serving.options(), "default").unwrap();
    let sum: u64 = shares.iter().map(|own| own - own.div_ceil(4)).sum();
    assert_eq!(kv.get("sum").unwrap().unwrap(), sum.to_string().as_bytes());
    println!("shares of {CLIENTS} clients: {shares:?}");
    assert!(shares.iter().all(|&own| own >= LEAST), "{shares:?}");
}

/// A `put` that meets another needs no turn, and does not take those of clients that do.
#[test]
fn none_is_kept_from_adding_to_what_others_overwrite() {
    let (_stage, serving) = Serving::alone();
    Kv::open(&serving.options(), "default").unwrap().put("key", "7").unwrap();
    let (made, start) = (AtomicU64::new(0), Barrier::new(CLIENTS as usize));
    let changes = |number: u64| {
        let kv = Kv::open(&serving.options(), "default").unwrap();
        start.wait();
        let mut own = 0;
        while made.fetch_add(1, Ordering::Relaxed) < CHANGES {
            match number {
                0 => assert!(kv.add("key", 1).unwrap() > 7),
                _ => kv.put("key", "7").unwrap(),
            }
            own += 1;
        }
        own
    };
    let changes = &changes;
    let shares: Vec<u64> = thread::scope(|scope| {
        let begin = |number| scope.spawn(move || changes(number));
        let clients: Vec<_> = (0..CLIENTS).map(begin).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    println!("of {CLIENTS} clients the first adds: {shares:?}");
    assert!(shares.iter().all(|&own| own >= LEAST), "{shares:?}");
}

/// Changes a key without end, in a process of its own.
#[test]
fn actor_that_changes() {
    if !is_actor() {
        return;
    }
    let server = std::env::var("FARLOCK_SERVER").unwrap();
    let kv = Kv::open(&RegionOptions::of_server(server), "default").unwrap();
    loop {
        kv.add("sum", 1).unwrap();
    }
}

/// Where a client is stopped or dies with the turn, or in line, the others go on.
#[test]
fn clients_go_on_beside_those_that_are_stopped_or_dead() {
    let (stage, serving) = Serving::alone();
    let kv = Kv::open(&serving.options(), "default").unwrap();
    let sum = || -> u64 {
        let sum = kv.get("sum").unwrap().unwrap_or_else(|| b"0".to_vec());
        String::from_utf8(sum).unwrap().parse().unwrap()
    };
    let spawn = |stage: &Stage| {
        let mut actor = stage.actor("hot_key::actor_that_changes");
        actor.env("FARLOCK_SERVER", &serving.address).spawn().unwrap()
    };
    let mut actors: Vec<_> = (0..4).map(|_| spawn(&stage)).collect();
    stage.until(|| sum() > 100);
    for round in 0..12 {
        let signal = if round % 2 == 0 { Signal::STOP } else { Signal::KILL };
        let mut hit = actors.remove(0);
        kill(pid(&hit), signal);
        let before = sum();
        for _ in 0..50 {
            kv.add("sum", 1).unwrap();
        }
        stage.until(|| sum() > before + 100);
        kill(pid(&hit), Signal::KILL);
        hit.wait().unwrap();
        actors.push(spawn(&stage));
    }
    for mut actor in actors {
        kill(pid(&actor), Signal::KILL);
        actor.wait().unwrap();
    }
}
