//! `farlock-lab bench`: subjects measured side by side, in interleaved rounds.
//!
//! A round measures every subject once, so that whatever else the machine does meets all of them.
//! With one client the floor, `raw`, is always measured along, and every lock through both faces of
//! its client. The faces that people meet, sessions and commands, are subjects like the others.

pub mod crew;
pub mod orders;
pub mod placement;
pub mod simulated;
pub mod trial;
pub mod tries;
pub mod worker;

use std::time::Instant;

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum, value_parser};
use farlock_locks::Token;
use farlock_locks::registry::{self, RECORD_LOCKS};
use indicatif::ProgressBar;

use crate::drive::{Course, Tally};
use crate::face::{self, NAMES_MAX, Program};
use crate::provenance::Provenance;
use crate::range_course::{RangeArgs, RangeCourse};
use crate::record::{PerAcquisition, PerFace, Quarter, RangeRow, Row, TxnRow, table};
use crate::report::show;
use crate::rival::{At, FLOCKS_MAX, MUTEXES_MAX, RIVALS, Rival, measured_at, rival};
use crate::testbed::Testbed;
use crate::transactions::{Mix, TxnArgs, TxnCourse};
use crate::workload::{Dist, LOCKS_MAX, Workload};
use crew::Crew;
use placement::Placement;
use trial::{Arena, Face, Outcome, Span, Trial};

/// The subject that ratios are to.
const FLOOR: &str = "raw";
/// The subject that the system has for the same purpose: ratios are to it as well.
const SYSTEM: &str = "flock";
/// The subject that may not be installed.
const FLOCK_COMMAND: &str = "flock-command";
/// The subject that excludes nobody.
const CANARY: &str = "none";
/// The most clients: each has a place in a region's table, which also has one for its director.
const CLIENTS_MAX: i64 = 1_000;
/// The most tasks of a client, each with a slot: as many as an endpoint of shared memory has.
const TASKS_MAX: i64 = 8;
/// A token has room for so many turns of a hold.
const HANDOVERS_LIMIT: i64 = (1 << Token::TURN_BITS) - 1;
/// The most sessions beside one whose tries are measured.
const ATTACHED_MAX: i64 = 1_000;
/// The longest work, in nanoseconds.
const WORK_NS_MAX: u64 = 1_000_000_000;
/// How often a trial in which verbs are counted is run until there is a cycle in it.
const COUNTED_MAX: usize = 100;
/// Rounds with one client, where ratios count. Short ones, so that some are not disturbed.
const ROUNDS_ALONE: usize = 101;
/// The same where commands are among the subjects: a round must have time for several.
const ROUNDS_OF_COMMANDS: usize = 11;
/// The most memory that clients share on this machine.
const SHARED_BYTES_MAX: u64 = 1 << 30;
/// The most threads of a client.
const THREADS_MAX: i64 = 64;
/// One acquisition in so many is timed: alone on shared memory, and among so many clients or more.
const SAMPLE_ALONE: u32 = 1024;
const SAMPLE_MAX: u32 = 16;
/// The longest warm-up by default in a simulation, in seconds: hundreds of round trips.
const SIMULATED_WARM_UP: f64 = 0.001;
/// Work inside and between, by default, in a simulation: a NIC's client is never infinitely fast.
pub(crate) const SIMULATED_WORK_NS: u64 = 50;

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
    /// The faces that people meet, and their rivals, before any other locks that are named (shm)
    #[arg(long)]
    pub faces: bool,
    /// Locks to measure, with their options (shiftlock:n=4), or all; commands only by name
    #[arg(long, value_name = "NAME[,NAME..]", value_delimiter = ',', default_value = "all")]
    #[arg(default_value_if("faces", "true", "faces"))]
    pub locks_kind: Vec<String>,
    /// Clients: processes on shm, tasks in sim
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u16).range(1..=CLIENTS_MAX))]
    pub clients: u16,
    /// Tasks of each client, on one endpoint
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u16).range(1..=TASKS_MAX))]
    pub tasks: u16,
    /// Threads of each client, on one session; with locks enough each has its own. A list gives a
    /// row for each number
    #[arg(long, value_name = "T[,T..]", value_delimiter = ',', default_value = "1")]
    #[arg(value_parser = value_parser!(u16).range(1..=THREADS_MAX))]
    pub threads: Vec<u16>,
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
    /// Measures instead what a try costs that is refused, one session of `--attached` holding
    #[arg(long, conflicts_with_all = ["faces", "clients", "threads", "tasks"])]
    pub tries: bool,
    /// With --tries: how many other sessions there are, a row for each number
    #[arg(long, value_name = "N[,N..]", value_delimiter = ',', default_value = "1,64,1000")]
    #[arg(value_parser = value_parser!(u16).range(1..=ATTACHED_MAX), requires = "tries")]
    pub attached: Vec<u16>,
    /// Whose machines are simulated (sim), by its name
    #[arg(long, value_name = "NAME")]
    pub testbed: Option<String>,
    /// Ranges
    #[command(flatten)]
    pub ranges: RangeArgs,
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
pub fn run(args: &BenchArgs, origin: &Provenance) -> anyhow::Result<()> {
    if args.tries {
        return tries::run(args.placements()[0], &args.attached, args.json, origin);
    }
    let mut rows = Vec::new();
    for placement in args.placements() {
        let placed = measure(args, placement)?;
        if !args.json && args.placements().len() > 1 {
            println!("clients placed: {}", placement.name());
        }
        show(origin, args.json, &placed, table)?;
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

impl BenchArgs {
    /// Whether a client has several tasks, or several locks at once: no rival can do that.
    fn together(&self) -> bool {
        self.tasks > 1 || self.handovers > 0 || self.txn.course().is_some()
    }

    /// How many locks there are.
    fn locks(&self) -> u64 {
        self.txn.txn_mix.map_or(self.locks, Mix::locks)
    }

    /// Whether transactions can be what is asked for.
    fn check_transactions(&self) -> anyhow::Result<()> {
        ensure!(
            self.txn.course().is_none() || (self.tasks == 1 && self.handovers == 0),
            "each client runs one transaction at a time, which hands nothing on"
        );
        ensure!(
            u64::from(self.txn.txn_locks.unwrap_or(1)) <= self.locks,
            "a transaction takes different locks: there are too few"
        );
        ensure!(
            self.txn.txn_mix.is_none() || self.fabric == Fabric::Sim,
            "a transaction of a benchmark takes more locks than a process may have: --fabric sim"
        );
        Ok(())
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
        Fabric::Sim => Executor::Sim(bench.testbed.clone()),
        Fabric::Shm => {
            let cores = placement.cores()?;
            let faces = bench.subjects.iter().any(|subject| is_face(subject));
            let (clients, words) = (usize::from(args.clients), bench.arena_words()?);
            Executor::Shm(Crew::start(clients, args.locks, words, cores, faces)?)
        }
    };
    let bar = ProgressBar::new((bench.rounds * bench.entries.len()) as u64);
    let mut measured = vec![Measured::default(); bench.entries.len()];
    for round in 0..bench.rounds {
        for (entry, measured) in bench.entries.iter().zip(&mut measured) {
            let trial = bench.trial(entry, round);
            if round == 0 && !trial.counted && trial.threads == 1 {
                measured.counted = Some(executor.count(&trial)?);
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
    Sim(Option<Testbed>),
}

impl Executor {
    /// Runs a trial as one in which verbs are counted, which need some cycles for that: on a busy
    /// machine a short one may pass while all clients stand still.
    fn count(&mut self, trial: &Trial) -> anyhow::Result<Outcome> {
        let counted = Trial { counted: true, ..trial.clone() };
        for _ in 0..COUNTED_MAX {
            let outcome = self.run(&counted)?;
            if outcome.acquisitions() > 0 {
                return Ok(outcome);
            }
        }
        bail!("'{}' was not acquired once in the time of a trial: ask for more", trial.subject)
    }

    fn run(&mut self, trial: &Trial) -> anyhow::Result<Outcome> {
        match self {
            Self::Shm(crew) => crew.run(trial),
            Self::Sim(testbed) => {
                let begun = Instant::now();
                let (outcome, effort) = simulated::run(trial, testbed.as_ref())?;
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
    threads: u16,
}

/// What is measured: the command line, decided.
struct Bench<'a> {
    args: &'a BenchArgs,
    placement: Placement,
    /// Whose machines are simulated, if that is said.
    testbed: Option<Testbed>,
    /// If they are of ranges: which.
    ranges: Option<RangeCourse>,
    /// What gets a row.
    subjects: Vec<String>,
    /// What is measured.
    entries: Vec<Entry>,
    rounds: usize,
}

impl<'a> Bench<'a> {
    fn new(args: &'a BenchArgs, placement: Placement) -> anyhow::Result<Self> {
        let (subjects, ranges) = (subjects(args)?, args.ranges.course()?);
        let together = args.together();
        let alone =
            args.clients == 1 && args.fabric == Fabric::Shm && !together && ranges.is_none();
        let testbed = args.testbed.as_deref().map(Testbed::named).transpose()?;
        ensure!(
            testbed.is_none() || args.fabric == Fabric::Sim,
            "other machines than this one are simulated: --fabric sim"
        );
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
            ranges.is_none() || (!together && args.threads == [1] && args.locks == 1),
            "ranges are of one lock, and each client holds one at a time"
        );
        args.check_transactions()?;
        let mut entries: Vec<Entry> = Vec::new();
        let floor = alone.then(|| FLOOR.to_owned());
        for &threads in &args.threads {
            for subject in floor.iter().chain(&subjects) {
                let both = alone && rival(subject).is_none();
                let faces = [Face::Async, Face::Blocking];
                for face in faces.into_iter().filter(|face| both || *face == args.face) {
                    let entry = Entry { subject: subject.clone(), face, threads };
                    if !entries.contains(&entry) {
                        entries.push(entry);
                    }
                }
            }
        }
        let commands = subjects.iter().any(|subject| measured_at(subject) == At::Command);
        let rounds = match args.rounds {
            Some(rounds) => rounds.into(),
            None if alone && commands => ROUNDS_OF_COMMANDS,
            None if alone => ROUNDS_ALONE,
            None => 1,
        };
        Ok(Self { args, placement, testbed, ranges, subjects, entries, rounds })
    }

    /// The subject as it is measured: of its size, by the testbed's processors.
    fn equipped(&self, subject: &str) -> String {
        let subject = match &self.testbed {
            Some(testbed) => testbed.equipped(subject),
            None => subject.to_owned(),
        };
        self.ranges.map_or(subject.clone(), |ranges| ranges.sized(&subject))
    }

    /// Words in which each of the trials has room.
    fn arena_words(&self) -> anyhow::Result<usize> {
        let words = |entry: &Entry| Arena::of(&self.trial(entry, 0)).words();
        let most = self.entries.iter().map(words).max().unwrap_or(0);
        ensure!(
            most as u64 * 8 <= SHARED_BYTES_MAX,
            "a lock takes {most} words: shared memory is for fewer units, or coarser segments"
        );
        Ok(most)
    }

    /// Whether all trials of this entry are judged and counted in full: where that distorts them,
    /// a round more is.
    fn is_counted(&self, entry: &Entry) -> bool {
        let args = self.args;
        let command = measured_at(&entry.subject) == At::Command;
        let several = args.together() || self.ranges.is_some();
        args.fabric == Fabric::Sim || several || (args.clients > 1 && !command)
    }

    /// Through which face the row of this subject was measured.
    fn face_of(&self, subject: &str) -> &'static str {
        match rival(subject) {
            Some(Rival::SessionAsync) => "async",
            Some(_) => "blocking",
            _ if self.args.face == Face::Async => "async",
            _ => "blocking",
        }
    }

    fn trial(&self, entry: &Entry, round: usize) -> Trial {
        let (args, threads) = (self.args, u64::from(entry.threads));
        let sim = args.fabric == Fabric::Sim;
        let work = if sim { SIMULATED_WORK_NS } else { 0 };
        let sample = match (sim, args.clients) {
            _ if measured_at(&entry.subject) == At::Command => 1,
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
            subject: self.equipped(&entry.subject),
            face: entry.face,
            counted: self.is_counted(entry),
            clients: usize::from(args.clients),
            threads: usize::from(entry.threads),
            tasks: usize::from(args.tasks),
            handovers_max: args.handovers,
            workload: Workload {
                locks: args.locks(),
                dist: args.dist,
                reads: args.reads,
                seed: args.seed.wrapping_add(round as u64),
                dealt: if threads <= args.locks() { threads } else { 1 },
                ranges: self.ranges,
            },
            course: Course {
                hold_ns: args.hold_ns.unwrap_or(work),
                think_ns: args.think_ns.unwrap_or(work),
                sample,
                skip_release: (args.skip_release * Course::CERTAIN) as u32,
            },
            txn: args.txn.course(),
            fs: None,
            near_wrap: args.near_wrap,
            warm_up_ns: nanos(args.warmup.unwrap_or(warm_up)),
            span,
        }
    }

    fn rows(&self, measured: &[Measured]) -> Vec<Row> {
        let numbers = self.args.threads.iter();
        let asked =
            numbers.flat_map(|threads| self.subjects.iter().zip(std::iter::repeat(threads)));
        let row = |(subject, threads): (&String, &u16)| {
            self.row(subject, *threads, &Found { entries: &self.entries, measured })
        };
        asked.map(row).collect()
    }

    fn row(&self, subject: &str, threads: u16, found: &Found<'_>) -> Row {
        let args = self.args;
        let face = args.face;
        let trial = self.trial(&Entry { subject: subject.to_owned(), face, threads }, 0);
        let measured = found.one(subject, face, threads).expect("every subject was measured");
        let faces = PerFace {
            awaited: found.rounds(subject, Face::Async, threads),
            blocking: found.rounds(subject, Face::Blocking, threads),
        };
        let floor = found.rounds(FLOOR, face, threads).filter(|_| args.clients == 1);
        let system = found.rounds(SYSTEM, face, threads);
        let single = found.rounds(subject, face, 1).filter(|_| threads > 1);
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
            threads: trial.threads,
            handovers: args.handovers,
            locks: args.locks(),
            dist: args.txn.txn_mix.map_or(args.dist.to_string(), |mix| mix.name().to_owned()),
            reads: args.txn.txn_mix.map_or(args.reads, Mix::reads),
            seconds: rounded(median.seconds(), 1e9),
            acquisitions: median.acquisitions(),
            goodput_per_s: rounded(median.goodput(), 10.0),
            acquire_ns: latency.summary(),
            per_acquisition: per_acquisition(measured.counted.as_ref().unwrap_or(median)),
            fairness_jain: rounded(median.fairness(), 1e6),
            violations: judged.map(Outcome::violations).sum(),
            seed: args.seed,
            face: self.face_of(subject).to_owned(),
            measured_at: measured_at(subject).name().to_owned(),
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
            ratio_to_flock: system
                .map(|system| rounded(median_ratio(&measured.rounds, system), 1e3)),
            speedup: single.map(|one| rounded(median_gain(&measured.rounds, one), 1e3)),
            p25: quarter(&measured.rounds, floor, system),
            ranges: self.ranges.map(|course| range_row(course, median)),
            txn: trial.txn.map(|course| txn_row(course, median)),
        }
    }
}

/// What was measured, by what it was measured of.
struct Found<'a> {
    entries: &'a [Entry],
    measured: &'a [Measured],
}

impl<'a> Found<'a> {
    fn one(&self, subject: &str, face: Face, threads: u16) -> Option<&'a Measured> {
        let is_it = |entry: &Entry| {
            let through = entry.face == face || rival(subject).is_some();
            entry.subject == subject && entry.threads == threads && through
        };
        self.entries.iter().position(is_it).map(|index| &self.measured[index])
    }

    fn rounds(&self, subject: &str, face: Face, threads: u16) -> Option<&'a [Outcome]> {
        self.one(subject, face, threads).map(|of| of.rounds.as_slice())
    }
}

/// What a quarter of the rounds stayed at or below.
fn quarter(rounds: &[Outcome], floor: Option<&[Outcome]>, system: Option<&[Outcome]>) -> Quarter {
    let ratio = |to: Option<&[Outcome]>| to.map(|to| rounded(low(ratios(rounds, to)), 1e3));
    Quarter {
        goodput_per_s: rounded(low(rounds.iter().map(Outcome::goodput).collect()), 10.0),
        cycle_ns: rounded(low(rounds.iter().map(Outcome::cycle_ns).collect()), 1e3),
        ratio_to_raw: ratio(floor),
        ratio_to_flock: ratio(system),
    }
}

fn range_row(course: RangeCourse, median: &Outcome) -> RangeRow {
    let sum = |of: fn(&Tally) -> u64| median.tallies.iter().map(of).sum();
    let RangeCourse { lengths: range, space, align } = course;
    let false_conflicts = sum(|tally| tally.false_conflicts);
    let (aborts, late) = (sum(|tally| tally.aborts), sum(|tally| tally.late));
    RangeRow { range, space, align, false_conflicts, aborts, late }
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
    median(ratios(rounds, floor))
}

/// Each round's cycle divided by that of the other in the same round.
fn ratios(rounds: &[Outcome], other: &[Outcome]) -> Vec<f64> {
    rounds.iter().zip(other).map(|(ours, other)| ours.cycle_ns() / other.cycle_ns()).collect()
}

/// The median over the rounds of the rate divided by that of the other in the same round.
fn median_gain(rounds: &[Outcome], other: &[Outcome]) -> f64 {
    let gain = |(ours, other): (&Outcome, &Outcome)| ours.goodput() / other.goodput();
    median(rounds.iter().zip(other).map(gain).collect())
}

fn median(values: Vec<f64>) -> f64 {
    let middle = values.len() / 2;
    sorted(values)[middle]
}

/// What a quarter of them is at or below.
fn low(values: Vec<f64>) -> f64 {
    let quarter = values.len() / 4;
    sorted(values)[quarter]
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
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
    let faces = args.faces.then_some("faces");
    for name in faces.into_iter().chain(args.locks_kind.iter().map(String::as_str)) {
        match name {
            "faces" | "all" => {
                ensure!(shm || name == "all", "faces run on this machine alone: use --fabric shm");
                subjects.extend(group(name, args).map(str::to_owned));
            }
            name => {
                check(name, args)?;
                subjects.push(name.to_owned());
            }
        }
    }
    ensure!(!subjects.is_empty(), "nothing that was asked for is left to measure");
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

/// What a name for several subjects means: those that can do what was asked for.
fn group<'a>(name: &'a str, args: &'a BenchArgs) -> impl Iterator<Item = &'static str> + 'a {
    let faces = name == "faces";
    let rivals = RIVALS.iter().filter(move |rival| faces || rival.at != At::Command);
    let rivals = rivals.filter(|_| args.fabric == Fabric::Shm).map(|rival| rival.name);
    let locks = RECORD_LOCKS.iter().filter(move |_| !faces).map(|lock| lock.name);
    rivals.chain(locks).filter(move |name| {
        let missing = *name == FLOCK_COMMAND && faces && face::flock().is_none();
        if missing {
            eprintln!("{FLOCK_COMMAND} is skipped: flock(1) is not installed");
        }
        let plays = rival(name).is_none() || !args.together();
        plays && !missing && check(name, args).is_ok()
    })
}

fn is_face(name: &str) -> bool {
    matches!(measured_at(name), At::Session | At::Command)
}

fn check(name: &str, args: &BenchArgs) -> anyhow::Result<()> {
    let locks = args.locks;
    let alone = args.threads.iter().all(|threads| *threads == 1);
    let threads = [Rival::Session, Rival::SessionAsync, Rival::Raw, Rival::ParkingLot];
    match rival(name) {
        Some(_) if args.fabric != Fabric::Shm => {
            bail!("'{name}' runs on this machine alone: use --fabric shm")
        }
        rival if !alone && rival.is_none_or(|rival| !threads.contains(&rival)) => {
            bail!("'{name}' shares no session among threads")
        }
        None => {
            let is_in_parts = registry::kind(name)?.units().is_some();
            ensure!(is_in_parts || args.ranges.range.is_none(), "'{name}' has no ranges");
            Ok(())
        }
        Some(_) if args.ranges.range.is_some() => bail!("'{name}' has no ranges"),
        Some(Rival::Flock | Rival::Command(Program::Flock)) if locks > FLOCKS_MAX => {
            bail!("'{name}' needs a file a lock: at most {FLOCKS_MAX} locks")
        }
        Some(Rival::Pthread(_)) if locks > MUTEXES_MAX => {
            bail!("'{name}' is measured with at most {MUTEXES_MAX} locks")
        }
        Some(_) if is_face(name) && locks > NAMES_MAX => {
            bail!("'{name}' is measured with at most {NAMES_MAX} names")
        }
        Some(_) => Ok(()),
    }
}
