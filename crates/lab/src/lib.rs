//! The laboratory of farlock: workloads, one driver loop, judges, and the commands around them.
//!
//! Not published. Everything measured here goes through the loop of [`drive`], whatever executes
//! it, and is judged by [`judge`] while it is measured.
#![forbid(unsafe_code)]

pub mod arrbench;
pub mod bench;
mod child;
pub mod client;
mod clock;
pub mod connections;
mod daemon;
pub mod drive;
pub mod face;
pub mod figure;
pub mod fs;
pub mod growing;
pub mod judge;
pub mod latency;
pub mod leases;
mod line;
pub mod provenance;
pub mod range_course;
pub mod ranges;
pub mod record;
mod report;
mod resp;
pub mod restarts;
pub mod rival;
pub mod rounds;
pub mod scratch;
pub mod served;
pub mod service_times;
pub mod speed;
pub mod spreading;
pub mod stores;
pub mod storm;
pub mod subject;
pub mod takeover;
pub mod testbed;
pub mod transactions;
pub mod workload;
#[cfg(feature = "ycsb")]
pub mod ycsb;
