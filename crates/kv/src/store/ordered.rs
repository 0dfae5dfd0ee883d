//! Going through a tree in the order of its keys, or from the last one to the first.
//!
//! A node is read as a whole, and what is below it is gone through in order, either way: from each
//! slot's word as it was read then. Nodes that are replaced meanwhile are gone through as they
//! were: see `tree`. A value that was changed meanwhile, whose block is another one's by now, is
//! looked for from the root, behind the last key that was found.

use std::ops::Bound;

use super::core::Store;
use super::scan::Pair;
use super::tree::Step;
use crate::error::ReadError;
use crate::far;
use crate::index::smart_node::{Entry, Node, Symbol, symbol};
use crate::index::{Index, Ordered};
use crate::sync::Scheme;
use crate::word::SlotWord;

/// How often a scan begins at the root again, since the values behind its last key change, without
/// finding one.
const TURNS_MAX: u32 = 10_000;

/// Blocks that are read at a time.
const BLOCKS_AT_ONCE: usize = 32;

/// What was found so far, in order.
#[derive(Default)]
struct Found {
    pairs: Vec<Result<Pair, ReadError>>,
    /// How many of them are pairs.
    count: usize,
    /// The key of the last one of these.
    last: Option<Vec<u8>>,
    /// Slots that were frozen, and whose blocks were other ones'.
    suspects: Vec<Step>,
}

impl Found {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.last = Some(key.to_vec());
        self.pairs.push(Ok((key.to_vec(), value.to_vec())));
        self.count += 1;
    }
}

/// Which keys a scan goes through, and in which order.
#[derive(Clone, Copy)]
struct Span<'a> {
    from: Bound<&'a [u8]>,
    until: Bound<&'a [u8]>,
    /// The last one first.
    is_reversed: bool,
}

/// Where something is, as a scan comes to it.
enum Place<T> {
    /// The span begins behind it.
    Ahead,
    /// In the span, this part of it.
    Within(T),
    /// The span is over, and all that would come next is beyond it too.
    Passed,
}

impl<'a> Span<'a> {
    /// What is left of it behind the last key that was found.
    fn behind(self, last: &'a [u8]) -> Self {
        match self.is_reversed {
            true => Self { until: Bound::Excluded(last), ..self },
            false => Self { from: Bound::Excluded(last), ..self },
        }
    }

    /// Where a thing is of which it is known what of it is behind the beginning, and what is before
    /// the end, in the order of keys.
    fn place<A, B>(self, behind: Option<A>, before: Option<B>) -> Place<(A, B)> {
        match (behind, before) {
            (Some(behind), Some(before)) => Place::Within((behind, before)),
            (None, Some(_)) if !self.is_reversed => Place::Ahead,
            (Some(_), None) if self.is_reversed => Place::Ahead,
            _ => Place::Passed,
        }
    }

    fn place_of(self, key: &[u8]) -> Place<((), ())> {
        let is_behind = match self.from {
            Bound::Unbounded => true,
            Bound::Included(first) => key >= first,
            Bound::Excluded(last) => key > last,
        };
        let is_before = match self.until {
            Bound::Unbounded => true,
            Bound::Included(last) => key <= last,
            Bound::Excluded(end) => key < end,
        };
        self.place(is_behind.then_some(()), is_before.then_some(()))
    }

    /// The first symbol behind a prefix, and the last one, by which keys of the span may go on.
    fn symbols_behind(self, prefix: &[u8]) -> Place<(Symbol, Symbol)> {
        let next = |key: &[u8]| Some(symbol(key.strip_prefix(prefix)?, 0));
        let first = match self.from {
            Bound::Included(key) | Bound::Excluded(key) if prefix <= key => next(key),
            _ => Some(Symbol::MIN),
        };
        let last = match self.until {
            Bound::Excluded(key) if prefix == key => None,
            Bound::Included(key) | Bound::Excluded(key) if prefix > key => None,
            Bound::Included(key) | Bound::Excluded(key) => next(key).or(Some(Symbol::MAX)),
            Bound::Unbounded => Some(Symbol::MAX),
        };
        self.place(first, last)
    }
}

impl<S: Scheme, I: Ordered> Store<S, I> {
    /// The first pairs from a key on and up to another one, in order, at most so many: the next
    /// ones begin behind the last one's key.
    ///
    /// Each pair is as it was at some moment of the call. A key that was there all the time is
    /// there, once; one that came or went meanwhile may be missing. A slot that points to what is
    /// neither a block nor a node is told as [`ReadError::Corrupt`] where its keys would be, and
    /// counts for none.
    ///
    /// # Errors
    /// See [`ReadError`]. Nothing is left behind by a crash or a drop.
    pub async fn scan_in_order(
        &self,
        from: Bound<&[u8]>,
        until: Bound<&[u8]>,
        most: usize,
    ) -> Result<Vec<Result<Pair, ReadError>>, ReadError> {
        self.pairs_in_order(Span { from, until, is_reversed: false }, most).await
    }

    /// The last pairs of the same keys, the last one first, at most so many: the next ones end
    /// before the last one's key. All else is as [`Store::scan_in_order`] has it, its cost too.
    ///
    /// # Errors
    /// See [`ReadError`]. Nothing is left behind by a crash or a drop.
    pub async fn scan_in_reverse(
        &self,
        from: Bound<&[u8]>,
        until: Bound<&[u8]>,
        most: usize,
    ) -> Result<Vec<Result<Pair, ReadError>>, ReadError> {
        self.pairs_in_order(Span { from, until, is_reversed: true }, most).await
    }
}

impl<S: Scheme, I: Index> Store<S, I> {
    /// Every pair.
    pub(super) async fn all_in_order(&self) -> Result<Vec<Result<Pair, ReadError>>, ReadError> {
        let (from, until) = (Bound::Unbounded, Bound::Unbounded);
        self.pairs_in_order(Span { from, until, is_reversed: false }, usize::MAX).await
    }

    async fn pairs_in_order(
        &self,
        span: Span<'_>,
        most: usize,
    ) -> Result<Vec<Result<Pair, ReadError>>, ReadError> {
        let (mut found, mut turns) = (Found::default(), 0);
        while turns < TURNS_MAX {
            let before = found.count;
            let last = found.last.clone();
            let rest = last.as_ref().map_or(span, |key| span.behind(key));
            if self.go_through(rest, most, &mut found).await? {
                return Ok(found.pairs);
            }
            self.count(|counts| counts.rereads += 1);
            turns = if found.count > before { 0 } else { turns + 1 };
        }
        Err(ReadError::Busy)
    }

    /// Goes on until there is no more, or there are enough. `Ok(false)`: before that a block was
    /// another one's.
    async fn go_through(
        &self,
        span: Span<'_>,
        most: usize,
        found: &mut Found,
    ) -> Result<bool, ReadError> {
        // What is damaged behind the last pair is met again, after another beginning too.
        while found.pairs.pop_if(|pair| pair.is_err()).is_some() {}
        let root = self.shape.first_table();
        let word = SlotWord(far::read_word(self.endpoint(), root).await?);
        // What is to be gone through yet, the next one last.
        let mut rest = vec![Step { slot: Some(root), word }];
        while let Some(step) = rest.pop() {
            if found.count >= most {
                break;
            }
            if let Some(node) = Node::named_by(step.word) {
                match self.go_down(node, span, &mut rest).await {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(ReadError::Corrupt) => found.pairs.push(Err(ReadError::Corrupt)),
                    Err(error) => return Err(error),
                }
                continue;
            }
            let mut leaves = vec![step];
            let enough = BLOCKS_AT_ONCE.min(most - found.count);
            while leaves.len() < enough
                && let Some(leaf) = rest.pop_if(|step| step.word.is_taken())
            {
                leaves.push(leaf);
            }
            leaves.retain(|leaf| leaf.word.is_taken());
            let words: Vec<SlotWord> = leaves.iter().map(|leaf| leaf.word.thawed()).collect();
            for (leaf, read) in leaves.into_iter().zip(self.read_blocks(&words).await?) {
                let Some((_, opened)) = read else {
                    if !self.is_damaged(leaf, found).await? {
                        return Ok(false);
                    }
                    found.pairs.push(Err(ReadError::Corrupt));
                    continue;
                };
                match span.place_of(opened.key()) {
                    Place::Ahead => {}
                    Place::Within(_) => found.put(opened.key(), opened.value()),
                    Place::Passed => return Ok(true),
                }
            }
        }
        Ok(true)
    }

    /// Whether what a slot named was no block while it was named. Of a frozen slot that is only
    /// known if the same was found before: its node may have been replaced since this beginning.
    async fn is_damaged(&self, leaf: Step, found: &mut Found) -> Result<bool, ReadError> {
        if found.suspects.contains(&leaf) {
            return Ok(true);
        }
        if let Some(slot) = leaf.slot
            && !leaf.word.is_frozen()
        {
            let again = SlotWord(far::read_word(self.endpoint(), slot).await?);
            return Ok(again == leaf.word);
        }
        found.suspects.push(leaf);
        Ok(false)
    }

    /// Puts what is below a node before the rest, as far as it may be in the span. `Ok(false)`: all
    /// of it is beyond the end, and so is the rest.
    async fn go_down(
        &self,
        node: Node,
        span: Span<'_>,
        rest: &mut Vec<Step>,
    ) -> Result<bool, ReadError> {
        if !self.is_block(node) {
            return Err(ReadError::Corrupt);
        }
        let start = self.shape.block_addr(node.number);
        let words = self.read_node(start, node.words()).await?;
        let (prefix, _) = node.opened(&words).ok_or(ReadError::Corrupt)?;
        let (first, last) = match span.symbols_behind(&prefix) {
            Place::Ahead => return Ok(true),
            Place::Within(symbols) => symbols,
            Place::Passed => return Ok(false),
        };
        let body = &words[node.body_at()..];
        let mut entries: Vec<Entry> = node.entries(body);
        entries.retain(|entry| {
            (first..=last).contains(&entry.symbol) && SlotWord(entry.word).class() != 0
        });
        entries.sort_unstable();
        if !span.is_reversed {
            // The next one is the last of the rest.
            entries.reverse();
        }
        let lines = start.plus(node.body_at() as u64 * 8);
        rest.extend(entries.into_iter().map(|entry| Step {
            slot: Some(lines.plus(entry.at as u64 * 8)),
            word: SlotWord(entry.word),
        }));
        Ok(true)
    }
}
