//! Sessions, commands and servers of several hosts, over connections that break, stop and lie.

#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod far_ranges;
mod hosts;
mod lost_verbs;
mod server;
mod spread;
#[path = "../stage/mod.rs"]
mod stage;
mod stopped;
mod tls;
