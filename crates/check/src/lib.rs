//! `farlock-lab check` and `farlock-lab replay`: the locks in the explored world, before judges.
//!
//! The judges are told what clients do and see what verbs do; they know no protocol. A run that
//! they object to is shrunk and printed as one line, which `replay` shows verb by verb.
#![forbid(unsafe_code)]

pub mod crash;
pub mod exhaustive;
pub mod goods;
pub mod hunt;
pub mod layout;
pub mod line;
pub mod mishap;
pub mod museum;
pub mod order;
pub mod points;
pub mod report;
pub mod scenario;
pub mod subjects;
pub mod tokens;
pub mod trial;
pub mod verdict;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use farlock_sim::Reset;
use farlock_sim::schedule::{Director, Replay};
use indicatif::{MultiProgress, ProgressBar};

use hunt::{Budget, Catch, Hunt, Mix, seed_of, shrink};
use line::Line;
use mishap::What;
use report::Row;
use scenario::{CLIENTS_MAX, LOCKS_MAX, Scenario, TASKS_MAX, VISITED_NS};
use trial::{Notes, Player};
use verdict::Objection;

/// How locks are checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Mode {
    /// Uniformly random schedules of random scenarios.
    Random,
    /// Schedules with few preemptions at random places, depths 2 to 6.
    Pct,
    /// Every schedule of one scenario, readers and writers mixed.
    Exhaustive,
    /// Every verb of every role is a death, with each of its three ends.
    Crash,
    /// Every exhibit of the museum, which must be found.
    Museum,
}

/// How tries want a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Tried {
    /// As other acquisitions: some shared, some alone.
    Mixed,
    /// All shared.
    Shared,
}

/// What to check.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// The lock, as the registry names it, or `all`.
    #[arg(long, default_value = "all")]
    pub protocol: String,
    /// A lock to leave out of `all`; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub but: Vec<String>,
    /// How.
    #[arg(long, value_enum, default_value = "pct")]
    pub mode: Mode,
    /// How many clients.
    #[arg(
        long,
        default_value_t = 3,
        value_parser = clap::value_parser!(u16).range(1..=CLIENTS_MAX as i64)
    )]
    pub clients: u16,
    /// How many acquisitions of each.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub acquisitions: u16,
    /// How many locks there are. Whoever holds one may acquire the next as well: in mode
    /// `exhaustive` always, in modes that draw scenarios now and then.
    #[arg(
        long,
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=LOCKS_MAX as i64)
    )]
    pub locks: u16,
    /// So many clients, one after the other, are tasks at one endpoint, with a slot each: not in
    /// mode `exhaustive`, and not for `local:` locks, which say that themselves.
    #[arg(
        long,
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=TASKS_MAX as i64)
    )]
    pub tasks: u16,
    /// How many clients die: in mode `exhaustive` at any of their verbs, each with every end.
    #[arg(long, default_value_t = 0)]
    pub crashes: u32,
    /// How often somebody gives up: in mode `exhaustive` whenever it waits, for the lock, while it
    /// holds, or for its release to end. Modes that draw scenarios draw this too.
    #[arg(long, default_value_t = 0)]
    pub cancels: u32,
    /// How often somebody is stopped: in mode `exhaustive` at any verb, for three leases where
    /// holds end by themselves, else as long as the schedule likes. Modes that draw scenarios draw
    /// this too.
    #[arg(long, default_value_t = 0)]
    pub pauses: u32,
    /// How often somebody is stopped until all others have come to an end: in mode `exhaustive` at
    /// any verb and in any wait before it is granted the lock. Modes that draw scenarios draw this
    /// too. For locks that pass over the stopped; others are left out.
    #[arg(long, default_value_t = 0)]
    pub stops: u32,
    /// In mode `exhaustive`: whatever the last client acquires is a try. Modes that draw scenarios
    /// draw this too. For locks whose tries tell the truth; others are left out.
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, default_missing_value = "mixed")]
    pub tries: Option<Tried>,
    /// In mode `exhaustive`: holders stay until nothing else can happen, and then a newcomer tries.
    /// Modes that draw scenarios draw this too. For locks whose tries tell the truth or whose
    /// waiters withdraw; others are left out.
    #[arg(long)]
    pub visits: bool,
    /// In mode `exhaustive`: who gives up lets go of its endpoint, and settles nothing. Modes that
    /// draw scenarios draw this too. For locks whose waiters withdraw; others are left out.
    #[arg(long)]
    pub quits: bool,
    /// How often a completion is lost, so that its client does not know what became of the verb: in
    /// mode `exhaustive` of any verb, which has each of its ends. Modes that draw scenarios draw
    /// this too.
    #[arg(long, default_value_t = 0)]
    pub losses: u32,
    /// How often the memory node restarts with its memory kept: in mode `exhaustive` at any verb.
    /// Modes that draw scenarios draw this too, and memory that is zeroed or of an earlier time.
    #[arg(long, default_value_t = 0)]
    pub restarts: u32,
    /// In mode `exhaustive`: every second client acquires to update, and upgrades its hold where it
    /// is to write. Modes that draw scenarios draw this too, of locks that have such holds.
    #[arg(long)]
    pub updates: bool,
    /// So many acquisitions before counts in the lock's word wrap; 0: they begin at zero. Modes
    /// that draw scenarios draw this too.
    #[arg(long, default_value_t = 0)]
    pub near_wrap: u16,
    /// Schedules, or seconds as in `60s`, for all locks together. Exploring every schedule ends by
    /// itself; without a budget it takes the time it needs, and mode `crash` ends when each death
    /// has happened in 1,000 schedules.
    #[arg(long)]
    pub budget: Option<Budget>,
    /// Decides everything.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Prints a line of JSON for each lock.
    #[arg(long)]
    pub json: bool,
}

/// Without a budget, schedules for each lock.
const SCHEDULES: u64 = 50_000;

/// What to show.
#[derive(Clone, Debug, clap::Args)]
pub struct ReplayArgs {
    /// A line that `check` printed.
    pub line: Line,
}

/// Checks, prints, and fails if a judge objected to a lock other than the canary, or to none of its
/// runs.
pub fn run(args: &CheckArgs) -> anyhow::Result<()> {
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
        let place = place.with_context(|| format!("--but leaves one out of all, not '{but}'"))?;
        subjects.remove(place);
    }
    subjects.retain(|subject| is_held_to(args, subject));
    if subjects.is_empty() {
        eprintln!("nothing was checked");
        return Ok(());
    }
    ensure!(
        args.stops == 0 || args.restarts + args.losses == 0,
        "of who is stopped it must be known what becomes of its verbs"
    );
    ensure!(
        args.locks == 1 && args.tasks == 1 || args.stops == 0 && !args.visits && !args.quits,
        "who is stopped, and who visits, looks at one lock and at clients of one task"
    );
    ensure!(
        args.tasks == 1 || matches!(args.mode, Mode::Random | Mode::Pct),
        "modes random and pct alone play clients of several tasks"
    );
    if args.mode == Mode::Exhaustive
        && let Some(subject) = subjects.iter().find(|subject| !subjects::can_explore(subject))
    {
        bail!(
            "mode exhaustive cannot tell apart all schedules of {subject}, whose tasks may do the \
             same at once; of such locks it explores local:mcs, and the modes pct, random and \
             crash play them all"
        );
    }
    let mut rows = Vec::with_capacity(subjects.len());
    check_all(args, &subjects, &MultiProgress::new(), |row| {
        if args.json {
            println!("{}", serde_json::to_string(&row).context("a row is plain data")?);
        }
        rows.push(row);
        Ok(())
    })?;
    if !args.json {
        println!("{}", report::table(&rows));
        for row in &rows {
            if let (Some(story), Some(line)) = (&row.story, &row.line) {
                println!("{}: {story}\n  farlock-lab replay {line}", row.protocol);
            }
        }
    }
    rows.iter().try_for_each(|row| pass(row, args.clients))
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

/// Whether a lock passes: a judge objected to the canary and to nothing else, and somebody died at
/// every verb.
fn pass(row: &Row, clients: u16) -> anyhow::Result<()> {
    let objected = row.violations + row.stalls > 0;
    if row.protocol == "none" {
        ensure!(objected || clients < 2, "none excludes nobody, and no judge saw it");
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
    fn of(args: &CheckArgs, subject: &str) -> Self {
        let (locks, tasks) = (args.locks, args.tasks);
        let plain = Scenario::plain(subject, args.clients, args.acquisitions);
        let base = Scenario { locks, tasks, ..plain };
        let mixed = base.clone().mixed().at_locks(locks);
        Self { mixed: if args.updates { mixed.updating() } else { mixed }, base }
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
    let Scenarios { base, mixed } = Scenarios::of(args, subject);
    let seed = seed_of(args.seed, number);
    let mut row = Row {
        protocol: subject.to_owned(),
        mode: format!("{:?}", args.mode).to_lowercase(),
        clients: args.clients,
        acquisitions: args.acquisitions,
        seed: args.seed,
        ..Row::default()
    };
    let tick = |schedules| bar.set_position(schedules);
    let catch = match args.mode {
        Mode::Random | Mode::Pct => {
            let mix = if args.mode == Mode::Pct { Mix::Pct } else { Mix::Random };
            hunt(&mut row, player, Hunt::new(player, mix, seed), &base, budget, tick)
        }
        Mode::Museum => unreachable!("the museum has rows of its own"),
        Mode::Exhaustive => {
            let anywhere = if player.outlives { args.crashes } else { 0 };
            let scenario = Scenario {
                anywhere,
                cancel_anywhere: args.cancels,
                mishaps_anywhere: mishaps_of(args, subject, player),
                near_wrap: args.near_wrap,
                visited: args.visits,
                quits: args.quits,
                hold_ns: if args.visits { VISITED_NS } else { 0 },
                ..match args.tries {
                    Some(how) => mixed.trying(how == Tried::Shared),
                    None => mixed,
                }
            };
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

/// Whether a lock says anything of what is asked; if not, that is told and the lock left out. An
/// unknown one is found out about later.
fn is_held_to(args: &CheckArgs, subject: &str) -> bool {
    if args.mode != Mode::Exhaustive {
        return true;
    }
    let Ok(player) = subjects::player(subject) else { return true };
    let says = player.declares();
    let stops = args.stops == 0 || says.passes;
    let tries = args.tries.is_none() || says.tries;
    let visits = !args.visits || says.tries || says.withdraws;
    let quits = !args.quits || says.withdraws;
    let is_held = stops && tries && visits && quits;
    if !is_held {
        eprintln!("{subject}: left out, it says nothing of what is asked");
    }
    is_held
}

/// What befalls clients anywhere.
fn mishaps_of(args: &CheckArgs, subject: &str, player: &Player) -> Vec<(u32, What)> {
    let losses = if player.outlives { args.losses } else { 0 };
    let pauses = if subjects::TIMED.contains(&subject) { 0 } else { args.pauses };
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
    bar.println(subject);
    bar
}

/// Shows a run verb by verb.
pub fn replay(args: &ReplayArgs) -> anyhow::Result<()> {
    let _quiet = Quiet::begin();
    let player = subjects::player(&args.line.scenario.subject)?;
    let director = Director::new(Replay::new(args.line.trail.clone()));
    let oracle = director.begin().expect("a replay has one run");
    let mut notes = Notes { timeline: Some(Vec::new()), ..Notes::default() };
    let verdict = player.play_noting(&args.line.scenario, oracle, &mut notes);
    for (step, what) in notes.timeline.unwrap_or_default().iter().enumerate() {
        println!("{step:>5}  {what}");
    }
    match verdict.finding {
        Some(finding) => println!("{:?}: {}", finding.objection, finding.story),
        None => println!("nothing to object to, {} events", verdict.events),
    }
    Ok(())
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
mod tests {
    use super::scenario::Faults;
    use super::*;

    fn no_bars() -> MultiProgress {
        MultiProgress::with_draw_target(indicatif::ProgressDrawTarget::hidden())
    }

    /// Two clients that acquire once each.
    fn two(mode: Mode) -> CheckArgs {
        CheckArgs {
            protocol: "all".to_owned(),
            but: Vec::new(),
            mode,
            clients: 2,
            acquisitions: 1,
            crashes: 0,
            cancels: 0,
            pauses: 0,
            stops: 0,
            tries: None,
            visits: false,
            quits: false,
            losses: 0,
            restarts: 0,
            updates: false,
            near_wrap: 0,
            locks: 1,
            tasks: 1,
            budget: None,
            seed: 1,
            json: false,
        }
    }

    /// Nobody objects to this run.
    fn is_in_order(line: &str) {
        let line: Line = line.parse().expect("a line");
        let player = subjects::player(&line.scenario.subject).expect("a registered lock");
        let (verdict, _) = hunt::replay(&player, &line);
        assert_eq!(verdict.finding, None, "{line}");
    }

    /// The rows of all locks, by all processors: one slow lock does not keep a test for itself.
    fn rows(args: CheckArgs) -> Vec<Row> {
        let mut rows = Vec::new();
        let told = |row| {
            rows.push(row);
            Ok(())
        };
        check_all(&args, &subjects::all(&args), &no_bars(), told).expect("registered locks");
        rows
    }

    #[test]
    fn every_schedule_of_two_clients_is_explored_and_only_the_canary_fails() {
        for row in rows(CheckArgs { acquisitions: 2, ..two(Mode::Exhaustive) }) {
            assert_eq!(row.complete, row.protocol != "none", "{row:?}");
            pass(&row, 2).expect("locks pass and the canary does not");
        }
    }

    #[test]
    fn every_death_of_one_of_two_clients_is_explored_and_repaired() {
        for row in rows(CheckArgs { crashes: 1, ..two(Mode::Exhaustive) }) {
            pass(&row, 2).expect("locks pass and the canary does not");
            let player = subjects::player(&row.protocol).expect("a registered lock");
            let repaired = row.recoveries > 0 || !player.outlives;
            assert!(row.protocol == "none" || row.complete && repaired, "{row:?}");
        }
    }

    /// Readers of one client join a hold of it, and it is handed on, under every fault.
    #[test]
    fn tasks_hand_locks_on_and_share_them_whatever_befalls_them() {
        for subject in ["local:shiftlock", "local:dslr", "local:cas", "local:rma-rw"] {
            let player = subjects::player(subject).expect("a registered lock");
            let args = CheckArgs { clients: 4, acquisitions: 2, ..two(Mode::Pct) };
            let row = check(&args, subject, &player, Budget::Schedules(4_000), 0, &no_bars());
            pass(&row, 4).expect("whoever lives is granted");
            assert!(row.befell.given_up > 0 && row.befell.pauses > 0, "{row:?}");
        }
    }

    /// Nothing is called complete of which a part may be missing.
    #[test]
    fn a_lock_whose_states_look_alike_is_not_explored() {
        let named = |mode| CheckArgs { protocol: "local:shiftlock".to_owned(), ..two(mode) };
        let refused = run(&named(Mode::Exhaustive)).expect_err("it cannot be complete");
        assert!(refused.to_string().contains("local:mcs"), "{refused}");
        run(&CheckArgs { budget: Some(Budget::Schedules(100)), ..named(Mode::Pct) })
            .expect("it is played");
    }

    /// Whatever is given up at whatever moment is withdrawn or released, and nobody waits for it.
    #[test]
    fn two_clients_give_up_wherever_they_wait() {
        let args = CheckArgs { cancels: 2, ..two(Mode::Exhaustive) };
        for row in rows(args) {
            pass(&row, 2).expect("locks pass and the canary does not");
            let explored = row.complete && row.befell.given_up > 0;
            assert!(row.protocol == "none" || explored, "{row:?}");
        }
    }

    /// Whoever does not know what became of a verb ends; then its lock is repaired as after a
    /// death.
    #[test]
    fn any_completion_of_two_clients_is_lost() {
        let args = CheckArgs { losses: 1, ..two(Mode::Exhaustive) };
        for row in rows(args) {
            pass(&row, 2).expect("locks pass and the canary does not");
            let player = subjects::player(&row.protocol).expect("a registered lock");
            let lost = row.befell.lost > 0 || !player.outlives;
            assert!(row.protocol == "none" || row.complete && lost, "{row:?}");
        }
    }

    /// Nobody of the old incarnation succeeds in anything, those of the new one are granted, with
    /// higher tokens, whatever the old one has left in the memory.
    #[test]
    fn the_memory_restarts_at_any_verb_of_two_clients() {
        let args = CheckArgs { restarts: 1, ..two(Mode::Exhaustive) };
        for row in rows(args) {
            pass(&row, 2).expect("locks pass and the canary does not");
            let player = subjects::player(&row.protocol).expect("a registered lock");
            let came_back = row.befell.came_back > 0 || !player.outlives;
            assert!(row.protocol == "none" || row.complete && came_back, "{row:?}");
        }
    }

    /// A completion that is lost while its client settles what it gave up: `settle` reports
    /// nothing, but the client says that it is broken.
    #[test]
    fn a_loss_in_settling_is_no_secret() {
        let args = CheckArgs { losses: 1, cancels: 1, ..two(Mode::Exhaustive) };
        let player = subjects::player("mcs").expect("a registered lock");
        let row = check(&args, "mcs", &player, Budget::Schedules(u64::MAX), 0, &no_bars());
        pass(&row, 2).expect("nobody waits for ever");
        assert!(row.complete && row.befell.lost > 0 && row.befell.given_up > 0, "{row:?}");
    }

    /// Who is stopped keeps what it has, unless it has a lease, and nobody else is the worse for
    /// it.
    #[test]
    fn two_clients_are_stopped_at_any_verb() {
        let args = CheckArgs { pauses: 2, ..two(Mode::Exhaustive) };
        for row in rows(args) {
            pass(&row, 2).expect("locks pass and the canary does not");
            let timed = subjects::TIMED.contains(&&*row.protocol);
            let explored = row.complete && (row.befell.pauses > 0 || timed);
            assert!(row.protocol == "none" || explored, "{row:?}");
            assert_eq!(
                row.befell.overstayed > 0,
                subjects::LEASED.contains(&&*row.protocol),
                "{row:?}"
            );
        }
    }

    /// Locks whose word has no count that wraps.
    const NO_COUNTS: [&str; 8] =
        ["none", "cas", "cas-nb", "retry-on-fail", "drtm", "rma-rw", "rpc", "rpc-ro"];

    #[test]
    fn counts_wrap_in_every_schedule_and_change_nothing() {
        let args = CheckArgs { crashes: 1, near_wrap: 1, ..two(Mode::Exhaustive) };
        for row in rows(args) {
            pass(&row, 2).expect("locks pass and the canary does not");
            let name = row.protocol.split(':').next().expect("a text has a first part");
            let counts = !NO_COUNTS.contains(&name);
            assert_eq!(row.befell.wraps > 0, counts, "{row:?}");
            assert!(row.protocol == "none" || row.complete, "{row:?}");
        }
    }

    #[test]
    fn a_few_schedules_with_everything_that_can_go_wrong() {
        let budget = Some(Budget::Schedules(400 * subjects::all(&two(Mode::Pct)).len() as u64));
        let twice = |mode| CheckArgs { acquisitions: 2, budget, ..two(mode) };
        for row in [rows(twice(Mode::Pct)), rows(twice(Mode::Random))].concat() {
            pass(&row, 2).expect("locks pass and the canary does not");
        }
    }

    /// A pause short of a lease, around it and beyond it, at any verb: whoever overstays its lease
    /// knows, and nobody is let in beside a holder whose lease has not ended.
    #[test]
    fn a_holder_that_is_paused_beyond_its_lease_has_lost_the_lock() {
        for subject in subjects::LEASED {
            let player = subjects::player(subject).expect("a registered lock");
            let mut hunt = Hunt::new(&player, Mix::Standard, 3);
            let (base, faults) = (Scenario::plain(subject, 3, 2), player.faults(true));
            let catch = hunt.search(&base, faults, Budget::Schedules(3_000), |_| {});
            assert_eq!(catch.map(|catch| catch.line.to_string()), None);
            assert!(hunt.befell.pauses > 100 && hunt.befell.overstayed > 10, "{:?}", hunt.befell);
        }
    }

    /// Clocks decide nothing where there are no leases, however they jump. With leases they decide
    /// who is inside as long as they go as the contract says, and tokens decide beyond that.
    #[test]
    fn clocks_that_go_wrong_cost_nobody_but_tokens_tell() {
        for subject in ["cas", "mcs", "dslr"].into_iter().chain(subjects::LEASED) {
            let player = subjects::player(subject).expect("a registered lock");
            let mut hunt = Hunt::new(&player, Mix::Standard, 5);
            let (base, faults) = (Scenario::plain(subject, 3, 2), player.faults(true));
            let catch = hunt.search(&base, faults, Budget::Schedules(4_000), |_| {});
            assert_eq!(catch.map(|catch| catch.line.to_string()), None);
            assert!(hunt.befell.bad_clocks > 500, "{subject}: {:?}", hunt.befell);
        }
    }

    /// A client learns of its grant after three leases, of which its slow clock shows less than
    /// one. Meanwhile another has taken the lock away, and given it back.
    #[test]
    fn who_learns_of_its_grant_too_late_has_the_lower_token() {
        let line = format!("{}/2x1/m0.0.pause.30000000/k0.-900000000/0", subjects::LEASED[0]);
        let player = subjects::player(subjects::LEASED[0]).expect("a registered lock");
        let (verdict, _) = hunt::replay(&player, &line.parse().expect("a line"));
        assert_eq!((verdict.finding, verdict.befell.stale), (None, 1));
    }

    /// A reader with a fast clock loses patience with a writer, takes the lock away and reads. Then
    /// the writer, whose slow clock shows that its lease has not ended, learns of its grant: its
    /// token is below the reader's, and nobody else's was higher. The judge compared with writers'
    /// tokens alone, and took what comes late for what is granted out of order.
    #[test]
    fn a_reader_may_have_the_higher_token_before_which_a_writer_comes_late() {
        let line = "shiftlock:lease=10000000:strict/2x1/s1/m1.0.pause.10000001/\
                    k0.9000000000+1.-900000000/0.w";
        let player = subjects::player(subjects::LEASED[2]).expect("a registered lock");
        let (verdict, _) = hunt::replay(&player, &line.parse().expect("a line"));
        assert_eq!((verdict.finding, verdict.befell.stale), (None, 1));
    }

    /// Without `strict` a reader's release adds, and far beyond the contract of clocks it comes
    /// after a reset, hides a reader of the next generation from a writer, and so gives both the
    /// same token. That is what the page says; writers' tokens grow all the same.
    #[test]
    fn readers_that_add_too_late_spoil_readers_tokens_alone() {
        for line in [
            "shiftlock:lease=10000000/3x2/sc/hasty/k2.9000000000/\
             0.w-2.1c-2.1c-1.g-2.g-1.1c-1.g-1.g-1.1c-1.w-3.1c",
            "shiftlock:lease=10000000/3x2/s30/hasty-slow/m2.1.pause.5000000/k1.-900000000/\
             0.1c-1.g-1.w-1.g-5.w-1.g-1.w-1.1c-1.1c-1.w-1.w-2.g-3.w-6.w",
        ] {
            let player = subjects::player(subjects::LEASED[1]).expect("a registered lock");
            let (verdict, _) = hunt::replay(&player, &line.parse().expect("a line"));
            assert_eq!(verdict.finding, None, "{line}");
        }
    }

    #[test]
    fn what_is_found_is_shrunk_and_its_line_shows_it_again() {
        let player = subjects::player("none").expect("a registered lock");
        let mut hunt = Hunt::new(&player, Mix::Standard, 7);
        let base = Scenario::plain("none", 4, 3);
        let found = hunt.search(&base, Faults::ALL, Budget::Schedules(100), |_| {});
        let small = shrink(&player, found.expect("the canary is found at once"));
        assert_eq!((small.line.scenario.clients, small.line.scenario.acquisitions), (2, 1));
        assert!(small.line.trail.len() <= 2, "{}", small.line);
        let line: Line = small.line.to_string().parse().expect("a line is a line");
        let (verdict, _) = hunt::replay(&player, &line);
        assert_eq!(verdict.finding, Some(small.finding));
    }

    /// A reader that was stopped around its claim stood for another that had died inside, and a
    /// message found no room beside those that asked for a sign of life.
    #[test]
    fn nobody_waits_for_the_doubtful_or_for_what_found_no_room() {
        for line in [
            "claim:bypass=1/2x2/s6/dany1/many1.stop/\
             6.w-3.g-2.w-3.g-2.w-3.g-2.w-3.g-3.w-1.1-2.g-2.w-1.1-3.1",
            "claim:bypass=1/2x2/s5/y2fca31ef6fca31e9/slow/h1000000/m0.1.pause.30000000/visited/\
             0.w-5.g-4.w",
            "claim:bypass=1/2x2/s5/y2393ab30e393ab31/h1000000/m0.1.stop+0.3.stop/visited/0.w-3.g",
            "claim/3x1/s2/many2.stop/\
             4.w-2.1c-2.g-1.w-2.1c-2.g-1.w-2.1c-2.g-1.w-2.1c-3.1-1.1c-8.1c-8.1c-g.1c-8.1c-c.w-1.1-\
             1.1c",
            "claim:bypass=1/3x2/s31/t2.o0/hasty-slow/recorded/\
             0.1c-1.w-9.w-3.g-1.1c-6.w-1.1-3.1-n.1-3.1-2.w-1.1c-8.1-b.w-8.1c-2.1-9.1-d.1c-1.1-9.1-\
             8.g",
        ] {
            is_in_order(line);
        }
    }

    /// The halves of a word that is read are of different moments: what was seen of the holders was
    /// of one before the count, and the lock came round to the same. A search for the dead
    /// looks at the holders again.
    #[test]
    fn nobody_is_buried_by_halves_of_a_word_that_are_of_different_moments() {
        for line in [
            "claim/6x2/s15d/t4.o0/hasty/l3.d7747048cc24e8af.10.10/x2/c0.0.1/m1.2.pause.5000000/0.1\
             d-1.h-1.29-1.g-1.1c-2.h-2.g-4.1c-1.28-1.1c-1.1d-1.h-1.29-1.g-2.28-2.h-2.28-3.g-1.28-1\
             .h-1.28-2.29-1.29-2.g-3.1c-1.h-2.1-3.1-1.1c-1.1d-2.g-1.1-4.28-2.g-1.1c-2.g-1.h-2.1c-1\
             .28-1.1d-1.28-2.29-1.1c-1.28-1.1-4.1d-2.28-3.g-2.h-1.1c-1.28-1.g-2.1d-1.1-3.1-1.29-1.\
             g-1.1-3.2-3.28-1.29-1.1d-1.28-2.29-1.1c-2.1d-1.28-1.g-2.28-2.1c-2.1d-1.g-j.29-1.1c-2.\
             29-7.1-4.1c-6.28-1.1-9.1c",
            "claim/6x2/sa6/t4.o0/hasty/l3.fdecc2ca76ab7a0e.400.400/x2/c5.0.8/m4.21.pause.5000000+4\
             .1.pause.22500000+0.11.pause.100000000/recorded/0.1d-2.29-1.1d-1.g-1.h-1.28-2.1c-1.h-\
             1.1d-1.g-1.28-1.h-2.h-1.1c-1.28-1.1c-1.1d-1.29-1.29-2.h-3.1c-2.1d-1.g-5.1d-1.h-1.1c-1\
             .1d-1.g-1.g-1.h-2.28-1.g-2.28-1.1c-1.h-1.1c-1.g-2.28-1.h-1.1c-1.28-a.g-1.28-5.29-1.1c\
             -1.1d-2.28-2.1c-1.29-2.1d-1.29-4.g-1.h-3.28-1.29-1.29-4.1c-1.g-1.28-5.1d-1.h-1.28-1.2\
             9-3.1-4.g-7.1-3.1-3.28-2.1-7.1-1.h-2.1-8.28-1.1-4.h-5.1-3.1-j.h-l.1-4.h-1.28-1.h-a.1-\
             5.1-a.1-6.29",
        ] {
            is_in_order(line);
        }
    }

    /// A client that holds one lock and awaits another, in every schedule with a death, and with a
    /// lost completion beside somebody who gives up.
    #[test]
    fn who_holds_one_lock_and_awaits_another_is_explored_whole() {
        let two = CheckArgs { locks: 2, ..two(Mode::Exhaustive) };
        for args in [
            CheckArgs { acquisitions: 2, crashes: 1, ..two.clone() },
            CheckArgs { losses: 1, cancels: 1, ..two },
        ] {
            for subject in ["mcs", "shiftlock", "dslr", "cas"] {
                let player = subjects::player(subject).expect("a registered lock");
                let budget = Budget::Schedules(u64::MAX);
                let row = check(&args, subject, &player, budget, 0, &no_bars());
                assert!(row.complete && row.violations + row.stalls == 0, "{row:?}");
            }
        }
    }

    /// Clients of several slots each, at several locks, under every fault.
    #[test]
    fn slots_of_one_client_are_clients_to_each_other() {
        for mode in [Mode::Pct, Mode::Random] {
            let args = CheckArgs { clients: 6, acquisitions: 2, locks: 3, tasks: 2, ..two(mode) };
            for subject in ["claim", "mcs", "dslr", "local:shiftlock"] {
                let player = subjects::player(subject).expect("a registered lock");
                let row = check(&args, subject, &player, Budget::Schedules(2_000), 0, &no_bars());
                pass(&row, 6).expect("whoever lives is granted");
                assert!(row.befell.given_up > 0 && row.befell.pauses > 0, "{row:?}");
            }
        }
    }

    /// A holder, a waiter behind it, and a dead client behind both. Who came next began a new
    /// generation and died before it had told the waiter. The holder found its lock repaired, had
    /// nothing left to release, and went; the waiter watched the holder, which lived, for ever.
    /// Whoever leaves a broken line without handing over now tells the rest of it.
    #[test]
    fn a_waiter_is_not_forgotten_when_the_repairer_dies_before_it_tells() {
        for line in [
            "shiftlock/4x1/s0/t0.o0/plain/d1.5.never+2.1.executed/c/1.1s-2.1c",
            "mcs/4x2/s0/t0.o0/slow/d0.5.never+2.9.never/c/\
             0.w-1.g-3.1s-e.g-1.w-2.g-3.1s-6.1c-3.w-1.1c-1.w-2.1s",
        ] {
            is_in_order(line);
        }
    }
}
