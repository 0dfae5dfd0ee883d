//! Size classes: by 8 bytes up to 96, then about four to each doubling, up to what the largest pair
//! needs.
//!
//! Most stores have many small pairs and few large ones, so the small classes are close: a key of 8
//! bytes with a value of 64 takes 88 and not 96.

/// Bytes of a unit: blocks stand on such boundaries, and slots count in them.
pub(crate) const UNIT_BYTES: u64 = 8;

/// How many classes there are: a slot has six bits for them, of which it needs three numbers.
const CLASSES: usize = 61;

/// Bytes of a block of the smallest class.
const FIRST_BYTES: u64 = 32;

/// Up to this size each class is a unit larger than the one before.
const CLOSE_BYTES: u64 = 96;

/// The largest classes. A chunk of 2 MiB, which counts frees too, has room for three of these
/// blocks, two and one: for as many as if they had 512, 768 and 1,024 KiB.
const LAST_BYTES: [u64; 3] = [640 << 10, 896 << 10, 1280 << 10];

/// Bytes of a block, by class.
const BYTES: [u64; CLASSES] = {
    let mut sizes = [0; CLASSES];
    let (mut at, mut bytes) = (0, FIRST_BYTES);
    while at < CLASSES - LAST_BYTES.len() {
        sizes[at] = bytes;
        bytes += if bytes < CLOSE_BYTES { UNIT_BYTES } else { quarter_of_doubling(bytes) };
        at += 1;
    }
    while at < CLASSES {
        sizes[at] = LAST_BYTES[at + LAST_BYTES.len() - CLASSES];
        at += 1;
    }
    sizes
};

/// A quarter of the largest power of two that is not more than this.
#[inline]
const fn quarter_of_doubling(bytes: u64) -> u64 {
    1 << bytes.ilog2() >> 2
}

/// How large a block is. Of a block that holds more than 32 bytes less than a third is not used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Class(u8);

impl Class {
    /// The smallest class whose blocks have room for so many bytes, if there is one.
    #[inline]
    pub fn of_bytes(bytes: u64) -> Option<Self> {
        let smaller = BYTES.partition_point(|&class| class < bytes);
        Self::from_number(smaller as u64 + 1)
    }

    /// The class with this number, 1 to 61.
    #[inline]
    pub fn from_number(number: u64) -> Option<Self> {
        (1..=CLASSES as u64).contains(&number).then_some(Self(number as u8))
    }

    /// Its number: what stands in words.
    #[inline]
    pub const fn number(self) -> u64 {
        self.0 as u64
    }

    /// Bytes of a block.
    #[inline]
    pub const fn bytes(self) -> u64 {
        BYTES[self.0 as usize - 1]
    }

    /// Words of a block.
    #[inline]
    pub(crate) const fn words(self) -> usize {
        (self.bytes() / 8) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

    #[test]
    fn classes_grow_in_small_steps_and_reach_the_largest_pair() {
        assert_eq!(BYTES[..9], [32, 40, 48, 56, 64, 72, 80, 88, 96]);
        assert_eq!(BYTES[9..16], [112, 128, 160, 192, 224, 256, 320]);
        assert_eq!(BYTES[56..], [384 << 10, 448 << 10, 640 << 10, 896 << 10, 1280 << 10]);
        for pair in BYTES.windows(2) {
            assert!(pair[0] < pair[1] && pair[1] * 2 <= pair[0] * 3, "{pair:?}");
            assert!(pair[1] > 448 << 10 || pair[1] * 4 <= pair[0] * 5, "{pair:?}");
        }
        assert!(BYTES.iter().all(|bytes| bytes.is_multiple_of(UNIT_BYTES)));
        let largest = (16 + KEY_BYTES_MAX + VALUE_BYTES_MAX) as u64;
        assert!(Class::of_bytes(largest).is_some());
        assert_eq!(Class::of_bytes(BYTES[CLASSES - 1] + 1), None);
    }

    #[test]
    fn a_class_is_the_smallest_that_fits() {
        for bytes in [1, 16, 32, 33, 88, 96, 97, 1 << 20] {
            let class = Class::of_bytes(bytes).expect("so much fits");
            assert!(class.bytes() >= bytes);
            let smaller = Class::from_number(class.number() - 1);
            assert!(smaller.is_none_or(|smaller| smaller.bytes() < bytes), "{bytes}");
        }
        assert_eq!((Class::from_number(0), Class::from_number(62)), (None, None));
    }
}
