//! A lock whose holder's last read rides in the same chain as its release, without a fence.
//!
//! Beside the holder lies a count that each holder raises, and reads once more when it releases: it
//! must be as it left it. The read comes before the release in the chain, but only a fence keeps
//! the release from overtaking it; then the next holder's count is read. The assertion fails,
//! though nobody but a reader of its own data has done anything wrong.

use farlock_fabric::{Link, Verb, Wait, WideAtomics};

use crate::prelude::*;

/// Where the count lies, in bytes after the lock's address.
const COUNT: u64 = 8;

/// The lock with a read that is overtaken.
#[derive(Clone, Debug, Default)]
pub struct RidingRead;

impl<E: WideAtomics> Protocol<'_, E, RidingRead> {
    fn attempt(self) -> Verb<'static> {
        Verb::Cas64 { addr: self.lock, compare: 0, swap: self.me.bits() }
    }
}

impl LockKind for RidingRead {
    const BYTES: u64 = 16;
    const SHARES: bool = false;
    const TOKENS: TokenSource = TokenSource::Nowhere;

    fn promises(&self) -> Promises {
        Promises::EXCLUSION
    }
}

impl<E: WideAtomics> Lock<E> for RidingRead {
    type Want = Mode;
    /// The count as this holder left it; `None` if it has not touched it.
    type Grant = Option<u64>;

    fn opening(&self, site: &Site<'_, E>, _: Mode) -> Verb<'static> {
        site.by(self).attempt()
    }

    fn opened(&self, _: &Site<'_, E>, _: Mode, _: u128) -> Option<Self::Grant> {
        None
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, _: Mode, old: u128) -> Outcome<Self::Grant> {
        let mut holder = old as u64;
        while holder != 0 {
            site.endpoint.checkpoint(&[holder]);
            let word = Some((site.lock, holder));
            site.endpoint.wait(Wait { word, interval: Some(1_000), ..Wait::default() }).await;
            holder = site.verb(site.by(self).attempt()).await? as u64;
        }
        let addr = site.lock.plus(COUNT);
        let count = site.read_at(addr).await?.wrapping_add(1);
        site.endpoint.verb(Verb::Write { addr, data: &[count] }).await?;
        Ok(Some(count))
    }

    fn closing(&self, _: &Site<'_, E>, _: Mode, _: Self::Grant) -> Option<Verb<'static>> {
        None
    }

    fn closed(&self, _: &Site<'_, E>, _: Mode, _: Self::Grant, _: u128) -> bool {
        true
    }

    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        _: Mode,
        grant: Self::Grant,
        _: Option<u128>,
    ) -> Outcome<()> {
        let chain = [
            Link::from(Verb::Read { addr: site.lock.plus(COUNT), words: 1 }),
            Link::from(Verb::Cas64 { addr: site.lock, compare: site.me.bits(), swap: 0 }),
        ];
        site.endpoint.chain(&chain).await?;
        let read = site.endpoint.link(0).old as u64;
        assert!(grant.is_none_or(|count| count == read), "the count is as its holder left it");
        Ok(())
    }

    fn trying(&self, site: &Site<'_, E>, _: Mode, _: Option<u128>) -> Option<Verb<'static>> {
        Some(site.by(self).attempt())
    }

    fn tried(&self, _: &Site<'_, E>, _: Mode, _: Option<u128>, old: u128) -> Tried<Self::Grant> {
        if old as u64 == 0 { Tried::Granted(None) } else { Tried::Busy }
    }
}
