//! Several ranges of a table together: all of them, or none.
//!
//! They are acquired from the first position to the last, whatever the order in which they were
//! named, so those that ask in this way never wait for each other in a circle. What is named twice
//! is asked for once, in the stronger mode.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::mem::take;
use std::ops::{Range, RangeBounds};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farlock_locks::{Mode, Token};

use super::holds::Holds;
use super::table::Asked;
use super::{RangeGuard, RangeLock, RangeRequest, Release, positions_of};
use crate::AcquireError;
use crate::error::LostReason;
use crate::protocol::RANGE_UNITS;
use crate::session::state::Patience;

impl RangeLock {
    /// Asks for several ranges together, each in its mode: all or none.
    ///
    /// They may overlap and stand in any order. Callers that hold nothing else of the table and ask
    /// in this way cannot deadlock.
    ///
    /// ```no_run
    /// # use farlock::{Mode, RegionOptions, Session};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let accounts = Session::open(&RegionOptions::for_user())?.range("accounts");
    /// let transfer = [(Mode::Exclusive, 907..908), (Mode::Exclusive, 12..13)];
    /// let guard = accounts.together(transfer).blocking()?;
    /// guard.release().blocking()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn together<R: RangeBounds<u64>>(
        &self,
        wanted: impl IntoIterator<Item = (Mode, R)>,
    ) -> RangesRequest {
        let wanted = wanted.into_iter().map(|(mode, range)| (mode, positions_of(range)));
        let parts = apart(wanted.collect(), self.table.unit);
        RangesRequest { table: self.clone(), parts, patience: Patience::Endless }
    }
}

/// The same positions in ranges that share no unit, from the first to the last, each in the
/// stronger of the modes in which it was wanted. A range of nothing stays one, to be refused.
fn apart(wanted: Vec<(Mode, Range<u64>)>, unit: u64) -> Vec<(Mode, Range<u64>)> {
    let wanted: Vec<_> =
        wanted.into_iter().map(|(mode, range)| (mode, in_units(range, unit))).collect();
    let ends = wanted.iter().flat_map(|(_, range)| [range.start, range.end]);
    let mut ends: Vec<u64> = ends.collect();
    ends.sort_unstable();
    ends.dedup();
    let empty = wanted.iter().filter(|(_, range)| range.is_empty());
    let mut parts: Vec<(Mode, Range<u64>)> = empty.cloned().collect();
    for bounds in ends.windows(2) {
        let modes = wanted.iter().filter(|(_, range)| range.contains(&bounds[0]));
        // A mode's number is the greater the fewer it stands beside.
        let Some(mode) = modes.map(|(mode, _)| *mode).max_by_key(|mode| *mode as u64) else {
            continue;
        };
        match parts.last_mut() {
            Some((last, range)) if *last == mode && range.end == bounds[0] => range.end = bounds[1],
            _ => parts.push((mode, bounds[0]..bounds[1])),
        }
    }
    parts
}

/// The whole units that have these positions; the last one of a table has all behind it.
pub(super) fn in_units(range: Range<u64>, unit: u64) -> Range<u64> {
    if range.is_empty() {
        return range;
    }
    let last = unit.saturating_mul(RANGE_UNITS - 1);
    let start = (range.start - range.start % unit).min(last);
    let end = range.end.div_ceil(unit).saturating_mul(unit);
    start..if end > last { u64::MAX } else { end }
}

/// Ranges that can be asked for together: await it, or call [`RangesRequest::blocking`]. Nothing is
/// asked before.
#[must_use = "ranges are acquired by awaiting their request, or by `blocking`"]
#[derive(Clone)]
pub struct RangesRequest {
    table: RangeLock,
    parts: Vec<(Mode, Range<u64>)>,
    patience: Patience,
}

impl RangesRequest {
    /// Gives up with [`AcquireError::TimedOut`] when so long has passed since they were asked for.
    pub fn within(mut self, limit: Duration) -> Self {
        self.patience = Patience::For(limit);
        self
    }

    /// Gives up with [`AcquireError::Busy`] if it would have to wait for any of them.
    pub fn at_once(mut self) -> Self {
        self.patience = Patience::None;
        self
    }

    /// Acquires all of them, blocking this thread. Not for async tasks.
    ///
    /// # Errors
    /// See [`AcquireError`]. None is held then.
    pub fn blocking(self) -> Result<RangesGuard, AcquireError> {
        let (deadline, mut held) = (self.patience.deadline(), RangesGuard { guards: Vec::new() });
        for part in &self.parts {
            let guard = self.request(part, &held, deadline).blocking();
            held.guards.push(guard.map_err(|error| self.refused(error))?);
        }
        Ok(held)
    }

    /// The acquisition as a future. Asking begins when it is first polled; dropping it withdraws
    /// it.
    async fn acquire(self) -> Result<RangesGuard, AcquireError> {
        let (deadline, mut held) = (self.patience.deadline(), RangesGuard { guards: Vec::new() });
        for part in &self.parts {
            let guard = self.request(part, &held, deadline).await;
            held.guards.push(guard.map_err(|error| self.refused(error))?);
        }
        Ok(held)
    }

    /// The request for one of them, which has the time that is left, beside those that are held.
    /// Those are not let go of before it ends: so who waits for them further up does not keep it
    /// out.
    fn request(
        &self,
        (mode, range): &(Mode, Range<u64>),
        held: &RangesGuard,
        deadline: Option<Instant>,
    ) -> RangeRequest {
        let left = |at: Instant| Patience::For(at.saturating_duration_since(Instant::now()));
        let patience = deadline.map_or(self.patience, left);
        let end = |held: Option<&RangeGuard>| held.map_or(0, |held| held.range().end);
        let mut writing = held.guards.iter().filter(|held| held.mode() == Mode::Exclusive);
        let held_before = [end(held.guards.last()), end(writing.next_back())];
        let asked = Asked { held_before, ..Asked::of(*mode, range.clone()) };
        RangeRequest { asked, patience, table: Arc::clone(&self.table.table) }
    }

    /// Of the limit there was less left for the one that was refused.
    fn refused(&self, error: AcquireError) -> AcquireError {
        match (error, self.patience) {
            (AcquireError::TimedOut { name, holders, .. }, Patience::For(limit)) => {
                AcquireError::TimedOut { name, limit, holders }
            }
            (error, _) => error,
        }
    }
}

impl IntoFuture for RangesRequest {
    type Output = Result<RangesGuard, AcquireError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

impl fmt::Debug for RangesRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, parts, patience } = self;
        write!(f, "RangesRequest({:?} {parts:?}, {patience:?})", table.name())
    }
}

/// Ranges that are held together. Dropping it releases all; [`RangesGuard::release`] also tells
/// whether they were held to the end.
///
/// If the process dies, the next waiters have them within microseconds.
#[must_use = "ranges are held as long as their guard lives"]
#[derive(Debug)]
pub struct RangesGuard {
    guards: Vec<RangeGuard>,
}

impl RangesGuard {
    /// The fencing token of the last of these grants, above those of the others; `None` if nothing
    /// was wanted.
    pub fn token(&self) -> Option<Token> {
        self.guards.iter().map(RangeGuard::token).max()
    }

    /// What is held, from the first position to the last, in whole units, and in which mode.
    pub fn ranges(&self) -> impl Iterator<Item = (Mode, Range<u64>)> + '_ {
        self.guards.iter().map(|guard| (guard.mode(), guard.range()))
    }

    /// How they were lost, if they were: as [`RangeGuard::lost_reason`].
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.guards.iter().find_map(RangeGuard::lost_reason)
    }

    /// Releases all of them: await it, or call [`Release::blocking`], for how it went. If one was
    /// lost before, that is told, and the others are released.
    pub fn release(mut self) -> Release {
        let Some(table) = self.guards.first().map(|guard| Arc::clone(&guard.table)) else {
            return Release::of(Ok(()));
        };
        let mut holds = Holds::default();
        self.guards.iter_mut().for_each(|guard| holds.append(take(&mut guard.holds)));
        holds.release(&table)
    }
}

/// The last one first, as those of one request: see the lock's page (cases).
impl Drop for RangesGuard {
    fn drop(&mut self) {
        while let Some(guard) = self.guards.pop() {
            drop(guard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Mode = Mode::Shared;
    const X: Mode = Mode::Exclusive;

    #[test]
    fn wanted_ranges_come_apart_in_order_and_in_the_stronger_mode() {
        let parts = |wanted: &[(Mode, Range<u64>)], unit| apart(wanted.to_vec(), unit);
        assert_eq!(parts(&[], 1), []);
        assert_eq!(parts(&[(X, 9..10), (S, 0..4)], 1), [(S, 0..4), (X, 9..10)]);
        assert_eq!(parts(&[(X, 4..6), (X, 0..4), (X, 5..9)], 1), [(X, 0..9)]);
        let cut = [(S, 0..50), (X, 50..60), (S, 60..100)];
        assert_eq!(parts(&[(S, 0..100), (X, 50..60)], 1), cut);
        assert_eq!(parts(&[(X, 50..60), (S, 0..100)], 1), cut);
        assert_eq!(parts(&[(X, 1..2), (S, 3..5)], 4), [(X, 0..4), (S, 4..8)]);
        assert_eq!(parts(&[(X, 1..3), (X, 3..4)], 4), [(X, 0..4)]);
        assert_eq!(parts(&[(S, 5..5), (X, 0..1)], 1), [(S, 5..5), (X, 0..1)]);
    }

    #[test]
    fn what_lies_in_the_last_unit_is_one_range() {
        let (last, end) = (RANGE_UNITS - 1, u64::MAX);
        assert_eq!(apart(vec![(X, last - 1..last)], 1), [(X, last - 1..last)], "it has not begun");
        let far =
            vec![(X, RANGE_UNITS + 5..RANGE_UNITS + 6), (X, RANGE_UNITS + 900..end), (S, 0..1)];
        assert_eq!(apart(far, 1), [(S, 0..1), (X, last..end)]);
        assert_eq!(apart(vec![(S, end - 1..end)], 1 << 60), [(S, 15 << 60..end)]);
    }
}
