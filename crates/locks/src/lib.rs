//! Locks on far memory, each written once over an endpoint.
//!
//! A [`Client`] owns an endpoint and its slots, one slot per held or awaited lock. It acquires
//! locks of one kind, a [`Lock`], and hands out [`Guard`]s. What a lock's word means is its
//! module's business: see [`record`].
//!
//! Nothing here reads a clock, draws a random number or starts a thread: time and chance come from
//! the endpoint, so that a simulation decides them.
#![forbid(unsafe_code)]
#![allow(async_fn_in_trait, reason = "protocol futures stay on their endpoint's thread")]

pub mod blocks;
mod client;
mod error;
pub mod event;
mod kept;
pub mod local;
pub mod lock;
#[cfg(feature = "museum")]
pub mod museum;
mod options;
mod prelude;
mod promise;
pub mod record;
pub mod registry;
pub mod repair;
mod seat;
pub mod shelf;
pub mod site;
pub mod slot;
mod slots;
mod token;
pub mod txn;
mod wait;
mod want;
pub mod width;

pub use client::{Acquire, Client, Guard, Release, Settle, UpdateGuard};
pub use error::{AcquireError, ReleaseError, TuneError, UpgradeError};
pub use lock::{Lock, RecordLock, Shelve, Tried, Tuning};
pub use promise::{AnyKind, FieldsAt, Granted, LockKind, Order, Promises, Proof, TokenSource};
pub use seat::{Attempt, Begun, Closed, Holding, OnShelf, Opened, Seat};
pub use slots::Options;
pub use token::Token;
pub use wait::within;
pub use want::{BlockNumbers, Extent, Mode, Want};
