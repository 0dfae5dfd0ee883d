//! Time and chance.

use super::{SHORT, Stage};
use crate::addr::Addr;
use crate::endpoint::Endpoint;

pub async fn time_does_not_go_back<E: Endpoint>(e: E, addr: Addr) {
    let mut last = e.now();
    for turn in 0..200 {
        if turn % 20 == 0 {
            e.sleep(1000).await;
        }
        e.faa64(addr, 1).await.expect("it takes effect");
        let now = e.now();
        assert!(now >= last);
        last = now;
    }
}

pub fn time_passes_in_a_wait<S: Stage>(stage: &mut S) {
    let e = stage.endpoint();
    stage.run(async {
        let before = e.now();
        e.sleep(SHORT).await;
        assert!(e.now() > before);
    });
}

pub async fn a_verb_completes_after_it_was_posted<E: Endpoint>(e: E, addr: Addr) {
    for _ in 0..20 {
        let posted = e.now();
        e.faa64(addr, 1).await.expect("it takes effect");
        assert!(e.now() >= posted);
    }
}

pub fn chance_is_not_shared<S: Stage>(stage: &mut S) {
    let (a, b) = (stage.endpoint(), stage.endpoint());
    let draw = |e: &S::Endpoint| -> Vec<_> { (0..8).map(|_| e.random()).collect() };
    let (ours, theirs) = (draw(&a), draw(&b));
    assert!(ours.iter().all(|number| !theirs.contains(number)), "two streams: {ours:x?}");
}

pub fn chance_does_not_repeat<S: Stage>(stage: &mut S) {
    let e = stage.endpoint();
    let mut numbers: Vec<_> = (0..1000).map(|_| e.random()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 1000, "a repeat among 1000 of 2^64 is no chance");
}

pub fn every_bit_of_chance_is_even<S: Stage>(stage: &mut S) {
    let e = stage.endpoint();
    let mut ones = [0; 64];
    for _ in 0..4000 {
        let number = e.random();
        for (bit, ones) in ones.iter_mut().enumerate() {
            *ones += number >> bit & 1;
        }
    }
    // Nine standard deviations of 32 around 2000.
    assert!(ones.iter().all(|ones| (1712..=2288).contains(ones)), "{ones:?}");
}

pub async fn a_checkpoint_changes_nothing<E: Endpoint>(e: E, addr: Addr) {
    for turn in 0..10 {
        e.checkpoint(&[turn]);
        e.checkpoint(&[]);
        e.faa64(addr, 1).await.expect("it takes effect");
        assert_eq!(e.old() as u64, turn);
    }
}
