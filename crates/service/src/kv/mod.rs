//! Key-value stores by name, for the processes of one host.
//!
//! A store is memory that processes share, and nothing else: no server answers. Each operation is
//! carried out by its caller, by some reads and one compare, and waits for no other client, however
//! that is stopped or killed. What the store does not have, and why each key does one thing after
//! the other, is said by [`farlock_kv`].
//!
//! ```no_run
//! # use farlock::{RegionOptions, Session};
//! use farlock::kv::{Index, StoreOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let session = Session::open(&RegionOptions::for_user())?;
//! let users = session.kv("users")?;
//! users.put("alice", "admin")?;
//! assert_eq!(users.get("alice")?.as_deref(), Some(&b"admin"[..]));
//! users.add("logins", 1)?;
//! // A store that is made so can be read in the order of its keys, from any of them on.
//! let log = session.kv(StoreOptions::new("log").with_index(Index::Ordered))?;
//! for pair in log.scan_range("2026-11-01".."2026-12-01")?.take(100) {
//!     println!("{:?}", pair?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A store may be over the memory of several hosts: [`Kv::over`].

mod batch;
mod ephemeral;
mod error;
mod fenced;
mod handle;
pub(crate) mod hub;
mod index;
mod keep;
mod open;
mod part;
mod pipeline;
mod range;
mod scan;
mod share;
pub(crate) mod spread;
mod sweep;
mod task_scan;
mod tasks;
mod turn;
mod value;
mod watch;
mod wish;
mod worker;

pub use error::KvError;
pub use farlock_kv::KEY_BYTES_MAX;
pub use fenced::Fenced;
pub use handle::Kv;
pub use index::{Index, StoreOptions};
pub use range::KeyRange;
pub use scan::{Pair, Scan};
pub use share::{PARTS_MAX, PartOf};
pub use task_scan::AsyncScan;
pub use tasks::AsyncKv;
pub use value::VALUE_BYTES_MAX;
pub use watch::{Changed, Next, Watch};
