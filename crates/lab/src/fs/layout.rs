//! Where a file system lies: inodes and locks on the node of metadata, blocks on those of data.
//!
//! ```text
//! metadata   inode 0 | inode 1 | ...  lock 0 | lock 1 | ...
//! inode      name (16 bytes) | size (8 bytes) | nothing (40 bytes)
//! data       blocks of file 0 | blocks of file 1 | ...       on each node
//! ```
//!
//! Block `b` of file `f` lies on data node `(f + b) mod nodes`. Each file has the same room,
//! whatever its size, so where a block lies is computed, and none is allocated. Bytes of a file
//! beyond its size are zero.

use std::ops::Range;

use farlock_fabric::{Addr, WORDS_MAX};

/// Bytes of a word.
pub(super) const WORD: u64 = 8;
/// Bytes of a block: what the longest verb carries.
pub const BLOCK_BYTES: u64 = WORDS_MAX as u64 * WORD;
/// Bytes of an inode: a line.
const INODE_BYTES: u64 = 64;
/// Where the size lies in it, behind the name.
const SIZE_OFFSET: u64 = 16;
/// Bytes on whose multiples locks begin.
const LOCK_ALIGN: u64 = 64;

/// How large a file system is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// How many files it has room for.
    pub files: u32,
    /// Bytes that each has room for.
    pub file_bytes: u64,
    /// Bytes of a file's lock.
    pub lock_bytes: u64,
    /// Bytes of a file that one unit of its lock stands for.
    pub unit: u64,
}

/// Where everything lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    shape: Shape,
    metadata: Addr,
    data: Vec<Addr>,
}

/// Words of a file that lie together, in one block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// On which data node.
    pub(super) node: usize,
    /// Where.
    pub(super) addr: Addr,
    /// Which words of the file.
    pub(super) words: Range<u64>,
}

impl Shape {
    /// Bytes on the node of metadata.
    pub const fn metadata_bytes(&self) -> u64 {
        self.files as u64 * (INODE_BYTES + self.lock_stride())
    }

    /// Bytes on each of so many data nodes.
    pub const fn data_bytes(&self, nodes: u64) -> u64 {
        self.files as u64 * self.blocks_each(nodes) * BLOCK_BYTES
    }

    /// Units of a file's lock.
    pub const fn units(&self) -> u64 {
        self.file_bytes.div_ceil(self.unit)
    }

    const fn lock_stride(&self) -> u64 {
        self.lock_bytes.next_multiple_of(LOCK_ALIGN)
    }

    /// Blocks of a file on each data node.
    const fn blocks_each(&self, nodes: u64) -> u64 {
        self.file_bytes.div_ceil(BLOCK_BYTES).div_ceil(nodes)
    }
}

impl Layout {
    /// A file system of this shape in zeroed memory: inodes and locks from `metadata` on, blocks
    /// from each address of `data` on, a data node each.
    ///
    /// # Panics
    /// If there is no data node.
    pub fn new(shape: Shape, metadata: Addr, data: Vec<Addr>) -> Self {
        assert!(!data.is_empty(), "blocks lie on data nodes");
        Self { shape, metadata, data }
    }

    /// How large it is.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The 16-byte word of an inode that is the file's name.
    pub(super) fn name(&self, file: u32) -> Addr {
        self.metadata.plus(u64::from(file) * INODE_BYTES)
    }

    /// The word of an inode that is the file's size, in bytes.
    pub(super) fn size(&self, file: u32) -> Addr {
        self.name(file).plus(SIZE_OFFSET)
    }

    /// A file's lock.
    pub(super) fn lock(&self, file: u32) -> Addr {
        let inodes = u64::from(self.shape.files) * INODE_BYTES;
        self.metadata.plus(inodes + u64::from(file) * self.shape.lock_stride())
    }

    /// These words of a file, block by block.
    pub(super) fn pieces(&self, file: u32, words: Range<u64>) -> impl Iterator<Item = Piece> {
        const EACH: u64 = WORDS_MAX as u64;
        let blocks = words.start / EACH..words.end.div_ceil(EACH);
        blocks.map(move |block| {
            let start = words.start.max(block * EACH);
            let end = words.end.min((block + 1) * EACH);
            let (node, first) = self.block(file, block);
            Piece { node, addr: first.plus((start - block * EACH) * WORD), words: start..end }
        })
    }

    /// On which node a block of a file lies, and where.
    fn block(&self, file: u32, block: u64) -> (usize, Addr) {
        let (file, nodes) = (u64::from(file), self.data.len() as u64);
        let node = ((file + block) % nodes) as usize;
        let number = file * self.shape.blocks_each(nodes) + block / nodes;
        (node, self.data[node].plus(number * BLOCK_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use farlock_fabric::RegionId;

    use super::*;

    const SHAPE: Shape =
        Shape { files: 3, file_bytes: 10 * BLOCK_BYTES, lock_bytes: 40, unit: 512 };

    fn layout() -> Layout {
        let at = |region| Addr::new(RegionId(region), 0);
        Layout::new(SHAPE, at(1), vec![at(2), at(3)])
    }

    #[test]
    fn blocks_of_files_lie_apart_within_their_nodes() {
        let layout = layout();
        let mut seen = BTreeSet::new();
        for (file, block) in (0..3).flat_map(|file| (0..10).map(move |block| (file, block))) {
            let (node, addr) = layout.block(file, block);
            assert_eq!(addr.region(), layout.data[node].region());
            assert!(addr.offset() + BLOCK_BYTES <= SHAPE.data_bytes(2));
            assert!(seen.insert(addr), "block {block} of file {file}");
        }
        assert_eq!(seen.len() as u64 * BLOCK_BYTES, 2 * SHAPE.data_bytes(2));
    }

    #[test]
    fn pieces_end_where_blocks_do() {
        let each = WORDS_MAX as u64;
        let pieces: Vec<Piece> = layout().pieces(1, each - 1..2 * each + 2).collect();
        let words: Vec<_> = pieces.iter().map(|piece| piece.words.clone()).collect();
        assert_eq!(words, [each - 1..each, each..2 * each, 2 * each..2 * each + 2]);
        assert_eq!([pieces[0].node, pieces[1].node, pieces[2].node], [1, 0, 1]);
        assert_eq!(pieces[0].addr.offset() % BLOCK_BYTES, BLOCK_BYTES - 8);
    }

    #[test]
    fn inodes_and_locks_lie_apart() {
        let layout = layout();
        assert!(layout.size(2).offset() < layout.lock(0).offset());
        assert_eq!(layout.lock(2).offset() + 64, SHAPE.metadata_bytes());
        assert_eq!(SHAPE.units(), 80);
    }
}
