//! What a judge has to say of a storm.

use serde::Serialize;

use super::story::Op;

/// What is to be said of a storm.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Verdict {
    /// Operations that were granted.
    pub granted: u64,
    /// Operations whose time passed.
    pub time_outs: u64,
    /// Operations that were dropped.
    pub dropped: u64,
    /// Tries, granted or refused.
    pub tries: u64,
    /// Those that were refused.
    pub tries_refused: u64,
    /// Those that met no living holder or waiter, and a dead one within the last second.
    pub tries_after_death: u64,
    /// Those that were refused though nobody living was there.
    pub refused_wrongly: u64,
    /// Holds that overlapped one which one of the two had alone.
    pub overlaps: u64,
    /// Tokens out of order.
    pub token_errors: u64,
    /// Operations that waited longer than they may.
    pub delayed: u64,
    /// The longest that one of the living waited while nobody living held, in nanoseconds.
    pub worst_delay_ns: u64,
    /// Operations that more overtook than may.
    pub overtaken: u64,
    /// By how many one that was not stopped was overtaken at most.
    pub overtaken_max: u64,
    /// Operations that were told too early that their time had passed.
    pub early: u64,
    /// Operations of the living that were still waiting in the end.
    pub stalled: u64,
    /// Operations that failed as nothing should.
    pub failures: u64,
    /// Sessions that were lost, their server being out of reach for long.
    pub lost: u64,
    /// Locks that could not be had at once, as a whole, when all was over.
    pub left_over: u64,
    /// From the kill of a holder to the next grant of a waiter, in nanoseconds each.
    #[serde(skip)]
    pub takeovers: Vec<u64>,
    /// The first objections, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// What happened at the lock of the one that was delayed most, or refused where ranges are
    /// tried, around that time, as standard error tells it.
    #[serde(skip)]
    pub account: Vec<String>,
}

/// Objections of one kind that are told in words.
const EXAMPLES_MAX: usize = 12;

impl Verdict {
    /// Tells of an operation what is wrong with it, in a storm that began then.
    pub fn object(&mut self, op: &Op, text: &str, from: u64) {
        if self.examples.len() < EXAMPLES_MAX {
            let Op { who, number, part, asked, .. } = op;
            let at = asked.saturating_sub(from) as f64 / 1e6;
            let mode = if op.alone { "alone" } else { "shared" };
            let line = format!("{at:.1} ms: {who}/{number} {part} {mode}: {text}");
            self.examples.push(line);
        }
    }
}
