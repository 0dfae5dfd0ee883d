//! Endpoints that are stopped for good, and endpoints that act alone.

use std::cell::Cell;
use std::rc::Rc;

use farlock_fabric::{Addr, Endpoint, Wait};
use farlock_sim::{Config, Ended, Mode, SimEndpoint, World};

fn explored() -> (World, Addr) {
    let world = World::new(Config { mode: Mode::Explored, endpoints: 3, ..Config::default() });
    let word = world.region(world.node(), 64);
    (world, word)
}

/// Adds one to the word so often.
async fn adds(endpoint: SimEndpoint, word: Addr, times: u32) {
    for _ in 0..times {
        endpoint.faa64(word, 1).await.expect("the word exists");
    }
}

#[test]
fn who_is_stopped_does_nothing_more_until_it_goes_on() {
    for mode in [Mode::Explored, Mode::Timed] {
        let world = World::new(Config { mode, endpoints: 2, ..Config::default() });
        let word = world.region(world.node(), 64);
        let endpoint = world.endpoint();
        let id = endpoint.id();
        let stops = world.handle();
        let task = world.spawn(id, async move {
            adds(endpoint.clone(), word, 1).await;
            stops.stop(id);
            adds(endpoint, word, 2).await;
        });
        let halts = Rc::new(Cell::new(0));
        let seen = Rc::clone(&halts);
        world.observe_halts(Some(Box::new(move |who| {
            assert_eq!(who, id);
            seen.set(seen.get() + 1);
        })));
        assert_eq!(world.run(), Ended::Deadlock(vec![task.id()]));
        // The verb that was posted took effect.
        assert_eq!((world.peek(word), halts.get()), (2, 1));
        assert!(world.is_stopped(id));
        world.go_on(id);
        assert_eq!(world.run(), Ended::Finished);
        assert_eq!((world.peek(word), halts.get()), (3, 1));
    }
}

#[test]
fn a_stop_that_becomes_a_pause_ends_by_itself() {
    let (world, word) = explored();
    let endpoint = world.endpoint();
    let id = endpoint.id();
    let stops = world.handle();
    world.spawn(id, async move {
        stops.stop(id);
        adds(endpoint, word, 2).await;
    });
    let goes_on = world.handle();
    world.observe_halts(Some(Box::new(move |who| goes_on.go_on_after(who, 100))));
    assert_eq!(world.run(), Ended::Finished);
    assert_eq!(world.peek(word), 2);
    world.observe_halts(None);
}

#[test]
fn who_acts_alone_is_not_disturbed() {
    let (world, word) = explored();
    let (alone, other) = (world.endpoint(), world.endpoint());
    let (id, other_id) = (alone.id(), other.id());
    let first = world.spawn(id, async move {
        adds(alone.clone(), word, 3).await;
        let interval = Some(1_000_000);
        alone.wait(Wait { interval, ..Wait::default() }).await;
        adds(alone, word.plus(8), 1).await;
    });
    world.spawn(other_id, adds(other, word, 5));
    world.act_alone(Some(id), false);
    world.run();
    assert_eq!((world.peek(word), world.peek(word.plus(8))), (3, 0));
    world.act_alone(Some(id), true);
    world.run();
    assert_eq!((world.peek(word), world.peek(word.plus(8))), (3, 1));
    assert!(first.take().is_some());
    world.act_alone(None, false);
    assert_eq!(world.run(), Ended::Finished);
    assert_eq!(world.peek(word), 8);
}
