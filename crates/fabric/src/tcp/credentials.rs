//! Which files say who a server or client is, and which regions a certificate is for.

use std::path::{Path, PathBuf};

/// What a certificate names that is for every region.
const ALL: &str = "*";

/// The files of one side of TLS, all in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The certificates of the authorities by which the other side may be certified.
    pub authority: PathBuf,
    /// This side's certificate, and behind it those that link it to an authority, if any.
    pub certificate: PathBuf,
    /// The private key of this side's certificate, which nobody but its owner may read.
    pub key: PathBuf,
    /// Lists of certificates that are revoked, each signed by one of the authorities. There need
    /// be no such file.
    pub revoked: PathBuf,
}

impl TlsFiles {
    /// A client's: `authority.pem`, `client.pem` and `client.key` in this directory, and
    /// `revoked.pem`, if that is there.
    pub fn of_client(dir: impl AsRef<Path>) -> Self {
        Self::of(dir.as_ref(), "client")
    }

    /// A server's: `authority.pem`, `server.pem` and `server.key` in this directory, and
    /// `revoked.pem`, if that is there.
    pub fn of_server(dir: impl AsRef<Path>) -> Self {
        Self::of(dir.as_ref(), "server")
    }

    fn of(dir: &Path, side: &str) -> Self {
        Self {
            authority: dir.join("authority.pem"),
            certificate: dir.join(format!("{side}.pem")),
            key: dir.join(format!("{side}.key")),
            revoked: dir.join("revoked.pem"),
        }
    }
}

/// The URI that a client's certificate has among its alternative names where it is for the region
/// of this name, and for the regions that belong to it; `*` is every region.
///
/// ```
/// use farlock_fabric::tcp::right_to;
///
/// assert_eq!(right_to("jobs"), "farlock:region/jobs");
/// assert_eq!(right_to("*"), "farlock:region/*");
/// assert_eq!(right_to("a b"), "farlock:region/a%20b");
/// ```
pub fn right_to(region: &str) -> String {
    if region == ALL { every() } else { exactly(region) }
}

/// Whether one of these URIs gives a right to this region. What stands behind a slash in its name
/// tells apart regions that belong to one.
#[cfg(feature = "tls")]
pub(super) fn gives_right<'u>(mut uris: impl Iterator<Item = &'u str>, region: &str) -> bool {
    let owner = region.split('/').next().unwrap_or_default();
    let (every, owner) = (every(), exactly(owner));
    uris.any(|uri| uri == every || uri == owner)
}

fn every() -> String {
    format!("farlock:region/{ALL}")
}

/// A name may have any bytes, and a URI may not: the others stand there as their numbers.
fn exactly(region: &str) -> String {
    let mut uri = "farlock:region/".to_owned();
    for byte in region.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    #[test]
    fn a_right_is_to_one_region_and_what_belongs_to_it() {
        let (jobs, all) = (right_to("jobs"), right_to("*"));
        let gives = |uri: &str, region: &str| gives_right(std::iter::once(uri), region);
        assert!(gives(&jobs, "jobs") && gives(&jobs, "jobs/store"));
        assert!(!gives(&jobs, "job") && !gives(&jobs, "jobs2") && !gives(&jobs, "a/jobs"));
        assert!(gives(&all, "jobs") && gives(&all, "*"));
        assert!(!gives(&exactly("*"), "jobs"), "a region may have that name");
        assert!(!gives_right(std::iter::empty(), "jobs"));
    }
}
