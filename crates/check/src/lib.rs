//! `farlock-lab check` and `farlock-lab replay`: the locks in the explored world, before judges.
//!
//! The judges are told what clients do and see what verbs do; they know no protocol. A run that
//! they object to is shrunk and printed as one line, which `replay` shows verb by verb.
#![forbid(unsafe_code)]

mod args;
pub mod client;
pub mod crash;
pub mod exhaustive;
pub mod faults;
pub mod goods;
pub mod hunt;
pub mod layout;
pub mod line;
pub mod mishap;
pub mod museum;
pub mod order;
mod out;
pub mod points;
pub mod report;
pub mod scenario;
pub mod subjects;
pub mod tokens;
pub mod trial;
pub mod tune;
mod unchecked;
pub mod verdict;
pub mod wish;
pub mod words;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use farlock_locks::registry::{self, LockInfo};
use farlock_sim::Reset;
use farlock_sim::schedule::{Director, Replay};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use hunt::{Budget, Catch, Hunt, seed_of, shrink};
use line::Line;
use mishap::What;
pub use out::{say, tell};
use report::Row;
use scenario::{Scenario, VISITED_NS};
use trial::{Player, RunLog};
use verdict::Objection;

use args::parsed;
pub use args::{CheckArgs, Mode, Tried};
pub use unchecked::Unchecked;

impl CheckArgs {
    /// Refuses what the one lock that is named does not have; of others tells.
    fn check_for(&self, subject: &str) -> anyhow::Result<()> {
        let player = subjects::player(subject).map_err(Unchecked::because)?;
        let lacking = self.lacking(subject, &player).join(", ");
        if !lacking.is_empty() && self.protocol != "all" {
            bail!(Unchecked(format!("{subject} does not have what is asked: {lacking}")));
        } else if !lacking.is_empty() {
            tell(format_args!("{subject}: without {lacking}, which it does not have"));
        }
        Ok(())
    }

    /// Refuses what this mode does not heed.
    fn check_heeded(&self) -> anyhow::Result<()> {
        let unheeded = self.unheeded().join(", ");
        let mode = format!("{:?}", self.mode).to_lowercase();
        let hint = if self.mode.samples() { ", which draws what befalls clients," } else { "" };
        ensure!(
            unheeded.is_empty(),
            Unchecked(format!("mode {mode}{hint} does not heed {unheeded}"))
        );
        Ok(())
    }

    /// What is asked for that this lock does not have, and so is not played.
    fn lacking(&self, subject: &str, player: &Player) -> Vec<&'static str> {
        let explores = self.mode == Mode::Exhaustive;
        let is_timed = subjects::word_tells_time(subject);
        let asked = [
            (self.mode == Mode::Crash && !player.outlives, "--mode crash"),
            (self.crashes > 0 && !player.outlives, "--crashes"),
            (self.losses > 0 && !player.outlives, "--losses"),
            (self.restarts > 0 && !player.outlives, "--restarts"),
            (self.pauses > 0 && explores && is_timed, "--pauses"),
            (self.updates && !player.faults(false).updates, "--updates"),
            (self.converts && !player.faults(false).converts, "--converts"),
            (self.divides && !player.faults(false).divides, "--divides"),
            (!self.tunes.is_empty() && !player.faults(false).tunes, "--tunes"),
            (self.refines && !player.faults(false).divides, "--refines"),
            (self.transactions && !player.transacts(), "--transactions"),
            (!self.ranges.is_empty() && !player.is_in_parts(), "--ranges"),
            (self.near_wrap > 0 && !player.counts(), "--near-wrap"),
        ];
        asked.into_iter().filter_map(|(lacks, what)| lacks.then_some(what)).collect()
    }
}

/// How a program ends in which checking failed with this error.
pub fn status(error: &anyhow::Error) -> ExitCode {
    if error.is::<Unchecked>() { ExitCode::from(Unchecked::STATUS) } else { ExitCode::FAILURE }
}

/// The lock that excludes nobody.
pub const CANARY: &str = "none";

/// Without a budget, schedules for each lock.
const SCHEDULES: u64 = 50_000;

/// What to show.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Status 0: the judges have nothing to object to; 1: they have; 3: there is no \
                        such lock."
)]
pub struct ReplayArgs {
    /// A line that `check` printed.
    #[arg(value_parser = parsed::<Line>)]
    pub line: Line,
}

/// Checks, prints, and fails if a judge objected to a lock other than the canary, or to none of its
/// runs; with [`Unchecked`] if that is not known.
pub fn run(args: &CheckArgs) -> anyhow::Result<()> {
    args.check_heeded()?;
    let _quiet = Quiet::begin();
    if args.mode == Mode::Museum {
        return museum::run(args);
    }
    let mut subjects = match args.protocol.as_str() {
        "all" => subjects::all(args),
        one => vec![one.to_owned()],
    };
    for but in &args.but {
        let place = subjects.iter().position(|subject| args.protocol == "all" && subject == but);
        let place = place.ok_or_else(|| {
            Unchecked(format!("--but leaves one out of all, and '{but}' is none of them"))
        })?;
        subjects.remove(place);
    }
    subjects.retain(|subject| is_held_to(args, subject));
    if subjects.is_empty() {
        bail!(Unchecked("nothing was checked".to_owned()));
    }
    args.check().map_err(Unchecked::because)?;
    for subject in &subjects {
        args.check_for(subject)?;
    }
    if args.mode == Mode::Exhaustive
        && let Some(subject) = subjects.iter().find(|subject| !subjects::can_explore(subject))
    {
        bail!(Unchecked(format!(
            "mode exhaustive cannot tell apart all schedules of {subject}, whose tasks may do the \
             same at once; of such locks it explores local:mcs, and the modes pct, random and \
             crash play them all"
        )));
    }
    let mut rows = Vec::with_capacity(subjects.len());
    check_all(args, &subjects, &MultiProgress::new(), |row| {
        if args.json {
            say(serde_json::to_string(&row).context("a row is plain data")?)?;
        }
        rows.push(row);
        Ok(())
    })?;
    if !args.json {
        show(&rows)?;
    }
    rows.iter().try_for_each(|row| pass(row, args.clients()))?;
    let unchecked: Vec<String> = rows.iter().filter_map(|row| left(args, row)).collect();
    ensure!(
        unchecked.is_empty(),
        Unchecked(format!(
            "the budget ended it: {}; give more, or say --partial",
            unchecked.join(", ")
        ))
    );
    Ok(())
}

/// Prints what was found, for people.
fn show(rows: &[Row]) -> anyhow::Result<()> {
    say(report::table(rows))?;
    for row in rows {
        if let (Some(story), Some(line)) = (&row.story, &row.line) {
            say(format_args!("{}: {story}\n  farlock-lab replay {line}", row.protocol))?;
        }
        if row.protocol == CANARY && row.line.is_some() {
            say(format_args!("{CANARY} excludes nobody: that the judges see it is what is asked"))?;
        }
    }
    Ok(())
}

/// A lock that was not checked as it should have been, and what is missing.
fn left(args: &CheckArgs, row: &Row) -> Option<String> {
    let (least, each) = (row.crash_point_schedules_min, crash::DEATHS_EACH);
    let is_whole = match args.mode {
        Mode::Exhaustive => row.complete,
        // Nobody dies of those that nobody outlives.
        Mode::Crash => row.crash_points == 0 || least >= each,
        _ => true,
    };
    let is_played = row.schedules > 0 || args.mode == Mode::Crash;
    // The canary is left when it has failed.
    if row.protocol == CANARY || is_played && (is_whole || args.partial) {
        return None;
    }
    let deaths = format!("some death was in {least} schedules, not in {each}");
    let what = if args.mode == Mode::Crash { format!(" ({deaths})") } else { String::new() };
    Some(format!("{}{what}", row.protocol))
}

/// Checks these locks, as many at one time as there are processors. Each row is `told` in the
/// locks' order. What a lock's row says does not depend on the others, but for what the clock
/// decides: budgets of time.
fn check_all(
    args: &CheckArgs,
    subjects: &[String],
    bars: &MultiProgress,
    mut told: impl FnMut(Row) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(subjects.len());
    let budget = match (args.budget, args.mode) {
        (Some(budget), _) => budget.share(subjects.len(), workers),
        (None, Mode::Exhaustive | Mode::Crash) => Budget::Schedules(u64::MAX),
        (None, _) => Budget::Schedules(SCHEDULES),
    };
    let next = AtomicUsize::new(0);
    let (teller, checked) = mpsc::channel();
    let work = |teller: mpsc::Sender<_>| {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(subject) = subjects.get(number) else { return };
            let player = subjects::player(subject);
            let row = player.map(|player| check(args, subject, &player, budget, number, bars));
            // Nobody listens any more where something failed.
            if teller.send((number, row)).is_err() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let (work, teller) = (&work, teller.clone());
            scope.spawn(move || work(teller));
        }
        drop(teller);
        let mut early = BTreeMap::new();
        let mut next = 0;
        for (number, row) in checked {
            early.insert(number, row?);
            while let Some(row) = early.remove(&next) {
                told(row)?;
                next += 1;
            }
        }
        Ok(())
    })
}

/// Whether a lock passes: a judge objected to the canary and to nothing else, and a client died at
/// every verb.
fn pass(row: &Row, clients: u16) -> anyhow::Result<()> {
    let objected = row.violations + row.stalls > 0;
    if row.protocol == CANARY {
        ensure!(objected || clients < 2, "{CANARY} excludes nobody, and no judge saw it");
        return Ok(());
    }
    ensure!(!objected, "{} failed", row.protocol);
    ensure!(
        row.crash_points_covered == row.crash_points && row.crash_pairs_covered == row.crash_pairs,
        "{}: no death at {}",
        row.protocol,
        row.story.as_deref().unwrap_or("some verb")
    );
    Ok(())
}

/// Looks for something to object to in sampled schedules.
fn hunt(
    row: &mut Row,
    player: &Player,
    mut hunt: Hunt<'_>,
    base: &Scenario,
    budget: Budget,
    tick: impl FnMut(u64),
) -> Option<Catch> {
    let faults = player.faults(player.outlives);
    let catch = hunt.search(base, faults, budget, tick);
    row.by_depth = hunt.by_depth.to_vec();
    (row.schedules, row.bypass_max) = (hunt.schedules, hunt.bypass_max);
    row.befell = hunt.befell;
    catch
}

/// What is played of a lock.
struct Scenarios {
    /// From which others are drawn.
    base: Scenario,
    /// Of which every schedule is explored.
    mixed: Scenario,
}

impl Scenarios {
    fn of(args: &CheckArgs, subject: &str, player: &Player) -> Self {
        let (locks, tasks) = (args.locks, args.tasks);
        if !args.ranges.is_empty() && player.is_in_parts() {
            let base = Scenario::of_ranges(subject, args.acquisitions, &args.ranges);
            let base = base.expect("it was checked what is asked for");
            let base = Scenario { refines: args.refines, ..base };
            return Self { mixed: args.turned(base.clone().mixed()), base };
        }
        let plain = Scenario::plain(subject, args.clients(), args.acquisitions);
        let transacts = args.transactions;
        let base = Scenario { locks, tasks, transacts, ..plain };
        let mixed = base.clone().mixed().at_locks(locks);
        let mixed = if args.updates { mixed.updating() } else { mixed };
        Self { mixed: args.turned(mixed), base }
    }
}

impl CheckArgs {
    /// The same, where what is held is made something else of, if that is asked for.
    fn turned(&self, scenario: Scenario) -> Scenario {
        let all = u64::MAX >> (64 - scenario.all().min(64));
        let of = |is_asked| if is_asked { all } else { 0 };
        let scenario = scenario.tuning(&self.tunes);
        Scenario { converts: of(self.converts), divides: of(self.divides), ..scenario }
    }
}

/// Checks one lock.
fn check(
    args: &CheckArgs,
    subject: &str,
    player: &Player,
    budget: Budget,
    number: usize,
    bars: &MultiProgress,
) -> Row {
    let (begun, bar) = (Instant::now(), bars.add(progress(subject, budget)));
    let Scenarios { base, mixed } = Scenarios::of(args, subject, player);
    let seed = seed_of(args.seed, number);
    let mut row = Row {
        protocol: subject.to_owned(),
        mode: format!("{:?}", args.mode).to_lowercase(),
        clients: args.clients(),
        acquisitions: args.acquisitions,
        seed: args.seed,
        ..Row::default()
    };
    let tick = |schedules| bar.set_position(schedules);
    let catch = match args.mode {
        Mode::Random | Mode::Pct | Mode::Mixed => {
            hunt(&mut row, player, Hunt::new(player, args.mode.mix(), seed), &base, budget, tick)
        }
        Mode::Museum => unreachable!("the museum has rows of its own"),
        Mode::Exhaustive => {
            let scenario = explored(args, subject, player, mixed);
            let explored = exhaustive::explore(player, &scenario, budget, tick);
            (row.schedules, row.states) = (explored.schedules, explored.states);
            (row.complete, row.recoveries) = (explored.complete, explored.recoveries);
            row.befell = explored.befell;
            explored.catch
        }
        // There is no verb at which anybody may die, and so none at which nobody did.
        Mode::Crash if !player.outlives => None,
        Mode::Crash => {
            let campaign = crash::campaign(player, &base, budget, seed, tick);
            (row.crash_points, row.crash_points_covered) = (campaign.points, campaign.covered);
            (row.crash_point_schedules_min, row.verbs) = (campaign.deaths_min, campaign.names);
            (row.crash_pairs, row.crash_pairs_covered) = (campaign.pairs, campaign.pairs_covered);
            (row.schedules, row.recoveries) = (campaign.schedules, campaign.recoveries);
            row.by_depth = campaign.by_depth.to_vec();
            row.befell = campaign.befell;
            row.story = (!campaign.missing.is_empty()).then(|| campaign.missing.join("; "));
            campaign.catch
        }
    };
    row.seconds = begun.elapsed().as_secs_f64();
    bar.finish_and_clear();
    if let Some(catch) = catch {
        note(&mut row, shrink(player, catch));
    }
    row
}

/// The scenario of which every schedule is played.
fn explored(args: &CheckArgs, subject: &str, player: &Player, mixed: Scenario) -> Scenario {
    let scenario = Scenario {
        anywhere: if player.outlives { args.crashes } else { 0 },
        cancel_anywhere: args.cancels,
        mishaps_anywhere: mishaps_of(args, subject, player),
        near_wrap: args.near_wrap,
        visited: args.visits,
        quits: args.quits,
        hold_ns: if args.visits { VISITED_NS } else { 0 },
        ..match args.tries {
            Some(Tried::All) => mixed.all_trying(),
            Some(how) => mixed.trying(how == Tried::Shared),
            None => mixed,
        }
    };
    Scenario { hasty: player.is_timed() && scenario.is_undisturbed(), ..scenario }
}

/// Whether a lock says anything of what is asked; if not, that is told and the lock left out. An
/// unknown one is found out about later.
fn is_held_to(args: &CheckArgs, subject: &str) -> bool {
    if args.mode != Mode::Exhaustive {
        return true;
    }
    let Ok(player) = subjects::player(subject) else { return true };
    let says = player.declares();
    let asked = [
        (args.stops > 0 && !says.passes, "--stops"),
        (args.tries.is_some() && !says.tries, "--tries"),
        (args.visits && !(says.tries || says.withdraws), "--visits"),
        (args.quits && !says.withdraws, "--quits"),
    ];
    let unsaid: Vec<_> = asked.into_iter().filter_map(|(not, what)| not.then_some(what)).collect();
    if !unsaid.is_empty() {
        let unsaid = unsaid.join(", ");
        tell(format_args!("{subject}: left out, it promises nothing of {unsaid}"));
    }
    unsaid.is_empty()
}

/// What befalls clients anywhere.
fn mishaps_of(args: &CheckArgs, subject: &str, player: &Player) -> Vec<(u32, What)> {
    let losses = if player.outlives { args.losses } else { 0 };
    let pauses = if subjects::word_tells_time(subject) { 0 } else { args.pauses };
    let pause = What::Pause(player.pause_anywhere_ns());
    let restarts = if player.outlives { args.restarts } else { 0 };
    let restart = What::Restart(Reset::Kept);
    let lost = What::Lost(None);
    let all = [(pauses, pause), (losses, lost), (restarts, restart), (args.stops, What::Stop)];
    all.into_iter().filter(|&(times, _)| times > 0).collect()
}

fn note(row: &mut Row, catch: Catch) {
    match catch.finding.objection {
        Objection::Stall => row.stalls += 1,
        Objection::Violation | Objection::Leak | Objection::Panic => row.violations += 1,
    }
    row.story = Some(format!("{:?}: {}", catch.finding.objection, catch.finding.story));
    row.line = Some(catch.line.to_string());
}

/// A progress bar where a person looks, otherwise nothing.
fn progress(subject: &str, budget: Budget) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = match budget {
        Budget::Schedules(n) if n < u64::MAX => ProgressBar::new(n),
        _ => ProgressBar::new_spinner(),
    };
    bar.with_style(style(budget)).with_prefix(subject.to_owned())
}

/// What a person sees while a lock is checked.
fn style(budget: Budget) -> ProgressStyle {
    let template = match budget {
        Budget::Schedules(n) if n < u64::MAX => "{prefix} {wide_bar} {pos}/{len}",
        _ => "{spinner} {prefix} {pos}",
    };
    ProgressStyle::with_template(template).expect("these are templates")
}

/// Shows a run verb by verb, and fails if the judges object to it.
pub fn replay(args: &ReplayArgs) -> anyhow::Result<()> {
    let _quiet = Quiet::begin();
    let player = subjects::player(&args.line.scenario.subject).map_err(Unchecked::because)?;
    let director = Director::new(Replay::new(args.line.trail.clone()));
    let oracle = director.begin().expect("a replay has one run");
    let mut log = RunLog { timeline: Some(Vec::new()), ..RunLog::default() };
    let verdict = player.play_noting(&args.line.scenario, oracle, &mut log);
    for (step, what) in log.timeline.unwrap_or_default().iter().enumerate() {
        say(format_args!("{step:>5}  {what}"))?;
    }
    match verdict.finding {
        Some(finding) => {
            let (promise, page) = (finding.promise.describe(), page_of(&args.line.scenario));
            say(format_args!("{:?}: {}", finding.objection, finding.story))?;
            say(format_args!("broken: {promise}{page}"))?;
            bail!("the judges object to this run")
        }
        None => say(format_args!("nothing to object to, {} events", verdict.events)),
    }
}

/// Where the promise of a lock of the registry stands, as the end of a line.
fn page_of(scenario: &Scenario) -> String {
    let lock = scenario.subject.strip_prefix(subjects::LOCAL).unwrap_or(&scenario.subject);
    let name = lock.split(':').next().unwrap_or(lock);
    let known = registry::RECORD_LOCKS.iter().find(|lock| lock.name == name);
    let said = |lock: &LockInfo| format!("; docs/protocols/{}.md says how it is kept", lock.page());
    known.map(said).unwrap_or_default()
}

/// While this lives, a panic prints nothing: it is a finding, and its message is its story.
struct Quiet;

impl Quiet {
    fn begin() -> Self {
        std::panic::set_hook(Box::new(|_| {}));
        Self
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::panic::take_hook();
        }
    }
}

#[cfg(test)]
mod every_lock;
#[cfg(test)]
#[path = "../../locks/tests/suite/lapse.rs"]
mod lapse;
#[cfg(test)]
mod tests;
