//! What can be asked of far memory.
//!
//! A **verb** is a value ([`Verb`]). A protocol is an async function over verbs. An **endpoint**
//! ([`Endpoint`]) executes them: in a simulation, in memory shared by processes, over a network.
//! Hooks ([`hook`]) wrap any endpoint, to count its verbs or to act at some of them.
//!
//! # The contract
//!
//! Every back end keeps these promises and passes the suite `conformance`; the simulator is as weak
//! as they allow.
//!
#![doc = include_str!("../CONTRACT.md")]
#![deny(unsafe_code)]

pub mod addr;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod connection;
pub mod endpoint;
pub mod error;
#[cfg(all(test, feature = "shm", not(shuttle)))]
mod fuzz;
mod home;
pub mod hook;
mod listed;
#[cfg(test)]
mod model;
#[cfg(feature = "shm")]
mod results;
#[cfg(all(feature = "shm", target_os = "linux"))]
pub mod shm;
#[cfg(all(feature = "tcp", target_os = "linux", not(shuttle)))]
pub mod tcp;
#[cfg(all(feature = "shm", target_os = "linux"))]
mod threads;
pub mod verb;
pub mod word;

pub use addr::{Addr, EndpointId, Mailbox, RegionId, Slot};
pub use connection::{Connection, Origin, Peer, Tether};
pub use endpoint::{
    Completion, Endpoint, Envelope, HoldBack, LinkDone, MaskedAtomics, Nanos, Park, Patience,
    Posted, Publication, Revoke, SyncedClock, Ticket, Wait, WaitState, Waiting, WideAtomics, Woken,
    block_on,
};
pub use error::{ConnectError, Fault, Garbled, Malformed, TlsFault, TlsFileFault, chain};
pub use home::Home;
#[cfg(all(feature = "shm", target_os = "linux"))]
pub use shm::{Biased, BiasedGuard, Host, Options as HostOptions, RunState, fork_count};
#[cfg(all(feature = "shm", target_os = "linux"))]
pub use threads::keep_signals_out;
pub use verb::{CHAIN_MAX, Link, MaskedCas, MaskedFaa, Message, Verb, WORDS_MAX};
