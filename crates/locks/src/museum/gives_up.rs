//! ShiftLock whose waiting readers leave with the verb of a release, as one would think they may.
//!
//! A reader is in; a writer gets in line and waits for one release; a second reader comes, and does
//! not want to wait. It takes itself off the readers, and so that they add up counts a release.
//! That is the one the writer waits for, and it enters beside the first reader. Or else a writer
//! holds meanwhile: then the count is no more the one of its grant, and it can never release.

use farlock_fabric::{Fault, Verb, WideAtomics};

use crate::record::shiftlock::{Grant, ShiftLock};
use crate::record::{Mode, RecordLock, TokenSource, Tried};
use crate::site::Site;
use crate::slot::Phase;

/// ShiftLock whose readers give up once, and come again.
#[derive(Clone, Debug, Default)]
pub struct GivesUp {
    /// The lock whose readers wait.
    pub sound: ShiftLock,
}

impl<E: WideAtomics> RecordLock<E> for GivesUp {
    const BYTES: u64 = 16;
    const SHARES: bool = true;
    const TOKENS: TokenSource = TokenSource::Word;

    type Grant = Grant;

    fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        self.sound.opening(site, mode)
    }

    fn opened(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Option<Grant> {
        self.sound.opened(site, mode, old)
    }

    async fn wait_in_line(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        old: u128,
    ) -> Result<Grant, Fault> {
        if mode == Mode::Exclusive {
            return self.sound.wait_in_line(site, mode, old).await;
        }
        site.endpoint.masked_faa128(site.lock, ShiftLock::leave(), None).await?;
        site.publish(Phase::Opening, mode, 0);
        site.endpoint.verb(self.opening(site, mode)).await?;
        let old = site.endpoint.old();
        match self.opened(site, mode, old) {
            Some(grant) => Ok(grant),
            None => self.sound.wait_in_line(site, mode, old).await,
        }
    }

    fn closing(&self, site: &Site<'_, E>, mode: Mode, grant: Grant) -> Option<Verb<'static>> {
        self.sound.closing(site, mode, grant)
    }

    fn closed(&self, site: &Site<'_, E>, mode: Mode, grant: Grant, old: u128) -> bool {
        self.sound.closed(site, mode, grant, old)
    }

    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        grant: Grant,
        old: Option<u128>,
    ) -> Result<(), Fault> {
        self.sound.hand_over(site, mode, grant, old).await
    }

    fn trying(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>) -> Verb<'static> {
        self.sound.trying(site, mode, seen)
    }

    fn tried(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>, old: u128) -> Tried<Grant> {
        self.sound.tried(site, mode, seen, old)
    }

    fn generation(grant: Grant) -> u64 {
        <ShiftLock as RecordLock<E>>::generation(grant)
    }

    fn count(grant: Grant) -> u64 {
        <ShiftLock as RecordLock<E>>::count(grant)
    }
}
