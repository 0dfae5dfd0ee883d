//! What is measured beside the locks' clients, in the same loop: the faces that people meet
//! ([`crate::face`]), and the rivals. Those are the processor itself, the kernel's file locks, the
//! C library's mutex between processes, and a lock for threads of one process.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use farlock_fabric::shm::{SystemGuard, SystemKind, SystemMutexes, Wide};
use farlock_locks::Mode;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustix::fs::FlockOperation;

use crate::drive::{Failure, Subject};
use crate::face::Program;

/// What is known of a rival without one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RivalInfo {
    /// What the command line calls it.
    pub name: &'static str,
    /// Which one.
    pub rival: Rival,
    /// Where it is measured.
    pub at: At,
}

/// Where something is measured: how much of what people use stands above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// A session of the library.
    Session,
    /// A command of its own for each acquisition.
    Command,
    /// A lock's client, below the library.
    Client,
    /// What the system or another library has.
    System,
}

impl At {
    /// What a row calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Command => "command",
            Self::Client => "client",
            Self::System => "system",
        }
    }
}

/// The rivals, and the faces among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rival {
    /// [`crate::face::Blocking`].
    Session,
    /// [`crate::face::Awaited`].
    SessionAsync,
    /// [`crate::face::Commands`].
    Command(Program),
    /// [`Raw`].
    Raw,
    /// [`Flock`].
    Flock,
    /// [`Ofd`].
    Ofd,
    /// [`Mutexes`].
    Pthread(SystemKind),
    /// [`Threads`].
    ParkingLot,
}

/// Every rival, in the order of lists and tables.
pub const RIVALS: &[RivalInfo] = &[
    // farlock's session, its blocking face.
    RivalInfo { name: "session", rival: Rival::Session, at: At::Session },
    // farlock's session, awaited on a tokio runtime of one thread.
    RivalInfo { name: "session-async", rival: Rival::SessionAsync, at: At::Session },
    // `farlock lock NAME -- true`, again and again.
    RivalInfo { name: "command", rival: Rival::Command(Program::Farlock), at: At::Command },
    // `flock FILE true`, again and again.
    RivalInfo { name: "flock-command", rival: Rival::Command(Program::Flock), at: At::Command },
    // Two 128-bit compare-and-swaps on a private line: the floor, excludes nobody.
    RivalInfo { name: "raw", rival: Rival::Raw, at: At::System },
    // flock(2), a file a lock.
    RivalInfo { name: "flock", rival: Rival::Flock, at: At::System },
    // fcntl(2) locks of open file descriptions, a byte a lock.
    RivalInfo { name: "ofd", rival: Rival::Ofd, at: At::System },
    // The C library's mutex between processes, a line a lock; alone in either mode.
    RivalInfo { name: "pthread", rival: Rival::Pthread(SystemKind::Mutex), at: At::System },
    // The same, robust: the next one has it when its holder dies.
    RivalInfo { name: "pthread-robust", rival: Rival::Pthread(SystemKind::Robust), at: At::System },
    // The C library's reader-writer lock between processes, a line a lock.
    RivalInfo {
        name: "pthread-rw",
        rival: Rival::Pthread(SystemKind::ReaderWriter),
        at: At::System,
    },
    // parking_lot's RwLock between threads of one process.
    RivalInfo { name: "parking_lot", rival: Rival::ParkingLot, at: At::System },
];

/// The rival of this name.
pub fn rival(name: &str) -> Option<Rival> {
    RIVALS.iter().find(|info| info.name == name).map(|info| info.rival)
}

/// Where the subject of this name is measured.
pub fn measured_at(name: &str) -> At {
    RIVALS.iter().find(|info| info.name == name).map_or(At::Client, |info| info.at)
}

/// A line of its own.
#[repr(align(64))]
struct Line(Wide);

/// Lines of this client alone, each compared and swapped once to acquire and once to release. What
/// the processor itself takes for a cycle of two wide atomics.
pub struct Raw {
    lines: Vec<Line>,
}

impl Raw {
    /// So many lines.
    pub fn new(locks: u64) -> Self {
        Self { lines: (0..locks).map(|_| Line(Wide::new(0))).collect() }
    }
}

impl Subject for Raw {
    type Held<'s> = u32;

    #[inline(always)]
    async fn acquire(&self, lock: u32, _: Mode) -> Result<u32, Failure> {
        match self.lines[lock as usize].0.compare_exchange(0, 1) {
            Ok(()) => Ok(lock),
            Err(_) => panic!("nobody else has this line"),
        }
    }

    #[inline(always)]
    async fn release(&self, lock: u32) -> Result<(), Failure> {
        match self.lines[lock as usize].0.compare_exchange(1, 0) {
            Ok(()) => Ok(()),
            Err(_) => panic!("nobody else has this line"),
        }
    }
}

/// The most locks of [`Flock`]: each is an open file.
pub const FLOCKS_MAX: u64 = 512;

/// `flock(2)`: a file a lock.
pub struct Flock {
    files: Vec<File>,
}

impl Flock {
    /// Opens or creates a file for each lock, at most [`FLOCKS_MAX`], in this directory.
    pub fn open(dir: &Path, locks: u64) -> io::Result<Self> {
        assert!(locks <= FLOCKS_MAX, "at most {FLOCKS_MAX} files");
        let files = (0..locks).map(|lock| open(&dir.join(format!("flock-{lock}"))));
        Ok(Self { files: files.collect::<io::Result<_>>()? })
    }
}

impl Subject for Flock {
    type Held<'s> = u32;

    async fn acquire(&self, lock: u32, mode: Mode) -> Result<u32, Failure> {
        let operation = match mode {
            Mode::Shared => FlockOperation::LockShared,
            Mode::Exclusive => FlockOperation::LockExclusive,
        };
        let file = &self.files[lock as usize];
        rustix::io::retry_on_intr(|| rustix::fs::flock(file, operation)).map_err(refused)?;
        Ok(lock)
    }

    async fn release(&self, lock: u32) -> Result<(), Failure> {
        rustix::fs::flock(&self.files[lock as usize], FlockOperation::Unlock).map_err(refused)
    }
}

fn refused(error: rustix::io::Errno) -> Failure {
    Failure::System(error.raw_os_error())
}

/// Locks of open file descriptions: a byte of one file a lock.
pub struct Ofd {
    file: File,
}

impl Ofd {
    /// Opens or creates the file, in this directory.
    pub fn open(dir: &Path) -> io::Result<Self> {
        Ok(Self { file: open(&dir.join("ofd"))? })
    }

    fn set(&self, lock: u32, kind: i32) -> Result<(), Failure> {
        let range = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: lock.into(),
            l_len: 1,
            l_pid: 0,
        };
        loop {
            match fcntl(self.file.as_fd(), FcntlArg::F_OFD_SETLKW(&range)) {
                Ok(_) => return Ok(()),
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(Failure::System(error as i32)),
            }
        }
    }
}

impl Subject for Ofd {
    type Held<'s> = u32;

    async fn acquire(&self, lock: u32, mode: Mode) -> Result<u32, Failure> {
        let kind = match mode {
            Mode::Shared => libc::F_RDLCK,
            Mode::Exclusive => libc::F_WRLCK,
        };
        self.set(lock, kind)?;
        Ok(lock)
    }

    async fn release(&self, lock: u32) -> Result<(), Failure> {
        self.set(lock, libc::F_UNLCK)
    }
}

/// The kinds of [`Mutexes`].
pub const SYSTEM_KINDS: [SystemKind; 3] =
    [SystemKind::Mutex, SystemKind::Robust, SystemKind::ReaderWriter];
/// The most locks of each kind of [`Mutexes`]: 4 MiB of them.
pub const MUTEXES_MAX: u64 = 1 << 16;

/// Locks of the C library between processes. Its mutexes know no shared mode.
pub struct Mutexes {
    mutexes: SystemMutexes,
}

impl Mutexes {
    /// Makes so many, at most [`MUTEXES_MAX`], in this directory, for [`Mutexes::open`].
    pub fn create(dir: &Path, locks: u64, kind: SystemKind) -> io::Result<()> {
        assert!(locks <= MUTEXES_MAX, "at most {MUTEXES_MAX} mutexes");
        SystemMutexes::create(&Self::path(dir, kind), locks as usize, kind).map(drop)
    }

    /// Opens those that were made there.
    pub fn open(dir: &Path, locks: u64, kind: SystemKind) -> io::Result<Self> {
        let mutexes = SystemMutexes::open(&Self::path(dir, kind), locks as usize, kind)?;
        Ok(Self { mutexes })
    }

    fn path(dir: &Path, kind: SystemKind) -> PathBuf {
        dir.join(format!("{kind:?}"))
    }
}

impl Subject for Mutexes {
    type Held<'s> = SystemGuard<'s>;

    #[inline(always)]
    async fn acquire(&self, lock: u32, mode: Mode) -> Result<SystemGuard<'_>, Failure> {
        Ok(match mode {
            Mode::Shared => self.mutexes.lock_shared(lock as usize),
            Mode::Exclusive => self.mutexes.lock(lock as usize),
        })
    }

    #[inline(always)]
    async fn release<'s>(&'s self, held: SystemGuard<'s>) -> Result<(), Failure> {
        drop(held);
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// A thread's view of locks that it shares with other threads of its process.
pub struct Threads<'a> {
    locks: &'a [RwLock<()>],
}

impl<'a> Threads<'a> {
    /// A client of these locks.
    pub fn new(locks: &'a [RwLock<()>]) -> Self {
        Self { locks }
    }
}

/// A held lock of parking_lot.
pub enum HeldByThread<'a> {
    /// Together with others.
    Shared(RwLockReadGuard<'a, ()>),
    /// Alone.
    Exclusive(RwLockWriteGuard<'a, ()>),
}

impl<'a> Subject for Threads<'a> {
    type Held<'s>
        = HeldByThread<'a>
    where
        Self: 's;

    #[inline(always)]
    async fn acquire(&self, lock: u32, mode: Mode) -> Result<HeldByThread<'a>, Failure> {
        let lock = &self.locks[lock as usize];
        Ok(match mode {
            Mode::Shared => HeldByThread::Shared(lock.read()),
            Mode::Exclusive => HeldByThread::Exclusive(lock.write()),
        })
    }

    #[inline(always)]
    async fn release<'s>(&'s self, held: HeldByThread<'a>) -> Result<(), Failure> {
        match held {
            HeldByThread::Shared(guard) => drop(guard),
            HeldByThread::Exclusive(guard) => drop(guard),
        }
        Ok(())
    }
}
