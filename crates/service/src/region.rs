//! Where regions live, and the capacities that service gives them.
//!
//! Everything is a parameter, but for [`RegionOptions::for_user`]: that reads the environment, so
//! that programs find the region that the command line uses.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use farlock_fabric::shm;
use farlock_locks::record::claim::Claim;
use farlock_locks::{RecordLock, TokenSource};

/// The region used where none is named.
pub const DEFAULT_REGION: &str = "default";

/// The kind under which the directory enters locks: the protocol that uses their words.
pub const LOCK_KIND: &str = "claim";

/// How many newcomers may pass between two writers that wait: what makes a lock that many want
/// fast where they are more than processors, at the price of so short a wait for the others.
const BYPASS: u8 = 64;

/// The type of [`lock_protocol`].
pub type Protocol = Claim;

/// The lock that every session and command of a region uses: they must agree on its bound.
#[must_use]
pub fn lock_protocol() -> Protocol {
    Protocol { bypass: BYPASS, ..Protocol::default() }
}

/// A lock without fencing tokens is none that a service hands out.
const _: () = {
    let tokens = <Protocol as RecordLock<shm::ShmEndpoint>>::TOKENS;
    assert!(matches!(tokens, TokenSource::Word), "a service needs fencing tokens");
};

/// Places of a region, where nothing else is said.
const PLACES: u16 = 4096;

/// Slots of a place. A session uses one of each.
const SLOTS: u8 = 2;

/// Bytes of a region's heap: its directory has room for more than 10,000 names.
const HEAP_BYTES: u64 = 4 << 20;

/// Which region, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionOptions {
    /// The directory of regions, on a filesystem in memory. Made with mode 0700 where missing.
    pub dir: PathBuf,
    /// The directory of durable incarnations, on disk. Tokens increase as long as it survives.
    pub state_dir: PathBuf,
    /// The region's name.
    pub name: String,
    /// What `farlock ls` calls this process; at most 40 bytes are shown. Empty: its program.
    pub label: String,
    /// How long to wait for others who create or remove the region at that moment, and may be
    /// stopped: for ever where `None`.
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
            state_dir: state_dir.into(),
            name: DEFAULT_REGION.to_owned(),
            label: String::new(),
            patience: None,
            places: PLACES,
        }
    }

    /// The region [`DEFAULT_REGION`] of this user, which the command line uses too: in
    /// `FARLOCK_DIR`, or a directory of this user in `/dev/shm`; its durable state in
    /// `FARLOCK_STATE_DIR`, or `farlock` in `XDG_STATE_HOME` or `~/.local/state`, or a directory of
    /// this user in `/var/tmp`. Reads these variables of the environment, and nothing else here
    /// does.
    pub fn for_user() -> Self {
        Self::of_user(|name| std::env::var_os(name))
    }

    /// The same by another environment. An empty variable is none.
    fn of_user(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let variable = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let own = format!("farlock-{}", rustix::process::getuid().as_raw());
        let dir = variable("FARLOCK_DIR").unwrap_or_else(|| PathBuf::from("/dev/shm").join(&own));
        let state_dir = variable("FARLOCK_STATE_DIR")
            .or_else(|| variable("XDG_STATE_HOME").map(|home| home.join("farlock")))
            .or_else(|| variable("HOME").map(|home| home.join(".local/state/farlock")))
            .unwrap_or_else(|| PathBuf::from("/var/tmp").join(&own));
        Self::new(dir, state_dir)
    }

    /// The same, but the region of this name.
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

    /// What the fabric is asked for: the region, created with service's capacities where missing.
    pub fn to_shm(&self) -> shm::Options {
        let mut options = shm::Options::new(&self.dir, &self.state_dir, &self.name);
        options.label = if self.label.is_empty() { program() } else { self.label.clone() };
        options.patience = self.patience;
        options.endpoints = self.places;
        options.slots = SLOTS;
        options.heap_bytes = HEAP_BYTES;
        options
    }
}

/// The name of the running program; empty where the system does not tell.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_region_whatever_the_environment() {
        let of = |set: &[(&str, &str)]| {
            let find = |name: &str| set.iter().find(|(known, _)| *known == name);
            let options = RegionOptions::of_user(|name| find(name).map(|(_, value)| value.into()));
            (options.dir, options.state_dir)
        };
        let (dir, state_dir) = of(&[("HOME", "")]);
        assert!(dir.starts_with("/dev/shm") && state_dir.starts_with("/var/tmp"));
        let home = of(&[("HOME", "/h")]);
        assert_eq!(home, (dir.clone(), "/h/.local/state/farlock".into()));
        let xdg = of(&[("HOME", "/h"), ("XDG_STATE_HOME", "/x")]);
        assert_eq!(xdg, (dir, "/x/farlock".into()));
        let said = of(&[("FARLOCK_DIR", "/d"), ("FARLOCK_STATE_DIR", "/s"), ("HOME", "/h")]);
        assert_eq!(said, ("/d".into(), "/s".into()));
    }
}
