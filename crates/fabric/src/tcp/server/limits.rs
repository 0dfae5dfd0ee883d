//! What a server allows its clients.

use std::io;
use std::time::Duration;

use crate::error::ConnectError;
use crate::shm::Host;
use crate::tcp::wire::RENEWALS;

/// Is told where the system has no descriptor or memory for one more client.
pub(super) type OnShort = Box<dyn FnMut(&io::Error) + Send>;

/// Opens the region that a client names, or says why it has none of that name.
pub(super) type Opener = Box<dyn FnMut(&str) -> Result<Host, ConnectError> + Send>;

/// What the end of a connection says of the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Closed {
    /// That it is dead, where it came by the loopback interface and its process, in the server's
    /// own namespace, is seen to be gone; elsewhere nothing.
    #[default]
    Auto,
    /// That it is dead. Its locks are others' to have then, and where what lies between closed the
    /// connection the client may find that out later than they.
    Death,
    /// Nothing: what is between the hosts can close it too. The client lives until its lease ends.
    Doubt,
}

/// What a server allows its clients.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at one time; further ones are told so, and closed at once.
    pub connections: usize,
    /// Lanes of one connection.
    pub lanes: usize,
    /// Waits of one lane at one time.
    pub waits: usize,
    /// How long a client may take to say which region it wants.
    pub greeting: Duration,
    /// Bytes that lie for a client that does not take them, before no more of its frames are read.
    pub unsent: usize,
    /// The same, before it is hung up on: a client that is stopped is told of others all the time.
    pub behind: usize,
    /// How long a client lives at most whose host falls silent. A client of which the end of its
    /// connection would tell lives as long as that stands; this is for how long it survives its
    /// server then.
    pub lease: Duration,
    /// What the end of a connection says of the client.
    pub closed: Closed,
}

impl Limits {
    /// For how long a client lives from when it asked last: what it asks for and does not hear the
    /// answer of ends by the lease too.
    pub(super) fn granted(&self) -> Duration {
        self.lease * RENEWALS / (RENEWALS + 1)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            lanes: 1024,
            waits: 256,
            greeting: Duration::from_secs(10),
            unsent: 1 << 20,
            behind: 16 << 20,
            lease: Duration::from_secs(10),
            closed: Closed::Auto,
        }
    }
}
