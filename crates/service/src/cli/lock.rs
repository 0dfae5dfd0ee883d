//! `farlock lock`: run a command while holding a lock, with flock(1)'s letters.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::process;
use std::time::{Duration, Instant};

use farlock::inspect::in_words;
use farlock::{AcquireError, Guard, Session};

use super::job::{Ended, Job};
use super::report::{Exit, Failure};
use super::{Places, RegionArg};

/// Run a command while holding a lock.
///
/// The command runs in a process group of its own. If `farlock lock` dies, however it dies, the
/// command is killed before anybody else is granted the lock. Signals are passed on to the command.
/// The lock is released when the command ends; what it left running in the background goes on
/// without the lock.
///
/// The command finds in its environment: FARLOCK_NAME, the lock's name; FARLOCK_TOKEN, the fencing
/// token, a number that grows with every exclusive grant. FARLOCK_DEADLINE is not set: in shared
/// memory a lock has no lease, it is held until the command ends.
///
/// Exit status: the command's own, 128 plus the signal's number if it was killed; 1, or CODE, if
/// the lock was not granted; 64 for wrong usage, 69 if the region cannot be used, 71 if the system
/// refuses, 126 or 127 if the command cannot be run or found.
#[derive(Debug, clap::Args)]
#[command(override_usage = "farlock lock [OPTIONS] NAME [--] COMMAND...\n       \
    farlock lock [OPTIONS] NAME -c SHELL-COMMAND")]
pub(super) struct Args {
    /// The lock's name: 1 to 255 bytes.
    name: String,
    #[command(flatten)]
    region: RegionArg,
    /// Hold the lock together with other shared holders.
    #[arg(short, long)]
    shared: bool,
    /// Hold the lock alone (the default).
    #[arg(short = 'x', long, short_alias = 'e', conflicts_with = "shared")]
    exclusive: bool,
    /// Fail rather than wait.
    #[arg(short, long, aliases = ["nb", "non-blocking"], conflicts_with = "wait")]
    nonblock: bool,
    /// Fail after so many seconds, fractions allowed; 0 is the same as -n.
    #[arg(short, long, alias = "timeout", value_name = "SECONDS", value_parser = seconds)]
    wait: Option<Duration>,
    /// Exit with CODE if the lock is not granted in time.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Exit::CONFLICT.0)]
    conflict_exit_code: u8,
    /// Say on standard error when the lock was granted, with its token.
    #[arg(short, long)]
    verbose: bool,
    /// Say nothing if the lock is not granted in time.
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Run SHELL-COMMAND by the shell.
    #[arg(short, long = "command", value_name = "SHELL-COMMAND")]
    command_line: Option<OsString>,
    /// The command and its arguments.
    #[arg(
        trailing_var_arg = true,
        conflicts_with = "command_line",
        required_unless_present = "command_line"
    )]
    command: Vec<OsString>,
}

/// A number of seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds is expected".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

impl Args {
    /// Acquires the lock as they say.
    fn acquire(&self, session: &Session) -> Result<Guard, AcquireError> {
        let lock = session.lock(&self.name);
        let request = if self.shared { lock.shared() } else { lock.exclusive() };
        match self.wait {
            _ if self.nonblock => request.at_once(),
            Some(Duration::ZERO) => request.at_once(),
            Some(limit) => request.within(limit),
            None => request,
        }
        .blocking()
    }

    /// The command as a program and its arguments.
    fn words(&self) -> Vec<OsString> {
        match &self.command_line {
            None => self.command.clone(),
            Some(line) => vec!["/bin/sh".into(), "-c".into(), line.clone()],
        }
    }
}

pub(super) fn run(args: Args, places: &Places) -> Result<Exit, Failure> {
    let words = args.words();
    let label = words.join(OsStr::new(" "));
    let options = places.region(&args.region).labelled(label.to_string_lossy());
    let session = Session::open_tethered(&options)?;
    let begun = Instant::now();
    let guard = match args.acquire(&session) {
        Ok(guard) => guard,
        Err(error) => {
            let failure = Failure::from(error);
            if failure.exit != Exit::CONFLICT {
                return Err(failure);
            }
            let failure = failure.exiting(Exit(args.conflict_exit_code));
            return if args.quiet { Ok(failure.exit) } else { Err(failure) };
        }
    };
    let token = guard.token().to_string();
    if args.verbose {
        let waited = in_words(begun.elapsed());
        eprintln!("farlock: lock '{}' granted after {waited}, token {token}", args.name);
    }
    let variables = [
        ("FARLOCK_NAME", Some(OsStr::new(&args.name))),
        ("FARLOCK_TOKEN", Some(OsStr::new(&token))),
        ("FARLOCK_DEADLINE", None),
    ];
    match Job::start(&words, &variables)?.finish()? {
        Ended::Command(exit) => {
            if guard.release().blocking().is_err() {
                eprintln!("farlock: the lock '{}' was lost while the command ran", args.name);
            }
            Ok(exit)
        }
        Ended::Guardian(signal) => {
            // Nothing is released here: our end releases, once the whole group is gone.
            if signal == rustix::process::Signal::KILL.as_raw() {
                eprintln!("farlock: the guardian was killed, and so the command was");
                let _ = std::io::stderr().flush();
            }
            process::exit(Exit::killed_by(signal).0.into());
        }
    }
}
