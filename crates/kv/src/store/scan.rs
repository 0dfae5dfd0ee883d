//! Going through a store: every slot of a level, one after the other, and where a slot has moved
//! those that it has moved to. What a key's slot moves to is the same for every client, so that a
//! key is met once, however the index grows meanwhile.

use farlock_fabric::Addr;
use farlock_fabric::verb::WORDS_MAX;

use super::core::Store;
use crate::error::ReadError;
use crate::far;
use crate::flaw::Flaw;
use crate::index::Index;
use crate::sync::Scheme;
use crate::word::SlotWord;

/// How often a slot is read that others change meanwhile.
const TURNS_MAX: u32 = 10_000;

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// How far a client has come through a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor {
    level: u32,
    /// Of the next slot, in bytes from the first.
    offset: u64,
}

impl<S: Scheme, I: Index> Store<S, I> {
    /// The pairs of some slots from a cursor on, or from the first one, and where the next ones
    /// begin; `None` behind the last.
    ///
    /// From the first to the last: each pair is as it was at some moment of the call that returned
    /// it. A key that was there all the time is there once; one that came or went meanwhile may be
    /// missing, and one that was removed and inserted again may be there twice. A slot that points
    /// to what is no block is told as [`ReadError::Corrupt`] among the pairs. Of a tree all pairs
    /// come at once, in order; see also [`Store::scan_in_order`].
    ///
    /// # Errors
    /// See [`ReadError`]; the next call may go on from the same cursor.
    pub async fn scan(
        &self,
        from: Option<Cursor>,
    ) -> Result<(Vec<Result<Pair, ReadError>>, Option<Cursor>), ReadError> {
        if I::TREE {
            return Ok((Box::pin(self.all_in_order()).await?, None));
        }
        let Cursor { level, offset } = match from {
            Some(cursor) => cursor,
            None => {
                self.learn_levels().await?;
                Cursor { level: self.levels.borrow().lowest(), offset: 0 }
            }
        };
        let bytes = self.shape.table_bytes(level);
        let words = (bytes.saturating_sub(offset) / 8).min(WORDS_MAX as u64) as usize;
        let first = self.levels.borrow().addr(level, offset).ok_or(ReadError::Corrupt)?;
        let mut pairs = Vec::new();
        if words > 0 {
            let found = far::read(self.endpoint(), first, words).await?;
            for (at, word) in (0..).zip(found) {
                self.pairs_at(first.plus(at * 8), SlotWord(word), &mut pairs).await?;
            }
        }
        let next = Cursor { level, offset: offset + words as u64 * 8 };
        Ok((pairs, (next.offset < bytes).then_some(next)))
    }

    /// The pairs of a slot whose word was read: one or none, or where it has moved those of its
    /// heirs.
    async fn pairs_at(
        &self,
        slot: Addr,
        word: SlotWord,
        pairs: &mut Vec<Result<Pair, ReadError>>,
    ) -> Result<(), ReadError> {
        let mut slots = vec![(slot, word)];
        while let Some((slot, word)) = slots.pop() {
            let (word, pair) = match self.pair_at(slot, word).await {
                Err(ReadError::Corrupt) => {
                    pairs.push(Err(ReadError::Corrupt));
                    continue;
                }
                read => read?,
            };
            pairs.extend(pair.map(Ok));
            if word.is_moved() && !self.errs(Flaw::ScanStopsAtMoved) {
                let of_last = |slot| {
                    let levels = self.levels.borrow();
                    levels.place(slot).is_some_and(|(level, _)| level == levels.highest())
                };
                if of_last(slot) {
                    self.learn_levels().await?;
                }
                for heir in self.heirs_of(slot)? {
                    let word = far::read_word(self.endpoint(), heir).await?;
                    slots.push((heir, SlotWord(word)));
                }
            }
        }
        Ok(())
    }

    /// The pair of a slot whose word was read, and the word with which that was sure.
    async fn pair_at(
        &self,
        slot: Addr,
        mut word: SlotWord,
    ) -> Result<(SlotWord, Option<Pair>), ReadError> {
        for _ in 0..TURNS_MAX {
            // Only a tree has nodes, and is scanned otherwise.
            if !word.is_committed() && !word.is_node() {
                return Ok((word, None));
            }
            if let Some((_, opened)) = self.read_block(word).await? {
                let pair = (opened.key().to_vec(), opened.value().to_vec());
                return Ok((word, Some(pair)));
            }
            let again = SlotWord(far::read_word(self.endpoint(), slot).await?);
            if again == word {
                return Err(ReadError::Corrupt);
            }
            word = again;
        }
        Err(ReadError::Busy)
    }
}
