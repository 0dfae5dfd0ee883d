//! Clients that ask for blocks at the same time: each subtree has one, and each block one subtree.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use farlock_fabric::{Addr, ConnectError, Endpoint, Nanos};
use farlock_locks::blocks::{Blocks, LOG_BYTES, bytes};
use farlock_sim::{Config, Ended, Handle, Ratio, SimEndpoint, Task, Weakness, World};

const CLIENTS: u16 = 6;
const BLOCK_BYTES: u64 = 4096;
/// Two tables, and so many subtrees of each.
const TABLES: [u64; 2] = [64, 128];
const SUBTREES: u32 = 5;
/// How long the memory's owner may take.
const LENGTHEN_NS_MAX: Nanos = 20_000;

type Found = Vec<((u64, u32), u16)>;

/// The memory, which others lengthen too.
#[derive(Clone)]
struct Memory {
    world: Handle,
    /// How long it is.
    bytes: Rc<Cell<u64>>,
}

impl Memory {
    /// Makes it reach to this address, some time later.
    async fn lengthen(&self, endpoint: &SimEndpoint, end: Addr) -> Result<(), ConnectError> {
        endpoint.sleep(endpoint.random() % LENGTHEN_NS_MAX).await;
        let missing = end.offset().saturating_sub(self.bytes.get());
        self.world.grow(end.region(), missing);
        self.bytes.set(self.bytes.get() + missing);
        Ok(())
    }
}

/// Asks for every subtree of every table, in an order of its own, and writes to the end of each.
async fn ask(endpoint: SimEndpoint, memory: Memory, blocks: Blocks) -> Found {
    let mut asked: Vec<(u64, u32)> =
        TABLES.iter().flat_map(|&table| (1..=SUBTREES).map(move |tree| (table, tree))).collect();
    let mut found = Found::new();
    while !asked.is_empty() {
        let (table, subtree) = asked.swap_remove(endpoint.random() as usize % asked.len());
        let lock = Addr::new(blocks.base().region(), table);
        let longer = async |end| memory.lengthen(&endpoint, end).await;
        let number = blocks.of(&endpoint, longer, (lock, subtree)).await.expect("there is room");
        let last = blocks.base().plus((u64::from(number) + 1) * BLOCK_BYTES - 8);
        endpoint.faa64(last, 1).await.expect("a block has all its memory");
        found.push(((table, subtree), number));
    }
    found
}

/// Plays this seed, in which so many clients may die; what the others found.
fn play(seed: u64, deaths: u32) -> Vec<Found> {
    let config = Config { seed, endpoints: CLIENTS, weakness: Weakness::FULL, ..Config::default() };
    let world = World::new(config);
    let log = world.growing_region(world.node(), LOG_BYTES, LOG_BYTES + bytes(BLOCK_BYTES));
    let memory = Memory { world: world.handle(), bytes: Rc::new(Cell::new(LOG_BYTES)) };
    if deaths > 0 {
        world.crash_anywhere(deaths, Ratio::one_in(40));
    }
    let clients: Vec<Task<Found>> = (0..CLIENTS)
        .map(|_| {
            let endpoint = world.endpoint();
            world.spawn(endpoint.id(), ask(endpoint, memory.clone(), Blocks::at(log, BLOCK_BYTES)))
        })
        .collect();
    assert_eq!(world.run(), Ended::Finished, "seed {seed}");
    clients.iter().filter_map(Task::take).collect()
}

/// How many have died.
fn each_subtree_has_one(seed: u64, deaths: u32) -> usize {
    let (mut owners, mut numbers) = (BTreeMap::new(), BTreeMap::new());
    let all = play(seed, deaths);
    let died = usize::from(CLIENTS) - all.len();
    assert!(died <= deaths as usize, "seed {seed}");
    for (subtree, number) in all.into_iter().flatten() {
        assert_eq!(*numbers.entry(subtree).or_insert(number), number, "seed {seed}");
        assert_eq!(*owners.entry(number).or_insert(subtree), subtree, "seed {seed}");
    }
    // None is left out: memory that the dead have asked for is the next one's.
    let subtrees = TABLES.len() as u16 * SUBTREES as u16;
    assert!(owners.keys().copied().eq(0..subtrees), "seed {seed}: {owners:?}");
    died
}

#[test]
fn clients_agree_on_a_block_for_each_subtree() {
    (0..300).for_each(|seed| assert_eq!(each_subtree_has_one(seed, 0), 0));
}

/// A client that dies on the way leaves memory that the next one takes, or a block like any other.
#[test]
fn clients_agree_where_others_die() {
    let died: usize = (0..300).map(|seed| each_subtree_has_one(seed, 3)).sum();
    assert!(died > 300, "{died} deaths");
}
