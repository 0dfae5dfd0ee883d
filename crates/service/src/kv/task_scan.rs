//! Going through a store by a task.

use std::fmt;
use std::vec::IntoIter;

use super::error::KvError;
use super::index::Index;
use super::part::Part;
use super::range::{KeyRange, beginning_with};
use super::scan::{HasHead, Order, Pages, Pair};
use super::tasks::{AsyncKv, let_others};

/// Pairs of a store, as [`Scan`](crate::kv::Scan) gives them to a thread: [`AsyncKv::scan`].
///
/// Some are read at a time; what a pair says of its time it says of when it was read.
#[must_use = "a scan reads nothing until it is asked"]
pub struct AsyncScan {
    kv: AsyncKv,
    /// What is still to come of each part.
    runs: Vec<Run>,
    order: Order,
}

/// Pairs of a part.
struct Run {
    part: usize,
    /// Where to read on.
    pages: Pages,
    /// Those that were read.
    pairs: IntoIter<Result<Pair, KvError>>,
    /// The next one, where it waits for those of other parts.
    head: Option<Pair>,
}

impl HasHead for Run {
    fn head(&mut self) -> &mut Option<Pair> {
        &mut self.head
    }
}

impl AsyncKv {
    /// As [`Kv::scan`](crate::Kv::scan).
    pub fn scan(&self) -> AsyncScan {
        self.scan_each(Order::of_all(self.index()), &Pages::of_all(self.index()))
    }

    /// As [`Kv::scan_range`](crate::Kv::scan_range).
    ///
    /// # Errors
    /// [`KvError::OtherIndex`]: the store is not ordered.
    pub fn scan_range(&self, range: impl KeyRange) -> Result<AsyncScan, KvError> {
        self.scan_ordered(Order::Up, &Pages::up(range.into_bounds()))
    }

    /// As [`Kv::scan_prefix`](crate::Kv::scan_prefix).
    ///
    /// # Errors
    /// [`KvError::OtherIndex`]: the store is not ordered.
    pub fn scan_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<AsyncScan, KvError> {
        self.scan_ordered(Order::Up, &Pages::up(beginning_with(prefix.as_ref())))
    }

    /// As [`Kv::scan_range_reversed`](crate::Kv::scan_range_reversed).
    ///
    /// # Errors
    /// [`KvError::OtherIndex`]: the store is not ordered.
    pub fn scan_range_reversed(&self, range: impl KeyRange) -> Result<AsyncScan, KvError> {
        self.scan_ordered(Order::Down, &Pages::down(range.into_bounds()))
    }

    /// As [`Kv::scan_prefix_reversed`](crate::Kv::scan_prefix_reversed).
    ///
    /// # Errors
    /// [`KvError::OtherIndex`]: the store is not ordered.
    pub fn scan_prefix_reversed(&self, prefix: impl AsRef<[u8]>) -> Result<AsyncScan, KvError> {
        self.scan_ordered(Order::Down, &Pages::down(beginning_with(prefix.as_ref())))
    }

    fn scan_ordered(&self, order: Order, pages: &Pages) -> Result<AsyncScan, KvError> {
        KvError::unless_index(self.name(), self.index(), Some(Index::Ordered))?;
        Ok(self.scan_each(order, pages))
    }

    fn scan_each(&self, order: Order, pages: &Pages) -> AsyncScan {
        let run = |part| {
            let (pages, pairs) = (pages.clone(), Vec::new().into_iter());
            Run { part, pages, pairs, head: None }
        };
        AsyncScan { kv: self.clone(), runs: (0..self.parts()).map(run).collect(), order }
    }
}

impl AsyncScan {
    /// The next pair; `None` behind the last one. It ends with the first error but
    /// [`KvError::Corrupt`], which stands for a pair whose memory was damaged. A future that is
    /// dropped loses no pair.
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn next(&mut self) -> Option<Result<Pair, KvError>> {
        let next = self.next_pair().await;
        if !matches!(next, Ok(_) | Err(KvError::Corrupt)) {
            // What came behind it would look as if it were all.
            self.runs.clear();
        }
        next.transpose()
    }

    async fn next_pair(&mut self) -> Result<Option<Pair>, KvError> {
        if self.order != Order::None && self.runs.len() > 1 {
            for run in self.runs.iter_mut().filter(|run| run.head.is_none()) {
                run.head = run.next(&self.kv).await?;
            }
            return Ok(self.order.take_first(&mut self.runs));
        }
        // One after the other.
        while let Some(run) = self.runs.last_mut() {
            if run.head.is_none() {
                run.head = run.next(&self.kv).await?;
            }
            match run.head.take() {
                None => drop(self.runs.pop()),
                pair => return Ok(pair),
            }
        }
        Ok(None)
    }
}

impl Run {
    /// The next pair; behind an error there is none, unless that is of one pair.
    async fn next(&mut self, kv: &AsyncKv) -> Result<Option<Pair>, KvError> {
        loop {
            let_others().await;
            if let Some(pair) = self.pairs.next() {
                return pair.map(Some);
            }
            let mut pages = self.pages.clone();
            let reads = async move |part: &Part, _: &[u8]| {
                let read = pages.next(part).await?;
                let pair = |read| part.pair(read).transpose();
                let pairs: Option<Vec<_>> =
                    read.map(|read| read.into_iter().filter_map(pair).collect());
                Ok(pairs.map(|pairs| (pages, pairs)))
            };
            match kv.begin_in(self.part, &[], reads).answer().await? {
                Some((pages, pairs)) => (self.pages, self.pairs) = (pages, pairs.into_iter()),
                None => return Ok(None),
            }
        }
    }
}

impl fmt::Debug for AsyncScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncScan").field("store", &self.kv.name()).finish_non_exhaustive()
    }
}

/// A scan may go from thread to thread.
const _: fn() = || {
    fn is_send<T: Send>(_: T) {}
    let _ = |scan: &'static mut AsyncScan| is_send(scan.next());
};
