//! Memory shared by the processes of one host: regions, endpoints, verbs on this processor.
//!
//! A [`Region`] is a file in memory that unrelated processes map. Each thread that uses it has an
//! [`ShmEndpoint`]: a place in the region's table, mailboxes, records. A [`Lane`] is an endpoint
//! that goes from thread to thread, while its [`Keeper`] keeps its place. Verbs are the processor's
//! own atomic instructions; there is no daemon and no background thread.
//!
//! ```no_run
//! use farlock_fabric::shm::{Options, Region};
//! use farlock_fabric::{Endpoint, WideAtomics, MaskedCas, block_on};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options::new("/dev/shm/farlock-1000", "/var/lib/farlock", "example");
//! let region = Region::open(&options)?;
//! let endpoint = region.endpoint()?;
//! let (word, _) = region.heap();
//! let op = MaskedCas { compare: 0, compare_mask: 1, swap: 1, swap_mask: 1 };
//! block_on(&endpoint, endpoint.masked_cas128(word, op, Some(0)))?;
//! println!("the word was {:#x}", endpoint.old());
//! # Ok(())
//! # }
//! ```
//!
//! # Who is trusted
//!
//! The region's directory and file belong to one user and are closed to all others. Processes of
//! that user can disturb each other, as they can by other means; what they write is checked before
//! it is used as a size or an index, so it can make a verb fail or a process wait, never make it
//! reach beyond the region. There are two exceptions. An endpoint that was attached by a thread
//! without a list of its own ([`Region::own_thread`]) has pointers of the C library in the region,
//! and a process that overwrites them can aim them at the memory of that thread's process; sessions
//! have no such endpoints, what only looks has one while it looks. And a file that is cut short
//! ends a process that reads beyond its end by SIGBUS; so does memory that was discarded
//! ([`Region::discard`]) and is used before it is reserved, where the filesystem is full by then.
//!
//! # Crashes
//!
//! | died | what is left | who repairs it, when |
//! | --- | --- | --- |
//! | creating a region | a hidden file | the next creator |
//! | drawing its origin | a region without one, perhaps a skipped one | the next opener draws one |
//! | putting its origin there | its copy alone, which decides | the next opener puts it beside that |
//! | attaching | a claimed place | the next attacher |
//! | attached | a place whose beacon is out | a process that looks or waits, within microseconds |
//! | a server, with places of clients elsewhere | places whose beacons are out; alive until their leases end | the next server, or a process that looks then |
//! | keeping a lane | the same; its gate open until then | the same, behind a barrier |
//! | within a verb | all of its effect, or none; a longer write may be torn | |
//! | sending | a claimed cell | its receiver passes over it |
//! | between a change and its ring | sleepers who were not woken | they look again within 2 s |
//! | asleep | an armed bell, a watched beacon | the next change rings once in vain |
//! | growing a region | a longer file of the old size | the next grower |
//! | discarding memory of a region | as much of it as was discarded by then | the next discarder, or one that reserves it |
//! | looking whether a region is used, to remove it | a mark of that | the next newcomer, behind the directory's lock |
//! | removing a region | a retired region | the next opener creates it anew |

mod barrier;
mod beacon;
mod biased;
mod connection;
mod discard;
mod endpoint;
mod error;
mod fabric;
mod file;
pub(crate) mod fork;
#[cfg(not(shuttle))]
mod futexes;
#[cfg(all(test, not(shuttle)))]
mod fuzz;
mod incarnation;
mod keeper;
mod latch;
mod layout;
mod lease;
mod mailbox;
mod mapping;
mod mark;
#[cfg(shuttle)]
pub mod model;
mod mutex;
mod own_thread;
mod parked;
mod parking;
mod place;
mod planted;
mod primitive;
mod process;
mod region;
mod robust;
#[cfg(all(feature = "tcp", not(shuttle)))]
pub(crate) mod serving;
#[cfg(all(feature = "tcp", not(shuttle)))]
mod succession;
mod table;
mod taken;
#[cfg(test)]
mod testing;
mod tether;
mod times;
mod verbs;
mod wait;
mod wide;

pub use biased::{Biased, BiasedGuard};
pub use connection::Host;
pub use endpoint::{Lane, Shm, ShmEndpoint};
pub use error::GrowError;
pub use fork::fork_count;
pub use keeper::{Keeper, Kept, PlaceKeeper};
pub use layout::{
    BLOCK_BYTES, ENDPOINTS_MAX, REGION_BYTES_MAX, SLOTS_MAX, VERSION as LAYOUT_VERSION,
};
pub use mutex::{SystemGuard, SystemKind, SystemMutexes};
pub use own_thread::OwnThread;
pub use parking::Unparker;
pub use place::LABEL_BYTES;
#[cfg(shuttle)]
pub use planted::Planted;
pub use process::{KEEPERS_MAX, RunState, runs_under};
pub use region::{Options, REGION, Region};
pub use wait::park_all;
pub use wide::Wide;
