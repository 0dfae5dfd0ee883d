//! Going through a store.

use std::fmt;
use std::ops::Bound;
use std::time::Duration;

use farlock_kv::ReadError;
use farlock_locks::Token;

use super::Kv;
use super::error::KvError;
use super::index::{Index, Next, Pairs};
use super::part::Part;
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
///
/// Of a store over several regions it reads some of each part, and gives what they have in order;
/// without an order one part after the other.
#[must_use = "iterators do nothing until they are asked"]
pub struct Scan<'k> {
    kv: &'k Kv,
    /// What is still to come of each part.
    runs: Vec<Run<'k>>,
    order: Order,
    /// Why a part cannot be read.
    failed: Option<KvError>,
}

/// In which order the pairs of several parts come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    None,
    Up,
    Down,
}

/// Pairs of a part.
struct Run<'k> {
    part: &'k Part,
    pages: Pages,
    /// Those that were read.
    pairs: std::vec::IntoIter<Result<farlock_kv::Pair, ReadError>>,
    /// The next one, where it waits for those of other parts.
    head: Option<Pair>,
}

/// One of several that have pairs.
pub(super) trait HasHead {
    /// The pair that it gives next, where that was read.
    fn head(&mut self) -> &mut Option<Pair>;
}

impl HasHead for Run<'_> {
    fn head(&mut self) -> &mut Option<Pair> {
        &mut self.head
    }
}

/// Pairs of a part as they are stored, some at a time.
#[derive(Clone)]
pub(super) struct Pages {
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
        self.scan_each(Order::of_all(self.index()), Pages::of_all(self.index()))
    }

    /// The pairs of an ordered store whose keys are in this range, in order: of their bytes, a key
    /// before those that begin with it. Each is as [`Kv::scan`] gives it.
    ///
    /// # Errors
    /// [`KvError::OtherIndex`]: the store is not ordered.
    pub fn scan_range(&self, range: impl KeyRange) -> Result<Scan<'_>, KvError> {
        self.scan_ordered(Order::Up, Pages::up(range.into_bounds()))
    }

    /// The same of the keys that begin so.
    ///
    /// # Errors
    /// [`KvError::OtherIndex`]: the store is not ordered.
    pub fn scan_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Scan<'_>, KvError> {
        self.scan_ordered(Order::Up, Pages::up(beginning_with(prefix.as_ref())))
    }

    /// What [`Kv::scan_range`] gives, the last key first. It costs the same.
    ///
    /// # Errors
    /// [`KvError::OtherIndex`]: the store is not ordered.
    pub fn scan_range_reversed(&self, range: impl KeyRange) -> Result<Scan<'_>, KvError> {
        self.scan_ordered(Order::Down, Pages::down(range.into_bounds()))
    }

    /// What [`Kv::scan_prefix`] gives, the last key first.
    ///
    /// # Errors
    /// [`KvError::OtherIndex`]: the store is not ordered.
    pub fn scan_prefix_reversed(&self, prefix: impl AsRef<[u8]>) -> Result<Scan<'_>, KvError> {
        self.scan_ordered(Order::Down, Pages::down(beginning_with(prefix.as_ref())))
    }

    fn scan_ordered(&self, order: Order, pages: Pages) -> Result<Scan<'_>, KvError> {
        KvError::unless_index(self.name(), self.index(), Some(Index::Ordered))?;
        Ok(self.scan_each(order, pages))
    }

    fn scan_each(&self, order: Order, pages: Pages) -> Scan<'_> {
        let run =
            |part| Run { part, pages: pages.clone(), pairs: Vec::new().into_iter(), head: None };
        let (runs, failed) = match self.all_parts().map(|part| part.map(run)).collect() {
            Ok(runs) => (runs, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        Scan { kv: self, runs, order, failed }
    }
}

impl Order {
    /// That of all pairs of a store.
    pub(super) fn of_all(index: Index) -> Self {
        match index {
            Index::Ordered => Self::Up,
            Index::Hash => Self::None,
        }
    }

    /// Takes the pair that comes first of those that these have.
    pub(super) fn take_first(self, runs: &mut Vec<impl HasHead>) -> Option<Pair> {
        runs.retain_mut(|run| run.head().is_some());
        let comes_before = |pair: &Option<Pair>, other: &Option<Pair>| {
            let [key, other] = [pair, other].map(|pair| pair.as_ref().map(|pair| &pair.key));
            match self {
                Self::Down => key > other,
                Self::None | Self::Up => key < other,
            }
        };
        let heads = runs.iter_mut().map(HasHead::head);
        let first = heads.reduce(|first, head| match comes_before(head, first) {
            true => head,
            false => first,
        });
        first.and_then(Option::take)
    }
}

impl Pages {
    /// All pairs of a part of a store of this index.
    pub(super) fn of_all(index: Index) -> Self {
        let next = match index {
            Index::Hash => Next::Slot(None),
            Index::Ordered => Next::Key(Bound::Unbounded),
        };
        Self { next, end: Bound::Unbounded, most: PAGE_PAIRS }
    }

    /// Those between two keys, upwards.
    pub(super) fn up((from, until): (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Self {
        Self { next: Next::Key(from), end: until, most: PAGE_PAIRS }
    }

    /// The same, downwards.
    pub(super) fn down((from, until): (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Self {
        Self { next: Next::Down(until), end: from, most: PAGE_PAIRS }
    }

    /// Some more, which may be none; `None`: there is no more. Behind an error there is none.
    pub(super) async fn next(&mut self, part: &Part) -> Result<Option<Pairs>, KvError> {
        let from = std::mem::replace(&mut self.next, Next::End);
        if matches!(from, Next::End) {
            return Ok(None);
        }
        let Part { store, hub, .. } = part;
        hub.check()?;
        let end = self.end.as_ref().map(Vec::as_slice);
        let read = store.page(&from, end, self.most).await;
        let (pairs, next) = read.map_err(|error| hub.told(KvError::of_read(error, b"")))?;
        let bytes: usize = pairs.iter().flatten().map(|(key, value)| key.len() + value.len()).sum();
        self.most = match bytes > PAGE_BYTES {
            true => (self.most / 2).max(1),
            false => (self.most * 2).min(PAGE_PAIRS_MAX),
        };
        self.next = next;
        Ok(Some(pairs))
    }
}

impl Part {
    /// What is stored as a scan gives it, if it does.
    pub(super) fn pair(
        &self,
        read: Result<farlock_kv::Pair, ReadError>,
    ) -> Result<Option<Pair>, KvError> {
        let (key, bytes) = read.map_err(|error| KvError::of_read(error, b""))?;
        let stored = Stored::decode(&bytes).ok_or(KvError::Corrupt)?;
        let value = stored.data(|term| self.has_ended(term)).map(<[u8]>::to_vec);
        let term = value.as_ref().map_or(Term::default(), |_| stored.term);
        let (time_left, is_ephemeral) = (self.time_to(term), term.owner.is_some());
        let is_there = value.is_some() || stored.token.is_some();
        let token = stored.token;
        Ok(is_there.then_some(Pair { key, value, time_left, token, is_ephemeral }))
    }
}

impl Run<'_> {
    /// The next pair; behind an error there is none, unless that is of one pair.
    fn next(&mut self) -> Result<Option<Pair>, KvError> {
        loop {
            for read in self.pairs.by_ref() {
                if let Some(pair) = self.part.pair(read)? {
                    return Ok(Some(pair));
                }
            }
            match self.part.block(self.pages.next(self.part))? {
                Some(pairs) => self.pairs = pairs.into_iter(),
                None => return Ok(None),
            }
        }
    }
}

impl Scan<'_> {
    /// The next pair, of whichever part it is.
    fn next_pair(&mut self) -> Result<Option<Pair>, KvError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.order != Order::None && self.runs.len() > 1 {
            return self.next_of_several();
        }
        // One after the other.
        while let Some(run) = self.runs.last_mut() {
            match run.head.take().map_or_else(|| run.next(), |head| Ok(Some(head)))? {
                None => drop(self.runs.pop()),
                pair => return Ok(pair),
            }
        }
        Ok(None)
    }

    /// The pair of the parts that comes first.
    fn next_of_several(&mut self) -> Result<Option<Pair>, KvError> {
        for run in &mut self.runs {
            if run.head.is_none() {
                run.head = run.next()?;
            }
        }
        Ok(self.order.take_first(&mut self.runs))
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<Pair, KvError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_pair();
        if !matches!(next, Ok(_) | Err(KvError::Corrupt)) {
            // What came behind it would look as if it were all.
            self.runs.clear();
        }
        next.transpose()
    }
}

impl fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("store", &self.kv.name()).finish_non_exhaustive()
    }
}
