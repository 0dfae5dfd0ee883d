//! The suite over TCP: a server of a region, and every client an endpoint of a connection to it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::thread::JoinHandle;

use farlock_fabric::shm::{Host, Options};
use farlock_fabric::tcp::{Limits, Remote, Server as TcpServer, Stopper, TcpEndpoint};
use farlock_fabric::{Addr, Connection, Endpoint, Nanos, Verb, block_on};
use farlock_locks::lock::Server;

use crate::{Stage, Task, every_case, every_local_case, play};

/// How long a case may take before its clients are said to wait for ever, in nanoseconds.
const CASE_NS_MAX: Nanos = 100_000_000_000;

struct TcpStage {
    remote: Remote,
    dir: PathBuf,
    next: Addr,
    end: Addr,
    own: TcpEndpoint,
    servers: Vec<Server>,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl TcpStage {
    fn new() -> Self {
        static STAGES: AtomicU32 = AtomicU32::new(0);
        let number = STAGES.fetch_add(1, Ordering::Relaxed);
        let dir = PathBuf::from(format!("/dev/shm/farlock-wire-{}-{number}", std::process::id()));
        let mut options = Options::new(dir.join("regions"), dir.join("state"), "suite");
        options.endpoints = 128;
        options.seed = Some(u64::from(number));
        std::fs::create_dir_all(&dir).expect("a directory in memory can be made");
        let open = move |_: &str| Host::open(&options);
        let server = TcpServer::bind("127.0.0.1:0", open, Limits::default());
        let server = server.expect("a port of this host is free");
        let (address, stopper) = (server.address().expect("it listens"), server.stopper());
        #[expect(clippy::disallowed_methods, reason = "it is the world, and no protocol")]
        let thread = std::thread::spawn(move || server.run().expect("it serves to the end"));
        let remote =
            Remote::connect(&address.to_string(), "suite", "suite").expect("the server answers");
        let (next, bytes) = remote.heap();
        let own = remote.endpoint().expect("the region is empty");
        let (end, servers, thread) = (next.plus(bytes), Vec::new(), Some(thread));
        Self { remote, dir, next, end, own, servers, stopper, thread }
    }
}

impl Drop for TcpStage {
    fn drop(&mut self) {
        self.stopper.stop();
        let ended = self.thread.take().map_or(Ok(()), JoinHandle::join);
        assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
        // Nothing depends on it: the next run uses another directory.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Stage for TcpStage {
    type Endpoint = TcpEndpoint;

    const STEP_NS: Nanos = 1_000_000;
    const PUNCTUAL: bool = false;

    fn endpoint(&mut self) -> TcpEndpoint {
        self.remote.endpoint().expect("the region has a place left")
    }

    fn memory(&mut self, bytes: u64) -> Addr {
        let addr = self.next;
        self.next = addr.plus(bytes.next_multiple_of(64));
        assert!(self.next <= self.end, "the heap is large enough for a case");
        addr
    }

    fn poke(&mut self, addr: Addr, value: u64) {
        let written = block_on(&self.own, self.own.verb(Verb::Write { addr, data: &[value] }));
        written.expect("a word of the heap");
    }

    fn serve(&mut self, server: Server) {
        self.servers.push(server);
    }

    #[expect(clippy::disallowed_methods, reason = "it is no protocol that waits here")]
    fn run(&mut self, mut tasks: Vec<Task>) -> bool {
        let deadline = self.own.now() + CASE_NS_MAX;
        let mut cx = Context::from_waker(Waker::noop());
        while !tasks.is_empty() {
            for server in &mut self.servers {
                assert!(server.as_mut().poll(&mut cx).is_pending(), "a server never ends");
            }
            tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
            std::thread::yield_now();
            if self.own.now() > deadline {
                return false;
            }
        }
        true
    }
}

macro_rules! on_tcp {
    ($name:ident, $case:ty) => {
        #[test]
        fn $name() {
            play::<_, $case>(TcpStage::new);
        }
    };
}

every_case!(on_tcp);
every_local_case!(on_tcp);
