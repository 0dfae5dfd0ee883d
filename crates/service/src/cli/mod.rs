//! The command line: every command is one variant of [`Command`] and one module.
//!
//! Exit statuses, as flock(1) and sysexits have them: the command's own; 1 (or `-E`) where a lock
//! was not granted; 64 for wrong usage, 69 where a region cannot be used, 70 where its memory is
//! gone, 71 where the system refuses, 126 and 127 where the command cannot be run or found, 128
//! and the signal's number where it was killed.

mod demo;
mod entry;
mod exit;
mod family;
mod guardian;
mod held;
mod inherited;
mod job;
mod kv;
mod lock;
mod ls;
mod places;
mod region;
mod report;
mod serve;
mod terminal;
mod tls;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use farlock::RegionOptions;

use places::Places;
use report::{Exit, Failure, printed, say};

/// Named locks with fencing tokens, across processes, without a server.
#[derive(Debug, Parser)]
#[command(name = "farlock", version, arg_required_else_help = true)]
#[command(after_help = "First things to try:\n  \
    farlock demo\n  \
    farlock lock backup -- sh -c 'echo $FARLOCK_TOKEN'\n  \
    farlock lock backup -- sleep 60 &\n  \
    farlock ls")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The commands; what each is for is said by its arguments' type.
#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    Kv(kv::Args),
    Lock(lock::Args),
    Ls(ls::Args),
    Region(region::Args),
    Serve(serve::Args),
    Tls(tls::Args),
}

/// Runs the command line, of these words.
fn main(words: Vec<OsString>) -> Exit {
    if words.get(1).is_some_and(|first| first == demo::ACTOR) {
        return demo::act(words.into_iter().skip(2));
    }
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => {
            let given = words.get(1..).unwrap_or_default();
            if error.kind() == ErrorKind::MissingRequiredArgument
                && given.first().is_some_and(|command| command == "lock")
                && let Some(refusal) = lock::refuse_descriptor(&given[1..])
            {
                say(&refusal);
                return refusal.exit;
            }
            return match asked_for(&error, given) {
                Ok(exit) => exit,
                Err(failure) => {
                    say(&failure);
                    failure.exit
                }
            };
        }
    };
    let options = RegionOptions::for_user();
    // By a relative one processes of different directories would lock different things.
    let said = [("FARLOCK_DIR", &options.dir), ("FARLOCK_STATE_DIR", &options.state_dir)];
    if let Some((variable, dir)) = said.into_iter().find(|(_, dir)| dir.is_relative()) {
        let what = format_args!("{variable}: {:?} is no absolute path", dir.as_os_str());
        let refusal = Failure::usage(what, "say where it is from the root: /...");
        say(&refusal);
        return refusal.exit;
    }
    if let Some(taken) = &options.instead_of {
        let (taken, dir) = (taken.display(), options.dir.display());
        say(format_args!("farlock: {taken} is somebody else's, so regions are in {dir}"));
    }
    match run(cli.command, &Places { options }) {
        Ok(exit) => exit,
        Err(failure) => {
            say(&failure);
            failure.exit
        }
    }
}

/// Prints help or the version, if that was asked for; else says what is wrong with the words.
fn asked_for(error: &clap::Error, given: &[OsString]) -> Result<Exit, Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            printed(error.print())?;
            return Ok(Exit::OK);
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // What is to be read stands there, whether it can be read or not.
            let _ = error.print();
            return Ok(Exit::USAGE);
        }
        _ => {}
    }
    let text = error.to_string();
    // What follows is the usage, which the help has too.
    let what = text.split("\n\n").next().unwrap_or_default();
    let what: Vec<&str> = what.trim_start_matches("error: ").lines().map(str::trim).collect();
    let known = Cli::command();
    let command = given.first().and_then(|first| known.find_subcommand(first));
    let help = match command {
        Some(command) => format!("`farlock {} --help` says what there is", command.get_name()),
        None => "`farlock --help` says what there is".to_owned(),
    };
    let meant = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand].into_iter().find_map(
        |kind| match error.get(kind)? {
            ContextValue::String(meant) => Some(meant.clone()),
            ContextValue::Strings(meant) => Some(meant.join("' or '")),
            _ => None,
        },
    );
    let hint = meant.map_or(help.clone(), |meant| format!("is '{meant}' meant? {help}"));
    Err(Failure::usage(what.join(" "), &hint))
}

fn run(command: Command, places: &Places) -> Result<Exit, Failure> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Kv(args) => kv::run(args, places),
        Command::Lock(args) => lock::run(args, places),
        Command::Ls(args) => ls::run(&args, places),
        Command::Region(args) => region::run(&args, places),
        Command::Serve(args) => serve::run(&args, places),
        Command::Tls(args) => tls::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
