//! A key-value store on far memory: the memory node serves words and does nothing else.
//!
//! A [`Store`] is one client's view of it. Its operations are async functions over an endpoint, so
//! that one text runs in the simulation and on memory that processes share. An [`Index`] says where
//! the slots of a key lie, a [`Scheme`] how writers of one key keep out of each other's way; what
//! is right about the store rests on the compare of the slot alone.
//!
//! Nothing here reads a clock, draws a random number or starts a thread: time and chance come from
//! the endpoint.
#![doc = include_str!("../../../docs/kv.md")]
#![forbid(unsafe_code)]
#![allow(async_fn_in_trait, reason = "protocol futures stay on their endpoint's thread")]

mod block;
mod error;
mod far;
mod filling;
mod flaw;
mod gate;
pub mod index;
mod key;
mod levels;
mod nodes;
mod pool;
mod reads;
mod recall;
mod shape;
mod size;
mod store;
pub mod sync;
mod word;

pub use error::{OpenError, ReadError, WriteError};
pub use filling::{Filling, Memory};
#[cfg(feature = "museum")]
pub use flaw::Flaw;
pub use index::Index;
pub use key::{KEY_BYTES_MAX, VALUE_BYTES_MAX, part_of};
pub use pool::Census;
pub use shape::Shape;
pub use size::Class;
pub use store::{Counts, Cursor, Decision, Pair, Sight, Store};
pub use sync::Scheme;
pub use word::{ChunkWord, Header, SlotWord};
