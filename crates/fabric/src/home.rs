//! Where a process lives: what one of the same home can say of it.

#[cfg(all(feature = "shm", target_os = "linux"))]
use std::sync::OnceLock;

/// Where a process lives, for display.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Home {
    /// Names the boot of its kernel and its namespace of process numbers; 0 where either is
    /// unknown.
    pub id: u64,
    /// What its host calls itself, or its address as a server sees it; of at most 48 bytes.
    pub host: String,
}

/// Bytes of a host's name; longer ones are cut.
#[cfg(all(feature = "shm", target_os = "linux"))]
pub(crate) const HOST_BYTES: usize = 48;

#[cfg(all(feature = "shm", target_os = "linux"))]
impl Home {
    /// That of this process, as it is when it is first asked for.
    pub fn own() -> &'static Self {
        static OWN: OnceLock<Home> = OnceLock::new();
        OWN.get_or_init(|| {
            let id = home_id();
            Self { id: (id ^ (id >> 64)) as u64, host: host_name() }
        })
    }

    /// Whether a number of a process of this home means the same to this process.
    pub fn is_own(&self) -> bool {
        let own = Self::own();
        self.id == own.id && (self.id != 0 || self.host == own.host)
    }

    /// The same, but with this address for a host that has no name of its own.
    #[cfg(feature = "tcp")]
    pub(crate) fn seen_at(self, address: impl FnOnce() -> Option<String>) -> Self {
        let is_named = !self.host.is_empty() && !self.host.starts_with("localhost");
        let host = if is_named { None } else { address() };
        Self { host: host.unwrap_or(self.host), ..self }
    }
}

/// What the system calls this host; empty where that cannot be read.
#[cfg(all(feature = "shm", target_os = "linux"))]
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}

/// What names this boot of this kernel, those processes that this one can see, its namespace of
/// process numbers, and the times at which they say they began; 0 where one is unknown. A client of
/// another home has come by a tunnel or from a container, and its process number is that of another
/// process here, or seems to be.
#[cfg(all(feature = "shm", target_os = "linux"))]
pub(crate) fn home_id() -> u128 {
    use std::os::unix::fs::MetadataExt as _;
    static HOME_ID: OnceLock<u128> = OnceLock::new();
    *HOME_ID.get_or_init(|| {
        let namespace = |kind: &str| std::fs::metadata(format!("/proc/self/ns/{kind}"));
        let number = |kind| namespace(kind).map_or(0, |file| u128::from(file.ino()));
        match (boot_id(), number("pid")) {
            (0, _) | (_, 0) => 0,
            // Of kernels without namespaces of time there is one time.
            (boot, processes) => boot ^ processes ^ number("time") << 64,
        }
    })
}

/// What names this boot of this kernel; 0 where that is unknown.
#[cfg(all(feature = "shm", target_os = "linux"))]
pub(crate) fn boot_id() -> u128 {
    static BOOT_ID: OnceLock<u128> = OnceLock::new();
    *BOOT_ID.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        u128::from_str_radix(&digits, 16).unwrap_or(0)
    })
}

#[cfg(all(test, feature = "tcp", target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_in_its_own_home_and_in_no_other() {
        let own = Home::own();
        assert!(own.is_own() && own.id != 0);
        assert!(!Home { id: own.id ^ 1, ..own.clone() }.is_own());
        assert!(Home { host: "renamed since".to_owned(), ..own.clone() }.is_own());
        assert!(!Home { id: 0, host: "another".to_owned() }.is_own());
    }

    #[test]
    fn a_host_without_a_name_is_known_by_its_address() {
        let at = || Some("10.0.0.5".to_owned());
        for (host, seen) in [("web1", "web1"), ("", "10.0.0.5"), ("localhost", "10.0.0.5")] {
            assert_eq!(Home { id: 1, host: host.to_owned() }.seen_at(at).host, seen);
        }
    }
}
