//! Where the locks of a scenario lie, and what they protect.

use farlock_fabric::Addr;

/// From one lock's word to the next, in bytes.
const LOCK_BYTES: u64 = 128;
/// What a lock protects, in bytes after its word: two words.
const PROTECTED: u64 = 64;

/// The locks of a scenario, one behind the other in a region of their own. Or, where they are units
/// of one lock, that one, and behind it what they protect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    first: Addr,
    locks: u16,
    /// How many bytes the one lock takes, of which the locks of a scenario are units.
    parted: Option<u64>,
}

impl Layout {
    /// So many locks, in the region that is yet to begin somewhere. They are units of one lock of
    /// so many bytes, if it is `parted`.
    pub fn new(locks: u16, parted: Option<u64>) -> Self {
        let parted = parted.map(|bytes| bytes.next_multiple_of(PROTECTED));
        Self { first: Addr::from_bits(0), locks, parted }
    }

    /// The same in the region that begins there.
    pub fn at(self, first: Addr) -> Self {
        Self { first, ..self }
    }

    /// How large a region it needs, in bytes.
    pub fn bytes(self) -> u64 {
        self.parted.unwrap_or(0) + LOCK_BYTES * u64::from(self.locks)
    }

    /// Whether its locks are units of one.
    pub fn is_in_parts(self) -> bool {
        self.parted.is_some() && self.locks > 1
    }

    /// The locks that have the count of this one's word: all, where they are parts of one.
    pub fn counted_with(self, at: usize) -> std::ops::Range<usize> {
        if self.is_in_parts() { self.locks() } else { at..at + 1 }
    }

    /// Their numbers.
    pub fn locks(self) -> std::ops::Range<usize> {
        0..usize::from(self.locks)
    }

    /// The word of a lock.
    pub fn word(self, at: usize) -> Addr {
        if self.parted.is_some() { self.first } else { self.place_of(at) }
    }

    fn place_of(self, at: usize) -> Addr {
        self.first.plus(self.parted.unwrap_or(0) + LOCK_BYTES * at as u64)
    }

    /// The two words that a lock protects.
    pub fn pair(self, at: usize) -> [Addr; 2] {
        let first = self.place_of(at).plus(PROTECTED);
        [first, first.plus(8)]
    }

    /// The lock to which this address belongs, and how many bytes after its word it is; `None` if
    /// it is in another region.
    pub fn place(self, addr: Addr) -> Option<(usize, u64)> {
        let offset = addr.offset().wrapping_sub(self.first.offset());
        let is_here = addr.region() == self.first.region() && offset < self.bytes();
        let parted = self.parted.unwrap_or(0);
        is_here.then(|| match offset.checked_sub(parted) {
            None => (0, offset),
            Some(behind) => ((behind / LOCK_BYTES) as usize, parted + behind % LOCK_BYTES),
        })
    }

    /// What such a place is called.
    pub fn name(self, (at, offset): (usize, u64)) -> String {
        let lock = if self.locks == 1 { "lock".to_owned() } else { format!("lock {at}") };
        match offset {
            0 => lock,
            _ if self.is_protected(offset) => {
                let word = (offset - self.parted.unwrap_or(0) - PROTECTED) / 8;
                format!("data {word} under {lock}")
            }
            _ => format!("{lock}+{offset}"),
        }
    }

    /// Whether this is the address of a word of a lock, not of what one protects.
    pub fn is_of_lock(self, addr: Addr) -> bool {
        self.place(addr).is_some_and(|(_, offset)| !self.is_protected(offset))
    }

    /// Whether so many bytes after a lock's word is what it protects.
    pub fn is_protected(self, offset: u64) -> bool {
        offset >= self.parted.unwrap_or(0) + PROTECTED
    }

    /// The lock whose word this is the address of.
    pub fn lock(self, addr: Addr) -> Option<usize> {
        self.place(addr).filter(|&(_, offset)| offset == 0).map(|(at, _)| at)
    }
}
