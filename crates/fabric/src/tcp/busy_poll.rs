//! Looking for bytes a little while before sleeping until they come.
//!
//! To wake a thread on another processor takes longer than a server takes to answer: on virtual
//! processors a trip on one host takes 57 us where both ends sleep, 21 where one does, and 8 where
//! neither does. So an end that awaits an answer, or another request, looks for it before it
//! sleeps. Between two looks it yields: an end on the same processor runs at once.
//!
//! Where that is in vain, or takes long since others need the processor, the end sleeps at once for
//! a multiple of the time that was lost. So an idle connection costs nothing, and a machine that
//! has other work loses a small part of it.

use std::thread::yield_now;
use std::time::{Duration, Instant};

/// How long one looks: some trips of one host where neither end sleeps.
const PATIENCE: Duration = Duration::from_micros(50);

/// For how many times as long as it has looked in vain an end does not look, at least.
const RESTS: u32 = 16;

/// The longest time that it does not look.
const REST_MAX: Duration = Duration::from_millis(100);

/// Whether to look before the next sleep.
#[derive(Debug, Default)]
pub(super) struct BusyPoll {
    rest: Duration,
    rests_until: Option<Instant>,
}

impl BusyPoll {
    /// Looks until there is something, while that pays. Returns whether there was.
    pub(super) fn poll(&mut self, mut look: impl FnMut() -> bool) -> bool {
        let begun = Instant::now();
        if !self.pays(begun) {
            return false;
        }
        loop {
            let is_found = look();
            if self.has_ended((begun, PATIENCE), Instant::now(), is_found) {
                return is_found;
            }
            yield_now();
        }
    }

    /// Whether looking may pay now.
    pub(super) fn pays(&self, now: Instant) -> bool {
        self.rests_until.is_none_or(|until| now >= until)
    }

    /// After a look at this time: whether it was the last one.
    pub(super) fn has_ended(
        &mut self,
        (begun, patience): (Instant, Duration),
        now: Instant,
        is_found: bool,
    ) -> bool {
        let took = now.saturating_duration_since(begun);
        if took >= patience {
            self.rest = (self.rest * 2).max(took * RESTS).min(REST_MAX);
            self.rests_until = Some(now + self.rest);
            return true;
        }
        if is_found {
            *self = Self::default();
        }
        is_found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_found_by_the_first_look() {
        let mut looks = 0;
        assert!(BusyPoll::default().poll(|| {
            looks += 1;
            true
        }));
        assert_eq!(looks, 1);
    }

    #[test]
    fn what_is_looked_for_in_vain_is_not_looked_for_again_for_longer_and_longer() {
        let (mut busy, begun) = (BusyPoll::default(), Instant::now());
        let mut now = begun;
        let mut rests = Vec::new();
        for _ in 0..12 {
            assert!(busy.pays(now));
            assert!(!busy.has_ended((now, PATIENCE), now + PATIENCE / 2, false));
            assert!(busy.has_ended((now, PATIENCE), now + PATIENCE, false));
            now += PATIENCE;
            assert!(!busy.pays(now));
            now += busy.rest;
            rests.push(busy.rest);
        }
        assert_eq!(rests[0], PATIENCE * RESTS);
        assert_eq!(rests[1], 2 * rests[0]);
        assert_eq!(rests[11], REST_MAX);
        // What pays once pays.
        assert!(busy.has_ended((now, PATIENCE), now + PATIENCE / 2, true));
        assert!(busy.pays(now));
        assert!(busy.has_ended((now, PATIENCE), now + PATIENCE, false));
        assert_eq!(busy.rest, rests[0]);
    }

    #[test]
    fn what_is_found_late_did_not_pay() {
        let (mut busy, now) = (BusyPoll::default(), Instant::now());
        let slice = Duration::from_millis(3);
        assert!(busy.has_ended((now, PATIENCE), now + slice, true));
        assert!(!busy.pays(now + slice + slice * (RESTS - 1)));
        assert!(busy.pays(now + slice + slice * RESTS));
    }
}
