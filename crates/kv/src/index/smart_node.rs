//! The nodes of a tree as they lie in far memory. Nothing here posts a verb.
//!
//! ```text
//! word 0   header, as of a block, but that the bytes of its value are more than any value has
//! word 1   checksum over the prefix, and over where the node lies
//! word 2.. the prefix, then zeros up to a whole word
//!          lines of 8 words, or 257 slots
//! ```
//!
//! All but the lines is as it was when the node was written. What a slot says of the node, its kind
//! and the length of its prefix, tells where each line lies, so that a line is read without the
//! header.

use farlock_fabric::word;
use twox_hash::XxHash3_64;

use crate::block::HEAD_WORDS;
use crate::far;
use crate::shape::Block;
use crate::size::Class;
use crate::word::{Header, SlotWord};

/// What may come next in a key: its end, or a byte.
pub(crate) type Symbol = u16;

/// How many there are.
const SYMBOLS: usize = 257;

/// Words of a line.
pub(crate) const LINE_WORDS: usize = 8;

/// Slots of a line.
const LINE_SLOTS: usize = LINE_WORDS - 1;

/// Bits that say of one slot of a line whose it is.
const SYMBOL_BITS: u32 = 9;

/// Lines of a node, by its kind; the last kind has a slot for each symbol instead.
const LINES: [usize; 4] = [1, 4, 16, 0];

word! {
    /// What stands in a slot behind which there is a node: a [`SlotWord`] of class 62.
    pub(crate) struct NodeWord: u64 {
        /// Bytes of the prefix.
        DEPTH depth: 11,
        /// How many lines it has.
        KIND kind: 2,
        SPARE spare: 3,
        FROZEN frozen: 1,
        CLASS class: 6,
        SPARE_TOO spare_too: 8,
        /// Where it lies, as of a block.
        BLOCK block: 33,
    }
}

/// How many slots a node has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind(u8);

impl Kind {
    /// The one with which a node begins.
    pub(crate) const FIRST: Self = Self(0);

    /// The one that replaces it when it is full; `None` if it never is.
    pub(crate) fn next(self) -> Option<Self> {
        (usize::from(self.0) + 1 < LINES.len()).then_some(Self(self.0 + 1))
    }

    fn lines(self) -> usize {
        LINES[usize::from(self.0)]
    }

    /// Whether there is a slot for each symbol, so that it is never full.
    pub(crate) fn is_direct(self) -> bool {
        self.lines() == 0
    }

    /// Words behind the prefix.
    fn body_words(self) -> usize {
        if self.is_direct() { SYMBOLS } else { self.lines() * LINE_WORDS }
    }
}

/// The first word of a line: which slot is whose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MapWord(pub(crate) u64);

impl MapWord {
    const FROZEN: u64 = 1 << 63;

    /// Whose the slot at this place is.
    pub(crate) fn symbol(self, place: usize) -> Option<Symbol> {
        let bits = self.0 >> (place as u32 * SYMBOL_BITS) & ((1 << SYMBOL_BITS) - 1);
        (bits as Symbol).checked_sub(1)
    }

    /// The place of a symbol.
    pub(crate) fn place(self, symbol: Symbol) -> Option<usize> {
        (0..LINE_SLOTS).find(|&place| self.symbol(place) == Some(symbol))
    }

    /// The word once the first free place of so many is this symbol's, and which that is; `None` if
    /// none is free.
    pub(crate) fn given(self, symbol: Symbol, places: usize) -> Option<(Self, usize)> {
        let place = (0..places).find(|&place| self.symbol(place).is_none())?;
        let bits = u64::from(symbol + 1) << (place as u32 * SYMBOL_BITS);
        Some((Self(self.0 | bits), place))
    }

    /// Whether no slot of the line is given away any more.
    pub(crate) fn is_frozen(self) -> bool {
        self.0 & Self::FROZEN != 0
    }

    pub(crate) fn frozen(self) -> Self {
        Self(self.0 | Self::FROZEN)
    }
}

/// A slot of a node, and whose it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Entry {
    pub(crate) symbol: Symbol,
    /// In words from the start of the node's lines.
    pub(crate) at: usize,
    pub(crate) word: u64,
}

/// Where a symbol is looked for in a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spot {
    /// In this line, which begins so many words behind the start of the node.
    Line(usize),
    /// In the slot there.
    Slot(usize),
}

/// A node as a slot names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    /// Of its block.
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    /// Bytes of its prefix.
    pub(crate) depth: usize,
}

impl Node {
    /// What a slot names, if that is a node.
    pub(crate) fn named_by(slot: SlotWord) -> Option<Self> {
        let word = NodeWord(slot.0);
        let kind = Kind(word.kind() as u8);
        let depth = word.depth() as usize;
        slot.is_node().then(|| Self { number: word.block(), kind, depth })
    }

    /// The word that names it.
    pub(crate) fn word(self) -> SlotWord {
        let word = NodeWord::new()
            .with(NodeWord::DEPTH, self.depth as u64)
            .with(NodeWord::KIND, self.kind.0.into())
            .with(NodeWord::CLASS, SlotWord::NODE)
            .with(NodeWord::BLOCK, self.number);
        SlotWord(word.0)
    }

    /// Words of it all.
    pub(crate) fn words(self) -> usize {
        self.body_at() + self.kind.body_words()
    }

    /// The class of its block.
    pub(crate) fn class(kind: Kind, depth: usize) -> Option<Class> {
        let words = Self { number: 0, kind, depth }.words();
        Class::of_bytes(words as u64 * 8)
    }

    /// Its block, of which the generation is not known.
    pub(crate) fn block(self) -> Option<Block> {
        let class = Self::class(self.kind, self.depth)?;
        Some(Block { number: self.number, class, generation: 0 })
    }

    /// Where its lines begin.
    pub(crate) fn body_at(self) -> usize {
        HEAD_WORDS + self.depth.div_ceil(8)
    }

    /// Where a symbol is looked for.
    pub(crate) fn spot(self, symbol: Symbol) -> Spot {
        let symbol = usize::from(symbol);
        match self.kind.is_direct() {
            true => Spot::Slot(self.body_at() + symbol),
            false => Spot::Line(self.body_at() + symbol % self.kind.lines() * LINE_WORDS),
        }
    }

    /// The maps of its lines, each with its place, of the words behind its prefix.
    pub(crate) fn maps(self, body: &[u64]) -> impl Iterator<Item = (usize, MapWord)> {
        let lines = (0..self.kind.lines()).map(|line| line * LINE_WORDS);
        lines.map(|at| (at, MapWord(body[at])))
    }

    /// Every slot that is a symbol's, of the words behind its prefix.
    pub(crate) fn entries(self, body: &[u64]) -> Vec<Entry> {
        let entry = |symbol, at: usize| Entry { symbol, at, word: body[at] };
        if self.kind.is_direct() {
            return (0..SYMBOLS).map(|at| entry(at as Symbol, at)).collect();
        }
        let of_line = |(first, map): (usize, MapWord)| {
            (0..LINE_SLOTS).filter_map(move |place| {
                map.symbol(place).map(|symbol| entry(symbol, first + 1 + place))
            })
        };
        self.maps(body).flat_map(of_line).collect()
    }

    /// The words of this node in this use of its block, with what its slots say at first; `None` if
    /// a line has no place for one.
    pub(crate) fn seal(
        self,
        generation: u32,
        prefix: &[u8],
        entries: &[(Symbol, SlotWord)],
        places: usize,
    ) -> Option<Vec<u64>> {
        let header = self.header(generation);
        let mut words = vec![header.0, self.checksum(header, prefix)];
        let mut bytes = prefix.to_vec();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        words.extend(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)));
        words.resize(self.words(), 0);
        for &(symbol, word) in entries {
            let at = match self.spot(symbol) {
                Spot::Slot(at) => at,
                Spot::Line(line) => {
                    let (map, place) = MapWord(words[line]).given(symbol, places)?;
                    words[line] = map.0;
                    line + 1 + place
                }
            };
            words[at] = word.0;
        }
        Some(words)
    }

    /// The prefix, and which use of the block it is, of the words before the lines; `None` if these
    /// are no node's.
    pub(crate) fn opened(self, words: &[u64]) -> Option<(Vec<u8>, u32)> {
        let (head, prefix) = words.get(..self.body_at())?.split_at(HEAD_WORDS);
        let generation = Header(head[0]).generation() as u32;
        let mut bytes = far::zeros(prefix.len() * 8);
        let (places, _) = bytes.as_chunks_mut();
        places.iter_mut().zip(prefix).for_each(|(place, word)| *place = word.to_le_bytes());
        bytes.truncate(self.depth);
        let is_whole = self.header(generation).0 == head[0]
            && self.checksum(Header(head[0]), &bytes) == head[1];
        is_whole.then_some((bytes, generation))
    }

    /// The node that the first word of a block says it is, if it does.
    pub(crate) fn headed(number: u64, head: u64) -> Option<Self> {
        let header = Header(head);
        let kind = Header::VALUE_BYTES.max() - header.value_bytes();
        let depth = header.key_bytes() as usize;
        ((kind as usize) < LINES.len()).then_some(Self { number, kind: Kind(kind as u8), depth })
    }

    fn header(self, generation: u32) -> Header {
        Header::new()
            .with(Header::GENERATION, generation.into())
            .with(Header::KEY_BYTES, self.depth as u64)
            .with(Header::VALUE_BYTES, Header::VALUE_BYTES.max() - u64::from(self.kind.0))
    }

    fn checksum(self, header: Header, prefix: &[u8]) -> u64 {
        let place = self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        XxHash3_64::oneshot_with_seed(header.0 ^ place, prefix)
    }
}

/// What comes in a key behind so many bytes, which it has.
pub(crate) fn symbol(key: &[u8], depth: usize) -> Symbol {
    key.get(depth).map_or(0, |byte| Symbol::from(*byte) + 1)
}

/// How many bytes two keys begin with that are the same.
pub(crate) fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::VALUE_BYTES_MAX;

    fn slot(number: u64) -> SlotWord {
        SlotWord::new().with(SlotWord::CLASS, 3).with(SlotWord::BLOCK, number)
    }

    #[test]
    fn what_a_node_says_comes_back_and_no_value_is_taken_for_one() {
        assert!((VALUE_BYTES_MAX as u64) < Header::VALUE_BYTES.max() - LINES.len() as u64);
        let mut kind = Some(Kind::FIRST);
        while let Some(of) = kind {
            for prefix in [&b""[..], b"a", b"12345678", &[7; 1024]] {
                let node = Node { number: 77, kind: of, depth: prefix.len() };
                assert_eq!(Node::named_by(node.word()), Some(node));
                assert_eq!(Node::named_by(node.word().frozen().thawed()), Some(node));
                let entries = [(0, slot(1)), (256, slot(2)), (98, slot(3))];
                let words = node.seal(9, prefix, &entries, 7).expect("there is room");
                assert_eq!(words.len(), node.words());
                assert_eq!(Node::headed(77, words[0]), Some(node));
                assert_eq!(node.opened(&words), Some((prefix.to_vec(), 9)));
                let elsewhere = Node { number: 78, ..node };
                assert_eq!(elsewhere.opened(&words), None);
                let found = node.entries(&words[node.body_at()..]);
                let mut taken: Vec<_> = found.iter().filter(|entry| entry.word != 0).collect();
                taken.sort();
                let taken: Vec<_> = taken.iter().map(|it| (it.symbol, SlotWord(it.word))).collect();
                assert_eq!(taken, [(0, slot(1)), (98, slot(3)), (256, slot(2))]);
            }
            kind = of.next();
        }
    }

    #[test]
    fn a_line_gives_each_place_away_once() {
        let mut map = MapWord(0);
        for (place, symbol) in (0..7).zip([0, 1, 256, 128, 5, 6, 7]) {
            assert_eq!(map.place(symbol), None);
            let (next, given) = map.given(symbol, 7).expect("there is room");
            assert_eq!(given, place);
            map = next;
            assert_eq!((map.place(symbol), map.frozen().place(symbol)), (Some(place), Some(place)));
        }
        assert!(map.given(9, 7).is_none() && !map.is_frozen() && map.frozen().is_frozen());
        assert!(MapWord(0).given(1, 1).expect("room").0.given(2, 1).is_none());
    }

    #[test]
    fn the_last_kind_has_a_slot_for_each_symbol() {
        let kinds: Vec<Kind> =
            std::iter::successors(Some(Kind::FIRST), |kind| kind.next()).collect();
        let slots: Vec<usize> = kinds
            .iter()
            .map(|kind| if kind.is_direct() { SYMBOLS } else { kind.lines() * LINE_SLOTS })
            .collect();
        assert_eq!(slots, [7, 28, 112, 257]);
        assert_eq!((symbol(b"a", 0), symbol(b"a", 1)), (98, 0));
        assert_eq!((common(b"abc", b"abd"), common(b"ab", b"abd")), (2, 2));
    }
}
