//! Parts of a range that is held: each held by itself, or let go of while the rest is kept.

use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use thiserror::Error;

use super::{RangeGuard, positions_of};
use crate::error::{DivideReason, ReleaseError};
use crate::session::state::Grant;
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
    pub fn split_at(self, position: u64) -> Result<(Self, Self), DivideError> {
        let Range { start, end } = self.range;
        if !self.table.divides_at(&self.range, position) {
            let unit = self.table.unit;
            return Err(self.undivided(DivideReason::NotBetween { position, unit }));
        }
        let parts = self.divide(&[start..position, position..end])?;
        let [first, rest] = parts.try_into().unwrap_or_else(|_| unreachable!("two were kept"));
        Ok((first, rest))
    }

    /// Releases these positions, and holds what is left of the range on either side of them, from
    /// the first position to the last, by one or two guards under the same token: none if nothing
    /// is left. What is kept is held all the time. Of a unit that has a position that is kept
    /// nothing is released, as those guards say ([`RangeGuard::range`]).
    ///
    /// If this process dies meanwhile, the next waiters have the range as they do at any other
    /// time.
    ///
    /// # Errors
    /// See [`DivideReason`]; the error has the guard, which holds all as before, unless it was
    /// lost.
    pub fn unlock(self, positions: impl RangeBounds<u64>) -> Result<Vec<Self>, DivideError> {
        let Range { start, end } = self.range;
        let Some(freed) = self.table.freed(&self.range, &positions_of(positions)) else {
            return Ok(vec![self]);
        };
        let kept: Vec<Range<u64>> = [start..freed.start, freed.end..end]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        if kept.is_empty() {
            let (name, range) = (self.name().to_owned(), self.range());
            return match self.release().blocking() {
                Ok(()) => Ok(Vec::new()),
                Err(ReleaseError::Lost { reason, .. }) => {
                    let reason = DivideReason::Lost(reason);
                    Err(DivideError { name, range, guard: None, reason })
                }
            };
        }
        self.divide(&kept)
    }

    /// Holds these parts by guards of their own, and nothing else.
    fn divide(mut self, kept: &[Range<u64>]) -> Result<Vec<Self>, DivideError> {
        let by = self.by.take().expect("it is held until it is released");
        match self.table.divide(by, self.mode, kept) {
            Ok(grants) => {
                let guard = |(range, grant): (&Range<u64>, Grant)| Self {
                    table: Arc::clone(&self.table),
                    by: Some(grant.by),
                    token: grant.token,
                    range: range.clone(),
                    mode: self.mode,
                };
                Ok(kept.iter().zip(grants).map(guard).collect())
            }
            Err((by, reason)) => {
                self.by = by;
                Err(self.undivided(reason))
            }
        }
    }

    /// It was not divided.
    fn undivided(self, reason: DivideReason) -> DivideError {
        let (name, range) = (self.name().to_owned(), self.range());
        let guard = self.by.is_some().then(|| Box::new(self));
        DivideError { name, range, guard, reason }
    }
}
