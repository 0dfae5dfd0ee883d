//! Specification of several keys at a time: by a server many operations are under way at once, and
//! it is as if they were done one after the other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use farlock::{Kv, KvError, Token};

use crate::stage::Stage;
use crate::stage::serving::Serving;

/// Keys of batches that are longer than what is under way at once, and come several times.
#[test]
fn a_batch_by_a_server_does_what_its_operations_do_one_by_one() {
    let (_stage, serving) = Serving::alone();
    let kv = Kv::open(&serving.options(), "default").unwrap();
    kv.put_fenced("fenced", "f", Token::from(5)).unwrap();
    let mut state = 1_u64;
    let mut below = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % most
    };
    let mut model = BTreeMap::<String, String>::new();
    for round in 0..60 {
        let keys: Vec<String> = (0..below(200)).map(|_| below(150).to_string()).collect();
        match round % 3 {
            0 => {
                let pairs = keys.iter().enumerate().map(|(at, key)| (key, format!("{round}/{at}")));
                let pairs: Vec<_> = pairs.collect();
                assert!(kv.put_many(pairs.iter().cloned()).iter().all(Result::is_ok));
                model.extend(pairs.into_iter().map(|(key, value)| (key.clone(), value)));
            }
            1 => {
                let removed = kv.remove_many(&keys).into_iter().map(Result::unwrap);
                let expected = keys.iter().map(|key| model.remove(key).is_some());
                assert!(removed.eq(expected), "{round}");
            }
            _ => {
                let got = kv.get_many(&keys).into_iter().map(Result::unwrap);
                let expected =
                    keys.iter().map(|key| model.get(key).cloned().map(String::into_bytes));
                assert!(got.eq(expected), "{round}");
            }
        }
    }
    let amiss = kv.put_many([("", "1"), ("a", "2"), ("fenced", "3"), ("a", "4")]);
    assert!(matches!(amiss[0], Err(KvError::BadKey { bytes: 0 })) && amiss[1].is_ok());
    assert!(matches!(amiss[2], Err(KvError::Fenced { .. })) && amiss[3].is_ok());
    assert_eq!(kv.get("a").unwrap().unwrap(), b"4");
}

/// Clients whose batches have the same few keys, beside one that adds to them one by one, and the
/// server is killed and started again: all come to their ends, and what was acknowledged last is
/// there.
#[test]
fn batches_of_the_same_keys_end_and_their_last_values_stay() {
    const CLIENTS: u64 = 4;
    const ROUNDS: u64 = 200;
    let stage = Stage::new();
    let mut serving = Serving::on(&stage);
    let keys: Vec<String> = (0..40).map(|key| key.to_string()).collect();
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let options = serving.options();
    let writes = |client: u64| {
        let kv = Kv::open(&options, "default").unwrap();
        let mut last = 0;
        for round in 1..=ROUNDS {
            let value = (client * 1_000_000 + round * 1_000).to_string();
            let put = kv.put_many(keys.iter().map(|key| (key, &value)));
            // Of a verb that was cut off by the kill nobody may know whether it was executed.
            let is_known = put.iter().all(|put| match put {
                Ok(()) => true,
                Err(KvError::Unknown) => false,
                Err(error) => panic!("{error}"),
            });
            last = if is_known { round } else { last };
            done.fetch_add(40, Ordering::Relaxed);
        }
        (client, last)
    };
    let adds = || {
        let kv = Kv::open(&options, "default").unwrap();
        while !is_over.load(Ordering::Relaxed) {
            let added = kv.add(&keys[7], 1);
            assert!(matches!(added, Ok(_) | Err(KvError::Unknown)), "{added:?}");
        }
    };
    let lasts: Vec<(u64, u64)> = thread::scope(|scope| {
        let adding = scope.spawn(adds);
        let begin = |client| scope.spawn(move || writes(client));
        let clients: Vec<_> = (1..=CLIENTS).map(begin).collect();
        for _ in 0..3 {
            let before = done.load(Ordering::Relaxed);
            stage.until(|| {
                let now = done.load(Ordering::Relaxed);
                now > before + 2_000 || now == CLIENTS * ROUNDS * 40
            });
            serving.restart(&stage, &[]);
        }
        let lasts = clients.into_iter().map(|client| client.join().unwrap()).collect();
        is_over.store(true, Ordering::Relaxed);
        adding.join().unwrap();
        lasts
    });
    let kv = Kv::open(&options, "default").unwrap();
    for (key, got) in keys.iter().zip(kv.get_many(&keys)) {
        let value: u64 = String::from_utf8(got.unwrap().unwrap()).unwrap().parse().unwrap();
        let (client, round) = (value / 1_000_000, value % 1_000_000 / 1_000);
        let is_last = lasts.iter().any(|&(other, last)| other == client && round >= last);
        assert!(is_last, "{key}: {value}, {lasts:?}");
        assert!(key == "7" || value.is_multiple_of(1_000), "{key}: {value}");
    }
}

/// Clients by a server whose batches have the same few keys, beside others in memory of its host,
/// which change them all the time: the batches come to their ends. An operation whose wait was
/// dropped while it got in line kept the others there, in one run of some.
#[test]
fn batches_end_beside_clients_of_the_servers_host() {
    const CLIENTS: u64 = 3;
    const ROUNDS: u64 = 400;
    let (stage, serving) = Serving::alone();
    let (options, here) = (serving.options(), stage.options());
    let keys: Vec<String> = (0..7).map(|key| key.to_string()).collect();
    let left = AtomicU64::new(CLIENTS);
    let beside = || {
        let kv = Kv::open(&here, "default").unwrap();
        while left.load(Ordering::Relaxed) > 0 {
            for key in &keys {
                kv.add(key, 1).unwrap();
                kv.put(key, "1").unwrap();
            }
        }
    };
    let by_server = |client: u64| {
        let _left = Left(&left);
        let kv = Kv::open(&options, "default").unwrap();
        for round in 0..ROUNDS {
            let first = (client + round) as usize % keys.len();
            let many = keys.iter().cycle().skip(first).take(30);
            match round % 3 {
                0 => drop(kv.get_many(many)),
                1 => drop(kv.put_many(many.map(|key| (key, "0")))),
                _ => drop(kv.remove_many(many)),
            }
        }
    };
    thread::scope(|scope| {
        (0..2).for_each(|_| drop(scope.spawn(beside)));
        (0..CLIENTS).for_each(|client| drop(scope.spawn(move || by_server(client))));
    });
}

/// One of those that are waited for; it goes, also where it panics.
struct Left<'a>(&'a AtomicU64);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is loaded by a server goes there in batches: all of it, and of what is amiss the line is
/// told, before which all is stored.
#[test]
fn what_is_loaded_by_a_server_is_all_there() {
    let (stage, serving) = Serving::alone();
    let run = |words: &[&str]| {
        stage.run(&[&["kv", words[0], "--server", &serving.address], &words[1..]].concat())
    };
    let file = stage.file("pairs");
    let pairs: Vec<String> = (0..5_000).map(|key| format!("{key:05}\tvalue {key}\n")).collect();
    std::fs::write(&file, pairs.concat()).unwrap();
    let path = file.to_str().unwrap();
    assert_eq!(run(&["load", "--index", "ordered", path]).0, 0);
    assert_eq!(run(&["scan"]).1, pairs.concat());
    // A key that is too long stands in the middle of others.
    let long = format!("{}\tv\n", "k".repeat(1_025));
    let lines = [&pairs[..100], &[long], &pairs[100..]].concat();
    std::fs::write(&file, lines.concat()).unwrap();
    let (status, _, said) = run(&["load", "-s", "other", path]);
    assert!(status != 0 && said.contains("line 101"), "{status} {said}");
    for (line, status) in [("00000", 0), ("00099", 0), ("04999", 1)] {
        assert_eq!(run(&["get", "-s", "other", line]).0, status, "{line}");
    }
}
