//! A tree of intervals that may overlap and repeat: a treap by start, each node knowing the largest
//! end below it.
//!
//! Why not a library: the trees in kernels are intrusive, so that inserting allocates nothing, and
//! a baseline that allocates for every lock would lose for the wrong reason. Nodes here live in a
//! slab that is reused; a handle stays good until its interval is removed. Trees of libraries
//! either allocate each node or move entries when one is removed.

use crate::Range;

/// No node.
const NIL: u32 = u32::MAX;

/// Names an interval in the tree it was inserted in, until it is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Handle(u32);

struct Node<T> {
    range: Range,
    /// Tells apart intervals with one start: later ones are larger.
    order: u64,
    /// The largest last position of this node and those below.
    last_max: u64,
    /// Parents have larger ones.
    priority: u64,
    left: u32,
    right: u32,
    /// None while the slot is free.
    value: Option<T>,
}

/// Intervals with a value each.
pub(super) struct IntervalTree<T> {
    nodes: Vec<Node<T>>,
    free: Vec<u32>,
    root: u32,
    inserted: u64,
}

impl<T> Default for IntervalTree<T> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), root: NIL, inserted: 0 }
    }
}

impl<T> IntervalTree<T> {
    /// Adds an interval, whatever else is there.
    pub(super) fn insert(&mut self, range: Range, value: T) -> Handle {
        self.inserted += 1;
        let node = Node {
            range,
            order: self.inserted,
            last_max: range.last(),
            priority: scramble(self.inserted),
            left: NIL,
            right: NIL,
            value: Some(value),
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.nodes[slot as usize] = node;
                slot
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 ranges are held")
            }
        };
        self.root = self.insert_below(self.root, slot);
        Handle(slot)
    }

    /// Removes an interval and gives its value back.
    pub(super) fn remove(&mut self, handle: Handle) -> (Range, T) {
        let slot = handle.0;
        self.root = self.remove_below(self.root, slot);
        let node = &mut self.nodes[slot as usize];
        let value = node.value.take().expect("a handle is used once");
        let range = node.range;
        self.free.push(slot);
        (range, value)
    }

    /// Shows every interval that overlaps `range`, by start.
    pub(super) fn overlapping(&mut self, range: Range, mut see: impl FnMut(&mut T)) {
        self.overlapping_below(self.root, range, &mut see);
    }

    fn overlapping_below(&mut self, at: u32, range: Range, see: &mut impl FnMut(&mut T)) {
        if at == NIL || self.node(at).last_max < range.start() {
            return;
        }
        let (left, right) = (self.node(at).left, self.node(at).right);
        self.overlapping_below(left, range, see);
        let node = &mut self.nodes[at as usize];
        if node.range.start() > range.last() {
            return;
        }
        if node.range.overlaps(range) {
            see(node.value.as_mut().expect("linked nodes have values"));
        }
        self.overlapping_below(right, range, see);
    }

    fn insert_below(&mut self, at: u32, new: u32) -> u32 {
        if at == NIL {
            return new;
        }
        if self.node(new).priority > self.node(at).priority {
            let (left, right) = self.split(at, new);
            self.link(new, left, right);
            return new;
        }
        let (left, right) = (self.node(at).left, self.node(at).right);
        if self.before(new, at) {
            let left = self.insert_below(left, new);
            self.link(at, left, right);
        } else {
            let right = self.insert_below(right, new);
            self.link(at, left, right);
        }
        at
    }

    fn remove_below(&mut self, at: u32, gone: u32) -> u32 {
        assert!(at != NIL, "what is removed is in the tree");
        let (left, right) = (self.node(at).left, self.node(at).right);
        if at == gone {
            return self.merge(left, right);
        }
        if self.before(gone, at) {
            let left = self.remove_below(left, gone);
            self.link(at, left, right);
        } else {
            let right = self.remove_below(right, gone);
            self.link(at, left, right);
        }
        at
    }

    /// Two trees: what comes before `pivot`, and what after.
    fn split(&mut self, at: u32, pivot: u32) -> (u32, u32) {
        if at == NIL {
            return (NIL, NIL);
        }
        let (left, right) = (self.node(at).left, self.node(at).right);
        if self.before(at, pivot) {
            let (near, far) = self.split(right, pivot);
            self.link(at, left, near);
            (at, far)
        } else {
            let (far, near) = self.split(left, pivot);
            self.link(at, near, right);
            (far, at)
        }
    }

    /// One tree of two, all of `left` before all of `right`.
    fn merge(&mut self, left: u32, right: u32) -> u32 {
        if left == NIL || right == NIL {
            return if left == NIL { right } else { left };
        }
        if self.node(left).priority > self.node(right).priority {
            let below = self.merge(self.node(left).right, right);
            self.link(left, self.node(left).left, below);
            left
        } else {
            let below = self.merge(left, self.node(right).left);
            self.link(right, below, self.node(right).right);
            right
        }
    }

    fn link(&mut self, at: u32, left: u32, right: u32) {
        let below = [left, right].into_iter().filter(|&child| child != NIL);
        let last_max = below.map(|child| self.node(child).last_max).max();
        let node = &mut self.nodes[at as usize];
        node.left = left;
        node.right = right;
        node.last_max = node.range.last().max(last_max.unwrap_or(0));
    }

    fn before(&self, one: u32, other: u32) -> bool {
        let key = |at| (self.node(at).range.start(), self.node(at).order);
        key(one) < key(other)
    }

    fn node(&self, at: u32) -> &Node<T> {
        &self.nodes[at as usize]
    }
}

/// A bijection that leaves no order in what it is given (the finaliser of splitmix64).
fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u64),
        Remove(usize),
        Look(u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..40_u64, 0..12_u64).prop_map(|(start, more)| Step::Insert(start, start + more)),
            (0..64_usize).prop_map(Step::Remove),
            (0..48_u64, 0..12_u64).prop_map(|(start, more)| Step::Look(start, start + more)),
        ]
    }

    proptest! {
        #[test]
        fn it_answers_like_a_plain_list(steps in proptest::collection::vec(step(), 1..200)) {
            let mut tree = IntervalTree::default();
            let mut model: Vec<(Handle, Range, usize)> = Vec::new();
            for (at, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert(start, last) => {
                        let range = Range::inclusive(start, last).unwrap();
                        model.push((tree.insert(range, at), range, at));
                    }
                    Step::Remove(which) if !model.is_empty() => {
                        let (handle, range, value) = model.swap_remove(which % model.len());
                        prop_assert_eq!(tree.remove(handle), (range, value));
                    }
                    Step::Remove(_) => {}
                    Step::Look(start, last) => {
                        let range = Range::inclusive(start, last).unwrap();
                        let mut seen = Vec::new();
                        tree.overlapping(range, |value| seen.push(*value));
                        seen.sort_unstable();
                        let overlapping = model.iter().filter(|(_, held, _)| held.overlaps(range));
                        let mut expected: Vec<_> = overlapping.map(|&(_, _, v)| v).collect();
                        expected.sort_unstable();
                        prop_assert_eq!(seen, expected);
                    }
                }
            }
        }
    }
}
