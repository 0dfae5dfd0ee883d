//! Where everything of a store lies in its region.
//!
//! ```text
//! base   header: magic, counts, the index's tag, a mark   64 bytes
//!                where the table of each level lies       224 bytes
//!                how many of its groups have moved        224 bytes
//!                locks, by which clients take turns       16 bytes a lock
//!        chunk table: a ChunkWord for each chunk          8 bytes a chunk
//!        index: slots of level 0                          as the index says
//!        chunks: how often each block was freed           8 bytes a block
//!                blocks, up to the end                    of one class in a chunk at a time
//!        or:     slots of a level above 0                 a run of chunks each
//! ```
//!
//! The words that count frees lie apart from the blocks, so that an owner learns of many by one
//! read. Once such a word is one it is never anything else, also where the chunk gets larger blocks
//! than it had, and so fewer: the blocks of which counts are in the way do not exist there. So a
//! free that is served late can at most find that it was done.

use farlock_fabric::{Addr, Endpoint, Verb};

use crate::error::OpenError;
use crate::far;
use crate::size::{Class, UNIT_BYTES};
use crate::word::SlotWord;

/// What the first word of a store is. Its last byte numbers the layout, of the blocks and of what
/// stands beside a session's values: a store of another layout is refused.
const MAGIC: u64 = u64::from_le_bytes(*b"farlkv\0\x05");

/// Words of the header that are never others; the last one is the index's tag.
const HEADER_WORDS: usize = 5;

/// Where the index's tag lies, in bytes from the base.
const TAG_AT: u64 = (HEADER_WORDS as u64 - 1) * 8;

/// Where the word lies by which the makers of stores mark one.
const MARK_AT: u64 = HEADER_WORDS as u64 * 8;

/// Everything begins on such a boundary.
const LINE_BYTES: u64 = 64;

/// How many levels an index can have, each twice as large as the one before.
pub(crate) const LEVELS: usize = 28;

/// Words of the header that speak of levels.
pub(crate) const LEVEL_WORDS: usize = 2 * LEVELS;

/// Locks by which clients take turns, and the bytes of each.
const TURNS: u64 = 256;
const TURN_BYTES: u64 = 16;

/// Where those begin.
const TURNS_AT: u64 = LINE_BYTES + LEVEL_WORDS as u64 * 8;

/// Bytes of the header.
const HEADER_BYTES: u64 = TURNS_AT + TURNS * TURN_BYTES;

/// A block, in one of its uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Block {
    /// Where it lies, in units from the start of the store.
    pub(crate) number: u64,
    pub(crate) class: Class,
    /// Which use, counted from 1, wrapping.
    pub(crate) generation: u32,
}

/// How large a store is, and where it lies. The memory is zeroed when the store is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The first byte, on a boundary of 64.
    pub base: Addr,
    /// How many chunks, at least 1.
    pub chunks: u32,
    /// Bytes of a chunk, a multiple of 64: the most that a pair can take, and what a client claims
    /// at once.
    pub chunk_bytes: u64,
    /// Bytes of the index as it is created, as [`Index::bytes`](crate::Index::bytes) says. What it
    /// grows by is taken from the chunks.
    pub index_bytes: u64,
    /// Which index it is, as [`Index::tag`](crate::Index::tag) says, in its lowest
    /// [`Shape::TAG_BITS`]. The bits above are for the maker of the store, and decided with it.
    pub index_tag: u64,
}

impl Shape {
    /// Bits of an index's tag.
    pub const TAG_BITS: u32 = 16;

    /// Bytes of it all.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.chunks_at() + u64::from(self.chunks) * self.chunk_bytes
    }

    /// Makes zeroed memory a store; one of this shape stays as it is. Of clients that do so at once
    /// the first decides which index it has, by one compare, and where the tag says how large that
    /// is, all that write the rest write the same. A crash leaves memory that is no store yet, for
    /// this index or for any, or a whole one.
    ///
    /// # Errors
    /// It has another index or shape, or a verb failed.
    ///
    /// # Panics
    /// If a bound that the fields state is broken, or blocks beyond 64 GiB would have no number.
    pub async fn create<E: Endpoint>(&self, endpoint: &E) -> Result<(), OpenError> {
        assert!(self.chunks >= 1 && self.chunk_bytes.is_multiple_of(LINE_BYTES), "{self:?}");
        assert!(self.base.offset().is_multiple_of(LINE_BYTES), "{self:?}");
        assert!(self.bytes() / UNIT_BYTES <= SlotWord::BLOCK.max(), "{self:?}");
        assert!(self.index_tag != 0, "that says that no index was chosen: {self:?}");
        if far::read_word(endpoint, self.base).await? != 0 {
            return self.check(endpoint).await;
        }
        endpoint.cas64(self.base.plus(TAG_AT), 0, self.index_tag).await?;
        if ![0, self.index_tag].contains(&(endpoint.old() as u64)) {
            return Err(OpenError::OtherShape);
        }
        let header = self.header();
        let rest = Verb::Write { addr: self.base.plus(8), data: &header[1..] };
        endpoint.verb(rest).await?;
        endpoint.verb(Verb::Write { addr: self.base, data: &header[..1] }).await?;
        Ok(())
    }

    /// The tag of the index that the store there has, or will have once it is whole, and what its
    /// maker has put above; `None`: what [`Shape::create`] is called with next decides. It is never
    /// another one later.
    ///
    /// # Errors
    /// There is something else, or a verb failed.
    pub async fn tag_at<E: Endpoint>(endpoint: &E, base: Addr) -> Result<Option<u64>, OpenError> {
        // In this order: where there is a store its tag is there.
        let magic = far::read_word(endpoint, base).await?;
        let tag = far::read_word(endpoint, base.plus(TAG_AT)).await?;
        match magic {
            0 | MAGIC => Ok((tag != 0).then_some(tag)),
            _ => Err(OpenError::OtherShape),
        }
    }

    /// Marks the store there for good, for the makers of stores. What it is marked for is said
    /// nowhere else: a crash leaves it marked or not.
    ///
    /// # Errors
    /// A verb failed.
    pub async fn mark<E: Endpoint>(endpoint: &E, base: Addr) -> Result<(), OpenError> {
        endpoint.verb(Verb::Write { addr: base.plus(MARK_AT), data: &[1] }).await?;
        Ok(())
    }

    /// Whether the store there is marked.
    ///
    /// # Errors
    /// A verb failed.
    pub async fn is_marked<E: Endpoint>(endpoint: &E, base: Addr) -> Result<bool, OpenError> {
        Ok(far::read_word(endpoint, base.plus(MARK_AT)).await? != 0)
    }

    /// Whether there is a store of this shape.
    ///
    /// # Errors
    /// There is none, or a verb failed.
    pub async fn check<E: Endpoint>(&self, endpoint: &E) -> Result<(), OpenError> {
        let found = far::read(endpoint, self.base, HEADER_WORDS).await?;
        if found[..] == self.header() { Ok(()) } else { Err(OpenError::OtherShape) }
    }

    /// The 16 bytes, zero at first, that are kept for a lock by which the writers of keys of this
    /// hash take turns: of which kind, and whether there is one, is for the maker of the store to
    /// say, and all of its clients have the same.
    #[inline]
    pub fn turn(&self, hash: u64) -> Addr {
        self.base.plus(TURNS_AT + hash % TURNS * TURN_BYTES)
    }

    /// The tag of the index alone.
    pub(crate) fn tag(&self) -> u64 {
        self.index_tag & ((1 << Self::TAG_BITS) - 1)
    }

    #[inline]
    fn header(&self) -> [u64; HEADER_WORDS] {
        let chunks = u64::from(self.chunks);
        [MAGIC, chunks, self.chunk_bytes, self.index_bytes, self.index_tag]
    }

    /// The header of a chunk.
    #[inline]
    pub(crate) fn chunk_word(&self, chunk: u32) -> Addr {
        self.base.plus(HEADER_BYTES + u64::from(chunk) * 8)
    }

    /// The words of the header that speak of levels: [`LEVELS`] that say where each table lies, its
    /// first chunk and one more, and 0 where there is none, as for level 0; then as many that say
    /// how many groups of each have moved, counted from the first.
    #[inline]
    pub(crate) fn levels(&self) -> Addr {
        self.base.plus(LINE_BYTES)
    }

    /// The word that says where the table of a level lies.
    #[inline]
    pub(crate) fn level_word(&self, level: u32) -> Addr {
        self.levels().plus(u64::from(level) * 8)
    }

    /// The word that counts the groups of a level that have moved.
    #[inline]
    pub(crate) fn moved_word(&self, level: u32) -> Addr {
        self.level_word(level + LEVELS as u32)
    }

    /// Bytes of the table of a level.
    #[inline]
    pub(crate) fn table_bytes(&self, level: u32) -> u64 {
        self.index_bytes.saturating_mul(1 << level)
    }

    /// How many chunks the table of a level takes; `None` if the store has not as many.
    #[inline]
    pub(crate) fn table_chunks(&self, level: u32) -> Option<u32> {
        let chunks = u32::try_from(self.table_bytes(level).div_ceil(self.chunk_bytes)).ok()?;
        (chunks <= self.chunks).then_some(chunks)
    }

    /// Where the table of level 0 lies.
    #[inline]
    pub(crate) fn first_table(&self) -> Addr {
        self.base.plus(self.index_at())
    }

    /// Where the table of a level above 0 lies whose word this is; `None` if it is no such word.
    #[inline]
    pub(crate) fn table(&self, level: u32, word: u64) -> Option<Addr> {
        let first = u32::try_from(word.checked_sub(1)?).ok()?;
        let end = first.checked_add(self.table_chunks(level)?)?;
        (end <= self.chunks).then(|| self.base.plus(self.chunk_at(first)))
    }

    /// The chunk of a byte of the store, which lies in one.
    #[inline]
    pub(crate) fn chunk_of(&self, addr: Addr) -> u32 {
        let offset = addr.offset() - self.base.offset() - self.chunks_at();
        u32::try_from(offset / self.chunk_bytes).expect("there are fewer than 2^32 chunks")
    }

    #[inline]
    fn index_at(&self) -> u64 {
        HEADER_BYTES + (u64::from(self.chunks) * 8).next_multiple_of(LINE_BYTES)
    }

    #[inline]
    fn chunks_at(&self) -> u64 {
        self.index_at() + self.index_bytes.next_multiple_of(LINE_BYTES)
    }

    #[inline]
    fn chunk_at(&self, chunk: u32) -> u64 {
        self.chunks_at() + u64::from(chunk) * self.chunk_bytes
    }

    /// How many chunks lie in the first so many bytes of it, whole.
    #[inline]
    pub fn chunks_in(&self, bytes: u64) -> u32 {
        let whole = bytes.saturating_sub(self.chunks_at()) / self.chunk_bytes;
        u32::try_from(whole).map_or(self.chunks, |whole| whole.min(self.chunks))
    }

    /// How many blocks of this class a chunk has that never had a smaller one.
    #[inline]
    pub fn blocks(&self, class: Class) -> u32 {
        u32::try_from(self.chunk_bytes / (class.bytes() + 8))
            .expect("a chunk has fewer than 2^32 blocks")
    }

    /// How many of these, counted from the first, do not exist in a chunk that once had blocks of
    /// the class `least`: counts of those lie there.
    #[inline]
    pub fn covered(&self, class: Class, least: Class) -> u32 {
        let counts = u64::from(self.blocks(least)) * 8;
        let covered = counts.saturating_sub(self.blocks_at(class)).div_ceil(class.bytes());
        u32::try_from(covered).map_or(u32::MAX, |covered| covered.min(self.blocks(class)))
    }

    /// Where the blocks of a chunk begin, from its start: the last one reaches to its end.
    #[inline]
    fn blocks_at(&self, class: Class) -> u64 {
        self.chunk_bytes - u64::from(self.blocks(class)) * class.bytes()
    }

    /// The `index`-th block of a chunk.
    #[inline]
    pub(crate) fn block(&self, chunk: u32, class: Class, index: u32, generation: u32) -> Block {
        let offset = self.blocks_at(class) + u64::from(index) * class.bytes();
        let number = (self.chunk_at(chunk) + offset) / UNIT_BYTES;
        Block { number, class, generation }
    }

    /// The chunk of a block and its place there; `None` if there is no such block.
    #[inline]
    pub(crate) fn place(&self, block: Block) -> Option<(u32, u32)> {
        let offset = (block.number * UNIT_BYTES).checked_sub(self.chunks_at())?;
        let chunk = u32::try_from(offset / self.chunk_bytes).ok()?;
        let within = (offset % self.chunk_bytes).checked_sub(self.blocks_at(block.class))?;
        let index = u32::try_from(within / block.class.bytes()).ok()?;
        let exists = chunk < self.chunks && index < self.blocks(block.class);
        (exists && within.is_multiple_of(block.class.bytes())).then_some((chunk, index))
    }

    /// The first word of a block.
    #[inline]
    pub(crate) fn block_addr(&self, number: u64) -> Addr {
        self.base.plus(number * UNIT_BYTES)
    }

    /// The word that counts how often a block was freed.
    #[inline]
    pub(crate) fn state_addr(&self, chunk: u32, index: u32) -> Addr {
        self.base.plus(self.chunk_at(chunk) + u64::from(index) * 8)
    }
}

#[cfg(test)]
mod tests {
    use farlock_fabric::RegionId;

    use super::*;

    #[test]
    fn blocks_do_not_touch_each_other_nor_what_counts_their_frees() {
        for chunk_bytes in [64, 128, 1024, 4096, 1 << 21] {
            let base = Addr::new(RegionId(1), 128);
            let shape = Shape { base, chunks: 3, chunk_bytes, index_bytes: 40, index_tag: 0 };
            for class in (1..=61).filter_map(Class::from_number) {
                let blocks = shape.blocks(class);
                for index in [0, 1, blocks / 2, blocks.saturating_sub(1)] {
                    if index >= blocks {
                        continue;
                    }
                    let block = shape.block(2, class, index, 1);
                    assert_eq!(shape.place(block), Some((2, index)));
                    let begin = shape.block_addr(block.number).offset();
                    let end = begin + class.bytes();
                    assert!(shape.state_addr(2, blocks - 1).offset() + 8 <= begin);
                    assert!(end <= shape.base.offset() + shape.bytes());
                    let beside = Block { number: block.number + 1, ..block };
                    assert!(shape.place(beside).is_none());
                }
            }
        }
    }

    #[test]
    fn blocks_of_another_class_do_not_lie_where_counts_once_lay() {
        let base = Addr::new(RegionId(1), 0);
        for chunk_bytes in [64, 1024, 1 << 21] {
            let shape = Shape { base, chunks: 3, chunk_bytes, index_bytes: 40, index_tag: 0 };
            let classes = || (1..=61).filter_map(Class::from_number);
            for (class, least) in classes().flat_map(|of| classes().map(move |least| (of, least))) {
                let (blocks, covered) = (shape.blocks(class), shape.covered(class, least));
                assert!(covered <= blocks && (class > least || covered == 0));
                let counts_end = |of| shape.state_addr(1, shape.blocks(of)).offset();
                let begin = |at| shape.block_addr(shape.block(1, class, at, 1).number).offset();
                assert!(covered == blocks || begin(covered) >= counts_end(least));
                assert!(covered == 0 || begin(covered - 1) < counts_end(least));
            }
        }
    }
}
