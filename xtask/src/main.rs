//! The chores of the workspace, for people and for continuous integration alike.
//!
//! `cargo xtask ci` runs every step a change must pass, `cargo xtask tidy` the house rules alone.

mod api;
mod child;
mod ci;
mod deny;
mod figures;
mod gist;
mod mutants;
mod pace;
mod programs;
mod races;
mod reasons;
mod skips;
mod steps;
mod tidy;
mod tools;
mod transcript;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::ci::Runner;
use crate::pace::Pace;
use crate::programs::{Programs, Surroundings};

/// The chores of the workspace.
#[derive(clap::Parser)]
#[command(bin_name = "cargo xtask")]
enum Chore {
    /// Every step a change must pass, or the steps named.
    Ci(Steps),
    /// The same and the long ones.
    Nightly(Steps),
    /// The house rules.
    Tidy,
    /// Runs the programs in examples/.
    Examples,
    /// Small runs of the laboratory, judged.
    Figures,
    /// Runs the console blocks of Markdown files.
    Transcripts { files: Vec<String> },
    /// The listings of what users can name, compared or written anew.
    Api {
        #[arg(long)]
        write: bool,
    },
    /// Tests under ThreadSanitizer.
    Races { subject: String },
    /// Licences, sources and duplicates of dependencies.
    Deny,
    /// Small changes that tests must notice.
    Mutants(mutants::Choice),
}

#[derive(clap::Args)]
struct Steps {
    /// Only names them, with their time limits and what each shows.
    #[arg(long)]
    list: bool,
    steps: Vec<String>,
}

fn main() -> ExitCode {
    run(Chore::parse()).unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(chore: Chore) -> Result<ExitCode> {
    // A child has a process group of its own, so a Ctrl-C reaches it only through us.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let root = root();
    let programs = || Programs::new(&root, &stop, surroundings());
    let target = || programs::target(&programs::metadata(&root)?);
    match chore {
        Chore::Ci(chosen) => {
            let whole = Duration::from_secs(steps::WHOLE_MINUTES * 60);
            run_steps(&root, &stop, steps::CI, &chosen, Some(whole))
        }
        Chore::Nightly(chosen) => {
            run_steps(&root, &stop, &[steps::CI, steps::NIGHTLY].concat(), &chosen, None)
        }
        Chore::Tidy => tidy::report(&root),
        Chore::Examples => programs()?.examples(),
        Chore::Figures => programs()?.figures(),
        Chore::Transcripts { files } => programs()?.transcripts(&files),
        Chore::Api { write } => api::run(&root, &target()?, write),
        Chore::Races { subject } => races::run(&subject, &root, &target()?),
        Chore::Deny => deny::run(&root, &target()?),
        Chore::Mutants(choice) => mutants::run(&root, &target()?, &choice),
    }
}

fn run_steps(
    root: &Path,
    stop: &AtomicBool,
    table: &[steps::Step],
    Steps { list, steps }: &Steps,
    whole: Option<Duration>,
) -> Result<ExitCode> {
    let chosen = ci::select(table, steps)?;
    if *list {
        ci::list(&chosen)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Taken now: a step may build this very program anew, in the same place.
    let xtask = std::env::current_exe().context("this program has no path")?;
    // Some steps are run again and again, all of them before a change is given to others.
    let builds_again = !steps.is_empty() || std::env::var_os("CARGO_INCREMENTAL").is_some();
    let pace = Pace::measure(&programs::target(&programs::metadata(root)?)?)?;
    println!("time limits are {pace} times those of `--list` on this machine");
    let whole = whole.map(|whole| pace.stretch(whole));
    Runner { root, xtask: &xtask, builds_again, pace, stop, print: ci::print }.run(&chosen, whole)
}

/// The root of the repository: the folder above this package.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("xtask lies in the workspace").to_owned()
}

/// What of our environment reaches the programs we run.
fn surroundings() -> Surroundings {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let place = |name: &str, default: &str| {
        std::env::var_os(name).map_or_else(|| home.join(default), PathBuf::from)
    };
    Surroundings {
        path: std::env::var_os("PATH").unwrap_or_default(),
        cargo_home: place("CARGO_HOME", ".cargo"),
        rustup_home: place("RUSTUP_HOME", ".rustup"),
    }
}
