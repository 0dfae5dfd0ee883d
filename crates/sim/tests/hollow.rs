//! Specification: a region of which lengths alone count.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use farlock_fabric::{Addr, Endpoint, Fault, Nanos, Verb, WORDS_MAX};
use farlock_sim::{Config, Reset, SimEndpoint, Weakness, World};

/// Far more than any machine has.
const BYTES: u64 = 1 << 47;

fn world() -> (World, Addr, Addr, SimEndpoint) {
    let world = World::new(Config { weakness: Weakness::NONE, ..Config::default() });
    let whole = world.region(world.node(), 1 << 16);
    let hollow = world.hollow_region(world.node(), BYTES);
    let endpoint = world.endpoint();
    (world, whole, hollow, endpoint)
}

/// How long eight writes and eight reads of blocks take.
fn time(world: &World, endpoint: &SimEndpoint, base: Addr) -> Nanos {
    let begun = world.now();
    world.block_on(async {
        for number in 0..8 {
            let addr = base.plus(number * 4096);
            endpoint.verb(Verb::Write { addr, data: &[7; WORDS_MAX] }).await.unwrap();
            endpoint.verb(Verb::Read { addr, words: WORDS_MAX as u16 }).await.unwrap();
        }
    });
    world.now() - begun
}

#[test]
fn its_transfers_take_as_long_as_others() {
    let of = |pick: fn(Addr, Addr) -> Addr| {
        let (world, whole, hollow, endpoint) = world();
        time(&world, &endpoint, pick(whole, hollow))
    };
    assert_eq!(of(|whole, _| whole), of(|_, hollow| hollow));
}

#[test]
fn what_is_written_is_forgotten_and_zeros_are_read() {
    let (world, _, hollow, endpoint) = world();
    let last = hollow.plus(BYTES - 16);
    world.block_on(async {
        endpoint.verb(Verb::Write { addr: last, data: &[7, 8] }).await.unwrap();
        endpoint.verb(Verb::Read { addr: last, words: 2 }).await.unwrap();
        assert_eq!(endpoint.old(), 0);
        let mut words = [9; 2];
        assert_eq!((endpoint.copy_read(0, &mut words), words), (2, [0, 0]));
        let beyond = Verb::Read { addr: last, words: 3 };
        assert_eq!(endpoint.verb(beyond).await, Err(Fault::OutOfBounds));
        assert_eq!(endpoint.faa64(last, 1).await, Err(Fault::Unsupported));
        assert_eq!(endpoint.cas64(last, 0, 1).await, Err(Fault::Unsupported));
    });
    world.save_node(world.node());
    world.reset_node(world.node(), Reset::Saved);
    assert_eq!(world.peek(last), 0);
}
