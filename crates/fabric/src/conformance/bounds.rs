//! Refusals: what lies outside, off its boundary, or is not allowed.

use super::{Stage, load, load_all, store};
use crate::addr::Addr;
use crate::endpoint::Endpoint;
use crate::error::Fault;
use crate::verb::Verb;

/// Every narrow verb at an address, of one word.
fn verbs(addr: Addr) -> [Verb<'static>; 4] {
    [
        Verb::Read { addr, words: 1 },
        Verb::Write { addr, data: &[u64::MAX] },
        Verb::Cas64 { addr, compare: 0, swap: u64::MAX },
        Verb::Faa64 { addr, add: 1 },
    ]
}

async fn all_end_with<E: Endpoint>(e: &E, addr: Addr, fault: Fault) {
    for verb in verbs(addr) {
        assert_eq!(e.verb(verb).await, Err(fault), "{verb:?}");
    }
}

/// The address `bytes` before `addr`.
fn before(addr: Addr, bytes: u64) -> Addr {
    Addr::new(addr.region(), addr.offset() - bytes)
}

pub fn the_last_word_can_be_used<S: Stage>(stage: &mut S) {
    let (e, last) = (stage.endpoint(), before(stage.end(), 8));
    stage.run(async {
        let word = load(&e, last).await;
        e.faa64(last, 0).await.expect("it is inside");
        e.cas64(last, word, word).await.expect("it is inside");
        store(&e, last, &[word]).await;
        assert_eq!(load(&e, last).await, word);
    });
}

pub fn one_past_the_end_is_refused<S: Stage>(stage: &mut S) {
    let (e, end) = (stage.endpoint(), stage.end());
    stage.run(all_end_with(&e, end, Fault::OutOfBounds));
}

pub fn what_straddles_the_end_is_refused<S: Stage>(stage: &mut S) {
    let (e, end) = (stage.endpoint(), stage.end());
    let addr = before(end, 16);
    stage.run(async {
        load_all(&e, addr, 2).await;
        for words in [3, 4, 512] {
            let read = Verb::Read { addr, words };
            assert_eq!(e.verb(read).await, Err(Fault::OutOfBounds), "{words} words");
        }
    });
}

pub fn a_refused_write_changes_nothing<S: Stage>(stage: &mut S) {
    let (e, end) = (stage.endpoint(), stage.end());
    let (addr, scratch) = (before(end, 16), stage.scratch(64));
    stage.run(async {
        let words = load_all(&e, addr, 2).await;
        let data = [!words[0], !words[1], 1];
        assert_eq!(e.verb(Verb::Write { addr, data: &data }).await, Err(Fault::OutOfBounds));
        assert_eq!(load_all(&e, addr, 2).await, words);
        let misaligned = Verb::Write { addr: scratch.plus(4), data: &[1, 1] };
        assert_eq!(e.verb(misaligned).await, Err(Fault::Misaligned));
        assert_eq!(load_all(&e, scratch, 3).await, [0; 3]);
    });
}

pub fn the_highest_offset_is_refused<S: Stage>(stage: &mut S) {
    let (e, end) = (stage.endpoint(), stage.end());
    let addr = Addr::new(end.region(), Addr::OFFSET_MAX & !7);
    stage.run(async {
        all_end_with(&e, addr, Fault::OutOfBounds).await;
        let read = Verb::Read { addr, words: 512 };
        assert_eq!(e.verb(read).await, Err(Fault::OutOfBounds), "its end has more than 48 bits");
    });
}

pub fn an_unknown_region_is_refused<S: Stage>(stage: &mut S) {
    let (e, nowhere) = (stage.endpoint(), stage.nowhere());
    stage.run(async {
        all_end_with(&e, nowhere, Fault::OutOfBounds).await;
        all_end_with(&e, nowhere.plus(4096), Fault::OutOfBounds).await;
    });
}

pub async fn a_misaligned_word_is_refused<E: Endpoint>(e: E, addr: Addr) {
    for byte in 1..8 {
        all_end_with(&e, addr.plus(byte), Fault::Misaligned).await;
    }
    assert_eq!(load_all(&e, addr, 2).await, [0, 0], "a refused verb changes nothing");
}

pub fn a_verb_without_right_is_refused<S: Stage>(stage: &mut S) {
    let (e, forbidden) = (stage.endpoint(), stage.forbidden());
    if let Some(addr) = forbidden {
        stage.run(all_end_with(&e, addr, Fault::NoRight));
    }
}

pub fn a_refusal_leaves_the_endpoint_usable<S: Stage>(stage: &mut S) {
    let (e, addr, nowhere) = (stage.endpoint(), stage.scratch(64), stage.nowhere());
    stage.run(async {
        for turn in 0..20 {
            all_end_with(&e, nowhere, Fault::OutOfBounds).await;
            e.faa64(addr, 1).await.expect("it takes effect");
            assert_eq!(e.old() as u64, turn);
        }
    });
}
