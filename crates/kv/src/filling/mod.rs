//! Filling a store by no verb: for a simulation that begins with millions of pairs, which would
//! spend its time on loading them.
//!
//! The memory's owner puts words there as if an insertion had been carried out between two
//! verbs. Clients may use the store meanwhile, as long as none of them inserts the same key.

mod tree;

use std::collections::BTreeMap;

use farlock_fabric::{Addr, EndpointId};

use crate::block;
use crate::error::WriteError;
use crate::index::{Bucket, Index, Key};
use crate::shape::{Block, Shape};
use crate::size::Class;
use crate::word::{ChunkWord, SlotWord};

/// The memory of a store, as its owner sees it.
pub trait Memory {
    /// A word.
    fn peek(&self, addr: Addr) -> u64;

    /// Sets a word.
    fn poke(&mut self, addr: Addr, word: u64);
}

/// Pairs are put into chunks of their own, from the last one down, which belong to an endpoint that
/// lives as long as the store is used and does nothing else: nobody takes over what it has.
#[derive(Debug)]
pub struct Filling<I> {
    index: I,
    shape: Shape,
    owner: EndpointId,
    /// By class, the chunk that is being filled, and its next block.
    open: BTreeMap<Class, (u32, u32)>,
    /// All chunks from here on were looked at.
    below: u32,
}

impl<I: Index> Filling<I> {
    /// Of the store of this shape, for this owner.
    pub fn new(index: I, shape: Shape, owner: EndpointId) -> Self {
        Self { index, shape, owner, open: BTreeMap::new(), below: shape.chunks }
    }

    /// Puts a pair whose key is not there yet. The table of the index has not grown, and into a
    /// tree no client inserts anything meanwhile.
    ///
    /// # Errors
    /// As an insertion; nothing was changed then.
    pub fn put(
        &mut self,
        memory: &mut impl Memory,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), WriteError> {
        let key = Key::new(key).ok_or(WriteError::BadKey)?;
        let class = block::class(&key, value).filter(|class| self.shape.blocks(*class) > 0);
        let class = class.ok_or(WriteError::TooLong)?;
        let slot = match I::TREE {
            true => self.slot_in_tree(memory, &key)?,
            false => self.slot(memory, &key)?,
        };
        let block = self.block(memory, class)?;
        let word = SlotWord::new()
            .with(SlotWord::VERSION, block.generation.into())
            .with(SlotWord::CLASS, class.number())
            .with(SlotWord::FINGERPRINT, key.fingerprint())
            .with(SlotWord::BLOCK, block.number);
        let words = block::seal((block.number, block.generation), &key, value, false);
        let first = self.shape.block_addr(block.number);
        poke_all(memory, first, &words);
        memory.poke(slot, word.0);
        Ok(())
    }

    /// A slot that was never used: in the emptiest bucket, as insertions choose.
    fn slot(&self, memory: &impl Memory, key: &Key<'_>) -> Result<Addr, WriteError> {
        let buckets = self.index.buckets(key, 0).ok_or(WriteError::BadKey)?;
        let rooms = buckets.iter().filter_map(|bucket| self.room(memory, bucket));
        rooms.min_by_key(|(rank, _)| *rank).map(|(_, slot)| slot).ok_or(WriteError::IndexFull)
    }

    fn room(&self, memory: &impl Memory, bucket: &Bucket) -> Option<((bool, u16), Addr)> {
        let (first, shared) = bucket.shared;
        let table = self.shape.first_table().plus(bucket.offset);
        let (mut taken, mut room) = (0, None);
        for at in 0..bucket.slots {
            let (slot, is_shared) =
                (table.plus(u64::from(at) * 8), (first..first + shared).contains(&at));
            if memory.peek(slot) != 0 {
                taken += 1;
            } else if room.is_none_or(|(was_shared, _)| was_shared && !is_shared) {
                room = Some((is_shared, slot));
            }
        }
        room.map(|(is_shared, slot)| ((is_shared, taken), slot))
    }

    /// A block that was never used.
    fn block(&mut self, memory: &mut impl Memory, class: Class) -> Result<Block, WriteError> {
        let (chunk, index) = match self.open.get(&class) {
            Some(open) if open.1 < self.shape.blocks(class) => *open,
            _ => (self.chunk(memory, class)?, 0),
        };
        self.open.insert(class, (chunk, index + 1));
        Ok(self.shape.block(chunk, class, index, 1))
    }

    /// The last chunk that nobody has.
    fn chunk(&mut self, memory: &mut impl Memory, class: Class) -> Result<u32, WriteError> {
        while self.below > 0 {
            self.below -= 1;
            let addr = self.shape.chunk_word(self.below);
            let word = ChunkWord(memory.peek(addr));
            if word.is_blank() {
                memory.poke(addr, word.given(self.owner.bits(), class.number()).0);
                return Ok(self.below);
            }
        }
        Err(WriteError::PoolFull)
    }
}

/// Writes words that lie side by side.
fn poke_all(memory: &mut impl Memory, first: Addr, words: &[u64]) {
    (0..).zip(words).for_each(|(at, word)| memory.poke(first.plus(at * 8), *word));
}
