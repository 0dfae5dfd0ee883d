//! The command `farlock`, beside flock(1), in terminals and containers, and where its input is bad.

#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod bad_input;
mod beside_flock;
mod containers;
mod cut_off;
mod damage;
mod ephemeral;
mod lock;
mod output;
#[path = "../stage/mod.rs"]
mod stage;
mod terminal;
mod transcripts;
mod truth;
#[path = "../wire/mod.rs"]
mod wire;
