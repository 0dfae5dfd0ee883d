//! Clients as tasks of one simulated world, whose table grows as that of sessions does: the same
//! lock, and the same log of blocks. Its memory has an owner, a server that makes it longer when it
//! is asked to, as the paper's does.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, ensure};
use farlock_fabric::{Addr, ConnectError, Endpoint, EndpointId, Mailbox, Nanos, Slot, Verb, Wait};
use farlock_locks::blocks::{self, Blocks, LOG_BYTES};
use farlock_locks::record::citron::Citron;
use farlock_locks::{BlockNumbers, Client, Extent, Guard, LockKind as _, Mode, Options, registry};
use farlock_sim::{Config, Ended, Handle, SimEndpoint, Task, Weakness, World};

use super::args::{SpreadingArgs, WorkloadKind};
use super::asked::{Asked, Drawn, Phase, STEPS, Written};
use super::course::{Table, use_table};
use super::trace::{Growth, Look, Spreading, Trace};
use crate::bench::SIMULATED_WORK_NS;
use crate::judge::Judge;
use crate::ranges::Holds;
use crate::subject::Simulated;
use crate::testbed::Testbed;

/// Where letters are taken: by the memory's owner, and by clients that wait for its answer, beside
/// the slot by which they have ranges.
const OWNER_SLOT: Slot = Slot(0);
const ANSWER_SLOT: Slot = Slot(1);
/// Which endpoints of their machine the memory's owner and the director are.
const OWNER: u16 = 1;
const DIRECTOR: u16 = 2;
/// How long the table may take to be free when all have left, in nanoseconds.
const FREE_WITHIN_NS: Nanos = 100_000_000;

/// Plays what was asked for, on machines like these.
pub(super) fn run(args: &SpreadingArgs, testbed: &Testbed) -> anyhow::Result<Spreading> {
    ensure!(
        args.writes <= Written::WRITES_MAX,
        "a table has room for {} writes: --writes",
        Written::WRITES_MAX
    );
    let (name, rest) = args.lock.split_once(':').unwrap_or((&args.lock, ""));
    match name {
        "citron" => {
            play::<false>(args, testbed, registry::with_options("citron", Citron::default(), rest)?)
        }
        "citron-rw" => play::<true>(
            args,
            testbed,
            registry::with_options("citron-rw", Citron::default(), rest)?,
        ),
        _ => anyhow::bail!("'{name}' does not grow by blocks: citron and citron-rw do"),
    }
}

/// What all clients of a world share.
struct Shared {
    /// Of the judge.
    words: Vec<AtomicU64>,
    phase: Phase,
    growth: RefCell<Growth>,
}

impl AsRef<Phase> for Rc<Shared> {
    fn as_ref(&self) -> &Phase {
        &self.phase
    }
}

/// Where a table lies, and its blocks.
#[derive(Clone)]
struct Ground<const SHARES: bool> {
    kind: Citron<SHARES>,
    lock: Addr,
    /// `None` where all blocks are there from the first.
    blocks: Option<Blocks>,
    owner: EndpointId,
}

/// A client of a table.
struct Simulant<const SHARES: bool> {
    client: Client<Simulated, Citron<SHARES>>,
    ground: Ground<SHARES>,
    known: RefCell<BTreeMap<u32, u16>>,
    shared: Rc<Shared>,
}

impl<const SHARES: bool> Simulant<SHARES> {
    fn new(endpoint: SimEndpoint, ground: Ground<SHARES>, shared: Rc<Shared>) -> Self {
        let client = Client::new(Simulated::new(endpoint), ground.kind.clone(), Options::default());
        Self { client, ground, known: RefCell::default(), shared }
    }

    fn endpoint(&self) -> &Simulated {
        self.client.endpoint()
    }

    /// Where the blocks lie in which this begins and ends: those that there are not yet it takes.
    async fn placed(&self, want: Extent) -> anyhow::Result<Extent> {
        let Some(blocks) = self.ground.blocks else { return Ok(want) };
        let (ends, mut numbers) = (self.ground.kind.far_ends(want), [0; 2]);
        for (number, subtree) in numbers.iter_mut().zip(ends) {
            if let Some(subtree) = subtree {
                *number = self.block_of(blocks, subtree).await?;
            }
        }
        Ok(want.lying_in(BlockNumbers::of_ends(ends, numbers)))
    }

    async fn block_of(&self, blocks: Blocks, subtree: u32) -> anyhow::Result<u16> {
        if let Some(&number) = self.known.borrow().get(&subtree) {
            return Ok(number);
        }
        let begun = self.now();
        let number = blocks.of(self.endpoint(), self, (self.ground.lock, subtree)).await?;
        self.known.borrow_mut().insert(subtree, number);
        let time = begun..self.now();
        self.shared.growth.borrow_mut().look(Look { subtree, time });
        Ok(number)
    }
}

impl<const SHARES: bool> blocks::Memory for Simulant<SHARES> {
    /// Asks the memory's owner.
    async fn lengthen(&self, end: Addr) -> Result<(), ConnectError> {
        let endpoint = self.endpoint();
        let me = Mailbox { endpoint: endpoint.id(), slot: ANSWER_SLOT };
        let owner = Mailbox { endpoint: self.ground.owner, slot: OWNER_SLOT };
        let asked = endpoint.send(owner, [me.bits(), end.bits(), 0, 0]).await;
        asked.expect("the owner lives, and has room for a letter of each client");
        while endpoint.receive(ANSWER_SLOT).is_none() {
            endpoint.wait(Wait { mail: Some(ANSWER_SLOT), ..Wait::default() }).await;
        }
        Ok(())
    }

    async fn reserve(&self, _addr: Addr, _bytes: u64) -> Result<(), ConnectError> {
        unreachable!("nothing is discarded here")
    }
}

impl<const SHARES: bool> Table for Simulant<SHARES> {
    type Held<'t> = Guard<'t, Simulated, Citron<SHARES>>;

    fn now(&self) -> Nanos {
        self.endpoint().now()
    }

    async fn acquire(&self, mode: Mode, units: Range<u32>) -> anyhow::Result<Self::Held<'_>> {
        let mode = if SHARES { mode } else { Mode::Exclusive };
        let want = self.placed(Extent::new(mode, units)).await?;
        Ok(self.client.acquire(self.ground.lock, want).await?)
    }

    async fn release<'t>(&'t self, held: Self::Held<'t>) -> anyhow::Result<()> {
        held.release().await?;
        self.shared.growth.borrow_mut().cycle(self.now());
        Ok(())
    }

    async fn work(&self) {
        self.endpoint().sleep(SIMULATED_WORK_NS).await;
    }
}

/// The memory of a table, by the server that owns it.
struct Memory {
    world: Handle,
    /// How long it is.
    bytes: u64,
    message_ns: Nanos,
    lengthen_ns: Nanos,
}

impl Memory {
    /// Makes it as long as clients ask for, one after the other.
    async fn serve(mut self, endpoint: SimEndpoint) {
        loop {
            let Some(letter) = endpoint.receive(OWNER_SLOT) else {
                endpoint.wait(Wait { mail: Some(OWNER_SLOT), ..Wait::default() }).await;
                continue;
            };
            let [from, end, ..] = letter.message;
            let end = Addr::from_bits(end);
            let missing = end.offset().saturating_sub(self.bytes);
            endpoint.sleep(self.message_ns + if missing > 0 { self.lengthen_ns } else { 0 }).await;
            if missing > 0 {
                self.world.grow(end.region(), missing);
                self.bytes += missing;
            }
            // The next letter does not wait until this answer is there.
            let to = Mailbox::from_bits(from);
            let _ = endpoint.post(Verb::Send { to, message: [0; 4] });
        }
    }
}

fn play<const SHARES: bool>(
    args: &SpreadingArgs,
    testbed: &Testbed,
    kind: Citron<SHARES>,
) -> anyhow::Result<Spreading> {
    let (world, seats) = world(args, testbed)?;
    let owner = world.endpoint_at(seats.apart(OWNER));
    let ground = lay_out(&world, args, testbed, kind, owner)?;
    let clients = args.clients();
    let words = (0..Judge::words(clients.into())).map(|_| AtomicU64::new(0)).collect();
    let (phase, growth) = (Phase::default(), RefCell::default());
    let shared = Rc::new(Shared { words, phase, growth });
    let director = world.endpoint_at(seats.apart(DIRECTOR));
    let tasks: Vec<Task<anyhow::Result<Trace>>> = (0..clients)
        .map(|number| {
            let endpoint = world.endpoint_at(seats.of(number));
            let (id, ground, shared) = (endpoint.id(), ground.clone(), Rc::clone(&shared));
            let simulant = Simulant::new(endpoint, ground, Rc::clone(&shared));
            let asks = asks(args, &shared, number);
            world.spawn(id, async move {
                let judge = Judge::new(&shared.words, clients.into());
                use_table(&simulant, asks, Holds::new(judge, number.into())).await
            })
        })
        .collect();
    // Which peers are dead need not be asked of any peer.
    world.introduce();
    direct(&world, &director, args, &shared);
    let traces = finish(&world, tasks)?;
    ensure_free(&world, Simulant::new(director, ground, Rc::clone(&shared)))?;
    let growth = Some(shared.growth.take());
    Ok(Spreading { growth, ..Spreading::of(traces) })
}

/// What a client asks for.
fn asks(args: &SpreadingArgs, shared: &Rc<Shared>, number: u16) -> Box<dyn Iterator<Item = Asked>> {
    match args.workload {
        WorkloadKind::Random => Box::new(Drawn::new(Rc::clone(shared), args.seed, number.into())),
        WorkloadKind::HardWrite => {
            Box::new(Written::new(number.into(), args.clients(), args.writes))
        }
    }
}

/// Lets phases begin and end, where there are some.
fn direct(world: &World, director: &SimEndpoint, args: &SpreadingArgs, shared: &Rc<Shared>) {
    if args.workload == WorkloadKind::HardWrite {
        return;
    }
    let (phase_ns, shared, director) = (args.phase_ns(), Rc::clone(shared), director.clone());
    world.spawn(director.id(), async move {
        for _ in 0..STEPS {
            director.sleep(phase_ns).await;
            shared.phase.is_next();
        }
    });
}

fn finish(world: &World, tasks: Vec<Task<anyhow::Result<Trace>>>) -> anyhow::Result<Vec<Trace>> {
    let ended = world.run();
    ensure!(ended == Ended::Finished, "the simulated world ended in {ended:?}");
    let trace =
        |task: Task<anyhow::Result<Trace>>| task.take().context("a client has not ended")?;
    tasks.into_iter().map(trace).collect()
}

/// When all have left, one client has all of the table: nothing was left behind in it.
fn ensure_free<const SHARES: bool>(
    world: &World,
    simulant: Simulant<SHARES>,
) -> anyhow::Result<()> {
    let id = simulant.endpoint().id();
    let task = world.spawn(id, async move {
        let want = simulant.placed(Mode::Exclusive.into()).await?;
        let lock = simulant.ground.lock;
        let held = simulant.client.acquire_within(lock, want, FREE_WITHIN_NS).await?;
        Ok(held.release().await?)
    });
    let ended = world.run();
    ensure!(ended == Ended::Finished, "the simulated world ended in {ended:?}");
    let freed: anyhow::Result<()> = task.take().context("the last client has not ended")?;
    freed.context("something of the table is held though all have left")
}

/// Where endpoints sit.
struct Seats {
    machines: u16,
    each: u16,
}

impl Seats {
    /// That of the client with this number: machines have as many as each other.
    const fn of(&self, client: u16) -> u16 {
        client % self.machines * self.each + client / self.machines + 1
    }

    /// One of the machine that has no clients.
    const fn apart(&self, place: u16) -> u16 {
        self.machines * self.each + place
    }
}

fn world(args: &SpreadingArgs, testbed: &Testbed) -> anyhow::Result<(World, Seats)> {
    let clients = args.clients();
    let machines = testbed.machines()?;
    let seats = Seats {
        machines: testbed.client("machines").map_or(Ok(1), u16::try_from)?,
        each: machines.map_or(clients, |machines| machines.endpoints_each),
    };
    let most = seats.machines * seats.each;
    ensure!(clients <= most, "the testbed '{}' has {most} clients: --clients", args.testbed);
    let default = Config::default();
    let world = World::new(Config {
        seed: args.seed,
        endpoints: seats.apart(DIRECTOR),
        // As in other measurements: how weak memory may be is the checker's matter.
        weakness: Weakness::NONE,
        mailbox_cells: default.mailbox_cells.max(2 * usize::from(clients)),
        nic: testbed.nic()?,
        machines,
        ..default
    });
    Ok((world, seats))
}

/// A table's memory: its own words, and behind them the log and as yet no blocks, or all of them.
fn lay_out<const SHARES: bool>(
    world: &World,
    args: &SpreadingArgs,
    testbed: &Testbed,
    mut kind: Citron<SHARES>,
    owner: SimEndpoint,
) -> anyhow::Result<Ground<SHARES>> {
    let id = owner.id();
    let message_ns = testbed.server("message").context("what a message costs a server")?;
    if args.whole {
        let lock = world.region(world.node(), kind.bytes());
        return Ok(Ground { kind, lock, blocks: None, owner: id });
    }
    ensure!(kind.crown > 0, "a tree without a crown has no blocks, and does not grow: --whole");
    let block_bytes = kind.block_bytes();
    // How long its own words are it says once it knows where the blocks lie, which is no matter.
    kind.blocks = Some(Addr::from_bits(0));
    let own = kind.bytes().next_multiple_of(64);
    let bytes = own + LOG_BYTES;
    let lock = world.growing_region(world.node(), bytes, bytes + blocks::bytes(block_bytes));
    let log = Blocks::at(lock.plus(own), block_bytes);
    kind.blocks = Some(log.base());
    let (world_handle, lengthen_ns) = (world.handle(), args.lengthen_ns);
    let memory = Memory { world: world_handle, bytes, message_ns, lengthen_ns };
    world.spawn_server(id, memory.serve(owner));
    Ok(Ground { kind, lock, blocks: Some(log), owner: id })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::arguments;
    use crate::spreading::measure;

    fn rows(line: &str) -> anyhow::Result<Vec<crate::spreading::Row>> {
        measure(&arguments(&format!("--fabric sim {line}")).unwrap())
    }

    /// Writers go past the first 2^18 units, and past 2^19: two blocks come, and no write is lost.
    #[test]
    fn writers_have_all_their_ranges_while_the_table_grows() {
        let line = "--workload hard-write --clients 24 --writes 46000";
        let (grown, whole) = (rows(line).unwrap(), rows(&format!("{line} --whole")).unwrap());
        for rows in [&grown, &whole] {
            assert_eq!(rows.iter().map(|row| row.acquisitions).sum::<u64>(), 46_000);
            assert!(rows.iter().all(|row| row.violations == 0), "{rows:?}");
        }
        let blocks = |rows: &[crate::spreading::Row]| {
            rows.iter().filter_map(|row| row.growth).map(|growth| growth.blocks).sum::<u64>()
        };
        assert_eq!([blocks(&grown), blocks(&whole)], [2, 0]);
    }

    #[test]
    fn every_number_of_units_is_asked_for_and_blocks_come_as_they_are_needed() {
        let rows = rows("--clients 8 --phase-ms 1 --lock citron:levels=12:crown=5").unwrap();
        assert_eq!(rows.len(), STEPS);
        assert!(rows.iter().all(|row| row.violations == 0 && row.acquisitions > 0), "{rows:?}");
        let has_grown = |row: &&crate::spreading::Row| row.growth.is_some();
        assert!(!rows.iter().take(5).any(|row| row.growth.is_some()), "2^18 are there: {rows:?}");
        assert!(rows.last().iter().all(has_grown), "{rows:?}");
    }

    #[test]
    fn what_cannot_grow_is_refused() {
        for lock in ["citron:levels=12", "mcs", "citron:crown=99"] {
            assert!(rows(&format!("--lock {lock}")).is_err(), "{lock}");
        }
    }
}
