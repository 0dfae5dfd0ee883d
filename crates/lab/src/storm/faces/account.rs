//! What happened at a lock, in words.

use super::super::story::{Op, Span, Story, meet};
use super::bounds::{BOUND_NS, PASS_NS};

impl Story {
    /// What happened at a lock while it had no holder, in words: to a client that asked for it, and
    /// to those whom it befell elsewhere.
    pub(super) fn account(&self, ops: &[&Op], gap: Span) -> Vec<String> {
        let around = (gap.0.saturating_sub(BOUND_NS), gap.1 + PASS_NS / 2);
        let mut told: Vec<(u64, String)> = Vec::new();
        let mut tell = |at: Option<u64>, text: String| told.extend(at.map(|at| (at, text)));
        for op in ops {
            let until = op.ended.map(|(at, _)| at).or(op.refused.map(|(at, _)| at));
            if !meet((op.asked, until.unwrap_or_else(|| self.gone(op))), around) {
                continue;
            }
            let Op { who, number, patience, token, .. } = op;
            let mode = if op.alone { "alone" } else { "shared" };
            let whose = format!("{who}/{number}");
            tell(Some(op.asked), format!("{whose} asks, {mode}, {patience:?}"));
            tell(op.entered, format!("{whose} enters, token {token}"));
            tell(op.left, format!("{whose} leaves"));
            let let_go = op.ended.is_some_and(|(_, let_go)| let_go);
            let how = if let_go { "has let go" } else { "has released" };
            tell(op.ended.map(|(at, _)| at), format!("{whose} {how}"));
            tell(op.refused.map(|(at, _)| at), format!("{whose} is not granted"));
        }
        for (who, fate) in &self.fates {
            tell(fate.killed, format!("{who} is killed"));
            tell(fate.gone, format!("{who} is gone"));
            for stop in &fate.stops {
                tell(Some(stop.ordered), format!("{who} is to stop"));
                tell(stop.seen, format!("{who} is seen to be stopped"));
                tell(Some(stop.ended), format!("{who} goes on"));
            }
        }
        told.retain(|(at, _)| around.0 <= *at && *at <= around.1);
        told.sort();
        let line = |(at, text): &(u64, String)| {
            format!("{:.3} ms: {text}", at.saturating_sub(self.begun) as f64 / 1e6)
        };
        told.iter().map(line).collect()
    }
}
