//! What masked atomics on 128-bit words have beside those on 64-bit words: two halves, and hints.

use super::widths::{Word, adding};
use super::{load_all, store};
use crate::addr::Addr;
use crate::endpoint::WideAtomics;
use crate::verb::{MaskedCas, MaskedFaa};

const ALL: u128 = u128::MAX;

fn halves(word: u128) -> [u64; 2] {
    [word as u64, (word >> 64) as u64]
}

/// Right, wrong in each half, wrong everywhere, and none.
fn hints(old: u128) -> [Option<u128>; 6] {
    [None, Some(old), Some(old ^ 1), Some(old ^ 1 << 127), Some(!old), Some(0)]
}

pub async fn the_low_half_comes_first<E: WideAtomics>(e: E, addr: Addr) {
    store(&e, addr, &[5, 6]).await;
    e.masked_faa128(addr, MaskedFaa { add: 1, boundary: 0 }, None).await.expect("it works");
    assert_eq!(halves(e.old()), [5, 6]);
    let op = MaskedCas { compare: 6, compare_mask: ALL >> 64, swap: 7, swap_mask: ALL << 64 };
    e.masked_cas128(addr, op, Some(5)).await.expect("it works");
    assert_eq!(halves(e.old()), [6, 6]);
    assert_eq!(load_all(&e, addr, 2).await, [6, 0]);
}

pub async fn a_hint_never_makes_a_compare_hold<E: WideAtomics>(e: E, addr: Addr) {
    let word = Word { e, addr, bits: 128 };
    let old = 3 << 64 | 4;
    for compare in [5, 2 << 64 | 4, 3 << 64] {
        for hint in hints(old).into_iter().chain([Some(compare)]) {
            let op = [compare, ALL, 9, ALL];
            assert_eq!(word.swap(old, op, hint).await, old, "{hint:x?}");
        }
    }
}

pub async fn a_hint_never_makes_a_compare_fail<E: WideAtomics>(e: E, addr: Addr) {
    let word = Word { e, addr, bits: 128 };
    let old = 3 << 64 | 4;
    for mask in [ALL, 0xff, 0xff << 64, 0] {
        for hint in hints(old) {
            assert_eq!(word.swap(old, [old, mask, 9, ALL], hint).await, 9, "{hint:x?}");
        }
    }
}

pub async fn a_hint_never_changes_an_addition<E: WideAtomics>(e: E, addr: Addr) {
    let word = Word { e, addr, bits: 128 };
    let old = 3 << 64 | u128::from(u64::MAX);
    for hint in hints(old) {
        let verb = adding(word.addr, 128, 2 << 64 | 2, 1 << 63, hint);
        assert_eq!(word.apply(old, verb).await, 5 << 64 | 1, "{hint:x?}");
    }
}

pub async fn narrow_and_wide_verbs_share_a_word<E: WideAtomics>(e: E, addr: Addr) {
    let (low, high) = (addr, addr.plus(8));
    e.faa64(high, 7).await.expect("it takes effect");
    e.masked_faa128(addr, MaskedFaa { add: 3, boundary: 0 }, Some(0)).await.expect("so does it");
    assert_eq!(halves(e.old()), [0, 7], "a wide verb sees what narrow ones did");
    e.cas64(low, 3, 4).await.expect("it takes effect");
    assert_eq!(e.old() as u64, 3, "a narrow verb sees what wide ones did");
    assert_eq!(load_all(&e, addr, 2).await, [4, 7]);
}
