//! Going through a store.

use std::fmt;
use std::ops::Bound;
use std::time::Duration;

use farlock_fabric::block_on;
use farlock_kv::ReadError;
use farlock_locks::Token;

use super::Kv;
use super::error::KvError;
use super::index::{Index, Next, Pairs};
use super::range::{KeyRange, beginning_with};
use super::value::{Stored, Term};

/// A key of a store, and what lies there.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Pair {
    /// The key.
    pub key: Vec<u8>,
    /// Its value; `None` if it was removed or has ended, and its token stays.
    pub value: Option<Vec<u8>>,
    /// How long it still has its value, if that ends.
    pub time_left: Option<Duration>,
    /// The highest token it was written with.
    pub token: Option<Token>,
    /// Whether it ends with its owner: [`Kv::put_ephemeral`].
    pub is_ephemeral: bool,
}

/// Pairs of a store, in the order of their keys if it is ordered: [`Kv::scan`].
///
/// It reads some at a time, and ends with the first error but [`KvError::Corrupt`]. In an ordered
/// store another one goes on behind the last key that it gave, also in another process:
/// `scan_range((Bound::Excluded(key), Bound::Unbounded))`, or in reverse
/// `scan_range_reversed((Bound::Unbounded, Bound::Excluded(key)))`.
#[must_use = "iterators do nothing until they are asked"]
pub struct Scan<'k> {
    pages: Pages<'k>,
    /// Those that were read.
    pairs: std::vec::IntoIter<Result<farlock_kv::Pair, ReadError>>,
}

/// Pairs of a store as they are stored, some at a time.
pub(super) struct Pages<'k> {
    kv: &'k Kv,
    next: Next,
    /// The last key, or the first one if it goes down.
    end: Bound<Vec<u8>>,
    /// Of an ordered store: how many are asked for.
    most: usize,
}

/// An ordered store is asked for so many pairs at first: a caller that wants few waits for few.
const PAGE_PAIRS: usize = 32;

/// And for so many at most.
const PAGE_PAIRS_MAX: usize = 512;

/// Where a page had more bytes, the next one has half as many pairs.
const PAGE_BYTES: usize = 256 << 10;

impl Kv {
    /// Every pair of the store. A key that is there all the time is seen, once, as it was at some
    /// moment meanwhile; one that comes or goes meanwhile may be. In place of a pair whose memory
    /// was damaged there is [`KvError::Corrupt`], and the scan goes on; in an ordered store that
    /// may stand for several pairs side by side.
    pub fn scan(&self) -> Scan<'_> {
        Scan { pages: Pages::of_all(self), pairs: Vec::new().into_iter() }
    }

    /// The pairs of an ordered store whose keys are in this range, in order: of their bytes, a key
    /// before those that begin with it. Each is as [`Kv::scan`] gives it.
    ///
    /// # Errors
    /// [`KvError::OtherIndex`]: the store is not ordered.
    pub fn scan_range(&self, range: impl KeyRange) -> Result<Scan<'_>, KvError> {
        let (from, until) = range.into_bounds();
        self.scan_from(Next::Key(from), until)
    }

    /// The same of the keys that begin so.
    ///
    /// # Errors
    /// [`KvError::OtherIndex`]: the store is not ordered.
    pub fn scan_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Scan<'_>, KvError> {
        let (from, until) = beginning_with(prefix.as_ref());
        self.scan_from(Next::Key(from), until)
    }

    /// What [`Kv::scan_range`] gives, the last key first. It costs the same.
    ///
    /// # Errors
    /// [`KvError::OtherIndex`]: the store is not ordered.
    pub fn scan_range_reversed(&self, range: impl KeyRange) -> Result<Scan<'_>, KvError> {
        let (from, until) = range.into_bounds();
        self.scan_from(Next::Down(until), from)
    }

    /// What [`Kv::scan_prefix`] gives, the last key first.
    ///
    /// # Errors
    /// [`KvError::OtherIndex`]: the store is not ordered.
    pub fn scan_prefix_reversed(&self, prefix: impl AsRef<[u8]>) -> Result<Scan<'_>, KvError> {
        let (from, until) = beginning_with(prefix.as_ref());
        self.scan_from(Next::Down(until), from)
    }

    fn scan_from(&self, next: Next, end: Bound<Vec<u8>>) -> Result<Scan<'_>, KvError> {
        self.hub.admit(Some(Index::Ordered))?;
        let pages = Pages { kv: self, next, end, most: PAGE_PAIRS };
        Ok(Scan { pages, pairs: Vec::new().into_iter() })
    }
}

impl<'k> Pages<'k> {
    pub(super) fn of_all(kv: &'k Kv) -> Self {
        let next = kv.store.beginning();
        Self { kv, next, end: Bound::Unbounded, most: PAGE_PAIRS }
    }

    /// Some more, which may be none; `None`: there is no more. Behind an error there is none.
    pub(super) fn next(&mut self) -> Result<Option<Pairs>, KvError> {
        let from = std::mem::replace(&mut self.next, Next::End);
        if matches!(from, Next::End) {
            return Ok(None);
        }
        self.kv.hub.check()?;
        let end = self.end.as_ref().map(Vec::as_slice);
        let read = block_on(self.kv.lane(), self.kv.store.page(&from, end, self.most));
        let (pairs, next) = read.map_err(|error| self.kv.hub.told(KvError::of_read(error, b"")))?;
        let bytes: usize = pairs.iter().flatten().map(|(key, value)| key.len() + value.len()).sum();
        self.most = match bytes > PAGE_BYTES {
            true => (self.most / 2).max(1),
            false => (self.most * 2).min(PAGE_PAIRS_MAX),
        };
        self.next = next;
        Ok(Some(pairs))
    }
}

impl Scan<'_> {
    fn pair(&self, (key, bytes): farlock_kv::Pair) -> Result<Option<Pair>, KvError> {
        let stored = Stored::decode(&bytes).ok_or(KvError::Corrupt)?;
        let value = stored.data(|term| self.pages.kv.has_ended(term)).map(<[u8]>::to_vec);
        let term = value.as_ref().map_or(Term::default(), |_| stored.term);
        let (time_left, is_ephemeral) = (self.pages.kv.time_to(term), term.owner.is_some());
        let is_there = value.is_some() || stored.token.is_some();
        let token = stored.token;
        Ok(is_there.then_some(Pair { key, value, time_left, token, is_ephemeral }))
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<Pair, KvError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some(pair) = self.pairs.next() {
                let pair = pair.map_err(|error| KvError::of_read(error, b""));
                if let Some(pair) = pair.and_then(|pair| self.pair(pair)).transpose() {
                    return Some(pair);
                }
            }
            match self.pages.next() {
                Ok(pairs) => self.pairs = pairs?.into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("store", &self.pages.kv.name()).finish_non_exhaustive()
    }
}
