//! What an overwrite does that comes second: nothing, where the first one was a blind write.
//!
//! It was called, the slot of its key said one thing, and its compare finds another there. If that
//! is a blind write of its key, that was made between the call and the answer. Had this operation
//! come right before it, the key would be as it is, and nobody could have read what it had in
//! between. So it counts as done right before it. As CIDER combines writes in line (section 4.2),
//! this combines those that collide: without a line, a message or a wait.
//!
//! Two things have to be known. *That the slot said something else during the call.* What is
//! remembered from before does not show it: the other write may have been answered, and read,
//! before this one was called. *That the other was blind.* One that asked what the value was would
//! have been told another, and one that gave a new key a value says nothing of whether the key was
//! there, which an update is to tell.
//!
//! That a slot says something else shows that it was changed: it never has the same word twice.

use farlock_fabric::Addr;
use farlock_fabric::verb::WORDS_MAX;

use super::core::Store;
use super::find::{Found, Read};
use crate::error::ReadError;
use crate::far;
use crate::flaw::Flaw;
use crate::index::{Index, Key};
use crate::sync::Scheme;
use crate::word::SlotWord;

/// What stands where an overwrite expected something else.
pub(super) enum Instead {
    /// A blind write of its key, made during the call.
    BlindWrite,
    /// A value of its key, which may have been there before the call.
    Value(Found),
    /// Another key's value, or none, or nobody can tell.
    Other,
}

impl<S: Scheme, I: Index> Store<S, I> {
    /// A compare of this slot has found that it says this. What it was expected to say the key had
    /// during the call, if that `is_read`; else it is remembered from before.
    pub(super) async fn instead(
        &self,
        key: &Key<'_>,
        (slot, says): (Addr, SlotWord),
        is_read: bool,
    ) -> Result<Instead, ReadError> {
        let Some((found, later)) = self.behind(key, (slot, says), is_read).await? else {
            return Ok(Instead::Other);
        };
        if self.has_come_between(&found, is_read) {
            return Ok(Instead::BlindWrite);
        }
        // Seen during the call itself, so what has come since has come during it.
        let later = match later.filter(|word| self.may_be_of(key, *word)) {
            Some(word) => self.found(key, (slot, word), self.read_block(word).await?),
            None => None,
        };
        match later {
            Some(later) if self.has_come_between(&later, true) => Ok(Instead::BlindWrite),
            later => Ok(Instead::Value(later.unwrap_or(found))),
        }
    }

    /// Whether this was put there by a blind write during the call: before, the slot has said
    /// something else, which the key had during it, if that `is_read`.
    fn has_come_between(&self, found: &Found, is_read: bool) -> bool {
        let is_blind = found.opened.is_blind || self.errs(Flaw::AbsorbedByAny);
        is_blind && (is_read || self.errs(Flaw::AbsorbedByEarlier))
    }

    fn may_be_of(&self, key: &Key<'_>, word: SlotWord) -> bool {
        word.is_committed() && word.fingerprint() == key.fingerprint()
    }

    /// The key's value that a slot names, and what the slot says by now, if that is something else;
    /// it is not looked at where `is_enough`.
    async fn behind(
        &self,
        key: &Key<'_>,
        (slot, says): (Addr, SlotWord),
        is_enough: bool,
    ) -> Result<Option<(Found, Option<SlotWord>)>, ReadError> {
        let Some(named) = self.named(says).filter(|_| self.may_be_of(key, says)) else {
            return Ok(None);
        };
        let words = named.class.words();
        let (read, later) = if is_enough || words > WORDS_MAX {
            (self.read_block(says).await?, None)
        } else {
            let places = [(slot, 1), (self.shape.block_addr(named.number), words)];
            let read = far::gather(self.endpoint(), &places).await?;
            let later = SlotWord(read[0]);
            (self.opened(says, named, &read[1..]), (later != says).then_some(later))
        };
        Ok(self.found(key, (slot, says), read).map(|found| (found, later)))
    }

    /// What was read behind a slot, if it is this key's.
    fn found(&self, key: &Key<'_>, (slot, word): (Addr, SlotWord), read: Read) -> Option<Found> {
        let (block, opened) = read.filter(|(_, opened)| opened.key() == key.bytes())?;
        let found = Found { slot, word, block, opened };
        self.remember_found(key, &found);
        Some(found)
    }
}
