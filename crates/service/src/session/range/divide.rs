//! Parts of a range that is held: each held by itself, or let go of while the rest is kept.

use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use thiserror::Error;

use super::{RangeGuard, positions_of};
use crate::reason::DivideReason;
use crate::text::shown;

/// Why a held range was not divided. What is held is held as before, unless it was lost.
#[derive(Debug, Error)]
#[error("the range {}..{} of '{}' was not divided", .range.start, .range.end, shown(.name))]
pub struct DivideError {
    /// The table.
    pub name: String,
    /// What is held.
    pub range: Range<u64>,
    /// What is held, if it is.
    pub guard: Option<Box<RangeGuard>>,
    /// Why.
    #[source]
    pub reason: DivideReason,
}

impl DivideError {
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
    /// Holds what lies before a position and what lies from there on by guards of their own, under
    /// the same token: each is released, turned or divided by itself. All of it is held all the
    /// time. The position must be a multiple of the table's unit, with some of the range on either
    /// side.
    ///
    /// If this process dies meanwhile, the next waiters have the range as they do at any other
    /// time.
    ///
    /// ```no_run
    /// # use farlock::{RegionOptions, Session};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rows = Session::open(&RegionOptions::for_user())?.range("rows");
    /// let (first, rest) = rows.exclusive(0..100).blocking()?.split_at(10)?;
    /// first.release().blocking()?;
    /// // Others may have 0..10 now, and 10..100 is held as before.
    /// # drop(rest);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`DivideReason`]; the error has the guard, which holds all as before.
    pub fn split_at(mut self, position: u64) -> Result<(Self, Self), DivideError> {
        let range = self.range();
        if !self.table.divides_at(&range, position) {
            let unit = self.table.unit;
            return Err(self.undivided(range, DivideReason::NotBetween { position, unit }));
        }
        match self.holds.cut(&self.table, position) {
            Ok(()) => {
                let rest = self.split_off(position);
                Ok((self, rest))
            }
            Err(reason) => Err(self.undivided(range, reason)),
        }
    }

    /// Releases these positions, and holds what is left of the range on either side of them, from
    /// the first position to the last, by one or two guards under the same token: none if nothing
    /// is left. What is kept is held all the time. Of a unit that has a position that is kept
    /// nothing is released, as those guards say ([`RangeGuard::range`]). Where there are no
    /// positions, as in `5..5`, nothing is released.
    ///
    /// If this process dies meanwhile, the next waiters have the range as they do at any other
    /// time.
    ///
    /// # Errors
    /// See [`DivideReason`]; the error has the guard, which holds all as before, unless it was
    /// lost.
    pub fn unlock(mut self, positions: impl RangeBounds<u64>) -> Result<Vec<Self>, DivideError> {
        let range = self.range();
        let Range { start, end } = positions_of(positions);
        if end < start {
            return Err(self.undivided(range, DivideReason::Backwards { start, end }));
        }
        let Some(freed) = self.table.freed(&range, &(start..end)) else {
            return Ok(vec![self]);
        };
        if let Err(reason) = self.holds.free(&self.table, &freed) {
            return Err(self.undivided(range, reason));
        }
        let behind = self.split_off(freed.end);
        Ok([self, behind].into_iter().filter(|part| !part.holds.is_empty()).collect())
    }

    /// Another guard has what lies from this position on.
    fn split_off(&mut self, position: u64) -> Self {
        let (table, holds) = (Arc::clone(&self.table), self.holds.split_off(position));
        Self { table, holds, token: self.token }
    }

    /// It was not divided.
    fn undivided(self, range: Range<u64>, reason: DivideReason) -> DivideError {
        let name = self.name().to_owned();
        let guard = (!self.holds.is_empty()).then(|| Box::new(self));
        DivideError { name, range, guard, reason }
    }
}
