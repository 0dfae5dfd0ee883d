//! A tree of ranges with sixteen slots a node, behind a server: the rival MT of Citron (FAST'23,
//! table 1), as maple trees keep disjoint ranges.
#![doc = include_str!("../../../../docs/protocols/range-btree.md")]

use std::ops::Range;

use super::range_server::{RangeServer, RangeSet, meet};

/// One whose cores use the tree one after the other.
pub const RANGE_BTREE: RangeServer = RangeServer::new(|| Box::<RangeBtree>::default(), true);

/// Slots of a node.
const SLOTS: usize = 16;
/// A node that has fewer is merged with its neighbour, if one node has room for both.
const SLOTS_MIN: usize = SLOTS / 2;

/// A tree whose leaves, all on one level, have the ranges in order.
#[derive(Debug, Default)]
pub struct RangeBtree {
    root: Node,
}

#[derive(Debug)]
enum Node {
    /// Ranges.
    Leaf(Vec<Range<u32>>),
    /// Nodes, each with where its first range begins.
    Inner(Vec<(u32, Self)>),
}

impl Default for Node {
    fn default() -> Self {
        Self::Leaf(Vec::with_capacity(SLOTS))
    }
}

/// The last of those that begin at this unit or before, or the first one.
fn slot_of(nodes: &[(u32, Node)], unit: u32) -> usize {
    nodes.partition_point(|(first, _)| *first <= unit).saturating_sub(1)
}

impl Node {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(ranges) => ranges.len(),
            Self::Inner(nodes) => nodes.len(),
        }
    }

    fn first(&self) -> u32 {
        match self {
            Self::Leaf(ranges) => ranges.first().map_or(0, |units| units.start),
            Self::Inner(nodes) => nodes.first().map_or(0, |(first, _)| *first),
        }
    }

    /// Whether any range has units in common with these, and how many nodes were looked at.
    fn meets(&self, units: &Range<u32>) -> (bool, u32) {
        match self {
            Self::Leaf(ranges) => {
                let place = ranges.partition_point(|other| other.end <= units.start);
                (ranges.get(place).is_some_and(|other| meet(other, units)), 1)
            }
            Self::Inner(nodes) => {
                // The one before the first unit may lie in one node, the one behind in the next.
                let (from, to) = (slot_of(nodes, units.start), slot_of(nodes, units.end - 1));
                let mut looked = 1;
                for (_, node) in &nodes[from..=to] {
                    let (is_met, below) = node.meets(units);
                    looked += below;
                    if is_met {
                        return (true, looked);
                    }
                }
                (false, looked)
            }
        }
    }

    /// Enters a range that meets no other; what does not fit any more, as a node behind this one.
    fn put(&mut self, units: Range<u32>) -> (Option<Self>, u32) {
        match self {
            Self::Leaf(ranges) => {
                let place = ranges.partition_point(|other| other.start < units.start);
                ranges.insert(place, units);
                let more = (ranges.len() > SLOTS).then(|| Self::Leaf(ranges.split_off(SLOTS_MIN)));
                (more, 1)
            }
            Self::Inner(nodes) => {
                let slot = slot_of(nodes, units.start);
                let (more, looked) = nodes[slot].1.put(units);
                nodes[slot].0 = nodes[slot].1.first();
                if let Some(node) = more {
                    nodes.insert(slot + 1, (node.first(), node));
                }
                let more = (nodes.len() > SLOTS).then(|| Self::Inner(nodes.split_off(SLOTS_MIN)));
                (more, looked + 1)
            }
        }
    }

    /// Takes out the range that begins there; how many nodes were looked at.
    fn take(&mut self, unit: u32) -> u32 {
        match self {
            Self::Leaf(ranges) => {
                ranges.retain(|units| units.start != unit);
                1
            }
            Self::Inner(nodes) => {
                let slot = slot_of(nodes, unit);
                let looked = nodes[slot].1.take(unit);
                nodes[slot].0 = nodes[slot].1.first();
                if nodes[slot].1.len() < SLOTS_MIN {
                    merge(nodes, slot);
                }
                looked + 1
            }
        }
    }

    /// Takes all of the other node, which lies behind it on the same level.
    fn append(&mut self, other: Self) {
        match (self, other) {
            (Self::Leaf(ranges), Self::Leaf(more)) => ranges.extend(more),
            (Self::Inner(nodes), Self::Inner(more)) => nodes.extend(more),
            _ => unreachable!("neighbours lie on one level"),
        }
    }

    fn tell(&self, ranges: &mut Vec<Range<u32>>) {
        match self {
            Self::Leaf(own) => ranges.extend(own.iter().cloned()),
            Self::Inner(nodes) => nodes.iter().for_each(|(_, node)| node.tell(ranges)),
        }
    }
}

/// Merges a node that has few slots in use with a neighbour, if they fit into one.
fn merge(nodes: &mut Vec<(u32, Node)>, slot: usize) {
    let left = slot.saturating_sub(1);
    if nodes[slot].1.len() == 0 {
        nodes.remove(slot);
    } else if left + 1 < nodes.len() && nodes[left].1.len() + nodes[left + 1].1.len() <= SLOTS {
        let (_, right) = nodes.remove(left + 1);
        nodes[left].1.append(right);
    }
}

impl RangeSet for RangeBtree {
    fn enter(&mut self, units: &Range<u32>) -> (bool, u32) {
        let (is_met, looked) = self.root.meets(units);
        if is_met {
            return (false, looked);
        }
        let (more, steps) = self.root.put(units.clone());
        if let Some(right) = more {
            let left = std::mem::take(&mut self.root);
            self.root = Node::Inner(vec![(left.first(), left), (right.first(), right)]);
        }
        (true, looked + steps)
    }

    fn leave(&mut self, start: u32) -> u32 {
        let looked = self.root.take(start);
        // Of the two nodes that it has at least it loses one at most.
        while let Node::Inner(nodes) = &mut self.root
            && nodes.len() == 1
        {
            self.root = nodes.remove(0).1;
        }
        looked
    }

    fn is_empty(&self) -> bool {
        self.root.len() == 0
    }

    fn ranges(&self) -> Vec<Range<u32>> {
        let mut ranges = Vec::new();
        self.root.tell(&mut ranges);
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_keeps_ranges() {
        super::super::range_server::tests::behaves(RANGE_BTREE.make);
    }

    #[test]
    fn a_node_has_at_most_sixteen() {
        let mut tree = RangeBtree::default();
        for number in 0..4096 {
            let (_, looked) = tree.enter(&(number * 2..number * 2 + 1));
            // At most 12 levels of halves of sixteen to find it, and as many again to enter it.
            assert!(looked <= 2 * 4 + 2, "{looked} nodes of {number} ranges");
        }
        for number in (0..4096).rev() {
            tree.leave(number * 2);
        }
        assert_eq!(tree.root.len(), 0);
    }

    /// The ranges of one node leave, whose neighbours have no room for those that stay a while.
    #[test]
    fn a_node_of_which_all_leave_is_none() {
        let mut tree = RangeBtree::default();
        let place = |number: u32| number * 4..number * 4 + 1;
        for number in 0..32 {
            tree.enter(&place(number));
        }
        let Node::Inner(nodes) = &tree.root else { panic!("one node has sixteen at most") };
        let (begins, ends) = (nodes[1].0, nodes[2].0);
        // Between those of the first node, as many as fit.
        for number in 0..6 {
            tree.enter(&(number * 4 + 2..number * 4 + 3));
        }
        let leaving = (begins..ends).step_by(4);
        leaving.for_each(|unit| assert!(tree.leave(unit) > 0));
        let (is_met, _) = tree.root.meets(&place(1));
        assert!(is_met, "a range of the first node is still there");
        let ranges = tree.ranges();
        assert!(ranges.is_sorted_by_key(|units| units.start) && ranges.len() == 38 - 8);
    }
}
