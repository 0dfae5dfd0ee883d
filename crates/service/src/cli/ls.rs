//! `farlock ls`: locks, who holds them, who waits.

use std::io;
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use farlock::text::{in_words, shown, shown_whole, shown_within};
use farlock::{
    ConnectError, DEFAULT_REGION, Life, LockView, Mode, Observer, Participant, SessionError,
};
use serde::{Serialize, Serializer};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::places::{Places, RegionArg};
use super::report::{Exit, Failure, print, say};

/// List locks, who holds them and who waits.
///
/// Shows locks that are held or awaited, or whose holder is dead; with --all, every name that the
/// region remembers.
/// WHO says what a client does there: holds or waits, "stopped" if its process is; dead, a holder
/// whose lock the next one that asks takes over; orphaned, a command whose `farlock` was killed
/// with its guardian, and which keeps the lock until it ends; left over, with --all, a waiter that
/// died, and is in nobody's way. FOR is empty where nobody looked at the clock: programs that need
/// not wait for a lock do not. PID is the program's that has the lock: of commands, farlock's; the
/// column HOST, where it is there, names the host of those that are not processes here: on another
/// host, or in another container.
///
/// Exit status: 0, whether there are any or not; 64 for wrong usage, 69 if the region cannot be
/// used, 71 if standard output cannot be written.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    region: RegionArg,
    /// List names nobody uses, too, and waiters that died.
    #[arg(short, long)]
    all: bool,
    /// Print one JSON object per lock; tokens are strings, for they are above 2^53, and holders and
    /// waiters have a "host" where they are not processes here.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, places: &Places) -> Result<Exit, Failure> {
    let options = places.region(&args.region)?.labelled("farlock ls");
    let mut locks = match Observer::open(&options) {
        Ok(observer) => observer.locks()?,
        // Nobody has used a lock in it yet. If another one was meant, this tells.
        Err(SessionError::Connect(ConnectError::Absent { name, .. })) if name != DEFAULT_REGION => {
            say(format_args!("farlock: there is no region '{}' yet", shown(&name)));
            return Ok(Exit::OK);
        }
        Err(SessionError::Connect(ConnectError::Absent { .. })) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    if !args.all {
        // A waiter that died is in nobody's way.
        let counts = |p: &Participant| p.is_holder || p.life != Life::Dead;
        locks.iter_mut().for_each(|lock| lock.participants.retain(counts));
        locks.retain(|lock| !lock.participants.is_empty());
    }
    let lines: Vec<Line<'_>> = locks.iter().map(Line::from).collect();
    let text = if args.json { json(&lines) } else { table(&lines, columns()) };
    print(&text)?;
    Ok(Exit::OK)
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
    }
}

/// A lock, as a line of JSON or some of the table.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    kind: &'a str,
    holders: Vec<Person<'a>>,
    waiters: Vec<Person<'a>>,
}

/// A holder or a waiter of a lock.
#[derive(Serialize)]
struct Person<'a> {
    pid: u32,
    /// Where that is not the number of a process here: the host whose process it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    command: &'a str,
    mode: &'static str,
    /// Of a table of ranges: the first position and the one behind the last, which is null where
    /// there is no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<(u64, Option<u64>)>,
    /// As text: many readers of JSON know no integers of 64 bits, and would round it.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(rename = "seconds", serialize_with = "seconds")]
    elapsed: Option<Duration>,
    state: &'static str,
    #[serde(skip)]
    role: &'static str,
}

fn seconds<S: Serializer>(elapsed: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    elapsed.map(|elapsed| elapsed.as_secs_f64()).serialize(to)
}

impl<'a> From<&'a LockView> for Line<'a> {
    fn from(lock: &'a LockView) -> Self {
        let people = |is_holder| {
            let some = lock.participants.iter().filter(move |p| p.is_holder == is_holder);
            some.map(Person::from).collect()
        };
        let (holders, waiters) = (people(true), people(false));
        Self { name: &lock.name, kind: &lock.kind, holders, waiters }
    }
}

impl<'a> From<&'a Participant> for Person<'a> {
    fn from(participant: &'a Participant) -> Self {
        Self {
            pid: participant.pid,
            host: participant.host.as_deref(),
            command: &participant.command,
            mode: mode_name(participant.mode),
            range: participant
                .range
                .as_ref()
                .map(|range| (range.start, Some(range.end).filter(|end| *end < u64::MAX))),
            token: participant.token.map(|token| token.to_string()),
            elapsed: participant.elapsed,
            state: participant.life.name(),
            role: role(participant),
        }
    }
}

fn json(locks: &[Line<'_>]) -> String {
    let line = |lock| serde_json::to_string(lock).expect("plain data becomes JSON") + "\n";
    locks.iter().map(line).collect()
}

/// What a holder or a waiter does at a lock, in a word or two.
fn role(participant: &Participant) -> &'static str {
    match (participant.is_holder, participant.life) {
        (true, Life::Stopped) => "holds, stopped",
        (false, Life::Stopped) => "waits, stopped",
        (_, Life::Orphaned) => "orphaned",
        (true, Life::Dead) => "dead",
        (false, Life::Dead) => "left over",
        (true, _) => "holds",
        (false, _) => "waits",
    }
}

/// Columns that are not always there: which positions, of tables of ranges; and which host.
const RANGE: usize = 1;
const HOST: usize = 6;
/// The last one, which gives way to the others.
const COMMAND: usize = 8;
/// The cells of a row.
type Row = [String; 9];

/// The locks as a table, no wider than a terminal of so many columns, if it is for one.
fn table(locks: &[Line<'_>], columns: Option<usize>) -> String {
    if locks.is_empty() {
        return "no lock is held or awaited\n".to_owned();
    }
    let has = |is_it: fn(&Person<'_>) -> bool| {
        locks.iter().flat_map(|lock| lock.holders.iter().chain(&lock.waiters)).any(is_it)
    };
    let (has_ranges, has_hosts) = (has(|p| p.range.is_some()), has(|p| p.host.is_some()));
    let is_there = |at: usize| (at != RANGE || has_ranges) && (at != HOST || has_hosts);
    let header = ["LOCK", "RANGE", "WHO", "MODE", "FOR", "PID", "HOST", "TOKEN", "COMMAND"];
    let mut rows = vec![header.map(str::to_owned)];
    rows.extend(locks.iter().flat_map(rows_of));
    if let Some(columns) = columns {
        let longest = name_length(&rows, is_there, columns);
        rows.iter_mut().for_each(|row| row[0] = shown_within(&row[0], longest));
    }
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    for (number, row) in rows.into_iter().enumerate() {
        let cells = row.into_iter().enumerate().filter(|(at, _)| is_there(*at));
        let cells: Vec<String> = cells.map(|(_, cell)| cell).collect();
        match number {
            0 => table.set_header(cells),
            _ => table.add_row(cells),
        };
    }
    let cut = |line: String| match columns {
        Some(columns) => cut(line.trim_end(), columns),
        None => line.trim_end().to_owned(),
    };
    let lines: Vec<String> = table.lines().map(cut).collect();
    lines.join("\n") + "\n"
}

/// The cells of a lock: a row for each of its holders and waiters, or one that says nobody.
fn rows_of(lock: &Line<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for person in lock.holders.iter().chain(&lock.waiters) {
        rows.push([
            shown_whole(lock.name),
            shown_range(person),
            person.role.to_owned(),
            person.mode.to_owned(),
            person.elapsed.map(in_words).unwrap_or_default(),
            person.pid.to_string(),
            shown_host(person),
            person.token.clone().unwrap_or_default(),
            shown(person.command),
        ]);
    }
    if rows.is_empty() {
        let mut nobody = Row::default();
        (nobody[0], nobody[2]) = (shown_whole(lock.name), "nobody".to_owned());
        rows.push(nobody);
    }
    rows
}

/// How long a name is shown at most, so that a terminal of so many columns shows tokens as well,
/// and as much of a third of it as it can of commands.
fn name_length(rows: &[Row], is_there: impl Fn(usize) -> bool, columns: usize) -> usize {
    /// Names keep this at least.
    const NAME_MIN: usize = 8;
    /// Between two columns of the table, and at its edge.
    const GAP: usize = 2;
    let width = |at: usize| rows.iter().map(|row| row[at].width()).max().unwrap_or(0) + GAP;
    let others: usize = (1..COMMAND).filter(|at| is_there(*at)).map(width).sum();
    let command = width(COMMAND).min(columns / 3);
    columns.saturating_sub(others + command + GAP).clamp(NAME_MIN, NAME_MIN.max(columns / 3))
}

/// The host of what is no process here, as much of it as a column has room for.
fn shown_host(person: &Person<'_>) -> String {
    const HOST_SHOWN_MAX: usize = 20;
    person.host.map(|host| shown_within(&shown(host), HOST_SHOWN_MAX)).unwrap_or_default()
}

/// "10..20", "10.." up to the end; empty of a lock.
fn shown_range(person: &Person<'_>) -> String {
    match person.range {
        None => String::new(),
        Some((start, None)) => format!("{start}.."),
        Some((start, Some(end))) => format!("{start}..{end}"),
    }
}

/// As much of a line as so many columns of a terminal show, and whether there is more.
fn cut(line: &str, columns: usize) -> String {
    if line.width() <= columns {
        return line.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let fits = |c: &char| {
        let width = c.width().unwrap_or(0);
        let fits = width <= left;
        left -= if fits { width } else { left };
        fits
    };
    line.chars().take_while(fits).chain(['…']).collect()
}

/// How wide the terminal is that standard output goes to, if it goes to one.
fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_its_terminal() {
        let person = Person {
            pid: 4_194_304,
            host: None,
            command: "a command with many words, forty of them",
            mode: "exclusive",
            range: None,
            token: None,
            elapsed: None,
            state: "stopped",
            role: "holds, stopped",
        };
        let name = "n".repeat(255);
        let lock = Line { name: &name, kind: "claim", holders: vec![person], waiters: Vec::new() };
        let locks = [lock];
        for columns in [20, 60, 80, 200] {
            let table = table(&locks, Some(columns));
            assert_eq!(table.lines().count(), 2, "{table}");
            assert!(table.lines().all(|line| line.chars().count() <= columns), "{table}");
        }
        assert!(table(&locks, Some(80)).contains("holds, stopped"));
        // A long name hides neither a token nor which command it is.
        let token = "5840123456789012345";
        let person = |token: Option<&str>| Person {
            pid: 12_345,
            host: None,
            command: "sleep 60",
            mode: "exclusive",
            range: None,
            token: token.map(str::to_owned),
            elapsed: Some(Duration::from_secs(3)),
            state: "alive",
            role: "holds",
        };
        let lock = |name| {
            let holders = vec![person(Some(token))];
            Line { name, kind: "claim", holders, waiters: Vec::new() }
        };
        let shown = table(&[lock(&name), lock("short")], Some(80));
        assert!(shown.lines().skip(1).all(|line| line.contains(token)), "{shown}");
        assert!(shown.lines().skip(1).all(|line| line.contains("sleep")), "{shown}");
        for (line, columns, shown) in
            [("日本日本", 8, "日本日本"), ("日本日本", 7, "日本日…"), ("日本日本", 6, "日本…")]
        {
            assert_eq!(cut(line, columns), shown, "in {columns} columns");
        }
        assert!(table(&locks, None).contains("forty of them"));
    }
}
