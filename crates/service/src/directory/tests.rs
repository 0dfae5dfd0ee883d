//! The directory in the simulator: at every interleaving and every crash, one name, one lock.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use farlock_fabric::{Addr, Endpoint};
use farlock_sim::{Config, Ended, Mode, Outcome, SimEndpoint, Task, Weakness, World};

use super::*;

const KIND: &str = "shiftlock";

struct Scene {
    world: World,
    heap: (Addr, u64),
}

impl Scene {
    fn new(seed: u64, bytes: u64) -> Self {
        let mode = if seed.is_multiple_of(2) { Mode::Timed } else { Mode::Explored };
        let world = World::new(Config { seed, mode, ..Config::default() });
        let heap = (world.region(world.node(), bytes), bytes);
        Self { world, heap }
    }

    /// Somebody who enters these names, one after the other.
    fn enter(&self, names: &[&str]) -> (SimEndpoint, Task<Vec<Result<Addr, DirectoryError>>>) {
        let endpoint = self.world.endpoint();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let (theirs, heap) = (endpoint.clone(), self.heap);
        let task = self.world.spawn(endpoint.id(), async move {
            let directory = match Directory::open(&theirs, heap).await {
                Ok(directory) => directory,
                Err(error) => return vec![Err(error)],
            };
            let mut locks = Vec::new();
            for name in &names {
                locks.push(directory.enter(&theirs, name, KIND).await);
            }
            locks
        });
        (endpoint, task)
    }

    /// Runs a future of a new endpoint to its end.
    fn run<T: 'static>(&self, f: impl AsyncFnOnce(SimEndpoint, Directory) -> T + 'static) -> T {
        let (endpoint, heap) = (self.world.endpoint(), self.heap);
        let task = self.world.spawn(endpoint.id(), async move {
            let directory = Directory::open(&endpoint, heap).await.unwrap();
            f(endpoint, directory).await
        });
        assert_eq!(self.world.run(), Ended::Finished);
        task.take().unwrap()
    }

    fn entries(&self) -> Vec<Entry> {
        self.run(async |endpoint, directory| directory.list(&endpoint).await.unwrap())
    }
}

#[test]
fn a_name_entered_by_many_at_once_has_one_lock() {
    for seed in 0..200 {
        let scene = Scene::new(seed, 16 << 10);
        let tasks: Vec<_> = (0..6).map(|_| scene.enter(&["a", "b", "a", "c"])).collect();
        assert_eq!(scene.world.run(), Ended::Finished, "seed {seed}");
        let mut locks: Vec<Vec<_>> = tasks.into_iter().map(|t| t.1.take().unwrap()).collect();
        let first = locks.pop().unwrap();
        assert!(first.iter().all(Result::is_ok), "seed {seed}: {first:?}");
        assert!(locks.iter().all(|others| *others == first), "seed {seed}");
        assert!(first[0] == first[2] && first[0] != first[1] && first[1] != first[3]);
        let entries = scene.entries();
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"], "seed {seed}");
    }
}

#[test]
fn whoever_dies_at_any_verb_leaves_one_lock_a_name() {
    let names = ["x", "y", "x"];
    let outcomes = [Outcome::Never, Outcome::Executed, Outcome::Late];
    let (mut crashes, mut seed) = (0, 0);
    for outcome in outcomes {
        for verb in 0.. {
            seed += 1;
            let scene = Scene::new(seed, 16 << 10);
            let (dying, task) = scene.enter(&names);
            scene.world.crash_at(dying.id(), verb, outcome);
            let others = [scene.enter(&["x", "z"]), scene.enter(&["y", "x"])];
            assert_eq!(scene.world.run(), Ended::Finished, "{outcome:?} at {verb}");
            let [one, two] = others.map(|other| other.1.take().unwrap());
            assert_eq!(one[0], two[1], "{outcome:?} at {verb}");
            let entries = scene.entries();
            let found: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
            assert_eq!(found, ["x", "y", "z"], "{outcome:?} at {verb}");
            if task.take().is_some() {
                break;
            }
            crashes += 1;
        }
    }
    assert!(crashes > 30, "{crashes}");
}

#[test]
fn torn_and_overtaken_words_are_never_believed() {
    for seed in 0..100 {
        let weakness = Weakness { torn: farlock_sim::Ratio::one_in(2), ..Weakness::default() };
        let world = World::new(Config { seed, weakness, ..Config::default() });
        let heap = (world.region(world.node(), 8 << 10), 8 << 10);
        let scene = Scene { world, heap };
        let long = "n".repeat(NAME_BYTES_MAX);
        let tasks: Vec<_> = (0..4).map(|_| scene.enter(&[&long, "m"])).collect();
        assert_eq!(scene.world.run(), Ended::Finished);
        let locks: Vec<_> = tasks.into_iter().map(|task| task.1.take().unwrap()).collect();
        assert!(locks.iter().all(|others| *others == locks[0] && others[0].is_ok()), "{seed}");
    }
}

#[test]
fn a_full_directory_says_so_and_keeps_what_it_has() {
    let scene = Scene::new(0, 8 << 10);
    scene.run(async |endpoint, directory| {
        let capacity = directory.capacity();
        let mut locks = BTreeMap::new();
        for number in 0..capacity {
            let name = format!("name {number}");
            let lock = directory.enter(&endpoint, &name, KIND).await.unwrap();
            assert_eq!(lock.offset() % 64, 0);
            locks.insert(lock.bits(), name);
        }
        assert_eq!(locks.len(), capacity as usize, "two names share a lock");
        for _ in 0..3 {
            let full = directory.enter(&endpoint, "one more", KIND).await.unwrap_err();
            assert_eq!(full, DirectoryError::Full { names: capacity });
        }
        for (bits, name) in &locks {
            let found = directory.find(&endpoint, name, KIND).await.unwrap();
            assert_eq!(found, Some(Addr::from_bits(*bits)));
        }
        assert_eq!(directory.find(&endpoint, "one more", KIND).await, Ok(None));
        assert_eq!(directory.list(&endpoint).await.unwrap().len(), capacity as usize);
    });
}

#[test]
fn losers_give_their_records_back() {
    // Ten names, each entered by eight at once: without giving back, eighty records would go.
    let scene = Scene::new(1, 16 << 10);
    let names: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let tasks: Vec<_> = (0..8).map(|_| scene.enter(&names)).collect();
    assert_eq!(scene.world.run(), Ended::Finished);
    drop(tasks);
    let handed_out = Rc::new(Cell::new(0));
    let theirs = Rc::clone(&handed_out);
    scene.run(async move |endpoint, directory| {
        endpoint.read64(directory.layout.next()).await.unwrap();
        theirs.set(endpoint.old());
    });
    assert!((10..=18).contains(&handed_out.get()), "{}", handed_out.get());
}

#[test]
fn names_are_compared_whole() {
    let scene = Scene::new(0, 64 << 10);
    let entered = scene.run(async |endpoint, directory| {
        let long = "x".repeat(255);
        let names = ["a", "A", "a ", "a/b", "ä", "日本", " ", &long, &long[1..], "a\nb"];
        let mut locks = BTreeMap::new();
        for name in names {
            locks.insert(directory.enter(&endpoint, name, KIND).await.unwrap().bits(), name.len());
        }
        locks.len()
    });
    assert_eq!(entered, 10);
}

#[test]
fn what_is_no_name_is_refused() {
    let scene = Scene::new(0, 8 << 10);
    scene.run(async |endpoint, directory| {
        for bad in ["", "a\0", &"x".repeat(256)] {
            let refused = directory.enter(&endpoint, bad, KIND).await;
            assert!(matches!(refused, Err(DirectoryError::Name { .. })), "{bad:?}");
        }
        assert!(directory.list(&endpoint).await.unwrap().is_empty());
    });
}

#[test]
fn a_name_keeps_its_kind() {
    let scene = Scene::new(0, 8 << 10);
    scene.run(async |endpoint, directory| {
        directory.enter(&endpoint, "a", KIND).await.unwrap();
        let other = directory.enter(&endpoint, "a", "counter").await.unwrap_err();
        let (name, found) = ("a".to_owned(), KIND.to_owned());
        assert_eq!(other, DirectoryError::Kind { name, found, wanted: "counter".to_owned() });
    });
}

#[test]
fn damage_is_an_error_never_a_panic() {
    let damages = [0, 1, u64::MAX, 1 << 63, 0x6664_6972 << 32];
    for word in 0..512 {
        for damage in damages {
            let scene = Scene::new(0, 4 << 10);
            let (_, task) = scene.enter(&["a", "b"]);
            assert_eq!(scene.world.run(), Ended::Finished);
            assert!(task.take().unwrap().iter().all(Result::is_ok));
            scene.world.poke(scene.heap.0.plus(word * 8), damage);
            let (_, task) = scene.enter(&["a", "c", "b"]);
            assert_eq!(scene.world.run(), Ended::Finished, "{damage:#x} at {word}");
            assert!(task.take().is_some());
        }
    }
}
