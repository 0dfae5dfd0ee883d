//! RACE with buckets of one slot, so that a table is small enough for every schedule of its growth.
//!
//! ```text
//! group    main 0 | overflow | main 1      1 slot each
//! ```
//!
//! Where a key may be its first two bytes say, which stand for the two hashes of RACE: of a level
//! with `2^n` main buckets their `n` highest bits.

use farlock_kv::Index;
use farlock_kv::index::{Bucket, Buckets, Growth, Key};

/// Slots of a group.
const GROUP: u64 = 3;

#[derive(Clone, Copy, Debug)]
pub struct Narrow;

impl Narrow {
    /// The main bucket that a byte says, and the overflow bucket beside it.
    fn bucket(byte: u8, level: u32) -> Bucket {
        let main = u64::from(byte) >> 7_u32.saturating_sub(level);
        let (group, odd) = (main / 2, main % 2);
        Bucket { offset: (group * GROUP + odd) * 8, slots: 2, shared: (1 - odd as u16, 1) }
    }

    fn heirs(slot: usize) -> [usize; 2] {
        [[0, 2], [1, 4], [3, 5]][slot]
    }
}

impl Index for Narrow {
    const OWN_SLOTS: bool = false;
    const GROWTH: Option<Growth> = Some(Growth { group: GROUP as usize, heirs: Self::heirs });

    fn tag(&self) -> u64 {
        4
    }

    fn bytes(&self) -> u64 {
        GROUP * 8
    }

    fn buckets(&self, key: &Key<'_>, level: u32) -> Option<Buckets> {
        let [one, other] = [0, 1].map(|at| key.bytes().get(at).copied());
        let (one, other) = (Self::bucket(one?, level), Self::bucket(other?, level));
        let (first, last) = (one.offset.min(other.offset), one.offset.max(other.offset));
        if first == last {
            return Some([one].into_iter().collect());
        }
        if last == first + 8 && first % (GROUP * 8) == 0 {
            let all = Bucket { offset: first, slots: GROUP as u16, shared: (1, 1) };
            return Some([all].into_iter().collect());
        }
        Some([one, other].into_iter().collect())
    }
}

/// The smallest index that grows: a group is one bucket, of two slots, which the first byte of a
/// key says.
#[derive(Clone, Copy, Debug)]
pub struct Thin;

impl Index for Thin {
    const OWN_SLOTS: bool = false;
    const GROWTH: Option<Growth> = Some(Growth { group: 2, heirs: |slot| [slot, slot + 2] });

    fn tag(&self) -> u64 {
        5
    }

    fn bytes(&self) -> u64 {
        16
    }

    fn buckets(&self, key: &Key<'_>, level: u32) -> Option<Buckets> {
        let places = u64::from(*key.bytes().first()?) << level;
        let group = places >> u8::BITS;
        Some([Bucket { offset: group * 16, slots: 2, shared: (0, 0) }].into_iter().collect())
    }
}

/// Ends the name of a key that has the fingerprint of another one.
const TWIN: u16 = 880;

/// The name of a key: where it may be, and the key itself. The first three may be in each slot of
/// level 0. Above it the second may be where the first is not; and the third has the fingerprint of
/// the first, and its slots.
pub fn name(key: u64) -> Vec<u8> {
    let byte = |bits: u64| ((bits * 0x9d) >> 2) as u8;
    let (places, suffix) = match key {
        0 => ([0x00, 0x80], 0),
        1 => ([0x80, 0xc0], 0),
        2 => ([0x00, 0x80], TWIN),
        3 => ([0x00, 0x00], 0),
        _ => ([byte(key), byte(key + 3)], 0),
    };
    [&places[..], &(key as u32).to_le_bytes(), &u16::to_le_bytes(suffix)].concat()
}
