//! What a measurement has come to.

use comfy_table::Table;
use farlock_kv::{Counts, Index};
use farlock_sim::{Kind, World};
use serde::Serialize;

use super::cluster::Stores;
use super::course::Done;
use super::spec::{IndexKind, Mix, Setting, Sync, YcsbArgs};
use crate::latency::Summary;
use crate::record::{duration, grouped};
use crate::report::table_of;
use crate::workload::Dist;

/// What was measured. Shares are of 1.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Which index.
    pub index: IndexKind,
    /// How writers take turns.
    pub sync: Sync,
    /// How rivals are built.
    pub setting: Setting,
    /// What clients do.
    pub workload: Mix,
    /// How many.
    pub clients: u16,
    /// Compute nodes.
    pub cns: u16,
    /// Pairs.
    pub records: u64,
    /// Which of them how often.
    pub dist: Dist,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Whether clients of one compute node combine their writes.
    pub local_combining: bool,
    /// Whether they read together what they read of one key at once.
    pub read_delegation: bool,
    /// Operations that were measured.
    pub operations: u64,
    /// How many a second.
    pub ops_per_s: f64,
    /// What they took.
    pub latency_ns: Summary,
    /// Compares that failed, of each operation.
    pub retries_per_op: f64,
    /// Writes that were combined with another client's, of all operations.
    pub wc_rate: f64,
    /// The same, of all writes.
    pub wc_rate_of_writes: f64,
    /// Of the writes that were combined: with one of the same compute node, of all operations.
    pub wc_rate_local: f64,
    /// Writes that waited for others of their key and were not combined with them, of all
    /// operations: what more could have been combined (CIDER, section 3.1).
    pub blocked_rate: f64,
    /// Reads that another one of the same compute node stood for, of all operations.
    pub delegated_rate: f64,
    /// Writes that one change stood for, where it stood for more than one.
    pub wc_batch: f64,
    /// Writes that got in line, of all operations.
    pub pessimistic_ratio: f64,
    /// Of the writes that got in line: those that were combined.
    pub pessimistic_combined: f64,
    /// Of the writes that met others in line, or should have been there since they missed more
    /// often than makes a key hot: those that were there.
    pub choice_accuracy: f64,
    /// Of each operation.
    pub verbs_per_op: Verbs,
    /// Reads and sums that cannot be right.
    pub violations: u64,
    /// What decided everything random.
    pub seed: u64,
}

/// Verbs by kind.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Verbs {
    /// Compares and additions.
    pub atomics: f64,
    /// Reads of any length.
    pub reads: f64,
    /// Writes of any length.
    pub writes: f64,
    /// Messages.
    pub sends: f64,
}

/// How often things had happened by a moment, at all clients.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    now: u64,
    posted: [u64; Kind::COUNT],
    changes: u64,
    retries: u64,
    combined: u64,
    local: u64,
    local_batches: u64,
    blocked: u64,
    delegated: u64,
    in_line: u64,
    in_line_combined: u64,
    batches: u64,
    accompanied: u64,
    overlooked: u64,
}

impl Counted {
    pub(super) fn of<I: Index>(world: &World, nodes: &[Stores<I>]) -> Self {
        let (now, posted) = (world.now(), world.stats().posted);
        let mut sum = Self { now, posted, ..Self::default() };
        for store in nodes.iter().flatten() {
            let Counts { changes, combined, retries, delegated, .. } = store.counts();
            let line = store.scheme().counts(changes);
            let (local, local_batches) = store.scheme().local();
            sum.changes += changes;
            sum.retries += retries;
            sum.combined += combined;
            sum.local += local;
            sum.local_batches += local_batches;
            sum.delegated += delegated;
            sum.blocked += store.scheme().blocked();
            sum.in_line += line.pessimistic;
            sum.in_line_combined += line.combined;
            sum.batches += line.batches;
            sum.accompanied += line.accompanied;
            sum.overlooked += line.overlooked;
        }
        sum
    }
}

impl Verbs {
    /// Those of so many operations, posted from one moment to another.
    fn between(before: &Counted, after: &Counted, operations: u64) -> Self {
        let posted = |kinds: &[Kind]| {
            let of = |&kind: &Kind| after.posted[kind as usize] - before.posted[kind as usize];
            share(kinds.iter().map(of).sum(), operations)
        };
        Self {
            atomics: posted(&[
                Kind::Cas64,
                Kind::Faa64,
                Kind::MaskedCas64,
                Kind::MaskedFaa64,
                Kind::MaskedCas128,
                Kind::MaskedFaa128,
            ]),
            reads: posted(&[Kind::Read]),
            writes: posted(&[Kind::Write]),
            sends: posted(&[Kind::Send]),
        }
    }
}

/// A part of a whole, to six places.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64 * 1e6).round() / 1e6 }
}

impl Row {
    pub(super) fn new(args: &YcsbArgs, done: &Done, before: &Counted, after: &Counted) -> Self {
        let since = |count: fn(&Counted) -> u64| count(after) - count(before);
        let operations = done.latency.count();
        let (combined, in_line) = (since(|c| c.combined), since(|c| c.in_line));
        // What is combined in a line is of one compute node each.
        let (of_lines, lines) = (since(|c| c.in_line_combined), since(|c| c.batches));
        let (stood_for, batches) = match lines {
            0 => (since(|c| c.local), since(|c| c.local_batches)),
            _ => (of_lines, lines),
        };
        let accompanied = since(|c| c.accompanied);
        let seconds = since(|c| c.now) as f64 / 1e9;
        Self {
            index: args.index,
            sync: args.sync,
            setting: args.setting,
            workload: args.workload,
            clients: args.clients,
            cns: args.nodes(),
            records: args.records,
            dist: args.dist,
            value_bytes: args.value_bytes,
            local_combining: !args.no_local_combining,
            read_delegation: args.read_delegation,
            operations,
            ops_per_s: (operations as f64 / seconds).round(),
            latency_ns: done.latency.summary(),
            retries_per_op: share(since(|c| c.retries), operations),
            wc_rate: share(combined, operations),
            wc_rate_of_writes: share(combined, since(|c| c.changes)),
            wc_rate_local: share(since(|c| c.local), operations),
            delegated_rate: share(since(|c| c.delegated), operations),
            blocked_rate: share(since(|c| c.blocked), operations),
            wc_batch: if batches == 0 { 1.0 } else { 1.0 + share(stood_for, batches) },
            pessimistic_ratio: share(in_line, operations),
            pessimistic_combined: share(of_lines, in_line),
            choice_accuracy: share(accompanied, accompanied + since(|c| c.overlooked)),
            verbs_per_op: Verbs::between(before, after, operations),
            violations: done.ledger.violations(),
            seed: args.seed,
        }
    }
}

pub(super) fn table(rows: &[Row]) -> Table {
    let rows = rows.iter().map(|row| {
        let percent = |share: f64| format!("{:.2} %", share * 100.0);
        vec![
            format!("{:?}", row.sync),
            grouped(row.ops_per_s as u64),
            duration(row.latency_ns.p50),
            duration(row.latency_ns.p99),
            format!("{:.3}", row.retries_per_op),
            percent(row.wc_rate),
            format!("{:.2}", row.wc_batch),
            percent(row.pessimistic_ratio),
            row.violations.to_string(),
        ]
    });
    let head = ["", "ops/s", "p50", "p99", "retries", "combined", "batch", "in line", "violations"];
    table_of(&head, 1, rows)
}
