//! Keys and values, and what is computed of a key.

use twox_hash::XxHash3_64;

use crate::word::SlotWord;

/// The longest key, in bytes. A key has at least one.
pub const KEY_BYTES_MAX: usize = 1024;

/// The longest value, in bytes: 1 MiB, and 64 bytes for what a user of the store puts beside it. A
/// value may be empty.
pub const VALUE_BYTES_MAX: usize = (1 << 20) + 64;

/// Seeds the hash that says in which part of a store a key is: any other one than places it there.
const PART_SEED: u64 = 0x7061_7274;

/// In which part of a store a key is, counted from 0, where the store has so many.
///
/// # Panics
/// If it has none.
#[inline]
pub fn part_of(key: &[u8], parts: usize) -> usize {
    assert!(parts >= 1, "a store has a part at least");
    let hash = XxHash3_64::oneshot_with_seed(PART_SEED, key);
    // hash / 2^64 of the parts
    ((u128::from(hash) * parts as u128) >> u64::BITS) as usize
}

/// A key that was checked, and its hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key<'a> {
    bytes: &'a [u8],
    hash: u64,
}

impl<'a> Key<'a> {
    /// `None` if it is empty or too long.
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Self> {
        let fits = (1..=KEY_BYTES_MAX).contains(&bytes.len());
        fits.then(|| Self { bytes, hash: XxHash3_64::oneshot(bytes) })
    }

    /// Its bytes, 1 to [`KEY_BYTES_MAX`].
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// 64 bits of it.
    #[inline]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// What of the hash stands in a slot. No index places a key by these bits.
    #[inline]
    pub(crate) fn fingerprint(&self) -> u64 {
        self.hash >> (u64::BITS - SlotWord::FINGERPRINT.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is stored stays where it is: another hash would not find it.
    #[test]
    fn each_key_has_its_part_for_good() {
        let keys: Vec<String> = (0..3_000).map(|number| format!("user{number}")).collect();
        let parts_of = |parts| keys.iter().map(move |key| part_of(key.as_bytes(), parts));
        assert!(parts_of(1).all(|part| part == 0));
        for parts in [2, 3, 7] {
            let mut counts = vec![0_usize; parts];
            parts_of(parts).for_each(|part| counts[part] += 1);
            let fair = keys.len() / parts;
            assert!(counts.iter().all(|count| count.abs_diff(fair) < fair / 4), "{counts:?}");
        }
        let first: Vec<usize> = parts_of(5).take(8).collect();
        assert_eq!(first, [2, 1, 3, 1, 4, 0, 3, 3]);
    }
}
