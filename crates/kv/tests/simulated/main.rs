//! The store on simulated far memory. One program: what every test of it needs is compiled once.
#![allow(clippy::unwrap_used)]

mod combining;
mod crosschecked;
mod every_schedule;
mod every_schedule_beyond;
mod every_verb;
mod filling;
mod late;
mod limits;
mod linearizable;
mod local;
#[cfg(feature = "museum")]
mod museum;
mod round_trips;
mod scene;
mod smart;
mod trees;
mod watch;
