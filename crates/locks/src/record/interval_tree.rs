//! A tree of intervals behind a server: the rival IT of Citron (FAST'23, table 1).
#![doc = include_str!("../../../../docs/protocols/interval-tree.md")]

use std::ops::Range;

use super::range_server::{RangeServer, RangeSet, meet};

/// One whose cores use the tree one after the other.
pub const INTERVAL_TREE: RangeServer = RangeServer::new(|| Box::<IntervalTree>::default(), true);

/// No node.
const NONE: u32 = u32::MAX;

/// A binary tree of ranges by where they begin, in which each node knows where the last one below
/// it ends. It is as deep as if ranges had come in a random order, for a node lies below those
/// whose hash is larger.
#[derive(Debug)]
pub struct IntervalTree {
    root: u32,
    nodes: Vec<Node>,
    unused: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Node {
    units: Range<u32>,
    /// Where the last range of this node and all below it ends.
    last: u32,
    below: [u32; 2],
}

impl Default for IntervalTree {
    fn default() -> Self {
        Self { root: NONE, nodes: Vec::new(), unused: Vec::new() }
    }
}

/// What decides which node lies above which.
const fn rank(units: &Range<u32>) -> u32 {
    let mixed = (units.start ^ units.start >> 15).wrapping_mul(0x2c1b_3c6d);
    mixed ^ mixed >> 13
}

impl IntervalTree {
    fn node(&self, place: u32) -> Option<&Node> {
        self.nodes.get(place as usize)
    }

    /// Where the last range of this tree ends.
    fn last(&self, place: u32) -> u32 {
        self.node(place).map_or(0, |node| node.last)
    }

    /// Whether any range has units in common with these, and how many nodes were looked at.
    fn meets(&self, units: &Range<u32>) -> (bool, u32) {
        let (mut place, mut steps) = (self.root, 0);
        while let Some(node) = self.node(place) {
            steps += 1;
            if meet(&node.units, units) {
                return (true, steps);
            }
            let is_left = self.last(node.below[0]) > units.start;
            place = node.below[usize::from(!is_left)];
        }
        (false, steps)
    }

    /// Says where the last range of this node and those below it ends.
    fn count(&mut self, place: u32) {
        let [left, right] = self.nodes[place as usize].below;
        let below = self.last(left).max(self.last(right));
        let node = &mut self.nodes[place as usize];
        node.last = node.units.end.max(below);
    }

    /// The trees of what begins before this unit, and of the others.
    fn split(&mut self, place: u32, unit: u32) -> [u32; 2] {
        let Some(node) = self.node(place) else { return [NONE; 2] };
        let is_before = usize::from(node.units.start < unit);
        let inner = node.below[is_before];
        let mut parts = self.split(inner, unit);
        self.nodes[place as usize].below[is_before] = parts[1 - is_before];
        self.count(place);
        parts[1 - is_before] = place;
        parts
    }

    /// One tree of two, of which all of the first comes before all of the second.
    fn join(&mut self, left: u32, right: u32) -> u32 {
        let (Some(a), Some(b)) = (self.node(left), self.node(right)) else {
            return if left == NONE { right } else { left };
        };
        if rank(&a.units) > rank(&b.units) {
            let joined = self.join(a.below[1], right);
            self.nodes[left as usize].below[1] = joined;
            self.count(left);
            return left;
        }
        let joined = self.join(left, b.below[0]);
        self.nodes[right as usize].below[0] = joined;
        self.count(right);
        right
    }

    /// The tree with this node, which is in none, and how many nodes were looked at.
    fn put(&mut self, into: u32, new: u32) -> (u32, u32) {
        let unit = self.nodes[new as usize].units.start;
        match self.node(into) {
            Some(node) if rank(&node.units) >= rank(&self.nodes[new as usize].units) => {
                let side = usize::from(node.units.start < unit);
                let (below, steps) = self.put(node.below[side], new);
                self.nodes[into as usize].below[side] = below;
                self.count(into);
                (into, steps + 1)
            }
            _ => {
                self.nodes[new as usize].below = self.split(into, unit);
                self.count(new);
                (new, 1)
            }
        }
    }

    /// The tree without the range that begins there, and how many nodes were looked at.
    fn take(&mut self, from: u32, unit: u32) -> (u32, u32) {
        let Some(node) = self.node(from) else { return (from, 0) };
        let [left, right] = node.below;
        if node.units.start == unit {
            self.unused.push(from);
            return (self.join(left, right), 1);
        }
        let side = usize::from(node.units.start < unit);
        let (below, steps) = self.take(if side == 0 { left } else { right }, unit);
        self.nodes[from as usize].below[side] = below;
        self.count(from);
        (from, steps + 1)
    }
}

impl RangeSet for IntervalTree {
    fn enter(&mut self, units: &Range<u32>) -> (bool, u32) {
        let (is_met, looked) = self.meets(units);
        if is_met {
            return (false, looked);
        }
        let node = Node { units: units.clone(), last: units.end, below: [NONE; 2] };
        let place = match self.unused.pop() {
            Some(place) => {
                self.nodes[place as usize] = node;
                place
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        let (root, steps) = self.put(self.root, place);
        self.root = root;
        (true, looked + steps)
    }

    fn leave(&mut self, start: u32) -> u32 {
        let (root, steps) = self.take(self.root, start);
        self.root = root;
        steps
    }

    fn is_empty(&self) -> bool {
        self.root == NONE
    }

    fn ranges(&self) -> Vec<Range<u32>> {
        let (mut ranges, mut above, mut place) = (Vec::new(), Vec::new(), self.root);
        loop {
            while let Some(node) = self.node(place) {
                above.push(node);
                place = node.below[0];
            }
            let Some(node) = above.pop() else { return ranges };
            ranges.push(node.units.clone());
            place = node.below[1];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_keeps_ranges() {
        super::super::range_server::tests::behaves(INTERVAL_TREE.make);
    }

    /// How many nodes are looked at to enter 1,024 ranges of one unit from here on.
    fn steps_in_order(first: u32) -> u32 {
        let mut tree = IntervalTree::default();
        (first..first + 1024).map(|unit| tree.enter(&(unit..unit + 1)).1).sum()
    }

    #[test]
    fn it_is_not_deep_though_ranges_come_in_order() {
        // Where many begin whose upper bits are all set as well.
        for first in [0, 0x3ff << 15] {
            let steps = steps_in_order(first);
            // Twice ten levels of a tree that were perfect; twice as many and a half are expected.
            assert!(steps < 1024 * 50, "{steps} nodes for 1,024 ranges from {first} on");
        }
    }

    /// How many nodes are looked at to find each of these units.
    fn depths(tree: &IntervalTree, units: impl Iterator<Item = u32>) -> Vec<u32> {
        units.map(|unit| tree.meets(&(unit..unit + 1)).1).collect()
    }

    /// A node lies below those whose hash is larger, whatever was there meanwhile.
    #[test]
    fn where_a_range_lies_depends_on_which_others_are_there_and_not_on_which_were() {
        let (even, odd) = (|| (0..1024).step_by(2), || (1..1024).step_by(2));
        let (mut tree, mut after_others) = (IntervalTree::default(), IntervalTree::default());
        even().for_each(|unit| assert!(tree.enter(&(unit..unit + 1)).0));
        (0..1024).rev().for_each(|unit| assert!(after_others.enter(&(unit..unit + 1)).0));
        odd().for_each(|unit| assert!(after_others.leave(unit) > 0));
        assert_eq!(depths(&tree, even()), depths(&after_others, even()));
    }
}
