//! What an index says of a key: which slots it may have.

use smallvec::SmallVec;

use crate::key::Key;

/// Slots that lie side by side, any of which a key may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// The first, in bytes from the start of the index.
    pub offset: u64,
    /// How many, 1 to 512.
    pub slots: u16,
    /// Of those, the first that is shared with another bucket, and how many are: they are taken
    /// when all others are.
    pub shared: (u16, u16),
}

/// The buckets of a key.
pub type Buckets = SmallVec<[Bucket; 2]>;

/// An index: memory that is all slots, and which of them a key may have. What stands in them, and
/// how that changes, is the store's.
pub trait Index {
    /// Whether every slot is one key's alone. Otherwise an insertion has to make sure that no other
    /// inserts the same key elsewhere.
    const OWN_SLOTS: bool;

    /// Names the kind and what it depends on: a client with another index is refused.
    fn tag(&self) -> u64;

    /// Bytes of all slots.
    fn bytes(&self) -> u64;

    /// Where the key may be, in the same order for every client; `None` if it can be nowhere.
    fn buckets(&self, key: &Key<'_>) -> Option<Buckets>;
}
