//! What a guard has: one hold of a range, or several side by side where guards were merged.

use std::mem::take;
use std::ops::Range;
use std::sync::Arc;

use farlock_locks::{Mode, Token};
use smallvec::SmallVec;

use super::leaving::Leaving;
use crate::error::ReleaseError;
use crate::reason::DivideReason;
use crate::session::Release;
use crate::session::state::{Grant, HeldBy, Table};

/// From the first position to the last: each begins where the one before ends, which is between
/// two units. None once they were released, or lost.
#[derive(Default, Debug)]
pub(super) struct Holds(SmallVec<[Hold; 1]>);

/// One of them, which the lock knows by itself.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) by: HeldBy,
    pub(super) range: Range<u64>,
    pub(super) mode: Mode,
}

impl Hold {
    /// Holds it in this mode, if it can be: by which token then.
    fn convert(&mut self, table: &Table, mode: Mode) -> Option<Token> {
        let token = table.convert(&mut self.by, mode)?;
        self.mode = mode;
        Some(token)
    }
}

impl From<Hold> for Holds {
    fn from(hold: Hold) -> Self {
        Self(SmallVec::from([hold]))
    }
}

impl Holds {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// From the first position to the last.
    pub(super) fn range(&self) -> Range<u64> {
        let [first, .., last] = &*self.0 else { return self.0[0].range.clone() };
        first.range.start..last.range.end
    }

    /// In which mode all of it is held. One may be exclusive that could not be made shared with
    /// the others.
    pub(super) fn mode(&self) -> Mode {
        let is_shared = self.0.iter().any(|hold| hold.mode == Mode::Shared);
        if is_shared { Mode::Shared } else { Mode::Exclusive }
    }

    /// By what they are held.
    pub(super) fn by(&self) -> impl ExactSizeIterator<Item = &HeldBy> {
        self.0.iter().map(|hold| &hold.by)
    }

    /// Holds all of it in this mode, if it can be: by which token then.
    pub(super) fn convert(&mut self, table: &Table, mode: Mode) -> Option<Token> {
        let keeps_mode = |hold: &Hold| hold.mode != mode && matches!(hold.by, HeldBy::Shelf(_));
        if self.0.iter().any(keeps_mode) {
            return None;
        }
        let others = self.0.iter_mut().filter(|hold| hold.mode != mode);
        let mut converted = others.map(|hold| hold.convert(table, mode));
        if mode == Mode::Shared {
            // One that cannot be stays as it is, for others may read beside the rest by then.
            return converted.flatten().max();
        }
        let token = converted.try_fold(None, |last, token| Some(last.max(Some(token?))));
        if token.is_none() {
            self.convert(table, Mode::Shared);
        }
        token.flatten()
    }

    /// Takes these in, which lie behind.
    pub(super) fn append(&mut self, behind: Self) {
        self.0.extend(behind.0);
    }

    /// Takes these in, which begin where it ends, between two units, or before: what of them lies
    /// before that end it has itself, and they let go of it. If that fails all is as before, or
    /// what lies behind is lost.
    pub(super) fn absorb(
        &mut self,
        behind: &mut Self,
        table: &Arc<Table>,
        seam: u64,
    ) -> Result<(), DivideReason> {
        let end = self.range().end.max(behind.range().end);
        if let Some(twice) = table.freed(&behind.range(), &(0..seam)) {
            behind.free(table, &twice)?;
        }
        // Of the units beside the seam positions were held that were not asked for.
        self.0.last_mut().expect("it is held").range.end = end.min(seam);
        behind.0.first_mut().into_iter().for_each(|hold| hold.range.start = seam);
        self.append(take(behind));
        Ok(())
    }

    /// Those from this position on, where one begins or all end.
    pub(super) fn split_off(&mut self, position: u64) -> Self {
        let before = self.0.iter().take_while(|hold| hold.range.start < position).count();
        Self(self.0.drain(before..).collect())
    }

    /// Has one end at this position, between two units, and another begin there.
    pub(super) fn cut(&mut self, table: &Arc<Table>, position: u64) -> Result<(), DivideReason> {
        let is_around = |hold: &Hold| hold.range.start < position && position < hold.range.end;
        let Some(at) = self.0.iter().position(is_around) else { return Ok(()) };
        let Range { start, end } = self.0[at].range;
        self.divide(table, at, &[start..position, position..end])
    }

    /// Releases these positions of it, whole units. If that fails it is held as before, but may be
    /// by more holds; or it is lost.
    pub(super) fn free(
        &mut self,
        table: &Arc<Table>,
        freed: &Range<u64>,
    ) -> Result<(), DivideReason> {
        let has_more = |hold: &Hold| {
            let Range { start, end } = hold.range;
            start <= freed.start && freed.end <= end && hold.range != *freed
        };
        if let Some(at) = self.0.iter().position(has_more) {
            let Range { start, end } = self.0[at].range;
            let mut kept = vec![start..freed.start, freed.end..end];
            kept.retain(|part| !part.is_empty());
            return self.divide(table, at, &kept);
        }
        // What fails comes first: nothing was let go of then.
        self.cut(table, freed.start)?;
        self.cut(table, freed.end)?;
        let behind = self.split_off(freed.end);
        let released = self.split_off(freed.start).release(table).blocking();
        self.append(behind);
        released.map_err(|ReleaseError::Lost { reason, .. }| {
            self.let_go(table);
            DivideReason::Lost(reason)
        })
    }

    /// Has these parts of one of them by themselves, and nothing else of it. If it is lost, all
    /// are let go of.
    fn divide(
        &mut self,
        table: &Arc<Table>,
        at: usize,
        kept: &[Range<u64>],
    ) -> Result<(), DivideReason> {
        let Hold { by, range, mode } = self.0.remove(at);
        match table.divide(by, mode, kept) {
            Ok(grants) => {
                let part = |(range, grant): (&Range<u64>, Grant)| Hold {
                    by: grant.by,
                    range: range.clone(),
                    mode,
                };
                self.0.insert_many(at, kept.iter().zip(grants).map(part));
                Ok(())
            }
            Err((Some(by), reason)) => {
                self.0.insert(at, Hold { by, range, mode });
                Err(reason)
            }
            Err((None, reason)) => {
                self.let_go(table);
                Err(reason)
            }
        }
    }

    /// Releases them, the last one first: see the lock's page (cases).
    pub(super) fn release(self, table: &Arc<Table>) -> Release {
        let held = self.0.into_iter().rev().map(|hold| hold.by);
        if table.hub().is_far {
            return Release::of_ranges(Leaving::new(Arc::clone(table), held.collect()));
        }
        Release::of(held.map(|by| table.release(by)).fold(Ok(()), Result::and))
    }

    /// Releases them, and nobody asks how that goes.
    pub(super) fn let_go(&mut self, table: &Arc<Table>) {
        while let Some(hold) = self.0.pop() {
            table.let_go(hold.by);
        }
    }
}
