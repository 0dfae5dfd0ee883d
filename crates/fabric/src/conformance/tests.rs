//! The suite judged: it passes on the reference model, on the weakest reading of the contract and
//! through every hook, and it fails where a promise is broken.

use super::Stage;
use crate::addr::Addr;
use crate::endpoint::{Endpoint, Park};
use crate::hook::{Counted, Delay, Delayed, Effect, Faulty, Kind, Ring, Rule, Traced, When};
use crate::model::{FORBIDDEN, ModelEndpoint, World};

/// A world of the reference model, with its endpoints wrapped.
struct Model<W> {
    world: World,
    wrap: W,
    /// Somebody to pass the time.
    clock: ModelEndpoint,
}

impl<E: Endpoint, W: Fn(ModelEndpoint) -> E> Model<W> {
    fn new(world: World, wrap: W) -> Self {
        let clock = world.endpoint();
        Self { world, wrap, clock }
    }
}

fn bare(world: World) -> Model<impl Fn(ModelEndpoint) -> ModelEndpoint> {
    Model::new(world, |e| e)
}

impl<E: Endpoint, W: Fn(ModelEndpoint) -> E> Stage for Model<W> {
    type Endpoint = E;

    fn endpoint(&mut self) -> E {
        (self.wrap)(self.world.endpoint())
    }

    fn scratch(&mut self, bytes: u64) -> Addr {
        self.world.scratch(bytes)
    }

    fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        crate::endpoint::block_on(&self.clock, future)
    }

    fn end(&self) -> Addr {
        self.world.end()
    }

    fn forbidden(&self) -> Option<Addr> {
        Some(FORBIDDEN)
    }

    fn reset(&mut self) -> bool {
        self.world.reset();
        true
    }
}

mod reference {
    use super::*;
    crate::conformance!(bare(World::new()));
}

/// Reads are served as late as the contract allows.
mod weakest {
    use super::*;
    crate::conformance!(bare(World::with(true, None)));
}

/// No hook changes what a protocol sees.
mod hooked {
    use super::*;

    fn wrap(e: ModelEndpoint) -> impl crate::endpoint::WideAtomics + Park {
        let delay = Delay::Uniform { least: 0, most: 3000, seed: e.id().bits() };
        let never = Rule { on: Kind::Any, when: When::Nth(u64::MAX), effect: Effect::Vanishes };
        let faulty = Faulty::new(Delayed::new(e, delay), &[never], 1);
        Counted::new(Traced::new(faulty, Ring::new(8)))
    }

    crate::conformance!(Model::new(World::with(true, None), wrap));
}
