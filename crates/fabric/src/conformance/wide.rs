//! Masked atomics on 128-bit words, judged against their definitions bit by bit.

use super::{Dice, Stage, add_by_bits, load_all, store, swap_by_bits};
use crate::addr::Addr;
use crate::endpoint::{Endpoint, WideAtomics};
use crate::error::Fault;
use crate::verb::{Link, MaskedCas, MaskedFaa, Verb};

const ALL: u128 = u128::MAX;

fn halves(word: u128) -> [u64; 2] {
    [word as u64, (word >> 64) as u64]
}

/// Sets the word to `old`, applies the verb, demands the old word back; the new one.
async fn apply<E: Endpoint>(e: &E, addr: Addr, old: u128, verb: Verb<'_>) -> u128 {
    let data = halves(old);
    let chain: [Link<'_>; 3] = [
        Verb::Write { addr, data: &data }.into(),
        verb.into(),
        Verb::Read { addr, words: 2 }.into(),
    ];
    e.chain(&chain).await.expect("every verb takes effect");
    assert_eq!(e.link(1).old, old, "the old word comes back whole: {verb:?}");
    e.link(2).old
}

async fn swap_with_hint<E: Endpoint>(
    e: &E,
    addr: Addr,
    old: u128,
    [compare, compare_mask, swap, swap_mask]: [u128; 4],
    hint: Option<u128>,
) -> u128 {
    let op = MaskedCas { compare, compare_mask, swap, swap_mask };
    apply(e, addr, old, Verb::MaskedCas128 { addr, op, hint }).await
}

async fn swap<E: Endpoint>(e: &E, addr: Addr, old: u128, op: [u128; 4]) -> u128 {
    swap_with_hint(e, addr, old, op, None).await
}

async fn add<E: Endpoint>(e: &E, addr: Addr, old: u128, add: u128, boundary: u128) -> u128 {
    let op = MaskedFaa { add, boundary };
    apply(e, addr, old, Verb::MaskedFaa128 { addr, op, hint: None }).await
}

/// Right, wrong in each half, wrong everywhere, and none.
fn hints(old: u128) -> [Option<u128>; 6] {
    [None, Some(old), Some(old ^ 1), Some(old ^ 1 << 127), Some(!old), Some(0)]
}

pub fn the_low_half_comes_first<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        store(&e, addr, &[5, 6]).await;
        e.masked_faa128(addr, MaskedFaa { add: 1, boundary: 0 }, None).await.expect("it works");
        assert_eq!(halves(e.old()), [5, 6]);
        assert_eq!(load_all(&e, addr, 2).await, [6, 6]);
    });
}

pub fn a_full_mask_compares_and_swaps_both_halves<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let (old, new) = (3 << 64 | 4, 5 << 64 | 6);
        assert_eq!(swap(&e, addr, old, [old, ALL, new, ALL]).await, new);
        let op = MaskedCas { compare: new, compare_mask: ALL, swap: 7, swap_mask: ALL };
        e.masked_cas128(addr, op, Some(new)).await.expect("it takes effect");
        assert_eq!((e.old(), load_all(&e, addr, 2).await), (new, vec![7, 0]));
    });
}

pub fn a_compare_looks_at_each_half<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let old = 3 << 64 | 4;
        for compare in [3 << 64 | 5, 2 << 64 | 4, 4 << 64 | 3, 4, 3 << 64] {
            assert_eq!(swap(&e, addr, old, [compare, ALL, 9, ALL]).await, old, "{compare:#x}");
        }
        for bit in 0..128 {
            let op = [old ^ 1 << bit, 1 << bit, 9, ALL];
            assert_eq!(swap(&e, addr, old, op).await, old, "bit {bit} differs");
        }
    });
}

pub fn a_compare_looks_at_its_mask_alone<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let old = 0xaa << 64 | 0xbb;
        assert_eq!(swap(&e, addr, old, [0xaa << 64, ALL << 64, 1, ALL]).await, 1);
        assert_eq!(swap(&e, addr, old, [0xbb, ALL >> 64, 1, ALL]).await, 1);
        let across = 0xff << 60;
        assert_eq!(swap(&e, addr, old, [old & across, across, 1, ALL]).await, 1);
    });
}

pub fn an_empty_compare_mask_always_swaps<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        assert_eq!(swap(&e, addr, 99 << 64 | 98, [1, 0, 6 << 64, ALL]).await, 6 << 64);
        assert_eq!(swap(&e, addr, 99, [99, ALL, 6, 0]).await, 99, "no bit may change");
    });
}

pub fn a_swap_changes_its_mask_alone<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        for mask in [0xff, 0xff << 60, 0xff << 64, 0xff << 120, ALL << 64, ALL >> 64] {
            assert_eq!(swap(&e, addr, 0, [0, 0, ALL, mask]).await, mask);
            assert_eq!(swap(&e, addr, ALL, [0, 0, 0, mask]).await, !mask);
        }
    });
}

pub fn a_failed_compare_returns_the_word_whole<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let old = 0xfedc_ba98_7654_3210_0123_4567_89ab_cdef;
        assert_eq!(swap(&e, addr, old, [0, 1, 0xff, 0xff]).await, old);
    });
}

pub fn a_hint_never_makes_a_compare_hold<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let old = 3 << 64 | 4;
        for compare in [5, 2 << 64 | 4, 3 << 64] {
            for hint in hints(old).into_iter().chain([Some(compare)]) {
                let op = [compare, ALL, 9, ALL];
                assert_eq!(swap_with_hint(&e, addr, old, op, hint).await, old, "{hint:x?}");
            }
        }
    });
}

pub fn a_hint_never_makes_a_compare_fail<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let old = 3 << 64 | 4;
        for mask in [ALL, 0xff, 0xff << 64, 0] {
            for hint in hints(old) {
                let op = [old, mask, 9, ALL];
                assert_eq!(swap_with_hint(&e, addr, old, op, hint).await, 9, "{hint:x?}");
            }
        }
    });
}

pub fn a_hint_never_changes_an_addition<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let old = 3 << 64 | u128::from(u64::MAX);
        let op = MaskedFaa { add: 2 << 64 | 2, boundary: 1 << 63 };
        for hint in hints(old) {
            let new = apply(&e, addr, old, Verb::MaskedFaa128 { addr, op, hint }).await;
            assert_eq!(new, 5 << 64 | 1, "{hint:x?}");
        }
    });
}

pub fn random_compares_match_their_definition<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let mut dice = Dice(7);
        for _ in 0..3000 {
            let old = dice.word();
            // Half the compares hold, whatever the mask; a third of the hints are right.
            let near = if dice.of(2) == 0 { old } else { dice.word() };
            let hint = [None, Some(old), Some(dice.word())][dice.of(3)];
            let op = [near, dice.mask(), dice.word(), dice.mask()];
            let expected = swap_by_bits(old, op, 128);
            let new = swap_with_hint(&e, addr, old, op, hint).await;
            assert_eq!(new, expected, "{old:#x} {op:#x?} {hint:x?}");
        }
    });
}

pub fn a_carry_crosses_the_halves<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        assert_eq!(add(&e, addr, ALL >> 64, 1, 0).await, 1 << 64);
        assert_eq!(add(&e, addr, ALL >> 64, 1, 1 << 127).await, 1 << 64);
        assert_eq!(add(&e, addr, ALL >> 64, 1, 1 << 64).await, 1 << 64, "a field of 65 bits");
        assert_eq!(add(&e, addr, ALL, 1, 0).await, 0);
    });
}

pub fn a_carry_stops_between_the_halves<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        assert_eq!(add(&e, addr, ALL >> 64, 1, 1 << 63).await, 0);
        assert_eq!(add(&e, addr, ALL, 1, 1 << 63).await, ALL << 64);
        assert_eq!(add(&e, addr, ALL, 1 << 64 | 1, 1 << 63).await, 0);
    });
}

pub fn a_carry_stops_at_its_boundary<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        for top in 0..128 {
            let field = ALL >> (127 - top);
            assert_eq!(add(&e, addr, field, 1, 1 << top).await, 0, "a field of {} bits", top + 1);
            assert_eq!(add(&e, addr, ALL, 1, 1 << top).await, !field, "what lies above stays");
        }
    });
}

pub fn fields_of_one_bit_do_not_carry<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let mut dice = Dice(8);
        for _ in 0..100 {
            let (old, addend) = (dice.wide(), dice.wide());
            assert_eq!(add(&e, addr, old, addend, ALL).await, old ^ addend);
        }
        let pair = 0b11 << 63;
        assert_eq!(add(&e, addr, pair, pair, pair).await, 0, "two fields of one bit at the halves");
    });
}

pub fn counters_near_their_end_wrap_in_every_width<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        for bits in 1..=64 {
            let max = ALL >> (128 - bits);
            let neighbour = 0x5a5a_5a5a_5a5a_5a5a & max;
            let boundary = 1 << (bits - 1) | 1 << (2 * bits - 1);
            let word = |counter: u128| counter | neighbour << bits;
            for step in 0..4 {
                let counter = max.wrapping_sub(2).wrapping_add(step) & max;
                let expected = word((counter + 1) & max);
                assert_eq!(add(&e, addr, word(counter), 1, boundary).await, expected);
            }
        }
    });
}

pub fn random_additions_match_their_definition<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let mut dice = Dice(9);
        for _ in 0..3000 {
            let (old, addend, boundary) = (dice.word(), dice.word(), dice.mask());
            let hint = [None, Some(old), Some(dice.word())][dice.of(3)];
            let op = MaskedFaa { add: addend, boundary };
            let new = apply(&e, addr, old, Verb::MaskedFaa128 { addr, op, hint }).await;
            let expected = add_by_bits(old, addend, boundary, 128);
            assert_eq!(new, expected, "{old:#x} + {addend:#x} by {boundary:#x}, {hint:x?}");
        }
    });
}

pub fn wide_verbs_touch_their_word_alone<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        store(&e, addr, &[u64::MAX; 6]).await;
        let op = MaskedFaa { add: 1, boundary: 0 };
        e.masked_faa128(addr.plus(16), op, None).await.expect("it takes effect");
        assert_eq!(load_all(&e, addr, 6).await, [u64::MAX, u64::MAX, 0, 0, u64::MAX, u64::MAX]);
    });
}

pub(super) fn verbs(addr: Addr) -> [Verb<'static>; 2] {
    let swap = MaskedCas { compare: 0, compare_mask: 0, swap: ALL, swap_mask: 1 };
    let add = MaskedFaa { add: 1, boundary: 0 };
    [
        Verb::MaskedCas128 { addr, op: swap, hint: None },
        Verb::MaskedFaa128 { addr, op: add, hint: Some(0) },
    ]
}

pub fn wide_verbs_need_a_wide_boundary<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        for byte in 1..16 {
            for verb in verbs(addr.plus(byte)) {
                assert_eq!(e.verb(verb).await, Err(Fault::Misaligned), "{verb:?}");
            }
        }
        assert_eq!(load_all(&e, addr, 4).await, [0; 4], "a refused verb changes nothing");
    });
}

pub fn wide_verbs_follow_the_bounds<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, end) = (stage.endpoint(), stage.end());
    let (nowhere, forbidden) = (stage.nowhere(), stage.forbidden());
    stage.run(async {
        let last = Addr::new(end.region(), end.offset() - 16);
        let op = MaskedFaa { add: 0, boundary: 0 };
        e.masked_faa128(last, op, None).await.expect("it is inside");
        let highest = Addr::new(end.region(), Addr::OFFSET_MAX & !15);
        for verb in [verbs(end), verbs(nowhere), verbs(highest)].as_flattened() {
            assert_eq!(e.verb(*verb).await, Err(Fault::OutOfBounds), "{verb:?}");
        }
        for verb in forbidden.into_iter().flat_map(verbs) {
            assert_eq!(e.verb(verb).await, Err(Fault::NoRight), "{verb:?}");
        }
    });
}

pub fn wide_verbs_follow_each_other_in_a_chain<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let step = MaskedFaa { add: 1 << 64 | 1, boundary: 1 << 63 };
        let add = Verb::MaskedFaa128 { addr, op: step, hint: None };
        let mut chain = vec![Link::from(add); 31];
        let op = MaskedCas { compare: 31, compare_mask: ALL >> 64, swap: 0, swap_mask: ALL >> 64 };
        chain.push(Verb::MaskedCas128 { addr, op, hint: None }.into());
        e.chain(&chain).await.expect("every verb takes effect");
        for turn in 0..32 {
            assert_eq!(halves(e.link(turn).old), [turn as u64; 2]);
        }
        assert_eq!(load_all(&e, addr, 2).await, [0, 31]);
    });
}

pub fn narrow_and_wide_verbs_share_a_word<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let (low, high) = (addr, addr.plus(8));
        e.faa64(high, 7).await.expect("it takes effect");
        e.masked_faa128(addr, MaskedFaa { add: 3, boundary: 0 }, Some(0))
            .await
            .expect("so does it");
        assert_eq!(halves(e.old()), [0, 7], "a wide verb sees what narrow ones did");
        e.cas64(low, 3, 4).await.expect("it takes effect");
        assert_eq!(e.old() as u64, 3, "a narrow verb sees what wide ones did");
        assert_eq!(load_all(&e, addr, 2).await, [4, 7]);
    });
}

pub fn a_stale_wide_verb_is_refused<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    if stage.reset() {
        stage.run(async {
            for verb in verbs(addr) {
                assert_eq!(e.verb(verb).await, Err(Fault::Stale), "{verb:?}");
            }
        });
    }
}
