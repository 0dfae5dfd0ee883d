//! Where the locks of a scenario lie, and what they protect.

use farlock_fabric::Addr;

/// From one lock's word to the next, in bytes.
const LOCK_BYTES: u64 = 128;
/// What a lock protects, in bytes after its word: two words.
const PROTECTED: u64 = 64;

/// The locks of a scenario, one behind the other in a region of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    first: Addr,
    locks: u16,
    /// The locks of a scenario are units of one that is had in parts.
    in_parts: bool,
}

impl Layout {
    /// How large a region so many locks need, in bytes.
    pub fn bytes(locks: u16) -> u64 {
        LOCK_BYTES * u64::from(locks)
    }

    /// So many locks in the region that begins there.
    pub fn new(first: Addr, locks: u16, in_parts: bool) -> Self {
        Self { first, locks, in_parts }
    }

    /// Whether its locks are units of one.
    pub fn is_in_parts(self) -> bool {
        self.in_parts && self.locks > 1
    }

    /// Their numbers.
    pub fn locks(self) -> std::ops::Range<usize> {
        0..usize::from(self.locks)
    }

    /// The word of a lock.
    pub fn word(self, at: usize) -> Addr {
        if self.in_parts { self.first } else { self.place_of(at) }
    }

    fn place_of(self, at: usize) -> Addr {
        self.first.plus(LOCK_BYTES * at as u64)
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
        let is_here = addr.region() == self.first.region() && offset < Self::bytes(self.locks);
        is_here.then_some(((offset / LOCK_BYTES) as usize, offset % LOCK_BYTES))
    }

    /// What such a place is called.
    pub fn name(self, (at, offset): (usize, u64)) -> String {
        let lock = if self.locks == 1 { "lock".to_owned() } else { format!("lock {at}") };
        if offset == 0 { lock } else { format!("{lock}+{offset}") }
    }

    /// Whether so many bytes after a lock's word is what it protects.
    pub fn is_protected(offset: u64) -> bool {
        offset >= PROTECTED
    }

    /// The lock whose word this is the address of.
    pub fn lock(self, addr: Addr) -> Option<usize> {
        self.place(addr).filter(|&(_, offset)| offset == 0).map(|(at, _)| at)
    }
}
