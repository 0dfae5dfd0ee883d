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

mod client;
pub mod event;
pub mod local;
pub mod lock;
#[cfg(feature = "museum")]
pub mod museum;
mod options;
mod promise;
pub mod record;
pub mod registry;
pub mod repair;
mod seat;
pub mod site;
pub mod slot;
mod slots;
mod token;
pub mod txn;
mod wait;
mod want;
pub mod width;

pub use client::{Acquire, Client, Guard, Options, Release, Settle, UpdateGuard};
pub use lock::{Lock, RecordLock, Tried};
pub use promise::{AnyKind, Granted, LockKind, Order, Promises, Proof, TokenSource};
pub use seat::{Attempt, Closed, Opened, Seat};
pub use token::Token;
pub use wait::{Timeout, within};
pub use want::{Extent, Mode, Want};

use farlock_fabric::Fault;
use thiserror::Error;

/// Why a lock was not acquired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Every slot of this client holds or awaits a lock; release one, or settle.
    #[error("this client already holds or awaits as many locks as it has slots")]
    NoSlot,
    /// The time allowed has passed. The client withdraws in [`Client::settle`].
    #[error("the lock was not granted within the time allowed")]
    TimedOut,
    /// A verb failed; nothing is held.
    #[error("the fabric failed")]
    Fabric(#[from] Fault),
}

/// Why an upgrade did not make a hold exclusive. It is over then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum UpgradeError {
    /// Others had taken the lock away, since the lease had ended.
    #[error("the lock was lost before it was upgraded")]
    Lost,
    /// A verb failed; whether the lock is free is unknown, and repair will free it.
    #[error("the fabric failed")]
    Fabric(#[from] Fault),
}

/// Why a release did not go as it should.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lease had ended, or others had taken the lock away: what this holder did last may have
    /// met with what the next one did.
    #[error("the lock was lost before it was released")]
    Lost,
    /// A verb failed; whether the lock is free is unknown, and repair will free it.
    #[error("the fabric failed")]
    Fabric(#[from] Fault),
}
