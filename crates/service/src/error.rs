//! What can go wrong, in words people can act on: what happened, to which lock, its holders since
//! when, what to do. Codes are stable; texts may improve.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use farlock_fabric::{
    Addr, ConnectError, Connection as _, EndpointId, Fault, TlsFault, TlsFileFault, shm,
};
use thiserror::Error;

use crate::address::AddressError;
use crate::connection::Region;
use crate::directory::DirectoryError;
use crate::inspect::{self, Life, Participant, Sort};
use crate::text::shown;

/// Why a session was not opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The region could not be opened or created, or has no place for this process.
    #[error("the region cannot be used")]
    Connect(#[from] ConnectError),
    /// The names of the region could not be read.
    #[error("the region's names cannot be read")]
    Directory(#[from] DirectoryError),
    /// What is asked for is done on the region's own host alone, and a server was named.
    #[error("that cannot be asked of the server {server}")]
    NotHere {
        /// The server, as it was named.
        server: String,
    },
    /// The system gave no thread.
    #[error("the session's thread could not be started")]
    Thread(#[source] std::io::Error),
    /// A server cannot listen at its address.
    #[error("the server cannot listen at {address}")]
    Listen {
        /// The address, as it was asked for.
        address: String,
        /// What the system said, or what is wrong with the address.
        source: std::io::Error,
    },
}

/// Why a lock was not acquired.
#[derive(Clone, Debug, Error)]
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
    #[error(
        "the lock '{}' was not granted within {} s{holders}",
        shown(.name),
        .limit.as_secs_f64()
    )]
    TimedOut {
        /// The lock.
        name: String,
        /// The time allowed.
        limit: Duration,
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
    #[error("the lock '{}' was not asked for", shown(.name))]
    NoPlace {
        /// The lock.
        name: String,
        /// Why not.
        source: Arc<SessionError>,
    },
    /// There is no memory for the units of a table that lie so far behind its first ones. Others of
    /// it are to be had.
    #[error(
        "the range of '{}' was not asked for: it lies far behind the first units",
        shown(.name)
    )]
    NoUnits {
        /// The table.
        name: String,
        /// Why not.
        source: Arc<SessionError>,
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
    /// A range that has no positions.
    #[error("the range from {start} to {end} of '{}' has nothing in it", shown(.name))]
    EmptyRange {
        /// The table of ranges.
        name: String,
        /// Its first position.
        start: u64,
        /// The position behind its last one.
        end: u64,
    },
    /// The table of ranges was made with units of another length.
    #[error("the ranges of '{}' are in units of {made}, not of {asked}", shown(.name))]
    OtherUnit {
        /// The table of ranges.
        name: String,
        /// The length of a unit that was asked for, in positions.
        asked: u64,
        /// The length that it was made with.
        made: u64,
    },
    /// The name could not be used.
    #[error("the lock '{}' cannot be used", shown(.name))]
    Directory {
        /// The lock.
        name: String,
        /// Why not.
        source: DirectoryError,
    },
    /// The session's region is gone.
    #[error("the lock '{}' cannot be had", shown(.name))]
    Lost {
        /// The lock.
        name: String,
        /// What became of the session.
        #[source]
        reason: LostReason,
    },
}

/// Why a release did not go as it should.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock was lost before it was released.
    #[error("the lock '{}' was lost before its release", shown(.name))]
    Lost {
        /// The lock.
        name: String,
        /// How it was lost.
        #[source]
        reason: LostReason,
    },
}

/// How a held lock was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum LostReason {
    /// The region was removed or created anew.
    #[error("its region was removed or created anew")]
    RegionGone,
    /// The connection to the server is over, and no other was to be had before the lease ended:
    /// what was held by it is others' to have.
    #[error("its server was not heard of any more before the lease ended")]
    Disconnected,
    /// This process did not run, so the server was not asked for another lease in time: it was
    /// stopped, or its host stood still. What was held is others' to have.
    #[error(
        "this process did not run until its lease had ended: it was stopped, or its host stood \
         still"
    )]
    SleptThrough,
    /// Its certificate was revoked, and the server takes it no more. What was held is others' to
    /// have.
    #[error("its certificate was revoked: the server takes it no more")]
    CertificateRevoked,
    /// The fabric turned this session away.
    #[error("the fabric turned the session away")]
    Fabric(#[source] Fault),
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

impl LostReason {
    /// How a session ends that does not find its region any more.
    pub(crate) fn without(region: &Region) -> Self {
        if region.is_disconnected() { Self::disconnected(region) } else { Self::RegionGone }
    }

    /// What a fault means for a session in this region.
    pub(crate) fn of(region: &Region, fault: Fault) -> Self {
        if region.is_disconnected() { Self::disconnected(region) } else { fault.into() }
    }

    /// Whose fault it is that a lease has ended.
    fn disconnected(region: &Region) -> Self {
        match region.has_slept_through() {
            _ if region.is_revoked() => Self::CertificateRevoked,
            true => Self::SleptThrough,
            false => Self::Disconnected,
        }
    }
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
    session: Weak<dyn Seeing>,
    region: Region,
    /// Where the lock's word lies; `None` if nobody has looked.
    lock: Option<Addr>,
    /// Of a table of ranges: which positions were asked for.
    range: Option<Range<u64>>,
    /// By a server: what follows from the holders that were shown last.
    shown: Shown,
}

/// Why waiting for those that were shown last may not help. By a server each look takes many round
/// trips, so what follows from those that an error has named is known from then. A word, for an
/// error is to be small: numbers of processes have fewer bits.
struct Shown(AtomicU32);

/// What makes waiting vain.
#[derive(Clone, Copy)]
enum Obstacle {
    /// Nothing that is known.
    Nothing,
    /// A holder is stopped, a process of this host.
    Stopped(u32),
    /// A holder is a process under which this one runs.
    Above(u32),
}

impl Shown {
    /// None were shown.
    const NONE: u32 = u32::MAX;
    /// None of those that were makes waiting vain.
    const NOTHING: u32 = 0;
    /// With the number of a process: this one runs under it. Without: it is stopped.
    const ABOVE: u32 = 1 << 31;

    fn set(&self, obstacle: Obstacle) {
        let seen = match obstacle {
            Obstacle::Nothing => Self::NOTHING,
            Obstacle::Stopped(pid) => pid,
            Obstacle::Above(pid) => pid | Self::ABOVE,
        };
        self.0.store(seen, Ordering::Relaxed);
    }

    /// `None` where none were shown since.
    fn take(&self) -> Option<Obstacle> {
        match self.0.swap(Self::NONE, Ordering::Relaxed) {
            Self::NONE => None,
            Self::NOTHING => Some(Obstacle::Nothing),
            pid if pid & Self::ABOVE != 0 => Some(Obstacle::Above(pid & !Self::ABOVE)),
            pid => Some(Obstacle::Stopped(pid)),
        }
    }
}

impl Default for Shown {
    fn default() -> Self {
        Self(AtomicU32::new(Self::NONE))
    }
}

impl Clone for Shown {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// A session, as far as its errors look at locks by it.
pub(crate) trait Seeing: Send + Sync {
    /// Everybody at a lock; `None` where the session cannot look.
    fn participants(&self, lock: Addr, sort: Sort) -> Option<Vec<Participant>>;

    /// Whether a place is the session's.
    fn owns(&self, id: EndpointId) -> bool;
}

impl Holders {
    pub(crate) fn new(session: Weak<dyn Seeing>, region: Region, lock: Option<Addr>) -> Self {
        Self { session, region, lock, range: None, shown: Shown::default() }
    }

    /// The same of a table of ranges: those that overlap these positions.
    pub(crate) fn of_range(self, range: Range<u64>) -> Self {
        Self { range: Some(range), ..self }
    }

    /// The same to show them: by a server none where that does not answer within a quarter of a
    /// second, for what shows an error is not to wait for it.
    fn glimpse(&self) -> Vec<Participant> {
        const LOOK: Duration = Duration::from_millis(250);
        if !self.region.is_far() {
            return self.list();
        }
        // (A channel of the standard library would park the thread, and take its tasks' wake-up.)
        let told = Arc::new((Mutex::new(None), Condvar::new()));
        let (holders, tells) = (self.clone(), Arc::clone(&told));
        let looks = move || {
            let seen = holders.list();
            *tells.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
            tells.1.notify_all();
        };
        let looking = std::thread::Builder::new().name("farlock look".to_owned()).spawn(looks);
        let (seen, has_looked) = &*told;
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if looking.is_ok() {
            let looked = has_looked.wait_timeout_while(seen, LOOK, |seen| seen.is_none());
            seen = looked.unwrap_or_else(PoisonError::into_inner).0;
        }
        seen.take().unwrap_or_default()
    }

    /// The holders of the lock now: a picture, and empty where nobody does or the region is gone.
    /// By a server that takes round trips, and as long as it takes to answer.
    pub fn list(&self) -> Vec<Participant> {
        let Some(lock) = self.lock else { return Vec::new() };
        let sort = if self.range.is_some() { Sort::Ranges } else { Sort::Lock };
        let seen = self.session.upgrade().and_then(|session| session.participants(lock, sort));
        let seen = seen.unwrap_or_else(|| match self.region.endpoint() {
            Ok(endpoint) => {
                inspect::participants(&self.region, &endpoint, lock, sort).unwrap_or_default()
            }
            Err(_) => Vec::new(),
        });
        let mut holders = inspect::holders(seen);
        if let Some(wanted) = &self.range {
            let overlaps = |held: &Range<u64>| held.start < wanted.end && wanted.start < held.end;
            holders.retain(|holder| holder.range.as_ref().is_some_and(overlaps));
        }
        holders
    }

    /// What to do where to wait for them may be in vain: one is a process of this host that is
    /// stopped, and goes on to hold for as long as nobody has it go on; or this process runs under
    /// one, which may itself wait for it. By a server that is seen where the server is of this host
    /// too; elsewhere a lease ends.
    pub fn hint(&self) -> Option<String> {
        let is_far = self.region.is_far();
        let seen = if is_far { self.shown.take() } else { None };
        let may = if is_far { "may hold" } else { "holds" };
        match seen.unwrap_or_else(|| Obstacle::among(&self.glimpse())) {
            Obstacle::Nothing => None,
            Obstacle::Stopped(pid) => {
                // A job is stopped as a group: its command goes on with it.
                let process = rustix::process::Pid::from_raw(pid.try_into().ok()?)?;
                let group = rustix::process::getpgid(Some(process)).ok()?.as_raw_nonzero();
                Some(format!(
                    "process {pid} is stopped, and {may} it until it goes on: \
                     `kill -CONT -{group}`, or `fg` in its shell"
                ))
            }
            Obstacle::Above(pid) => Some(format!(
                "this runs under process {pid}, which {may} it: where that waits for this to end \
                 neither would go on, and nothing need be locked again"
            )),
        }
    }

    /// Whether this is the session that the error came from.
    fn is_own(&self, holder: &Participant) -> bool {
        self.session.upgrade().is_some_and(|session| session.owns(holder.endpoint))
    }
}

impl Obstacle {
    fn among(holders: &[Participant]) -> Self {
        let is_stopped = |holder: &&Participant| holder.life == Life::Stopped;
        let is_above = |holder: &&Participant| {
            holder.host.is_none() && holder.pid != 0 && shm::runs_under(holder.pid)
        };
        if let Some(stopped) = holders.iter().find(is_stopped) {
            return Self::Stopped(stopped.pid);
        }
        holders.iter().find(is_above).map_or(Self::Nothing, |above| Self::Above(above.pid))
    }
}

/// The half sentence that names holders; empty where there are none.
impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holders = self.glimpse();
        if self.region.is_far() {
            self.shown.set(Obstacle::among(&holders));
        }
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

impl SessionError {
    /// Why the region's names could not be read or entered: by a server, perhaps since it went
    /// away.
    pub(crate) fn of_names(region: &Region, error: DirectoryError) -> Self {
        let hung_up = match error {
            DirectoryError::Fabric(fault) => region.fault_in_opening(fault),
            _ => None,
        };
        hung_up.map_or_else(|| error.into(), Self::from)
    }

    /// A stable name of what happened.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Connect(error) => match error {
                ConnectError::Absent { .. } => "region-absent",
                ConnectError::NoSpace { .. } => "region-no-space",
                ConnectError::Locked { .. } => "region-locked",
                ConnectError::Served { .. } => "region-served",
                ConnectError::InUse { .. } => "region-in-use",
                ConnectError::Full { .. } => "region-full",
                ConnectError::Stale
                | ConnectError::ThreadFull { .. }
                | ConnectError::NoBeacon { .. }
                | ConnectError::System { .. } => "region-attach",
                error => match code_of_server(error) {
                    Some(code) => code,
                    None => "region-open",
                },
            },
            Self::Directory(_) => "directory",
            Self::NotHere { .. } => "region-elsewhere",
            Self::Thread(_) => "thread",
            Self::Listen { .. } => "listen",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Connect(error) => hint_of(error),
            Self::Directory(error) => error.hint(),
            Self::NotHere { .. } => "do it on its host, beside the server or without it".to_owned(),
            Self::Thread(source) => what_is_short(source)
                .unwrap_or("raise the limit on processes (ulimit -u)")
                .to_owned(),
            Self::Listen { source, .. } => hint_of_listening(source),
        }
    }
}

/// A stable name of what is wrong with a server, if that is it.
pub(crate) const fn code_of_server(error: &ConnectError) -> Option<&'static str> {
    Some(match error {
        ConnectError::Unreachable { .. } => "server-unreachable",
        ConnectError::HungUp { .. } | ConnectError::NoAnswer { .. } => "server-silent",
        ConnectError::Garbled { .. } | ConnectError::OtherVersion { .. } => "server-other",
        ConnectError::Declined { .. } => "server-declined",
        ConnectError::Tls { why, .. } => code_of_tls(why),
        ConnectError::TlsFile { .. } => "tls-file",
        _ => return None,
    })
}

/// What to do where a server cannot listen.
fn hint_of_listening(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::InvalidInput => hint_of_address(error),
        std::io::ErrorKind::AddrInUse => {
            "does another server run there? `ss -ltnp` tells. End it, or --listen elsewhere"
                .to_owned()
        }
        std::io::ErrorKind::AddrNotAvailable => {
            "--listen at an address of this host: `ip address` lists them".to_owned()
        }
        std::io::ErrorKind::PermissionDenied => {
            "--listen at a port from 1024 on, which needs no privilege".to_owned()
        }
        _ => {
            let hint = "see that --listen names a host or an address of this one";
            what_is_short(error).unwrap_or(hint).to_owned()
        }
    }
}

/// What to do about an address that is none.
fn hint_of_address(error: &std::io::Error) -> String {
    let wrong = error.get_ref().and_then(|inner| inner.downcast_ref::<AddressError>());
    wrong.map_or_else(|| "see that the address is right".to_owned(), AddressError::hint)
}

/// A stable name of why a server and a client do not trust each other.
const fn code_of_tls(why: &TlsFault) -> &'static str {
    match why {
        TlsFault::Expired | TlsFault::NotYetValid => "tls-server-time",
        TlsFault::Foreign => "tls-server-authority",
        TlsFault::OtherName => "tls-server-name",
        TlsFault::Revoked => "tls-server-revoked",
        TlsFault::ClientRevoked => "tls-client-revoked",
        TlsFault::ClientNotCurrent => "tls-client-time",
        TlsFault::ClientForeign => "tls-client-authority",
        TlsFault::ClientUnknown => "tls-client-unknown",
        TlsFault::NotSpoken => "tls-not-spoken",
        TlsFault::Wanted => "tls-wanted",
        _ => "tls",
    }
}

fn hint_of_tls(why: &TlsFault) -> &'static str {
    match why {
        TlsFault::Expired => {
            "on the server, move server.pem and server.key away and make new ones: \
             `farlock tls server --host NAME`"
        }
        TlsFault::NotYetValid => "see that the clocks of both hosts are right",
        TlsFault::Foreign => {
            "use the authority.pem that the server's certificate was made with; or that is not the \
             server that is meant"
        }
        TlsFault::OtherName => {
            "use a name that its certificate is for; or, on the server, move server.pem and \
             server.key away and make new ones: `farlock tls server --host NAME --host ..`"
        }
        TlsFault::Revoked => {
            "on the server, move server.pem and server.key away and make new ones: \
             `farlock tls server --host NAME`; or that is not the server that is meant"
        }
        TlsFault::ClientRevoked => {
            "its authority has taken the right back: a new certificate, of `farlock tls client`, \
             is for that one to make"
        }
        TlsFault::NoServer => "the server needs a certificate of `farlock tls server`",
        TlsFault::ClientNotCurrent => {
            "get a new certificate, of `farlock tls client`; or see that both clocks are right"
        }
        TlsFault::ClientForeign | TlsFault::ClientUnknown | TlsFault::NoClient => {
            "use a certificate of `farlock tls client`, made with the server's authority"
        }
        TlsFault::NotSpoken => {
            "leave out --tls and FARLOCK_TLS, if the network is trusted; or serve with --tls"
        }
        TlsFault::Wanted => {
            "say by --tls, or FARLOCK_TLS, where this client's certificate is; \
             `farlock tls client` makes one"
        }
        _ => "see that both sides have certificates of `farlock tls`",
    }
}

fn hint_of_tls_file(path: &std::path::Path, why: &TlsFileFault) -> String {
    match why {
        TlsFileFault::Missing => {
            "see that --tls, or FARLOCK_TLS, names the right directory; `farlock tls` makes what \
             is to be in it"
        }
        TlsFileFault::Unreadable(_) => "see whose file it is",
        TlsFileFault::Exposed { .. } => {
            let path = path.display();
            return format!("`chmod 600 {path}`; if others have read it already, make a new one");
        }
        TlsFileFault::Expired => {
            "move server.pem and server.key away and make new ones: `farlock tls server --host ..`"
        }
        TlsFileFault::NotYetValid => "see that the clock of this host is right: `date`",
        TlsFileFault::WithoutExtensions => {
            "make it anew with `farlock tls`; or have the tool that made it add extensions \
             (openssl: -extfile): subjectAltName, and extendedKeyUsage = serverAuth or clientAuth"
        }
        TlsFileFault::OtherKey => "the certificate and its key are made together: use both",
        TlsFileFault::OtherAuthority => {
            "use it beside its own authority.pem, or use what was made with this one"
        }
        TlsFileFault::Unsupported => "build it with the feature `tls`",
        _ => "make it anew with `farlock tls`",
    }
    .to_owned()
}

/// What to do where a server cannot be used, if that is it.
fn hint_of_server(error: &ConnectError) -> Option<String> {
    let hint = match error {
        ConnectError::Unreachable { source, .. }
            if source.kind() == std::io::ErrorKind::InvalidInput =>
        {
            return Some(hint_of_address(source));
        }
        ConnectError::Unreachable { .. } => {
            "see that `farlock serve` runs there, and that its address is the one given"
        }
        ConnectError::HungUp { .. } | ConnectError::NoAnswer { .. } => {
            "see whether `farlock serve` runs there, or something else, and whether it is stopped \
             or overloaded"
        }
        ConnectError::Garbled { .. } => "see what listens there: it is no `farlock serve`",
        ConnectError::OtherVersion { .. } => "use the same version of farlock on both sides",
        ConnectError::Tls { why, .. } => hint_of_tls(why),
        ConnectError::TlsFile { path, why } => return Some(hint_of_tls_file(path, why)),
        ConnectError::Declined { why, .. } if why.contains("certificate") => {
            "ask for a region that it names, or make another: `farlock tls client NAME --region ..`"
        }
        ConnectError::Declined { why, .. } if why.contains("this server") => {
            "a server serves one region: say its name by --region; `farlock serve` says it where \
             it starts. Or ask the server of the region that is meant"
        }
        ConnectError::Declined { .. } => "try again later, or ask who runs the server",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// What to do where a region cannot be used.
pub(crate) fn hint_of(error: &ConnectError) -> String {
    if let Some(hint) = hint_of_server(error) {
        return hint;
    }
    match error {
        ConnectError::Absent { name, .. } => {
            return format!("`farlock lock --region {name} NAME -- COMMAND` creates it");
        }
        ConnectError::Locked { path } => {
            return format!("wait for it longer; `fuser -v {}` shows who it is", path.display());
        }
        ConnectError::Served { .. } => {
            "use that one, or end it first: its clients go on with the next within their leases"
        }
        ConnectError::InUse { .. } => {
            "wait until it has ended, or say --force: holders and waiters there are told that they \
             lost their locks"
        }
        ConnectError::NoSpace { .. } => {
            "make room there, or raise the limit on files (ulimit -f) if there is one, or put \
             FARLOCK_DIR on another filesystem in memory"
        }
        ConnectError::Malformed { .. } => {
            "another version of farlock made it, or it was overwritten: `farlock region remove \
             NAME` removes it"
        }
        ConnectError::Untrusted { path, .. } => return hint_of_untrusted(path),
        ConnectError::IncarnationsExhausted { name } => return hint_of_exhausted(name),
        ConnectError::IncarnationUnreadable { .. } => {
            "give it back the name it had, or remove it: the clock has to do then"
        }
        ConnectError::Name { .. } => "use 1 to 200 bytes without a slash, not beginning with a dot",
        ConnectError::Full { .. } => {
            "`farlock ls` shows who is there; use another --region, or wait"
        }
        ConnectError::Stale => "try again",
        ConnectError::System { source, .. } if source.kind() == std::io::ErrorKind::Unsupported => {
            "build it with that feature; or say nothing of TLS where the network is trusted"
        }
        ConnectError::System { source, .. } => what_is_short(source)
            .unwrap_or("see whether this user's limits (ulimit -a) or this host's are reached"),
        ConnectError::ThreadFull { .. } => "use fewer at one time, or another process for some",
        ConnectError::NoBeacon { .. } => "use a C library whose robust mutexes work",
        ConnectError::Io { path, source, .. }
            if source.kind() == std::io::ErrorKind::AlreadyExists =>
        {
            return format!("{path:?} is no directory, and one is needed: use another name for it");
        }
        ConnectError::Io { source, .. } => {
            what_is_short(source).unwrap_or("check FARLOCK_DIR and FARLOCK_STATE_DIR")
        }
        _ => "check FARLOCK_DIR and FARLOCK_STATE_DIR",
    }
    .to_owned()
}

/// What to do where there are no more tokens.
fn hint_of_exhausted(name: &str) -> String {
    format!(
        "use another name; or, if the clock was wrong once or the region damaged, and nothing \
         trusts its tokens: remove {name}.incarnation.* in FARLOCK_STATE_DIR, and the region"
    )
}

/// What to do about a directory or file that others may have made, or may write.
fn hint_of_untrusted(path: &Path) -> String {
    let shown = path.display();
    match path {
        _ if path.is_symlink() => {
            "remove it: it is a link, and its maker chooses where it leads".to_owned()
        }
        _ if !path.is_dir() => {
            format!("`chmod 600 {shown}` if it is a file of yours, or remove it")
        }
        _ => "set FARLOCK_DIR to a directory of your own, or give this one to yourself alone"
            .to_owned(),
    }
}

/// What to do where the system refuses because this process or the machine has no more of it.
fn what_is_short(error: &std::io::Error) -> Option<&'static str> {
    Some(match rustix::io::Errno::from_io_error(error)? {
        rustix::io::Errno::MFILE => "raise the limit on open files (ulimit -n)",
        rustix::io::Errno::NFILE => "close some files: the machine has no more open files to give",
        rustix::io::Errno::NOSPC => "make room there: `df -h` and `df -i` show what is left",
        rustix::io::Errno::NOMEM => "raise the limit on address space (ulimit -v), or free memory",
        rustix::io::Errno::ROFS => {
            "it can only be read: set FARLOCK_DIR and FARLOCK_STATE_DIR to where you may write"
        }
        rustix::io::Errno::ISDIR => "a directory has its name: move that away",
        _ => return None,
    })
}

impl AcquireError {
    /// Whether nobody knows how one of its verbs ended: the server was killed just then. The place
    /// by which the lock was asked for is given up, so it can be asked for anew.
    pub(crate) const fn is_of_lost_verb(&self) -> bool {
        matches!(self, Self::Lost { reason: LostReason::Fabric(Fault::Lost), .. })
    }

    /// A stable name of what happened.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "busy",
            Self::TimedOut { .. } => "timed-out",
            Self::TooMany { .. } => "too-many-locks",
            Self::NoPlace { .. } => "no-place",
            Self::NoUnits { .. } => "no-units",
            Self::Forked { .. } => "forked",
            Self::EmptyRange { .. } => "empty-range",
            Self::OtherUnit { .. } => "other-unit",
            Self::Directory { source, .. } => source.code(),
            Self::Lost { .. } => "lost",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Busy { holders, .. } => holders.hint().unwrap_or_else(|| {
                "wait for it: without `at_once()`, or for a time with `within(..)`".to_owned()
            }),
            Self::TimedOut { holders, .. } => holders.hint().unwrap_or_else(|| {
                "give it more time with `within(..)`; `farlock ls` shows who else waits".to_owned()
            }),
            Self::TooMany { .. } => {
                "release a lock first, or use another region; `farlock ls` shows who holds what"
                    .to_owned()
            }
            Self::NoPlace { source, .. } => match **source {
                SessionError::Connect(
                    ConnectError::Full { .. } | ConnectError::ThreadFull { .. },
                ) => "release a lock first, and try again".to_owned(),
                _ => source.hint(),
            },
            Self::NoUnits { source, .. } => match **source {
                // A limit of this process.
                SessionError::Connect(ConnectError::Capacity { what: "bytes", .. }) => {
                    "choose a larger unit, so that fewer are needed, or another region".to_owned()
                }
                SessionError::Connect(ConnectError::Capacity { .. }) => {
                    "choose a larger unit for a new table, so that fewer are needed; what units \
                     have taken stays theirs until `farlock region reset`"
                        .to_owned()
                }
                SessionError::Connect(ConnectError::Declined { .. }) => {
                    "make room for the region on its server's host, or ask for units that lie \
                     further to the front"
                        .to_owned()
                }
                _ => source.hint(),
            },
            Self::Forked { .. } => "open a session after the fork".to_owned(),
            Self::EmptyRange { start: u64::MAX, .. } => {
                format!("the last position is {}: {} stands for the end", u64::MAX - 1, u64::MAX)
            }
            Self::EmptyRange { .. } => "its end is the position behind its last one".to_owned(),
            Self::OtherUnit { made, .. } => {
                format!("use `in_units_of({made})`, or another name: all users must agree")
            }
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
            Self::Fabric(Fault::Lost | Fault::Revoked | Fault::Stale) => {
                "try again, by a new session".to_owned()
            }
            Self::Damaged { .. } | Self::Fabric(_) => {
                "`farlock region reset NAME` creates the region anew; tokens go on increasing"
                    .to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests;
