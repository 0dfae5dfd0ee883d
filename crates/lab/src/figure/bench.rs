//! Figures of clients that acquire and release, as `bench` measures them in a simulation.

use anyhow::Context;
use clap::Parser;

use super::spec::{Figure, Series, Size};
use super::value::Value;
use crate::bench::{BenchArgs, measure, placement::Placement};
use crate::record::Row;

/// The arguments of `bench`, as a figure has them.
#[derive(Parser)]
#[command(name = "bench", no_binary_name = true)]
struct Line {
    #[command(flatten)]
    args: BenchArgs,
}

/// A series, for each point of the axis.
///
/// # Errors
/// What the figure says is not understood, or a trial did not come to its end.
pub fn values(figure: &Figure, series: &Series, size: &Size) -> anyhow::Result<Vec<Value>> {
    size.at.iter().map(|&at| value(figure, series, size, at)).collect()
}

fn value(figure: &Figure, series: &Series, size: &Size, at: u64) -> anyhow::Result<Value> {
    let workload = series.bench.as_ref().unwrap_or(&figure.bench);
    let testbed = figure.testbed.iter().map(|name| format!("--testbed {name}"));
    let line = format!(
        "--fabric sim --locks-kind {} {} {workload} {} {}",
        series.subject,
        figure.point(at),
        size.bench,
        testbed.collect::<String>()
    );
    let parsed = Line::try_parse_from(line.split_whitespace()).with_context(|| line.clone())?;
    let rows = measure(&parsed.args, Placement::Spread).with_context(|| line.clone())?;
    Ok(of(&rows[0]))
}

fn of(row: &Row) -> Value {
    let (times, verbs) = (&row.acquire_ns, row.per_acquisition);
    let all = row.acquisitions.max(1) as f64;
    Value {
        verbs: [verbs.atomics, verbs.reads, verbs.writes, verbs.sends],
        false_conflicts: row.ranges.map_or(0.0, |ranges| ranges.false_conflicts as f64 / all),
        aborts: row.ranges.map_or(0.0, |ranges| ranges.late as f64 / all),
        violations: row.violations,
        ..Value::timed(row.goodput_per_s, times)
    }
}
