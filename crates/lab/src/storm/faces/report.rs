//! What a storm over a face prints: a line of JSON, or a table.

use anyhow::ensure;
use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use farlock_check::Unchecked;
use serde::Serialize;

use super::super::pulse::excused;
use super::super::verdict::Verdict;
use crate::latency::Summary;
use crate::record::{duration, grouped};

/// Clients that take no lock, and clients that take less than they say.
const CANARIES: [&str; 2] = ["nothing", "less"];

/// What came of a storm.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// [`Face::name`](super::Face::name).
    pub face: &'static str,
    /// How many processes lived at a time.
    pub clients: u16,
    /// How many locks they shared.
    pub locks: u64,
    /// `farlock`, or `kernel` for its locks, or `nothing` for none, or `less` than is said.
    pub taken: &'static str,
    /// How many threads of each asked at the same time.
    pub threads: u16,
    /// Whether every other client took its locks by a server.
    pub served: bool,
    /// Whether that was over TLS.
    pub tls: bool,
    /// What clients by the server were granted.
    pub granted_by_server: u64,
    /// How often the server was killed, and another one started.
    pub restarts: u64,
    /// How many were to be killed.
    pub kills_asked: u64,
    /// How many were to be stopped.
    pub stops_asked: u64,
    /// How often connections were to be broken.
    pub cuts_asked: u64,
    /// How many were killed.
    pub kills: u64,
    /// Of them, commands that were sent a signal that ends in order.
    pub endings: u64,
    /// How often one was stopped and continued.
    pub stops: u64,
    /// How often connections of one to its server were broken.
    pub cuts: u64,
    /// What the judge saw.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Holders that were killed while a client waited.
    pub takeovers: u64,
    /// From the kill to the next grant.
    pub takeover_ns: Summary,
    /// The longest time for which the storm itself stood still, in nanoseconds.
    pub longest_pause_ns: u64,
    /// Wall time.
    pub seconds: f64,
    /// The seed.
    pub seed: u64,
}

impl Row {
    /// Fails if the judge objects. The canary fails if the judge sees no overlap.
    pub fn pass(&self) -> anyhow::Result<()> {
        if CANARIES.contains(&self.taken) {
            ensure!(self.verdict.overlaps > 0, "{} was taken, and no judge saw it", self.taken);
            return Ok(());
        }
        self.check([
            (self.verdict.overlaps, "holds overlapped"),
            (self.verdict.token_errors, "tokens were out of order"),
            (self.verdict.failures, "operations failed"),
            (self.verdict.left_over, "locks were not free when all was over"),
        ])?;
        let in_time = self.check([
            (self.verdict.refused_wrongly, "tries were refused though nobody living was there"),
            (self.verdict.delayed, "acquisitions waited too long"),
            (self.verdict.early, "acquisitions were told too early that their time had passed"),
            (self.verdict.overtaken, "acquisitions were overtaken too often"),
            (self.verdict.stalled, "acquisitions were never granted"),
        ]);
        in_time.map_err(|objection| excused(objection, self.longest_pause_ns))?;
        let Self { kills, kills_asked, stops, stops_asked, cuts, cuts_asked, .. } = self;
        ensure!(
            !self.served || self.granted_by_server > 0,
            Unchecked("no client by the server was granted anything".into())
        );
        for (count, asked, what) in [
            (kills, kills_asked, "killed"),
            (stops, stops_asked, "stopped"),
            (cuts, cuts_asked, "cut off"),
        ] {
            let story = || format!("{count} of {asked} were {what} in the time given");
            ensure!(count >= asked, Unchecked(story()));
        }
        Ok(())
    }

    fn check<const N: usize>(&self, counts: [(u64, &str); N]) -> anyhow::Result<()> {
        counts.into_iter().try_for_each(|(count, what)| {
            ensure!(count == 0, "{}: {count} {what}", self.face);
            Ok(())
        })
    }
}

/// A row as people read it.
pub fn table(row: &Row) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header([row.face, ""]);
    let (verdict, takeover) = (&row.verdict, row.takeover_ns);
    for (what, value) in [
        ("killed", grouped(row.kills)),
        ("of them ended in order", grouped(row.endings)),
        ("stopped", grouped(row.stops)),
        ("servers killed", grouped(row.restarts)),
        ("cut off", grouped(row.cuts)),
        ("of them lost their sessions", grouped(verdict.lost)),
        ("granted", grouped(verdict.granted)),
        ("of them by a server", grouped(row.granted_by_server)),
        ("timed out", grouped(verdict.time_outs)),
        ("dropped", grouped(verdict.dropped)),
        (
            "tried, refused",
            format!("{}, {}", grouped(verdict.tries), grouped(verdict.tries_refused)),
        ),
        ("tries after a death", grouped(verdict.tries_after_death)),
        ("takeovers", grouped(row.takeovers)),
        ("takeover p50, p99", format!("{}, {}", duration(takeover.p50), duration(takeover.p99))),
        ("longest wait beside nobody", duration(verdict.worst_delay_ns)),
        ("overtaken by at most", grouped(verdict.overtaken_max)),
        ("OVERLAPS", grouped(verdict.overlaps)),
        ("TOKENS OUT OF ORDER", grouped(verdict.token_errors)),
        ("REFUSED WRONGLY", grouped(verdict.refused_wrongly)),
        ("DELAYED", grouped(verdict.delayed)),
        ("TOLD TOO EARLY", grouped(verdict.early)),
        ("OVERTAKEN", grouped(verdict.overtaken)),
        ("STALLED", grouped(verdict.stalled)),
        ("FAILURES", grouped(verdict.failures)),
        ("LEFT OVER", grouped(verdict.left_over)),
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
        let judged = |verdict| Row { verdict, ..good.clone() };
        assert!(good.pass().is_ok());
        for bad in [
            judged(Verdict { overlaps: 1, ..Verdict::default() }),
            judged(Verdict { token_errors: 1, ..Verdict::default() }),
            judged(Verdict { refused_wrongly: 1, ..Verdict::default() }),
            judged(Verdict { delayed: 1, ..Verdict::default() }),
            judged(Verdict { overtaken: 1, ..Verdict::default() }),
            judged(Verdict { stalled: 1, ..Verdict::default() }),
            judged(Verdict { failures: 1, ..Verdict::default() }),
            judged(Verdict { early: 1, ..Verdict::default() }),
            judged(Verdict { left_over: 1, ..Verdict::default() }),
            Row { kills: 2, ..good.clone() },
            Row { stops_asked: 1, ..good.clone() },
            Row { cuts_asked: 1, ..good.clone() },
            Row { served: true, ..good.clone() },
            Row { taken: CANARIES[0], ..good.clone() },
            Row { taken: CANARIES[1], ..good.clone() },
        ] {
            assert!(bad.pass().is_err(), "{bad:?}");
        }
        for taken in CANARIES {
            let seen = judged(Verdict { overlaps: 1, ..Verdict::default() });
            assert!(Row { taken, ..seen }.pass().is_ok());
        }
    }
}
