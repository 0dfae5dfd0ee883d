//! The critical section of a storm over the faces: a holder leaves a mark, looks for marks of
//! others, stays a while, and writes down when it came and went.
//!
//! A mark is a symbolic link that names a process: made in one step or not at all. Who holds alone
//! has the one mark of that name; shared holders have one each. A mark whose process is dead is
//! removed by the client that finds it. A mark of the living says that two were inside. Holders of
//! a part of a lock leave none: the log alone tells of them. Nothing here knows a lock's text.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;

use super::super::log::{self, Log, Record, What};
use super::super::part::Part;

/// The mark of who holds alone.
const ALONE: &str = "alone";
/// The kernel's flag of a task that is exiting.
const PF_EXITING: u64 = 0x4;
/// SIGKILL, among the pending signals.
const KILL_PENDING: u64 = 1 << 8;
/// Who seems to live may be dying: it is looked at again after so long.
const SECOND_LOOK: Duration = Duration::from_millis(2);

/// Makes the place of marks for so many locks.
pub fn prepare(dir: &Path, locks: u64) -> io::Result<()> {
    (0..locks).try_for_each(|lock| std::fs::create_dir_all(place(dir, lock)))
}

fn place(dir: &Path, lock: u64) -> PathBuf {
    dir.join("marks").join(lock.to_string())
}

/// A critical section: whose, which lock, with which token, how long.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Who, which operation, which lock, in which mode, with which token.
    pub record: Record,
    /// How long the holder stays.
    pub hold: Duration,
}

impl Section {
    /// The caller holds the lock until this returns.
    pub fn hold(self, dir: &Path, log: &Log) -> io::Result<()> {
        let Self { record, hold } = self;
        let at = |what| Record { what, time: log::now(), ..record };
        log.add(at(What::Enters))?;
        let Record { who, op, part, .. } = record;
        if part != Part::all(part.lock) {
            std::thread::sleep(hold);
            return log.add(at(What::Leaves));
        }
        let place = place(dir, part.lock);
        let own = if record.alone { ALONE.to_owned() } else { format!("shared-{who}-{op}") };
        if mark(&place, &own, record.alone)? {
            log.add(at(What::Overlaps))?;
        }
        std::thread::sleep(hold);
        // Who overlapped it may have taken it away.
        let _ = std::fs::remove_file(place.join(own));
        log.add(at(What::Leaves))
    }
}

/// Leaves a mark. Whether a living holder was inside that should not have been.
fn mark(place: &Path, own: &str, alone: bool) -> io::Result<bool> {
    let me = Process::find(std::process::id()).ok_or_else(|| io::Error::other("who am I?"))?;
    let mut overlaps = false;
    // Again only if another holder, dead or living, was there.
    while let Err(error) = symlink(me.to_string(), place.join(own)) {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        overlaps |= inspect(&place.join(own))?;
    }
    for entry in std::fs::read_dir(place)? {
        let name = entry?.file_name();
        if name != *own && (alone || name == ALONE) {
            overlaps |= inspect(&place.join(name))?;
        }
    }
    Ok(overlaps)
}

/// Whether the process of a mark lives. The mark is removed.
fn inspect(mark: &Path) -> io::Result<bool> {
    let target = match std::fs::read_link(mark) {
        Ok(target) => target,
        // Taken away meanwhile: a shared holder that left, or another found it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let lives = Process::parse(&target.to_string_lossy()).is_some_and(|process| {
        process.lives() && {
            std::thread::sleep(SECOND_LOOK);
            process.lives()
        }
    });
    match std::fs::remove_file(mark) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(lives),
    }
}

/// A process, told from others that had its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    pid: u32,
    started: u64,
}

impl Process {
    /// The process that has this id now.
    pub fn find(pid: u32) -> Option<Self> {
        let started = Stat::read(pid)?.started;
        Some(Self { pid, started })
    }

    /// Its id.
    pub fn pid(self) -> u32 {
        self.pid
    }

    /// Its id, to signal it.
    pub fn as_pid(self) -> Pid {
        Pid::from_raw(self.pid as i32).expect("a process has an id")
    }

    /// Whether it will ever run again in user mode.
    pub fn lives(self) -> bool {
        let Some(stat) = Stat::read(self.pid) else { return false };
        let dead = matches!(stat.state, 'Z' | 'X') || stat.flags & PF_EXITING != 0;
        stat.started == self.started && !dead && !is_killed(self.pid)
    }

    /// Whether it has ended: the kernel has closed what it had open, a tether as well.
    pub fn has_ended(self) -> bool {
        let there = |stat: Stat| stat.started == self.started && !matches!(stat.state, 'Z' | 'X');
        !Stat::read(self.pid).is_some_and(there)
    }

    fn parse(text: &str) -> Option<Self> {
        let (pid, started) = text.split_once('-')?;
        Some(Self { pid: pid.parse().ok()?, started: started.parse().ok()? })
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.pid, self.started)
    }
}

/// What the kernel says of a process.
struct Stat {
    state: char,
    flags: u64,
    started: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // After the program's name, which may hold anything: the third field and those after it.
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let number = |field: usize| fields.get(field - 3)?.parse().ok();
        let state = fields.first()?.chars().next()?;
        Some(Self { state, flags: number(9)?, started: number(22)? })
    }
}

/// Whether a kill is on its way to it.
fn is_killed(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    pending.fold(0, |all, mask| all | mask) & KILL_PENDING != 0
}

/// How the process under a command's lock is started.
#[derive(Clone, Debug, clap::Args)]
pub struct InsideArgs {
    /// Where the log and the marks are.
    #[arg(long)]
    pub dir: PathBuf,
    /// The operation, which is its command's number as well.
    #[arg(long)]
    pub op: u64,
    /// The lock.
    #[arg(long)]
    pub lock: u64,
    /// Of it the first position that is held.
    #[arg(long)]
    pub start: u64,
    /// The one behind the last.
    #[arg(long)]
    pub end: u64,
    /// Not alone.
    #[arg(long)]
    pub shared: bool,
    /// How long it stays, in microseconds.
    #[arg(long)]
    pub hold_us: u64,
    /// The token that the command was given.
    #[arg(long, env = "FARLOCK_TOKEN", default_value_t = 0)]
    pub token: u64,
}

/// The process under a command's lock.
pub fn run(args: &InsideArgs) -> anyhow::Result<()> {
    let log = Log::open(&args.dir)?;
    let part = Part { lock: args.lock, start: args.start, end: args.end };
    let record = Record {
        op: args.op,
        part,
        alone: !args.shared,
        token: args.token,
        ..Record::now(What::Enters, args.op)
    };
    let hold = Duration::from_micros(args.hold_us);
    Ok(Section { record, hold }.hold(&args.dir, &log)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_mark_of_the_living_is_an_overlap_and_one_of_the_dead_is_removed() {
        let scratch = Scratch::new().unwrap();
        prepare(scratch.path(), 1).unwrap();
        let place = place(scratch.path(), 0);
        assert!(!mark(&place, ALONE, true).unwrap());
        assert!(mark(&place, "shared-1", false).unwrap(), "this process lives");
        assert!(!mark(&place, "shared-2", false).unwrap(), "shared holders are no overlap");
        assert!(mark(&place, ALONE, true).unwrap());
        std::fs::remove_file(place.join(ALONE)).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = Process::find(child.id()).unwrap();
        child.wait().unwrap();
        assert!(!dead.lives());
        symlink(dead.to_string(), place.join(ALONE)).unwrap();
        assert!(!mark(&place, ALONE, true).unwrap());
    }
}
