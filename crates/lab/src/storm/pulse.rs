//! Whether a storm went on all the time. One that is stopped itself, by Ctrl-Z say, leaves its
//! processes as they are, stopped ones too: nobody may blame a lock for how long that took.

use std::time::{Duration, Instant};

use farlock_check::Unchecked;
use farlock_fabric::Nanos;

/// A storm looks around every half of a millisecond. If it did not for so long it was stopped, or
/// there was no processor for it, as there was none for others then: a delay of half as much again
/// is objected to.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// When a storm looked around, and when it did not.
#[derive(Debug)]
pub struct Pulse {
    last: Instant,
    longest: Duration,
}

impl Pulse {
    /// Of a storm that begins.
    pub fn new() -> Self {
        Self { last: Instant::now(), longest: Duration::ZERO }
    }

    /// The storm looks around.
    pub fn beat(&mut self) {
        let now = Instant::now();
        self.longest = self.longest.max(now - self.last);
        self.last = now;
    }

    /// The longest time for which it did not.
    pub fn longest_pause(&self) -> Nanos {
        self.longest.as_nanos() as Nanos
    }
}

impl Default for Pulse {
    fn default() -> Self {
        Self::new()
    }
}

/// What is objected to how long something took, in a storm that stood still for so long at most.
pub fn excused(objection: anyhow::Error, longest_pause: Nanos) -> anyhow::Error {
    if longest_pause < PAUSE_MAX.as_nanos() as Nanos {
        return objection;
    }
    let seconds = longest_pause as f64 / 1e9;
    Unchecked(format!(
        "the storm itself stood still for {seconds:.1} s, and judges no time then: {objection}"
    ))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_that_stood_still_does_not_judge_times() {
        let objected = |pause: Duration| {
            let objection = excused(anyhow::anyhow!("too long"), pause.as_nanos() as Nanos);
            objection.is::<Unchecked>()
        };
        assert_eq!([PAUSE_MAX / 2, PAUSE_MAX * 2].map(objected), [false, true]);
        let mut pulse = Pulse::new();
        std::thread::sleep(Duration::from_millis(3));
        pulse.beat();
        assert!(pulse.longest_pause() >= 3_000_000);
    }
}
