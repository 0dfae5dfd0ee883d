//! Acquisitions of one or two units of a lock that is had in parts. Each unit is judged like a lock
//! of its own.

use std::cell::Cell;
use std::ops::Range;

use farlock_locks::Mode;
use farlock_sim::check::Access;

use super::contestant::{Contestant, unless};

impl Contestant {
    /// A cycle at one unit, or at two where another scenario would acquire the next lock within.
    pub(super) async fn ranges(&self, round: u16) -> anyhow::Result<()> {
        let (who, scenario) = (self.who, &self.trial.scenario);
        let first = scenario.lock(who, round);
        let units = first..first + 1 + usize::from(scenario.nested(who, round).is_some());
        let mode = scenario.mode(who, round);
        let is_shared = mode == Mode::Shared && self.trial.shares();
        let access = if is_shared { Access::Shared } else { Access::Exclusive };
        let polls_left = Cell::new(scenario.polls(who, round));
        let gives_up = || self.gives_up(&polls_left);
        let is_try = scenario.is_try(who, round);
        for at in units.clone() {
            self.trial.opens(at, who, access);
            if is_try {
                self.tries(at, access);
            }
        }
        let (word, wanted) = (self.trial.layout.word(first), units.start as u32..units.end as u32);
        let acquire = self.client().acquire_units(word, mode, wanted, is_try);
        let Some(granted) = unless(acquire, gives_up).await.transpose()? else {
            units.clone().for_each(|at| self.is_withdrawn(at));
            return self.settle_all(units).await;
        };
        let Some(guard) = granted else {
            units.for_each(|at| self.is_refused(at, access));
            return Ok(());
        };
        let (token, expires) = ((guard.fabric_token(), guard.turn()), guard.expires());
        for at in units.clone() {
            self.enters(at, access, token, expires);
        }
        let mut used = Some(());
        for at in units.clone() {
            used =
                if used.is_some() { self.looks(at, access, round, gives_up).await? } else { None };
        }
        units.clone().for_each(|at| self.leaves(at));
        if used.is_none() {
            drop(guard);
            return self.settle_all(units).await;
        }
        let Some(released) = unless(guard.release(), gives_up).await else {
            return self.settle_all(units).await;
        };
        for at in units {
            self.parts(at, expires, Some(released)).await?;
        }
        Ok(())
    }

    async fn settle_all(&self, units: Range<usize>) -> anyhow::Result<()> {
        for at in units {
            self.settles(at).await?;
        }
        Ok(())
    }
}
