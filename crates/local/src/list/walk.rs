//! The list itself: walks, insertions, validations, releases.

use super::impatience::Impatience;
use super::pool::{Claim, Entry};
use super::word::{Link, Word};
use super::{park, pool};
use crate::Range;
use crate::primitive::{const_fn, world_has_ended};

/// Which of a reader and a writer stays that insert overlapping ranges at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// The writer leaves and tries again.
    #[default]
    Readers,
    /// The reader leaves and tries again; new readers wait for waiting writers.
    Writers,
}

/// An error put into the algorithm on purpose, to see that the tests find it.
#[cfg(any(loom, shuttle))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// None.
    No,
    /// A writer that yielded inserts the same entry again, as the paper's listing 2 does.
    Reinsert,
    /// No writer or reader looks again after inserting.
    NoValidation,
    /// The second look takes what an entry says now for what it said in its place.
    NoSecondLook,
    /// An entry is used again while late threads still look at it, and they do not find out.
    Reuse,
    /// The same, but only where the fast path uses it again.
    ReuseAlone,
}

/// The list. `RW` says whether shared entries occur, and so whether insertions are validated.
pub(crate) struct List<const RW: bool> {
    pub(super) head: Link,
    pub(super) impatience: Impatience,
    pub(super) preference: Preference,
    #[cfg(any(loom, shuttle))]
    pub(super) planted: Planted,
}

/// What a waiter waits for: an entry that overlaps, and its link when it was seen.
#[derive(Clone, Copy)]
pub(crate) struct Obstacle {
    pub(super) entry: &'static Entry,
    pub(super) word: Word,
    pub(super) owner: u64,
}

/// The end of a walk.
pub(super) enum Walk {
    /// The entry is in the list.
    Inserted,
    /// It is in the list by the fast path: no validation is needed.
    Alone,
    /// An overlapping range is held.
    Blocked(Obstacle),
    /// The list changed underfoot.
    Raced,
}

/// The end of a validation.
pub(super) enum Check {
    Passed,
    Blocked(Obstacle),
    Raced,
}

/// Where an entry belongs, seen from one that is in the list.
#[derive(PartialEq, Eq)]
enum Order {
    Behind,
    Before,
    Overlap,
}

impl<const RW: bool> List<RW> {
    const_fn! {
        pub(super) fn new(preference: Preference) -> Self {
            Self {
                head: Link::new(),
                impatience: Impatience::new(),
                preference,
                #[cfg(any(loom, shuttle))]
                planted: Planted::No,
            }
        }
    }

    #[cfg(any(loom, shuttle))]
    pub(super) fn plant(&mut self, planted: Planted) {
        self.planted = planted;
        self.head.plant(planted == Planted::Reuse);
    }
}

impl<const RW: bool> List<RW> {
    /// The fast path: no range is held.
    pub(super) fn take_alone(&self, mine: &'static Entry) -> bool {
        let head = self.head.peek();
        if head.target() != 0 {
            return false;
        }
        #[cfg(any(loom, shuttle))]
        mine.next.plant(matches!(self.planted, Planted::Reuse | Planted::ReuseAlone));
        mine.next.begin(0);
        self.head.take_empty(head, mine.index())
    }

    /// Walks to the place of `mine` and inserts it there.
    #[inline(always)]
    pub(super) fn walk(&self, mine: &'static Entry, claim: Claim) -> Walk {
        let mut link = &self.head;
        let mut word = link.load();
        if word.marked() {
            let Some(unmarked) = link.unmark(word) else { return Walk::Raced };
            word = unmarked;
        }
        loop {
            let Some(found) = skip_released(link, word) else { return Walk::Raced };
            if let Some((entry, next)) = found {
                let theirs = entry.claim();
                if !link.still(word) {
                    return Walk::Raced;
                }
                match order::<RW>(claim, theirs) {
                    Order::Overlap => {
                        return Walk::Blocked(Obstacle { entry, word: next, owner: theirs.owner });
                    }
                    Order::Behind => {
                        if word.target() != entry.index() && !unlink(link, word, entry.index()) {
                            return Walk::Raced;
                        }
                        (link, word) = (&entry.next, next);
                        continue;
                    }
                    Order::Before => {}
                }
            }
            let successor = found.map_or(0, |(entry, _)| entry.index());
            let alone = successor == 0 && std::ptr::eq(link, &raw const self.head);
            return self.insert(mine, link, word, successor, alone);
        }
    }

    /// One compare-and-swap: `mine` comes in, the released entries up to `successor` go out.
    #[inline(always)]
    fn insert(
        &self,
        mine: &'static Entry,
        link: &Link,
        word: Word,
        successor: u32,
        alone: bool,
    ) -> Walk {
        #[cfg(any(loom, shuttle))]
        mine.next.plant(self.planted == Planted::Reuse);
        mine.next.begin(successor);
        let (inserted, walk) = if alone {
            (link.lead_marked(word, mine.index()), Walk::Alone)
        } else {
            (link.lead(word, mine.index()).is_some(), Walk::Inserted)
        };
        if !inserted {
            return Walk::Raced;
        }
        give_run(word.target(), successor);
        walk
    }

    /// After a reader's insertion: is there a writer among the entries behind it that it overlaps?
    pub(super) fn check_shared(&self, mine: &'static Entry, range: Range) -> Check {
        let mut link = &mine.next;
        let mut word = link.load();
        loop {
            let Some(found) = skip_released(link, word) else { return Check::Raced };
            let Some((entry, next)) = found else { return Check::Passed };
            let theirs = entry.claim();
            if !self.finds_unchanged(link, word) {
                return Check::Raced;
            }
            if theirs.range.start() > range.last() {
                return Check::Passed;
            }
            if !theirs.shared {
                return Check::Blocked(Obstacle { entry, word: next, owner: theirs.owner });
            }
            (link, word) = (&entry.next, next);
        }
    }

    /// After a writer's insertion: is there a reader among the entries before it that it overlaps?
    pub(super) fn check_exclusive(&self, mine: &'static Entry, range: Range) -> Check {
        let mut link = &self.head;
        let mut word = link.load();
        loop {
            let Some(found) = skip_released(link, word) else { return Check::Raced };
            let Some((entry, next)) = found else { return Check::Raced };
            let theirs = entry.claim();
            if !self.finds_unchanged(link, word) {
                return Check::Raced;
            }
            if std::ptr::eq(entry, mine) {
                return Check::Passed;
            }
            if theirs.range.overlaps(range) {
                return Check::Blocked(Obstacle { entry, word: next, owner: theirs.owner });
            }
            (link, word) = (&entry.next, next);
        }
    }

    /// Whether what was read of the entry that `link` leads to was that entry's: it was still in
    /// the list afterwards, and so was not used again before.
    #[inline(always)]
    fn finds_unchanged(&self, link: &Link, word: Word) -> bool {
        #[cfg(any(loom, shuttle))]
        if self.planted == Planted::NoSecondLook {
            return true;
        }
        link.still(word)
    }

    /// Gives a range back.
    pub(super) fn release(&self, mine: &'static Entry) {
        // Only we are behind a marked head that leads to us: if it is so, it stays so until we or a
        // newcomer change it.
        let head = self.head.peek();
        if head.marked() && head.target() == mine.index() && self.head.give_empty(head) {
            pool::give(mine);
            return;
        }
        if mine.next.mark().parked() {
            park::wake(mine.index());
        }
    }
}

impl<const RW: bool> Drop for List<RW> {
    /// Entries of lost tokens stay out of use: their tokens may still turn up.
    fn drop(&mut self) {
        if world_has_ended() {
            return;
        }
        let mut word = self.head.load();
        while let Some(entry) = pool::entry(word.target()) {
            word = entry.next.load();
            if word.marked() {
                pool::give(entry);
            }
        }
    }
}

/// The first entry at or behind `link` that is not released, with its link; none at the end of the
/// list. The outer none: `link` is no longer `word`.
///
/// While `link` is `word`, what it leads to stays in the list, and so does what a released entry
/// leads to, because its link is frozen. Checked at each released entry, so a walk never strays
/// into another list; for the entry that is returned the caller checks, when it has read what it
/// needs.
#[inline]
#[allow(clippy::option_option, reason = "the outer none is the race")]
fn skip_released(link: &Link, word: Word) -> Option<Option<(&'static Entry, Word)>> {
    let mut target = word.target();
    loop {
        let Some(entry) = pool::entry(target) else { return Some(None) };
        let next = entry.next.load();
        if !next.marked() {
            return Some(Some((entry, next)));
        }
        if !link.still(word) {
            return None;
        }
        target = next.target();
    }
}

/// Takes the released entries between `link` and `successor` out.
fn unlink(link: &Link, word: Word, successor: u32) -> bool {
    let unlinked = link.lead(word, successor).is_some();
    if unlinked {
        give_run(word.target(), successor);
    }
    unlinked
}

/// The entries from `first` up to, without, `end` have just been unlinked by this thread.
fn give_run(first: u32, end: u32) {
    let mut target = first;
    while target != end {
        let entry = pool::entry(target).expect("a run ends at its successor");
        target = entry.next.load().target();
        pool::give(entry);
    }
}

/// Readers are sorted by start, and may overlap; all others keep clear of each other.
fn order<const RW: bool>(mine: Claim, theirs: Claim) -> Order {
    if theirs.range.last() < mine.range.start() {
        return Order::Behind;
    }
    if theirs.range.start() > mine.range.last() {
        return Order::Before;
    }
    if RW && mine.shared && theirs.shared {
        return if theirs.range.start() <= mine.range.start() {
            Order::Behind
        } else {
            Order::Before
        };
    }
    Order::Overlap
}
