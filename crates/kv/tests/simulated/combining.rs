//! Specification: writers of a hot key are combined, which saves verbs; a client that meets no
//! other neither waits in line nor pays for it.

use std::cell::Cell;
use std::rc::Rc;

use crate::scene::any::AnyScheme;
use crate::scene::name;
use farlock_fabric::{Addr, Endpoint};
use farlock_kv::index::PointerArray;
use farlock_kv::sync::{
    Backoff, Cider, CiderCounts, CiderRules, CreditRules, LocalCombining, Locked, Optimistic,
};
use farlock_kv::{Counts, Index, Scheme, Shape, Store};
use farlock_locks::local::together;
use farlock_locks::record::mcs::Mcs;
use farlock_locks::{Client, Options};
use farlock_sim::{Config, Ended, SimEndpoint, World};

type Kept = Store<AnyScheme, PointerArray>;

const INDEX: PointerArray = PointerArray::new(16);

/// How often each client writes.
const WRITES: u64 = 60;

fn mcs(endpoint: SimEndpoint) -> Client<SimEndpoint, Mcs> {
    Client::new(endpoint, Mcs::default(), Options::new(1))
}

fn cider(endpoint: SimEndpoint, table: Addr, rules: CiderRules) -> Cider<SimEndpoint> {
    Cider::new(mcs(endpoint), table, 8, rules)
}

/// What a run has come to, of all clients together.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    writes: u64,
    verbs: u64,
    ns: u64,
    combined: u64,
    retries: u64,
}

impl Sum {
    fn verbs_per_write(&self) -> f64 {
        self.verbs as f64 / self.writes as f64
    }
}

/// Clients of so many tasks each write one key, as fast as they can, by this scheme.
fn writes<S: Into<AnyScheme>>(
    (clients, tasks): (u16, u64),
    scheme: impl Fn(SimEndpoint, Addr) -> S,
) -> (Sum, Vec<Rc<Kept>>) {
    let world = World::new(Config { seed: 7, slots_per_endpoint: 8, ..Config::default() });
    let (index_bytes, index_tag) = (INDEX.bytes(), INDEX.tag());
    let base = Addr::from_bits(0);
    let mut shape = Shape { base, chunks: 40, chunk_bytes: 1024, index_bytes, index_tag };
    shape.base = world.region(world.node(), shape.bytes());
    let locks = world.region(farlock_sim::NodeId(0), 8 * 64);
    world.block_on(shape.create(&world.endpoint())).expect("verbs do not fail here");
    let mut stores = Vec::new();
    for _ in 0..clients {
        let store = Kept::open(scheme(world.endpoint(), locks).into(), INDEX, shape);
        stores.push(Rc::new(world.block_on(store).expect("it is there")));
    }
    world.block_on(stores[0].upsert(&name(3), &[0; 32])).expect("there is room");
    let id = |store: &Rc<Kept>| store.scheme().endpoint().id();
    let verbs = || stores.iter().map(|store| world.posted(id(store))).sum::<u64>();
    let (before, begun) = (verbs(), world.now());
    let ended = Rc::new(Cell::new(0));
    for store in &stores {
        let left = Rc::new(Cell::new(tasks));
        let write = |task: u64| {
            let (store, left, ended) = (Rc::clone(store), Rc::clone(&left), Rc::clone(&ended));
            async move {
                for write in 0..WRITES {
                    let value = [(task * WRITES + write) as u8; 32];
                    store.update(&name(3), &value).await.expect("there is room");
                }
                left.set(left.get() - 1);
                ended.set(store.scheme().endpoint().now().max(ended.get()));
            }
        };
        let writers: Vec<_> = (0..tasks).map(write).collect();
        world.spawn(id(store), together(writers));
        let store = Rc::clone(store);
        world.spawn(id(&store), async move {
            while left.get() > 0 {
                store.scheme().endpoint().sleep(1_000).await;
                store.scheme().settle().await;
            }
        });
    }
    assert_eq!(world.run(), Ended::Finished);
    let mut sum = Sum {
        writes: u64::from(clients) * tasks * WRITES,
        verbs: verbs() - before,
        ns: ended.get() - begun,
        ..Sum::default()
    };
    for Counts { combined, retries, .. } in stores.iter().map(|store| store.counts()) {
        sum.combined += combined;
        sum.retries += retries;
    }
    (sum, stores)
}

fn says(what: &str, sum: &Sum) {
    println!("{what}: {:.2} verbs a write, {sum:?}", sum.verbs_per_write());
}

#[test]
fn writers_of_a_hot_key_are_combined() {
    let clients = (12, 1);
    let optimistic = writes(clients, |endpoint, _| Optimistic::new(endpoint, Backoff::NONE)).0;
    says("optimistic", &optimistic);
    let locked = writes(clients, |endpoint, locks| {
        Locked::new(mcs(endpoint), locks, 8, CiderRules::DEFAULT.patience_ns)
    });
    says("mcs", &locked.0);
    let (sum, stores) =
        writes(clients, |endpoint, locks| cider(endpoint, locks, CiderRules::DEFAULT));
    says("cider", &sum);
    let counts: Vec<CiderCounts> =
        stores.iter().map(|store| store.scheme().cider().counts()).collect();
    let of = |count: fn(&CiderCounts) -> u64| counts.iter().map(count).sum::<u64>();
    let (combined, batches) = (of(|counts| counts.combined), of(|counts| counts.batches));
    println!("batches of {:.1}: {counts:?}", 1.0 + combined as f64 / batches as f64);
    assert!(sum.combined == combined && combined > sum.writes / 4, "{combined} are combined");
    assert!(batches > 0 && combined >= batches, "each batch combines at least one");
    assert!(of(|counts| counts.pessimistic) > sum.writes / 2, "the key is found hot");
    assert!(sum.retries < optimistic.retries, "fewer miss");
    assert!(sum.verbs_per_write() < optimistic.verbs_per_write());
    assert!(sum.verbs_per_write() < locked.0.verbs_per_write());
}

#[test]
fn a_client_that_meets_no_other_pays_nothing() {
    let optimistic = writes((1, 1), |endpoint, _| Optimistic::new(endpoint, Backoff::NONE)).0;
    let (sum, stores) =
        writes((1, 1), |endpoint, locks| cider(endpoint, locks, CiderRules::DEFAULT));
    says("alone", &sum);
    assert_eq!((sum.verbs, sum.ns), (optimistic.verbs, optimistic.ns));
    let counts = stores[0].scheme().cider().counts();
    assert_eq!((counts.pessimistic, counts.optimistic), (0, WRITES + 1));
}

/// A client that stands in line for a key that it has for itself stops doing so.
#[test]
fn a_key_that_is_not_hot_any_more_is_not_queued_for() {
    let rules = CreditRules { initial: 1_000, threshold: 0, ..CreditRules::DEFAULT };
    let rules = CiderRules { credits: Some(rules), ..CiderRules::DEFAULT };
    let (_, stores) = writes((1, 1), |endpoint, locks| cider(endpoint, locks, rules));
    let counts = stores[0].scheme().cider().counts();
    // Each optimistic write gives credits, which are halved by each pessimistic one.
    assert!(counts.pessimistic > 20 && counts.optimistic > 3, "{counts:?}");
    assert_eq!((counts.combined, counts.refusals, counts.impatient), (0, 0, 0));
}

#[test]
fn tasks_of_one_client_are_combined_before_anything_goes_to_memory() {
    let optimistic = |endpoint| Optimistic::new(endpoint, Backoff::NONE);
    let apart = writes((1, 8), |endpoint, _| optimistic(endpoint)).0;
    let (sum, stores) =
        writes((1, 8), |endpoint, _| LocalCombining::new(optimistic(endpoint), 1_000_000));
    says("apart", &apart);
    says("together", &sum);
    assert_eq!(stores[0].scheme().local().combined(), sum.combined);
    let batches = stores[0].scheme().local().batches();
    assert!((1..=sum.combined).contains(&batches) && batches + sum.combined <= sum.writes);
    assert!(sum.combined > sum.writes / 2, "{} of {}", sum.combined, sum.writes);
    assert!(sum.retries == 0 && sum.verbs * 4 < apart.verbs);
}

/// Only the choice between a line and none is left: clients take turns, and a hot key stays hot.
#[test]
fn what_does_not_combine_takes_turns() {
    let rules = CiderRules { combines: false, ..CiderRules::DEFAULT };
    let (sum, stores) = writes((12, 1), |endpoint, locks| cider(endpoint, locks, rules));
    says("cider that combines nothing", &sum);
    let counts: Vec<CiderCounts> =
        stores.iter().map(|store| store.scheme().cider().counts()).collect();
    let of = |count: fn(&CiderCounts) -> u64| counts.iter().map(count).sum::<u64>();
    assert_eq!((sum.combined, of(|counts| counts.batches)), (0, 0));
    assert!(of(|counts| counts.pessimistic) > sum.writes / 2, "the key stays hot");
    assert!(of(|counts| counts.accompanied) > sum.writes / 2, "others stand behind each");
    // Each client finds it hot by two operations that missed.
    assert!(of(|counts| counts.overlooked) >= 12, "{counts:?}");
}

/// A holder that has read the key before it got the lock finds it changed by the holder before.
#[test]
fn a_holder_that_has_read_before_misses_once() {
    let patience_ns = CiderRules::DEFAULT.patience_ns;
    let locked = |endpoint: SimEndpoint, locks| Locked::new(mcs(endpoint), locks, 8, patience_ns);
    let after = writes((8, 1), locked).0;
    let before = writes((8, 1), |endpoint, locks| locked(endpoint, locks).reading_before()).0;
    says("read after the lock", &after);
    says("read before the lock", &before);
    assert_eq!(after.retries, 0);
    let nearly_all = before.writes * 9 / 10..=before.writes;
    assert!(nearly_all.contains(&before.retries), "{} of {}", before.retries, before.writes);
}
