//! Many endpoints at once on 128-bit words.

use super::{Stage, load_all};
use crate::addr::Addr;
use crate::endpoint::{Endpoint, WideAtomics};
use crate::verb::{MaskedCas, MaskedFaa};

const CROWD: usize = 4;
const TURNS: u64 = 200;
const BOTH: u128 = 1 << 64 | 1;

async fn add<E: WideAtomics>(e: &E, addr: Addr, add: u128, hint: Option<u128>) -> u128 {
    let op = MaskedFaa { add, boundary: 1 << 63 | 1 << 127 };
    e.masked_faa128(addr, op, hint).await.expect("it takes effect");
    e.old()
}

pub fn wide_additions_of_many_add_up<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.crowd(CROWD, async |e, _| {
        let mut hint = None;
        for _ in 0..TURNS {
            let old = add(e, addr, BOTH, hint).await;
            hint = Some(old + BOTH);
        }
    });
    let total = CROWD as u64 * TURNS;
    stage.run(async { assert_eq!(load_all(&e, addr, 2).await, [total, total]) });
}

pub fn wide_words_never_tear<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let addr = stage.scratch(64);
    stage.crowd(CROWD, async |e, number| {
        let mut seen = 0;
        for turn in 0..TURNS {
            // Both halves of every value are the same: a torn one shows two.
            let value = u128::from(turn << 8 | number as u64) * BOTH;
            let all = u128::MAX;
            let op = MaskedCas { compare: seen, compare_mask: all, swap: value, swap_mask: all };
            e.masked_cas128(addr, op, Some(seen)).await.expect("it takes effect");
            let old = e.old();
            assert_eq!((old >> 64) as u64, old as u64, "an old word is whole");
            seen = if old == seen { value } else { old };
            let old = add(e, addr, 0, None).await;
            assert_eq!((old >> 64) as u64, old as u64, "an old word is whole");
        }
    });
}

pub fn halves_are_changed_by_many_without_loss<S>(stage: &mut S)
where
    S: Stage<Endpoint: WideAtomics>,
{
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.crowd(CROWD, async |e, number| {
        for _ in 0..TURNS {
            match number % 4 {
                0 => drop(add(e, addr, 1, None).await),
                1 => drop(add(e, addr, 1 << 64, None).await),
                2 => e.faa64(addr, 1).await.expect("it takes effect"),
                _ => e.faa64(addr.plus(8), 1).await.expect("it takes effect"),
            }
        }
    });
    stage.run(async { assert_eq!(load_all(&e, addr, 2).await, [2 * TURNS; 2]) });
}
