//! Names of places: regions, addresses in them, endpoints, their slots and mailboxes.
//!
//! Everything here is a plain number that fits in a lock word or a message. Nothing here touches
//! memory.

use std::fmt;

/// A region of far memory. It belongs to one memory node, which alone executes its atomics.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegionId(pub u16);

/// Where a word lies: region (16 bits) and byte offset in it (48 bits). Addresses never move.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr(u64);

impl Addr {
    /// The highest offset an address can name, in bytes.
    pub const OFFSET_MAX: u64 = (1 << 48) - 1;

    /// The address `offset` bytes into `region`.
    ///
    /// # Panics
    /// If `offset` exceeds [`Addr::OFFSET_MAX`].
    #[inline]
    pub const fn new(region: RegionId, offset: u64) -> Self {
        assert!(offset <= Self::OFFSET_MAX, "an offset has 48 bits");
        Self((region.0 as u64) << 48 | offset)
    }

    /// The address that [`Addr::bits`] gave these bits. Any bits are an address; a verb checks it.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// All 64 bits, to travel in a message.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The region this address lies in.
    #[inline]
    pub const fn region(self) -> RegionId {
        RegionId((self.0 >> 48) as u16)
    }

    /// Bytes from the start of the region.
    #[inline]
    pub const fn offset(self) -> u64 {
        self.0 & Self::OFFSET_MAX
    }

    /// The address `bytes` further on in the same region.
    ///
    /// # Panics
    /// If the sum leaves the region's 48-bit space.
    #[inline]
    pub const fn plus(self, bytes: u64) -> Self {
        Self::new(self.region(), self.offset() + bytes)
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x}", self.region().0, self.offset())
    }
}

/// An endpoint: one client's connection to the fabric, used by one thread.
///
/// `index` names its place in the region's table of endpoints, 1 or higher; 0 is nobody.
/// `incarnation` tells apart successive users of one place, so a dead client's identity never
/// comes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId {
    /// The place in the table of endpoints; 0 is nobody.
    pub index: u16,
    /// Which user of that place.
    pub incarnation: u16,
}

impl EndpointId {
    /// Nobody: the value of an empty queue.
    pub const NOBODY: Self = Self { index: 0, incarnation: 0 };

    /// Packs into 32 bits, the index lowest.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.index as u64 | (self.incarnation as u64) << 16
    }

    /// The inverse of [`EndpointId::bits`]; higher bits are ignored.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u16, incarnation: (bits >> 16) as u16 }
    }

    /// Whether this names an endpoint.
    #[inline]
    pub const fn is_somebody(self) -> bool {
        self.index != 0
    }
}

impl fmt::Debug for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}.{}", self.index, self.incarnation)
    }
}

/// One of an endpoint's slots: a held or awaited lock, with a mailbox and a record of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u8);

/// Where a message goes, and what a queue's tail names: a slot of an endpoint. Fits in 40 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mailbox {
    /// Whose mailbox.
    pub endpoint: EndpointId,
    /// Which of that endpoint's slots.
    pub slot: Slot,
}

impl Mailbox {
    /// Bits in the packed form.
    pub const BITS: u32 = 40;

    /// Nobody's mailbox: zero, the value of an empty queue.
    pub const NOBODY: Self = Self { endpoint: EndpointId::NOBODY, slot: Slot(0) };

    /// Packs into 40 bits; zero means nobody.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.endpoint.bits() | (self.slot.0 as u64) << 32
    }

    /// The inverse of [`Mailbox::bits`]; higher bits are ignored.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self { endpoint: EndpointId::from_bits(bits), slot: Slot((bits >> 32) as u8) }
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{}", self.endpoint, self.slot.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_is_reversible() {
        let a = Addr::new(RegionId(7), 0x1234_5678);
        assert_eq!((a.region(), a.offset()), (RegionId(7), 0x1234_5678));
        assert_eq!(Addr::from_bits(a.bits()), a);
        let m = Mailbox {
            endpoint: EndpointId { index: 0xfffe, incarnation: 0xabcd },
            slot: Slot(0xee),
        };
        assert_eq!(Mailbox::from_bits(m.bits()), m);
        assert!(m.bits() < 1 << Mailbox::BITS);
    }

    #[test]
    fn nobody_is_zero() {
        assert_eq!(Mailbox::NOBODY.bits(), 0);
        assert!(!EndpointId::NOBODY.is_somebody());
    }
}
