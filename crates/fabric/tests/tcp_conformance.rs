//! Specification: endpoints over TCP keep the fabric's contract, whether they have a connection
//! each or share one, in the clear and over TLS.
#![cfg(all(feature = "tcp", feature = "conformance", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

#[path = "shm_support/mod.rs"]
mod support;
#[cfg(feature = "tls")]
mod tls_support;

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

use farlock_fabric::conformance::Stage;
use farlock_fabric::shm::{Host, Options, Region};
use farlock_fabric::tcp::{ClientTls, Limits, Remote, Server, ServerTls, Stopper, TcpEndpoint};
use farlock_fabric::{Addr, Connection, block_on};
use support::TestDir;

/// A server of a region of its own, whose endpoints share a connection or have one each.
struct Served<const SHARES: bool> {
    dir: TestDir,
    tls: Option<ClientTls>,
    address: String,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
    remotes: Vec<Remote>,
    heap: (Addr, u64),
    used: u64,
}

impl<const SHARES: bool> Served<SHARES> {
    fn new() -> Self {
        Self::with(|_| None)
    }

    #[cfg(feature = "tls")]
    fn secured() -> Self {
        Self::with(|dir| Some(tls_support::both_sides(dir)))
    }

    fn with(tls: impl FnOnce(&Path) -> Option<(ServerTls, ClientTls)>) -> Self {
        static STAGES: AtomicUsize = AtomicUsize::new(0);
        let number = STAGES.fetch_add(1, Ordering::Relaxed);
        let dir = TestDir::new(&format!("tcp-conformance-{number}"));
        let options = dir.options();
        let open =
            move |name: &str| Host::open(&Options { name: name.to_owned(), ..options.clone() });
        let mut server = Server::bind("127.0.0.1:0", open, Limits::default()).unwrap();
        let (on_server, tls) = tls(dir.path()).unzip();
        if let Some(tls) = on_server {
            server = server.secured(tls);
        }
        let (address, stopper) = (server.address().unwrap().to_string(), server.stopper());
        let thread = std::thread::spawn(move || server.run().unwrap());
        let (thread, heap) = (Some(thread), (Addr::from_bits(0), 0));
        let mut served =
            Self { dir, tls, address, stopper, thread, remotes: Vec::new(), heap, used: 0 };
        let remote = served.connect();
        served.heap = remote.heap();
        served.remotes.push(remote);
        served
    }

    /// The connection of a new endpoint.
    fn remote(&self) -> Remote {
        let shared = self.remotes.last().filter(|_| SHARES);
        shared.cloned().unwrap_or_else(|| self.connect())
    }

    fn connect(&self) -> Remote {
        let (server, name) = (&self.address, &self.dir.options().name);
        let remote = match &self.tls {
            None => Remote::connect(server, name, "test"),
            Some(tls) => Remote::connect_secured(tls, server, name, "test"),
        };
        remote.unwrap()
    }
}

impl<const SHARES: bool> Drop for Served<SHARES> {
    fn drop(&mut self) {
        self.stopper.stop();
        let thread = self.thread.take().unwrap();
        if thread.join().is_err() && !std::thread::panicking() {
            panic!("the server panicked");
        }
    }
}

impl<const SHARES: bool> Stage for Served<SHARES> {
    type Endpoint = TcpEndpoint;

    const RECEIVES_AT_ONCE: bool = SHARES;

    fn endpoint(&mut self) -> TcpEndpoint {
        let endpoint = self.newcomer();
        // What a server tells comes in order: with its answer they have been told.
        self.remotes.iter().for_each(|remote| drop(remote.peers()));
        endpoint
    }

    fn newcomer(&mut self) -> TcpEndpoint {
        let remote = self.remote();
        let endpoint = remote.endpoint().unwrap();
        self.remotes.push(remote);
        endpoint
    }

    fn scratch(&mut self, bytes: u64) -> Addr {
        let addr = self.heap.0.plus(self.used);
        self.used += bytes.next_multiple_of(64);
        assert!(self.used < self.heap.1, "the heap is large enough for every case");
        addr
    }

    fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return output;
            }
            std::thread::yield_now();
        }
    }

    fn end(&self) -> Addr {
        self.heap.0.plus(self.heap.1)
    }

    fn reset(&mut self) -> bool {
        Region::reset(&self.dir.options()).unwrap();
        self.remotes.push(self.connect());
        true
    }

    /// A thread each.
    fn crowd(&mut self, size: usize, member: impl AsyncFn(&TcpEndpoint, usize) + Sync) {
        let (stage, member) = (&*self, &member);
        std::thread::scope(|scope| {
            for number in 0..size {
                scope.spawn(move || {
                    let endpoint = stage.remote().endpoint().unwrap();
                    block_on(&endpoint, member(&endpoint, number));
                });
            }
        });
    }
}

mod alone {
    use super::*;

    farlock_fabric::conformance!(Served::<false>::new());
}

mod shared {
    use super::*;

    farlock_fabric::conformance!(Served::<true>::new());
}

#[cfg(feature = "tls")]
mod secured {
    use super::*;

    farlock_fabric::conformance!(Served::<false>::secured());
}

#[cfg(feature = "tls")]
mod secured_shared {
    use super::*;

    farlock_fabric::conformance!(Served::<true>::secured());
}
