//! A world in one thread in which far-memory protocols live: virtual time, a NIC model, faults.
//!
//! A [`World`] owns memory nodes, endpoints and tasks. Its endpoints ([`SimEndpoint`]) keep the
//! fabric's contract and are *as weak as the contract allows*: what [`Weakness`] switches on is
//! torn words, overtaken reads, late verbs, lost completions, drifting clocks and crashes. The same
//! [`Config`] gives the same run on every machine, to the last event; [`Handle::trace_hash`] says
//! so in 64 bits.
//!
//! Every choice that is not determined goes through one [`Oracle`]: random by default, an explorer
//! or a replay where one is given.
//!
//! ```
//! use farlock_fabric::Endpoint;
//! use farlock_sim::{Config, Ended, World};
//!
//! let world = World::new(Config { seed: 7, ..Config::default() });
//! let word = world.region(world.node(), 64);
//! let endpoint = world.endpoint();
//! let task = world.spawn(endpoint.id(), {
//!     let endpoint = endpoint.clone();
//!     async move {
//!         endpoint.faa64(word, 5).await.expect("the word exists");
//!         endpoint.old()
//!     }
//! });
//! assert_eq!(world.run(), Ended::Finished);
//! assert_eq!((task.take(), world.peek(word)), (Some(0), 5));
//! ```
#![forbid(unsafe_code)]

pub mod check;
mod completion;
mod config;
mod core;
mod fabric;
mod fault;
mod flight;
mod history;
mod memory;
mod message;
mod nic;
mod oracle;
mod outside;
mod packet;
mod queue;
pub mod schedule;
mod seat;
mod seating;
mod serve;
mod shared;
mod state;
mod stop;
mod told;
mod transit;
mod wait;
mod watch;
mod world;

pub use config::{Config, Mode};
pub use fabric::SimEndpoint;
pub use fault::{Outcome, Ratio, Weakness};
pub use history::{Effect, Fate, FateObserver, HaltObserver, Kind, Observer, Stats, mix};
pub use memory::{NodeId, Reset};
pub use nic::{Machines, Nic};
pub use oracle::{Candidate, Candidates, Choice, Oracle, Seeded, StepKind};
pub use packet::{Packet, Receiver};
pub use world::{Ended, Handle, Task, TaskId, World};
