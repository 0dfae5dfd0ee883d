//! Masked atomics, judged against their definitions bit by bit: each case at 64 and at 128 bits.

use super::{Dice, Stage, add_by_bits, load_all, store, swap_by_bits, with_line};
use crate::addr::Addr;
use crate::endpoint::Endpoint;
use crate::error::Fault;
use crate::verb::{Link, MaskedCas, MaskedFaa, Verb};

/// The suite's cases at one width. 64 bits need
/// [`MaskedAtomics`](crate::endpoint::MaskedAtomics), 128 bits
/// [`WideAtomics`](crate::endpoint::WideAtomics).
macro_rules! at_width {
    ($bits:literal; $module:ident: $($case:ident $(($with:ident))?)+;) => {
        pub mod $module {
            $(at_width!(@ $bits $case $($with)?);)+
        }
    };
    (@ $bits:literal $case:ident) => {
        pub fn $case<S: crate::conformance::Stage>(stage: &mut S) {
            super::$case(stage, $bits);
        }
    };
    (@ $bits:literal $case:ident $with:ident) => {
        pub async fn $case<E: crate::Endpoint>(e: E, addr: crate::Addr) {
            super::$case(super::Word { e, addr, bits: $bits }).await;
        }
    };
}
crate::conformance_cases!(at_both_widths masked64 [at_width] [64]);
crate::conformance_cases!(at_both_widths masked128 [at_width] [128]);

/// A word of one of the widths, zero at first.
pub(super) struct Word<E> {
    pub(super) e: E,
    pub(super) addr: Addr,
    pub(super) bits: u32,
}

impl<E: Endpoint> Word<E> {
    /// The word of which all bits are set.
    fn all(&self) -> u128 {
        u128::MAX >> (128 - self.bits)
    }

    /// The same 64 bits in each half of a wide word.
    fn repeat(&self, half: u64) -> u128 {
        (u128::from(half) << 64 | u128::from(half)) & self.all()
    }

    /// Sets the word to `old`, applies the verb, demands the old word back; the new one.
    pub(super) async fn apply(&self, old: u128, verb: Verb<'_>) -> u128 {
        let addr = self.addr;
        let data = &[old as u64, (old >> 64) as u64][..self.bits as usize / 64];
        let read = Verb::Read { addr, words: data.len() as u16 };
        let chain: [Link<'_>; 3] = [Verb::Write { addr, data }.into(), verb.into(), read.into()];
        self.e.chain(&chain).await.expect("every verb takes effect");
        assert_eq!(self.e.link(1).old, old, "the old word comes back whole: {verb:?}");
        self.e.link(2).old
    }

    pub(super) async fn swap(&self, old: u128, op: [u128; 4], hint: Option<u128>) -> u128 {
        self.apply(old, swapping(self.addr, self.bits, op, hint)).await
    }

    async fn add(&self, old: u128, add: u128, boundary: u128) -> u128 {
        self.apply(old, adding(self.addr, self.bits, add, boundary, None)).await
    }
}

/// A compare-and-swap: compare, its mask, swap, its mask.
fn swapping(addr: Addr, bits: u32, op: [u128; 4], hint: Option<u128>) -> Verb<'static> {
    let [compare, compare_mask, swap, swap_mask] = op;
    if bits == 128 {
        let op = MaskedCas { compare, compare_mask, swap, swap_mask };
        return Verb::MaskedCas128 { addr, op, hint };
    }
    let [compare, compare_mask, swap, swap_mask] = op.map(|word| word as u64);
    Verb::MaskedCas64 { addr, op: MaskedCas { compare, compare_mask, swap, swap_mask } }
}

pub(super) fn adding(
    addr: Addr,
    bits: u32,
    add: u128,
    boundary: u128,
    hint: Option<u128>,
) -> Verb<'static> {
    if bits == 128 {
        return Verb::MaskedFaa128 { addr, op: MaskedFaa { add, boundary }, hint };
    }
    let op = MaskedFaa { add: add as u64, boundary: boundary as u64 };
    Verb::MaskedFaa64 { addr, op }
}

/// One of each, both of which would change a word of zeroes.
pub(super) fn verbs(addr: Addr, bits: u32) -> [Verb<'static>; 2] {
    let swap = swapping(addr, bits, [0, 0, u128::MAX, 1], None);
    [swap, adding(addr, bits, 1, 0, Some(0))]
}

async fn a_full_mask_compares_and_swaps_the_word<E: Endpoint>(word: Word<E>) {
    let (all, old, new) = (word.all(), 3 << (word.bits / 2) | 5, 6 << (word.bits / 2) | 7);
    assert_eq!(word.swap(old, [old, all, new, all], None).await, new);
    for compare in [old ^ 1, old ^ 1 << (word.bits - 1), 5, old ^ 5, new] {
        assert_eq!(word.swap(old, [compare, all, new, all], None).await, old, "{compare:#x}");
    }
}

async fn an_empty_compare_mask_always_swaps<E: Endpoint>(word: Word<E>) {
    let (old, new) = (99 << (word.bits / 2) | 98, 6 << (word.bits / 2));
    assert_eq!(word.swap(old, [1, 0, new, word.all()], None).await, new);
}

async fn an_empty_swap_mask_changes_nothing<E: Endpoint>(word: Word<E>) {
    assert_eq!(word.swap(99, [99, word.all(), 6, 0], None).await, 99);
}

async fn a_compare_looks_at_its_mask_alone<E: Endpoint>(word: Word<E>) {
    let (all, half) = (word.all(), word.bits / 2);
    let (low, across) = (all >> half, 0xff << (half - 4));
    let old = 0xaa << half | 0xbb;
    for [compare, mask] in [[0xaa << half, !low & all], [0xbb, low], [old & across, across]] {
        assert_eq!(word.swap(old, [compare, mask, 1, all], None).await, 1, "{mask:#x}");
        let low_byte = word.swap(old, [compare, mask, 0x77, 0xff], None).await;
        assert_eq!(low_byte, 0xaa << half | 0x77, "{mask:#x}");
    }
}

async fn a_compare_looks_at_every_bit_of_its_mask<E: Endpoint>(word: Word<E>) {
    let (all, old) = (word.all(), word.repeat(0x5555_aaaa_0f0f_3c3c));
    for bit in 0..word.bits {
        let op = [old ^ 1 << bit, 1 << bit, 0, all];
        assert_eq!(word.swap(old, op, None).await, old, "bit {bit} differs");
        let op = [old, 1 << bit, !old & all, 1 << bit];
        assert_eq!(word.swap(old, op, None).await, old ^ 1 << bit, "bit {bit} is swapped");
    }
}

async fn a_swap_changes_its_mask_alone<E: Endpoint>(word: Word<E>) {
    let (all, half) = (word.all(), word.bits / 2);
    let (low, ends) = (all >> half, 0xff << (word.bits - 8) | 0xff);
    for mask in [0xff, 0xff << (half - 4), 0xff << half, ends, !low & all, low] {
        assert_eq!(word.swap(0, [0, 0, all, mask], None).await, mask);
        assert_eq!(word.swap(all, [0, 0, 0, mask], None).await, !mask & all);
    }
}

async fn a_failed_compare_returns_the_word_whole<E: Endpoint>(word: Word<E>) {
    let old = 0xfedc_ba98_7654_3210_0123_4567_89ab_cdee & word.all();
    assert_eq!(word.swap(old, [1, 1, 0xff, 0xff], None).await, old);
}

async fn random_compares_match_their_definition<E: Endpoint>(word: Word<E>) {
    let mut dice = Dice(3);
    for _ in 0..3000 {
        let old = dice.word();
        // Half the compares hold, whatever the mask; a third of the hints are right.
        let near = if dice.of(2) == 0 { old } else { dice.word() };
        let hint = [None, Some(old), Some(dice.word())][dice.of(3)];
        let op = [near, dice.mask(), dice.word(), dice.mask()];
        let (old, op) = (old & word.all(), op.map(|operand| operand & word.all()));
        let new = word.swap(old, op, hint).await;
        assert_eq!(new, swap_by_bits(old, op, word.bits), "{old:#x} {op:#x?} {hint:x?}");
    }
}

async fn no_boundary_is_a_plain_addition<E: Endpoint>(word: Word<E>) {
    assert_eq!(word.add(word.all(), 2, 0).await, 1);
    let low = word.all() >> (word.bits / 2);
    assert_eq!(word.add(low, 1, 0).await, low + 1);
}

async fn one_field_is_a_plain_addition<E: Endpoint>(word: Word<E>) {
    let top = 1 << (word.bits - 1);
    assert_eq!(word.add(word.all(), 2, top).await, 1);
    assert_eq!(word.add(word.all() >> 1, 1, top).await, top);
}

async fn fields_of_one_bit_do_not_carry<E: Endpoint>(word: Word<E>) {
    let mut dice = Dice(4);
    for _ in 0..100 {
        let (old, addend) = (dice.wide() & word.all(), dice.wide() & word.all());
        assert_eq!(word.add(old, addend, word.all()).await, old ^ addend);
    }
    for pair in [0b11, 0b11 << (word.bits / 2 - 1)] {
        assert_eq!(word.add(pair, pair, pair).await, 0, "two adjacent fields of one bit");
    }
}

async fn a_carry_stops_at_its_boundary<E: Endpoint>(word: Word<E>) {
    let all = word.all();
    for top in 0..word.bits {
        let field = all >> (word.bits - 1 - top);
        assert_eq!(word.add(field, 1, 1 << top).await, 0, "a field of {} word.bits", top + 1);
        assert_eq!(word.add(all, 1, 1 << top).await, !field & all, "what lies above stays");
    }
}

async fn a_carry_goes_on_without_a_boundary<E: Endpoint>(word: Word<E>) {
    for top in 0..word.bits - 1 {
        let low = word.all() >> (word.bits - 1 - top);
        for elsewhere in [1 << (word.bits - 1), 1 << (top + 1)] {
            assert_eq!(word.add(low, 1, elsewhere).await, low + 1);
        }
    }
}

async fn a_field_wraps_within_itself<E: Endpoint>(word: Word<E>) {
    let boundary = word.repeat(0x8000_8000_8000_8000);
    let old = word.repeat(0x1234_ffff_ffff_0005);
    let addend = word.repeat(0x0001_0001_0000_0001);
    let expected = word.repeat(0x1235_0000_ffff_0006);
    assert_eq!(word.add(old, addend, boundary).await, expected);
}

async fn a_field_counts_down<E: Endpoint>(word: Word<E>) {
    let boundary = word.repeat(0x8000_8000_8000_8000);
    let old = word.repeat(0x0007_0000_0003_0001);
    let minus_one_in_second = word.repeat(0x0000_0000_ffff_0000);
    let expected = word.repeat(0x0007_0000_0002_0001);
    assert_eq!(word.add(old, minus_one_in_second, boundary).await, expected);
}

async fn counters_near_their_end_wrap_in_every_width<E: Endpoint>(word: Word<E>) {
    for width in 1..=word.bits / 2 {
        let max = word.all() >> (word.bits - width);
        let neighbour = 0x5a5a_5a5a_5a5a_5a5a & max;
        let boundary = 1 << (width - 1) | 1 << (2 * width - 1);
        let beside = |counter: u128| counter | neighbour << width;
        for step in 0..4 {
            let counter = max.wrapping_sub(2).wrapping_add(step) & max;
            let expected = beside((counter + 1) & max);
            assert_eq!(word.add(beside(counter), 1, boundary).await, expected);
        }
    }
}

async fn random_additions_match_their_definition<E: Endpoint>(word: Word<E>) {
    let mut dice = Dice(5);
    for _ in 0..3000 {
        let operands = [dice.word(), dice.word(), dice.mask()];
        let [old, addend, boundary] = operands.map(|operand| operand & word.all());
        let hint = [None, Some(old), Some(dice.word())][dice.of(3)];
        let verb = adding(word.addr, word.bits, addend, boundary, hint);
        let new = word.apply(old, verb).await;
        let expected = add_by_bits(old, addend, boundary, word.bits);
        assert_eq!(new, expected, "{old:#x} + {addend:#x} by {boundary:#x}, {hint:x?}");
    }
}

async fn masked_verbs_touch_their_word_alone<E: Endpoint>(Word { e, addr, bits }: Word<E>) {
    store(&e, addr, &[u64::MAX; 8]).await;
    let (bytes, words) = (u64::from(bits) / 8, bits as usize / 64);
    e.verb(adding(addr.plus(bytes), bits, 1, 0, None)).await.expect("it takes effect");
    let swap = swapping(addr.plus(2 * bytes), bits, [0, 0, 0, u128::MAX], None);
    e.verb(swap).await.expect("it takes effect");
    let mut expected = [u64::MAX; 8];
    expected[words..3 * words].fill(0);
    assert_eq!(load_all(&e, addr, 8).await, expected);
}

async fn masked_verbs_need_their_own_boundary<E: Endpoint>(Word { e, addr, bits }: Word<E>) {
    for byte in 1..u64::from(bits) / 8 {
        for verb in verbs(addr.plus(byte), bits) {
            assert_eq!(e.verb(verb).await, Err(Fault::Misaligned), "{verb:?}");
        }
    }
    assert_eq!(load_all(&e, addr, 4).await, [0; 4], "a refused verb changes nothing");
}

fn masked_verbs_follow_the_bounds<S: Stage>(stage: &mut S, bits: u32) {
    let (end, nowhere, forbidden) = (stage.end(), stage.nowhere(), stage.forbidden());
    with_line(stage, async |e, _| {
        let bytes = u64::from(bits) / 8;
        let last = Addr::new(end.region(), end.offset() - bytes);
        e.verb(adding(last, bits, 0, 0, None)).await.expect("it is inside");
        let highest = Addr::new(end.region(), Addr::OFFSET_MAX & !(bytes - 1));
        for verb in [end, nowhere, highest].into_iter().flat_map(|addr| verbs(addr, bits)) {
            assert_eq!(e.verb(verb).await, Err(Fault::OutOfBounds), "{verb:?}");
        }
        for verb in forbidden.into_iter().flat_map(|addr| verbs(addr, bits)) {
            assert_eq!(e.verb(verb).await, Err(Fault::NoRight), "{verb:?}");
        }
    });
}

async fn masked_verbs_follow_each_other_in_a_chain<E: Endpoint>(Word { e, addr, bits }: Word<E>) {
    let half = bits / 2;
    let low = u128::MAX >> (128 - half);
    let step = adding(addr, bits, 1 << half | 1, 1 << (half - 1), None);
    let mut chain = vec![Link::from(step); 31];
    chain.push(swapping(addr, bits, [31, low, 0, low], None).into());
    e.chain(&chain).await.expect("every verb takes effect");
    for turn in 0..32 {
        assert_eq!(e.link(turn).old, (turn as u128) << half | turn as u128);
    }
    e.verb(adding(addr, bits, 0, 0, None)).await.expect("it takes effect");
    assert_eq!(e.old(), 31 << half);
}

fn a_stale_masked_verb_is_refused<S: Stage>(stage: &mut S, bits: u32) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    if stage.reset() {
        stage.run(async {
            for verb in verbs(addr, bits) {
                assert_eq!(e.verb(verb).await, Err(Fault::Stale), "{verb:?}");
            }
        });
    }
}
