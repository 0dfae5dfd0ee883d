//! A stage on a region of this host, by whatever connection: every client has an endpoint of its
//! own, and one thread polls them in turn.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};

use farlock_fabric::shm::Options;
use farlock_fabric::{Addr, Connection, Endpoint, Nanos, SyncedClock, Verb, block_on};
use farlock_locks::lock::Server;

use crate::{Stage, Task};

/// How long a case may take before its clients are said to wait for ever, in nanoseconds: hundreds
/// of times what it takes, for the machine may be busy.
const CASE_NS_MAX: Nanos = 100_000_000_000;

/// What goes with it goes in this order.
pub(crate) struct RegionStage<C: Connection, S, const STEP_NS: Nanos> {
    /// What serves the region.
    _served: S,
    connection: C,
    own: C::Endpoint,
    next: Addr,
    end: Addr,
    servers: Vec<Server>,
    /// Whether it lets others play while its clients wait for time to pass.
    pub(crate) yields: bool,
    _dir: Dir,
}

impl<C: Connection, S, const STEP_NS: Nanos> RegionStage<C, S, STEP_NS> {
    pub(crate) fn on(connection: C, served: S, dir: Dir) -> Self {
        let (next, bytes) = connection.heap();
        Self {
            own: connection.endpoint().expect("the region is empty"),
            _served: served,
            connection,
            next,
            end: next.plus(bytes),
            servers: Vec::new(),
            yields: false,
            _dir: dir,
        }
    }
}

/// A directory in memory of its own.
pub(crate) struct Dir(PathBuf);

impl Dir {
    /// With the options of a region in it.
    pub(crate) fn new() -> (Self, Options) {
        static DIRS: AtomicU32 = AtomicU32::new(0);
        let number = DIRS.fetch_add(1, Ordering::Relaxed);
        let dir = PathBuf::from(format!("/dev/shm/farlock-suite-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory in memory can be made");
        let mut options = Options::new(dir.join("regions"), dir.join("state"), "suite");
        options.endpoints = 128;
        options.seed = Some(u64::from(number));
        (Self(dir), options)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // Nothing depends on it: the next run uses another directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl<C, S, const STEP_NS: Nanos> Stage for RegionStage<C, S, STEP_NS>
where
    C: Connection<Endpoint: SyncedClock>,
{
    type Endpoint = C::Endpoint;

    const STEP_NS: Nanos = STEP_NS;
    const PUNCTUAL: bool = false;

    fn endpoint(&mut self) -> C::Endpoint {
        self.connection.endpoint().expect("the region has a place left")
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
            if self.yields {
                std::thread::yield_now();
            }
            if self.own.now() > deadline {
                return false;
            }
        }
        true
    }
}
