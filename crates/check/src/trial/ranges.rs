//! Acquisitions of some units of a lock that is had in parts. Each part of the units is judged like
//! a lock of its own.

use std::ops::Range;

use farlock_locks::Mode;
use farlock_sim::check::Access;

use super::contestant::Contestant;

impl Contestant {
    /// The parts that are wanted, and the units that they are: one part, or two where another
    /// scenario would acquire the next lock within; or what the scenario says.
    fn wanted(&self, round: u16) -> (Range<usize>, Range<u32>) {
        let scenario = &self.trial.scenario;
        if let Some(range) = scenario.ranges.get(usize::from(self.who)) {
            let bounds = scenario.bounds();
            let place = |unit| bounds.iter().position(|&bound| bound == unit);
            let place = |unit| place(unit).expect("a range begins and ends at bounds");
            return (place(range.start)..place(range.end), range.clone());
        }
        let first = scenario.lock(self.who, round);
        let nests = scenario.nested(self.who, round).is_some();
        let end = first + 1 + usize::from(nests);
        let parts = self.trial.terms.parts;
        (first..end, parts[first]..parts[end])
    }

    /// A cycle at one part or several.
    pub(super) async fn ranges(&self, round: u16) -> anyhow::Result<()> {
        let (who, scenario) = (self.who, &self.trial.scenario);
        let (parts, wanted) = self.wanted(round);
        let mode = scenario.mode(who, round);
        let is_shared = mode == Mode::Shared && self.trial.shares();
        let access = if is_shared { Access::Shared } else { Access::Exclusive };
        let is_try = scenario.is_try(who, round);
        for at in parts.clone() {
            self.trial.opens(at, who, access);
            if is_try {
                self.tries(at, access);
            }
        }
        let word = self.trial.layout.word(parts.start);
        let acquire = self.client().acquire_units(word, mode, wanted, is_try);
        let Some(granted) = self.unless(acquire).await.transpose()? else {
            parts.clone().for_each(|at| self.is_withdrawn(at));
            return self.settle_all(parts).await;
        };
        let Some(guard) = granted else {
            parts.for_each(|at| self.is_refused(at, access));
            return Ok(());
        };
        let (token, expires) = ((guard.fabric_token(), guard.turn()), guard.expires());
        for at in parts.clone() {
            self.enters(at, access, token, expires);
        }
        let mut used = Some(());
        for at in parts.clone() {
            used = if used.is_some() { self.looks(at, access, round).await? } else { None };
        }
        parts.clone().for_each(|at| self.leaves(at));
        if used.is_none() {
            drop(guard);
            return self.settle_all(parts).await;
        }
        let Some(released) = self.unless(guard.release()).await else {
            return self.settle_all(parts).await;
        };
        for at in parts {
            self.parts(at, expires, Some(released)).await?;
        }
        Ok(())
    }

    async fn settle_all(&self, parts: Range<usize>) -> anyhow::Result<()> {
        for at in parts {
            self.settles(at).await?;
        }
        Ok(())
    }
}
