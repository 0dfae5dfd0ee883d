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
use super::find::{Found, Places, Read};
use crate::error::ReadError;
use crate::far;
use crate::flaw::Flaw;
use crate::index::{Index, Key};
use crate::sync::Scheme;
use crate::word::SlotWord;

/// Words by which a scheme tells whether others stand in line.
const LINE_WORDS: usize = 2;

/// What stands where an overwrite expected something else.
pub(super) enum Instead {
    /// A blind write of its key, made during the call.
    BlindWrite,
    /// A value of its key, which may have been there before the call.
    Value(Found),
    /// Another key's value, or none, or nobody can tell.
    Other,
}

/// What is seen behind a slot.
struct Behind {
    found: Found,
    /// What the slot says by now, if that is something else.
    later: Option<SlotWord>,
    is_awaited: bool,
}

impl<S: Scheme, I: Index> Store<S, I> {
    /// A compare of this slot has found that it says this. What it was expected to say the key had
    /// during the call, if that `is_read`; else it is remembered from before. Tells too whether
    /// others were seen to stand in line.
    pub(super) async fn instead(
        &self,
        key: &Key<'_>,
        (slot, says): (Addr, SlotWord),
        is_read: bool,
    ) -> Result<(Instead, bool), ReadError> {
        let Some(behind) = self.behind(key, (slot, says), is_read).await? else {
            return Ok((Instead::Other, false));
        };
        let Behind { found, later, is_awaited } = behind;
        if self.has_come_between(&found, is_read) {
            return Ok((Instead::BlindWrite, is_awaited));
        }
        // Seen during the call itself, so what has come since has come during it.
        let later = match later.filter(|word| self.may_be_of(key, *word)) {
            Some(word) => self.found(key, (slot, word), self.read_block(word).await?),
            None => None,
        };
        let instead = match later {
            Some(later) if self.has_come_between(&later, true) => Instead::BlindWrite,
            later => Instead::Value(later.unwrap_or(found)),
        };
        Ok((instead, is_awaited))
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

    /// What a slot names, if it is the key's, with what else one round trip tells. By now the slot
    /// need not be looked at where `is_enough`.
    async fn behind(
        &self,
        key: &Key<'_>,
        (slot, says): (Addr, SlotWord),
        is_enough: bool,
    ) -> Result<Option<Behind>, ReadError> {
        let Some(named) = self.named(says).filter(|_| self.may_be_of(key, says)) else {
            return Ok(None);
        };
        let words = named.class.words();
        let line = self.scheme.line(key.hash());
        let (read, later, is_awaited) = if words > WORDS_MAX || is_enough && line.is_none() {
            (self.read_block(says).await?, None, false)
        } else {
            let block = (self.shape.block_addr(named.number), words);
            let line = line.map(|line| (line, LINE_WORDS));
            let places = [(slot, 1), block].into_iter().chain(line);
            let read = far::gather(self.endpoint(), &places.collect::<Places>()).await?;
            let (later, behind) = (SlotWord(read[0]), &read[1 + words..]);
            let is_awaited = behind.try_into().is_ok_and(|line| self.scheme.is_line(line));
            let later = (later != says).then_some(later);
            (self.opened(says, named, &read[1..1 + words]), later, is_awaited)
        };
        let found = self.found(key, (slot, says), read);
        Ok(found.map(|found| Behind { found, later, is_awaited }))
    }

    /// What was read behind a slot, if it is this key's.
    fn found(&self, key: &Key<'_>, (slot, word): (Addr, SlotWord), read: Read) -> Option<Found> {
        let (block, opened) = read.filter(|(_, opened)| opened.key() == key.bytes())?;
        let found = Found { slot, word, block, opened };
        self.remember_found(key, &found);
        Some(found)
    }
}
