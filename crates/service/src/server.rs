//! A memory server: lets other hosts take part in a region of this one.

use std::io;
use std::net::SocketAddr;

use farlock_fabric::tcp::{self, ServerTls, TlsFiles};
pub use farlock_fabric::tcp::{Closed, Limits as ServerLimits};
use farlock_fabric::{ConnectError, Host};

use crate::kv::hub::{STORE_OF, host_options};
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
#[derive(Debug)]
pub struct Server(tcp::Server);

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
        let tls = files.map(ServerTls::load).transpose()?;
        let unbound = |source| ConnectError::System { what: "listen there", source };
        options.check_dirs()?;
        // Where it cannot listen no region is made.
        drop(std::net::TcpListener::bind(address).map_err(unbound)?);
        // What is wrong with it is known before a client comes.
        let host = Host::open(&options.of_host())?;
        let (options, name) = (options.clone(), options.name.clone());
        let open = move |name: &str| open(&options, &host, name);
        let bound = tcp::Server::bind(address, open, limits);
        let mut server = bound.map_err(unbound)?;
        server.open(&name)?;
        Ok(Self(match tls {
            Some(tls) => server.secured(tls),
            None => server,
        }))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.address()
    }

    /// What ends it.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.0.stopper())
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// What the system says of what all clients need.
    pub fn run(self) -> io::Result<()> {
        self.0.run()
    }
}

impl Stopper {
    /// Has [`Server::run`] return soon. Its clients hold on to what they have as long as their
    /// leases last, for the next server.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// The region that a client names: the served one, or that of one of its stores.
fn open(options: &RegionOptions, host: &Host, name: &str) -> Result<Host, ConnectError> {
    if name == options.name {
        // As it is now: it may have been removed since the server began.
        return if is_there(host) { Ok(host.clone()) } else { Host::open(&options.of_host()) };
    }
    match name.split_once(STORE_OF) {
        Some((region, store)) if region == options.name => {
            Host::open(&host_options(options, store))
        }
        _ => {
            let name = name.to_owned();
            Err(ConnectError::Name { name, why: "another region is served here" })
        }
    }
}

fn is_there(host: &Host) -> bool {
    use farlock_fabric::Connection as _;
    !host.is_deleted()
}
