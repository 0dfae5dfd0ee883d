//! Ranges as laps of the driver loop: one lock that is had in parts, of which each cycle wants some
//! units that lie together.
//!
//! Their judge knows no lock either. Each client has a line that says which units it asks for and
//! which it holds. A client that enters looks at the lines of all others, and again before it
//! leaves: of two clients whose holds overlap, the later one sees the other. A client that asks
//! looks, too: so it is known which requests met others' covers only, not their units.

use std::ops::Range;
use std::sync::atomic::Ordering;

use farlock_fabric::hook::Counts;
use farlock_fabric::{Addr, Nanos};
use farlock_locks::lock::LocalFuture;
use farlock_locks::{Client, Guard, Lock, LockKind, Mode, Want};

use crate::drive::{Course, Failure, Judging, Laps, Pace, Subject, Tally, cycles};
use crate::judge::Judge;
use crate::range_course::OwnRanges;
use crate::subject::{Counting, Site, through_site};
use crate::workload::Draws;

/// A client that acquires ranges.
pub struct Ranges<E: Counting, L: Lock<E>> {
    face: RangeFace<E, L>,
    kind: L,
}

struct RangeFace<E: Counting, L: Lock<E>> {
    site: Site<E, L>,
    own: OwnRanges,
}

impl<E: Counting, L: Lock<E>> Ranges<E, L> {
    /// A client of the lock of this kind that lies at `lock`.
    pub fn new(client: Client<E, L>, kind: L, lock: Addr, own: OwnRanges) -> Self {
        Self { face: RangeFace { site: Site { client, locks: lock }, own }, kind }
    }
}

impl<E: Counting, L: Lock<E>> Subject for RangeFace<E, L> {
    type Held<'s> = Guard<'s, E, L>;

    through_site!(site);

    async fn acquire(&self, place: u32, mode: Mode) -> Result<Self::Held<'_>, Failure> {
        let want = L::Want::part(mode, self.own.at(place)).expect("it is had in parts");
        Ok(self.site.client.acquire(self.site.locks, want).await?)
    }

    async fn release<'s>(&'s self, held: Self::Held<'s>) -> Result<(), Failure> {
        Ok(held.release().await?)
    }
}

impl<E: Counting, L: Lock<E>> Laps for Ranges<E, L> {
    fn now(&self) -> Nanos {
        self.face.now()
    }

    fn verbs(&self) -> Counts {
        self.face.verbs()
    }

    fn laps<'a>(
        &'a self,
        judge: Judge<'a>,
        draws: &'a mut Draws,
        pace: Pace<'a>,
        course: Course,
        tally: &'a mut Tally,
    ) -> LocalFuture<'a, Result<(), Failure>> {
        let judge = RangeJudge::new(judge, self.face.own, &self.kind);
        let events = || self.face.site.client.events();
        Box::pin(async move {
            let before = events();
            cycles(&self.face, judge, draws, pace, course, tally).await?;
            let after = events();
            let late = after.aborted - before.aborted;
            tally.aborts += after.retried - before.retried + late;
            tally.late += late;
            Ok(())
        })
    }
}

/// A client's line: how often it entered and left, what it asks for, what is covered for that, what
/// it holds.
const ENTERED: usize = 0;
const ASKED: usize = 1;
const COVERED: usize = 2;
const HELD: usize = 3;

/// A range in a mode, as a word that is never zero.
fn packed(units: &Range<u32>, mode: Mode) -> u64 {
    u64::from(units.end) << 32 | u64::from(units.start) << 1 | mode as u64
}

/// Whether two such words name units in common, not both to share.
const fn conflict(a: u64, b: u64) -> bool {
    let meet = ((a as u32) >> 1) < (b >> 32) as u32 && ((b as u32) >> 1) < (a >> 32) as u32;
    a != 0 && b != 0 && meet && (a | b) & 1 != 0
}

/// What one client holds, as the others can see it.
#[derive(Clone, Copy)]
pub(crate) struct Holds<'a> {
    judge: Judge<'a>,
    number: usize,
}

impl<'a> Holds<'a> {
    /// Those of the client with this number, of as many as the judge has lines.
    pub(crate) const fn new(judge: Judge<'a>, number: usize) -> Self {
        Self { judge, number }
    }

    /// The client holds these units from now on. Whether another one does, in a mode that this
    /// excludes.
    pub(crate) fn enter(&self, units: &Range<u32>, mode: Mode) -> bool {
        let held = packed(units, mode);
        if mode == Mode::Exclusive {
            self.counts();
        }
        self.says(HELD, held);
        self.meets_holder(held)
    }

    /// The client is about to let go of them. Whether another one holds some by now.
    pub(crate) fn leave(&self, units: &Range<u32>, mode: Mode) -> bool {
        let meets = self.meets_holder(packed(units, mode));
        [HELD, ASKED, COVERED].into_iter().for_each(|place| self.says(place, 0));
        if mode == Mode::Exclusive {
            self.counts();
        }
        meets
    }

    /// What another client says at this place of its line.
    fn said(&self, other: usize, place: usize) -> u64 {
        self.judge.line(other)[place].load(Ordering::SeqCst)
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        (0..self.judge.locks() as usize).filter(|&other| other != self.number)
    }

    /// Whether any other client holds a range that conflicts with this.
    fn meets_holder(&self, range: u64) -> bool {
        self.others().any(|other| conflict(self.said(other, HELD), range))
    }

    /// Whether what is covered for this range conflicts with what is covered for others that ask or
    /// hold, while their units do not. One that leaves while it is looked at is not there.
    fn meets_covers_alone(&self, asked: u64, covered: u64) -> bool {
        let mut is_false = false;
        for other in self.others() {
            let (before, its) = (self.said(other, ASKED), self.said(other, COVERED));
            if before == 0 || self.said(other, ASKED) != before {
                continue;
            }
            if conflict(before, asked) {
                return false;
            }
            is_false |= conflict(its, covered);
        }
        is_false
    }

    /// Says something in this client's line.
    fn says(&self, place: usize, word: u64) {
        self.judge.line(self.number)[place].store(word, Ordering::SeqCst);
    }

    fn counts(&self) {
        self.judge.line(self.number)[ENTERED].fetch_add(1, Ordering::Relaxed);
    }
}

/// The judge of one client.
#[derive(Clone, Copy)]
struct RangeJudge<'a, L> {
    holds: Holds<'a>,
    own: OwnRanges,
    kind: &'a L,
}

impl<'a, L> RangeJudge<'a, L> {
    const fn new(judge: Judge<'a>, own: OwnRanges, kind: &'a L) -> Self {
        Self { holds: Holds::new(judge, own.number()), own, kind }
    }
}

impl<L: LockKind> Judging for RangeJudge<'_, L> {
    type Entered = bool;

    fn asks(&self, place: u32, mode: Mode) -> bool {
        let units = self.own.at(place);
        let mode = if L::SHARES { mode } else { Mode::Exclusive };
        let covered = packed(&self.kind.covers(units.clone()), mode);
        let asked = packed(&units, mode);
        self.holds.says(COVERED, covered);
        self.holds.says(ASKED, asked);
        self.holds.meets_covers_alone(asked, covered)
    }

    fn enter(&self, place: u32, mode: Mode) -> bool {
        self.holds.enter(&self.own.at(place), mode)
    }

    fn leave(&self, place: u32, mode: Mode, entered: bool) -> u64 {
        let meets = self.holds.leave(&self.own.at(place), mode);
        u64::from(entered | meets)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use farlock_locks::record::none::NoLock;

    use super::*;
    use crate::range_course::{Lengths, RangeCourse};

    const COURSE: RangeCourse = RangeCourse { lengths: Lengths::One(4), space: 64, align: 2 };

    #[test]
    fn ranges_conflict_where_they_meet_and_one_is_exclusive() {
        let of = |units: Range<u32>, mode| packed(&units, mode);
        let (shared, exclusive) = (Mode::Shared, Mode::Exclusive);
        assert!(conflict(of(0..4, exclusive), of(3..5, shared)));
        assert!(!conflict(of(0..4, exclusive), of(4..5, exclusive)));
        assert!(!conflict(of(0..4, shared), of(3..5, shared)));
        assert!(!conflict(0, of(0..1 << 31, exclusive)));
    }

    /// Of two holds that overlap the later one is seen, by its owner as it enters or leaves.
    #[test]
    fn overlaps_are_seen_and_neighbours_are_none() {
        let words: Vec<AtomicU64> = (0..Judge::words(2)).map(|_| AtomicU64::new(0)).collect();
        let judge = Judge::new(&words, 2);
        let of = |number| RangeJudge::new(judge, OwnRanges::new(COURSE, number), &NoLock);
        for (there, seen) in [(1, 1), (2, 0)] {
            let first = of(0).enter(0, Mode::Exclusive);
            let second = of(1).enter(there, Mode::Exclusive);
            let second = of(1).leave(there, Mode::Exclusive, second);
            assert_eq!((of(0).leave(0, Mode::Exclusive, first), second), (0, seen));
        }
        assert_eq!(judge.lost(4), 0);
    }

    /// A kind whose units lie in blocks of eight.
    #[derive(Clone, Debug)]
    struct Blocks;

    impl LockKind for Blocks {
        const BYTES: u64 = 8;
        const SHARES: bool = false;
        const TOKENS: farlock_locks::TokenSource = farlock_locks::TokenSource::Nowhere;

        fn promises(&self) -> farlock_locks::Promises {
            farlock_locks::Promises::EXCLUSION
        }

        fn covers(&self, units: Range<u32>) -> Range<u32> {
            units.start / 8 * 8..units.end.next_multiple_of(8)
        }
    }

    #[test]
    fn a_conflict_is_false_where_covers_meet_and_units_do_not() {
        let words: Vec<AtomicU64> = (0..Judge::words(2)).map(|_| AtomicU64::new(0)).collect();
        let judge = Judge::new(&words, 2);
        let of = |number| RangeJudge::new(judge, OwnRanges::new(COURSE, number), &Blocks);
        assert!(!of(0).asks(0, Mode::Exclusive));
        for (place, is_false) in [(1, false), (2, true), (4, false)] {
            assert_eq!(of(1).asks(place, Mode::Exclusive), is_false, "at {place}");
        }
    }
}
