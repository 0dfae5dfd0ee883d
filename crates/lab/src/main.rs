//! `farlock-lab`: the laboratory's command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use farlock_lab::bench::{self, BenchArgs, worker};

/// The laboratory of farlock: measures locks for far memory, side by side.
#[derive(Parser)]
#[command(name = "farlock-lab", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures locks under a workload, a row each.
    Bench(Box<BenchArgs>),
    /// A client of a bench, in a process of its own.
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Worker(args) => worker::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("farlock-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
