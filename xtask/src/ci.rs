//! Runs steps, each under its cap, and says how each ended.
//!
//! A step's output passes through as it comes, and what failed says so again at the end. The last
//! line of a run is always `N passed, M failed`, with `, K skipped` when steps could not run here,
//! and nothing else.

use std::io::Write as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use comfy_table::Table;

use crate::child::{self, End, Stream};
use crate::gist::Gist;
use crate::pace::Pace;
use crate::reasons::Reasons;
use crate::skips::{self, Skip};
use crate::steps::Step;

/// Of what the steps before it have left of their caps, so much any step may use, as caps are where
/// they hold as written: one machine is slower than another, and so is one hour. The whole is none
/// the longer.
const LENT: Duration = Duration::from_secs(120);

/// Where and how steps run.
pub(crate) struct Runner<'a> {
    /// The root of the repository.
    pub(crate) root: &'a Path,
    /// This program, which some steps call.
    pub(crate) xtask: &'a Path,
    /// Whether programs are built so that a second build is quick, which costs the first one.
    pub(crate) builds_again: bool,
    /// How much more time than is written steps get here.
    pub(crate) pace: Pace,
    /// Set when the run shall end.
    pub(crate) stop: &'a AtomicBool,
    /// Where lines go.
    pub(crate) print: fn(Stream, &str),
}

/// Since when a step runs, and how long it may.
#[derive(Clone, Copy, Debug)]
struct Until {
    begun: Instant,
    most: Duration,
}

impl Until {
    fn left(self) -> Duration {
        self.most.saturating_sub(self.begun.elapsed())
    }
}

/// How a step ended.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Verdict {
    Passed,
    Failed(String),
    Skipped,
}

/// A step's row in the table at the end.
#[derive(Debug)]
struct Row {
    step: Step,
    verdict: Verdict,
    elapsed: Duration,
    /// Its time limit on this machine.
    cap: Duration,
    skips: Vec<Skip>,
    gist: Gist,
}

/// The steps named, in the order of `table`; all of them if none is named.
///
/// # Errors
/// A name is not in the table.
pub(crate) fn select(table: &[Step], names: &[String]) -> Result<Vec<Step>> {
    if let Some(unknown) = names.iter().find(|&n| table.iter().all(|step| step.name != n)) {
        bail!("no step is called {unknown}; --list shows them all");
    }
    let chosen = |step: &&Step| names.is_empty() || names.iter().any(|n| n == step.name);
    Ok(table.iter().filter(chosen).copied().collect())
}

/// Prints the steps, their caps and what they show.
pub(crate) fn list(steps: &[Step]) -> Result<()> {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["step", "cap", "what it shows"]);
    for step in steps {
        table.add_row([step.name, &format!("{} min", step.cap_minutes), step.title]);
    }
    writeln!(std::io::stdout(), "{table}").context("the list cannot be written")
}

impl Runner<'_> {
    /// Runs `steps` to the end, whatever fails, within `whole` if one is given.
    ///
    /// # Errors
    /// The list of allowed skips cannot be read.
    pub(crate) fn run(&self, steps: &[Step], whole: Option<Duration>) -> Result<ExitCode> {
        let path = self.root.join(skips::ALLOWED);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let allowed = Reasons::parse(&text)?;
        let begun = Instant::now();
        let (mut rows, mut spare) = (Vec::new(), Duration::ZERO);
        for &step in steps {
            let left = whole.map_or(Duration::MAX, |w| w.saturating_sub(begun.elapsed()));
            let cap = self.pace.stretch(step.cap());
            let most = most(cap, spare, self.pace.stretch(LENT));
            let row = self.step(step, left.min(most), &allowed);
            spare = (spare + cap).saturating_sub(row.elapsed);
            (self.print)(Stream::Out, &row.line());
            rows.push(row);
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        for row in rows.iter().filter(|row| matches!(row.verdict, Verdict::Failed(_))) {
            (self.print)(Stream::Out, &format!("\n{}; what it said of it:", row.line()));
            row.gist.lines().for_each(|line| (self.print)(Stream::Out, line));
        }
        println!("\n{}\n", table(&rows, begun.elapsed()));
        println!("{}", summary(&rows));
        let failed = rows.iter().any(|row| matches!(row.verdict, Verdict::Failed(_)));
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn step(&self, step: Step, most: Duration, allowed: &Reasons) -> Row {
        let (name, title, cap) = (step.name, step.title, self.pace.stretch(step.cap()));
        let seconds = cap.as_secs();
        (self.print)(Stream::Out, &format!("\n== {name}: {title} (at most {seconds} s)"));
        let begun = Instant::now();
        let mut skips = Vec::new();
        let mut gist = Gist::default();
        let verdict = self
            .commands(step, most, |stream, line| {
                (self.print)(stream, line);
                skips.extend(Skip::announced(line));
                gist.hear(line);
            })
            .unwrap_or_else(|error| Verdict::Failed(format!("{error:#}")));
        let verdict = judge_skips(verdict, step, &skips, allowed);
        Row { step, verdict, elapsed: begun.elapsed(), cap, skips, gist }
    }

    fn commands(
        &self,
        step: Step,
        most: Duration,
        hear: impl FnMut(Stream, &str) + Send,
    ) -> Result<Verdict> {
        let until = Until { begun: Instant::now(), most };
        let hear = Mutex::new(hear);
        for line in step.commands {
            let why = self.command(step, line, until, |stream, line| lock(&hear)(stream, line))?;
            if let Some(why) = why {
                return Ok(Verdict::Failed(why));
            }
        }
        self.side_by_side(step, until, &hear)
    }

    /// Runs those of a step's commands that may run beside others, one for each core at a time.
    /// What one of them says is handed on when it has ended; none begins after one has failed.
    fn side_by_side(
        &self,
        step: Step,
        until: Until,
        hear: &Mutex<impl FnMut(Stream, &str) + Send>,
    ) -> Result<Verdict> {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
        let work = || {
            while lock(&failure).is_none()
                && let Some(line) = step.side_by_side.get(next.fetch_add(1, Ordering::Relaxed))
            {
                let mut said = Vec::new();
                let each = |stream, line: &str| said.push((stream, line.to_owned()));
                let why = self.command(step, line, until, each).transpose();
                let mut hear = lock(hear);
                said.iter().for_each(|(stream, line)| hear(*stream, line));
                if why.is_some() {
                    *lock(&failure) = why;
                }
            }
        };
        std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
        let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner).transpose()?;
        Ok(failure.map_or(Verdict::Passed, Verdict::Failed))
    }

    /// Runs one command, and hands on each line that it writes, between what it is and how long it
    /// took. Says why it failed, if it did.
    fn command(
        &self,
        step: Step,
        line: &str,
        until: Until,
        mut each: impl FnMut(Stream, &str),
    ) -> Result<Option<String>> {
        each(Stream::Out, &format!("$ {line}"));
        let mut words = line.split_whitespace();
        let program = words.next().expect("a command names a program");
        let mut command = Command::new(self.program(program));
        command.args(words).envs(step.env.iter().copied()).current_dir(self.root);
        if !self.builds_again {
            command.env("CARGO_INCREMENTAL", "0");
        }
        let started = Instant::now();
        let end = child::run(&mut command, until.left(), self.stop, &mut each);
        let end = end.with_context(|| format!("{program} does not start"))?;
        each(Stream::Out, &format!("({:.1} s: {line})", started.elapsed().as_secs_f64()));
        let why = match end {
            End::Exited(status) if status.success() => return Ok(None),
            End::Exited(status) => status.to_string(),
            End::OverLimit => format!("killed after {} s, its cap", until.most.as_secs()),
            End::LeftBehind => "left processes behind".to_owned(),
            End::Interrupted => "interrupted".to_owned(),
        };
        Ok(Some(format!("{line}: {why}")))
    }

    fn program(&self, name: &str) -> PathBuf {
        if name == "xtask" { self.xtask.to_owned() } else { name.into() }
    }
}

/// What threads share here is whole even if one of them panicked, which its scope passes on.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a step of this cap may take where those before it have left so much of theirs, and so
/// much may be lent.
fn most(cap: Duration, spare: Duration, lent: Duration) -> Duration {
    cap + spare.min(lent)
}

/// A step whose skips are not all on the list fails. One that skips itself, by its own name, has
/// not passed.
fn judge_skips(verdict: Verdict, step: Step, skips: &[Skip], allowed: &Reasons) -> Verdict {
    if verdict != Verdict::Passed {
        return verdict;
    }
    match skips.iter().find(|skip| !skip.is_allowed(allowed)) {
        Some(skip) => Verdict::Failed(format!("{} does not list `{skip}`", skips::ALLOWED)),
        None if skips.iter().any(|skip| skip.id == step.name) => Verdict::Skipped,
        None => verdict,
    }
}

/// Passes a line on to our own stream.
pub(crate) fn print(stream: Stream, line: &str) {
    // What nobody can read any more is no reason to end: the status tells.
    let _ = match stream {
        Stream::Out => writeln!(std::io::stdout(), "{line}"),
        Stream::Err => writeln!(std::io::stderr(), "{line}"),
    };
}

impl Row {
    fn outcome(&self) -> &'static str {
        match self.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed(_) => "FAILED",
            Verdict::Skipped => "skipped",
        }
    }

    fn line(&self) -> String {
        let why = match &self.verdict {
            Verdict::Failed(why) => format!(": {why}"),
            Verdict::Passed | Verdict::Skipped => String::new(),
        };
        let (name, outcome) = (self.step.name, self.outcome());
        format!("== {name}: {outcome} in {:.1} s{why}", self.elapsed.as_secs_f64())
    }
}

fn table(rows: &[Row], elapsed: Duration) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["step", "outcome", "seconds", "cap", "skips"]);
    for row in rows {
        let skips: Vec<String> =
            row.skips.iter().map(|s| format!("{}: {}", s.id, s.reason)).collect();
        table.add_row([
            row.step.name.to_owned(),
            row.outcome().to_owned(),
            format!("{:.1}", row.elapsed.as_secs_f64()),
            row.cap.as_secs().to_string(),
            skips.join("; "),
        ]);
    }
    table.add_row(["whole", "", &format!("{:.1}", elapsed.as_secs_f64()), "", ""]);
    table
}

fn summary(rows: &[Row]) -> String {
    let count = |is: fn(&Verdict) -> bool| rows.iter().filter(|row| is(&row.verdict)).count();
    let passed = count(|v| *v == Verdict::Passed);
    let failed = count(|v| matches!(v, Verdict::Failed(_)));
    let skipped = count(|v| *v == Verdict::Skipped);
    let tail = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
    format!("{passed} passed, {failed} failed{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::CI;

    fn row(verdict: Verdict) -> Row {
        Row {
            step: CI[0],
            verdict,
            elapsed: Duration::ZERO,
            cap: LENT,
            skips: Vec::new(),
            gist: Gist::default(),
        }
    }

    #[test]
    fn the_last_line_counts_steps() {
        let failed = || row(Verdict::Failed("why".to_owned()));
        assert_eq!(summary(&[row(Verdict::Passed), failed()]), "1 passed, 1 failed");
        let rows = [row(Verdict::Passed), row(Verdict::Skipped)];
        assert_eq!(summary(&rows), "1 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn an_unlisted_skip_fails_a_step_that_passed() {
        let skips = [Skip { id: "rdma-vm".to_owned(), reason: "no qemu".to_owned() }];
        let judge = |list: &str| {
            let list = Reasons::parse(list).unwrap();
            judge_skips(Verdict::Passed, CI[0], &skips, &list)
        };
        assert!(matches!(judge(""), Verdict::Failed(_)));
        assert_eq!(judge("rdma-vm: needs a virtual machine"), Verdict::Passed);
    }

    #[test]
    fn a_step_that_skips_itself_has_not_passed() {
        let skips = [Skip { id: CI[0].name.to_owned(), reason: "why".to_owned() }];
        let listed = Reasons::parse(&format!("{}: why", CI[0].name)).unwrap();
        assert_eq!(judge_skips(Verdict::Passed, CI[0], &skips, &listed), Verdict::Skipped);
    }

    #[test]
    fn steps_are_chosen_by_name_and_run_in_the_order_of_the_table() {
        let names = ["api".to_owned(), "lint".to_owned()];
        let chosen: Vec<_> = select(CI, &names).unwrap().iter().map(|s| s.name).collect();
        assert_eq!(chosen, ["lint", "api"]);
        assert_eq!(select(CI, &[]).unwrap().len(), CI.len());
        assert!(select(CI, &["nonsense".to_owned()]).is_err());
    }

    #[test]
    fn a_step_may_use_what_was_left_and_may_be_lent_and_no_more() {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        assert_eq!(most(minutes(2), Duration::ZERO, minutes(2)), minutes(2));
        assert_eq!(most(minutes(2), minutes(1), minutes(2)), minutes(3));
        assert_eq!(most(minutes(2), minutes(7), minutes(2)), minutes(4));
    }

    fn runner(stop: &AtomicBool) -> Runner<'_> {
        Runner {
            root: Path::new("/"),
            xtask: Path::new("false"),
            builds_again: true,
            pace: Pace::AS_WRITTEN,
            stop,
            print: |_, _| {},
        }
    }

    #[test]
    fn commands_side_by_side_all_run_until_one_fails_and_what_each_says_stays_together() {
        let (stop, mut heard) = (AtomicBool::new(false), Vec::new());
        let runner = runner(&stop);
        let mut run = |side_by_side| {
            heard.clear();
            let step = Step { commands: &[], side_by_side, ..CI[0] };
            let verdict = runner.commands(step, LENT, |_, line| heard.push(line.to_owned()));
            (verdict.expect("they start"), heard.clone())
        };
        let (verdict, heard) = run(&["seq 3", "seq 4 6", "seq 7 9"]);
        assert_eq!(verdict, Verdict::Passed);
        let mut runs: Vec<_> = heard.chunks(5).map(|run| run[..4].join(" ")).collect();
        runs.sort();
        assert_eq!(runs, ["$ seq 3 1 2 3", "$ seq 4 6 4 5 6", "$ seq 7 9 7 8 9"]);
        let (verdict, heard) = run(&["false"; 999]);
        assert!(matches!(verdict, Verdict::Failed(why) if why.starts_with("false: ")));
        assert!(heard.len() < 999);
        let step = Step { commands: &[], side_by_side: &["/none"], ..CI[0] };
        assert!(runner.commands(step, LENT, |_, _| {}).is_err());
    }

    #[test]
    fn a_step_that_prints_a_skip_is_found_out() {
        let stop = AtomicBool::new(false);
        let runner = runner(&stop);
        let allowed = Reasons::parse("listed: reason").unwrap();
        let mut step = CI[0];
        step.commands = &["echo SKIP listed: here"];
        let row = runner.step(step, LENT, &allowed);
        assert_eq!((row.verdict, row.skips.len()), (Verdict::Passed, 1));
        step.commands = &["echo SKIP other: here"];
        assert!(matches!(runner.step(step, LENT, &allowed).verdict, Verdict::Failed(_)));
        step.commands = &["xtask"];
        assert!(matches!(runner.step(step, LENT, &allowed).verdict, Verdict::Failed(_)));
    }
}
