//! A lock whose waiter reads holder and stamp together and believes that they belong together.
//!
//! The word is a holder and a stamp that each change of the holder raises. A waiter reads both with
//! one read of 16 bytes; if there is no holder, it makes itself the holder provided that the stamp
//! is still the same. That is right where such a read is atomic. A read may tear at any word: no
//! holder, seen before the next one came, with the stamp of after.

use farlock_fabric::{MaskedCas, Verb, Wait, WideAtomics, word};

use crate::prelude::*;

word! {
    /// The word: zero is free.
    pub struct StampWord: u128 {
        /// Who holds: a packed mailbox, or nobody.
        HOLDER holder: 64,
        /// Changes of the holder.
        STAMP stamp: 64,
    }
}

/// The lock that trusts a torn read.
#[derive(Clone, Debug, Default)]
pub struct TornStamp;

impl TornStamp {
    /// Makes this slot the holder if the stamp is still `stamp`.
    fn take<E>(site: &Site<'_, E>, stamp: u64) -> MaskedCas<u128> {
        let held = StampWord::new()
            .with(StampWord::HOLDER, site.me.bits())
            .with(StampWord::STAMP, stamp.wrapping_add(1));
        MaskedCas {
            compare: StampWord::STAMP.place(stamp),
            compare_mask: StampWord::STAMP.mask(),
            swap: held.0,
            swap_mask: u128::MAX,
        }
    }
}

impl LockKind for TornStamp {
    const BYTES: u64 = 16;
    const SHARES: bool = false;
    const TOKENS: TokenSource = TokenSource::Nowhere;

    fn promises(&self) -> Promises {
        Promises::EXCLUSION
    }
}

impl<E: WideAtomics> Lock<E> for TornStamp {
    type Want = Mode;
    /// The stamp while this slot holds.
    type Grant = u64;

    fn opening(&self, site: &Site<'_, E>, _: Mode) -> Verb<'static> {
        Verb::Read { addr: site.lock, words: 2 }
    }

    fn opened(&self, _: &Site<'_, E>, _: Mode, _: u128) -> Option<u64> {
        None
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, _: Mode, old: u128) -> Outcome<u64> {
        let mut seen = StampWord(old);
        loop {
            site.endpoint.checkpoint(&[seen.holder(), seen.stamp()]);
            if seen.holder() == 0 {
                site.endpoint
                    .masked_cas128(site.lock, Self::take(site, seen.stamp()), None)
                    .await?;
                if StampWord(site.endpoint.old()).stamp() == seen.stamp() {
                    return Ok(seen.stamp().wrapping_add(1));
                }
            } else {
                let word = Some((site.lock, seen.holder()));
                site.endpoint.wait(Wait { word, interval: Some(1_000), ..Wait::default() }).await;
            }
            seen = StampWord(site.read128().await?);
        }
    }

    fn closing(&self, site: &Site<'_, E>, _: Mode, stamp: u64) -> Option<Verb<'static>> {
        let op = MaskedCas {
            compare: StampWord::HOLDER.place(site.me.bits()),
            compare_mask: StampWord::HOLDER.mask(),
            swap: StampWord::STAMP.place(stamp.wrapping_add(1)),
            swap_mask: u128::MAX,
        };
        Some(Verb::MaskedCas128 { addr: site.lock, op, hint: None })
    }

    fn closed(&self, _: &Site<'_, E>, _: Mode, _: u64, _: u128) -> bool {
        true
    }

    async fn hand_over(&self, _: &Site<'_, E>, _: Mode, _: u64, _: Option<u128>) -> Outcome<()> {
        Ok(())
    }

    fn trying(&self, site: &Site<'_, E>, _: Mode, seen: Option<u128>) -> Option<Verb<'static>> {
        let seen = seen.unwrap_or(0);
        let op = Self::take(site, StampWord(seen).stamp());
        let op = MaskedCas { compare: seen, compare_mask: u128::MAX, ..op };
        Some(Verb::MaskedCas128 { addr: site.lock, op, hint: None })
    }

    fn tried(&self, _: &Site<'_, E>, _: Mode, seen: Option<u128>, old: u128) -> Tried<u64> {
        match old == seen.unwrap_or(0) {
            true => Tried::Granted(StampWord(old).stamp().wrapping_add(1)),
            false if StampWord(old).holder() == 0 => Tried::Again(old),
            false => Tried::Busy,
        }
    }
}
