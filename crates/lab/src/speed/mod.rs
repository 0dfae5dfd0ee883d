//! `farlock-lab speed`: how fast the simulated world turns, on one core.
//!
//! Speed is reach: twice the events a second are twice the schedules that a night explores. Every
//! figure is a run whose size its parameters fix; it is repeated, and the median round is reported.
//! A round that does not do exactly what the first one did is an error: the world is deterministic.

mod executor;
mod figure;
mod judged;
mod locks;
mod schedules;

use anyhow::ensure;
use clap::{Args, value_parser};
use comfy_table::Table;
use farlock_locks::registry::RECORD_LOCKS;
use serde::Serialize;

use crate::provenance::Provenance;
use crate::record::grouped;
use crate::report::{show, table_of};
use crate::rounds::Rounds;
use figure::{Course, Figure, Parameters, Round};

/// What to measure.
#[derive(Clone, Debug, Args)]
pub struct SpeedArgs {
    /// Figures to measure, or all
    #[arg(long, value_name = "NAME[,NAME..]", value_delimiter = ',', default_value = "all")]
    figures: Vec<String>,
    /// How large each run is, in percent of the usual
    #[arg(long, value_name = "PERCENT", default_value_t = 100)]
    #[arg(value_parser = value_parser!(u32).range(1..=100_000))]
    size: u32,
    /// Decides everything random
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    rounds: Rounds,
}

/// What was measured. The rate is the median round's.
#[derive(Clone, Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    parameters: Parameters,
    per_second: f64,
    /// How many were counted in a round.
    count: u64,
    /// How long the median round took.
    seconds: f64,
    /// The hash of the run.
    hash: String,
    rounds: u16,
    size: u32,
    seed: u64,
}

/// Every figure, in the order of the table.
fn figures() -> Vec<Figure> {
    let mut figures = vec![executor::bare(), judged::judged("shiftlock"), judged::judged("mcs")];
    figures.extend(RECORD_LOCKS.iter().map(|lock| locks::acquisitions(lock.name)));
    figures.extend([schedules::plain("mcs"), schedules::faulty("mcs")]);
    figures
}

/// Measures, and prints what was measured.
///
/// # Errors
/// A judge objected to a run, or a run was not the same each time.
pub fn run(args: &SpeedArgs, origin: &Provenance) -> anyhow::Result<()> {
    show(origin, args.rounds.json, &measure(args)?, table)
}

fn measure(args: &SpeedArgs) -> anyhow::Result<Vec<Row>> {
    let wanted = |name: &str| args.figures.iter().any(|figure| figure == "all" || figure == name);
    let mut figures = figures();
    figures.retain(|figure| wanted(figure.parameters.figure));
    ensure!(!figures.is_empty(), "there is no figure named '{}'", args.figures.join(","));
    let course = Course { size: args.size, seed: args.seed };
    let rounds = args.rounds.of(&figures, |figure, _| (figure.run)(course))?;
    for (figure, rounds) in figures.iter().zip(&rounds) {
        let same = |round: &Round| (round.count, round.hash) == (rounds[0].count, rounds[0].hash);
        let name = figure.parameters.figure;
        ensure!(rounds.iter().all(same), "{name}: two runs of one seed were not the same");
    }
    Ok(figures.iter().zip(rounds).map(|(figure, rounds)| row(args, figure, rounds)).collect())
}

fn row(args: &SpeedArgs, figure: &Figure, mut rounds: Vec<Round>) -> Row {
    rounds.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let median = rounds[rounds.len() / 2];
    Row {
        parameters: figure.parameters,
        per_second: (median.count as f64 / median.seconds.max(1e-9)).round(),
        count: median.count,
        seconds: median.seconds,
        hash: format!("{:016x}", median.hash),
        rounds: args.rounds.rounds,
        size: args.size,
        seed: args.seed,
    }
}

/// Rows as people read them.
fn table(rows: &[Row]) -> Table {
    let header = ["figure", "of", "clients", "locks", "reads", "", "a second"];
    let cells = |row: &Row| {
        let of = &row.parameters;
        vec![
            of.figure.to_owned(),
            of.subject.to_owned(),
            of.clients.to_string(),
            grouped(of.locks),
            format!("{} %", of.reads),
            of.unit.to_owned(),
            grouped(row.per_second as u64),
        ]
    };
    table_of(&header, 2, rows.iter().map(cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_counts_something_and_is_the_same_twice() {
        let args = SpeedArgs {
            figures: vec!["all".to_owned()],
            rounds: Rounds { rounds: 2, json: false },
            size: 1,
            seed: 1,
        };
        let rows = measure(&args).expect("no judge objects, and runs are the same");
        assert_eq!(rows.len(), figures().len());
        assert!(rows.iter().all(|row| row.count > 0 && row.per_second > 0.0), "{rows:?}");
    }
}
