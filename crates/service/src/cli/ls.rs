//! `farlock ls`: locks, who holds them, who waits.

use std::io::{self, IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use farlock::inspect::{self, LockView, Participant, in_words};
use farlock::{Mode, SessionError};
use farlock_fabric::shm::OpenError;
use serde::Serialize;

use super::report::{Exit, Failure};
use super::{Places, RegionArg};

/// List locks, who holds them and who waits.
///
/// Shows locks that are held or awaited; with --all, every name that was ever used in the region.
/// A holder whose process is dead is marked: whoever asks for the lock next takes it over.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    region: RegionArg,
    /// List names nobody uses, too.
    #[arg(short, long)]
    all: bool,
    /// Print one JSON object per lock.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, places: &Places) -> Result<Exit, Failure> {
    let options = places.region(&args.region).labelled("farlock ls");
    let mut locks = match inspect::observe(&options) {
        Ok(endpoint) => inspect::locks(&endpoint)?,
        // Nobody has used a lock in it yet.
        Err(SessionError::Open(OpenError::Absent { .. })) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    locks.retain(|lock| args.all || !lock.participants.is_empty());
    let text = if args.json { json(&locks) } else { table(&locks) };
    // A reader that went away has seen enough.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(Exit::OK)
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
    }
}

/// A lock as a line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    kind: &'a str,
    holders: Vec<Person<'a>>,
    waiters: Vec<Person<'a>>,
}

/// Somebody at a lock, in JSON.
#[derive(Serialize)]
struct Person<'a> {
    pid: u32,
    command: &'a str,
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    seconds: Option<f64>,
    state: &'static str,
}

impl<'a> From<&'a Participant> for Person<'a> {
    fn from(participant: &'a Participant) -> Self {
        Self {
            pid: participant.pid,
            command: &participant.command,
            mode: mode_name(participant.mode),
            token: participant.token.map(|token| token.get()),
            seconds: participant.elapsed.map(|elapsed| elapsed.as_secs_f64()),
            state: participant.life.name(),
        }
    }
}

fn json(locks: &[LockView]) -> String {
    let line = |lock: &LockView| {
        let people = |is_holder| {
            let some = lock.participants.iter().filter(move |p| p.is_holder == is_holder);
            some.map(Person::from).collect()
        };
        let (holders, waiters) = (people(true), people(false));
        let line = Line { name: &lock.entry.name, kind: &lock.entry.kind, holders, waiters };
        serde_json::to_string(&line).expect("plain data becomes JSON") + "\n"
    };
    locks.iter().map(line).collect()
}

fn table(locks: &[LockView]) -> String {
    if locks.is_empty() {
        return "no lock is held or awaited\n".to_owned();
    }
    let mut table = Table::new();
    table.load_style(NOTHING);
    if io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.set_header(["LOCK", "WHO", "MODE", "FOR", "TOKEN", "PID", "COMMAND"]);
    for lock in locks {
        let name = lock.entry.name.escape_debug().to_string();
        if lock.participants.is_empty() {
            table.add_row([name.as_str(), "nobody", "", "", "", "", ""]);
        }
        for participant in &lock.participants {
            let who = match (participant.is_holder, participant.life) {
                (true, inspect::Life::Alive) => "holds".to_owned(),
                (false, inspect::Life::Alive) => "waits".to_owned(),
                (_, life) => life.name().to_owned(),
            };
            table.add_row([
                name.clone(),
                who,
                mode_name(participant.mode).to_owned(),
                participant.elapsed.map(in_words).unwrap_or_default(),
                participant.token.map(|token| token.to_string()).unwrap_or_default(),
                participant.pid.to_string(),
                participant.command.escape_debug().to_string(),
            ]);
        }
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n") + "\n"
}
