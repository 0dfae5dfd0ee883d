//! The tree: where its nodes lie, which units each has, and how they are related.
//!
//! A perfect quaternary tree in one flat region, level by level, without a pointer (section 3.3).
//! All is arithmetic: a node's range meets only those of its ancestors and its descendants.

use std::fmt;
use std::ops::Range;

/// Children of an internal node.
pub const FANOUT: u32 = 4;
/// Two to the power of this.
const FANOUT_BITS: u32 = FANOUT.ilog2();
/// The most levels: 2^28 units in leaves of 64.
pub const LEVELS_MAX: u8 = 12;
/// The most units of a leaf: a bit of its word each.
pub const LEAF_UNITS_MAX: u8 = 64;
/// The most levels between a client that notifies and one that looks: nodes of a window's lowest
/// level are read with one verb.
pub const DISTANCE_MAX: u8 = 4;
/// The most nodes of one level of a window.
pub(super) const WINDOW_MAX: usize = FANOUT.pow(DISTANCE_MAX as u32 - 1) as usize;
/// A node is a word of so many bytes.
pub const NODE_BYTES: u64 = 8;

/// A node, by its level and its place there. Nodes are ordered level by level, as they lie.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    level: u8,
    place: u32,
}

impl Node {
    /// The node that has all units.
    pub const ROOT: Self = Self { level: 0, place: 0 };

    /// How many levels are above it.
    pub const fn level(self) -> u8 {
        self.level
    }

    /// Its number, the root's being 1: all of one level lie one after the other.
    pub const fn index(self) -> u32 {
        first_index(self.level) + self.place
    }

    /// Where its units begin, as a number that is lower for the left one of any two nodes that do
    /// not meet.
    pub const fn begins(self) -> u32 {
        self.place << (FANOUT_BITS * (LEVELS_MAX - 1 - self.level) as u32)
    }

    /// Where its word lies, in bytes from the root's.
    pub const fn offset(self) -> u64 {
        (self.index() as u64 - 1) * NODE_BYTES
    }

    /// One of its children, counted from 0.
    ///
    /// # Panics
    /// If it has fewer.
    pub const fn child(self, number: u32) -> Self {
        assert!(number < FANOUT, "a node has four children");
        Self { level: self.level + 1, place: self.place << FANOUT_BITS | number }
    }

    /// The node above it; the root has none.
    pub const fn parent(self) -> Option<Self> {
        match self.level {
            0 => None,
            level => Some(self.at_level(level - 1)),
        }
    }

    /// Itself, or its ancestor at this level.
    pub(super) const fn at_level(self, level: u8) -> Self {
        let levels = self.level - level;
        Self { level, place: self.place >> (FANOUT_BITS * levels as u32) }
    }

    /// Its ancestors, the parent first, the root last.
    pub fn ancestors(self) -> impl DoubleEndedIterator<Item = Self> + Clone {
        (0..self.level).rev().map(move |level| self.at_level(level))
    }

    /// So many nodes further on, on the same level.
    pub const fn plus(self, nodes: u32) -> Self {
        Self { level: self.level, place: self.place + nodes }
    }

    /// The lowest node that is above both, which lie on one level, or is both.
    pub(super) const fn lowest_with(self, other: Self) -> Self {
        let apart = u32::BITS - (self.place ^ other.place).leading_zeros();
        self.at_level(self.level - apart.div_ceil(FANOUT_BITS) as u8)
    }

    /// How many nodes lie between it and one to its right on the same level.
    pub(super) const fn nodes_before(self, right: Self) -> usize {
        (right.place - self.place - 1) as usize
    }

    /// The next child of the same parent.
    pub(super) fn next_sibling(self) -> Option<Self> {
        let is_last = self.place % FANOUT == FANOUT - 1;
        (!is_last).then(|| self.plus(1))
    }

    /// The first child of the same parent.
    pub(super) const fn first_sibling(self) -> Self {
        Self { level: self.level, place: self.place / FANOUT * FANOUT }
    }

    /// Whether `other` lies below it.
    pub const fn is_above(self, other: Self) -> bool {
        self.level < other.level && other.at_level(self.level).place == self.place
    }

    /// Whether the two have a unit in common: they are one, or one is above the other.
    pub fn meets(self, other: Self) -> bool {
        let level = self.level.min(other.level);
        self.at_level(level) == other.at_level(level)
    }

    /// The ancestors whose words count it, where `distance` is that of the two who meet in the
    /// middle (section 3.5.5): its parent, and from there every `distance`-th. Those above the
    /// level where the windows of the uppermost end are replaced by the one at that level, so that
    /// few nodes count what all do.
    pub fn notified(self, distance: u8) -> impl Iterator<Item = Self> + Clone {
        let lowest = distance - 1;
        let parent = self.level.checked_sub(1);
        // Below the replaced ones; the parent stands as it is.
        let above = (lowest..self.level.saturating_sub(1)).rev();
        let regular = above.filter(move |level| (self.level - 1 - level).is_multiple_of(distance));
        let replaced =
            self.level > lowest + 1 && !(self.level - 1 - lowest).is_multiple_of(distance);
        let levels = parent.into_iter().chain(regular).chain(replaced.then_some(lowest));
        levels.map(move |level| self.at_level(level))
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.index())
    }
}

/// The number of the first node of a level.
const fn first_index(level: u8) -> u32 {
    ((1 << (FANOUT_BITS * level as u32)) - 1) / (FANOUT - 1) + 1
}

/// How a tree is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tree {
    /// How many levels it has, 2 to [`LEVELS_MAX`]; the lowest is that of leaves.
    pub levels: u8,
    /// Units of a leaf, 1 to [`LEAF_UNITS_MAX`].
    pub leaf_units: u8,
}

impl Tree {
    /// The largest: 2^28 units.
    pub const LARGEST: Self = Self { levels: LEVELS_MAX, leaf_units: LEAF_UNITS_MAX };

    /// How many units it has.
    pub const fn units(self) -> u64 {
        self.span(Node::ROOT)
    }

    /// How many nodes it has.
    pub const fn nodes(self) -> u32 {
        first_index(self.levels) - 1
    }

    /// Bytes of its nodes.
    pub const fn bytes(self) -> u64 {
        self.nodes() as u64 * NODE_BYTES
    }

    /// Whether this node is a leaf.
    pub const fn is_leaf(self, node: Node) -> bool {
        node.level + 1 == self.levels
    }

    /// How many units this node has.
    pub const fn span(self, node: Node) -> u64 {
        (self.leaf_units as u64) << (FANOUT_BITS * (self.levels - 1 - node.level) as u32)
    }

    /// The units of this node.
    pub const fn units_of(self, node: Node) -> Range<u64> {
        let span = self.span(node);
        node.place as u64 * span..(node.place as u64 + 1) * span
    }

    /// The leaf that has this unit.
    pub const fn leaf_of(self, unit: u64) -> Node {
        Node { level: self.levels - 1, place: (unit / self.leaf_units as u64) as u32 }
    }

    /// The bits of these units in the word of a leaf.
    ///
    /// # Panics
    /// If it has none of them.
    pub fn mask(self, leaf: Node, units: &Range<u64>) -> u64 {
        assert!(self.is_leaf(leaf), "only a leaf has bits");
        let own = self.units_of(leaf);
        let (first, end) = (units.start.max(own.start), units.end.min(own.end));
        assert!(first < end, "a leaf is locked for some of its units");
        u64::MAX >> (u64::from(u64::BITS) - (end - first)) << (first - own.start)
    }

    /// What the owner of an internal node looks at for those below it: the node itself and the
    /// internal ones within so many levels, level by level. Of each level the first node, and how
    /// many lie there one after the other.
    pub fn window(self, node: Node, distance: u8) -> impl Iterator<Item = (Node, u32)> + Clone {
        let beyond = (node.level + distance).min(self.levels - 1);
        (node.level..beyond).map(move |level| {
            let shift = FANOUT_BITS * u32::from(level - node.level);
            (Node { level, place: node.place << shift }, 1 << shift)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every node of a tree, level by level.
    fn all(tree: Tree) -> impl Iterator<Item = Node> {
        let level =
            |level: u8| (0..FANOUT.pow(level.into())).map(move |place| Node { level, place });
        (0..tree.levels).flat_map(level)
    }

    const SMALL: Tree = Tree { levels: 5, leaf_units: 3 };

    #[test]
    fn nodes_lie_one_after_the_other_and_are_numbered_as_the_paper_has_it() {
        for (number, node) in (1..).zip(all(SMALL)) {
            assert_eq!((node.index(), node.offset()), (number, 8 * u64::from(number - 1)));
            for child in 0..FANOUT {
                assert_eq!(node.child(child).index(), 4 * number - 2 + child);
                assert_eq!(node.child(child).parent(), Some(node));
            }
            assert_eq!(node.parent().map_or(0, Node::index), (number + 2) / 4);
        }
        assert_eq!(all(SMALL).count(), SMALL.nodes() as usize);
    }

    /// The largest tree takes what section 4.1 says.
    #[test]
    fn two_to_the_28_units_take_less_than_43_mib() {
        let tree = Tree::LARGEST;
        assert_eq!((tree.units(), tree.nodes()), (1 << 28, 5_592_405));
        let mib = tree.bytes() as f64 / f64::from(1 << 20);
        assert!(mib < 43.0, "{mib} MiB");
        assert_eq!(format!("{mib:.1}"), "42.7");
    }

    #[test]
    fn nodes_meet_exactly_those_with_which_they_share_units() {
        for a in all(SMALL) {
            let here = SMALL.units_of(a);
            for b in all(SMALL) {
                let there = SMALL.units_of(b);
                let shared = here.start < there.end && there.start < here.end;
                assert_eq!(a.meets(b), shared, "{a:?} {b:?}");
                assert_eq!(a.is_above(b), shared && a.level() < b.level(), "{a:?} {b:?}");
                assert_eq!(a.is_above(b), b.ancestors().any(|node| node == a), "{a:?} {b:?}");
                let is_left = SMALL.units_of(a).end <= SMALL.units_of(b).start;
                assert!(shared || is_left == (a.begins() < b.begins()), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_unit_lies_in_its_leaf_alone() {
        for unit in 0..SMALL.units() {
            let leaf = SMALL.leaf_of(unit);
            assert!(SMALL.is_leaf(leaf) && SMALL.units_of(leaf).contains(&unit));
            assert_eq!(SMALL.mask(leaf, &(unit..unit + 1)), 1 << (unit % 3));
        }
        assert_eq!(SMALL.mask(SMALL.leaf_of(4), &(0..5)), 0b011);
        let (wide, all) = (Tree::LARGEST, 0..Tree::LARGEST.units());
        assert_eq!(wide.mask(wide.leaf_of(99), &all), u64::MAX);
        assert_eq!(wide.mask(wide.leaf_of(99), &(127..130)), 1 << 63);
    }

    /// Whoever owns a node looks at one that each of its descendants notifies (section 3.5.5).
    #[test]
    fn those_above_and_below_meet_in_the_middle() {
        for distance in 1..=5 {
            for below in all(SMALL) {
                let notified: Vec<Node> = below.notified(distance).collect();
                assert!(notified.iter().all(|node| node.is_above(below)), "{below:?}");
                assert!(notified.is_sorted_by(|a, b| a > b), "each once: {notified:?}");
                for above in below.ancestors() {
                    let mut looked_at = SMALL
                        .window(above, distance)
                        .flat_map(|(first, count)| (0..count).map(move |nodes| first.plus(nodes)));
                    let meets = looked_at.any(|node| notified.contains(&node));
                    assert!(meets, "{above:?} and {below:?} at {distance}");
                }
            }
        }
    }

    /// Of the largest tree, with four levels between two who meet, the parent and two more.
    #[test]
    fn few_are_notified() {
        let levels = |level, distance| {
            let node = Node { level, place: 0 };
            node.notified(distance).map(Node::level).collect::<Vec<_>>()
        };
        assert_eq!(levels(11, 4), [10, 6, 3]);
        assert_eq!((levels(4, 4), levels(3, 4), levels(0, 4)), (vec![3], vec![2], vec![]));
        assert_eq!(levels(3, 1), [2, 1, 0]);
    }

    #[test]
    fn a_window_has_the_internal_nodes_of_its_levels() {
        let window = |node: Node, distance| {
            SMALL.window(node, distance).map(|(first, count)| (first.index(), count)).collect()
        };
        let of_root: Vec<_> = window(Node::ROOT, 3);
        assert_eq!(of_root, [(1, 1), (2, 4), (6, 16)]);
        let low: Vec<_> = window(Node::ROOT.child(1).child(2), 4);
        assert_eq!(low, [(12, 1), (46, 4)], "leaves are no part of it");
    }
}
