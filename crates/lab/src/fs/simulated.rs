//! The file system on simulated machines: a server with locks and metadata, and machines of clients
//! of which each is a data node as well, as CitronFS was measured.

use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use anyhow::Context;
use farlock_fabric::{Addr, Endpoint};
use farlock_locks::registry;
use farlock_sim::{Machines, Task, World};

use super::client::FsClient;
use super::course::FsCourse;
use super::judge::lost_writes;
use super::layout::Layout;
use crate::bench::simulated::{begin_service, config, direct, finish};
use crate::bench::trial::{Arena, Outcome, Trial};
use crate::drive::{Failure, Tally};
use crate::subject::Simulated;
use crate::testbed::Testbed;

/// The place of the director, which gives the signals: behind a lock server, on its machine.
const DIRECTOR: u16 = 2;

/// Runs a trial in a world of its own.
pub(super) fn run(trial: &Trial, course: &FsCourse, testbed: &Testbed) -> anyhow::Result<Outcome> {
    let (world, each) = world(trial, course, testbed)?;
    let layout = Rc::new(layout(&world, trial, course)?);
    let arena = Arena::of(trial);
    let words: Rc<[AtomicU64]> =
        (0..arena.words_before_locks()).map(|_| AtomicU64::new(0)).collect();
    let server = begin_service(&world, &trial.subject)?;
    let subject = registry::served_by(&trial.subject, server);
    let signals = world.endpoint_at(DIRECTOR);
    let mut clients: Vec<Task<Result<Tally, Failure>>> = Vec::new();
    for number in 0..trial.clients {
        let (machine, place) = (number % course.machines, number / course.machines);
        let index = (machine as u16 + 1) * each + place as u16 + 1;
        let endpoint = Simulated::new(world.endpoint_at(index));
        let id = endpoint.id();
        let laps = FsClient::new(&subject, endpoint, Rc::clone(&layout), *course, number)?;
        let (trial, words) = (trial.clone(), Rc::clone(&words));
        clients.push(world.spawn(id, async move {
            let (judge, control) = (arena.judge(&words), arena.control(&words));
            trial.drive(&laps, number, judge, control).await
        }));
    }
    // Which peers are dead need not be asked of any peer.
    world.introduce();
    direct(&world, signals, &words, trial);
    let tallies = finish(&world, clients)?;
    let lost = lost_writes(course, &layout, arena.judge(&words), |addr| world.peek(addr));
    Ok(Outcome { tallies, lost })
}

/// The machines, and how many endpoints each has.
fn world(trial: &Trial, course: &FsCourse, testbed: &Testbed) -> anyhow::Result<(World, u16)> {
    let mut config = config(trial, Some(testbed))?;
    let machines = config.machines.context("the testbed says nothing of clients")?;
    let each = machines.endpoints_each;
    let here = trial.clients.div_ceil(course.machines);
    anyhow::ensure!(here <= each.into(), "a machine has {each} clients at the most");
    config.machines = Some(Machines { have_nodes: true, ..machines });
    config.endpoints = each * (course.machines as u16 + 1);
    Ok((World::new(config), each))
}

/// The files on these machines, whose first one has the metadata.
fn layout(world: &World, trial: &Trial, course: &FsCourse) -> anyhow::Result<Layout> {
    let shape = course.shape(registry::kind(&trial.subject)?.bytes());
    let metadata = world.region(world.node(), shape.metadata_bytes());
    let bytes = shape.data_bytes(course.machines as u64);
    let data: Vec<Addr> = (0..course.machines)
        .map(|_| match course.has_bytes {
            true => world.region(world.node(), bytes),
            false => world.hollow_region(world.node(), bytes),
        })
        .collect();
    Ok(Layout::new(shape, metadata, data))
}
