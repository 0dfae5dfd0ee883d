//! Published algorithms that are wrong as printed, kept so that tests can show how they fail.
//!
//! Nothing published enables this feature. Each exhibit is a [`RecordLock`](crate::RecordLock) of
//! its own, as close to the original as the rest of the crate allows.

pub mod shiftlock_epoch_lost;

pub use shiftlock_epoch_lost::EpochLost;
