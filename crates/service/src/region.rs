//! Where regions live, and the capacities that service gives them.
//!
//! Everything is a parameter, but for [`RegionOptions::for_user`] and [`RegionOptions::from_env`]:
//! those read the environment, so that programs find the region that the command line uses.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use farlock_fabric::tcp::TlsFiles;
use farlock_fabric::{Addr, ConnectError, Connection, Host, HostOptions, Origin};
use farlock_locks::Token;
use farlock_locks::blocks::{self, Blocks};

use crate::address::{AddressError, check_address};
use crate::connection::Region;
use crate::directory::Directory;
use crate::protocol::{RANGE_BLOCK_BYTES, RANGE_HEAP_BYTES};
use crate::shelf::SHELF_BYTES;
use crate::text::shown;

/// The region used where none is named.
pub const DEFAULT_REGION: &str = "default";

/// Places of a region, where nothing else is said.
const PLACES: u16 = 4096;

/// Slots of a place. A session uses one of each.
const SLOTS: u8 = 2;

/// Bytes of a region's heap, at least: its directory has room for more than 10,000 names in use.
const HEAP_BYTES: u64 = 4 << 20;

/// The same for each place, by which one name can be used: a fifth more than a name takes. So a
/// region need not grow, and its pages take memory when they are first used.
const HEAP_BYTES_A_PLACE: u64 = 512;

/// Which region, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RegionOptions {
    /// The directory of regions, on a filesystem in memory: an absolute path. Made with mode 0700
    /// where missing.
    pub dir: PathBuf,
    /// The directory in `/dev/shm` that `dir` stands in for, where another user made that first.
    pub instead_of: Option<PathBuf>,
    /// The directory of durable incarnations, on disk: an absolute path. Tokens increase as long as
    /// it survives.
    pub state_dir: PathBuf,
    /// The server whose region it is, as `host:port`; `None` for a region of this host, where `dir`
    /// and `state_dir` say.
    pub server: Option<String>,
    /// What the server is trusted by, and shown, over TLS; `None` where nothing is encrypted.
    pub tls: Option<TlsFiles>,
    /// The region's name.
    pub name: String,
    /// What `farlock ls` calls this process; at most 40 bytes are shown. Empty: its program.
    pub label: String,
    /// How long to wait for a remover of the region, which may be stopped: for
    /// ever where `None`.
    pub patience: Option<Duration>,
    /// How many locks all sessions and commands of the region can hold or await at one time, and
    /// one more for each of them. Counts where the region is created.
    pub places: u16,
}

impl RegionOptions {
    /// The region [`DEFAULT_REGION`] in this directory, with its durable state in that one.
    pub fn new(dir: impl Into<PathBuf>, state_dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            instead_of: None,
            state_dir: state_dir.into(),
            server: None,
            tls: None,
            name: DEFAULT_REGION.to_owned(),
            label: String::new(),
            patience: None,
            places: PLACES,
        }
    }

    /// The region that the command line uses where it is told nothing else: [`DEFAULT_REGION`] of
    /// the server that `FARLOCK_SERVER` names, over TLS by the files in `FARLOCK_TLS` where that is
    /// set; without a server that of [`RegionOptions::for_user`], and `FARLOCK_TLS` says nothing.
    ///
    /// # Errors
    /// `FARLOCK_SERVER` names no server.
    ///
    /// ```no_run
    /// use farlock::{RegionOptions, Session};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let session = Session::open(&RegionOptions::from_env()?)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_env() -> Result<Self, AddressError> {
        Self::of_environment(|name| std::env::var_os(name))
    }

    /// The same by another environment.
    fn of_environment(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, AddressError> {
        let server = variable("FARLOCK_SERVER").filter(|server| !server.is_empty());
        match server {
            None => Ok(Self::of_user(variable)),
            Some(server) => {
                let tls = variable("FARLOCK_TLS").filter(|dir| !dir.is_empty());
                Self::reached(&server.to_string_lossy(), tls.as_deref().map(Path::new))
            }
        }
    }

    /// The region [`DEFAULT_REGION`] of a server as people name it: `HOST:PORT`, which may begin
    /// with `tcp://` or `tls://`; over TLS where a directory of files for it is named.
    ///
    /// # Errors
    /// It names no server, or it says something else of TLS than the directory.
    pub fn reached(server: &str, tls: Option<&Path>) -> Result<Self, AddressError> {
        let (is_plain, is_secured) = (server.strip_prefix("tcp://"), server.strip_prefix("tls://"));
        let address = is_plain.or(is_secured).unwrap_or(server);
        check_address(address, false)?;
        let options = Self::of_server(address);
        let said = || server.to_owned();
        match tls {
            None if is_secured.is_some() => Err(AddressError::NoCertificate { address: said() }),
            Some(_) if is_plain.is_some() => Err(AddressError::InTheClear { address: said() }),
            None => Ok(options),
            Some(dir) => Ok(options.over_tls(TlsFiles::of_client(dir))),
        }
    }

    /// The region [`DEFAULT_REGION`] of this user on this host, whatever `FARLOCK_SERVER` says: in
    /// `FARLOCK_DIR`, or a directory of this user in `/dev/shm`, or below `/run/user` where
    /// another user made that first ([`RegionOptions::instead_of`] then says so); its durable
    /// state in `FARLOCK_STATE_DIR`, or `farlock` in `XDG_STATE_HOME` or `~/.local/state`, or a
    /// directory of this user in `/var/tmp` where there is no home. Reads these variables of the
    /// environment.
    pub fn for_user() -> Self {
        Self::of_user(|name| std::env::var_os(name))
    }

    /// The same by another environment. An empty variable is none.
    fn of_user(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let variable = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let own = format!("farlock-{}", rustix::process::getuid().as_raw());
        let runtime = Path::new("/run/user").join(rustix::process::getuid().to_string());
        let usual = Path::new("/dev/shm").join(&own);
        let (dir, instead_of) = match variable("FARLOCK_DIR") {
            Some(dir) => (dir, None),
            None => safe_place(usual, &runtime),
        };
        // By what the rest of the system says of them, those that are relative are none.
        let home = |name| variable(name).filter(|home| home.is_absolute());
        // One that is not there is not made: that of a system user is not to be.
        let user_home = home("HOME").filter(|home| home.is_dir());
        let state_dir = variable("FARLOCK_STATE_DIR")
            .or_else(|| home("XDG_STATE_HOME").map(|home| home.join("farlock")))
            .or_else(|| user_home.map(|home| home.join(".local/state/farlock")))
            .unwrap_or_else(|| PathBuf::from("/var/tmp").join(&own));
        Self { instead_of, ..Self::new(dir, state_dir) }
    }

    /// The region [`DEFAULT_REGION`] of this server, `host:port`: see [`Session::connect`].
    ///
    /// [`Session::connect`]: crate::Session::connect
    pub fn of_server(server: impl Into<String>) -> Self {
        Self { server: Some(server.into()), ..Self::new("/", "/") }
    }

    /// The same, but the server is reached over TLS 1.3: it and this client show each other the
    /// certificates in these files, and its one is for the host name or address in `server`.
    ///
    /// ```no_run
    /// use farlock::{RegionOptions, Session, TlsFiles};
    ///
    /// # fn main() -> Result<(), farlock::SessionError> {
    /// let server = RegionOptions::of_server("db1:4747").over_tls(TlsFiles::of_client("web1"));
    /// let session = Session::open(&server)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn over_tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// The same, but the region of this name: of this host, or of a server, which serves one.
    ///
    /// ```no_run
    /// use farlock::{RegionOptions, Session};
    ///
    /// # fn main() -> Result<(), farlock::SessionError> {
    /// let named = RegionOptions::of_server("db1:4747").named("reports");
    /// let session = Session::open(&named)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The same, but with this label.
    #[must_use]
    pub fn labelled(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// The same, but opening it waits for others so long at most.
    #[must_use]
    pub fn within(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// The same, but a region that is created has so many places.
    #[must_use]
    pub fn with_places(mut self, places: u16) -> Self {
        self.places = places;
        self
    }

    /// The names of the regions there are beside this one, sorted.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn region_names(&self) -> Result<Vec<String>, ConnectError> {
        self.check_dirs()?;
        Region::list(&self.dir)
    }

    /// Removes the region, whatever is held there: its holders are told that they lost it. Returns
    /// whether there was one. Tokens of the next region of its name continue above those of this.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn remove_region(&self) -> Result<bool, ConnectError> {
        self.check_dirs()?;
        Region::remove(&self.dir, &self.name)
    }

    /// Removes the region unless a session is attached to it, or a client of its server.
    /// Nobody can attach between the look and the end.
    ///
    /// # Errors
    /// [`ConnectError::InUse`]; see [`ConnectError`].
    pub fn remove_unused_region(&self) -> Result<bool, ConnectError> {
        self.check_dirs()?;
        Region::remove_unused(&self.dir, &self.name)
    }

    /// Removes the region, whatever is held there, and creates it anew, empty. Returns below which
    /// token none is granted there.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn reset_region(&self) -> Result<Token, ConnectError> {
        self.check_dirs()?;
        Ok(first_token(Region::reset(&self.of_host())?.origin()))
    }

    /// The same, unless a session is attached, as [`RegionOptions::remove_unused_region`].
    ///
    /// # Errors
    /// [`ConnectError::InUse`]; see [`ConnectError`].
    pub fn reset_unused_region(&self) -> Result<Token, ConnectError> {
        self.check_dirs()?;
        Ok(first_token(Region::reset_unused(&self.of_host())?.origin()))
    }

    /// Connects to the region, which is created with a service's capacities where it is missing.
    pub(crate) fn connect(&self) -> Result<Region, ConnectError> {
        self.check_name()?;
        if let Some(server) = &self.server {
            return Region::connect(
                server,
                self.tls.as_ref(),
                (&self.name, &self.shown_as()),
                true,
            );
        }
        self.check_dirs()?;
        Region::open(&self.of_host())
    }

    /// Connects to the region if it is there, to read.
    pub(crate) fn observe(&self) -> Result<Region, ConnectError> {
        self.check_name()?;
        if let Some(server) = &self.server {
            return Region::connect(
                server,
                self.tls.as_ref(),
                (&self.name, &self.shown_as()),
                true,
            );
        }
        self.check_dirs()?;
        Region::open(&HostOptions { create: false, read_only: true, ..self.of_host() })
    }

    /// The same names are refused on every host; and what lies below a directory of the region's
    /// name does so only where that is one.
    pub(crate) fn check_name(&self) -> Result<(), ConnectError> {
        Host::check_name(&self.name)
    }

    /// By a relative directory processes in different places would lock different things.
    pub(crate) fn check_dirs(&self) -> Result<(), ConnectError> {
        let path = [&self.dir, &self.state_dir].into_iter().find(|dir| dir.is_relative());
        path.map_or(Ok(()), |path| {
            let why = "it is no absolute path, and each process would find another one";
            Err(ConnectError::Untrusted { path: path.clone(), why })
        })
    }

    /// Where it is, for people.
    pub(crate) fn place(&self) -> String {
        match &self.server {
            Some(server) => shown(server),
            None => format!("region '{}'", shown(&self.name)),
        }
    }

    /// What this process is called.
    pub(crate) fn shown_as(&self) -> String {
        if self.label.is_empty() { program() } else { self.label.clone() }
    }

    /// What the host is asked for.
    pub(crate) fn of_host(&self) -> HostOptions {
        let mut options = HostOptions::new(&self.dir, &self.state_dir, &self.name);
        options.label = self.shown_as();
        options.patience = self.patience;
        options.endpoints = self.places;
        options.slots = SLOTS;
        options.heap_bytes = HEAP_BYTES.max(u64::from(self.places) * HEAP_BYTES_A_PLACE);
        // It maps what it may have, so that it fits where address space is short.
        let options = options.growing_by(RANGE_HEAP_BYTES + SHELF_BYTES + blocks::LOG_BYTES);
        options.sparing(blocks::bytes(RANGE_BLOCK_BYTES))
    }
}

/// Where the directory of tables of ranges lies, behind that of locks, and how long it is. Their
/// shelf lies behind it.
pub(crate) fn range_heap(region: &impl Connection, locks: &Directory) -> (Addr, u64) {
    /// A region's size is a multiple of this.
    const BLOCK_BYTES: u64 = 64 << 10;
    (region.heap().0.plus(locks.bytes().next_multiple_of(BLOCK_BYTES)), RANGE_HEAP_BYTES)
}

/// The blocks of tables of ranges, behind the shelf of those whose directory lies there.
pub(crate) const fn blocks_behind((base, bytes): (Addr, u64)) -> Blocks {
    Blocks::at(base.plus(bytes + SHELF_BYTES), RANGE_BLOCK_BYTES)
}

/// The usual directory; or one in the user's runtime directory, and the usual one, where that is
/// another user's. All processes of a user must come to the same: once the other one is there, it
/// is used, whatever becomes of the usual one.
fn safe_place(usual: PathBuf, runtime: &Path) -> (PathBuf, Option<PathBuf>) {
    let owner = |path: &Path| {
        let metadata = std::fs::symlink_metadata(path).ok()?;
        Some(if metadata.is_dir() { Some(metadata.uid()) } else { None })
    };
    let ours = Some(rustix::process::geteuid().as_raw());
    let is_ours = |path: &Path| owner(path).is_some_and(|owner| owner == ours);
    let is_taken = owner(&usual).is_some_and(|owner| owner != ours);
    let other = runtime.join("farlock");
    if is_ours(&other) || is_taken && is_ours(runtime) {
        (other, Some(usual))
    } else {
        (usual, None)
    }
}

/// The name of the running program; empty where the system does not tell.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Below which token none is granted in a region.
const fn first_token(Origin { incarnation, first_count }: Origin) -> Token {
    Token::new(incarnation, first_count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_user_made_first_is_gone_around() {
        let dir = tempfile::tempdir().unwrap();
        let (usual, runtime) = (dir.path().join("usual"), dir.path().join("runtime"));
        let place = || safe_place(usual.clone(), &runtime);
        let as_usual = (usual.clone(), None);
        let instead = (runtime.join("farlock"), Some(usual.clone()));
        assert_eq!(place(), as_usual);
        std::fs::create_dir(&usual).unwrap();
        assert_eq!(place(), as_usual, "it is ours");
        std::fs::remove_dir(&usual).unwrap();
        // A link is not followed.
        std::os::unix::fs::symlink("/", &usual).unwrap();
        assert_eq!(place(), as_usual, "there is no other place");
        std::fs::create_dir(&runtime).unwrap();
        assert_eq!(place(), instead);
        std::fs::create_dir(&instead.0).unwrap();
        std::fs::remove_file(&usual).unwrap();
        assert_eq!(place(), instead, "others are there already");
    }

    #[test]
    fn what_each_process_would_find_elsewhere_is_refused() {
        for (dir, state_dir) in [("d", "/s"), ("/d", "s"), ("", "/s")] {
            let refused = RegionOptions::new(dir, state_dir).connect();
            assert!(matches!(refused, Err(ConnectError::Untrusted { .. })), "{refused:?}");
        }
    }

    /// Of a build without TLS: no file is blamed.
    #[cfg(not(feature = "tls"))]
    #[test]
    fn tls_that_is_not_built_in_is_said_to_be_missing() {
        let options = RegionOptions::of_server("127.0.0.1:1").over_tls(TlsFiles::of_client("/no"));
        let refused = crate::Session::open(&options).unwrap_err();
        let said = farlock_fabric::chain(&refused);
        assert!(said.contains("built without farlock's feature `tls`"), "{said}");
        assert!(refused.hint().contains("build it with that feature"), "{}", refused.hint());
    }

    #[test]
    fn a_user_has_a_region_whatever_the_environment() {
        let of = |set: &[(&str, &str)]| {
            let find = |name: &str| set.iter().find(|(known, _)| *known == name);
            let options = RegionOptions::of_user(|name| find(name).map(|(_, value)| value.into()));
            (options.dir, options.state_dir)
        };
        let (dir, state_dir) = of(&[("HOME", "")]);
        assert!(dir.starts_with("/dev/shm") && state_dir.starts_with("/var/tmp"));
        assert_eq!(of(&[("HOME", "/nowhere")]).1, state_dir, "of a user that has no home");
        let home = of(&[("HOME", "/usr")]);
        assert_eq!(home, (dir.clone(), "/usr/.local/state/farlock".into()));
        let xdg = of(&[("HOME", "/usr"), ("XDG_STATE_HOME", "/x")]);
        assert_eq!(xdg, (dir.clone(), "/x/farlock".into()));
        let relative = of(&[("HOME", "/usr"), ("XDG_STATE_HOME", "x")]);
        assert_eq!(relative, (dir, "/usr/.local/state/farlock".into()));
        let said = of(&[("FARLOCK_DIR", "/d"), ("FARLOCK_STATE_DIR", "/s"), ("HOME", "/h")]);
        assert_eq!(said, ("/d".into(), "/s".into()));
    }

    #[test]
    fn the_environment_names_a_server_or_none() {
        let of = |set: &[(&str, &str)]| {
            let find = |name: &str| set.iter().find(|(known, _)| *known == name);
            RegionOptions::of_environment(|name| find(name).map(|(_, value)| value.into()))
        };
        let here = of(&[("FARLOCK_DIR", "/d")]).unwrap();
        assert_eq!((here.dir.as_path(), &here.server), (Path::new("/d"), &None));
        for server in ["db1:4747", "tcp://db1:4747"] {
            let there = of(&[("FARLOCK_DIR", "/d"), ("FARLOCK_SERVER", server)]).unwrap();
            assert_eq!(there, RegionOptions::of_server("db1:4747"));
        }
        let files = TlsFiles::of_client("/certs");
        for server in ["db1:4747", "tls://db1:4747"] {
            let there = of(&[("FARLOCK_SERVER", server), ("FARLOCK_TLS", "/certs")]).unwrap();
            assert_eq!(there, RegionOptions::of_server("db1:4747").over_tls(files.clone()));
        }
        // Nothing set is the same as nothing said; files alone name no server.
        for set in [&[("FARLOCK_SERVER", "")][..], &[("FARLOCK_TLS", "/certs")]] {
            assert_eq!((of(set).unwrap().server, of(set).unwrap().tls), (None, None));
        }
        for refused in ["db1", "tls://db1:4747", "tls://", "http://db1:80"] {
            assert!(of(&[("FARLOCK_SERVER", refused)]).is_err(), "{refused}");
        }
        let both = [("FARLOCK_SERVER", "tcp://db1:4747"), ("FARLOCK_TLS", "/certs")];
        assert!(matches!(of(&both), Err(AddressError::InTheClear { .. })));
    }
}
