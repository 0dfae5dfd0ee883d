//! Regions across hosts: a server executes verbs for its clients over TCP.
//!
//! ```text
//! client process                               server process
//! ──────────────                               ──────────────
//! Remote ── Channel ── one TCP connection ──── Guest ── Seats: an endpoint of shared memory each
//!             ├─ TcpLane                                   │
//!             ├─ TcpLane                                   │  the region of that host,
//!             └─ TcpLane                                   ┴─ which its own processes use too
//! ```
//!
//! A [`Server`] has a place in a region of its host for each lane of its clients, and executes
//! their verbs there by the same atomic instructions as the processes of that host. So local and
//! remote clients of a lock exclude each other, send each other messages, and see each other live
//! and die.
//! A wait costs a frame when it begins and one when it ends: the server sleeps on the words, the
//! mailboxes and the lives that its clients wait for.
//!
//! # What reaches whom, in which order
//!
//! Everything for one client travels on one connection, in order. Before the end of a verb the
//! server sends what its lane must know by then: the messages in its mailboxes, and which peers
//! have come to the region or died. So what a client sees never runs ahead of what it was told.
//!
//! # Crashes
//!
//! | what happens | what follows |
//! | --- | --- |
//! | a client dies, or its connection ends | its endpoints are dead at once, for all |
//! | the server dies | its clients' endpoints are dead for the processes of the host; clients find the connection over: verbs under way are `Lost`, later ones `Revoked` |
//! | a host falls silent | the system of the other one gives the connection up, after some ten seconds |
//! | the server is stopped | verbs wait for ten seconds, then the client gives the connection up |
//!
//! A client whose server died may still believe that it holds a lock that others have taken over.
//! A resource that checks fencing tokens refuses it.

mod client;
mod clock;
mod server;
mod silence;
mod wire;

pub use client::{AtOnce, Remote, TcpEndpoint, TcpKeeper, TcpLane, Unparker as TcpUnparker};
pub use server::{Limits, Server, Stopper};
