//! Ranges that lie side by side, held by one guard.

use std::mem::swap;
use std::ops::Range;
use std::sync::Arc;

use thiserror::Error;

use super::RangeGuard;
use super::together::in_units;
use crate::reason::MergeReason;
use crate::text::shown;

/// Why two held ranges were not merged. What is held is held as before, unless it was lost.
#[derive(Debug, Error)]
#[error(
    "the ranges {}..{} and {}..{} of '{}' were not merged",
    .ranges[0].start, .ranges[0].end, .ranges[1].start, .ranges[1].end, shown(.name)
)]
pub struct MergeError {
    /// The table of the guard that was to have both.
    pub name: String,
    /// What was held by that guard, and by the other.
    pub ranges: [Range<u64>; 2],
    /// The guard that was to have both, unless what it held was lost.
    pub guard: Option<Box<RangeGuard>>,
    /// The other guard, unless what it held was lost.
    pub other: Option<Box<RangeGuard>>,
    /// Why.
    #[source]
    pub reason: MergeReason,
}

impl MergeError {
    /// A stable name of what happened.
    pub const fn code(&self) -> &'static str {
        self.reason.code()
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        self.reason.hint()
    }
}

impl RangeGuard {
    /// Holds what two guards hold by one: from the first position of both to the last, in the mode
    /// of both. They are of one session and one table, and no unit lies between them, whichever is
    /// the first. All of it is held all the time, and is released, turned, divided and merged as
    /// any other range, also over the seam.
    ///
    /// Its token is the greater of the two. A session has what it holds until it releases it or
    /// ends, so it had both when that token was granted: no other writer was granted any of either
    /// since, and the token stands between the writers before and those to come as that of one
    /// grant of both would. The lower one is refused where the greater was shown. So each part
    /// that is split off later keeps the greater.
    ///
    /// To the lock they remain two: each is listed among the holders by the token that it was
    /// granted with ([`RangeLock::holders`](super::RangeLock::holders)), counts among what a
    /// session holds, and is had by the next waiters as before if this process dies. So no verb is
    /// needed, unless two shared ranges overlap: one of them lets go of what both have then, as
    /// [`unlock`](Self::unlock) does, and all of it is held by the other meanwhile.
    ///
    /// ```no_run
    /// # use farlock::{RegionOptions, Session};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rows = Session::open(&RegionOptions::for_user())?.range("rows");
    /// let first = rows.exclusive(0..100).blocking()?;
    /// let next = rows.exclusive(100..200).blocking()?;
    /// let both = first.merge(next)?;
    /// assert_eq!(both.range(), 0..200);
    /// let kept = both.unlock(50..150)?;
    /// // Others may have 50..150 now.
    /// # drop(kept);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`MergeReason`]; the error has both guards, which hold all as before, but for one that
    /// was lost.
    pub fn merge(mut self, mut other: Self) -> Result<Self, MergeError> {
        let ranges = [self.range(), other.range()];
        let Err(reason) = self.absorb(&mut other) else { return Ok(self) };
        let name = self.name().to_owned();
        let held = |guard: Self| (!guard.holds.is_empty()).then(|| Box::new(guard));
        let [guard, other] = [self, other].map(held);
        Err(MergeError { name, ranges, guard, other, reason })
    }

    /// Has what the other has as well, which has nothing then; or all is as before.
    fn absorb(&mut self, other: &mut Self) -> Result<(), MergeReason> {
        if !Arc::ptr_eq(&self.table.root, &other.table.root) {
            return Err(MergeReason::OtherSession);
        }
        if self.name() != other.name() {
            return Err(MergeReason::OtherTable { other: other.name().to_owned() });
        }
        if self.mode() != other.mode() {
            return Err(MergeReason::OtherMode);
        }
        let [own, others] = [&*self, &*other].map(|guard| in_units(guard.range(), self.table.unit));
        let is_first = own.start <= others.start;
        let gap = if is_first { own.end..others.start } else { others.end..own.start };
        if !gap.is_empty() {
            return Err(MergeReason::Apart { start: gap.start, end: gap.end });
        }
        let (first, behind) = match is_first {
            true => (&mut self.holds, &mut other.holds),
            false => (&mut other.holds, &mut self.holds),
        };
        let seam = if is_first { own.end } else { others.end };
        first.absorb(behind, &self.table, seam).map_err(MergeReason::Overlap)?;
        if !is_first {
            swap(&mut self.holds, &mut other.holds);
        }
        self.token = self.token.max(other.token);
        Ok(())
    }
}
