//! `farlock-lab bench`: subjects measured side by side, in interleaved rounds.
//!
//! A round measures every subject once, so that whatever else the machine does meets all of them.
//! With one client the floor, `raw`, is always measured along, and every lock through both faces.

pub mod crew;
pub mod placement;
pub mod simulated;
pub mod trial;
pub mod worker;

use std::io::Write;
use std::time::Instant;

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum, value_parser};
use farlock_fabric::hook::Counted;
use farlock_fabric::shm::ShmEndpoint;
use farlock_locks::registry::{self, RECORD_LOCKS, Visitor};
use farlock_locks::{RecordLock, Token};
use indicatif::ProgressBar;

use crate::drive::{Course, Tally};
use crate::provenance::Provenance;
use crate::record::{PerAcquisition, PerFace, Row, TxnRow, table};
use crate::rival::{FLOCKS_MAX, MUTEXES_MAX, RIVALS, Rival, rival};
use crate::transactions::{TxnArgs, TxnCourse};
use crate::workload::{Dist, LOCKS_MAX, Workload};
use crew::Crew;
use placement::Placement;
use trial::{Face, Outcome, Span, Trial};

/// The subject that ratios are to.
const FLOOR: &str = "raw";
/// The subject that excludes nobody.
const CANARY: &str = "none";
/// The most clients: each has a place in a region's table, which also has one for its director.
const CLIENTS_MAX: i64 = 1_000;
/// The most tasks of a client, each with a slot: as many as an endpoint of shared memory has.
const TASKS_MAX: i64 = 8;
/// A token has room for so many turns of a hold.
const HANDOVERS_LIMIT: i64 = (1 << Token::TURN_BITS) - 1;
/// The longest work, in nanoseconds.
const WORK_NS_MAX: u64 = 1_000_000_000;
/// Rounds with one client, where ratios count. Short ones, so that some are not disturbed.
const ROUNDS_ALONE: usize = 101;
/// One acquisition in so many is timed: alone on shared memory, and among so many clients or more.
const SAMPLE_ALONE: u32 = 1024;
const SAMPLE_MAX: u32 = 16;
/// The longest warm-up by default in a simulation, in seconds: hundreds of round trips.
const SIMULATED_WARM_UP: f64 = 0.001;
/// Work inside and between, by default, in a simulation: a NIC's client is never infinitely fast.
const SIMULATED_WORK_NS: u64 = 50;

/// Who executes the verbs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Fabric {
    /// Memory shared by processes; clients are processes.
    Shm,
    /// A simulation; clients are tasks, seconds are virtual.
    Sim,
}

/// What to measure.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// Who executes the verbs
    #[arg(long, value_enum, default_value = "shm")]
    pub fabric: Fabric,
    /// Locks to measure, with their options (shiftlock:n=4), or all
    #[arg(long, value_name = "NAME[,NAME..]", value_delimiter = ',', default_value = "all")]
    pub locks_kind: Vec<String>,
    /// Clients: processes on shm, tasks in sim
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u16).range(1..=CLIENTS_MAX))]
    pub clients: u16,
    /// Tasks of each client, on one endpoint
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u16).range(1..=TASKS_MAX))]
    pub tasks: u16,
    /// How often tasks of a client hand a lock on before they give it back (sim); 0 for never
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = value_parser!(u32).range(0..=HANDOVERS_LIMIT))]
    pub handovers: u32,
    /// How many locks there are
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u64).range(1..=LOCKS_MAX))]
    pub locks: u64,
    /// Which of them how often: uniform, or zipf:T
    #[arg(long, default_value = "uniform")]
    pub dist: Dist,
    /// Acquisitions in a hundred that are shared
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    #[arg(value_parser = value_parser!(u8).range(0..=100))]
    pub reads: u8,
    /// How long each subject is measured, spread over the rounds [default: 1; in sim 0.01, virtual]
    #[arg(long, value_name = "S", value_parser = seconds, conflicts_with = "acquisitions")]
    pub seconds: Option<f64>,
    /// How many acquisitions each subject does, of all clients and rounds together
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub acquisitions: Option<u64>,
    /// Decides everything random
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// One line of JSON per subject
    #[arg(long)]
    pub json: bool,
    /// Where clients run (shm) [default: several clients are measured spread, then all on one]
    #[arg(long, value_enum)]
    pub placement: Option<Placement>,
    /// Interleaved rounds, of which the median is reported [default: 101 for one client, else 1]
    #[arg(long, value_name = "R", value_parser = value_parser!(u16).range(1..=1000))]
    pub rounds: Option<u16>,
    /// How long clients run unmeasured first [default: a fifth of a round; in sim at most 0.001]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub warmup: Option<f64>,
    /// Which face of the locks is measured; with one client on shm both are
    #[arg(long, value_enum, default_value = "async")]
    pub face: Face,
    /// The probability with which a holder never releases; locks with leases alone
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = probability)]
    pub skip_release: f64,
    /// Begin with locks whose counts wrap, or are reset, after so many acquisitions
    #[arg(long, value_name = "N")]
    pub near_wrap: Option<u16>,
    /// Transactions
    #[command(flatten)]
    pub txn: TxnArgs,
    /// Work inside the critical section [default: 0; in sim 50]
    #[arg(long, value_name = "NS", value_parser = value_parser!(u64).range(..=WORK_NS_MAX))]
    pub hold_ns: Option<u64>,
    /// Work between two cycles [default: 0; in sim 50]
    #[arg(long, value_name = "NS", value_parser = value_parser!(u64).range(..=WORK_NS_MAX))]
    pub think_ns: Option<u64>,
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.000_001..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds up to 86400".to_owned()),
    }
}

fn probability(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(probability) if (0.0..=0.5).contains(&probability) => Ok(probability),
        _ => Err("a probability up to 0.5".to_owned()),
    }
}

/// Measures, and prints what was measured.
///
/// # Errors
/// A trial did not come to its end, or a lock other than the canary let holders overlap.
pub fn run(args: &BenchArgs) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for placement in args.placements() {
        let placed = measure(args, placement)?;
        show(args, placement, &placed)?;
        rows.extend(placed);
    }
    let broken: Vec<&str> = rows
        .iter()
        .filter(|row| row.violations > 0 && row.protocol != CANARY)
        .map(|row| row.protocol.as_str())
        .collect();
    ensure!(broken.is_empty(), "holders overlapped: {}", broken.join(", "));
    Ok(())
}

fn show(args: &BenchArgs, placement: Placement, rows: &[Row]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if args.json {
        for row in rows {
            writeln!(out, "{}", serde_json::to_string(row)?)?;
        }
    } else {
        if args.placements().len() > 1 {
            writeln!(out, "clients placed: {}", placement.name())?;
        }
        writeln!(out, "{}", table(rows))?;
    }
    Ok(out.flush()?)
}

impl BenchArgs {
    /// Whether a client has several tasks, or several locks at once: no rival can do that.
    fn together(&self) -> bool {
        self.tasks > 1 || self.handovers > 0 || self.txn.txn_locks.is_some()
    }

    /// Where clients run, one after the other. Contended figures depend on it more than on the
    /// lock, so that they are measured both ways unless one is asked for.
    fn placements(&self) -> Vec<Placement> {
        match self.placement {
            Some(placement) => vec![placement],
            None if self.fabric == Fabric::Shm && self.clients > 1 => {
                vec![Placement::Spread, Placement::One]
            }
            None => vec![Placement::Spread],
        }
    }
}

/// Measures every subject; a row each, in the order asked for.
///
/// # Errors
/// What was asked for makes no sense, or a trial did not come to its end.
pub fn measure(args: &BenchArgs, placement: Placement) -> anyhow::Result<Vec<Row>> {
    let bench = Bench::new(args, placement)?;
    let mut executor = match args.fabric {
        Fabric::Sim => Executor::Sim,
        Fabric::Shm => {
            let cores = placement.cores()?;
            Executor::Shm(Crew::start(usize::from(args.clients), args.locks, cores)?)
        }
    };
    let bar = ProgressBar::new((bench.rounds * bench.entries.len()) as u64);
    let mut measured = vec![Measured::default(); bench.entries.len()];
    for round in 0..bench.rounds {
        for (entry, measured) in bench.entries.iter().zip(&mut measured) {
            let trial = bench.trial(entry, round);
            if round == 0 && !trial.counted {
                measured.counted = Some(executor.run(&Trial { counted: true, ..trial.clone() })?);
            }
            measured.rounds.push(executor.run(&trial)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(bench.rows(&measured))
}

/// The trials of one round, in the order in which they are run.
///
/// # Errors
/// What was asked for makes no sense.
pub fn trials(args: &BenchArgs) -> anyhow::Result<Vec<Trial>> {
    let bench = Bench::new(args, Placement::Spread)?;
    Ok(bench.entries.iter().map(|entry| bench.trial(entry, 0)).collect())
}

/// Who runs the trials.
enum Executor {
    Shm(Crew),
    Sim,
}

impl Executor {
    fn run(&mut self, trial: &Trial) -> anyhow::Result<Outcome> {
        match self {
            Self::Shm(crew) => crew.run(trial),
            Self::Sim => {
                let begun = Instant::now();
                let (outcome, effort) = simulated::run(trial)?;
                let wall = begun.elapsed().as_secs_f64();
                let rate = |count: u64| count as f64 / wall / 1e6;
                eprintln!(
                    "{}: {:.2} M acquisitions and {:.2} M events a second of wall time",
                    trial.subject,
                    rate(outcome.acquisitions()),
                    rate(effort.events),
                );
                Ok(outcome)
            }
        }
    }
}

/// All that was measured of an entry.
#[derive(Clone, Debug, Default)]
struct Measured {
    rounds: Vec<Outcome>,
    /// A round more that counts verbs, where the others do not because that would distort them.
    counted: Option<Outcome>,
}

/// A subject through a face.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    subject: String,
    face: Face,
}

/// What is measured: the command line, decided.
struct Bench<'a> {
    args: &'a BenchArgs,
    placement: Placement,
    /// What gets a row.
    subjects: Vec<String>,
    /// What is measured.
    entries: Vec<Entry>,
    rounds: usize,
}

impl<'a> Bench<'a> {
    fn new(args: &'a BenchArgs, placement: Placement) -> anyhow::Result<Self> {
        let subjects = subjects(args)?;
        let together = args.together();
        let alone = args.clients == 1 && args.fabric == Fabric::Shm && !together;
        ensure!(
            args.fabric == Fabric::Shm || args.face == Face::Async,
            "a simulated client cannot block its thread: sim has the async face alone"
        );
        ensure!(
            !together || args.face == Face::Async,
            "tasks of one client share its thread, and transactions are awaited: async face alone"
        );
        ensure!(
            args.handovers == 0 || args.fabric == Fabric::Sim,
            "on shared memory a client's tasks do not overlap while they hold: --fabric sim"
        );
        ensure!(
            args.txn.txn_locks.is_none() || (args.tasks == 1 && args.handovers == 0),
            "each client runs one transaction at a time, which hands nothing on"
        );
        ensure!(
            u64::from(args.txn.txn_locks.unwrap_or(1)) <= args.locks,
            "a transaction takes different locks: there are too few"
        );
        let mut entries: Vec<Entry> = Vec::new();
        let floor = alone.then(|| FLOOR.to_owned());
        for subject in floor.iter().chain(&subjects) {
            let both = alone && rival(subject).is_none();
            let faces = [Face::Async, Face::Blocking];
            for face in faces.into_iter().filter(|face| both || *face == args.face) {
                let entry = Entry { subject: subject.clone(), face };
                if !entries.contains(&entry) {
                    entries.push(entry);
                }
            }
        }
        let rounds = args.rounds.map_or(if alone { ROUNDS_ALONE } else { 1 }, usize::from);
        Ok(Self { args, placement, subjects, entries, rounds })
    }

    fn trial(&self, entry: &Entry, round: usize) -> Trial {
        let args = self.args;
        let sim = args.fabric == Fabric::Sim;
        let work = if sim { SIMULATED_WORK_NS } else { 0 };
        let sample = match (sim, args.clients) {
            (false, 1) => SAMPLE_ALONE,
            // A clock costs nothing in a simulation, but a histogram does.
            (true, clients) => (u32::from(clients) * u32::from(args.tasks)).min(SAMPLE_MAX),
            (false, _) => SAMPLE_MAX,
        };
        let seconds = args.seconds.unwrap_or(if sim { 0.01 } else { 1.0 }) / self.rounds as f64;
        let warm_up = (seconds / 5.0).min(if sim { SIMULATED_WARM_UP } else { f64::INFINITY });
        let span = match args.acquisitions {
            Some(all) => Span::Acquisitions((all / self.rounds as u64).max(1)),
            None => Span::Nanos(nanos(seconds)),
        };
        Trial {
            subject: entry.subject.clone(),
            face: entry.face,
            counted: sim || args.clients > 1 || args.together(),
            clients: usize::from(args.clients),
            tasks: usize::from(args.tasks),
            handovers_max: args.handovers,
            workload: Workload {
                locks: args.locks,
                dist: args.dist,
                reads: args.reads,
                seed: args.seed.wrapping_add(round as u64),
            },
            course: Course {
                hold_ns: args.hold_ns.unwrap_or(work),
                think_ns: args.think_ns.unwrap_or(work),
                sample,
                skip_release: (args.skip_release * Course::CERTAIN) as u32,
            },
            txn: args.txn.course(),
            near_wrap: args.near_wrap,
            warm_up_ns: nanos(args.warmup.unwrap_or(warm_up)),
            span,
        }
    }

    fn rows(&self, measured: &[Measured]) -> Vec<Row> {
        let found = |subject: &str, face: Face| {
            let is_it = |entry: &Entry| {
                entry.subject == subject && (entry.face == face || rival(subject).is_some())
            };
            self.entries.iter().position(is_it).map(|index| &measured[index])
        };
        let rounds_of = |subject: &str, face| found(subject, face).map(|of| of.rounds.as_slice());
        let floor = rounds_of(FLOOR, self.args.face).filter(|_| self.args.clients == 1);
        let row = |subject: &String| {
            let faces = PerFace {
                awaited: rounds_of(subject, Face::Async),
                blocking: rounds_of(subject, Face::Blocking),
            };
            let measured = found(subject, self.args.face).expect("every subject was measured");
            self.row(subject, measured, faces, floor)
        };
        self.subjects.iter().map(row).collect()
    }

    fn row(
        &self,
        subject: &str,
        measured: &Measured,
        faces: PerFace<&[Outcome]>,
        floor: Option<&[Outcome]>,
    ) -> Row {
        let args = self.args;
        let trial = self.trial(&Entry { subject: subject.to_owned(), face: args.face }, 0);
        let median = median_round(&measured.rounds);
        let judged = measured.rounds.iter().chain(&measured.counted);
        let mut latency = crate::latency::Latency::default();
        let tallies = measured.rounds.iter().flat_map(|round| &round.tallies);
        tallies.for_each(|tally| latency.add(&tally.latency));
        let shm = args.fabric == Fabric::Shm;
        Row {
            protocol: subject.to_owned(),
            fabric: if shm { "shm" } else { "sim" }.to_owned(),
            clients: trial.clients,
            tasks: trial.tasks,
            handovers: args.handovers,
            locks: args.locks,
            dist: args.dist.to_string(),
            reads: args.reads,
            seconds: rounded(median.seconds(), 1e9),
            acquisitions: median.acquisitions(),
            goodput_per_s: rounded(median.goodput(), 10.0),
            acquire_ns: latency.summary(),
            per_acquisition: per_acquisition(measured.counted.as_ref().unwrap_or(median)),
            fairness_jain: rounded(median.fairness(), 1e6),
            violations: judged.map(Outcome::violations).sum(),
            seed: args.seed,
            face: if args.face == Face::Async { "async" } else { "blocking" }.to_owned(),
            placement: if shm { self.placement.name() } else { "virtual" }.to_owned(),
            rounds: self.rounds,
            hold_ns: trial.course.hold_ns,
            think_ns: trial.course.think_ns,
            skip_release: args.skip_release,
            near_wrap: args.near_wrap,
            skipped: median.tallies.iter().map(|tally| tally.skipped).sum(),
            lost: median.tallies.iter().map(|tally| tally.lost).sum(),
            cycle_ns: faces.map(|rounds| Some(median_round(rounds).cycle_ns())),
            ratio_to_raw: faces.map(|rounds| Some(median_ratio(rounds, floor?))),
            ratio_to_raw_min: faces.map(|rounds| Some(fastest(rounds) / fastest(floor?))),
            txn: trial.txn.map(|course| txn_row(course, median)),
            provenance: Provenance::here(),
        }
    }
}

fn txn_row(course: TxnCourse, median: &Outcome) -> TxnRow {
    let sum = |of: fn(&Tally) -> u64| median.tallies.iter().map(of).sum();
    TxnRow {
        course,
        commits: median.acquisitions(),
        commits_per_s: rounded(median.goodput(), 10.0),
        aborts: sum(|tally| tally.aborts),
        given_up: sum(|tally| tally.given_up),
    }
}

impl PerFace<&[Outcome]> {
    /// A figure of each face.
    fn map(self, figure: impl Fn(&[Outcome]) -> Option<f64>) -> PerFace<f64> {
        let figure = |rounds: &[Outcome]| figure(rounds).map(|value| rounded(value, 1e3));
        PerFace { awaited: self.awaited.and_then(figure), blocking: self.blocking.and_then(figure) }
    }
}

/// The round with the median rate.
fn median_round(rounds: &[Outcome]) -> &Outcome {
    let mut sorted: Vec<&Outcome> = rounds.iter().collect();
    sorted.sort_by(|a, b| a.goodput().total_cmp(&b.goodput()));
    sorted[sorted.len() / 2]
}

/// The median over the rounds of a cycle's time divided by that of the floor in the same round.
fn median_ratio(rounds: &[Outcome], floor: &[Outcome]) -> f64 {
    let ratio = |(ours, floor): (&Outcome, &Outcome)| ours.cycle_ns() / floor.cycle_ns();
    let mut ratios: Vec<f64> = rounds.iter().zip(floor).map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

fn fastest(rounds: &[Outcome]) -> f64 {
    rounds.iter().map(Outcome::cycle_ns).fold(f64::INFINITY, f64::min)
}

fn per_acquisition(outcome: &Outcome) -> PerAcquisition {
    let cycles = outcome.acquisitions().max(1) as f64;
    let of = |kind: usize| {
        let sum: u64 = outcome.tallies.iter().map(|tally| tally.verbs[kind]).sum();
        rounded(sum as f64 / cycles, 1e6)
    };
    PerAcquisition { atomics: of(0), reads: of(1), writes: of(2), sends: of(3) }
}

/// `value` to one part in `parts` of its unit: what is left out is noise.
fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// The subjects asked for, each checked.
fn subjects(args: &BenchArgs) -> anyhow::Result<Vec<String>> {
    let shm = args.fabric == Fabric::Shm;
    let mut subjects: Vec<String> = Vec::new();
    for name in &args.locks_kind {
        match name.as_str() {
            "all" => {
                let rivals = RIVALS.iter().filter(|_| shm).map(|rival| rival.name);
                let names = rivals.chain(RECORD_LOCKS.iter().map(|lock| lock.name));
                let fits = |name: &&str| {
                    let plays = rival(name).is_none() || !args.together();
                    plays && check(name, shm, args.locks).is_ok()
                };
                subjects.extend(names.filter(fits).map(str::to_owned));
            }
            name => {
                check(name, shm, args.locks)?;
                subjects.push(name.to_owned());
            }
        }
    }
    if let Some(rival) = subjects.iter().find(|name| args.together() && rival(name).is_some()) {
        bail!("'{rival}' has neither tasks nor transactions: each of its clients is a thread");
    }
    let mut seen = std::collections::BTreeSet::new();
    subjects.retain(|subject| seen.insert(subject.clone()));
    for subject in subjects.iter().filter(|_| args.skip_release > 0.0) {
        let leased = rival(subject).is_none() && trial::facts(subject, 0)?.leased;
        ensure!(!args.together(), "who never releases neither hands on nor commits");
        ensure!(leased, "nobody would get '{subject}' that is never released: give it a lease");
    }
    Ok(subjects)
}

fn check(name: &str, shm: bool, locks: u64) -> anyhow::Result<()> {
    match rival(name) {
        None => Ok(registry::visit::<Counted<ShmEndpoint>, _>(name, Understood)?),
        Some(_) if !shm => bail!("'{name}' runs on this machine alone: use --fabric shm"),
        Some(Rival::Flock) if locks > FLOCKS_MAX => {
            bail!("'{name}' needs an open file a lock: at most {FLOCKS_MAX} locks")
        }
        Some(Rival::Pthread) if locks > MUTEXES_MAX => {
            bail!("'{name}' is measured with at most {MUTEXES_MAX} locks")
        }
        Some(_) => Ok(()),
    }
}

/// Only asks whether a name is understood.
struct Understood;

impl Visitor<Counted<ShmEndpoint>> for Understood {
    type Output = ();

    fn visit<L: RecordLock<Counted<ShmEndpoint>>>(self, _: L) {}
}
