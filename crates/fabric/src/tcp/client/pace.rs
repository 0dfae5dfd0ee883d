//! Whether what tasks have to say lies until what was sent before is answered.
//!
//! A send and the wake-ups behind it cost more than a trip on the server's own host takes. So while
//! verbs are on their way there, the next few that tasks post lie, and travel together: once these
//! are answered, or as soon as they are not so few any more. (After J. Nagle, RFC 896, 1984. No
//! timer is needed, for a server answers these verbs at once: those that it may hold back do not
//! count.) More do not lie: then neither side would have anything to do while the other works. Of
//! another host's server that holds while trips are short; where they are longer nothing lies, for
//! a verb that does takes two of them.

use crate::endpoint::Nanos;

/// So many verbs are worth a send while others are on their way.
const WORTH_A_SEND: u32 = 4;

/// Trips of no more than this are short.
const SHORT_NS: Nanos = 100_000;

/// What was not answered for so long is not: its endpoint has ended.
const LOST_NS: Nanos = 10_000_000;

/// The answers that are awaited, and how long they take.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Verbs with an answer that were said, of these sent, and of these answered.
    said: u32,
    sent: u32,
    answered: u32,
    /// When the first one was sent that is on its way.
    sent_at: Nanos,
    /// About the least time that a trip took of late; 0 if none was taken.
    trip: Nanos,
}

impl Pace {
    pub(super) fn says(&mut self) {
        self.said = self.said.wrapping_add(1);
    }

    /// All that was said is sent.
    pub(super) fn sends(&mut self, now: impl FnOnce() -> Nanos) {
        if self.said == self.sent {
            return;
        }
        let now = now();
        if self.sent == self.answered || now.saturating_sub(self.sent_at) > LOST_NS {
            self.answered = self.sent;
            self.sent_at = now;
        }
        self.sent = self.said;
    }

    /// So many answers have come. Returns whether nothing is on its way any more.
    pub(super) fn hears(&mut self, answers: u32, now: impl FnOnce() -> Nanos) -> bool {
        let awaited = self.sent.wrapping_sub(self.answered);
        self.answered = self.answered.wrapping_add(answers.min(awaited));
        let is_all = self.answered == self.sent;
        if is_all && awaited > 0 {
            let took = now().saturating_sub(self.sent_at).max(1);
            // What was least is forgotten slowly, for a server may move.
            let least = self.trip + self.trip / 16;
            self.trip = if self.trip == 0 { took } else { took.min(least) };
        }
        is_all
    }

    /// Whether anything is on its way.
    pub(super) fn awaits(&self) -> bool {
        self.sent != self.answered
    }

    /// Whether what a task says is sent later, with what others say. Where the server is of this
    /// host a trip takes what processors take, however long that is beside others.
    pub(super) fn is_held(&self, is_near: bool) -> bool {
        let is_little = self.said.wrapping_sub(self.sent) < WORTH_A_SEND;
        self.awaits() && is_little && (is_near || (1..=SHORT_NS).contains(&self.trip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One verb is sent, and answered after so long.
    fn trip(pace: &mut Pace, took: Nanos) {
        pace.says();
        pace.sends(|| 1_000);
        assert!(pace.hears(1, || 1_000 + took));
    }

    #[test]
    fn while_verbs_are_on_their_way_others_lie_where_trips_are_short() {
        let mut pace = Pace::default();
        pace.says();
        pace.sends(|| 1_000);
        assert!(!pace.is_held(false), "nobody knows how long a trip takes");
        assert!(pace.hears(1, || 21_000));
        assert!(!pace.is_held(false), "nothing is on its way");
        pace.says();
        pace.says();
        pace.sends(|| 30_000);
        pace.says();
        assert!(pace.is_held(false));
        assert!(!pace.hears(1, || 50_000), "one more is on its way");
        assert!(pace.is_held(false));
        assert!(pace.hears(1, || 51_000));
        assert!(!pace.is_held(false));
    }

    #[test]
    fn many_verbs_do_not_wait_for_others() {
        let mut pace = Pace::default();
        trip(&mut pace, 5);
        pace.says();
        pace.sends(|| 1_000);
        for _ in 1..WORTH_A_SEND {
            pace.says();
            assert!(pace.is_held(true));
        }
        pace.says();
        assert!(!pace.is_held(true));
    }

    #[test]
    fn where_trips_are_long_nothing_lies() {
        let mut pace = Pace::default();
        trip(&mut pace, 2 * SHORT_NS);
        pace.says();
        pace.sends(|| 1_000);
        assert!(!pace.is_held(false));
        assert!(pace.is_held(true), "unless it is only the processors that are slow");
    }

    #[test]
    fn a_trip_beside_a_load_is_not_taken_for_a_long_one_but_many_are() {
        let mut pace = Pace::default();
        trip(&mut pace, SHORT_NS / 4);
        let is_held = |pace: &mut Pace| {
            pace.says();
            pace.sends(|| 1_000);
            let is_held = pace.is_held(false);
            pace.hears(1, || 1_000 + 4 * SHORT_NS);
            is_held
        };
        let held = (0..100).take_while(|_| is_held(&mut pace)).count();
        assert!((10..40).contains(&held), "{held}");
    }

    #[test]
    fn what_is_never_answered_keeps_others_back_for_a_moment() {
        let mut pace = Pace::default();
        trip(&mut pace, 5);
        for now in [1_000, 2_000, 2_000 + LOST_NS] {
            pace.says();
            pace.sends(|| now);
        }
        assert!(pace.is_held(false));
        assert!(pace.hears(1, || 3_000 + LOST_NS), "only the last one is awaited");
    }

    #[test]
    fn an_answer_that_nobody_awaits_counts_for_nothing() {
        let mut pace = Pace::default();
        assert!(pace.hears(3, || 1));
        trip(&mut pace, 5);
        pace.says();
        pace.sends(|| 1_000);
        assert!(pace.is_held(false));
    }
}
