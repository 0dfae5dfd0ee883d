//! The suite over TCP: a server of a region, and every client an endpoint of a connection to it.

use std::thread::JoinHandle;

use farlock_fabric::shm::Host;
use farlock_fabric::tcp::{Limits, Remote, Server, Stopper};

use crate::region::{Dir, RegionStage};
use crate::setting::play;
use crate::{every_case, every_local_case};

type TcpStage = RegionStage<Remote, Serving, 1_000_000>;

/// A server, which ends with its stage.
struct Serving {
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl TcpStage {
    fn new() -> Self {
        let (dir, options) = Dir::new();
        let open = move |_: &str| Host::open(&options);
        let server = Server::bind("127.0.0.1:0", open, Limits::default());
        let server = server.expect("a port of this host is free");
        let (address, stopper) = (server.address().expect("it listens"), server.stopper());
        #[expect(clippy::disallowed_methods, reason = "it is the world, and no protocol")]
        let thread = std::thread::spawn(move || server.run().expect("it serves to the end"));
        let remote =
            Remote::connect(&address.to_string(), "suite", "suite").expect("the server answers");
        let serving = Serving { stopper, thread: Some(thread) };
        let mut stage = Self::on(remote, serving, dir);
        stage.yields = true;
        stage
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stopper.stop();
        let ended = self.thread.take().map_or(Ok(()), JoinHandle::join);
        assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
    }
}

macro_rules! on_tcp {
    ($name:ident, $case:path) => {
        #[test]
        fn $name() {
            play(TcpStage::new, $case);
        }
    };
}

every_case!(on_tcp);
every_local_case!(on_tcp);
