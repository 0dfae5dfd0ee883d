//! Changes the locks in hundreds of small ways and sees whether a test notices.
//!
//! What is not mutated, and why, stands in `.cargo/mutants.toml`. A change that no test notices is
//! a survivor. They are listed, and the share of those that were noticed must not fall. All changes
//! take more than a day, so a night tries every so manieth: the next night the ones after them.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::skips::Skip;
use crate::tools::{self, MUTANTS};

/// The step, and the skip where the tool cannot be had.
const STEP: &str = "mutants";
/// Of a hundred changes so many must be noticed.
const SCORE_MIN: u64 = 80;

/// Nights in which every change is tried once.
const NIGHTS: u64 = 8;

/// How a run went.
#[derive(PartialEq, Eq, Debug, Default)]
struct Score {
    /// A test failed, or ran far longer than ever.
    noticed: u64,
    /// No test noticed.
    survivors: Vec<String>,
    /// It did not compile.
    unviable: u64,
}

/// Tries this night's changes, or those that `arguments` choose in the tool's own words.
///
/// # Errors
/// A program does not start, or what it wrote cannot be read.
pub(crate) fn run(root: &Path, target: &Path, arguments: &[String]) -> Result<ExitCode> {
    let Some(program) = tools::require(MUTANTS, target)? else {
        let reason = format!("{} cannot be installed here", MUTANTS.name);
        println!("{}", Skip { id: STEP.to_owned(), reason });
        return Ok(ExitCode::SUCCESS);
    };
    let output = target.join("mutants");
    std::fs::create_dir_all(&output)?;
    let tonight = tonight(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs());
    let chosen = if arguments.is_empty() { &tonight } else { arguments };
    println!("changes: {}", chosen.join(" "));
    let status = Command::new(program)
        .args(["mutants", "--package=farlock-locks", "--output"])
        .arg(&output)
        .args(chosen)
        .current_dir(root)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("{} does not start", MUTANTS.name))?;
    // Survivors and time-outs are outcomes; anything else is a failure of the tool.
    ensure!(matches!(status.code(), Some(0 | 2 | 3)), "{}: {status}", MUTANTS.name);
    let outcomes = std::fs::read(output.join("mutants.out/outcomes.json"))?;
    let score = Score::of(&serde_json::from_slice(&outcomes)?)?;
    for survivor in &score.survivors {
        println!("survived: {survivor}");
    }
    println!("{}", score.line());
    let enough = score.percent() >= SCORE_MIN;
    Ok(if enough { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What chooses the changes of the night that is so many seconds after 1970.
fn tonight(seconds: u64) -> Vec<String> {
    const DAY_SECONDS: u64 = 24 * 60 * 60;
    let night = seconds / DAY_SECONDS % NIGHTS;
    vec!["--sharding=round-robin".to_owned(), format!("--shard={night}/{NIGHTS}")]
}

impl Score {
    /// The score of what the tool wrote.
    fn of(outcomes: &Value) -> Result<Self> {
        let mut score = Self::default();
        for outcome in outcomes["outcomes"].as_array().context("there are no outcomes")? {
            let mutant = &outcome["scenario"]["Mutant"];
            if mutant.is_null() {
                continue;
            }
            match outcome["summary"].as_str().context("an outcome has no summary")? {
                "CaughtMutant" | "Timeout" => score.noticed += 1,
                "Unviable" => score.unviable += 1,
                _ => {
                    let name = mutant["name"].as_str().context("a mutant has no name")?;
                    score.survivors.push(name.to_owned());
                }
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
            "{} changes noticed, {} survived, {} did not compile: {} %, wanted {SCORE_MIN} %",
            self.noticed,
            self.survivors.len(),
            self.unviable,
            self.percent()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(summary: &str) -> Value {
        serde_json::json!({"scenario": {"Mutant": {"name": summary}}, "summary": summary})
    }

    #[test]
    fn the_score_is_the_share_of_what_compiled_that_was_noticed() {
        let summaries = ["CaughtMutant", "Timeout", "CaughtMutant", "MissedMutant", "Unviable"];
        let mut outcomes: Vec<Value> = summaries.map(outcome).into();
        outcomes.push(serde_json::json!({"scenario": "Baseline", "summary": "Success"}));
        let score = Score::of(&serde_json::json!({"outcomes": outcomes})).unwrap();
        assert_eq!((score.noticed, score.unviable, score.percent()), (3, 1, 75));
        assert_eq!(score.survivors, ["MissedMutant"]);
    }

    #[test]
    fn each_night_has_its_share_of_the_changes() {
        let nights: std::collections::BTreeSet<_> =
            (0..NIGHTS).map(|night| tonight(1_800_000_000 + night * 86_400)).collect();
        assert_eq!(nights.len() as u64, NIGHTS);
        assert_eq!(tonight(0)[1], "--shard=0/8");
    }

    #[test]
    fn a_run_that_tried_nothing_has_no_score() {
        assert!(Score::of(&serde_json::json!({"outcomes": []})).is_err());
        assert!(Score::of(&serde_json::json!({})).is_err());
    }
}
