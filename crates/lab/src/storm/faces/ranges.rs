//! The judge of waits and tries where positions of locks are asked for.
//!
//! A waiter that runs is granted within [`BOUND_NS`], and what it takes to ask and to say that it
//! holds, of the last moment at which it had a reason: some process that lives held what it asks
//! for, or a part of it, or held what some other waiter asked for that was in its way, and so on. A
//! process that is stopped is a reason too, whether it holds or waits: what it has begun, nobody
//! else ends. While the machine did not even run the crew, nothing is expected of the others. Those
//! that ask for other positions never are, and so a map of clients in the way of others is drawn
//! anew for each moment at which it changes.
//!
//! A try is refused only if some living process held incompatibly, or awaited, a position that it
//! asks for.
//!
//! Nothing here knows a lock's text.

use std::collections::{BTreeMap, BTreeSet};

use super::super::log::Patience;
use super::super::story::{Op, Span, Story, meet, united, without};
use super::super::verdict::Verdict;
use super::bounds::{BOUND_NS, RECENT_NS, STARVED_NS, WITHDRAWAL_NS};
use super::judge::Known;

/// What changes which clients are in the way of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// This operation asks.
    Asks(usize),
    /// It holds.
    Enters(usize),
    /// It waits no more, and may yet be in the way.
    GivesUp(usize),
    /// It is gone.
    Goes(usize),
    /// This process is stopped, or about to die.
    Stops(u64),
    /// It goes on, or is dead.
    GoesOn(u64),
}

/// An operation while it is there.
#[derive(Clone, Copy, Debug)]
struct Present<'o> {
    op: &'o Op,
    holds: bool,
    waits: bool,
    /// Since when it waits without a reason.
    idle_since: Option<u64>,
}

/// The clients that are there, at one moment after the other.
#[derive(Debug, Default)]
struct Scene<'o> {
    present: BTreeMap<usize, Present<'o>>,
    /// How often each process was stopped, or struck dead, and has not gone on.
    still: BTreeMap<u64, u64>,
    /// The longest that each waited without a reason.
    idle: BTreeMap<usize, Span>,
}

impl<'o> Scene<'o> {
    fn apply(&mut self, change: Change, ops: &[&'o Op], now: u64) {
        match change {
            Change::Asks(at) => {
                let op = ops[at];
                let present = Present { op, holds: false, waits: true, idle_since: None };
                self.present.insert(at, present);
            }
            Change::Enters(at) | Change::GivesUp(at) => {
                self.waits_no_more(at, now);
                if let (Change::Enters(_), Some(present)) = (change, self.present.get_mut(&at)) {
                    present.holds = true;
                }
            }
            Change::Goes(at) => {
                self.waits_no_more(at, now);
                self.present.remove(&at);
            }
            Change::Stops(who) => *self.still.entry(who).or_default() += 1,
            Change::GoesOn(who) => {
                let count = self.still.entry(who).or_default();
                *count = count.saturating_sub(1);
            }
        }
    }

    fn waits_no_more(&mut self, at: usize, now: u64) {
        if let Some(present) = self.present.get_mut(&at) {
            present.waits = false;
            let since = present.idle_since.take();
            self.was_idle(at, since, now);
        }
    }

    fn was_idle(&mut self, at: usize, since: Option<u64>, now: u64) {
        let Some(since) = since else { return };
        let longest = self.idle.entry(at).or_insert((since, since));
        if now - since > longest.1 - longest.0 {
            *longest = (since, now);
        }
    }

    /// From `now` on the waiters that can name a reason have one.
    fn look_around(&mut self, now: u64) {
        if !self.present.values().any(|present| present.waits) {
            return;
        }
        let is_still = |op: &Op| self.still.get(&op.who).is_some_and(|count| *count > 0);
        let is_reason = |present: &Present<'_>| present.holds || is_still(present.op);
        let (mut reached, mut left): (Vec<_>, Vec<_>) = self
            .present
            .iter()
            .map(|(at, present)| (*at, *present))
            .partition(|(_, present)| is_reason(present));
        let mut next = 0;
        while let Some((_, reason)) = reached.get(next).copied() {
            let in_its_way = |(_, other): &(usize, Present<'_>)| {
                reason.op.part.meets(other.op.part) || reason.op.is_with(other.op)
            };
            let (more, others) = left.into_iter().partition(in_its_way);
            let more: Vec<(usize, Present<'o>)> = more;
            reached.extend(more);
            left = others;
            next += 1;
        }
        for (at, present) in reached {
            if let Some(since) = present.idle_since {
                self.was_idle(at, Some(since), now);
                self.set_idle(at, None);
            }
        }
        for (at, present) in left {
            if present.waits && present.idle_since.is_none() {
                self.set_idle(at, Some(now));
            }
        }
    }

    fn set_idle(&mut self, at: usize, since: Option<u64>) {
        if let Some(present) = self.present.get_mut(&at) {
            present.idle_since = since;
        }
    }
}

impl Story {
    /// Whether waiters for positions of one lock are granted in time.
    pub(super) fn judge_waits_of_ranges(&self, ops: &[&Op], known: &Known, verdict: &mut Verdict) {
        // What has nobody in its way waits for that alone: a command starts one, then two others.
        let bound = BOUND_NS + known.lives_on_ns + 2 * known.entering_ns;
        let mut scene = Scene::default();
        let changes = self.changes(ops);
        for (index, (now, change)) in changes.iter().enumerate() {
            scene.apply(*change, ops, *now);
            let is_last = changes.get(index + 1).is_none_or(|(at, _)| at > now);
            if is_last {
                scene.look_around(*now);
            }
        }
        for (at, op) in ops.iter().enumerate() {
            let gap = scene.idle.get(&at).copied().unwrap_or((op.asked, op.asked));
            self.judge_wait_of_range(op, gap, bound, verdict);
            if verdict.delayed > 0 && verdict.account.is_empty() {
                let others = ops.iter().copied();
                let near: Vec<&Op> = others.filter(|other| op.part.meets(other.part)).collect();
                verdict.account = self.account(&near, gap);
            }
        }
    }

    fn judge_wait_of_range(&self, op: &Op, gap: Span, bound: u64, verdict: &mut Verdict) {
        let still = united(self.stopped(op).into_iter().chain(self.frozen.clone()).collect());
        let long = |span: Span, others: &[Span]| -> u64 {
            without(span, others).iter().map(|(from, to)| to - from).sum()
        };
        let delay = long(gap, &self.frozen);
        let total = long((op.asked, self.waited_until(op)), &still);
        verdict.worst_delay_ns = verdict.worst_delay_ns.max(delay);
        let late = match op.patience {
            Patience::For(limit) => total > limit + bound,
            _ => total > STARVED_NS,
        };
        if delay > bound || late {
            verdict.delayed += 1;
            let (delay, total) = (delay as f64 / 1e6, total as f64 / 1e6);
            let text = format!(
                "waited {total:.1} ms, {delay:.1} of them while nobody living that held, or was \
                 stopped, was in its way"
            );
            verdict.object(op, &text, self.begun);
        }
    }

    /// All that changes which clients are in the way of others, in order.
    fn changes(&self, ops: &[&Op]) -> Vec<(u64, Change)> {
        let mut changes = Vec::new();
        for (at, op) in ops.iter().enumerate() {
            changes.push((op.asked, Change::Asks(at)));
            changes.extend(op.entered.map(|time| (time, Change::Enters(at))));
            changes.extend(op.refused.map(|(time, _)| (time, Change::GivesUp(at))));
            let ended = op.ended.map(|(at, _)| at).or(op.refused.map(|(at, _)| at));
            // What is withdrawn within moments is in nobody's way for so long as to be judged.
            let left = self.left(op);
            let lingers =
                self.stopped(op).iter().any(|stop| meet(*stop, (ended.unwrap_or(0), left)));
            let goes = if lingers { left } else { ended.unwrap_or(left) };
            changes.push((goes.max(op.asked), Change::Goes(at)));
        }
        let whose: BTreeSet<u64> = ops.iter().map(|op| op.who).collect();
        for who in whose {
            let fate = &self.fates[&who];
            for stop in &fate.stops {
                changes.push((stop.ordered, Change::Stops(who)));
                changes.push((stop.ended, Change::GoesOn(who)));
            }
            changes.extend(fate.killed.map(|time| (time, Change::Stops(who))));
        }
        // Of what happens at one moment, what comes first was pushed first.
        changes.sort_by_key(|(time, _)| *time);
        changes
    }

    /// When an operation was as if it had never been: it had released, or been refused and
    /// withdrawn, or nothing was left of its process.
    fn left(&self, op: &Op) -> u64 {
        let at = match (op.ended, op.refused) {
            (Some((at, false)), _) => return at,
            (None, Some((at, _))) if op.patience == Patience::Try => return at,
            (Some((at, true)), _) | (None, Some((at, _))) => at,
            (None, None) => return self.gone(op).max(op.left.unwrap_or_default()),
        };
        let mut left = at + WITHDRAWAL_NS;
        for (from, to) in self.stopped(op) {
            if from < left && to > at {
                left += to - from.max(at);
            }
        }
        left.min(self.gone(op).max(at))
    }

    /// Whether tries for positions of one lock were refused with a reason.
    pub(super) fn judge_tries_of_ranges(&self, ops: &[&Op], told_ns: u64, verdict: &mut Verdict) {
        // By when all that were asked for until then have left.
        let mut all_left: Vec<u64> = ops.iter().map(|op| self.left(op)).collect();
        for at in 1..all_left.len() {
            all_left[at] = all_left[at].max(all_left[at - 1]);
        }
        for op in ops.iter().filter(|op| op.patience == Patience::Try) {
            let end = op.entered.or(op.refused.map(|(at, _)| at));
            let Some(end) = end else { continue };
            let span = (op.asked.saturating_sub(told_ns), end);
            let before = ops.partition_point(|other| other.asked <= end);
            let latest = (0..before).rev().take_while(|&at| all_left[at] + RECENT_NS >= op.asked);
            let others: Vec<&Op> = latest
                .map(|at| ops[at])
                .filter(|other| !std::ptr::eq(*other, *op) && other.part.meets(op.part))
                .collect();
            if others.iter().any(|other| self.is_in_the_way(op, other, span)) {
                continue;
            }
            let recently = |other: &&Op| {
                let gone = self.fate(other).gone.filter(|gone| *gone <= op.asked);
                gone.is_some_and(|gone| op.asked - gone < RECENT_NS)
            };
            verdict.tries_after_death += u64::from(others.iter().any(recently));
            if op.refused.is_some() {
                verdict.refused_wrongly += 1;
                let text = "a try refused though nobody living was there";
                verdict.object(op, text, self.begun);
                if verdict.account.is_empty() {
                    verdict.account = self.account(&others, (op.asked, end));
                }
            }
        }
    }

    /// Whether the other one, living, held incompatibly or waited at any time of a try.
    fn is_in_the_way(&self, op: &Op, other: &Op, span: Span) -> bool {
        // A try does not wait. One that was killed before it said how it went may have held.
        if other.patience == Patience::Try && other.refused.is_some() {
            return false;
        }
        let left = self.left(other);
        if meet((other.asked, other.entered.unwrap_or(left)), span) {
            return true;
        }
        let excludes = op.alone || other.alone;
        other.entered.is_some_and(|entered| excludes && meet((entered, left), span))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::log::{Refusal, What};
    use super::super::super::part::END;
    use super::super::super::story::told::{MS, Told, told};
    use super::super::judge::{Known, judge};
    use super::*;

    trait Judged {
        fn judged(self) -> Verdict;
    }

    impl Judged for Told {
        fn judged(self) -> Verdict {
            let known = Known { tokens: true, ranges: true, ..Known::default() };
            judge(&self.0, known)
        }
    }

    #[test]
    fn who_waits_beside_others_alone_is_delayed() {
        // One holds for long; another one waits for something else until it is granted.
        let late = |granted, start| {
            let told = told().holds(0, 1, 900, 1).of(1, 0, 10);
            told.holds(2, granted, 2_000, 2).of(2, start, END).judged()
        };
        assert_eq!((late(152, 10).delayed, late(153, 10).delayed), (0, 1));
        assert_eq!(late(153, 10).worst_delay_ns, 151 * MS);
        assert_eq!(late(902, 9).delayed, 0, "the first one was in its way");
        assert_eq!((late(1050, 9).delayed, late(1051, 9).delayed), (0, 1));
    }

    #[test]
    fn a_waiter_in_the_way_has_its_own_reason() {
        let third = |second: u64| {
            let told = told().holds(0, 1, 900, 1).of(1, 0, 10);
            let told = told.holds(2, 902, 904, 2).of(2, second, 30);
            told.holds(3, 905, 907, 3).of(3, 20, 40).judged()
        };
        assert_eq!(third(5).delayed, 0, "it waits for one that waits for the first");
        assert_eq!(third(10).delayed, 2, "both wait for nobody");
    }

    /// A part that is had already is kept for another that is waited for.
    #[test]
    fn what_is_asked_for_together_has_the_reasons_of_each() {
        let delayed = |group| {
            let told = told().holds(0, 1, 900, 1).of(1, 0, 10);
            let told = told.holds(3, 905, 907, 3).of(3, 20, 40);
            let told = told.part((1, 901, 904), (2, 7), (5, 8), group);
            told.part((1, 901, 904), (2, 8), (20, 25), group).judged().delayed
        };
        assert_eq!((delayed(8), delayed(0)), (0, 2));
    }

    #[test]
    fn the_stopped_are_a_reason_where_they_are_and_nowhere_else() {
        let stopped = |start, end| {
            // Granted nothing until it goes on.
            let told = told().holds(1, 401, 403, 1).of(1, 10, 20);
            let told = told.add(5, 1, What::Stops, 0).add(400, 1, What::Continues, 0);
            told.holds(6, 404, 405, 2).of(2, start, end).judged().delayed
        };
        assert_eq!((stopped(15, 30), stopped(20, 30), stopped(0, 10)), (0, 1, 1));
        // One that gave up just before it was stopped has not withdrawn.
        let gave_up = |at: u64| {
            let told = told().asks(0, 1, Patience::For(MS)).add(2, 1, What::Refused, 1);
            let told = told.add(at, 1, What::Stops, 0).add(400, 1, What::Continues, 0);
            told.holds(3, 401, 402, 2).judged().delayed
        };
        assert_eq!((gave_up(4), gave_up(90)), (0, 1));
    }

    #[test]
    fn the_dead_are_a_reason_until_they_are_gone() {
        let dead = |gone| {
            let told = told().asks(0, 1, Patience::Endless).add(3, 1, What::Kills, 0);
            told.add(gone, 1, What::Gone, 0).holds(2, 200, 201, 2).judged().delayed
        };
        assert_eq!((dead(60), dead(40)), (0, 1));
    }

    #[test]
    fn nothing_is_expected_where_the_machine_runs_nobody() {
        let watched = |times: &[u64]| {
            let told = told().holds(2, 203, 204, 2);
            let add = |told: Told, time: &u64| told.add(*time, 0, What::Watches, 0);
            times.iter().fold(told, add).judged().delayed
        };
        assert_eq!((watched(&[]), watched(&[5, 54, 103, 150, 199])), (1, 1));
        assert_eq!((watched(&[5, 55, 105]), watched(&[5, 56]), watched(&[5, 100])), (1, 0, 0));
    }

    #[test]
    fn a_limit_is_kept_and_nobody_starves() {
        let limited = |at| {
            let told = told().holds(0, 0, 900, 1).asks(1, 2, Patience::For(10 * MS));
            told.add(at, 2, What::Refused, Refusal::TimedOut as u64).judged()
        };
        assert_eq!((limited(161).delayed, limited(162).delayed), (0, 1));
        assert_eq!((limited(11).early, limited(10).early), (0, 1));
        let starved = |at| told().holds(0, 0, at, 1).holds(1, at, at + 1, 2).judged().delayed;
        assert_eq!((starved(10_001), starved(10_002)), (0, 1));
        let never = told().holds(0, 0, 5, 1).asks(1, 2, Patience::Endless);
        assert_eq!(never.add(100, 0, What::Over, 0).judged().stalled, 1);
    }

    #[test]
    fn a_try_is_refused_beside_the_living_that_are_in_its_way() {
        let beside = |told: Told| {
            let verdict = told.refused(10, 11, 9).of(9, 50, 60).judged();
            verdict.refused_wrongly
        };
        assert_eq!(beside(told()), 1);
        assert_eq!(beside(told().holds(0, 1, 20, 1).of(1, 59, 70)), 0);
        assert_eq!(beside(told().holds(0, 1, 20, 1).of(1, 60, 70)), 1, "beside it");
        assert_eq!(beside(told().holds(0, 1, 20, 1).of(1, 60, END)), 1, "beside it");
        assert_eq!(beside(told().holds(0, 1, 9, 1).of(1, 50, 51)), 1, "it has left");
        assert_eq!(beside(told().asks(2, 1, Patience::Endless).of(1, 0, 51)), 0, "a waiter");
        assert_eq!(beside(told().asks(2, 1, Patience::Endless).of(1, 0, 50)), 1, "beside it");
        assert_eq!(beside(told().refused(9, 12, 1)), 2, "who tries does not wait");
        let shared = told().holds(0, 1, 20, 1).shared(1).refused(10, 11, 9).of(9, 3, 4);
        assert_eq!(shared.shared(9).judged().refused_wrongly, 1, "they share");
        let killed = |gone, start| {
            let told = told().asks(0, 1, Patience::Endless).add(1, 1, What::Enters, 0);
            let told = told.add(2, 1, What::Kills, 0).add(gone, 1, What::Gone, 0);
            told.of(1, start, END).refused(10, 11, 9).of(9, 50, 60).judged()
        };
        assert_eq!((killed(9, 59).refused_wrongly, killed(10, 59).refused_wrongly), (1, 0));
        assert_eq!((killed(9, 59).tries_after_death, killed(9, 60).tries_after_death), (1, 0));
        let withdrawn = |at| {
            let told = told().asks(0, 1, Patience::UntilDropped);
            told.add(1, 1, What::Refused, Refusal::Dropped as u64).refused(at, at + 1, 9).judged()
        };
        assert_eq!((withdrawn(50).refused_wrongly, withdrawn(52).refused_wrongly), (0, 1));
    }
}
