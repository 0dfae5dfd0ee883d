//! The machines of a testbed with a store on each memory node, and its compute nodes.
//!
//! A key lies on the node that its hash says. Pairs are put there by no verb, when they are first
//! asked for: of 60 million few are, and the memory of the others is never touched.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Context, ensure};
use farlock_fabric::{Addr, Endpoint};
use farlock_kv::{Filling, Index, Memory, Pair, Shape, Store};
use farlock_sim::{Config, Handle, SimEndpoint, Weakness, World};

use super::ledger::INITIAL;
use super::turns::{PATIENCE_NS, Plan, TABLE_BYTES, Turns};
use crate::testbed::Testbed;

/// Bytes of a chunk: some thousand blocks of small pairs.
const CHUNK_BYTES: u64 = 1 << 16;
/// Chunks of each node for each compute node: it claims one for each class, and rarely a second.
const CHUNKS_EACH: u64 = 4;
/// Bytes that a pair takes beside its value, rounding and the count of its frees included.
const PAIR_BYTES: u64 = 48;
/// Bytes that a pair takes more in a tree: a line of a node beside few others, and the nodes that
/// were replaced.
const TREE_BYTES: u64 = 160;
/// Slots of an endpoint for each client: an operation in line, and duties that earlier ones have
/// left.
const SLOTS_EACH: u16 = 4;
/// The most slots of an endpoint.
const SLOTS_MAX: u16 = 64;

/// How large.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Compute nodes.
    pub(super) nodes: u16,
    /// Clients of each, rounded up.
    pub(super) clients_each: u16,
    /// Pairs that there are at the beginning.
    pub(super) records: u64,
    /// How many of them may be asked for.
    pub(super) asked_max: u64,
    /// Bytes of a value.
    pub(super) value_bytes: u64,
}

/// What clients of one compute node do together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local {
    /// They combine what they write.
    pub(super) combines: bool,
    /// One reads for others that read the same at once.
    pub(super) delegates: bool,
}

/// The memory nodes, and the world that they are in.
pub(super) struct Cluster<I> {
    pub(super) world: World,
    pub(super) pairs: Rc<RefCell<Pairs<I>>>,
    index: I,
    /// Of each memory node: its store, and its locks.
    sites: Vec<(Shape, Addr)>,
    /// Places of a machine in the world's table.
    each: u16,
}

/// A compute node's stores, one on each memory node.
pub(super) type Stores<I> = Vec<Rc<Store<Turns, I>>>;

/// Where pairs lie, and which are there.
pub(super) struct Pairs<I> {
    nodes: u64,
    records: u64,
    value: Vec<u8>,
    words: Words,
    fillings: Vec<Filling<I>>,
    /// A bit for each.
    there: Vec<u64>,
    /// Where each stands in the order of keys, sorted, if clients scan.
    ranks: Vec<u64>,
}

struct Words(Handle);

impl Memory for Words {
    fn peek(&self, addr: Addr) -> u64 {
        self.0.peek(addr)
    }

    fn poke(&mut self, addr: Addr, word: u64) {
        self.0.poke(addr, word);
    }
}

/// The bytes of a key.
pub(super) fn name(key: u64) -> [u8; 8] {
    key.to_le_bytes()
}

/// Where a key stands in the order of all: its lowest byte is the first.
fn rank(key: u64) -> u64 {
    key.swap_bytes()
}

/// The key with these bytes.
fn number(name: &[u8]) -> Option<u64> {
    name.try_into().ok().map(u64::from_le_bytes)
}

impl<I: Index> Pairs<I> {
    /// On which memory node a key lies.
    pub(super) fn node(&self, key: u64) -> usize {
        // Unlike the hashes by which an index places it.
        let mixed = key.wrapping_add(1).wrapping_mul(0xd6e8_feb8_6659_fd93);
        ((mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as usize
            % self.nodes as usize
    }

    /// All records are asked for.
    pub(super) fn ask_all(&mut self) -> anyhow::Result<()> {
        self.ranks = (0..self.records).map(rank).collect();
        self.ranks.sort_unstable();
        (0..self.records).try_for_each(|key| self.ask(key))
    }

    /// How many records there are at the beginning.
    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// Whether these pairs may be the first so many from a key on: all records up to the last of
    /// them are among them, in order.
    pub(super) fn are_first(&self, from: u64, most: usize, pairs: &[Pair]) -> bool {
        let numbers: Vec<u64> = pairs.iter().filter_map(|(key, _)| number(key)).collect();
        let is_in_order = numbers.is_sorted_by(|one, other| rank(*one) < rank(*other));
        let is_known = numbers.len() == pairs.len() && pairs.len() <= most;
        let known = numbers.iter().filter(|key| **key < self.records).count();
        let before = |end: u64| self.ranks.partition_point(|rank| *rank < end);
        let end = match numbers.last() {
            Some(last) if pairs.len() == most => before(rank(*last).saturating_add(1)),
            _ => self.ranks.len(),
        };
        is_in_order && is_known && known == end - before(rank(from))
    }

    /// A record is asked for: from now on it is there.
    pub(super) fn ask(&mut self, key: u64) -> anyhow::Result<()> {
        let (word, bit) = ((key / 64) as usize, 1 << (key % 64));
        if key >= self.records || self.there[word] & bit != 0 {
            return Ok(());
        }
        self.there[word] |= bit;
        let node = self.node(key);
        let put = self.fillings[node].put(&mut self.words, &name(key), &self.value);
        put.with_context(|| format!("record {key} cannot be put on node {node}"))
    }
}

impl<I: Index + Copy> Cluster<I> {
    /// On the machines of this testbed, with this index on each memory node.
    pub(super) fn new(testbed: &Testbed, seed: u64, index: I, size: &Size) -> anyhow::Result<Self> {
        let machines = testbed.machines()?.context("the testbed says nothing of clients")?;
        let nodes = testbed.nodes().context("the testbed says nothing of memory nodes")?;
        let each = machines.endpoints_each;
        let slots = (size.clients_each * SLOTS_EACH).min(SLOTS_MAX);
        ensure!(size.nodes <= each * nodes, "there are only {} compute nodes", each * nodes);
        let world = World::new(Config {
            seed,
            // One more on none of these machines, which fills the stores.
            endpoints: each * nodes + 1,
            slots_per_endpoint: slots as u8,
            nic: testbed.nic()?,
            machines: Some(machines),
            // As for every figure.
            weakness: Weakness::NONE,
            ..Config::default()
        });
        let filler = world.endpoint_at(each * nodes + 1);
        let shape = shape(&index, size, nodes.into())?;
        let mut sites = Vec::new();
        for _ in 0..nodes {
            let node = world.node();
            let shape = Shape { base: world.region(node, shape.bytes()), ..shape };
            world.block_on(shape.create(&filler)).context("no store can be created")?;
            sites.push((shape, world.region(node, TABLE_BYTES)));
        }
        let filling = |&(shape, _): &(Shape, Addr)| Filling::new(index, shape, filler.id());
        let pairs = Pairs {
            nodes: nodes.into(),
            records: size.records,
            value: value(INITIAL, size.value_bytes),
            words: Words(world.handle()),
            fillings: sites.iter().map(filling).collect(),
            there: vec![0; size.records.div_ceil(64) as usize],
            ranks: Vec::new(),
        };
        Ok(Self { world, pairs: Rc::new(RefCell::new(pairs)), index, sites, each })
    }

    /// Another compute node, on the machine after the one of the last.
    pub(super) fn node(&self, number: u16, plan: Plan, local: Local) -> anyhow::Result<Stores<I>> {
        let machines = self.sites.len() as u16;
        let place = number % machines * self.each + number / machines + 1;
        let endpoint: SimEndpoint = self.world.endpoint_at(place);
        let party = plan.party(endpoint);
        let open = |&(shape, table): &(Shape, Addr)| {
            let store = Store::open(party.turns(table, local.combines), self.index, shape);
            let store = self.world.block_on(store).context("a store cannot be opened")?;
            let store = if plan == Plan::Absorbing { store.absorbing() } else { store };
            Ok(Rc::new(if local.delegates { store.delegating(PATIENCE_NS) } else { store }))
        };
        self.sites.iter().map(open).collect()
    }
}

/// Of a store with room for what is asked for and what is written.
fn shape<I: Index>(index: &I, size: &Size, nodes: u64) -> anyhow::Result<Shape> {
    let (index_bytes, index_tag) = (index.bytes(), index.tag());
    let nodes_bytes = if I::TREE { TREE_BYTES } else { 0 };
    let pair_bytes = PAIR_BYTES + nodes_bytes + size.value_bytes;
    let pairs = size.records.min(size.asked_max) * pair_bytes;
    // Twice what all nodes alike would have.
    let chunks = 2 * pairs.div_ceil(nodes * CHUNK_BYTES) + CHUNKS_EACH * u64::from(size.nodes) + 2;
    let chunks = u32::try_from(chunks).context("too many records")?;
    let base = Addr::from_bits(0);
    Ok(Shape { base, chunks, chunk_bytes: CHUNK_BYTES, index_bytes, index_tag })
}

/// A value of so many bytes, at least 8, that says this number.
pub(super) fn value(number: u64, bytes: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(bytes.max(8) as usize, 0);
    value
}
