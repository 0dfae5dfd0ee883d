//! What figures come to, whatever their kind: values by series and by point of the axis.

use serde::Serialize;

use super::spec::Measure;
use crate::latency::Summary;
use crate::spreading::GrowthRow;

/// A series at a point of the axis.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Value {
    /// The rate, or the one value there is.
    pub rate: f64,
    /// The mean time, in nanoseconds.
    pub mean: f64,
    /// The median of times.
    pub p50: f64,
    /// The 99th percentile of times.
    pub p99: f64,
    /// Verbs of each acquisition: atomics, reads, writes, messages.
    pub verbs: [f64; 4],
    /// Requests that met others without need, of all.
    pub false_conflicts: f64,
    /// Claims that came too late, of all requests.
    pub aborts: f64,
    /// Holders that overlapped.
    pub violations: u64,
    /// How a table grew, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth: Option<GrowthRow>,
    /// What else was measured of a store, and how.
    #[cfg(feature = "ycsb")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<Box<crate::ycsb::Row>>,
}

impl Value {
    /// One that is all there is.
    pub const fn alone(rate: f64) -> Self {
        Self {
            rate,
            mean: 0.0,
            p50: 0.0,
            p99: 0.0,
            verbs: [0.0; 4],
            false_conflicts: 0.0,
            aborts: 0.0,
            violations: 0,
            growth: None,
            #[cfg(feature = "ycsb")]
            store: None,
        }
    }

    /// A rate, and how long each took.
    pub(super) fn timed(rate: f64, times: &Summary) -> Self {
        let (p50, p99) = (times.p50 as f64, times.p99 as f64);
        Self { mean: times.mean, p50, p99, ..Self::alone(rate) }
    }

    /// This of it.
    pub fn of(&self, measure: Measure) -> f64 {
        match measure {
            Measure::Rate | Measure::PeakAt => self.rate,
            Measure::Mean => self.mean,
            Measure::P50 => self.p50,
            Measure::P99 => self.p99,
            Measure::Aborts => self.aborts,
            Measure::Dip => self.growth.map_or(0.0, |growth| growth.dip),
            measure => self.of_store(measure),
        }
    }

    #[cfg(not(feature = "ycsb"))]
    fn of_store(&self, _: Measure) -> f64 {
        f64::NAN
    }

    /// What only a store has.
    #[cfg(feature = "ycsb")]
    fn of_store(&self, measure: Measure) -> f64 {
        let Some(row) = &self.store else { return f64::NAN };
        match measure {
            Measure::Retries => row.retries_per_op,
            Measure::Combined => row.wc_rate,
            Measure::Blocked => row.blocked_rate,
            Measure::Batch => row.wc_batch,
            Measure::InLine => row.pessimistic_ratio,
            Measure::InLineCombined => row.pessimistic_combined,
            Measure::ChoiceAccuracy => row.choice_accuracy,
            _ => f64::NAN,
        }
    }
}

/// What was measured of a figure: a value for each series and point of the axis.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The points of its axis.
    pub at: Vec<u64>,
    /// By series, and then by point.
    pub values: Vec<Vec<Value>>,
}
