//! ShiftLock as printed in algorithms 2 and 3: a writer flips the epoch that it remembers.
//!
//! A writer reads the epoch when it gets in line, inverts its copy when a ModeChanged note reaches
//! it, and stores the inverse of its copy when it releases. Notes carry no epoch. If the lock went
//! to the readers while the writer stood in line, and the note it gets is a Handover, its copy is
//! stale, and what it stores flips nothing: the readers that wait then wait for ever, and since
//! they are counted the next writer waits for them. Three writers, one reader and N = 1 suffice,
//! with one more release between the second writer's getting in line and its turn.

use farlock_fabric::{Verb, WideAtomics};

use crate::prelude::*;
use crate::record::shiftlock::{Grant, ShiftLock, ShiftWord};

/// ShiftLock that loses the epoch across a handover.
#[derive(Clone, Debug, Default)]
pub struct EpochLost {
    /// The lock whose notes carry the epoch; this exhibit ignores what they carry.
    pub sound: ShiftLock,
}

/// The sound grant, and the epoch as the printed algorithm remembers it.
#[derive(Clone, Copy, Debug)]
pub struct PrintedGrant {
    sound: Grant,
    remembered: bool,
}

impl PrintedGrant {
    /// The grant with which the printed algorithm releases to nobody.
    fn as_remembered(self) -> Grant {
        Grant { epoch: self.remembered, ..self.sound }
    }
}

kind_as_sound!(EpochLost, ShiftLock);

impl Granted for PrintedGrant {
    #[inline(always)]
    fn generation(self) -> u64 {
        self.sound.generation()
    }

    #[inline(always)]
    fn count(self) -> u64 {
        self.sound.count()
    }
}

impl<E: WideAtomics> Lock<E> for EpochLost {
    type Want = Mode;
    type Grant = PrintedGrant;

    fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        self.sound.opening(site, mode)
    }

    fn opened(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Option<PrintedGrant> {
        let sound = self.sound.opened(site, mode, old)?;
        Some(PrintedGrant { sound, remembered: sound.epoch })
    }

    /// The sound wait; then the epoch is forgotten, and the one from getting in line remembered
    /// (algorithm 2, line 18).
    async fn wait_in_line(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        old: u128,
    ) -> Outcome<PrintedGrant> {
        let sound = self.sound.wait_in_line(site, mode, old).await?;
        let (behind_writer, own) = (ShiftWord(old).tail() != 0, ShiftWord(old).epoch() != 0);
        // A ModeChanged note begins a new row of writers, a Handover continues one.
        let mode_changed = behind_writer && sound.streak == 1;
        Ok(PrintedGrant { sound, remembered: own ^ mode_changed })
    }

    fn closing(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        grant: PrintedGrant,
    ) -> Option<Verb<'static>> {
        self.sound.closing(site, mode, grant.as_remembered())
    }

    fn closed(&self, site: &Site<'_, E>, mode: Mode, grant: PrintedGrant, old: u128) -> bool {
        self.sound.closed(site, mode, grant.as_remembered(), old)
    }

    /// Handing over flips the word itself (algorithm 3, line 13), so it is right even here.
    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        grant: PrintedGrant,
        old: Option<u128>,
    ) -> Outcome<()> {
        self.sound.hand_over(site, mode, grant.sound, old).await
    }

    fn trying(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>) -> Option<Verb<'static>> {
        self.sound.trying(site, mode, seen)
    }

    fn tried(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        seen: Option<u128>,
        old: u128,
    ) -> Tried<PrintedGrant> {
        match self.sound.tried(site, mode, seen, old) {
            Tried::Granted(sound) => {
                Tried::Granted(PrintedGrant { sound, remembered: sound.epoch })
            }
            Tried::Busy => Tried::Busy,
            Tried::Again(word) => Tried::Again(word),
        }
    }
}
