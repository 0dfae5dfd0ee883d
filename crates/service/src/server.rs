//! A memory server: lets other hosts take part in a region of this one.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};

use farlock_fabric::tcp::{self, ServerTls, TlsFiles};
pub use farlock_fabric::tcp::{Closed, Limits as ServerLimits};
use farlock_fabric::{ConnectError, Host, HostOptions};

use crate::address::{check_address, without_tls};
use crate::kv::hub::{STORE_OF, host_options};
use crate::text::shown_whole;
use crate::{RegionOptions, SessionError};

/// Serves a region and its key-value stores to clients over TCP. Processes of this host go on to
/// use the region as before: local and remote holders exclude each other.
///
/// ```no_run
/// use farlock::{RegionOptions, Server, Session};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::bind("127.0.0.1:0", &RegionOptions::for_user())?;
/// let (address, stopper) = (server.address()?.to_string(), server.stopper());
/// let serving = std::thread::spawn(move || server.run());
///
/// let session = Session::connect(&address)?;
/// let guard = session.lock("reports/2026").exclusive().blocking()?;
/// guard.release().blocking()?;
///
/// stopper.stop();
/// serving.join().expect("the server does not panic")?;
/// # Ok(())
/// # }
/// ```
///
/// # Who is trusted
///
/// A client that may use a region can read all of it and damage it, as a process of its user can.
/// By [`Server::bind_tls`] a client may use those that its certificate names. By [`Server::bind`]
/// nothing is encrypted, and every client that can connect may: so listen where only clients
/// connect that you trust, at the loopback address or in a network of your own.
///
/// # Crashes
///
/// A client of this host that dies has lost what it held at once: the end of its connection says so
/// ([`Closed`]). A client elsewhere lives until its lease ends
/// ([`lease`](ServerLimits::lease)), which it renews; one whose connection breaks and that is back
/// by then has lost nothing, and nothing that it asked for is done twice.
///
/// The region outlives the server. One that is killed, stopped or replaced, and whose successor
/// listens before the leases end, has lost nothing: holders hold, waiters wait in their places,
/// clients see a pause. Otherwise its clients have lost what they held: each knows it
/// ([`Guard::lost`](crate::Guard::lost), [`Guard::remaining`](crate::Guard::remaining)) before
/// the processes of the server's host take over. A client that is paused, clock and all, finds out
/// when it goes on; a resource that checks tokens refuses it.
pub struct Server {
    served: tcp::Server,
    teller: Teller,
}

/// What a server tells of, as it happens.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ServerEvent<'e> {
    /// A client asked for a region, or a store of it as `REGION/STORE`, and was refused.
    Refused {
        /// What it asked for.
        region: &'e str,
        /// What it was told.
        why: &'e ConnectError,
    },
    /// The system has no descriptor or memory for one more client: those that come wait until it
    /// has. Told again and again while that is so.
    Short {
        /// What the system says.
        why: &'e io::Error,
    },
    /// The certificate's files have changed, and make no sense: what was read before goes on. Or
    /// the certificate's time is over, or has not begun: clients refuse it. Seen, and told once,
    /// when the next client comes.
    Certificate {
        /// What is wrong with them.
        why: &'e ConnectError,
    },
    /// The region was removed under the server, and another one is served to the client that comes
    /// now. Those that came before were told that they lost what they held.
    Anew {
        /// The region.
        region: &'e str,
    },
}

/// What is told of events, once that was said.
type Teller = Arc<OnceLock<Box<dyn Fn(ServerEvent<'_>) + Send + Sync>>>;

/// Ends a [`Server`] from any thread. Clones are the same.
#[derive(Clone, Debug)]
pub struct Stopper(tcp::Stopper);

impl Server {
    /// Listens at this address, `host:port`; port 0 is any that is free. The region is created
    /// where it is missing.
    ///
    /// # Errors
    /// See [`SessionError`]; another server may serve the region.
    pub fn bind(address: &str, options: &RegionOptions) -> Result<Self, SessionError> {
        Self::bind_within(address, options, ServerLimits::default(), None)
    }

    /// The same over TLS 1.3: the server shows the certificate in these files, and serves clients
    /// alone that show one of the authority in them, each in the regions that its certificate
    /// names. The files are read now, and again when they have been replaced: so certificates are
    /// renewed while clients hold locks.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn bind_tls(
        address: &str,
        options: &RegionOptions,
        files: &TlsFiles,
    ) -> Result<Self, SessionError> {
        Self::bind_within(address, options, ServerLimits::default(), Some(files))
    }

    /// The same, in the clear or over TLS, within other limits than the usual ones.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn bind_within(
        address: &str,
        options: &RegionOptions,
        limits: ServerLimits,
        files: Option<&TlsFiles>,
    ) -> Result<Self, SessionError> {
        let invalid = |wrong| io::Error::new(io::ErrorKind::InvalidInput, wrong);
        let unbound = |source| SessionError::Listen { address: shown_whole(address), source };
        check_address(address, true).map_err(|wrong| unbound(invalid(wrong)))?;
        let tls = files.map(load_tls).transpose()?;
        options.check_dirs()?;
        // Where it cannot listen no region is made.
        drop(TcpListener::bind(address).map_err(|source| occupied(options, unbound(source)))?);
        // What is wrong with it is known before a client comes.
        let host = Host::open(&options.of_host())?;
        let (options, name) = (options.clone(), options.name.clone());
        let is_open = tls.is_none();
        let teller = Teller::default();
        let told = Arc::clone(&teller);
        let opener = |makes| {
            let (options, host, told) = (options.clone(), host.clone(), Arc::clone(&told));
            move |name: &str| {
                let opened = open(&options, &host, (name, makes), is_open);
                // One that asks for what is not there asks for nothing that it may not have.
                let is_absent = !makes && matches!(opened, Err(ConnectError::Absent { .. }));
                if let (Some(tell), Some(event)) = (told.get(), event(&host, name, &opened))
                    && !is_absent
                {
                    tell(event);
                }
                opened
            }
        };
        let bound = tcp::Server::bind(address, opener(true), limits);
        let bound = bound.map(|bound| bound.finding(opener(false)));
        let told = Arc::clone(&teller);
        let on_short = move |why: &io::Error| {
            if let Some(tell) = told.get() {
                tell(ServerEvent::Short { why });
            }
        };
        let mut server = bound.map_err(unbound)?.on_short(on_short);
        server.open(&name)?;
        let served = match tls {
            Some(tls) => {
                let told = Arc::clone(&teller);
                tls.on_refused(move |why| {
                    if let Some(tell) = told.get() {
                        tell(ServerEvent::Certificate { why });
                    }
                });
                server.secured(tls)
            }
            None => server,
        };
        Ok(Self { served, teller })
    }

    /// Has this told of events, on the thread that runs the server, which meanwhile serves nobody.
    /// The first that is said is told.
    pub fn on_event(&self, tell: impl Fn(ServerEvent<'_>) + Send + Sync + 'static) {
        // One that is there stays.
        let _ = self.teller.set(Box::new(tell));
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.served.address()
    }

    /// What ends it.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.served.stopper())
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// What the system says of what all clients need.
    pub fn run(self) -> io::Result<()> {
        self.served.run()
    }
}

impl Stopper {
    /// Has [`Server::run`] return soon. Its clients hold on to what they have as long as their
    /// leases last, for the next server.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("served", &self.served).finish_non_exhaustive()
    }
}

/// What is to be told of a region that a client asked for.
fn event<'e>(
    host: &Host,
    region: &'e str,
    opened: &'e Result<Host, ConnectError>,
) -> Option<ServerEvent<'e>> {
    match opened {
        Err(why) => Some(ServerEvent::Refused { region, why }),
        Ok(_) if region.contains(STORE_OF) || is_there(host) => None,
        Ok(_) => Some(ServerEvent::Anew { region }),
    }
}

fn load_tls(files: &TlsFiles) -> Result<ServerTls, ConnectError> {
    if cfg!(feature = "tls") { ServerTls::load(files) } else { Err(without_tls()) }
}

/// Why it cannot listen: where the address is in use and the region has a server, it is most likely
/// that one's.
fn occupied(options: &RegionOptions, unbound: SessionError) -> SessionError {
    let is_taken = |source: &io::Error| source.kind() == io::ErrorKind::AddrInUse;
    match &unbound {
        SessionError::Listen { source, .. } if is_taken(source) => {
            if is_served(options) {
                ConnectError::Served { name: options.name.clone() }.into()
            } else {
                unbound
            }
        }
        _ => unbound,
    }
}

/// Whether a region that is there has a server. It makes none.
fn is_served(options: &RegionOptions) -> bool {
    let Ok(host) = Host::open(&HostOptions { create: false, ..options.of_host() }) else {
        return false;
    };
    // One that serves nobody, and is over before anybody finds it.
    let asks = tcp::Server::bind("127.0.0.1:0", move |_| Ok(host.clone()), ServerLimits::default());
    asks.is_ok_and(|mut asks| matches!(asks.open(&options.name), Err(ConnectError::Served { .. })))
}

/// The region that a client names: the served one, or that of one of its stores. Which one is
/// served is told to those that may know: to all where the server is open to all.
fn open(
    options: &RegionOptions,
    host: &Host,
    (name, makes): (&str, bool),
    is_open: bool,
) -> Result<Host, ConnectError> {
    if name == options.name {
        // As it is now: it may have been removed since the server began.
        return if is_there(host) { Ok(host.clone()) } else { Host::open(&options.of_host()) };
    }
    match name.split_once(STORE_OF) {
        Some((region, store)) if region == options.name => {
            Host::open(&HostOptions { create: makes, ..host_options(options, store) })
        }
        _ => {
            let asked = name.split(STORE_OF).next().unwrap_or_default();
            let why = match is_open {
                true => {
                    format!("{asked:?} was asked for, and this server serves {:?}", options.name)
                }
                false => format!("{asked:?} was asked for, and this server does not serve it"),
            };
            Err(ConnectError::System { what: "use that region", source: io::Error::other(why) })
        }
    }
}

fn is_there(host: &Host) -> bool {
    use farlock_fabric::Connection as _;
    !host.is_deleted()
}
