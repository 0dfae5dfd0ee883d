//! Clients as tasks of one simulated world: seconds are virtual, and the same trial gives the same
//! account on every machine.

use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, bail};
use farlock_fabric::{Addr, Endpoint, EndpointId};
use farlock_locks::registry::{self, SpecError, Visitor};
use farlock_locks::{Client, Lock};
use farlock_sim::{Config, Ended, SimEndpoint, Task, Weakness, World};

use super::trial::{Arena, Outcome, Span, Trial};
use crate::drive::{Cycles, Failure, Laps, Phase, Tally};
use crate::range_course::OwnRanges;
use crate::ranges::Ranges;
use crate::subject::{ServeAt, SharedFace, Simulated};
use crate::testbed::Testbed;
use crate::transactions::Transactions;

/// Mailboxes of a range server's endpoint: one for each core that it may have.
const SERVER_SLOTS: u8 = 64;

/// What a run cost outside of the simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effort {
    /// Events of the world.
    pub events: u64,
}

/// Runs a trial in a world of its own.
pub fn run(trial: &Trial, testbed: Option<&Testbed>) -> anyhow::Result<(Outcome, Effort)> {
    let world = World::new(config(trial, testbed)?);
    let arena = Arena::of(trial);
    // Of the arena's words the world has the locks; the others are nobody's verbs' business.
    let own = arena.words_before_locks();
    let locks = world.region(world.node(), (arena.words() - own) as u64 * 8);
    for (place, word) in arena.begun(trial)? {
        world.poke(locks.plus(place as u64 * 8), word);
    }
    let words: Rc<[AtomicU64]> = (0..own).map(|_| AtomicU64::new(0)).collect();
    let server = begin_service(&world, &trial.subject)?;
    let subject = registry::served_by(&trial.subject, server);
    let clients: Vec<Task<Result<Tally, Failure>>> = (0..trial.clients)
        .map(|number| {
            let endpoint = Simulated::new(world.endpoint());
            let id = endpoint.id();
            let laps = registry::visit(&subject, MakeLaps { endpoint, trial, locks, number })?;
            let (trial, words) = (trial.clone(), Rc::clone(&words));
            Ok(world.spawn(id, async move {
                let (judge, control) = (arena.judge(&words), arena.control(&words));
                trial.drive(&*laps, number, judge, control).await
            }))
        })
        .collect::<Result<_, SpecError>>()?;
    direct(&world, world.endpoint(), &words, trial);
    let tallies = finish(&world, clients)?;
    let exclusive = tallies.iter().map(|tally| tally.exclusive).sum();
    let lost = arena.judge(&words).lost(exclusive);
    Ok((Outcome { tallies, lost }, Effort { events: world.stats().events }))
}

/// Runs a world to its end, and returns what its clients say.
pub(crate) fn finish(
    world: &World,
    clients: Vec<Task<Result<Tally, Failure>>>,
) -> anyhow::Result<Vec<Tally>> {
    match world.run() {
        Ended::Finished => {}
        ended => bail!("the simulated world ended in {ended:?}"),
    }
    let mut tallies = Vec::with_capacity(clients.len());
    for client in clients {
        tallies.push(client.take().context("a client has not finished")??);
    }
    Ok(tallies)
}

/// The world of a trial.
pub(crate) fn config(trial: &Trial, testbed: Option<&Testbed>) -> anyhow::Result<Config> {
    // One more gives the signals, and one may be a lock server.
    let endpoints = u16::try_from(trial.clients + 2).context("too many clients")?;
    let slots = trial.tasks.max(trial.txn.map_or(0, |txn| txn.locks_each.into()));
    let slots = u8::try_from(slots).context("too many tasks")?;
    let default = Config::default();
    let mut config = Config {
        seed: trial.workload.seed,
        endpoints,
        // A figure is of the hardware as the model has it; how weak it may be is the checker's
        // matter.
        weakness: Weakness::NONE,
        slots_per_endpoint: default.slots_per_endpoint.max(slots),
        ..default
    };
    let in_parts = trial.workload.ranges.is_some() || trial.fs.is_some();
    if in_parts && registry::promises(&trial.subject)?.served {
        // Each core of a server has a mailbox, with room for a letter of each client.
        config.slots_per_endpoint = config.slots_per_endpoint.max(SERVER_SLOTS);
        config.mailbox_cells = config.mailbox_cells.max(2 * trial.clients);
    }
    if let Some(testbed) = testbed {
        (config.nic, config.machines) = (testbed.nic()?, testbed.machines()?);
    }
    Ok(config)
}

/// Gives the signals at their times.
pub(crate) fn direct(world: &World, endpoint: SimEndpoint, words: &Rc<[AtomicU64]>, trial: &Trial) {
    let arena = Arena::of(trial);
    if let Span::Acquisitions(cycles) = trial.span {
        arena.control(words).set_budget(cycles);
    }
    arena.control(words).begin(Phase::WarmUp);
    let (words, warm_up, span) = (Rc::clone(words), trial.warm_up_ns, trial.span);
    world.spawn(endpoint.id(), async move {
        let control = arena.control(&words);
        endpoint.sleep(warm_up).await;
        control.begin(Phase::Measured);
        if let Span::Nanos(nanos) = span {
            endpoint.sleep(nanos).await;
            control.begin(Phase::Over);
        }
    });
}

/// The server of this lock, if it has one.
pub(crate) fn begin_service(world: &World, subject: &str) -> anyhow::Result<Option<EndpointId>> {
    if !registry::promises(subject)?.served {
        return Ok(None);
    }
    let endpoint = Simulated::new(world.endpoint());
    let id = endpoint.id();
    let server = registry::visit(subject, ServeAt(Rc::new(endpoint)))?;
    world.spawn_server(id, server);
    Ok(Some(id))
}

/// What a client of the lock that is visited does again and again.
struct MakeLaps<'a> {
    endpoint: Simulated,
    trial: &'a Trial,
    locks: Addr,
    /// Which client it is.
    number: usize,
}

impl Visitor<Simulated> for MakeLaps<'_> {
    type Output = Box<dyn Laps>;

    fn asks_for_size(&self) -> bool {
        self.trial.workload.ranges.is_some()
    }

    fn visit<L: Lock<Simulated>>(self, lock: L) -> Box<dyn Laps> {
        let kind = lock.clone();
        let client = Client::new(self.endpoint, lock, farlock_locks::Options::default());
        if let Some(ranges) = self.trial.workload.ranges {
            let own = OwnRanges::new(ranges, self.number);
            return Box::new(Ranges::new(client, kind, self.locks, own));
        }
        match self.trial.txn {
            Some(course) => {
                let number = (self.number, self.trial.clients);
                Box::new(Transactions::new(client, self.locks, course, number))
            }
            // Where nothing is handed on, this asks the client for every lock.
            None => {
                let subject = SharedFace::new(client, self.locks, self.trial.handovers_max);
                Box::new(Cycles(Box::new(subject)))
            }
        }
    }
}
