//! `farlock-lab figure`: a paper's figure or table, ours beside theirs.
//!
//! A figure is a file of data ([`spec`]). Whatever its kind, it comes to values by series and by
//! point of its axis; from these follow what the paper says, a line each: ours, the paper's, and
//! their ratio. So a figure is drawn and compared the same way, whatever measured it.

pub mod bench;
pub mod false_conflicts;
mod fs;
mod plot;
pub mod queueing;
pub mod spec;
mod spreading;
pub mod value;
#[cfg(feature = "ycsb")]
mod ycsb;

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use comfy_table::Table;
use farlock_locks::record::citron::tree::Tree;
use serde::Serialize;

use crate::arrbench::held;
use crate::provenance::Provenance;
use crate::report::{show, table_of};
use spec::{Figure, Kind, Measure, Point, Scale, Size};
use value::{Measured, Value};

/// What to measure.
#[derive(Clone, Debug, Args)]
pub struct FigureArgs {
    /// Which figure, or all but `held`, which is of this machine
    #[arg(value_name = "NAME|all")]
    pub name: String,
    /// How large
    #[arg(long, value_enum, default_value = "full")]
    pub scale: Scale,
    /// Where a drawing of each is put
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// One line of JSON per cell
    #[arg(long)]
    pub json: bool,
}

/// A line: a value of a series, or what the paper says and what we have.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Cell {
    figure: String,
    scale: &'static str,
    /// A series, or what the paper says.
    cell: String,
    /// The point of the axis.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    /// Ours: a rate, or what is compared.
    ours: f64,
    /// The paper's.
    #[serde(skip_serializing_if = "Option::is_none")]
    paper: Option<f64>,
    /// Ours divided by the paper's.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    /// Where the paper says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    violations: u64,
}

/// Measures, compares and draws.
///
/// # Errors
/// There is no such figure, holders overlapped, or nothing can be drawn there.
pub fn run(args: &FigureArgs, origin: &Provenance) -> anyhow::Result<()> {
    let names: Vec<&str> = match args.name.as_str() {
        "all" => spec::names().filter(|name| *name != spec::NATIVE).collect(),
        name => vec![name],
    };
    for name in names {
        let figure = Figure::named(name)?;
        let measured = measure(&figure, figure.size(args.scale))?;
        let cells = cells(name, &figure, args.scale, &measured);
        show(origin, args.json, &cells, table)?;
        if let Some(dir) = &args.out {
            let path = dir.join(format!("{name}.svg"));
            plot::draw(&figure, &measured, &path)
                .with_context(|| format!("cannot draw {}", path.display()))?;
        }
        let broken = cells.iter().find(|cell| cell.violations > 0);
        anyhow::ensure!(broken.is_none(), "holders overlapped: {broken:?}");
    }
    Ok(())
}

fn measure(figure: &Figure, size: &Size) -> anyhow::Result<Measured> {
    let at = size.at.clone();
    let of = |series: &spec::Series| match figure.kind {
        Kind::Bench => bench::values(figure, series, size),
        Kind::Queueing => queueing::values(figure, series, size),
        Kind::Fs => fs::values(figure, series, size),
        Kind::Spreading => spreading::values(figure, series, size),
        Kind::FalseConflicts => {
            let nodes = series.subject.parse().context("into how many nodes?")?;
            let rate = |&length: &u64| false_conflicts::rate(Tree::LARGEST, length, nodes);
            Ok(at.iter().map(rate).map(Value::alone).collect())
        }
        Kind::Held => at.iter().map(|&held| native(&series.subject, held)).collect(),
        #[cfg(feature = "ycsb")]
        Kind::Ycsb => ycsb::values(figure, series, size),
    };
    let values = figure.series.iter().map(of).collect::<anyhow::Result<_>>()?;
    Ok(Measured { at, values })
}

/// A cycle of this lock while so many ranges are held, measured here.
fn native(lock: &str, held: u64) -> anyhow::Result<Value> {
    held::cycle(lock, u32::try_from(held)?).map(Value::alone)
}

fn cells(name: &str, figure: &Figure, scale: Scale, measured: &Measured) -> Vec<Cell> {
    let scale = if scale == Scale::Toy { "toy" } else { "full" };
    let blank = |cell: &str, ours: f64| Cell {
        figure: name.to_owned(),
        scale,
        cell: cell.to_owned(),
        at: None,
        ours,
        paper: None,
        ratio: None,
        source: None,
        value: None,
        violations: 0,
    };
    let series = figure.series.iter().zip(&measured.values).flat_map(|(series, values)| {
        measured.at.iter().zip(values).map(|(&at, value)| {
            let (at, violations) = (Some(at), value.violations);
            let cell = blank(&series.name, value.rate);
            Cell { at, value: Some(value.clone()), violations, ..cell }
        })
    });
    let points = figure.points.iter().filter_map(|point| {
        let ours = compared(figure, measured, point)?;
        let (paper, source) = (Some(point.paper), Some(point.source.clone()));
        let ratio = Some(ours / point.paper);
        Some(Cell { at: point.at, paper, ratio, source, ..blank(&point.name, ours) })
    });
    series.chain(points).collect()
}

/// What we have for what the paper says; `None` if this size has no such point.
fn compared(figure: &Figure, measured: &Measured, point: &Point) -> Option<f64> {
    let of = |names: &[String], place: usize| {
        let all = figure.series.iter().zip(&measured.values);
        let named = all.filter(|(series, _)| names.contains(&series.name));
        let values = named.map(|(_, values)| values[place].of(point.measure));
        values.reduce(|a, b| point.measure.best(a, b)).expect("a point names series")
    };
    let places: Vec<usize> = match point.at {
        Some(at) => vec![measured.at.iter().position(|&other| other == at)?],
        None => (0..measured.at.len()).filter(|&place| measured.at[place] >= point.from).collect(),
    };
    let to_at = match point.to_at {
        Some(at) => Some(measured.at.iter().position(|&other| other == at)?),
        None => None,
    };
    let ratio = |place: usize| match point.to.is_empty() {
        true => of(&point.of, place),
        false => of(&point.of, place) / of(&point.to, to_at.unwrap_or(place)),
    };
    if point.measure == Measure::PeakAt {
        let higher = |a: &usize, b: &usize| of(&point.of, *a).total_cmp(&of(&point.of, *b));
        return places.into_iter().max_by(higher).map(|place| measured.at[place] as f64);
    }
    if point.mean {
        return Some(places.iter().map(|&place| ratio(place)).sum::<f64>() / places.len() as f64);
    }
    let best = |names: &[String]| {
        let values = places.iter().map(|&place| of(names, place));
        values.reduce(|a, b| point.measure.best(a, b)).expect("an axis has points")
    };
    let to = || to_at.map_or_else(|| best(&point.to), |place| of(&point.to, place));
    Some(if point.to.is_empty() { best(&point.of) } else { best(&point.of) / to() })
}

fn table(cells: &[Cell]) -> Table {
    let number = |number: f64| match number.abs() {
        small if small < 0.01 && small > 0.0 => format!("{number:.2e}"),
        large if large >= 1000.0 => crate::record::grouped(number.round() as u64),
        _ => format!("{number:.3}"),
    };
    let cells = cells.iter().map(|cell| {
        let blank = || "-".to_owned();
        let some = |value: Option<f64>| value.map_or_else(blank, number);
        let value = cell.value.as_ref();
        vec![
            cell.cell.clone(),
            cell.at.map_or_else(blank, |at| at.to_string()),
            number(cell.ours),
            some(cell.paper),
            some(cell.ratio),
            some(value.map(|value| value.p50)),
            some(value.map(|value| value.p99)),
            value.map_or_else(blank, |value| format!("{:.1}", value.verbs.iter().sum::<f64>())),
        ]
    });
    table_of(&["", "at", "ours", "paper", "ours/paper", "p50 ns", "p99 ns", "verbs"], 1, cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(points: &str) -> (Figure, Measured) {
        let text = format!(
            "title = 'T'\nsource = 'S'\nkind = 'false-conflicts'\ntoy = {{ at = [1, 2] }}\n\
             full = {{ at = [1, 2] }}\nseries = [{{ name = 'a', subject = '1' }}, \
             {{ name = 'b', subject = '2' }}]\n{points}"
        );
        let values = [[4.0, 6.0], [2.0, 12.0]].map(|row| row.map(Value::alone).to_vec());
        (toml::from_str(&text).unwrap(), Measured { at: vec![1, 2], values: values.to_vec() })
    }

    #[test]
    fn what_the_paper_says_is_compared_at_a_point_at_the_peak_or_on_average() {
        let point = "[[points]]\nname = 'p'\nmeasure = 'rate'\npaper = 2.0\nsource = 'x'\n";
        let (peak, found) = figure(&format!("{}of = ['a']", point.replace("rate", "peak-at")));
        assert_eq!(compared(&peak, &found, &peak.points[0]), Some(2.0));
        for (rest, ours) in [
            ("of = ['a']\nto = ['b']\nat = 1", Some(2.0)),
            ("of = ['a']\nto = ['b']\nat = 3", None),
            ("of = ['a']\nto = ['b']", Some(0.5)),
            ("of = ['a']\nto = ['b']\nmean = true", Some(1.25)),
            ("of = ['a', 'b']", Some(12.0)),
            ("of = ['a']\nto = ['b']\nfrom = 2\nmean = true", Some(0.5)),
            ("of = ['b']\nto = ['b']\nto_at = 1", Some(6.0)),
            ("of = ['b']\nto = ['a']\nat = 2\nto_at = 1", Some(3.0)),
            ("of = ['b']\nto = ['a']\nto_at = 3", None),
        ] {
            let (figure, measured) = figure(&format!("{point}{rest}"));
            assert_eq!(compared(&figure, &measured, &figure.points[0]), ours, "{rest}");
        }
    }

    #[test]
    fn a_figure_is_drawn_with_its_title_and_all_its_series() {
        let (figure, measured) = figure("");
        let scratch = crate::scratch::Scratch::new().unwrap();
        let path = scratch.path().join("figure.svg");
        plot::draw(&figure, &measured, &path).unwrap();
        let drawn = std::fs::read_to_string(&path).unwrap();
        for text in ["T", "a", "b", "units of a range"] {
            assert!(drawn.lines().any(|line| line == text), "'{text}' is not in it: {drawn}");
        }
    }

    #[test]
    fn a_cell_for_each_value_and_each_thing_said() {
        let (figure, measured) = figure(
            "[[points]]\nname = 'p'\nmeasure = 'rate'\nof = ['a']\nat = 2\npaper = 3.0\n\
             source = 'x'",
        );
        let cells = cells("f", &figure, Scale::Toy, &measured);
        assert_eq!(cells.len(), 5);
        assert_eq!((cells[4].ours, cells[4].paper, cells[4].ratio), (6.0, Some(3.0), Some(2.0)));
    }
}
