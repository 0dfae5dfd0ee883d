//! The pointer array: a slot for each number below its length (CIDER, section 2.2).

use super::slots::{Bucket, Buckets, Growth, Index};
use crate::key::Key;

/// Keys are numbers, of 8 bytes, the lowest first; each has a slot of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PointerArray {
    length: u64,
}

impl PointerArray {
    /// For keys below `length`.
    pub const fn new(length: u64) -> Self {
        Self { length }
    }
}

impl Index for PointerArray {
    const OWN_SLOTS: bool = true;
    const GROWTH: Option<Growth> = None;

    fn tag(&self) -> u64 {
        1
    }

    fn bytes(&self) -> u64 {
        self.length * 8
    }

    fn buckets(&self, key: &Key<'_>, _level: u32) -> Option<Buckets> {
        let number = u64::from_le_bytes(key.bytes().try_into().ok()?);
        let bucket = Bucket { offset: number.checked_mul(8)?, slots: 1, shared: (0, 0) };
        (number < self.length).then(|| [bucket].into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_number_below_the_length() {
        let array = PointerArray::new(3);
        let buckets = |bytes: &[u8]| array.buckets(&Key::new(bytes).expect("a key"), 0);
        let slot = |number: u64| buckets(&number.to_le_bytes()).map(|buckets| buckets[0].offset);
        assert_eq!([slot(0), slot(2), slot(3), slot(u64::MAX)], [Some(0), Some(16), None, None]);
        assert_eq!(buckets(b"abc"), None);
    }
}
