//! Filling a tree: as insertions do it, each between two verbs.

use farlock_fabric::Addr;

use super::{Filling, Memory, poke_all};
use crate::block;
use crate::error::WriteError;
use crate::index::smart_node::{Kind, MapWord, Node, Spot, Symbol, common, symbol};
use crate::index::{Index, Key};
use crate::word::SlotWord;

impl<I: Index> Filling<I> {
    /// The slot of a key whose place in the tree is empty, made if there is none.
    pub(super) fn slot_in_tree(
        &mut self,
        memory: &mut impl Memory,
        key: &Key<'_>,
    ) -> Result<Addr, WriteError> {
        let name = key.bytes();
        let mut slot = self.shape.first_table();
        loop {
            let word = SlotWord(memory.peek(slot));
            if word.is_frozen() {
                return Err(WriteError::Busy);
            }
            let Some(node) = Node::named_by(word) else {
                let Some(other) = self.name_of(memory, word)? else { return Ok(slot) };
                if other == name {
                    return Err(WriteError::Exists);
                }
                self.part(memory, (slot, word), name, &other)?;
                continue;
            };
            let prefix = self.prefix(memory, node)?;
            if !name.starts_with(&prefix) {
                self.part(memory, (slot, word), name, &prefix)?;
                continue;
            }
            match self.place(memory, node, symbol(name, node.depth)) {
                Some(place) => slot = place,
                None => self.replace(memory, slot, node, &prefix)?,
            }
        }
    }

    /// The slot of a symbol, which is given one if it has none; `None`: its line is full.
    fn place(&self, memory: &mut impl Memory, node: Node, symbol: Symbol) -> Option<Addr> {
        let start = self.shape.block_addr(node.number);
        let line = match node.spot(symbol) {
            Spot::Slot(at) => return Some(start.plus(at as u64 * 8)),
            Spot::Line(at) => start.plus(at as u64 * 8),
        };
        let map = MapWord(memory.peek(line));
        let place = map.place(symbol).or_else(|| {
            let (given, place) = map.given(symbol, self.index.places())?;
            memory.poke(line, given.0);
            Some(place)
        })?;
        Some(line.plus(8 + place as u64 * 8))
    }

    /// Puts a node between a slot and what it names, which begins with `other`.
    fn part(
        &mut self,
        memory: &mut impl Memory,
        (slot, word): (Addr, SlotWord),
        name: &[u8],
        other: &[u8],
    ) -> Result<(), WriteError> {
        let depth = common(name, other);
        let below = [(symbol(other, depth), word)];
        self.put_node(memory, slot, Kind::FIRST, &other[..depth], &below)
    }

    /// Replaces a node by one of the next kind. It is frozen, for clients that remember it.
    fn replace(
        &mut self,
        memory: &mut impl Memory,
        slot: Addr,
        node: Node,
        prefix: &[u8],
    ) -> Result<(), WriteError> {
        let kind = node.kind.next().ok_or(WriteError::Corrupt)?;
        let lines = self.shape.block_addr(node.number).plus(node.body_at() as u64 * 8);
        let body = peek_all(memory, lines, node.words() - node.body_at());
        let entries = node.entries(&body);
        for (at, map) in node.maps(&body) {
            memory.poke(lines.plus(at as u64 * 8), map.frozen().0);
        }
        for entry in &entries {
            memory.poke(lines.plus(entry.at as u64 * 8), SlotWord(entry.word).frozen().0);
        }
        let below = entries.iter().map(|entry| (entry.symbol, SlotWord(entry.word)));
        let below: Vec<_> = below.filter(|(_, word)| word.class() != 0).collect();
        self.put_node(memory, slot, kind, prefix, &below)
    }

    fn put_node(
        &mut self,
        memory: &mut impl Memory,
        slot: Addr,
        kind: Kind,
        prefix: &[u8],
        below: &[(Symbol, SlotWord)],
    ) -> Result<(), WriteError> {
        let class = Node::class(kind, prefix.len()).filter(|class| self.shape.blocks(*class) > 0);
        let block = self.block(memory, class.ok_or(WriteError::IndexFull)?)?;
        let node = Node { number: block.number, kind, depth: prefix.len() };
        let places = self.index.places();
        let words = node.seal(block.generation, prefix, below, places);
        poke_all(memory, self.shape.block_addr(block.number), &words.ok_or(WriteError::Corrupt)?);
        memory.poke(slot, node.word().0);
        Ok(())
    }

    fn prefix(&self, memory: &impl Memory, node: Node) -> Result<Vec<u8>, WriteError> {
        let words = peek_all(memory, self.shape.block_addr(node.number), node.body_at());
        node.opened(&words).map(|(prefix, _)| prefix).ok_or(WriteError::Corrupt)
    }

    /// The key whose block a slot names; `None` if it names none.
    fn name_of(&self, memory: &impl Memory, word: SlotWord) -> Result<Option<Vec<u8>>, WriteError> {
        if !word.is_taken() {
            return Ok(None);
        }
        let class = crate::size::Class::from_number(word.class()).ok_or(WriteError::Corrupt)?;
        let words = peek_all(memory, self.shape.block_addr(word.block()), class.words());
        let opened = block::open(word.block(), &words, false).ok_or(WriteError::Corrupt)?;
        Ok(Some(opened.key().to_vec()))
    }
}

fn peek_all(memory: &impl Memory, first: Addr, words: usize) -> Vec<u64> {
    (0..words as u64).map(|at| memory.peek(first.plus(at * 8))).collect()
}
