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
//! # Who is alive
//!
//! The server alone says that a client is dead. The end of a connection says so where nothing but
//! one kernel lies between its ends, or where the server was told to believe it ([`Closed`]).
//! Otherwise a client lives until its lease ends, which it renews, and one whose connection broke
//! comes back by another. It is known by a secret; it names its lanes and the messages that it
//! takes next, and says again what it published and what was not answered.
//!
//! All that a client has lies in the region: its places are marked as leased, and count as alive
//! until their leases end though nobody keeps them. Messages lie in their mailboxes until they
//! were taken. With a place lies the last verb that was begun, and how it ended, so that none that
//! is said again is done twice. The next server of the region takes all of that over, and a client
//! cannot tell it from the last. One server at a time serves a region.
//!
//! A client asks for its lease eight times in the time of one. Each is granted for eight ninths of
//! the time for which others are to wait for a host that falls silent: so what it asked for last,
//! and perhaps heard no answer of, ends by then too. That it comes back is no such question: it
//! asks when it has heard that it is back.
//!
//! A client takes its lease for a tenth shorter than the server does, from before it asked for it,
//! by a clock that counts suspended time. So it knows of the end first, unless the clock itself
//! stood still, as that of a paused virtual machine does: there only tokens help.
//!
//! # Crashes
//!
//! | what happens | what follows |
//! | --- | --- |
//! | a client dies | the end of its connection says so at once, or its lease ends |
//! | its connection breaks | it goes on by another one within its lease; else its verbs under way are `Lost`, later ones `Revoked` |
//! | the server dies, or ends | its clients' endpoints live until their leases end, and go on with the next server |
//! | within a verb of a client, single | the next server knows how it ended, but for some ten nanoseconds; in those it is `Lost` |
//! | within a chain that changes anything | that chain is `Lost` |
//! | while it sends a message | it comes as a message of nobody, which its receiver passes over |
//! | a host falls silent | its clients' leases end |
//! | the server is stopped | verbs wait for ten seconds, then the client gives the connection up; what it had stays its own for the server's host until the server goes on |

mod busy_poll;
mod client;
mod clock;
mod credentials;
mod server;
mod silence;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod wire;
#[cfg(not(feature = "tls"))]
mod without_tls;

#[cfg(not(feature = "tls"))]
use without_tls as tls;

pub use client::{AtOnce, Remote, TcpEndpoint, TcpKeeper, TcpLane, Unparker as TcpUnparker};
pub use credentials::{TlsFiles, right_to};
pub use server::{Closed, Limits, Server, Stopper};
pub use tls::{ClientTls, ServerTls};
#[cfg(feature = "tls")]
pub use tls::{Revoked, certificate_number, revoked};
pub use wire::{Patience, VERSION};
