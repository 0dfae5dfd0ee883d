//! Blocks: a key and its value as they lie in far memory.
//!
//! ```text
//! word 0   header: generation 32, bytes of the key 11, bytes of the value 21
//! word 1   checksum over all else, and over where the block lies; of a blind write with another
//!          look
//! word 2.. the key's bytes, then the value's, then zeros up to a whole word
//! ```
//!
//! A reader cannot know what it reads: pieces of two values where the read was torn, or another
//! key's value where the block was recycled. The generation must be the one that the slot names,
//! the checksum must be right, and the key must be the one that was asked for; otherwise the slot
//! is read again.
//!
//! A *blind* write gave its key, which had a value, another one, whatever that was. Others that do
//! so at the same time may count as done right before it, so they are told.

use smallvec::SmallVec;
use twox_hash::XxHash3_64;

use crate::far;
use crate::key::Key;
use crate::size::Class;
use crate::word::Header;

/// Words before the key.
pub(crate) const HEAD_WORDS: usize = 2;

/// Bytes before the key.
const HEAD_BYTES: usize = HEAD_WORDS * 8;

/// The class of a block for such a pair.
#[inline]
pub(crate) fn class(key: &Key<'_>, value: &[u8]) -> Option<Class> {
    Class::of_bytes((HEAD_BYTES + key.bytes().len() + value.len()) as u64)
}

/// By what the checksum of a blind write differs: in half of its bits, so that no few bits that are
/// wrong make one of another.
const BLIND: u64 = 0x9e37_79b9_7f4a_7c15;

/// The words of a block with this number and generation.
#[inline]
pub(crate) fn seal(
    (number, generation): (u64, u32),
    key: &Key<'_>,
    value: &[u8],
    is_blind: bool,
) -> Vec<u64> {
    let key = key.bytes();
    let header = Header::new()
        .with(Header::GENERATION, generation.into())
        .with(Header::KEY_BYTES, key.len() as u64)
        .with(Header::VALUE_BYTES, value.len() as u64);
    let mut bytes =
        SmallVec::<[u8; 256]>::with_capacity((key.len() + value.len()).next_multiple_of(8));
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
    let sum = checksum(number, header, &bytes) ^ if is_blind { BLIND } else { 0 };
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let mut words = Vec::with_capacity(HEAD_WORDS + bytes.len() / 8);
    words.extend([header.0, sum]);
    words.extend(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)));
    words
}

/// What was in a block that is whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Opened {
    /// Which use of the block it is.
    pub(crate) generation: u32,
    /// Whether it is a blind write.
    pub(crate) is_blind: bool,
    key_bytes: usize,
    bytes: Vec<u8>,
}

impl Opened {
    /// What is read of a block with this pair; how it was written is not known.
    #[inline]
    pub(crate) fn of(generation: u32, key: &[u8], value: &[u8]) -> Self {
        let bytes = [key, value].concat();
        Self { generation, is_blind: false, key_bytes: key.len(), bytes }
    }

    /// The key's bytes.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        &self.bytes[..self.key_bytes]
    }

    /// The value's bytes.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        &self.bytes[self.key_bytes..]
    }

    /// The value's bytes, without another copy of them.
    #[inline]
    pub(crate) fn into_value(mut self) -> Vec<u8> {
        self.bytes.drain(..self.key_bytes);
        self.bytes
    }
}

/// Reads the words of the block with this number. `None` if they are no whole block: torn, being
/// written, or never written. `trusts` accepts a wrong checksum, which only a planted bug does.
#[inline]
pub(crate) fn open(number: u64, words: &[u64], trusts: bool) -> Option<Opened> {
    let (head, payload) = words.split_at_checked(HEAD_WORDS)?;
    let header = Header(head[0]);
    let key_bytes = header.key_bytes() as usize;
    let length = key_bytes + header.value_bytes() as usize;
    let payload = payload.get(..length.div_ceil(8))?;
    let mut bytes = far::zeros(payload.len() * 8);
    let (places, _) = bytes.as_chunks_mut();
    places.iter_mut().zip(payload).for_each(|(place, word)| *place = word.to_le_bytes());
    bytes.truncate(length);
    let differs = checksum(number, header, &bytes) ^ head[1];
    if key_bytes == 0 || !trusts && ![0, BLIND].contains(&differs) {
        return None;
    }
    let (generation, is_blind) = (header.generation() as u32, differs == BLIND);
    Some(Opened { generation, is_blind, key_bytes, bytes })
}

/// XXH3 over the payload, seeded with the header and with where the block lies.
#[inline]
fn checksum(number: u64, header: Header, payload: &[u8]) -> u64 {
    let place = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    XxHash3_64::oneshot_with_seed(header.0 ^ place, payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &[u8]) -> Key<'_> {
        Key::new(bytes).expect("a key")
    }

    #[test]
    fn pairs_of_every_length_come_back() {
        for (key_bytes, value_bytes) in [(1, 0), (8, 8), (8, 64), (13, 7), (1024, 1 << 20)] {
            let (name, value) = (vec![7; key_bytes], vec![9; value_bytes]);
            let is_blind = key_bytes == 8;
            let words = seal((5, 77), &key(&name), &value, is_blind);
            assert!(words.len() <= class(&key(&name), &value).expect("it fits").words());
            let opened = open(5, &words, false).expect("it is whole");
            assert_eq!((opened.generation, opened.key()), (77, &name[..]));
            assert_eq!(opened.is_blind, is_blind);
            assert_eq!(opened.value(), value);
        }
    }

    #[test]
    fn whatever_word_is_of_another_block_is_noticed() {
        let one = seal((5, 3), &key(b"key"), &[1; 40], false);
        let other = seal((5, 4), &key(b"key"), &[2; 40], true);
        for at in 0..one.len() {
            let mut torn = one.clone();
            torn[at] = other[at];
            let differs = torn != one;
            assert_eq!(open(5, &torn, false).is_none(), differs, "word {at}");
            assert_eq!(open(6, &torn, false), None, "the block lies elsewhere");
        }
        for bit in 0..one.len() * 64 {
            let mut flipped = one.clone();
            flipped[bit / 64] ^= 1 << (bit % 64);
            let padding = bit >= HEAD_WORDS * 64 + 43 * 8;
            assert_eq!(open(5, &flipped, false).is_some(), padding, "bit {bit}");
        }
        assert_eq!(open(5, &one[..4], false), None, "it is longer than its class");
        assert_eq!(open(0, &[0; 8], false), None, "never written");
    }
}
