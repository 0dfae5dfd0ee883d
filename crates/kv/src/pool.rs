//! What a client remembers of the chunks that it owns: which blocks it may hand out.
//!
//! Blocks are handed out by the owner of their chunk, and freed by a client that took them off
//! their slot: by a compare that counts the use as over, which may be repeated. Nothing here posts
//! a verb.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::shape::{Block, Shape};
use crate::size::Class;
use crate::word::ChunkWord;

/// What an owner knows of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It may be handed out, with the generation that is remembered.
    Free,
    /// It is being written, or on its way into a slot.
    InHand,
    /// It was in a slot, and may have been taken out since. No verb of this client writes it any
    /// more.
    Published,
    /// It was written by a verb whose completion was lost, and which may still take effect: nobody
    /// may write there as long as this endpoint lives.
    Tainted,
    /// It lies in a chunk that was taken over, and was not looked at yet.
    Unseen,
    /// The same, and its last use is not counted as over. Whether a slot names it is not known: it
    /// does, but for a few that the dead had in hand.
    Unproved,
    /// It does not exist: counts of a smaller class, which the chunk once had, lie there.
    Covered,
}

/// Which blocks are meant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of {
    Class(Class),
    Chunk(u32),
}

#[derive(Clone, Copy, Debug)]
struct Remembered {
    generation: u32,
    standing: Standing,
}

#[derive(Debug)]
struct Chunk {
    word: ChunkWord,
    class: Class,
    blocks: Vec<Remembered>,
    /// The first block that may be to be looked at, and the first that may be to be proved.
    looked: [u32; 2],
}

/// How many blocks a client has, by what it knows of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// To be handed out.
    pub free: u64,
    /// Being written, or on the way into a slot or out of one.
    pub in_hand: u64,
    /// In a slot, or taken out of it by others; or not looked at yet, since it was taken over.
    pub published: u64,
    /// Not to be used again while this client lives, since a completion was lost.
    pub tainted: u64,
}

/// The chunks of a client.
#[derive(Debug)]
pub(crate) struct Pool {
    shape: Shape,
    chunks: BTreeMap<u32, Chunk>,
    /// By class, the blocks to be handed out, the one that was freed first in front.
    free: BTreeMap<Class, VecDeque<(u32, u32)>>,
    /// Chunks that a task of this client is about to claim or take over, or looks through.
    busy: BTreeSet<u32>,
    /// The chunk that was asked about freed blocks last.
    swept: u32,
}

impl Pool {
    pub(crate) fn new(shape: Shape) -> Self {
        let (chunks, free) = (BTreeMap::new(), BTreeMap::new());
        Self { shape, chunks, free, busy: BTreeSet::new(), swept: 0 }
    }

    /// Hands out a block.
    pub(crate) fn take(&mut self, class: Class) -> Option<Block> {
        let (chunk, index) = self.free.get_mut(&class)?.pop_front()?;
        let remembered = self.remembered(chunk, index)?;
        assert_eq!(remembered.standing, Standing::Free, "what is handed out was free");
        remembered.standing = Standing::InHand;
        let generation = remembered.generation;
        Some(self.shape.block(chunk, class, index, generation))
    }

    /// The block was never in a slot: it is handed out again as it was.
    pub(crate) fn give_back(&mut self, block: Block) {
        self.stands(block, Standing::Free);
        if let Some(place) = self.shape.place(block) {
            self.free.entry(block.class).or_default().push_back(place);
        }
    }

    /// What is known of this use of a block that was handed out here.
    pub(crate) fn stands(&mut self, block: Block, standing: Standing) {
        if let Some((chunk, index)) = self.shape.place(block)
            && let Some(remembered) = self.remembered(chunk, index)
            && remembered.generation == block.generation
            && remembered.standing != Standing::Free
        {
            remembered.standing = standing;
        }
    }

    /// What is known of this use of a block; `None` if it is another client's, or over.
    pub(crate) fn standing_of(&mut self, block: Block) -> Option<Standing> {
        let (chunk, index) = self.shape.place(block)?;
        let remembered = self.remembered(chunk, index)?;
        (remembered.generation == block.generation).then_some(remembered.standing)
    }

    /// A block that was in hand was in a slot, pending, and is being taken off it.
    pub(crate) fn was_seen(&mut self, block: Block) {
        if self.standing_of(block) == Some(Standing::InHand) {
            self.stands(block, Standing::Published);
        }
    }

    /// The count of frees says that this use of a block is over. One that is in hand stays so: the
    /// change that writes it has not ended, and may have been posted twice. Once it has, the count
    /// is found by a sweep.
    pub(crate) fn freed(&mut self, block: Block) {
        let Some((chunk, index)) = self.shape.place(block) else { return };
        let Some(remembered) = self.remembered(chunk, index) else { return };
        use Standing::{Published, Unproved, Unseen};
        let is_known = matches!(remembered.standing, Published | Unseen | Unproved);
        if remembered.generation != block.generation || !is_known {
            return;
        }
        let generation = block.generation.wrapping_add(1);
        *remembered = Remembered { generation, standing: Standing::Free };
        self.free.entry(block.class).or_default().push_back((chunk, index));
    }

    /// These are the counts of frees of a chunk.
    pub(crate) fn counted(&mut self, chunk: u32, states: &[u64]) {
        let Some(owned) = self.chunks.get(&chunk) else { return };
        let class = owned.class;
        let over = (0..)
            .zip(&owned.blocks)
            .zip(states)
            .filter(|((_, remembered), state)| u64::from(remembered.generation) == **state);
        let over: Vec<Block> = over
            .map(|((index, remembered), _)| {
                self.shape.block(chunk, class, index, remembered.generation)
            })
            .collect();
        over.into_iter().for_each(|block| self.freed(block));
    }

    /// The client owns a chunk, whose blocks stand so, with these generations.
    pub(crate) fn own(&mut self, chunk: u32, word: ChunkWord, blocks: Vec<(u32, Standing)>) {
        let class = Class::from_number(word.class()).expect("a chunk that is owned has a class");
        let free = (0..).zip(&blocks).filter(|(_, (_, standing))| *standing == Standing::Free);
        self.free.entry(class).or_default().extend(free.map(|(index, _)| (chunk, index)));
        let remember = |(generation, standing)| Remembered { generation, standing };
        let blocks = blocks.into_iter().map(remember).collect();
        let before = self.chunks.insert(chunk, Chunk { word, class, blocks, looked: [0; 2] });
        assert!(before.is_none(), "a chunk is taken over once");
    }

    /// Whether this client knows that it owns the chunk.
    pub(crate) fn owns(&self, chunk: u32) -> bool {
        self.chunks.contains_key(&chunk)
    }

    /// How many blocks of a class may be handed out.
    pub(crate) fn free_of(&self, class: Class) -> usize {
        self.free.get(&class).map_or(0, VecDeque::len)
    }

    /// The next of these blocks, at most so many and all of one chunk, that are to be looked at, or
    /// to be proved. No other task looks at that chunk until [`Pool::done_with`].
    pub(crate) fn begins_to_look(
        &mut self,
        of: Of,
        most: usize,
        proves: bool,
    ) -> Option<(u32, Vec<Block>)> {
        let is_next = |it: &Remembered| {
            it.standing == Standing::Unseen || proves && it.standing == Standing::Unproved
        };
        for (&chunk, owned) in &mut self.chunks {
            let is_meant = match of {
                Of::Class(class) => owned.class == class,
                Of::Chunk(wanted) => chunk == wanted,
            };
            if !is_meant || self.busy.contains(&chunk) {
                continue;
            }
            let class = owned.class;
            let first = &mut owned.looked[usize::from(proves)];
            let rest = owned.blocks.iter().skip(*first as usize);
            *first += rest.take_while(|block| !is_next(block)).count() as u32;
            let next = (*first..).zip(&owned.blocks[*first as usize..]);
            let block = |(index, block): (u32, &Remembered)| {
                self.shape.block(chunk, class, index, block.generation)
            };
            let next = next.filter(|(_, block)| is_next(block)).take(most);
            let blocks: Vec<Block> = next.map(block).collect();
            if !blocks.is_empty() {
                self.busy.insert(chunk);
                return Some((chunk, blocks));
            }
        }
        None
    }

    /// A block that was looked at stands so, and with this generation.
    pub(crate) fn was_looked_at(&mut self, block: Block, generation: u32, standing: Standing) {
        use Standing::{Unproved, Unseen};
        if !matches!(self.standing_of(block), Some(Unseen | Unproved)) {
            return;
        }
        let Some((chunk, index)) = self.shape.place(block) else { return };
        let Some(remembered) = self.remembered(chunk, index) else { return };
        *remembered = Remembered { generation, standing };
        if standing == Standing::Free {
            self.free.entry(block.class).or_default().push_back((chunk, index));
        }
    }

    /// Whether a task may claim or take over this chunk now; then no other one does until
    /// [`Pool::done_with`].
    pub(crate) fn begins_with(&mut self, chunk: u32) -> bool {
        !self.owns(chunk) && self.busy.insert(chunk)
    }

    /// The task has claimed it, or given up.
    pub(crate) fn done_with(&mut self, chunk: u32) {
        self.busy.remove(&chunk);
    }

    /// The owned chunks of a class, beginning behind the one that was looked at last.
    pub(crate) fn of_class(&self, class: Class) -> Vec<u32> {
        let of_class = |(chunk, owned): (&u32, &Chunk)| (owned.class == class).then_some(*chunk);
        let behind = self.chunks.range(self.swept.saturating_add(1)..);
        let before = self.chunks.range(..=self.swept);
        behind.chain(before).filter_map(of_class).collect()
    }

    /// This chunk is being looked at.
    pub(crate) fn sweeps(&mut self, chunk: u32) {
        self.swept = chunk;
    }

    /// Blocks of all chunks that stand so.
    pub(crate) fn standing(&self, standing: Standing) -> Vec<Block> {
        let of_chunk = |chunk: &u32| self.standing_in(*chunk, standing);
        self.chunks.keys().flat_map(of_chunk).collect()
    }

    /// Blocks of one chunk that stand so.
    pub(crate) fn standing_in(&self, chunk: u32, standing: Standing) -> Vec<Block> {
        let Some(owned) = self.chunks.get(&chunk) else { return Vec::new() };
        let so = (0..).zip(&owned.blocks).filter(|(_, block)| block.standing == standing);
        let block = |(index, block): (u32, &Remembered)| {
            self.shape.block(chunk, owned.class, index, block.generation)
        };
        so.map(block).collect()
    }

    /// The next chunk that others may have: nothing of it is in hand or tainted.
    pub(crate) fn resting(&self) -> Option<(u32, ChunkWord)> {
        self.chunks.keys().find_map(|&chunk| Some((chunk, self.rests(chunk)?)))
    }

    /// The word of a chunk, if others may have that.
    pub(crate) fn rests(&self, chunk: u32) -> Option<ChunkWord> {
        use Standing::{Covered, Free, Published, Unproved, Unseen};
        let rests = |block: &Remembered| {
            matches!(block.standing, Free | Published | Unseen | Unproved | Covered)
        };
        let owned = self.chunks.get(&chunk)?;
        owned.blocks.iter().all(rests).then_some(owned.word)
    }

    /// Hands out nothing more of a chunk of this class that is wholly free, and forgets it. No
    /// other task claims it or takes it over until [`Pool::done_with`]. `None`: it is not, or is
    /// looked through.
    pub(crate) fn surrender(&mut self, chunk: u32, class: Class) -> Option<ChunkWord> {
        let is_free =
            |block: &Remembered| matches!(block.standing, Standing::Free | Standing::Covered);
        let owned = self.chunks.get(&chunk).filter(|owned| owned.class == class)?;
        let word = owned.blocks.iter().all(is_free).then_some(owned.word)?;
        if !self.busy.insert(chunk) {
            return None;
        }
        self.disown(chunk);
        Some(word)
    }

    /// The client no longer owns the chunk.
    pub(crate) fn disown(&mut self, chunk: u32) {
        if let Some(owned) = self.chunks.remove(&chunk)
            && let Some(free) = self.free.get_mut(&owned.class)
        {
            free.retain(|&(of, _)| of != chunk);
        }
    }

    /// Blocks by standing.
    pub(crate) fn census(&self) -> Census {
        let mut census = Census::default();
        for block in self.chunks.values().flat_map(|chunk| &chunk.blocks) {
            *match block.standing {
                Standing::Covered => continue,
                Standing::Free => &mut census.free,
                Standing::InHand => &mut census.in_hand,
                Standing::Published | Standing::Unseen | Standing::Unproved => {
                    &mut census.published
                }
                Standing::Tainted => &mut census.tainted,
            } += 1;
        }
        census
    }

    fn remembered(&mut self, chunk: u32, index: u32) -> Option<&mut Remembered> {
        self.chunks.get_mut(&chunk)?.blocks.get_mut(index as usize)
    }
}
