//! Changing a range lock's parameters while clients use it.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use farlock_fabric::{Addr, Endpoint, Nanos};
use farlock_locks::record::citron::Exclusive;
use farlock_locks::registry::{self, SpecError};
use farlock_locks::{Client, Extent, LockKind as _, Mode, Options, TuneError, Tuning, within};
use farlock_sim::{Config, Ended, Kind, SimEndpoint, Weakness, World};

const MS: Nanos = 1_000_000;

/// Leaves of one unit, so that most ranges take nodes at several levels.
fn tuned() -> Exclusive {
    let tuned = Exclusive { levels: 4, leaf_units: 1, wait_ns: Some(15_000), ..Default::default() };
    Exclusive { distance: 2, is_tuned: true, ..tuned }
}

fn to(distance: u8, wait_ns: Nanos) -> Tuning {
    Tuning { distance, wait_ns }
}

/// A lock in a world of so many clients.
struct Scene {
    world: World,
    word: Addr,
    lock: Exclusive,
}

type SimClient = Client<SimEndpoint, Exclusive>;

impl Scene {
    fn of(lock: Exclusive, endpoints: u16) -> Self {
        let config = Config { endpoints, weakness: Weakness::NONE, ..Config::default() };
        let world = World::new(config);
        let word = world.region(world.node(), lock.bytes());
        Self { world, word, lock }
    }

    fn client(&self) -> Rc<SimClient> {
        Rc::new(Client::new(self.world.endpoint(), self.lock.clone(), Options::default()))
    }

    /// Has a client begin after so long, hold these units for so long, and tell when it was granted
    /// them.
    fn hold(&self, begins: Nanos, units: Range<u32>, held: Nanos) -> Rc<Cell<Option<Nanos>>> {
        let (client, word, told) = (self.client(), self.word, Rc::default());
        let tells: Rc<Cell<Option<Nanos>>> = Rc::clone(&told);
        self.world.spawn(client.endpoint().id(), async move {
            client.endpoint().sleep(begins).await;
            let want = Extent::new(Mode::Exclusive, units);
            let guard = client.acquire(word, want).await.expect("it is granted at last");
            tells.set(Some(client.endpoint().now()));
            client.endpoint().sleep(held).await;
            guard.release().await.expect("it is held");
        });
        told
    }
}

/// Clients come for ranges again and again, below and above each other, while two managers take
/// turns at the parameters.
#[test]
fn nobody_has_a_unit_twice_while_the_parameters_change() {
    const ROUNDS: u32 = 60;
    let scene = Scene::of(tuned(), 6);
    let held = Rc::new(RefCell::new([false; 64]));
    for number in 0..4_u32 {
        let (client, word, held) = (scene.client(), scene.word, Rc::clone(&held));
        scene.world.spawn(client.endpoint().id(), async move {
            for round in 0..ROUNDS {
                let first = (number * 17 + round * 7) % 64;
                let units = if (number + round) % 4 == 0 { 0..64 } else { first..first + 1 };
                let want = Extent::new(Mode::Exclusive, units.clone());
                let guard = client.acquire(word, want).await.expect("it is granted at last");
                for unit in units.clone() {
                    let had = std::mem::replace(&mut held.borrow_mut()[unit as usize], true);
                    assert!(!had, "two have unit {unit}");
                }
                client.endpoint().sleep(u64::from(round % 3) * 5_000).await;
                units.for_each(|unit| held.borrow_mut()[unit as usize] = false);
                guard.release().await.expect("it is held");
            }
        });
    }
    let changes = Rc::new(Cell::new(0));
    for all in [[to(1, 30_000), to(4, 5_000), to(2, 15_000)], [to(3, 9_000); 3]] {
        let (client, word, changes) = (scene.client(), scene.word, Rc::clone(&changes));
        scene.world.spawn(client.endpoint().id(), async move {
            for _ in 0..4 {
                for to in all {
                    client.tune(word, to).await.expect("the lock can have these");
                    changes.set(changes.get() + 1);
                }
            }
        });
    }
    assert_eq!(scene.world.run(), Ended::Finished);
    assert_eq!(changes.get(), 2 * 4 * 3);
}

/// A change waits for a hold by what was before, and nobody waits for the change.
#[test]
fn a_change_waits_for_those_who_hold_and_nobody_waits_for_it() {
    let scene = Scene::of(tuned(), 4);
    let holder = scene.hold(0, 5..6, 20 * MS);
    let other = scene.hold(5 * MS, 8..12, 0);
    let root = scene.hold(30 * MS, 0..64, 0);
    let (client, word, ended) = (scene.client(), scene.word, Rc::new(Cell::new(0)));
    let tells = Rc::clone(&ended);
    scene.world.spawn(client.endpoint().id(), async move {
        client.endpoint().sleep(MS).await;
        client.tune(word, to(1, 30_000)).await.expect("the lock can have these");
        tells.set(client.endpoint().now());
    });
    assert_eq!(scene.world.run(), Ended::Finished);
    assert!(holder.get().is_some_and(|at| at < MS));
    assert!(other.get().is_some_and(|at| at < 6 * MS), "the change is prepared, and it came in");
    assert!((20 * MS..21 * MS).contains(&ended.get()), "{} ns", ended.get());
    assert!(root.get().is_some_and(|at| at < 31 * MS));
}

/// A manager that leaves in the middle leaves the change prepared: clients go on by it, and the
/// next manager sees it through before its own.
#[test]
fn what_a_manager_has_left_in_the_middle_is_seen_through_by_the_next() {
    let scene = Scene::of(tuned(), 4);
    scene.hold(0, 5..6, 20 * MS);
    let meanwhile = scene.hold(10 * MS, 16..32, 0);
    let word = scene.word;
    let first = scene.client();
    scene.world.spawn(first.endpoint().id(), async move {
        client_gives_up(&first, word).await;
    });
    let (second, ended) = (scene.client(), Rc::new(Cell::new(0)));
    let tells = Rc::clone(&ended);
    scene.world.spawn(second.endpoint().id(), async move {
        second.endpoint().sleep(12 * MS).await;
        second.tune(word, to(4, 5_000)).await.expect("the lock can have these");
        tells.set(second.endpoint().now());
    });
    assert_eq!(scene.world.run(), Ended::Finished);
    assert!(meanwhile.get().is_some_and(|at| at < 11 * MS), "nobody waits for a manager");
    assert!(ended.get() > 20 * MS, "the change that was left needs the hold to end");
    // Two changes, of two phases each.
    assert_eq!(scene.world.handle().peek(word.plus(24)) & 0xf_ffff, 4);
}

async fn client_gives_up(client: &SimClient, word: Addr) {
    client.endpoint().sleep(MS).await;
    let tuned = within(client.endpoint(), MS, client.tune(word, to(1, 30_000))).await;
    assert!(tuned.is_none(), "it waits for the holder");
}

#[test]
fn what_a_lock_cannot_have_is_refused() {
    for (lock, to, refused) in [
        (Exclusive { is_tuned: false, ..tuned() }, to(2, 15_000), TuneError::Fixed),
        (tuned(), to(0, 15_000), TuneError::OutOfBounds),
        (tuned(), to(5, 15_000), TuneError::OutOfBounds),
        (tuned(), to(2, 999), TuneError::OutOfBounds),
        (tuned(), to(2, 1 << 20), TuneError::OutOfBounds),
    ] {
        let scene = Scene::of(lock, 1);
        let (client, word) = (scene.client(), scene.word);
        scene.world.spawn(client.endpoint().id(), async move {
            assert_eq!(client.tune(word, to).await, Err(refused));
        });
        assert_eq!(scene.world.run(), Ended::Finished);
    }
    for (spec, option) in [
        ("citron:tuned=yes", "tuned"),
        ("citron:wait=1048576:tuned=yes", "wait"),
        ("citron-rw:tuned=yes", "tuned"),
    ] {
        let refused = registry::promises(spec).expect_err("it does not go together");
        let named = matches!(refused, SpecError::Option { option: of, .. } if of == option);
        assert!(named, "{spec}");
    }
}

/// A request reads the parameters with its first look, and nothing else is added to what it posts.
#[test]
fn a_request_reads_one_word_more() {
    let reads = |is_tuned| {
        let scene = Scene::of(Exclusive { is_tuned, ..tuned() }, 1);
        scene.hold(0, 5..6, 0);
        assert_eq!(scene.world.run(), Ended::Finished);
        let posted = scene.world.handle().stats().posted;
        let of = |kind: Kind| posted[kind as usize];
        (of(Kind::Read), of(Kind::MaskedCas64), of(Kind::MaskedFaa64))
    };
    let ((fixed, cas, faa), tuned) = (reads(false), reads(true));
    assert_eq!(tuned, (fixed + 1, cas, faa));
}
