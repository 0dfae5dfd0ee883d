//! The compare-and-swap lock with a waiter that looks at the wrong moment.
//!
//! An attempt fails, so the waiter decides to wait for a change; then it reads the word to know
//! what a change is. If the holder has released in between, it read "free", and waits until the
//! word is not free any more: for ever, if nobody else comes.

use farlock_fabric::{Verb, Wait, WideAtomics};

use crate::prelude::*;
use crate::record::cas::Cas;

/// A spin lock that sleeps through its release.
#[derive(Clone, Debug)]
pub struct LostWakeUp {
    sound: Cas,
}

impl Default for LostWakeUp {
    fn default() -> Self {
        Self { sound: Cas::without_backoff() }
    }
}

impl LockKind for LostWakeUp {
    const BYTES: u64 = 8;
    const SHARES: bool = false;
    const TOKENS: TokenSource = TokenSource::Nowhere;

    fn promises(&self) -> Promises {
        Promises::EXCLUSION
    }
}

impl<E: WideAtomics> Lock<E> for LostWakeUp {
    type Want = Mode;
    type Grant = ();

    fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        self.sound.opening(site, mode)
    }

    fn opened(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Option<()> {
        self.sound.opened(site, mode, old)
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, mode: Mode, _: u128) -> Outcome<()> {
        loop {
            site.endpoint.checkpoint(&[]);
            let word = Some((site.lock, site.read().await?));
            site.endpoint.wait(Wait { word, ..Wait::default() }).await;
            if site.verb(self.sound.opening(site, mode)).await? == 0 {
                return Ok(());
            }
        }
    }

    fn closing(&self, site: &Site<'_, E>, mode: Mode, (): ()) -> Option<Verb<'static>> {
        self.sound.closing(site, mode, ())
    }

    fn closed(&self, site: &Site<'_, E>, mode: Mode, (): (), old: u128) -> bool {
        self.sound.closed(site, mode, (), old)
    }

    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        (): (),
        old: Option<u128>,
    ) -> Outcome<()> {
        self.sound.hand_over(site, mode, (), old).await
    }

    fn trying(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>) -> Option<Verb<'static>> {
        self.sound.trying(site, mode, seen)
    }

    fn tried(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>, old: u128) -> Tried<()> {
        self.sound.tried(site, mode, seen, old)
    }
}
