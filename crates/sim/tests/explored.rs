//! Specification: in explored mode an oracle sees every choice and can enumerate all of them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use farlock_fabric::{Addr, Endpoint, Nanos, Verb, Wait};
use farlock_sim::{Choice, Config, Ended, Mode, Oracle, Packet, Ratio, Weakness, World};

/// Enumerates every sequence of choices, depth first.
#[derive(Clone, Default)]
struct Enumerate(Rc<RefCell<Sequence>>);

#[derive(Default)]
struct Sequence {
    /// What was chosen of how many.
    choices: Vec<(u32, u32)>,
    next: usize,
}

impl Enumerate {
    /// Goes to the next sequence, if there is one.
    fn advance(&self) -> bool {
        let mut sequence = self.0.borrow_mut();
        sequence.next = 0;
        while let Some((chosen, of)) = sequence.choices.pop() {
            if chosen + 1 < of {
                sequence.choices.push((chosen + 1, of));
                return true;
            }
        }
        false
    }
}

impl Oracle for Enumerate {
    fn pick(&mut self, _: Choice, n: u32) -> u32 {
        let mut sequence = self.0.borrow_mut();
        let place = sequence.next;
        sequence.next += 1;
        if place == sequence.choices.len() {
            sequence.choices.push((0, n));
        }
        assert_eq!(sequence.choices[place].1, n, "a run depends on its choices alone");
        sequence.choices[place].0
    }

    fn chance(&mut self, choice: Choice, ratio: Ratio) -> bool {
        ratio.is_possible() && self.pick(choice, 2) == 1
    }

    fn jitter(&mut self, _: u32) -> Nanos {
        0
    }
}

/// What `case` finds in all schedules, and how many schedules there are.
fn explore<T: Ord>(weakness: Weakness, case: impl Fn(World, Addr) -> T) -> (BTreeSet<T>, u64) {
    let (oracle, mut found, mut schedules) = (Enumerate::default(), BTreeSet::new(), 0);
    loop {
        let config = Config { mode: Mode::Explored, weakness, endpoints: 4, ..Config::default() };
        let world = World::with_oracle(config, Box::new(oracle.clone()));
        let base = world.region(world.node(), 256);
        found.insert(case(world, base));
        schedules += 1;
        if !oracle.advance() {
            return (found, schedules);
        }
    }
}

#[test]
fn two_increments_by_read_and_write_lose_one_in_some_schedule() {
    let (sums, schedules) = explore(Weakness::NONE, |world, base| {
        for _ in 0..2 {
            let endpoint = world.endpoint();
            world.spawn(endpoint.id(), async move {
                endpoint.read64(base).await.expect("the word exists");
                let sum = endpoint.old() as u64 + 1;
                let write = Verb::Write { addr: base, data: &[sum] };
                endpoint.verb(write).await.expect("the word exists");
            });
        }
        assert_eq!(world.run(), Ended::Finished);
        world.peek(base)
    });
    assert_eq!(sums, BTreeSet::from([1, 2]));
    assert_eq!(schedules, 6, "two of four verbs are the first client's");
}

#[test]
fn a_spin_lock_has_finitely_many_schedules_and_excludes_in_all() {
    let (sums, schedules) = explore(Weakness::NONE, |world, base| {
        let (lock, sum) = (base, base.plus(64));
        for _ in 0..3 {
            let endpoint = world.endpoint();
            world.spawn(endpoint.id(), async move {
                loop {
                    endpoint.cas64(lock, 0, 1).await.expect("the word exists");
                    if endpoint.old() == 0 {
                        break;
                    }
                    let held =
                        Wait { word: Some((lock, 1)), interval: Some(1_862), ..Wait::default() };
                    endpoint.wait(held).await;
                }
                endpoint.read64(sum).await.expect("the word exists");
                let data = [endpoint.old() as u64 + 1];
                endpoint.verb(Verb::Write { addr: sum, data: &data }).await.expect("it exists");
                endpoint.verb(Verb::Write { addr: lock, data: &[0] }).await.expect("it exists");
            });
        }
        assert_eq!(world.run(), Ended::Finished);
        world.peek(sum)
    });
    assert_eq!(sums, BTreeSet::from([3]));
    assert!(schedules > 100, "{schedules} schedules");
}

#[test]
fn a_torn_read_of_three_words_sees_every_mixture() {
    let weakness = Weakness { torn: Ratio::one_in(2), ..Weakness::NONE };
    let (seen, _) = explore(weakness, |world, base| {
        let writer = world.endpoint();
        world.spawn(writer.id(), async move {
            for word in 0..3 {
                writer.faa64(base.plus(word * 8), 1).await.expect("the word exists");
            }
        });
        let reader = world.endpoint();
        let task = world.spawn(reader.id(), async move {
            reader.verb(Verb::Read { addr: base, words: 3 }).await.expect("the words exist");
            let mut words = [0; 3];
            reader.copy_read(0, &mut words);
            words
        });
        assert_eq!(world.run(), Ended::Finished);
        task.take().expect("it has finished")
    });
    assert_eq!(seen.len(), 8, "{seen:?}");
}

/// What is sent outside arrives in any order, and what a client sent arrives even when others know
/// that it is dead and have gone on.
#[test]
fn packets_arrive_outside_at_any_time_also_those_of_the_dead() {
    let (orders, _) = explore(Weakness::NONE, |world, base| {
        let order = Rc::new(RefCell::new(Vec::new()));
        let arrived = Rc::clone(&order);
        world.receive_outside(Box::new(move |packet| {
            arrived.borrow_mut().push(packet.words[0]);
        }));
        let (first, second) = (world.endpoint(), world.endpoint());
        let (doomed, handle) = (first.id(), world.handle());
        world.crash_at(doomed, 0, farlock_sim::Outcome::Never);
        world.spawn(doomed, async move {
            handle.send_outside(Packet { from: first.id(), words: [1, 0, 0] });
            let _ = first.read64(base).await;
        });
        let handle = world.handle();
        world.spawn(second.id(), async move {
            let peers = [doomed];
            second.wait(Wait { peers: &peers, ..Wait::default() }).await;
            handle.send_outside(Packet { from: second.id(), words: [2, 0, 0] });
        });
        assert_eq!(world.run(), Ended::Finished);
        order.take()
    });
    assert_eq!(orders, BTreeSet::from([vec![1, 2], vec![2, 1]]));
}
