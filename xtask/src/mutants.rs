//! Changes the program in hundreds of small ways and sees whether a test notices.
//!
//! What is not mutated, and why, stands in `.cargo/mutants.toml`. Each part of the program has its
//! judges: the quickest that knows it first, the next for what that one let through. A change that
//! none notices is a survivor. Those that change nothing that a caller could see stand in
//! `.cargo/survivors`, each with its reason; of the rest so many in a hundred must be noticed.
//!
//! All changes take days, so a night tries every so manieth: the next night the ones after them, or
//! those that a seed draws.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::skips::Skip;
use crate::tools::{self, MUTANTS};

/// The step, and the skip where the tool cannot be had.
const STEP: &str = "mutants";
/// Of a hundred changes that a test could see so many must be noticed.
const SCORE_MIN: u64 = 90;
/// Nights in which every change is tried once.
const NIGHTS: u64 = 28;
/// Of each scene, where a judge plays schedules in a build that is not optimised.
const SCHEDULES: &str = "1000";
/// Where changes stand that no caller can see.
const SURVIVORS: &str = ".cargo/survivors";

/// A part of the program, and the judges of its changes, one after the other.
struct Part {
    name: &'static str,
    package: &'static str,
    files: &'static [&'static str],
    judges: &'static [Judge],
}

/// Tests that know a part.
struct Judge {
    /// Whose tests.
    package: &'static str,
    /// What `cargo test` is told beside that.
    words: &'static [&'static str],
    /// Of those tests, the ones whose names contain this.
    only: &'static str,
    /// What the compiler is told.
    flags: &'static str,
    /// After so many seconds a run of them is taken to hang, as a lock may that was changed: much
    /// longer than it takes beside others, for what hangs counts as noticed.
    seconds_max: u64,
}

const TESTS: Judge = Judge { package: "", words: &[], only: "", flags: "", seconds_max: 240 };

const PARTS: [Part; 4] = [
    Part {
        name: "list",
        package: "farlock-local",
        files: &["crates/local/src/list/**"],
        judges: &[
            Judge { package: "farlock-local", seconds_max: 60, ..TESTS },
            Judge {
                package: "farlock-local",
                words: &["--test=shuttle"],
                flags: "--cfg=shuttle",
                seconds_max: 900,
                ..TESTS
            },
            Judge {
                package: "farlock-local",
                words: &["--test=loom"],
                flags: "--cfg=loom",
                seconds_max: 900,
                ..TESTS
            },
        ],
    },
    Part {
        name: "shm",
        package: "farlock-fabric",
        files: &["crates/fabric/src/shm/**"],
        judges: &[
            // What servers do with a region is compiled with that feature alone.
            Judge { package: "farlock-fabric", words: &["--all-features"], ..TESTS },
            Judge {
                package: "farlock-fabric",
                words: &["--test=shuttle"],
                flags: "--cfg=shuttle",
                seconds_max: 900,
                ..TESTS
            },
            Judge { package: "farlock", words: &["--tests"], seconds_max: 600, ..TESTS },
        ],
    },
    Part {
        name: "service",
        package: "farlock",
        files: &["crates/service/src/directory/**", "crates/service/src/session/**"],
        judges: &[
            Judge { package: "farlock", words: &["--lib"], ..TESTS },
            Judge { package: "farlock", words: &["--tests"], seconds_max: 600, ..TESTS },
        ],
    },
    Part {
        name: "locks",
        package: "farlock-locks",
        files: &["crates/locks/src/**"],
        judges: &[
            // Built and run in a fraction of the time of those below.
            Judge { package: "farlock-check", words: &["--lib"], only: "every_lock", ..TESTS },
            Judge {
                package: "farlock-locks",
                words: &["--lib", "--test=handed_on", "--test=seats"],
                ..TESTS
            },
            Judge { package: "farlock-locks", words: &["--tests"], seconds_max: 600, ..TESTS },
            Judge { package: "farlock-check", words: &["--lib"], seconds_max: 900, ..TESTS },
            // What is done with locks alone above: ranges are divided, and updates combined.
            Judge {
                package: "farlock-kv",
                words: &["--test=simulated"],
                only: "combining",
                ..TESTS
            },
            Judge { package: "farlock", words: &["--tests"], seconds_max: 600, ..TESTS },
        ],
    },
];

/// What a judge is given.
enum Changes {
    /// Of all changes of the part one in so many, from which on.
    Share(u64, u64),
    /// Those that the judges before it let through.
    Named(Vec<String>),
}

/// How a run went.
#[derive(PartialEq, Eq, Debug, Default)]
struct Score {
    /// A test failed, or ran far longer than ever.
    noticed: u64,
    /// No test noticed, and it stands on no list.
    survivors: Vec<String>,
    /// No test noticed, and none can.
    unseen: u64,
    /// It did not compile.
    unviable: u64,
}

/// Tries this night's changes, or those that are chosen.
///
/// # Errors
/// A program does not start, or what it wrote cannot be read.
pub(crate) fn run(root: &Path, target: &Path, choice: &Choice) -> Result<ExitCode> {
    let Some(program) = tools::require(MUTANTS, target)? else {
        let reason = format!("{} cannot be installed here", MUTANTS.name);
        println!("{}", Skip { id: STEP.to_owned(), reason });
        return Ok(ExitCode::SUCCESS);
    };
    let night = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / (24 * 60 * 60);
    let shard = (choice.share(night), choice.of);
    let unseen = survivors(&std::fs::read_to_string(root.join(SURVIVORS))?)?;
    let mut outcomes = BTreeMap::new();
    for part in PARTS.iter().filter(|part| choice.has(part)) {
        println!("{}: one in {}, from the {}th on", part.name, shard.1, shard.0);
        for (number, judge) in part.judges.iter().enumerate() {
            let output = target.join("mutants").join(part.name);
            if number == 0 && output.exists() {
                std::fs::remove_dir_all(&output)?;
            }
            std::fs::create_dir_all(&output)?;
            let changes = match number {
                0 => Changes::Share(shard.0, shard.1),
                _ => Changes::Named(let_through(&outcomes, part)),
            };
            let found = judge.judge(part, &changes, root, &program, &output)?;
            let Some(found) = found else { break };
            outcomes.extend(summaries(&found)?);
        }
    }
    let score = Score::of(&outcomes, &unseen)?;
    for survivor in &score.survivors {
        println!("survived: {survivor}");
    }
    println!("{}", score.line());
    let enough = score.percent() >= SCORE_MIN;
    Ok(if enough { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Part {
    /// The tool, told of this part.
    fn tool(&self, root: &Path, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(root).arg("mutants").arg(format!("--package={}", self.package));
        command.args(self.files.iter().map(|files| format!("--file={files}")));
        command
    }

    /// Has the tool take all changes but these for caught, which it passes over in `--iterate`. (A
    /// pattern of names lets all through that take a field away, whatever they are called; and with
    /// `--iterate` alone a share is drawn anew from the rest.)
    fn pass_over_all_but(
        &self,
        names: &[String],
        root: &Path,
        program: &Path,
        output: &Path,
    ) -> Result<()> {
        let listed = self.tool(root, program).arg("--list").output()?;
        ensure!(listed.status.success(), "{}: {}", MUTANTS.name, listed.status);
        let listed = String::from_utf8(listed.stdout)?;
        let results = output.join("mutants.out");
        if results.exists() {
            std::fs::remove_dir_all(&results)?;
        }
        std::fs::create_dir_all(&results)?;
        Ok(std::fs::write(results.join("caught.txt"), all_but(&listed, names))?)
    }
}

/// The lines that are none of these names.
fn all_but(listed: &str, names: &[String]) -> String {
    let others = listed.lines().filter(|line| !names.iter().any(|name| name == line));
    others.map(|line| format!("{line}\n")).collect()
}

impl Judge {
    /// Has these changes of a part tested. `None`: there were none.
    fn judge(
        &self,
        part: &Part,
        changes: &Changes,
        root: &Path,
        program: &Path,
        output: &Path,
    ) -> Result<Option<Value>> {
        let mut command = part.tool(root, program);
        command.args(["--no-shuffle", "--output"]).arg(output);
        match changes {
            Changes::Share(share, of) => {
                command.arg("--sharding=round-robin").arg(format!("--shard={share}/{of}"));
            }
            Changes::Named(names) if names.is_empty() => return Ok(None),
            Changes::Named(names) => {
                part.pass_over_all_but(names, root, program, output)?;
                command.arg("--iterate");
            }
        }
        command.arg(format!("--test-package={}", self.package));
        command.arg(format!("--timeout={}", self.seconds_max));
        // Of what is built as well as of what is run: other tests may not build with these flags.
        command.args(self.words.iter().map(|word| format!("--cargo-arg={word}")));
        if !self.only.is_empty() {
            command.arg(format!("--cargo-test-arg={}", self.only));
        }
        if !self.flags.is_empty() {
            command.env("RUSTFLAGS", self.flags).env("FARLOCK_SCHEDULES", SCHEDULES);
        }
        let status = command
            .stdin(Stdio::null())
            .status()
            .with_context(|| format!("{} does not start", MUTANTS.name))?;
        // Survivors and time-outs are outcomes; anything else is a failure of the tool.
        ensure!(matches!(status.code(), Some(0 | 2 | 3)), "{}: {status}", MUTANTS.name);
        let outcomes = std::fs::read(output.join("mutants.out/outcomes.json"));
        Ok(outcomes.ok().map(|outcomes| serde_json::from_slice(&outcomes)).transpose()?)
    }
}

/// Which changes are tried.
#[derive(clap::Args)]
pub(crate) struct Choice {
    /// Those that this commit draws, rather than this night's.
    #[arg(long, value_name = "COMMIT", value_parser = seed)]
    seed: Option<u64>,
    /// One in so many.
    #[arg(long, default_value_t = NIGHTS, value_parser = clap::value_parser!(u64).range(1..))]
    of: u64,
    /// In these parts; in all, where none is named.
    #[arg(value_parser = PARTS.map(|part| part.name))]
    parts: Vec<String>,
}

/// What a commit draws.
fn seed(commit: &str) -> Result<u64> {
    let digits: String = commit.chars().take(12).collect();
    u64::from_str_radix(&digits, 16).context("a seed is a commit's hash")
}

impl Choice {
    /// The first change that is tried, in this night unless a commit draws them.
    fn share(&self, night: u64) -> u64 {
        self.seed.unwrap_or(night) % self.of
    }

    fn has(&self, part: &Part) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|name| name == part.name)
    }
}

/// The list of changes that no caller can see: `CHANGE # REASON`, one a line, without line numbers.
fn survivors(text: &str) -> Result<BTreeMap<String, String>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entry = |line: &str| {
        let (change, reason) = line.split_once(" # ").with_context(|| format!("no # in {line}"))?;
        Ok((change.trim().to_owned(), reason.trim().to_owned()))
    };
    lines.map(entry).collect()
}

/// A change without the line and column that it was at.
fn lasting(name: &str) -> String {
    let mut parts = name.splitn(4, ':');
    let (file, at) = (parts.next().unwrap_or(name), (parts.next(), parts.next()));
    match (at, parts.next()) {
        ((Some(_), Some(_)), Some(change)) => format!("{file}: {}", change.trim()),
        _ => name.to_owned(),
    }
}

fn is_noticed(summary: &str) -> bool {
    matches!(summary, "CaughtMutant" | "Timeout")
}

/// The changes of this part that no judge has noticed so far.
fn let_through(outcomes: &BTreeMap<String, String>, part: &Part) -> Vec<String> {
    let folders = || part.files.iter().map(|files| files.trim_end_matches('*'));
    let is_its = |name: &str| folders().any(|folder| name.starts_with(folder));
    let left = outcomes.iter().filter(|(name, outcome)| is_its(name) && *outcome == "MissedMutant");
    left.map(|(name, _)| name.clone()).collect()
}

/// What became of each change.
fn summaries(outcomes: &Value) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for outcome in outcomes["outcomes"].as_array().context("there are no outcomes")? {
        let mutant = &outcome["scenario"]["Mutant"];
        if mutant.is_null() {
            continue;
        }
        let summary = outcome["summary"].as_str().context("an outcome has no summary")?;
        let name = mutant["name"].as_str().context("a mutant has no name")?;
        found.push((name.to_owned(), summary.to_owned()));
    }
    Ok(found)
}

impl Score {
    /// The score of what became of each change.
    fn of(outcomes: &BTreeMap<String, String>, unseen: &BTreeMap<String, String>) -> Result<Self> {
        let mut score = Self::default();
        for (name, summary) in outcomes {
            match summary.as_str() {
                noticed if is_noticed(noticed) => score.noticed += 1,
                "Unviable" => score.unviable += 1,
                _ if unseen.contains_key(&lasting(name)) => score.unseen += 1,
                _ => score.survivors.push(name.clone()),
            }
        }
        ensure!(score.noticed + score.survivors.len() as u64 > 0, "nothing was tried");
        Ok(score)
    }

    fn percent(&self) -> u64 {
        100 * self.noticed / (self.noticed + self.survivors.len() as u64)
    }

    fn line(&self) -> String {
        format!(
            "{} changes noticed, {} survived, {} that nobody can see, {} did not compile: {} %, \
             wanted {SCORE_MIN} %",
            self.noticed,
            self.survivors.len(),
            self.unseen,
            self.unviable,
            self.percent()
        )
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn outcome(name: &str, summary: &str) -> Value {
        serde_json::json!({"scenario": {"Mutant": {"name": name}}, "summary": summary})
    }

    #[test]
    fn the_next_judge_gets_what_was_let_through_and_nothing_else() {
        let [part, ..] = &PARTS;
        let outcomes = [
            ("crates/local/src/list/a.rs:1:2: replace a -> b with c", "MissedMutant"),
            ("crates/local/src/list/a.rs:2:2: x", "CaughtMutant"),
            ("crates/local/src/list/a.rs:3:2: x", "Timeout"),
            ("crates/local/src/list/a.rs:4:2: x", "Unviable"),
            ("crates/fabric/src/shm/a.rs:1:2: x", "MissedMutant"),
        ];
        let outcomes = outcomes.map(|(name, outcome)| (name.to_owned(), outcome.to_owned()));
        assert_eq!(
            let_through(&outcomes.into(), part),
            ["crates/local/src/list/a.rs:1:2: replace a -> b with c"]
        );
    }

    #[test]
    fn all_but_some_changes_are_passed_over() {
        let listed = "a.rs:1:2: x\na.rs:1:20: x\na.rs:2:2: delete field y from struct Z\n";
        assert_eq!(
            all_but(listed, &["a.rs:1:2: x".to_owned()]),
            "a.rs:1:20: x\na.rs:2:2: delete field y from struct Z\n"
        );
        assert_eq!(all_but(listed, &[]), listed);
    }

    #[test]
    fn the_score_is_the_share_of_what_could_be_seen_that_was() {
        let all = [
            ("a.rs:1:2: x in A::b", "CaughtMutant"),
            ("a.rs:2:2: x in A::b", "Timeout"),
            ("a.rs:3:2: y in A::b", "CaughtMutant"),
            ("a.rs:4:2: z in A::b", "MissedMutant"),
            ("a.rs:5:2: w in A::b", "MissedMutant"),
            ("a.rs:6:2: x in A::b", "Unviable"),
        ];
        let mut outcomes: Vec<_> = all.map(|(name, summary)| outcome(name, summary)).into();
        outcomes.push(serde_json::json!({"scenario": "Baseline", "summary": "Success"}));
        let found = summaries(&serde_json::json!({"outcomes": outcomes})).unwrap();
        let unseen = survivors("# why\n\na.rs: w in A::b # it is the same\n").unwrap();
        let score = Score::of(&found.into_iter().collect(), &unseen).unwrap();
        assert_eq!((score.noticed, score.unseen, score.unviable, score.percent()), (3, 1, 1, 75));
        assert_eq!(score.survivors, ["a.rs:4:2: z in A::b"]);
    }

    #[test]
    fn each_night_and_each_seed_has_its_share_of_the_changes() {
        #[derive(clap::Parser)]
        struct Mutants {
            #[command(flatten)]
            choice: Choice,
        }
        let choice = |words: &str| {
            let words = ["mutants"].into_iter().chain(words.split_whitespace());
            Mutants::try_parse_from(words).map(|mutants| mutants.choice)
        };
        let all = choice("").unwrap();
        let shares: std::collections::BTreeSet<_> =
            (0..NIGHTS).map(|night| all.share(20_000 + night)).collect();
        assert_eq!(shares.len() as u64, NIGHTS);
        let chosen = choice("--seed 14ad204 --of 100 locks").unwrap();
        assert_eq!((chosen.share(0), chosen.of), (0x14ad204 % 100, 100));
        assert!(chosen.has(&PARTS[3]) && !chosen.has(&PARTS[0]));
        for wrong in ["lock", "--of 0", "--seed x", "--seed"] {
            assert!(choice(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_run_that_tried_nothing_has_no_score() {
        assert!(Score::of(&BTreeMap::new(), &BTreeMap::new()).is_err());
        assert!(summaries(&serde_json::json!({})).is_err());
    }

    #[test]
    fn the_list_of_survivors_is_one_and_names_files_that_are_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let list = survivors(&std::fs::read_to_string(root.join(SURVIVORS)).unwrap()).unwrap();
        for (change, reason) in list {
            let file = change.split(':').next().unwrap();
            assert!(root.join(file).is_file() && !reason.is_empty(), "{change}");
        }
    }
}
