//! A memory server: lets other hosts take part in a region of this one.

use std::io;
use std::net::SocketAddr;

use farlock_fabric::tcp::{self, Limits};
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
/// A client that can connect can use the region, read all of it and damage it, as a process of its
/// user can; nothing is encrypted and no client is asked whose it is. So listen where only clients
/// connect that you trust: the loopback address, or a network of your own.
///
/// # Crashes
///
/// A client that dies, or whose connection ends, has lost what it held as soon as the server is
/// told so by its system; others have it then. When the server dies all its clients have lost what
/// they held, at once for the processes of its host: [`Guard::lost`](crate::Guard::lost) says so,
/// and a resource that checks tokens refuses them.
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
    /// See [`SessionError`].
    pub fn bind(address: &str, options: &RegionOptions) -> Result<Self, SessionError> {
        options.check_dirs()?;
        // What is wrong with it is known before a client comes.
        let host = Host::open(&options.of_host())?;
        let options = options.clone();
        let open = move |name: &str| open(&options, &host, name);
        let bound = tcp::Server::bind(address, open, Limits::default());
        Ok(Self(bound.map_err(|source| ConnectError::System { what: "listen there", source })?))
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
    /// Has [`Server::run`] return soon. Its clients have lost what they held then.
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
