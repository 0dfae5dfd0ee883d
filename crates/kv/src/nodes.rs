//! What a client remembers of the nodes of a tree: which prefix each has. Nothing here posts a
//! verb.
//!
//! A node that was ever part of the tree keeps its place and its prefix for good. So what is
//! remembered never leads astray, but to a node that was replaced: the slots of that one are
//! frozen.

use std::collections::BTreeMap;

use crate::word::SlotWord;

/// Nodes that are remembered at most; then it begins anew.
const NODES_MAX: usize = 1 << 16;

/// Nodes by their prefixes.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    by_depth: BTreeMap<usize, BTreeMap<Box<[u8]>, SlotWord>>,
    count: usize,
    /// A way to a key has met what is frozen.
    frozen: bool,
}

impl Nodes {
    /// The node with the longest prefix that this name begins with.
    pub(crate) fn deepest(&self, name: &[u8]) -> Option<(usize, SlotWord)> {
        let of_depth = |(&depth, nodes): (&usize, &BTreeMap<Box<[u8]>, SlotWord>)| {
            nodes.get(&name[..depth]).map(|word| (depth, *word))
        };
        self.by_depth.range(..=name.len()).rev().find_map(of_depth)
    }

    /// Some way has met what is frozen: the next change that fails may have failed of that.
    pub(crate) fn met_frozen(&mut self) {
        self.frozen = true;
    }

    /// Whether some way has, since this was asked.
    pub(crate) fn takes_frozen(&mut self) -> bool {
        std::mem::take(&mut self.frozen)
    }

    /// The nodes on the way to this name are not remembered any more.
    pub(crate) fn forget_on(&mut self, name: &[u8]) {
        while let Some((depth, _)) = self.deepest(name) {
            self.forget(&name[..depth]);
        }
    }

    /// Whether this node is remembered as the one with this prefix.
    pub(crate) fn knows(&self, prefix: &[u8], word: SlotWord) -> bool {
        let nodes = self.by_depth.get(&prefix.len());
        nodes.and_then(|nodes| nodes.get(prefix)) == Some(&word)
    }

    /// The node with this prefix is this one.
    pub(crate) fn put(&mut self, prefix: &[u8], word: SlotWord) {
        if self.count >= NODES_MAX {
            *self = Self::default();
        }
        let nodes = self.by_depth.entry(prefix.len()).or_default();
        self.count += usize::from(nodes.insert(prefix.into(), word).is_none());
    }

    /// The node with this prefix was replaced.
    pub(crate) fn forget(&mut self, prefix: &[u8]) {
        let Some(nodes) = self.by_depth.get_mut(&prefix.len()) else { return };
        self.count -= usize::from(nodes.remove(prefix).is_some());
        if nodes.is_empty() {
            self.by_depth.remove(&prefix.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_node_on_the_way_is_found() {
        let mut nodes = Nodes::default();
        assert_eq!(nodes.deepest(b"abc"), None);
        for (number, prefix) in (1..).zip([&b""[..], b"ab", b"abcd", b"b"]) {
            nodes.put(prefix, SlotWord(number));
        }
        assert_eq!(nodes.deepest(b"abc"), Some((2, SlotWord(2))));
        assert_eq!(nodes.deepest(b"abcd"), Some((4, SlotWord(3))));
        assert_eq!(nodes.deepest(b"a"), Some((0, SlotWord(1))));
        assert!(nodes.knows(b"b", SlotWord(4)) && !nodes.knows(b"b", SlotWord(3)));
        nodes.forget(b"ab");
        nodes.forget(b"ab");
        assert_eq!((nodes.deepest(b"abc"), nodes.count), (Some((0, SlotWord(1))), 3));
    }
}
