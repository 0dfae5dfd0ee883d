//! A client: an endpoint, its slots, and the locks it holds or awaits.
//!
//! Each acquisition takes a slot. The uncontended path runs on the caller's stack; everything else
//! runs as a task that belongs to the slot, so that dropping the caller's future at any point leaks
//! nothing: the task goes on in [`Client::settle`], which withdraws or releases.

mod acquire;
mod combine;
mod core;
mod guard;
mod update;

pub use acquire::Acquire;
pub use core::{Client, Settle};
pub use guard::{Guard, Release};
pub use update::UpdateGuard;
