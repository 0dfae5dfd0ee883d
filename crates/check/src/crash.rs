//! The crash campaign: every verb of every role, each of its three ends, under many schedules; then
//! a second death at every verb with which a client repairs what the first death left behind.
//!
//! Which verbs there are is not written down anywhere: runs show them. Each is remembered with the
//! run that showed it first. That run is followed up to the verb, its client dies there, and the
//! rest goes on by a schedule of its own: so each verb that anybody has ever posted is covered, and
//! what is not covered was forgotten. Deaths bring verbs to light that no other run has: those of
//! repair. They are crash points like all others.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Instant;

use farlock_sim::schedule::{Director, Fork, Pct, Trail};
use farlock_sim::{Outcome, Seeded};

use crate::faults::Faults;
use crate::hunt::{Budget, Catch, DEPTHS};
use crate::line::Line;
use crate::points::{Point, Witness};
use crate::scenario::{Death, Scenario};
use crate::trial::{Player, RunLog};
use crate::verdict::Befell;

/// Runs without a death, which show the ordinary verbs.
const SURVEY_RUNS: u32 = 600;
/// Points are found and covered in rounds; a campaign that finds new ones for ever ends after this.
const ROUNDS_MAX: u32 = 10_000;

/// A verb is remembered with so many runs that show it: of different modes and faults.
const PLACES_MAX: usize = 16;
/// Without a budget a campaign ends when so many have died at each verb with each end.
pub const DEATHS_EACH: u64 = 1_000;

/// A death at a verb: which verb, and which of [`Outcome::ALL`] becomes of it.
type Fall = (Point, usize);

/// What a campaign came to.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    /// Verbs of roles, times three.
    pub points: usize,
    /// Of those, how many deaths have happened.
    pub covered: usize,
    /// In how many runs the death that happened least did.
    pub deaths_min: u64,
    /// Deaths with a verb of a repair that followed them, times three.
    pub pairs: usize,
    /// Of those, with how many a client died at that verb.
    pub pairs_covered: usize,
    /// The points, as text.
    pub names: Vec<String>,
    /// Those without a death, with the end that is missing; and pairs.
    pub missing: Vec<String>,
    /// Runs.
    pub schedules: u64,
    /// Of the runs, how many had which depth.
    pub by_depth: [u64; 7],
    /// Runs in which a client found another dead, and went on.
    pub recoveries: u64,
    /// What befell the runs.
    pub befell: Befell,
    /// The first thing that was found.
    pub catch: Option<Catch>,
}

/// Where a verb was posted: who dies with it if this run is followed so far.
#[derive(Clone, Debug)]
struct Place {
    /// Which of the campaign's runs.
    run: u64,
    scenario: Scenario,
    trail: Trail,
    until: u32,
    who: u16,
    verb: u64,
}

/// Plays deaths until the budget is spent, but each at least once; without a budget, each
/// [`DEATHS_EACH`] times.
pub fn campaign(
    player: &Player,
    base: &Scenario,
    budget: Budget,
    seed: u64,
    mut tick: impl FnMut(u64),
) -> Campaign {
    let begun = Instant::now();
    let mut field = Field::new(player, seed);
    field.survey(base);
    // Schedules spent on points, and on pairs: there are more pairs, and both get half.
    let mut spent_on = [0, 0];
    for round in 0..ROUNDS_MAX {
        let spent = match budget {
            Budget::Schedules(u64::MAX) => field.deaths_min() >= DEATHS_EACH,
            budget => budget.is_spent(field.came.schedules, begun),
        };
        if spent && field.is_covered() || field.came.catch.is_some() {
            break;
        }
        let in_repair = match spent {
            true => round % 2 == 1,
            false => !field.pairs.is_empty() && spent_on[1] < spent_on[0],
        };
        let before = field.came.schedules;
        for (place, outcome) in field.falls(in_repair, spent, round) {
            field.play(&place, Some(outcome));
            if field.came.schedules.is_multiple_of(1024) {
                tick(field.came.schedules);
            }
            let enough = !spent && round > 1 && budget.is_spent(field.came.schedules, begun);
            if enough || field.came.catch.is_some() {
                break;
            }
        }
        spent_on[usize::from(in_repair)] += field.came.schedules - before;
    }
    field.sum_up()
}

/// What is known so far.
struct Field<'p> {
    player: &'p Player,
    director: Rc<Director<Fork<Pct>>>,
    draws: Seeded,
    /// The verbs that runs without a death show.
    ordinary: BTreeSet<Point>,
    points: BTreeMap<Point, Vec<Place>>,
    pairs: BTreeMap<(Fall, Point), Vec<Place>>,
    /// In how many runs each death happened.
    covered: BTreeMap<Fall, u64>,
    pairs_covered: BTreeSet<(Fall, Fall)>,
    came: Campaign,
}

impl<'p> Field<'p> {
    fn new(player: &'p Player, seed: u64) -> Self {
        Self {
            player,
            director: Rc::new(Director::new(Fork::new(Pct::new(seed, *DEPTHS.start())))),
            draws: Seeded::new(seed),
            ordinary: BTreeSet::new(),
            points: BTreeMap::new(),
            pairs: BTreeMap::new(),
            covered: BTreeMap::new(),
            pairs_covered: BTreeSet::new(),
            came: Campaign::default(),
        }
    }

    /// Learns the ordinary verbs.
    fn survey(&mut self, base: &Scenario) {
        let mut scenario = base.clone();
        for _ in 0..SURVEY_RUNS {
            let own = self.player.faults(false);
            let Faults { updates, converts, divides, tunes, declares, .. } = own;
            let all = Faults { updates, converts, divides, tunes, declares, ..Faults::ALL };
            scenario.draw(&mut self.draws, Faults { deaths: false, mishaps: false, ..all });
            // What holders do is no verb of the lock's.
            scenario.recorded = false;
            let start = Place {
                run: 0,
                scenario: scenario.clone(),
                trail: Trail::default(),
                until: 0,
                who: 0,
                verb: 0,
            };
            self.play(&start, None);
        }
        self.ordinary = self.points.keys().copied().collect();
    }

    /// Follows a run up to its place; there its client dies, if an outcome says how.
    fn play(&mut self, place: &Place, outcome: Option<usize>) {
        let mut scenario = place.scenario.clone();
        if outcome.is_some() {
            // It may have died later in the run that is followed.
            scenario.deaths.retain(|death| death.who != place.who);
        }
        scenario.deaths.extend(outcome.map(|outcome| Death {
            who: place.who,
            verb: place.verb,
            outcome: Outcome::ALL[outcome],
        }));
        let depth = DEPTHS.start() + (self.came.schedules % DEPTHS.count() as u64) as u32;
        self.director.with(|fork| {
            fork.set_origin(place.trail.clone(), place.until);
            fork.then().set_depth(depth);
        });
        let oracle = self.director.begin().expect("there is always another random schedule");
        let seen = Rc::new(Seen::new(Rc::clone(&self.director)));
        let mut log = RunLog { witness: Some(seen.clone()), ..RunLog::default() };
        let verdict = self.player.play_noting(&scenario, oracle, &mut log);
        let trail = self.director.trail();
        self.came.schedules += 1;
        self.came.by_depth[depth as usize] += 1;
        self.came.recoveries += u64::from(verdict.recovered);
        self.came.befell.add(verdict.befell);
        if let Some(finding) = verdict.finding {
            let line = Line { scenario: scenario.clone(), trail: trail.clone() };
            self.came.catch = Some(Catch { line, finding });
        }
        self.learn(&scenario, &trail, &seen.sights.borrow());
    }

    /// Takes in what a run has shown, event after event.
    fn learn(&mut self, scenario: &Scenario, trail: &Trail, sights: &[Sight]) {
        let mut falls: Vec<Fall> = Vec::new();
        for sight in sights {
            let point = sight.point;
            if sight.died {
                let death = scenario.deaths.iter().find(|death| death.who == sight.who);
                let outcome = death.and_then(|death| {
                    Outcome::ALL.iter().position(|&outcome| outcome == death.outcome)
                });
                let fall = (point, outcome.expect("clients die as their scenario says"));
                *self.covered.entry(fall).or_default() += 1;
                if let Some(&first) = falls.first() {
                    self.pairs_covered.insert((first, fall));
                }
                falls.push(fall);
                continue;
            }
            let run = self.came.schedules;
            let place = || Place {
                run,
                scenario: scenario.clone(),
                trail: trail.clone(),
                until: sight.asked,
                who: sight.who,
                verb: sight.verb,
            };
            remember(self.points.entry(point).or_default(), run, place);
            let repairs = point.is_repair() || !self.ordinary.contains(&point);
            if let (true, &[first]) = (repairs, &falls[..]) {
                remember(self.pairs.entry((first, point)).or_default(), run, place);
            }
        }
    }

    /// The deaths to play, or those within a repair; all of them, or those that are missing.
    fn falls(&self, in_repair: bool, missing: bool, round: u32) -> Vec<(Place, usize)> {
        let pick = |places: &[Place]| places[round as usize % places.len()].clone();
        let mut falls = Vec::new();
        for outcome in 0..Outcome::ALL.len() {
            let is_due = |covered| !(missing && covered);
            if in_repair {
                let is_covered =
                    |first, point| self.pairs_covered.contains(&(first, (point, outcome)));
                let due =
                    self.pairs.iter().filter(|&(&(first, p), _)| is_due(is_covered(first, p)));
                falls.extend(due.map(|(_, places)| (pick(places), outcome)));
            } else {
                let is_covered = |point| self.covered.contains_key(&(point, outcome));
                let due = self.points.iter().filter(|&(&point, _)| is_due(is_covered(point)));
                falls.extend(due.map(|(_, places)| (pick(places), outcome)));
            }
        }
        falls
    }

    fn is_covered(&self) -> bool {
        self.falls(false, true, 0).is_empty() && self.falls(true, true, 0).is_empty()
    }

    /// Every verb with every end.
    fn ends(&self) -> impl Iterator<Item = Fall> {
        let ends = |&point| (0..Outcome::ALL.len()).map(move |outcome| (point, outcome));
        self.points.keys().flat_map(ends)
    }

    /// In how many runs the death that happened least did.
    fn deaths_min(&self) -> u64 {
        let deaths = |fall| self.covered.get(&fall).copied().unwrap_or(0);
        self.ends().map(deaths).min().unwrap_or(0)
    }

    fn sum_up(self) -> Campaign {
        let (falls, deaths_min) = (self.ends().collect::<Vec<_>>(), self.deaths_min());
        let fields = self.player.fields_at();
        let missing = falls.iter().filter(|fall| !self.covered.contains_key(fall));
        let mut missing: Vec<String> = missing
            .map(|(point, outcome)| {
                format!("{}, {:?}", point.named(fields), Outcome::ALL[*outcome])
            })
            .collect();
        let ends = self.pairs.keys().flat_map(|&(first, point)| {
            (0..Outcome::ALL.len()).map(move |outcome| (first, (point, outcome)))
        });
        let (there, absent): (Vec<_>, Vec<_>) =
            ends.partition(|pair| self.pairs_covered.contains(pair));
        let uncovered = missing.len();
        let named = |(point, outcome): Fall| {
            format!("{}, {:?}", point.named(fields), Outcome::ALL[outcome])
        };
        missing.extend(
            absent.iter().map(|&(one, two)| format!("{}, then {}", named(one), named(two))),
        );
        Campaign {
            names: self.points.keys().map(|point| point.named(fields).to_string()).collect(),
            points: falls.len(),
            covered: falls.len() - uncovered,
            deaths_min,
            pairs: self.pairs.len() * Outcome::ALL.len(),
            pairs_covered: there.len(),
            missing,
            ..self.came
        }
    }
}

/// Adds where this run shows a verb first, if there is room.
fn remember(places: &mut Vec<Place>, run: u64, place: impl FnOnce() -> Place) {
    if places.len() < PLACES_MAX && places.last().is_none_or(|last| last.run != run) {
        places.push(place());
    }
}

/// A verb that was posted, or at which a client died.
#[derive(Clone, Copy, Debug)]
struct Sight {
    who: u16,
    verb: u64,
    point: Point,
    /// Questions that the schedule had answered by then.
    asked: u32,
    died: bool,
}

/// What a run has shown.
struct Seen {
    director: Rc<Director<Fork<Pct>>>,
    sights: RefCell<Vec<Sight>>,
}

impl Seen {
    fn new(director: Rc<Director<Fork<Pct>>>) -> Self {
        Self { director, sights: RefCell::default() }
    }

    fn note(&self, who: u16, verb: u64, point: Point, died: bool) {
        let asked = self.director.asked();
        self.sights.borrow_mut().push(Sight { who, verb, point, asked, died });
    }
}

impl Witness for Seen {
    fn posts(&self, who: u16, verb: u64, point: Point) {
        self.note(who, verb, point, false);
    }

    fn died(&self, who: u16, verb: u64, point: Point) {
        self.note(who, verb, point, true);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use farlock_locks::registry::{self, LockInfo, RECORD_LOCKS};

    use crate::subjects;

    /// The locks that outlive their clients, as they are checked: the page, its section with the
    /// table, and the names under which its verbs are shown.
    fn pages() -> BTreeMap<(String, &'static str), Vec<String>> {
        let mut pages = BTreeMap::<_, Vec<String>>::new();
        let subjects = [(CRASHES, subjects::plain()), (LEASES, subjects::leased())];
        for (section, subject) in subjects
            .into_iter()
            .flat_map(|(section, all)| all.into_iter().map(move |s| (section, s)))
        {
            let promises = registry::promises(&subject).expect("a registered lock");
            if promises.excludes && promises.outlives_clients {
                let is_it = |lock: &&LockInfo| subject.split(':').next() == Some(lock.name);
                let lock = RECORD_LOCKS.iter().find(is_it).expect("a registered lock");
                pages.entry((lock.page(), section)).or_default().push(subject);
            }
        }
        pages
    }

    /// With how many locks it is played; those of one that is had in parts are parts of it.
    fn locks_of(subject: &str) -> &'static [u16] {
        let proof = registry::promises(subject).expect("a registered lock").proof;
        if proof.in_parts.is_empty() { &[1] } else { &[1, 3] }
    }

    const CRASHES: &str = "## What a crash leaves behind";
    const LEASES: &str = "## Leases";

    /// How a page marks a verb that a short campaign may not show.
    const RARE: &str = "(rare)";

    /// The verbs of a section's table of crashes, and whether each is rare. No cell is empty.
    fn rows(page: &str, section: &str) -> BTreeMap<String, bool> {
        let lines = page.lines().skip_while(|&line| line != section);
        let mut lines = lines.skip_while(|line| !line.starts_with("| role: verb |"));
        let head = lines.next().expect("a page has a table of crashes");
        let cells = |line: &str| line.split('|').map(|c| c.trim().to_owned()).collect::<Vec<_>>();
        let width = cells(head).len();
        let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
        rows.map(|line| {
            let cells = cells(line);
            assert!(cells.len() == width, "not as wide as the others: {line}");
            assert!(cells[1..width - 1].iter().all(|cell| !cell.is_empty()), "a gap: {line}");
            (cells[1].trim_matches('`').to_owned(), cells[2].ends_with(RARE))
        })
        .collect()
    }

    /// A page says of each verb of each role what a crash leaves behind. Verbs are not kept by
    /// hand: one that runs show and the page does not name makes this fail, and so does one that
    /// the page names and no run shows, unless the page says that it is rare.
    #[test]
    fn the_pages_tell_of_every_verb_of_every_role_and_of_no_other() {
        let mut differ = Vec::new();
        for ((name, section), subjects) in pages() {
            let mut shown = BTreeSet::new();
            for subject in &subjects {
                let player = subjects::player(subject).expect("a registered lock");
                for &locks in locks_of(subject) {
                    let base = Scenario { locks, ..Scenario::plain(subject, 3, 2) };
                    let came = campaign(&player, &base, Budget::Schedules(10_000), 1, |_| {});
                    let catch = came.catch.map(|c| (c.finding, c.line.to_string()));
                    assert_eq!(catch, None, "{subject}");
                    assert_eq!(came.covered, came.points, "{subject}");
                    assert!(came.pairs > 0 && came.pairs_covered == came.pairs, "{subject}");
                    shown.extend(came.names);
                }
            }
            let root = Path::new(env!("CARGO_MANIFEST_DIR"));
            let page = root.join("../../docs/protocols").join(&name).with_extension("md");
            let page = std::fs::read_to_string(page).expect("each lock has its page");
            let told = rows(&page, section);
            let untold = shown.iter().filter(|&verb| !told.contains_key(verb));
            differ.extend(untold.map(|verb| format!("{name}, shown, not told: {verb}")));
            let unseen = told.iter().filter(|&(verb, &rare)| !rare && !shown.contains(verb));
            differ.extend(unseen.map(|(verb, _)| format!("{name}, told, not shown: {verb}")));
        }
        assert!(differ.is_empty(), "{differ:#?}");
    }

    /// Without a budget everybody dies at each verb with each end often enough.
    #[test]
    fn a_campaign_without_a_budget_plays_each_death_a_thousand_times() {
        let player = subjects::player("cas").expect("a registered lock");
        let base = Scenario::plain("cas", 2, 1);
        let came = campaign(&player, &base, Budget::Schedules(u64::MAX), 1, |_| {});
        assert!(came.deaths_min >= DEATHS_EACH, "{}", came.deaths_min);
    }
}
