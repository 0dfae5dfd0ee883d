//! Whether an unsignalled verb lies until the next verb of its channel, to travel with that.
//!
//! Where verbs follow unsignalled ones closely, as those of a program that takes one lock after
//! another, or has many tasks that do, each of these would cost a send and a server's wake-up of
//! its own. So it rides, if the last ones were followed so. The first that is not followed lies
//! until the channel's own thread sends it, some milliseconds later; after that none rides for a
//! while.

use crate::endpoint::Nanos;

/// How soon a verb follows closely.
const CLOSE_NS: Nanos = 50_000;

/// So many in a row must have been followed.
const STREAK: u8 = 8;

/// How closely unsignalled verbs were followed by others.
#[derive(Debug, Default)]
pub(super) struct Riding {
    streak: u8,
    /// When the last one was posted, if none has followed it yet; else 0.
    posted_at: Nanos,
}

impl Riding {
    /// Whether an unsignalled verb may lie until the next one.
    pub(super) fn is_likely(&self) -> bool {
        self.streak >= STREAK
    }

    /// An unsignalled verb was posted. It follows the one before: what an executor's tasks release
    /// one after the other goes together, and with what they ask for when it is their turn again.
    pub(super) fn begins(&mut self, now: Nanos) {
        self.follows(|| now);
        self.posted_at = now;
    }

    /// Another verb is posted.
    pub(super) fn follows(&mut self, now: impl FnOnce() -> Nanos) {
        let posted_at = std::mem::take(&mut self.posted_at);
        if posted_at != 0 {
            let is_close = now().saturating_sub(posted_at) < CLOSE_NS;
            self.streak = if is_close { (self.streak + 1).min(STREAK) } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_rides_after_others_that_were_followed_closely() {
        let mut riding = Riding::default();
        let mut now = 1;
        let mut turn = |gap: Nanos| {
            let rides = riding.is_likely();
            riding.begins(now);
            now += gap;
            riding.follows(|| now);
            rides
        };
        let rides: Vec<bool> = (0..10).map(|_| turn(1000)).collect();
        assert_eq!(rides.iter().position(|rides| *rides), Some(usize::from(STREAK)));
        assert!(turn(CLOSE_NS), "it was not known yet that nothing follows");
        assert!(!turn(1000), "the last one was not followed");
    }

    #[test]
    fn releases_of_many_tasks_ride_though_the_first_waits_for_long() {
        let mut riding = Riding::default();
        for number in 0..u64::from(STREAK) + 1 {
            riding.begins(1 + number * (CLOSE_NS / 2));
        }
        assert!(riding.is_likely());
    }
}
