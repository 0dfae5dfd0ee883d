//! Acquisitions of some units of a lock that is had in parts. Each part of the units is judged like
//! a lock of its own.

use std::ops::Range;

use farlock_locks::Mode;
use farlock_sim::check::{Access, Rounds, Tries};

use super::bench::Turned;
use super::contestant::Contestant;
use crate::client::Held;
use crate::scenario::ACQUISITIONS_MAX;
use crate::wish::Wish;
use crate::words;

/// How often what is held is turned into a hold in the other mode: back as well.
const CONVERSIONS: u16 = 2;

/// How it is held in this mode.
pub(super) fn access_of(mode: Mode) -> Access {
    if mode == Mode::Shared { Access::Shared } else { Access::Exclusive }
}

/// A bit for each of these parts.
fn mask_of(parts: &Range<usize>) -> u64 {
    parts.clone().fold(0, |mask, at| mask | 1 << at)
}

/// What a client wants, by the parts that the scenario has of the units.
pub(super) struct Wanted {
    pub(super) parts: Range<usize>,
    /// Others that nobody can have beside it.
    pub(super) beside: Vec<usize>,
    pub(super) units: Range<u32>,
    /// Where units end that are held until these are, and those of them that are held exclusively.
    pub(super) held_before: [u32; 2],
    /// Whether they are shared, whatever the scenario says.
    pub(super) is_shared: bool,
}

impl Contestant {
    /// What is wanted: one part, or two where another scenario would acquire the next lock within;
    /// or what the scenario says.
    fn wish(&self, round: u16) -> Wish {
        let scenario = &self.trial.scenario;
        let own = scenario.ranges.get(usize::from(self.who)).cloned();
        own.unwrap_or_else(|| {
            let bounds = &self.trial.terms.parts;
            let first = scenario.lock(self.who, round);
            let nests = scenario.nested(self.who, round).is_some();
            (bounds[first]..bounds[first + 1 + usize::from(nests)]).into()
        })
    }

    /// Where the parts begin and end.
    pub(super) fn bounds(&self) -> Vec<u32> {
        match self.trial.scenario.ranges[..] {
            [] => self.trial.terms.parts.to_vec(),
            _ => self.trial.scenario.bounds(),
        }
    }

    /// Which parts these units are.
    pub(super) fn wanted(&self, units: Range<u32>) -> Wanted {
        let bounds = self.bounds();
        let covered = self.trial.subject.lock.kind().covers(units.clone());
        let meets =
            |units: &Range<u32>, at: usize| bounds[at] < units.end && units.start < bounds[at + 1];
        let all = self.trial.layout.locks();
        let (parts, others): (Vec<_>, Vec<_>) = all.partition(|&at| meets(&units, at));
        let beside = others.into_iter().filter(|&at| meets(&covered, at)).collect();
        let parts = parts[0]..parts[0] + parts.len();
        Wanted { parts, beside, units, held_before: [0; 2], is_shared: false }
    }

    /// A cycle at one part or several, and perhaps another cycle within its hold.
    pub(super) async fn ranges(&self, round: u16) -> anyhow::Result<()> {
        let Wish { units, within, is_behind, shares_first } = self.wish(round);
        let wanted = Wanted { is_shared: shares_first, ..self.wanted(units) };
        let Some((mut guard, access)) = self.comes_to(&wanted, round, false).await? else {
            return Ok(());
        };
        let mut wanted = wanted;
        let mut used = self.looks_at(&wanted, access, round).await?;
        if let (Some(()), Some(units)) = (used, within) {
            if self.trial.scenario.refines {
                let Some(refined) = self.refines(&wanted, guard).await? else { return Ok(()) };
                guard = refined;
                wanted.beside.clear();
            }
            self.trial.handle.another_part();
            let refined = self.trial.scenario.refines;
            let held_to = wanted.units.end;
            let held_before = [held_to, if access == Access::Shared { 0 } else { held_to }];
            let wanted = self.wanted(units);
            let wanted = if refined { Wanted { beside: Vec::new(), ..wanted } } else { wanted };
            let wanted = if is_behind { Wanted { held_before, ..wanted } } else { wanted };
            if let Some((guard, access)) = self.comes_to(&wanted, round, refined).await? {
                used = self.looks_at(&wanted, access, round).await?;
                self.goes_from(wanted, guard, used).await?;
            }
            self.trial.handle.another_part();
        }
        if self.converts(round) {
            for time in 1..=CONVERSIONS {
                if used.is_some() {
                    let Some(converted) = self.turns(&wanted, guard).await? else { return Ok(()) };
                    guard = converted;
                    let access = access_of(guard.mode());
                    used = self.looks_at(&wanted, access, round + time * ACQUISITIONS_MAX).await?;
                }
            }
        }
        match (used, self.divides(round)) {
            (Some(()), true) => self.lets_go_by_and_by(wanted, guard, round).await,
            _ => self.goes_from(wanted, guard, used).await,
        }
    }

    /// Whether it divides what it holds after this acquisition.
    fn divides(&self, round: u16) -> bool {
        self.trial.terms.divides && self.trial.scenario.divides(self.who, round)
    }

    /// Whether it turns what it holds after this acquisition into a hold in the other mode.
    fn converts(&self, round: u16) -> bool {
        self.trial.terms.converts && self.trial.scenario.converts(self.who, round)
    }

    /// Turns a hold into one in the other mode where it stands, if it can be. `None` if that was
    /// given up.
    async fn turns<'h>(
        &self,
        wanted: &Wanted,
        guard: Held<'h>,
    ) -> anyhow::Result<Option<Held<'h>>> {
        let Wanted { parts, beside, .. } = wanted;
        let to = match guard.mode() {
            Mode::Shared => Mode::Exclusive,
            Mode::Exclusive => Mode::Shared,
        };
        parts.clone().for_each(|at| self.is_about_to_convert(at, to));
        if to == Mode::Exclusive {
            self.tells_tries(beside, |tries| tries.opens(self.who));
        }
        let Some(converted) = self.unless(guard.convert(to)).await else {
            parts.clone().for_each(|at| self.leaves(at));
            self.tells_tries(beside, |tries| tries.leaves(self.who));
            self.settle_all(parts.clone(), beside).await?;
            return Ok(None);
        };
        let guard = converted?;
        for at in parts.clone() {
            self.has_converted(at, to, guard.mode(), (guard.fabric_token(), 0));
        }
        let is_shared = guard.mode() == Mode::Shared;
        self.tells_tries(beside, |tries| tries.enters(self.who, is_shared));
        Ok(Some(guard))
    }

    /// It begins to turn its hold into one in this mode. What it then does not keep out any more
    /// may come in at any time; whom it then keeps out it keeps out when it is told so.
    fn is_about_to_convert(&self, at: usize, to: Mode) {
        let (who, bench) = (self.who, &mut *self.trial.bench.borrow_mut());
        if !self.is_in_its_memory() {
            return;
        }
        let lock = &mut bench.locks[at];
        match to {
            Mode::Shared => {
                lock.ledger.leave(who);
                lock.ledger.enter(who, Access::Shared, None);
            }
            // Meanwhile it keeps readers out.
            Mode::Exclusive => lock.tries.opens(who),
        }
        bench.remember();
    }

    /// It was to turn its hold into one in this mode, and has it in that one now.
    fn has_converted(&self, at: usize, to: Mode, mode: Mode, token: Turned) {
        let (who, access) = (self.who, access_of(mode));
        let bench = &mut *self.trial.bench.borrow_mut();
        if !self.is_in_its_memory() {
            return;
        }
        self.buries(bench);
        let is_as_before = to != mode;
        let token = if is_as_before { None } else { bench.judged(at, who, access, token) };
        let lock = &mut bench.locks[at];
        lock.ledger.leave(who);
        lock.ledger.enter(who, access, token);
        lock.tries.enters(who, mode == Mode::Shared);
        lock.sharing &= !(1 << who);
        lock.sharing |= u64::from(mode == Mode::Shared) << who;
        if let (true, Access::Exclusive, Some(token)) = (self.trial.scenario.fenced, access, token)
        {
            let id = self.trial.ids[usize::from(who)].get();
            lock.goods.sends(id, at, token, &self.trial.handle);
        }
        let place = bench.named(at);
        let done = if is_as_before { "keeps" } else { "converts" };
        bench.tell(|| format!("client {who}  {done}{place} {}", words::grant(access, token)));
        bench.remember();
    }

    /// It was to let go of a part of what it holds, and has it still.
    pub(super) fn has_still(&self, at: usize, access: Access) {
        let (who, bench) = (self.who, &mut *self.trial.bench.borrow_mut());
        if !self.is_in_its_memory() {
            return;
        }
        self.buries(bench);
        let lock = &mut bench.locks[at];
        lock.ledger.enter(who, access, None);
        lock.tries.enters(who, access == Access::Shared);
        let place = bench.named(at);
        bench.tell(|| format!("client {who}  keeps{place}"));
        bench.remember();
    }

    /// Acquires some units, or tries them; `None` if that was given up or in vain.
    async fn comes_to(
        &self,
        wanted: &Wanted,
        round: u16,
        refined: bool,
    ) -> anyhow::Result<Option<(Held<'_>, Access)>> {
        let Wanted { parts, beside, units, held_before, is_shared } = wanted;
        let (who, scenario) = (self.who, &self.trial.scenario);
        let mode = if *is_shared { Mode::Shared } else { scenario.mode(who, round) };
        let is_shared = mode == Mode::Shared && self.trial.shares();
        let access = if is_shared { Access::Shared } else { Access::Exclusive };
        let is_try = scenario.is_try(who, round);
        parts.clone().for_each(|at| self.trial.opens(at, who, access));
        self.tells_rounds(|rounds| rounds.opens(who, access, mask_of(parts)));
        self.tells_tries(beside, |tries| tries.opens(who));
        if is_try {
            parts.clone().chain(beside.iter().copied()).for_each(|at| self.tries(at, access));
        }
        let word = self.trial.layout.word(parts.start);
        let changes = self.converts(round) || self.divides(round) || scenario.refines;
        let acquire = match changes {
            true => self.client().acquire_to_convert(word, mode, units.clone(), is_try, refined),
            false => self.client().acquire_units(word, mode, units.clone(), *held_before, is_try),
        };
        let Some(granted) = self.unless(acquire).await.transpose()? else {
            parts.clone().for_each(|at| self.is_withdrawn(at));
            self.tells_rounds(|rounds| rounds.leaves(who));
            self.settle_all(parts.clone(), beside).await?;
            return Ok(None);
        };
        let Some(guard) = granted else {
            self.tells_rounds(|rounds| rounds.leaves(who));
            self.is_refused(parts.clone(), beside, access);
            return Ok(None);
        };
        let (token, expires) = ((guard.fabric_token(), guard.turn()), guard.expires());
        self.tells_rounds(|rounds| rounds.enters(who));
        for at in parts.clone() {
            self.enters(at, access, token, expires);
        }
        self.tells_tries(beside, |tries| tries.enters(who, is_shared));
        Ok(Some((guard, access)))
    }

    /// Uses all parts of a hold. `None` if that was given up.
    pub(super) async fn looks_at(
        &self,
        wanted: &Wanted,
        access: Access,
        round: u16,
    ) -> anyhow::Result<Option<()>> {
        for at in wanted.parts.clone() {
            if self.looks(at, access, round).await?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    /// Releases a hold, or lets go of it if what it did with it was given up.
    pub(super) async fn goes_from(
        &self,
        wanted: Wanted,
        guard: Held<'_>,
        used: Option<()>,
    ) -> anyhow::Result<()> {
        let Wanted { parts, beside, .. } = wanted;
        let expires = guard.expires();
        parts.clone().for_each(|at| self.leaves(at));
        self.tells_tries(&beside, |tries| tries.leaves(self.who));
        if used.is_none() {
            drop(guard);
            return self.settle_all(parts, &beside).await;
        }
        let Some(released) = self.unless(guard.release()).await else {
            return self.settle_all(parts, &beside).await;
        };
        for at in parts {
            self.parts(at, expires, Some(released)).await?;
        }
        self.tells_tries(&beside, |tries| tries.closes(self.who));
        Ok(())
    }

    pub(super) async fn settle_all(
        &self,
        parts: Range<usize>,
        beside: &[usize],
    ) -> anyhow::Result<()> {
        for at in parts {
            self.settles(at).await?;
        }
        self.tells_tries(beside, |tries| tries.closes(self.who));
        Ok(())
    }

    /// Tells the judge of how often readers pass writers.
    fn tells_rounds(&self, tell: impl FnOnce(&mut Rounds)) {
        let bench = &mut *self.trial.bench.borrow_mut();
        tell(&mut bench.rounds);
        bench.remember();
    }

    /// Tells the judges of tries of the parts that it keeps others from, though it does not want
    /// them.
    pub(super) fn tells_tries(&self, beside: &[usize], tell: impl Fn(&mut Tries)) {
        let bench = &mut *self.trial.bench.borrow_mut();
        beside.iter().for_each(|&at| tell(&mut bench.locks[at].tries));
        bench.remember();
    }
}
