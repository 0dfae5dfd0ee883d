//! Looking for what a judge objects to: many runs of changing scenarios, and shrinking what is
//! found.

use std::time::{Duration, Instant};

use farlock_sim::schedule::{Director, Pct, Random, Replay, Trail};
use farlock_sim::{Choice, Oracle, Seeded};

use crate::faults::Faults;
use crate::line::Line;
use crate::mishap::What;
use crate::scenario::{Death, Scenario};
use crate::trial::Player;
use crate::verdict::{Befell, Finding, Objection, Verdict};

/// Depths of [`Pct`] that are used in turn.
pub const DEPTHS: std::ops::RangeInclusive<u32> = 2..=6;
/// Schedules tried for a simpler scenario before it is given up.
const SHRINK_SCHEDULES: u64 = 400;
/// Rounds of cutting a trail.
const SHRINK_ROUNDS: u32 = 8;

/// How much is tried.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Budget {
    /// So many schedules.
    Schedules(u64),
    /// As many as go into this time.
    Time(Duration),
}

impl Budget {
    /// The share of one of `n` subjects, of which `workers` are looked at at one time.
    pub fn share(self, n: usize, workers: usize) -> Self {
        match self {
            Self::Schedules(schedules) => Self::Schedules((schedules / n as u64).max(1)),
            Self::Time(time) => Self::Time(time * workers as u32 / n as u32),
        }
    }

    /// Whether so many schedules since `begun` use it up.
    pub fn is_spent(self, schedules: u64, begun: Instant) -> bool {
        match self {
            Self::Schedules(max) => schedules >= max,
            // A clock read costs as much as a few events: look now and then.
            Self::Time(time) => schedules.is_multiple_of(16) && begun.elapsed() >= time,
        }
    }
}

impl std::str::FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, is_time) = match text.strip_suffix('s') {
            Some(seconds) => (seconds, true),
            None => (text, false),
        };
        match number.parse() {
            Ok(0) => Err("a budget of nothing checks nothing".to_owned()),
            Ok(seconds) if is_time => Ok(Self::Time(Duration::from_secs(seconds))),
            Ok(schedules) => Ok(Self::Schedules(schedules)),
            Err(_) => {
                Err(format!("'{text}' is neither a number of schedules nor one of seconds (60s)"))
            }
        }
    }
}

/// Which schedules are mixed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// Uniformly random ones.
    Random,
    /// PCT, its depths in turn.
    Pct,
    /// The standard mix: half are uniformly random, five in six of locks with leases. Those bugs of
    /// the museum that few preemptions find are found by random ones as soon or sooner, but for
    /// some; those of leases, which take several waits to come together, hundreds of times as soon.
    Standard,
}

/// A found run, and how many were needed.
#[derive(Clone, Debug)]
pub struct Catch {
    /// The run.
    pub line: Line,
    /// What is wrong with it.
    pub finding: Finding,
}

/// Runs of one subject.
#[derive(Debug)]
pub struct Hunt<'p> {
    player: &'p Player,
    random: Director<Random>,
    pct: Director<Pct>,
    draws: Seeded,
    mix: Mix,
    /// Schedules so far.
    pub schedules: u64,
    /// By depth; 0 is random.
    pub by_depth: [u64; 7],
    /// Events so far.
    pub events: u64,
    /// How often a waiter was passed at most.
    pub bypass_max: u32,
    /// How many rounds of readers passed a writer at most.
    pub rounds_max: u32,
    /// What befell the runs.
    pub befell: Befell,
}

impl<'p> Hunt<'p> {
    /// A hunt that follows from its seed.
    pub fn new(player: &'p Player, mix: Mix, seed: u64) -> Self {
        Self {
            player,
            random: Director::new(Random::new(seed ^ 0x7a11)),
            pct: Director::new(Pct::new(seed ^ 0x9c7, 2)),
            draws: Seeded::new(seed),
            mix,
            schedules: 0,
            by_depth: [0; 7],
            events: 0,
            bypass_max: 0,
            rounds_max: 0,
            befell: Befell::default(),
        }
    }

    /// Where scenarios are drawn from.
    pub fn draws(&mut self) -> &mut Seeded {
        &mut self.draws
    }

    /// One run of this scenario, by the schedule whose turn it is.
    pub fn run(&mut self, scenario: &Scenario) -> (Verdict, impl Fn(&Self) -> Trail + use<'p>) {
        let random_in_six = match self.mix {
            Mix::Random => 6,
            Mix::Standard if self.player.is_leased() => 5,
            Mix::Standard => 3,
            Mix::Pct => 0,
        };
        let by_pct = self.schedules - self.by_depth[0];
        let depth = match self.schedules % 6 {
            turn if turn < random_in_six => 0,
            _ => DEPTHS.start() + (by_pct % DEPTHS.count() as u64) as u32,
        };
        let oracle = match depth {
            0 => self.random.begin(),
            _ => {
                self.pct.with(|pct| pct.set_depth(depth));
                self.pct.begin()
            }
        };
        let oracle = oracle.expect("there is always another random schedule");
        self.schedules += 1;
        self.by_depth[depth as usize] += 1;
        let verdict = self.player.play(scenario, oracle);
        self.events += verdict.events;
        self.bypass_max = self.bypass_max.max(verdict.bypass_max);
        self.rounds_max = self.rounds_max.max(verdict.rounds_max);
        self.befell.add(verdict.befell);
        let trail = move |hunt: &Self| match depth {
            0 => hunt.random.trail(),
            _ => hunt.pct.trail(),
        };
        (verdict, trail)
    }

    /// Draws scenarios and runs them until something is found or the budget is spent. `tick` is
    /// told the number of schedules now and then.
    pub fn search(
        &mut self,
        base: &Scenario,
        faults: Faults,
        budget: Budget,
        mut tick: impl FnMut(u64),
    ) -> Option<Catch> {
        let (begun, mut scenario) = (Instant::now(), base.clone());
        while !budget.is_spent(self.schedules, begun) {
            scenario.draw(&mut self.draws, faults);
            let (verdict, trail) = self.run(&scenario);
            if let Some(finding) = verdict.finding {
                let trail = trail(self);
                return Some(Catch { line: Line { scenario, trail }, finding });
            }
            if self.schedules.is_multiple_of(1024) {
                tick(self.schedules);
            }
        }
        None
    }
}

/// One stored run.
pub fn replay(player: &Player, line: &Line) -> (Verdict, Trail) {
    let director = Director::new(Replay::new(line.trail.clone()));
    let oracle = director.begin().expect("a replay has one run");
    let verdict = player.play(&line.scenario, oracle);
    (verdict, director.trail())
}

/// A simpler run in which the same kind of thing goes wrong: fewer faults, clients and
/// acquisitions, then fewer preemptions.
pub fn shrink(player: &Player, found: Catch) -> Catch {
    let mut best = found;
    loop {
        let simpler = simpler_scenarios(&best.line.scenario);
        let next = simpler.into_iter().find_map(|scenario| {
            still_fails(player, &scenario, &best.line.trail, best.finding.objection)
        });
        match next {
            Some(next) => best = next,
            None => break,
        }
    }
    for _ in 0..SHRINK_ROUNDS {
        let before = best.line.trail.len();
        best = cut_trail(player, best);
        if best.line.trail.len() == before {
            break;
        }
    }
    best
}

/// The scenario with one thing less, each way that there is.
fn simpler_scenarios(scenario: &Scenario) -> Vec<Scenario> {
    let mut simpler = Vec::new();
    let mut push = |change: &dyn Fn(&mut Scenario)| {
        let mut changed = scenario.clone();
        change(&mut changed);
        if changed != *scenario {
            simpler.push(changed);
        }
    };
    fewer_faults(scenario, &mut push);
    push(&|s| s.hold_ns = if s.visited { s.hold_ns } else { 0 });
    for index in 0..scenario.clocks.len() {
        push(&|s| {
            s.clocks.remove(index);
        });
    }
    push(&|s| s.anywhere = s.anywhere.saturating_sub(1));
    push(&|s| s.cancel = None);
    push(&|s| s.cancel_anywhere = s.cancel_anywhere.saturating_sub(1));
    push(&|s| s.near_wrap = 0);
    push(&|s| s.quits = false);
    push(&|s| s.hold_ns = if std::mem::take(&mut s.visited) { 0 } else { s.hold_ns });
    push(&|s| s.fenced = false);
    push(&|s| s.recorded = false);
    for client in (0..scenario.clients).filter(|_| scenario.clients > 2) {
        push(&|s| *s = s.without(client).unwrap_or(s.clone()));
    }
    // An earlier death leaves less to look at, and fewer clients to wait for.
    for (index, death) in scenario.deaths.iter().enumerate() {
        for verb in 0..death.verb {
            push(&|s| s.deaths[index].verb = verb);
        }
    }
    push(&|s| s.clients = (s.clients - 1).max(2));
    push(&|s| s.acquisitions = (s.acquisitions - 1).max(1));
    push(&|s| s.torn = 0);
    push(&|s| s.overtaken = 0);
    push(&|s| s.hasty = false);
    push(&|s| s.slow = false);
    plainer_acquisitions(scenario, &mut push);
    simpler
}

/// With one death or mishap less, or a death instead of a loss.
fn fewer_faults(scenario: &Scenario, push: &mut dyn FnMut(Change<'_>)) {
    for index in 0..scenario.deaths.len() {
        push(&|s| {
            s.deaths.remove(index);
        });
    }
    for index in 0..scenario.mishaps.len() {
        push(&|s| {
            s.mishaps.remove(index);
        });
    }
    // A loss ends its client as a death does, and tells more than it need.
    for (index, mishap) in scenario.mishaps.iter().enumerate() {
        if let What::Lost(Some(outcome)) = mishap.what {
            push(&|s| {
                s.mishaps.remove(index);
                s.deaths.push(Death { who: mishap.who, verb: mishap.verb, outcome });
            });
        }
    }
    for index in 0..scenario.tunes.len() {
        push(&|s| {
            s.tunes.remove(index);
        });
    }
    for index in 0..scenario.mishaps_anywhere.len() {
        push(&|s| match &mut s.mishaps_anywhere[index].0 {
            1 => drop(s.mishaps_anywhere.remove(index)),
            times => *times -= 1,
        });
    }
}

/// How one scenario becomes another.
type Change<'a> = &'a dyn Fn(&mut Scenario);

/// The same with one acquisition less that is out of the ordinary.
fn plainer_acquisitions(scenario: &Scenario, push: &mut dyn FnMut(Change<'_>)) {
    let all = u64::MAX >> (64 - scenario.all().clamp(1, 64));
    push(&|s| (s.shared, s.nests) = (s.shared & all, s.nests & all));
    push(&|s| s.nested_shared &= s.nests);
    push(&|s| s.tries = 0);
    push(&|s| s.converts = 0);
    push(&|s| s.divides = 0);
    push(&|s| s.transacts = false);
    push(&|s| s.tasks = (s.tasks - 1).max(1));
    push(&|s| s.locks = (s.locks - 1).max(1));
    if scenario.locks == 1 {
        push(&|s| (s.aims, s.nests, s.nested_shared) = (0, 0, 0));
    }
    for bit in 0..scenario.all().min(64) {
        push(&|s| s.updates &= !1_u64.checked_shl(bit).unwrap_or(0));
        push(&|s| s.tries &= !1_u64.checked_shl(bit).unwrap_or(0));
        push(&|s| s.converts &= !1_u64.checked_shl(bit).unwrap_or(0));
        push(&|s| s.divides &= !1_u64.checked_shl(bit).unwrap_or(0));
        push(&|s| s.nests &= !1_u64.checked_shl(bit).unwrap_or(0));
        push(&|s| s.shared &= !1_u64.checked_shl(bit).unwrap_or(0));
    }
}

/// The same kind of failure in this scenario, by the same trail or by some other.
fn still_fails(
    player: &Player,
    scenario: &Scenario,
    trail: &Trail,
    objection: Objection,
) -> Option<Catch> {
    let line = Line { scenario: scenario.clone(), trail: trail.clone() };
    let (verdict, followed) = replay(player, &line);
    if let Some(finding) = verdict.finding.filter(|f| f.objection == objection) {
        return Some(Catch { line: Line { trail: followed, ..line }, finding });
    }
    let mut hunt = Hunt::new(player, Mix::Standard, 1);
    for _ in 0..SHRINK_SCHEDULES {
        let (verdict, trail) = hunt.run(scenario);
        if let Some(finding) = verdict.finding.filter(|f| f.objection == objection) {
            return Some(Catch { line: Line { trail: trail(&hunt), ..line }, finding });
        }
    }
    None
}

/// Leaves out ever smaller parts of the trail as long as the run still fails.
fn cut_trail(player: &Player, mut best: Catch) -> Catch {
    let mut size = best.line.trail.len().div_ceil(2);
    while size > 0 {
        let mut first = 0;
        while first < best.line.trail.len() {
            let trail = best.line.trail.without(first, size);
            let line = Line { scenario: best.line.scenario.clone(), trail };
            let (verdict, followed) = replay(player, &line);
            let same = verdict.finding.filter(|f| f.objection == best.finding.objection);
            match same {
                Some(finding) if followed.len() < best.line.trail.len() => {
                    best = Catch { line: Line { trail: followed, ..line }, finding };
                }
                _ => first += size,
            }
        }
        size /= 2;
    }
    best
}

/// A seed for each of several hunts.
pub fn seed_of(seed: u64, number: usize) -> u64 {
    let mut draws = Seeded::new(seed ^ (number as u64) << 32);
    u64::from(draws.pick(Choice::Event, u32::MAX)) << 32 | seed & 0xffff_ffff
}
