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

kind_as_sound!(LostWakeUp, Cas);

impl<E: WideAtomics> Lock<E> for LostWakeUp {
    type Want = Mode;
    as_sound!(Cas);

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
}
