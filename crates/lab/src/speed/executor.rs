//! The bare executor: verbs of many clients on many words, and no lock, no judge.

use std::time::Instant;

use anyhow::ensure;
use farlock_fabric::Endpoint;
use farlock_sim::{Config, Ended, Weakness, World};

use super::figure::{Course, Figure, Parameters, Round};

const CLIENTS: u16 = 240;
/// More than any cache holds: as large as the table of 10 M locks of 8 bytes.
const WORDS: u64 = 10_000_000;
const VERBS_PER_CLIENT: u64 = 10_000;

/// Events a second.
pub(super) fn bare() -> Figure {
    let parameters = Parameters {
        figure: "events",
        subject: "executor",
        unit: "events",
        clients: CLIENTS,
        locks: WORDS,
        reads: 0,
    };
    Figure { parameters, run: Box::new(run) }
}

fn run(course: Course) -> anyhow::Result<Round> {
    let (seed, weakness) = (course.seed, Weakness::NONE);
    let world = World::new(Config { seed, endpoints: CLIENTS, weakness, ..Config::default() });
    let base = world.region(world.node(), WORDS * 8);
    let verbs = course.scaled(VERBS_PER_CLIENT);
    for _ in 0..CLIENTS {
        let endpoint = world.endpoint();
        world.spawn(endpoint.id(), async move {
            for _ in 0..verbs {
                let word = ((endpoint.random() >> 32) * WORDS) >> 32;
                endpoint.faa64(base.plus(word * 8), 1).await.expect("every word exists");
            }
        });
    }
    let begun = Instant::now();
    let ended = world.run();
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(ended == Ended::Finished, "the world ended in {ended:?}");
    Ok(Round { count: world.stats().events, hash: world.trace_hash(), seconds })
}
