//! Schedules a second of the checker: a world, three clients, one acquisition each, all judges.

use std::time::Instant;

use anyhow::bail;

use super::figure::{Course, Figure, Parameters, Round};
use farlock_check::hunt::{Hunt, Mix};
use farlock_check::scenario::Scenario;
use farlock_check::subjects;

const CLIENTS: u16 = 3;
const ACQUISITIONS: u16 = 1;
const SCHEDULES: u64 = 50_000;

/// Uniformly random schedules a second of this lock, where nothing goes wrong.
pub(super) fn plain(subject: &'static str) -> Figure {
    figure("schedules", subject, Mix::Random)
}

/// Schedules a second of the checker's standard mix, with every fault that it draws.
pub(super) fn faulty(subject: &'static str) -> Figure {
    figure("faulty-schedules", subject, Mix::Standard)
}

fn figure(name: &'static str, subject: &'static str, mix: Mix) -> Figure {
    let parameters = Parameters {
        figure: name,
        subject,
        unit: "schedules",
        clients: CLIENTS,
        locks: 1,
        reads: 0,
    };
    Figure { parameters, run: Box::new(move |course| run(subject, mix, course)) }
}

fn run(subject: &str, mix: Mix, course: Course) -> anyhow::Result<Round> {
    let player = subjects::player(subject)?;
    let begun = Instant::now();
    let mut scenario = Scenario::plain(subject, CLIENTS, ACQUISITIONS);
    let mut hunt = Hunt::new(&player, mix, course.seed);
    for _ in 0..course.scaled(SCHEDULES) {
        if mix == Mix::Standard {
            scenario.draw(hunt.draws(), player.faults(true));
        }
        if let Some(finding) = hunt.run(&scenario).0.finding {
            bail!("{subject}: {}", finding.story);
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Round { count: hunt.schedules, hash: hunt.events, seconds })
}
