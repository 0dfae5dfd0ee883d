//! Why a lock was not acquired, upgraded, released or tuned.

use farlock_fabric::Fault;
use thiserror::Error;

/// Why a lock was not acquired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Every slot of this client holds or awaits a lock; release one, or settle.
    #[error("this client already holds or awaits as many locks as it has slots")]
    NoSlot,
    /// The time allowed has passed. The client withdraws in
    /// [`Client::settle`](crate::Client::settle).
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

/// Why the parameters of a lock were not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum TuneError {
    /// The lock's parameters are those of its options, for good.
    #[error("the parameters of this lock do not change")]
    Fixed,
    /// The lock cannot have these.
    #[error("the lock cannot have these parameters")]
    OutOfBounds,
    /// A verb failed; whether the change is prepared, or even in force, is unknown.
    #[error("the fabric failed")]
    Fabric(#[from] Fault),
}
