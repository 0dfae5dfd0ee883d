//! The log of a storm: what everybody did, when, by one clock.
//!
//! A record is one write of 64 bytes to a file that is only appended to: it is there whole or not
//! at all, whichever process dies, for no record lies across two pages. Nothing here knows a lock's
//! text.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::part::Part;
pub(crate) use crate::clock::now;

/// Bytes of a record. A page holds a whole number of them.
const RECORD: usize = 64;
/// Where in its first word a record says whether one is alone, and from where on which lock.
const ALONE_SHIFT: u32 = 8;
const LOCK_SHIFT: u32 = 16;
/// As many locks as a record can tell apart.
const LOCKS_MAX: u64 = 1 << (u64::BITS - LOCK_SHIFT);

farlock_fabric::listed! {
    /// What happened.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u64)]
    pub enum What {
        /// An operation asks for a lock; `more` is its [`Patience`].
        Asks = 1,
        /// It holds, with a token.
        Enters = 2,
        /// It is about to release.
        Leaves = 3,
        /// It has released; `more` is 1 if it only let go of its guard.
        Ended = 4,
        /// It was not granted; `more` is the [`Refusal`].
        Refused = 5,
        /// It holds, and another holder that lives was found inside.
        Overlaps = 6,
        /// It failed as nothing should.
        Failed = 7,
        /// A process is about to be killed.
        Kills = 8,
        /// Nothing of it is left.
        Gone = 9,
        /// It is about to be stopped.
        Stops = 10,
        /// It was seen to be stopped.
        Stopped = 11,
        /// It is about to go on.
        Continues = 12,
        /// The storm is over: who waits now waits for ever.
        Over = 13,
        /// Who kills and stops looks after everybody: again and again, where the machine lets it.
        Watches = 14,
        /// Its connections are about to be broken; `more` is until when they are.
        Cut = 15,
        /// Its session is over, since its server is out of reach.
        Lost = 16,
    }
}

/// How long an operation waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Until it is granted.
    Endless,
    /// Not at all.
    Try,
    /// So many nanoseconds.
    For(u64),
    /// Until it is dropped, at some moment.
    UntilDropped,
}

impl Patience {
    /// As a record has it.
    pub const fn bits(self) -> u64 {
        match self {
            Self::Endless => 0,
            Self::Try => 1,
            Self::UntilDropped => 2,
            Self::For(nanos) => nanos + 3,
        }
    }

    /// Of a record.
    pub const fn of(bits: u64) -> Self {
        match bits {
            0 => Self::Endless,
            1 => Self::Try,
            2 => Self::UntilDropped,
            nanos => Self::For(nanos - 3),
        }
    }
}

/// Why an operation was not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Refusal {
    /// It was not to wait.
    Busy = 0,
    /// Its time had passed.
    TimedOut = 1,
    /// It was dropped.
    Dropped = 2,
    /// Its session was lost.
    Lost = 3,
}

/// A line of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// What happened.
    pub what: What,
    /// When.
    pub time: u64,
    /// To whom: a process's number in the storm, never used again.
    pub who: u64,
    /// Which operation of theirs.
    pub op: u64,
    /// On which lock, or which positions of one.
    pub part: Part,
    /// Whether it is asked for, or held, alone.
    pub alone: bool,
    /// The token, of who enters.
    pub token: u64,
    /// What else there is to say.
    pub more: u64,
}

impl Record {
    /// What happens now to this process.
    pub fn now(what: What, who: u64) -> Self {
        let part = Part::all(0);
        Self { what, time: now(), who, op: 0, part, alone: false, token: 0, more: 0 }
    }

    fn to_bytes(self) -> [u8; RECORD] {
        let Self { what, time, who, op, part, alone, token, more } = self;
        let Part { lock, start, end } = part;
        assert!(lock < LOCKS_MAX, "a record has room for the number of a lock");
        let first = what as u64 | u64::from(alone) << ALONE_SHIFT | lock << LOCK_SHIFT;
        let words = [first, time, who, op, start, end, token, more];
        let mut bytes = [0; RECORD];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        let word = |index: usize| {
            let word = bytes[index * 8..][..8].try_into().expect("eight bytes are a word");
            u64::from_le_bytes(word)
        };
        let [first, time, who, op, start, end, token, more] = [0, 1, 2, 3, 4, 5, 6, 7].map(word);
        let kind = first & ((1 << ALONE_SHIFT) - 1);
        let what = What::ALL.into_iter().find(|what| *what as u64 == kind)?;
        let (alone, lock) = (first >> ALONE_SHIFT & 1 == 1, first >> LOCK_SHIFT);
        Some(Self { what, time, who, op, part: Part { lock, start, end }, alone, token, more })
    }
}

/// A process's end of the log.
#[derive(Debug)]
pub struct Log(File);

impl Log {
    /// The log in this directory, made where it is missing.
    pub fn open(dir: &Path) -> io::Result<Self> {
        Ok(Self(File::options().append(true).create(true).open(path(dir))?))
    }

    /// Adds a record.
    pub fn add(&self, record: Record) -> io::Result<()> {
        (&self.0).write_all(&record.to_bytes())
    }
}

/// Reads a log as it grows.
#[derive(Debug)]
pub struct Reader(File);

impl Reader {
    /// Of the log in this directory, from its beginning.
    pub fn open(dir: &Path) -> io::Result<Self> {
        Ok(Self(File::open(path(dir))?))
    }

    /// What was added since the last time.
    pub fn news(&mut self) -> io::Result<Vec<Record>> {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes)?;
        let whole = bytes.len() % RECORD == 0;
        let records: Option<Vec<Record>> = bytes.chunks_exact(RECORD).map(Record::of).collect();
        match records {
            Some(records) if whole => Ok(records),
            _ => Err(io::Error::other("a record that is none")),
        }
    }
}

pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join("log")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn what_is_added_is_read_once() {
        let scratch = Scratch::new().unwrap();
        let log = Log::open(scratch.path()).unwrap();
        let mut reader = Reader::open(scratch.path()).unwrap();
        let first = Record { token: u64::MAX, alone: true, ..Record::now(What::Enters, 7) };
        log.add(first).unwrap();
        assert_eq!(reader.news().unwrap(), [first]);
        let more = Patience::For(5).bits();
        let part = Part { lock: 3, start: 4, end: u64::MAX - 1 };
        let second = Record { more, part, op: 9, ..Record::now(What::Over, 8) };
        log.add(second).unwrap();
        assert_eq!(reader.news().unwrap(), [second]);
        assert_eq!(reader.news().unwrap(), []);
        assert_eq!(Patience::of(more), Patience::For(5));
        assert!(second.time >= first.time);
    }
}
