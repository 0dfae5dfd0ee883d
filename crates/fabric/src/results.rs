//! What the last verb or chain of an endpoint read, until the next one.
//!
//! The old word of an atomic is two 8-byte cells: stored as halves and read as halves, it never
//! waits for a store of another width. Single reads of one or two words live there too.

use std::cell::{Cell, RefCell};

use crate::endpoint::LinkDone;
use crate::error::Fault;

/// What the last completion read.
#[derive(Debug, Default)]
pub(crate) struct Results {
    low: Cell<u64>,
    high: Cell<u64>,
    /// How many words of the last single read are in `low` and `high`; 0 where they are in `bulk`.
    small: Cell<usize>,
    /// Whether links of a chain are being executed.
    in_chain: Cell<bool>,
    bulk: RefCell<Bulk>,
}

/// What the last longer read, or chain, brought.
#[derive(Debug, Default)]
struct Bulk {
    /// All words read, one link after the other.
    words: Vec<u64>,
    /// How each link ended, and where its words end in `words`.
    links: Vec<(LinkDone, usize)>,
}

impl Results {
    #[inline(always)]
    pub(crate) fn set_old(&self, old: u128) {
        self.low.set(old as u64);
        self.high.set((old >> 64) as u64);
    }

    #[inline(always)]
    pub(crate) fn old(&self) -> u128 {
        u128::from(self.low.get()) | u128::from(self.high.get()) << 64
    }

    /// Keeps the words that a read brought; the first two are the old word.
    #[inline(always)]
    pub(crate) fn keep(&self, count: usize, word: impl Fn(usize) -> u64) {
        if count <= 2 && !self.in_chain.get() {
            self.low.set(word(0));
            self.high.set(if count == 2 { word(1) } else { 0 });
            self.small.set(count);
        } else {
            self.keep_bulk(count, word);
        }
    }

    #[inline(never)]
    fn keep_bulk(&self, count: usize, word: impl Fn(usize) -> u64) {
        let mut bulk = self.bulk.borrow_mut();
        if !self.in_chain.get() {
            bulk.words.clear();
            bulk.links.clear();
        }
        let first = bulk.words.len();
        bulk.words.extend((0..count).map(word));
        self.low.set(bulk.words[first]);
        self.high.set(bulk.words.get(first + 1).copied().unwrap_or(0));
        self.small.set(0);
    }

    /// A chain begins.
    #[inline]
    pub(crate) fn begin_chain(&self) {
        let mut bulk = self.bulk.borrow_mut();
        bulk.words.clear();
        bulk.links.clear();
        self.small.set(0);
        self.in_chain.set(true);
    }

    /// A link of it ended: what was kept since the last one is its own.
    #[inline]
    pub(crate) fn end_link(&self, status: Result<(), Fault>) {
        let mut bulk = self.bulk.borrow_mut();
        let end = bulk.words.len();
        bulk.links.push((LinkDone { status, old: self.old() }, end));
    }

    /// The chain ended.
    #[inline]
    pub(crate) fn end_chain(&self) {
        self.in_chain.set(false);
    }

    /// No link of a chain of so many was told of: it was refused, or is lost.
    #[cfg(all(feature = "tcp", target_os = "linux", not(shuttle)))]
    #[cold]
    pub(crate) fn fail_chain(&self, links: usize, fault: Fault) {
        self.begin_chain();
        (0..links).for_each(|_| self.end_link(Err(fault)));
        self.end_chain();
    }

    /// How a link of the last chain ended.
    ///
    /// # Panics
    /// If the last chain had no such link.
    #[inline]
    pub(crate) fn link(&self, index: usize) -> LinkDone {
        self.bulk.borrow().links[index].0
    }

    /// Copies what a link, or a single read, brought. Returns how many words.
    #[inline]
    pub(crate) fn copy(&self, index: usize, into: &mut [u64]) -> usize {
        let halves = [self.low.get(), self.high.get()];
        let bulk = self.bulk.borrow();
        let words = if self.small.get() > 0 && index == 0 {
            &halves[..self.small.get()]
        } else {
            let start = index.checked_sub(1).map_or(0, |before| bulk.links[before].1);
            let end = bulk.links.get(index).map_or(bulk.words.len(), |link| link.1);
            &bulk.words[start..end]
        };
        let count = into.len().min(words.len());
        into[..count].copy_from_slice(&words[..count]);
        count
    }
}
