//! The chores of the workspace, for people and for continuous integration alike.
//!
//! `cargo xtask ci` runs every step a change must pass, `cargo xtask tidy` the house rules alone.

mod api;
mod child;
mod ci;
mod deny;
mod figures;
mod mutants;
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

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::ci::Runner;
use crate::programs::{Programs, Surroundings};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  ci [--list] [STEP...]        every step a change must pass, or the steps named
  nightly [--list] [STEP...]   the same and the long ones
  tidy                         the house rules
  examples                     runs the programs in examples/
  figures                      small runs of the laboratory, judged
  transcripts FILE...          runs the console blocks of Markdown files
  api [--write]                the listings of what users can name, compared or written anew
  races SUBJECT                tests under ThreadSanitizer
  deny                         licences, sources and duplicates of dependencies
  mutants [PART...]            small changes that tests must notice: this night's, those that
                               --seed COMMIT draws, one in N by --of N";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    run(&args).unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(args: &[String]) -> Result<ExitCode> {
    // A child has a process group of its own, so a Ctrl-C reaches it only through us.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let root = root();
    let Some((command, rest)) = args.split_first() else { bail!("{USAGE}") };
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        println!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    match command.as_str() {
        "ci" => {
            let whole = Duration::from_secs(steps::WHOLE_MINUTES * 60);
            run_steps(&root, &stop, steps::CI, rest, Some(whole))
        }
        "nightly" => run_steps(&root, &stop, &[steps::CI, steps::NIGHTLY].concat(), rest, None),
        "tidy" => tidy::report(&root),
        "examples" => Programs::new(&root, &stop, surroundings())?.examples(),
        "figures" => Programs::new(&root, &stop, surroundings())?.figures(),
        "transcripts" => Programs::new(&root, &stop, surroundings())?.transcripts(rest),
        "api" | "races" | "deny" | "mutants" => {
            let target = programs::target(&programs::metadata(&root)?)?;
            match command.as_str() {
                "api" => api::run(&root, &target, rest.iter().any(|arg| arg == "--write")),
                "races" => races::run(rest.first().map_or("", String::as_str), &root, &target),
                "deny" => deny::run(&root, &target),
                _ => mutants::run(&root, &target, rest),
            }
        }
        _ => bail!("no such command: {command}\n\n{USAGE}"),
    }
}

fn run_steps(
    root: &Path,
    stop: &AtomicBool,
    table: &[steps::Step],
    args: &[String],
    whole: Option<Duration>,
) -> Result<ExitCode> {
    let (flags, names): (Vec<String>, Vec<String>) =
        args.iter().cloned().partition(|arg| arg.starts_with("--"));
    if let Some(unknown) = flags.iter().find(|flag| *flag != "--list") {
        bail!("no such option: {unknown}\n\n{USAGE}");
    }
    let chosen = ci::select(table, &names)?;
    if !flags.is_empty() {
        ci::list(&chosen);
        return Ok(ExitCode::SUCCESS);
    }
    // Taken now: a step may build this very program anew, in the same place.
    let xtask = std::env::current_exe().context("this program has no path")?;
    Runner { root, xtask: &xtask, stop, print: ci::print }.run(&chosen, whole)
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
