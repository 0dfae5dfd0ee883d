//! Specification: simulated endpoints keep the fabric's contract, however weak the world is.

use std::future::Future;

use farlock_fabric::conformance::Stage;
use farlock_fabric::{Addr, Endpoint};
use farlock_sim::{Config, NodeId, Reset, SimEndpoint, Weakness, World};

const REGION_BYTES: u64 = 256 << 10;

/// A world of some weakness with one region, handed out from its start.
struct Simulated {
    world: World,
    base: Addr,
    used: u64,
}

impl Simulated {
    fn new(weakness: Weakness, seed: u64) -> Self {
        let world = World::new(Config { seed, weakness, endpoints: 100, ..Config::default() });
        let base = world.region(world.node(), REGION_BYTES);
        Self { world, base, used: 0 }
    }
}

impl Stage for Simulated {
    type Endpoint = SimEndpoint;

    fn endpoint(&mut self) -> SimEndpoint {
        let endpoint = self.world.endpoint();
        self.world.introduce();
        endpoint
    }

    fn newcomer(&mut self) -> SimEndpoint {
        self.world.endpoint()
    }

    fn scratch(&mut self, bytes: u64) -> Addr {
        let addr = self.base.plus(self.used);
        self.used += bytes.next_multiple_of(64);
        assert!(self.used < REGION_BYTES, "the region is large enough for every case");
        addr
    }

    fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        self.world.block_on(future)
    }

    fn end(&self) -> Addr {
        self.base.plus(REGION_BYTES)
    }

    fn kill(&mut self, endpoint: SimEndpoint) {
        self.world.kill(endpoint.id());
    }

    fn reset(&mut self) -> bool {
        self.world.reset_node(NodeId(0), Reset::Kept);
        true
    }
}

mod strong {
    use super::*;
    farlock_fabric::conformance!(Simulated::new(Weakness::NONE, 1), narrow masked wide revoking);
}

mod weak {
    use super::*;
    farlock_fabric::conformance!(Simulated::new(Weakness::FULL, 2), narrow masked wide revoking);
}
