//! `farlock lock`: run a command while holding a lock, with flock(1)'s letters.

use std::ffi::{OsStr, OsString};
use std::num::IntErrorKind;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::builder::{OsStringValueParser, TypedValueParser};
use farlock::text::{in_words, shown};
use farlock::{
    AcquireError, ConnectError, Life, LostReason, Participant, RegionOptions, ReleaseError,
    Session, SessionError,
};
use rustix::process::Signal;

use super::guardian;
use super::held::{Asked, Held, Wanted};
use super::job::{self, Ended, Job};
use super::places::{Places, RegionArg};
use super::report::{Exit, Failure, say};

/// Run a command while holding a lock.
///
/// The command runs as a part of the caller's job, as it would without `farlock`: it has the same
/// terminal, signals and open files. Signals sent to `farlock` are passed on to it, and to what it
/// started and left in its process group; SIGTERM leaves it 10 seconds to end, then it is killed.
/// The lock is released when the command ends; what it left running in the background goes on
/// without the lock. If `farlock lock` is killed, the command and all that it started are killed
/// before anybody else is granted the lock. That is done by a second process, farlock-guard: where
/// both are killed at once, with the whole process group say, what still runs of the command lives
/// on, and nobody is granted the lock until it ends (`farlock ls` calls it orphaned).
///
/// The command finds in its environment: FARLOCK_NAME, the lock's name; FARLOCK_TOKEN, the fencing
/// token, a number that grows with every exclusive grant; a shared holder's is above that of the
/// exclusive holder before it and below that of the one after it. FARLOCK_DEADLINE is not set: a
/// lock is held until the command ends. By a server it has a lease, which is renewed; where that
/// ends because the server is gone for too long, the command is killed before others are granted
/// the lock.
///
/// Without a server locks are those of one user on this machine, by one those of its region, for
/// all that use it. Where the region was removed or deleted under a holder, standard error says so.
///
/// Exit status: the command's own, 128 plus the signal's number if it was killed: 137 where that is
/// because its lock was lost by a server; 1, or CODE, if the lock was not granted; 64 for wrong
/// usage, 69 if the region cannot be used, 70 if its memory is damaged, 71 if the system refuses,
/// 126 or 127 if the command cannot be run or found.
#[derive(Clone, Debug, clap::Args)]
#[command(override_usage = "farlock lock [OPTIONS] NAME [--] COMMAND...\n       \
    farlock lock [OPTIONS] NAME -c SHELL-COMMAND")]
pub(super) struct Args {
    /// The lock's name: 1 to 255 bytes of UTF-8.
    #[arg(value_parser = OsStringValueParser::new().try_map(name))]
    name: String,
    #[command(flatten)]
    region: RegionArg,
    /// Hold the lock together with other shared holders.
    #[arg(short, long)]
    shared: bool,
    /// Hold the lock alone (the default).
    #[arg(short = 'x', long, short_alias = 'e', conflicts_with = "shared")]
    exclusive: bool,
    /// Lock LEN positions of the table of ranges NAME, from START on; LEN 0 is up to the end.
    /// Commands whose ranges do not overlap run at the same time. A table of ranges and a lock may
    /// have the same name, and have nothing to do with each other.
    #[arg(short, long, value_name = "START:LEN", value_parser = range, allow_hyphen_values = true)]
    range: Option<Range<u64>>,
    /// Ranges that share a unit of so many positions exclude each other; all users of a table must
    /// agree. It has 268 million units, the last of which stands for all positions behind it too.
    #[arg(long, value_name = "POSITIONS", default_value_t = 1, requires = "range",
        value_parser = clap::value_parser!(u64).range(1..))]
    unit: u64,
    /// Fail rather than wait.
    #[arg(short, long, aliases = ["nb", "nonblocking"], conflicts_with = "wait")]
    nonblock: bool,
    /// Fail after so many seconds, fractions allowed; 0 is the same as -n. A server that cannot be
    /// reached is tried again until then, and one that says nothing is waited for no longer, but
    /// for half a second where it has fallen silent meanwhile; with -n for 2 seconds.
    #[arg(short, long, alias = "timeout", value_name = "SECONDS", value_parser = seconds,
        allow_negative_numbers = true)]
    wait: Option<Duration>,
    /// Exit with CODE if the lock is not granted in time.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Exit::CONFLICT.0,
        value_parser = status, allow_negative_numbers = true)]
    conflict_exit_code: u8,
    /// Say on standard error when the lock was granted, with its token.
    #[arg(short, long)]
    verbose: bool,
    /// Say nothing if the lock is not granted in time.
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Run SHELL-COMMAND by the shell: $SHELL, or else /bin/sh.
    #[arg(short, long = "command", value_name = "SHELL-COMMAND")]
    command_line: Option<OsString>,
    /// The command and its arguments.
    #[arg(
        trailing_var_arg = true,
        conflicts_with = "command_line",
        required_unless_present_any = ["command_line", "unlock", "close", "no_fork"]
    )]
    command: Vec<OsString>,
    /// flock(1)'s, which means nothing here.
    #[arg(short, long, hide = true)]
    unlock: bool,
    /// The same.
    #[arg(short = 'o', long, hide = true)]
    close: bool,
    /// The same.
    #[arg(short = 'F', long, hide = true)]
    no_fork: bool,
}

/// How long even those who do not wait for a lock wait for a region that others are removing.
const REMOVAL: Duration = Duration::from_secs(1);

/// How long a server may take to answer a try.
const SERVER: Duration = Duration::from_secs(2);

/// For how long a try waits for the command of a killed `farlock`, which is being killed as well.
const DYING: Duration = Duration::from_millis(250);

/// A try, and if all that have the lock are dying, or have just gone, a short wait.
fn try_beside_the_dying(request: impl Fn() -> Asked) -> Result<Held, AcquireError> {
    let tried = request().at_once().blocking();
    let Err(AcquireError::Busy { holders, .. }) = &tried else { return tried };
    let is_dying = |p: &Participant| matches!(p.life, Life::Orphaned | Life::Dead);
    if !holders.list().iter().all(is_dying) {
        return tried;
    }
    match request().within(DYING).blocking() {
        Err(AcquireError::TimedOut { .. }) => tried,
        decided => decided,
    }
}

/// A wait, before which it is said if that may be in vain: for a holder under which this runs.
fn wait_below_the_holder(name: &str, request: impl Fn() -> Asked) -> Result<Held, AcquireError> {
    let tried = request().at_once().blocking();
    let Err(AcquireError::Busy { holders, .. }) = &tried else { return tried };
    if let Some(hint) = holders.hint() {
        say(format_args!("farlock: the lock '{}' is waited for; hint: {hint}", shown(name)));
    }
    request().blocking()
}

/// Why a lock was lost, if that is why it was not released well.
fn reason_of(error: ReleaseError) -> Option<LostReason> {
    match error {
        ReleaseError::Lost { reason, .. } => Some(reason),
        _ => None,
    }
}

/// The name of a lock.
fn name(given: OsString) -> Result<String, String> {
    given.into_string().map_err(|_| "a name is text in UTF-8".to_owned())
}

/// Positions, by the first and how many they are.
fn range(text: &str) -> Result<Range<u64>, String> {
    let expected = || "two numbers are expected: START:LEN, as in 4096:512".to_owned();
    let (start, length) = text.split_once(':').ok_or_else(expected)?;
    let number = |text: &str| {
        text.parse::<u64>().map_err(|error| match error.kind() {
            IntErrorKind::PosOverflow => format!("{text} is beyond the last position"),
            _ => expected(),
        })
    };
    match (number(start)?, number(length)?) {
        (u64::MAX, 0) => Err("no position is behind that".to_owned()),
        (start, 0) => Ok(start..u64::MAX),
        (start, length) => match start.checked_add(length) {
            Some(end) => Ok(start..end),
            None => Err("that is beyond the last position; LEN 0 is up to the end".to_owned()),
        },
    }
}

/// A number of seconds.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let expected = || "a number of seconds is expected, 0 or more".to_owned();
    let seconds: f64 = text.parse().map_err(|_| expected())?;
    let span = Duration::try_from_secs_f64(seconds).ok().filter(|span| *span <= LONGEST);
    span.ok_or_else(|| match seconds > 0.0 {
        true => "that is too long: leave it out to have no end".to_owned(),
        false => expected(),
    })
}

/// A century: clocks of nanoseconds go a little further than five.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// An exit status.
fn status(text: &str) -> Result<u8, String> {
    text.parse().map_err(|_| "a status from 0 to 255 is expected".to_owned())
}

impl Args {
    /// How long they wait, if not for ever; not at all where it is zero.
    fn limit(&self) -> Option<Duration> {
        if self.nonblock { Some(Duration::ZERO) } else { self.wait }
    }

    /// Whether there is a time within which a server may be away.
    fn waits(&self) -> bool {
        self.limit().is_some_and(|limit| !limit.is_zero())
    }

    /// Acquires the lock as they say, after so much of the time has passed.
    fn acquire(&self, session: &Session, spent: Duration) -> Result<Held, AcquireError> {
        let wanted = match self.range.clone() {
            None => Wanted::Lock(session.lock(&self.name)),
            Some(range) => Wanted::Range(session.range(&self.name).in_units_of(self.unit), range),
        };
        let request = || wanted.ask(self.shared);
        let granted = match self.limit() {
            None if self.is_nested() => wait_below_the_holder(&self.name, request),
            None => request().blocking(),
            Some(Duration::ZERO) => try_beside_the_dying(request),
            Some(limit) => request().within(limit.saturating_sub(spent)).blocking(),
        };
        granted.map_err(|error| match (error, self.limit()) {
            (AcquireError::TimedOut { name, holders, .. }, Some(limit)) => {
                AcquireError::TimedOut { name, holders, limit }
            }
            (error, _) => error,
        })
    }

    /// Whether this runs under a lock of that name, which may be this one.
    fn is_nested(&self) -> bool {
        std::env::var_os(guardian::NAME).is_some_and(|name| name == *self.name)
    }

    /// Why they are refused, if they ask for what flock(1) does with files.
    fn refusal(&self) -> Option<Failure> {
        let (what, hint) = if self.unlock {
            (
                "-u: a lock is not released by its name",
                "it is released when its COMMAND ends: put what runs under it into one command",
            )
        } else if self.close {
            (
                "-o: the command has no lock to close",
                "leave it out: what the command leaves running never keeps the lock",
            )
        } else if self.no_fork {
            (
                "-F: farlock stays beside the command",
                "leave it out: farlock releases the lock when the command ends",
            )
        } else {
            return None;
        };
        Some(Failure::usage(what, hint))
    }

    /// The command as a program and its arguments.
    fn words(&self) -> Vec<OsString> {
        match &self.command_line {
            None => self.command.clone(),
            Some(line) => {
                let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
                vec![shell.unwrap_or_else(|| "/bin/sh".into()), "-c".into(), line.clone()]
            }
        }
    }
}

/// What is said instead of a complaint about a missing command, where the arguments are those by
/// which flock(1) locks an open descriptor.
pub(super) fn refuse_descriptor(arguments: &[OsString]) -> Option<Failure> {
    let last = arguments.last()?.to_str()?;
    let is_descriptor = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
    is_descriptor.then(|| {
        Failure::usage(
            format_args!("{last}: an open descriptor is not locked"),
            "say what is to run under the lock: farlock lock NAME -- COMMAND, or -c SHELL-COMMAND",
        )
    })
}

pub(super) fn run(args: Args, places: &Places) -> Result<Exit, Failure> {
    if let Some(refusal) = args.refusal() {
        return Err(refusal);
    }
    // What is wrong with it is said before there is a region.
    farlock::check_name(&args.name)?;
    let (words, options) = (args.words(), places.region(&args.region)?);
    if options.server.is_none() {
        places.heed_state_dir(&options.name);
    }
    let job = Job::prepare(&words, &args.name)?;
    let label = words.join(OsStr::new(" "));
    let options = options.labelled(label.to_string_lossy());
    let region = options.server.is_none().then(|| options.dir.join(&options.name));
    match hold_in_time(&args, options) {
        Ok((session, guard)) => run_under(job, session, guard, region.as_deref()),
        Err(failure) => {
            job.cancel();
            if failure.exit != Exit::CONFLICT {
                return Err(failure);
            }
            let failure = failure.exiting(Exit(args.conflict_exit_code));
            if args.quiet { Ok(failure.exit) } else { Err(failure) }
        }
    }
}

/// How far the acquisition of a lock has come.
enum Step {
    /// The server could not be reached, and will be tried again.
    Unreached(Failure),
    /// It has been, and has not answered, and will be tried again.
    Unanswered,
    /// The server, or the region, has answered.
    Opened,
    /// It is over.
    Over(Result<(Session, Held), Failure>),
}

/// Acquires the lock. A server that cannot be reached, or does not answer, is waited for no longer
/// than for the lock, but for what one that has answered may take for what is no waiting.
fn hold_in_time(args: &Args, options: RegionOptions) -> Result<(Session, Held), Failure> {
    /// How long one that has answered may take for what is no waiting.
    const ROUND_TRIPS: Duration = Duration::from_millis(500);
    let (Some(limit), Some(server)) = (args.limit(), options.server.clone()) else {
        return hold(args, options, |_| true);
    };
    let limit = if limit.is_zero() { SERVER } else { limit };
    let begun = Instant::now();
    let (tell, told) = std::sync::mpsc::sync_channel(2);
    let asking = args.clone();
    let asks = move || {
        // Where nobody waits for it any more, this process is ending.
        let held = hold(&asking, options, |step| tell.send(step).is_ok());
        let _ = tell.send(Step::Over(held));
    };
    let asked = std::thread::Builder::new().spawn(asks);
    let asked = asked.map_err(|error| Failure::from(SessionError::Thread(error)))?;
    let (mut patience, mut unreached) = (limit, None);
    let answer = loop {
        match told.recv_timeout(patience.saturating_sub(begun.elapsed())) {
            Ok(Step::Unreached(failure)) => (patience, unreached) = (limit, Some(failure)),
            Ok(Step::Unanswered) => (patience, unreached) = (limit, None),
            Ok(Step::Opened) => {
                (patience, unreached) = (limit.saturating_add(ROUND_TRIPS), None);
            }
            Ok(Step::Over(answer)) => break answer,
            Err(_) => {
                let tried = format!(", tried again for {} s", limit.as_secs_f64());
                let unreached = unreached.map(|failure: Failure| failure.adding(&tried));
                return Err(unreached.unwrap_or_else(|| silent(&args.name, &server, limit)));
            }
        }
    };
    // Gone before there is a command: signals for that go to no thread but this one.
    let _ = asked.join();
    answer
}

/// Opens a session. With -w a server that cannot be reached is tried again for as long as the
/// waiter goes on to hear of it.
fn open(
    args: &Args,
    options: &RegionOptions,
    tell: impl Fn(Step) -> bool,
) -> Result<Session, Failure> {
    const PAUSE_MIN: Duration = Duration::from_millis(10);
    const PAUSE_MAX: Duration = Duration::from_millis(100);
    let mut pause = PAUSE_MIN;
    loop {
        let error = match Session::open_tethered(options) {
            Err(SessionError::Connect(error)) if error.is_of_server_away() => error,
            opened => return Ok(opened?),
        };
        let is_silent = matches!(error, ConnectError::NoAnswer { .. });
        let failure = Failure::from(SessionError::from(error));
        if !args.waits() {
            return Err(failure.hinting_too("; -w SECONDS goes on trying for so long"));
        }
        let step = if is_silent { Step::Unanswered } else { Step::Unreached(failure.clone()) };
        if !tell(step) {
            return Err(failure);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// The server has not answered in time.
fn silent(name: &str, server: &str, limit: Duration) -> Failure {
    let what = format!(
        "the lock '{}' was not granted: the server {} has not answered within {} s",
        shown(name),
        shown(server),
        limit.as_secs_f64()
    );
    let hint = "see whether `farlock serve` runs there, or something else, and whether it is \
                stopped or overloaded";
    Failure::new(Exit::CONFLICT, "server-silent", what, hint.to_owned())
}

/// Acquires the lock; tells how far that has come, and hears whether anybody still waits for it.
fn hold(
    args: &Args,
    options: RegionOptions,
    tell: impl Fn(Step) -> bool,
) -> Result<(Session, Held), Failure> {
    let begun = Instant::now();
    let options = match args.limit() {
        None => options,
        Some(Duration::ZERO) => options.within(REMOVAL),
        Some(limit) => options.within(limit),
    };
    let (session, guard) = loop {
        let session = open(args, &options, &tell)?;
        tell(Step::Opened);
        match args.acquire(&session, begun.elapsed()) {
            // It has lost its place in line, and may get another one.
            Err(AcquireError::Lost {
                reason: LostReason::Disconnected | LostReason::SleptThrough,
                ..
            }) if args.waits() => {}
            granted => break (session, granted?),
        }
    };
    // A waiter may be granted the lock of a region whose file is gone: others have another one.
    if let Some(reason) = guard.lost_reason() {
        return Err(AcquireError::Lost { name: args.name.clone(), reason }.into());
    }
    if args.verbose {
        let (waited, token) = (in_words(begun.elapsed()), guard.token());
        let name = shown(&args.name);
        say(format_args!("farlock: lock '{name}' granted after {waited}, token {token}"));
    }
    Ok((session, guard))
}

/// Runs the command, and releases the lock, of a region with this file, or of a server's.
fn run_under(
    job: Job,
    session: Session,
    guard: Held,
    region: Option<&Path>,
) -> Result<Exit, Failure> {
    let (ended, guardian, is_told) = job.run(&guard, region)?;
    let name = guard.name().to_owned();
    let (ended_at, left) = (Instant::now(), guard.remaining());
    let lost = guard.lost_reason();
    let released = guard.release().err().and_then(reason_of);
    // The server was silent until the lease ended, and that was after the command had.
    let is_unheard = lost.is_none() && left.is_some_and(|left| ended_at.elapsed() >= left);
    drop(session);
    guardian.end();
    if let Some(reason) = lost.or(released).filter(|_| !is_told) {
        let (how, hint) = if is_unheard {
            (
                "was held until the command had ended, and could not be given back",
                "others have it, or will once its lease has ended",
            )
        } else {
            (
                "was lost while the command ran",
                "others may have had it too: see what the command has done, and whether that is \
                 to be done again",
            )
        };
        say(Failure::lost(&name, how, reason, hint));
    }
    Ok(match ended {
        Ended::Command(exit) => exit,
        Ended::Signal(signal) => job::die_of(signal),
        Ended::Guardian => {
            say("farlock: the guardian was killed, and so the command was");
            Exit::killed_by(Signal::KILL.as_raw())
        }
        Ended::Unbegun => {
            say("farlock: the guardian was killed while the lock was awaited, and nothing was run");
            Exit::SYSTEM
        }
    })
}
