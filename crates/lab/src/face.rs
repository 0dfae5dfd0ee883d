//! The faces that people meet, as subjects of the driver loop: sessions, blocking and async, and
//! commands that run under a lock.
//!
//! Only what the crate `farlock` and its command publish is used. A session's holders are judged
//! like those of any other subject. A command's critical section is another process, so commands
//! are judged in a round of their own, in which the process under the lock looks at check words in
//! a file ([`inside`]); in measured rounds that process is `true`.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use farlock::session::{Guard, Lock, Request};
use farlock::{AcquireError, Mode, RegionOptions, Session};
use farlock_fabric::Nanos;

use crate::child;
use crate::drive::{Failure, Subject};

/// The most locks of a face: so many names a region has room for.
pub const NAMES_MAX: u64 = 10_000;
/// How the process under the lock says that another was inside.
const OVERLAPPED: u8 = 99;
/// Bytes between the check words of two locks.
const STRIDE: u64 = 64;

/// The region of the faces in this directory.
pub fn region_options(dir: &Path) -> RegionOptions {
    RegionOptions::new(dir.join("faces"), dir.join("faces-state"))
}

/// The environment by which commands find that region.
pub(crate) fn environment(dir: &Path) -> [(&'static str, PathBuf); 2] {
    let options = region_options(dir);
    [("FARLOCK_DIR", options.dir), ("FARLOCK_STATE_DIR", options.state_dir)]
}

/// The name of the lock with this number.
pub(crate) fn name(lock: u64) -> String {
    format!("lock-{lock}")
}

/// The program `farlock`, beside this one.
pub(crate) fn farlock() -> anyhow::Result<PathBuf> {
    let here = std::env::current_exe().context("where is this program?")?;
    let program = here.with_file_name("farlock");
    if !program.is_file() {
        bail!("{} is missing: `cargo build` builds it", program.display());
    }
    Ok(program)
}

/// The command of a server at this port of loopback; its region is to be said by [`environment`].
pub(crate) fn server(port: u16) -> anyhow::Result<Command> {
    let mut command = Command::new(farlock()?);
    command.args(["serve", "--listen", &format!("127.0.0.1:{port}")]);
    Ok(command)
}

/// The program flock(1), if it is installed.
pub(crate) fn flock() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("flock")).find(|program| program.is_file())
}

/// A session's locks, taken through its blocking face.
pub struct Blocking {
    locks: Vec<Lock>,
}

impl Blocking {
    /// So many locks of this session, at most [`NAMES_MAX`].
    pub fn new(session: &Session, locks: u64) -> Self {
        assert!(locks <= NAMES_MAX, "at most {NAMES_MAX} names");
        let locks = (0..locks).map(|lock| session.lock(name(lock))).collect();
        Self { locks }
    }

    #[inline(always)]
    fn request(&self, lock: u32, mode: Mode) -> Request {
        let lock = &self.locks[lock as usize];
        match mode {
            Mode::Shared => lock.shared(),
            Mode::Exclusive => lock.exclusive(),
        }
    }
}

fn refused(error: &AcquireError) -> Failure {
    Failure::Session(error.code())
}

impl Subject for Blocking {
    type Held<'s> = Guard;

    #[inline(always)]
    async fn acquire(&self, lock: u32, mode: Mode) -> Result<Guard, Failure> {
        self.request(lock, mode).blocking().map_err(|error| refused(&error))
    }

    #[inline(always)]
    async fn release(&self, held: Guard) -> Result<(), Failure> {
        held.release().blocking().map_err(|_| Failure::Session("lost"))
    }
}

/// A session's locks, awaited on whichever executor polls.
pub struct Awaited(Blocking);

impl Awaited {
    /// So many locks of this session, at most [`NAMES_MAX`].
    pub fn new(session: &Session, locks: u64) -> Self {
        Self(Blocking::new(session, locks))
    }
}

impl Subject for Awaited {
    type Held<'s> = Guard;

    #[inline(always)]
    async fn acquire(&self, lock: u32, mode: Mode) -> Result<Guard, Failure> {
        self.0.request(lock, mode).await.map_err(|error| refused(&error))
    }

    #[inline(always)]
    async fn release(&self, held: Guard) -> Result<(), Failure> {
        held.release().await.map_err(|_| Failure::Session("lost"))
    }
}

/// Which command takes the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// `farlock lock`.
    Farlock,
    /// flock(1).
    Flock,
}

/// Commands that each run a process under a lock. An acquisition is the whole command, from its
/// start to its end; nothing is left to release.
pub struct Commands {
    program: Program,
    path: PathBuf,
    dir: PathBuf,
    /// How long the process under the lock looks at the check words; `None` if it is `true`.
    judged: Option<Nanos>,
    overlaps: Cell<u64>,
}

impl Commands {
    /// Commands whose region and files are in this directory. If `judged`, the process under the
    /// lock is a judge that stays for so many nanoseconds.
    ///
    /// # Errors
    /// The program is missing.
    pub fn new(program: Program, dir: &Path, judged: Option<Nanos>) -> anyhow::Result<Self> {
        let path = match program {
            Program::Farlock => farlock()?,
            Program::Flock => flock().context("flock(1) is not installed")?,
        };
        let dir = dir.to_owned();
        Ok(Self { program, path, dir, judged, overlaps: Cell::new(0) })
    }

    /// How often the process under a lock was not alone as it should have been.
    pub fn overlaps(&self) -> u64 {
        self.overlaps.get()
    }

    fn command(&self, lock: u32, mode: Mode) -> anyhow::Result<Command> {
        let mut command = Command::new(&self.path);
        let shared = (mode == Mode::Shared).then_some("-s");
        match self.program {
            Program::Farlock => {
                command.arg("lock").arg(name(lock.into())).args(shared).arg("--");
                command.envs(environment(&self.dir));
            }
            Program::Flock => {
                command.args(shared).arg(self.dir.join(format!("flock-command-{lock}")));
            }
        }
        match self.judged {
            None => command.arg("true"),
            Some(nanos) => {
                let lock = lock.to_string();
                let shared = (mode == Mode::Shared).then_some("--shared");
                let itself = std::env::current_exe().context("where is this program?")?;
                command.arg(itself).args(["inside", "--lock", &lock]).args(shared);
                command.arg("--file").arg(check_file(&self.dir));
                command.args(["--hold-ns", &nanos.to_string()])
            }
        };
        command.stdin(Stdio::null());
        Ok(command)
    }
}

impl Subject for Commands {
    type Held<'s> = ();

    async fn acquire(&self, lock: u32, mode: Mode) -> Result<(), Failure> {
        let system = |error: io::Error| Failure::System(error.raw_os_error().unwrap_or(0));
        let mut command = self.command(lock, mode).map_err(|_| Failure::Command(-1))?;
        let status = command.status().map_err(system)?;
        match status.code() {
            Some(0) => Ok(()),
            Some(code) if code == i32::from(OVERLAPPED) => {
                self.overlaps.set(self.overlaps.get() + 1);
                Ok(())
            }
            code => Err(Failure::Command(code.unwrap_or(-1))),
        }
    }

    async fn release(&self, (): ()) -> Result<(), Failure> {
        Ok(())
    }
}

fn check_file(dir: &Path) -> PathBuf {
    dir.join("check")
}

/// Makes the check words of so many locks zero.
pub(crate) fn clear_check(dir: &Path, locks: u64) -> io::Result<()> {
    let file = File::create(check_file(dir))?;
    file.set_len(locks * STRIDE)
}

/// Stores of commands that are missing, or too many, when all have ended.
pub(crate) fn lost(dir: &Path, locks: u64, exclusive: u64) -> io::Result<u64> {
    let file = File::open(check_file(dir))?;
    let words: io::Result<Vec<u64>> = (0..locks).map(|lock| load(&file, lock)).collect();
    let sum = words?.into_iter().fold(0_u64, u64::wrapping_add);
    Ok(sum.abs_diff(exclusive * 2).div_ceil(2))
}

fn load(file: &File, lock: u64) -> io::Result<u64> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, lock * STRIDE)?;
    Ok(u64::from_le_bytes(word))
}

fn store(file: &File, lock: u64, word: u64) -> io::Result<()> {
    file.write_all_at(&word.to_le_bytes(), lock * STRIDE)
}

/// How the process under a lock is started.
#[derive(Clone, Debug, clap::Args)]
pub struct InsideArgs {
    /// The file of check words.
    #[arg(long)]
    pub file: PathBuf,
    /// Which of them.
    #[arg(long)]
    pub lock: u64,
    /// Not alone.
    #[arg(long)]
    pub shared: bool,
    /// How long it stays, in nanoseconds.
    #[arg(long)]
    pub hold_ns: u64,
}

/// The process under a lock: loads its check word and stores one more, as
/// [`Judge`](crate::judge::Judge) does with memory.
pub fn inside(args: &InsideArgs) -> anyhow::Result<()> {
    let file = File::options().read(true).write(true).open(&args.file)?;
    let alone = u64::from(!args.shared);
    let entered = load(&file, args.lock)?;
    if !args.shared {
        store(&file, args.lock, entered.wrapping_add(1))?;
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_nanos(args.hold_ns) {
        std::hint::spin_loop();
    }
    let expected = entered.wrapping_add(alone);
    let found = load(&file, args.lock)?;
    if !args.shared {
        store(&file, args.lock, expected.wrapping_add(1))?;
    }
    if entered & 1 != 0 || found != expected {
        std::process::exit(OVERLAPPED.into());
    }
    Ok(())
}

/// How a process of idle sessions is started.
#[derive(Clone, Debug, clap::Args)]
pub struct AttachedArgs {
    /// Where the region is.
    #[arg(long)]
    pub dir: PathBuf,
    /// Who started it.
    #[arg(long)]
    pub parent: i32,
    /// How many sessions.
    #[arg(long)]
    pub sessions: u64,
}

/// Opens so many sessions, holds a lock with the first, says so, and keeps all of it until standard
/// input ends.
pub fn attached(args: &AttachedArgs) -> anyhow::Result<()> {
    child::die_with(args.parent, "bench --tries")?;
    child::raise_file_limit()?;
    let open = |_| Session::open(&region_options(&args.dir));
    let sessions: Vec<Session> = (0..args.sessions).map(open).collect::<Result<_, _>>()?;
    let first = sessions.first().context("at least one session")?;
    let guard = first.lock(name(0)).exclusive().blocking()?;
    println!("holds");
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    guard.release().blocking()?;
    Ok(())
}
