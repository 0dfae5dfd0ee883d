//! Sessions: locks and ranges as programs take, divide, merge, convert and lose them.

#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod conversions;
mod crowd;
mod divisions;
mod merges;
mod names;
mod ranges;
mod session;
#[path = "../stage/mod.rs"]
mod stage;
mod tasks;
mod trim;
