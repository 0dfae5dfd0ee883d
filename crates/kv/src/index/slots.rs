//! What an index says of a key: which slots it may have.

use smallvec::SmallVec;

use crate::key::Key;

/// Slots that lie side by side, any of which a key may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// The first, in bytes from the start of the table.
    pub offset: u64,
    /// How many, 1 to 512.
    pub slots: u16,
    /// Of those, the first that is shared with another bucket, and how many are: they are taken
    /// when all others are.
    pub shared: (u16, u16),
}

/// The buckets of a key.
pub type Buckets = SmallVec<[Bucket; 2]>;

/// How an index grows: each level has twice the groups of the one before, and each slot has two
/// heirs there. A key that is in a slot moves to one of them, and no other slot has these heirs.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// Slots of a group, 1 to 256. Group `g` moves to the groups `2g` and `2g + 1`.
    pub group: usize,
    /// The heirs of a slot of a group, counted from the first slot of the two groups.
    pub heirs: fn(usize) -> [usize; 2],
}

/// An index whose keys have an order: that of their bytes.
pub trait Ordered: Index {}

/// An index: tables that are all slots, and which of them a key may have. What stands in them, and
/// how that changes, is the store's.
pub trait Index {
    /// Whether every slot is one key's alone. Otherwise an insertion has to make sure that no other
    /// inserts the same key elsewhere.
    const OWN_SLOTS: bool;

    /// How it grows; `None` if it keeps its size.
    const GROWTH: Option<Growth>;

    /// Whether it is a tree: then its table is the slot of the root, and the slot of a key is in a
    /// node that lies among the blocks.
    const TREE: bool = false;

    /// Of a tree: how many slots of a line of a node are used, 1 to 7.
    fn places(&self) -> usize {
        0
    }

    /// Names the kind and what it depends on, in [`Shape::TAG_BITS`](crate::Shape::TAG_BITS): a
    /// client with another index is refused.
    fn tag(&self) -> u64;

    /// Bytes of the table of level 0: all slots that there are when it is created.
    fn bytes(&self) -> u64;

    /// Where the key may be in the table of a level, in the same order for every client; `None` if
    /// it can be nowhere. Of the heirs of these slots one at least is the key's at the next level,
    /// and its slots there are heirs of these.
    fn buckets(&self, key: &Key<'_>, level: u32) -> Option<Buckets>;
}
