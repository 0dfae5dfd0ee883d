//! What a takeover prints: a line of JSON or a row of a table for each lock.

use anyhow::ensure;
use comfy_table::Table;
use serde::Serialize;

use crate::latency::Summary;
use crate::report::table_by;

/// What came of the deaths of one lock's holders.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The lock.
    pub protocol: String,
    /// How many waited at each death.
    pub waiters: u16,
    /// How much memory each holder had touched, in MiB.
    pub resident_mib: usize,
    /// Where clients ran.
    pub placement: String,
    /// How many holders were killed.
    pub kills: u64,
    /// From just before the kill to the first waiter's grant, in nanoseconds.
    pub takeover_ns: Summary,
    /// From just before the kill to the last waiter's grant, in nanoseconds.
    pub all_granted_ns: Summary,
    /// How often anybody was woken in a second in which everybody waited; none if leases end.
    pub idle_wakeups: Option<u64>,
    /// How many holders were stopped until their lease had ended and another held.
    pub stops: u64,
    /// How many of them wrote late to a register that looks at tokens, and were refused.
    pub late_refused: u64,
    /// How many of them spoiled a register that does not.
    pub late_unfenced: u64,
    /// Overlaps and tokens that did not grow.
    pub violations: u64,
    /// Wall time.
    pub seconds: f64,
}

impl Row {
    /// Fails if anything was violated, anybody idle was woken, or a late write got through; and if
    /// a late write did not get through where nobody looks, for then it was not late.
    pub fn pass(&self) -> anyhow::Result<()> {
        let Self { protocol, violations, idle_wakeups, stops, .. } = self;
        ensure!(*violations == 0, "{protocol}: {violations} violations");
        let woken = idle_wakeups.unwrap_or(0);
        ensure!(woken == 0, "{protocol}: idle waiters were woken {woken} times");
        let passed = stops - self.late_refused;
        ensure!(passed == 0, "{protocol}: {passed} late writes passed the fence");
        ensure!(self.late_unfenced == *stops, "{protocol}: some late writes were not late");
        Ok(())
    }
}

/// Rows as people read them.
pub fn table(rows: &[Row]) -> Table {
    let micros = |nanos: u64| format!("{:.0} µs", nanos as f64 / 1e3);
    table_by(1, rows, |row| {
        [
            ("lock", row.protocol.clone()),
            ("waiters", row.waiters.to_string()),
            ("resident", format!("{} MiB", row.resident_mib)),
            ("kills", row.kills.to_string()),
            ("takeover p50", micros(row.takeover_ns.p50)),
            ("p99", micros(row.takeover_ns.p99)),
            ("max", micros(row.takeover_ns.max)),
            ("all granted p50", micros(row.all_granted_ns.p50)),
            ("p99", micros(row.all_granted_ns.p99)),
            ("idle wake-ups", row.idle_wakeups.map_or("-".to_owned(), |woken| woken.to_string())),
            ("late writes refused", format!("{} of {}", row.late_refused, row.stops)),
            ("violations", row.violations.to_string()),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            protocol: "mcs".to_owned(),
            waiters: 1,
            resident_mib: 0,
            placement: "spread".to_owned(),
            kills: 1,
            takeover_ns: Summary::default(),
            all_granted_ns: Summary::default(),
            idle_wakeups: Some(0),
            stops: 3,
            late_refused: 3,
            late_unfenced: 3,
            violations: 0,
            seconds: 1.0,
        }
    }

    #[test]
    fn each_judge_can_say_no() {
        assert!(row().pass().is_ok());
        for bad in [
            Row { violations: 1, ..row() },
            Row { idle_wakeups: Some(1), ..row() },
            Row { late_refused: 2, ..row() },
            Row { late_unfenced: 2, ..row() },
        ] {
            assert!(bad.pass().is_err(), "{bad:?}");
        }
    }
}
