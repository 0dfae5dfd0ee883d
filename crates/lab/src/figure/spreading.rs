//! Figures of a table that grows, as `spreading` measures it in a simulation: one run has all
//! points of the axis.

use anyhow::Context;

use super::spec::{Figure, Series, Size};
use super::value::Value;
use crate::line::arguments;
use crate::spreading::{Row, measure};

/// A series, for each number of units.
///
/// # Errors
/// What the figure says is not understood, or so many units were not asked for.
pub(super) fn values(figure: &Figure, series: &Series, size: &Size) -> anyhow::Result<Vec<Value>> {
    let subject = format!("--fabric sim --lock {}", series.subject);
    let line = figure.line(&subject, series, size);
    let rows = measure(&arguments(&line)?).with_context(|| line.clone())?;
    let of = |power: &u64| {
        let row = rows.iter().find(|row| u64::from(row.units.ilog2()) == *power);
        Ok(value(row.with_context(|| format!("nobody asked for 2^{power} units: {line}"))?))
    };
    size.at.iter().map(of).collect()
}

fn value(row: &Row) -> Value {
    Value {
        mean: row.mean_ns,
        p50: row.p50_ns as f64,
        p99: row.p99_ns as f64,
        violations: row.violations,
        growth: row.growth,
        ..Value::alone(row.per_second)
    }
}
