//! What an endpoint remembers of its waits: those that are pending, and whether spinning pays.

use std::cell::Cell;
use std::task::Waker;

use super::primitive::Source;
use crate::endpoint::{Nanos, Patience};

/// What the pending waits of an endpoint wait for.
#[derive(Debug, Default)]
pub(super) struct Parked {
    pub(super) waits: Vec<Pending>,
    pub(super) sources: Vec<(u64, Source)>,
    pub(super) beacons: Vec<(u64, u16)>,
    /// The waits that nothing woke until the last resort did.
    pub(super) overslept: Vec<u64>,
    /// How many of them had a reason to end.
    pub(super) late: u64,
    /// How many waits have ended at once since the last that did not.
    pub(super) at_once: u32,
    /// The key of the last wait that began.
    pub(super) last_key: u64,
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) key: u64,
    pub(super) waker: Waker,
    /// When to look again at the latest.
    pub(super) until: Nanos,
    /// Whether that is for the case alone that a wake-up is lost.
    pub(super) is_last_resort: bool,
}

impl Parked {
    pub(super) fn forget(&mut self, key: u64) {
        self.waits.retain(|wait| wait.key != key);
        self.sources.retain(|source| source.0 != key);
        self.beacons.retain(|beacon| beacon.0 != key);
        self.overslept.retain(|overslept| *overslept != key);
    }
}

/// Whether spinning pays for an endpoint: with more waiters than processors it steals the time of
/// the thread that is waited for. A wait that spins in vain halves the spins of the next, a
/// rewarded one doubles them, and one wait in some tries again.
#[derive(Debug)]
pub(super) struct Spinning {
    allowance: Cell<u32>,
    /// Waits until the next one that tries again.
    until_trial: Cell<u32>,
    /// No wait spins or yields for now.
    is_off: Cell<bool>,
}

impl Default for Spinning {
    fn default() -> Self {
        Self {
            allowance: Cell::new(u32::MAX),
            until_trial: Cell::new(TRIAL_EVERY),
            is_off: Cell::new(false),
        }
    }
}

/// Waits from one trial to the next while spinning does not pay.
pub(super) const TRIAL_EVERY: u32 = 64;

/// Fewer spins than this are none, and a trial has twice as many.
pub(super) const SPINS_MIN: u32 = 32;

/// No more than so many are remembered, so that spinning in vain soon shows.
const SPINS_MAX: u32 = 1024;

impl Spinning {
    /// How often to spin, where the caller's patience allows so many.
    pub(super) fn spins(&self, patience: u32) -> u32 {
        if patience <= Patience::BRIEF {
            return patience;
        }
        let allowed = patience.min(self.allowance.get());
        if allowed >= SPINS_MIN {
            return allowed;
        }
        let left = self.until_trial.get() - 1;
        if left == 0 {
            self.until_trial.set(TRIAL_EVERY);
            return patience.min(2 * SPINS_MIN);
        }
        self.until_trial.set(left);
        0
    }

    /// How patient a wait may be for now.
    pub(super) fn allowed(&self, patience: Patience) -> Patience {
        if self.is_off.get() { Patience::PARK } else { patience }
    }

    /// Does something whose waits neither spin nor yield.
    pub(super) fn turned_off<T>(&self, act: impl FnOnce() -> T) -> T {
        let was_off = self.is_off.replace(true);
        let done = act();
        self.is_off.set(was_off);
        done
    }

    pub(super) fn paid(&self) {
        self.allowance.set(self.allowance.get().max(SPINS_MIN).saturating_mul(2));
    }

    pub(super) fn failed(&self) {
        self.allowance.set(self.allowance.get().min(SPINS_MAX) / 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_it_is_off_nothing_spins() {
        let (spinning, patience) = (Spinning::default(), Patience { spins: 7, yields: 3 });
        let off = spinning.turned_off(|| {
            spinning.turned_off(|| {});
            spinning.allowed(patience)
        });
        assert_eq!((off, spinning.allowed(patience)), (Patience::PARK, patience));
    }

    #[test]
    fn what_does_not_pay_is_spun_no_more_but_for_brief_spins() {
        let spinning = Spinning::default();
        assert_eq!(spinning.spins(200), 200);
        (0..10).for_each(|_| spinning.failed());
        assert_eq!(spinning.spins(200), 0);
        assert_eq!(spinning.spins(Patience::BRIEF), Patience::BRIEF);
        assert_eq!(spinning.spins(0), 0);
        let trials = (0..2 * TRIAL_EVERY).filter(|_| spinning.spins(200) > 0).count();
        assert_eq!(trials, 2, "it tries again now and then");
        spinning.paid();
        assert_eq!(spinning.spins(200), 2 * SPINS_MIN);
    }
}
