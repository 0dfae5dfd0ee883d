//! `farlock-check`: the checker without the rest of the laboratory, for builds of a kind of their
//! own. `farlock-lab` has the same two commands.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use farlock_check::{CheckArgs, ReplayArgs};

/// The checker of farlock: explores the locks in the simulator, before judges.
#[derive(Parser)]
#[command(name = "farlock-check", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Explores schedules and faults of the locks in the simulator, before judges.
    Check(CheckArgs),
    /// Shows a run that `check` found, verb by verb.
    Replay(ReplayArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Check(args) => farlock_check::run(&args),
        Command::Replay(args) => farlock_check::replay(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            farlock_check::tell(format_args!("farlock-check: {error:#}"));
            farlock_check::status(&error)
        }
    }
}
