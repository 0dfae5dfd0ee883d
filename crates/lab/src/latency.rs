//! How long acquisitions took: a histogram of nanoseconds that travels as JSON.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Significant digits kept.
const DIGITS: u8 = 3;
/// The longest time told apart from longer ones: a minute, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;

/// A histogram of durations in nanoseconds, exact to three digits. It is small at first and grows
/// with the longest one, for there may be hundreds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "Vec<(u64, u64)>", from = "Vec<(u64, u64)>")]
pub struct Latency {
    histogram: Histogram<u64>,
}

impl Default for Latency {
    fn default() -> Self {
        Self { histogram: Histogram::new(DIGITS).expect("so many digits are in range") }
    }
}

impl Latency {
    /// Counts one duration, in nanoseconds.
    #[cold]
    pub fn record(&mut self, nanos: u64) {
        self.record_times(nanos, 1);
    }

    fn record_times(&mut self, nanos: u64, times: u64) {
        let recorded = self.histogram.record_n(nanos.min(LONGEST_NS), times);
        recorded.expect("a histogram grows to hold any duration");
    }

    /// Counts all that another one has.
    pub fn add(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("a histogram grows to hold any other");
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// What a row says of it.
    pub fn summary(&self) -> Summary {
        let at = |quantile| self.histogram.value_at_quantile(quantile);
        Summary {
            mean: (self.histogram.mean() * 10.0).round() / 10.0,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.histogram.max(),
        }
    }
}

impl From<Latency> for Vec<(u64, u64)> {
    fn from(latency: Latency) -> Self {
        let recorded = latency.histogram.iter_recorded();
        recorded.map(|at| (at.value_iterated_to(), at.count_at_value())).collect()
    }
}

impl From<Vec<(u64, u64)>> for Latency {
    fn from(recorded: Vec<(u64, u64)>) -> Self {
        let mut latency = Self::default();
        for (nanos, count) in recorded {
            latency.record_times(nanos, count);
        }
        latency
    }
}

/// Durations in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The mean.
    pub mean: f64,
    /// Half were no longer.
    pub p50: u64,
    /// Nine in ten were no longer.
    pub p90: u64,
    /// 99 in a hundred were no longer.
    pub p99: u64,
    /// 999 in a thousand were no longer.
    pub p999: u64,
    /// None was longer.
    pub max: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_survives_the_pipe() {
        let mut latency = Latency::default();
        (1..=1000).for_each(|i| latency.record(i * 977));
        latency.record(u64::MAX);
        let json = serde_json::to_string(&latency).unwrap();
        let back: Latency = serde_json::from_str(&json).unwrap();
        let (sent, got) = (latency.summary(), back.summary());
        assert_eq!((sent.p50, sent.p99, sent.p999), (got.p50, got.p99, got.p999));
        assert_eq!(latency.count(), back.count());
    }

    #[test]
    fn quantiles_are_what_they_say() {
        let mut latency = Latency::default();
        (1..=1000).for_each(|i| latency.record(i));
        let summary = latency.summary();
        assert_eq!((summary.p50, summary.p90, summary.p999, summary.max), (500, 900, 999, 1000));
    }
}
