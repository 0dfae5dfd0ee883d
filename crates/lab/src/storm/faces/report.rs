//! What a storm over a face prints: a line of JSON, or a table.

use anyhow::ensure;
use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use serde::Serialize;

use crate::latency::Summary;
use crate::record::{duration, grouped};

/// Those who take no lock.
const CANARY: &str = "nothing";

/// What came of a storm.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// `session` or `command`.
    pub face: &'static str,
    /// How many processes lived at a time.
    pub clients: u16,
    /// How many locks they shared.
    pub locks: u64,
    /// `farlock`, or `kernel` for its locks, or `nothing` for none.
    pub taken: &'static str,
    /// How many were to be killed.
    pub kills_asked: u64,
    /// How many were to be stopped.
    pub stops_asked: u64,
    /// How many were killed.
    pub kills: u64,
    /// Of them, commands that were sent a signal that ends in order.
    pub endings: u64,
    /// How often one was stopped and continued.
    pub stops: u64,
    /// Acquisitions.
    pub granted: u64,
    /// Acquisitions whose time passed.
    pub time_outs: u64,
    /// Acquisitions that were dropped.
    pub dropped: u64,
    /// Tries.
    pub tries: u64,
    /// Those that were refused.
    pub tries_refused: u64,
    /// Those that met nobody living, within a second of a death.
    pub tries_after_death: u64,
    /// Those that were refused though nobody living held incompatibly or waited.
    pub refused_wrongly: u64,
    /// Holds that overlapped.
    pub overlaps: u64,
    /// Tokens out of order.
    pub token_errors: u64,
    /// Acquisitions that waited longer than they may while nobody living held.
    pub delayed: u64,
    /// The longest such wait.
    pub worst_delay_ns: u64,
    /// Acquisitions that more overtook than may.
    pub overtaken: u64,
    /// By how many one was overtaken at most.
    pub overtaken_max: u64,
    /// Acquisitions that were never granted.
    pub stalled: u64,
    /// Operations and processes that failed as nothing should.
    pub failures: u64,
    /// Holders that were killed while somebody waited.
    pub takeovers: u64,
    /// From the kill to the next grant.
    pub takeover_ns: Summary,
    /// Wall time.
    pub seconds: f64,
    /// The seed.
    pub seed: u64,
    /// The first objections, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// What happened around the first delay, as standard error tells it.
    #[serde(skip)]
    pub account: Vec<String>,
}

impl Row {
    /// Fails if the judge objects. The canary fails if the judge sees no overlap.
    pub fn pass(&self) -> anyhow::Result<()> {
        if self.taken == CANARY {
            ensure!(self.overlaps > 0, "nobody took a lock, and no judge saw it");
            return Ok(());
        }
        for (count, what) in [
            (self.overlaps, "holds overlapped"),
            (self.token_errors, "tokens were out of order"),
            (self.refused_wrongly, "tries were refused though nobody living was there"),
            (self.delayed, "acquisitions waited too long"),
            (self.overtaken, "acquisitions were overtaken too often"),
            (self.stalled, "acquisitions were never granted"),
            (self.failures, "operations failed"),
        ] {
            ensure!(count == 0, "{}: {count} {what}", self.face);
        }
        let Self { kills, kills_asked, stops, stops_asked, .. } = self;
        ensure!(kills >= kills_asked, "{kills} of {kills_asked} were killed in the time given");
        ensure!(stops >= stops_asked, "{stops} of {stops_asked} were stopped in the time given");
        Ok(())
    }
}

/// A row as people read it.
pub fn table(row: &Row) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header([row.face, ""]);
    let takeover = row.takeover_ns;
    for (what, value) in [
        ("killed", grouped(row.kills)),
        ("of them ended in order", grouped(row.endings)),
        ("stopped", grouped(row.stops)),
        ("granted", grouped(row.granted)),
        ("timed out", grouped(row.time_outs)),
        ("dropped", grouped(row.dropped)),
        ("tried, refused", format!("{}, {}", grouped(row.tries), grouped(row.tries_refused))),
        ("tries after a death", grouped(row.tries_after_death)),
        ("takeovers", grouped(row.takeovers)),
        ("takeover p50, p99", format!("{}, {}", duration(takeover.p50), duration(takeover.p99))),
        ("longest wait beside nobody", duration(row.worst_delay_ns)),
        ("overtaken by at most", grouped(row.overtaken_max)),
        ("OVERLAPS", grouped(row.overlaps)),
        ("TOKENS OUT OF ORDER", grouped(row.token_errors)),
        ("REFUSED WRONGLY", grouped(row.refused_wrongly)),
        ("DELAYED", grouped(row.delayed)),
        ("OVERTAKEN", grouped(row.overtaken)),
        ("STALLED", grouped(row.stalled)),
        ("FAILURES", grouped(row.failures)),
        ("seconds", format!("{:.1}", row.seconds)),
    ] {
        table.add_row([what.to_owned(), value]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_objection_fails_a_row_and_the_canary_fails_without_one() {
        let good = Row { kills: 3, kills_asked: 3, ..Row::default() };
        assert!(good.pass().is_ok());
        for bad in [
            Row { overlaps: 1, ..good.clone() },
            Row { token_errors: 1, ..good.clone() },
            Row { refused_wrongly: 1, ..good.clone() },
            Row { delayed: 1, ..good.clone() },
            Row { overtaken: 1, ..good.clone() },
            Row { stalled: 1, ..good.clone() },
            Row { failures: 1, ..good.clone() },
            Row { kills: 2, ..good.clone() },
            Row { stops_asked: 1, ..good.clone() },
            Row { taken: CANARY, ..good.clone() },
        ] {
            assert!(bad.pass().is_err(), "{bad:?}");
        }
        assert!(Row { taken: CANARY, overlaps: 1, ..good }.pass().is_ok());
    }
}
