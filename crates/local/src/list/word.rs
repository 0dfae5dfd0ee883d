//! The link of a list: one 64-bit word that names the next entry.
//!
//! ```text
//!  63                      24 23                    2   1        0
//! +--------------------------+-----------------------+--------+------+
//! | version (40)             | index of entry (22)   | parked | mark |
//! +--------------------------+-----------------------+--------+------+
//! ```
//!
//! Every change of where an unmarked link leads counts its version up, and an entry that is used
//! again goes on counting where it stopped. So a compare-and-swap on a link succeeds only if the
//! link has not changed since it was read, which is what lets entries be used again at once,
//! without grace periods: a thread that still looks at one finds out. A version comes round after
//! 2^40 changes of one link; a thread would have to be suspended for all of them (hours, at full
//! speed), between its load and its compare-and-swap, and wake at exactly the same count.
//!
//! Orderings: all changes are sequentially consistent. That costs nothing over acquire-release on
//! the processors we know, and the reader-writer list needs it: a reader inserts and then looks for
//! writers while a writer inserts and then looks for readers, and one of them must see the other.

use crate::primitive::{AtomicU64, Ordering};

const MARK: u64 = 1;
const PARKED: u64 = 1 << 1;
const INDEX_SHIFT: u32 = 2;
/// Bits that name an entry. Index 0 is no entry.
pub(super) const INDEX_BITS: u32 = 22;
const INDEX_MASK: u64 = ((1 << INDEX_BITS) - 1) << INDEX_SHIFT;
const VERSION_ONE: u64 = 1 << (INDEX_SHIFT + INDEX_BITS);
const VERSION_MASK: u64 = !(VERSION_ONE - 1);

/// What a link said at some moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(u64);

impl Word {
    /// The index of the entry it leads to; 0 is the end of the list.
    pub(super) const fn target(self) -> u32 {
        ((self.0 & INDEX_MASK) >> INDEX_SHIFT) as u32
    }

    /// On an entry: it was released. On a head: the only entry is held by the fast path.
    pub(super) const fn marked(self) -> bool {
        self.0 & MARK != 0
    }

    /// A waiter sleeps until this entry is released.
    pub(super) const fn parked(self) -> bool {
        self.0 & PARKED != 0
    }

    /// The same link leading to `target`, one version on. Sleepers stay announced.
    const fn led_to(self, target: u32) -> Self {
        let version = (self.0 & VERSION_MASK).wrapping_add(VERSION_ONE);
        Self(version | ((target as u64) << INDEX_SHIFT) | (self.0 & PARKED))
    }

    /// Planted bug: the version stands still, so a link that changed and changed back looks
    /// unchanged.
    #[cfg(any(loom, shuttle))]
    const fn without_version(self) -> Self {
        Self(self.0 & !VERSION_MASK)
    }
}

/// A word that threads change with compare-and-swap.
pub(super) struct Link {
    word: AtomicU64,
    /// Planted bug: versions stand still.
    #[cfg(any(loom, shuttle))]
    stands_still: std::sync::atomic::AtomicBool,
}

impl Link {
    #[cfg(not(any(loom, shuttle)))]
    pub(super) const fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    #[cfg(any(loom, shuttle))]
    pub(super) fn new() -> Self {
        Self { word: AtomicU64::new(0), stands_still: false.into() }
    }

    /// Sequentially consistent: a validation must see every entry inserted before its own. It also
    /// acquires what the thread that wrote the word had done, a releaser's critical section
    /// included.
    pub(super) fn load(&self) -> Word {
        Word(self.word.load(Ordering::SeqCst))
    }

    /// What the word is likely to be: a hint whose use is a compare-and-swap.
    pub(super) fn peek(&self) -> Word {
        Word(self.word.load(Ordering::Relaxed))
    }

    /// Whether nothing has changed since `word` was loaded.
    ///
    /// Relaxed is enough: it follows acquiring loads of what it vouches for, and a thread that
    /// makes those loads return something newer has released the change of this word before.
    pub(super) fn still(&self, word: Word) -> bool {
        self.word.load(Ordering::Relaxed) == word.0
    }

    /// Leads an unmarked link elsewhere, if it still is `word`.
    pub(super) fn lead(&self, word: Word, target: u32) -> Option<Word> {
        debug_assert!(!word.marked(), "a marked link is frozen");
        self.swap(word, self.next(word, target))
    }

    /// Head only: the fast path takes, or takes over, a list without held entries.
    pub(super) fn lead_marked(&self, word: Word, target: u32) -> bool {
        self.swap(word, Word(self.next(word, target).0 | MARK)).is_some()
    }

    /// Head only: the fast path takes an empty list. The version may stay: no thread can rely on
    /// anything it saw behind an empty list.
    pub(super) fn take_empty(&self, empty: Word, target: u32) -> bool {
        debug_assert!(empty.target() == 0 && !empty.marked(), "the list is empty");
        self.swap(empty, Word(empty.0 | (u64::from(target) << INDEX_SHIFT) | MARK)).is_some()
    }

    /// Head only: the fast path gives the list back, empty. No walk looked behind a marked head.
    pub(super) fn give_empty(&self, taken: Word) -> bool {
        debug_assert!(taken.marked(), "held by the fast path");
        self.swap(taken, Word(taken.0 & VERSION_MASK)).is_some()
    }

    /// Head only: makes the entry of the fast path an ordinary one. Counts the version, because
    /// from now on threads look behind this word.
    pub(super) fn unmark(&self, word: Word) -> Option<Word> {
        debug_assert!(word.marked(), "held by the fast path");
        self.swap(word, self.next(word, word.target()))
    }

    /// Announces a sleeper.
    pub(super) fn announce(&self, word: Word) -> Option<Word> {
        if word.parked() { Some(word) } else { self.swap(word, Word(word.0 | PARKED)) }
    }

    /// Releases the entry, in one step that cannot fail, and returns what the word was.
    pub(super) fn mark(&self) -> Word {
        let before = Word(self.word.fetch_add(MARK, Ordering::SeqCst));
        debug_assert!(!before.marked(), "an entry is released once");
        before
    }

    /// Begins a new use of an entry that only this thread knows. The version counts on.
    pub(super) fn begin(&self, target: u32) {
        let before = Word(self.word.load(Ordering::Relaxed));
        let next = Word(self.next(before, target).0 & !PARKED);
        self.word.store(next.0, Ordering::Release);
    }

    /// Plants the bug, or takes it out.
    #[cfg(any(loom, shuttle))]
    pub(super) fn plant(&self, stands_still: bool) {
        self.stands_still.store(stands_still, std::sync::atomic::Ordering::Relaxed);
    }

    fn next(&self, word: Word, target: u32) -> Word {
        let next = word.led_to(target);
        #[cfg(any(loom, shuttle))]
        if self.stands_still.load(std::sync::atomic::Ordering::Relaxed) {
            return next.without_version();
        }
        next
    }

    fn swap(&self, from: Word, to: Word) -> Option<Word> {
        self.word
            .compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::Relaxed)
            .ok()
            .map(|_| to)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_changed_and_changed_back_is_not_the_same() {
        let link = Link::new();
        let seen = link.lead(link.load(), 7).unwrap();
        let other = link.lead(seen, 8).unwrap();
        link.lead(other, 7).unwrap();
        assert_eq!(link.load().target(), 7);
        assert!(!link.still(seen) && link.lead(seen, 9).is_none());
    }

    #[test]
    fn a_marked_link_keeps_where_it_led_and_cannot_be_led_on() {
        let link = Link::new();
        let seen = link.announce(link.lead(link.load(), 7).unwrap()).unwrap();
        assert!(link.mark().parked());
        assert!(link.load().marked() && link.load().target() == 7);
        assert!(link.lead(seen, 8).is_none());
    }

    #[test]
    fn the_highest_index_fits() {
        let link = Link::new();
        let last = (1 << INDEX_BITS) - 1;
        assert_eq!(link.lead(link.load(), last).unwrap().target(), last);
    }
}
