//! How often two ranges that are disjoint are locked as if they overlapped (Citron, section 4.6 and
//! figure 11): by counting all pairs, not by drawing some.
//!
//! The nodes that cover a range cover one interval, for each of them meets the range. So two
//! requests conflict if their intervals meet. Where a range is split, the cover of one that lies
//! in a large node is the same as in every other large node: one period is counted for all.

use std::ops::Range;

use farlock_locks::record::citron::tree::Tree;

/// What is locked for a range: all units that another client cannot have.
fn locked(tree: Tree, range: &Range<u64>, nodes_max: usize) -> Range<u64> {
    let nodes = tree.split(range, nodes_max);
    let (first, last) = (nodes[0], nodes[nodes.len() - 1]);
    let is_exact = |node| tree.is_leaf(node);
    let start = if is_exact(first) { range.start } else { tree.units_of(first).start };
    let end = if is_exact(last) { range.end } else { tree.units_of(last).end };
    start..end
}

/// Ordered pairs of places for a range of this length, and how many of them there are.
fn pairs(tree: Tree, length: u64) -> (u64, u128) {
    let places = tree.units() - length + 1;
    (places, u128::from(places).pow(2))
}

/// Ordered pairs of ranges that overlap.
fn overlapping(places: u64, length: u64) -> u128 {
    let near = length.min(places) - 1;
    let beside = u128::from(near) * u128::from(places) - sum_below(near + 1);
    u128::from(places) + 2 * beside
}

/// The share of all pairs that conflict and do not overlap, where every range is one node.
fn rate_of_one(tree: Tree, length: u64) -> f64 {
    let (places, all) = pairs(tree, length);
    let within = |span: u64| (span + 1).saturating_sub(length);
    // Of each level: its nodes, and for how many places one of them is the lowest with the range.
    let levels: Vec<(u128, u128)> = (0..tree.levels)
        .map(|level| {
            let (nodes, span) = (4_u64.pow(level.into()), tree.units() >> (2 * level));
            let is_leaf = level + 1 == tree.levels;
            let lower = if is_leaf { 0 } else { 4 * within(span / 4) };
            (nodes.into(), (within(span) - lower).into())
        })
        .collect();
    let (leaves, in_leaf) = levels[levels.len() - 1];
    let in_one = if in_leaf > 0 { overlapping(in_leaf as u64, length) } else { 0 };
    let mut conflicts = leaves * in_one;
    for (level, &(nodes, here)) in levels[..levels.len() - 1].iter().enumerate() {
        conflicts += nodes * here * here;
        let below = levels[level + 1..].iter().map(|&(nodes, here)| nodes * here);
        conflicts += 2 * here * below.sum::<u128>();
    }
    share(conflicts - overlapping(places, length), all)
}

/// The same where a range is split into at most so many nodes, more than one.
fn rate_of_split(tree: Tree, length: u64, nodes_max: usize) -> f64 {
    let (places, all) = pairs(tree, length);
    // So large that no range has its lowest node above this, or spoils one of these by its cover.
    let leaf = u64::from(tree.leaf_units);
    let periods = std::iter::successors(Some(leaf), |span| Some(span * 4));
    let period = periods.take_while(|&span| span < 8 * length).last().unwrap_or(leaf) * 4;
    let period = period.min(tree.units());
    let blocks = tree.units() / period;
    // In the second of three blocks, so that either neighbour could be met.
    let at = if blocks > 2 { period } else { 0 };
    let of_block = if blocks > 1 { period } else { places };
    let intervals: Vec<Range<u64>> = (0..of_block)
        .map(|first| {
            let interval = locked(tree, &(at + first..at + first + length), nodes_max);
            assert!(interval.start >= at, "no cover begins in another block");
            interval.start - at..interval.end - at
        })
        .collect();
    // How many of a block's intervals begin before each of its units; of the last block's as well.
    let in_last = places - (blocks - 1) * period;
    let before = |count: u64| {
        let mut before = vec![0_u64; period as usize + 1];
        for interval in &intervals[..count as usize] {
            before[interval.start as usize + 1] += 1;
        }
        (1..before.len()).for_each(|unit| before[unit] += before[unit - 1]);
        before
    };
    let (regular, last) = (before(of_block), before(in_last));
    let mut disjoint = 0;
    for (count, interval) in (1..).zip(&intervals) {
        let (beyond, unit) = (interval.end / period, (interval.end % period) as usize);
        // Such an interval begins in all blocks, but maybe the last one; of those, it ends in one
        // that is not the last one.
        let begin_in = if count <= in_last { blocks } else { blocks - 1 };
        let regulars = begin_in.min((blocks - 1).saturating_sub(beyond));
        let ends = u128::from(regulars * beyond) + sum_below(regulars);
        let mut earlier = ends * u128::from(period) + u128::from(regulars * regular[unit]);
        for from in regulars..begin_in {
            let is_last = from + beyond < blocks;
            let here = if is_last { (from + beyond) * period + last[unit] } else { places };
            earlier += u128::from(here);
        }
        disjoint += 2 * (u128::from(begin_in) * u128::from(places) - earlier);
    }
    share(all - disjoint - overlapping(places, length), all)
}

/// The sum of all numbers below this one.
fn sum_below(number: u64) -> u128 {
    u128::from(number) * u128::from(number.saturating_sub(1)) / 2
}

fn share(part: u128, all: u128) -> f64 {
    part as f64 / all as f64
}

/// The share of all pairs of places for ranges of this length that conflict and do not overlap,
/// where each is split into at most so many nodes.
pub fn rate(tree: Tree, length: u64, nodes_max: usize) -> f64 {
    match nodes_max {
        1 => rate_of_one(tree, length),
        nodes_max => rate_of_split(tree, length, nodes_max),
    }
}

#[cfg(test)]
mod tests {
    use farlock_locks::record::citron::split::SPLIT_MAX;
    use farlock_locks::record::citron::tree::{LEAF_UNITS_MAX, LEVELS_MAX};

    use super::*;

    /// Every pair of places, one by one.
    fn rate_by_pairs(tree: Tree, length: u64, nodes_max: usize) -> f64 {
        let (places, all) = pairs(tree, length);
        let intervals: Vec<_> =
            (0..places).map(|first| locked(tree, &(first..first + length), nodes_max)).collect();
        let mut conflicts = 0_u64;
        for (first, a) in (0_u64..).zip(&intervals) {
            for (second, b) in (0_u64..).zip(&intervals) {
                let meet = a.start < b.end && b.start < a.end;
                conflicts += u64::from(meet && first.abs_diff(second) >= length);
            }
        }
        share(conflicts.into(), all)
    }

    #[test]
    fn counting_one_period_counts_every_pair() {
        let tree = Tree { levels: 5, leaf_units: 4, crown: 0 };
        for length in [1, 2, 3, 4, 5, 7, 16, 20, 64, 100, 500, 1000] {
            for nodes_max in 1..=SPLIT_MAX {
                let (counted, known) =
                    (rate(tree, length, nodes_max), rate_by_pairs(tree, length, nodes_max));
                assert_eq!(counted, known, "{length} by {nodes_max}");
            }
        }
    }

    /// "For all L <= 64, k = 2 is sufficient" (section 4.6).
    #[test]
    fn two_nodes_are_exact_up_to_the_units_of_a_leaf() {
        for length in 1..=u64::from(LEAF_UNITS_MAX) {
            let rate = rate(Tree::LARGEST, length, 2);
            assert_eq!(rate, 0.0, "of ranges of {length}");
        }
    }

    /// Two nodes leave 3.6 % of the false conflicts of one, and five nodes an order of magnitude
    /// fewer again (section 4.6). The lengths of figure 11 are not in the text.
    #[test]
    fn the_curve_is_that_of_figure_11() {
        const { assert!(LEVELS_MAX == 12 && SPLIT_MAX == 5) };
        println!("{:>7} {:>9}  relative to one node, by 2 to 5", "units", "one node");
        let lengths: Vec<u64> = (7..=16).map(|bits| 1 << bits).collect();
        let mut sums = [0.0; SPLIT_MAX];
        for &length in &lengths {
            let rates: Vec<f64> =
                (1..=SPLIT_MAX).map(|nodes| rate(Tree::LARGEST, length, nodes)).collect();
            let relative: Vec<f64> = rates.iter().map(|rate| rate / rates[0]).collect();
            println!(
                "{length:>7} {:>9.2e}  {}",
                rates[0],
                relative[1..].iter().map(|r| format!("{:>7.3} %", 100.0 * r)).collect::<String>()
            );
            assert!(rates.is_sorted_by(|a, b| a >= b), "more nodes, fewer conflicts: {rates:?}");
            sums.iter_mut().zip(&relative).for_each(|(sum, relative)| *sum += relative);
        }
        let mean = sums.map(|sum| sum / lengths.len() as f64);
        let (two, five_of_two) = (100.0 * mean[1], mean[4] / mean[1]);
        println!("mean of two nodes {two:.2} %, the paper's 3.6 %");
        println!("five nodes of two {five_of_two:.2}, the paper's 0.1");
        assert!(
            (2.7..4.5).contains(&two),
            "{two} % and the paper's 3.6 % are more than a quarter apart"
        );
        assert!(five_of_two < 0.2, "five nodes leave {five_of_two} of what two do");
    }
}
