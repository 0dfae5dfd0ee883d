//! A chunk without a value gets another class, where there is no other memory.
//!
//! ```text
//! own     the chunk, and know that no use of any of its blocks is not counted as over
//! write   one count into all words that count its frees, higher than all that were there; where
//!         the new class is smaller, so that more words count, into those as well
//! swap    the chunk's word, to the new class
//! ```
//!
//! *Why no slot's word comes back.* Blocks of two classes may begin at the same place, and then
//! have the same number. Each count is higher than every generation that the chunk has seen, so a
//! use of a block of the new class has a generation that no block of it had.
//!
//! *Why a free that is served late does no harm.* It meets a word that counts frees, since none
//! ever becomes anything else, and one that is higher than what it compares with.
//!
//! *Why a count is written once.* A write whose completion was lost may land at any time, and would
//! take back what was counted since. So then, and where the task is dropped, the chunk is left
//! alone as long as this client lives.
//!
//! A crash leaves a chunk of the class that it had, or had gets, without a value in either.

use farlock_fabric::{Addr, Endpoint, Fault};

use super::alloc::Busy;
use super::core::Store;
use crate::error::ReadError;
use crate::far;
use crate::flaw::Flaw;
use crate::index::Index;
use crate::pool::{Of, Standing};
use crate::shape::Block;
use crate::size::Class;
use crate::sync::Scheme;
use crate::word::{ChunkWord, Header};

/// So many blocks of a chunk are looked at before all are.
const GLANCE: usize = 64;

/// So many blocks at most, of a chunk that this client has, are looked for in vain in slots.
const PROVED_MAX: usize = 64;

/// A chunk that is given another class. Dropped before the end, its counts may yet be written.
struct Reclassing<'s, S: Scheme, I: Index> {
    busy: Busy<'s, S, I>,
    word: ChunkWord,
    blocks: usize,
    has_ended: bool,
}

impl<S: Scheme, I: Index> Drop for Reclassing<'_, S, I> {
    fn drop(&mut self) {
        if !self.has_ended {
            let tainted = vec![(0, Standing::Tainted); self.blocks];
            self.busy.store.pool.borrow_mut().own(self.busy.chunk, self.word, tainted);
        }
    }
}

impl<S: Scheme, I: Index> Store<S, I> {
    /// Gives one chunk this class that has another, and no value. `Ok(false)`: there is none.
    pub(super) async fn reclass_one(&self, class: Class) -> Result<bool, ReadError> {
        let mut table = self.table().await?;
        let chance = self.endpoint().random() as usize % table.len();
        table.rotate_left(chance);
        for (chunk, word) in table {
            if let Some(from) = Class::from_number(word.class()).filter(|from| *from != class)
                && self.first_block(class, word)? < self.shape.blocks(class)
                && self.reclass(chunk, word, (from, class)).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives this chunk another class, if that can be.
    async fn reclass(
        &self,
        chunk: u32,
        word: ChunkWord,
        (from, to): (Class, Class),
    ) -> Result<bool, ReadError> {
        let is_own = self.pool.borrow().owns(chunk);
        let may_be_had = is_own || self.may_take(word);
        if !may_be_had || !self.looks_empty(chunk, word, from).await? {
            return Ok(false);
        }
        if !is_own && !self.take_over(chunk, word, from).await? {
            return Ok(false);
        }
        self.sweep(chunk, from).await?;
        while self.look_on(Of::Chunk(chunk), true).await? > 0 {}
        let published = self.pool.borrow().standing_in(chunk, Standing::Published);
        if is_own && published.len() <= PROVED_MAX {
            self.retire_unnamed(published).await?;
        }
        let surrendered = self.pool.borrow_mut().surrender(chunk, from);
        if let Some(word) = surrendered {
            return self.give_class(chunk, word, (from, to)).await;
        }
        let rests = self.pool.borrow().rests(chunk).filter(|_| !is_own);
        if let Some(word) = rests {
            self.give_back(chunk, word).await?;
        }
        Ok(false)
    }

    /// Whether none of the first blocks of a chunk is in use: one look at a chunk that is full.
    async fn looks_empty(
        &self,
        chunk: u32,
        word: ChunkWord,
        class: Class,
    ) -> Result<bool, ReadError> {
        let first = self.first_block(class, word)?;
        let seen = GLANCE.min((self.shape.blocks(class) - first) as usize);
        let states = far::read(self.endpoint(), self.shape.state_addr(chunk, first), seen).await?;
        let block = |(index, state): (u32, u64)| {
            self.shape.block(chunk, class, index, (state as u32).wrapping_add(1))
        };
        let blocks: Vec<Block> = (first..).zip(states).map(block).collect();
        let head = |block: &Block| (self.shape.block_addr(block.number), 1);
        let heads: Vec<(Addr, usize)> = blocks.iter().map(head).collect();
        let heads = far::gather(self.endpoint(), &heads).await?;
        for (block, head) in blocks.into_iter().zip(heads) {
            let may_be = Header(head).generation() as u32 == block.generation;
            if may_be && self.is_in_use(block).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a block that says that this is its last use is in use. It may say so by chance,
    /// where what lies there is left of a block of another class.
    async fn is_in_use(&self, block: Block) -> Result<bool, ReadError> {
        use Standing::{Covered, Free, InHand, Published, Tainted, Unproved, Unseen};
        let place = self.shape.place(block);
        let is_own = place.is_some_and(|(chunk, _)| self.pool.borrow().owns(chunk));
        let standing = self.pool.borrow_mut().standing_of(block);
        match standing {
            Some(InHand | Tainted) => Ok(true),
            Some(Free | Covered) => Ok(false),
            Some(Published | Unseen | Unproved) => self.is_named(block).await,
            None if is_own => Ok(false),
            None => self.is_named(block).await,
        }
    }

    /// Gives a chunk of which nothing is handed out any more another class.
    async fn give_class(
        &self,
        chunk: u32,
        word: ChunkWord,
        (from, to): (Class, Class),
    ) -> Result<bool, ReadError> {
        let blocks = self.shape.blocks(from) as usize;
        let busy = Busy { store: self, chunk };
        let mut reclassing = Reclassing { busy, word, blocks, has_ended: false };
        let least = |word: ChunkWord| Class::from_number(word.least()).ok_or(ReadError::Corrupt);
        let mine = word.given(self.endpoint().id().bits(), to.number());
        let states = self.states(chunk, least(word)?).await?;
        let over = if self.errs(Flaw::CountsBeginAnew) { 0 } else { above_all(&states) };
        let counts = vec![u64::from(over); self.shape.blocks(least(mine)?) as usize];
        let addr = self.shape.state_addr(chunk, 0);
        while let Err(fault) = far::write(self.endpoint(), addr, &counts).await {
            match fault {
                Fault::Lost if self.errs(Flaw::CountsWrittenAgain) => {}
                // Another chunk may do.
                Fault::Lost => return Ok(false),
                fault => return Err(fault.into()),
            }
        }
        let addr = self.shape.chunk_word(chunk);
        let found = far::swap_once(self.endpoint(), addr, word.0, mine.0).await?;
        if found != word.0 && found != mine.0 {
            return Ok(false);
        }
        let first = self.first_block(to, mine)?;
        let stands = |index| match index < first {
            true => (0, Standing::Covered),
            false => (over.wrapping_add(1), Standing::Free),
        };
        let blocks = (0..self.shape.blocks(to)).map(stands).collect();
        reclassing.has_ended = true;
        self.pool.borrow_mut().own(chunk, mine, blocks);
        self.count(|counts| counts.reclassed += 1);
        Ok(true)
    }
}

/// A count that is higher than all of these, which wrap, and are not further apart than half of
/// what can be counted.
fn above_all(states: &[u64]) -> u32 {
    let one = states.first().map_or(0, |state| *state as u32);
    let beyond = |state: &u64| (*state as u32).wrapping_sub(one) as i32;
    let most = states.iter().map(beyond).max().unwrap_or(0);
    one.wrapping_add_signed(most).wrapping_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_wrap_are_compared_as_such() {
        let max = u64::from(u32::MAX);
        for (states, above) in [
            (&[0, 0][..], 1),
            (&[3, 7, 5], 8),
            (&[max, max - 2], 0),
            (&[max - 1, 1, max], 2),
            (&[1, max], 2),
        ] {
            assert_eq!(above_all(states), above, "{states:?}");
        }
    }
}
