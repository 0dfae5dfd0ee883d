//! The memory of a region in this process, as typed references.
//!
//! The file is mapped once, to the largest size it may get, so nothing ever moves. Pages beyond
//! the file's end must not be touched: every reference given out lies below a published size that
//! was checked against the file. All types in the region consist of atomics, for which any bits
//! are a value, so what other processes write is never undefined here, only unexpected.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::layout::{HEADER_WORDS, Header, Layout, Sound, TAKEN_AT, check_bytes, check_header};
use super::mailbox::Mailcells;
use super::parking::{BUCKETS, Bucket};
use super::place::Place;
use super::primitive::{AtomicU64, Ordering};
use super::taken::Taken;
use super::tether::Tethers;
use crate::addr::Slot;
use crate::connection::Origin;
use crate::endpoint::RECORD_WORDS;
use crate::error::Malformed;

/// The mapped bytes of a region's file. Unmapped when dropped.
#[derive(Debug)]
pub(super) struct Memory {
    base: NonNull<u8>,
    /// How many bytes are mapped.
    bytes: usize,
    /// How many of them, from the first, the file is known to have.
    backed: usize,
}

// SAFETY: what is reached through `base` is atomics, and the base itself never changes.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// A mapped region.
#[derive(Debug)]
pub(super) struct Mapping {
    memory: Memory,
    file: File,
    layout: Layout,
    origin: Origin,
    tethers: Tethers,
}

/// Copies a file's header and checks the copy.
pub(super) fn examine(file: &File) -> io::Result<Result<Sound, Malformed>> {
    match examine_once(file)? {
        // Where the words of a copy are of different times: an origin is drawn once.
        Err(Malformed::Incarnation) => examine_once(file),
        examined => Ok(examined),
    }
}

fn examine_once(file: &File) -> io::Result<Result<Sound, Malformed>> {
    let mut bytes = [0; HEADER_WORDS * 8];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Ok(Err(Malformed::Short));
        }
        Err(error) => return Err(error),
    }
    let mut words = [0; HEADER_WORDS];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(chunk.try_into().expect("chunks of 8 bytes"));
    }
    Ok(check_header(&words, file.metadata()?.len()))
}

impl Memory {
    /// Maps a file of this layout, if it is at least as long as the layout's fixed part: it may
    /// have been cut short since its header was read. So many of its last bytes are done without
    /// where there are no addresses for them.
    pub(super) fn new(
        file: &File,
        layout: &Layout,
        spare_bytes: u64,
    ) -> io::Result<Result<Self, Malformed>> {
        if file.metadata()?.len() <= layout.heap {
            return Ok(Err(Malformed::Truncated));
        }
        let all = layout.capacity.max_bytes;
        let least = all.saturating_sub(spare_bytes).max(layout.heap);
        let mapped = Self::map(file, all).or_else(|error| match error {
            Errno::NOMEM if least < all => Self::map(file, least),
            error => Err(error),
        });
        let (base, bytes) = mapped?;
        Ok(Ok(Self { base, bytes, backed: layout.heap as usize }))
    }

    /// Maps so many bytes.
    fn map(file: &File, bytes: u64) -> Result<(NonNull<u8>, usize), Errno> {
        let bytes = usize::try_from(bytes).expect("addresses of 64 bits hold a region");
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe {
            let flags = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(std::ptr::null_mut(), bytes, flags, MapFlags::SHARED, file, 0)?
        };
        Ok((NonNull::new(base.cast()).expect("the kernel maps nothing at address zero"), bytes))
    }

    /// A reference to something in the fixed part.
    fn fixed<T>(&self, offset: usize) -> &T {
        assert!(offset + size_of::<T>() <= self.backed, "within the fixed part");
        // SAFETY: the fixed part is mapped and backed by the file (seen in `new`) as long as
        // `self` lives; the layout puts each type at a multiple of its alignment; the types
        // consist of atomics and opaque cells.
        unsafe { &*self.base.as_ptr().add(offset).cast::<T>() }
    }

    pub(super) fn header(&self) -> &Header {
        self.fixed(0)
    }

    pub(super) fn taken(&self) -> &Taken {
        self.fixed(TAKEN_AT)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping made in `new`; references into it borrow `self`, and
        // endpoints keep `self` alive.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        unmapped.expect("a mapping made here can be unmapped");
    }
}

impl Mapping {
    /// The memory of this file, of a region of this origin.
    pub(super) fn new(
        memory: Memory,
        file: File,
        layout: Layout,
        origin: Origin,
        tethers: Tethers,
    ) -> Self {
        Self { memory, file, layout, origin, tethers }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    pub(super) fn tethers(&self) -> &Tethers {
        &self.tethers
    }

    fn fixed<T>(&self, offset: usize) -> &T {
        self.memory.fixed(offset)
    }

    pub(super) fn header(&self) -> &Header {
        self.memory.header()
    }

    pub(super) fn taken(&self) -> &Taken {
        self.memory.taken()
    }

    pub(super) fn bucket(&self, number: usize) -> &Bucket {
        assert!(number < BUCKETS, "a bucket of the table");
        self.fixed(self.layout.buckets + number * size_of::<Bucket>())
    }

    /// The place with this index, 1 to the number of places.
    pub(super) fn place(&self, index: u16) -> Option<&Place> {
        let inside = index >= 1 && index <= self.layout.capacity.places();
        inside.then(|| {
            let number = usize::from(index - 1);
            self.fixed(self.layout.places + number * size_of::<Place>())
        })
    }

    /// A slot's number among all slots of the region.
    fn slot_number(&self, index: u16, slot: Slot) -> Option<usize> {
        let capacity = &self.layout.capacity;
        let inside = index >= 1 && index <= capacity.places() && slot.0 < capacity.slots;
        inside.then(|| usize::from(index - 1) * usize::from(capacity.slots) + usize::from(slot.0))
    }

    pub(super) fn mailbox(&self, index: u16, slot: Slot) -> Option<&Mailcells> {
        let number = self.slot_number(index, slot)?;
        Some(self.fixed(self.layout.mailboxes + number * size_of::<Mailcells>()))
    }

    /// Where a slot's record begins, in bytes from the start of the region.
    pub(super) fn record_offset(&self, index: u16, slot: Slot) -> Option<usize> {
        let number = self.slot_number(index, slot)?;
        Some(self.layout.records + number * RECORD_WORDS * 8)
    }

    pub(super) fn record(&self, index: u16, slot: Slot) -> Option<&[AtomicU64; RECORD_WORDS]> {
        Some(self.fixed(self.record_offset(index, slot)?))
    }

    /// A pointer to the byte at this offset. What may be done with it is up to [`Mapping::bytes`].
    pub(super) fn pointer(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.memory.bytes, "within the mapping");
        // SAFETY: the mapping is one allocation of this many bytes.
        unsafe { self.memory.base.add(offset) }
    }

    /// The words of users.
    pub(super) fn heap(&self) -> &[AtomicU64] {
        let heap = self.layout.heap;
        let words = self.bytes().map_or(0, |bytes| (bytes - heap) / 8);
        // SAFETY: the heap is mapped and backed by the file below the published size as long as
        // `self` lives, begins at a line's boundary, and is only ever changed atomically.
        unsafe {
            std::slice::from_raw_parts(self.pointer(heap as usize).as_ptr().cast(), words as usize)
        }
    }

    /// The published size, if it is one the region can have and the file is that long, or as much
    /// of it as is mapped: every byte below it can be touched.
    pub(super) fn bytes(&self) -> Option<u64> {
        let bytes = self.header().bytes.load(Ordering::Acquire);
        check_bytes(&self.layout, bytes).ok()?;
        let file_bytes = self.file.metadata().ok()?.len();
        (file_bytes >= bytes).then_some(bytes.min(self.memory.bytes as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::super::region::{Options, Region};
    use super::super::testing::TestDir;
    use super::*;

    #[test]
    fn a_slot_that_a_place_has_not_is_none_of_the_next_one() {
        let dir = TestDir::new("slots");
        let options = Options::new(dir.path(), dir.path().join("state"), "r");
        let region = Region::open(&Options { slots: 2, ..options }).unwrap();
        let (mapping, places) = (region.mapping(), region.mapping().layout().capacity.places());
        let offset = |index, slot| mapping.record_offset(index, Slot(slot));
        assert!(offset(1, 0) < offset(1, 1) && offset(1, 1) < offset(2, 0));
        for (index, slot) in [(0, 0), (1, 2), (places, 2), (places + 1, 0)] {
            assert!(offset(index, slot).is_none() && mapping.mailbox(index, Slot(slot)).is_none());
        }
        assert!(offset(places, 1).is_some());
    }
}
