//! Specification: whatever the contract allows does happen, and nothing else does.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use farlock_fabric::{
    Addr, Endpoint, Fault, Link, Mailbox, MaskedFaa, Slot, SyncedClock, Verb, Wait, WideAtomics,
};
use farlock_sim::{Config, Ended, Ratio, SimEndpoint, Weakness, World};

const SEEDS: u64 = 200;

fn world(weakness: Weakness, seed: u64) -> (World, Addr) {
    let world = World::new(Config { seed, weakness, ..Config::default() });
    let base = world.region(world.node(), 4096);
    (world, base)
}

/// What `case` finds over many seeds.
fn outcomes<T: Ord>(weakness: Weakness, case: impl Fn(World, Addr) -> T) -> BTreeSet<T> {
    let run = |seed| {
        let (world, base) = world(weakness, seed);
        case(world, base)
    };
    (0..SEEDS).map(run).collect()
}

fn spawn<T: 'static>(
    world: &World,
    body: impl AsyncFnOnce(SimEndpoint) -> T + 'static,
) -> farlock_sim::Task<T> {
    let endpoint = world.endpoint();
    world.spawn(endpoint.id(), async move { body(endpoint).await })
}

async fn read(endpoint: &SimEndpoint, addr: Addr, words: u16) -> Vec<u64> {
    endpoint.verb(Verb::Read { addr, words }).await.expect("the words exist");
    let mut into = vec![0; words.into()];
    endpoint.copy_read(0, &mut into);
    into
}

/// How many of three words a read sees changed while they are written, the middle one told apart.
fn read_during_a_write(world: World, base: Addr) -> Vec<u64> {
    spawn(&world, async move |e| e.verb(Verb::Write { addr: base, data: &[1; 3] }).await);
    let seen = spawn(&world, async move |e| read(&e, base, 3).await);
    assert_eq!(world.run(), Ended::Finished);
    seen.take().expect("it has finished")
}

#[test]
fn a_long_read_or_write_tears_at_any_word() {
    let seen = outcomes(Weakness::FULL, read_during_a_write);
    assert_eq!(seen.len(), 8, "each word is old or new, independently: {seen:?}");
}

#[test]
fn nothing_tears_where_tearing_is_off() {
    let seen = outcomes(Weakness { torn: Ratio::NEVER, ..Weakness::FULL }, read_during_a_write);
    assert_eq!(seen, BTreeSet::from([vec![0; 3], vec![1; 3]]));
}

#[test]
fn a_read_of_sixteen_bytes_tears_though_a_wide_atomic_does_not() {
    let seen = outcomes(Weakness::FULL, |world, base| {
        let op = MaskedFaa { add: 1 | 1 << 64, boundary: 0 };
        spawn(&world, async move |e| e.masked_faa128(base, op, None).await);
        let other = spawn(&world, async move |e| {
            e.masked_faa128(base, op, None).await.expect("the word exists");
            e.old()
        });
        let seen = spawn(&world, async move |e| read(&e, base, 2).await);
        assert_eq!(world.run(), Ended::Finished);
        let old = other.take().expect("it has finished");
        assert!([0, 1 | 1 << 64].contains(&old), "an atomic sees both halves at one instant");
        seen.take().expect("it has finished")
    });
    assert!(seen.contains(&vec![0, 1]) && seen.contains(&vec![1, 0]), "{seen:?}");
}

/// What the read at the head of a chain finds: 0 before the write after it, 1 after it.
fn read_before_write(weakness: Weakness, fence: bool) -> BTreeSet<u64> {
    outcomes(weakness, move |world, base| {
        let seen = spawn(&world, async move |e| {
            let write = Verb::Write { addr: base, data: &[1] };
            let chain = [Verb::Read { addr: base, words: 1 }.into(), Link { verb: write, fence }];
            e.chain(&chain).await.expect("the words exist");
            e.link(0).old as u64
        });
        assert_eq!(world.run(), Ended::Finished);
        seen.take().expect("it has finished")
    })
}

#[test]
fn a_read_may_be_overtaken_by_the_verbs_after_it_but_not_past_a_fence() {
    assert_eq!(read_before_write(Weakness::FULL, false), BTreeSet::from([0, 1]));
    assert_eq!(read_before_write(Weakness::FULL, true), BTreeSet::from([0]));
    assert_eq!(read_before_write(Weakness::NONE, false), BTreeSet::from([0]));
}

#[test]
fn a_fence_costs_a_round_trip() {
    let (world, base) = world(Weakness::NONE, 0);
    let took = spawn(&world, async move |e| {
        let mut took = [0; 2];
        for (fence, took) in [false, true].into_iter().zip(&mut took) {
            let begun = e.now();
            let add = Verb::Faa64 { addr: base, add: 1 };
            let chain = [Verb::Read { addr: base, words: 1 }.into(), Link { verb: add, fence }];
            e.chain(&chain).await.expect("the words exist");
            *took = e.now() - begun;
        }
        took
    });
    assert_eq!(world.run(), Ended::Finished);
    let [free, fenced] = took.take().expect("it has finished");
    assert!(free < 2_200 && (3_500..4_000).contains(&fenced), "{free} and {fenced} ns");
}

#[test]
fn clients_interleave_between_the_verbs_of_a_chain() {
    let seen = outcomes(Weakness::FULL, |world, base| {
        spawn(&world, async move |e| {
            let links = [Link::from(Verb::Faa64 { addr: base, add: 1 }); 3];
            e.chain(&links).await.expect("the words exist");
        });
        let seen = spawn(&world, async move |e| read(&e, base, 1).await[0]);
        assert_eq!(world.run(), Ended::Finished);
        seen.take().expect("it has finished")
    });
    assert!(seen.contains(&0) && seen.contains(&3), "{seen:?}");
}

/// In which order the completions of four verbs come that alternate between two words.
fn completion_order(world: &World, words: [Addr; 2]) -> Vec<usize> {
    let endpoint = world.endpoint();
    let order = Rc::new(RefCell::new(Vec::new()));
    for number in 0..4 {
        let (endpoint, order) = (endpoint.clone(), Rc::clone(&order));
        world.spawn(endpoint.id(), async move {
            endpoint.faa64(words[number % 2], 1).await.expect("the word exists");
            order.borrow_mut().push(number);
        });
    }
    assert_eq!(world.run(), Ended::Finished);
    order.take()
}

#[test]
fn completions_of_one_node_come_in_posting_order() {
    let seen =
        outcomes(Weakness::FULL, |world, base| completion_order(&world, [base, base.plus(64)]));
    assert_eq!(seen, BTreeSet::from([vec![0, 1, 2, 3]]));
}

#[test]
fn completions_of_two_nodes_come_in_any_order_between_them() {
    let seen = outcomes(Weakness::FULL, |world, base| {
        let elsewhere = world.region(world.node(), 64);
        completion_order(&world, [base, elsewhere])
    });
    let keeps = |order: &Vec<usize>, a, b| {
        order.iter().position(|&n| n == a) < order.iter().position(|&n| n == b)
    };
    assert!(seen.iter().all(|order| keeps(order, 0, 2) && keeps(order, 1, 3)));
    assert_eq!(seen.len(), 6, "all orders that keep each node's own: {seen:?}");
}

#[test]
fn verbs_posted_apart_may_take_effect_in_any_order() {
    let seen = outcomes(Weakness::FULL, |world, base| {
        let endpoint = world.endpoint();
        let olds: Vec<_> = (0..2)
            .map(|_| {
                let endpoint = endpoint.clone();
                world.spawn(endpoint.id(), async move {
                    endpoint.faa64(base, 1).await.expect("the word exists");
                    endpoint.old() as u64
                })
            })
            .collect();
        assert_eq!(world.run(), Ended::Finished);
        olds[0].take().expect("it has finished")
    });
    assert_eq!(seen, BTreeSet::from([0, 1]));
}

#[test]
fn messages_of_a_pair_stay_in_order_however_late() {
    let seen = outcomes(Weakness::FULL, |world, base| {
        let receiver = world.endpoint();
        let to = Mailbox { endpoint: receiver.id(), slot: Slot(0) };
        let sender = world.endpoint();
        let add = Link::from(Verb::Faa64 { addr: base, add: 1 });
        drop(sender.send(to, [0; 4]));
        drop(sender.chain(&[add, Verb::Send { to, message: [1; 4] }.into()]));
        drop(sender.send(to, [2; 4]));
        assert_eq!(world.run(), Ended::Finished);
        let envelopes: Vec<_> = std::iter::from_fn(|| receiver.receive(Slot(0))).collect();
        assert!(envelopes.is_sorted_by_key(|envelope| envelope.arrived));
        envelopes.iter().map(|envelope| envelope.message[0]).collect::<Vec<_>>()
    });
    assert_eq!(seen, BTreeSet::from([vec![0, 1, 2]]));
}

#[test]
fn messages_to_two_receivers_arrive_in_any_order() {
    let seen = outcomes(Weakness::FULL, |world, _| {
        let sender = world.endpoint();
        let receivers = [world.endpoint(), world.endpoint()];
        for receiver in &receivers {
            drop(sender.send(Mailbox { endpoint: receiver.id(), slot: Slot(0) }, [0; 4]));
        }
        assert_eq!(world.run(), Ended::Finished);
        let arrival = |e: &SimEndpoint| e.receive(Slot(0)).expect("it has arrived").arrived;
        // The clocks differ by less than what makes the difference here.
        arrival(&receivers[0]) < arrival(&receivers[1])
    });
    assert_eq!(seen.len(), 2);
}

#[test]
fn a_lost_verb_never_happened_or_happened_or_happens_later() {
    let weakness = Weakness { lost: Ratio::ALWAYS, ..Weakness::FULL };
    let seen = outcomes(weakness, |world, base| {
        let at_report = spawn(&world, {
            let world = world.handle();
            async move |e| {
                assert_eq!(e.faa64(base, 1).await, Err(Fault::Lost));
                world.peek(base)
            }
        });
        assert_eq!(world.run(), Ended::Finished);
        (at_report.take().expect("it has finished"), world.peek(base))
    });
    assert_eq!(seen, BTreeSet::from([(0, 0), (0, 1), (1, 1)]));
}

#[test]
fn clocks_drift_within_the_contract_and_stay_within_their_bound() {
    let weakness = Weakness { clock_error_ns: 10_000, ..Weakness::FULL };
    let (world, _) = world(weakness, 3);
    let clocks: Vec<_> = (0..8).map(|_| world.endpoint()).collect();
    let mut before: Vec<_> = clocks.iter().map(Endpoint::now).collect();
    let mut apart_most = 0;
    for second in 1..20 {
        world.run_until(second * 50_000_000);
        let now: Vec<_> = clocks.iter().map(Endpoint::now).collect();
        for (now, before) in now.iter().zip(&before) {
            let rate = (now - before).abs_diff(50_000_000);
            assert!(rate <= 5_000, "{rate} ns in 50 ms are more than 1e-4");
        }
        let apart = now.iter().max().expect("clocks") - now.iter().min().expect("clocks");
        assert!(apart <= clocks[0].clock_error());
        apart_most = apart.max(apart_most);
        before = now;
    }
    assert!(apart_most > 2_000, "they do drift: {apart_most} ns");
}

#[test]
fn a_wait_lasts_its_interval_by_the_endpoints_own_clock() {
    for seed in 0..SEEDS {
        let (world, _) = world(Weakness::FULL, seed);
        let task = spawn(&world, async move |e| {
            let begun = e.now();
            e.sleep(1_000_000).await;
            e.now() - begun
        });
        assert_eq!(world.run(), Ended::Finished);
        assert_eq!(task.take(), Some(1_000_000));
    }
}

#[test]
fn a_mailbox_holds_four_and_refuses_the_fifth() {
    let (world, _) = world(Weakness::FULL, 0);
    let receiver = world.endpoint();
    let to = Mailbox { endpoint: receiver.id(), slot: Slot(1) };
    let ends = spawn(&world, async move |e| {
        let mut ends = Vec::new();
        for number in 0..5 {
            ends.push(e.send(to, [number; 4]).await);
        }
        ends
    });
    assert_eq!(world.run(), Ended::Finished);
    let ends = ends.take().expect("it has finished");
    assert_eq!(ends, [Ok(()), Ok(()), Ok(()), Ok(()), Err(Fault::MailboxFull)]);
}

#[test]
fn a_wait_on_a_word_ends_when_it_would_have_looked() {
    let (world, base) = world(Weakness::NONE, 0);
    let woken = spawn(&world, async move |e| {
        let wait = Wait { word: Some((base, 0)), ..Wait::default() };
        (e.wait(wait).await, e.now())
    });
    spawn(&world, async move |e| {
        e.sleep(10_000).await;
        e.faa64(base, 1).await.expect("the word exists");
    });
    assert_eq!(world.run(), Ended::Finished);
    let (woken, time) = woken.take().expect("it has finished");
    assert_eq!(woken, farlock_fabric::Woken::Changed);
    assert_eq!(time, 6 * 1_862, "the first look after the change at about 10.9 us");
}
