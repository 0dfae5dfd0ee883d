//! How writers of one key keep out of each other's way.
//!
//! A scheme decides who tries when; it decides nothing about what is right. A writer whose turn it
//! is changes the slot by a compare like any other, so that a writer that has lost a lock, or does
//! without one, does no harm but to wait.

mod backoff;
mod cider;
mod credit;
mod local;
mod locked;
mod optimistic;
mod scheme;

pub use backoff::Backoff;
pub use cider::{Cider, CiderCounts, CiderRules, CiderTurn};
pub use credit::{CreditRules, Credits};
pub use local::{LocalCombining, LocalTurn};
pub use locked::Locked;
pub use optimistic::Optimistic;
pub use scheme::{Effect, Ended, Entered, Scheme};
