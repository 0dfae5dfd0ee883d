//! Which nodes a client locks for a range: few that cover it, and little else.
//!
//! A knapsack on the tree (section 3.5.1): of all ways to cover the range by at most so many nodes
//! the one with the fewest units that nobody asked for; of those the fewest nodes, of those the one
//! whose largest node is smallest, of those the leftmost. A leaf covers exactly the units that are
//! asked of it, since each has a bit of its own.
//!
//! What to choose from lies on two paths, from the lowest node that has all of the range down to
//! its ends: of each, which node ends it.

use std::ops::{Deref, Range};

use smallvec::SmallVec;

use super::tree::{FANOUT, Node, Tree};

/// The most nodes that one range is split into, where they are counted.
pub const SPLIT_MAX: usize = 5;

/// The most nodes of any range, if they have its units and no others.
pub const COVER_MAX: usize = 64;

/// So many nodes lie where the request does; those of more, which are rare, in the heap.
pub(super) const NODES_INLINE: usize = 6;

/// Nodes from left to right, no two of which meet.
#[derive(Clone)]
pub struct Nodes(SmallVec<[Node; NODES_INLINE]>);

impl Nodes {
    const NONE: Self = Self(SmallVec::new_const());

    /// Where each of them begins.
    fn begin(&self) -> impl Iterator<Item = u32> {
        self.iter().map(|node| node.begins())
    }

    fn push(&mut self, node: Node) {
        self.0.push(node);
    }
}

impl Deref for Nodes {
    type Target = [Node];

    fn deref(&self) -> &[Node] {
        &self.0
    }
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// How the units of one child of the split node are covered, from one end of it on: by a node on
/// the path to the range's own end, the *cut*, and by all nodes beside that path above it.
#[derive(Clone, Copy)]
struct Cut {
    node: Node,
    waste: u64,
    /// Units of the largest node.
    largest: u64,
}

/// The ends of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Left,
    Right,
}

/// The best cuts by exactly so many nodes, counted from 1, where there are any. The lower a cut is
/// the less it wastes, so of those with as many nodes it is the lowest.
type Cuts = [Option<Cut>; SPLIT_MAX];

impl Tree {
    /// The nodes to lock for these units: of the near ones and of the far ones at most so many.
    ///
    /// # Panics
    /// If the tree has not all of them, they are none, or more than [`SPLIT_MAX`] nodes are asked
    /// for, or none.
    pub fn split(self, units: &Range<u64>, nodes_max: usize) -> Nodes {
        assert!((1..=SPLIT_MAX).contains(&nodes_max), "a range is split into 1 to {SPLIT_MAX}");
        assert!(!units.is_empty() && units.end <= self.units(), "the tree has these units");
        let near = self.near_units();
        if units.end <= near || near <= units.start {
            return self.split_in_tree(units, nodes_max);
        }
        let mut nodes = self.split_in_tree(&(units.start..near), nodes_max);
        nodes.0.extend(self.split_in_tree(&(near..units.end), nodes_max).0);
        nodes
    }

    /// The same of units that one tree has.
    fn split_in_tree(self, units: &Range<u64>, nodes_max: usize) -> Nodes {
        let (first, last) = (self.leaf_of(units.start), self.leaf_of(units.end - 1));
        let top = first.lowest_with(last);
        let mut best = Nodes::NONE;
        best.push(top);
        let waste = self.span(top) - (units.end - units.start);
        if self.is_leaf(top) || waste == 0 || nodes_max == 1 {
            return best;
        }
        let (left, right) = (first.at_level(top.level() + 1), last.at_level(top.level() + 1));
        let between = left.nodes_before(right);
        let lefts = self.cuts(left, units, End::Left, nodes_max);
        let rights = self.cuts(right, units, End::Right, nodes_max);
        let mut cost = (waste, 1, self.span(top));
        for (i, left_cut) in (1..).zip(lefts) {
            let Some(left_cut) = left_cut else { continue };
            for (j, right_cut) in (1..).zip(rights).take(nodes_max.saturating_sub(i + between)) {
                let Some(right_cut) = right_cut else { continue };
                let largest = left_cut.largest.max(right_cut.largest);
                let span = if between > 0 { self.span(left) } else { 0 };
                let waste = left_cut.waste + right_cut.waste;
                let this = (waste, i + between + j, largest.max(span));
                if this > cost {
                    continue;
                }
                let nodes = joined(left, left_cut.node, right, right_cut.node);
                if this < cost || nodes.begin().lt(best.begin()) {
                    (cost, best) = (this, nodes);
                }
            }
        }
        best
    }

    /// The cuts of what the range has of this node: from its `end` on to the node's other one.
    fn cuts(self, node: Node, units: &Range<u64>, end: End, nodes_max: usize) -> Cuts {
        let mut cuts = [None; SPLIT_MAX];
        let (mut node, mut beside, mut largest) = (node, 0, 0);
        while beside < nodes_max {
            let (own, span) = (self.reach_of(node), self.span(node));
            let unasked = match end {
                End::Left => units.start.saturating_sub(own.start),
                End::Right => own.end.saturating_sub(units.end),
            };
            let is_leaf = self.is_leaf(node);
            let waste = if is_leaf { 0 } else { unasked };
            cuts[beside] = Some(Cut { node, waste, largest: span.max(largest) });
            if waste == 0 {
                break;
            }
            let quarter = span / u64::from(FANOUT);
            let outside = (unasked / quarter) as u32;
            let inside = FANOUT - 1 - outside;
            if inside > 0 {
                largest = largest.max(quarter);
            }
            beside += inside as usize;
            node = node.child(if end == End::Left { outside } else { inside });
        }
        cuts
    }

    /// The nodes that have exactly these units, from left to right: at most 64, of which those that
    /// are not leaves have all of theirs.
    ///
    /// # Panics
    /// If the tree has not all of them.
    pub fn exact_cover(self, units: &Range<u64>) -> Nodes {
        assert!(units.end <= self.units(), "the tree has these units");
        let mut cover = Nodes::NONE;
        let mut next = units.start;
        while next < units.end {
            let mut node = self.leaf_of(next);
            while let Some(above) = node.parent() {
                let own = self.units_of(above);
                if own.start < next || own.end > units.end {
                    break;
                }
                node = above;
            }
            cover.push(node);
            next = self.units_of(node).end;
        }
        cover
    }
}

/// The nodes from the left cut to the right one, which lie below these two neighbours, or equal
/// them: all that are beside the paths to the cuts.
fn joined(left: Node, left_cut: Node, right: Node, right_cut: Node) -> Nodes {
    let mut nodes = Nodes::NONE;
    let mut node = left_cut;
    nodes.push(node);
    while node != left {
        while let Some(next) = node.next_sibling() {
            node = next;
            nodes.push(node);
        }
        node = node.parent().expect("a node below another one has a parent");
    }
    for number in 1..=left.nodes_before(right) as u32 {
        nodes.push(left.plus(number));
    }
    for level in right.level() + 1..=right_cut.level() {
        let on_path = right_cut.at_level(level);
        let mut beside = on_path.first_sibling();
        while beside != on_path {
            nodes.push(beside);
            beside = beside.plus(1);
        }
    }
    nodes.push(right_cut);
    nodes
}

#[cfg(test)]
mod tests {
    #[expect(clippy::disallowed_types, reason = "it is the speed that is tested")]
    use std::time::Instant;

    use super::*;

    const SMALL: [Tree; 3] = [
        Tree { levels: 4, leaf_units: 1, crown: 0 },
        Tree { levels: 3, leaf_units: 5, crown: 0 },
        Tree { levels: 2, leaf_units: 8, crown: 0 },
    ];

    /// Every range of a tree.
    fn ranges(tree: Tree) -> impl Iterator<Item = Range<u64>> {
        (0..tree.units()).flat_map(move |l| (l + 1..=tree.units()).map(move |r| l..r))
    }

    /// Every way to cover what this node has of these units, by at most so many nodes.
    fn covers(tree: Tree, node: Node, units: &Range<u64>, nodes_max: usize) -> Vec<Vec<Node>> {
        let own = tree.units_of(node);
        if own.end <= units.start || units.end <= own.start {
            return vec![vec![]];
        }
        let mut all = if nodes_max > 0 { vec![vec![node]] } else { vec![] };
        if !tree.is_leaf(node) {
            let mut split = vec![vec![]];
            for child in (0..FANOUT).map(|number| node.child(number)) {
                let mut longer: Vec<Vec<Node>> = vec![];
                for left in &split {
                    for right in covers(tree, child, units, nodes_max - left.len()) {
                        longer.push([&left[..], &right[..]].concat());
                    }
                }
                split = longer;
            }
            all.extend(split);
        }
        all
    }

    /// What a cover costs, by its definition.
    fn cost(tree: Tree, cover: &[Node], units: &Range<u64>) -> (u64, usize, u64, Vec<u32>) {
        let waste = |node: &Node| {
            let own = tree.units_of(*node);
            let asked = own.end.min(units.end) - own.start.max(units.start);
            if tree.is_leaf(*node) { 0 } else { tree.span(*node) - asked }
        };
        let spans = cover.iter().map(|node| tree.span(*node));
        (
            cover.iter().map(waste).sum(),
            cover.len(),
            spans.max().unwrap_or(0),
            cover.iter().map(|node| node.begins()).collect(),
        )
    }

    #[test]
    fn no_cover_is_better_than_the_split() {
        for tree in SMALL {
            for units in ranges(tree) {
                for nodes_max in 1..=SPLIT_MAX {
                    let all = covers(tree, Node::ROOT, &units, nodes_max);
                    let best = all.iter().map(|cover| cost(tree, cover, &units)).min();
                    let split = tree.split(&units, nodes_max);
                    let split = cost(tree, &split, &units);
                    assert_eq!(Some(split), best, "{tree:?} {units:?} by {nodes_max}");
                }
            }
        }
    }

    #[test]
    fn an_exact_cover_has_these_units_and_no_others() {
        for tree in SMALL {
            for units in ranges(tree) {
                let cover = tree.exact_cover(&units);
                let mut next = units.start;
                for &node in cover.iter() {
                    let own = tree.units_of(node);
                    let is_whole = own.start >= units.start && own.end <= units.end;
                    assert!(is_whole || tree.is_leaf(node), "{units:?} by {cover:?}");
                    assert_eq!(own.start.max(units.start), next, "{units:?} by {cover:?}");
                    next = own.end.min(units.end);
                }
                assert_eq!(next, units.end);
                let least = (1..=SPLIT_MAX).find(|&most| {
                    let split = tree.split(&units, most);
                    cost(tree, &split, &units).0 == 0
                });
                assert_eq!(least.unwrap_or(cover.len()), cover.len(), "none has fewer: {units:?}");
            }
        }
    }

    /// The longest cover of the largest tree: all but one unit at either end.
    #[test]
    fn an_exact_cover_has_at_most_64_nodes() {
        let tree = Tree::LARGEST;
        assert_eq!(tree.exact_cover(&(1..tree.units() - 1)).len(), COVER_MAX);
        assert_eq!(*tree.exact_cover(&(0..tree.units())), [Node::ROOT]);
    }

    /// What the paper says of its own (section 3.5.1), where nothing else runs; a bound that a busy
    /// machine keeps as well.
    #[test]
    #[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "as above")]
    fn a_split_takes_little_time() {
        let tree = Tree::LARGEST;
        for length in [1, 16, 256, 100_000] {
            let (begun, mut nodes, mut at) = (Instant::now(), 0, 1_u64);
            const SPLITS: u32 = 20_000;
            for _ in 0..SPLITS {
                at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let first = (at >> 32) % (tree.units() - length);
                nodes += tree.split(&(first..first + length), 2).len();
            }
            let each = begun.elapsed() / SPLITS;
            println!("{length} units: {each:?}, {nodes} nodes");
            assert!(each.as_nanos() < 5_000, "{each:?} for {length} units");
        }
    }
}
