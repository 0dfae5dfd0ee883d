//! The judge of a storm over the faces: reads the log when all is over, and nothing else.
//!
//! | judged | how |
//! | --- | --- |
//! | exclusion | no hold overlaps one that is alone; a holder that was killed has held until just before the kill. Holders that found a mark of the living say so themselves |
//! | tokens | of holders alone increase strictly in the order in which they entered; a shared one is at least the last before it and below the next |
//! | waits | a waiter that runs is granted within [`BOUND_NS`] of the last moment at which a living process held; each further waiter that is stopped meanwhile may cost [`PASS_NS`] more |
//! | order | of those that asked later no more are granted before one that waits and is not stopped than may pass all who stand in line |
//! | tries | are refused only if some living process held incompatibly or waited meanwhile, or one by a server just before |
//!
//! A process that is stopped after its grant, before it could say that it holds, holds until it
//! goes on. So a stopped waiter is taken for a holder if it may have been granted just before: if
//! nobody held incompatibly when it was seen to be stopped, the lock was not free for so long by
//! then that it would have said so, and it does not wait on when it goes on. Otherwise it can only
//! be a waiter, and must be passed over.
//!
//! Nothing here knows a lock's text.

use super::super::log::{Patience, Record, Refusal};
use super::super::story::{Op, Span, Story, meet, united, without};
use super::super::verdict::Verdict;
use super::bounds::{BOUND_NS, PASS_NS, RECENT_NS, STARVED_NS, WITHDRAWAL_NS};

/// What is known beforehand of those who are judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// From its grant until it says that it holds, a process that runs takes so long at most.
    pub entering_ns: u64,
    /// How long after a death others may not have been told of it yet: a server is by the end of a
    /// connection.
    pub told_ns: u64,
    /// How long after a death the dead may count as alive: those that die while their server is
    /// not there.
    pub lives_on_ns: u64,
    /// How long the connections of a client must have been broken for it to lose its session.
    pub loses_ns: u64,
    /// Whether grants have tokens.
    pub tokens: bool,
    /// Whether positions of locks are asked for, and not locks.
    pub ranges: bool,
    /// How many that asked later may be granted before one that waits and runs, if that is said.
    pub passes_max: Option<u64>,
}

/// Judges a whole log.
pub fn judge(records: &[Record], known: Known) -> Verdict {
    let story = Story::read(records);
    let told_ns = known.told_ns + known.lives_on_ns;
    let undue = story.fates.values().filter(|fate| fate.lost_unduly(known.loses_ns)).count();
    let failures = story.failures + undue as u64;
    let mut verdict = Verdict { failures, ..Verdict::default() };
    verdict.lost = story.fates.values().filter(|fate| fate.lost.is_some()).count() as u64;
    for ops in story.by_lock() {
        ops.iter().for_each(|op| story.count(op, &mut verdict));
        story.judge_overlaps(&ops, &mut verdict);
        if known.tokens {
            story.judge_tokens(&ops, &mut verdict);
        }
        if known.ranges {
            story.judge_waits_of_ranges(&ops, &known, &mut verdict);
            story.judge_tries_of_ranges(&ops, told_ns, &mut verdict);
        } else {
            story.judge_waits(&ops, &known, &mut verdict);
            story.judge_order(&ops, known.passes_max, &mut verdict);
            story.judge_tries(&ops, told_ns, &mut verdict);
            story.measure_takeovers(&ops, &mut verdict);
        }
    }
    verdict
}

/// Which of so many ranks were inserted, counted by a Fenwick tree.
struct Ranks {
    sums: Vec<u64>,
    inserted: u64,
}

impl Ranks {
    fn new(ranks: usize) -> Self {
        Self { sums: vec![0; ranks + 1], inserted: 0 }
    }

    fn insert(&mut self, rank: usize) {
        self.inserted += 1;
        let mut at = rank + 1;
        while let Some(sum) = self.sums.get_mut(at) {
            *sum += 1;
            at += at & at.wrapping_neg();
        }
    }

    /// How many above this one.
    fn above(&self, rank: usize) -> u64 {
        let (mut below, mut at) = (0, rank + 1);
        while at > 0 {
            below += self.sums[at];
            at &= at - 1;
        }
        self.inserted - below
    }
}

impl Story {
    fn count(&self, op: &Op, verdict: &mut Verdict) {
        verdict.granted += u64::from(op.entered.is_some());
        verdict.tries += u64::from(op.patience == Patience::Try);
        match op.refused.map(|(_, why)| why) {
            Some(why) if why == Refusal::Busy as u64 => verdict.tries_refused += 1,
            Some(why) if why == Refusal::TimedOut as u64 => verdict.time_outs += 1,
            Some(_) => verdict.dropped += 1,
            None => {}
        }
        if let (Patience::For(limit), Some((at, _))) = (op.patience, op.refused)
            && at - op.asked < limit
        {
            verdict.early += 1;
            let text = format!("its time of {limit} ns was over after {} ns", at - op.asked);
            verdict.object(op, &text, self.begun);
        }
        let open = op.entered.is_none() && op.refused.is_none();
        if open && self.fate(op).killed.is_none() {
            verdict.stalled += 1;
            verdict.object(op, "still waits in the end", self.begun);
        }
    }

    fn judge_waits(&self, ops: &[&Op], known: &Known, verdict: &mut Verdict) {
        let entering_ns = known.entering_ns;
        let held = united(ops.iter().filter_map(|op| self.held(op)).collect());
        let perhaps = ops.iter().flat_map(|op| self.perhaps_held(op, ops, &held, entering_ns));
        let taken = united(held.iter().copied().chain(perhaps).collect());
        for op in ops {
            let end = self.waited_until(op);
            let ran = without((op.asked, end), &self.stopped(op));
            let total: u64 = ran.iter().map(|(from, to)| to - from).sum();
            let gaps = ran.iter().flat_map(|span| without(*span, &taken));
            let gap = gaps.max_by_key(|(from, to)| to - from).unwrap_or((end, end));
            let delay = gap.1 - gap.0;
            let is_worst = delay > verdict.worst_delay_ns;
            verdict.worst_delay_ns = verdict.worst_delay_ns.max(delay);
            let (mut stopped, mut bound) = (0, BOUND_NS + known.lives_on_ns);
            if delay > bound {
                let stopped_waiting = |other: &&&Op| self.was_stopped_waiting(other, gap);
                stopped = ops.iter().filter(stopped_waiting).count();
                bound += PASS_NS * stopped.saturating_sub(1) as u64;
            }
            let late = match op.patience {
                Patience::For(limit) => total > limit + bound,
                _ => total > STARVED_NS,
            };
            if delay > bound || late {
                verdict.delayed += 1;
                let (delay, total) = (delay as f64 / 1e6, total as f64 / 1e6);
                let text = format!(
                    "waited {total:.1} ms, {delay:.1} of them while nobody living held, \
                     {stopped} waiters stopped meanwhile"
                );
                verdict.object(op, &text, self.begun);
                if verdict.account.is_empty() || is_worst {
                    verdict.account = self.account(ops, gap);
                }
            }
        }
    }

    /// Looks how many that asked later were granted before one that waited, and was not stopped.
    fn judge_order(&self, ops: &[&Op], passes_max: Option<u64>, verdict: &mut Verdict) {
        let mut entered: Vec<(u64, usize)> =
            (0..).zip(ops).filter_map(|(rank, op)| Some((op.entered?, rank))).collect();
        entered.sort_unstable();
        let mut waits: Vec<(u64, usize)> =
            (0..).zip(ops).map(|(rank, op)| (self.waited_until(op), rank)).collect();
        waits.sort_unstable();
        let (mut granted, mut entered) = (Ranks::new(ops.len()), entered.into_iter().peekable());
        for (until, rank) in waits {
            while let Some((_, rank)) = entered.next_if(|(at, _)| *at < until) {
                granted.insert(rank);
            }
            let op = ops[rank];
            if self.stopped(op).iter().any(|stop| meet(*stop, (op.asked, until))) {
                continue;
            }
            let passes = granted.above(rank);
            verdict.overtaken_max = verdict.overtaken_max.max(passes);
            if passes_max.is_some_and(|max| passes > max) {
                verdict.overtaken += 1;
                verdict.object(op, &format!("{passes} that asked later came first"), self.begun);
            }
        }
    }

    /// When this operation, stopped while it waited, may have held already.
    fn perhaps_held(&self, op: &Op, ops: &[&Op], held: &[Span], entering_ns: u64) -> Vec<Span> {
        let until = self.waited_until(op);
        let mut ran_from = op.asked;
        let perhaps = self.fate(op).stops.iter().filter_map(|stop| {
            // Had it been granted long before, it would have said so while it ran.
            let ended = held[..held.partition_point(|span| span.0 <= stop.ordered)].last();
            let free_from = ended.map_or(0, |span| span.1.min(stop.ordered));
            let ran = stop.ordered.saturating_sub(ran_from.max(free_from));
            ran_from = ran_from.max(stop.ended);

            let seen = stop.seen.unwrap_or(stop.ordered).max(stop.ordered);
            let waits = op.asked < seen && stop.ordered < until;
            let held = |other: &&Op| {
                let incompatible = op.alone || other.alone;
                let inside = self.inside(other);
                incompatible && inside.is_some_and(|(from, to)| from <= seen && seen < to)
            };
            // Nor would it wait on when it goes on.
            let said = until <= stop.ended + entering_ns;
            let perhaps = waits && said && ran <= entering_ns && !ops.iter().any(held);
            perhaps.then_some((stop.ordered, until))
        });
        perhaps.collect()
    }

    /// Whether this operation, stopped while it waited, was in the way of those who waited in this
    /// gap: who goes on soon needs not be passed.
    fn was_stopped_waiting(&self, op: &Op, gap: Span) -> bool {
        let (from, to) = (gap.0.max(op.asked), gap.1.min(self.waited_until(op)));
        let within = |stop: &Span| stop.1.min(to).saturating_sub(stop.0.max(from));
        self.stopped(op).iter().any(|stop| within(stop) >= PASS_NS / 2)
    }

    fn judge_tries(&self, ops: &[&Op], told_ns: u64, verdict: &mut Verdict) {
        for op in ops.iter().filter(|op| op.patience == Patience::Try) {
            let end = op.entered.or(op.refused.map(|(at, _)| at));
            let Some(end) = end else { continue };
            let span = (op.asked.saturating_sub(told_ns), end);
            // The latest first: they are the ones that meet it.
            let before = &ops[..ops.partition_point(|other| other.asked <= end)];
            let others = || before.iter().rev().filter(|other| !std::ptr::eq(**other, *op));
            if others().any(|other| self.justifies(op, other, span)) {
                continue;
            }
            let recently = |other: &&Op| {
                let gone = self.fate(other).gone.filter(|gone| *gone <= op.asked);
                gone.is_some_and(|gone| op.asked - gone < RECENT_NS)
            };
            verdict.tries_after_death += u64::from(others().any(recently));
            if op.refused.is_some() {
                verdict.refused_wrongly += 1;
                verdict.object(op, "a try refused though nobody living was there", self.begun);
            }
        }
    }

    /// Whether the other one, living, held incompatibly or waited at any time of a try.
    fn justifies(&self, op: &Op, other: &Op, span: Span) -> bool {
        // A try does not wait. One that was killed before it said how it went may have held.
        if other.patience == Patience::Try && other.entered.is_none() && other.refused.is_some() {
            return false;
        }
        let withdrawn = other.refused.map(|(at, _)| at + WITHDRAWAL_NS);
        let waits = other.entered.or(withdrawn).unwrap_or_else(|| self.gone(other));
        if meet((other.asked, waits), span) {
            return true;
        }
        let let_go = other.ended.is_some_and(|(_, let_go)| let_go);
        let grace = if let_go { WITHDRAWAL_NS } else { 0 };
        let held = self.held(other).filter(|_| op.alone || other.alone);
        held.is_some_and(|(from, to)| meet((from, to + grace), span))
    }

    fn measure_takeovers(&self, ops: &[&Op], verdict: &mut Verdict) {
        let order = self.in_order(ops);
        for (op, (entered, end)) in &order {
            let killed = self.fate(op).killed.filter(|_| op.left.is_none() && op.alone);
            if *entered >= *end {
                continue;
            }
            let Some(killed) = killed else { continue };
            let next = order.iter().find(|(_, (entered, _))| *entered >= killed);
            let Some((next, (granted, _))) = next else { continue };
            let stopped = self.stopped(next).iter().any(|stop| meet(*stop, (killed, *granted)));
            if next.asked < killed && !stopped {
                verdict.takeovers.push(granted - killed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::log::What;
    use super::super::super::story::told::{MS, Told, told};
    use super::*;

    trait Judged {
        fn judged(self) -> Verdict;
    }

    impl Judged for Told {
        fn judged(self) -> Verdict {
            let (entering_ns, passes_max) = (20 * MS, Some(2));
            let loses_ns = 500 * MS;
            let known =
                Known { entering_ns, loses_ns, tokens: true, passes_max, ..Known::default() };
            judge(&self.0, known)
        }
    }

    #[test]
    fn one_after_another_is_right() {
        let told = told().holds(0, 1, 5, 1).holds(2, 6, 9, 2).holds(3, 10, 12, 3).shared(3);
        let verdict = told.with_token(3, 6 * MS).holds(4, 13, 15, 4).judged();
        assert_eq!(verdict.examples, [""; 0]);
        assert_eq!((verdict.granted, verdict.worst_delay_ns), (4, MS));
    }

    #[test]
    fn who_overlaps_a_holder_is_seen_and_shared_holders_may() {
        let two = || told().holds(0, 1, 5, 1).holds(0, 4, 8, 2);
        assert_eq!(two().judged().overlaps, 1);
        assert_eq!(two().shared(1).judged().overlaps, 1);
        assert_eq!(two().shared(2).judged().overlaps, 1);
        assert_eq!(two().shared(1).shared(2).judged().overlaps, 0);
        let marked = told().holds(0, 1, 5, 1).add(2, 1, What::Overlaps, 0).judged();
        assert_eq!(marked.overlaps, 1);
    }

    #[test]
    fn the_killed_hold_until_then() {
        let holder = || {
            let told = told().asks(0, 1, Patience::Endless).add(1, 1, What::Enters, 0);
            told.add(5, 1, What::Kills, 0).add(7, 1, What::Gone, 0)
        };
        let verdict = holder().holds(2, 6, 9, 2).judged();
        assert_eq!((verdict.overlaps, verdict.takeovers), (0, vec![MS]));
        assert_eq!(holder().holds(2, 4, 9, 2).judged().overlaps, 1);
    }

    #[test]
    fn tokens_that_do_not_grow_are_seen() {
        let two = || told().holds(0, 1, 5, 1).holds(0, 6, 8, 2);
        assert_eq!(two().with_token(2, MS).judged().token_errors, 1);
        assert_eq!(two().with_token(2, MS).shared(2).judged().token_errors, 0);
        assert_eq!(two().with_token(2, MS - 1).shared(2).judged().token_errors, 1);
        assert_eq!(two().with_token(2, MS).shared(1).judged().token_errors, 1);
    }

    #[test]
    fn who_waits_beside_nobody_is_delayed() {
        let late = |granted| told().holds(0, 1, 5, 1).holds(2, granted, 999, 2).judged();
        assert_eq!(late(154).delayed, 0);
        assert_eq!((late(156).delayed, late(156).worst_delay_ns), (1, 151 * MS));
        let never = told().asks(0, 1, Patience::Endless).add(900, 0, What::Over, 0).judged();
        assert_eq!((never.delayed, never.stalled), (1, 1));
        let limit = Patience::For(10 * MS);
        let time_outs = |at| {
            let told = told().holds(0, 0, 900, 1).asks(1, 2, limit);
            told.add(at, 2, What::Refused, Refusal::TimedOut as u64).judged().delayed
        };
        assert_eq!((time_outs(100), time_outs(200)), (0, 1));
        let early = |at| {
            let told = told().holds(0, 0, 900, 1).asks(1, 2, limit);
            told.add(at, 2, What::Refused, Refusal::TimedOut as u64).judged().early
        };
        assert_eq!((early(11), early(10)), (0, 1), "it was to wait longer");
    }

    #[test]
    fn who_loses_its_session_was_cut_off_for_long() {
        let loses = || {
            let told = told().asks(0, 1, Patience::Endless).add(100, 1, What::Lost, 0);
            told.add(100, 1, What::Refused, Refusal::Lost as u64)
        };
        let cut = |from, until| loses().add(from, 1, What::Cut, until * MS).judged();
        assert_eq!(loses().judged().failures, 1);
        assert_eq!(
            (cut(10, 509).failures, cut(10, 510).failures, cut(101, 900).failures),
            (1, 0, 1)
        );
        assert_eq!(cut(10, 510).lost, 1);
    }

    /// A client that cannot reach its server waits like one that is stopped.
    #[test]
    fn who_is_cut_off_is_not_delayed() {
        let granted = |at| {
            let told = told().holds(0, 1, 5, 1).add(4, 2, What::Cut, 500 * MS);
            told.holds(2, at, 999, 2).judged().delayed
        };
        assert_eq!((granted(600), granted(900)), (0, 1));
    }

    /// One waits while four that came later hold, one after the other.
    #[test]
    fn who_is_overtaken_too_often_is_seen() {
        let told = |granted| {
            let four = (0..4).fold(told().holds(0, 1, 3, 1), |told, n| {
                told.holds(3 + n, 10 + 10 * n, 12 + 10 * n, 10 + n)
            });
            four.holds(2, granted, granted + 1, 2)
        };
        let counts = |verdict: Verdict| (verdict.overtaken, verdict.overtaken_max);
        assert_eq!(counts(told(4).judged()), (0, 0));
        assert_eq!(counts(told(25).judged()), (0, 2));
        assert_eq!(counts(told(45).judged()), (1, 4));
        let stopped = told(45).add(5, 2, What::Stops, 0).add(6, 2, What::Continues, 0);
        assert_eq!(counts(stopped.judged()), (0, 0), "it was passed over");
    }

    /// A waiter is stopped while another holds, who releases; a third waits until the stopped one
    /// goes on. Nobody may wait so long for a waiter.
    #[test]
    fn a_stopped_waiter_is_to_be_passed() {
        let stopped = |from, seen| {
            let told = told().holds(0, 1, 20, 1).holds(2, 401, 403, 2).holds(3, 404, 405, 3);
            let told = told.add(from, 2, What::Stops, 0).add(seen, 2, What::Stopped, 0);
            told.add(400, 2, What::Continues, 0).judged()
        };
        assert_eq!(stopped(10, 11).delayed, 1);
        // It may have been granted before it was stopped: then it holds.
        assert_eq!(stopped(21, 22).delayed, 0);
        assert_eq!(stopped(19, 21).delayed, 0);
        // But not so long before, and who holds does not wait on.
        let asked = told().holds(0, 1, 20, 1).holds(2, 601, 603, 2).holds(3, 604, 605, 3);
        let asked = asked.add(21, 2, What::Stops, 0).add(22, 2, What::Stopped, 0);
        assert_eq!(asked.add(200, 2, What::Continues, 0).judged().delayed, 2);
        assert_eq!(stopped(41, 42).delayed, 1);
        // A stop of those below it is not seen; of a later one nothing is learnt about it.
        let below = told().holds(0, 1, 20, 1).holds(2, 401, 405, 2).holds(3, 406, 407, 3);
        let below = below.add(21, 2, What::Stops, 0).add(400, 2, What::Continues, 0);
        let again = below.add(402, 2, What::Stops, 0).add(403, 2, What::Stopped, 0);
        assert_eq!(again.add(404, 2, What::Continues, 0).judged().delayed, 0);
    }

    #[test]
    fn a_try_is_refused_beside_the_living_alone() {
        let beside = |who: Told| who.refused(10, 11, 9).judged().refused_wrongly;
        assert_eq!(beside(told()), 1);
        assert_eq!(beside(told().holds(0, 1, 20, 1)), 0);
        assert_eq!(beside(told().holds(0, 1, 9, 1)), 1);
        assert_eq!(beside(told().refused(9, 12, 1)), 2, "who tries does not wait");
        assert_eq!(beside(told().asks(2, 1, Patience::Endless)), 0, "a waiter");
        let killed = |at| {
            let told = told().asks(0, 1, Patience::Endless).add(1, 1, What::Enters, 0);
            told.add(2, 1, What::Kills, 0).add(at, 1, What::Gone, 0)
        };
        assert_eq!((beside(killed(9)), beside(killed(10))), (1, 0));
        assert_eq!(killed(9).refused(10, 11, 9).judged().tries_after_death, 1);
        let tried = |killed, gone| {
            let told = told().asks(5, 1, Patience::Try).add(killed, 1, What::Kills, 0);
            beside(told.add(gone, 1, What::Gone, 0))
        };
        assert_eq!((tried(8, 9), tried(8, 10)), (1, 0), "it may have held, and not said so");
        let shared = told().holds(0, 1, 20, 1).shared(1).refused(10, 11, 9);
        assert_eq!(shared.shared(9).judged().refused_wrongly, 1, "they share");
        let withdrawn = |at| {
            let told = told().asks(0, 1, Patience::UntilDropped);
            told.add(1, 1, What::Refused, Refusal::Dropped as u64).refused(at, at + 1, 9).judged()
        };
        assert_eq!((withdrawn(50).refused_wrongly, withdrawn(52).refused_wrongly), (0, 1));
    }
}
