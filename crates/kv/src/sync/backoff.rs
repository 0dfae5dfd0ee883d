//! Waiting longer after each miss, up to a bound.

use farlock_fabric::{Endpoint, Nanos};

/// Truncated exponential backoff, each wait drawn from the upper half of its bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// The bound of the first wait, in nanoseconds. None waits not at all.
    pub first_ns: Nanos,
    /// What no bound exceeds, in nanoseconds.
    pub longest_ns: Nanos,
}

impl Backoff {
    /// At once, each time: what the optimistic stores of the literature do.
    pub const NONE: Self = Self { first_ns: 0, longest_ns: 0 };

    /// From about a round trip up to a hundred.
    pub const DEFAULT: Self = Self { first_ns: 2_000, longest_ns: 200_000 };

    /// How long to wait after so many misses, at least one, in nanoseconds.
    pub(super) fn drawn(&self, misses: u32, chance: u64) -> Nanos {
        let doubled = self.first_ns.saturating_mul(1 << misses.saturating_sub(1).min(32));
        let bound = doubled.min(self.longest_ns);
        bound - chance % (bound / 2 + 1)
    }

    /// Waits.
    pub(crate) async fn wait<E: Endpoint>(&self, endpoint: &E, misses: u32) {
        if self.first_ns > 0 {
            endpoint.sleep(self.drawn(misses, endpoint.random())).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_their_bound() {
        let backoff = Backoff { first_ns: 100, longest_ns: 1_000 };
        for (misses, bound) in [(1, 100), (2, 200), (4, 800), (5, 1_000), (u32::MAX, 1_000)] {
            let drawn = (0..5_000).map(|chance| backoff.drawn(misses, chance));
            let (low, high) = drawn.fold((u64::MAX, 0), |(l, h), ns| (ns.min(l), ns.max(h)));
            assert_eq!((low, high), (bound - bound / 2, bound), "{misses} misses");
        }
        assert_eq!(Backoff::NONE.drawn(9, 77), 0);
    }
}
