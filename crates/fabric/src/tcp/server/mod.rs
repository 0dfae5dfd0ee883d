//! The server's side: one thread that executes the verbs of all clients.

mod executor;
mod frames;
mod guest;
mod parker;
mod served;

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use executor::Executor;

use crate::shm::Options;
use crate::tcp::client::Interrupt;

/// What a server allows its clients.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at one time; further ones are closed at once.
    pub connections: usize,
    /// Lanes of one connection.
    pub lanes: usize,
    /// Waits of one lane at one time.
    pub waits: usize,
    /// How long a client may take to say which region it wants.
    pub greeting: Duration,
    /// Bytes that lie for a client that does not take them, before no more of its frames are read.
    pub unsent: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            lanes: 1024,
            waits: 256,
            greeting: Duration::from_secs(10),
            unsent: 1 << 20,
        }
    }
}

/// A server of the regions in one directory. Each lane of a client has a place in its region, which
/// the thread that runs the server keeps: as many as one thread can, some 2,000.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    options: Options,
    limits: Limits,
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
    /// Listens. Regions are opened as these options say, but for the name, which clients give.
    ///
    /// # Errors
    /// What the system says.
    pub fn bind(address: impl ToSocketAddrs, options: Options, limits: Limits) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let (is_stopped, interrupt) = (Arc::default(), Arc::new(Interrupt::new()?));
        Ok(Self { listener, options, limits, stop: Stopper { is_stopped, interrupt } })
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

    /// Serves until it is stopped. Its clients' endpoints are dead when this returns.
    ///
    /// # Errors
    /// What the system says of what all clients need; what concerns one ends that one's connection.
    pub fn run(self) -> io::Result<()> {
        let Self { listener, options, limits, stop } = self;
        let mut executor = Executor::new(listener, options, limits, Arc::clone(&stop.interrupt))?;
        while !stop.is_stopped.load(Ordering::SeqCst) {
            executor.turn()?;
        }
        Ok(())
    }
}
