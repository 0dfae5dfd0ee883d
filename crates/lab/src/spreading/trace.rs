//! What was seen while a table was used: of each step, and of each block that came meanwhile.

use std::collections::BTreeMap;
use std::ops::Range;

use farlock_fabric::Nanos;

use super::asked::STEPS;
use crate::latency::Latency;

/// Cycles are counted by intervals of so many nanoseconds.
const BIN_NS: Nanos = 20_000;
/// How many of them before a growth, and behind it, it is compared with.
const AROUND: usize = 20;
/// Below this share of what is usual the rate has dipped.
const DIPPED: f64 = 0.8;

/// What was seen of a step.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// How long acquisitions took.
    pub(super) latency: Latency,
    /// From when the first was asked for until the last was released.
    pub(super) time: Range<Nanos>,
    /// Holds beside others that they exclude.
    pub(super) violations: u64,
}

impl Step {
    fn begun(at: Nanos) -> Self {
        Self { latency: Latency::default(), time: at..at, violations: 0 }
    }

    fn has(&mut self, asked: Range<Nanos>, released: Nanos, meets: bool) {
        self.latency.record(asked.end - asked.start);
        self.time = self.time.start.min(asked.start)..self.time.end.max(released);
        self.violations += u64::from(meets);
    }

    fn add(&mut self, other: &Self) {
        self.latency.add(&other.latency);
        let (own, other_time) = (&self.time, &other.time);
        self.time = own.start.min(other_time.start)..own.end.max(other_time.end);
        self.violations += other.violations;
    }
}

/// What one client has seen, by steps.
#[derive(Clone, Debug)]
pub(super) struct Trace(Vec<Option<Step>>);

impl Default for Trace {
    fn default() -> Self {
        Self(vec![None; STEPS])
    }
}

impl Trace {
    /// A range was asked for, granted and released; whether it met one that it excludes.
    pub(super) fn has(&mut self, step: usize, asked: Range<Nanos>, released: Nanos, meets: bool) {
        let own = self.0[step].get_or_insert_with(|| Step::begun(asked.start));
        own.has(asked, released, meets);
    }
}

/// A look for a block by one client that did not know it: until it did.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// Whose block.
    pub(super) subtree: u32,
    /// When.
    pub(super) time: Range<Nanos>,
}

/// How a table grew, and what was done meanwhile.
#[derive(Clone, Debug, Default)]
pub(super) struct Growth {
    /// Cycles that ended in each interval.
    bins: Vec<u32>,
    looks: Vec<Look>,
}

/// All that was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Spreading {
    /// By step; those that nobody has taken are left out.
    pub(super) steps: Vec<(usize, Step)>,
    /// Where blocks are seen to come.
    pub(super) growth: Option<Growth>,
}

impl Spreading {
    /// What all clients have seen.
    pub(super) fn of(traces: Vec<Trace>) -> Self {
        let mut all = Trace::default();
        for trace in traces {
            for (sum, step) in all.0.iter_mut().zip(trace.0) {
                match (sum, step) {
                    (Some(sum), Some(step)) => sum.add(&step),
                    (sum @ None, step) => *sum = step,
                    (Some(_), None) => {}
                }
            }
        }
        let steps = all.0.into_iter().enumerate();
        let steps = steps.filter_map(|(number, step)| Some((number, step?))).collect();
        Self { steps, growth: None }
    }
}

/// Blocks that came in one go: how the rate went around that.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Episode {
    /// For how long blocks came, in nanoseconds.
    pub(super) during_ns: Nanos,
    /// Cycles a second: before, while the blocks came, and after.
    pub(super) rates: [f64; 3],
    /// How far the rate fell at the deepest below what is usual, the lower one of those before and
    /// after, and for how many nanoseconds it was below by more than a fifth.
    pub(super) dip: f64,
    pub(super) dip_ns: Nanos,
    /// How far it fell below its mean before anything grew.
    pub(super) noise: f64,
}

impl Growth {
    /// A cycle has ended.
    pub(super) fn cycle(&mut self, now: Nanos) {
        let bin = (now / BIN_NS) as usize;
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += 1;
    }

    /// A client knows a block now.
    pub(super) fn look(&mut self, look: Look) {
        self.looks.push(look);
    }

    /// How long clients looked for blocks within this time.
    pub(super) fn looks(&self, within: &Range<Nanos>) -> Latency {
        let mut times = Latency::default();
        let own = self.looks.iter().filter(|look| within.contains(&look.time.start));
        own.for_each(|look| times.record(look.time.end - look.time.start));
        times
    }

    /// When each block came that did within this time: from the first look for it until the first
    /// client knew it.
    pub(super) fn blocks(&self, within: &Range<Nanos>) -> Vec<Range<Nanos>> {
        let mut blocks: BTreeMap<u32, Range<Nanos>> = BTreeMap::new();
        for Look { subtree, time } in &self.looks {
            let block = blocks.entry(*subtree).or_insert_with(|| time.clone());
            *block = block.start.min(time.start)..block.end.min(time.end);
        }
        let mut came: Vec<_> =
            blocks.into_values().filter(|time| within.contains(&time.start)).collect();
        came.sort_unstable_by_key(|time| time.start);
        came
    }

    /// How the rate went around these blocks, for each time in which some came.
    pub(super) fn episodes(&self, blocks: &[Range<Nanos>]) -> Vec<Episode> {
        let mut times: Vec<Range<Nanos>> = Vec::new();
        for block in blocks {
            match times.last_mut().filter(|last| block.start <= last.end) {
                Some(last) => last.end = last.end.max(block.end),
                None => times.push(block.clone()),
            }
        }
        times.iter().filter_map(|time| self.episode(time)).collect()
    }

    /// `None` where nothing was done before.
    fn episode(&self, time: &Range<Nanos>) -> Option<Episode> {
        let [begins, ends] = [time.start / BIN_NS, time.end / BIN_NS + 1].map(|bin| bin as usize);
        let of = |bins: Range<usize>| {
            let end = bins.end.min(self.bins.len());
            &self.bins[bins.start.min(end)..end]
        };
        let mean = |bins: &[u32]| {
            let sum: u64 = bins.iter().copied().map(u64::from).sum();
            sum as f64 / bins.len().max(1) as f64
        };
        let (before, during) = (of(begins.saturating_sub(AROUND)..begins), of(begins..ends));
        // The last interval of a run has not ended.
        let whole = self.bins.len().saturating_sub(1);
        let after = of(ends..(ends + AROUND).min(whole));
        let usual = if after.is_empty() { mean(before) } else { mean(before).min(mean(after)) };
        let seen = of(begins..(ends + AROUND).min(whole));
        let fall = |bins: &[u32], from: f64| {
            1.0 - f64::from(bins.iter().copied().min().unwrap_or(0)) / from
        };
        let dipped = seen.iter().filter(|&&bin| f64::from(bin) < DIPPED * usual).count();
        (usual > 0.0 && !seen.is_empty()).then(|| Episode {
            during_ns: during.len() as Nanos * BIN_NS,
            rates: [before, during, after].map(|bins| mean(bins) * 1e9 / BIN_NS as f64),
            dip: fall(seen, usual).max(0.0),
            dip_ns: dipped as Nanos * BIN_NS,
            noise: fall(before, mean(before)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten cycles in each interval, but for two in the 30th, while two clients look for a block.
    #[test]
    fn a_dip_is_as_deep_and_as_long_as_it_was() {
        let mut growth = Growth::default();
        for bin in 0..60 {
            let cycles = if bin == 30 { 2 } else { 10 };
            (0..cycles).for_each(|_| growth.cycle(bin * BIN_NS));
        }
        let at = |from: Nanos, to: Nanos| 30 * BIN_NS + from..30 * BIN_NS + to;
        growth.look(Look { subtree: 1, time: at(1_000, 3_000) });
        growth.look(Look { subtree: 1, time: at(2_000, 2_500) });
        let all = 0..Nanos::MAX;
        let blocks = growth.blocks(&all);
        assert_eq!(blocks, [at(1_000, 2_500)]);
        assert_eq!((growth.looks(&all).count(), growth.looks(&all).summary().max), (2, 2_000));
        let [episode] = growth.episodes(&blocks)[..] else { panic!("one block came") };
        assert_eq!(episode.rates, [5e5, 1e5, 5e5]);
        assert_eq!((episode.dip, episode.dip_ns, episode.noise), (0.8, BIN_NS, 0.0));
    }

    #[test]
    fn blocks_that_come_together_are_one_episode() {
        let mut growth = Growth::default();
        (0..100).for_each(|bin| growth.cycle(bin * BIN_NS));
        let at = |bins: Range<Nanos>| bins.start * BIN_NS..bins.end * BIN_NS;
        for (subtree, bins) in [(1, 30..32), (2, 31..33), (3, 50..51)] {
            growth.look(Look { subtree, time: at(bins) });
        }
        assert_eq!(growth.episodes(&growth.blocks(&(0..Nanos::MAX))).len(), 2);
        assert_eq!(growth.blocks(&at(40..60)).len(), 1);
    }

    #[test]
    fn steps_are_those_of_all_clients() {
        let mut traces = [Trace::default(), Trace::default()];
        traces[0].has(1, 5..8, 9, false);
        traces[1].has(1, 3..4, 6, true);
        let spreading = Spreading::of(traces.to_vec());
        let [(1, step)] = &spreading.steps[..] else { panic!("one step was taken") };
        assert_eq!((step.time.clone(), step.violations, step.latency.count()), (3..9, 1, 2));
    }
}
