//! A scene: a few clients of one store, what befalls them, and who judges them afterwards.
//!
//! Each test file uses a part of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod any;
pub mod judge;
pub mod kits;
pub mod narrow;
pub mod second;
pub mod small;
pub mod tree;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use farlock_fabric::{Addr, Endpoint, EndpointId};
use farlock_kv::{ChunkWord, Class, Index, ReadError, Scheme, Shape, SlotWord, Store, WriteError};
use farlock_locks::local::together;
use farlock_sim::{
    Choice, Config, Ended, Handle, Mode, Oracle, Ratio, SimEndpoint, Weakness, World,
};
use judge::{Answer, Ask, Judge};
pub use kits::*;
use kits::{LOCKS, PATIENCE_NS};
use tree::{HEADER_BYTES, UNIT_BYTES};

/// What clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Everything but numbers.
    Values,
    /// Only to one key, and mostly changes.
    Hot,
    /// Increments, and all else that numbers take.
    Numbers,
    /// Insertions and deletions, so that keys come and go.
    Churn,
    /// Mostly overwrites, between which there is one of all else.
    Crowd,
    /// Mostly reads, between overwrites.
    Reads,
}

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Play {
    pub seed: u64,
    pub mode: Mode,
    /// Explored mode: time may pass while anything else can happen.
    pub hasty: bool,
    pub clients: u16,
    /// How many operations a client has under way at once.
    pub tasks: u32,
    pub operations: u32,
    pub keys: u64,
    pub work: Work,
    pub chunks: u32,
    pub chunk_bytes: u64,
    /// Values are of 8 to so many bytes.
    pub value_bytes: u64,
    /// Every count begins so near its end that it wraps.
    pub near_wrap: bool,
    /// A client's tasks wake each other.
    pub together: bool,
    pub weakness: Weakness,
    pub lost: Ratio,
    pub crashes: u32,
    pub crash: Ratio,
    pub cancel: Ratio,
    /// Before a step a client makes the index larger.
    pub grow: Ratio,
    /// How often a client is stopped, for longer than others have patience.
    pub stops: u32,
    /// A second judge sees the history too, and one of it with a wrong answer.
    pub twice: bool,
    #[cfg(feature = "museum")]
    pub flaw: Option<farlock_kv::Flaw>,
}

impl Play {
    pub const CALM: Self = Self {
        seed: 0,
        mode: Mode::Timed,
        hasty: true,
        clients: 3,
        tasks: 1,
        operations: 6,
        keys: 2,
        work: Work::Values,
        chunks: 24,
        chunk_bytes: 256,
        value_bytes: 32,
        near_wrap: false,
        together: false,
        weakness: Weakness::FULL,
        lost: Ratio::NEVER,
        crashes: 0,
        crash: Ratio::one_in(40),
        cancel: Ratio::NEVER,
        grow: Ratio::NEVER,
        stops: 0,
        twice: false,
        #[cfg(feature = "museum")]
        flaw: None,
    };

    /// One block a chunk, so that each is used again at once, and verbs that take long: readers
    /// find blocks that were recycled, and torn ones.
    pub const TIGHT: Self = Self {
        clients: 4,
        operations: 12,
        chunks: 40,
        chunk_bytes: 64,
        value_bytes: 24,
        weakness: Weakness {
            torn_gap_ns_max: 40_000,
            late: Ratio::one_in(3),
            late_ns_max: 100_000,
            ..Weakness::FULL
        },
        ..Self::CALM
    };

    /// Everything that may befall a client.
    pub const STORMY: Self = Self { chunks: 48, ..Self::CALM }.in_a_storm();

    /// Whether there are more keys than a table of one group has slots.
    pub const fn fills(&self) -> bool {
        self.keys > 24
    }

    /// The same, where clients die, lose completions and give up.
    pub const fn in_a_storm(self) -> Self {
        Self { lost: Ratio::one_in(25), crashes: 2, cancel: Ratio::one_in(6), ..self }
    }
}

/// What a run has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    pub answered: u64,
    pub open: u64,
    pub dead: u64,
    pub cancelled: u64,
    pub lost: u64,
    pub rereads: u64,
    pub combined: u64,
    pub delegated: u64,
    pub retries: u64,
    pub rivals: u64,
    pub adoptions: u64,
    /// Chunks that got another class.
    pub reclassed: u64,
    /// Levels that the index has above the first, and slots that moved.
    pub levels: u64,
    pub moves: u64,
    /// Nodes of a tree that were made.
    pub nodes: u64,
    /// Histories that were made wrong, and that both judges found so.
    pub twisted: u64,
    pub hash: u64,
}

impl Report {
    pub fn plus(&mut self, other: &Self) {
        self.answered += other.answered;
        self.open += other.open;
        self.dead += other.dead;
        self.cancelled += other.cancelled;
        self.lost += other.lost;
        self.rereads += other.rereads;
        self.combined += other.combined;
        self.delegated += other.delegated;
        self.retries += other.retries;
        self.rivals += other.rivals;
        self.adoptions += other.adoptions;
        self.reclassed += other.reclassed;
        self.levels += other.levels;
        self.moves += other.moves;
        self.nodes += other.nodes;
        self.twisted += other.twisted;
        self.hash = self.hash.rotate_left(5) ^ other.hash;
    }
}

/// Whether both judges find something wrong with a history of which one answer was changed. They
/// agree in any case.
fn twisted(judge: &Judge, seed: u64) -> u64 {
    let twisted = second::twisted(judge.log(), seed as usize);
    twisted.map_or(0, |log| u64::from(second::agreed(&Judge::of(&log))))
}

/// What a client does besides other things.
type Part = Pin<Box<dyn Future<Output = ()>>>;

/// A client's store, once it has opened it, and how many of its tasks are not through yet.
struct Place<K: Kit> {
    store: RefCell<Option<Rc<Kept<K>>>>,
    tasks_left: Cell<u32>,
}

struct Scene<K: Kit> {
    world: World,
    shape: Shape,
    locks: Addr,
    judge: Rc<RefCell<Judge>>,
    play: Play,
    cancelled: Rc<RefCell<u64>>,
    clients: Vec<(SimEndpoint, Rc<Place<K>>)>,
}

/// Plays one run, by this oracle or by its seed. `Err`: what is wrong, in words.
pub fn play<K: Kit>(play: Play, oracle: Option<Box<dyn Oracle>>) -> Result<Report, String> {
    let config = Config {
        seed: play.seed,
        mode: play.mode,
        hasty: play.hasty,
        weakness: Weakness { lost: play.lost, lost_after_ns: 50_000, ..play.weakness },
        endpoints: 12,
        slots_per_endpoint: 2,
        events_max: Some(400_000),
        ..Config::default()
    };
    let world = match oracle {
        Some(oracle) => World::with_oracle(config, oracle),
        None => World::new(config),
    };
    let mut scene = Scene::<K>::set(world, play);
    scene.act()?;
    scene.end()
}

impl<K: Kit> Scene<K> {
    fn set(world: World, play: Play) -> Self {
        let index = K::index();
        let mut shape = Shape {
            base: Addr::from_bits(0),
            chunks: play.chunks,
            chunk_bytes: play.chunk_bytes.max(K::CHUNK_BYTES_MIN),
            index_bytes: index.bytes(),
            index_tag: index.tag(),
        };
        shape.base = world.region(world.node(), shape.bytes());
        let locks = world.region(farlock_sim::NodeId(0), LOCKS * 64);
        let builder = world.endpoint();
        world.block_on(async { while shape.create(&builder).await.is_err() {} });
        if play.near_wrap {
            nears_wrap(&world, shape, play.grow.is_possible() || K::I::TREE);
        }
        let (judge, cancelled) = (Rc::default(), Rc::default());
        Self { world, shape, locks, judge, play, cancelled, clients: Vec::new() }
    }

    async fn open(endpoint: SimEndpoint, locks: Addr, shape: Shape, play: Play) -> Kept<K> {
        let _ = play;
        for _ in 0..1_000 {
            let scheme = K::scheme(endpoint.clone(), locks);
            if let Ok(store) = Store::open(scheme, K::index(), shape).await {
                let store = of_kit::<K>(store);
                #[cfg(feature = "museum")]
                if let Some(flaw) = play.flaw {
                    return store.with_flaw(flaw);
                }
                return store;
            }
        }
        panic!("the store cannot be opened");
    }

    fn act(&mut self) -> Result<(), String> {
        self.world.crash_anywhere(self.play.crashes, self.play.crash);
        for _ in 0..self.play.clients {
            let endpoint = self.world.endpoint();
            let tasks_left = Cell::new(self.play.tasks);
            let place = Rc::new(Place { store: RefCell::default(), tasks_left });
            let store = Self::open(endpoint.clone(), self.locks, self.shape, self.play);
            let opens = {
                let place = Rc::clone(&place);
                async move { *place.store.borrow_mut() = Some(Rc::new(store.await)) }
            };
            let mut parts: Vec<Part> = vec![Box::pin(opens)];
            for task in 0..self.play.tasks {
                let client = Client::<K> {
                    endpoint: endpoint.clone(),
                    world: self.world.handle(),
                    judge: Rc::clone(&self.judge),
                    cancelled: Rc::clone(&self.cancelled),
                    play: self.play,
                    task,
                    place: Rc::clone(&place),
                };
                parts.push(Box::pin(client.act()));
            }
            let spawn = |part: Part| drop(self.world.spawn(endpoint.id(), part));
            match self.play.together {
                true => spawn(Box::pin(async { drop(together(parts).await) })),
                false => parts.into_iter().for_each(spawn),
            }
            // A waiter in vain for a turn has left it to a task of its own to let it go.
            self.world.spawn(endpoint.id(), lets_go(endpoint.clone(), Rc::clone(&place)));
            self.clients.push((endpoint, place));
        }
        if self.play.stops > 0 {
            let clients = self.clients.iter().map(|(endpoint, _)| endpoint.clone()).collect();
            let watcher = self.world.endpoint();
            let stops = stops(watcher.clone(), self.world.handle(), clients, self.play.stops);
            self.world.spawn(watcher.id(), stops);
        }
        match self.world.run() {
            Ended::Finished => Ok(()),
            ended => Err(format!("the run ended as {ended:?}")),
        }
    }

    /// Faults are over: what is left is brought in order, and all that was promised is looked at.
    fn end(self) -> Result<Report, String> {
        self.world.crash_anywhere(0, Ratio::NEVER);
        self.world.allow_events(4_000_000);
        let mut report = Report::default();
        for (endpoint, place) in &self.clients {
            let Some(store) = place.store.borrow().clone() else { continue };
            if endpoint.has_crashed() {
                report.dead += 1;
            } else {
                self.settles(&store)?;
            }
            let counts = store.counts();
            report.lost += counts.lost;
            report.rereads += counts.rereads;
            report.combined += counts.combined;
            report.delegated += counts.delegated;
            report.retries += counts.retries;
            report.rivals += counts.rivals;
            report.reclassed += counts.reclassed;
            report.moves += counts.moves;
            report.nodes += counts.nodes;
        }
        // Now the living die too: what they could not use any more comes back.
        for (endpoint, _) in &self.clients {
            if !endpoint.has_crashed() {
                self.world.kill(endpoint.id());
            }
        }
        self.world.run();
        let heir = self.world.endpoint();
        let play = Self::of_heir(self.play);
        let store = self.world.block_on(Self::open(heir, self.locks, self.shape, play));
        self.inherits(&store)?;
        report.levels = self.levels_are_whole()?;
        report.adoptions = store.counts().adoptions;
        report.moves += store.counts().moves;
        let judge = self.judge.borrow();
        if self.play.twice {
            second::agreed(&judge);
            report.twisted = twisted(&judge, self.play.seed);
        }
        judge.verdict()?;
        report.answered = judge.answered;
        report.open = judge.open;
        report.cancelled = *self.cancelled.borrow();
        report.hash = self.world.trace_hash();
        Ok(report)
    }

    /// The repairer makes no mistakes but in taking over, and reads words as they are.
    fn of_heir(play: Play) -> Play {
        #[cfg(feature = "museum")]
        let play = {
            use farlock_kv::Flaw::{LiveBlockFreed, VersionWrap};
            let stays = |flaw: &_| matches!(flaw, LiveBlockFreed | VersionWrap);
            Play { flaw: play.flaw.filter(stays), ..play }
        };
        play
    }

    /// A living client has nothing in hand once it has settled.
    fn settles(&self, store: &Kept<K>) -> Result<(), String> {
        self.world.block_on(async {
            for _ in 0..20 {
                store.settle().await;
                store.scheme().settle().await;
                if !store.is_unsettled() {
                    break;
                }
            }
            while store.audit().await.is_err() {}
        });
        let census = store.census();
        if store.is_unsettled() || census.in_hand != 0 {
            return Err(format!("a client has settled, and still: {census:?}"));
        }
        let me = store.scheme().endpoint().id().bits();
        let is_run = |head: &ChunkWord| head.class() == ChunkWord::TABLE && head.owner() == me;
        let mut heads = (0..).zip(self.heads());
        if heads.any(|(chunk, head)| is_run(&head) && !self.is_of_a_level(chunk)) {
            return Err("a client has settled, and still has a chunk for a level".to_owned());
        }
        Ok(())
    }

    /// The heir takes everything over. No block may be lost, and none be handed out that a slot
    /// names: it fills all that is free, and finds every value as it was.
    fn inherits(&self, store: &Kept<K>) -> Result<(), String> {
        self.world.block_on(async { while store.recover().await.is_err() {} });
        let names: Vec<Vec<u8>> = (0..self.play.keys).map(K::name).collect();
        for key in &names {
            self.reads(store, key);
        }
        let (blocks, named) = self.count();
        let census = store.census();
        if (census.free + census.published, census.published) != (blocks, named) {
            let found = format!("{blocks} blocks, {named} of them in slots");
            return Err(format!("after recovery {census:?}, but there are {found}"));
        }
        let mut filled = 0;
        for other in self.play.keys..K::fill() {
            let value = vec![0xee; self.play.value_bytes.min(24) as usize];
            let key = K::name(other);
            let ended = self.world.block_on(store.insert(&key, &value));
            match ended {
                Ok(()) => filled += 1,
                Err(WriteError::PoolFull | WriteError::IndexFull | WriteError::BadKey) => break,
                Err(WriteError::Unknown) => {}
                Err(WriteError::Collides) if K::COLLIDES => {}
                Err(error) => return Err(format!("filling up: {error}")),
            }
        }
        let _ = filled;
        for key in &names {
            self.reads(store, key);
        }
        Ok(())
    }

    /// A read that is judged like any other.
    fn reads(&self, store: &Kept<K>, key: &[u8]) {
        let called = self.judge.borrow_mut().call(key, Ask::Get);
        let value = self.world.block_on(async {
            loop {
                match store.get(key).await {
                    Ok(value) => break Answer::Value(value),
                    Err(ReadError::Fabric(_)) => {}
                    Err(error) => break Answer::No(error.into()),
                }
            }
        });
        self.judge.borrow_mut().answer(key, called, Ask::Get, value);
    }

    /// How many blocks chunks with an owner have, and how many of these slots name, from outside.
    fn count(&self) -> (u64, u64) {
        let heads = self.heads();
        let owned = heads.into_iter().filter(|head| head.owner() != 0);
        let blocks = owned.filter_map(|head| {
            let class = Class::from_number(head.class())?;
            let least = Class::from_number(head.least())?;
            Some(self.shape.blocks(class) - self.shape.covered(class, least))
        });
        (blocks.map(u64::from).sum(), self.named())
    }

    fn heads(&self) -> Vec<ChunkWord> {
        let word = |at: u64| self.world.peek(self.shape.base.plus(HEADER_BYTES + at * 8));
        (0..u64::from(self.shape.chunks)).map(|chunk| ChunkWord(word(chunk))).collect()
    }

    /// Where the tables of all levels lie.
    fn tables(&self) -> Vec<Addr> {
        let Shape { base, chunks, chunk_bytes, .. } = self.shape;
        let first = HEADER_BYTES + (u64::from(chunks) * 8).next_multiple_of(64);
        let run = self.shape.bytes() - u64::from(chunks) * chunk_bytes;
        let level = |level: u64| self.world.peek(base.plus(64 + level * 8)).checked_sub(1);
        let above = (1..28).map_while(level).map(|chunk| base.plus(run + chunk * chunk_bytes));
        std::iter::once(base.plus(first)).chain(above).collect()
    }

    /// How many slots name a block of a chunk that has an owner: of those of level 0, and of each
    /// whose own has moved.
    fn named(&self) -> u64 {
        let Shape { chunks, chunk_bytes, .. } = self.shape;
        let (heads, first) = (self.heads(), self.shape.bytes() - u64::from(chunks) * chunk_bytes);
        let is_owned = |block: u64| {
            let chunk = (block * UNIT_BYTES - first) / chunk_bytes;
            heads[chunk as usize].owner() != 0
        };
        if K::I::TREE {
            let look = |addr| self.world.peek(addr);
            let (leaves, nodes) = tree::named(look, self.shape, |head| head.owner() != 0);
            return leaves + nodes;
        }
        let mut slots: Vec<u64> = (0..self.shape.index_bytes / 8).collect();
        let mut named = 0;
        for table in self.tables() {
            let mut heirs = Vec::new();
            for slot in slots {
                let word = SlotWord(self.world.peek(table.plus(slot * 8)));
                if word == SlotWord::MOVED {
                    let growth = K::I::GROWTH.expect("only then a slot moves");
                    let group = growth.group as u64;
                    let heir = |at: usize| 2 * (slot / group) * group + at as u64;
                    heirs.extend((growth.heirs)((slot % group) as usize).map(heir));
                } else {
                    named += u64::from(word.class() != 0 && is_owned(word.block()));
                }
            }
            slots = heirs;
        }
        assert!(slots.is_empty(), "what has moved went somewhere");
        named
    }

    /// Whether a chunk is part of the table of a level.
    fn is_of_a_level(&self, chunk: u64) -> bool {
        let run = |level: u64| {
            let first = self.world.peek(self.shape.base.plus(64 + level * 8)).checked_sub(1)?;
            let bytes = self.shape.index_bytes << level;
            Some(first..first + bytes.div_ceil(self.shape.chunk_bytes))
        };
        (1..28).map_while(run).any(|run| run.contains(&chunk))
    }

    /// Every chunk that was claimed for a level is part of one.
    fn levels_are_whole(&self) -> Result<u64, String> {
        let levels = self.tables().len() as u64;
        let bytes = |level: u64| self.shape.index_bytes << level;
        let chunks = |level: u64| bytes(level).div_ceil(self.shape.chunk_bytes);
        let needed: u64 = (1..levels).map(chunks).sum();
        let heads = self.heads().into_iter();
        let claimed = heads.filter(|head| head.class() == ChunkWord::TABLE).count() as u64;
        match claimed == needed {
            true => Ok(levels - 1),
            false => Err(format!("{claimed} chunks for {levels} levels, which need {needed}")),
        }
    }
}

/// Makes a new store one whose chunks and blocks have been used nearly as often as can be counted:
/// their counts wrap, and so do the versions in slots. Nobody owns the chunks. Where the index is
/// to grow the later ones were claimed as often and never written.
fn nears_wrap(world: &World, shape: Shape, grows: bool) {
    let first = shape.bytes() - u64::from(shape.chunks) * shape.chunk_bytes;
    for chunk in 0..shape.chunks {
        if grows && chunk >= shape.chunks / 3 {
            let word = ChunkWord::new().with(ChunkWord::TURN, ChunkWord::TURN.max());
            world.poke(shape.base.plus(HEADER_BYTES + u64::from(chunk) * 8), word.0);
            continue;
        }
        let class = Class::of_bytes(32 + u64::from(chunk % 3) * 8).unwrap();
        let word = ChunkWord::new()
            .with(ChunkWord::CLASS, class.number())
            .with(ChunkWord::LEAST, class.number())
            .with(ChunkWord::TURN, ChunkWord::TURN.max() - u64::from(chunk % 3));
        world.poke(shape.base.plus(HEADER_BYTES + u64::from(chunk) * 8), word.0);
        for block in 0..shape.blocks(class) {
            let at = first + u64::from(chunk) * shape.chunk_bytes + u64::from(block) * 8;
            world.poke(shape.base.plus(at), u64::from(u32::MAX - (chunk + block) % 3));
        }
    }
}

struct Client<K: Kit> {
    endpoint: SimEndpoint,
    world: Handle,
    judge: Rc<RefCell<Judge>>,
    cancelled: Rc<RefCell<u64>>,
    play: Play,
    task: u32,
    place: Rc<Place<K>>,
}

impl<K: Kit> Client<K> {
    async fn act(self) {
        let store = loop {
            if let Some(store) = self.place.store.borrow().clone() {
                break store;
            }
            match self.play.together {
                // The part that opens it is polled first.
                true => yields().await,
                false => drop(self.endpoint.sleep(1_000).await),
            }
        };
        for step in 0..self.play.operations {
            if self.play.grow.is_possible() && self.world.happens(Choice::Cancel, self.play.grow) {
                self.grows(&store).await;
            }
            let key = K::name(self.endpoint.random() % self.play.keys);
            let ask = self.ask(step);
            let called = self.judge.borrow_mut().call(&key, ask.clone());
            let operation = carry_out(&store, &key, &ask);
            let ended = match self.world.happens(Choice::Cancel, self.play.cancel) {
                true => polled(operation, 1 + self.endpoint.random() % 12).await,
                false => Some(operation.await),
            };
            match ended {
                Some(Some(answer)) => {
                    self.judge.borrow_mut().answer(&key, called, ask, answer);
                }
                Some(None) => {}
                None => *self.cancelled.borrow_mut() += 1,
            }
            if self.endpoint.random().is_multiple_of(4) {
                store.settle().await;
            }
        }
        self.place.tasks_left.set(self.place.tasks_left.get() - 1);
    }

    /// Makes the index larger; with the same chance as an operation it is dropped.
    async fn grows(&self, store: &Kept<K>) {
        match self.world.happens(Choice::Cancel, self.play.cancel) {
            true => drop(polled(store.grow(), 1 + self.endpoint.random() % 12).await),
            false => drop(store.grow().await),
        }
    }

    /// What to do next; values are never the same twice.
    fn ask(&self, step: u32) -> Ask {
        let EndpointId { index, .. } = self.endpoint.id();
        let number = u64::from(index) << 32 | u64::from(self.task) << 16 | u64::from(step);
        let length = 8 + self.endpoint.random() % (self.play.value_bytes - 7);
        let value: Vec<u8> = (0..length).map(|at| (number >> (at % 8 * 8)) as u8).collect();
        let chance = self.endpoint.random() % 10;
        match (self.play.work, chance) {
            (Work::Values, 0..=2) | (Work::Hot, 0..=2) | (Work::Churn, 0..=1) => Ask::Get,
            (Work::Values, 3..=4) | (Work::Churn, 2..=5) => Ask::Insert(value),
            (Work::Values, 5) | (Work::Hot, 3..=5) => Ask::Update(value),
            (Work::Values, 6) | (Work::Hot, 6..=8) => Ask::Upsert(value),
            (Work::Values, 7..=8) | (Work::Hot, 9) | (Work::Churn, _) => Ask::Delete,
            (Work::Values, _) => Ask::CompareAndSet(value.clone(), value),
            (Work::Numbers, 0..=1) => Ask::Get,
            (Work::Numbers, 2) => Ask::Delete,
            (Work::Numbers, 3) => Ask::CompareAndSet(1_u64.to_le_bytes().into(), name(1 << 40)),
            (Work::Numbers, _) => Ask::Increment(1),
            (Work::Crowd, 0) | (Work::Reads, 0..=6) => Ask::Get,
            (Work::Crowd, 1..=4) | (Work::Reads, 7) => Ask::Update(value),
            (Work::Crowd, 5..=8) | (Work::Reads, _) => Ask::Upsert(value),
            (Work::Crowd, _) => match self.endpoint.random() % 4 {
                0 => Ask::Delete,
                1 => Ask::Insert(value),
                2 => Ask::Increment(number),
                _ => Ask::CompareAndSet(value.clone(), value),
            },
            (Work::Hot, _) => unreachable!("a chance is below 10"),
        }
    }
}

/// Is pending once, for the others of its task.
async fn yields() {
    let mut polls = 0;
    std::future::poll_fn(|_| {
        polls += 1;
        if polls > 1 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Stops one client after the other.
async fn stops(watcher: SimEndpoint, world: Handle, clients: Vec<SimEndpoint>, stops: u32) {
    for _ in 0..stops {
        watcher.sleep(5_000 + watcher.random() % 25_000).await;
        let client = &clients[watcher.random() as usize % clients.len()];
        if !client.has_crashed() {
            world.pause(client.id(), 2 * PATIENCE_NS);
        }
    }
}

/// Settles the turns that were dropped, until their client is through.
async fn lets_go<K: Kit>(endpoint: SimEndpoint, place: Rc<Place<K>>) {
    while place.tasks_left.get() > 0 {
        endpoint.sleep(20_000).await;
        let store = place.store.borrow().clone();
        if let Some(store) = store {
            store.scheme().settle().await;
        }
    }
}

/// Carries an operation out. `None`: what became of it is unknown.
pub async fn carry_out<S: Scheme, I: Index>(
    store: &Store<S, I>,
    key: &[u8],
    ask: &Ask,
) -> Option<Answer> {
    let done = |ended: Result<(), WriteError>| ended.map(|()| Answer::Done);
    let ended = match ask {
        Ask::Get => store.get(key).await.map(Answer::Value).map_err(WriteError::from),
        Ask::Insert(value) => done(store.insert(key, value).await),
        Ask::Update(value) => done(store.update(key, value).await),
        Ask::Upsert(value) => done(store.upsert(key, value).await),
        Ask::Delete => done(store.delete(key).await),
        Ask::CompareAndSet(old, new) => done(store.compare_and_set(key, old, new).await),
        Ask::Increment(by) => store.increment(key, *by).await.map(Answer::Sum),
    };
    match ended {
        Ok(answer) => Some(answer),
        Err(WriteError::Unknown) => None,
        Err(WriteError::Busy | WriteError::PoolFull | WriteError::Fabric(_)) => {
            Some(Answer::Nothing)
        }
        Err(error) => Some(Answer::No(error)),
    }
}

/// Polls a future so often and then drops it: `None`.
pub async fn polled<F: Future>(future: F, most: u64) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polls = 0;
    std::future::poll_fn(|cx| {
        polls += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls >= most => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
