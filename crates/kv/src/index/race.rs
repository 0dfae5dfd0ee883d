//! RACE's buckets: two choices, each beside a bucket of overflow (Zuo et al., One-sided
//! RDMA-Conscious Extendible Hashing for Disaggregated Memory, ATC'21, section 3.2).
//!
//! ```text
//! group    main 0 | overflow | main 1      8 slots each
//!          └── even choice ──┘
//!                  └── odd choice ──┘
//! ```
//!
//! Two hashes of a key choose a main bucket each, and with each comes the overflow bucket beside
//! it: two reads of 128 bytes, one round trip. The table keeps its size: it is one subtable of the
//! paper's, without a directory.

use super::slots::{Bucket, Buckets, Index};
use crate::key::Key;

/// Slots of a bucket.
const SLOTS: u16 = 8;

/// Bytes of a group of three buckets.
const GROUP_BYTES: u64 = 3 * SLOTS as u64 * 8;

/// Buckets in groups of three.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Race {
    groups: u64,
}

impl Race {
    /// With so many groups, 24 slots each.
    ///
    /// # Panics
    /// If there are none, or more than 2^32.
    pub const fn new(groups: u64) -> Self {
        assert!(groups >= 1 && groups <= 1 << 32, "a table has 1 to 2^32 groups");
        Self { groups }
    }

    /// A table for so many keys, of which the slots are then four fifths full.
    pub const fn for_keys(keys: u64) -> Self {
        let slots = keys + keys / 4 + 1;
        Self::new(slots.div_ceil(3 * SLOTS as u64))
    }

    /// One of the two buckets beside an overflow bucket, as a number that is drawn.
    fn choice(&self, drawn: u32) -> u64 {
        (u64::from(drawn) * self.groups * 2) >> 32
    }

    fn bucket(main: u64) -> Bucket {
        let (group, odd) = (main / 2, main % 2);
        let first = group * GROUP_BYTES + odd * u64::from(SLOTS) * 8;
        let overflow = if odd == 0 { SLOTS } else { 0 };
        Bucket { offset: first, slots: 2 * SLOTS, shared: (overflow, SLOTS) }
    }
}

impl Index for Race {
    const OWN_SLOTS: bool = false;

    fn tag(&self) -> u64 {
        2
    }

    fn bytes(&self) -> u64 {
        self.groups * GROUP_BYTES
    }

    fn buckets(&self, key: &Key<'_>) -> Option<Buckets> {
        // The highest byte of the hash is the fingerprint, and should not tell the bucket too.
        let mixed = key.hash().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = mixed ^ mixed >> 32;
        let (one, other) = (self.choice(mixed as u32), self.choice((mixed >> 32) as u32));
        if one / 2 == other / 2 {
            // The whole group, read once.
            let offset = one / 2 * GROUP_BYTES;
            let all = Bucket { offset, slots: 3 * SLOTS, shared: (SLOTS, SLOTS) };
            return Some([all].into_iter().collect());
        }
        Some([Self::bucket(one), Self::bucket(other)].into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn buckets_lie_in_the_table_and_share_no_slot() {
        for groups in [1, 2, 7, 1000] {
            let race = Race::new(groups);
            let mut mains = BTreeSet::new();
            for number in 0_u64..20_000 {
                let name = number.to_le_bytes();
                let key = Key::new(&name).expect("a key");
                let buckets = race.buckets(&key).expect("every key has some");
                let mut slots = BTreeSet::new();
                for bucket in &buckets {
                    for slot in 0..bucket.slots {
                        let offset = bucket.offset + u64::from(slot) * 8;
                        assert!(offset < race.bytes());
                        assert!(slots.insert(offset), "a slot twice");
                    }
                    assert!(bucket.shared.0 + bucket.shared.1 <= bucket.slots);
                    mains.insert(bucket.offset);
                }
            }
            assert!(mains.len() as u64 >= groups, "{} of {groups}", mains.len());
        }
    }
}
