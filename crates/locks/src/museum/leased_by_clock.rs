//! A lease that is an hour on the clock: the word says until when it is taken, and a client whose
//! clock shows more takes it. It is sound if clocks agree. Those of two machines go apart, however
//! slowly, for as long as they run.

use farlock_fabric::{Endpoint, Nanos, Verb, Wait};

use crate::prelude::*;
use crate::record::bakery::LEASE_NS;

/// The word is the hour until which it is taken, with the slot's index in its low bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeasedByClock;

/// The low bits of the word: who.
const WHO_BITS: u32 = 8;

/// What a holder remembers: the word it wrote.
#[derive(Clone, Copy, Debug)]
pub struct Grant(u64);

impl LeasedByClock {
    fn word<E: Endpoint>(site: &Site<'_, E>) -> Grant {
        Grant((site.opened_at() + LEASE_NS) << WHO_BITS | u64::from(site.me.endpoint.index))
    }

    fn take<E: Endpoint>(site: &Site<'_, E>, compare: u64) -> Verb<'static> {
        site.opens_at(site.endpoint.now());
        Verb::Cas64 { addr: site.lock, compare, swap: Self::word(site).0 }
    }
}

impl LockKind for LeasedByClock {
    const BYTES: u64 = 8;
    const SHARES: bool = false;
    const TOKENS: TokenSource = TokenSource::Nowhere;

    fn promises(&self) -> Promises {
        Promises { lease_ns: Some(LEASE_NS), ..Promises::EXCLUSION }
    }
}

impl Granted for Grant {
    fn expires(self) -> Option<Nanos> {
        Some(self.0 >> WHO_BITS)
    }
}

impl<E: Endpoint> Lock<E> for LeasedByClock {
    type Want = Mode;
    type Grant = Grant;

    fn opening(&self, site: &Site<'_, E>, _: Mode) -> Verb<'static> {
        Self::take(site, 0)
    }

    fn opened(&self, site: &Site<'_, E>, _: Mode, old: u128) -> Option<Grant> {
        (old == 0).then(|| Self::word(site))
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, _: Mode, old: u128) -> Outcome<Grant> {
        let mut seen = old as u64;
        loop {
            site.endpoint.checkpoint(&[seen]);
            let left = (seen >> WHO_BITS).saturating_sub(site.endpoint.now());
            if left > 0 {
                let word = Some((site.lock, seen));
                site.endpoint.wait(Wait { word, interval: Some(left), ..Wait::default() }).await;
                seen = site.read().await?;
                if seen != 0 {
                    continue;
                }
            }
            if site.verb(Self::take(site, seen)).await? as u64 == seen {
                return Ok(Self::word(site));
            }
            seen = site.endpoint.old() as u64;
        }
    }

    fn closing(&self, site: &Site<'_, E>, _: Mode, grant: Grant) -> Option<Verb<'static>> {
        Some(Verb::Cas64 { addr: site.lock, compare: grant.0, swap: 0 })
    }

    fn closed(&self, _: &Site<'_, E>, _: Mode, _: Grant, _: u128) -> bool {
        true
    }

    async fn hand_over(&self, _: &Site<'_, E>, _: Mode, _: Grant, _: Option<u128>) -> Outcome<()> {
        unreachable!("the closing verb always releases")
    }

    fn trying(&self, site: &Site<'_, E>, _: Mode, _: Option<u128>) -> Option<Verb<'static>> {
        Some(Self::take(site, 0))
    }

    fn tried(&self, site: &Site<'_, E>, _: Mode, _: Option<u128>, old: u128) -> Tried<Grant> {
        if old == 0 { Tried::Granted(Self::word(site)) } else { Tried::Busy }
    }
}
