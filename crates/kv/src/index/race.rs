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
//! it: two reads of 128 bytes, one round trip.
//!
//! The paper's table grows by subtables, of which a directory knows, and one client at a time
//! splits one, under a lock. Here a whole level has twice the groups of the one before. A choice is
//! the high bits of a hash times the number of buckets, so bucket `m` of a level is `2m` or
//! `2m + 1` of the next, and both lie in group `m`. The overflow bucket of group `g` becomes those
//! of the groups `2g` and `2g + 1`. A slot keeps its place in its bucket.

use super::slots::{Bucket, Buckets, Growth, Index};
use crate::key::Key;

/// Slots of a bucket.
const SLOTS: u16 = 8;

/// Buckets in groups of three.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Race {
    groups: u64,
}

impl Race {
    /// Bytes of a group of three buckets.
    pub const GROUP_BYTES: u64 = 3 * SLOTS as u64 * 8;

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

    /// One of the main buckets of a level, by a number that is drawn. Of twice as many it is one of
    /// the two that are this one's.
    fn choice(&self, drawn: u32, level: u32) -> u64 {
        // drawn / 2^32 of groups * 2 * 2^level
        (u64::from(drawn) * self.groups) >> (31 - level)
    }

    /// The heirs of a slot of a group.
    fn heirs(slot: usize) -> [usize; 2] {
        const BUCKET: usize = SLOTS as usize;
        match slot / BUCKET {
            0 => [slot, slot + 2 * BUCKET],
            1 => [slot, slot + 3 * BUCKET],
            _ => [slot + BUCKET, slot + 3 * BUCKET],
        }
    }

    fn bucket(main: u64) -> Bucket {
        let (group, odd) = (main / 2, main % 2);
        let first = group * Self::GROUP_BYTES + odd * u64::from(SLOTS) * 8;
        let overflow = if odd == 0 { SLOTS } else { 0 };
        Bucket { offset: first, slots: 2 * SLOTS, shared: (overflow, SLOTS) }
    }
}

impl Index for Race {
    const OWN_SLOTS: bool = false;
    const GROWTH: Option<Growth> = Some(Growth { group: 3 * SLOTS as usize, heirs: Self::heirs });

    fn tag(&self) -> u64 {
        2
    }

    fn bytes(&self) -> u64 {
        self.groups * Self::GROUP_BYTES
    }

    fn buckets(&self, key: &Key<'_>, level: u32) -> Option<Buckets> {
        // The highest byte of the hash is the fingerprint, and should not tell the bucket too.
        let mixed = key.hash().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = mixed ^ mixed >> 32;
        let one = self.choice(mixed as u32, level);
        let other = self.choice((mixed >> 32) as u32, level);
        if one == other {
            return Some([Self::bucket(one)].into_iter().collect());
        }
        if one / 2 == other / 2 {
            // The whole group, read once.
            let offset = one / 2 * Self::GROUP_BYTES;
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
        for (groups, level) in [(1, 0), (2, 0), (7, 0), (1000, 0), (1, 10), (7, 3)] {
            let race = Race::new(groups);
            let bytes = race.bytes() << level;
            let mut mains = BTreeSet::new();
            for number in 0_u64..20_000 {
                let name = number.to_le_bytes();
                let key = Key::new(&name).expect("a key");
                let buckets = race.buckets(&key, level).expect("every key has some");
                let mut slots = BTreeSet::new();
                for bucket in &buckets {
                    for slot in 0..bucket.slots {
                        let offset = bucket.offset + u64::from(slot) * 8;
                        assert!(offset < bytes);
                        assert!(slots.insert(offset), "a slot twice");
                    }
                    assert!(bucket.shared.0 + bucket.shared.1 <= bucket.slots);
                    mains.insert(bucket.offset);
                }
            }
            assert!(mains.len() as u64 >= groups << level, "{} of {groups}", mains.len());
        }
    }
    #[test]
    fn the_slots_of_a_key_at_one_level_are_heirs_of_its_slots_at_the_level_before() {
        const GROUP: u64 = 3 * SLOTS as u64;
        let slots = |race: &Race, key: &Key<'_>, level: u32| -> BTreeSet<u64> {
            let buckets = race.buckets(key, level).expect("every key has some");
            let of =
                |bucket: &Bucket| bucket.offset / 8..bucket.offset / 8 + u64::from(bucket.slots);
            buckets.iter().flat_map(of).collect()
        };
        let heirs = |slot: u64| {
            let first = slot / GROUP * 2 * GROUP;
            Race::heirs((slot % GROUP) as usize).map(|heir| first + heir as u64)
        };
        for (groups, number) in
            [1, 2, 3, 7, 1000].into_iter().flat_map(|g| (0..500).map(move |n| (g, n)))
        {
            let (race, name) = (Race::new(groups), u64::to_le_bytes(number));
            let key = Key::new(&name).expect("a key");
            for level in 0..12 {
                let (old, new) = (slots(&race, &key, level), slots(&race, &key, level + 1));
                let inherited: BTreeSet<u64> = old.iter().flat_map(|&slot| heirs(slot)).collect();
                assert!(new.is_subset(&inherited), "{groups} groups, key {number}, level {level}");
                let is_inherited = |&slot: &u64| heirs(slot).iter().any(|heir| new.contains(heir));
                assert!(
                    old.iter().all(is_inherited),
                    "{groups} groups, key {number}, level {level}"
                );
            }
        }
    }

    #[test]
    fn every_slot_of_the_next_level_is_the_heir_of_one() {
        let mut heirs: Vec<usize> = (0..24).flat_map(Race::heirs).collect();
        heirs.sort_unstable();
        assert_eq!(heirs, (0..48).collect::<Vec<usize>>());
    }
}
