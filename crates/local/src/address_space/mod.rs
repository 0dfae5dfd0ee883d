//! The memory map of a process, kept by the operations of a kernel: an application of range locks.
//!
//! Kogan, Dice, Issa, *Scalable Range Locks* (EuroSys'20), section 5. A space is a tree of areas,
//! each with a protection. It maps nothing: it keeps the book that a kernel keeps of its mappings,
//! under the same races.
//!
//! | operation | locks |
//! | --- | --- |
//! | page fault | the page, shared |
//! | `mprotect` that moves a border or changes a protection | its area and a page on either side |
//! | `mprotect` that splits or merges areas, `mmap`, `munmap`, `brk` | everything |
//!
//! An `mprotect` does not know which kind it is before it has looked, and what it saw may change
//! before it has its lock. So it **speculates**: it finds its area under a shared lock on its own
//! range, locks the area, and goes on only if the sequence number, which every structural change
//! moves, and the bounds of the area are still the same. The page on either side keeps out the
//! neighbours, whose borders are its own.
//!
//! Why a search may pass through an area that another thread changes: a border moves only within
//! the range that its mover has locked, and the address searched for lies in a range that the
//! searcher has locked. On either side of the move the comparison has the same result.

mod areas;
mod protection;

use std::time::Instant;

use crate::primitive::{AtomicU64, Ordering};
use crate::{Range, RawRangeRwLock};
use areas::{Areas, Id, Seen};

pub use protection::Protection;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Where the heap begins.
pub const HEAP_START: u64 = 1 << 32;
/// Where `mmap` begins to look for room.
pub const MAP_START: u64 = 1 << 40;
/// The address after the last that can be mapped.
pub const SPACE_END: u64 = 1 << 47;
/// Speculations before an `mprotect` takes everything.
const SPECULATIONS_MAX: u32 = 16;

/// An area as a page fault finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Area {
    /// Its addresses.
    pub range: Range,
    /// What may be done there.
    pub protection: Protection,
}

/// Why nothing was mapped or unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The address is no multiple of a page, the length is zero, or both leave the space.
    #[error("no whole pages of the space")]
    NoPages,
    /// Something is mapped there.
    #[error("{at:#x} is mapped")]
    Occupied {
        /// The first such address.
        at: u64,
    },
    /// No hole is long enough.
    #[error("no hole is long enough")]
    NoRoom,
}

/// Why no protection was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtectError {
    /// The address is no multiple of a page, the length is zero, or both leave the space.
    #[error("no whole pages of the space")]
    NoPages,
    /// Nothing is mapped at an address of the range. No page of it was changed.
    #[error("nothing is mapped at {at:#x}")]
    Unmapped {
        /// The first such address.
        at: u64,
    },
}

/// Why an access is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError {
    /// Nothing is mapped there.
    #[error("nothing is mapped there")]
    Unmapped,
    /// The area allows less.
    #[error("the area allows only {0:?}")]
    Forbidden(Protection),
}

/// Which operations lock less than everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refinement {
    /// Page faults lock their page.
    pub page_fault: bool,
    /// `mprotect` speculates.
    pub mprotect: bool,
    /// Counts how long locks were waited for, which itself takes time.
    pub time_waits: bool,
}

impl Refinement {
    /// Every operation locks everything.
    pub const FULL: Self = Self { page_fault: false, mprotect: false, time_waits: false };
    /// Every operation locks what it needs.
    pub const REFINED: Self = Self { page_fault: true, mprotect: true, time_waits: false };
}

/// What happened in a space so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Calls of `mprotect` that ended without locking everything.
    pub speculated: u64,
    /// Calls of `mprotect` that locked everything, at once or in the end.
    pub unspeculated: u64,
    /// Speculations that found the area changed, and began again.
    pub retries: u64,
    /// Shared acquisitions.
    pub shared: u64,
    /// Exclusive acquisitions.
    pub exclusive: u64,
    /// Nanoseconds that shared acquisitions took, if they are timed.
    pub shared_ns: u64,
    /// Nanoseconds that exclusive acquisitions took, if they are timed.
    pub exclusive_ns: u64,
}

/// A counter on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

impl Counter {
    fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Counters {
    speculated: Counter,
    unspeculated: Counter,
    retries: Counter,
    shared: Counter,
    exclusive: Counter,
    shared_ns: Counter,
    exclusive_ns: Counter,
}

/// The areas of an address space under a range lock.
///
/// ```
/// use farlock_local::ListRw;
/// use farlock_local::address_space::{AddressSpace, PAGE, Protection, Refinement};
///
/// let space = AddressSpace::<ListRw>::new(Refinement::REFINED);
/// let arena = space.mmap(1024 * PAGE, Protection::NONE)?;
/// let usable = Protection::READ | Protection::WRITE;
/// space.mprotect(arena, PAGE, usable)?; // Splits the area.
/// space.mprotect(arena + PAGE, PAGE, usable)?; // Moves the border.
/// assert!(space.page_fault(arena + PAGE, Protection::WRITE).is_ok());
/// assert!(space.page_fault(arena + 2 * PAGE, Protection::WRITE).is_err());
/// assert_eq!(space.counts().speculated, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AddressSpace<L> {
    lock: L,
    areas: Areas,
    /// Moved by every structural change, before its lock is released.
    sequence: AtomicU64,
    /// The address after the heap. Changed with everything locked.
    heap_end: AtomicU64,
    refinement: Refinement,
    counters: Counters,
}

/// How a speculation went.
enum Speculation {
    Done(Result<(), ProtectError>),
    /// The area is not what it was when it was found.
    Stale,
    /// Areas have to be split or merged.
    Structural,
}

impl<L: RawRangeRwLock + Default> AddressSpace<L> {
    /// An empty space.
    pub fn new(refinement: Refinement) -> Self {
        Self {
            lock: L::default(),
            areas: Areas::default(),
            sequence: AtomicU64::new(0),
            heap_end: AtomicU64::new(HEAP_START),
            refinement,
            counters: Counters::default(),
        }
    }
}

impl<L: RawRangeRwLock> AddressSpace<L> {
    /// Maps `length` bytes, rounded up to pages, in the first hole from [`MAP_START`] that has
    /// room, and tells its address.
    ///
    /// # Errors
    ///
    /// See [`MapError`].
    pub fn mmap(&self, length: u64, protection: Protection) -> Result<u64, MapError> {
        let length = pages(MAP_START, length).ok_or(MapError::NoPages)?.last() + 1 - MAP_START;
        self.alone(|space| {
            let mut start = MAP_START;
            let mut area = space.areas.find(start);
            while let Some(at) = area {
                let seen = space.areas.see(at);
                if seen.start >= start + length {
                    break;
                }
                start = seen.end;
                area = space.areas.next(at);
            }
            let range = pages(start, length).ok_or(MapError::NoRoom)?;
            space.add(range, protection);
            Ok(start)
        })
    }

    /// Maps `length` bytes, rounded up to pages, at an address where nothing is mapped.
    ///
    /// # Errors
    ///
    /// See [`MapError`]. Nothing was mapped then.
    pub fn mmap_at(
        &self,
        address: u64,
        length: u64,
        protection: Protection,
    ) -> Result<(), MapError> {
        let range = pages(address, length).ok_or(MapError::NoPages)?;
        self.alone(|space| {
            let seen = space.areas.find(address).map(|area| space.areas.see(area));
            if let Some(seen) = seen.filter(|seen| seen.start <= range.last()) {
                return Err(MapError::Occupied { at: seen.start.max(address) });
            }
            space.add(range, protection);
            Ok(())
        })
    }

    /// Unmaps what is mapped in `length` bytes, rounded up to pages.
    ///
    /// # Errors
    ///
    /// [`MapError::NoPages`].
    pub fn munmap(&self, address: u64, length: u64) -> Result<(), MapError> {
        let range = pages(address, length).ok_or(MapError::NoPages)?;
        self.alone(|space| space.cut_out(range));
        Ok(())
    }

    /// Moves the end of the heap, which begins at [`HEAP_START`], up or down by whole pages.
    ///
    /// # Errors
    ///
    /// See [`MapError`]. The heap is as it was then.
    pub fn brk(&self, end: u64) -> Result<(), MapError> {
        if !(HEAP_START..=MAP_START).contains(&end) || !end.is_multiple_of(PAGE) {
            return Err(MapError::NoPages);
        }
        self.alone(|space| {
            let old = space.heap_end.load(Ordering::Relaxed);
            if let Ok(gone) = Range::new(end, old) {
                space.cut_out(gone);
            }
            if let Ok(new) = Range::new(old, end) {
                let area = space.areas.find(old).map(|area| space.areas.see(area));
                if let Some(seen) = area.filter(|seen| seen.start < end) {
                    return Err(MapError::Occupied { at: seen.start });
                }
                space.add(new, Protection::READ | Protection::WRITE);
            }
            space.heap_end.store(end, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Changes the protection of `length` bytes, rounded up to pages: of all of them or, on an
    /// error, of none.
    ///
    /// # Errors
    ///
    /// See [`ProtectError`].
    pub fn mprotect(
        &self,
        address: u64,
        length: u64,
        protection: Protection,
    ) -> Result<(), ProtectError> {
        let range = pages(address, length).ok_or(ProtectError::NoPages)?;
        let speculations = if self.refinement.mprotect { SPECULATIONS_MAX } else { 0 };
        for _ in 0..speculations {
            match self.speculate(range, protection) {
                Speculation::Done(done) => {
                    self.counters.speculated.add(1);
                    return done;
                }
                Speculation::Stale => self.counters.retries.add(1),
                Speculation::Structural => break,
            }
        }
        self.counters.unspeculated.add(1);
        self.alone(|space| space.protect_all(range, protection))
    }

    /// What a processor asks when it finds no translation: may this address be accessed so?
    ///
    /// # Errors
    ///
    /// See [`FaultError`].
    pub fn page_fault(&self, address: u64, access: Protection) -> Result<Area, FaultError> {
        let page = address / PAGE * PAGE;
        let page = Range::inclusive(page, page + (PAGE - 1)).expect("a page ends after its start");
        let token = self.lock_shared(if self.refinement.page_fault { page } else { Range::FULL });
        let seen = self.areas.find(address).map(|area| self.areas.see(area));
        self.lock.unlock(token);
        let seen = seen.filter(|seen| seen.start <= address).ok_or(FaultError::Unmapped)?;
        if !seen.protection.allows(access) {
            return Err(FaultError::Forbidden(seen.protection));
        }
        Ok(seen.into())
    }

    /// All areas, by address. Locks everything.
    pub fn areas(&self) -> Vec<Area> {
        let token = self.lock_shared(Range::FULL);
        let next = |&area: &Id| self.areas.next(area);
        let all = std::iter::successors(self.areas.find(0), next);
        let areas = all.map(|area| self.areas.see(area).into()).collect();
        self.lock.unlock(token);
        areas
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        let counters = &self.counters;
        Counts {
            speculated: counters.speculated.get(),
            unspeculated: counters.unspeculated.get(),
            retries: counters.retries.get(),
            shared: counters.shared.get(),
            exclusive: counters.exclusive.get(),
            shared_ns: counters.shared_ns.get(),
            exclusive_ns: counters.exclusive_ns.get(),
        }
    }

    /// The lock, for what it counts itself.
    pub fn range_lock(&self) -> &L {
        &self.lock
    }

    /// Section 5.2, listing 4.
    fn speculate(&self, range: Range, protection: Protection) -> Speculation {
        let token = self.lock_shared(range);
        let found = self.areas.find(range.start()).map(|area| (area, self.areas.see(area)));
        let sequence = self.sequence.load(Ordering::Acquire);
        self.lock.unlock(token);
        let Some((area, seen)) = found.filter(|(_, seen)| seen.start <= range.start()) else {
            return Speculation::Done(Err(ProtectError::Unmapped { at: range.start() }));
        };
        let around = Range::inclusive(seen.start.saturating_sub(PAGE), seen.end + (PAGE - 1));
        let token = self.lock_exclusive(around.expect("an area ends after its start"));
        let stale = self.sequence.load(Ordering::Acquire) != sequence
            || (self.areas.see(area).start, self.areas.see(area).end) != (seen.start, seen.end);
        let speculation = match stale {
            true => Speculation::Stale,
            false if self.protect_in_place(area, range, protection) => Speculation::Done(Ok(())),
            false => Speculation::Structural,
        };
        self.lock.unlock(token);
        speculation
    }

    /// With an area and a page on either side locked: false if areas had to be split or merged.
    fn protect_in_place(&self, area: Id, range: Range, protection: Protection) -> bool {
        let areas = &self.areas;
        let seen = areas.see(area);
        let end = range.last() + 1;
        if end > seen.end {
            return false;
        }
        if seen.protection == protection {
            return true;
        }
        let previous = areas.previous(area).filter(|&at| areas.see(at).end == seen.start);
        let previous = previous.filter(|&at| areas.see(at).protection == protection);
        let next = areas.next(area).filter(|&at| areas.see(at).start == seen.end);
        let next = next.filter(|&at| areas.see(at).protection == protection);
        match (range.start() == seen.start, end == seen.end) {
            (true, true) if previous.is_none() && next.is_none() => {
                areas.protect(area, protection);
            }
            (true, false) => {
                let Some(previous) = previous else { return false };
                areas.set_end(previous, end);
                areas.set_start(area, end);
            }
            (false, true) => {
                let Some(next) = next else { return false };
                areas.set_start(next, range.start());
                areas.set_end(area, range.start());
            }
            _ => return false,
        }
        true
    }

    /// Runs a structural change with everything locked.
    fn alone<T>(&self, change: impl FnOnce(&Self) -> T) -> T {
        let token = self.lock_exclusive(Range::FULL);
        let done = change(self);
        self.sequence.fetch_add(1, Ordering::Release);
        self.lock.unlock(token);
        done
    }

    fn protect_all(&self, range: Range, protection: Protection) -> Result<(), ProtectError> {
        let mut mapped = range.start();
        let mut area = self.areas.find(mapped);
        while mapped <= range.last() {
            let seen = area.map(|at| self.areas.see(at)).filter(|seen| seen.start <= mapped);
            mapped = seen.ok_or(ProtectError::Unmapped { at: mapped })?.end;
            area = area.and_then(|at| self.areas.next(at));
        }
        self.cut_out(range);
        self.add(range, protection);
        Ok(())
    }

    /// Maps a hole, as part of its neighbours where their protection is the same. Structural.
    fn add(&self, range: Range, protection: Protection) {
        let (mut start, mut end) = (range.start(), range.last() + 1);
        let joins = |seen: &Seen| seen.protection == protection;
        // The area that holds the address before, if there is one.
        if let Some(before) = start.checked_sub(1).and_then(|at| self.areas.find(at)) {
            let seen = self.areas.see(before);
            if seen.end == start && joins(&seen) {
                start = seen.start;
                self.areas.remove(before);
            }
        }
        if let Some(after) = self.areas.find(end) {
            let seen = self.areas.see(after);
            if seen.start == end && joins(&seen) {
                end = seen.end;
                self.areas.remove(after);
            }
        }
        let range = Range::new(start, end).expect("it only grew");
        self.areas.insert(range, protection);
    }

    /// Unmaps a range. Structural.
    fn cut_out(&self, range: Range) {
        while let Some(area) = self.areas.find(range.start()) {
            let seen = self.areas.see(area);
            if seen.start > range.last() {
                return;
            }
            self.areas.remove(area);
            if let Ok(left) = Range::new(seen.start, range.start()) {
                self.areas.insert(left, seen.protection);
            }
            if let Ok(right) = Range::new(range.last() + 1, seen.end) {
                self.areas.insert(right, seen.protection);
            }
        }
    }

    fn lock_shared(&self, range: Range) -> L::Token {
        let began = self.refinement.time_waits.then(Instant::now);
        let token = self.lock.lock_shared(range);
        if let Some(began) = began {
            self.counters.shared.add(1);
            self.counters.shared_ns.add(began.elapsed().as_nanos() as u64);
        }
        token
    }

    fn lock_exclusive(&self, range: Range) -> L::Token {
        let began = self.refinement.time_waits.then(Instant::now);
        let token = self.lock.lock(range);
        if let Some(began) = began {
            self.counters.exclusive.add(1);
            self.counters.exclusive_ns.add(began.elapsed().as_nanos() as u64);
        }
        token
    }
}

impl From<Seen> for Area {
    fn from(seen: Seen) -> Self {
        let range = Range::new(seen.start, seen.end).expect("areas are not empty");
        Self { range, protection: seen.protection }
    }
}

/// The whole pages from an address, if it begins one and all lie in the space.
fn pages(address: u64, length: u64) -> Option<Range> {
    let length = length.checked_next_multiple_of(PAGE)?;
    let end = address.checked_add(length).filter(|&end| end <= SPACE_END)?;
    if !address.is_multiple_of(PAGE) {
        return None;
    }
    Range::new(address, end).ok()
}
