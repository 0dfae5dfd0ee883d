//! Masked atomics on 64-bit words, judged against their definitions bit by bit.

use super::{Dice, Stage, add_by_bits, load, load_all, store, swap_by_bits};
use crate::addr::Addr;
use crate::endpoint::{Endpoint, MaskedAtomics};
use crate::error::Fault;
use crate::verb::{Link, MaskedCas, MaskedFaa, Verb};

/// Sets the word to `old`, applies the verb, demands the old word back; the new one.
async fn apply<E: Endpoint>(e: &E, addr: Addr, old: u64, verb: Verb<'_>) -> u64 {
    let data = [old];
    let chain: [Link<'_>; 3] = [
        Verb::Write { addr, data: &data }.into(),
        verb.into(),
        Verb::Read { addr, words: 1 }.into(),
    ];
    e.chain(&chain).await.expect("every verb takes effect");
    assert_eq!(e.link(1).old as u64, old, "the old word comes back whole: {verb:?}");
    e.link(2).old as u64
}

async fn swap<E: Endpoint>(e: &E, addr: Addr, old: u64, [c, cm, s, sm]: [u64; 4]) -> u64 {
    let op = MaskedCas { compare: c, compare_mask: cm, swap: s, swap_mask: sm };
    apply(e, addr, old, Verb::MaskedCas64 { addr, op }).await
}

async fn add<E: Endpoint>(e: &E, addr: Addr, old: u64, add: u64, boundary: u64) -> u64 {
    let op = MaskedFaa { add, boundary };
    apply(e, addr, old, Verb::MaskedFaa64 { addr, op }).await
}

pub fn a_full_mask_compares_and_swaps_the_word<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let all = u64::MAX;
        assert_eq!(swap(&e, addr, 5, [5, all, 6, all]).await, 6);
        assert_eq!(swap(&e, addr, 5, [4, all, 6, all]).await, 5);
        e.masked_cas64(addr, MaskedCas { compare: 5, compare_mask: all, swap: 8, swap_mask: all })
            .await
            .expect("it takes effect");
        assert_eq!((e.old() as u64, load(&e, addr).await), (5, 8));
    });
}

pub fn an_empty_compare_mask_always_swaps<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async { assert_eq!(swap(&e, addr, 99, [1, 0, 6, u64::MAX]).await, 6) });
}

pub fn an_empty_swap_mask_changes_nothing<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async { assert_eq!(swap(&e, addr, 99, [99, u64::MAX, 6, 0]).await, 99) });
}

pub fn a_compare_looks_at_its_mask_alone<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let old = 0xaaaa_0000_1111_2222;
        let op = [0x0000_ffff_1111_0000, 0xffff_0000, 0x77, 0xff];
        assert_eq!(swap(&e, addr, old, op).await, 0xaaaa_0000_1111_2277);
    });
}

pub fn a_compare_looks_at_every_bit_of_its_mask<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let old = 0x5555_aaaa_0f0f_3c3c;
        for bit in 0..64 {
            let op = [old ^ 1 << bit, 1 << bit, 0, u64::MAX];
            assert_eq!(swap(&e, addr, old, op).await, old, "bit {bit} differs");
            let op = [old, 1 << bit, !old, 1 << bit];
            assert_eq!(swap(&e, addr, old, op).await, old ^ 1 << bit, "bit {bit} is swapped");
        }
    });
}

pub fn a_swap_changes_its_mask_alone<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let op = [0, 0, u64::MAX, 0xff00_00ff];
        assert_eq!(swap(&e, addr, 0, op).await, 0xff00_00ff);
        let op = [0, 0, 0, 0xff00_00ff];
        assert_eq!(swap(&e, addr, u64::MAX, op).await, !0xff00_00ff);
    });
}

pub fn a_failed_compare_returns_the_word_whole<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let old = 0xfedc_ba98_7654_3210;
        assert_eq!(swap(&e, addr, old, [1, 1, 0xff, 0xff]).await, old);
    });
}

pub fn random_compares_match_their_definition<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    let mut dice = Dice(3);
    stage.run(async {
        for _ in 0..3000 {
            let old = dice.word() as u64;
            // Half the compares hold, whatever the mask.
            let near = if dice.of(2) == 0 { old } else { dice.word() as u64 };
            let op = [near, dice.mask() as u64, dice.word() as u64, dice.mask() as u64];
            let expected = swap_by_bits(old.into(), op.map(u128::from), 64) as u64;
            assert_eq!(swap(&e, addr, old, op).await, expected, "{old:#x} {op:#x?}");
        }
    });
}

pub fn no_boundary_is_a_plain_addition<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        assert_eq!(add(&e, addr, u64::MAX, 2, 0).await, 1);
        assert_eq!(add(&e, addr, 0xffff_ffff, 1, 0).await, 1 << 32);
    });
}

pub fn one_field_is_a_plain_addition<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        assert_eq!(add(&e, addr, u64::MAX, 2, 1 << 63).await, 1);
        assert_eq!(add(&e, addr, u64::MAX >> 1, 1, 1 << 63).await, 1 << 63);
    });
}

pub fn fields_of_one_bit_do_not_carry<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    let mut dice = Dice(4);
    stage.run(async {
        for _ in 0..100 {
            let (old, addend) = (dice.next(), dice.next());
            assert_eq!(add(&e, addr, old, addend, u64::MAX).await, old ^ addend);
        }
        assert_eq!(add(&e, addr, 0b01, 0b01, 0b11).await, 0, "two adjacent fields of one bit");
    });
}

pub fn a_carry_stops_at_its_boundary<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        for top in 0..64 {
            let field = u64::MAX >> (63 - top);
            assert_eq!(add(&e, addr, field, 1, 1 << top).await, 0, "a field of {} bits", top + 1);
            let above = !field;
            assert_eq!(add(&e, addr, u64::MAX, 1, 1 << top).await, above, "what lies above stays");
        }
    });
}

pub fn a_carry_goes_on_without_a_boundary<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        for top in 0..63 {
            let low = u64::MAX >> (63 - top);
            let elsewhere = 1 << 63;
            assert_eq!(add(&e, addr, low, 1, elsewhere).await, low + 1);
        }
    });
}

pub fn a_field_wraps_within_itself<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let boundary = 0x8000_8000_8000_8000;
        let old = 0x1234_ffff_ffff_0005;
        let addend = 0x0001_0001_0000_0001;
        assert_eq!(add(&e, addr, old, addend, boundary).await, 0x1235_0000_ffff_0006);
    });
}

pub fn a_field_counts_down<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let boundary = 0x8000_8000_8000_8000;
        let old = 0x0007_0000_0003_0001;
        let minus_one_in_second = 0x0000_0000_ffff_0000;
        assert_eq!(add(&e, addr, old, minus_one_in_second, boundary).await, 0x0007_0000_0002_0001);
    });
}

pub fn counters_near_their_end_wrap_in_every_width<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        for bits in 1..=32 {
            let (max, neighbour) = ((1_u64 << bits) - 1, 0x5a5a_5a5a_u64 & ((1 << bits) - 1));
            let boundary = 1 << (bits - 1) | 1 << (2 * bits - 1);
            let word = |counter: u64| counter | neighbour << bits;
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
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    let mut dice = Dice(5);
    stage.run(async {
        for _ in 0..3000 {
            let (old, addend) = (dice.word() as u64, dice.word() as u64);
            let boundary = dice.mask() as u64;
            let expected = add_by_bits(old.into(), addend.into(), boundary.into(), 64) as u64;
            let new = add(&e, addr, old, addend, boundary).await;
            assert_eq!(new, expected, "{old:#x} + {addend:#x} by {boundary:#x}");
        }
    });
}

pub fn masked_verbs_touch_their_word_alone<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        store(&e, addr, &[u64::MAX; 4]).await;
        let op = MaskedFaa { add: 1, boundary: 0 };
        e.masked_faa64(addr.plus(8), op).await.expect("it takes effect");
        let op = MaskedCas { compare: 0, compare_mask: 0, swap: 0, swap_mask: u64::MAX };
        e.masked_cas64(addr.plus(16), op).await.expect("it takes effect");
        assert_eq!(load_all(&e, addr, 4).await, [u64::MAX, 0, 0, u64::MAX]);
    });
}

pub(super) fn verbs(addr: Addr) -> [Verb<'static>; 2] {
    let swap = MaskedCas { compare: 0, compare_mask: 0, swap: u64::MAX, swap_mask: 1 };
    let add = MaskedFaa { add: 1, boundary: 0 };
    [Verb::MaskedCas64 { addr, op: swap }, Verb::MaskedFaa64 { addr, op: add }]
}

pub fn masked_verbs_follow_the_bounds<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    let (end, nowhere, forbidden) = (stage.end(), stage.nowhere(), stage.forbidden());
    stage.run(async {
        for byte in 1..8 {
            for verb in verbs(addr.plus(byte)) {
                assert_eq!(e.verb(verb).await, Err(Fault::Misaligned), "{verb:?}");
            }
        }
        for verb in [verbs(end), verbs(nowhere)].as_flattened() {
            assert_eq!(e.verb(*verb).await, Err(Fault::OutOfBounds), "{verb:?}");
        }
        for verb in forbidden.into_iter().flat_map(verbs) {
            assert_eq!(e.verb(verb).await, Err(Fault::NoRight), "{verb:?}");
        }
        assert_eq!(load_all(&e, addr, 2).await, [0, 0], "a refused verb changes nothing");
    });
}

pub fn masked_verbs_follow_each_other_in_a_chain<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        let step = MaskedFaa { add: 1 << 8 | 1, boundary: 0x8080 };
        let mut chain = vec![Link::from(Verb::MaskedFaa64 { addr, op: step }); 30];
        let clear = MaskedCas { compare: 30, compare_mask: 0xff, swap: 0, swap_mask: 0xff };
        chain.push(Verb::MaskedCas64 { addr, op: clear }.into());
        e.chain(&chain).await.expect("every verb takes effect");
        for turn in 0..30 {
            assert_eq!(e.link(turn).old as u64, turn as u64 * 0x101);
        }
        assert_eq!(load(&e, addr).await, 30 << 8);
    });
}

pub fn a_stale_masked_verb_is_refused<S>(stage: &mut S)
where
    S: Stage<Endpoint: MaskedAtomics>,
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
