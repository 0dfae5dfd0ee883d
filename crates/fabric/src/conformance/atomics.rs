//! Compare-and-swap and fetch-and-add on 64-bit words.

use super::{Dice, LONG, SHORT, Stage, load, load_all, store};
use crate::addr::Addr;
use crate::endpoint::{Endpoint, Posted, Wait, Woken};
use crate::verb::Verb;

pub async fn a_compare_that_holds_swaps<E: Endpoint>(e: E, addr: Addr) {
    e.cas64(addr, 0, 7).await.expect("it takes effect");
    assert_eq!((e.old() as u64, load(&e, addr).await), (0, 7));
    e.cas64(addr, 7, u64::MAX).await.expect("it takes effect");
    assert_eq!(e.old() as u64, 7);
    assert_eq!(load(&e, addr).await, u64::MAX);
}

pub async fn a_compare_that_fails_changes_nothing<E: Endpoint>(e: E, addr: Addr) {
    store(&e, addr, &[0xdead_beef_0000_0001]).await;
    e.cas64(addr, 1, 2).await.expect("a compare that fails is no fault");
    assert_eq!(e.old() as u64, 0xdead_beef_0000_0001, "the old word comes back whole");
    assert_eq!(load(&e, addr).await, 0xdead_beef_0000_0001);
}

pub async fn a_compare_looks_at_every_bit<E: Endpoint>(e: E, addr: Addr) {
    let word = 0x5555_aaaa_0f0f_3c3c;
    store(&e, addr, &[word]).await;
    for bit in 0..64 {
        e.cas64(addr, word ^ 1 << bit, 0).await.expect("it takes effect");
        assert_eq!(load(&e, addr).await, word, "bit {bit} differs");
    }
}

pub async fn a_swap_for_the_same_value_holds<E: Endpoint>(e: E, addr: Addr) {
    store(&e, addr, &[3]).await;
    e.cas64(addr, 3, 3).await.expect("it takes effect");
    assert_eq!((e.old() as u64, load(&e, addr).await), (3, 3));
}

pub async fn an_addition_returns_the_word_before_it<E: Endpoint>(e: E, addr: Addr) {
    for turn in 0..10 {
        e.faa64(addr, 5).await.expect("it takes effect");
        assert_eq!(e.old() as u64, turn * 5);
    }
    assert_eq!(load(&e, addr).await, 50);
}

pub async fn an_addition_wraps_around<E: Endpoint>(e: E, addr: Addr) {
    store(&e, addr, &[u64::MAX - 1, 0]).await;
    for expected in [u64::MAX - 1, u64::MAX, 0, 1] {
        e.faa64(addr, 1).await.expect("it takes effect");
        assert_eq!(e.old() as u64, expected);
    }
    assert_eq!(load(&e, addr.plus(8)).await, 0, "no carry into the next word");
}

pub async fn an_addition_of_zero_changes_nothing<E: Endpoint>(e: E, addr: Addr) {
    store(&e, addr, &[77]).await;
    e.faa64(addr, 0).await.expect("it takes effect");
    assert_eq!((e.old() as u64, load(&e, addr).await), (77, 77));
}

pub async fn a_subtraction_is_an_addition<E: Endpoint>(e: E, addr: Addr) {
    store(&e, addr, &[10]).await;
    e.faa64(addr, 3_u64.wrapping_neg()).await.expect("it takes effect");
    assert_eq!((e.old() as u64, load(&e, addr).await), (10, 7));
}

pub async fn atomics_touch_their_word_alone<E: Endpoint>(e: E, addr: Addr) {
    store(&e, addr, &[u64::MAX; 5]).await;
    e.faa64(addr.plus(16), 1).await.expect("it takes effect");
    e.cas64(addr.plus(8), u64::MAX, 1).await.expect("it takes effect");
    assert_eq!(load_all(&e, addr, 5).await, [u64::MAX, 1, 0, u64::MAX, u64::MAX]);
}

pub async fn random_atomics_match_their_definition<E: Endpoint>(e: E, addr: Addr) {
    let (mut dice, mut word) = (Dice(2), 0_u64);
    for _ in 0..2000 {
        let operand = dice.word() as u64;
        let new = match dice.of(3) {
            0 => {
                e.faa64(addr, operand).await.expect("it takes effect");
                word.wrapping_add(operand)
            }
            1 => {
                e.cas64(addr, word, operand).await.expect("it takes effect");
                operand
            }
            _ => {
                let compare = dice.word() as u64;
                e.cas64(addr, compare, operand).await.expect("it takes effect");
                if word == compare { operand } else { word }
            }
        };
        assert_eq!(e.old() as u64, word);
        word = new;
    }
    assert_eq!(load(&e, addr).await, word);
}

pub async fn verbs_in_flight_together_all_take_effect<E: Endpoint>(e: E, addr: Addr) {
    let first = e.faa64(addr, 1);
    let second = e.faa64(addr.plus(8), 2);
    let third = e.verb(Verb::Write { addr: addr.plus(16), data: &[3] });
    third.await.expect("it takes effect");
    first.await.expect("it takes effect, though asked for later");
    second.await.expect("it takes effect");
    assert_eq!(load_all(&e, addr, 3).await, [1, 2, 3]);
}

pub fn a_verb_completes_within_its_post_where_all_do<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    let (read, add) = (Verb::Read { addr, words: 1 }, Verb::Faa64 { addr, add: 7 });
    for (verb, old) in [(read, 0), (add, 0), (read, 7), (add, 7)] {
        match e.post(verb) {
            Posted::Done(done) => assert_eq!((done, e.old()), (Ok(()), old)),
            Posted::Pending(ticket) => {
                assert!(!S::Endpoint::COMPLETES_IN_POST, "{verb:?} is still on its way");
                e.abandon(ticket);
            }
        }
    }
}

pub async fn an_abandoned_atomic_takes_effect<E: Endpoint>(e: E, addr: Addr) {
    drop(e.faa64(addr, 9));
    assert_eq!(eventually(&e, addr).await, 9);
}

pub async fn an_unsignalled_verb_comes_before_later_ones<E: Endpoint>(e: E, addr: Addr) {
    if !E::KEEPS_ORDER {
        return;
    }
    for turn in 0..20 {
        e.post_unsignalled(Verb::Faa64 { addr, add: 1 }, turn % 2 == 1);
        e.post_unsignalled(Verb::Write { addr: addr.plus(8), data: &[turn] }, true);
        e.faa64(addr, 1).await.expect("it takes effect");
        assert_eq!(e.old() as u64, turn * 2 + 1);
        assert_eq!(load(&e, addr.plus(8)).await, turn);
    }
    let write =
        |word: u64| Verb::Write { addr: addr.plus(8), data: if word == 0 { &[1] } else { &[2] } };
    for turn in 0..20 {
        let add = Verb::Faa64 { addr, add: 1 };
        e.post_all_unsignalled([add, write(turn % 2), write(1 - turn % 2), add].into_iter());
        assert_eq!(load(&e, addr.plus(8)).await, 2 - turn % 2);
        assert_eq!(load(&e, addr).await, 42 + 2 * turn);
    }
}

pub async fn an_unsignalled_verb_takes_effect_by_itself<E: Endpoint>(e: E, addr: Addr) {
    for turn in 0..40 {
        e.post_unsignalled(Verb::Faa64 { addr, add: 1 }, true);
        assert_eq!(eventually_at(&e, addr, turn + 1).await, turn + 1);
    }
    e.post_unsignalled(Verb::Cas64 { addr, compare: 40, swap: 41 }, true);
    let wait = Wait { word: Some((addr, 40)), ..Wait::default() };
    assert_eq!(e.wait(wait).await, Woken::Changed, "though nothing else is posted");
}

pub async fn an_abandoned_write_takes_effect<E: Endpoint>(e: E, addr: Addr) {
    drop(e.verb(Verb::Write { addr, data: &[1, 2] }));
    assert_eq!(eventually(&e, addr).await, 1);
    e.faa64(addr.plus(8), 1).await.expect("the endpoint goes on");
}

/// The word once it is that, or after a while.
async fn eventually_at<E: Endpoint>(e: &E, addr: Addr, value: u64) -> u64 {
    for _ in 0..1000 {
        if load(e, addr).await == value {
            break;
        }
    }
    load(e, addr).await
}

/// The word once it is not zero any more.
pub(super) async fn eventually<E: Endpoint>(e: &E, addr: Addr) -> u64 {
    for _ in 0..LONG / SHORT {
        let word = load(e, addr).await;
        if word != 0 {
            return word;
        }
        e.sleep(SHORT).await;
    }
    0
}
