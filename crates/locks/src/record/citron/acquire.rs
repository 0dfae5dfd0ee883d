//! Acquiring the nodes of a range, one after the other, and leaving without them.
//!
//! What a request has its slot remembers whenever it waits: so a wait may be dropped, and another
//! one goes on. A request that is withdrawn gives back exactly what it has. A ticket in the middle
//! of a line cannot be given back: it is *lost*, as those of the dead are. The node says so, and
//! waiters in line look for the one before them, and pass over it.

use farlock_fabric::{Fault, Nanos, Verb, Wait, WideAtomics};

use super::course::{Course, Half, STEP_BACK_NS, Stand, execute};
use super::living::living;
use super::place::{Kept, Stage, keep, kept};
use super::repair::{Bar, Met, Params, Wanted};
use super::take::{
    By, Claim, Way, exempt_parent, hears_call, is_seen_after, look, parent_seen, read, tuned, way,
};
use super::word::{self, NodeWord};
use crate::event::Event;
use crate::site::Site;
use crate::slot::Phase;

/// What a request does next.
#[derive(Debug)]
enum Step {
    /// It takes its next node, to which the way was just seen to be free, or looks at it.
    Take(Option<Way>),
    /// It waits, with nothing at its next node.
    Wait(Bar),
    /// It waits in line at its next node, with this ticket.
    Line(u16),
    /// It has claimed its next node, and waits until those have had their time that may be below.
    Settle,
    /// It has claimed its next node, and waits for these.
    Below(Vec<Wanted>),
}

impl Step {
    /// What it leaves a request with at its next node.
    fn stage(&self) -> Stage {
        match self {
            Self::Take(_) | Self::Wait(_) => Stage::Nothing,
            Self::Line(ticket) => Stage::Line(*ticket),
            Self::Settle | Self::Below(_) => Stage::Claimed,
        }
    }

    /// Whether it waits for others.
    fn waits(&self) -> bool {
        !matches!(self, Self::Take(_) | Self::Settle)
            && !matches!(self, Self::Below(wanted) if wanted.is_empty())
    }

    /// A number for what an explorer has to tell apart.
    fn code(&self) -> u64 {
        match self {
            Self::Take(None) => 1,
            Self::Take(Some(way)) => {
                2 | u64::from(way.ticket) << 3 | u64::from(way.left) << u16::BITS << 3
            }
            Self::Wait(bar) => 3 | bar.code() << 3,
            Self::Line(ticket) => 4 | u64::from(*ticket) << 3,
            Self::Settle => 6,
            Self::Below(wanted) => wanted.iter().fold(5, |sum: u64, &(node, half, _)| {
                sum.rotate_left(9) ^ u64::from(node.index()) << 1 ^ half as u64
            }),
        }
    }
}

impl Params {
    /// Takes all nodes of a request that has nothing, or goes on with that where a wait was
    /// dropped. `false`: it was withdrawn, and has nothing.
    pub(super) async fn acquire<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
    ) -> Result<bool, Fault> {
        let mut step = self.resume(site, course).await?;
        loop {
            let [units, has, tickets, token, leaves] = course.survivors();
            let seen_at = match step {
                Step::Take(Some(_)) if self.plan.is_timed() => site.opened_at(),
                _ => 0,
            };
            let at = step.code();
            site.endpoint.checkpoint(&[units, has, tickets, token, leaves, at, seen_at]);
            if site.is_withdrawn() {
                self.leave(site, course, step.stage()).await?;
                if site.is_withdrawn() {
                    return Ok(false);
                }
                step = Step::Take(None);
            }
            if step.waits() && course.is_to_refine(matches!(step, Step::Below(_))) {
                step = self.refine(site, course, step.stage()).await?;
            }
            self.call_or_hush(site, course, &step).await?;
            step = match step {
                Step::Take(_) if course.is_complete() => {
                    self.count(site, course).await?;
                    site.forget_position();
                    return Ok(true);
                }
                Step::Take(way) => self.take_next(site, course, way).await?,
                Step::Wait(bar) => self.wait_out(site, course, bar).await?,
                Step::Line(ticket) => self.stand_in_line(site, course, ticket).await?,
                Step::Settle => {
                    keep(site, course, Stage::Claimed);
                    Step::Below(self.settle(site, course).await?)
                }
                Step::Below(wanted) => self.await_below(site, course, wanted).await?,
            };
        }
    }

    /// Gives back all that a request has that would wait with it, and takes from then on what it
    /// wants and nothing beside it: else a client may wait for it that wants none of its units, and
    /// for which it waits.
    async fn refine<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        stage: Stage,
    ) -> Result<Step, Fault> {
        self.leave(site, course, stage).await?;
        *course = course.refined();
        course.publish(site, Stand { phase: Phase::Waiting, claims: false, ticket: None });
        course.publish_units(site);
        keep(site, course, Stage::Nothing);
        Ok(Step::Take(None))
    }

    /// Asks newcomers at the node above that is in the way to wait until this request has been
    /// there, and where readers are in the way those at all nodes above that one; at none below it,
    /// and no longer than until the request has claimed its next one, or is to wait for something
    /// else. So a newcomer that waits for it waits for those inside the node in the way, which have
    /// what lies further to the right than all that the newcomer has, or hold all they want.
    async fn call_or_hush<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        step: &Step,
    ) -> Result<(), Fault> {
        let calls = match *step {
            Step::Wait(Bar::Owner(node)) => Some((node.level(), Half::Writers)),
            Step::Wait(Bar::Readers(node)) => Some((node.level(), Half::Readers)),
            Step::Take(_) if !course.is_complete() => course.called,
            // All of that is above the next node, and so above what it waits for there.
            Step::Line(_) | Step::Wait(Bar::Called(..) | Bar::Bits(_)) => course.kept_call(),
            _ => None,
        };
        let calls_unit = match step {
            Step::Wait(Bar::Bits(_)) => course.is_to_call_for_unit(),
            Step::Take(_) if !course.is_complete() => course.passes.calls,
            // What it waits for then may wait for those that it asks to wait.
            _ => false,
        };
        match (course.passes.calls, calls_unit) {
            (false, true) => self.call_for_unit(site, course).await?,
            (true, false) => self.hush_for_unit(site, course, false).await?,
            _ => {}
        }
        let called = course.called;
        if called == calls {
            return Ok(());
        }
        self.hush_but_for(site, course, calls).await?;
        if calls.is_some() {
            course.called = calls;
            let stand = Stand { phase: Phase::Waiting, claims: false, ticket: None };
            course.publish(site, stand);
            self.call_out(site, course, called).await?;
        }
        Ok(())
    }

    /// What a request does next, which has what it had when it waited last. If something else was
    /// wanted then, that has given back all that it had.
    async fn resume<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        wanted: &mut Course,
    ) -> Result<Step, Fault> {
        let (mut course, stage) = match kept(site, self.plan) {
            Kept::New(way) => return Ok(Step::Take(way)),
            Kept::Waiting(course, stage) => (*course, stage),
        };
        if course.is_exclusive() {
            self.read_tickets(site, &mut course, stage == Stage::Claimed).await?;
        }
        if !course.serves(wanted) {
            self.leave(site, &mut course, stage).await?;
            wanted.publish_units(site);
            return Ok(Step::Take(None));
        }
        let step = match stage {
            Stage::Nothing => Step::Take(None),
            Stage::Line(ticket) => Step::Line(ticket),
            Stage::Claimed if self.plan.is_timed() => Step::Settle,
            Stage::Claimed => Step::Below(self.look_below(site, &course).await?),
        };
        *wanted = course.behind_as(wanted);
        Ok(step)
    }

    /// Gives back all that a request has, and leaves the line where it is in one.
    async fn leave<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        stage: Stage,
    ) -> Result<(), Fault> {
        self.hush(site, course, false).await?;
        match stage {
            Stage::Nothing => {}
            Stage::Line(ticket) => self.leave_line(site, course, ticket).await?,
            Stage::Claimed => self.undo_claim(site, course).await?,
        }
        self.give_all_back(site, course).await?;
        site.forget_position();
        Ok(())
    }

    /// Gives back for a while all that a request has, since it has waited for long: a client that
    /// holds what it waits for may wait for what it has. It comes back soon, and keeps what it has
    /// for longer: else those that come one after the other would keep it out for ever.
    async fn step_back<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        stage: Stage,
    ) -> Result<Step, Fault> {
        self.leave(site, course, stage).await?;
        course.steps_back();
        course.publish(site, Stand { phase: Phase::Waiting, claims: false, ticket: None });
        keep(site, course, Stage::Nothing);
        let (mut rest_ns, patience) = (STEP_BACK_NS, self.patience);
        loop {
            site.endpoint.checkpoint(&[rest_ns]);
            let interval = Some(rest_ns);
            site.wait_or_withdraw(Wait { interval, patience, ..Wait::default() }, false).await;
            rest_ns *= 2;
            let is_last = rest_ns > course.rest_ns_max();
            if is_last || site.is_withdrawn() || !self.lets_through(site, course).await? {
                return Ok(Step::Take(None));
            }
        }
    }

    /// Whether others wait for some of what a request wants, and are to have it first.
    async fn lets_through<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
    ) -> Result<bool, Fault> {
        let living = living(site, course.plan, site.lock).await?;
        let wanted = (&course.nodes[..], course.mode);
        Ok(living.iter().any(|other| other.goes_before(course, wanted)))
    }

    /// Gives back a ticket of the next node if it is its turn. Whether it was.
    async fn pass_turn<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
        ticket: u16,
    ) -> Result<bool, Fault> {
        let stand = Stand { phase: Phase::Leaving, claims: false, ticket: Some(ticket) };
        course.publish(site, stand);
        let addr = course.plan.word(site.lock, course.next(), Half::Writers);
        let op = word::vacate(ticket, false);
        site.endpoint.verb(Verb::MaskedCas64 { addr, op }).await?;
        Ok(word::swapped(&op, site.endpoint.old() as u64))
    }

    /// Gives back a ticket of the next node, or leaves it in line. The word says so after the
    /// record does: it wakes those that have read the record before.
    async fn leave_line<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
        ticket: u16,
    ) -> Result<(), Fault> {
        if self.pass_turn(site, course, ticket).await? {
            return Ok(());
        }
        course.publish(site, Stand { phase: Phase::Leaving, claims: false, ticket: None });
        let addr = course.plan.word(site.lock, course.next(), Half::Writers);
        let lose = Verb::MaskedCas64 { addr, op: word::LOSE };
        let stir = Verb::MaskedFaa64 { addr, op: word::STIR };
        execute(site.endpoint, [lose, stir].into_iter()).await
    }

    /// Takes the next node, if nothing is in the way.
    async fn take_next<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        way: Option<Way>,
    ) -> Result<Step, Fault> {
        let way = match way {
            Some(way) => Ok(way),
            None => {
                course.takes_the_rest();
                course.publish(site, Stand { phase: Phase::Opening, claims: true, ticket: None });
                site.endpoint.completion(look(site, course)).await?;
                if let Some(word) = tuned(site, course) {
                    course.tunes(site, word);
                    return Ok(Step::Take(None));
                }
                if hears_call(site, course) {
                    // One that takes units one by one takes no more than the one it would wait for.
                    course.takes_run(1);
                    if self.is_called(site, course).await? {
                        return Ok(Step::Wait(Bar::CalledFor(course.next())));
                    }
                    site.endpoint.completion(look(site, course)).await?;
                }
                if parent_seen(site, course).is_some_and(|word| word.call() == 0) {
                    // Others that called for their units there may have taken this one's call back.
                    course.passes.calls = false;
                }
                self.way_past_cleaners(site, course).await?
            }
        };
        match way {
            Ok(way) => self.claim_next(site, course, By::Free, way).await,
            Err(bar @ Bar::Bits(_)) if exempt_parent(site, course).is_none() => {
                self.claim_despite(site, course, bar).await
            }
            Err(Bar::Line(_)) if !site.is_withdrawn() && !course.is_to_refine(false) => {
                self.get_in_line(site, course).await
            }
            Err(bar) => Ok(Step::Wait(bar)),
        }
    }

    /// Claims bits though some were seen to be taken: those that are free before them, of a request
    /// that takes them one by one; or all, if that is held back until they are free.
    async fn claim_despite<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        bar: Bar,
    ) -> Result<Step, Fault> {
        let seen = read(site, 0)[0];
        if course.takes_the_free(seen.0) {
            let way = Way { ticket: seen.turn(), left: 0 };
            return self.claim_next(site, course, By::Free, way).await;
        }
        if course.bits().is_none() && self.is_eager && course.whole.is_none() {
            // A reader that does not wait before it asks.
            course.goes_one_by_one(0);
            return Ok(Step::Take(None));
        }
        if course.bits().is_none() || !self.is_patient(site, course) {
            return Ok(Step::Wait(bar));
        }
        let way = way(site, course, seen.turn()).expect("the bits alone are in the way");
        let has_contended = std::mem::replace(&mut course.contends, true);
        let step = self.claim_next(site, course, By::Free, way).await?;
        if let Step::Wait(Bar::Bits(_)) = step {
            // It has not waited in vain: others have had them all the time.
            course.contends = has_contended;
            // An explorer has no need of what it counts.
            course.asked_in_vain(site.endpoint.holds_back());
        }
        Ok(step)
    }

    /// Claims the next node.
    async fn claim_next<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        by: By,
        way: Way,
    ) -> Result<Step, Fault> {
        Ok(match self.claim(site, course, by, way).await? {
            Claim::Late => {
                site.event(Event::Aborted { lock: site.lock });
                if let Some(most_ns) = course.comes_late() {
                    self.rest(site, course, most_ns).await;
                }
                Step::Take(None)
            }
            Claim::Early => {
                self.hush(site, course, true).await?;
                Step::Settle
            }
            Claim::Undone(bar) => {
                site.event(Event::Retried { lock: site.lock });
                bar.map_or(Step::Take(None), Step::Wait)
            }
            Claim::Made(below, way) => {
                self.hush(site, course, true).await?;
                if let Some(bits) = course.bits_to_change() {
                    self.change_bits(site, course, bits).await?;
                }
                match below.is_empty() {
                    true => {
                        course.takes_next();
                        Step::Take(way)
                    }
                    false => Step::Below(below),
                }
            }
        })
    }

    /// Pauses with nothing at the next node, for no longer than this.
    async fn rest<E: WideAtomics>(&self, site: &Site<'_, E>, course: &Course, most_ns: Nanos) {
        course.publish(site, Stand { phase: Phase::Waiting, claims: false, ticket: None });
        keep(site, course, Stage::Nothing);
        let interval = Some(site.endpoint.random() % most_ns);
        let wait = Wait { interval, patience: self.patience, ..Wait::default() };
        site.wait_or_withdraw(wait, false).await;
    }

    /// Takes a ticket of the next node.
    async fn get_in_line<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
    ) -> Result<Step, Fault> {
        let addr = course.plan.word(site.lock, course.next(), Half::Writers);
        course.publish(site, Stand { phase: Phase::Coming, claims: false, ticket: None });
        site.endpoint.verb(Verb::MaskedFaa64 { addr, op: word::GET_IN_LINE }).await?;
        Ok(Step::Line(NodeWord(site.endpoint.old() as u64).next_ticket()))
    }

    /// Waits until it is this ticket's turn at the next node, and claims that.
    ///
    /// A ticket whose turn it is never waits for those above (the paper has it wait): if one is in
    /// the way it is given back, so that those behind in line wait for nobody but those before
    /// them. A reader gives it back in any case, as soon as it has claimed the node.
    async fn stand_in_line<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        ticket: u16,
    ) -> Result<Step, Fault> {
        keep(site, course, Stage::Line(ticket));
        match self.wait_for_turn(site, course, ticket).await? {
            Met::Left => return Ok(Step::Line(ticket)),
            Met::Stuck => return self.step_back(site, course, Stage::Line(ticket)).await,
            Met::Yes | Met::Apart => {}
            Met::Outrun | Met::ToCall | Met::AskAgain | Met::DeadBits(_) => {}
        }
        loop {
            site.endpoint.checkpoint(&[ticket.into()]);
            let stand = Stand { phase: Phase::Claiming, claims: true, ticket: Some(ticket) };
            course.publish(site, stand);
            if !is_seen_after(course) {
                site.endpoint.completion(look(site, course)).await?;
            }
            let way = match is_seen_after(course) {
                true => Ok(Way { ticket, left: 0 }),
                false => way(site, course, ticket),
            };
            let bar = match way {
                Ok(way) => return self.claim_next(site, course, By::Turn, way).await,
                Err(bar) => bar,
            };
            if let (true, Bar::Owner(above)) = (self.keeps_turn, bar) {
                if self.wait_with_turn(site, course, above, ticket).await? == Met::Left {
                    return Ok(Step::Line(ticket));
                }
                continue;
            }
            self.pass_turn(site, course, ticket).await?;
            return Ok(Step::Wait(bar));
        }
    }

    /// Waits until what was in the way of a request is no more, with nothing at its next node.
    async fn wait_out<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        bar: Bar,
    ) -> Result<Step, Fault> {
        course.takes_run(1);
        if matches!(bar, Bar::Crowd(..)) {
            self.give_all_back(site, course).await?;
        }
        if matches!(bar, Bar::Bits(_)) && course.can_be_outrun() {
            course.outrun = course.outrun.saturating_add(course.contends.into());
            if course.outrun >= self.plan.outrun_max {
                course.goes_one_by_one(0);
                return Ok(Step::Take(None));
            }
        }
        keep(site, course, Stage::Nothing);
        Ok(match self.wait_at(site, course, bar).await? {
            Met::Left | Met::ToCall => Step::Wait(bar),
            Met::Stuck => self.step_back(site, course, Stage::Nothing).await?,
            Met::Outrun => {
                course.goes_one_by_one(0);
                Step::Take(None)
            }
            Met::AskAgain => {
                // A reader, too, asks for bits: it sees none that go from one writer to the next.
                if !course.is_exclusive() && !course.is_one_by_one() {
                    course.goes_one_by_one(0);
                }
                Step::Take(None)
            }
            Met::Yes | Met::Apart => {
                course.contends = matches!(bar, Bar::Bits(_));
                Step::Take(None)
            }
            Met::DeadBits(leaf) => {
                self.give_all_back(site, course).await?;
                let in_the_way = self.clean(site, course, leaf).await?;
                in_the_way.map_or(Step::Take(None), Step::Wait)
            }
        })
    }

    /// Waits for those that are at the next node, which the request has claimed, or below it, until
    /// there are none: one that had taken the first of its nodes when this request looked may have
    /// taken others since, and may keep those, counted at this node, where it gives the first one
    /// back.
    async fn await_below<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        mut wanted: Vec<Wanted>,
    ) -> Result<Step, Fault> {
        keep(site, course, Stage::Claimed);
        while !wanted.is_empty() {
            let mut have_left = false;
            while let Some(&next) = wanted.last() {
                site.endpoint.checkpoint(&[wanted.len() as u64, have_left.into()]);
                match self.wait_below(site, course, next).await? {
                    Met::Left => return Ok(Step::Below(wanted)),
                    Met::Stuck => return self.step_back(site, course, Stage::Claimed).await,
                    Met::Apart => {}
                    Met::Yes | Met::Outrun | Met::ToCall | Met::AskAgain | Met::DeadBits(_) => {
                        have_left = true;
                    }
                }
                wanted.pop();
            }
            if have_left && self.looks_again {
                wanted = self.look_below(site, course).await?;
            }
        }
        course.takes_next();
        Ok(Step::Take(None))
    }
}
