//! Clients that ask for blocks at the same time: each subtree has one, and each block one subtree.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use farlock_fabric::{Addr, ConnectError, Endpoint, Nanos};
use farlock_locks::blocks::{self, Blocks, LOG_BYTES, bytes};
use farlock_sim::{Config, Ended, Handle, Outcome, Ratio, SimEndpoint, Task, Weakness, World};

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
    /// How often it was lengthened.
    lengthened: Rc<Cell<u32>>,
    /// The blocks that have none.
    holes: Rc<RefCell<BTreeSet<u64>>>,
}

impl Memory {
    fn new(world: &World) -> Self {
        let bytes = Rc::new(Cell::new(LOG_BYTES));
        let (lengthened, holes) = (Rc::default(), Rc::default());
        Self { world: world.handle(), bytes, lengthened, holes }
    }

    /// The number of the block that begins at an address.
    fn number(&self, blocks: Blocks, addr: Addr) -> u64 {
        let behind = addr.offset() - blocks.base().offset();
        assert!(behind.is_multiple_of(BLOCK_BYTES), "a block begins at {behind}");
        behind / BLOCK_BYTES
    }

    /// Discards these bytes. They are zero, as far as anybody can tell.
    fn discard(&self, blocks: Blocks, addr: Addr, bytes: u64) -> u64 {
        let first = self.number(blocks, addr);
        self.holes.borrow_mut().extend(first..first + bytes / BLOCK_BYTES);
        bytes
    }
}

/// The memory as a client has it changed.
struct Owner<'m> {
    memory: &'m Memory,
    blocks: Blocks,
    endpoint: &'m SimEndpoint,
}

impl blocks::Memory for Owner<'_> {
    async fn lengthen(&self, end: Addr) -> Result<(), ConnectError> {
        self.endpoint.sleep(self.endpoint.random() % LENGTHEN_NS_MAX).await;
        let bytes = &self.memory.bytes;
        let missing = end.offset().saturating_sub(bytes.get());
        if missing > 0 {
            self.memory.world.grow(end.region(), missing);
            bytes.set(bytes.get() + missing);
            self.memory.lengthened.set(self.memory.lengthened.get() + 1);
        }
        Ok(())
    }

    async fn reserve(&self, addr: Addr, bytes: u64) -> Result<(), ConnectError> {
        assert_eq!(bytes, BLOCK_BYTES);
        self.endpoint.sleep(self.endpoint.random() % LENGTHEN_NS_MAX).await;
        self.memory.holes.borrow_mut().remove(&self.memory.number(self.blocks, addr));
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
        let owner = Owner { memory: &memory, blocks, endpoint: &endpoint };
        let number = blocks.of(&endpoint, &owner, (lock, subtree)).await.expect("there is room");
        assert!(!memory.holes.borrow().contains(&number.into()), "block {number} has no memory");
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
    let (memory, blocks) = (Memory::new(&world), Blocks::at(log, BLOCK_BYTES));
    if deaths > 0 {
        world.crash_anywhere(deaths, Ratio::one_in(40));
    }
    all_ask(&world, &memory, blocks)
}

/// Many clients ask for all subtrees; what those found that live.
fn all_ask(world: &World, memory: &Memory, blocks: Blocks) -> Vec<Found> {
    let clients: Vec<Task<Found>> = (0..CLIENTS)
        .map(|_| {
            let endpoint = world.endpoint();
            world.spawn(endpoint.id(), ask(endpoint, memory.clone(), blocks))
        })
        .collect();
    assert_eq!(world.run(), Ended::Finished);
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

/// As in a world in which nobody is in anybody's way: each block alone would be one lengthening.
#[test]
fn clients_that_come_together_have_memory_for_several_blocks_at_once() {
    const MANY: u32 = 32;
    let config = Config { seed: 1, endpoints: MANY as u16, ..Config::default() };
    let world = World::new(config);
    let log = world.growing_region(world.node(), LOG_BYTES, LOG_BYTES + bytes(BLOCK_BYTES));
    let (memory, blocks) = (Memory::new(&world), Blocks::at(log, BLOCK_BYTES));
    for subtree in 1..=MANY {
        let (endpoint, memory) = (world.endpoint(), memory.clone());
        let id = endpoint.id();
        world.spawn(id, async move {
            let owner = Owner { memory: &memory, blocks, endpoint: &endpoint };
            let lock = Addr::new(blocks.base().region(), TABLES[0]);
            blocks.of(&endpoint, &owner, (lock, subtree)).await.expect("there is room");
        });
    }
    assert_eq!(world.run(), Ended::Finished);
    assert!(memory.lengthened.get() <= 8, "{} times", memory.lengthened.get());
    let least = LOG_BYTES + u64::from(MANY) * BLOCK_BYTES;
    assert!((least..least + 16 * BLOCK_BYTES).contains(&memory.bytes.get()));
}

/// Dies at each of its verbs in turn, however that ends; and then the tables have users again.
#[test]
fn a_block_has_memory_before_it_is_used_wherever_a_discarder_died() {
    let mut crashes = 0;
    for outcome in [Outcome::Never, Outcome::Executed, Outcome::Late] {
        for verb in 0.. {
            let weakness = Weakness::FULL;
            let world =
                World::new(Config { seed: verb, endpoints: 20, weakness, ..Config::default() });
            let log = world.growing_region(world.node(), LOG_BYTES, LOG_BYTES + bytes(BLOCK_BYTES));
            let (memory, blocks) = (Memory::new(&world), Blocks::at(log, BLOCK_BYTES));
            let before = all_ask(&world, &memory, blocks);
            let endpoint = world.endpoint();
            world.crash_at(endpoint.id(), verb, outcome);
            let (table, theirs) = (Addr::new(log.region(), TABLES[1]), memory.clone());
            let task = world.spawn(endpoint.id(), async move {
                let discard = async |addr, bytes| Ok(theirs.discard(blocks, addr, bytes));
                blocks.discard(&endpoint, discard, table).await.expect("nothing fails")
            });
            assert_eq!(world.run(), Ended::Finished);
            let gone = task.take();
            assert!(gone.is_none_or(|gone| gone == u64::from(SUBTREES) * BLOCK_BYTES));
            assert_eq!(gone.is_some(), !memory.holes.borrow().is_empty(), "{outcome:?} at {verb}");
            let after = all_ask(&world, &memory, blocks);
            assert!(memory.holes.borrow().is_empty());
            let of = |found: &Found| found.iter().copied().collect::<BTreeSet<_>>();
            assert_eq!(of(&after[0]), of(&before[0]), "a block is a table's for good");
            if gone.is_some() {
                break;
            }
            crashes += 1;
        }
    }
    assert!(crashes > 20, "{crashes}");
}
