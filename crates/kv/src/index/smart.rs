//! SMART: an adaptive radix tree on far memory (Luo et al., SMART, OSDI'23), whose nodes lie among
//! the blocks of the store.
//!
//! ```text
//! table    one slot: what stands at the root
//! slot     nothing | the block of a key | a node
//! node     the bytes that all its keys begin with, and slots by what comes next:
//!          1 line    7 slots
//!          4 lines   7 slots each; what comes next says by its number in which line
//!          16 lines  the same
//!          or        257 slots, one for each byte and one for the key that ends here
//! line     which of its slots is whose, 7 times 9 bits, and whether it is frozen | 7 slots
//! ```
//!
//! A slot that was given to a byte is that byte's as long as the node lives. So two clients that
//! insert keys with the same next byte compare the same slot, and at most one succeeds: no
//! insertion is announced. A line has one word that gives its slots away, and so the kinds are
//! what lines can be put together to: 7, 28 and 112 slots, and all of them, where the published
//! tree has 4, 16, 48 and 256. A reader of a node reads one line.
//!
//! A node is replaced by one of the next kind when a line of it is full, never by one of its own
//! kind: what is replaced does not come back as memory (a compare that is served late may still be
//! on its way to one of its slots), and so keys that come and go would otherwise use it up.
//!
//! Here nodes change by single compares, and any client finishes what another one began.

use super::slots::{Bucket, Buckets, Growth, Index, Ordered};
use crate::key::Key;

/// The tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Smart {
    places: usize,
}

impl Smart {
    /// The tree as it is meant.
    pub const fn new() -> Self {
        Self::with_places(7)
    }

    /// A tree that uses only so many slots of a line: full and deep with few keys, for tests.
    ///
    /// # Panics
    /// If they are none, or more than 7.
    pub const fn with_places(places: usize) -> Self {
        assert!(places >= 1 && places <= 7, "a line has 1 to 7 slots");
        Self { places }
    }
}

impl Default for Smart {
    fn default() -> Self {
        Self::new()
    }
}

impl Index for Smart {
    const OWN_SLOTS: bool = true;
    const GROWTH: Option<Growth> = None;
    const TREE: bool = true;

    fn places(&self) -> usize {
        self.places
    }

    fn tag(&self) -> u64 {
        3 | (self.places as u64) << 8
    }

    fn bytes(&self) -> u64 {
        8
    }

    fn buckets(&self, _key: &Key<'_>, level: u32) -> Option<Buckets> {
        let root = Bucket { offset: 0, slots: 1, shared: (0, 0) };
        (level == 0).then(|| [root].into_iter().collect())
    }
}

impl Ordered for Smart {}
