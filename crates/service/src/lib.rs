//! farlock: named locks with fencing tokens, across processes; across hosts by a [`Server`].
//!
//! Processes of one host share a *region*: a file in memory that holds locks. A [`Session`] takes
//! locks by name, shared or exclusive, blocking or async, and hands out [`Guard`]s that carry
//! fencing tokens. When a holder dies, however it dies, the next in line has the lock within
//! microseconds.
//!
//! ```no_run
//! use farlock::{RegionOptions, Session};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let session = Session::open(&RegionOptions::from_env()?)?;
//! let lock = session.lock("reports/2026");
//!
//! // Blocking, for at most a second:
//! let guard = lock.exclusive().within(Duration::from_secs(1)).blocking()?;
//! println!("token {}", guard.token());
//! guard.release().blocking()?;
//! # Ok(())
//! # }
//! # async fn with_any_executor(session: Session) -> Result<(), Box<dyn std::error::Error>> {
//! // Async, on any executor:
//! let guard = session.lock("reports/2026").shared().await?;
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it costs
//!
//! An uncontended acquisition runs on the caller's thread: some four times two 16-byte
//! compare-and-swap instructions for acquiring and releasing, blocking or async. Keep the [`Lock`]
//! for that: looking a name up costs more. Threads that use different locks share nothing.
//!
//! # What is promised, and what is not
//!
//! * At most one exclusive holder, or any number of shared ones, as long as the region is the same.
//! * Waiters are granted a lock in order of arrival, but that up to 64 newcomers may pass between
//!   two of them. Those of one session count as one where they wait for a lock that the session has
//!   or asks for: among themselves they are first come, first served.
//! * A waiter that gives up, by a limit or by dropping a future, is soon as if it had never asked;
//!   an attempt ([`at_once`](session::Request::at_once)) fails only if a living holder has the
//!   lock, or a waiter that is not stopped comes before.
//! * Tokens of exclusive grants of one name strictly increase, for decades: across crashes,
//!   reboots, and the loss of the region. They begin with the day and the time at which the region
//!   was made, so that holds on a fresh disk and in every environment, as long as the clock is not
//!   set back; where it is, as long as what the state directory keeps is there.
//! * A region lives in memory. If its file is removed while locks are held, others start in a new
//!   one. Holders in the old one are told ([`Guard::lost`], and a release is not `Ok`), their
//!   session ends, and a resource that checks tokens refuses theirs.
//! * A session belongs to its process. A child made by `fork` is refused
//!   ([`AcquireError::Forked`]) and may drop what it inherited; what the parent holds it keeps.
//! * A task's waker is called by the thread that grants the lock: one that releases it, or the
//!   session's. It may panic; it should return soon.
//! * On one host there is no lease: a holder that is stopped, not dead, is waited for. By a server
//!   there is one, which is renewed ([`Guard::remaining`]).
//!
//! # Features
//!
//! `cli`, on by default, is the `farlock` command. A program that uses the library alone depends on
//! it with `default-features = false`, and builds no parser of command lines and no tables.
//!
//! `tls`, which `cli` brings along, is TLS for servers and clients. Without `cli` it is to be asked
//! for: `default-features = false, features = ["tls"]`. Where it is missing,
//! [`RegionOptions::over_tls`] and [`Server::bind_tls`] end in an error that says so.
#![forbid(unsafe_code)]

mod address;
mod blocks;
mod connection;
mod directory;
mod error;
mod inspect;
pub mod kv;
mod observer;
mod protocol;
mod reason;
mod records;
mod region;
mod server;
pub mod session;
mod shelf;
mod system;
pub mod text;
mod trim;

pub use address::{AddressError, check_address};
pub use directory::{DirectoryError, check_name};
pub use error::{AcquireError, Holders, LostReason, ReleaseError, SessionError};
pub use farlock_fabric::tcp::TlsFiles;
pub use farlock_fabric::{ConnectError, Fault, TlsFault, TlsFileFault};
pub use farlock_locks::{Mode, Token};
pub use inspect::{Life, LockView, Participant};
pub use kv::{AsyncKv, Kv, KvError};
pub use observer::Observer;
pub use reason::{DivideReason, MergeReason};
pub use region::{DEFAULT_REGION, RegionOptions};
pub use server::{Closed, Server, ServerEvent, ServerLimits, Stopper};
pub use session::{Guard, Lock, RangeGuard, RangeLock, Session};
pub use trim::Trimmed;
