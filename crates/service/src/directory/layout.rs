//! What lies where in a directory.
//!
//! ```text
//! 0      head      one word: mark, version, how many records; then its line is unused
//! 64     next      the record that was never handed out
//! 128    free      records given back: a tag and the first of them
//! 192    index     a word per place: a tag of the name's hash, the number of its record
//!        records   6 lines each: the lock's line, a line of facts, 4 lines of name
//! ```
//!
//! Every offset follows from the number of records, so a reader computes them and reads none.

use farlock_fabric::{Addr, word};

/// Bytes in the longest name of a lock.
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes in the longest name of a kind of lock.
pub const KIND_BYTES_MAX: usize = 16;

const LINE: u64 = 64;
const NEXT: u64 = LINE;
const FREE: u64 = 2 * LINE;
const INDEX: u64 = 3 * LINE;
/// Bytes of a record.
const RECORD: u64 = 6 * LINE;
/// Places of the index for three records: at most three in four are ever taken.
const PLACES_PER_3_RECORDS: u64 = 4;

/// Words of a record after its lock's line.
pub(super) const FACT_WORDS: usize = 40;
/// Where among these the length of the name lies.
pub(super) const LENGTH: usize = 0;
/// Where the number of the next free record lies while a record is free.
pub(super) const LINK: usize = 1;
/// Where the kind begins: two words.
pub(super) const KIND: usize = 2;
/// Where the name begins.
pub(super) const NAME: usize = 8;

/// "fdir", the first word's mark.
const MARK: u64 = 0x6664_6972;
const VERSION: u64 = 1;

word! {
    /// The first word of a directory. It is written once.
    pub struct Head: u64 {
        /// How many records there are.
        RECORDS records: 24,
        /// The version of the layout.
        VERSION version: 8,
        /// What tells a directory from other words.
        MARK mark: 32,
    }
}

word! {
    /// A place of the index: zero, or a name's record. It is written once.
    pub struct Place: u64 {
        /// The number of the record, from 1.
        RECORD record: 24,
        /// Upper bits of the name's hash.
        TAG tag: 40,
    }
}

word! {
    /// The first of the free records. The tag changes with every change, so that a comparison
    /// never takes a list for the one it was.
    pub struct Free: u64 {
        /// The number of the record; 0 for none.
        RECORD record: 24,
        /// How often the list changed, wrapping.
        TAG tag: 40,
    }
}

/// The places of a directory's parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    base: Addr,
    pub(super) records: u32,
    pub(super) places: u64,
}

impl Layout {
    /// The layout of a directory of so many records at `base`.
    pub(super) fn new(base: Addr, records: u32) -> Self {
        let places = u64::from(records).div_ceil(3) * PLACES_PER_3_RECORDS;
        Self { base, records, places }
    }

    /// The largest directory in so many bytes at `base`; `None` where not one record fits.
    pub(super) fn largest(base: Addr, bytes: u64) -> Option<Self> {
        let for_three = 3 * RECORD + PLACES_PER_3_RECORDS * 8;
        let threes = bytes.saturating_sub(INDEX + LINE) / for_three;
        let records = (3 * threes).min(Place::RECORD.max()) as u32;
        (records > 0).then(|| Self::new(base, records))
    }

    /// The directory that this first word describes, if it is one and fits in so many bytes.
    pub(super) fn of_head(base: Addr, head: Head, bytes: u64) -> Option<Self> {
        let layout = Self::new(base, head.records() as u32);
        let sound = head.mark() == MARK
            && head.version() == VERSION
            && layout.records > 0
            && layout.bytes() <= bytes;
        sound.then_some(layout)
    }

    pub(super) fn head_word(&self) -> Head {
        Head::new()
            .with(Head::MARK, MARK)
            .with(Head::VERSION, VERSION)
            .with(Head::RECORDS, self.records.into())
    }

    fn first_record(&self) -> u64 {
        (INDEX + self.places * 8).next_multiple_of(LINE)
    }

    fn bytes(&self) -> u64 {
        self.first_record() + u64::from(self.records) * RECORD
    }

    pub(super) fn head(&self) -> Addr {
        self.base
    }

    pub(super) fn next(&self) -> Addr {
        self.base.plus(NEXT)
    }

    pub(super) fn free(&self) -> Addr {
        self.base.plus(FREE)
    }

    pub(super) fn place(&self, number: u64) -> Addr {
        assert!(number < self.places, "a place of the index");
        self.base.plus(INDEX + number * 8)
    }

    /// Whether somebody's word names a record there is.
    pub(super) fn has_record(&self, number: u64) -> bool {
        (1..=u64::from(self.records)).contains(&number)
    }

    /// The word of the lock of a record: the beginning of a cache line of its own.
    pub(super) fn lock(&self, record: u64) -> Addr {
        assert!(self.has_record(record), "a record of the directory");
        self.base.plus(self.first_record() + (record - 1) * RECORD)
    }

    /// The facts of a record: [`FACT_WORDS`] words.
    pub(super) fn facts(&self, record: u64) -> Addr {
        self.lock(record).plus(LINE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farlock_fabric::RegionId;

    const BASE: Addr = Addr::new(RegionId(1), 4096);

    #[test]
    fn four_mebibytes_hold_ten_thousand_names() {
        let layout = Layout::largest(BASE, 4 << 20).unwrap();
        assert!(layout.records >= 10_000, "{}", layout.records);
        assert!(layout.bytes() <= 4 << 20);
        assert!(layout.places * 3 >= u64::from(layout.records) * 4);
    }

    #[test]
    fn nothing_overlaps_and_locks_have_lines_of_their_own() {
        for bytes in [2048, 4096, 65_536, 1 << 20] {
            let layout = Layout::largest(BASE, bytes).unwrap();
            assert!(layout.bytes() <= bytes);
            assert!(layout.place(layout.places - 1).plus(8) <= layout.lock(1));
            let step = layout.lock(2).offset() - layout.lock(1).offset();
            assert_eq!((step, layout.lock(2).offset() % LINE), (RECORD, 0));
            assert_eq!(layout.facts(1).plus(FACT_WORDS as u64 * 8), layout.lock(2));
        }
        assert_eq!(Layout::largest(BASE, 100), None);
    }

    #[test]
    fn a_first_word_is_believed_only_if_it_fits() {
        let layout = Layout::largest(BASE, 65_536).unwrap();
        let head = layout.head_word();
        assert_eq!(Layout::of_head(BASE, head, 65_536), Some(layout));
        assert_eq!(Layout::of_head(BASE, head, 30_000), None);
        assert_eq!(Layout::of_head(BASE, head.with(Head::VERSION, 9), 65_536), None);
        assert_eq!(Layout::of_head(BASE, head.with(Head::RECORDS, 0), 65_536), None);
        assert_eq!(Layout::of_head(BASE, Head(7), 65_536), None);
    }
}
