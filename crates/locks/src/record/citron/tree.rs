//! The tree: where its nodes lie, which units each has, and how they are related.
//!
//! A perfect quaternary tree in one flat region, level by level, without a pointer (section 3.3).
//! All is arithmetic: a node's range meets only those of its ancestors and its descendants.
//!
//! A lock of many units has two trees: a *near* one for its first units, and a *far* one for all
//! others, so that who wants the first ones has a short way up. Of the far one the upper levels are
//! its *crown*, down to the roots of *subtrees*. What lies below such a root is a *block* for
//! itself, wherever there is room, when it is needed. Nobody looks from the crown into a block, so
//! who wants nothing there need not know whether there is one.

use std::fmt;
use std::ops::Range;

use crate::want::{Extent, Want};

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

/// A node, by its level and its place there. Nodes are ordered level by level, as they lie. Those
/// of the far tree have their places behind those of a near one that has as many levels: no near
/// node is above a far one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    level: u8,
    place: u32,
}

impl Node {
    /// The node that has all units, or all near ones.
    pub const ROOT: Self = Self { level: 0, place: 0 };
    /// The one that has all far ones.
    const FAR_ROOT: Self = Self { level: 0, place: 1 };

    /// Whether it is one of the far tree.
    #[inline]
    const fn is_far(self) -> bool {
        self.place >> (FANOUT_BITS * self.level as u32) != 0
    }

    /// Its place in its tree.
    #[inline]
    const fn place_in_tree(self) -> u32 {
        self.place & ((1 << (FANOUT_BITS * self.level as u32)) - 1)
    }

    /// How many levels are above it.
    pub const fn level(self) -> u8 {
        self.level
    }

    /// Its number in its tree, the root's being 1: all of one level lie one after the other.
    pub const fn index(self) -> u32 {
        first_index(self.level) + self.place_in_tree()
    }

    /// Where its units begin, as a number that is lower for the left one of any two nodes that do
    /// not meet.
    pub const fn begins(self) -> u32 {
        self.place << (FANOUT_BITS * (LEVELS_MAX - 1 - self.level) as u32)
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
}

/// Some levels of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Levels(u16);

impl Levels {
    /// All above this one.
    pub const fn above(level: u8) -> Self {
        Self((1 << level) - 1)
    }

    /// Whether this is one of them.
    #[inline]
    pub const fn contains(self, level: u8) -> bool {
        self.0 >> level & 1 != 0
    }

    /// Of those above a node at this level, the ones that count it, where `distance` is that of the
    /// two who meet in the middle (section 3.5.5): its parent's, and from there every
    /// `distance`-th. Those above the level where the windows of the uppermost end are replaced by
    /// that one, so that few nodes count what all do.
    const fn notified(level: u8, distance: u8) -> u16 {
        if level == 0 {
            return 0;
        }
        let (lowest, mut at) = (distance - 1, level - 1);
        let mut levels = 1 << at;
        while at >= lowest + distance {
            at -= distance;
            levels |= 1 << at;
        }
        if at > lowest { levels | 1 << lowest } else { levels }
    }
}

/// The lowest first.
impl Iterator for Levels {
    type Item = u8;

    #[inline]
    fn next(&mut self) -> Option<u8> {
        let lowest = self.0.checked_ilog2()?;
        self.0 ^= 1 << lowest;
        Some(lowest as u8)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tree = if self.is_far() { "far " } else { "" };
        write!(f, "Node({tree}{})", self.index())
    }
}

/// The number of the first node of a level.
const fn first_index(level: u8) -> u32 {
    // A level has so many nodes as the bit says whose place is twice its number.
    const NODES_OF_LEVELS: u32 = u32::MAX / (FANOUT - 1);
    (NODES_OF_LEVELS & ((1 << (FANOUT_BITS * level as u32)) - 1)) + 1
}

/// How a tree is cut, or the two of a lock of many units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tree {
    /// How many levels it has, 2 to [`LEVELS_MAX`]; the lowest is that of leaves.
    pub levels: u8,
    /// Units of a leaf, 1 to [`LEAF_UNITS_MAX`].
    pub leaf_units: u8,
    /// How many of the levels the near tree has not, so that the far one has the roots of its
    /// subtrees at this one; 0 where there is one tree alone. The near one has at least two levels.
    pub crown: u8,
}

/// Where a node lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lies {
    /// With the lock's own words, behind so many others.
    Near(u32),
    /// In the block of this subtree, behind so many others.
    InBlock(u32, u32),
}

impl Tree {
    /// The largest: 2^28 units.
    pub const LARGEST: Self = Self { levels: LEVELS_MAX, leaf_units: LEAF_UNITS_MAX, crown: 0 };

    /// How many units there are.
    pub const fn units(self) -> u64 {
        (self.leaf_units as u64) << (FANOUT_BITS * (self.levels - 1) as u32)
    }

    /// How many of them, the first ones, the near tree has; a subtree of the far one has as many.
    pub const fn near_units(self) -> u64 {
        self.units() >> (FANOUT_BITS * self.crown as u32)
    }

    /// The unit that stands for all positions behind it as well: the last one, or all of the last
    /// subtree, so that who asks for what lies far behind needs no block.
    pub const fn last_unit(self) -> u64 {
        self.units() - if self.crown == 0 { 1 } else { self.near_units() }
    }

    /// The units that are wanted, of all positions.
    pub fn wanted(self, want: Extent) -> Range<u64> {
        let (units, last) = (want.units(u32::MAX), self.last_unit());
        let (start, end) = (u64::from(units.start).min(last), u64::from(units.end));
        start..if end > last { self.units() } else { end }
    }

    /// How many levels the tree of this node has.
    const fn levels_of(self, node: Node) -> u8 {
        if node.is_far() { self.levels } else { self.levels - self.crown }
    }

    /// How many nodes the near tree has, or the only one.
    pub const fn near_nodes(self) -> u32 {
        first_index(self.levels - self.crown) - 1
    }

    /// How many nodes lie with the lock's own words: those, and the crown's.
    pub(super) const fn nodes_by_lock(self) -> u32 {
        let of_crown = if self.crown == 0 { 0 } else { first_index(self.crown + 1) - 1 };
        self.near_nodes() + of_crown
    }

    /// How many lie in a block: those below the root of a subtree.
    pub(super) const fn nodes_of_block(self) -> u32 {
        self.near_nodes() - 1
    }

    /// How many blocks there may be. In the first subtree nobody has anything.
    pub(super) const fn blocks(self) -> u32 {
        (1 << (FANOUT_BITS * self.crown as u32)) - 1
    }

    /// Where a node lies.
    #[inline]
    pub(super) const fn lies(self, node: Node) -> Lies {
        if !node.is_far() {
            return Lies::Near(node.index() - 1);
        }
        if node.level <= self.crown {
            return Lies::Near(self.near_nodes() + node.index() - 1);
        }
        let (place, level) = (node.place_in_tree(), node.level - self.crown);
        let shift = FANOUT_BITS * level as u32;
        let subtree = place >> shift;
        Lies::InBlock(subtree, first_index(level) - 2 + place - (subtree << shift))
    }

    /// Of these units, the subtrees of the first one and the last one, where these have nodes in a
    /// block.
    pub fn far_ends(self, units: &Range<u64>) -> [Option<u32>; 2] {
        let span = self.near_units();
        if units.end <= span {
            return [None; 2];
        }
        let far = |unit: u64| {
            let subtree = unit / span;
            let (start, end) = (subtree * span, (subtree + 1) * span);
            let is_whole = units.start <= start && end <= units.end;
            (subtree > 0 && !is_whole).then_some(subtree as u32)
        };
        [far(units.start), far(units.end - 1)]
    }

    /// The levels of those ancestors that count a node. In the far tree those that do so in its
    /// subtree; and in the crown those which count a child of the subtree's root.
    #[inline]
    pub const fn notified(self, node: Node, distance: u8) -> Levels {
        let (level, crown) = (node.level, self.crown);
        if !node.is_far() || level <= crown {
            return Levels(Levels::notified(level, distance));
        }
        let within = Levels::notified(level - crown, distance) << crown;
        Levels(within | Levels::notified(crown + 1, distance))
    }

    /// Whether this node is a leaf.
    #[inline]
    pub const fn is_leaf(self, node: Node) -> bool {
        node.level + 1 == self.levels_of(node)
    }

    /// How many units this node has, or would have, if the far tree had the first ones as well.
    pub const fn span(self, node: Node) -> u64 {
        (self.leaf_units as u64) << (FANOUT_BITS * (self.levels_of(node) - 1 - node.level) as u32)
    }

    /// Whether its children are leaves, which lie with the lock's own words.
    #[inline]
    pub(super) fn is_above_leaves(self, node: Node) -> bool {
        let is_above = !self.is_leaf(node) && self.is_leaf(node.child(0));
        is_above && matches!(self.lies(node.child(0)), Lies::Near(_))
    }

    /// The bits that a leaf has.
    #[inline]
    pub(super) const fn all_bits(self) -> u64 {
        u64::MAX >> (u64::BITS - self.leaf_units as u32)
    }

    /// The units of this node.
    pub const fn units_of(self, node: Node) -> Range<u64> {
        let Range { start, end } = self.reach_of(node);
        let is_short = node.is_far() && start < self.near_units();
        if is_short { self.near_units()..end } else { start..end }
    }

    /// The same, of the far tree as if it had the first ones as well.
    pub(super) const fn reach_of(self, node: Node) -> Range<u64> {
        let (span, place) = (self.span(node), node.place_in_tree() as u64);
        place * span..(place + 1) * span
    }

    /// The leaf that has this unit.
    #[inline]
    pub const fn leaf_of(self, unit: u64) -> Node {
        let place = (unit / self.leaf_units as u64) as u32;
        if unit < self.near_units() {
            return Node { level: self.levels - self.crown - 1, place };
        }
        let level = self.levels - 1;
        Node { level, place: Node::FAR_ROOT.place << (FANOUT_BITS * level as u32) | place }
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
    /// internal ones within so many levels, level by level, in its subtree or in the crown. The
    /// root of a subtree counts all that are below it. Of each level the first node, and how many
    /// lie there one after the other.
    pub fn window(self, node: Node, distance: u8) -> impl Iterator<Item = (Node, u32)> + Clone {
        let level = node.level;
        let end = match node.is_far() {
            true if level < self.crown => self.crown + 1,
            true if level == self.crown => level + 1,
            _ => self.levels_of(node) - 1,
        };
        (level..end.min(level + distance)).map(move |level| {
            let shift = FANOUT_BITS * u32::from(level - node.level);
            (Node { level, place: node.place << shift }, 1 << shift)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every node that has units, level by level, the near ones first.
    fn all(tree: Tree) -> impl Iterator<Item = Node> {
        let level = |level: u8, far: u32| {
            let nodes = FANOUT.pow(level.into());
            (0..nodes).map(move |place| Node { level, place: far * nodes + place })
        };
        let near = (0..tree.levels - tree.crown).flat_map(move |at| level(at, 0));
        let far = (0..tree.levels).flat_map(move |at| level(at, 1)).filter(move |&node| {
            let units = tree.units_of(node);
            tree.crown > 0 && units.start < units.end
        });
        near.chain(far)
    }

    const SMALL: Tree = Tree { levels: 5, leaf_units: 3, crown: 0 };

    /// A tree alone, and two with ever more levels of a crown.
    fn one_and_two() -> impl Iterator<Item = Tree> {
        (0..=SMALL.levels - 2).map(|crown| Tree { crown, ..SMALL })
    }

    #[test]
    fn nodes_lie_one_after_the_other_and_are_numbered_as_the_paper_has_it() {
        for (number, node) in (1..).zip(all(SMALL)) {
            assert_eq!((node.index(), SMALL.lies(node)), (number, Lies::Near(number - 1)));
            for child in 0..FANOUT {
                assert_eq!(node.child(child).index(), 4 * number - 2 + child);
                assert_eq!(node.child(child).parent(), Some(node));
            }
            assert_eq!(node.parent().map_or(0, Node::index), (number + 2) / 4);
        }
        assert_eq!(all(SMALL).count(), SMALL.near_nodes() as usize);
    }

    #[test]
    fn every_node_has_a_place_of_its_own() {
        for tree in one_and_two() {
            let mut places: Vec<_> = all(tree)
                .map(|node| match tree.lies(node) {
                    Lies::Near(at) => {
                        assert!(at < tree.nodes_by_lock(), "{tree:?} {node:?}");
                        (0, at)
                    }
                    Lies::InBlock(subtree, at) => {
                        let root = node.at_level(tree.crown);
                        assert_eq!(subtree, root.place_in_tree(), "{tree:?} {node:?}");
                        assert!((1..=tree.blocks()).contains(&subtree), "{tree:?} {node:?}");
                        assert!(at < tree.nodes_of_block(), "{tree:?} {node:?}");
                        (subtree, at)
                    }
                })
                .collect();
            places.sort_unstable();
            assert!(places.is_sorted_by(|a, b| a < b), "{tree:?}");
        }
    }

    /// Who has nothing in a block needs to know of none.
    #[test]
    fn blocks_are_needed_at_the_ends_of_a_range_alone() {
        for tree in one_and_two() {
            for (start, end) in (0..tree.units())
                .flat_map(|start| (start + 1..=tree.units()).map(move |end| (start, end)))
            {
                let units = start..end;
                let mut needed: Vec<u32> = vec![];
                for &node in tree.exact_cover(&units).iter().chain(&*tree.split(&units, 2)) {
                    let window = tree.window(node, 4).map(|(first, _)| first);
                    for node in window.chain(node.ancestors()).chain([node]) {
                        if let Lies::InBlock(subtree, _) = tree.lies(node) {
                            needed.push(subtree);
                        }
                    }
                }
                needed.sort_unstable();
                needed.dedup();
                let mut known: Vec<u32> = tree.far_ends(&units).into_iter().flatten().collect();
                known.dedup();
                assert_eq!(needed, known, "{tree:?} {units:?}");
            }
        }
        let tree = Tree { crown: 5, ..Tree::LARGEST };
        let last = tree.last_unit();
        assert_eq!(tree.far_ends(&(last..tree.units())), [None, None], "all that lies far behind");
        assert_eq!(tree.far_ends(&(0..tree.units())), [None, None]);
        assert_eq!(tree.far_ends(&(5..1 << 18)), [None, None]);
        assert_eq!(tree.far_ends(&(5..(1 << 18) + 1)), [None, Some(1)]);
        assert_eq!(tree.far_ends(&(1 << 20..(1 << 20) + 1)), [Some(4), Some(4)]);
    }

    /// The largest tree takes what section 4.1 says.
    #[test]
    fn two_to_the_28_units_take_less_than_43_mib() {
        let tree = Tree::LARGEST;
        assert_eq!((tree.units(), tree.near_nodes()), (1 << 28, 5_592_405));
        let mib = f64::from(tree.near_nodes()) * NODE_BYTES as f64 / f64::from(1 << 20);
        assert!(mib < 43.0, "{mib} MiB");
        assert_eq!(format!("{mib:.1}"), "42.7");
    }

    #[test]
    fn nodes_meet_exactly_those_with_which_they_share_units() {
        for (tree, a) in one_and_two().flat_map(|tree| all(tree).map(move |node| (tree, node))) {
            let here = tree.units_of(a);
            for b in all(tree) {
                let there = tree.units_of(b);
                let shared = here.start < there.end && there.start < here.end;
                assert_eq!(a.meets(b), shared, "{tree:?} {a:?} {b:?}");
                assert_eq!(a.is_above(b), shared && a.level() < b.level(), "{tree:?} {a:?} {b:?}");
                assert_eq!(a.is_above(b), b.ancestors().any(|node| node == a), "{a:?} {b:?}");
                let is_left = here.end <= there.start;
                assert!(shared || is_left == (a.begins() < b.begins()), "{tree:?} {a:?} {b:?}");
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
        for (tree, unit) in
            one_and_two().flat_map(|tree| (0..tree.units()).map(move |at| (tree, at)))
        {
            let leaf = tree.leaf_of(unit);
            assert!(tree.is_leaf(leaf) && tree.units_of(leaf).contains(&unit), "{tree:?} {unit}");
            assert_eq!(tree.mask(leaf, &(unit..unit + 1)), 1 << (unit % 3));
        }
    }

    /// The owner of a node looks at a node that each of its descendants notifies (section 3.5.5).
    #[test]
    fn those_above_and_below_meet_in_the_middle() {
        for (tree, distance) in one_and_two().flat_map(|tree| (1..=5).map(move |d| (tree, d))) {
            for below in all(tree) {
                let levels = tree.notified(below, distance);
                let notified: Vec<Node> = levels.map(|level| below.at_level(level)).collect();
                assert!(notified.iter().all(|node| node.is_above(below)), "{below:?}");
                assert!(notified.is_sorted_by(|a, b| a > b), "each once: {notified:?}");
                for above in below.ancestors() {
                    let mut looked_at = tree
                        .window(above, distance)
                        .flat_map(|(first, count)| (0..count).map(move |nodes| first.plus(nodes)));
                    let meets = looked_at.any(|node| notified.contains(&node));
                    assert!(meets, "{above:?} and {below:?} at {distance} in {tree:?}");
                }
            }
        }
    }

    /// So they do where the one below notifies for a lower distance than the one above looks: a
    /// change of the distance rests on this. The other way round they may miss each other.
    #[test]
    fn those_who_notify_for_less_are_met_by_those_who_look_further() {
        let meet = |tree: Tree, (above, looks): (Node, u8), (below, notifies): (Node, u8)| {
            let levels = tree.notified(below, notifies);
            let notified: Vec<Node> = levels.map(|level| below.at_level(level)).collect();
            let window = tree.window(above, looks);
            let nodes = |(first, count): (Node, u32)| (0..count).map(move |at| first.plus(at));
            window.flat_map(nodes).any(|node| notified.contains(&node))
        };
        let distances = 1..=DISTANCE_MAX;
        for tree in one_and_two() {
            for below in all(tree) {
                for (notifies, looks) in distances.clone().flat_map(|notifies| {
                    (notifies..=DISTANCE_MAX).map(move |looks| (notifies, looks))
                }) {
                    for above in below.ancestors() {
                        let both = format!("{above:?} by {looks}, {below:?} by {notifies}");
                        assert!(
                            meet(tree, (above, looks), (below, notifies)),
                            "{both} in {tree:?}"
                        );
                    }
                }
            }
        }
        let leaf = SMALL.leaf_of(0);
        assert!(!meet(SMALL, (Node::ROOT, 1), (leaf, 2)), "what is between two is not looked at");
    }

    /// Of the largest tree, with four levels between two who meet, the parent and two more.
    #[test]
    fn few_are_notified() {
        let tree = Tree::LARGEST;
        let levels =
            |level, distance| tree.notified(Node { level, place: 0 }, distance).collect::<Vec<_>>();
        assert_eq!(levels(11, 4), [10, 6, 3]);
        assert_eq!((levels(4, 4), levels(3, 4), levels(0, 4)), (vec![3], vec![2], vec![]));
        assert_eq!(levels(3, 1), [2, 1, 0]);
        let tree = Tree { crown: 5, ..tree };
        let of = |unit| tree.notified(tree.leaf_of(unit), 4).collect::<Vec<_>>();
        assert_eq!((of(7), of(1 << 20)), (vec![5, 3], vec![10, 8, 5, 3]));
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
