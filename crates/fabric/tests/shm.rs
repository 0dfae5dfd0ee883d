//! Shared memory between unrelated processes: messages, deaths, revocation, growth.
#![cfg(all(feature = "shm", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

#[path = "shm_support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use farlock_fabric::shm::{GrowError, Options, Region, ShmEndpoint};
use farlock_fabric::{
    Addr, ConnectError, Endpoint, EndpointId, Fault, Link, Mailbox, MaskedAtomics, MaskedCas,
    MaskedFaa, Patience, Slot, Verb, Wait, WideAtomics, Woken, block_on,
};
use support::{TestDir, listen, part, say};

const PATIENT: Duration = Duration::from_secs(10);

/// Plays a part in another process; does nothing in the test run itself.
#[test]
fn child() {
    let Some((part, options)) = part() else { return };
    let region = Region::open(&options).unwrap();
    match part.as_str() {
        "holder" => hold(&region.endpoint().unwrap()),
        "echo" => echo(&region.endpoint().unwrap()),
        "adder" => add(&region.endpoint().unwrap()),
        "sender" => flood(&region.endpoint().unwrap()),
        "comer" => come_and_go(&options),
        "creator" => create_and_delete(&options),
        "grower" => grow_on(&region),
        other => panic!("no such part: {other}"),
    }
}

/// Makes a region longer until it may not, and then goes on trying.
fn grow_on(region: &Region) {
    say("ready");
    loop {
        let _ = region.grow(1);
    }
}

/// Creates a region and deletes its file, again and again.
fn create_and_delete(options: &Options) {
    say("ready");
    loop {
        let _ = std::fs::remove_file(options.dir.join(&options.name));
        Region::open(options).unwrap();
    }
}

/// Attaches and does what it is told until it is killed.
fn hold(endpoint: &ShmEndpoint) {
    say(endpoint.id().bits());
    loop {
        let line = listen();
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("faa", _) => {
                let word = endpoint.region().heap().0;
                say(format!("{:?}", block_on(endpoint, endpoint.faa64(word, 1))));
            }
            ("last-word", _) => {
                let (start, bytes) = endpoint.region().heap();
                block_on(endpoint, endpoint.read64(start.plus(bytes - 8))).unwrap();
                say(endpoint.old());
            }
            ("leave", _) => return,
            other => panic!("not understood: {other:?}"),
        }
    }
}

/// Sends every message back to its sender, plus one.
fn echo(endpoint: &ShmEndpoint) {
    say(endpoint.id().bits());
    loop {
        let mail = Wait { mail: Some(Slot(0)), ..Wait::default() };
        block_on(endpoint, endpoint.wait(mail));
        while let Some(envelope) = endpoint.receive(Slot(0)) {
            let to = Mailbox { endpoint: envelope.from, slot: Slot(0) };
            block_on(endpoint, endpoint.send(to, envelope.message.map(|word| word + 1))).unwrap();
        }
    }
}

/// Adds to a word, with every kind of addition.
fn add(endpoint: &ShmEndpoint) {
    let word = endpoint.region().heap().0;
    say("ready");
    listen();
    let wide = MaskedFaa { add: 1 << 64 | 1, boundary: 1 << 63 };
    for _ in 0..10_000 {
        block_on(endpoint, endpoint.faa64(word, 1)).unwrap();
        block_on(endpoint, endpoint.masked_faa128(word.plus(16), wide, None)).unwrap();
    }
    say("done");
}

/// Sends without end to the endpoint it is told.
fn flood(endpoint: &ShmEndpoint) {
    let to = EndpointId::from_bits(listen().parse().unwrap());
    let to = Mailbox { endpoint: to, slot: Slot(0) };
    say(endpoint.id().bits());
    for number in 0.. {
        while block_on(endpoint, endpoint.send(to, [number; 4])) == Err(Fault::MailboxFull) {
            std::thread::yield_now();
        }
    }
}

/// Opens the region, attaches and leaves again, without end.
fn come_and_go(options: &Options) -> ! {
    say("ready");
    loop {
        let region = Region::open(options).unwrap();
        let _endpoints = (region.endpoint().unwrap(), region.lane(true).unwrap());
    }
}

fn id(said: &str) -> EndpointId {
    EndpointId::from_bits(said.parse().unwrap())
}

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < PATIENT, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn run<T>(endpoint: &ShmEndpoint, future: impl Future<Output = T>) -> T {
    block_on(endpoint, future)
}

#[test]
fn every_verb_does_what_its_definition_says() {
    let dir = TestDir::new("verbs");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let at = region.heap().0;
    run(&e, e.verb(Verb::Write { addr: at, data: &[1, 2, 3, 4] })).unwrap();
    run(&e, e.verb(Verb::Read { addr: at, words: 4 })).unwrap();
    let mut words = [0; 5];
    assert_eq!(e.copy_read(0, &mut words), 4);
    assert_eq!((words, e.old()), ([1, 2, 3, 4, 0], 2 << 64 | 1));

    run(&e, e.cas64(at, 7, 9)).unwrap();
    assert_eq!(e.old(), 1);
    run(&e, e.cas64(at, 1, 9)).unwrap();
    run(&e, e.faa64(at, u64::MAX)).unwrap();
    assert_eq!(e.old(), 9);
    let op = MaskedCas { compare: 8, compare_mask: 0xf, swap: 0xab0, swap_mask: 0xff0 };
    run(&e, e.masked_cas64(at, op)).unwrap();
    assert_eq!(e.old(), 8);
    run(&e, e.masked_cas64(at, MaskedCas { compare: 1, ..op })).unwrap();
    assert_eq!(e.old(), 0xab8, "a failed compare returns the whole word");
    run(&e, e.masked_faa64(at, MaskedFaa { add: 0xff, boundary: 0x80 })).unwrap();
    run(&e, e.read64(at)).unwrap();
    assert_eq!(e.old(), 0xab7, "the carry stopped at the boundary");
}

#[test]
fn wide_verbs_do_not_depend_on_their_hint() {
    let dir = TestDir::new("wide");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let at = region.heap().0;
    for hint in [None, Some(0), Some(5 << 64 | 6), Some(u128::MAX)] {
        run(&e, e.verb(Verb::Write { addr: at, data: &[6, 5] })).unwrap();
        let op = MaskedCas { compare: 6, compare_mask: 0xff, swap: 9 << 64, swap_mask: 0xf << 64 };
        run(&e, e.masked_cas128(at, op, hint)).unwrap();
        assert_eq!(e.old(), 5 << 64 | 6, "hint {hint:?}");
        run(&e, e.masked_cas128(at, MaskedCas { compare: 7, ..op }, hint)).unwrap();
        assert_eq!(e.old(), 9 << 64 | 6, "hint {hint:?}");
        let add = MaskedFaa { add: 1 << 64 | u128::from(u64::MAX), boundary: 1 << 63 };
        run(&e, e.masked_faa128(at, add, hint)).unwrap();
        run(&e, e.verb(Verb::Read { addr: at, words: 2 })).unwrap();
        assert_eq!(e.old(), 10 << 64 | 5, "hint {hint:?}");
    }
}

#[test]
fn a_chain_ends_each_of_its_verbs() {
    let dir = TestDir::new("chain");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let (at, bytes) = region.heap();
    let chain: [Link<'_>; 5] = [
        Verb::Write { addr: at, data: &[3, 4, 5] }.into(),
        Verb::Faa64 { addr: at, add: 1 }.into(),
        Verb::Read { addr: at.plus(bytes), words: 1 }.into(),
        Verb::Read { addr: at, words: 3 }.into(),
        Link::fenced(Verb::Read { addr: at.plus(8), words: 1 }),
    ];
    assert_eq!(run(&e, e.chain(&chain)), Err(Fault::OutOfBounds));
    assert_eq!(e.link(0).status, Ok(()));
    assert_eq!((e.link(1).status, e.link(1).old), (Ok(()), 3));
    assert_eq!(e.link(2).status, Err(Fault::OutOfBounds));
    assert_eq!((e.link(3).status, e.link(3).old), (Ok(()), 4 << 64 | 4));
    let mut words = [0; 4];
    assert_eq!((e.copy_read(3, &mut words), words), (3, [4, 4, 5, 0]));
    assert_eq!((e.copy_read(4, &mut words), words[0]), (1, 4));
    assert_eq!(e.copy_read(2, &mut words), 0);
}

#[test]
fn what_lies_elsewhere_is_refused() {
    let dir = TestDir::new("refused");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let (at, bytes) = region.heap();
    let foreign = Addr::from_bits(at.bits() ^ 1 << 48);
    let op = MaskedCas::default();
    let faults = [
        (run(&e, e.faa64(at.plus(bytes), 1)), Fault::OutOfBounds),
        (run(&e, e.faa64(at.plus(4), 1)), Fault::Misaligned),
        (run(&e, e.faa64(foreign, 1)), Fault::OutOfBounds),
        (run(&e, e.masked_cas128(at.plus(8), op, None)), Fault::Misaligned),
        (run(&e, e.masked_cas128(at.plus(bytes), op, None)), Fault::OutOfBounds),
        (
            run(&e, e.verb(Verb::Write { addr: at.plus(bytes - 8), data: &[1, 2] })),
            Fault::OutOfBounds,
        ),
        (run(&e, e.verb(Verb::Read { addr: at, words: 0 })), Fault::OutOfBounds),
        (run(&e, e.verb(Verb::Read { addr: at, words: 513 })), Fault::OutOfBounds),
        (run(&e, e.read64(Addr::from_bits(0))), Fault::OutOfBounds),
        (run(&e, e.read64(Addr::from_bits(u64::MAX))), Fault::Misaligned),
        (run(&e, e.faa64(e.record(1, Slot(0)), 1)), Fault::NoRight),
    ];
    for (number, (found, fault)) in faults.into_iter().enumerate() {
        assert_eq!(found, Err(fault), "row {number}");
    }
}

#[test]
fn a_reader_has_no_right_to_change() {
    let dir = TestDir::new("reader");
    let region = dir.region();
    let writer = region.endpoint().unwrap();
    let at = region.heap().0;
    run(&writer, writer.faa64(at, 5)).unwrap();
    let reading = Region::open(&Options { read_only: true, ..dir.options() }).unwrap();
    let e = reading.endpoint().unwrap();
    run(&e, e.read64(at)).unwrap();
    assert_eq!(e.old(), 5);
    assert_eq!(run(&e, e.faa64(at, 1)), Err(Fault::NoRight));
    assert_eq!(run(&e, e.masked_cas128(at, MaskedCas::default(), None)), Err(Fault::NoRight));
    assert_eq!(run(&e, e.verb(Verb::Write { addr: at, data: &[1] })), Err(Fault::NoRight));
}

#[test]
fn records_are_published_to_everybody() {
    let dir = TestDir::new("records");
    let region = dir.region();
    let (a, b) = (region.endpoint().unwrap(), region.endpoint().unwrap());
    a.publish(Slot(2), 3, 77);
    run(&b, b.read64(b.record(a.id().index, Slot(2)).plus(24))).unwrap();
    assert_eq!(b.old(), 77);
    let index = a.id().index;
    drop(a);
    let mut successor = region.endpoint().unwrap();
    while successor.id().index != index {
        successor = region.endpoint().unwrap();
    }
    run(&b, b.read64(b.record(index, Slot(2)).plus(24))).unwrap();
    assert_eq!(b.old(), 0, "a successor begins with an empty record");
}

#[test]
fn processes_do_not_lose_additions() {
    let dir = TestDir::new("adders");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let mut adders = [dir.child("adder"), dir.child("adder")];
    adders.iter_mut().for_each(|adder| assert_eq!(adder.hear(), "ready"));
    adders.iter_mut().for_each(|adder| adder.tell("go"));
    adders.iter_mut().for_each(|adder| assert_eq!(adder.hear(), "done"));
    run(&e, e.verb(Verb::Read { addr: region.heap().0, words: 4 })).unwrap();
    let mut words = [0; 4];
    e.copy_read(0, &mut words);
    assert_eq!(words, [20_000, 0, 20_000, 20_000]);
}

#[test]
fn messages_cross_processes_and_wake_sleepers() {
    let dir = TestDir::new("echo");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let mut peer = dir.child("echo");
    let to = Mailbox { endpoint: id(&peer.hear()), slot: Slot(0) };
    let peers = [to.endpoint];
    for number in 0..200 {
        let before = e.now();
        run(&e, e.send(to, [number; 4])).unwrap();
        let patience = if number % 2 == 0 { Patience::PARK } else { Patience::DEFAULT };
        let wait = Wait { mail: Some(Slot(0)), peers: &peers, patience, ..Wait::default() };
        assert_eq!(run(&e, e.wait(wait)), Woken::Mail);
        let envelope = e.receive(Slot(0)).unwrap();
        assert_eq!((envelope.from, envelope.message), (to.endpoint, [number + 1; 4]));
        assert!(envelope.arrived >= before && envelope.arrived <= e.now());
        assert_eq!(e.receive(Slot(0)), None);
    }
}

#[test]
fn a_killed_holder_is_noticed_at_once() {
    let dir = TestDir::new("killed");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    for _ in 0..5 {
        let mut holder = dir.child("holder");
        let peer = id(&holder.hear());
        assert!(e.is_alive(peer));
        assert_eq!(e.occupant(peer.index), Some(peer));
        let killed = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            let at = Instant::now();
            holder.kill();
            (at, holder)
        });
        let peers = [peer];
        let wait = Wait { peers: &peers, mail: Some(Slot(0)), ..Wait::default() };
        assert_eq!(run(&e, e.wait(wait)), Woken::PeerGone(peer));
        let noticed = Instant::now();
        let (at, _holder) = killed.join().unwrap();
        assert!(noticed - at < Duration::from_millis(500), "noticed after {:?}", noticed - at);
        assert!(!e.is_alive(peer));
        assert_eq!(e.occupant(peer.index), None);
        let to = Mailbox { endpoint: peer, slot: Slot(0) };
        assert_eq!(run(&e, e.send(to, [0; 4])), Err(Fault::PeerGone));
    }
}

#[test]
fn everybody_who_watches_learns_of_a_death() {
    let dir = TestDir::new("watchers");
    let region = dir.region();
    let mut holder = dir.child("holder");
    let peer = id(&holder.hear());
    let watchers: Vec<_> = (0..8)
        .map(|_| {
            let region = region.clone();
            std::thread::spawn(move || {
                let e = region.endpoint().unwrap();
                let wait = Wait { peers: &[peer], patience: Patience::PARK, ..Wait::default() };
                let woken = block_on(&e, e.wait(wait));
                (woken, Instant::now())
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(100));
    let at = Instant::now();
    holder.kill();
    for watcher in watchers {
        let (woken, noticed) = watcher.join().unwrap();
        assert_eq!(woken, Woken::PeerGone(peer));
        assert!(noticed - at < Duration::from_secs(1), "noticed after {:?}", noticed - at);
    }
}

#[test]
fn sixty_four_processes_die_and_are_seen_dead() {
    let dir = TestDir::new("sixty-four");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let mut holders: Vec<_> = (0..64).map(|_| dir.child("holder")).collect();
    let peers: Vec<EndpointId> = holders.iter_mut().map(|holder| id(&holder.hear())).collect();
    assert!(peers.iter().all(|peer| e.is_alive(*peer)));
    assert_eq!(region.peers().len(), 65);
    holders.iter_mut().for_each(support::Peer::kill);
    until("64 deaths", || peers.iter().all(|peer| !e.is_alive(*peer)));
    let successors: Vec<_> = (0..79).map(|_| region.endpoint().unwrap()).collect();
    assert!(peers.iter().all(|peer| !e.is_alive(*peer)), "dead for good");
    drop(successors);
}

#[test]
fn an_endpoint_that_leaves_is_gone() {
    let dir = TestDir::new("leaves");
    let region = dir.region();
    let (e, other) = (region.endpoint().unwrap(), region.endpoint().unwrap());
    let gone = other.id();
    drop(other);
    assert!(!e.is_alive(gone));
    let wait = Wait { peers: &[gone], ..Wait::default() };
    assert_eq!(run(&e, e.wait(wait)), Woken::PeerGone(gone));
}

#[test]
fn a_thread_that_ends_with_its_endpoint_is_dead() {
    let dir = TestDir::new("thread");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let leaked =
        std::thread::spawn(move || std::mem::ManuallyDrop::new(region.endpoint().unwrap()).id());
    let peer = leaked.join().unwrap();
    until("a death", || !e.is_alive(peer));
}

#[test]
fn the_table_holds_so_many_and_not_one_more() {
    let dir = TestDir::new("table");
    let region = Region::open(&Options { endpoints: 5, ..dir.options() }).unwrap();
    let all: Vec<_> = (0..5).map(|_| region.endpoint().unwrap()).collect();
    assert!(matches!(region.endpoint(), Err(ConnectError::Full { endpoints: 5 })));
    // Who only looks finds a place all the same, again and again.
    let look = Region::open(&Options { read_only: true, ..dir.options() }).unwrap();
    for _ in 0..100 {
        let looker = look.endpoint().unwrap();
        assert!(all.iter().all(|one| looker.is_alive(one.id()) && one.is_alive(looker.id())));
    }
    assert!(matches!(region.endpoint(), Err(ConnectError::Full { endpoints: 5 })));
    let first = all[0].id();
    drop(all);
    let again: Vec<_> = (0..5).map(|_| region.endpoint().unwrap()).collect();
    let successor = again.iter().map(Endpoint::id).find(|id| id.index == first.index).unwrap();
    assert_ne!(successor.incarnation, first.incarnation);
    assert!(!region.is_alive(first));
}

/// A region of one place, attached to over and over: three laps of the table. Names come back, but
/// only after all of them were used.
#[test]
fn a_place_is_attached_to_without_end() {
    const ATTACHES: usize = 200_000;
    let dir = TestDir::new("laps");
    let region = Region::open(&Options { endpoints: 1, slots: 1, ..dir.options() }).unwrap();
    let mut last = vec![None; 1 << 16];
    for attach in 0..ATTACHES {
        let endpoint = region.endpoint().unwrap();
        let incarnation = endpoint.id().incarnation;
        if let Some(before) = last[usize::from(incarnation)].replace(attach) {
            assert_eq!(attach - before, 65_535, "{incarnation}");
        }
        assert!(endpoint.is_alive(endpoint.id()));
    }
    assert_eq!(last.iter().flatten().count(), 65_535);
}

/// Of two places one is kept for a while, so that the other's names are used up first: none of them
/// comes back before the first one's are used up too.
#[test]
fn a_name_comes_back_when_no_place_has_another_left() {
    let dir = TestDir::new("two-laps");
    let region = Region::open(&Options { endpoints: 2, slots: 1, ..dir.options() }).unwrap();
    let mut seen = std::collections::HashSet::new();
    let mut kept = Some(region.endpoint().unwrap());
    seen.extend(kept.as_ref().map(Endpoint::id));
    for attach in 1..2 * 65_535 {
        if attach == 30_000 {
            kept = None;
        }
        let id = region.endpoint().unwrap().id();
        assert!(seen.insert(id), "{id:?} after {attach}");
    }
    assert!(kept.is_none());
}

#[test]
fn the_table_shows_who_is_there() {
    let dir = TestDir::new("info");
    let region = Region::open(&Options { label: "nightly backup".into(), ..dir.options() });
    let region = region.unwrap();
    let e = region.endpoint().unwrap();
    let shown = region.peers();
    assert_eq!(shown.len(), 1);
    assert_eq!((shown[0].id, shown[0].pid), (e.id(), std::process::id()));
    assert_eq!(shown[0].label, "nightly backup");
    assert!(shown[0].started_ticks > 0 && shown[0].since <= e.now());
    assert!(!shown[0].tethered && !shown[0].orphaned);
}

#[test]
fn a_removed_region_is_stale_for_its_endpoints() {
    let dir = TestDir::new("stale");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let word = region.heap().0;
    let before = region.origin();
    let sleeper = {
        let region = region.clone();
        std::thread::spawn(move || {
            let e = region.endpoint().unwrap();
            block_on(&e, e.wait(Wait { mail: Some(Slot(0)), ..Wait::default() }));
            block_on(&e, e.faa64(word, 1))
        })
    };
    std::thread::sleep(Duration::from_millis(50));
    let again = Region::reset(&dir.options()).unwrap();
    assert!(again.origin() > before);
    assert_eq!(run(&e, e.faa64(word, 1)), Err(Fault::Stale));
    assert_eq!(run(&e, e.read64(word)), Err(Fault::Stale));
    assert_eq!(sleeper.join().unwrap(), Err(Fault::Stale));
    assert!(matches!(region.endpoint(), Err(ConnectError::Stale)));
    assert!(matches!(region.grow(1), Err(GrowError::Stale)));
    let fresh = again.endpoint().unwrap();
    run(&fresh, fresh.read64(word)).unwrap();
    assert_eq!(fresh.old(), 0);
}

#[test]
fn growth_is_seen_by_everybody() {
    let dir = TestDir::new("grow");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let mut holder = dir.child("holder");
    holder.hear();
    let (at, before) = region.heap();
    let last = at.plus(before + (1 << 20) - 8);
    assert_eq!(run(&e, e.faa64(last, 1)), Err(Fault::OutOfBounds));
    assert_eq!(region.grow((1 << 20) - 5).unwrap(), before + (1 << 20));
    run(&e, e.faa64(last, 42)).unwrap();
    holder.tell("last-word");
    assert_eq!(holder.hear(), "42");
    assert!(matches!(region.grow(1 << 30), Err(GrowError::Limit { .. })));
    assert!(matches!(region.grow(u64::MAX), Err(GrowError::Limit { .. })));
}

#[test]
fn a_sender_killed_at_any_moment_blocks_nobody() {
    let dir = TestDir::new("sender-killed");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    for round in 0..20 {
        let mut sender = dir.child("sender");
        sender.tell(&e.id().bits().to_string());
        let from = id(&sender.hear());
        let mut expected = 0;
        let begun = Instant::now();
        let mut killed = false;
        loop {
            if !killed && begun.elapsed() > Duration::from_micros(500 + round * 77) {
                sender.kill();
                killed = true;
            }
            if let Some(envelope) = e.receive(Slot(0)) {
                assert_eq!((envelope.from, envelope.message), (from, [expected; 4]));
                expected += 1;
            } else if killed && !e.is_alive(from) && e.receive(Slot(0)).is_none() {
                break;
            }
        }
        // Whatever it left half-written, four more messages fit and arrive.
        let to = Mailbox { endpoint: e.id(), slot: Slot(0) };
        for number in 0..4 {
            run(&e, e.send(to, [number; 4])).unwrap();
        }
        assert_eq!(run(&e, e.send(to, [4; 4])), Err(Fault::MailboxFull));
        for number in 0..4 {
            assert_eq!(e.receive(Slot(0)).unwrap().message, [number; 4]);
        }
    }
}

#[test]
fn a_change_wakes_who_waits_for_the_word() {
    let dir = TestDir::new("word");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let word = region.heap().0.plus(4096);
    for turn in 0..6_u64 {
        let waiter = {
            let region = region.clone();
            std::thread::spawn(move || {
                let e = region.endpoint().unwrap();
                let wait =
                    Wait { word: Some((word, turn)), patience: Patience::PARK, ..Wait::default() };
                let mut woken = 0;
                loop {
                    block_on(&e, e.wait(wait));
                    woken += 1;
                    block_on(&e, e.read64(word)).unwrap();
                    if e.old() as u64 != turn {
                        return woken;
                    }
                }
            })
        };
        std::thread::sleep(Duration::from_millis(20));
        let begun = Instant::now();
        match turn {
            0 => run(&e, e.faa64(word, 1)),
            1 => run(&e, e.cas64(word, turn, turn + 1)),
            2 => run(&e, e.verb(Verb::Write { addr: word, data: &[turn + 1] })),
            3 => {
                let op = MaskedFaa { add: 1, boundary: 0 };
                run(&e, e.masked_faa128(word, op, None))
            }
            4 => {
                let data = [0; 512].map(|_: u8| turn + 1);
                run(&e, e.verb(Verb::Write { addr: region.heap().0.plus(8), data: &data }))
            }
            _ => run(&e, e.masked_faa64(word, MaskedFaa { add: 1, boundary: 0 })),
        }
        .unwrap();
        assert!(waiter.join().unwrap() <= 3, "at most a few spurious wakes");
        assert!(begun.elapsed() < Duration::from_secs(1), "turn {turn}");
    }
}

#[test]
fn intervals_end_and_are_not_cut_short() {
    let dir = TestDir::new("interval");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let word = Some((region.heap().0, 0));
    for patience in [Patience::PARK, Patience::DEFAULT, Patience { spins: u32::MAX, yields: 0 }] {
        let before = e.now();
        let wait = Wait { word, interval: Some(3_000_000), patience, ..Wait::default() };
        assert_eq!(run(&e, e.wait(wait)), Woken::Elapsed);
        assert!(e.now() - before >= 3_000_000);
    }
    let before = e.now();
    run(&e, e.sleep(3_000_000));
    assert!(e.now() - before >= 3_000_000);
}

#[test]
fn an_unparker_ends_a_park() {
    use farlock_fabric::Park;
    let dir = TestDir::new("unpark");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    e.park();
    let mut wait = Box::pin(e.wait(Wait { mail: Some(Slot(1)), ..Wait::default() }));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(wait.as_mut().poll(&mut cx).is_pending());
    let unparker = e.unparker();
    let waker = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        unparker.unpark();
    });
    let begun = Instant::now();
    e.park();
    assert!(begun.elapsed() < Duration::from_millis(1500));
    waker.join().unwrap();
    assert!(wait.as_mut().poll(&mut cx).is_pending());
}

#[test]
fn several_waits_of_one_thread_sleep_together() {
    let dir = TestDir::new("together");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let (word, me) = (region.heap().0, e.id());
    let sender = std::thread::spawn(move || {
        let other = region.endpoint().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        block_on(&other, other.faa64(word, 1)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let to = Mailbox { endpoint: me, slot: Slot(3) };
        block_on(&other, other.send(to, [1; 4])).unwrap();
    });
    let patience = Patience::PARK;
    let mut ends = vec![
        Box::pin(e.wait(Wait { word: Some((word, 0)), patience, ..Wait::default() })),
        Box::pin(e.wait(Wait { mail: Some(Slot(3)), patience, ..Wait::default() })),
        Box::pin(e.wait(Wait { interval: Some(80_000_000), patience, ..Wait::default() })),
    ];
    let begun = Instant::now();
    let mut woken = Vec::new();
    let mut turns = 0;
    run(
        &e,
        std::future::poll_fn(|cx| {
            turns += 1;
            ends.retain_mut(|end| match end.as_mut().poll(cx) {
                std::task::Poll::Ready(why) => {
                    woken.push(why);
                    false
                }
                std::task::Poll::Pending => true,
            });
            if ends.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        }),
    );
    assert_eq!(woken, [Woken::Changed, Woken::Mail, Woken::Elapsed]);
    assert!(begun.elapsed() < Duration::from_secs(1) && turns < 12, "{turns} turns");
    sender.join().unwrap();
}

/// Stops a child in this part at 200 moments, and does something beside it each time, in a thread
/// of its own: it must not be waited for.
fn beside_a_stopped<T: Send + 'static>(
    dir: &TestDir,
    part: &str,
    act: impl Fn(Options) -> T + Copy + Send + 'static,
    mut done: impl FnMut(T),
) {
    let mut child = dir.child(part);
    assert_eq!(child.hear(), "ready");
    let process = rustix::process::Pid::from_raw(child.pid() as i32).unwrap();
    let signal = |signal| rustix::process::kill_process(process, signal).unwrap();
    for round in 0..200 {
        std::thread::sleep(Duration::from_micros(300 + round * 7));
        signal(rustix::process::Signal::STOP);
        let options = dir.options();
        let acting = std::thread::spawn(move || act(options));
        until("what is done beside it", || acting.is_finished());
        done(acting.join().unwrap());
        signal(rustix::process::Signal::CONT);
    }
}

/// A process that was stopped on its way into the region kept everybody else out of it.
#[test]
fn a_process_stopped_while_it_attaches_keeps_nobody_out() {
    let dir = TestDir::new("stopped-attaching");
    let region = dir.region();
    let attach = |options: Options| {
        let region = Region::open(&options).unwrap();
        drop((region.endpoint().unwrap(), region.lane(true).unwrap()));
    };
    beside_a_stopped(&dir, "comer", attach, |()| drop(region.endpoint().unwrap()));
}

/// Nor does one that was stopped while it made the region longer.
#[test]
fn a_process_stopped_while_it_grows_a_region_keeps_nobody_out() {
    let dir = TestDir::new("stopped-growing");
    let region = dir.region();
    let grow = |options: Options| {
        let grown = Region::open(&options).unwrap().grow(1);
        assert!(matches!(grown, Ok(_) | Err(GrowError::Limit { .. })), "{grown:?}");
    };
    beside_a_stopped(&dir, "grower", grow, |()| ());
    // Whichever process grew it last, its words are there.
    let (at, bytes) = region.heap();
    let e = region.endpoint().unwrap();
    run(&e, e.faa64(at.plus(bytes - 8), 1)).unwrap();
}

/// Nor does one that was stopped while it made the region, wherever it was.
#[test]
fn a_process_stopped_while_it_creates_a_region_keeps_nobody_out() {
    let dir = TestDir::new("stopped-creating");
    let create = |options: Options| {
        let region = Region::open(&options).unwrap();
        drop(region.endpoint().unwrap());
        region.origin()
    };
    let mut last = None;
    beside_a_stopped(&dir, "creator", create, |origin| {
        assert!(last <= Some(origin), "{last:?}, then {origin:?}");
        last = Some(origin);
    });
}

/// Whom an attacher killed on its way was about to replace is replaced by the next.
#[test]
fn a_process_killed_while_it_attaches_takes_no_place_away() {
    let dir = TestDir::new("killed-attaching");
    let region = dir.region();
    for round in 0..20 {
        let mut comer = dir.child("comer");
        assert_eq!(comer.hear(), "ready");
        std::thread::sleep(Duration::from_micros(300 + round * 77));
        comer.kill_and_reap();
    }
    let all: Vec<_> = (0..region.endpoints()).map(|_| region.endpoint().unwrap()).collect();
    assert!(matches!(region.endpoint(), Err(ConnectError::Full { .. })));
    drop(all);
}

#[test]
fn different_seeds_draw_different_numbers() {
    let dir = TestDir::new("seeds");
    let region = Region::open(&Options { seed: Some(7), ..dir.options() }).unwrap();
    let (a, b) = (region.endpoint().unwrap(), region.endpoint().unwrap());
    let of_a: Vec<u64> = (0..4).map(|_| a.random()).collect();
    let of_b: Vec<u64> = (0..4).map(|_| b.random()).collect();
    assert_ne!(of_a, of_b, "endpoints of one seed");
    assert!(of_a.windows(2).all(|pair| pair[0] != pair[1]));
}
