//! Every schedule of a small configuration.

use std::time::Instant;

use farlock_sim::schedule::{Director, Exhaustive};

use super::hunt::{Budget, Catch};
use super::scenario::{Line, Scenario};
use super::trial::Player;

/// What an exploration came to.
#[derive(Clone, Debug)]
pub struct Explored {
    /// Runs, most of them only to reach a state that was not seen.
    pub schedules: u64,
    /// Different states.
    pub states: u64,
    /// Whether there are no others.
    pub complete: bool,
    /// The first thing that was found; nothing is explored after it.
    pub catch: Option<Catch>,
}

/// Explores this scenario until everything was seen, something was found, or the budget is spent.
pub fn explore(
    player: &Player,
    scenario: &Scenario,
    budget: Budget,
    mut tick: impl FnMut(u64),
) -> Explored {
    let (begun, director) = (Instant::now(), Director::new(Exhaustive::new()));
    let (mut schedules, mut complete, mut catch) = (0, false, None);
    while !budget.is_spent(schedules, begun) {
        let Some(oracle) = director.begin() else {
            complete = true;
            break;
        };
        schedules += 1;
        let verdict = player.play(scenario, oracle);
        if let Some(finding) = verdict.finding {
            let line = Line { scenario: scenario.clone(), trail: director.trail() };
            catch = Some(Catch { line, finding });
            break;
        }
        if schedules.is_multiple_of(1024) {
            tick(schedules);
        }
    }
    Explored { schedules, states: director.with(|schedule| schedule.states()), complete, catch }
}
