//! farlock: named locks with fencing tokens, across processes, without a server.
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
//! let region = RegionOptions::new("/dev/shm/me", "/home/me/.local/state/farlock");
//! let session = Session::open(&region)?;
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
//! # What is promised, and what is not
//!
//! * At most one exclusive holder, or any number of shared ones, as long as the region is the same.
//! * Who waits for a lock alone is granted it in order of arrival, but that up to 64 who come later
//!   may pass between two of them.
//! * Tokens of exclusive grants of one name strictly increase, for ever: across crashes, reboots,
//!   and the loss of the region.
//! * A region lives in memory. If its file is removed while locks are held, holders keep what they
//!   hold in the old region and others start in a new one; a resource that checks tokens refuses
//!   the old ones.
//! * There is no lease here: a holder that is stopped, not dead, is waited for.
#![forbid(unsafe_code)]

pub mod directory;
pub mod error;
pub mod inspect;
mod region;
pub mod session;

pub use error::{AcquireError, LostReason, ReleaseError, SessionError};
pub use farlock_locks::{Mode, Token};
pub use region::{DEFAULT_REGION, LOCK_KIND, RegionOptions, lock_protocol};
pub use session::{Guard, Session};
