//! Every error has a code, and a hint that helps.

use std::io;

use farlock_fabric::{Malformed, chain};

use super::*;
use crate::address::without_tls;

fn connect_errors() -> Vec<ConnectError> {
    let (name, path) = ("n".to_owned(), std::path::PathBuf::from("/d/n"));
    let refused = || io::Error::from_raw_os_error(13);
    vec![
        ConnectError::Name { name: name.clone(), why: "it is empty" },
        ConnectError::Absent { name: name.clone(), dir: path.clone() },
        ConnectError::Malformed { path: path.clone(), why: Malformed::Magic },
        ConnectError::Untrusted { path: path.clone(), why: "it is open to others" },
        ConnectError::NoSpace { path: path.clone(), bytes: 1 },
        ConnectError::Locked { path: path.clone() },
        ConnectError::Served { name: name.clone() },
        ConnectError::InUse { name: name.clone(), user: "process 7 (cron)".into() },
        ConnectError::IncarnationsExhausted { name },
        ConnectError::Io { what: "open", path, source: refused() },
        ConnectError::Full { endpoints: 5 },
        ConnectError::Unreachable { server: "h:1".to_owned(), source: refused() },
        ConnectError::HungUp { server: "h:1".to_owned() },
        ConnectError::NoAnswer {
            server: "h:1".to_owned(),
            within: std::time::Duration::from_secs(5),
        },
        ConnectError::OtherVersion { server: "h:1".to_owned(), theirs: 2, ours: 1 },
        ConnectError::Declined { server: "h:1".to_owned(), why: "it is full".to_owned() },
        ConnectError::Tls { server: "h:1".to_owned(), why: TlsFault::Expired },
        ConnectError::Tls { server: "h:1".to_owned(), why: TlsFault::Revoked },
        ConnectError::Tls { server: "h:1".to_owned(), why: TlsFault::ClientRevoked },
        ConnectError::TlsFile { path: "/k".into(), why: TlsFileFault::Exposed { mode: 0o644 } },
        ConnectError::TlsFile { path: "/k".into(), why: TlsFileFault::Unreadable(refused()) },
        ConnectError::TlsFile { path: "/k".into(), why: TlsFileFault::Expired },
        ConnectError::TlsFile { path: "/k".into(), why: TlsFileFault::OtherAuthority },
        ConnectError::TlsFile { path: "/k".into(), why: TlsFileFault::NotYetValid },
        ConnectError::Stale,
        ConnectError::ThreadFull { keepers: 2000 },
        ConnectError::System { what: "attach to the region", source: refused() },
        without_tls(),
    ]
}

fn directory_errors() -> Vec<DirectoryError> {
    let (name, found) = ("n".to_owned(), "mcs".to_owned());
    vec![
        DirectoryError::Name { name: String::new(), why: "it is empty" },
        DirectoryError::Kind { name, found, wanted: "claim".to_owned() },
        DirectoryError::Full { names: 10_000 },
        DirectoryError::TooSmall { bytes: 64 },
        DirectoryError::Damaged { what: "a link makes no sense" },
        DirectoryError::Fabric(Fault::Stale),
    ]
}

fn session_errors() -> Vec<SessionError> {
    let mut errors = vec![
        SessionError::Thread(io::Error::from_raw_os_error(11)),
        SessionError::NotHere { server: "h:1".to_owned() },
    ];
    errors.extend([98, 99, 13, 5].map(|number| SessionError::Listen {
        address: "h:1".to_owned(),
        source: io::Error::from_raw_os_error(number),
    }));
    errors.extend(connect_errors().into_iter().map(SessionError::Connect));
    errors.extend(directory_errors().into_iter().map(SessionError::Directory));
    errors
}

fn acquire_errors() -> Vec<AcquireError> {
    let name = || "n".to_owned();
    let no_place = |source| AcquireError::NoPlace { name: name(), source: Arc::new(source) };
    let of_directory = |source| AcquireError::Directory { name: name(), source };
    let reason = LostReason::Fabric(Fault::Revoked);
    let mut errors = vec![
        AcquireError::TooMany { name: name(), places: 5 },
        AcquireError::Forked { name: name() },
        AcquireError::Lost { name: name(), reason },
    ];
    let no_units = |source| AcquireError::NoUnits { name: name(), source: Arc::new(source) };
    errors.extend(session_errors().into_iter().map(no_units));
    errors.extend(session_errors().into_iter().map(no_place));
    errors.extend(directory_errors().into_iter().map(of_directory));
    errors
}

/// Each says something that none of its sources says again.
fn check(error: &dyn std::error::Error) {
    let said = std::iter::successors(Some(error), |error| error.source());
    let said: Vec<String> = said.map(ToString::to_string).collect();
    for (at, message) in said.iter().enumerate() {
        assert!(!message.is_empty(), "{error:?}");
        let is_again = said[at + 1..].iter().any(|source| message.contains(source.as_str()));
        assert!(!is_again, "{said:?}");
    }
    assert_eq!(chain(error), said.join(": "));
}

#[test]
fn an_error_says_itself_and_leaves_its_source_to_itself() {
    for error in session_errors() {
        check(&error);
        assert!(!error.code().is_empty() && !error.hint().is_empty(), "{error:?}");
    }
    for error in acquire_errors() {
        check(&error);
        assert!(!error.code().is_empty() && !error.hint().is_empty(), "{error:?}");
    }
    let error =
        ReleaseError::Lost { name: "n".to_owned(), reason: LostReason::Fabric(Fault::Lost) };
    check(&error);
    check(&farlock_locks::AcquireError::Fabric(Fault::Lost));
}
