//! Whether files hold what was written to them last, judged by words that no lock and no verb
//! knows.
//!
//! Clients read and write *records*: bytes with a number, always the same ones. Each word of a
//! record says which client wrote it and with which of its writes, but for the first one, which
//! says which record it is. Beside them each record has a word of the [`Judge`]: a writer stores
//! there what it is about to write, and looks again before it lets go. So a reader knows what it
//! must find, to the word, and a client that is beside a writer is seen.

use std::sync::atomic::Ordering;

use farlock_fabric::Addr;

use super::course::FsCourse;
use super::layout::{Layout, WORD};
use crate::judge::Judge;

/// Bits of a stamp that count the writes of a client.
const COUNT_BITS: u32 = 40;

/// Which client wrote a record, and with which of its writes; zero where none did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp(u64);

impl Stamp {
    /// What no client has written.
    const NONE: Self = Self(0);

    /// The write of this client with this number.
    pub(super) fn of(client: usize, count: u64) -> Self {
        assert!(count >> COUNT_BITS == 0, "a stamp has room for {COUNT_BITS} bits of a count");
        Self((client as u64 + 1) << COUNT_BITS | count)
    }
}

/// The records of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Records<'a> {
    judge: Judge<'a>,
    /// Whether what is read is what was written: not where lengths alone are moved.
    has_bytes: bool,
}

impl<'a> Records<'a> {
    pub(super) fn new(judge: Judge<'a>, has_bytes: bool) -> Self {
        Self { judge, has_bytes }
    }

    /// The caller holds this record alone and is about to write this.
    pub(super) fn writes(&self, record: u64, stamp: Stamp) {
        self.judge.word(record as usize).store(stamp.0, Ordering::Relaxed);
    }

    /// The caller has written it and is about to let go. Returns how many violations it has seen.
    pub(super) fn wrote(&self, record: u64, stamp: Stamp) -> u64 {
        u64::from(self.last(record) != stamp)
    }

    /// The last write of this record, which the caller holds.
    pub(super) fn last(&self, record: u64) -> Stamp {
        Stamp(self.judge.word(record as usize).load(Ordering::Relaxed))
    }

    /// The caller has read this record, of which it knew the last write, and is about to let go.
    /// Returns how many violations it has seen: 0 or 1.
    pub(super) fn read(&self, record: u64, last: Stamp, bytes: &[u8], whole: usize) -> u64 {
        let is_right = !self.has_bytes || (bytes.len() == whole && is_written(record, last, bytes));
        u64::from(!is_right || self.last(record) != last)
    }

    /// Whether a record that is not held, of these words, is what was written last. Returns the
    /// violations: 0 or 1.
    pub(super) fn lost(&self, record: u64, words: impl Iterator<Item = u64>) -> u64 {
        let last = self.last(record);
        let is_right = |(at, word)| word == expected(record, last, at);
        let is_judged = self.has_bytes && last != Stamp::NONE;
        u64::from(is_judged && !words.enumerate().all(is_right))
    }
}

/// Records that are not what was written to them last, when all clients have ended: each was a
/// write that was lost. `peek` reads a word.
pub(super) fn lost_writes(
    course: &FsCourse,
    layout: &Layout,
    judge: Judge<'_>,
    peek: impl Fn(Addr) -> u64,
) -> u64 {
    if !course.has_bytes {
        return 0;
    }
    let inode = |file| inode(&course.name(file), layout, &peek);
    let files: Vec<u32> = (0..course.files()).map(inode).collect();
    let records = Records::new(judge, true);
    let lost = |record| {
        let file = files[course.place(record).file];
        records.lost(record, course.words(record, layout, file).map(&peek))
    };
    (0..course.records()).map(lost).sum()
}

/// The inode of this name: the first one, if no file was made.
fn inode(name: &str, layout: &Layout, peek: impl Fn(Addr) -> u64) -> u32 {
    let of = |inode: &u32| {
        let word = layout.name(*inode);
        let bytes = [peek(word), peek(word.plus(WORD))].map(u64::to_le_bytes).concat();
        bytes.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.iter().all(|byte| *byte == 0))
    };
    (0..layout.shape().files).find(of).unwrap_or(0)
}

/// The bytes of a record with this stamp.
pub(super) fn filled(record: u64, stamp: Stamp, bytes: usize) -> Vec<u8> {
    let words = bytes.div_ceil(WORD as usize);
    let mut filled: Vec<u8> = stamp.0.to_le_bytes().repeat(words);
    filled[..WORD as usize].copy_from_slice(&expected(record, stamp, 0).to_le_bytes());
    filled.truncate(bytes);
    filled
}

/// The word of a record at this place.
const fn expected(record: u64, stamp: Stamp, at: usize) -> u64 {
    if at == 0 && stamp.0 != 0 { record + 1 } else { stamp.0 }
}

fn is_written(record: u64, stamp: Stamp, bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks();
    let mut words = words.iter().map(|word| u64::from_le_bytes(*word)).enumerate();
    let last = expected(record, stamp, words.len()).to_le_bytes();
    words.all(|(at, word)| word == expected(record, stamp, at)) && last.starts_with(rest)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    fn words() -> Vec<AtomicU64> {
        (0..Judge::words(2)).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn what_was_written_last_is_right_and_all_else_is_wrong() {
        let words = words();
        let records = Records::new(Judge::new(&words, 2), true);
        let (first, second) = (Stamp::of(3, 1), Stamp::of(4, 1));
        assert_eq!(records.read(1, records.last(1), &[0; 20], 20), 0, "no client has written");
        records.writes(1, first);
        assert_eq!(records.wrote(1, first), 0);
        let bytes = filled(1, first, 20);
        assert_eq!(records.read(1, records.last(1), &bytes, 20), 0);
        let mut torn = bytes.clone();
        torn[8..16].copy_from_slice(&filled(1, second, 20)[8..16]);
        let wrong = [torn, filled(0, first, 20), filled(1, second, 20), bytes[..12].to_vec()];
        for bytes in wrong {
            assert_eq!(records.read(1, records.last(1), &bytes, 20), 1, "{bytes:?}");
        }
    }

    #[test]
    fn a_client_that_writes_beside_others_is_seen() {
        let words = words();
        let records = Records::new(Judge::new(&words, 2), false);
        let (first, second) = (Stamp::of(0, 1), Stamp::of(1, 1));
        let known = records.last(0);
        records.writes(0, first);
        assert_eq!(records.read(0, known, &[], 8), 1, "a writer came while this one read");
        records.writes(0, second);
        assert_eq!([records.wrote(0, first), records.wrote(0, second)], [1, 0]);
    }

    #[test]
    fn a_write_that_was_lost_is_found_in_the_end() {
        let words = words();
        let records = Records::new(Judge::new(&words, 2), true);
        let lost = |stamp| {
            let bytes = filled(1, stamp, 24);
            let (chunks, _) = bytes.as_chunks();
            records.lost(1, chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)))
        };
        assert_eq!(lost(Stamp::of(0, 7)), 0, "no client says that it wrote");
        records.writes(1, Stamp::of(0, 8));
        assert_eq!([lost(Stamp::of(0, 7)), lost(Stamp::of(0, 8))], [1, 0]);
    }
}
