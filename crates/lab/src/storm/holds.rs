//! The judge of holds: which client held what, when, and with which token, by the log alone.
//!
//! What is known of each position is a map of intervals; a lock that is had as a whole has one.
//!
//! No hold overlaps one that is alone, as long as both were certainly inside. Tokens of those that
//! are alone increase strictly, at each position, in the order in which they entered; a shared one
//! is at least the last before it and below the next.
//!
//! Nothing here knows a lock's text.

use super::spans::Spans;
use super::story::{Op, Story};
use super::verdict::Verdict;

/// Until when holders of a position are certainly inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Until {
    alone: u64,
    shared: u64,
}

/// The highest tokens of holders of a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Tokens {
    alone: Option<u64>,
    /// Of shared ones, since the last that was alone.
    shared: Option<u64>,
}

impl Story {
    /// Whether a hold overlapped one of these operations, which are of one lock.
    pub fn judge_overlaps(&self, ops: &[&Op], verdict: &mut Verdict) {
        let mut spans = Spans::of(Until::default());
        for (op, (entered, left)) in self.in_order(ops) {
            let range = op.part.start..op.part.end;
            let until =
                |held: Until| if op.alone { held.alone.max(held.shared) } else { held.alone };
            let until = spans.values(range.clone()).map(until).max().unwrap_or(0);
            if entered < until || op.overlaps {
                verdict.overlaps += 1;
                let by = until.saturating_sub(entered) as f64 / 1e3;
                let seen = if op.overlaps { ", a mark of the living was there" } else { "" };
                verdict.object(op, &format!("entered {by:.0} µs too early{seen}"), self.begun);
            }
            spans.change(range, |held| {
                // What has ended by now says nothing any more.
                let still = |until: u64| if until > entered { until } else { 0 };
                let (alone, shared) = (still(held.alone), still(held.shared));
                match op.alone {
                    true => Until { alone: alone.max(left), shared },
                    false => Until { alone, shared: shared.max(left) },
                }
            });
        }
    }

    /// Whether tokens of these operations, which are of one lock, are in order.
    pub fn judge_tokens(&self, ops: &[&Op], verdict: &mut Verdict) {
        let mut spans = Spans::of(Tokens::default());
        for (op, _) in self.in_order(ops) {
            let (range, token) = (op.part.start..op.part.end, Some(op.token));
            // A shared token may be that of the last holder alone, and must be below the next one.
            let is_right = |last: Tokens| match op.alone {
                true => last.alone < token && last.shared < token,
                false => last.alone <= token,
            };
            if let Some(last) = spans.values(range.clone()).find(|last| !is_right(*last)) {
                verdict.token_errors += 1;
                let text = format!("token {} after {last:?}", op.token);
                verdict.object(op, &text, self.begun);
            }
            spans.change(range, |last| match op.alone {
                true => Tokens { alone: last.alone.max(token), shared: None },
                false => Tokens { shared: last.shared.max(token), ..last },
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::{Patience, What};
    use super::super::part::END;
    use super::super::story::told::{Told, told};
    use super::*;

    fn judged(told: Told) -> (u64, u64) {
        let (story, mut verdict) = (Story::read(&told.0), Verdict::default());
        for ops in story.by_lock() {
            story.judge_overlaps(&ops, &mut verdict);
            story.judge_tokens(&ops, &mut verdict);
        }
        (verdict.overlaps, verdict.token_errors)
    }

    /// Two that are inside at the same time.
    fn two(one: (u64, u64), other: (u64, u64)) -> Told {
        let told = told().holds(0, 1, 5, 1).holds(0, 4, 8, 2);
        told.of(1, one.0, one.1).of(2, other.0, other.1)
    }

    #[test]
    fn ranges_that_have_a_position_in_common_overlap() {
        for (one, other, overlaps) in [
            ((0, 10), (9, 20), 1),
            ((9, 20), (0, 10), 1),
            ((3, 4), (0, END), 1),
            ((0, END), (1000, 1001), 1),
            ((5, END), (7, END), 1),
            ((0, 10), (10, 20), 0),
            ((10, 20), (0, 10), 0),
            ((5, END), (0, 5), 0),
        ] {
            assert_eq!(judged(two(one, other)).0, overlaps, "{one:?} {other:?}");
            assert_eq!(judged(two(one, other).shared(1)).0, overlaps, "{one:?} {other:?}");
            assert_eq!(judged(two(one, other).shared(1).shared(2)).0, 0, "{one:?} {other:?}");
        }
    }

    /// One holds for long; others come and go beside it and above a part of it.
    #[test]
    fn a_long_hold_is_remembered_beside_short_ones() {
        let beside = |told: Told, who: u64, start| {
            told.holds(0, 10 * who, 10 * who + 5, who).of(who, start, start + 10)
        };
        let long = || told().holds(0, 1, 900, 1).of(1, 40, 50);
        let told = (2..40).fold(long(), |told, who| beside(told, who, 100 * who));
        assert_eq!(judged(told), (0, 0));
        let told =
            (2..40).fold(long(), |told, who| beside(told, who, if who % 2 == 0 { 45 } else { 50 }));
        assert_eq!(judged(told).0, 19);
    }

    #[test]
    fn the_killed_hold_until_then_at_their_positions() {
        let killed = |entered, start| {
            let told = told().asks(0, 1, Patience::Endless).add(1, 1, What::Enters, 0);
            let told = told.add(50, 1, What::Kills, 0).of(1, 10, 20);
            judged(told.holds(2, entered, 70, 2).of(2, start, start + 10)).0
        };
        assert_eq!((killed(49, 15), killed(51, 15), killed(49, 20)), (1, 0, 0));
    }

    #[test]
    fn tokens_of_ranges_that_overlap_are_in_order() {
        let two = |one, other| {
            let told = told().holds(0, 1, 5, 1).holds(0, 6, 8, 2).with_token(1, one);
            told.with_token(2, other).of(1, 0, 10).of(2, 5, 15)
        };
        assert_eq!(judged(two(5, 6)).1, 0);
        assert_eq!(judged(two(6, 6)).1, 1);
        assert_eq!(judged(two(6, 5)).1, 1);
        assert_eq!(judged(two(6, 5).of(2, 10, 15)).1, 0, "they do not overlap");
        assert_eq!(judged(two(6, 6).shared(2)).1, 0);
        assert_eq!(judged(two(6, 5).shared(2)).1, 1);
        assert_eq!(judged(two(6, 6).shared(1)).1, 1);
        // What is between them is not forgotten where the last one has not been.
        let third = |start| two(9, 10).holds(9, 10, 11, 3).with_token(3, 9).of(3, start, start + 1);
        assert_eq!((judged(third(0)).1, judged(third(5)).1, judged(third(15)).1), (1, 1, 0));
    }
}
