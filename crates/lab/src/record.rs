//! A row: what `bench` says of one subject, as a line of JSON or of a table.

use comfy_table::Table;
use serde::{Deserialize, Serialize};

use crate::latency::Summary;
use crate::range_course::Lengths;
use crate::report::table_of;
use crate::transactions::TxnCourse;

/// What was measured of one subject. Rates are of the median round, durations of all.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The subject, as the command line names it.
    pub protocol: String,
    /// `shm` or `sim`.
    pub fabric: String,
    /// How many clients.
    pub clients: usize,
    /// How many tasks each client has.
    pub tasks: usize,
    /// How many threads each client has, on one session.
    pub threads: usize,
    /// How often tasks of a client hand a hold on among themselves, at most.
    pub handovers: u32,
    /// How many locks.
    pub locks: u64,
    /// Which of them how often.
    pub dist: String,
    /// Requests in a hundred that are shared.
    pub reads: u8,
    /// How long the median round was measured; virtual time in a simulation.
    pub seconds: f64,
    /// Completed cycles of acquire and release in that time.
    pub acquisitions: u64,
    /// Their rate.
    pub goodput_per_s: f64,
    /// How long acquisitions took, sampled.
    pub acquire_ns: Summary,
    /// Verbs posted for each.
    pub per_acquisition: PerAcquisition,
    /// Jain's index of the clients' acquisitions.
    pub fairness_jain: f64,
    /// Overlaps that the judge saw, in all rounds.
    pub violations: u64,
    /// The seed.
    pub seed: u64,
    /// `async` or `blocking`.
    pub face: String,
    /// `session`, `command`, `client` for a lock's client below them, `system` for a rival.
    pub measured_at: String,
    /// Where clients ran; `virtual` in a simulation.
    pub placement: String,
    /// Rounds, interleaved with those of the other subjects.
    pub rounds: usize,
    /// Work inside the critical section, in nanoseconds.
    pub hold_ns: u64,
    /// Work between cycles, in nanoseconds.
    pub think_ns: u64,
    /// The probability with which holders never released.
    pub skip_release: f64,
    /// After so many acquisitions each lock's counts wrapped or were reset, if it began near that.
    pub near_wrap: Option<u16>,
    /// Acquisitions that were never released.
    pub skipped: u64,
    /// Acquisitions that were released after the end of their lease.
    pub lost: u64,
    /// What one client needs for a cycle, in nanoseconds.
    pub cycle_ns: PerFace<f64>,
    /// With one client: the median over the rounds of the cycle divided by that of `raw`.
    pub ratio_to_raw: PerFace<f64>,
    /// With one client: the fastest round divided by the fastest of `raw`.
    pub ratio_to_raw_min: PerFace<f64>,
    /// The median over the rounds of the cycle divided by that of `flock`, if it was measured.
    pub ratio_to_flock: Option<f64>,
    /// With several threads: the median over the rounds of the rate divided by that of one thread,
    /// if it was measured.
    pub speedup: Option<f64>,
    /// What a quarter of the rounds stayed at or below.
    pub p25: Quarter,
    /// What ranges came to, if cycles were of ranges.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub ranges: Option<RangeRow>,
    /// What transactions came to, if cycles were transactions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub txn: Option<TxnRow>,
}

/// What ranges came to.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct RangeRow {
    /// How long each was: so many units, or a mix.
    pub range: Lengths,
    /// Units of the lock.
    pub space: u32,
    /// Each began at a multiple of this.
    pub align: u32,
    /// Requests that, when they began, met what is covered for others that asked or held, but no
    /// units of theirs.
    pub false_conflicts: u64,
    /// Claims that were undone, or refused, and made again.
    pub aborts: u64,
    /// Those among them that were undone since they took longer than others wait for them.
    #[serde(default)]
    pub late: u64,
}

/// What transactions came to. A row's acquisitions are then commits, its times those from a
/// transaction's beginning to its commit, restarts included.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct TxnRow {
    /// What each was like.
    #[serde(flatten)]
    pub course: TxnCourse,
    /// Commits, of the median round.
    pub commits: u64,
    /// Their rate.
    pub commits_per_s: f64,
    /// Attempts that ended without a commit.
    pub aborts: u64,
    /// Transactions that were given up for good.
    pub given_up: u64,
}

/// Verbs for each acquisition, with its release.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PerAcquisition {
    /// Atomics of any kind.
    pub atomics: f64,
    /// Reads.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
    /// Messages.
    pub sends: f64,
}

/// What a quarter of the rounds stayed at or below.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Quarter {
    /// The rate.
    pub goodput_per_s: f64,
    /// What one client needed for a cycle, in nanoseconds.
    pub cycle_ns: f64,
    /// With one client: that divided by the cycle of `raw` in the same round.
    pub ratio_to_raw: Option<f64>,
    /// The same with `flock`, if it was measured.
    pub ratio_to_flock: Option<f64>,
}

/// A figure of each face that was measured. A subject that has no faces has the same in both.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PerFace<T> {
    /// Of the async face.
    #[serde(rename = "async")]
    pub awaited: Option<T>,
    /// Of the blocking face.
    pub blocking: Option<T>,
}

/// Rows as people read them.
pub fn table(rows: &[Row]) -> Table {
    let alone = rows.iter().all(|row| row.clients == 1 && row.fabric == "shm");
    let mut header = vec!["lock", "acquisitions/s", "p50", "p99", "p99.9", "max"];
    let counted = rows.iter().any(|row| row.per_acquisition != PerAcquisition::default());
    header.extend(if counted { ["atomics", "reads", "writes", "sends"].as_slice() } else { &[] });
    let txn = rows.iter().any(|row| row.txn.is_some());
    header.extend(if txn { ["aborts", "given up"].as_slice() } else { &[] });
    let ranges = rows.iter().any(|row| row.ranges.is_some());
    header.extend(if ranges { ["false conflicts", "aborts", "late"].as_slice() } else { &[] });
    header.extend(if alone { ["async", "blocking"].as_slice() } else { &["fairness"] });
    let flock = rows.iter().any(|row| row.ratio_to_flock.is_some());
    let threads = rows.iter().any(|row| row.threads > 1);
    header.extend(flock.then_some("x flock"));
    header.extend(if threads { ["threads", "speedup"].as_slice() } else { &[] });
    header.push("violations");
    let cells = |row: &Row| {
        let mut cells = cells_of(row, alone, counted);
        let ratio =
            |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        cells.extend(flock.then(|| ratio(row.ratio_to_flock)));
        cells.extend(threads.then(|| row.threads.to_string()));
        cells.extend(threads.then(|| ratio(row.speedup)));
        cells.push(grouped(row.violations));
        cells
    };
    table_of(&header, 1, rows.iter().map(cells))
}

fn cells_of(row: &Row, alone: bool, counted: bool) -> Vec<String> {
    let verbs = row.per_acquisition;
    let mut cells = vec![row.protocol.clone(), grouped(row.goodput_per_s.round() as u64)];
    let acquire = &row.acquire_ns;
    cells.extend([acquire.p50, acquire.p99, acquire.p999, acquire.max].map(duration));
    let counts = [verbs.atomics, verbs.reads, verbs.writes, verbs.sends];
    // Of who uses no client, nobody counts verbs.
    let count = |count| match verbs == PerAcquisition::default() {
        true => "-".to_owned(),
        false => format!("{count:.2}"),
    };
    cells.extend(counts.map(count).into_iter().filter(|_| counted));
    cells.extend(row.txn.iter().flat_map(|txn| [txn.aborts, txn.given_up]).map(grouped));
    let of_ranges = row.ranges.iter().flat_map(|row| [row.false_conflicts, row.aborts, row.late]);
    cells.extend(of_ranges.map(grouped));
    if alone {
        // What was measured at its one face stands there.
        let is_there = |face| row.measured_at == "client" || row.face == face;
        let faces = [
            (is_there("async"), row.cycle_ns.awaited, row.ratio_to_raw.awaited),
            (is_there("blocking"), row.cycle_ns.blocking, row.ratio_to_raw.blocking),
        ];
        cells.extend(faces.map(|(is_there, cycle, ratio)| match (cycle, ratio) {
            (Some(cycle), Some(ratio)) if is_there => {
                format!("{}  {}", cycle_in(cycle), times(ratio))
            }
            _ => "-".to_owned(),
        }));
    } else {
        cells.push(format!("{:.3}", row.fairness_jain));
    }
    cells
}

/// The time of a cycle, in the unit that suits it.
fn cycle_in(nanos: f64) -> String {
    if nanos < 10_000.0 { format!("{nanos:.1} ns") } else { duration(nanos.round() as u64) }
}

/// So many times the floor.
fn times(ratio: f64) -> String {
    if ratio < 1_000.0 { format!("{ratio:.2} x raw") } else { format!("{ratio:.0} x raw") }
}

/// A duration in the unit that suits it.
pub(crate) fn duration(nanos: u64) -> String {
    match nanos {
        0..10_000 => format!("{nanos} ns"),
        10_000..10_000_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        _ => format!("{:.1} s", nanos as f64 / 1e9),
    }
}

/// A number with its thousands apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_durations_have_units() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let durations = [15, 12_300, 12_300_000, 12_300_000_000].map(duration);
        assert_eq!(durations, ["15 ns", "12.3 µs", "12.3 ms", "12.3 s"]);
    }
}
