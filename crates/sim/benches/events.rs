//! How fast the world turns: 240 clients adding to random words of a region of 10 M.
//!
//! `cargo bench -p farlock-sim` prints events and verbs per second of one core, the median of five
//! runs, and the hash of the run.

use std::time::Instant;

use farlock_fabric::Endpoint;
use farlock_sim::{Config, Ended, Weakness, World};

const CLIENTS: u16 = 240;
const WORDS: u64 = 10_000_000;
const VERBS_PER_CLIENT: u64 = 20_000;

fn main() {
    let mut rates = Vec::new();
    for _ in 0..5 {
        let config =
            Config { seed: 1, endpoints: CLIENTS, weakness: Weakness::NONE, ..Config::default() };
        let world = World::new(config);
        let base = world.region(world.node(), WORDS * 8);
        for _ in 0..CLIENTS {
            let endpoint = world.endpoint();
            world.spawn(endpoint.id(), async move {
                for _ in 0..VERBS_PER_CLIENT {
                    let word = ((endpoint.random() >> 32) * WORDS) >> 32;
                    endpoint.faa64(base.plus(word * 8), 1).await.expect("every word exists");
                }
            });
        }
        let begun = Instant::now();
        assert_eq!(world.run(), Ended::Finished);
        let seconds = begun.elapsed().as_secs_f64();
        let stats = world.stats();
        rates.push((stats.events as f64 / seconds / 1e6, stats.verbs() as f64 / seconds / 1e6));
        println!(
            "{} events, {} verbs, {} us simulated in {seconds:.2} s, hash {:016x}",
            stats.events,
            stats.verbs(),
            world.now() / 1000,
            world.trace_hash(),
        );
    }
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    println!("median: {:.1} M events/s, {:.2} M verbs/s", rates[2].0, rates[2].1);
}
