//! Attempts: a range is had at once, or a living client has what it takes.

use farlock_fabric::{Fault, Nanos, Wait, WideAtomics};

use super::course::{Course, Half, Stand};
use super::living::{Living, living};
use super::repair::{Bar, Found, Met, Params, Until, Wanted};
use super::take::{By, Claim, look, tuned};
use super::word::NodeWord;
use crate::event::Event;
use crate::site::Site;
use crate::slot::Phase;

/// How often an attempt begins again beside those that are no reason to fail. It ends then: others
/// come and go.
const ROUNDS_MAX: u64 = 64;

/// How long an attempt waits for others where they alone are in its way, in nanoseconds: 100 ms in
/// all, as for those that may be stopped, in parts, since they mostly end soon; and as long again
/// for the first, which may have waited itself.
const PATIENCE_NS: [Nanos; 7] =
    [10_000, 100_000, 1_000_000, 4_000_000, 20_000_000, 75_000_000, 100_000_000];
/// Of these parts so many are for those that come after it.
const PARTS_FOR_LATER: u8 = 6;

/// What came of an attempt to take a node.
pub(super) enum Next {
    /// The request has it.
    Taken,
    /// It was taken by others meanwhile: look again.
    Changed,
    /// Something is in the way.
    Barred(Bar),
    /// The node is claimed, and there are these at it and below it.
    Beside(Vec<Wanted>),
}

/// What is in the way of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InTheWay {
    /// Nobody any more.
    Nobody,
    /// Others, beside whom it may go on.
    Apart,
    /// The living.
    Living,
    /// Attempts.
    Attempts(Others),
    /// One that clears bits of the dead, and wants something else.
    Cleaner,
    /// Bits of the dead.
    DeadBits,
}

/// Attempts that are in the way of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Others {
    /// Whether all of them come after it.
    are_later: bool,
    /// Whether one of them is about to be gone.
    leave: bool,
}

impl InTheWay {
    /// These, who live.
    fn of<E>(site: &Site<'_, E>, living: &[Living]) -> Self {
        let all = |is: fn(&Living) -> bool| !living.is_empty() && living.iter().all(is);
        if all(|it| it.cleans) {
            return Self::Cleaner;
        }
        if !all(|it| it.tries) {
            return Self::Living;
        }
        let are_later = living.iter().all(|it| site.me.bits() < it.who.bits());
        Self::Attempts(Others { are_later, leave: living.iter().any(Living::leaves) })
    }
}

impl Params {
    /// Takes all nodes of a request if that needs no waiting, and nobody else has any, living or
    /// dead; else none.
    pub(super) async fn attempt<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
    ) -> Result<bool, Fault> {
        course.tries();
        if self.plan.is_timed() && !course.needs_no_time() {
            // Its owner waits before it looks below.
            return Ok(false);
        }
        while !course.is_complete() {
            match self.attempt_next(site, course, false).await? {
                Next::Taken => continue,
                Next::Beside(_) => self.undo_claim(site, course).await?,
                Next::Changed | Next::Barred(_) => {}
            }
            self.give_all_back(site, course).await?;
            return Ok(false);
        }
        self.count(site, course).await?;
        Ok(true)
    }

    /// The same where nothing of the dead is in the way: what they have left is mended. It waits
    /// for none but one that clears bits of the dead, with nothing in its hands, and for other
    /// attempts: of those that meet the first, by their endpoints, keeps what it has, and the
    /// others give all back. So nobody is refused where nobody holds or waits, but beside an
    /// attempt that is stopped.
    pub(super) async fn attempt_past_the_dead<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
    ) -> Result<bool, Fault> {
        course.tries();
        for round in 0..ROUNDS_MAX {
            let [units, has, tickets, token, leaves] = course.survivors();
            site.endpoint.checkpoint(&[units, has, tickets, token, leaves, round]);
            if course.is_complete() {
                self.count(site, course).await?;
                return Ok(true);
            }
            let goes_on = match self.attempt_next(site, course, true).await? {
                Next::Taken | Next::Changed => true,
                Next::Barred(bar) => self.passes(site, course, bar).await?,
                Next::Beside(wanted) => self.passes_beside(site, course, wanted).await?,
            };
            if !goes_on || site.is_withdrawn() {
                break;
            }
        }
        self.give_all_back(site, course).await?;
        Ok(false)
    }

    /// Takes the next node, if nobody is in the way. Whom clocks have wait before it looks below
    /// gives it back at once, unless it `settles`.
    async fn attempt_next<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        settles: bool,
    ) -> Result<Next, Fault> {
        if course.inherits(course.has) {
            return self.inherit_next(site, course).await;
        }
        course.publish(site, Stand { phase: Phase::Opening, claims: true, ticket: None });
        site.endpoint.completion(look(site, course)).await?;
        if let Some(word) = tuned(site, course) {
            course.tunes(site, word);
            return Ok(Next::Changed);
        }
        let way = match self.way_past_cleaners(site, course).await? {
            Ok(way) => way,
            Err(bar) => return Ok(Next::Barred(bar)),
        };
        let below = match self.claim(site, course, By::Free, way).await? {
            Claim::Undone(bar) => return Ok(bar.map_or(Next::Changed, Next::Barred)),
            Claim::Late => {
                site.event(Event::Aborted { lock: site.lock });
                return Ok(Next::Changed);
            }
            Claim::Made(below, _) => below,
            Claim::Early if !settles => {
                self.undo_claim(site, course).await?;
                return Ok(Next::Changed);
            }
            Claim::Early => self.settle(site, course).await?,
        };
        Ok(match below.is_empty() {
            false => Next::Beside(below),
            true => {
                course.takes_next();
                Next::Taken
            }
        })
    }

    /// Whether an attempt is to go on that has claimed its next node: those at it and below it were
    /// dead, or attempts. It looks until there are none, as one that waits does.
    async fn passes_beside<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        mut below: Vec<Wanted>,
    ) -> Result<bool, Fault> {
        let stand = Stand { phase: Phase::Claiming, claims: true, ticket: course.ticket() };
        let mut have_left = false;
        while let Some(wanted) = below.pop() {
            loop {
                let left = (below.len() as u64) << 1 | u64::from(have_left);
                site.endpoint.checkpoint(&[left, course.survivors()[1]]);
                let goes_on = match self.in_the_way(site, course, wanted, stand).await? {
                    InTheWay::Apart => break,
                    InTheWay::Nobody => {
                        have_left = true;
                        break;
                    }
                    InTheWay::Attempts(others) if others.are_later => {
                        self.await_attempts(site, course, wanted, others).await?
                    }
                    InTheWay::Attempts(others) => {
                        self.undo_claim(site, course).await?;
                        return self.await_first(site, course, wanted, others).await;
                    }
                    _ => false,
                };
                if !goes_on {
                    self.undo_claim(site, course).await?;
                    return Ok(false);
                }
            }
            if below.is_empty() && have_left && self.looks_again {
                below = self.look_below(site, course).await?;
                have_left = false;
            }
        }
        course.takes_next();
        Ok(true)
    }

    /// Waits a while for other attempts, in which they may end. Whether it has not waited too
    /// often; it never has for those that leave.
    async fn await_attempts<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        (node, half, until): Wanted,
        others: Others,
    ) -> Result<bool, Fault> {
        let waits = course.tries.unwrap_or(0);
        let most = if others.are_later { PARTS_FOR_LATER } else { PATIENCE_NS.len() as u8 };
        let interval = match PATIENCE_NS[..most.into()].get(usize::from(waits)) {
            Some(&interval) => {
                course.tries = Some(waits + 1);
                interval
            }
            None if others.leave => PATIENCE_NS[0],
            None => return Ok(false),
        };
        let addr = self.plan.word(site.lock, node, half);
        site.endpoint.read64(addr).await?;
        let seen = site.endpoint.old() as u64;
        if !until.is_met(seen) {
            let word = E::WATCHES_MEMORY.then_some((addr, seen));
            let (interval, patience) = (Some(interval), self.patience);
            let wait = Wait { word, interval, patience, ..Wait::default() };
            site.wait_or_withdraw(wait, site.is_withdrawn()).await;
        }
        Ok(true)
    }

    /// The same with nothing, for those that keep what they have, as long as they do. If it looked
    /// in between whether it may claim something, its record would say so whenever they look, who
    /// wait for as long.
    async fn await_first<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        wanted: Wanted,
        mut others: Others,
    ) -> Result<bool, Fault> {
        self.give_all_back(site, course).await?;
        course.publish(site, Stand { phase: Phase::Waiting, claims: false, ticket: None });
        let addr = self.plan.word(site.lock, wanted.0, wanted.1);
        let mut has_waited = false;
        while self.await_attempts(site, course, wanted, others).await? {
            (has_waited, others.leave) = (true, false);
            site.endpoint.checkpoint(&[course.survivors()[1]]);
            site.endpoint.read64(addr).await?;
            let seen = site.endpoint.old() as u64;
            if wanted.2.is_met(seen) || site.is_withdrawn() {
                break;
            }
            if self.is_kept_by_the_living(site, wanted, seen).await? {
                return Ok(false);
            }
        }
        Ok(has_waited)
    }

    /// Whether one that is no attempt is in the way at this word, which was as `seen`: of those
    /// that keep what they have, one holds all that it wants by now.
    async fn is_kept_by_the_living<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        (node, half, until): Wanted,
        seen: u64,
    ) -> Result<bool, Fault> {
        let (word, mut living) = (NodeWord(seen), living(site, self.plan, site.lock).await?);
        let until = until.at(half, word);
        living.retain(|other| until.waits_for(other, (node, half), word));
        Ok(!living.is_empty() && InTheWay::of(site, &living) == InTheWay::Living)
    }

    /// Whether an attempt is to go on that has nothing at its next node: whatever was in the way of
    /// that is no more, for it was of the dead.
    async fn passes<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        bar: Bar,
    ) -> Result<bool, Fault> {
        let mut bar = Some(bar);
        while let Some(next) = bar.take() {
            site.endpoint.checkpoint(&[next.code()]);
            let wanted = self.wanted(course, next);
            let stand = Stand { phase: Phase::Opening, claims: false, ticket: None };
            match self.in_the_way(site, course, wanted, stand).await? {
                InTheWay::Nobody | InTheWay::Apart => {}
                InTheWay::Living => return Ok(false),
                InTheWay::Attempts(others) if others.are_later => {
                    return self.await_attempts(site, course, wanted, others).await;
                }
                InTheWay::Attempts(others) => {
                    return self.await_first(site, course, wanted, others).await;
                }
                InTheWay::Cleaner => {
                    self.give_all_back(site, course).await?;
                    return Ok(self.wait_at(site, course, next).await? != Met::Left);
                }
                InTheWay::DeadBits => {
                    self.give_all_back(site, course).await?;
                    bar = self.clean(site, course, wanted.0).await?;
                }
            }
        }
        Ok(true)
    }

    /// What is in the way at this word, of which the dead are taken off.
    pub(super) async fn in_the_way<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
        wanted: Wanted,
        stand: Stand,
    ) -> Result<InTheWay, Fault> {
        let (node, half, until): (_, Half, Until) = wanted;
        let addr = self.plan.word(site.lock, node, half);
        course.publish(site, stand);
        for look in 0..ROUNDS_MAX {
            site.endpoint.checkpoint(&[look]);
            site.endpoint.read64(addr).await?;
            let seen = site.endpoint.old() as u64;
            if until.is_met(seen) {
                return Ok(InTheWay::Nobody);
            }
            course.publish(site, Stand { phase: Phase::Repairing, ..stand });
            let found = self.mend(site, (course, stand.claims), wanted, seen).await?;
            course.publish(site, stand);
            match found {
                Found::Mended => {}
                Found::Apart => return Ok(InTheWay::Apart),
                Found::DeadBits => return Ok(InTheWay::DeadBits),
                Found::Living(living, _) => return Ok(InTheWay::of(site, &living)),
            }
        }
        Ok(InTheWay::Living)
    }
}
