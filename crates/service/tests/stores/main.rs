//! Stores of keys: by command and by library, in memory of this host and by servers.

#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod batch;
mod damage;
mod full;
mod hot_key;
mod kv;
mod ordered;
#[path = "../stage/mod.rs"]
mod stage;
mod tasks;
mod watch;
