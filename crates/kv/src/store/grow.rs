//! Making the next level of the index: its table lies in a run of chunks.
//!
//! A client claims the chunks of the run one by one and then puts the run into the header, by one
//! compare. They were never written before, so they are a table of empty slots as they are, and
//! nobody writes there before the header says so. From then on they are nobody's for good: clients
//! that come late must find there what has moved.
//!
//! A client that dies before leaves chunks of its, which were never written: others give them back.
//! One that lives gives them back itself, once the header has another table for that level.

use farlock_fabric::{Addr, Endpoint, EndpointId, Fault};

use super::core::Store;
use crate::error::{ReadError, WriteError};
use crate::far;
use crate::flaw::Flaw;
use crate::index::Index;
use crate::levels::Run;
use crate::shape::{LEVEL_WORDS, LEVELS};
use crate::sync::Scheme;
use crate::word::{ChunkWord, SlotWord};

/// How often a client tries to make a level, while others take the chunks that it wants.
const TRIES_MAX: u32 = 16;

impl<S: Scheme, I: Index> Store<S, I> {
    /// Makes the index larger, ahead of need: it gets a level with twice the slots, to which
    /// changes move the keys. An insertion that finds no slot does so itself. Where the level
    /// before has not moved yet, a read of a key takes one round trip more for each such level.
    ///
    /// A crash leaves the next level or none, and chunks that others give back.
    ///
    /// # Errors
    /// [`WriteError::IndexFull`]: the index keeps its size, or no run of chunks is left that were
    /// never used. Or see [`WriteError`].
    pub async fn grow(&self) -> Result<(), WriteError> {
        let level = self.levels.borrow().highest();
        self.grow_above(level).await
    }

    /// Makes the level above this one, if there is none.
    pub(super) async fn grow_above(&self, level: u32) -> Result<(), WriteError> {
        if I::GROWTH.is_none() || level as usize + 1 >= LEVELS {
            return Err(WriteError::IndexFull);
        }
        for attempt in 1..=TRIES_MAX {
            self.learn_levels().await?;
            if self.levels.borrow().highest() > level {
                return Ok(());
            }
            let (begun, current) = {
                let runs = self.runs.borrow();
                (runs.begun(), runs.current())
            };
            if let Some(run) = current {
                self.publish(run).await?;
                continue;
            }
            match self.find_run(level + 1).await? {
                Some(run) if self.runs.borrow_mut().begin(&run, begun) => {
                    self.publish(run).await?;
                }
                Some(_) => {}
                None if self.is_made_by_another(level).await? => self.scheme.missed(attempt).await,
                None => return Err(WriteError::IndexFull),
            }
        }
        Err(WriteError::IndexFull)
    }

    /// Whether a level is far from full, by a sample: then a key that has no room there has others
    /// of its own hash to thank for that, and would find none above either. Keys that were made so
    /// would otherwise have the index grow until there is no memory.
    pub(super) async fn is_sparse(&self, level: u32) -> Result<bool, ReadError> {
        /// Groups of slots that are looked at.
        const SAMPLE: u64 = 16;
        /// Of so many slots one is taken at least, where keys are not made to collide: some have no
        /// room when three of four are.
        const TAKEN_ONE_IN: usize = 4;
        let Some(growth) = I::GROWTH else { return Ok(false) };
        let places: Option<Vec<(Addr, usize)>> = {
            let levels = self.levels.borrow();
            let groups = levels.groups(level);
            let place = |number: u64| {
                let group =
                    if groups <= SAMPLE { number } else { self.endpoint().random() % groups };
                Some((levels.addr(level, group * growth.group as u64 * 8)?, growth.group))
            };
            (0..groups.min(SAMPLE)).map(place).collect()
        };
        let places = places.ok_or(ReadError::Corrupt)?;
        let words = far::gather(self.endpoint(), &places).await?;
        let is_taken = |word: &&u64| SlotWord(**word).is_taken() || SlotWord(**word).is_moved();
        let taken = words.iter().filter(is_taken).count();
        Ok(taken * TAKEN_ONE_IN < words.len())
    }

    /// A run of chunks for a level that nobody has and that were never written; the last one, since
    /// blocks take chunks from the first on.
    async fn find_run(&self, level: u32) -> Result<Option<Run>, ReadError> {
        let Some(count) = self.shape.table_chunks(level) else { return Ok(None) };
        let found = |table: &[(u32, ChunkWord)]| {
            let mut runs = table.windows(count as usize).rev();
            let run = runs.find(|run| run.iter().all(|(_, word)| word.is_blank()))?;
            let words = run.iter().map(|(_, word)| *word).collect();
            Some(Run { level, first: run[0].0, words })
        };
        let table = self.table().await?;
        if let Some(run) = found(&table) {
            return Ok(Some(run));
        }
        self.give_back_runs(&table).await?;
        Ok(found(&self.table().await?))
    }

    /// Whether another client has made the level above this one, or has claimed chunks for it.
    async fn is_made_by_another(&self, level: u32) -> Result<bool, ReadError> {
        let table = self.table().await?;
        // Only now: what was claimed before may be a level by now.
        self.learn_levels().await?;
        let levels = self.levels.borrow();
        let is_claimed = |(chunk, word): &(u32, ChunkWord)| {
            word.class() == ChunkWord::TABLE && !levels.holds(*chunk)
        };
        Ok(levels.highest() > level || table.iter().any(is_claimed))
    }

    /// Claims a run and makes it a level, or gives it back where others were first. What is not
    /// carried out to its end goes on in the next call.
    async fn publish(&self, run: Run) -> Result<(), ReadError> {
        let is_made = self.claim_run(&run).await? && {
            let addr = self.shape.level_word(run.level);
            let found = far::swap_once(self.endpoint(), addr, 0, run.word()).await?;
            self.count(|counts| counts.growths += u64::from(found == 0));
            found == 0 || found == run.word()
        };
        if !is_made && !self.errs(Flaw::RunForgotten) {
            let me = self.endpoint().id().bits();
            let given = run.words.iter().map(|word| {
                let mine = word.given(me, ChunkWord::TABLE);
                (mine, mine.given(0, 0))
            });
            self.swap_chunks(run.first, given).await?;
        }
        self.runs.borrow_mut().end(&run);
        Ok(())
    }

    /// Claims the chunks of a run. `Ok(false)`: others have taken one.
    async fn claim_run(&self, run: &Run) -> Result<bool, Fault> {
        let me = self.endpoint().id().bits();
        let swap = |word: &ChunkWord| (*word, word.given(me, ChunkWord::TABLE));
        // The first one decides between clients that want the same.
        let (first, others) = run.words.split_at(1);
        let is_mine = self.swap_chunks(run.first, first.iter().map(swap)).await?;
        Ok(is_mine && self.swap_chunks(run.first + 1, others.iter().map(swap)).await?)
    }

    /// Changes the words of chunks from this one on, each from one word to another. `Ok(false)`:
    /// one was neither.
    async fn swap_chunks(
        &self,
        first: u32,
        words: impl Iterator<Item = (ChunkWord, ChunkWord)>,
    ) -> Result<bool, Fault> {
        let swap = |(chunk, (from, to)): (u32, (ChunkWord, ChunkWord))| {
            (self.shape.chunk_word(chunk), from.0, to.0)
        };
        let swaps: Vec<(Addr, u64, u64)> = (first..).zip(words).map(swap).collect();
        let found = far::swap_many(self.endpoint(), &swaps).await?;
        let mut ends = swaps.iter().zip(found);
        Ok(ends.all(|((_, from, to), found)| found == *from || found == *to))
    }

    /// Finishes what a dropped operation has begun of a level. Where verbs fail it stays.
    pub(super) async fn settle_run(&self) {
        let run = self.runs.borrow().current();
        if let Some(run) = run {
            let _ = self.publish(run).await;
        }
    }

    /// Gives back what the dead have claimed for levels and not made one.
    pub(super) async fn give_back_runs(
        &self,
        table: &[(u32, ChunkWord)],
    ) -> Result<bool, ReadError> {
        let is_left = |(_, word): &&(u32, ChunkWord)| {
            let owner = EndpointId::from_bits(word.owner());
            word.class() == ChunkWord::TABLE
                && owner != self.endpoint().id()
                && !self.endpoint().is_alive(owner)
        };
        let mut left: Vec<(u32, ChunkWord)> = table.iter().filter(is_left).copied().collect();
        if left.is_empty() {
            return Ok(false);
        }
        // Only now: they were dead before, so what they put into the header is there.
        self.learn_levels().await?;
        left.retain(|(chunk, _)| !self.levels.borrow().holds(*chunk));
        for &(chunk, word) in &left {
            self.swap_chunks(chunk, [(word, word.given(0, 0))].into_iter()).await?;
        }
        Ok(!left.is_empty())
    }

    /// Reads what has become of the levels.
    pub(super) async fn learn_levels(&self) -> Result<(), Fault> {
        let words = far::read(self.endpoint(), self.shape.levels(), LEVEL_WORDS).await?;
        self.levels.borrow_mut().learn(&words);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use farlock_sim::{Config, World};

    use super::*;
    use crate::Shape;
    use crate::index::{Buckets, Growth, Key, Race};
    use crate::sync::{Backoff, Optimistic};

    /// RACE, for keys that were made to have the same hash.
    #[derive(Clone, Copy)]
    struct Alike(Race);

    impl Index for Alike {
        const OWN_SLOTS: bool = false;
        const GROWTH: Option<Growth> = Race::GROWTH;

        fn tag(&self) -> u64 {
            self.0.tag()
        }

        fn bytes(&self) -> u64 {
            self.0.bytes()
        }

        fn buckets(&self, key: &Key<'_>, level: u32) -> Option<Buckets> {
            match key.bytes().starts_with(b"alike") {
                true => self.0.buckets(&Key::new(b"alike")?, level),
                false => self.0.buckets(key, level),
            }
        }
    }

    #[test]
    fn keys_that_were_made_to_collide_do_not_make_the_index_grow() {
        let world = World::new(Config::default());
        let index = Alike(Race::new(100));
        let (index_bytes, index_tag) = (index.bytes(), index.tag());
        let base = Addr::from_bits(0);
        let mut shape = Shape { base, chunks: 400, chunk_bytes: 1_024, index_bytes, index_tag };
        shape.base = world.region(world.node(), shape.bytes());
        world.block_on(shape.create(&world.endpoint())).expect("it is created");
        let scheme = Optimistic::new(world.endpoint(), Backoff::NONE);
        let store = world.block_on(Store::open(scheme, index, shape)).expect("it is there");
        let insert = |key: &[u8]| world.block_on(store.insert(key, b"a value"));
        let alike = |number: u64| [b"alike", &number.to_le_bytes()[..]].concat();
        let refused =
            (0..100).find(|&number| insert(&alike(number)).is_err()).expect("there is an end");
        assert!((16..=32).contains(&refused), "{refused}");
        for number in refused..100 {
            assert_eq!(insert(&alike(number)), Err(WriteError::Collides));
        }
        assert_eq!(store.counts().growths, 0);
        // Others are stored, and the index grows for them.
        (0..3_000_u64).for_each(|key| assert_eq!(insert(&key.to_le_bytes()), Ok(())));
        assert!(store.counts().growths > 0);
        for number in 0..refused {
            assert!(world.block_on(store.get(&alike(number))).is_ok_and(|value| value.is_some()));
        }
    }
}
