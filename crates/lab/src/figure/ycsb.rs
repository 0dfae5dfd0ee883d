//! Figures of clients of a key-value store, as `ycsb` measures them.

use anyhow::Context;

use super::spec::{Figure, Series, Size};
use super::value::Value;
use crate::line::arguments;
use crate::ycsb::measure;

/// A series, for each point of the axis.
///
/// # Errors
/// What the figure says is not understood, or the world stood still.
pub(super) fn values(figure: &Figure, series: &Series, size: &Size) -> anyhow::Result<Vec<Value>> {
    size.at.iter().map(|&at| value(figure, series, size, at)).collect()
}

fn value(figure: &Figure, series: &Series, size: &Size, at: u64) -> anyhow::Result<Value> {
    let line = format!("{} {}", figure.line(&series.subject, series, size), figure.point(at));
    let row = measure(&arguments(&line)?).with_context(|| line.clone())?;
    let verbs = row.verbs_per_op;
    Ok(Value {
        verbs: [verbs.atomics, verbs.reads, verbs.writes, verbs.sends],
        violations: row.violations,
        store: Some(Box::new(row.clone())),
        ..Value::timed(row.ops_per_s, &row.latency_ns)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::spec::{Kind, Scale, names};

    /// They are built where the store is compiled for the laboratory, so not into the command that
    /// every change runs: here they are measured small, the same twice.
    #[test]
    fn every_figure_of_a_store_is_measured() {
        let mut measured = 0;
        for name in names() {
            let figure = Figure::named(name).expect("it is there");
            if figure.kind != Kind::Ycsb {
                continue;
            }
            let size = figure.size(Scale::Toy);
            for series in &figure.series {
                let all = || values(&figure, series, size).expect("it is measured");
                let first = all();
                assert_eq!(first, all(), "{name}, {}", series.name);
                for value in first {
                    let right = value.violations == 0 && value.rate > 0.0;
                    assert!(right, "{name}, {}: {value:?}", series.name);
                    measured += 1;
                }
            }
        }
        assert!(measured > 20, "{measured}");
    }
}
