//! Specification: what a file system promises, under each kind of lock, in a world that is as weak
//! as the contract allows.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use farlock_check::client::named_with_room;
use farlock_fabric::{Addr, Endpoint, EndpointId};
use farlock_locks::{Options, registry};
use farlock_sim::{Config, Ended, Outcome, Ratio, Task, Weakness, World};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::bench::simulated::begin_service;
use crate::line::arguments;
use crate::subject::Simulated;

/// Range locks, and locks that are had as a whole.
const LOCKS: [&str; 9] = [
    "citron",
    "citron-rw",
    "segments",
    "interval-tree",
    "range-btree",
    "linked-list",
    "far-list",
    "mcs",
    "dslr",
];
/// Files, and the blocks that each has room for.
const FILES: u32 = 4;
const BLOCKS: u64 = 24;
const UNIT: u64 = 512;

type System = FileSystem<Simulated>;

/// A file system of three data nodes.
struct Stage {
    world: World,
    lock: String,
    in_parts: bool,
    layout: Rc<Layout>,
}

impl Stage {
    fn new(lock: &str, seed: u64) -> Self {
        let in_parts = registry::kind(lock).unwrap().units().is_some();
        let space = BLOCKS * BLOCK_BYTES / UNIT;
        let lock = if in_parts { format!("{lock}:space={space}") } else { lock.to_owned() };
        let lock_bytes = registry::kind(&lock).unwrap().bytes();
        let weakness = Weakness { lost: Ratio::NEVER, ..Weakness::default() };
        let (slots_per_endpoint, mailbox_cells) = (64, 64);
        let world = World::new(Config {
            seed,
            weakness,
            slots_per_endpoint,
            mailbox_cells,
            ..Config::default()
        });
        let file_bytes = BLOCKS * BLOCK_BYTES;
        let shape = Shape { files: FILES, file_bytes, lock_bytes, unit: UNIT };
        let metadata = world.region(world.node(), shape.metadata_bytes());
        let data = |_| world.region(world.node(), shape.data_bytes(3));
        let data: Vec<Addr> = (0..3).map(data).collect();
        let server = begin_service(&world, &lock).unwrap();
        let lock = registry::served_by(&lock, server);
        Self { layout: Rc::new(Layout::new(shape, metadata, data)), world, lock, in_parts }
    }

    fn client(&self) -> (EndpointId, System) {
        let endpoint = Simulated::new(self.world.endpoint());
        let id = endpoint.id();
        let client = named_with_room(&self.lock).unwrap().client(endpoint, Options::default());
        (id, FileSystem::new(client, Rc::clone(&self.layout), self.in_parts))
    }

    /// Starts a client that does this with a file.
    fn spawn<F: Future + 'static>(
        &self,
        act: impl FnOnce(System, File) -> F + 'static,
    ) -> (EndpointId, Task<F::Output>) {
        let (id, system) = self.client();
        let task = self.world.spawn(id, async move {
            let file = opened(&system).await;
            act(system, file).await
        });
        (id, task)
    }

    fn run(&self) {
        assert_eq!(self.world.run(), Ended::Finished, "{}", self.lock);
    }

    /// All bytes of the file, and that there are none beyond its end.
    fn content(&self) -> Vec<u8> {
        let (_, system) = self.client();
        self.world.block_on(async {
            let file = opened(&system).await;
            let size = system.size(file).await.unwrap();
            let all = BLOCKS * BLOCK_BYTES;
            system.truncate(file, all).await.unwrap();
            let mut content = system.read(file, 0, all).await.unwrap();
            assert!(content[size as usize..].iter().all(|byte| *byte == 0), "{}", self.lock);
            content.truncate(size as usize);
            content
        })
    }
}

async fn opened(system: &System) -> File {
    system.open("file", true).await.unwrap().unwrap()
}

/// Where what a client has appended begins, and its bytes.
type Append = (u64, Vec<u8>);

/// Clients append, and change the middle of what they have appended.
#[test]
fn appends_are_all_there_and_none_overlaps() {
    for (seed, lock) in LOCKS.into_iter().enumerate() {
        let stage = Stage::new(lock, seed as u64);
        let appends: Rc<RefCell<Vec<Append>>> = Rc::default();
        for client in 0..4_u8 {
            let appends = Rc::clone(&appends);
            stage.spawn(async move |system, file| {
                for turn in 0..5_u8 {
                    let letter = 1 + client * 5 + turn;
                    let length = 700 + 1_001 * usize::from(letter % 3);
                    let mut bytes = vec![letter; length];
                    let at = system.append(file, &bytes).await.unwrap();
                    bytes[13..length - 5].fill(letter + 100);
                    let middle = &bytes[13..length - 5];
                    system.write(file, at + 13, middle).await.unwrap();
                    appends.borrow_mut().push((at, bytes));
                }
            });
        }
        stage.run();
        let mut appends = appends.take();
        appends.sort();
        assert_eq!(appends.len(), 20);
        let whole: Vec<u8> = appends.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        assert!(stage.content() == whole, "{lock}: appends in the order of their places");
    }
}

/// How many reads found bytes of more than one write.
fn torn_reads(lock: &str) -> u64 {
    const BYTES: usize = 9_001;
    let stage = Stage::new(lock, 7);
    let torn = Rc::new(Cell::new(0));
    for writer in 0..2_u8 {
        stage.spawn(async move |system, file| {
            for turn in 0..20 {
                system.write(file, 100, &[1 + writer * 20 + turn; BYTES]).await.unwrap();
            }
        });
    }
    for _ in 0..3 {
        let torn = Rc::clone(&torn);
        stage.spawn(async move |system, file| {
            for _ in 0..20 {
                let bytes = system.read(file, 100, BYTES as u64).await.unwrap();
                let is_whole = bytes.iter().all(|byte| *byte == bytes[0]);
                torn.set(torn.get() + u64::from(!is_whole));
            }
        });
    }
    stage.run();
    torn.get()
}

#[test]
fn no_read_is_torn_under_any_lock_and_some_are_under_none() {
    for lock in LOCKS {
        assert_eq!(torn_reads(lock), 0, "{lock}");
    }
    assert!(torn_reads("none") > 0, "none keeps no client out");
}

/// A file is cut, made long again with zeros and filled; readers see it in one of these states.
fn mixed_states(lock: &str) -> u64 {
    const SHORT: usize = 1_003;
    const LONG: usize = 10_007;
    let stage = Stage::new(lock, 3);
    let (_, system) = stage.client();
    let begun = async {
        let file = opened(&system).await;
        system.write(file, 0, &[b'x'; LONG]).await.unwrap();
    };
    stage.world.block_on(begun);
    stage.spawn(async |system, file| {
        for _ in 0..8 {
            system.truncate(file, SHORT as u64).await.unwrap();
            system.truncate(file, LONG as u64).await.unwrap();
            system.write(file, SHORT as u64, &[b'x'; LONG - SHORT]).await.unwrap();
        }
    });
    let mixed = Rc::new(Cell::new(0));
    for _ in 0..3 {
        let mixed = Rc::clone(&mixed);
        stage.spawn(async move |system, file| {
            for _ in 0..20 {
                let bytes = system.read(file, 0, LONG as u64 + 9).await.unwrap();
                let (head, tail) = bytes.split_at(SHORT.min(bytes.len()));
                let is_one = head.len() == SHORT
                    && head.iter().all(|byte| *byte == b'x')
                    && [0, LONG - SHORT].contains(&tail.len())
                    && tail.iter().all(|byte| *byte == tail[0] && [0, b'x'].contains(byte));
                mixed.set(mixed.get() + u64::from(!is_one));
            }
        });
    }
    stage.run();
    mixed.get()
}

#[test]
fn readers_see_a_file_before_a_truncation_or_behind_it() {
    for lock in LOCKS {
        assert_eq!(mixed_states(lock), 0, "{lock}");
    }
    assert!(mixed_states("none") > 0, "none keeps no client out");
}

const DEAD: [u8; 5_000] = [b'd'; 5_000];
const LIVING: [u8; 3_000] = [b'l'; 3_000];

/// A client dies as it posts each of its verbs in turn; another one, which comes so much later,
/// goes on with the file. Returns what is in the file then, without what that one has appended.
fn killed_at_each_verb<F: Future<Output = Result<(), FsError>> + 'static>(
    lock: &str,
    begun: &'static [u8],
    later_ns: u64,
    act: impl Fn(System, File) -> F + Copy + 'static,
) -> Vec<Vec<u8>> {
    let mut contents = Vec::new();
    for verb in 0.. {
        let stage = Stage::new(lock, verb);
        let (_, system) = stage.client();
        let write = async { system.write(opened(&system).await, 0, begun).await };
        stage.world.block_on(write).unwrap();
        let (id, dies) = stage.spawn(act);
        stage.world.crash_at(id, verb, Outcome::ALL[verb as usize % Outcome::ALL.len()]);
        let (_, lives) = stage.spawn(async move |system, file| {
            system.client().endpoint().sleep(later_ns).await;
            system.append(file, &LIVING).await
        });
        stage.run();
        let at = lives.take().expect("it goes on").unwrap() as usize;
        let mut content = stage.content();
        assert_eq!(content[at..at + LIVING.len()], LIVING, "{lock}, killed at verb {verb}");
        content.drain(at..at + LIVING.len());
        contents.push(content);
        if dies.take().is_some() {
            break;
        }
    }
    assert!(contents.len() > 7, "{lock}: few verbs were its last");
    contents
}

/// Locks that survivors repair.
const REPAIRED: [&str; 3] = ["citron", "citron-rw", "mcs"];

#[test]
fn a_client_that_is_killed_in_a_write_leaves_a_file_that_can_be_used() {
    for lock in REPAIRED {
        let append = async |system: System, file| system.append(file, &DEAD).await.map(drop);
        for content in killed_at_each_verb(lock, &[], 4_000, append) {
            assert!(content.is_empty() || content.len() == DEAD.len(), "{lock}");
            assert!(content.iter().all(|byte| [0, b'd'].contains(byte)), "{lock}");
        }
    }
}

#[test]
fn a_client_that_is_killed_in_a_truncation_leaves_zeros_at_the_most() {
    const CUT: usize = 1_001;
    for lock in REPAIRED {
        let cut = async |system: System, file| system.truncate(file, CUT as u64).await;
        // One that comes before the end of the truncation would have its bytes cut off.
        for content in killed_at_each_verb(lock, &DEAD, 100_000, cut) {
            assert!(content.len() == CUT || content.len() == DEAD.len(), "{lock}");
            assert!(content[..CUT].iter().all(|byte| *byte == b'd'), "{lock}");
            assert!(content[CUT..].iter().all(|byte| [0, b'd'].contains(byte)), "{lock}");
        }
    }
}

/// The same requests of a file and of a vector of bytes.
#[test]
fn any_bytes_are_written_read_and_cut() {
    let stage = Stage::new("citron", 1);
    let (_, system) = stage.client();
    stage.world.block_on(async {
        let file = opened(&system).await;
        let mut model: Vec<u8> = Vec::new();
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(5);
        let all = (BLOCKS * BLOCK_BYTES) as usize;
        for turn in 0..200_u8 {
            let at = chance.random_range(0..all / 2);
            let bytes = vec![turn + 1; chance.random_range(0..9_000)];
            match chance.random_range(0..5) {
                0 => {
                    system.truncate(file, at as u64).await.unwrap();
                    model.resize(at, 0);
                }
                1 if model.len() + bytes.len() <= all => {
                    let place = system.append(file, &bytes).await.unwrap();
                    assert_eq!(place as usize, model.len());
                    model.extend(&bytes);
                }
                _ => {
                    system.write(file, at as u64, &bytes).await.unwrap();
                    if !bytes.is_empty() {
                        model.resize(model.len().max(at + bytes.len()), 0);
                        model[at..at + bytes.len()].copy_from_slice(&bytes);
                    }
                }
            }
            let start = chance.random_range(0..all);
            let found = system.read(file, start as u64, 12_345).await.unwrap();
            let end = (start + 12_345).min(model.len());
            assert!(found == model[start.min(end)..end], "{turn}");
        }
        let beyond = system.write(file, all as u64 - 3, b"four").await;
        assert_eq!(beyond, Err(FsError::Room));
    });
}

#[test]
fn a_name_is_one_file_whichever_client_makes_it() {
    let stage = Stage::new("mcs", 1);
    let seen: Rc<RefCell<BTreeSet<String>>> = Rc::default();
    for client in 0..6 {
        let (id, system) = stage.client();
        let seen = Rc::clone(&seen);
        stage.world.spawn(id, async move {
            for name in ["a", "sixteen letters.", "b"] {
                let file = system.open(name, true).await.unwrap().unwrap();
                assert_eq!(system.open(name, false).await, Ok(Some(file)), "client {client}");
                seen.borrow_mut().insert(format!("{name} {file:?}"));
            }
        });
    }
    stage.run();
    assert_eq!(seen.borrow().len(), 3, "{seen:?}");
    let (_, system) = stage.client();
    stage.world.block_on(async {
        assert_eq!(system.open("c", false).await, Ok(None));
        assert!(system.open("c", true).await.is_ok_and(|file| file.is_some()));
        assert_eq!(system.open("d", true).await, Err(FsError::Full));
        for name in ["", "seventeen letters", "\0"] {
            assert_eq!(system.open(name, true).await, Err(FsError::Name));
        }
    });
}

fn rows(line: &str) -> anyhow::Result<Vec<Row>> {
    measure(&arguments(line).expect("arguments"))
}

#[test]
fn both_workloads_run_under_every_lock() {
    let locks = LOCKS.join(",");
    for workload in ["oltp", "btio --grid 16", "btio --grid 16 --lengths-only"] {
        let options = "--clients 9 --seconds 0.0005 --warmup 0.0005";
        let line = format!("--workload {workload} --lock {locks} {options}");
        let line = if workload.contains("btio") { line.replace('9', "16") } else { line };
        let rows = rows(&line).expect("it is measured");
        assert_eq!(rows.len(), LOCKS.len());
        for row in rows {
            assert_eq!(row.violations, row.bytes_moved.then_some(0), "{row:?}");
            let times = row.latency_ns;
            assert!(row.ops_per_s > 0.0 && row.bytes_per_s >= 8.0 * row.ops_per_s, "{row:?}");
            assert!(times.writers.p50 > 4_000 && times.all.p50 > 4_000, "{row:?}");
        }
    }
}

#[test]
fn a_file_may_be_had_as_a_whole_by_any_lock() {
    let rate = |options: &str| {
        let rows =
            rows(&format!("--clients 60 --seconds 0.001 {options}")).expect("it is measured");
        assert_eq!(rows[0].violations, Some(0), "{:?}", rows[0]);
        rows[0].ops_per_s
    };
    let (whole, parts) = (rate("--whole --lock interval-tree"), rate("--lock interval-tree"));
    assert!(1.4 * whole < parts, "{whole} to {parts}");
}

#[test]
fn a_run_without_a_lock_is_found() {
    let rows = rows("--lock none,citron --clients 183 --seconds 0.004");
    let [none, citron] = &rows.expect("it is measured")[..] else { panic!("a row each") };
    assert!(none.violations > Some(0), "{none:?}");
    assert_eq!(citron.violations, Some(0), "{citron:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed| rows(&format!("--seconds 0.001 --seed {seed}")).expect("it is measured");
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (line, why) in [
        ("--workload btio --clients 5", "square"),
        ("--workload btio --clients 25", "square"),
        ("--clients 2", "log writer"),
        ("--lengths-only", "BT-IO"),
        ("--unit 12", "multiple of 8"),
        ("--fabric shm --testbed citron", "simulated"),
        ("--lock no-such-lock", "no-such-lock"),
        ("--fabric shm --workload btio --clients 4", "shared memory"),
    ] {
        let error = format!("{:#}", rows(line).expect_err(line));
        assert!(error.contains(why), "{line}: {error}");
    }
}
