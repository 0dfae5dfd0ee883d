//! What a figure is: its workload, its testbed, what is measured, and what the paper says, as data.

use anyhow::Context;
use clap::ValueEnum;
use serde::Deserialize;

/// How large.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Scale {
    /// Small enough for every change; it shows that it runs.
    Toy,
    /// As the paper has it.
    Full,
}

/// Every figure, by its name.
const FIGURES: &[(&str, &str)] = &[
    ("citron-1c", include_str!("../../figures/citron-1c.toml")),
    ("citron-6-1", include_str!("../../figures/citron-6-1.toml")),
    ("citron-6-16", include_str!("../../figures/citron-6-16.toml")),
    ("citron-6-256", include_str!("../../figures/citron-6-256.toml")),
    ("citron-7", include_str!("../../figures/citron-7.toml")),
    ("citron-8", include_str!("../../figures/citron-8.toml")),
    ("citron-9", include_str!("../../figures/citron-9.toml")),
    ("citron-10", include_str!("../../figures/citron-10.toml")),
    ("citron-11", include_str!("../../figures/citron-11.toml")),
    ("citron-12", include_str!("../../figures/citron-12.toml")),
    ("citron-table2", include_str!("../../figures/citron-table2.toml")),
    ("citron-unaligned", include_str!("../../figures/citron-unaligned.toml")),
    ("cider-22", include_str!("../../figures/cider-22.toml")),
    (NATIVE, include_str!("../../figures/held.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-1", include_str!("../../figures/cider-1.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-3", include_str!("../../figures/cider-3.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-4", include_str!("../../figures/cider-4.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-5", include_str!("../../figures/cider-5.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-11a", include_str!("../../figures/cider-11a.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-11b", include_str!("../../figures/cider-11b.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-11c", include_str!("../../figures/cider-11c.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-13", include_str!("../../figures/cider-13.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-14", include_str!("../../figures/cider-14.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-15a", include_str!("../../figures/cider-15a.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-15b", include_str!("../../figures/cider-15b.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-16a", include_str!("../../figures/cider-16a.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-16b", include_str!("../../figures/cider-16b.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-16c", include_str!("../../figures/cider-16c.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-18a", include_str!("../../figures/cider-18a.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-18b", include_str!("../../figures/cider-18b.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-18c", include_str!("../../figures/cider-18c.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-20", include_str!("../../figures/cider-20.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-23", include_str!("../../figures/cider-23.toml")),
    #[cfg(feature = "ycsb")]
    ("cider-24", include_str!("../../figures/cider-24.toml")),
];

/// The figure that is measured on the machine at hand, so that no two runs are the same.
pub const NATIVE: &str = "held";

/// The names of all figures.
pub fn names() -> impl Iterator<Item = &'static str> {
    FIGURES.iter().map(|(name, _)| *name)
}

/// A figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// Where the paper has it, or what is ours.
    pub source: String,
    /// Whose machines are simulated.
    pub testbed: Option<String>,
    /// How it is measured.
    pub kind: Kind,
    /// What clients do, as arguments of `bench`, of `fs`, of `spreading`, or of `ycsb`.
    #[serde(default)]
    pub bench: String,
    /// Of `bench` and `ycsb`: the option whose values are the points of the axis, `clients` if none
    /// is said, or `theta`, in hundredths.
    pub axis: Option<String>,
    /// By its size.
    pub toy: Size,
    /// As the paper has it.
    pub full: Size,
    /// What is measured.
    pub series: Vec<Series>,
    /// What the paper says of it.
    #[serde(default)]
    pub points: Vec<Point>,
}

/// How a figure is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Clients of locks, in a simulation: rates and latencies by clients.
    Bench,
    /// How long messages wait for a core, in a simulation: by clients.
    Queueing,
    /// All pairs of places of a range, counted: by lengths.
    FalseConflicts,
    /// Nanoseconds of an acquisition and release on this machine: by ranges that are held.
    Held,
    /// Clients of a file system, in a simulation: rates and latencies by clients.
    Fs,
    /// Writers of a file that grows, in a simulation: rates and latencies by the units it has had,
    /// as powers of two.
    Spreading,
    /// Clients of a key-value store, in a simulation: by whatever option of `ycsb`.
    #[cfg(feature = "ycsb")]
    Ycsb,
}

/// How large a figure is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// The points of its axis: clients, lengths, or ranges.
    pub at: Vec<u64>,
    /// More arguments of `bench`.
    #[serde(default)]
    pub bench: String,
}

/// What is measured, once for each point of the axis.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// What the figure calls it.
    pub name: String,
    /// The lock with its options, or what else its kind understands.
    pub subject: String,
    /// What its clients do instead of what the figure says.
    pub bench: Option<String>,
}

/// What the paper says of a figure: a value, or how values of two groups of series compare.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// What is said.
    pub name: String,
    /// What is compared.
    pub measure: Measure,
    /// Of the best of these series.
    pub of: Vec<String>,
    /// To the best of these; to nothing, where the paper has a value.
    #[serde(default)]
    pub to: Vec<String>,
    /// At which point of the axis; at each the best, or the mean, if none is said.
    pub at: Option<u64>,
    /// At which point those are to which it is compared, if not at the same.
    pub to_at: Option<u64>,
    /// If none is said: from which on.
    #[serde(default)]
    pub from: u64,
    /// If none is said: the mean over the axis, not the best.
    #[serde(default)]
    pub mean: bool,
    /// What the paper has.
    pub paper: f64,
    /// Where it says so.
    pub source: String,
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Acquisitions a second, or the one value of a kind that has no others.
    Rate,
    /// The mean time, in nanoseconds.
    Mean,
    /// The median of times.
    P50,
    /// The 99th percentile of times.
    P99,
    /// Claims of ranges that came too late, of each acquisition.
    Aborts,
    /// How far the rate fell where a table grew, at the deepest.
    Dip,
    /// The point of the axis at which there are the most operations a second.
    PeakAt,
    /// Compares that failed, of each operation of a store.
    Retries,
    /// Writes that were combined, of all operations.
    Combined,
    /// Writes that waited for others of their key and were not combined, of all operations.
    Blocked,
    /// Writes that one change stood for, where it stood for more than one.
    Batch,
    /// Writes in line, of all operations.
    InLine,
    /// Writes that were combined, of those in line.
    InLineCombined,
    /// Writes in line, of those that should have been there.
    ChoiceAccuracy,
}

impl Measure {
    /// Of two values the one that is better.
    pub fn best(self, a: f64, b: f64) -> f64 {
        if matches!(self, Self::Mean | Self::P50 | Self::P99 | Self::Aborts | Self::Retries) {
            a.min(b)
        } else {
            a.max(b)
        }
    }
}

impl Figure {
    /// The figure of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> anyhow::Result<Self> {
        let found = FIGURES.iter().find(|(known, _)| *known == name);
        let known = || names().collect::<Vec<_>>().join(", ");
        let (_, text) = found.with_context(|| {
            format!("there is no figure named '{name}'; there are: {}", known())
        })?;
        toml::from_str(text).with_context(|| format!("figure '{name}'"))
    }

    /// A point of its axis, as arguments.
    pub(super) fn point(&self, at: u64) -> String {
        match self.axis.as_deref().unwrap_or("clients") {
            "theta" => format!("--dist zipf:{}", at as f64 / 100.0),
            axis => format!("--{axis} {at}"),
        }
    }

    /// What a series does at this size, as arguments: what comes later counts more.
    pub(super) fn line(&self, subject: &str, series: &Series, size: &Size) -> String {
        let testbed = self.testbed.iter().map(|name| format!("--testbed {name}"));
        let (testbed, own) = (testbed.collect::<String>(), series.bench.as_deref().unwrap_or(""));
        format!("{testbed} {} {subject} {own} {}", self.bench, size.bench)
    }

    /// Its size at this scale.
    pub fn size(&self, scale: Scale) -> &Size {
        match scale {
            Scale::Toy => &self.toy,
            Scale::Full => &self.full,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::Testbed;

    /// A figure that says nothing of what it names would show nothing.
    #[test]
    fn every_figure_names_what_it_has() {
        for name in names() {
            let figure = Figure::named(name).unwrap();
            figure.testbed.iter().for_each(|testbed| drop(Testbed::named(testbed).unwrap()));
            for point in &figure.points {
                for series in point.of.iter().chain(&point.to) {
                    let known = figure.series.iter().any(|known| known.name == *series);
                    assert!(known, "{name}: '{}' is of '{series}'", point.name);
                }
                assert!(point.paper.is_finite() && !point.source.is_empty(), "{name}");
            }
        }
    }
}
