//! How newcomers treat acquisitions that have been set back too often (paper section 4.3).

use std::time::Instant;

use crate::primitive::{AtomicU32, Ordering, const_fn};

/// How often a newcomer lets others run before it naps, or, if it is a task, goes ahead.
pub(super) const STAND_BACK_YIELDS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 16 };

/// How many acquisitions have been set back too often.
///
/// While there are any, newcomers stand back, each once and at most some two milliseconds, whatever
/// happens: so a holder that needs a second range is delayed, never locked out.
pub(super) struct Impatience {
    waiting: AtomicU32,
}

impl Impatience {
    const_fn! {
        pub(super) fn new() -> Self {
            Self { waiting: AtomicU32::new(0) }
        }
    }

    /// A hint: exclusion does not rest on it.
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    pub(super) fn begin(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Lets the impatient go first, for a bounded time.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn stand_back(&self, deadline: Option<Instant>) {
        const NAPS: u32 = 20;
        const NAP: std::time::Duration = std::time::Duration::from_micros(50);
        for turn in 0..STAND_BACK_YIELDS + NAPS {
            if self.is_none() {
                return;
            }
            if turn < STAND_BACK_YIELDS {
                std::thread::yield_now();
            } else if deadline.is_some_and(|deadline| deadline < Instant::now() + NAP) {
                return;
            } else {
                std::thread::sleep(NAP);
            }
        }
    }

    /// A model has no time to wait for.
    #[cfg(any(loom, shuttle))]
    pub(super) fn stand_back(&self, _: Option<Instant>) {}
}
