//! What a storm prints: a line of JSON or a row of a table for each lock.

use std::collections::BTreeMap;

use anyhow::ensure;
use comfy_table::Table;
use farlock_check::CANARY;
use farlock_fabric::Nanos;
use serde::Serialize;

use super::pulse::excused;
use crate::report::{table_by, table_of};

/// Nobody may wait longer, with a dozen clients that hold for microseconds on few processors: a
/// repair takes milliseconds, and every sleep ends after 2 s.
const WAIT_MAX_NS: Nanos = 1_000_000_000;

/// What came of a storm over one lock.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The lock.
    pub protocol: String,
    /// How many clients lived at a time.
    pub clients: u16,
    /// How many locks they shared.
    pub locks: u16,
    /// How many were killed; each had a successor.
    pub kills: u64,
    /// Of those, how many died at the boundary of what; the others died at any moment.
    pub kills_at: BTreeMap<&'static str, u64>,
    /// How often one was stopped and continued.
    pub stops: u64,
    /// Acquisitions.
    pub acquisitions: u64,
    /// Of a lock that is had in parts: holds of them that were judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<u64>,
    /// Whether everybody said to hold more than it did.
    #[serde(skip)]
    pub exaggerated: bool,
    /// Overlaps and tokens that did not grow.
    pub violations: u64,
    /// Clients that waited for ever.
    pub stalls: u64,
    /// The longest wait that ended with a grant.
    pub longest_wait_ns: Nanos,
    /// Waits that a timer ended, though their reason had come: lost wake-ups.
    pub late_wakes: u64,
    /// The longest time for which the storm itself stood still.
    pub longest_pause_ns: Nanos,
    /// Wall time.
    pub seconds: f64,
    /// The seed.
    pub seed: u64,
}

impl Row {
    /// Fails if anything was violated or anybody stalled, but for the canary: if nothing was
    /// violated there, nobody looked.
    pub fn pass(&self) -> anyhow::Result<()> {
        let Self { protocol, violations, .. } = self;
        if protocol == CANARY {
            ensure!(*violations > 0, "{CANARY} excludes nobody, and no judge saw it");
        } else if self.exaggerated {
            ensure!(*violations > 0, "all said that they held more, and no judge saw it");
        } else {
            ensure!(*violations == 0, "{protocol}: {violations} violations");
        }
        self.pass_in_time().map_err(|objection| excused(objection, self.longest_pause_ns))
    }

    fn pass_in_time(&self) -> anyhow::Result<()> {
        let Self { protocol, stalls, longest_wait_ns, late_wakes, .. } = self;
        ensure!(*stalls == 0, "{protocol}: {stalls} clients wait for ever");
        let longest = *longest_wait_ns;
        ensure!(
            longest < WAIT_MAX_NS,
            "{protocol}: a wait of {:.0} ms, though holds take less than one",
            longest as f64 / 1e6
        );
        ensure!(*late_wakes == 0, "{protocol}: {late_wakes} waits were woken by a timer alone");
        Ok(())
    }

    fn at_boundaries(&self) -> u64 {
        self.kills_at.values().sum()
    }
}

/// Rows as people read them.
pub fn table(rows: &[Row]) -> Table {
    match rows {
        // It is narrow, so that it fits a terminal.
        [row] => {
            let [(lock, name), cells @ ..] = cells(row);
            table_of(&[lock, &name], 1, cells.map(|(what, cell)| [what.to_owned(), cell]))
        }
        rows => table_by(1, rows, cells),
    }
}

fn cells(row: &Row) -> [(&'static str, String); 11] {
    [
        ("lock", row.protocol.clone()),
        ("kills", row.kills.to_string()),
        ("at verbs", row.at_boundaries().to_string()),
        ("in repair", row.kills_at.get("repair").copied().unwrap_or_default().to_string()),
        ("stops", row.stops.to_string()),
        ("acquisitions", row.acquisitions.to_string()),
        ("violations", row.violations.to_string()),
        ("stalls", row.stalls.to_string()),
        ("longest wait", format!("{:.1} ms", row.longest_wait_ns as f64 / 1e6)),
        ("late", row.late_wakes.to_string()),
        ("seconds", format!("{:.1}", row.seconds)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canary_may_and_must_be_violated_and_nobody_may_stall() {
        for (protocol, violations, stalls, passes) in [
            ("mcs", 0, 0, true),
            ("mcs", 1, 0, false),
            ("mcs", 0, 1, false),
            (CANARY, 1, 0, true),
            (CANARY, 0, 0, false),
            (CANARY, 1, 1, false),
        ] {
            let protocol = protocol.to_owned();
            let row = Row { protocol, violations, stalls, ..Row::default() };
            assert_eq!(row.pass().is_ok(), passes, "{row:?}");
        }
        for (violations, passes) in [(1, true), (0, false)] {
            let row = Row { exaggerated: true, violations, ..Row::default() };
            assert_eq!(row.pass().is_ok(), passes, "{row:?}");
        }
        let long = Row { longest_wait_ns: WAIT_MAX_NS, ..Row::default() };
        assert!(long.pass().is_err());
        let late = Row { protocol: "mcs".to_owned(), late_wakes: 1, ..Row::default() };
        assert!(late.pass().is_err());
    }
}
