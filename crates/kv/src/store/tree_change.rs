//! Changing the shape of a tree: a slot comes to name a new node, which nobody has seen, instead of
//! what it said. What keys there are and what their values are stays the same.
//!
//! | the slot says | the new node has | why |
//! | --- | --- | --- |
//! | another key's block | that block, below what both keys begin with | a key comes beside it |
//! | a node whose prefix the key lacks | that node, below what both begin with | the same |
//! | a node of which a line is full | what it has | a slot more is needed |
//!
//! The first two are one compare, since nothing of what is below the slot changes place: a node
//! keeps its prefix. In the third all is copied. So the old node is *frozen* first: its lines, so
//! that no slot is given away any more, and its slots, each by a compare that keeps what it says. A
//! change of a key compares with a word that is not frozen, and fails. Then what it says is copied,
//! and the slot above is compared. Any client that wants to change something and meets what is
//! frozen does the rest of all this itself, with a node of its own; one succeeds, and the others
//! give theirs back. The memory for the new node is there before the old one is frozen, so that a
//! store that is full does not keep keys frozen.
//!
//! Why nothing is written into a node once more: nodes change, unlike values. Where the completion
//! of the chain that writes one is lost, it is not posted again; the tree tells what became of it,
//! and if it does not tell, the node's memory is left alone as long as this client lives.

use farlock_fabric::Addr;

use super::change::{Change, Purpose, Verdict};
use super::core::Store;
use super::tree::{End, Step, Way};
use crate::error::{ReadError, WriteError};
use crate::far;
use crate::flaw::Flaw;
use crate::index::smart_node::{Entry, Kind, Node, Symbol, common, symbol};
use crate::index::{Index, Key};
use crate::shape::Block;
use crate::sync::Scheme;
use crate::word::SlotWord;

/// How often a place is looked for while others change the tree.
const TURNS_MAX: u32 = 10_000;

/// A block that no verb has written yet. Dropped, it is handed out again.
struct Held<'s, S: Scheme, I: Index> {
    store: &'s Store<S, I>,
    block: Option<Block>,
}

impl<S: Scheme, I: Index> Drop for Held<'_, S, I> {
    fn drop(&mut self) {
        self.block.take().into_iter().for_each(|block| {
            self.store.pool.borrow_mut().give_back(block);
        });
    }
}

/// What is next for a key that is to come into the tree.
enum Next {
    /// This empty slot is its.
    Room((Addr, SlotWord)),
    /// It is there.
    Exists,
    /// The tree has changed.
    Again,
}

impl<S: Scheme, I: Index> Store<S, I> {
    /// An empty slot for a key that was absent; `None`: it is there by now. Makes the tree such
    /// that there is one.
    pub(super) async fn room_in_tree(
        &self,
        key: &Key<'_>,
    ) -> Result<Option<(Addr, SlotWord)>, WriteError> {
        // The slot that pointed to what was no block when it was last read.
        let mut suspect = None;
        for turn in 0..TURNS_MAX {
            // Mostly the node that is remembered has room; what takes more begins at the root.
            let way = match turn {
                0 => self.way(key.bytes()).await?,
                _ => self.open_way(key).await?,
            };
            if way.first_frozen().is_some() {
                continue;
            }
            match self.next_on(key, &way, &mut suspect).await? {
                Next::Room(slot) => return Ok(Some(slot)),
                Next::Exists => return Ok(None),
                Next::Again => {}
            }
        }
        Err(WriteError::Busy)
    }

    /// The way to a key from the root, on which nothing is frozen: what others have begun to
    /// replace is replaced.
    async fn open_way(&self, key: &Key<'_>) -> Result<Way, WriteError> {
        for _ in 0..TURNS_MAX {
            let way = self.way_from_root(key.bytes()).await?;
            let Some(step) = way.first_frozen() else { return Ok(way) };
            self.replace(step).await?;
        }
        Err(WriteError::Busy)
    }

    /// Finishes what others have begun to replace on the way to a key whose change has failed.
    pub(super) async fn clear_way(&self, key: &Key<'_>) -> Result<(), WriteError> {
        if self.nodes.borrow_mut().takes_frozen() {
            self.nodes.borrow_mut().forget_on(key.bytes());
            self.open_way(key).await?;
        }
        Ok(())
    }

    /// What changes, whatever else does, when this key comes into the tree, where it is absent.
    pub(super) async fn place_of_absent(
        &self,
        key: &Key<'_>,
    ) -> Result<(Addr, SlotWord), WriteError> {
        let way = self.open_way(key).await?;
        let parts = self.parting(key, &way).await?;
        let place = match (parts, way.end) {
            (Some((step, _)), _) => step.slot.map(|slot| (slot, step.word)),
            (None, End::Unmapped(line, map)) => Some((line, SlotWord(map.0))),
            (None, _) => way.slot(),
        };
        place.ok_or(WriteError::Corrupt)
    }

    /// Where the first node is whose prefix is not the key's, and that prefix.
    async fn parting(
        &self,
        key: &Key<'_>,
        way: &Way,
    ) -> Result<Option<(Step, Vec<u8>)>, ReadError> {
        let Some((last, node)) = way.nodes().next_back() else { return Ok(None) };
        let begins = &key.bytes()[..node.depth.min(key.bytes().len())];
        if self.nodes.borrow().knows(begins, last.word) {
            return Ok(None);
        }
        let prefix = self.prefix(node).await?;
        let shared = common(key.bytes(), &prefix);
        let first = way.nodes().find(|(_, node)| node.depth > shared);
        if first.is_none() {
            self.remember_nodes(key, &[last.word]);
        }
        Ok(first.map(|(step, node)| (step, prefix[..node.depth].to_vec())))
    }

    async fn next_on(
        &self,
        key: &Key<'_>,
        way: &Way,
        suspect: &mut Option<(Addr, SlotWord)>,
    ) -> Result<Next, WriteError> {
        if let Some((step, prefix)) = self.parting(key, way).await? {
            return self.part(key, step, &prefix).await;
        }
        match (way.end, way.slot()) {
            (End::Unmapped(line, map), _) => {
                let places = self.index.places();
                let depth = way.nodes().next_back().map_or(0, |(_, node)| node.depth);
                let Some((given, place)) = map.given(symbol(key.bytes(), depth), places) else {
                    let last = way.steps.last().ok_or(WriteError::Corrupt)?;
                    return self.replace(*last).await.map(|()| Next::Again);
                };
                let found = far::swap_once(self.endpoint(), line, map.0, given.0).await?;
                let is_given = found == map.0 || found == given.0;
                let slot = line.plus(8 + place as u64 * 8);
                Ok(if is_given { Next::Room((slot, SlotWord(0))) } else { Next::Again })
            }
            (End::Slot, Some((slot, word))) if !word.is_taken() => Ok(Next::Room((slot, word))),
            (End::Slot, Some((slot, word))) => match self.read_block(word).await? {
                Some((_, opened)) if opened.key() == key.bytes() => Ok(Next::Exists),
                Some((_, opened)) => {
                    let step = Step { slot: Some(slot), word };
                    self.part(key, step, opened.key()).await
                }
                None if *suspect == Some((slot, word)) => Err(WriteError::Corrupt),
                None => {
                    *suspect = Some((slot, word));
                    Ok(Next::Again)
                }
            },
            _ => Err(WriteError::Corrupt),
        }
    }

    /// Puts a node between a slot and what it names, which begins with `other`, where the key
    /// parts from that. Not above a node that was remembered: what is to be changed there is below.
    async fn part(&self, key: &Key<'_>, step: Step, other: &[u8]) -> Result<Next, WriteError> {
        if step.slot.is_none() {
            return Ok(Next::Again);
        }
        let depth = common(key.bytes(), other);
        let held = self.hold(Kind::FIRST, depth).await?;
        let below = [(symbol(other, depth), step.word)];
        self.install(held, step, Kind::FIRST, &other[..depth], &below).await?;
        Ok(Next::Again)
    }

    /// Replaces the node that a slot names by one of the next kind; not one that was remembered, of
    /// which no slot is known.
    async fn replace(&self, step: Step) -> Result<(), WriteError> {
        if step.slot.is_none() {
            return Ok(());
        }
        let node = Node::named_by(step.word).ok_or(WriteError::Corrupt)?;
        let kind = node.kind.next().ok_or(WriteError::Corrupt)?;
        let held = self.hold(kind, node.depth).await?;
        let prefix = self.prefix(node).await?;
        let entries = self.freeze(node).await?;
        let below: Vec<(Symbol, SlotWord)> = entries
            .into_iter()
            .map(|entry| (entry.symbol, SlotWord(entry.word).thawed()))
            .filter(|(_, word)| word.class() != 0)
            .collect();
        self.install(held, step, kind, &prefix, &below).await
    }

    /// Freezes a node, whichever other clients do so too, and returns what its slots said.
    async fn freeze(&self, node: Node) -> Result<Vec<Entry>, WriteError> {
        let start = self.shape.block_addr(node.number).plus(node.body_at() as u64 * 8);
        for _ in 0..TURNS_MAX {
            let body = self.body(node).await?;
            let entries = node.entries(&body);
            let maps = node.maps(&body).filter(|(_, map)| !map.is_frozen());
            let maps = maps.map(|(at, map)| (at, map.0, map.frozen().0));
            let slots = entries.iter().map(|entry| (entry.at, SlotWord(entry.word)));
            let slots = slots.filter(|(_, word)| !word.is_frozen());
            let slots = slots.map(|(at, word)| (at, word.0, word.frozen().0));
            let swaps: Vec<(Addr, u64, u64)> = maps
                .chain(slots)
                .map(|(at, from, to)| (start.plus(at as u64 * 8), from, to))
                .collect();
            if swaps.is_empty() || self.errs(Flaw::UnfrozenNode) {
                return Ok(entries);
            }
            far::swap_many(self.endpoint(), &swaps).await?;
        }
        Err(WriteError::Busy)
    }

    /// Memory for a node.
    async fn hold(&self, kind: Kind, depth: usize) -> Result<Held<'_, S, I>, WriteError> {
        let class = Node::class(kind, depth).filter(|class| self.shape.blocks(*class) > 0);
        let block = self.allocate(class.ok_or(WriteError::IndexFull)?).await?;
        Ok(Held { store: self, block: Some(block) })
    }

    /// Writes a node and lets the slot name it. Others may be first.
    async fn install(
        &self,
        mut held: Held<'_, S, I>,
        step: Step,
        kind: Kind,
        prefix: &[u8],
        below: &[(Symbol, SlotWord)],
    ) -> Result<(), WriteError> {
        let (Some(slot), Some(block)) = (step.slot, held.block) else {
            return Err(WriteError::Corrupt);
        };
        let node = Node { number: block.number, kind, depth: prefix.len() };
        let places = self.index.places();
        // Whatever was in one line is in one line of the kind before: there is room.
        let words = node.seal(block.generation, prefix, below, places);
        let words = words.ok_or(WriteError::Corrupt)?;
        held.block = None;
        let change = Change::of(Purpose::Install, slot, step.word, node.word());
        let change = Change { block: Some(block), words, key: prefix.to_vec(), ..change };
        match self.make(change).await {
            Ok(made) => {
                self.count(|counts| counts.nodes += u64::from(made));
                Ok(())
            }
            // Whether it was or not, the tree has the same keys.
            Err(WriteError::Unknown) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// What became of a node of which the completion was lost.
    pub(super) async fn installed(&self, change: &Change) -> Result<Verdict, ReadError> {
        let way = self.way_from_root(&change.key).await?;
        let is_there = way.steps.iter().any(|step| step.word.thawed() == change.new);
        Ok(if is_there { Verdict::Made } else { Verdict::Unknown(change.old) })
    }

    /// What is at the place of a key whose slot is frozen, or has come to name a node.
    pub(super) async fn inherited_in_tree(
        &self,
        change: &Change,
    ) -> Result<Vec<SlotWord>, ReadError> {
        let says = SlotWord(far::read_word(self.endpoint(), change.slot).await?);
        if !says.is_node() {
            return Ok(vec![says.thawed()]);
        }
        // A slot that is empty now may have been so before there was something in it.
        let way = self.way_from_root(&change.key).await?;
        let words = way.steps.iter().map(|step| step.word.thawed());
        Ok([says].into_iter().chain(words.filter(|word| word.is_taken())).collect())
    }
}
