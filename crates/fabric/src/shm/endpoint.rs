//! An endpoint: a place in a region, and what the process that uses it keeps in its own memory.
//!
//! The fields that a verb touches are copied out of the mapping once, so that a verb reaches its
//! word by one comparison and one addition.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use super::keeper::{Keeper, Kept};
use super::mailbox::Mailcells;
use super::mapping::Mapping;
use super::parked::{Parked, Spinning};
use super::parking::{Bucket, Unparker};
use super::place::Control;
use super::primitive::{AtomicU64, Ordering};
use super::region::{REGION, Region};
use super::table::Kind;
use super::wide::Wide;
use crate::addr::{Addr, EndpointId, Slot};
use crate::endpoint::RECORD_WORDS;
use crate::error::ConnectError;
use crate::error::Fault;
use crate::results::Results;

/// One thread's connection to a region. Dropping it leaves the region.
///
/// It must not be used in a child made by `fork`, which shares its memory but is another thread:
/// there it is only safe to drop it, which does nothing.
pub type ShmEndpoint = Shm<Keeper>;

/// A connection to a region that may be moved from thread to thread, but for its [`Keeper`].
///
/// It belongs to one thread at a time. Everything that an endpoint does works on the thread that
/// has it: verbs, waits, parking, mailboxes. A wait in progress borrows the lane, so a lane that is
/// moved has none; a wait that was dropped has left nothing behind.
///
/// Once its keeper is gone, and everybody may see the endpoint dead, each of its verbs ends with
/// [`Revoked`](crate::Fault::Revoked) and each of its waits ends, at the latest after 2 s. Nobody
/// else moves into its place while it exists.
///
/// In a child made by `fork` it is only safe to drop it, which does nothing.
///
/// ```
/// fn moves<T: Send>() {}
/// moves::<farlock_fabric::shm::Lane>();
/// ```
/// ```compile_fail,E0277
/// fn is_shared<T: Sync>() {}
/// is_shared::<farlock_fabric::shm::Lane>();
/// ```
pub type Lane = Shm<Kept>;

/// A connection to a region whose place is kept by `K`: see [`ShmEndpoint`] and [`Lane`].
#[derive(Debug)]
pub struct Shm<K> {
    /// The address of the first word that may be changed, as bits.
    heap_start: u64,
    /// How many words from there may be changed; 0 where none may. Grows.
    heap_words: Cell<u64>,
    heap: NonNull<u8>,
    control: NonNull<Control>,
    buckets: NonNull<Bucket>,
    pub(super) results: Results,
    /// The records of its slots follow each other.
    records: NonNull<[AtomicU64; RECORD_WORDS]>,
    /// Whether stores to them may still be this processor's alone.
    pub(super) has_published: Cell<bool>,
    pub(super) slots: Box<[OwnSlot]>,
    /// The address of the first word that may be read, as bits.
    read_start: u64,
    /// How many words from there may be read. Grows.
    read_words: Cell<u64>,
    read_base: NonNull<u8>,
    id: EndpointId,
    pub(super) random: Cell<u64>,
    pub(super) parked: RefCell<Parked>,
    pub(super) spinning: Spinning,
    pub(super) unparker: Unparker,
    /// Dropped before the region that its place is in.
    pub(super) keeper: K,
    pub(super) region: Region,
}

// SAFETY: its pointers lead into the mapping, which `region` keeps wherever the lane goes, to
// atomics; what it has in its own memory belongs to no thread: cells, wakers, a shared bell. It is
// not `Sync`, so one thread at a time executes verbs, and moving it orders one thread's after the
// other's. What belongs to the thread that attached, the beacon, is its keeper's, which stays.
unsafe impl Send for Shm<Kept> {}

/// What an endpoint knows of one of its slots.
#[derive(Debug)]
pub(super) struct OwnSlot {
    /// The state of the cell that the next message comes into, and what it is until then: all that
    /// a look into an empty mailbox needs.
    next_state: Cell<NonNull<AtomicU64>>,
    empty: Cell<u64>,
    cells: NonNull<Mailcells>,
    /// Which message comes next.
    position: Cell<u64>,
}

impl OwnSlot {
    fn new(mapping: &Mapping, id: EndpointId, slot: Slot) -> Self {
        let cells = mapping.mailbox(id.index, slot).expect("a slot of a place");
        let position = cells.first();
        let (state, empty) = cells.awaits(id.incarnation, position);
        Self {
            next_state: Cell::new(NonNull::from(state)),
            empty: Cell::new(empty),
            cells: NonNull::from(cells),
            position: Cell::new(position),
        }
    }
}

impl Region {
    /// Attaches the calling thread to the region. A dead endpoint's place is reused.
    ///
    /// After a crash, a process that looks at the place sees it dead within microseconds.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn endpoint(&self) -> Result<ShmEndpoint, ConnectError> {
        let keeper = self.move_in(&Kind::default())?;
        Ok(Shm::new(self, keeper.id, keeper))
    }

    /// Attaches as [`Region::endpoint`] does, but the endpoint counts as dead only when every
    /// process that has its [`Keeper::tether_fd`] is gone too.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn endpoint_tethered(&self) -> Result<ShmEndpoint, ConnectError> {
        let keeper = self.move_in(&Kind { is_tethered: true, ..Kind::default() })?;
        Ok(Shm::new(self, keeper.id, keeper))
    }

    /// Attaches, tethered or not, an endpoint whose verbs any thread of this process executes: the
    /// [`Lane`] may be moved, the [`Keeper`] stays here and keeps it alive.
    ///
    /// After a crash of the process, or the end of the calling thread, a process that looks at the
    /// place sees it dead within microseconds.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn lane(&self, tethered: bool) -> Result<(Lane, Keeper), ConnectError> {
        let kind = Kind { is_tethered: tethered, has_lane: true, ..Kind::default() };
        let keeper = self.move_in(&kind)?;
        let kept = Kept::new(self, keeper.id.index);
        Ok((Shm::new(self, keeper.id, kept), keeper))
    }
}

impl ShmEndpoint {
    /// What keeps its place, and has its tether where it is tethered.
    pub fn keeper(&self) -> &Keeper {
        &self.keeper
    }
}

impl<K> Shm<K> {
    /// The endpoint of this name, in a place that `keeper` keeps from now on.
    pub(super) fn new(region: &Region, id: EndpointId, keeper: K) -> Self {
        let mapping = region.mapping();
        let layout = mapping.layout();
        let place = mapping.place(id.index).expect("a place just moved into");
        let slots = (0..layout.capacity.slots).map(|slot| OwnSlot::new(mapping, id, Slot(slot)));
        let endpoint = Self {
            heap_start: Addr::new(REGION, layout.heap).bits(),
            heap_words: Cell::new(0),
            heap: mapping.pointer(layout.heap as usize),
            control: NonNull::from(&place.control),
            buckets: NonNull::from(mapping.bucket(0)),
            results: Results::default(),
            records: NonNull::from(mapping.record(id.index, Slot(0)).expect("a slot of a place")),
            has_published: Cell::new(false),
            slots: slots.collect(),
            read_start: Addr::new(REGION, layout.records as u64).bits(),
            read_words: Cell::new(0),
            read_base: mapping.pointer(layout.records),
            id,
            random: Cell::new(seed(region.seed(), id)),
            parked: RefCell::default(),
            spinning: Spinning::default(),
            unparker: Unparker::new(),
            keeper,
            region: region.clone(),
        };
        endpoint.refresh();
        endpoint
    }

    /// The region it is attached to.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Makes this endpoint return from [`Park::park`](crate::Park::park), from any thread of this
    /// process. A park of several endpoints has an unparker of its own.
    pub fn unparker(&self) -> Unparker {
        self.unparker.clone()
    }

    pub(super) fn identity(&self) -> EndpointId {
        self.id
    }

    #[inline(always)]
    pub(super) fn control(&self) -> &Control {
        // SAFETY: it points into the mapping, which `region` keeps, at an atomic structure.
        unsafe { self.control.as_ref() }
    }

    /// The bell of the bucket with this number.
    #[inline(always)]
    pub(super) fn bucket(&self, number: usize) -> &Bucket {
        debug_assert!(number < super::parking::BUCKETS, "a bucket of the table; hot path");
        // SAFETY: the table has this many buckets, in the mapping that `region` keeps.
        unsafe { self.buckets.add(number).as_ref() }
    }

    #[inline(always)]
    fn own(&self, slot: Slot) -> &OwnSlot {
        &self.slots[usize::from(slot.0)]
    }

    #[inline(always)]
    pub(super) fn own_record(&self, slot: Slot) -> &[AtomicU64; RECORD_WORDS] {
        let number = usize::from(slot.0);
        assert!(number < self.slots.len(), "a slot of this endpoint");
        // SAFETY: one of its records, in the mapping, which `region` keeps, made of atomics.
        unsafe { self.records.add(number).as_ref() }
    }

    /// Whether nothing was sent to this slot since its last message was taken.
    #[inline(always)]
    pub(super) fn is_mailbox_empty(&self, slot: Slot) -> bool {
        let own = self.own(slot);
        // SAFETY: it points into the mapping, which `region` keeps, at an atomic.
        let state = unsafe { own.next_state.get().as_ref() };
        state.load(Ordering::SeqCst) == own.empty.get()
    }

    /// The mailbox of a slot, and which message comes next.
    pub(super) fn mailbox(&self, slot: Slot) -> (&Mailcells, u64) {
        let own = self.own(slot);
        // SAFETY: it points into the mapping, which `region` keeps, at an atomic structure.
        (unsafe { own.cells.as_ref() }, own.position.get())
    }

    /// The next message was taken or passed over.
    pub(super) fn advance(&self, slot: Slot) {
        let (cells, position) = self.mailbox(slot);
        let (state, empty) = cells.awaits(self.id.incarnation, position + 1);
        let own = self.own(slot);
        own.position.set(position + 1);
        own.next_state.set(NonNull::from(state));
        own.empty.set(empty);
    }

    /// The 16-byte word at this address, if it may be changed, and its offset in the heap.
    #[inline(always)]
    pub(super) fn wide(&self, addr: Addr) -> Result<(&Wide, u64), Fault> {
        let at = addr.bits().wrapping_sub(self.heap_start);
        // One comparison: bits of a misaligned or a foreign address end up at the top.
        if at.rotate_right(4) >= self.heap_words.get() >> 1 {
            self.admit_change(addr, 16, 2)?;
        }
        // SAFETY: the 16 bytes lie in the heap below its published size, aligned, in the mapping
        // that `region` keeps; users' words are only ever changed atomically.
        Ok((unsafe { self.heap.add(at as usize).cast::<Wide>().as_ref() }, at))
    }

    /// The 8-byte words at this address, if they may be changed, and their offset in the heap.
    #[inline(always)]
    pub(super) fn words(&self, addr: Addr, count: usize) -> Result<(&[AtomicU64], u64), Fault> {
        let at = addr.bits().wrapping_sub(self.heap_start);
        if !fits(at, count, self.heap_words.get()) {
            self.admit_change(addr, 8, count)?;
        }
        // SAFETY: as in `wide`, for this many words.
        Ok((unsafe { slice(self.heap.add(at as usize), count) }, at))
    }

    /// The one word at this address, if it may be changed, and its offset in the heap.
    #[inline(always)]
    pub(super) fn word(&self, addr: Addr) -> Result<(&AtomicU64, u64), Fault> {
        let at = addr.bits().wrapping_sub(self.heap_start);
        if at.rotate_right(3) >= self.heap_words.get() {
            self.admit_change(addr, 8, 1)?;
        }
        // SAFETY: as in `wide`, for 8 bytes.
        Ok((unsafe { self.heap.add(at as usize).cast::<AtomicU64>().as_ref() }, at))
    }

    /// The 8-byte words at this address, if they may be read.
    #[inline(always)]
    pub(super) fn readable(&self, addr: Addr, count: usize) -> Result<&[AtomicU64], Fault> {
        let at = addr.bits().wrapping_sub(self.read_start);
        if !fits(at, count, self.read_words.get()) {
            self.admit_read(addr, count)?;
        }
        // SAFETY: records and heap follow each other below the published size; as in `words`.
        Ok(unsafe { slice(self.read_base.add(at as usize), count) })
    }

    /// How far into the heap this address lies, in bytes, if it does.
    pub(super) fn heap_offset(&self, addr: Addr) -> Option<u64> {
        addr.bits().checked_sub(self.heap_start)
    }

    /// The slow half of admitting a change: the region may have grown, or says why not.
    #[cold]
    #[inline(never)]
    fn admit_change(&self, addr: Addr, alignment: u64, count: usize) -> Result<(), Fault> {
        self.admit_read(addr, count)?;
        if !addr.bits().is_multiple_of(alignment) {
            return Err(Fault::Misaligned);
        }
        let at = addr.bits().wrapping_sub(self.heap_start);
        if self.region.is_read_only() {
            return Err(Fault::NoRight);
        }
        // What can be read and does not lie in the heap is a record, which is its owner's.
        if fits(at, count, self.heap_words.get()) { Ok(()) } else { Err(Fault::NoRight) }
    }

    /// The slow half of admitting a read.
    #[cold]
    #[inline(never)]
    fn admit_read(&self, addr: Addr, count: usize) -> Result<(), Fault> {
        self.refresh();
        if !addr.bits().is_multiple_of(8) {
            return Err(Fault::Misaligned);
        }
        let at = addr.bits().wrapping_sub(self.read_start);
        if fits(at, count, self.read_words.get()) { Ok(()) } else { Err(Fault::OutOfBounds) }
    }

    /// Learns how far the region has grown.
    fn refresh(&self) {
        let mapping = self.region.mapping();
        // A size that is not sound is not believed; what was known remains.
        if let Some(bytes) = mapping.bytes() {
            let layout = mapping.layout();
            let heap_words = (bytes - layout.heap) / 8;
            let changeable = if self.region.is_read_only() { 0 } else { heap_words };
            self.heap_words.set(changeable.max(self.heap_words.get()));
            let readable = (bytes - layout.records as u64) / 8;
            self.read_words.set(readable.max(self.read_words.get()));
        }
    }
}

/// Whether `count` words that begin `at` bytes in lie within `words` words, aligned.
#[inline(always)]
fn fits(at: u64, count: usize, words: u64) -> bool {
    let first = at.rotate_right(3);
    first < words && words - first >= count as u64
}

/// # Safety
/// The words lie in a mapping that outlives the borrow, aligned, and are changed only atomically.
#[inline(always)]
unsafe fn slice<'a>(first: NonNull<u8>, count: usize) -> &'a [AtomicU64] {
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(first.as_ptr().cast(), count) }
}

/// The start of an endpoint's random numbers.
fn seed(given: Option<u64>, id: EndpointId) -> u64 {
    let seed = given.unwrap_or_else(|| {
        let mut bytes = [0; 8];
        match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
            Ok(8) => u64::from_le_bytes(bytes),
            // No secret hangs on these numbers: different at every start is enough.
            _ => super::primitive::boot_time(),
        }
    });
    // Endpoints of one seed draw different numbers.
    seed ^ id.bits().wrapping_mul(0xd6e8_feb8_6659_fd93)
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn words_fit_up_to_the_last_one() {
        for (at, count, words, does) in [
            (0, 10, 10, true),
            (0, 11, 10, false),
            (72, 1, 10, true),
            (72, 2, 10, false),
            // Not even nothing lies behind the end, nor between words.
            (80, 0, 10, false),
            (4, 1, 10, false),
            (u64::MAX, 1, 10, false),
        ] {
            assert_eq!(fits(at, count, words), does, "{count} at {at} of {words}");
        }
    }
}
