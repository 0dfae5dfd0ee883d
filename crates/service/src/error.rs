//! What can go wrong, in words people can act on: what happened, to which lock, who holds it, since
//! when, what to do. Codes are stable; texts may improve.

use farlock_fabric::{Fault, shm};
use thiserror::Error;

use crate::directory::DirectoryError;
use crate::inspect::Participant;

/// Why a session was not opened.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The region could not be opened or created.
    #[error("the region could not be opened: {0}")]
    Open(#[from] shm::OpenError),
    /// The region has no place for this process.
    #[error("the region could not be joined: {0}")]
    Attach(#[from] shm::AttachError),
    /// The names of the region could not be read.
    #[error("the region's names could not be read: {0}")]
    Directory(#[from] DirectoryError),
    /// The system gave no thread.
    #[error("the session's thread could not be started: {0}")]
    Thread(std::io::Error),
}

/// Why a lock was not acquired.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum AcquireError {
    /// Somebody else has it, and the attempt was not to wait.
    #[error("the lock '{name}' is taken{}", held(.holders))]
    Busy {
        /// The lock.
        name: String,
        /// Who held it a moment later; may be empty.
        holders: Vec<Participant>,
    },
    /// The time allowed has passed.
    #[error("the lock '{name}' was not granted within {seconds} s{}", held(.holders))]
    TimedOut {
        /// The lock.
        name: String,
        /// The time allowed, in seconds.
        seconds: f64,
        /// Who held it when the time had passed; may be empty.
        holders: Vec<Participant>,
    },
    /// The session holds or awaits as many locks as it can.
    #[error("the lock '{name}' was not asked for: the session has {slots} locks in hand already")]
    TooMany {
        /// The lock.
        name: String,
        /// How many locks a session can hold or await at one time.
        slots: u8,
    },
    /// The name could not be used.
    #[error("the lock '{name}' cannot be used: {source}")]
    Directory {
        /// The lock.
        name: String,
        /// Why not.
        source: DirectoryError,
    },
    /// The session's region is gone.
    #[error("the lock '{name}' cannot be had: {reason}")]
    Lost {
        /// The lock.
        name: String,
        /// What became of the session.
        reason: LostReason,
    },
}

/// Why a release did not go as it should.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum ReleaseError {
    /// The lock was lost before it was released.
    #[error("the lock '{name}' was lost before its release: {reason}")]
    Lost {
        /// The lock.
        name: String,
        /// How it was lost.
        reason: LostReason,
    },
}

/// How a held lock was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum LostReason {
    /// The region was removed or created anew.
    #[error("its region was removed or created anew")]
    RegionGone,
    /// The fabric turned this session away.
    #[error("the fabric turned the session away: {0}")]
    Fabric(Fault),
    /// The session's thread has ended.
    #[error("the session has ended")]
    SessionEnded,
}

impl From<Fault> for LostReason {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Stale => Self::RegionGone,
            other => Self::Fabric(other),
        }
    }
}

/// The half sentence that names holders.
fn held(holders: &[Participant]) -> String {
    match holders {
        [] => String::new(),
        [one] => format!("; it is held by {one}"),
        [one, others @ ..] => format!("; it is held by {one}, and {} more", others.len()),
    }
}

impl SessionError {
    /// A stable name of what happened.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Open(shm::OpenError::Absent { .. }) => "region-absent",
            Self::Open(shm::OpenError::NoSpace { .. }) => "region-no-space",
            Self::Open(_) => "region-open",
            Self::Attach(shm::AttachError::Full { .. }) => "region-full",
            Self::Attach(_) => "region-attach",
            Self::Directory(_) => "directory",
            Self::Thread(_) => "thread",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Open(shm::OpenError::Absent { name, .. }) => {
                format!("`farlock lock --region {name} NAME -- COMMAND` creates it")
            }
            Self::Open(shm::OpenError::NoSpace { .. }) => {
                "make room there, or put FARLOCK_DIR on another filesystem in memory".to_owned()
            }
            Self::Open(shm::OpenError::Malformed { .. }) => {
                "no farlock of this version made it; `farlock region remove` removes it".to_owned()
            }
            Self::Open(shm::OpenError::Untrusted { .. }) => {
                "give it to yourself alone, or set FARLOCK_DIR to a directory of your own"
                    .to_owned()
            }
            Self::Open(shm::OpenError::IncarnationUnreadable { .. }) => {
                "restore the file, or write a number above every incarnation so far into it"
                    .to_owned()
            }
            Self::Open(shm::OpenError::Name { .. }) => {
                "use 1 to 200 bytes without a slash, not beginning with a dot".to_owned()
            }
            Self::Open(_) => "check FARLOCK_DIR and FARLOCK_STATE_DIR".to_owned(),
            Self::Attach(shm::AttachError::Full { .. }) => {
                "`farlock ls` shows who is there; use another --region, or wait".to_owned()
            }
            Self::Attach(shm::AttachError::Stale) => "try again".to_owned(),
            Self::Attach(_) => "check what the system says above".to_owned(),
            Self::Directory(error) => error.hint(),
            Self::Thread(_) => "raise the limit on processes (ulimit -u)".to_owned(),
        }
    }
}

impl AcquireError {
    /// A stable name of what happened.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "busy",
            Self::TimedOut { .. } => "timed-out",
            Self::TooMany { .. } => "too-many-locks",
            Self::Directory { source, .. } => source.code(),
            Self::Lost { .. } => "lost",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Busy { .. } => "wait for it: without -n, or with -w SECONDS".to_owned(),
            Self::TimedOut { .. } => {
                "wait longer, or see with `farlock ls` who else waits".to_owned()
            }
            Self::TooMany { .. } => {
                "release a lock first, or open a second session for more".to_owned()
            }
            Self::Directory { source, .. } => source.hint(),
            Self::Lost { .. } => "open a new session".to_owned(),
        }
    }
}

impl DirectoryError {
    /// A stable name of what happened.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Name { .. } => "bad-name",
            Self::Kind { .. } => "wrong-kind",
            Self::Full { .. } => "directory-full",
            Self::TooSmall { .. } => "heap-too-small",
            Self::Damaged { .. } => "directory-damaged",
            Self::Fabric(_) => "fabric",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Name { .. } => "use 1 to 255 bytes without NUL".to_owned(),
            Self::Kind { .. } => "use another name; a name keeps its kind".to_owned(),
            Self::Full { .. } => {
                "names are never forgotten while a region lives: use names that come back, \
                 another --region, or `farlock region reset` when nobody uses this one"
                    .to_owned()
            }
            Self::TooSmall { .. } => "create the region with a larger heap".to_owned(),
            Self::Damaged { .. } | Self::Fabric(_) => {
                "`farlock region reset` creates the region anew; tokens go on increasing".to_owned()
            }
        }
    }
}
