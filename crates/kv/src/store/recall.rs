//! What a client remembers of keys where each verb takes a round trip: which slot a key was in,
//! what the slot said, and what a short value was.
//!
//! Nothing of it is taken for what is there. A slot never has the same word twice. So a read asks
//! for the slot and for the block that its word named, in one chain: if the slot says the same,
//! that block is the key's value, whichever of the two was read first. And a change compares the
//! slot with that word: if it succeeds, what was remembered was the value up to then. An operation
//! that would change nothing, seeing what is remembered, reads first.
//!
//! A word may come back after 65,536 further uses of its block. Between a read and a compare a
//! client may sleep for as long as its system likes; to what it remembers it compares nothing that
//! it read more than [`FRESH_NS`] ago.

use std::cell::RefCell;

use farlock_fabric::verb::WORDS_MAX;
use farlock_fabric::{Addr, Endpoint, Nanos};

use super::core::Store;
use super::find::Found;
use crate::block::Opened;
use crate::error::ReadError;
use crate::far;
use crate::flaw::Flaw;
use crate::index::{Index, Key};
use crate::recall::{Recall, Remembered};
use crate::shape::Block;
use crate::sync::Scheme;
use crate::word::SlotWord;

/// How long a value is compared with without being read again.
const FRESH_NS: Nanos = 1_000_000_000;

/// Bytes of a value that is remembered. Of longer ones the slot is.
const VALUE_BYTES_MAX: usize = 128;

/// The longest block that is read with its slot, in words.
const BLOCK_WORDS_MAX: usize = WORDS_MAX;

impl<S: Scheme, I: Index> Store<S, I> {
    /// A key is in this slot, which says this.
    #[inline(always)]
    pub(super) fn remember(
        &self,
        key: &Key<'_>,
        at: (Addr, SlotWord),
        generation: u32,
        value: &[u8],
    ) {
        if let Some(recall) = &self.recall {
            self.remember_in(recall, key, at, generation, value);
        }
    }

    /// What takes a round trip is not to be in the way of what takes nanoseconds.
    #[cold]
    #[inline(never)]
    fn remember_in(
        &self,
        recall: &RefCell<Recall>,
        key: &Key<'_>,
        (slot, word): (Addr, SlotWord),
        generation: u32,
        value: &[u8],
    ) {
        let value = (value.len() <= VALUE_BYTES_MAX).then(|| value.into());
        let (hash, read_at) = (key.hash(), self.endpoint().now());
        let key = key.bytes().into();
        recall.borrow_mut().put(Remembered { hash, key, slot, word, generation, read_at, value });
    }

    /// A key that was found is remembered.
    #[inline]
    pub(super) fn remember_found(&self, key: &Key<'_>, found: &Found) {
        let generation = found.block.generation;
        self.remember(key, (found.slot, found.word), generation, found.opened.value());
    }

    /// What is remembered of a key is not so any more.
    #[inline]
    pub(super) fn forget(&self, key: &Key<'_>) {
        let Some(recall) = &self.recall else { return };
        recall.borrow_mut().forget(key.hash());
    }

    /// Others change this key: it is read before it is changed the next time.
    #[inline]
    pub(super) fn is_shared(&self, key: &Key<'_>) {
        let Some(recall) = &self.recall else { return };
        recall.borrow_mut().forget_value(key.hash());
    }

    /// What is remembered of a key, value and all. It may be so no more.
    #[inline(always)]
    pub(super) fn recalled(&self, key: &Key<'_>) -> Option<Found> {
        self.recall.as_ref().and_then(|recall| self.recalled_from(recall, key))
    }

    #[cold]
    #[inline(never)]
    fn recalled_from(&self, recall: &RefCell<Recall>, key: &Key<'_>) -> Option<Found> {
        let recall = recall.borrow();
        let known = recall.of(key.hash(), key.bytes())?;
        let value = known.value.as_deref()?;
        if self.endpoint().now() > known.read_at + FRESH_NS {
            return None;
        }
        let named = self.named(known.word)?;
        let opened = Opened::of(known.generation, key.bytes(), value);
        let block = Block { generation: known.generation, ..named };
        let found = Found { slot: known.slot, word: known.word, block, opened };
        drop(recall);
        self.count(|counts| counts.recalled += 1);
        Some(found)
    }

    /// Looks for a key where it is remembered, and behind what its slot says now. `None`: it is to
    /// be looked for elsewhere.
    pub(super) async fn locate_again(&self, key: &Key<'_>) -> Result<Option<Found>, ReadError> {
        let known = self.recall.as_ref().and_then(|recall| {
            let recall = recall.borrow();
            recall.of(key.hash(), key.bytes()).map(|known| (known.slot, known.word))
        });
        let Some((slot, word)) = known else { return Ok(None) };
        let Some(named) = self.named(word) else { return Ok(None) };
        let words = named.class.words();
        if words > BLOCK_WORDS_MAX {
            // It takes as long as to look for it.
            return Ok(None);
        }
        let places = [(slot, 1), (self.shape.block_addr(named.number), words)];
        let read = far::gather(self.endpoint(), &places).await?;
        let says = SlotWord(read[0]);
        let block = match says == word || self.errs(Flaw::TrustsSlot) {
            true => self.opened(word, named, &read[1..]),
            false if says.is_committed() && says.fingerprint() == key.fingerprint() => {
                self.read_block(says).await?
            }
            false => None,
        };
        let is_it = |(_, opened): &(Block, Opened)| opened.key() == key.bytes();
        let found = block.filter(is_it).map(|(block, opened)| {
            self.count(|counts| counts.recalled += u64::from(says == word));
            Found { slot, word: says, block, opened }
        });
        match &found {
            Some(found) => self.remember_found(key, found),
            None => self.forget(key),
        }
        Ok(found)
    }
}
