//! Hooks wrap any endpoint: they see its verbs and never change a protocol.
//!
//! A hook implements [`Hook`] and overrides what it cares for; everything else goes on to the
//! endpoint inside. Every hook is an endpoint with the abilities of the one inside, so hooks nest.
//!
//! A hook keeps the contract of the seam, except for the faults it is there to cause. It never
//! reads a clock, draws chance from elsewhere or blocks.
//!
//! ```
//! use farlock_fabric::hook::{Counted, Hook};
//! use farlock_fabric::{Addr, Endpoint};
//!
//! /// How many atomics an increment costs.
//! async fn cost<E: Endpoint>(endpoint: &Counted<E>, word: Addr) -> u64 {
//!     let before = endpoint.counts();
//!     let _ = endpoint.faa64(word, 1).await;
//!     (endpoint.counts() - before).atomics
//! }
//! # fn main() {}
//! ```

mod count;
mod delegate;

pub use count::{Counted, Counts};
pub use delegate::Hook;
