//! What can go wrong with a verb, and where a region is opened or attached to. Broken invariants
//! are no errors: they panic. An error says what it is, and not what its source is: that is asked
//! for by [`source`](std::error::Error::source).

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// Why a verb failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[repr(u8)]
#[non_exhaustive]
pub enum Fault {
    /// The outcome is unknown: the verb may have taken effect, may still, or never will.
    #[error("the completion was lost; the verb may or may not have taken effect")]
    Lost,
    /// The address and length do not lie within the region.
    #[error("refused: the address is outside the region")]
    OutOfBounds,
    /// An 8-byte verb needs an 8-byte boundary, a 16-byte verb a 16-byte boundary.
    #[error("refused: the address is misaligned")]
    Misaligned,
    /// This endpoint may not do this to this region.
    #[error("refused: the endpoint has no right to do this here")]
    NoRight,
    /// The region was created anew since this endpoint attached; open it again.
    #[error("refused: the region has a new incarnation; attach again")]
    Stale,
    /// This endpoint was revoked, so none of its verbs take effect any more.
    #[error("refused: this endpoint was revoked; attach again")]
    Revoked,
    /// The receiver's mailbox has no free cell. Nothing was delivered; try again after a pause.
    #[error("refused: the receiver's mailbox is full")]
    MailboxFull,
    /// The receiver is dead. Nothing was delivered, nothing will be.
    #[error("the peer is gone")]
    PeerGone,
    /// This fabric lacks the ability (masked or 128-bit atomics, growth).
    #[error("this fabric cannot do this")]
    Unsupported,
}

impl Fault {
    /// Whether the fabric turned the verb away before it could take effect.
    pub const fn is_refusal(self) -> bool {
        !matches!(self, Self::Lost)
    }
}

/// Why a region was not opened, created, removed or attached to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name is empty, longer than 200 bytes, begins with a dot, or contains `/` or NUL.
    #[error("{name:?} is no name for a region: {why}")]
    Name {
        /// The name that was asked for.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No connection to the server.
    #[error("the server {server} cannot be reached")]
    Unreachable {
        /// Its address, as it was asked for.
        server: String,
        /// What the system said.
        source: io::Error,
    },
    /// The server closed the connection. Whatever was attached by it is dead.
    #[error("the server {server} has hung up")]
    HungUp {
        /// Its address.
        server: String,
    },
    /// The server said nothing for so long. It may be stopped, overloaded, or no farlock server.
    #[error("the server {server} has not answered within {within:?}")]
    NoAnswer {
        /// Its address.
        server: String,
        /// How long it was waited for.
        within: Duration,
    },
    /// Something listens there that is no farlock server, or what it sends is damaged.
    #[error("{server} does not speak as a farlock server does")]
    Garbled {
        /// Its address.
        server: String,
        /// The first thing found wrong.
        #[source]
        why: Garbled,
    },
    /// The server speaks another version of the protocol.
    #[error("the server {server} speaks version {theirs} of the protocol, and this farlock {ours}")]
    OtherVersion {
        /// Its address.
        server: String,
        /// The server's version.
        theirs: u16,
        /// This farlock's version.
        ours: u16,
    },
    /// The server could not do what was asked of it, or does not do it.
    #[error("the server {server} declined: {why}")]
    Declined {
        /// Its address.
        server: String,
        /// What it said.
        why: String,
    },
    /// The server and this client do not trust each other, or one of them speaks no TLS.
    #[error("there is no trust between the server {server} and this client")]
    Tls {
        /// Its address.
        server: String,
        /// What one of them found.
        #[source]
        why: TlsFault,
    },
    /// A file of TLS cannot be used.
    #[error("{path:?} cannot be used for TLS")]
    TlsFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        why: TlsFileFault,
    },
    /// A capacity is zero or beyond what addresses can express.
    #[error("a region cannot have {what} = {value}; {bound}")]
    Capacity {
        /// Which capacity.
        what: &'static str,
        /// What was asked for.
        value: u64,
        /// What is allowed.
        bound: &'static str,
    },
    /// This processor has no lock-free 16-byte compare-and-exchange.
    #[error("this processor has no lock-free 128-bit atomics")]
    NoWideAtomics,
    /// There is no region of this name, and [`Options::create`](crate::shm::Options) is off.
    #[error("there is no region {name:?} in {dir:?}")]
    Absent {
        /// The region's name.
        name: String,
        /// Where it was looked for: a directory, or a server's address.
        dir: PathBuf,
    },
    /// A directory or file is not ours alone: another owner, a symbolic link, or open to others.
    #[error("{path:?} cannot be trusted: {why}")]
    Untrusted {
        /// The directory or file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The file is no region, or was made by a farlock with another layout, or is damaged.
    #[error("{path:?} is no region that this farlock can use")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The first thing found wrong.
        #[source]
        why: Malformed,
    },
    /// The filesystem has no room for the region.
    #[error("no space for {bytes} bytes of {path:?}")]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// How large it was to be, in bytes.
        bytes: u64,
    },
    /// Another process, which may be stopped, removes a region, and the time allowed by
    /// [`Options::patience`](crate::shm::Options) has passed.
    #[error("{path:?} is locked by a process that removes a region there")]
    Locked {
        /// The file that is locked.
        path: PathBuf,
    },
    /// A session is attached to the region, which was to be removed only if none is.
    #[error("the region {name:?} is in use, by {user}")]
    InUse {
        /// Its name.
        name: String,
        /// By whom: a process, and what it is called; or a command.
        user: String,
    },
    /// Another server serves the region: one at a time may, so that it finds its clients again.
    #[error("another server serves the region {name:?}")]
    Served {
        /// Its name.
        name: String,
    },
    /// The durable incarnation cannot be understood. Drawing another could repeat an old one.
    #[error("{path:?} names no incarnation: {found:?}")]
    IncarnationUnreadable {
        /// The file.
        path: PathBuf,
        /// What its name ends with.
        found: String,
    },
    /// The region was created anew 65,535 times. Tokens cannot increase any further.
    #[error("the region {name:?} has used up its 65535 incarnations")]
    IncarnationsExhausted {
        /// The region's name.
        name: String,
    },
    /// The system refused something of a file.
    #[error("cannot {what} {path:?}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Every place in the table of endpoints is taken by a living endpoint.
    #[error("all {endpoints} places for endpoints are taken")]
    Full {
        /// How many places there are.
        endpoints: u16,
    },
    /// The region was removed or reset since it was opened. Open it again.
    #[error("the region was removed or reset; open it again")]
    Stale,
    /// The kernel looks at so many robust mutexes of a thread that ends and at no more, so what
    /// the thread keeps beyond that would never be seen dead. Attach on another thread.
    #[error("this thread keeps {keepers} places already, as many as one thread can")]
    ThreadFull {
        /// How many places the thread keeps.
        keepers: u32,
    },
    /// The C library's robust mutexes are not as expected, so a death could go unnoticed.
    #[error("robust mutexes do not work here: {why}")]
    NoBeacon {
        /// What failed.
        why: &'static str,
    },
    /// The system refused.
    #[error("cannot {what}")]
    System {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl ConnectError {
    /// Whether a server is not there that may be soon: it is being restarted, or the network is. A
    /// name that cannot be looked up is most likely mistyped, and what a server says itself it says
    /// again.
    pub fn is_of_server_away(&self) -> bool {
        match self {
            Self::HungUp { .. } | Self::NoAnswer { .. } => true,
            Self::Unreachable { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
                    | io::ErrorKind::NetworkDown
                    | io::ErrorKind::TimedOut
            ),
            _ => false,
        }
    }

    /// Why a connection to a server that was waited for so long was no good.
    #[cfg(all(feature = "tcp", target_os = "linux", not(shuttle)))]
    pub(crate) fn of_stream(error: io::Error, server: &str, within: Duration) -> Self {
        let server = server.to_owned();
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::HungUp { server },
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Self::NoAnswer { server, within }
            }
            _ => match error.downcast::<TlsFault>() {
                Ok(why) => Self::Tls { server, why },
                Err(source) => Self::Unreachable { server, source },
            },
        }
    }
}

/// Why a server and a client do not trust each other.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum TlsFault {
    /// The time of the server's certificate is over.
    #[error("the server's certificate has expired")]
    Expired,
    /// The time of the server's certificate has not begun, by this host's clock.
    #[error("the server's certificate is not valid yet")]
    NotYetValid,
    /// None of the authorities that this client knows has certified the server.
    #[error("the server's certificate is of an authority that this client does not know")]
    Foreign,
    /// The server's certificate is for others than the host that was asked for.
    #[error("the server's certificate is not for this host name or address")]
    OtherName,
    /// The server's certificate is not one for servers.
    #[error("the certificate that the server shows is not for servers")]
    NoServer,
    /// The server's certificate is on a list of revoked ones that this client has.
    #[error("the server's certificate was revoked")]
    Revoked,
    /// The server refused this client's certificate: its time is over, or has not begun.
    #[error("the server says that this client's certificate has expired or is not valid yet")]
    ClientNotCurrent,
    /// The server refused this client's certificate: its authority has revoked it.
    #[error("the server says that this client's certificate was revoked")]
    ClientRevoked,
    /// The server refused this client's certificate: it knows no authority that has certified it.
    #[error("the server says that it does not know the authority of this client's certificate")]
    ClientForeign,
    /// The server asked for a certificate, and was shown none.
    #[error("the server says that this client has shown no certificate")]
    ClientUnknown,
    /// The server refused this client's certificate: it is not one for clients.
    #[error("the server says that this client's certificate is not for clients")]
    NoClient,
    /// The server speaks no TLS.
    #[error("the server does not speak TLS")]
    NotSpoken,
    /// The server speaks nothing but TLS.
    #[error("the server speaks TLS alone")]
    Wanted,
    /// Anything else, in the words of the library.
    #[error("TLS failed: {0}")]
    Other(String),
}

/// What is wrong with a certificate or a private key.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsFileFault {
    /// There is no such file.
    #[error("there is no such file")]
    Missing,
    /// The system does not let it be read.
    #[error("it cannot be read")]
    Unreadable(#[source] io::Error),
    /// There is nothing in it of what should be, or it is damaged.
    #[error("what should be in it is not, or is damaged")]
    Damaged,
    /// It is a certificate of version 1, as tools make them that are told of no extension.
    #[error("it is a certificate without extensions, which say what it is for")]
    WithoutExtensions,
    /// It is a certificate that the library does not take, in its words.
    #[error("it is a certificate that cannot be used: {0}")]
    Refused(String),
    /// It is a private key, and others than its owner may read it.
    #[error("it is a private key, and open to others (mode {mode:03o})")]
    Exposed {
        /// Its mode.
        mode: u32,
    },
    /// It is a server's certificate, and is over.
    #[error("it has expired, and no client would take it")]
    Expired,
    /// It is a server's certificate, and begins later by this host's clock.
    #[error("it is not valid yet by this host's clock, and no client would take it")]
    NotYetValid,
    /// It is a certificate, or a list of revoked ones, of an authority that is not known here.
    #[error("it is of an authority that is not known here")]
    OtherAuthority,
    /// It is the key of another certificate.
    #[error("it is not the key of the certificate beside it")]
    OtherKey,
    /// This farlock was built without TLS.
    #[error("this farlock was built without TLS")]
    Unsupported,
}

/// What came over a connection is not what this version of farlock sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("what came is no frame of this version of farlock: {0}")]
pub struct Garbled(pub(crate) &'static str);

/// What is wrong with a region's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Shorter than a header.
    #[error("it is shorter than a header")]
    Short,
    /// The first bytes are not those of a region.
    #[error("it does not begin as a region does")]
    Magic,
    /// Another version of farlock, another C library, other capacities than the header says.
    #[error("its layout is another one")]
    Layout,
    /// Its incarnation, or that of the region before it, is out of range, or not what the copy of
    /// it says.
    #[error("its incarnation is damaged")]
    Incarnation,
    /// A capacity in the header is out of range.
    #[error("a capacity is out of range")]
    Capacity,
    /// The published size is not a size this region can have.
    #[error("its size is out of range")]
    Size,
    /// The file is shorter than the header says.
    #[error("the file is shorter than its header says")]
    Truncated,
}

/// An error and its sources, from the outermost to the first, between colons.
pub fn chain(error: &dyn StdError) -> String {
    let sources = std::iter::successors(Some(error), |error| (*error).source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
