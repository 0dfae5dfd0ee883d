//! The face of masked atomics on 64-bit words. What they do is judged at both
//! `widths`.

use super::load;
use crate::addr::Addr;
use crate::endpoint::MaskedAtomics;
use crate::verb::{MaskedCas, MaskedFaa};

pub async fn masked_verbs_are_posted_by_their_names<E: MaskedAtomics>(e: E, addr: Addr) {
    e.masked_faa64(addr, MaskedFaa { add: 0x1ff, boundary: 0x80 }).await.expect("it works");
    assert_eq!((e.old() as u64, load(&e, addr).await), (0, 0x1ff));
    let op = MaskedCas { compare: 0x100, compare_mask: 0xf00, swap: 5, swap_mask: 0xff };
    e.masked_cas64(addr, op).await.expect("it works");
    assert_eq!((e.old() as u64, load(&e, addr).await), (0x1ff, 0x105));
}
