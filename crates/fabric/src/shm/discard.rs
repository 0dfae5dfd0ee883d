//! Memory of the heap that goes back to the system while the region lives, and is had again.
//!
//! The region's file keeps its length and every mapping stays as it is: what was discarded reads
//! as zero. But a word of it that is touched takes a page of the filesystem at that moment, and a
//! full one ends the process by SIGBUS. So nobody touches what is discarded before it is reserved.
//!
//! | died | what is left |
//! | --- | --- |
//! | while it discarded | pages of before, and pages of zeros; no page is half of each |
//! | while it reserved | as much less memory missing |

use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::error::GrowError;
use super::region::{REGION, Region, allocate};
use crate::addr::Addr;

/// Bytes in a unit of what the system says a file takes.
const SECTOR_BYTES: u64 = 512;

impl Region {
    /// Gives the memory of these words of the heap back to the system. They are zero from then on;
    /// before they are used again they must be [reserved](Region::reserve). Whole pages go, what
    /// shares its page with other words is set to zero alone. Returns by how many bytes the file
    /// takes less memory, or less than that where others had memory meanwhile.
    ///
    /// It is the caller's matter that nobody uses these words, and that nobody begins to before
    /// this has returned: the system cannot be told to leave it when that has changed.
    ///
    /// # Errors
    /// See [`GrowError`]; where the system refuses, the words may be as they were.
    pub fn discard(&self, addr: Addr, bytes: u64) -> Result<u64, GrowError> {
        let span = self.span(addr, bytes)?;
        let file = self.mapping().file();
        let taken = || -> Result<u64, GrowError> {
            let metadata = file.metadata();
            let metadata = metadata.map_err(|source| GrowError::Io { what: "examine", source })?;
            Ok(metadata.blocks() * SECTOR_BYTES)
        };
        let before = taken()?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, span.start, bytes))
            .map_err(|error| GrowError::Io { what: "discard memory of", source: error.into() })?;
        Ok(before.saturating_sub(taken()?))
    }

    /// Gives these words of the heap their memory again, where it was discarded; what comes is
    /// zero, and what is there stays as it is. May be done as often as one likes, by many at once.
    ///
    /// # Errors
    /// See [`GrowError`].
    pub fn reserve(&self, addr: Addr, bytes: u64) -> Result<(), GrowError> {
        let span = self.span(addr, bytes)?;
        allocate(self.mapping().file(), span.start, bytes).map_err(|error| match error {
            Errno::NOSPC | Errno::FBIG | Errno::DQUOT => GrowError::NoSpace { bytes },
            other => GrowError::Io { what: "allocate", source: other.into() },
        })
    }

    /// Where in the file these words lie, if all of them are words of the heap.
    fn span(&self, addr: Addr, bytes: u64) -> Result<Range<u64>, GrowError> {
        self.check_forks().map_err(|source| GrowError::Io { what: "open", source })?;
        if self.is_retired() {
            return Err(GrowError::Stale);
        }
        let length = self.mapping().bytes().ok_or(GrowError::Stale)?;
        let (start, first) = (addr.offset(), self.mapping().layout().heap);
        let end = start.checked_add(bytes).filter(|end| *end <= length);
        match end.filter(|_| addr.region() == REGION && start >= first && bytes > 0) {
            Some(end) => Ok(start..end),
            None => Err(GrowError::Limit { max_bytes: length }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::region::Options;
    use super::super::testing::TestDir;
    use super::*;
    use crate::shm::primitive::Ordering;

    const PAGE: u64 = 4096;

    /// The bytes of memory that a region's file takes.
    fn taken(region: &Region) -> u64 {
        region.mapping().file().metadata().unwrap().blocks() * SECTOR_BYTES
    }

    fn region(dir: &TestDir) -> Region {
        Region::open(&Options::new(dir.path(), dir.path().join("state"), "r")).unwrap()
    }

    /// Between words that stay, at no page's boundary.
    #[test]
    fn what_is_discarded_is_zero_and_takes_no_memory_until_it_is_reserved() {
        let dir = TestDir::new("discarded");
        let region = region(&dir);
        let other = Region::open(&Options::new(dir.path(), dir.path().join("state"), "r")).unwrap();
        region.words().iter().for_each(|word| word.store(7, Ordering::SeqCst));
        let (all, (first, last)) = (taken(&region), (1000_u64, 201_000));
        let (addr, bytes) = (region.heap().0.plus(8 * first), 8 * (last - first));
        let gone = region.discard(addr, bytes).unwrap();
        assert_eq!(taken(&region), all - gone);
        assert!((bytes - 2 * PAGE..=bytes).contains(&gone), "{gone} of {bytes}");
        region.reserve(addr, bytes).unwrap();
        assert_eq!(taken(&region), all);
        for (number, word) in (0..).zip(other.words()) {
            let is_gone = (first..last).contains(&number);
            assert_eq!(word.load(Ordering::SeqCst), if is_gone { 0 } else { 7 }, "word {number}");
        }
        // What is there stays.
        other.words()[first as usize].store(9, Ordering::SeqCst);
        region.reserve(addr, bytes).unwrap();
        assert_eq!(other.words()[first as usize].load(Ordering::SeqCst), 9);
    }

    #[test]
    fn what_is_no_word_of_the_heap_is_neither_discarded_nor_reserved() {
        let dir = TestDir::new("no-word");
        let region = region(&dir);
        let (heap, length) = region.heap();
        let before = Addr::new(REGION, heap.offset() - PAGE);
        let spans = [(before, 2 * PAGE), (heap, length + 1), (heap.plus(length), 8), (heap, 0)];
        for (addr, bytes) in spans.into_iter().chain([(heap.plus(8), u64::MAX)]) {
            assert!(matches!(region.discard(addr, bytes), Err(GrowError::Limit { .. })));
            assert!(matches!(region.reserve(addr, bytes), Err(GrowError::Limit { .. })));
        }
        Region::remove(dir.path(), "r").unwrap();
        assert!(matches!(region.discard(heap, PAGE), Err(GrowError::Stale)));
        assert!(matches!(region.reserve(heap, PAGE), Err(GrowError::Stale)));
    }
}
