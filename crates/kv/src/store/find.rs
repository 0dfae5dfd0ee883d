//! Finding a key: the words of its slots, and the block behind the one that is its own.

use farlock_fabric::Addr;

use super::core::Store;
use crate::block::{self, Opened};
use crate::error::ReadError;
use crate::far;
use crate::flaw::Flaw;
use crate::index::{Buckets, Index, Key};
use crate::shape::Block;
use crate::size::Class;
use crate::sync::Scheme;
use crate::word::SlotWord;

/// How often a key is looked for again, since others changed it meanwhile.
const TURNS_MAX: u32 = 10_000;

/// The slots that a key may have, as they were read.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    buckets: Buckets,
    /// By bucket.
    slots: Vec<Vec<(Addr, SlotWord)>>,
}

impl Probe {
    /// Every slot, in the order in which every client sees them.
    pub(super) fn slots(&self) -> impl Iterator<Item = (Addr, SlotWord)> {
        self.slots.iter().flatten().copied()
    }

    /// An empty slot for a new key: in the emptiest bucket, and of what it shares with others only
    /// when there is nothing else.
    pub(super) fn room(&self) -> Option<(Addr, SlotWord)> {
        let rooms = self.buckets.iter().zip(&self.slots).filter_map(|(bucket, slots)| {
            let (first, count) = bucket.shared;
            let shared = |at: &usize| (first..first + count).contains(&(*at as u16));
            let empty = |at: &usize| !slots[*at].1.is_taken();
            let empties: Vec<usize> = (0..slots.len()).filter(empty).collect();
            let own = empties.iter().find(|at| !shared(at)).copied();
            let at = own.or(empties.first().copied())?;
            Some(((own.is_none(), slots.len() - empties.len()), slots[at]))
        });
        rooms.min_by_key(|(rank, _)| *rank).map(|(_, slot)| slot)
    }
}

/// A key that is there.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) slot: Addr,
    pub(super) word: SlotWord,
    pub(super) block: Block,
    pub(super) opened: Opened,
}

/// What was seen of a key.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    Found(Found),
    /// At some moment while the slots were read, no slot had it.
    Absent(Probe),
}

impl<S: Scheme, I: Index> Store<S, I> {
    /// Reads every slot that a key may have.
    pub(super) async fn probe(&self, key: &Key<'_>) -> Result<Probe, ReadError> {
        let buckets = self.index.buckets(key).ok_or(ReadError::BadKey)?;
        let first = |offset: u64| self.shape.index(offset);
        let places: Vec<(Addr, usize)> = buckets
            .iter()
            .map(|bucket| (first(bucket.offset), usize::from(bucket.slots)))
            .collect();
        let words = far::read_many(self.endpoint(), &places).await?;
        let slots = places.iter().zip(words).map(|(&(addr, _), words)| {
            let slot = |(at, word): (usize, u64)| (addr.plus(at as u64 * 8), SlotWord(word));
            words.into_iter().enumerate().map(slot).collect()
        });
        Ok(Probe { slots: slots.collect(), buckets })
    }

    /// Looks for a key, until what it finds is of one piece.
    pub(super) async fn locate(&self, key: &Key<'_>) -> Result<Seen, ReadError> {
        // The slot that pointed to what was no block when it was last read.
        let mut suspect = None;
        for _ in 0..TURNS_MAX {
            let probe = self.probe(key).await?;
            match self.among(key, &probe, SlotWord::is_committed).await? {
                Among::One(found) => return Ok(Seen::Found(found)),
                Among::None => return Ok(Seen::Absent(probe)),
                Among::Unsure(slot) if suspect == Some(slot) => return Err(ReadError::Corrupt),
                Among::Unsure(slot) => suspect = Some(slot),
            }
            self.count(|counts| counts.rereads += 1);
        }
        Err(ReadError::Busy)
    }

    /// The first of these slots that has the key, of those whose word is `like` that.
    pub(super) async fn among(
        &self,
        key: &Key<'_>,
        probe: &Probe,
        like: impl Fn(SlotWord) -> bool,
    ) -> Result<Among, ReadError> {
        let fingerprint = key.fingerprint();
        for (slot, word) in probe.slots() {
            if !like(word) || word.fingerprint() != fingerprint {
                continue;
            }
            match self.read_block(word).await? {
                None => return Ok(Among::Unsure((slot, word))),
                Some((block, opened)) if opened.key() == key.bytes() => {
                    return Ok(Among::One(Found { slot, word, block, opened }));
                }
                Some(_) => {}
            }
        }
        Ok(Among::None)
    }

    /// Reads the block that a word names. `None` if what was read is not that: the block was
    /// recycled since, or the slot is damaged.
    pub(super) async fn read_block(
        &self,
        word: SlotWord,
    ) -> Result<Option<(Block, Opened)>, ReadError> {
        let Some(class) = Class::from_number(word.class()) else { return Ok(None) };
        let named = Block { number: word.block(), class, generation: 0 };
        if self.shape.place(named).is_none() {
            return Ok(None);
        }
        let addr = self.shape.block_addr(named.number);
        let words = far::read(self.endpoint(), addr, class.words()).await?;
        let trusts = self.errs(Flaw::TornValue);
        let Some(opened) = block::open(named.number, &words, trusts) else { return Ok(None) };
        let is_named = self.version(opened.generation) == word.version();
        let block = Block { generation: opened.generation, ..named };
        Ok((is_named || self.errs(Flaw::RecycledBlock)).then_some((block, opened)))
    }

    /// What stands in a slot for a generation.
    pub(super) fn version(&self, generation: u32) -> u64 {
        let bits = if self.errs(Flaw::VersionWrap) { 1 } else { SlotWord::VERSION.max() };
        u64::from(generation) & bits
    }

    /// The word of a slot that names this block of this key.
    pub(super) fn word(&self, key: &Key<'_>, block: Block) -> SlotWord {
        SlotWord::new()
            .with(SlotWord::VERSION, self.version(block.generation))
            .with(SlotWord::CLASS, block.class.number())
            .with(SlotWord::FINGERPRINT, key.fingerprint())
            .with(SlotWord::BLOCK, block.number)
    }
}

/// What is among some slots.
#[derive(Clone, Debug)]
pub(super) enum Among {
    One(Found),
    None,
    /// A slot pointed to what was no block when it was read.
    Unsure((Addr, SlotWord)),
}
