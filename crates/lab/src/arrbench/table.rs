//! The range locks that are measured, each in an entry of one table.

use farlock_local::baseline::{Park, Segments, Single, Spin, TreeEx, TreeRw};
use farlock_local::{IndexedLock, ListEx, ListRw, RawRangeLock};

use super::array::{self, Course, Outcome, SLOTS};
use super::published::{RangeLockCrate, RangeMutexCrate};
use super::subject::{Both, Exclusive, Subject};

/// An entry of the table.
pub(super) struct LockInfo {
    /// What the command line and the records call it.
    pub name: &'static str,
    /// Measures a fresh one.
    pub measure: fn(&Course) -> Outcome,
}

const fn entry<S: Subject + Default>(name: &'static str) -> LockInfo {
    LockInfo { name, measure: |course| array::measure(&S::default(), course) }
}

fn measure_segments(course: &Course) -> Outcome {
    let segments = usize::from(course.segments);
    let span = SLOTS.div_ceil(segments) as u64;
    array::measure(&Both(Segments::new(segments, span)), course)
}

/// Every lock, in the order of tables.
pub(super) const LOCKS: &[LockInfo] = &[
    entry::<Exclusive<ListEx>>(ListEx::NAME),
    entry::<Both<ListRw>>(ListRw::NAME),
    entry::<Exclusive<IndexedLock>>(IndexedLock::NAME),
    entry::<Exclusive<TreeEx<Spin>>>(TreeEx::<Spin>::NAME),
    entry::<Exclusive<TreeEx<Park>>>(TreeEx::<Park>::NAME),
    entry::<Both<TreeRw<Spin>>>(TreeRw::<Spin>::NAME),
    entry::<Both<TreeRw<Park>>>(TreeRw::<Park>::NAME),
    LockInfo { name: Segments::NAME, measure: measure_segments },
    entry::<Both<Single>>(Single::NAME),
    entry::<RangeMutexCrate>(RangeMutexCrate::NAME),
    entry::<RangeLockCrate>(RangeLockCrate::NAME),
];
