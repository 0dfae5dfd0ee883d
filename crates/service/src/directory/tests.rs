//! The directory in the simulator: at every interleaving and every crash, one name, one lock.

use std::collections::BTreeMap;

use farlock_fabric::{Addr, Endpoint, Slot};
use farlock_locks::slot;
use farlock_sim::{Config, Ended, Mode, Outcome, SimEndpoint, Task, Weakness, World};

use super::layout::NAME_BYTES_MAX;
use super::*;

mod crowd;

/// A lock whose word's upper half counts, and its first token is the count it begins with.
const KIND: Kind = Kind {
    name: "counter",
    count: |word| (word >> 64) as u64,
    fresh: |count| u128::from(count) << 64,
    bytes: 16,
    shelf: None,
};

/// Aims the only slot of an endpoint.
fn aim(endpoint: &SimEndpoint) -> impl Fn(Addr) {
    move |lock| endpoint.publish(Slot(0), slot::LOCK, lock.bits())
}

/// The lock of a name, if the directory remembers it.
async fn find(directory: &Directory, endpoint: &SimEndpoint, name: &str) -> Option<Addr> {
    let entries = directory.list(endpoint).await.unwrap();
    entries.into_iter().find(|entry| entry.name == name).map(|entry| entry.lock)
}

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

    /// A client that enters these names, one after the other.
    fn enter(&self, names: &[&str]) -> (SimEndpoint, Task<Vec<Result<Addr, DirectoryError>>>) {
        let endpoint = self.world.endpoint();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let (theirs, heap) = (endpoint.clone(), self.heap);
        let task = self.world.spawn(endpoint.id(), async move {
            let directory = match Directory::open(&theirs, heap, KIND).await {
                Ok(directory) => directory,
                Err(error) => return vec![Err(error)],
            };
            let mut locks = Vec::new();
            for name in &names {
                let found = directory.enter(&theirs, name, KIND, aim(&theirs)).await;
                locks.push(found.map(Located::lock));
            }
            locks
        });
        (endpoint, task)
    }

    /// Runs a future of a new endpoint to its end.
    fn run<T: 'static>(&self, f: impl AsyncFnOnce(SimEndpoint, Directory) -> T + 'static) -> T {
        let (endpoint, heap) = (self.world.endpoint(), self.heap);
        let task = self.world.spawn(endpoint.id(), async move {
            let directory = Directory::open(&endpoint, heap, KIND).await.unwrap();
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
fn a_death_at_any_verb_leaves_one_lock_a_name() {
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
fn a_directory_is_full_of_names_in_use_and_says_so() {
    let scene = Scene::new(0, 8 << 10);
    let mut endpoints: Vec<_> = (0..40).map(|_| scene.world.endpoint()).collect();
    let one_more = endpoints.pop().unwrap();
    scene.run(async move |_, directory| {
        let capacity = directory.capacity();
        endpoints.truncate(capacity as usize);
        assert_eq!(endpoints.len(), capacity as usize);
        let mut locks = BTreeMap::new();
        for (number, endpoint) in endpoints.iter().enumerate() {
            let name = format!("name {number}");
            let found = directory.enter(endpoint, &name, KIND, aim(endpoint)).await.unwrap();
            assert_eq!(found.lock().offset() % 64, 0);
            locks.insert(found.lock().bits(), name);
        }
        assert_eq!(locks.len(), capacity as usize, "two names share a lock");
        for _ in 0..3 {
            let full = directory.enter(&one_more, "more", KIND, aim(&one_more)).await.unwrap_err();
            assert_eq!(full, DirectoryError::Full { names: capacity });
        }
        for (bits, name) in &locks {
            let found = find(&directory, &one_more, name).await;
            assert_eq!(found, Some(Addr::from_bits(*bits)));
        }
        assert_eq!(find(&directory, &one_more, "more").await, None);
        assert_eq!(directory.list(&one_more).await.unwrap().len(), capacity as usize);
        // One of them turns to another lock: its name gives way.
        aim(&endpoints[3])(Addr::from_bits(0));
        directory.enter(&one_more, "more", KIND, aim(&one_more)).await.unwrap();
        assert_eq!(find(&directory, &one_more, "name 3").await, None);
        assert_eq!(directory.list(&one_more).await.unwrap().len(), capacity as usize);
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
    let mut found = BTreeMap::new();
    let layout = scene.run(async |_, directory| directory.layout);
    for record in 1..=u64::from(layout.records) {
        let link = Link(scene.world.peek(layout.link(record)));
        *found.entry(link.state()).or_insert(0_u64) += 1;
    }
    assert_eq!(found.remove(&(State::Staged as u64)), None, "{found:?}");
    assert!(found.values().sum::<u64>() == u64::from(layout.records), "{found:?}");
}

#[test]
fn names_are_compared_whole() {
    let scene = Scene::new(0, 64 << 10);
    let entered = scene.run(async |endpoint, directory| {
        let long = "x".repeat(255);
        let names = ["a", "A", "a ", "a/b", "ä", "日本", " ", &long, &long[1..], "a\nb"];
        let mut locks = BTreeMap::new();
        for name in names {
            let found = directory.enter(&endpoint, name, KIND, aim(&endpoint)).await.unwrap();
            locks.insert(found.lock().bits(), name.len());
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
            let refused = directory.enter(&endpoint, bad, KIND, aim(&endpoint)).await;
            assert!(matches!(refused, Err(DirectoryError::Name { .. })), "{bad:?}");
        }
        assert!(directory.list(&endpoint).await.unwrap().is_empty());
    });
}

#[test]
fn a_name_keeps_its_kind() {
    let scene = Scene::new(0, 8 << 10);
    scene.run(async |endpoint, directory| {
        directory.enter(&endpoint, "a", KIND, aim(&endpoint)).await.unwrap();
        let other = Kind { name: "claim", ..KIND };
        let refused = directory.enter(&endpoint, "a", other, aim(&endpoint)).await.unwrap_err();
        let (name, found) = ("a".to_owned(), KIND.name.to_owned());
        assert_eq!(refused, DirectoryError::Kind { name, found, wanted: "claim".to_owned() });
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
