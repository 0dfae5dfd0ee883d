//! What a worker writes down: a record before each operation, and one after it, in a file of its
//! own. What was written stays when its writer is killed.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};

/// Words of a record.
const WORDS: usize = 5;
/// Bytes of a record.
const RECORD: usize = WORDS * 8;

/// What was asked, or answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// The value of a key is asked for.
    Get,
    /// A key gets this value.
    Put,
    /// A key gets the second value if it has the first one.
    Change,
    /// It has been done; of a get, this is the value, 0 for none.
    Done,
    /// It was not: the key had another value.
    Refused,
    /// It failed, as it must not.
    Failed,
    /// The session was lost meanwhile: whether it was done is not known.
    Lost,
    /// Whether it was done is not known, and the session goes on.
    Unknown,
}

impl What {
    /// Whether it answers what was asked before.
    pub const fn is_answer(self) -> bool {
        !matches!(self, Self::Get | Self::Put | Self::Change)
    }
}

/// All there is.
const ALL: [What; 8] = [
    What::Get,
    What::Put,
    What::Change,
    What::Done,
    What::Refused,
    What::Failed,
    What::Lost,
    What::Unknown,
];

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// What it says.
    pub what: What,
    /// When, by the clock of all.
    pub time: u64,
    /// Of which key.
    pub key: u64,
    /// A value.
    pub one: u64,
    /// Another one.
    pub other: u64,
}

/// The time, in nanoseconds.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Record {
    fn to_bytes(self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let words = [self.what as u64, self.time, self.key, self.one, self.other];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| {
            let word = bytes[8 * at..8 * at + 8].try_into();
            u64::from_le_bytes(word.expect("a word has 8 bytes"))
        };
        let what = ALL.into_iter().find(|what| *what as u64 == word(0))?;
        Some(Self { what, time: word(1), key: word(2), one: word(3), other: word(4) })
    }
}

/// The file of one worker.
#[derive(Debug)]
pub struct Diary(File);

impl Diary {
    fn path(dir: &Path, who: u64) -> PathBuf {
        dir.join(format!("diary-{who}"))
    }

    /// Opens it to write.
    pub fn open(dir: &Path, who: u64) -> io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(Self::path(dir, who)).map(Self)
    }

    /// Writes a record down, in one call of the system.
    pub fn add(&mut self, record: Record) -> io::Result<()> {
        self.0.write_all(&record.to_bytes())
    }

    /// Reads what a worker has written.
    pub fn read(dir: &Path, who: u64) -> io::Result<Vec<Record>> {
        let bytes = match std::fs::read(Self::path(dir, who)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let records = bytes.chunks_exact(RECORD).map(Record::of_bytes);
        records.collect::<Option<_>>().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}
