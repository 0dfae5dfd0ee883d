//! Slot records: stored by their owner, in order, before its later verbs; read by everybody.

use super::{Stage, load, load_all, receive, store};
use crate::addr::{Addr, Mailbox, Slot};
use crate::endpoint::{Endpoint, RECORD_WORDS};

/// The verb before which everything that was published has taken effect.
async fn settle<E: Endpoint>(e: &E, addr: Addr) {
    e.faa64(addr, 1).await.expect("it takes effect");
}

pub fn a_record_lies_in_memory_of_its_own<S: Stage>(stage: &mut S) {
    let (e, peer, addr) = (stage.endpoint(), stage.endpoint(), stage.scratch(4096));
    let mut lines = Vec::new();
    for id in [e.id(), peer.id()] {
        for slot in 0..e.slots() {
            let record = e.record(id.index, Slot(slot));
            assert!(record.offset().is_multiple_of(64), "a record is a cache line");
            assert_eq!(record, peer.record(id.index, Slot(slot)), "it lies there for everybody");
            assert!(!lines.contains(&record));
            lines.push(record);
        }
    }
    let scratch = addr.offset()..addr.offset() + 4096;
    for line in lines {
        assert!(line.region() != addr.region() || !scratch.contains(&line.offset()));
    }
}

pub async fn what_is_published_is_read_by_others<E: Endpoint>(e: E, peer: E, addr: Addr) {
    for value in [1, u64::MAX, 0, 0x0123_4567_89ab_cdef] {
        e.publish(Slot(0), 3, value);
        settle(&e, addr).await;
        let record = peer.record(e.id().index, Slot(0));
        assert_eq!(load(&peer, record.plus(24)).await, value);
    }
}

pub fn what_is_published_is_read_by_its_owner<S: Stage>(stage: &mut S) {
    let e = stage.endpoint();
    stage.run(async {
        for value in 1..10 {
            e.publish(Slot(0), 0, value);
            assert_eq!(load(&e, e.record(e.id().index, Slot(0))).await, value, "at once");
        }
    });
}

pub async fn what_is_published_comes_before_later_verbs<E: Endpoint>(e: E, peer: E, flag: Addr) {
    let record = peer.record(e.id().index, Slot(0));
    for value in 1..50 {
        e.publish(Slot(0), 0, value);
        e.publish(Slot(0), 7, value);
        store(&e, flag, &[value]).await;
        let seen = load(&peer, flag).await;
        assert_eq!(load(&peer, record).await, seen);
        assert_eq!(load(&peer, record.plus(56)).await, seen);
    }
}

pub async fn what_is_published_comes_before_a_later_message<E: Endpoint>(e: E, peer: E) {
    let to = Mailbox { endpoint: peer.id(), slot: Slot(0) };
    let record = peer.record(e.id().index, Slot(0));
    for value in 1..50 {
        e.publish(Slot(0), 1, value);
        e.send(to, [value; 4]).await.expect("it reaches the mailbox");
        let told = receive(&peer, 0).await.message[0];
        assert_eq!(load(&peer, record.plus(8)).await, told);
    }
}

pub async fn every_word_of_a_record_is_its_own<E: Endpoint>(e: E, addr: Addr) {
    for word in 0..RECORD_WORDS {
        e.publish(Slot(0), word, 100 + word as u64);
    }
    settle(&e, addr).await;
    let record = e.record(e.id().index, Slot(0));
    let words = load_all(&e, record, RECORD_WORDS).await;
    assert_eq!(words, [100, 101, 102, 103, 104, 105, 106, 107]);
}

pub async fn records_of_slots_do_not_mix<E: Endpoint>(e: E, addr: Addr) {
    for slot in 0..e.slots() {
        for word in 0..RECORD_WORDS {
            e.publish(Slot(slot), word, u64::from(slot) << 8 | word as u64);
        }
    }
    settle(&e, addr).await;
    for slot in 0..e.slots() {
        let words = load_all(&e, e.record(e.id().index, Slot(slot)), RECORD_WORDS).await;
        let expected: Vec<_> = (0..8).map(|word| u64::from(slot) << 8 | word).collect();
        assert_eq!(words, expected, "slot {slot}");
    }
}

pub async fn records_lie_one_behind_the_other<E: Endpoint>(e: E, addr: Addr) {
    let length = RECORD_WORDS as u64 * 8;
    let places = 1..=e.endpoints();
    let slots = places.flat_map(|index| (0..e.slots()).map(move |slot| (index, Slot(slot))));
    let all: Vec<_> = slots.map(|(index, slot)| e.record(index, slot)).collect();
    assert!(all.windows(2).all(|two| two[1] == two[0].plus(length)));
    for slot in 0..e.slots() {
        (0..RECORD_WORDS).for_each(|word| e.publish(Slot(slot), word, u64::from(slot) + 1));
    }
    settle(&e, addr).await;
    let words = usize::from(e.slots()) * RECORD_WORDS;
    let read = load_all(&e, e.record(e.id().index, Slot(0)), words).await;
    assert!(read.iter().copied().eq((0..words).map(|word| (word / RECORD_WORDS) as u64 + 1)));
}

pub fn records_of_endpoints_do_not_mix<S: Stage>(stage: &mut S) {
    let endpoints: Vec<_> = (0..4).map(|_| stage.endpoint()).collect();
    let addr = stage.scratch(64);
    stage.run(async {
        for (number, e) in (1..).zip(&endpoints) {
            e.publish(Slot(0), 2, number);
            settle(e, addr).await;
        }
        for (number, e) in (1..).zip(&endpoints) {
            let record = e.record(e.id().index, Slot(0)).plus(16);
            for reader in &endpoints {
                assert_eq!(load(reader, record).await, number);
            }
        }
    });
}

pub async fn the_last_value_published_stays<E: Endpoint>(e: E, peer: E, addr: Addr) {
    for value in 0..1000 {
        e.publish(Slot(0), 0, value);
    }
    settle(&e, addr).await;
    assert_eq!(load(&peer, peer.record(e.id().index, Slot(0))).await, 999);
}

pub async fn what_was_shown_is_there_without_a_verb<E: Endpoint>(e: E, peer: E, _: Addr) {
    for number in 1..50 {
        e.publish(Slot(0), 3, number);
        e.show();
        assert_eq!(load(&peer, e.record(e.id().index, Slot(0)).plus(24)).await, number);
    }
}

pub async fn who_has_shown_receives_what_was_sent_before<E: Endpoint>(e: E, peer: E) {
    let to = Mailbox { endpoint: e.id(), slot: Slot(0) };
    for number in 1..50 {
        e.publish(Slot(0), 0, number);
        peer.send(to, [number; 4]).await.expect("it reaches the mailbox");
        e.show();
        let envelope = e.receive(Slot(0)).expect("it was sent before");
        assert_eq!(envelope.message, [number; 4]);
    }
}
