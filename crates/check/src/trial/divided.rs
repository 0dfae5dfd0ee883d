//! Holds that are divided, and let go of by and by: two parts of a hold are held by themselves, one
//! of them is released, and of the other one the first part is let go.

use std::ops::Range;

use farlock_fabric::{Endpoint, Nanos};

use super::contestant::Contestant;
use super::ranges::{Wanted, access_of};
use crate::client::{Divided, Held};
use crate::scenario::ACQUISITIONS_MAX;

/// How long it pauses until it tries again to keep what it wants alone, in nanoseconds.
const REFINES_AGAIN_NS: Nanos = 2_500_000;

/// Where these units are cut: at the first of these bounds between them, or behind the first unit.
/// What is one unit is not cut.
fn cut(bounds: &[u32], units: &Range<u32>) -> Option<u32> {
    let is_within = |&at: &u32| units.start < at && at < units.end;
    let bound = bounds.iter().copied().find(is_within);
    bound.or(Some(units.start + 1)).filter(is_within)
}

impl Contestant {
    /// Holds two parts of what it holds; releases the first; lets go of a part of the second; and
    /// releases what is left.
    pub(super) async fn lets_go_by_and_by(
        &self,
        wanted: Wanted,
        guard: Held<'_>,
        round: u16,
    ) -> anyhow::Result<()> {
        let bounds = self.bounds();
        let Some(at) = cut(&bounds, &wanted.units) else {
            return self.goes_from(wanted, guard, Some(())).await;
        };
        let (left, right) = (wanted.units.start..at, at..wanted.units.end);
        let both = [left, right.clone()];
        let guards = match self.keeps(&wanted, guard, &both).await? {
            Some(Ok(guards)) => guards,
            Some(Err(guard)) => return self.goes_from(wanted, guard, Some(())).await,
            None => return Ok(()),
        };
        let [first, second] = guards.try_into().unwrap_or_else(|_| unreachable!("of two parts"));
        let access = access_of(second.mode());
        let whole = Wanted { beside: Vec::new(), ..wanted };
        if self.looks_at(&whole, access, round + ACQUISITIONS_MAX).await?.is_none() {
            whole.parts.clone().for_each(|at| self.leaves(at));
            drop((first, second));
            return self.settle_all(whole.parts, &[]).await;
        }
        let second_wanted = self.part(right);
        let left = whole.parts.start..second_wanted.parts.start;
        left.clone().for_each(|at| self.leaves(at));
        let Some(released) = self.unless(first.release()).await else {
            second_wanted.parts.clone().for_each(|at| self.leaves(at));
            drop(second);
            return self.settle_all(whole.parts, &[]).await;
        };
        released?;
        for at in left {
            self.parts(at, None, Some(Ok(()))).await?;
        }
        self.shrinks(second_wanted, second, round).await
    }

    /// Lets go of the first part of what it holds, and of the rest.
    async fn shrinks(&self, wanted: Wanted, guard: Held<'_>, round: u16) -> anyhow::Result<()> {
        let access = access_of(guard.mode());
        let Some(at) = cut(&self.bounds(), &wanted.units) else {
            return self.goes_from(wanted, guard, Some(())).await;
        };
        let kept = at..wanted.units.end;
        let (wanted, guard) = match self.keeps(&wanted, guard, std::slice::from_ref(&kept)).await? {
            Some(Ok(mut guards)) => (self.part(kept), guards.pop().expect("of one part")),
            Some(Err(guard)) => (wanted, guard),
            None => return Ok(()),
        };
        let used = self.looks_at(&wanted, access, round + 2 * ACQUISITIONS_MAX).await?;
        self.goes_from(wanted, guard, used).await
    }

    /// Keeps what it wants of what it has, and nothing else. `None` if that was given up.
    pub(super) async fn refines<'h>(
        &self,
        wanted: &Wanted,
        mut guard: Held<'h>,
    ) -> anyhow::Result<Option<Held<'h>>> {
        let kept = std::slice::from_ref(&wanted.units);
        loop {
            guard = match self.keeps(wanted, guard, kept).await? {
                Some(Ok(mut guards)) => return Ok(guards.pop()),
                Some(Err(guard)) => guard,
                None => return Ok(None),
            };
            // What is in the way is about to leave.
            self.client().endpoint().sleep(REFINES_AGAIN_NS).await;
        }
    }

    /// Which parts these units are that it has kept: nobody is kept from others.
    fn part(&self, units: Range<u32>) -> Wanted {
        Wanted { beside: Vec::new(), ..self.wanted(units) }
    }

    /// Keeps these of the units that it holds, each by a guard of its own, and lets go of the
    /// others; or holds all as before. `None` if that was given up.
    async fn keeps<'h>(
        &self,
        wanted: &Wanted,
        guard: Held<'h>,
        kept: &[Range<u32>],
    ) -> anyhow::Result<Option<Divided<'h>>> {
        let (who, access) = (self.who, access_of(guard.mode()));
        let Wanted { parts, beside, .. } = wanted;
        let still: Vec<Wanted> = kept.iter().map(|units| self.wanted(units.clone())).collect();
        let is_kept = |at: &usize| still.iter().any(|wanted| wanted.parts.contains(at));
        let (kept_parts, freed): (Vec<_>, Vec<_>) = parts.clone().partition(is_kept);
        freed.iter().for_each(|&at| self.leaves(at));
        self.tells_tries(beside, |tries| tries.leaves(who));
        let Some(divided) = self.unless(guard.divide(kept.to_vec())).await else {
            kept_parts.into_iter().for_each(|at| self.leaves(at));
            self.settle_all(parts.clone(), beside).await?;
            return Ok(None);
        };
        let divided = divided?;
        match &divided {
            Ok(_) => {
                for at in freed {
                    self.parts(at, None, Some(Ok(()))).await?;
                }
                self.tells_tries(beside, |tries| tries.closes(who));
            }
            Err(guard) => {
                let is_shared = guard.mode() == farlock_locks::Mode::Shared;
                freed.into_iter().for_each(|at| self.has_still(at, access));
                self.tells_tries(beside, |tries| tries.enters(who, is_shared));
            }
        }
        Ok(Some(divided))
    }
}
