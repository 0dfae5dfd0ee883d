//! Where the entries of all lists live.
//!
//! Entries are carved from blocks that are never freed, and named by an index. Each thread keeps a
//! few free ones at hand; what it has too many of goes to a common stock, and comes from there when
//! it has none. So an entry may be unlinked by one thread, used again by another at once, and
//! looked at by a third that is late: memory stays an entry, and the versions in the links
//! ([`super::word`]) tell the late one. There is no grace period, hence nothing that could wait for
//! a holder.
//!
//! What it costs an acquisition and its release, alone on two cores of an AMD EPYC 9005 (the last
//! rows of `cargo bench -p farlock-local`): 1.4 ns; epochs with pools of each thread (the paper's
//! section 4.4) 7.1 ns, most of it the fence; crossbeam-epoch, which allocates, 31 ns.
//!
//! Memory grows with the number of ranges held at once, 64 bytes each, to at most 2^22 of them. The
//! first 4,096 lie in the program itself, where an index is an address but for a sum: a walk goes
//! from entry to entry, and each load on that way is one that the next has to wait for.

use std::cell::{Cell, RefCell};
use std::sync::OnceLock;

use super::word::{INDEX_BITS, Link};
use crate::Range;
use crate::primitive::{
    AtomicU32, AtomicU64, Mutex, Ordering, const_fn, hold, of_process, of_thread,
};

/// Entries in a block.
const BLOCK: usize = if cfg!(any(loom, shuttle)) { 8 } else { 1024 };
/// Blocks that are part of the program; beyond them, an entry is found through a table. The models
/// make every entry anew for each execution, and so have none.
const BLOCKS_AT_HOME: usize = if cfg!(any(loom, shuttle)) { 0 } else { 4 };
/// Blocks that an index can name.
const BLOCKS: usize = if cfg!(any(loom, shuttle)) { 4 } else { (1 << INDEX_BITS) / BLOCK };
/// Entries that move between a thread and the stock at a time.
const BATCH: usize = if cfg!(any(loom, shuttle)) { 1 } else { 32 };
/// A thread with this many free entries gives a batch away.
const PLENTY: usize = 4 * BATCH;

/// One range in a list, held or about to be, or free.
#[repr(align(64))]
pub(super) struct Entry {
    pub(super) next: Link,
    start: AtomicU64,
    last: AtomicU64,
    /// The thread that holds it, where that is known; 0 otherwise.
    owner: AtomicU64,
    shared: AtomicU32,
    /// Written when the entry is carved, before another thread can know it: nothing for a model to
    /// see.
    index: std::sync::atomic::AtomicU32,
}

/// What an entry said; true only if the link that led to it has not changed since.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    pub(super) range: Range,
    pub(super) shared: bool,
    pub(super) owner: u64,
}

impl Entry {
    const_fn! {
        fn new() -> Self {
            Self {
                next: Link::new(),
                start: AtomicU64::new(0),
                last: AtomicU64::new(0),
                owner: AtomicU64::new(0),
                shared: AtomicU32::new(0),
                index: std::sync::atomic::AtomicU32::new(0),
            }
        }
    }

    pub(super) fn index(&self) -> u32 {
        self.index.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Says what the entry stands for, before another thread can find it.
    ///
    /// The stores release: a late thread that sees one of them also sees that the link it came by
    /// has changed.
    pub(super) fn describe(&self, claim: Claim) {
        self.start.store(claim.range.start(), Ordering::Release);
        self.last.store(claim.range.last(), Ordering::Release);
        self.shared.store(u32::from(claim.shared), Ordering::Release);
        if cfg!(debug_assertions) {
            self.owner.store(claim.owner, Ordering::Release);
        }
    }

    /// What the entry stands for. The caller checks afterwards that its link has not changed.
    pub(super) fn claim(&self) -> Claim {
        let start = self.start.load(Ordering::Acquire);
        let last = self.last.load(Ordering::Acquire);
        let shared = self.shared.load(Ordering::Acquire) != 0;
        let owner = if cfg!(debug_assertions) { self.owner.load(Ordering::Acquire) } else { 0 };
        // Torn between two uses the ends may come out inverted; then the link has changed, too.
        let range = Range::inclusive(start, last).unwrap_or(Range::one(start));
        Claim { range, shared, owner }
    }
}

#[cfg(not(any(loom, shuttle)))]
static HOME: [Entry; BLOCKS_AT_HOME * BLOCK] = [const { Entry::new() }; BLOCKS_AT_HOME * BLOCK];
#[cfg(any(loom, shuttle))]
static HOME: [Entry; 0] = [];

/// The blocks, and the free entries that no thread keeps.
struct Stock {
    blocks: [OnceLock<Box<[Entry]>>; BLOCKS],
    free: Mutex<Free>,
}

struct Free {
    entries: Vec<&'static Entry>,
    blocks: usize,
}

of_process! {
    /// All lists share it, so that a thread needs one supply however many locks it uses.
    static STOCK: Stock = Stock {
        blocks: [const { OnceLock::new() }; BLOCKS],
        free: Mutex::new(Free { entries: Vec::new(), blocks: 0 }),
    };
}

of_thread! {
    static AT_HAND: AtHand = AtHand { last: Cell::new(None), rest: RefCell::new(Vec::new()) };
}

/// The free entries of a thread.
struct AtHand {
    /// The one given last is taken next: most acquisitions and releases touch nothing else here.
    last: Cell<Option<&'static Entry>>,
    rest: RefCell<Vec<&'static Entry>>,
}

impl AtHand {
    fn take(&self) -> &'static Entry {
        match self.last.take() {
            Some(entry) => entry,
            None => self.take_of_rest(),
        }
    }

    #[inline(never)]
    fn take_of_rest(&self) -> &'static Entry {
        let mut rest = self.rest.borrow_mut();
        rest.pop().unwrap_or_else(|| refill(&mut rest))
    }

    fn give(&self, entry: &'static Entry) {
        if let Some(before) = self.last.replace(Some(entry)) {
            self.give_to_rest(before);
        }
    }

    #[inline(never)]
    fn give_to_rest(&self, entry: &'static Entry) {
        let mut rest = self.rest.borrow_mut();
        rest.push(entry);
        if rest.len() > PLENTY {
            let left = rest.len() - BATCH;
            hold(&STOCK.free).entries.extend(rest.drain(left..));
        }
    }
}

impl Drop for AtHand {
    fn drop(&mut self) {
        // A model checker ends the process's values before its threads' values.
        if !cfg!(any(loom, shuttle)) {
            let mut free = hold(&STOCK.free);
            free.entries.extend(self.last.take());
            free.entries.append(self.rest.get_mut());
        }
    }
}

/// The entry with this index; none for 0.
#[inline]
pub(super) fn entry(index: u32) -> Option<&'static Entry> {
    if index == 0 {
        return None;
    }
    let at = index as usize;
    if let Some(entry) = HOME.get(at) {
        return Some(entry);
    }
    let block = STOCK.blocks[at / BLOCK].get().expect("an index names an entry that was carved");
    Some(&block[at % BLOCK])
}

/// A free entry, that only the caller knows.
#[inline]
pub(super) fn take() -> &'static Entry {
    AT_HAND.try_with(AtHand::take).unwrap_or_else(|_| take_from_stock())
}

/// Gives an entry back that no link leads to.
#[inline]
pub(super) fn give(entry: &'static Entry) {
    if AT_HAND.try_with(|at_hand| at_hand.give(entry)).is_err() {
        give_to_stock(entry);
    }
}

/// A thread that is ending keeps nothing at hand.
#[cold]
#[inline(never)]
fn take_from_stock() -> &'static Entry {
    refill(&mut Vec::new())
}

#[cold]
#[inline(never)]
fn give_to_stock(entry: &'static Entry) {
    hold(&STOCK.free).entries.push(entry);
}

#[cold]
fn refill(at_hand: &mut Vec<&'static Entry>) -> &'static Entry {
    let mut free = hold(&STOCK.free);
    if free.entries.len() < BATCH {
        carve(&mut free);
    }
    let rest = free.entries.len() - BATCH;
    at_hand.extend(free.entries.drain(rest..));
    at_hand.pop().expect("a batch is not empty")
}

fn carve(free: &mut Free) {
    assert!(free.blocks < BLOCKS, "4 million ranges are held at once");
    let first = free.blocks * BLOCK;
    let block = if free.blocks < BLOCKS_AT_HOME {
        &HOME[first..first + BLOCK]
    } else {
        let allocate = || (0..BLOCK).map(|_| Entry::new()).collect();
        STOCK.blocks[free.blocks].get_or_init(allocate)
    };
    for (at, entry) in block.iter().enumerate() {
        entry.index.store((first + at) as u32, std::sync::atomic::Ordering::Relaxed);
    }
    free.blocks += 1;
    // Index 0 means no entry.
    free.entries.extend(block.iter().filter(|entry| entry.index() != 0).rev());
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_fills_one_cache_line() {
        assert_eq!(size_of::<Entry>(), 64);
    }

    #[test]
    fn an_index_names_its_entry_and_a_given_entry_is_taken_next() {
        let one = take();
        assert!(std::ptr::eq(one, entry(one.index()).unwrap()));
        give(one);
        assert!(std::ptr::eq(one, take()));
        give(one);
    }

    #[test]
    fn what_a_thread_kept_outlives_it() {
        let mine: Vec<u32> = std::thread::spawn(|| {
            let all: Vec<_> = (0..3 * PLENTY).map(|_| take()).collect();
            all.iter().for_each(|entry| give(entry));
            all.iter().map(|entry| entry.index()).collect()
        })
        .join()
        .unwrap();
        assert!(mine.iter().all(|&index| entry(index).is_some()));
    }
}
