//! ShiftLock whose waiting readers leave with the verb of a release, as one would think they may.
//!
//! A reader is in; a writer gets in line and waits for one release; a second reader comes, and does
//! not want to wait. It takes itself off the readers, and so that they add up counts a release.
//! That is the one the writer waits for, and it enters beside the first reader. Or else a writer
//! holds meanwhile: then the count is no more the one of its grant, and it can never release.

use farlock_fabric::{Verb, WideAtomics};

use crate::prelude::*;
use crate::record::shiftlock::{Grant, ShiftLock};

/// ShiftLock whose readers give up once, and come again.
#[derive(Clone, Debug, Default)]
pub struct GivesUp {
    /// The lock whose readers wait.
    pub sound: ShiftLock,
}

kind_as_sound!(GivesUp, ShiftLock);

impl<E: WideAtomics> Lock<E> for GivesUp {
    type Want = Mode;
    as_sound!(ShiftLock);

    async fn wait_in_line(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Outcome<Grant> {
        if mode == Mode::Exclusive {
            return self.sound.wait_in_line(site, mode, old).await;
        }
        site.endpoint.masked_faa128(site.lock, ShiftLock::leave(), None).await?;
        site.publish(Phase::Opening, mode, 0);
        let old = site.verb(self.opening(site, mode)).await?;
        match self.opened(site, mode, old) {
            Some(grant) => Ok(grant),
            None => self.sound.wait_in_line(site, mode, old).await,
        }
    }
}
