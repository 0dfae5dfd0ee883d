//! The tree: where its nodes lie, which units each has, and how they are related.
//!
//! A perfect quaternary tree, level by level, without a pointer (section 3.3). All is arithmetic: a
//! node's range meets only those of its ancestors and its descendants.
//!
//! A tree of few levels lies in one piece. A large one has a *crown*: its upper levels, down to the
//! roots of *subtrees*. What lies below a root is a *block* for itself: the first one lies behind
//! the crown, the others wherever there is room, when they are needed. Nobody looks from the crown
//! into a block but the first, so nobody who does not use it must know whether there is one.

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

    /// Whether it is the first of its level.
    const fn is_first(self) -> bool {
        self.place == 0
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
    pub const fn contains(self, level: u8) -> bool {
        self.0 >> level & 1 != 0
    }

    /// Of those above a node at this level of a tree in one piece, the ones that count it, where
    /// `distance` is that of the two who meet in the middle (section 3.5.5): its parent's, and from
    /// there every `distance`-th. Those above the level where the windows of the uppermost end are
    /// replaced by that one, so that few nodes count what all do.
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

    fn next(&mut self) -> Option<u8> {
        let lowest = self.0.checked_ilog2()?;
        self.0 ^= 1 << lowest;
        Some(lowest as u8)
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
    /// At which level its subtrees have their roots, above that of leaves' parents or there; 0 of a
    /// tree in one piece.
    pub crown: u8,
}

/// Where a node lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lies {
    /// In the crown, behind so many others.
    InCrown(u32),
    /// In the block of this subtree, behind so many others.
    InBlock(u32, u32),
}

/// Nodes that lie one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    first: Node,
    /// How many they are.
    pub(super) count: u32,
    /// Whether each is the child of the one before.
    goes_down: bool,
}

impl Run {
    const fn of(node: Node) -> Self {
        Self { first: node, count: 1, goes_down: false }
    }

    /// All of a level but the first `skipped` that lie below a node, or it alone.
    const fn below(node: Node, level: u8, skipped: u32) -> Self {
        let shift = FANOUT_BITS * (level - node.level) as u32;
        let first = Node { level, place: (node.place << shift) + skipped };
        Self { first, count: (1 << shift) - skipped, goes_down: false }
    }

    /// The first ones of these levels of the tree.
    const fn first_of(levels: Range<u8>) -> Self {
        let first = Node { level: levels.start, place: 0 };
        Self { first, count: (levels.end - levels.start) as u32, goes_down: true }
    }

    /// Those that lie in front.
    pub(super) const fn first(self) -> Node {
        self.first
    }

    /// The one behind so many others of them.
    pub(super) const fn node(self, number: u32) -> Node {
        match self.goes_down {
            true => Node { level: self.first.level + number as u8, place: 0 },
            false => self.first.plus(number),
        }
    }
}

impl Tree {
    /// The largest: 2^28 units.
    pub const LARGEST: Self = Self { levels: LEVELS_MAX, leaf_units: LEAF_UNITS_MAX, crown: 0 };

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

    /// The unit that stands for all positions behind it as well: the last one, or all of the last
    /// subtree, so that nobody who asks for what lies far behind needs a block.
    pub const fn last_unit(self) -> u64 {
        let last = if self.crown == 0 { 1 } else { self.subtree_units() };
        self.units() - last
    }

    /// How many units a subtree has.
    pub(super) const fn subtree_units(self) -> u64 {
        self.span(Node { level: self.crown, place: 0 })
    }

    /// How many nodes lie in the crown.
    pub(super) const fn nodes_of_crown(self) -> u32 {
        first_index(self.crown + 1) - 1
    }

    /// How many lie in a block: those below the root of a subtree.
    pub(super) const fn nodes_of_block(self) -> u32 {
        first_index(self.levels - self.crown) - 2
    }

    /// Where a node lies. In the crown the first nodes of all levels lie before the others, so that
    /// who comes from one of them reads them with one verb.
    #[inline]
    pub(super) const fn lies(self, node: Node) -> Lies {
        let Node { level, place } = node;
        if level > self.crown {
            let shift = FANOUT_BITS * (level - self.crown) as u32;
            let subtree = place >> shift;
            let within = place - (subtree << shift);
            return Lies::InBlock(subtree, first_index(level - self.crown) - 2 + within);
        }
        Lies::InCrown(match place {
            0 => level as u32,
            _ => (self.crown + 1 - level) as u32 + first_index(level) - 2 + place,
        })
    }

    /// Whether a node lies in the crown or in the first block.
    const fn is_near(self, node: Node) -> bool {
        match self.lies(node) {
            Lies::InCrown(_) => true,
            Lies::InBlock(subtree, _) => subtree == 0,
        }
    }

    /// Of these units, the subtrees of the first one and the last one, where they have nodes in a
    /// block that is not the first.
    pub fn far_ends(self, units: &Range<u64>) -> [Option<u32>; 2] {
        let span = self.subtree_units();
        let far = |unit: u64| {
            let subtree = unit / span;
            let (start, end) = (subtree * span, (subtree + 1) * span);
            let is_whole = units.start <= start && end <= units.end;
            (subtree > 0 && !is_whole).then_some(subtree as u32)
        };
        [far(units.start), far(units.end - 1)]
    }

    /// The levels of those ancestors that count a node: in its subtree those which do so in a tree
    /// in one piece. If that is not the first one, in the crown those that count a child of the
    /// root.
    #[inline]
    pub const fn notified(self, node: Node, distance: u8) -> Levels {
        if node.level <= self.crown {
            return Levels(Levels::notified(node.level, distance));
        }
        let within = Levels::notified(node.level - self.crown, distance) << self.crown;
        Levels(match self.is_near(node) {
            true => within,
            false => within | Levels::notified(self.crown + 1, distance),
        })
    }

    /// The ancestors of a node, the lowest first: in the crown the first ones of their levels
    /// together.
    pub(super) fn above(self, node: Node) -> impl Iterator<Item = Run> + Clone {
        let apart = (u32::BITS - node.place.leading_zeros()).div_ceil(FANOUT_BITS) as u8;
        let parent = node.level.checked_sub(1);
        let first = parent.map(|parent| parent.min(self.crown).min(node.level - apart));
        let others = first.map_or(0, |level| level + 1)..node.level;
        let others = others.rev().map(move |level| Run::of(node.at_level(level)));
        others.chain(first.map(|level| Run::first_of(0..level + 1)))
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
    /// internal ones within so many levels, level by level, in its own subtree or in the crown. For
    /// the first subtree it looks there as the owner of the root does; of another one the root
    /// counts all.
    pub(super) fn window(self, node: Node, distance: u8) -> impl Iterator<Item = Run> + Clone {
        let Node { level, place } = node;
        let is_first = node.is_first() && level < self.crown;
        let end = match level < self.crown {
            true => (level + distance).min(self.crown + 1),
            false if level == self.crown && place > 0 => level + 1,
            false => (level + distance).min(self.levels - 1),
        };
        let first = is_first.then(|| Run::first_of(level + 1..end)).filter(|run| run.count > 0);
        let skipped = u32::from(is_first);
        let levels = (level + 1..end).map(move |level| Run::below(node, level, skipped));
        let below = match is_first {
            true => end.max(self.crown)..(self.crown + distance).min(self.levels - 1),
            false => 0..0,
        };
        let root = Node { level: self.crown, place: 0 };
        let below = below.map(move |level| Run::below(root, level, 0));
        std::iter::once(Run::of(node)).chain(first).chain(levels).chain(below)
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

    const SMALL: Tree = Tree { levels: 5, leaf_units: 3, crown: 0 };

    /// A tree in one piece, and such of as many levels whose subtrees lie apart.
    fn small_and_apart() -> impl Iterator<Item = Tree> {
        (0..=SMALL.levels - 2).map(|crown| Tree { crown, ..SMALL })
    }

    #[test]
    fn nodes_lie_one_after_the_other_and_are_numbered_as_the_paper_has_it() {
        for (number, node) in (1..).zip(all(SMALL)) {
            assert_eq!(node.index(), number);
            let lies = match number {
                1 => Lies::InCrown(0),
                _ => Lies::InBlock(0, number - 2),
            };
            assert_eq!(SMALL.lies(node), lies);
            for child in 0..FANOUT {
                assert_eq!(node.child(child).index(), 4 * number - 2 + child);
                assert_eq!(node.child(child).parent(), Some(node));
            }
            assert_eq!(node.parent().map_or(0, Node::index), (number + 2) / 4);
        }
        assert_eq!(all(SMALL).count(), SMALL.nodes() as usize);
    }

    #[test]
    fn every_node_has_a_place_and_first_ones_lie_before_the_others() {
        for tree in small_and_apart() {
            let subtrees = 4_u32.pow(tree.crown.into());
            let (mut crown, mut blocks) = (vec![], vec![vec![]; subtrees as usize]);
            for node in all(tree) {
                match tree.lies(node) {
                    Lies::InCrown(at) => crown.push((at, node)),
                    Lies::InBlock(subtree, at) => {
                        let root = node.at_level(tree.crown);
                        assert_eq!(subtree, root.place, "{node:?}");
                        blocks[subtree as usize].push((at, node));
                    }
                }
            }
            for (lie, count) in std::iter::once((&mut crown, tree.nodes_of_crown()))
                .chain(blocks.iter_mut().map(|block| (block, tree.nodes_of_block())))
            {
                lie.sort_unstable();
                assert!(lie.iter().map(|&(at, _)| at).eq(0..count), "{tree:?}");
            }
            for (level, &(_, node)) in (0..=tree.crown).zip(&crown) {
                assert_eq!(node, Node { level, place: 0 }, "{tree:?}");
            }
        }
    }

    /// What is read with one verb lies one after the other.
    #[test]
    fn runs_lie_in_one_piece() {
        for tree in small_and_apart() {
            for node in all(tree) {
                let above: Vec<Run> = tree.above(node).collect();
                let nodes =
                    above.iter().flat_map(|run| (0..run.count).rev().map(|at| run.node(at)));
                assert!(nodes.eq(node.ancestors()), "{tree:?} {node:?}: {above:?}");
                let window = (!tree.is_leaf(node)).then(|| tree.window(node, 2));
                for run in above.into_iter().chain(window.into_iter().flatten()) {
                    let follows = |first, number: u32| match first {
                        Lies::InCrown(at) => Lies::InCrown(at + number),
                        Lies::InBlock(subtree, at) => Lies::InBlock(subtree, at + number),
                    };
                    for number in 0..run.count {
                        let lies = tree.lies(run.node(number));
                        assert_eq!(lies, follows(tree.lies(run.first()), number), "{run:?}");
                    }
                }
            }
        }
    }

    /// Who has nothing in a block but the first needs to know of none.
    #[test]
    fn blocks_are_needed_at_the_ends_of_a_range_alone() {
        for tree in small_and_apart() {
            for start in 0..tree.units() {
                for end in start + 1..=tree.units() {
                    let units = start..end;
                    let ends = tree.far_ends(&units);
                    let mut needed: Vec<u32> = vec![];
                    for node in tree.exact_cover(&units).iter().chain(&*tree.split(&units, 2)) {
                        let window = (!tree.is_leaf(*node)).then(|| tree.window(*node, 4));
                        let runs = window.into_iter().flatten().chain(tree.above(*node));
                        for run in runs.chain(std::iter::once(Run::of(*node))) {
                            if let Lies::InBlock(subtree @ 1.., _) = tree.lies(run.first()) {
                                needed.push(subtree);
                            }
                        }
                    }
                    needed.sort_unstable();
                    needed.dedup();
                    let mut known: Vec<u32> = ends.into_iter().flatten().collect();
                    known.dedup();
                    assert_eq!(needed, known, "{tree:?} {units:?}");
                }
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
        for (tree, distance) in small_and_apart().flat_map(|tree| (1..=5).map(move |d| (tree, d))) {
            for below in all(tree) {
                let levels = tree.notified(below, distance);
                let notified: Vec<Node> = levels.map(|level| below.at_level(level)).collect();
                assert!(notified.iter().all(|node| node.is_above(below)), "{below:?}");
                assert!(notified.is_sorted_by(|a, b| a > b), "each once: {notified:?}");
                for above in below.ancestors() {
                    let window = tree.window(above, distance);
                    let mut looked_at =
                        window.flat_map(|run| (0..run.count).map(move |at| run.node(at)));
                    let meets = looked_at.any(|node| notified.contains(&node));
                    assert!(meets, "{above:?} and {below:?} at {distance} in {tree:?}");
                }
            }
        }
    }

    /// Nobody is looked at twice, nor anybody who is not below.
    #[test]
    fn a_window_has_nodes_below_alone() {
        for (tree, distance) in small_and_apart().flat_map(|tree| (1..=4).map(move |d| (tree, d))) {
            for node in all(tree).filter(|&node| !tree.is_leaf(node)) {
                let window = tree.window(node, distance);
                let nodes: Vec<Node> =
                    window.flat_map(|run| (0..run.count).map(move |at| run.node(at))).collect();
                assert_eq!(nodes[0], node);
                let mut sorted = nodes.clone();
                sorted.sort_unstable();
                sorted.dedup();
                assert_eq!(sorted.len(), nodes.len(), "{tree:?} {node:?} at {distance}");
                assert!(
                    nodes[1..].iter().all(|&below| node.is_above(below) && !tree.is_leaf(below))
                );
            }
        }
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
        assert_eq!((of(7), of(1 << 20)), (vec![10, 8], vec![10, 8, 5, 3]));
    }

    #[test]
    fn a_window_has_the_internal_nodes_of_its_levels() {
        let window = |node: Node, distance| {
            let runs = SMALL.window(node, distance);
            runs.map(|run| (run.first().index(), run.count)).collect()
        };
        let of_root: Vec<_> = window(Node::ROOT, 3);
        assert_eq!(of_root, [(1, 1), (2, 4), (6, 16)]);
        let low: Vec<_> = window(Node::ROOT.child(1).child(2), 4);
        assert_eq!(low, [(12, 1), (46, 4)], "leaves are no part of it");
    }
}
