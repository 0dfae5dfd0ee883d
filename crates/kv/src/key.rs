//! Keys and values, and what is computed of a key.

use twox_hash::XxHash3_64;

use crate::word::SlotWord;

/// The longest key, in bytes. A key has at least one.
pub const KEY_BYTES_MAX: usize = 1024;

/// The longest value, in bytes: 1 MiB, and 64 bytes for what a user of the store puts beside it. A
/// value may be empty.
pub const VALUE_BYTES_MAX: usize = (1 << 20) + 64;

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
