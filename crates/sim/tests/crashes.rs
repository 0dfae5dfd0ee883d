//! Specification: death, revocation, restarts, and what is left of an endpoint that stops.

use farlock_fabric::{Addr, Endpoint, EndpointId, Fault, Mailbox, Revoke, Slot, Verb, Wait, Woken};
use farlock_sim::{Config, Ended, Outcome, Reset, SimEndpoint, Task, TaskId, Weakness, World};

fn world(weakness: Weakness, seed: u64) -> (World, Addr) {
    let world = World::new(Config { seed, weakness, ..Config::default() });
    let base = world.region(world.node(), 4096);
    (world, base)
}

/// A task that adds one to a word for ever.
fn adder(world: &World, base: Addr) -> (EndpointId, Task<()>) {
    let endpoint = world.endpoint();
    let task = world.spawn(endpoint.id(), {
        let endpoint = endpoint.clone();
        async move {
            loop {
                endpoint.faa64(base, 1).await.expect("the word exists");
            }
        }
    });
    (endpoint.id(), task)
}

/// A task that waits for a death and reads a word then.
fn mourner(world: &World, base: Addr, peer: EndpointId) -> Task<(u64, u64)> {
    let endpoint = world.endpoint();
    world.spawn(endpoint.id(), async move {
        let wait = Wait { peers: &[peer], ..Wait::default() };
        assert_eq!(endpoint.wait(wait).await, Woken::PeerGone(peer));
        assert!(!endpoint.is_alive(peer));
        let time = endpoint.now();
        endpoint.read64(base).await.expect("the word exists");
        (time, endpoint.old() as u64)
    })
}

#[test]
fn a_crash_has_three_outcomes_for_each_verb_and_a_moment_when_it_is_known() {
    for (outcome, at_crash, at_the_end) in
        [(Outcome::Never, 0, 0), (Outcome::Executed, 0, 1), (Outcome::Late, 0, 1)]
    {
        let (world, base) = world(Weakness::NONE, 9);
        let (id, task) = adder(&world, base);
        let mourner = mourner(&world, base, id);
        world.run_until(100);
        world.kill_with(id, outcome);
        assert_eq!(world.peek(base), at_crash);
        assert!(mourner.take().is_none());
        world.run_until(2_000);
        let soon = world.peek(base);
        assert_eq!(world.run(), Ended::Finished);
        assert_eq!(world.peek(base), at_the_end, "{outcome:?}");
        assert_eq!(soon == 1, outcome == Outcome::Executed, "the late verb comes later");
        let (time, word) = mourner.take().expect("it was told");
        assert_eq!((time, word), (50_100, at_the_end), "{outcome:?}");
        assert_eq!(task.take(), None);
    }
}

#[test]
fn every_verb_of_a_client_is_a_crash_point() {
    let run = |crash: Option<(u64, Outcome)>| {
        let (world, base) = world(Weakness::NONE, 1);
        let endpoint = world.endpoint();
        let id = endpoint.id();
        if let Some((verb, outcome)) = crash {
            world.crash_at(id, verb, outcome);
        }
        world.spawn(id, async move {
            for word in 0..5 {
                endpoint.faa64(base.plus(word * 8), 1).await.expect("the word exists");
            }
        });
        assert_eq!(world.run(), Ended::Finished);
        let effects: u64 = (0..5).map(|word| world.peek(base.plus(word * 8))).sum();
        (effects, world.posted(id))
    };
    let (effects, verbs) = run(None);
    assert_eq!((effects, verbs), (5, 5));
    for verb in 0..verbs {
        assert_eq!(run(Some((verb, Outcome::Never))), (verb, verb + 1));
        assert_eq!(run(Some((verb, Outcome::Executed))), (verb + 1, verb + 1));
    }
}

#[test]
fn what_is_said_to_be_dead_changes_nothing_any_more() {
    for seed in 0..300 {
        let (world, base) = world(Weakness::FULL, seed);
        let (id, _task) = adder(&world, base);
        let mourner = mourner(&world, base, id);
        world.run_until(20_000 + seed * 100);
        world.kill(id);
        assert_eq!(world.run(), Ended::Finished);
        let (_, word) = mourner.take().expect("it was told");
        assert_eq!(word, world.peek(base), "seed {seed}: a verb came after its owner's death");
    }
}

#[test]
fn after_a_revocation_verbs_in_flight_take_no_effect() {
    for seed in 0..300 {
        let (world, base) = world(Weakness::FULL, seed);
        let revoker = world.endpoint();
        let victim = world.endpoint();
        let task = world.spawn(victim.id(), {
            let victim = victim.clone();
            async move {
                loop {
                    let write = Verb::Write { addr: base, data: &[victim.random(); 4] };
                    victim.verb(write).await?;
                }
                #[allow(unreachable_code, reason = "it tells the type")]
                Ok::<(), Fault>(())
            }
        });
        world.run_until(30_000 + seed * 10);
        revoker.revoke(victim.id()).expect("a simulated fabric revokes");
        let words = || (0..4).map(|word| world.peek(base.plus(word * 8))).collect::<Vec<_>>();
        let before = words();
        assert_eq!(world.run(), Ended::Finished);
        assert_eq!(words(), before, "seed {seed}");
        let end = task.take().expect("it has finished");
        assert!(matches!(end, Err(Fault::Revoked | Fault::Lost)), "half a write is lost: {end:?}");
        assert!(world.handle().is_alive(victim.id()), "the revoked lives");
    }
}

#[test]
fn a_restarted_node_refuses_those_of_before() {
    let (world, base) = world(Weakness::FULL, 0);
    let other = world.node();
    let elsewhere = world.region(other, 64);
    world.poke(elsewhere, 7);
    let old = world.endpoint();
    world.reset_node(other, Reset::Zeroed);
    assert_eq!((world.incarnation(other), world.peek(elsewhere)), (2, 0));
    let new = world.endpoint();
    world.block_on(async {
        assert_eq!(old.faa64(elsewhere, 1).await, Err(Fault::Stale));
        assert_eq!(old.faa64(base, 1).await, Ok(()), "the first node was not restarted");
        assert_eq!(new.faa64(elsewhere, 1).await, Ok(()));
    });
    world.reset_node(other, Reset::Kept);
    assert_eq!(world.peek(elsewhere), 1);
}

/// Posts a verb when it is dropped, as a guard might.
struct LastWord(SimEndpoint, Addr);

impl Drop for LastWord {
    fn drop(&mut self) {
        drop(self.0.faa64(self.1, 1));
        self.0.publish(Slot(0), 0, 1);
    }
}

#[test]
fn destructors_of_the_crashed_change_nothing() {
    let (world, base) = world(Weakness::FULL, 0);
    let endpoint = world.endpoint();
    let id = endpoint.id();
    let record = endpoint.record(id.index, Slot(0));
    world.spawn(id, async move {
        let guard = LastWord(endpoint.clone(), base);
        endpoint.sleep(1_000_000).await;
        drop(guard);
    });
    world.run_until(10_000);
    world.kill(id);
    assert_eq!(world.run(), Ended::Finished);
    assert_eq!((world.peek(base), world.peek(record)), (0, 0));
}

#[test]
fn a_cancelled_task_is_dropped_and_its_endpoint_lives() {
    let (world, base) = world(Weakness::NONE, 0);
    let endpoint = world.endpoint();
    let task = world.spawn(endpoint.id(), {
        let endpoint = endpoint.clone();
        async move {
            let guard = LastWord(endpoint.clone(), base);
            endpoint.sleep(1_000_000).await;
            drop(guard);
        }
    });
    world.run_until(10_000);
    world.cancel(task.id());
    assert_eq!(world.run(), Ended::Finished);
    assert_eq!(world.peek(base), 1, "its destructors act as in life");
    assert!(endpoint.is_alive(endpoint.id()));
}

#[test]
fn a_paused_client_goes_on_later_and_its_verbs_do_not_wait() {
    let (world, base) = world(Weakness::NONE, 0);
    let endpoint = world.endpoint();
    let task = world.spawn(endpoint.id(), {
        let endpoint = endpoint.clone();
        async move {
            endpoint.faa64(base, 1).await.expect("the word exists");
            endpoint.now()
        }
    });
    world.run_until(100);
    world.pause(endpoint.id(), 1_000_000);
    world.run_until(5_000);
    assert_eq!(world.peek(base), 1);
    assert_eq!(world.run(), Ended::Finished);
    assert_eq!(task.take(), Some(1_000_100));
}

#[test]
fn a_seat_is_taken_again_by_a_higher_incarnation() {
    let config = Config { endpoints: 2, weakness: Weakness::NONE, ..Config::default() };
    let world = World::new(config);
    let (first, second) = (world.endpoint(), world.endpoint());
    world.kill(first.id());
    assert_eq!(second.occupant(1), Some(first.id()), "nobody knows yet");
    assert_eq!(world.run(), Ended::Finished);
    assert_eq!(second.occupant(1), None);
    let third = world.endpoint();
    assert_eq!(third.id(), EndpointId { index: 1, incarnation: 2 });
    assert!(!second.is_alive(first.id()) && second.is_alive(third.id()));
    let gone = Mailbox { endpoint: first.id(), slot: Slot(0) };
    assert_eq!(world.block_on(second.send(gone, [0; 4])), Err(Fault::PeerGone));
}

#[test]
fn a_deadlock_is_told_exactly() {
    let (world, base) = world(Weakness::FULL, 0);
    let mut stuck = Vec::new();
    for _ in 0..3 {
        let endpoint = world.endpoint();
        let waits = world.spawn(endpoint.id(), {
            let endpoint = endpoint.clone();
            async move {
                endpoint.wait(Wait { mail: Some(Slot(0)), ..Wait::default() }).await;
            }
        });
        let looks = world.spawn(endpoint.id(), {
            let endpoint = endpoint.clone();
            async move {
                endpoint.wait(Wait { word: Some((base, 0)), ..Wait::default() }).await;
            }
        });
        world.spawn(endpoint.id(), async move { endpoint.read64(base).await });
        stuck.extend([waits.id(), looks.id()]);
    }
    assert_eq!(world.run(), Ended::Deadlock(stuck.clone()));
    world.poke(base, 1);
    stuck.retain(|task| *task != TaskId(1) && *task != TaskId(4) && *task != TaskId(7));
    assert_eq!(world.run(), Ended::Deadlock(stuck), "those on the word have gone on");
}

#[test]
fn a_livelock_ends_with_the_budget() {
    let config = Config { events_max: Some(10_000), ..Config::default() };
    let world = World::new(config);
    let base = world.region(world.node(), 64);
    let (_, task) = adder(&world, base);
    assert_eq!(world.run(), Ended::Budget(vec![task.id()]));
    assert_eq!(world.stats().events, 10_000);
}

#[test]
fn memory_that_nobody_touches_costs_nothing() {
    let Ok(status) = std::fs::read_to_string("/proc/self/statm") else { return };
    let resident = |status: &str| -> u64 {
        let pages = status.split(' ').nth(1).expect("the second field is the resident set");
        pages.parse::<u64>().expect("it is a number") * 4
    };
    let before = resident(&status);
    let (world, _) = world(Weakness::NONE, 0);
    let locks = world.region(world.node(), 10_000_000 * 64);
    world.poke(locks.plus(9_999_999 * 64), 1);
    let status = std::fs::read_to_string("/proc/self/statm").expect("it could be read before");
    let grown = resident(&status).saturating_sub(before);
    assert!(grown < 32 << 10, "{grown} KiB for one lock of ten million");
}
