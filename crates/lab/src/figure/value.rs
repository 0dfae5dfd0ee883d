//! What figures come to, whatever their kind: values by series and by point of the axis.

use serde::Serialize;

use super::spec::Measure;

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
    /// Holders that overlapped.
    pub violations: u64,
}

impl Value {
    /// One that is all there is.
    pub const fn alone(rate: f64) -> Self {
        let verbs = [0.0; 4];
        Self { rate, mean: 0.0, p50: 0.0, p99: 0.0, verbs, false_conflicts: 0.0, violations: 0 }
    }

    /// This of it.
    pub const fn of(&self, measure: Measure) -> f64 {
        match measure {
            Measure::Rate => self.rate,
            Measure::Mean => self.mean,
            Measure::P50 => self.p50,
            Measure::P99 => self.p99,
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
