//! Memory nodes and their regions: flat arrays of words, zero until written.
//!
//! A region's words are allocated zeroed, so that a page nobody touched costs nothing. A hollow
//! region has none: of its words only their number counts. Effects here are instantaneous; when
//! they happen is the business of [`crate::transit`].

use farlock_fabric::verb::{masked_cas64, masked_cas128, masked_faa64, masked_faa128};
use farlock_fabric::{Addr, Fault, RegionId};
use prefetch_index::prefetch_index;

use crate::flight::Action;
use crate::nic::{Nic, NicState};

/// A memory node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeId(pub u16);

/// What a reset leaves of a node's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reset {
    /// Every word is zero.
    Zeroed,
    /// Every word is as it was.
    Kept,
    /// Every word is as it was when the node was last saved, or zero if it never was.
    Saved,
}

pub(crate) struct Node {
    pub(crate) nic: NicState,
    /// Increases with each reset.
    pub(crate) incarnation: u32,
    /// The world's stamp at the last reset: endpoints with an older one are stale here.
    pub(crate) reset_stamp: u32,
}

impl Node {
    pub(crate) fn new(nic: &Nic) -> Self {
        Self { nic: NicState::new(nic), incarnation: 1, reset_stamp: 0 }
    }
}

struct Region {
    node: NodeId,
    /// Words in use; the rest of `words` is room to grow.
    len: usize,
    /// None of a hollow region.
    words: Vec<u64>,
    /// The words in use when the node was last saved.
    saved: Vec<u64>,
}

/// The region of records.
pub(crate) const RECORDS: RegionId = RegionId(0);

#[derive(Default)]
pub(crate) struct Memory {
    regions: Vec<Region>,
}

/// A word that was checked to exist.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    region: usize,
    word: usize,
}

impl Memory {
    pub(crate) fn add(&mut self, node: NodeId, bytes: u64, bytes_max: u64) -> RegionId {
        let id = u16::try_from(self.regions.len()).expect("a world has at most 65,536 regions");
        assert!(bytes <= bytes_max, "a region is no larger than it may become");
        let words = |bytes: u64| bytes.div_ceil(8) as usize;
        let (len, words) = (words(bytes), vec![0; words(bytes_max)]);
        self.regions.push(Region { node, len, words, saved: Vec::new() });
        RegionId(id)
    }

    pub(crate) fn add_hollow(&mut self, node: NodeId, bytes: u64) -> RegionId {
        let id = self.add(node, 0, 0);
        self.regions[usize::from(id.0)].len = bytes.div_ceil(8) as usize;
        id
    }

    pub(crate) fn is_hollow(&self, addr: Addr) -> bool {
        let region = self.regions.get(usize::from(addr.region().0));
        region.is_some_and(|region| region.words.is_empty() && region.len > 0)
    }

    pub(crate) fn grow(&mut self, region: RegionId, bytes: u64) {
        let region = &mut self.regions[usize::from(region.0)];
        region.len += bytes.div_ceil(8) as usize;
        assert!(region.len <= region.words.len(), "the region was created without room to grow");
    }

    pub(crate) fn clear(&mut self, node: NodeId) {
        for region in self.regions.iter_mut().filter(|region| region.node == node) {
            // A new allocation, so that a large region is not written from end to end.
            region.words = vec![0; region.words.len()];
        }
    }

    /// Remembers every word of this node as it is.
    pub(crate) fn save(&mut self, node: NodeId) {
        for region in self.regions.iter_mut().filter(|region| region.node == node) {
            region.saved = region.words.iter().take(region.len).copied().collect();
        }
    }

    /// Every word of this node is as it was when it was saved, or zero.
    pub(crate) fn restore(&mut self, node: NodeId) {
        self.clear(node);
        for region in self.regions.iter_mut().filter(|region| region.node == node) {
            region.words[..region.saved.len()].copy_from_slice(&region.saved);
        }
    }

    /// Every word in use and every word saved, region after region.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        let all = |region| {
            let Region { len, words, saved, .. }: &Region = region;
            words.iter().take(*len).chain(saved).copied()
        };
        self.regions.iter().flat_map(all)
    }

    /// The node of the region this address names, if it names one.
    #[inline]
    pub(crate) fn node_of(&self, addr: Addr) -> Option<NodeId> {
        self.regions.get(usize::from(addr.region().0)).map(|region| region.node)
    }

    /// Checks that `count` words from `addr` exist and that `addr` stands on this boundary.
    #[inline]
    pub(crate) fn place(&self, addr: Addr, count: usize, align: u64) -> Result<Place, Fault> {
        if !addr.offset().is_multiple_of(align) {
            return Err(Fault::Misaligned);
        }
        let region = usize::from(addr.region().0);
        let word = (addr.offset() / 8) as usize;
        match self.regions.get(region) {
            Some(found) if word + count <= found.len => Ok(Place { region, word }),
            _ => Err(Fault::OutOfBounds),
        }
    }

    /// Brings the word at this address, if there is one, nearer to the processor. It will be needed
    /// some hundred events later: with 10 M locks this alone makes the world run 1.7 times as fast.
    #[inline]
    pub(crate) fn prefetch(&self, addr: Addr) {
        if let Ok(place) = self.place(addr, 1, 1) {
            prefetch_index(&self.regions[place.region].words, place.word);
        }
    }

    #[inline]
    pub(crate) fn word(&mut self, place: Place, index: usize) -> &mut u64 {
        &mut self.regions[place.region].words[place.word + index]
    }

    #[inline]
    pub(crate) fn read(&self, place: Place) -> u64 {
        self.regions[place.region].words.get(place.word).copied().unwrap_or(0)
    }

    /// So many words that an atomic changes. A hollow region has none.
    #[inline]
    fn atomic_words(&mut self, place: Place, count: usize) -> Result<&mut [u64], Fault> {
        let words = self.regions[place.region].words.get_mut(place.word..place.word + count);
        words.ok_or(Fault::Unsupported)
    }

    /// Performs an atomic; returns the word before and after.
    #[inline]
    pub(crate) fn atomic(&mut self, addr: Addr, action: &Action) -> Result<(u128, u128), Fault> {
        match action {
            Action::Cas64 { compare, swap } => {
                self.atomic64(addr, |old| if old == *compare { *swap } else { old })
            }
            Action::Faa64 { add } => self.atomic64(addr, |old| old.wrapping_add(*add)),
            Action::MaskedCas64(op) => {
                self.atomic64(addr, |old| masked_cas64(old, op).unwrap_or(old))
            }
            Action::MaskedFaa64(op) => self.atomic64(addr, |old| masked_faa64(old, op)),
            Action::MaskedCas128(op) => {
                self.atomic128(addr, |old| masked_cas128(old, op).unwrap_or(old))
            }
            Action::MaskedFaa128(op) => self.atomic128(addr, |old| masked_faa128(old, op)),
            Action::Read { .. } | Action::Write | Action::Send { .. } => {
                unreachable!("no atomic, and served elsewhere")
            }
        }
    }

    #[inline]
    fn atomic64(&mut self, addr: Addr, next: impl Fn(u64) -> u64) -> Result<(u128, u128), Fault> {
        let place = self.place(addr, 1, 8)?;
        let [word] = self.atomic_words(place, 1)? else { unreachable!("one was asked for") };
        let old = *word;
        *word = next(old);
        Ok((old.into(), (*word).into()))
    }

    #[inline]
    fn atomic128(
        &mut self,
        addr: Addr,
        next: impl Fn(u128) -> u128,
    ) -> Result<(u128, u128), Fault> {
        let place = self.place(addr, 2, 16)?;
        let words = self.atomic_words(place, 2)?;
        let old = u128::from(words[0]) | u128::from(words[1]) << 64;
        let new = next(old);
        (words[0], words[1]) = (new as u64, (new >> 64) as u64);
        Ok((old, new))
    }
}
