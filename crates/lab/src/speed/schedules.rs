//! Schedules a second of the checker: a world, three clients, one acquisition each, all judges.

use std::time::Instant;

use anyhow::bail;

use super::figure::{Course, Figure, Parameters, Round};
use farlock_check::hunt::{Hunt, Mix};
use farlock_check::scenario::Scenario;
use farlock_check::subjects;
use farlock_check::trial::Player;

const CLIENTS: u16 = 3;
const ACQUISITIONS: u16 = 1;
const SCHEDULES: u64 = 50_000;

/// Uniformly random schedules a second of this lock, where nothing goes wrong.
pub(super) fn plain(subject: &'static str) -> Figure {
    figure("schedules", subject, |player, course, subject| {
        let scenario = Scenario::plain(subject, CLIENTS, ACQUISITIONS);
        let mut hunt = Hunt::new(player, Mix::Random, course.seed);
        for _ in 0..course.scaled(SCHEDULES) {
            let (verdict, _) = hunt.run(&scenario);
            if let Some(finding) = verdict.finding {
                bail!("{subject}: {}", finding.story);
            }
        }
        Ok((hunt.schedules, hunt.events))
    })
}

/// Schedules a second of the checker's standard mix, with every fault that it draws.
pub(super) fn faulty(subject: &'static str) -> Figure {
    figure("faulty-schedules", subject, |player, course, subject| {
        let mut scenario = Scenario::plain(subject, CLIENTS, ACQUISITIONS);
        let mut hunt = Hunt::new(player, Mix::Standard, course.seed);
        for _ in 0..course.scaled(SCHEDULES) {
            scenario.draw(hunt.draws(), player.faults(true));
            let (verdict, _) = hunt.run(&scenario);
            if let Some(finding) = verdict.finding {
                bail!("{subject}: {}", finding.story);
            }
        }
        Ok((hunt.schedules, hunt.events))
    })
}

/// Runs that many schedules; returns how many it were, and their events.
type Run = fn(&Player, Course, &str) -> anyhow::Result<(u64, u64)>;

fn figure(name: &'static str, subject: &'static str, run: Run) -> Figure {
    let parameters = Parameters {
        figure: name,
        subject,
        unit: "schedules",
        clients: CLIENTS,
        locks: 1,
        reads: 0,
    };
    let run = move |course| {
        let player = subjects::player(subject)?;
        let begun = Instant::now();
        let (count, hash) = run(&player, course, subject)?;
        Ok(Round { count, hash, seconds: begun.elapsed().as_secs_f64() })
    };
    Figure { parameters, run: Box::new(run) }
}
