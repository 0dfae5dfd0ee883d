//! What is printed: a row for each number of units.

use std::ops::Range;

use comfy_table::Table;
use farlock_fabric::Nanos;
use serde::Serialize;

use super::args::SpreadingArgs;
use super::asked::units;
use super::trace::{Growth, Spreading, Step};
use crate::bench::Fabric;
use crate::record::{duration, grouped};
use crate::report::table_of;

/// What came of one number of units.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    fabric: &'static str,
    workload: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    testbed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    whole: Option<bool>,
    clients: u16,
    /// How many were asked for by then.
    pub(crate) units: u32,
    pub(crate) acquisitions: u64,
    pub(crate) per_second: f64,
    pub(crate) mean_ns: f64,
    pub(crate) p50_ns: Nanos,
    pub(crate) p99_ns: Nanos,
    longest_ns: Nanos,
    pub(crate) violations: u64,
    /// How blocks came, where some did.
    #[serde(flatten)]
    pub growth: Option<GrowthRow>,
    seed: u64,
}

/// What there is to say of blocks that came.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct GrowthRow {
    pub(crate) blocks: u64,
    /// From the first look for a block until a client knew it.
    growth_p50_ns: Nanos,
    pub(crate) growth_max_ns: Nanos,
    /// How long clients looked for blocks that they did not know, those that made them too.
    look_p50_ns: Nanos,
    look_max_ns: Nanos,
    /// Acquisitions a second before, while blocks came, and after.
    before_per_s: f64,
    during_per_s: f64,
    after_per_s: f64,
    /// How far the rate fell at the deepest, in 20 µs, below the lower one of those before and
    /// after, each over 400 µs; and for how long it was below by more than a fifth then.
    pub(crate) dip: f64,
    dip_ns: Nanos,
    /// How far it fell below its mean at the deepest before a block came.
    noise: f64,
    lengthen_ns: Nanos,
}

impl GrowthRow {
    /// Of this time; `None` if no block came in it.
    fn of(args: &SpreadingArgs, within: &Range<Nanos>, growth: &Growth) -> Option<Self> {
        let blocks = growth.blocks(within);
        let episodes = growth.episodes(&blocks);
        let deepest = episodes.iter().max_by(|a, b| a.dip.total_cmp(&b.dip))?;
        let mut times: Vec<Nanos> = blocks.iter().map(|time| time.end - time.start).collect();
        times.sort_unstable();
        let looks = growth.looks(within).summary();
        // By time, so that a long one counts for more.
        let mean = |of: usize| {
            let all = || episodes.iter().map(|episode| (episode.rates[of], episode.during_ns));
            let sum: f64 = all().map(|(rate, nanos)| rate * nanos as f64).sum();
            sum / all().map(|(_, nanos)| nanos as f64).sum::<f64>()
        };
        Some(Self {
            blocks: blocks.len() as u64,
            growth_p50_ns: times[(times.len() - 1) / 2],
            growth_max_ns: times[times.len() - 1],
            look_p50_ns: looks.p50,
            look_max_ns: looks.max,
            before_per_s: mean(0),
            during_per_s: mean(1),
            after_per_s: mean(2),
            dip: deepest.dip,
            dip_ns: deepest.dip_ns,
            noise: episodes.iter().map(|episode| episode.noise).fold(0.0, f64::max),
            lengthen_ns: args.lengthen_ns,
        })
    }
}

/// The rows of what was seen.
///
/// # Errors
/// Nothing was.
pub(super) fn rows(args: &SpreadingArgs, spreading: &Spreading) -> anyhow::Result<Vec<Row>> {
    anyhow::ensure!(!spreading.steps.is_empty(), "nobody was granted anything: ask for longer");
    let is_simulated = args.fabric == Fabric::Sim;
    // A block is of the last step that had begun when it was first looked for.
    let begins = spreading.steps.iter().map(|(_, step)| step.time.start);
    let ends = begins.clone().skip(1).chain([Nanos::MAX]);
    let row = |((number, step), within): (&(usize, Step), Range<Nanos>)| {
        let times = step.latency.summary();
        let seconds = (step.time.end - step.time.start) as f64 / 1e9;
        let acquisitions = step.latency.count();
        Row {
            fabric: args.by_fabric(["shm", "sim"]),
            workload: args.workload.name(),
            lock: is_simulated.then(|| args.lock.clone()),
            testbed: is_simulated.then(|| args.testbed.clone()),
            whole: is_simulated.then_some(args.whole),
            clients: args.clients(),
            units: units(*number),
            acquisitions,
            per_second: acquisitions as f64 / seconds,
            mean_ns: times.mean,
            p50_ns: times.p50,
            p99_ns: times.p99,
            longest_ns: times.max,
            violations: step.violations,
            growth: spreading.growth.as_ref().and_then(|all| GrowthRow::of(args, &within, all)),
            seed: args.seed,
        }
    };
    let within = begins.zip(ends).map(|(from, to)| from..to);
    Ok(spreading.steps.iter().zip(within).map(row).collect())
}

/// The rows for people.
pub(super) fn table(rows: &[Row]) -> Table {
    let cells = |row: &Row| {
        let [p50, p99, longest] = [row.p50_ns, row.p99_ns, row.longest_ns].map(duration);
        let rate = |rate: f64| grouped(rate as u64);
        let own = [grouped(row.units.into()), rate(row.per_second), p50, p99, longest];
        let growth = row.growth.map_or([const { String::new() }; 7], |growth| {
            [
                grouped(growth.blocks),
                duration(growth.growth_max_ns),
                duration(growth.look_p50_ns),
                rate(growth.before_per_s),
                rate(growth.during_per_s),
                rate(growth.after_per_s),
                format!(
                    "{:.0} % for {} (noise {:.0} %)",
                    growth.dip * 100.0,
                    duration(growth.dip_ns),
                    growth.noise * 100.0
                ),
            ]
        });
        own.into_iter().chain(growth).chain([grouped(row.violations)]).collect::<Vec<_>>()
    };
    let header = [
        "units",
        "a second",
        "p50",
        "p99",
        "longest",
        "blocks",
        "a block takes",
        "a look",
        "before",
        "during",
        "after",
        "dip",
        "violations",
    ];
    table_of(&header, 0, rows.iter().map(cells))
}
