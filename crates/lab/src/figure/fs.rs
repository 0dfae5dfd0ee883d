//! Figures of clients of a file system, as `fs` measures them in a simulation.

use anyhow::Context;

use super::spec::{Figure, Series, Size};
use super::value::Value;
use crate::fs::{Row, WorkloadKind, measure};
use crate::line::arguments;

/// A series, for each number of clients.
///
/// # Errors
/// What the figure says is not understood, or a request failed.
pub(super) fn values(figure: &Figure, series: &Series, size: &Size) -> anyhow::Result<Vec<Value>> {
    size.at.iter().map(|&clients| value(figure, series, size, clients)).collect()
}

fn value(figure: &Figure, series: &Series, size: &Size, clients: u64) -> anyhow::Result<Value> {
    let subject = format!("--fabric sim --lock {}", series.subject);
    let line = format!("{} --clients {clients}", figure.line(&subject, series, size));
    let rows = measure(&arguments(&line)?).with_context(|| line.clone())?;
    Ok(of(rows.first().context("a figure has a row for each lock")?))
}

/// Of OLTP operations, and what reads take, as the paper's table has it; of BT-IO bytes, and what
/// all requests take.
fn of(row: &Row) -> Value {
    let (rate, times) = match row.workload {
        WorkloadKind::Oltp => (row.ops_per_s, row.latency_ns.readers),
        WorkloadKind::Btio => (row.bytes_per_s, row.latency_ns.all),
    };
    let verbs = row.per_operation;
    Value {
        verbs: [verbs.atomics, verbs.reads, verbs.writes, verbs.sends],
        // In full BT-IO moves lengths alone; its toy has bytes, which are judged.
        violations: row.violations.unwrap_or(0),
        ..Value::timed(rate, &times)
    }
}
