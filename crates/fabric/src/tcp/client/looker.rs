//! A task that looks for its answer, and so for those of others, before a thread is woken for it.
//!
//! A task cannot sleep on a connection. The session's thread does for it: that is woken when
//! answers come, and wakes the executor's, and each of these takes longer than a trip. So the last
//! task that posted a verb has itself polled again behind the others of its executor, for a little
//! while ([`BusyPoll`]), sends what all of them said and takes in what came. While that pays, a
//! thread that would read for tasks alone sleeps beside the connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::tcp::busy_poll::BusyPoll;

/// For how long a thread that reads for tasks leaves that to them, after one has found something.
pub(super) const LEAVES: Duration = Duration::from_millis(1);

/// How long a task looks, behind all others of its executor and for the answers to theirs.
const PATIENCE: Duration = Duration::from_micros(200);

/// Nobody's verb.
const NOBODY: u64 = u64::MAX;

/// The tasks of a channel, of which one looks.
#[derive(Debug)]
pub(super) struct Looker {
    /// The verb whose answer is looked for.
    verb: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    begun: Option<Instant>,
    found: Option<Instant>,
    busy: BusyPoll,
}

impl Default for Looker {
    fn default() -> Self {
        Self { verb: AtomicU64::new(NOBODY), state: Mutex::default() }
    }
}

impl Looker {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this mutex.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the task of this verb, which has no answer yet, is the one that looks.
    pub(super) fn is(&self, verb: u64) -> bool {
        self.verb.load(Ordering::Relaxed) == verb
    }

    /// Whether there is one that looks. One that has not been polled for long does not.
    pub(super) fn is_there(&self) -> bool {
        !self.is(NOBODY) && self.state().looks(Instant::now())
    }

    /// The task of a verb looks from now on, if that pays: it is answered behind those of others.
    pub(super) fn begins(&self, verb: u64) -> bool {
        let (now, mut state) = (Instant::now(), self.state());
        let pays = state.busy.pays(now);
        if pays {
            state.begun = Some(now);
            self.verb.store(verb, Ordering::Relaxed);
        }
        pays
    }

    /// It has looked. Returns whether it is to look again.
    pub(super) fn goes_on(&self) -> bool {
        let (now, mut state) = (Instant::now(), self.state());
        let Some(begun) = state.begun else { return false };
        let has_ended = state.busy.has_ended((begun, PATIENCE), now, false);
        if has_ended {
            state.begun = None;
            self.verb.store(NOBODY, Ordering::Relaxed);
        }
        !has_ended
    }

    /// The task that looked has its answer, or does not want it any more.
    pub(super) fn ends(&self, is_found: bool) {
        let now = Instant::now();
        let mut state = self.state();
        self.verb.store(NOBODY, Ordering::Relaxed);
        if let Some(begun) = state.begun.take()
            && is_found
        {
            state.busy.has_ended((begun, PATIENCE), now, true);
            state.found = Some(now);
        }
    }

    /// Whether tasks take in what comes, as far as can be told.
    pub(super) fn pays(&self) -> bool {
        let (now, state) = (Instant::now(), self.state());
        let is_fresh = |found| now.saturating_duration_since(found) < LEAVES;
        state.busy.pays(now) && state.found.is_some_and(is_fresh)
    }
}

impl State {
    fn looks(&self, now: Instant) -> bool {
        self.begun.is_some_and(|begun| now.saturating_duration_since(begun) < PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_task_looks_until_it_has_its_answer() {
        let looker = Looker::default();
        assert!(!looker.is_there() && !looker.pays());
        assert!(looker.begins(1) && looker.begins(2));
        assert!(looker.is(2) && !looker.is(1));
        looker.ends(true);
        assert!(!looker.is(2) && !looker.is_there());
    }

    #[test]
    fn one_that_is_not_polled_again_looks_no_more() {
        let looker = Looker::default();
        assert!(looker.begins(1));
        std::thread::sleep(PATIENCE);
        assert!(looker.is(1) && !looker.is_there());
        assert!(!looker.goes_on(), "it has looked for long");
        assert!(!looker.is(1));
        assert!(!looker.begins(2), "that was in vain");
    }
}
