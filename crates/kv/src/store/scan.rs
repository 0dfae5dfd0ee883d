//! Going through a store: every slot, one after the other.

use farlock_fabric::verb::WORDS_MAX;

use super::core::Store;
use crate::error::ReadError;
use crate::far;
use crate::index::Index;
use crate::sync::Scheme;
use crate::word::SlotWord;

/// How often a slot is read that others change meanwhile.
const TURNS_MAX: u32 = 10_000;

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

impl<S: Scheme, I: Index> Store<S, I> {
    /// The pairs of some slots, from this one on, and where the next ones begin; `None` behind the
    /// last. The first is at 0.
    ///
    /// From the first to the last: each pair is as it was at some moment of the call that returned
    /// it. A key that was there all the time is there once; one that came or went meanwhile may be
    /// missing, and one that was removed and inserted again may be there twice.
    ///
    /// # Errors
    /// See [`ReadError`]; the next call may go on from the same slot.
    pub async fn scan(&self, from: u64) -> Result<(Vec<Pair>, Option<u64>), ReadError> {
        let bytes = self.index.bytes();
        let words = usize::try_from(bytes.saturating_sub(from) / 8).unwrap_or(usize::MAX);
        let words = words.min(WORDS_MAX);
        let mut pairs = Vec::new();
        if words > 0 {
            let found = far::read(self.endpoint(), self.shape.index(from), words).await?;
            for (at, word) in found.into_iter().enumerate() {
                let offset = from + at as u64 * 8;
                pairs.extend(self.pair_at(offset, SlotWord(word)).await?);
            }
        }
        let next = from + words as u64 * 8;
        Ok((pairs, (next < bytes).then_some(next)))
    }

    /// The pair of a slot whose word was read.
    async fn pair_at(&self, offset: u64, mut word: SlotWord) -> Result<Option<Pair>, ReadError> {
        let addr = self.shape.index(offset);
        for _ in 0..TURNS_MAX {
            if !word.is_committed() {
                return Ok(None);
            }
            if let Some((_, opened)) = self.read_block(word).await? {
                return Ok(Some((opened.key().to_vec(), opened.value().to_vec())));
            }
            let again = SlotWord(far::read_word(self.endpoint(), addr).await?);
            if again == word {
                return Err(ReadError::Corrupt);
            }
            word = again;
        }
        Err(ReadError::Busy)
    }
}
