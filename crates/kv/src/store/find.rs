//! Finding a key: the words of its slots, and the block behind the one that is its own.

use farlock_fabric::{Addr, Fault};
use smallvec::SmallVec;

use super::core::Store;
use crate::block::{self, Opened};
use crate::error::ReadError;
use crate::far::{self, Words};
use crate::flaw::Flaw;
use crate::index::{Bucket, Buckets, Index, Key};
use crate::shape::{Block, LEVEL_WORDS};
use crate::size::Class;
use crate::sync::Scheme;
use crate::word::SlotWord;

/// How often a key is looked for again, since others changed it meanwhile.
const TURNS_MAX: u32 = 10_000;

/// Places that are read with one doorbell, and how many words there.
pub(super) type Places = SmallVec<[(Addr, usize); 3]>;

/// The slots of a key as they were read, one bucket after the other.
#[derive(Clone, Debug)]
struct Slots {
    /// Where the buckets lie, and how many slots each has.
    places: Places,
    words: Words,
}

impl Slots {
    /// The slots of one bucket after the other.
    fn buckets(&self) -> impl Iterator<Item = impl Iterator<Item = (Addr, SlotWord)>> {
        let mut rest = &self.words[..];
        self.places.iter().map(move |&(first, count)| {
            let (words, behind) = rest.split_at(count);
            rest = behind;
            let slot = move |(at, word): (u64, &u64)| (first.plus(at * 8), SlotWord(*word));
            (0..).zip(words).map(slot)
        })
    }

    fn iter(&self) -> impl Iterator<Item = (Addr, SlotWord)> {
        self.buckets().flatten()
    }
}

/// The slots that a key may have, as they were read.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    /// The highest level of which slots were read.
    pub(super) level: u32,
    buckets: Buckets,
    /// Those of that level.
    slots: Slots,
    /// Where slots of several levels are the key's: those. Of a tree: the one, if there is one.
    mixed: Option<Vec<(Addr, SlotWord)>>,
    /// Of a tree: the nodes on the way to the slot.
    nodes: Vec<SlotWord>,
}

impl Probe {
    /// Every slot that is the key's.
    pub(super) fn slots(&self) -> impl Iterator<Item = (Addr, SlotWord)> {
        let mixed = self.mixed.as_deref();
        let alone = mixed.is_none().then(|| self.slots.iter());
        mixed.unwrap_or_default().iter().copied().chain(alone.into_iter().flatten())
    }

    /// Whether all of them are of one level.
    pub(super) fn is_of_one_level(&self) -> bool {
        self.mixed.is_none()
    }

    /// An empty slot for a new key: in the emptiest bucket, and of what it shares with others only
    /// when there is nothing else. Asked only where all are of one level.
    pub(super) fn room(&self) -> Option<Room> {
        let rooms = self.buckets.iter().zip(self.slots.buckets()).filter_map(|(bucket, slots)| {
            let (first, count) = bucket.shared;
            let shared = |at: u16| (first..first + count).contains(&at);
            let (mut taken, mut room) = (0, None);
            for (at, slot) in (0..).zip(slots) {
                if slot.1.is_taken() || slot.1.is_moved() {
                    taken += 1;
                } else if room.is_none_or(|(is_shared, _)| is_shared && !shared(at)) {
                    room = Some((shared(at), slot));
                }
            }
            let (is_shared, slot) = room?;
            let is_crowded = 4 * taken >= 3 * bucket.slots;
            Some(((is_shared, taken), Room { slot, is_crowded }))
        });
        rooms.min_by_key(|(rank, _)| *rank).map(|(_, room)| room)
    }
}

/// Room for a new key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// An empty slot.
    pub(super) slot: (Addr, SlotWord),
    /// Whether three quarters of its bucket are taken.
    pub(super) is_crowded: bool,
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
    Absent(Box<Probe>),
}

impl<S: Scheme, I: Index> Store<S, I> {
    /// Reads every slot that a key may have: of the lowest level, and where slots have moved, of
    /// the levels that they have moved to. That order is the one in which a key moves.
    pub(super) async fn probe(&self, key: &Key<'_>) -> Result<Probe, ReadError> {
        if I::TREE {
            return Box::pin(self.probe_tree(key)).await;
        }
        let level = self.levels.borrow().lowest();
        let (buckets, slots) = self.slots_at(key, level, false).await?;
        let has_moved = slots.words.iter().any(|word| SlotWord(*word).is_moved());
        let probe = Probe { level, buckets, slots, mixed: None, nodes: Vec::new() };
        match has_moved {
            false => Ok(probe),
            true => self.probe_on(key, probe).await,
        }
    }

    /// Goes on where slots have moved.
    async fn probe_on(&self, key: &Key<'_>, probe: Probe) -> Result<Probe, ReadError> {
        let Probe { mut level, mut buckets, mut slots, .. } = probe;
        let mut found: Vec<(Addr, SlotWord)> = slots.iter().collect();
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
            level += 1;
            (buckets, slots) = self.slots_at(key, level, true).await?;
            // What is in another slot of this level is a copy, and may be an old one.
            found.extend(slots.iter().filter(|(slot, _)| heirs.contains(slot)));
        }
        let is_of_one_level = slots.iter().eq(found.iter().copied());
        let mixed = (!is_of_one_level).then_some(found);
        Ok(Probe { level, buckets, slots, mixed, nodes: Vec::new() })
    }

    /// Goes to the slot of a key in a tree. What it says is told as it was before it was frozen, so
    /// that a change of it fails: see [`Store::clear_way`].
    async fn probe_tree(&self, key: &Key<'_>) -> Result<Probe, ReadError> {
        let way = self.way(key.bytes()).await?;
        if way.first_frozen().is_some() {
            self.nodes.borrow_mut().met_frozen();
        }
        let slot = way.slot().map(|(slot, word)| (slot, word.thawed()));
        let slots = Slots { places: Places::new(), words: Words::new() };
        let nodes = way.nodes().map(|(step, _)| step.word).collect();
        let mixed = Some(slot.into_iter().collect());
        Ok(Probe { level: 0, buckets: Buckets::new(), slots, mixed, nodes })
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
        let mut words = far::gather(self.endpoint(), &places).await?;
        if learns {
            places.truncate(buckets.len());
            let learnt = words.split_off(words.len() - LEVEL_WORDS);
            self.levels.borrow_mut().learn(&learnt);
        }
        Ok((buckets, Slots { places, words }))
    }

    fn places(&self, buckets: &Buckets, level: u32) -> Result<Places, ReadError> {
        let levels = self.levels.borrow();
        let place = |bucket: &Bucket| {
            let addr = levels.addr(level, bucket.offset).ok_or(ReadError::Corrupt)?;
            Ok((addr, usize::from(bucket.slots)))
        };
        buckets.iter().map(place).collect()
    }

    /// Looks for a key, until what it finds is of one piece.
    pub(super) async fn locate(&self, key: &Key<'_>) -> Result<Seen, ReadError> {
        // Boxed: where nothing is remembered it makes no operation larger.
        if self.recall.is_some()
            && let Some(found) = Box::pin(self.locate_again(key)).await?
        {
            return Ok(Seen::Found(found));
        }
        // The slot that pointed to what was no block when it was last read.
        let mut suspect = None;
        for _ in 0..TURNS_MAX {
            let probe = self.probe(key).await?;
            match self.among(key, &probe, SlotWord::is_committed).await? {
                Among::One(found) => {
                    self.remember_found(key, &found);
                    self.remember_nodes(key, &probe.nodes);
                    return Ok(Seen::Found(found));
                }
                Among::None => return Ok(Seen::Absent(Box::new(probe))),
                Among::Unsure(slot) if suspect == Some(slot) => return Err(ReadError::Corrupt),
                Among::Unsure(slot) => suspect = Some(slot),
            }
            self.count(|counts| counts.rereads += 1);
        }
        Err(ReadError::Busy)
    }

    /// Whether a reader does not look at this slot, since it is above the lowest level; only by a
    /// planted bug.
    pub(super) fn overlooks(&self, slot: Addr) -> bool {
        let levels = self.levels.borrow();
        let is_above = |(level, _)| level > levels.lowest();
        self.errs(Flaw::OldLevelAlone) && levels.place(slot).is_some_and(is_above)
    }

    /// The first of these slots that has the key, of those whose word is `like` that.
    pub(super) async fn among(
        &self,
        key: &Key<'_>,
        probe: &Probe,
        like: impl Fn(SlotWord) -> bool,
    ) -> Result<Among, ReadError> {
        let fingerprint = key.fingerprint();
        // Where there are no nodes a word that names one is damaged, and may have been the key's.
        let is_like = |word: SlotWord| {
            word.fingerprint() == fingerprint && (like(word) || !I::TREE && word.is_node())
        };
        let mut slots = probe.slots();
        while let Some((slot, word)) = slots.find(|(_, word)| is_like(*word)) {
            match self.read_block(word).await? {
                None => return Ok(Among::Unsure((slot, word))),
                Some((block, opened))
                    if opened.key() == key.bytes() || self.errs(Flaw::OtherKey) =>
                {
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
        let Some(named) = self.named(word) else { return Ok(None) };
        let addr = self.shape.block_addr(named.number);
        let words = far::read_named(self.endpoint(), addr, named.class.words()).await?;
        Ok(words.and_then(|words| self.opened(word, named, &words)))
    }

    /// The block that a word names, if there is such a one; its generation is not known.
    pub(super) fn named(&self, word: SlotWord) -> Option<Block> {
        let class = Class::from_number(word.class())?;
        let block = Block { number: word.block(), class, generation: 0 };
        self.shape.place(block).map(|_| block)
    }

    /// What was read of the block that a word names, if it is that use of it.
    pub(super) fn opened(&self, word: SlotWord, named: Block, words: &[u64]) -> Read {
        let opened = block::open(named.number, words, self.errs(Flaw::TornValue))?;
        let is_named = self.version(opened.generation) == word.version();
        let block = Block { generation: opened.generation, ..named };
        (is_named || self.errs(Flaw::RecycledBlock)).then_some((block, opened))
    }

    /// The same for several words, in as few round trips as they take.
    pub(super) async fn read_blocks(&self, words: &[SlotWord]) -> Result<Vec<Read>, ReadError> {
        let blocks: Vec<Option<Block>> = words.iter().map(|word| self.named(*word)).collect();
        let place = |block: &Block| (self.shape.block_addr(block.number), block.class.words());
        let places: Vec<(Addr, usize)> = blocks.iter().flatten().map(place).collect();
        let mut read = match far::read_all(self.endpoint(), &places).await {
            Ok(read) => read.into_iter(),
            // One of them is in no memory.
            Err(Fault::OutOfBounds) => return self.read_each(words).await,
            Err(fault) => return Err(fault.into()),
        };
        let open = |(word, block): (&SlotWord, Option<Block>)| {
            let block = block?;
            self.opened(*word, block, &read.next().expect("each block was read"))
        };
        Ok(words.iter().zip(blocks).map(open).collect())
    }

    /// The same, one after the other.
    #[cold]
    async fn read_each(&self, words: &[SlotWord]) -> Result<Vec<Read>, ReadError> {
        let mut read = Vec::with_capacity(words.len());
        for &word in words {
            read.push(self.read_block(word).await?);
        }
        Ok(read)
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
