//! The time of subjects that have no endpoint to ask.

use std::time::Instant;

use farlock_fabric::Nanos;

/// A clock for a subject without an endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Nanos {
        self.0.elapsed().as_nanos() as Nanos
    }

    pub(crate) fn work(self, nanos: Nanos) {
        let end = self.now() + nanos;
        while self.now() < end {
            std::hint::spin_loop();
        }
    }
}
