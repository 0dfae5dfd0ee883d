//! The crash campaign: every verb of every role, each of its three ends, under many schedules.
//!
//! Which verbs there are is not written down anywhere: runs without a death show them. A client
//! then dies at each of its verbs in turn; where that is in its role's course is known afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use farlock_sim::Outcome;
use farlock_sim::schedule::{Director, Pct};

use super::hunt::{Budget, Catch, Hunt, Mix};
use super::scenario::{Death, Faults, Line, Scenario};
use super::trial::{Notes, Player, Point};

/// Runs that show which verbs there are.
const DRY_RUNS: u32 = 600;
/// Among how many of its first verbs a client dies.
const VERBS: u64 = 28;
/// Rare verbs are waited for during so many times the budget's least.
const PATIENCE: u64 = 1_000;

/// What a campaign came to.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    /// Verbs of roles, times three.
    pub points: usize,
    /// Of those, how many deaths have happened.
    pub covered: usize,
    /// The points without one, as text.
    pub missing: Vec<String>,
    /// Runs.
    pub schedules: u64,
    /// The first thing that was found.
    pub catch: Option<Catch>,
}

/// Plays deaths until the budget is spent, but each client at each verb at least once.
pub fn campaign(
    player: &Player,
    base: &Scenario,
    budget: Budget,
    seed: u64,
    mut tick: impl FnMut(u64),
) -> Campaign {
    let mut hunt = Hunt::new(player, Mix::Standard, seed);
    let points = dry_run(player, base, &mut hunt);
    let mut deaths: BTreeMap<(Point, usize), u64> = BTreeMap::new();
    let (begun, mut scenario, mut catch) = (Instant::now(), base.clone(), None);
    let round = VERBS * u64::from(base.clients) * Outcome::ALL.len() as u64;
    let mut turn = 0;
    let all: BTreeSet<(Point, usize)> = points
        .iter()
        .flat_map(|&point| (0..Outcome::ALL.len()).map(move |end| (point, end)))
        .collect();
    let is_covered = |deaths: &BTreeMap<_, u64>| all.iter().all(|place| deaths.contains_key(place));
    while turn < round
        || !budget.is_spent(turn, begun)
        || (turn < round * PATIENCE && !is_covered(&deaths))
    {
        scenario.draw(hunt.draws(), Faults { deaths: true, cancels: false });
        let again = scenario.deaths.first().copied();
        // What is still missing then is what clients do that are impatient.
        scenario.hasty |= turn >= round && budget.is_spent(turn, begun);
        let outcome = (turn % 3) as usize;
        scenario.deaths = vec![Death {
            who: (turn / 3 % u64::from(base.clients)) as u16,
            verb: turn / 3 / u64::from(base.clients) % VERBS,
            outcome: Outcome::ALL[outcome],
        }];
        if turn >= round {
            // Each was there alone; from now on another may die while it repairs.
            scenario.deaths.extend(again);
        }
        turn += 1;
        let (verdict, trail) = hunt.run(&scenario);
        if let Some(point) = verdict.died_at {
            *deaths.entry((point, outcome)).or_default() += 1;
        }
        if let Some(finding) = verdict.finding {
            let line = Line { scenario: scenario.clone(), trail: trail(&hunt) };
            catch = Some(Catch { line, finding });
            break;
        }
        if turn.is_multiple_of(1024) {
            tick(turn);
        }
    }
    let missing: Vec<String> = all
        .iter()
        .filter(|place| !deaths.contains_key(place))
        .map(|(point, end)| format!("{point:?}, {:?}", Outcome::ALL[*end]))
        .collect();
    let covered = all.len() - missing.len();
    Campaign { points: all.len(), covered, missing, schedules: hunt.schedules, catch }
}

/// The verbs of each role in runs without a death.
fn dry_run(player: &Player, base: &Scenario, hunt: &mut Hunt<'_>) -> BTreeSet<Point> {
    let pct = Director::new(Pct::new(1, 3));
    let mut notes = Notes { points: Some(BTreeSet::new()), ..Notes::default() };
    let mut scenario = base.clone();
    for run in 0..DRY_RUNS {
        scenario.draw(hunt.draws(), Faults { deaths: false, cancels: false });
        pct.with(|pct| pct.set_depth(2 + run % 5));
        let oracle = pct.begin().expect("there is always another random schedule");
        player.play_noting(&scenario, oracle, &mut notes);
    }
    notes.points.unwrap_or_default()
}
