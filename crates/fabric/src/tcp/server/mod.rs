//! The server's side: one thread that executes the verbs of all clients.

mod executor;
mod frames;
mod guest;
mod held_back;
mod limits;
mod parker;
mod patience;
mod served;
mod tenure;
mod waits;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use executor::Executor;
pub use limits::{Closed, Limits};
use limits::{OnShort, Opener};
use served::Served;

use crate::error::ConnectError;
use crate::shm::Host;
use crate::tcp::client::Interrupt;
use crate::tcp::tls::ServerTls;

/// A server of regions of this host. Each lane of a client has a place in its region, which the
/// thread that runs the server keeps: as many as one thread can, some 2,000.
pub struct Server {
    listener: TcpListener,
    open: Opener,
    find: Option<Opener>,
    limits: Limits,
    served: Vec<Served>,
    tls: Option<ServerTls>,
    on_short: OnShort,
    stop: Stopper,
}

/// Ends a server from any thread. Clones are the same.
#[derive(Clone, Debug)]
pub struct Stopper {
    is_stopped: Arc<AtomicBool>,
    interrupt: Arc<Interrupt>,
}

impl Stopper {
    /// Has [`Server::run`] return soon.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.interrupt.set();
    }
}

impl Server {
    /// Listens. A client names the region that it wants, which is opened by `open` where it was not
    /// before: what that refuses the client is told.
    ///
    /// # Errors
    /// What the system says.
    pub fn bind(
        address: impl ToSocketAddrs,
        open: impl FnMut(&str) -> Result<Host, ConnectError> + Send + 'static,
        limits: Limits,
    ) -> io::Result<Self> {
        /// Clients that come at one time, before the server has looked.
        const BACKLOG: i32 = 4096;
        let listener = TcpListener::bind(address)?;
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        let (is_stopped, interrupt) = (Arc::default(), Arc::new(Interrupt::new()?));
        let (open, stop) = (Box::new(open), Stopper { is_stopped, interrupt });
        let (served, on_short) = (Vec::new(), Box::new(|_: &io::Error| {}));
        Ok(Self { listener, open, find: None, limits, served, tls: None, on_short, stop })
    }

    /// Has this open what a client names for which no region is to be made
    /// ([`Remote::find`](crate::tcp::Remote::find)): it says [`ConnectError::Absent`] of one that
    /// is not there. Without it such clients get what others get.
    #[must_use]
    pub fn finding(
        self,
        find: impl FnMut(&str) -> Result<Host, ConnectError> + Send + 'static,
    ) -> Self {
        Self { find: Some(Box::new(find)), ..self }
    }

    /// Has this told where the system has no descriptor or memory for one more client, again and
    /// again while that is so: those that come wait meanwhile. It is called by the thread that runs
    /// the server.
    #[must_use]
    pub fn on_short(self, tell: impl FnMut(&io::Error) + Send + 'static) -> Self {
        Self { on_short: Box::new(tell), ..self }
    }

    /// The same, but over TLS: clients show certificates, which say what regions they may use.
    #[must_use]
    pub fn secured(self, tls: ServerTls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Opens the region of this name before a client asks for it. What the last server of it left
    /// is taken over as soon as this one runs.
    ///
    /// # Errors
    /// See [`ConnectError`]: another server serves it.
    pub fn open(&mut self, name: &str) -> Result<(), ConnectError> {
        self.served.push(Served::new(name, (self.open)(name)?)?);
        Ok(())
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What ends it.
    pub fn stopper(&self) -> Stopper {
        self.stop.clone()
    }

    /// Serves until it is stopped. Its clients live on as if it had crashed: until the next server
    /// of their regions goes on where this one stopped, or their leases end.
    ///
    /// # Errors
    /// What the system says of what all clients need; what concerns one ends that one's connection.
    pub fn run(self) -> io::Result<()> {
        let Self { listener, open, find, limits, served, tls, on_short, stop } = self;
        let (interrupt, regions) = (Arc::clone(&stop.interrupt), served.len());
        let asked = (open, on_short);
        let mut executor = Executor::new((listener, tls), asked, limits, served, interrupt)?;
        executor.find = find;
        let mut turned =
            (0..regions).try_for_each(|region| executor.adopt(region).map_err(io::Error::other));
        while turned.is_ok() && !stop.is_stopped.load(Ordering::SeqCst) {
            turned = executor.turn();
        }
        // What its clients have is left to the next server with it.
        turned
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("listener", &self.listener).finish_non_exhaustive()
    }
}
