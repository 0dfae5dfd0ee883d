//! Acquisitions a second of wall time: what `bench --fabric sim` does, from its first line to its
//! last, the making of the world included.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use clap::Parser;

use super::figure::{Course, Figure, Parameters, Round};
use crate::bench::{self, BenchArgs, simulated};

const CLIENTS: u16 = 240;
const LOCKS: u64 = 1_000;
const READS: u8 = 50;
/// Of virtual time.
const MICROSECONDS: u64 = 10_000;

/// Acquisitions a second of this lock.
pub(super) fn acquisitions(subject: &'static str) -> Figure {
    let parameters = Parameters {
        figure: "acquisitions",
        subject,
        unit: "acquisitions",
        clients: CLIENTS,
        locks: LOCKS,
        reads: READS,
    };
    Figure { parameters, run: Box::new(move |course| run(subject, course)) }
}

/// What `bench` is told.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Told {
    #[command(flatten)]
    bench: BenchArgs,
}

fn run(subject: &str, course: Course) -> anyhow::Result<Round> {
    let seconds = course.scaled(MICROSECONDS) as f64 / 1e6;
    let line = format!(
        "--fabric sim --locks-kind {subject} --clients {CLIENTS} --locks {LOCKS} --dist uniform \
         --reads {READS} --seconds {seconds} --seed {}",
        course.seed
    );
    let told = Told::try_parse_from(line.split_whitespace())?;
    let mut round = Round { count: 0, hash: 0, seconds: 0.0 };
    let mut hasher = DefaultHasher::new();
    for trial in bench::trials(&told.bench)? {
        let begun = Instant::now();
        let (outcome, effort) = simulated::run(&trial, None)?;
        round.seconds += begun.elapsed().as_secs_f64();
        round.count += outcome.acquisitions();
        (effort.events, outcome.acquisitions()).hash(&mut hasher);
    }
    round.hash = hasher.finish();
    Ok(round)
}
