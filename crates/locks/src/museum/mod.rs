//! Locks that are wrong, kept so that tests can show how they fail and that checkers find them.
//!
//! Nothing published enables this feature. An exhibit is a published algorithm as printed, a small
//! lock of its own, or a sound lock over an endpoint with a [`Flaw`](tampered::Flaw).

pub mod dslr_printed;
pub mod exhibits;
pub mod flaws;
pub mod gives_up;
pub mod leased_by_clock;
pub mod lost_wake_up;
pub mod printed_repairs;
pub mod riding_read;
pub mod shiftlock_epoch_lost;
pub mod tampered;
pub mod torn_stamp;

pub use dslr_printed::DslrPrinted;
pub use exhibits::{EXHIBITS, Exhibit, ExhibitVisitor};
pub use gives_up::GivesUp;
pub use leased_by_clock::LeasedByClock;
pub use lost_wake_up::LostWakeUp;
pub use riding_read::RidingRead;
pub use shiftlock_epoch_lost::EpochLost;
pub use torn_stamp::TornStamp;
