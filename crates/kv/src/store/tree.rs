//! Going from the root of a tree to where a key is, or would be.
//!
//! On the way only the bytes are compared at which nodes branch. Whatever key is at its end, the
//! one that was looked for is nowhere else: each node above a key has a prefix that the key begins
//! with. So a read takes a round trip for each node and one for the block, and none for prefixes.
//!
//! *Why a way is right though nodes are replaced meanwhile.* A node is replaced only when all of
//! its lines and slots are frozen, and nothing of them changes after that. A slot that is not
//! frozen when it is read is therefore part of the tree then. What a frozen one says it said when
//! it was frozen; and the node was in the tree when the slot above it was read, or when that was
//! frozen, so at the later of both moments it was so: during the call.
//!
//! *Why a client may begin at a node that it remembers.* A node has its prefix for good, and as
//! long as it is in the tree, all keys with that prefix are below it. Whether it is, its own line
//! tells: if that is frozen the client begins at the root. A pointer back to the slot above would
//! tell no more.

use farlock_fabric::Addr;

use super::core::Store;
use crate::error::ReadError;
use crate::far::{self, Words};
use crate::flaw::Flaw;
use crate::index::smart_node::{LINE_WORDS, MapWord, Node, Spot, symbol};
use crate::index::{Index, Key};
use crate::key::KEY_BYTES_MAX;
use crate::shape::Block;
use crate::sync::Scheme;
use crate::word::SlotWord;

/// A slot on the way, as it was read. Each but the last one names the node that the next is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step {
    /// `None`: the node was remembered, and no slot read.
    pub(super) slot: Option<Addr>,
    pub(super) word: SlotWord,
}

/// Where a way ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// At a slot that names no node.
    Slot,
    /// At a node whose prefix is longer than the key.
    Short,
    /// At a node that has no slot for what comes next; this line would give it one.
    Unmapped(Addr, MapWord),
}

/// The way to a key: at least one step.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) steps: Vec<Step>,
    pub(super) end: End,
}

impl Way {
    /// The slot where it ends, if it ends at one.
    pub(super) fn slot(&self) -> Option<(Addr, SlotWord)> {
        let last = self.steps.last()?;
        (self.end == End::Slot).then_some((last.slot?, last.word))
    }

    /// The nodes on it, each with its step.
    pub(super) fn nodes(&self) -> impl DoubleEndedIterator<Item = (Step, Node)> {
        self.steps.iter().filter_map(|step| Some((*step, Node::named_by(step.word)?)))
    }

    /// The step to the first node on it that is being replaced.
    pub(super) fn first_frozen(&self) -> Option<Step> {
        let at = self.steps.iter().skip(1).position(|step| step.word.is_frozen());
        let is_map_frozen = matches!(self.end, End::Unmapped(_, map) if map.is_frozen());
        let last = is_map_frozen.then(|| self.steps.len() - 1);
        at.or(last).map(|at| self.steps[at])
    }

    /// Whether the node at which it begins was remembered and is being replaced, or was.
    fn is_stale(&self) -> bool {
        self.first_frozen().is_some_and(|step| step.slot.is_none())
    }
}

impl<S: Scheme, I: Index> Store<S, I> {
    /// The way to a key, from the deepest node on it that is remembered.
    pub(super) async fn way(&self, name: &[u8]) -> Result<Way, ReadError> {
        let remembered = self.nodes.borrow().deepest(name);
        if let Some((depth, word)) = remembered {
            let way = self.way_from(name, Step { slot: None, word }).await?;
            if !way.is_stale() || self.errs(Flaw::StaleNode) {
                return Ok(way);
            }
            self.nodes.borrow_mut().forget(&name[..depth]);
        }
        self.way_from_root(name).await
    }

    /// The way to a key from the root.
    pub(super) async fn way_from_root(&self, name: &[u8]) -> Result<Way, ReadError> {
        let slot = self.shape.first_table();
        let word = SlotWord(far::read_word(self.endpoint(), slot).await?);
        self.way_from(name, Step { slot: Some(slot), word }).await
    }

    async fn way_from(&self, name: &[u8], first: Step) -> Result<Way, ReadError> {
        let (mut steps, mut word, mut above) = (vec![first], first.word, None);
        for _ in 0..=KEY_BYTES_MAX + 1 {
            let Some(node) = Node::named_by(word) else { return Ok(Way { steps, end: End::Slot }) };
            if above.is_some_and(|above| node.depth <= above) || !self.is_block(node) {
                return Err(ReadError::Corrupt);
            }
            if node.depth > name.len() {
                return Ok(Way { steps, end: End::Short });
            }
            above = Some(node.depth);
            let symbol = symbol(name, node.depth);
            let start = self.shape.block_addr(node.number);
            let slot = match node.spot(symbol) {
                Spot::Slot(at) => {
                    let slot = start.plus(at as u64 * 8);
                    word = SlotWord(self.read_node(slot, 1).await?[0]);
                    slot
                }
                Spot::Line(at) => {
                    let line = start.plus(at as u64 * 8);
                    let words = self.read_node(line, LINE_WORDS).await?;
                    let map = MapWord(words[0]);
                    let Some(place) = map.place(symbol) else {
                        return Ok(Way { steps, end: End::Unmapped(line, map) });
                    };
                    word = SlotWord(words[1 + place]);
                    line.plus(8 + place as u64 * 8)
                }
            };
            steps.push(Step { slot: Some(slot), word });
        }
        Err(ReadError::Corrupt)
    }

    /// Whether a node lies where one can.
    pub(super) fn is_block(&self, node: Node) -> bool {
        let block = node.block().filter(|block| self.shape.blocks(block.class) > 0);
        block.and_then(|block| self.shape.place(block)).is_some()
    }

    /// The prefix of a node that was in the tree.
    pub(super) async fn prefix(&self, node: Node) -> Result<Vec<u8>, ReadError> {
        let addr = self.shape.block_addr(node.number);
        let words = self.read_node(addr, node.body_at()).await?;
        node.opened(&words).map(|(prefix, _)| prefix).ok_or(ReadError::Corrupt)
    }

    /// A key was found below these nodes.
    pub(super) fn remember_nodes(&self, key: &Key<'_>, nodes: &[SlotWord]) {
        let mut known = self.nodes.borrow_mut();
        for &word in nodes {
            if let Some(node) = Node::named_by(word) {
                known.put(&key.bytes()[..node.depth], word.thawed());
            }
        }
    }

    /// Whether this use of a block is a node that was ever in the tree: its prefix leads there, or
    /// it was frozen, which only such nodes are. It was looked for first, so that if it was
    /// replaced meanwhile that is seen.
    pub(super) async fn was_installed(
        &self,
        block: Block,
        words: &[u64],
    ) -> Result<bool, ReadError> {
        let Some(node) = Node::headed(block.number, words[0]) else { return Ok(false) };
        let opened = node.opened(words).filter(|(_, generation)| *generation == block.generation);
        let Some((prefix, _)) = opened.filter(|_| self.is_block(node)) else { return Ok(false) };
        let way = self.way_from_root(&prefix).await?;
        if way.steps.iter().any(|step| step.word.thawed() == node.word()) {
            return Ok(true);
        }
        let body = self.body(node).await?;
        Ok(node.maps(&body).any(|(_, map)| map.is_frozen()))
    }

    /// The lines of a node.
    pub(super) async fn body(&self, node: Node) -> Result<Vec<u64>, ReadError> {
        let addr = self.shape.block_addr(node.number).plus(node.body_at() as u64 * 8);
        self.read_node(addr, node.words() - node.body_at()).await
    }

    /// Words of a node. What leads to one in no memory is damaged.
    pub(super) async fn read_node(&self, addr: Addr, words: usize) -> Result<Words, ReadError> {
        let found = far::read_named(self.endpoint(), addr, words).await?;
        found.ok_or(ReadError::Corrupt)
    }
}
