//! Reads and writes.

use super::{Dice, Stage, load, load_all, store};
use crate::addr::Addr;
use crate::endpoint::Endpoint;
use crate::error::Fault;
use crate::verb::{Verb, WORDS_MAX};

pub fn memory_begins_as_zeroes<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(4096));
    stage.run(async { assert_eq!(load_all(&e, addr, 512).await, [0; 512]) });
    assert!(addr.offset().is_multiple_of(64), "scratch begins on a cache line");
}

pub async fn what_is_written_is_read<E: Endpoint>(e: E, addr: Addr) {
    for value in [1, u64::MAX, 0, 0x0123_4567_89ab_cdef] {
        store(&e, addr, &[value]).await;
        assert_eq!(load(&e, addr).await, value);
    }
}

pub fn every_length_from_one_to_the_largest<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(4096));
    let mut dice = Dice(1);
    stage.run(async {
        for words in [1, 2, 3, 7, 8, 9, 63, 64, 65, 511, 512] {
            let data: Vec<_> = (0..words).map(|_| dice.next()).collect();
            store(&e, addr, &data).await;
            assert_eq!(load_all(&e, addr, words).await, data, "{words} words");
        }
    });
}

pub fn every_bit_survives<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(512));
    let data: Vec<_> = (0..64).map(|bit| 1 << bit).collect();
    stage.run(async {
        store(&e, addr, &data).await;
        assert_eq!(load_all(&e, addr, 64).await, data);
    });
}

pub async fn a_read_changes_nothing<E: Endpoint>(e: E, addr: Addr) {
    store(&e, addr, &[5, 6, 7]).await;
    for _ in 0..3 {
        assert_eq!(load_all(&e, addr, 3).await, [5, 6, 7]);
    }
}

pub async fn a_write_touches_its_words_alone<E: Endpoint>(e: E, addr: Addr) {
    store(&e, addr, &[9; 8]).await;
    store(&e, addr.plus(16), &[1, 2, 3]).await;
    assert_eq!(load_all(&e, addr, 8).await, [9, 9, 1, 2, 3, 9, 9, 9]);
}

pub fn a_read_of_nothing_is_refused<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    let read = Verb::Read { addr, words: 0 };
    stage.run(async { assert_eq!(e.verb(read).await, Err(Fault::OutOfBounds)) });
}

pub fn a_read_that_is_too_long_is_refused<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(8192));
    stage.run(async {
        for words in [513, 1024, u16::MAX] {
            let read = Verb::Read { addr, words };
            assert_eq!(e.verb(read).await, Err(Fault::OutOfBounds), "{words} words");
        }
    });
}

pub fn a_write_of_nothing_is_refused<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    let write = Verb::Write { addr, data: &[] };
    stage.run(async { assert_eq!(e.verb(write).await, Err(Fault::OutOfBounds)) });
}

pub fn a_write_that_is_too_long_is_refused<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(8192));
    let write = Verb::Write { addr, data: &[1; WORDS_MAX + 1] };
    stage.run(async {
        assert_eq!(e.verb(write).await, Err(Fault::OutOfBounds));
        assert_eq!(load_all(&e, addr, 512).await, [0; 512], "a refused write changes nothing");
    });
}

pub async fn the_first_two_words_of_a_read_stay_with_the_endpoint<E: Endpoint>(e: E, addr: Addr) {
    store(&e, addr, &[0xa, 0xb, 0xc]).await;
    for words in [2, 3] {
        e.verb(Verb::Read { addr, words }).await.expect("it can be read");
        assert_eq!(e.old(), 0xb << 64 | 0xa, "the low half is the first word");
    }
}

pub async fn a_read_is_copied_as_far_as_there_is_room<E: Endpoint>(e: E, addr: Addr) {
    store(&e, addr, &[1, 2, 3, 4]).await;
    e.verb(Verb::Read { addr, words: 3 }).await.expect("it can be read");
    let (mut short, mut long) = ([9; 2], [9; 5]);
    assert_eq!((e.copy_read(0, &mut short), short), (2, [1, 2]));
    assert_eq!((e.copy_read(0, &mut long), long), (3, [1, 2, 3, 9, 9]));
    assert_eq!(e.copy_read(0, &mut []), 0);
}

pub async fn a_write_is_copied_when_it_is_posted<E: Endpoint>(e: E, addr: Addr) {
    let mut data = [1, 2];
    let write = e.verb(Verb::Write { addr, data: &data });
    data = [8, 9];
    write.await.expect("it can be written");
    assert_eq!(load_all(&e, addr, 2).await, [1, 2], "not {data:?}, which came later");
}

pub fn everybody_sees_the_same_memory<S: Stage>(stage: &mut S) {
    let endpoints: Vec<_> = (0..3).map(|_| stage.endpoint()).collect();
    let addr = stage.scratch(64);
    stage.run(async {
        for (value, writer) in (1..).zip(&endpoints) {
            store(writer, addr, &[value]).await;
            for reader in &endpoints {
                assert_eq!(load(reader, addr).await, value);
            }
        }
    });
}
