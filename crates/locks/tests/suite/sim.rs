//! The suite on simulated far memory, as weak as the contract allows short of losing completions,
//! under many seeds.

use farlock_fabric::{Addr, Endpoint, Nanos};
use farlock_locks::lock::Server;
use farlock_locks::record::none::NoLock;
use farlock_sim::{Config, Ended, Ratio, SimEndpoint, Weakness, World};

use crate::setting::{On, play};
use crate::{Stage, Task, cases, every_case, every_local_case};

/// Seeds per case.
const SEEDS: u64 = 12;

/// How long a case may take before its clients are said to wait for ever, in virtual nanoseconds.
const CASE_NS_MAX: Nanos = 200_000_000;

pub(crate) struct SimStage {
    world: World,
    /// Whose life the tasks share: nobody dies here.
    driver: SimEndpoint,
}

impl SimStage {
    pub(crate) fn new(seed: u64) -> Self {
        let weakness = Weakness { lost: Ratio::NEVER, ..Weakness::FULL };
        let config = Config { seed, weakness, endpoints: 128, ..Config::default() };
        let world = World::new(config);
        Self { driver: world.endpoint(), world }
    }
}

impl Stage for SimStage {
    type Endpoint = SimEndpoint;

    const STEP_NS: Nanos = 20_000;
    const PUNCTUAL: bool = true;

    fn endpoint(&mut self) -> SimEndpoint {
        self.world.endpoint()
    }

    fn memory(&mut self, bytes: u64) -> Addr {
        self.world.region(self.world.node(), bytes)
    }

    fn poke(&mut self, addr: Addr, value: u64) {
        self.world.poke(addr, value);
    }

    fn serve(&mut self, server: Server) {
        self.world.spawn_server(self.driver.id(), server);
    }

    fn run(&mut self, tasks: Vec<Task>) -> bool {
        for task in tasks {
            self.world.spawn(self.driver.id(), task);
        }
        self.world.run_until(self.world.now() + CASE_NS_MAX) == Ended::Finished
    }
}

macro_rules! on_sim {
    ($name:ident, $case:path) => {
        #[test]
        fn $name() {
            for seed in 0..SEEDS {
                play(|| SimStage::new(seed), $case);
            }
        }
    };
}

every_case!(on_sim);
every_local_case!(on_sim);

/// The judge judges: a lock that excludes nobody is caught.
#[test]
fn the_canary_is_caught() {
    let mut stage = SimStage::new(1);
    let mut on = On { stage: &mut stage, lock: NoLock, spec: "none" };
    let ledger = cases::contend(&mut on);
    assert!(ledger.violations() > 20, "{} violations", ledger.violations());
}
