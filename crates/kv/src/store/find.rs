//! Finding a key: the words of its slots, and the block behind the one that is its own.

use farlock_fabric::Addr;

use super::core::Store;
use crate::block::{self, Opened};
use crate::error::ReadError;
use crate::far;
use crate::flaw::Flaw;
use crate::index::{Bucket, Buckets, Index, Key};
use crate::shape::{Block, LEVEL_WORDS};
use crate::size::Class;
use crate::sync::Scheme;
use crate::word::SlotWord;

/// How often a key is looked for again, since others changed it meanwhile.
const TURNS_MAX: u32 = 10_000;

/// The slots of a key, by bucket.
type Slots = Vec<Vec<(Addr, SlotWord)>>;

/// The slots that a key may have, as they were read.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    /// The highest level of which slots were read.
    pub(super) level: u32,
    buckets: Buckets,
    /// Those of that level, by bucket.
    slots: Slots,
    /// Where slots of several levels are the key's: those.
    mixed: Option<Vec<(Addr, SlotWord)>>,
}

impl Probe {
    /// Every slot that is the key's.
    pub(super) fn slots(&self) -> impl Iterator<Item = (Addr, SlotWord)> {
        let (mixed, alone) = match &self.mixed {
            Some(mixed) => (&mixed[..], &[][..]),
            None => (&[][..], &self.slots[..]),
        };
        mixed.iter().chain(alone.iter().flatten()).copied()
    }

    /// Whether all of them are of one level.
    pub(super) fn is_of_one_level(&self) -> bool {
        self.mixed.is_none()
    }

    /// An empty slot for a new key: in the emptiest bucket, and of what it shares with others only
    /// when there is nothing else. Asked only where all are of one level.
    pub(super) fn room(&self) -> Option<(Addr, SlotWord)> {
        let rooms = self.buckets.iter().zip(&self.slots).filter_map(|(bucket, slots)| {
            let (first, count) = bucket.shared;
            let shared = |at: &usize| (first..first + count).contains(&(*at as u16));
            let empty = |at: &usize| !slots[*at].1.is_taken() && !slots[*at].1.is_moved();
            let empties: Vec<usize> = (0..slots.len()).filter(empty).collect();
            let own = empties.iter().find(|at| !shared(at)).copied();
            let at = own.or(empties.first().copied())?;
            Some(((own.is_none(), slots.len() - empties.len()), slots[at]))
        });
        rooms.min_by_key(|(rank, _)| *rank).map(|(_, slot)| slot)
    }
}

/// A block that was read, if it is the one that was asked for.
pub(super) type Read = Option<(Block, Opened)>;

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
    /// Reads every slot that a key may have: of the lowest level, and where slots have moved, of the
    /// levels that they have moved to. That order is the one in which a key moves.
    pub(super) async fn probe(&self, key: &Key<'_>) -> Result<Probe, ReadError> {
        let level = self.levels.borrow().lowest();
        let (buckets, slots) = self.slots_at(key, level, false).await?;
        let has_moved = slots.iter().flatten().any(|(_, word)| word.is_moved());
        let probe = Probe { level, buckets, slots, mixed: None };
        match has_moved {
            false => Ok(probe),
            true => self.probe_on(key, probe).await,
        }
    }

    /// Goes on where slots have moved.
    async fn probe_on(&self, key: &Key<'_>, probe: Probe) -> Result<Probe, ReadError> {
        let Probe { mut level, mut buckets, mut slots, .. } = probe;
        let mut found: Vec<(Addr, SlotWord)> = slots.iter().flatten().copied().collect();
        loop {
            let (moved, stayed): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|(_, word)| word.is_moved());
            found = stayed;
            if moved.is_empty() {
                break;
            }
            let mut heirs = Vec::with_capacity(2 * moved.len());
            if self.levels.borrow().highest() == level {
                self.learn_levels().await?;
            }
            for (slot, _) in moved {
                heirs.extend(self.heirs_of(slot)?);
            }
            if self.errs(Flaw::OldLevelAlone) {
                heirs.clear();
            }
            level += 1;
            (buckets, slots) = self.slots_at(key, level, true).await?;
            // What is in another slot of this level is a copy, and may be an old one.
            found.extend(slots.iter().flatten().filter(|(slot, _)| heirs.contains(slot)));
        }
        let is_of_one_level = slots.iter().flatten().eq(&found);
        Ok(Probe { level, buckets, slots, mixed: (!is_of_one_level).then_some(found) })
    }

    /// Reads the slots that a key may have at a level which this client knows; on the way it may
    /// learn what has become of the levels.
    async fn slots_at(
        &self,
        key: &Key<'_>,
        level: u32,
        learns: bool,
    ) -> Result<(Buckets, Slots), ReadError> {
        let buckets = self.index.buckets(key, level).ok_or(ReadError::BadKey)?;
        let mut places = self.places(&buckets, level)?;
        if learns {
            places.push((self.shape.levels(), LEVEL_WORDS));
        }
        let mut words = far::read_many(self.endpoint(), &places).await?;
        if learns && let Some(levels) = words.pop() {
            self.levels.borrow_mut().learn(&levels);
        }
        let slots = places.iter().zip(words).map(|(&(addr, _), words)| {
            let slot = |(at, word): (usize, u64)| (addr.plus(at as u64 * 8), SlotWord(word));
            words.into_iter().enumerate().map(slot).collect()
        });
        let slots = slots.collect();
        Ok((buckets, slots))
    }

    fn places(&self, buckets: &Buckets, level: u32) -> Result<Vec<(Addr, usize)>, ReadError> {
        let levels = self.levels.borrow();
        let place = |bucket: &Bucket| {
            let addr = levels.addr(level, bucket.offset).ok_or(ReadError::Corrupt)?;
            Ok((addr, usize::from(bucket.slots)))
        };
        buckets.iter().map(place).collect()
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
    pub(super) async fn read_block(&self, word: SlotWord) -> Result<Read, ReadError> {
        let mut found = self.read_blocks(&[word]).await?;
        Ok(found.pop().expect("one block was asked for"))
    }

    /// The same for several words, in as few round trips as they take.
    pub(super) async fn read_blocks(&self, words: &[SlotWord]) -> Result<Vec<Read>, ReadError> {
        let named = |word: &SlotWord| {
            let class = Class::from_number(word.class())?;
            let block = Block { number: word.block(), class, generation: 0 };
            self.shape.place(block).map(|_| block)
        };
        let blocks: Vec<Option<Block>> = words.iter().map(named).collect();
        let place = |block: &Block| (self.shape.block_addr(block.number), block.class.words());
        let places: Vec<(Addr, usize)> = blocks.iter().flatten().map(place).collect();
        let mut read = far::read_all(self.endpoint(), &places).await?.into_iter();
        let open = |(word, block): (&SlotWord, Option<Block>)| {
            let named = block?;
            let words = read.next().expect("each block was read");
            let opened = block::open(named.number, &words, self.errs(Flaw::TornValue))?;
            let is_named = self.version(opened.generation) == word.version();
            let block = Block { generation: opened.generation, ..named };
            (is_named || self.errs(Flaw::RecycledBlock)).then_some((block, opened))
        };
        Ok(words.iter().zip(blocks).map(open).collect())
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
