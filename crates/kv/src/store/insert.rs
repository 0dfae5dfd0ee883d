//! Inserting a key where its slots are shared with others.
//!
//! Two clients that insert one key may choose different slots, and then no compare decides between
//! them. So an insertion has three steps: it *announces* its block in an empty slot, with a word
//! that nobody takes for a value; it reads all slots of the key; and it *commits*, if it was alone.
//!
//! Why at most one commits: each announces before it looks, so of two, the one that announced last
//! sees the other, announced or committed, or taken off. It does not commit beside it.
//!
//! Why one does: of two that are announced, the one in the lower slot takes the other off, and
//! the other one withdraws. A client that is stopped in between is waited for a few times and then
//! taken off. Its commit fails then, and it begins again.
//!
//! Where the index grows, an insertion first moves all slots that its key may have to the highest
//! level that it knows, and announces there. So of two at different levels, the one at the lower
//! level has committed before its slot moved, and the other one sees that; or its commit fails.
//!
//! RACE (ATC'21, section 3.3) puts the key in at once and removes duplicates afterwards; a reader
//! may have seen either by then.

use farlock_fabric::Addr;

use super::change::{Change, Purpose};
use super::core::Store;
use super::find::{Among, Found, Probe, Seen};
use crate::error::WriteError;
use crate::flaw::Flaw;
use crate::index::{Index, Key};
use crate::shape::Block;
use crate::sync::Scheme;
use crate::word::SlotWord;

/// How often an insertion steps back for the same other one before it takes that off.
const PATIENCE: u32 = 4;

/// How often an insertion looks at its slots.
const LOOKS_MAX: u32 = 1_000;

/// An insertion of another client for which this one has stepped back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rival {
    at: Option<(Addr, SlotWord)>,
    times: u32,
}

impl Rival {
    /// Whether it is given some more time.
    fn is_given_time(&mut self, found: &Found) -> bool {
        let at = Some((found.slot, found.word));
        self.times = if self.at == at { self.times + 1 } else { 1 };
        self.at = at;
        self.times <= PATIENCE
    }
}

/// A block of this client that is announced. Dropped, it is left to [`Store::settle`] to withdraw.
struct Announced<'s, S: Scheme, I: Index> {
    store: &'s Store<S, I>,
    slot: Addr,
    word: SlotWord,
    block: Option<Block>,
}

impl<S: Scheme, I: Index> Drop for Announced<'_, S, I> {
    fn drop(&mut self) {
        if let Some(block) = self.block {
            let withdraw = Change::withdraw(self.slot, self.word, Some(block));
            self.store.pool.borrow_mut().was_seen(block);
            self.store.left.borrow_mut().push(withdraw);
        }
    }
}

/// What an announced insertion does next.
enum Next {
    Commit,
    Withdraw,
    /// Others have taken it off.
    Off,
}

impl<S: Scheme, I: Index> Store<S, I> {
    /// Inserts a key that was absent when its slots were read. `Ok(false)`: it is there, or others
    /// are about to insert it; look again.
    pub(super) async fn insert_new(
        &self,
        key: &Key<'_>,
        value: &[u8],
        probe: &Probe,
        rival: &mut Rival,
    ) -> Result<bool, WriteError> {
        let Some((slot, old)) = self.slot_for(key, probe).await? else { return Ok(false) };
        let purpose = if I::OWN_SLOTS { Purpose::Publish } else { Purpose::Announce };
        let change = self.written(purpose, (slot, old), key, value, false).await?;
        if I::OWN_SLOTS {
            return self.make(change).await;
        }
        let (word, block) = (change.new, change.block);
        match self.make(change).await {
            Ok(true) => {}
            // What is announced is not yet done, and without a commit never will be.
            Ok(false) | Err(WriteError::Unknown) => return Ok(false),
            Err(error) => return Err(error),
        }
        let mut announced = Announced { store: self, slot, word, block };
        let next = self.look_around(key, (slot, word), rival).await?;
        let block = announced.block.take();
        match next {
            Next::Commit => {
                let commit = Change::of(Purpose::Commit, slot, word, word.committed());
                let made = self.make(Change { block, ..commit }).await?;
                if let Some(block) = block.filter(|_| made) {
                    self.remember(key, (slot, word.committed()), block.generation, value);
                }
                Ok(made)
            }
            Next::Withdraw => {
                block.into_iter().for_each(|block| self.pool.borrow_mut().was_seen(block));
                // In doubt or not, it is off, or will be when this client settles.
                let _ = self.make(Change::withdraw(slot, word, block)).await;
                Ok(false)
            }
            Next::Off => {
                block.into_iter().for_each(|block| self.pool.borrow_mut().was_seen(block));
                block.into_iter().for_each(|block| self.retire(block));
                Ok(false)
            }
        }
    }

    /// An empty slot for a key that was absent, at the highest level; `None`: it is there by now.
    async fn slot_for(
        &self,
        key: &Key<'_>,
        probe: &Probe,
    ) -> Result<Option<(Addr, SlotWord)>, WriteError> {
        if I::TREE {
            return Box::pin(self.room_in_tree(key)).await;
        }
        let mut later = None;
        for _ in 0..LOOKS_MAX {
            let probe = later.as_ref().unwrap_or(probe);
            let (lowest, highest) = self.known_levels();
            let is_on_top = probe.is_of_one_level() && probe.level >= highest;
            if is_on_top || self.errs(Flaw::UnmovedInsertion) {
                if let Some(room) = probe.room() {
                    self.found_room(room.is_crowded);
                    return Ok(Some(room.slot));
                }
                if self.is_sparse(probe.level).await? {
                    return Err(WriteError::Collides);
                }
                self.grow_above(probe.level).await?;
                self.crowd.set(0);
            } else {
                // Then no other client announces this key at a level below, nor commits it there.
                for level in lowest..highest {
                    self.move_key(key, level).await?;
                }
            }
            match self.locate(key).await? {
                Seen::Found(_) => return Ok(None),
                Seen::Absent(probe) => later = Some(*probe),
            }
        }
        Err(WriteError::Busy)
    }

    fn known_levels(&self) -> (u32, u32) {
        let levels = self.levels.borrow();
        (levels.lowest(), levels.highest())
    }

    /// Whether an announced insertion is alone.
    async fn look_around(
        &self,
        key: &Key<'_>,
        ours: (Addr, SlotWord),
        rival: &mut Rival,
    ) -> Result<Next, WriteError> {
        if self.errs(Flaw::DuplicateKey) {
            return Ok(Next::Commit);
        }
        // The slot that named what was no block when it was last read.
        let mut suspect = None;
        for _ in 0..LOOKS_MAX {
            let probe = self.probe(key).await?;
            if !probe.slots().any(|slot| slot == ours) {
                return Ok(Next::Off);
            }
            let others = |word: SlotWord| word.is_taken() && word != ours.1;
            let found = match self.among(key, &probe, others).await? {
                Among::None => return Ok(Next::Commit),
                Among::Unsure(slot) if suspect == Some(slot) => return Err(WriteError::Corrupt),
                Among::Unsure(slot) => {
                    suspect = Some(slot);
                    continue;
                }
                Among::One(found) => found,
            };
            let steps_back = found.slot < ours.0 && rival.is_given_time(&found);
            if found.word.is_committed() || steps_back {
                return Ok(Next::Withdraw);
            }
            self.count(|counts| counts.rivals += 1);
            self.make(Change::withdraw(found.slot, found.word, Some(found.block))).await?;
        }
        Ok(Next::Withdraw)
    }
}
