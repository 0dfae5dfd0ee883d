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
mod lease;
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
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use farlock::RegionOptions;

use places::Places;
use report::{Exit, Failure, printed, say};

/// Named locks with fencing tokens, across processes; across hosts by a server.
#[derive(Debug, Parser)]
#[command(name = "farlock", version, long_version = LONG_VERSION, arg_required_else_help = true)]
#[command(after_help = "First things to try:\n  \
    farlock demo\n  \
    farlock lock backup -- sh -c 'echo $FARLOCK_TOKEN'\n  \
    farlock lock backup -- sleep 60 &\n  \
    farlock ls")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The version, and what clients and servers, and processes of one host, have to have in common.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\nprotocol 11: servers and clients of the same one understand each other",
    "\nlayout 11: processes of one host that share a region have the same one"
);

const _: () = assert!(farlock_fabric::tcp::VERSION == 11, "the version names the protocol");
const _: () = assert!(farlock_fabric::shm::LAYOUT_VERSION == 11, "the version names the layout");

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
    let ended = match parsed(&words) {
        Ok((cli, matches)) => places::check_server(&matches).and_then(|()| begin(cli.command)),
        Err(error) => not_understood(&error, words.get(1..).unwrap_or_default()),
    };
    ended.unwrap_or_else(|failure| {
        say(&failure);
        failure.exit
    })
}

fn parsed(words: &[OsString]) -> Result<(Cli, ArgMatches), clap::Error> {
    let matches = Cli::command().try_get_matches_from(words)?;
    Ok((Cli::from_arg_matches(&matches)?, matches))
}

/// Runs a command in the places of this user.
fn begin(command: Command) -> Result<Exit, Failure> {
    let options = RegionOptions::for_user();
    // By a relative one processes of different directories would lock different things.
    let said = [("FARLOCK_DIR", &options.dir), ("FARLOCK_STATE_DIR", &options.state_dir)];
    if let Some((variable, dir)) = said.into_iter().find(|(_, dir)| dir.is_relative()) {
        let what = format_args!("{variable}: {:?} is no absolute path", dir.as_os_str());
        return Err(Failure::usage(what, "say where it is from the root: /..."));
    }
    // A slip of the hand would be another region, whose locks nobody else asks for.
    let is_said = std::env::var_os("FARLOCK_DIR").is_some_and(|dir| !dir.is_empty());
    if let Some(missing) = options.dir.parent().filter(|parent| is_said && !parent.exists()) {
        let what = format_args!("FARLOCK_DIR: there is no directory {missing:?}");
        return Err(Failure::usage(what, "of the path the last directory alone is made"));
    }
    if let Some(taken) = &options.instead_of {
        let (taken, dir) = (taken.display(), options.dir.display());
        say(format_args!("farlock: {taken} is another user's, so regions are in {dir}"));
    }
    run(command, &Places { options })
}

/// What to say of words that are no command: help, if that was asked for.
fn not_understood(error: &clap::Error, given: &[OsString]) -> Result<Exit, Failure> {
    if error.kind() == ErrorKind::MissingRequiredArgument
        && given.first().is_some_and(|command| command == "lock")
        && let Some(refusal) = lock::refuse_descriptor(&given[1..])
    {
        return Err(refusal);
    }
    asked_for(error, given)
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
    let mut parts = text.split("\n\n");
    let what = parts.next().unwrap_or_default();
    let what: Vec<&str> = what.trim_start_matches("error: ").lines().map(str::trim).collect();
    let mut help = format!("`{} --help` says what there is", named(given));
    if let Some(usage) = parts.find_map(|part| part.strip_prefix("Usage: "))
        && !usage.contains("<COMMAND>")
    {
        let usages: Vec<String> = usage.lines().map(|line| format!("`{}`", line.trim())).collect();
        help = format!("say {}; {help}", usages.join(" or "));
    }
    if error.kind() == ErrorKind::UnknownArgument
        && given.first().is_some_and(|first| first.as_encoded_bytes().starts_with(b"-"))
    {
        let hint = format!("options stand behind the command, as in `farlock ls --all`; {help}");
        return Err(Failure::usage(what.join(" "), &hint));
    }
    let meant = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand].into_iter().find_map(
        |kind| match error.get(kind)? {
            ContextValue::String(meant) => Some(meant.clone()),
            ContextValue::Strings(meant) => Some(meant.join("' or '")),
            _ => None,
        },
    );
    if error.kind() == ErrorKind::InvalidUtf8 {
        help = format!("a word, or FARLOCK_SERVER, has bytes that are no text; {help}");
    }
    let hint = meant.map_or(help.clone(), |meant| format!("is '{meant}' meant? {help}"));
    Err(Failure::usage(what.join(" "), &hint))
}

/// The command that these words name, as far as they name one.
fn named(given: &[OsString]) -> String {
    let (mut command, mut name) = (Cli::command(), "farlock".to_owned());
    for word in given {
        let Some(inner) = command.find_subcommand(word).cloned() else { break };
        name = format!("{name} {}", inner.get_name());
        command = inner;
    }
    name
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
