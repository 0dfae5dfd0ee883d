//! A region that is served over TCP, and the region itself.

#![allow(dead_code, reason = "each test file uses some of it")]

#[path = "../shm_support/mod.rs"]
pub(crate) mod support;
#[cfg(feature = "tls")]
#[path = "../tls_support/mod.rs"]
pub(crate) mod tls_support;

use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use farlock_fabric::shm::{Host, Options, Region, ShmEndpoint};
use farlock_fabric::tcp::{
    ClientTls, Closed, Limits, Remote, Server, ServerTls, Stopper, TcpEndpoint,
};
use farlock_fabric::{Addr, ConnectError, Connection};
use support::TestDir;

/// A served region, and the region itself.
pub(crate) struct Both {
    pub(crate) region: Region,
    pub(crate) options: Options,
    pub(crate) limits: Limits,
    pub(crate) address: String,
    pub(crate) stopper: Stopper,
    pub(crate) thread: Option<JoinHandle<()>>,
    pub(crate) tls: Option<ClientTls>,
    _dir: TestDir,
}

impl Both {
    pub(crate) fn new(name: &str) -> Self {
        Self::within(name, Limits::default())
    }

    pub(crate) fn within(name: &str, limits: Limits) -> Self {
        Self::with(name, 300, limits, |_| None)
    }

    pub(crate) fn with_places(name: &str, endpoints: u16) -> Self {
        Self::with(name, endpoints, Limits::default(), |_| None)
    }

    #[cfg(feature = "tls")]
    pub(crate) fn secured(name: &str, limits: Limits) -> Self {
        Self::with(name, 300, limits, |dir| Some(tls_support::both_sides(dir)))
    }

    pub(crate) fn with(
        name: &str,
        endpoints: u16,
        limits: Limits,
        tls: impl FnOnce(&Path) -> Option<(ServerTls, ClientTls)>,
    ) -> Self {
        let dir = TestDir::new(name);
        let options = Options { endpoints, label: "x".repeat(40), ..dir.options() };
        let region = Region::open(&options).unwrap();
        let (on_server, tls) = tls(dir.path()).unzip();
        let (address, stopper, thread) = serve(&options, "127.0.0.1:0", limits, on_server);
        Self { region, options, limits, address, stopper, thread: Some(thread), tls, _dir: dir }
    }

    /// The server is stopped, and another one comes when this is done.
    pub(crate) fn restart(&mut self, meanwhile: impl FnOnce(&Self)) {
        self.stop();
        meanwhile(self);
        let (_, stopper, thread) = serve(&self.options, &self.address, self.limits, None);
        (self.stopper, self.thread) = (stopper, Some(thread));
    }

    pub(crate) fn stop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the server panicked");
        }
    }

    pub(crate) fn here(&self) -> ShmEndpoint {
        self.region.endpoint().unwrap()
    }

    pub(crate) fn there(&self) -> TcpEndpoint {
        self.connect(&self.address).and_then(|remote| remote.endpoint()).unwrap()
    }

    /// By this address, which is the server's or a proxy's.
    pub(crate) fn connect(&self, address: &str) -> Result<Remote, ConnectError> {
        match &self.tls {
            None => Remote::connect(address, "any", "test"),
            Some(tls) => Remote::connect_secured(tls, address, "any", "test"),
        }
    }

    pub(crate) fn word(&self, number: u64) -> Addr {
        self.region.heap().0.plus(number * 64)
    }
}

impl Drop for Both {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(crate) fn serve(
    options: &Options,
    address: &str,
    limits: Limits,
    tls: Option<ServerTls>,
) -> (String, Stopper, JoinHandle<()>) {
    let options = options.clone();
    let open = move |_: &str| Host::open(&options);
    let mut server = Server::bind(address, open, limits).unwrap();
    if let Some(tls) = tls {
        server = server.secured(tls);
    }
    let (address, stopper) = (server.address().unwrap().to_string(), server.stopper());
    (address, stopper, std::thread::spawn(move || server.run().unwrap()))
}

pub(crate) fn limits(lease: Duration, closed: Closed) -> Limits {
    let mut limits = Limits::default();
    (limits.lease, limits.closed) = (lease, closed);
    limits
}
