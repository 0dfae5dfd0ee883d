//! Memory for blocks: chunks are claimed by a compare of their headers, and taken over, with
//! whatever lies in them, from the dead and from those who left.
//!
//! A repairer looks at each block of a chunk whose last use is not counted as over, and keeps
//! it if its key's slot names it. All others are free: their owner can put them nowhere any more.
//! The use is counted as over before the block is used again, so that no use is ever repeated.

use farlock_fabric::{Addr, Endpoint, EndpointId};

use super::change::{Change, Purpose};
use super::core::Store;
use crate::block;
use crate::error::{ReadError, WriteError};
use crate::far::{self, Words};
use crate::flaw::Flaw;
use crate::index::{Index, Key};
use crate::pool::{Of, Standing};
use crate::shape::Block;
use crate::size::Class;
use crate::sync::Scheme;
use crate::word::{ChunkWord, Header, SlotWord};

/// Among how many chunks clients that claim one at the same time choose.
const CLAIMED_AT_ONCE: usize = 16;

/// So many of its own chunks a client asks about freed blocks before it wants more memory.
const SWEEPS_AT_ONCE: usize = 4;

/// So many blocks that others have left a search looks at.
const LOOKS_AT_ONCE: usize = 4096;

/// So many of them at a time.
const LOOKED_AT_TOGETHER: usize = 512;

/// So many are enough for one search; of small chunks one in so many of a chunk's blocks.
const ENOUGH: u32 = 1024;
const FOUND_ONE_IN: u32 = 16;

/// A client that needs a block takes over so many chunks of others without finding one, and then
/// prefers those that were never used: to look through all that others have left would take long
/// where much is stored.
const CLAIMS_IN_VAIN: u32 = 2;

/// How far a search for blocks has come.
struct Search {
    /// So many blocks it may look at yet.
    looks_left: usize,
    /// So many chunks it has claimed.
    claims: u32,
}

/// A chunk that a task is about to claim or take over.
pub(super) struct Busy<'s, S: Scheme, I: Index> {
    pub(super) store: &'s Store<S, I>,
    pub(super) chunk: u32,
}

impl<S: Scheme, I: Index> Drop for Busy<'_, S, I> {
    fn drop(&mut self) {
        self.store.pool.borrow_mut().done_with(self.chunk);
    }
}

impl<S: Scheme, I: Index> Store<S, I> {
    /// A change of a slot, from what was read there to a new block with this pair.
    pub(super) async fn written(
        &self,
        purpose: Purpose,
        (slot, old): (Addr, SlotWord),
        key: &Key<'_>,
        value: &[u8],
        is_blind: bool,
    ) -> Result<Change, WriteError> {
        let class = self.class(key, value).ok_or(WriteError::TooLong)?;
        let block = self.allocate(class).await?;
        let word = self.word(key, block);
        let new = if purpose == Purpose::Announce { word.announced() } else { word };
        let words = block::seal((block.number, block.generation), key, value, is_blind);
        let change = Change::of(purpose, slot, old, new);
        let name = if I::TREE { key.bytes().to_vec() } else { Vec::new() };
        Ok(Change { block: Some(block), words, key: name, ..change })
    }

    /// The class of a block for such a pair; `None` if it fits in no chunk of this store.
    pub(super) fn class(&self, key: &Key<'_>, value: &[u8]) -> Option<Class> {
        block::class(key, value).filter(|class| self.shape.blocks(*class) > 0)
    }

    /// A block of a class: one that is known to be free, or one of which others have counted the
    /// use as over, or one of a chunk that can be claimed.
    ///
    /// A search looks at a part of what this client and others have left. Where it finds few, and
    /// there is memory that was never used, that is taken as well: else each block would cost a
    /// search.
    pub(super) async fn allocate(&self, class: Class) -> Result<Block, WriteError> {
        let taken = self.pool.borrow_mut().take(class);
        match taken {
            Some(block) => Ok(block),
            // Boxed: where blocks are free it makes no change larger.
            None => Box::pin(self.searched(class)).await,
        }
    }

    /// A block of a class of which none is known to be free.
    #[cold]
    async fn searched(&self, class: Class) -> Result<Block, WriteError> {
        let taken = || self.pool.borrow_mut().take(class);
        // What one finds is enough for all: each would claim a chunk.
        let _alone = self.search.enter(self.endpoint()).await;
        if let Some(block) = taken() {
            return Ok(block);
        }
        let enough = (self.shape.blocks(class) / FOUND_ONE_IN).clamp(1, ENOUGH) as usize;
        let has_enough = || self.pool.borrow().free_of(class) >= enough;
        let mut search = Search { looks_left: LOOKS_AT_ONCE, claims: 0 };
        let owned = self.pool.borrow().of_class(class);
        for &chunk in owned.iter().take(SWEEPS_AT_ONCE) {
            self.sweep(chunk, class).await?;
            if has_enough() {
                break;
            }
        }
        while !has_enough() && self.search_on(class, &mut search).await? {}
        if let Some(block) = taken() {
            return Ok(block);
        }
        self.reap(0).await;
        if !self.may_get_more() {
            for chunk in owned {
                self.sweep(chunk, class).await?;
            }
            if self.pool.borrow().free_of(class) == 0 {
                self.reclass_one(class).await?;
            }
        }
        taken().ok_or(WriteError::PoolFull)
    }

    /// The next step of a search for blocks. `Ok(false)`: there is none.
    async fn search_on(&self, class: Class, search: &mut Search) -> Result<bool, ReadError> {
        if !self.may_get_more() {
            // All that is left is looked through, until there is one.
            let is_over = self.pool.borrow().free_of(class) > 0;
            return Ok(!is_over
                && (self.look_on(Of::Class(class), false).await? > 0
                    || self.look_on(Of::Class(class), true).await? > 0
                    || self.claim_one(class, true).await?));
        }
        if search.looks_left > 0 {
            let looked_at = self.look_on(Of::Class(class), false).await?;
            search.looks_left = search.looks_left.saturating_sub(looked_at);
            if looked_at > 0 {
                return Ok(true);
            }
        }
        let in_vain = search.claims >= CLAIMS_IN_VAIN || search.looks_left == 0;
        search.claims += 1;
        if in_vain && !self.has_blank().await? {
            self.is_short.set(true);
            return Ok(false);
        }
        self.claim_one(class, in_vain).await
    }

    /// Looks which blocks of a chunk others have counted as over.
    pub(super) async fn sweep(&self, chunk: u32, class: Class) -> Result<(), ReadError> {
        self.pool.borrow_mut().sweeps(chunk);
        let states = self.states(chunk, class).await?;
        self.pool.borrow_mut().counted(chunk, &states);
        Ok(())
    }

    /// The counts of a chunk whose blocks have this class.
    pub(super) async fn states(&self, chunk: u32, class: Class) -> Result<Words, ReadError> {
        let blocks = self.shape.blocks(class) as usize;
        Ok(far::read(self.endpoint(), self.shape.state_addr(chunk, 0), blocks).await?)
    }

    pub(super) async fn table(&self) -> Result<Vec<(u32, ChunkWord)>, ReadError> {
        let count = self.chunks.get();
        let words = far::read(self.endpoint(), self.shape.chunk_word(0), count as usize).await?;
        Ok((0..count).zip(words.into_iter().map(ChunkWord)).collect())
    }

    /// Claims one chunk for this class: of those that have it any that nobody living owns, or else
    /// one of the first that were never used, so that the last ones stay together for levels of the
    /// index. `Ok(false)`: there is none.
    async fn claim_one(&self, class: Class, blank_first: bool) -> Result<bool, ReadError> {
        let mut table = self.table().await?;
        if self.claim_of(&table, class, blank_first).await? {
            return Ok(true);
        }
        // What was claimed for a level that was never made.
        let has_more = self.give_back_runs(&table).await?;
        if has_more {
            table = self.table().await?;
        }
        Ok(has_more && self.claim_of(&table, class, blank_first).await?)
    }

    /// How many of the first so many chunks, which have memory, come before one that was never
    /// claimed; at least as many as this client knows of. Told of all these at once, by
    /// [`Store::has_chunks`], it passes by what others have claimed: one at a time each would cost
    /// a search.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn chunks_claimed(&self, chunks: u32) -> Result<u32, ReadError> {
        let known = self.chunks.get();
        let more = chunks.saturating_sub(known) as usize;
        if more == 0 {
            return Ok(known);
        }
        let words = far::read(self.endpoint(), self.shape.chunk_word(known), more).await?;
        let claimed = words.iter().take_while(|word| ChunkWord(**word).class() != 0).count();
        Ok(known + claimed as u32)
    }

    /// Whether there is a chunk that has no class yet.
    async fn has_blank(&self) -> Result<bool, ReadError> {
        Ok(self.table().await?.iter().any(|(_, word)| word.class() == 0))
    }

    async fn claim_of(
        &self,
        table: &[(u32, ChunkWord)],
        class: Class,
        blank_first: bool,
    ) -> Result<bool, ReadError> {
        let chance = self.endpoint().random() as usize;
        let (mut of_class, mut blank): (Vec<_>, Vec<_>) = table
            .iter()
            .filter(|(_, word)| word.class() == class.number() || word.class() == 0)
            .partition(|(_, word)| word.class() != 0);
        let turn = |chunks: &mut Vec<_>, most: usize| {
            let most = most.min(chunks.len());
            if most > 0 {
                chunks[..most].rotate_left(chance % most);
            }
        };
        turn(&mut of_class, usize::MAX);
        turn(&mut blank, CLAIMED_AT_ONCE);
        let (first, then) = if blank_first { (blank, of_class) } else { (of_class, blank) };
        for &(chunk, word) in first.into_iter().chain(then) {
            if self.take_over(chunk, word, class).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes a chunk over, if nobody living has it, with all that lies in it. `Ok(false)`: a client
    /// has it.
    pub(super) async fn take_over(
        &self,
        chunk: u32,
        word: ChunkWord,
        class: Class,
    ) -> Result<bool, ReadError> {
        let me = self.endpoint().id();
        let owner = EndpointId::from_bits(word.owner());
        if !self.may_take(word) || !self.pool.borrow_mut().begins_with(chunk) {
            return Ok(false);
        }
        let _busy = Busy { store: self, chunk };
        let mut mine = word;
        if owner != me {
            mine = word.given(me.bits(), class.number());
            let addr = self.shape.chunk_word(chunk);
            let found = far::swap_once(self.endpoint(), addr, word.0, mine.0).await?;
            if found != word.0 && found != mine.0 {
                return Ok(false);
            }
        }
        let is_new = word.class() == 0;
        let blocks = match is_new {
            true => vec![(1, Standing::Free); self.shape.blocks(class) as usize],
            false => {
                let states = self.states(chunk, class).await?;
                let first = self.first_block(class, mine)?;
                let unseen = |(index, state): (u32, &u64)| match index < first {
                    true => (0, Standing::Covered),
                    false => ((*state as u32).wrapping_add(1), Standing::Unseen),
                };
                (0..).zip(&states).map(unseen).collect()
            }
        };
        self.pool.borrow_mut().own(chunk, mine, blocks);
        self.count(|counts| match is_new {
            true => counts.claims += 1,
            false => counts.adoptions += 1,
        });
        Ok(true)
    }

    /// Whether nobody living has the chunk. What is mine and unknown to me was claimed by a task
    /// that was dropped, or by a verb whose completion was lost.
    pub(super) fn may_take(&self, word: ChunkWord) -> bool {
        let owner = EndpointId::from_bits(word.owner());
        let me = self.endpoint().id();
        !owner.is_somebody() || owner == me || !self.endpoint().is_alive(owner)
    }

    /// The first block that exists in a chunk that says this.
    pub(super) fn first_block(&self, class: Class, word: ChunkWord) -> Result<u32, ReadError> {
        let least = Class::from_number(word.least()).ok_or(ReadError::Corrupt)?;
        Ok(self.shape.covered(class, least))
    }

    /// Looks how some of these blocks stand that were taken over: whether their last use is over,
    /// or `proves` that it is not. Returns how many.
    pub(super) async fn look_on(&self, of: Of, proves: bool) -> Result<usize, ReadError> {
        let begun = self.pool.borrow_mut().begins_to_look(of, LOOKED_AT_TOGETHER, proves);
        let Some((chunk, blocks)) = begun else { return Ok(0) };
        let _busy = Busy { store: self, chunk };
        let heads: Vec<(Addr, usize)> =
            blocks.iter().map(|block| (self.shape.block_addr(block.number), 1)).collect();
        let heads = far::gather(self.endpoint(), &heads).await?;
        let looked_at = blocks.len();
        for (block, head) in blocks.into_iter().zip(heads) {
            let last_used = Header(head).generation() as u32;
            let (generation, standing) = if last_used != block.generation {
                (block.generation, Standing::Free)
            } else if !proves {
                (block.generation, Standing::Unproved)
            } else if self.is_named(block).await? && !self.errs(Flaw::LiveBlockFreed) {
                (block.generation, Standing::Published)
            } else {
                self.count_over(block).await?;
                (block.generation.wrapping_add(1), Standing::Free)
            };
            self.pool.borrow_mut().was_looked_at(block, generation, standing);
        }
        Ok(looked_at)
    }

    /// Looks at all that was taken over of every class, and proves what is in use.
    async fn look_through(&self) -> Result<(), ReadError> {
        for class in (1..).map_while(Class::from_number) {
            while self.look_on(Of::Class(class), true).await? > 0 {}
        }
        Ok(())
    }

    /// Counts a use as over, if nobody has.
    async fn count_over(&self, block: Block) -> Result<(), ReadError> {
        let addr = self.state_of(block).ok_or(ReadError::Corrupt)?;
        let before = block.generation.wrapping_sub(1);
        far::swap_once(self.endpoint(), addr, before.into(), block.generation.into()).await?;
        Ok(())
    }

    /// Whether a slot names this use of a block as a key's value, or it is a node of a tree. A slot
    /// that names it pending is emptied: the insertion is over.
    pub(super) async fn is_named(&self, block: Block) -> Result<bool, ReadError> {
        let addr = self.shape.block_addr(block.number);
        let words = far::read(self.endpoint(), addr, block.class.words()).await?;
        if I::TREE && Box::pin(self.was_installed(block, &words)).await? {
            return Ok(true);
        }
        let Some(opened) = block::open(block.number, &words, false) else { return Ok(false) };
        let Some(key) = Key::new(opened.key()) else { return Ok(false) };
        if opened.generation != block.generation || self.index.buckets(&key, 0).is_none() {
            return Ok(false);
        }
        let word = self.word(&key, block);
        let probe = self.probe(&key).await?;
        for (slot, found) in probe.slots() {
            if found == word {
                return Ok(true);
            }
            if found == word.announced() {
                let (compare, swap) = (found.0, found.emptied().0);
                far::swap_once(self.endpoint(), slot, compare, swap).await?;
            }
        }
        Ok(false)
    }

    /// Takes over every chunk of the dead, and what this client has and does not know of. Returns
    /// how many there were. They stay this client's until it gives them back: [`Store::close`].
    /// What the dead have claimed for a level of the index, and not made one, is nobody's again.
    ///
    /// A crash in the middle leaves chunks that are this client's, and so the dead's.
    ///
    /// # Errors
    /// See [`ReadError`]; what was not reached stays as it was.
    pub async fn recover(&self) -> Result<u32, ReadError> {
        let mut recovered = 0;
        let table = self.table().await?;
        self.give_back_runs(&table).await?;
        for (chunk, word) in table {
            let Some(class) = Class::from_number(word.class()) else { continue };
            let is_owned = EndpointId::from_bits(word.owner()).is_somebody();
            if is_owned && self.take_over(chunk, word, class).await? {
                recovered += 1;
            }
        }
        self.look_through().await?;
        Ok(recovered)
    }

    /// Frees what others took out of its slot and could not free any more, since they died or a
    /// completion was lost. Costs some round trips a key: for quiet times.
    ///
    /// # Errors
    /// See [`ReadError`]; what was not reached stays as it was.
    pub async fn audit(&self) -> Result<(), ReadError> {
        self.look_through().await?;
        let blocks = self.pool.borrow().standing(Standing::Published);
        self.retire_unnamed(blocks).await
    }

    /// Frees those of these blocks that were in slots and are in none any more.
    pub(super) async fn retire_unnamed(&self, blocks: Vec<Block>) -> Result<(), ReadError> {
        for block in blocks {
            let is_published = self.pool.borrow_mut().standing_of(block);
            if is_published == Some(Standing::Published) && !self.is_named(block).await? {
                self.retire(block);
            }
        }
        self.reap(0).await;
        Ok(())
    }

    /// Settles, and gives every chunk back, with the values that lie there: others take them over
    /// as they need memory. What cannot be given back while this endpoint lives stays. The store
    /// may be used again, and then claims chunks anew.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn close(&self) -> Result<(), ReadError> {
        self.settle().await;
        loop {
            let resting = self.pool.borrow().resting();
            let Some((chunk, word)) = resting else { return Ok(()) };
            self.give_back(chunk, word).await?;
        }
    }

    /// A chunk that rests is nobody's any more.
    pub(super) async fn give_back(&self, chunk: u32, word: ChunkWord) -> Result<(), ReadError> {
        // From now on this client hands out nothing of it.
        self.pool.borrow_mut().disown(chunk);
        let addr = self.shape.chunk_word(chunk);
        let nobody = word.given(0, word.class());
        far::swap_once(self.endpoint(), addr, word.0, nobody.0).await?;
        Ok(())
    }
}
