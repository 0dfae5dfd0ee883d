//! Chains: their order, their fences, and the end of each of their verbs.

use super::atomics::eventually;
use super::{Dice, Stage, load, load_all, receive, store};
use crate::addr::{Addr, Mailbox, Slot};
use crate::endpoint::Endpoint;
use crate::error::Fault;
use crate::verb::{CHAIN_MAX, Link, Verb};

fn read(addr: Addr) -> Link<'static> {
    Verb::Read { addr, words: 1 }.into()
}

fn write(addr: Addr, data: &[u64]) -> Link<'_> {
    Verb::Write { addr, data }.into()
}

fn add(addr: Addr, add: u64) -> Link<'static> {
    Verb::Faa64 { addr, add }.into()
}

/// Posts a chain of which every verb takes effect.
async fn chain<E: Endpoint>(e: &E, links: &[Link<'_>]) {
    e.chain(links).await.expect("every verb takes effect");
    for index in 0..links.len() {
        assert_eq!(e.link(index).status, Ok(()), "link {index}");
    }
}

fn old<E: Endpoint>(e: &E, index: usize) -> u64 {
    e.link(index).old as u64
}

pub async fn a_chain_of_one<E: Endpoint>(e: E, addr: Addr) {
    chain(&e, &[add(addr, 3)]).await;
    chain(&e, &[read(addr)]).await;
    assert_eq!(old(&e, 0), 3);
}

pub async fn a_chain_of_the_most<E: Endpoint>(e: E, addr: Addr) {
    chain(&e, &[add(addr, 1); CHAIN_MAX]).await;
    for index in 0..CHAIN_MAX {
        assert_eq!(old(&e, index), index as u64);
    }
    assert_eq!(load(&e, addr).await, CHAIN_MAX as u64);
}

pub fn a_chain_of_nothing_is_refused<S: Stage>(stage: &mut S) {
    let e = stage.endpoint();
    stage.run(async { assert_eq!(e.chain(&[]).await, Err(Fault::Unsupported)) });
}

pub async fn a_chain_that_is_too_long_is_refused<E: Endpoint>(e: E, addr: Addr) {
    let links = [add(addr, 1); CHAIN_MAX + 1];
    assert_eq!(e.chain(&links).await, Err(Fault::Unsupported));
    assert_eq!(load(&e, addr).await, 0, "none of its verbs takes effect");
}

pub async fn a_read_sees_the_write_before_it<E: Endpoint>(e: E, addr: Addr) {
    for value in 1..20 {
        chain(&e, &[write(addr, &[value]), read(addr)]).await;
        assert_eq!(old(&e, 1), value);
    }
}

pub async fn a_read_sees_the_atomic_before_it<E: Endpoint>(e: E, addr: Addr) {
    for turn in 0..20 {
        let swap = Verb::Cas64 { addr, compare: turn * 2 + 1, swap: turn * 2 + 2 };
        chain(&e, &[add(addr, 1), swap.into(), read(addr)]).await;
        assert_eq!((old(&e, 0), old(&e, 2)), (turn * 2, turn * 2 + 2));
    }
}

pub async fn an_atomic_sees_the_write_before_it<E: Endpoint>(e: E, addr: Addr) {
    chain(&e, &[write(addr, &[40]), add(addr, 2), write(addr, &[50]), add(addr, 5)]).await;
    assert_eq!((old(&e, 1), old(&e, 3)), (40, 50));
    assert_eq!(load(&e, addr).await, 55);
}

pub async fn a_write_covers_the_atomic_before_it<E: Endpoint>(e: E, addr: Addr) {
    for value in 1..20 {
        chain(&e, &[add(addr, 1000), write(addr, &[value])]).await;
        assert_eq!(load(&e, addr).await, value);
    }
}

pub async fn a_fenced_write_comes_after_the_read_before_it<E: Endpoint>(e: E, addr: Addr) {
    for turn in 0..20 {
        let data = [turn + 1];
        let fenced = Link::fenced(Verb::Write { addr, data: &data });
        chain(&e, &[read(addr), fenced]).await;
        assert_eq!(old(&e, 0), turn, "the word before the write");
    }
}

pub async fn a_fenced_atomic_comes_after_the_read_before_it<E: Endpoint>(e: E, addr: Addr) {
    for turn in 0..20 {
        chain(&e, &[read(addr), Link::fenced(Verb::Faa64 { addr, add: 1 })]).await;
        assert_eq!((old(&e, 0), old(&e, 1)), (turn, turn));
    }
}

pub async fn a_fence_holds_for_every_earlier_read<E: Endpoint>(e: E, addr: Addr) {
    let (first, second, third) = (addr, addr.plus(8), addr.plus(16));
    let fenced = Link::fenced(Verb::Write { addr: first, data: &[7, 7, 7] });
    chain(&e, &[read(first), read(second), add(third, 1), fenced]).await;
    assert_eq!((old(&e, 0), old(&e, 1)), (0, 0));
    assert_eq!(load_all(&e, addr, 3).await, [7; 3]);
}

pub async fn an_unfenced_write_may_come_before_the_read<E: Endpoint>(e: E, addr: Addr) {
    for turn in 0..20 {
        chain(&e, &[read(addr), write(addr, &[turn + 1])]).await;
        let seen = old(&e, 0);
        assert!(seen == turn || seen == turn + 1, "the word before the write or after: {seen}");
        assert_eq!(load(&e, addr).await, turn + 1);
    }
}

pub async fn each_verb_has_its_own_old_word<E: Endpoint>(e: E, addr: Addr) {
    store(&e, addr, &[10, 20, 30]).await;
    let failing = Verb::Cas64 { addr: addr.plus(8), compare: 0, swap: 1 };
    chain(&e, &[read(addr), failing.into(), add(addr.plus(16), 1)]).await;
    assert_eq!([old(&e, 0), old(&e, 1), old(&e, 2)], [10, 20, 30]);
    assert_eq!(load_all(&e, addr, 3).await, [10, 20, 31]);
}

pub fn each_read_has_its_own_words<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(4096 * 2));
    let data: Vec<u64> = (0..1024).map(|word| word * 3).collect();
    stage.run(async {
        store(&e, addr, &data[..512]).await;
        store(&e, addr.plus(4096), &data[512..]).await;
        let long = Verb::Read { addr, words: 512 };
        let short = Verb::Read { addr: addr.plus(4096), words: 5 };
        chain(&e, &[long.into(), add(addr, 0), short.into()]).await;
        let mut into = [9; 512];
        assert_eq!(e.copy_read(2, &mut into), 5);
        assert_eq!((&into[..5], into[5]), (&data[512..517], 9));
        assert_eq!(e.copy_read(0, &mut into), 512);
        assert_eq!(into, data[..512]);
        assert_eq!(e.link(0).old, 3 << 64, "the first two words");
    });
}

pub fn each_verb_has_its_own_end<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    let nowhere = stage.nowhere();
    stage.run(async {
        let links =
            [add(addr, 1), add(nowhere, 1), add(addr.plus(4), 1), read(addr), read(nowhere)];
        let _ = e.chain(&links).await;
        let ends: Vec<_> = (0..5).map(|index| e.link(index).status).collect();
        let (bounds, misaligned) = (Err(Fault::OutOfBounds), Err(Fault::Misaligned));
        assert_eq!(ends, [Ok(()), bounds, misaligned, Ok(()), bounds]);
    });
}

pub fn a_fault_does_not_stop_the_verbs_after_it<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    let nowhere = stage.nowhere();
    stage.run(async {
        let links = [add(addr, 1), write(nowhere, &[1]), add(addr, 1), write(addr.plus(8), &[5])];
        assert_eq!(e.chain(&links).await, Err(Fault::OutOfBounds));
        assert_eq!((old(&e, 0), old(&e, 2)), (0, 1));
        assert_eq!(load_all(&e, addr, 2).await, [2, 5]);
    });
}

pub fn a_chain_ends_with_its_first_fault<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    let nowhere = stage.nowhere();
    stage.run(async {
        let links = [read(addr), add(addr.plus(1), 1), read(nowhere)];
        assert_eq!(e.chain(&links).await, Err(Fault::Misaligned));
        let links = [read(addr), read(nowhere), add(addr.plus(1), 1)];
        assert_eq!(e.chain(&links).await, Err(Fault::OutOfBounds));
    });
}

pub fn a_fault_at_either_end_is_told<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    let nowhere = stage.nowhere();
    stage.run(async {
        assert_eq!(e.chain(&[read(nowhere), add(addr, 1)]).await, Err(Fault::OutOfBounds));
        assert_eq!((e.link(1).status, old(&e, 1)), (Ok(()), 0));
        assert_eq!(e.chain(&[add(addr, 1), read(nowhere)]).await, Err(Fault::OutOfBounds));
        assert_eq!((e.link(0).status, old(&e, 0)), (Ok(()), 1));
    });
}

pub async fn a_message_goes_with_a_chain<E: Endpoint>(e: E, peer: E, addr: Addr) {
    let to = Mailbox { endpoint: peer.id(), slot: Slot(0) };
    let send = Verb::Send { to, message: [1, 2, 3, 4] };
    chain(&e, &[write(addr, &[8]), send.into(), add(addr, 1)]).await;
    let envelope = receive(&peer, 0).await;
    assert_eq!((envelope.message, envelope.from), ([1, 2, 3, 4], e.id()));
    assert_eq!(load(&peer, addr).await, 9);
    let nobody = Verb::Send { to: Mailbox::NOBODY, message: [0; 4] };
    assert_eq!(e.chain(&[nobody.into(), add(addr, 1)]).await, Err(Fault::PeerGone));
    assert_eq!(load(&peer, addr).await, 10);
}

pub async fn an_abandoned_chain_takes_effect<E: Endpoint>(e: E, addr: Addr) {
    drop(e.chain(&[add(addr.plus(8), 1), add(addr, 1)]));
    assert_eq!(eventually(&e, addr).await, 1);
    assert_eq!(load(&e, addr.plus(8)).await, 1, "the verb before it took effect before it");
}

/// What a chain that runs in order does to eight words, and the old words of its verbs.
fn interpret(words: &mut [u64; 8], links: &[Link<'_>]) -> Vec<u64> {
    let at = |verb: &Verb<'_>| {
        let addr = verb.addr().expect("no messages here");
        (addr.offset() % 64 / 8) as usize
    };
    let step = |link: &Link<'_>| {
        let word = &mut words[at(&link.verb)];
        let old = *word;
        match link.verb {
            Verb::Write { data, .. } => *word = data[0],
            Verb::Faa64 { add, .. } => *word = old.wrapping_add(add),
            Verb::Cas64 { compare, swap, .. } if old == compare => *word = swap,
            _ => {}
        }
        old
    };
    links.iter().map(step).collect()
}

/// A random verb on one of the eight words at `addr`; small numbers, so that compares often hold.
fn random_verb(dice: &mut Dice, addr: Addr, kinds: usize) -> Verb<'static> {
    const DATA: [[u64; 1]; 4] = [[0], [1], [2], [u64::MAX]];
    let addr = addr.plus(8 * dice.of(8) as u64);
    match dice.of(kinds) {
        0 => Verb::Write { addr, data: &DATA[dice.of(4)] },
        1 => Verb::Faa64 { addr, add: dice.of(3) as u64 },
        2 => Verb::Cas64 { addr, compare: dice.of(4) as u64, swap: dice.of(4) as u64 },
        _ => Verb::Read { addr, words: 1 },
    }
}

/// Random chains of `kinds` kinds of verbs against their interpretation in order.
async fn compare_with_interpretation<E: Endpoint>(e: &E, addr: Addr, kinds: usize, fence: bool) {
    let (mut dice, mut words) = (Dice(6), [0; 8]);
    for _ in 0..200 {
        let length = 1 + dice.of(CHAIN_MAX);
        let links: Vec<_> = (0..length)
            .map(|_| Link { verb: random_verb(&mut dice, addr, kinds), fence })
            .collect();
        chain(e, &links).await;
        for (index, expected) in interpret(&mut words, &links).into_iter().enumerate() {
            if !matches!(links[index].verb, Verb::Write { .. }) {
                assert_eq!(old(e, index), expected, "link {index} of {links:?}");
            }
        }
        assert_eq!(load_all(e, addr, 8).await, words);
    }
}

pub fn random_fenced_chains_match_their_definition<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(compare_with_interpretation(&e, addr, 4, true));
}

pub fn random_chains_of_writes_and_atomics_match_their_definition<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(compare_with_interpretation(&e, addr, 3, false));
}
