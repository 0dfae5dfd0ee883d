//! Figures of a table that grows, as `spreading` measures it in a simulation: one run has all
//! points of the axis.

use anyhow::Context;
use clap::Parser;

use super::spec::{Figure, Series, Size};
use super::value::Value;
use crate::spreading::{Row, SpreadingArgs, measure};

/// The arguments of `spreading`, as a figure has them.
#[derive(Parser)]
#[command(name = "spreading", no_binary_name = true, args_override_self = true)]
struct Line {
    #[command(flatten)]
    args: SpreadingArgs,
}

/// A series, for each number of units.
///
/// # Errors
/// What the figure says is not understood, or so many units were not asked for.
pub(super) fn values(figure: &Figure, series: &Series, size: &Size) -> anyhow::Result<Vec<Value>> {
    let testbed = figure.testbed.iter().map(|name| format!("--testbed {name}"));
    // What comes later counts more.
    let line = format!(
        "{} {} {} {} --fabric sim --lock {}",
        testbed.collect::<String>(),
        figure.bench,
        series.bench.as_deref().unwrap_or(""),
        size.bench,
        series.subject,
    );
    let parsed = Line::try_parse_from(line.split_whitespace()).with_context(|| line.clone())?;
    let rows = measure(&parsed.args).with_context(|| line.clone())?;
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
