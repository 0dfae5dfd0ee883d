//! What a measurement has come to.

use comfy_table::Table;
use serde::Serialize;

use super::args::{FsArgs, WorkloadKind};
use super::course::FsCourse;
use crate::bench::Fabric;
use crate::bench::trial::Outcome;
use crate::drive::Tally;
use crate::latency::{Latency, Summary};
use crate::record::{PerAcquisition, duration, grouped};
use crate::report::table_of;

/// What was measured under a lock.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// What each file was protected by.
    pub lock: String,
    /// What clients did.
    pub workload: WorkloadKind,
    /// Who executed the verbs.
    pub fabric: &'static str,
    /// The testbed that was simulated, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub testbed: Option<String>,
    /// How many clients.
    pub clients: u16,
    /// Of BT-IO: points of an edge of the cube.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grid: Option<u64>,
    /// Of BT-IO: how much of what it writes was written before it began anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<u64>,
    /// How long readers of OLTP computed between two reads, in nanoseconds.
    pub think_ns: u64,
    /// Bytes of a unit of the lock.
    pub unit: u64,
    /// Whether requests took all of a lock.
    pub whole: bool,
    /// Whether readers shared what they read.
    pub shared_reads: bool,
    /// Whether bytes were moved, or lengths alone.
    pub bytes_moved: bool,
    /// For how long, in seconds.
    pub seconds: f64,
    /// Requests that were measured.
    pub operations: u64,
    /// How many a second.
    pub ops_per_s: f64,
    /// Bytes that they read and wrote, a second.
    pub bytes_per_s: f64,
    /// What they took, their locks included.
    pub latency_ns: Latencies,
    /// Verbs of each request.
    pub per_operation: PerAcquisition,
    /// Claims of ranges that were undone or refused.
    pub aborts: u64,
    /// Requests beside others that they must not be beside, reads of what was not there, writes
    /// that were lost. `None` where lengths alone were moved: there was nothing to read.
    pub violations: Option<u64>,
    /// What decided everything random.
    pub seed: u64,
}

/// What requests took.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Latencies {
    /// All of them.
    pub all: Summary,
    /// Reads.
    pub readers: Summary,
    /// Writes.
    pub writers: Summary,
}

impl Row {
    pub(super) fn new(args: &FsArgs, course: &FsCourse, lock: &str, outcome: &Outcome) -> Self {
        let sum = |of: fn(&Tally) -> u64| outcome.tallies.iter().map(of).sum::<u64>();
        let operations = outcome.acquisitions();
        let seconds = outcome.seconds();
        let clients = outcome.tallies.iter().enumerate();
        let bytes = clients.map(|(client, tally)| tally.acquisitions * course.bytes_of(client));
        let per_second = |count: u64| (count as f64 / seconds.max(1e-9)).round();
        let verbs = |kind: usize| {
            let all: u64 = outcome.tallies.iter().map(|tally| tally.verbs[kind]).sum();
            (all as f64 / operations.max(1) as f64 * 1e3).round() / 1e3
        };
        let of_btio = args.workload == WorkloadKind::Btio;
        Self {
            lock: lock.to_owned(),
            workload: args.workload,
            fabric: if args.fabric == Fabric::Sim { "sim" } else { "shm" },
            testbed: (args.fabric == Fabric::Sim).then(|| args.testbed_name().to_owned()),
            clients: args.clients,
            grid: of_btio.then_some(args.grid),
            percent: of_btio.then_some(args.percent),
            think_ns: course.think_ns,
            unit: course.unit,
            whole: course.whole,
            shared_reads: course.shares,
            bytes_moved: course.has_bytes,
            seconds,
            operations,
            ops_per_s: per_second(operations),
            bytes_per_s: per_second(bytes.sum()),
            latency_ns: Latencies::of(&outcome.tallies),
            per_operation: PerAcquisition {
                atomics: verbs(0),
                reads: verbs(1),
                writes: verbs(2),
                sends: verbs(3),
            },
            aborts: sum(|tally| tally.aborts),
            violations: course.has_bytes.then(|| outcome.violations()),
            seed: args.seed,
        }
    }
}

impl Latencies {
    fn of(tallies: &[Tally]) -> Self {
        let [mut reads, mut writes] = [Latency::default(), Latency::default()];
        for tally in tallies {
            reads.add(&tally.reads);
            writes.add(&tally.latency);
        }
        let (readers, writers) = (reads.summary(), writes.summary());
        reads.add(&writes);
        Self { all: reads.summary(), readers, writers }
    }
}

pub(super) fn table(rows: &[Row]) -> Table {
    let rows = rows.iter().map(|row| {
        let Latencies { readers, writers, .. } = row.latency_ns;
        let verbs = row.per_operation;
        vec![
            row.lock.clone(),
            grouped(row.ops_per_s as u64),
            format!("{:.1}", row.bytes_per_s / 1e6),
            duration(readers.p50),
            duration(readers.p99),
            duration(writers.p50),
            duration(writers.p99),
            format!("{:.1}", verbs.atomics + verbs.reads + verbs.writes + verbs.sends),
            row.aborts.to_string(),
            row.violations.map_or_else(|| "-".to_owned(), |count| count.to_string()),
        ]
    });
    let head = [
        "",
        "ops/s",
        "MB/s",
        "read p50",
        "p99",
        "write p50",
        "p99",
        "verbs",
        "aborts",
        "violations",
    ];
    table_of(&head, 1, rows)
}
