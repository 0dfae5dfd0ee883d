//! The processes of the demo: each acquires by name like any program, and reports in plain lines.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use farlock::{Mode, RegionOptions, Session};

use super::super::report::{self, Exit, Failure};
use super::stage::demo_failed;

/// The hidden command by which the demo starts its processes.
pub(crate) const NAME: &str = "__demo";

/// How long a reader holds its lock.
const READ: Duration = Duration::from_millis(20);

/// What a process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Increments the counter in the file under the lock, until its time is up.
    Count,
    /// Holds the lock shared, again and again, and reports when.
    Read,
    /// Holds the lock alone, again and again, and reports when.
    Write,
    /// Acquires the lock, reports when, and keeps it until it is killed.
    Hold,
}

const ROLES: [(&str, Role); 4] =
    [("count", Role::Count), ("read", Role::Read), ("write", Role::Write), ("hold", Role::Hold)];

/// The arguments that start a process in this role on these directories.
pub(super) fn arguments(role: Role, options: &RegionOptions, time: Duration) -> [OsString; 5] {
    let name = ROLES.iter().find(|(_, known)| *known == role).expect("every role has a name").0;
    [
        NAME.into(),
        name.into(),
        options.dir.clone().into(),
        options.state_dir.clone().into(),
        time.as_millis().to_string().into(),
    ]
}

/// Where the counter lies: two words, the count and the highest token seen.
pub(super) fn counter(options: &RegionOptions) -> PathBuf {
    options.state_dir.join("counter")
}

/// Runs as a process of the demo; the arguments are those after its name.
pub(crate) fn main(mut arguments: impl Iterator<Item = OsString>) -> Exit {
    let mut next = || arguments.next();
    let role = next().and_then(|name| ROLES.iter().find(|(known, _)| name == *known));
    let (dir, state_dir) = (next(), next());
    let time = next().and_then(|millis| millis.to_str()?.parse().ok());
    let (Some((_, role)), Some(dir), Some(state_dir), Some(millis)) = (role, dir, state_dir, time)
    else {
        report::say(format_args!("farlock: {NAME} is started by `farlock demo` alone"));
        return Exit::USAGE;
    };
    let options = RegionOptions::new(dir, state_dir).named("demo").labelled("farlock demo");
    match perform(*role, &options, Duration::from_millis(millis)) {
        Ok(()) => Exit::OK,
        Err(failure) => {
            report::say(&failure);
            failure.exit
        }
    }
}

fn perform(role: Role, options: &RegionOptions, time: Duration) -> Result<(), Failure> {
    let session = Session::open(options)?;
    match role {
        Role::Count => count(&session, options, time),
        Role::Read => hold_again_and_again(&session, Mode::Shared, READ, time),
        Role::Write => hold_again_and_again(&session, Mode::Exclusive, READ / 4, time),
        Role::Hold => hold(&session),
    }
}

/// The boot clock, the same for all processes, in nanoseconds.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn say(line: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let said = writeln!(out, "{line}").and_then(|()| out.flush());
    said.map_err(|error| Failure::system("the demo does not listen any more", error))
}

/// Reports how often it incremented, ten times a second and at the end.
fn count(session: &Session, options: &RegionOptions, time: Duration) -> Result<(), Failure> {
    let failed = |error| Failure::system("the counter cannot be used", error);
    let path = counter(options);
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    let lock = session.lock("demo/counter");
    let begun = Instant::now();
    let mut next_report = Duration::from_millis(100);
    let (mut count, mut disordered) = (0_u64, 0_u64);
    loop {
        let guard = lock.exclusive().blocking()?;
        let token = guard.token().get();
        disordered += u64::from(!increment(&file, token).map_err(failed)?);
        guard.release().blocking().map_err(|error| demo_failed("a release failed", error))?;
        count += 1;
        let elapsed = begun.elapsed();
        if elapsed >= next_report || elapsed >= time {
            say(format_args!("{count} {disordered}"))?;
            next_report += Duration::from_millis(100);
        }
        if elapsed >= time {
            return Ok(());
        }
    }
}

/// Reads the counter and writes it back one higher: lost updates would show. Returns whether the
/// token is above the last.
fn increment(file: &File, token: u64) -> io::Result<bool> {
    let mut bytes = [0; 16];
    file.read_exact_at(&mut bytes, 0)?;
    let [count, last] = [0, 8].map(|at| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a slice of eight bytes"))
    });
    let (count, highest) = ((count + 1).to_le_bytes(), token.max(last).to_le_bytes());
    file.write_all_at(&[count, highest].concat(), 0)?;
    Ok(token > last)
}

/// Reports from when to when it held, in nanoseconds of the boot clock.
fn hold_again_and_again(
    session: &Session,
    mode: Mode,
    hold: Duration,
    time: Duration,
) -> Result<(), Failure> {
    let (lock, begun) = (session.lock("demo/shared"), Instant::now());
    while begun.elapsed() < time {
        let request = if mode == Mode::Shared { lock.shared() } else { lock.exclusive() };
        let guard = request.blocking()?;
        let from = now_ns();
        std::thread::sleep(hold);
        let to = now_ns();
        guard.release().blocking().map_err(|error| demo_failed("a release failed", error))?;
        say(format_args!("{from} {to}"))?;
        std::thread::sleep(hold / 4);
    }
    Ok(())
}

fn hold(session: &Session) -> Result<(), Failure> {
    say(format_args!("waits"))?;
    let guard = session.lock("demo/take-over").exclusive().blocking()?;
    let granted = now_ns();
    let token = guard.token().get();
    say(format_args!("{granted} {token}"))?;
    // Our input ends only if the demo ends before it has killed us.
    let _ = io::stdin().read(&mut [0]);
    Ok(())
}
