//! What can go wrong, in words people can act on: what happened, to which lock, who holds it, since
//! when, what to do. Codes are stable; texts may improve.

use std::fmt;
use std::sync::{Arc, Weak};

use farlock_fabric::{Addr, Fault, shm};
use thiserror::Error;

use crate::directory::DirectoryError;
use crate::inspect::{self, Participant, shown};
use crate::session::Hub;

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
#[non_exhaustive]
pub enum AcquireError {
    /// It has another holder, and the attempt was not to wait.
    #[error("the lock '{}' is taken{holders}", shown(.name))]
    Busy {
        /// The lock.
        name: String,
        /// Its holders.
        holders: Holders,
    },
    /// The time allowed has passed.
    #[error("the lock '{}' was not granted within {seconds} s{holders}", shown(.name))]
    TimedOut {
        /// The lock.
        name: String,
        /// The time allowed, in seconds.
        seconds: f64,
        /// Its holders.
        holders: Holders,
    },
    /// The region has no place left by which the session could hold one lock more.
    #[error(
        "the lock '{}' was not asked for: the sessions of the region hold or await as many \
         locks as it has places, {places}",
        shown(.name)
    )]
    TooMany {
        /// The lock.
        name: String,
        /// How many locks all sessions of the region can hold or await at one time.
        places: u16,
    },
    /// The session could get no place by which to hold one lock more.
    #[error("the lock '{}' was not asked for: {reason}", shown(.name))]
    NoPlace {
        /// The lock.
        name: String,
        /// What the system says.
        reason: String,
    },
    /// This process was forked from the one that opened the session.
    #[error(
        "the lock '{}' was not asked for: the session belongs to the parent process",
        shown(.name)
    )]
    Forked {
        /// The lock.
        name: String,
    },
    /// The name could not be used.
    #[error("the lock '{}' cannot be used: {source}", shown(.name))]
    Directory {
        /// The lock.
        name: String,
        /// Why not.
        source: DirectoryError,
    },
    /// The session's region is gone.
    #[error("the lock '{}' cannot be had: {reason}", shown(.name))]
    Lost {
        /// The lock.
        name: String,
        /// What became of the session.
        reason: LostReason,
    },
}

/// Why a release did not go as it should.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock was lost before it was released.
    #[error("the lock '{}' was lost before its release: {reason}", shown(.name))]
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
    /// Others were certain that its holder was dead: what that had said of itself was overwritten.
    #[error("others have taken it over, for the region's memory was damaged")]
    TakenOver,
    /// This process was forked from the one that holds the lock.
    #[error("it is held by the parent of this process")]
    Forked,
}

impl From<Fault> for LostReason {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Stale => Self::RegionGone,
            other => Self::Fabric(other),
        }
    }
}

/// The holders of a lock: looked up when it is shown or asked for, not when an error is made.
///
/// It does not keep the session. Once that is gone it still looks, as long as the region is there.
#[derive(Clone)]
pub struct Holders {
    session: Weak<Hub>,
    region: shm::Region,
    /// Where the lock's word lies; `None` if nobody has looked.
    lock: Option<Addr>,
}

impl Holders {
    pub(crate) fn new(hub: &Arc<Hub>, lock: Option<Addr>) -> Self {
        Self { session: Arc::downgrade(hub), region: hub.region.clone(), lock }
    }

    /// The holders of the lock now: a picture, and empty where nobody does or the region is gone.
    pub fn list(&self) -> Vec<Participant> {
        let Some(lock) = self.lock else { return Vec::new() };
        let session = self.session.upgrade();
        let seen = session
            .as_ref()
            .and_then(|hub| hub.with_lane(|lane| inspect::participants(lane, lock)));
        let seen = seen.unwrap_or_else(|| match self.region.endpoint() {
            Ok(endpoint) => inspect::participants(&endpoint, lock),
            Err(_) => Ok(Vec::new()),
        });
        inspect::holders(seen.unwrap_or_default())
    }

    /// Whether this is the session that the error came from.
    fn is_own(&self, holder: &Participant) -> bool {
        self.session.upgrade().is_some_and(|hub| hub.owns(holder.endpoint))
    }
}

/// The half sentence that names holders; empty where there are none.
impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holders = self.list();
        let [one, others @ ..] = holders.as_slice() else { return Ok(()) };
        let whose = if self.is_own(one) { "this very session, " } else { "" };
        write!(f, "; it is held by {whose}{one}")?;
        match others.len() {
            0 => Ok(()),
            others => write!(f, ", and {others} more"),
        }
    }
}

impl fmt::Debug for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holders").field("lock", &self.lock).finish_non_exhaustive()
    }
}

impl PartialEq for Holders {
    /// Whether they are of the same lock.
    fn eq(&self, other: &Self) -> bool {
        self.lock == other.lock && self.region.name() == other.region.name()
    }
}

impl SessionError {
    /// A stable name of what happened.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Open(shm::OpenError::Absent { .. }) => "region-absent",
            Self::Open(shm::OpenError::NoSpace { .. }) => "region-no-space",
            Self::Open(shm::OpenError::Locked { .. }) => "region-locked",
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
                "make room there, or raise the limit on files (ulimit -f) if there is one, or put \
                 FARLOCK_DIR on another filesystem in memory"
                    .to_owned()
            }
            Self::Open(shm::OpenError::Malformed { .. }) => {
                "no farlock of this version made it; `farlock region remove` removes it".to_owned()
            }
            Self::Open(shm::OpenError::Untrusted { .. }) => {
                "give it to yourself alone, or set FARLOCK_DIR to a directory of your own"
                    .to_owned()
            }
            Self::Open(shm::OpenError::IncarnationUnreadable { .. }) => {
                "give it back the name it had, or remove it: the clock has to do then".to_owned()
            }
            Self::Open(shm::OpenError::Name { .. }) => {
                "use 1 to 200 bytes without a slash, not beginning with a dot".to_owned()
            }
            Self::Open(shm::OpenError::Locked { path }) => {
                format!("wait for it longer; `fuser -v {}` shows who it is", path.display())
            }
            Self::Open(shm::OpenError::Io { source, .. }) => what_is_short(source)
                .unwrap_or("check FARLOCK_DIR and FARLOCK_STATE_DIR")
                .to_owned(),
            Self::Open(_) => "check FARLOCK_DIR and FARLOCK_STATE_DIR".to_owned(),
            Self::Attach(shm::AttachError::Full { .. }) => {
                "`farlock ls` shows who is there; use another --region, or wait".to_owned()
            }
            Self::Attach(shm::AttachError::Stale) => "try again".to_owned(),
            Self::Attach(shm::AttachError::Io { source, .. }) => {
                what_is_short(source).unwrap_or("check what the system says above").to_owned()
            }
            Self::Attach(_) => "check what is said above".to_owned(),
            Self::Directory(error) => error.hint(),
            Self::Thread(source) => what_is_short(source)
                .unwrap_or("raise the limit on processes (ulimit -u)")
                .to_owned(),
        }
    }
}

/// What to do where the system refuses because this process or the machine has no more of it.
fn what_is_short(error: &std::io::Error) -> Option<&'static str> {
    Some(match rustix::io::Errno::from_io_error(error)? {
        rustix::io::Errno::MFILE => "raise the limit on open files (ulimit -n)",
        rustix::io::Errno::NFILE => "close some files: the machine has no more open files to give",
        rustix::io::Errno::NOMEM => "raise the limit on address space (ulimit -v), or free memory",
        _ => return None,
    })
}

impl AcquireError {
    /// A stable name of what happened.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "busy",
            Self::TimedOut { .. } => "timed-out",
            Self::TooMany { .. } => "too-many-locks",
            Self::NoPlace { .. } => "no-place",
            Self::Forked { .. } => "forked",
            Self::Directory { source, .. } => source.code(),
            Self::Lost { .. } => "lost",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Busy { .. } => {
                "wait for it: without `at_once()`, or for a time with `within(..)`".to_owned()
            }
            Self::TimedOut { .. } => {
                "give it more time with `within(..)`; `farlock ls` shows who else waits".to_owned()
            }
            Self::TooMany { .. } => {
                "release a lock first, or use another region; `farlock ls` shows who holds what"
                    .to_owned()
            }
            Self::NoPlace { .. } => "release a lock first, and try again".to_owned(),
            Self::Forked { .. } => "open a session after the fork".to_owned(),
            Self::Directory { source, .. } => source.hint(),
            Self::Lost { .. } => "open a new session".to_owned(),
        }
    }
}

impl ReleaseError {
    /// A stable name of what happened.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Lost { .. } => "lost",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Lost { .. } => {
                "others may have had the lock: what its token let through stands, what comes with \
                 an older one is to be refused"
                    .to_owned()
            }
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
                "only names that nobody uses are forgotten: use fewer at one time, or another \
                 --region for some of them"
                    .to_owned()
            }
            Self::TooSmall { .. } => "create the region with a larger heap".to_owned(),
            Self::Damaged { .. } | Self::Fabric(_) => {
                "`farlock region reset NAME` creates the region anew; tokens go on increasing"
                    .to_owned()
            }
        }
    }
}
