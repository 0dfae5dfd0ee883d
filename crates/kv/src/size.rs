//! Size classes: four to each doubling, from 16 bytes to what the largest pair needs.

/// Bytes of a unit: blocks stand on such boundaries, and slots count in them.
pub(crate) const UNIT_BYTES: u64 = 16;

/// How many classes there are.
const CLASSES: u8 = 61;

/// Steps to a doubling.
const STEPS: u32 = 4;

/// How large a block is. At most a quarter of a block is not used, but in the smallest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Class(u8);

impl Class {
    /// The smallest class whose blocks have room for so many bytes, if there is one.
    pub fn of_bytes(bytes: u64) -> Option<Self> {
        (1..=CLASSES).map(Self).find(|class| class.bytes() >= bytes)
    }

    /// The class with this number, 1 to 61.
    pub fn from_number(number: u64) -> Option<Self> {
        (1..=u64::from(CLASSES)).contains(&number).then_some(Self(number as u8))
    }

    /// Its number: what stands in words.
    pub const fn number(self) -> u64 {
        self.0 as u64
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> u64 {
        let step = self.0 as u32 - 1;
        let units = match step.checked_sub(STEPS) {
            None => step as u64 + 1,
            Some(above) => (STEPS as u64 + 1 + (above % STEPS) as u64) << (above / STEPS),
        };
        units * UNIT_BYTES
    }

    /// Words of a block.
    pub(crate) const fn words(self) -> usize {
        (self.bytes() / 8) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

    #[test]
    fn classes_grow_by_a_quarter_at_most_and_reach_the_largest_pair() {
        let classes: Vec<u64> = (1..=CLASSES).map(|number| Class(number).bytes()).collect();
        assert_eq!(classes[..9], [16, 32, 48, 64, 80, 96, 112, 128, 160]);
        for pair in classes.windows(2).skip(4) {
            assert!(pair[0] < pair[1] && pair[1] * 4 <= pair[0] * 5, "{pair:?}");
        }
        let largest = (16 + KEY_BYTES_MAX + VALUE_BYTES_MAX) as u64;
        assert!(Class::of_bytes(largest).is_some());
        assert_eq!(Class::of_bytes(classes[classes.len() - 1] + 1), None);
    }

    #[test]
    fn a_class_is_the_smallest_that_fits() {
        for bytes in [1, 16, 17, 88, 96, 97, 1 << 20] {
            let class = Class::of_bytes(bytes).expect("so much fits");
            assert!(class.bytes() >= bytes);
            let smaller = Class::from_number(class.number() - 1);
            assert!(smaller.is_none_or(|smaller| smaller.bytes() < bytes), "{bytes}");
        }
        assert_eq!((Class::from_number(0), Class::from_number(62)), (None, None));
    }
}
