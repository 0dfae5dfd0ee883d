//! How a change is made, whatever happens to its completions, and what follows from its end.
//!
//! A slot never has the same word twice. So after a lost completion the slot itself tells: the new
//! word stands there, and the change was made; the old one still does, and the same change may be
//! posted again, for of two equal compares at most one succeeds; or the slot has moved on, and
//! neither will. In the last case the block tells some more: if others have counted its use as
//! over, it was in the slot.

use std::future::poll_fn;
use std::task::Poll;

use farlock_fabric::verb::{CHAIN_MAX, WORDS_MAX};
use farlock_fabric::{Addr, Endpoint, Fault, Link, Posted, Verb};

use super::change::{Change, Purpose, Verdict};
use super::core::Store;
use crate::error::{ReadError, WriteError};
use crate::far;
use crate::flaw::Flaw;
use crate::index::Index;
use crate::pool::Standing;
use crate::shape::Block;
use crate::sync::Scheme;
use crate::word::SlotWord;

/// Words that one chain writes: it has room for the compare as well.
const WORDS_A_CHAIN: usize = WORDS_MAX * (CHAIN_MAX - 1);

/// Changes that one call of `settle` looks at.
const SETTLED_MAX: usize = 4096;

/// A change that is being made. Dropped before its end it is left to [`Store::settle`].
struct Making<'s, S: Scheme, I: Index> {
    store: &'s Store<S, I>,
    change: Option<Change>,
}

impl<S: Scheme, I: Index> Making<'_, S, I> {
    fn change(&mut self) -> &mut Change {
        self.change.as_mut().expect("it is there until its end is known")
    }

    /// The end is known.
    fn end(mut self) -> Change {
        self.change.take().expect("it is there until its end is known")
    }
}

impl<S: Scheme, I: Index> Drop for Making<'_, S, I> {
    fn drop(&mut self) {
        self.store.left.borrow_mut().extend(self.change.take());
    }
}

impl<S: Scheme, I: Index> Store<S, I> {
    /// Makes a change, and does what follows from its end. `Ok(false)`: others were first.
    pub(super) async fn make(&self, change: Change) -> Result<bool, WriteError> {
        self.try_make(change).await.map(|made| made.is_ok())
    }

    /// The same. `Ok(Err(..))`: others were first, and the slot said this.
    pub(super) async fn try_make(
        &self,
        change: Change,
    ) -> Result<Result<(), SlotWord>, WriteError> {
        let mut making = Making { store: self, change: Some(change) };
        let verdict = match self.drive(making.change()).await {
            Ok(Verdict::Open) => return Err(WriteError::Unknown),
            Ok(verdict) => verdict,
            // Refused, after a completion that was lost: it may have been made before.
            Err(_) if making.change().lost => return Err(WriteError::Unknown),
            Err(fault) => {
                self.refused(&making.end());
                return Err(fault.into());
            }
        };
        let change = making.end();
        self.conclude(&change, verdict);
        if change.lost && self.errs(Flaw::DoubleExecution) {
            return Ok(Err(change.old));
        }
        match verdict {
            Verdict::Made => Ok(Ok(())),
            Verdict::Failed(says) => Ok(Err(says)),
            Verdict::Unknown(_) | Verdict::Open => Err(WriteError::Unknown),
        }
    }

    /// Finishes what dropped operations have begun: changes are made or taken back, and freed
    /// blocks counted. Where completions are lost time after time something may stay, see
    /// [`Store::is_unsettled`]. What dropped turns have left is the scheme's: see
    /// [`Scheme::settle`].
    pub async fn settle(&self) {
        for _ in 0..SETTLED_MAX {
            let next = {
                let mut left = self.left.borrow_mut();
                if left.is_empty() { None } else { Some(left.remove(0)) }
            };
            let Some(change) = next else { break };
            let mut making = Making { store: self, change: Some(change) };
            match self.drive(making.change()).await {
                // It goes to the end of the list.
                Ok(Verdict::Open) => {}
                Err(_) if making.change().lost => {}
                Ok(verdict) => {
                    let change = making.end();
                    self.conclude(&change, verdict);
                    self.abandoned(&change, verdict);
                }
                Err(_) => self.refused(&making.end()),
            }
        }
        self.settle_run().await;
        self.reap(0).await;
    }

    /// A block that was announced by a dropped insertion is taken off its slot again.
    fn abandoned(&self, change: &Change, verdict: Verdict) {
        if change.purpose == Purpose::Announce && verdict == Verdict::Made {
            let withdraw = Change::withdraw(change.slot, change.new, change.block);
            change.block.into_iter().for_each(|block| self.pool.borrow_mut().was_seen(block));
            self.left.borrow_mut().push(withdraw);
        }
    }

    /// The fabric has turned a change away.
    fn refused(&self, change: &Change) {
        if let (Some(block), Purpose::Publish | Purpose::Announce | Purpose::Install) =
            (change.block, change.purpose)
        {
            self.never_seen(block, change);
        }
    }

    /// What follows for the blocks of a change from its end.
    fn conclude(&self, change: &Change, verdict: Verdict) {
        let retire = |block: Option<Block>| block.into_iter().for_each(|block| self.retire(block));
        if change.lost {
            self.count(|counts| counts.lost += 1);
        }
        match (verdict, change.purpose, change.block) {
            (Verdict::Open, ..) => unreachable!("a change that may yet be made has not ended"),
            (Verdict::Made, ..) => {
                self.was_made(change);
                retire(change.gone);
            }
            (
                Verdict::Failed(_),
                Purpose::Publish | Purpose::Announce | Purpose::Install,
                Some(block),
            ) => {
                self.never_seen(block, change);
            }
            (
                Verdict::Unknown(_),
                Purpose::Publish | Purpose::Announce | Purpose::Install,
                Some(block),
            ) => {
                self.pool.borrow_mut().stands(block, Standing::Tainted);
                // Whichever client did it, what the slot had is gone.
                retire(change.gone);
            }
            // It was in the slot, pending, and is not any more.
            (_, Purpose::Commit, block) => {
                block.into_iter().for_each(|block| self.pool.borrow_mut().was_seen(block));
                retire(block);
            }
            (Verdict::Failed(found) | Verdict::Unknown(found), Purpose::Withdraw, _) => {
                if found != change.old.committed() {
                    retire(change.gone);
                }
            }
            (Verdict::Unknown(_), _, _) => retire(change.gone),
            (Verdict::Failed(_), _, _) => {}
        }
    }

    /// A block that was never in a slot.
    fn never_seen(&self, block: Block, change: &Change) {
        let mut pool = self.pool.borrow_mut();
        match change.tainted {
            true => pool.stands(block, Standing::Tainted),
            false => pool.give_back(block),
        }
    }

    fn was_made(&self, change: &Change) {
        let Some(block) = change.block else { return };
        let standing = match change.purpose {
            // What was posted again may still be on its way the first time.
            _ if change.reposted => Standing::Tainted,
            Purpose::Announce => Standing::InHand,
            _ => Standing::Published,
        };
        let mut pool = self.pool.borrow_mut();
        if pool.standing_of(block) != Some(Standing::Tainted) {
            pool.stands(block, standing);
        }
    }

    /// Posts what a change consists of until it is known what became of it.
    async fn drive(&self, change: &mut Change) -> Result<Verdict, Fault> {
        for _ in 0..far::LOST_MAX {
            // A node that may be in the tree, with other slots by now, is not written once more.
            let is_node = change.purpose == Purpose::Install;
            let is_once = is_node && !self.errs(Flaw::NodeWrittenAgain);
            if is_once && change.lost {
                return or_open(self.installed(change).await);
            }
            match self.compare(change).await {
                Ok(found) if found == change.old => return Ok(Verdict::Made),
                Ok(found) if self.has_left(change, found) => return self.moved_away(change).await,
                Ok(found) if !change.lost => return Ok(Verdict::Failed(found)),
                Ok(found) if found == change.new && change.is_ours_alone() => {
                    return Ok(Verdict::Made);
                }
                Ok(found) => return self.moved_on(change, found).await,
                Err(Fault::Lost) if is_once => {
                    change.lost = true;
                    continue;
                }
                Err(Fault::Lost) => {}
                Err(fault) => return Err(fault),
            }
            let found = SlotWord(far::read_word(self.endpoint(), change.slot).await?);
            if found == change.new && change.is_ours_alone() {
                return Ok(Verdict::Made);
            }
            if self.has_left(change, found) {
                return self.moved_away(change).await;
            }
            if found != change.old {
                return match change.lost {
                    true => self.moved_on(change, found).await,
                    false => Ok(Verdict::Failed(found)),
                };
            }
        }
        Ok(Verdict::Open)
    }

    /// A completion of the compare was lost, and the slot has another word now.
    async fn moved_on(&self, change: &Change, found: SlotWord) -> Result<Verdict, Fault> {
        match (change.purpose, change.block) {
            // Whichever client has taken it off.
            (Purpose::Withdraw, _) if found == change.new => Ok(Verdict::Made),
            // It was taken off as it was: pending.
            (Purpose::Commit, _) if found == change.old.emptied() => Ok(Verdict::Failed(found)),
            (Purpose::Publish, Some(block)) if self.is_over(block).await? => Ok(Verdict::Made),
            _ => Ok(Verdict::Unknown(found)),
        }
    }

    /// Whether a slot that says this has no key's value any more, and its key another slot: it has
    /// moved, or in a tree is frozen, or names a node by now.
    fn has_left(&self, change: &Change, found: SlotWord) -> bool {
        let is_of_key = change.purpose != Purpose::Install;
        found.is_moved() || I::TREE && is_of_key && (found.is_frozen() || found.is_node())
    }

    /// The slot has moved to the next level, so the compare that was posted last has failed. One
    /// whose completion was lost may have been made before: then what it put there has moved too.
    async fn moved_away(&self, change: &Change) -> Result<Verdict, Fault> {
        // Only a withdrawal depends on what was there instead: the value, committed, or not.
        if !change.lost && change.purpose != Purpose::Withdraw {
            return Ok(Verdict::Failed(SlotWord::MOVED));
        }
        let inherited = match I::TREE {
            true => self.inherited_in_tree(change).await,
            false => self.inherited(change).await,
        };
        let found = match inherited {
            Ok(found) => found,
            Err(error) => return or_open(Err(error)),
        };
        if change.lost && change.is_ours_alone() && found.contains(&change.new) {
            return Ok(Verdict::Made);
        }
        // Or else any word that is none of these says that they are gone.
        let telling = [change.old, change.old.committed(), change.new, change.old.emptied()];
        let word = telling.into_iter().find(|word| found.contains(word)).unwrap_or(found[0]);
        match change.lost && word != change.old {
            true => self.moved_on(change, word).await,
            false => Ok(Verdict::Failed(word)),
        }
    }

    /// Whether this use of a block is counted as over.
    async fn is_over(&self, block: Block) -> Result<bool, Fault> {
        let Some(state) = self.state_of(block) else { return Ok(false) };
        Ok(far::read_word(self.endpoint(), state).await? == u64::from(block.generation))
    }

    /// Where the frees of a block are counted.
    pub(super) fn state_of(&self, block: Block) -> Option<Addr> {
        let (chunk, index) = self.shape.place(block)?;
        Some(self.shape.state_addr(chunk, index))
    }

    /// Writes what is to be written, then compares; the old word of the slot.
    async fn compare(&self, change: &mut Change) -> Result<SlotWord, Fault> {
        loop {
            let rest = change.words.len() - change.written;
            let is_last = rest <= WORDS_A_CHAIN;
            let posted = change.posted.unwrap_or_else(|| self.post(change, is_last));
            change.posted = Some(posted);
            let ended = poll_fn(|cx| match posted {
                Posted::Done(ended) => Poll::Ready(ended),
                Posted::Pending(ticket) => self.endpoint().poll_posted(ticket, cx),
            });
            let ended = ended.await;
            change.posted = None;
            let links = rest.min(WORDS_A_CHAIN).div_ceil(WORDS_MAX);
            match ended {
                Ok(()) if is_last => return Ok(SlotWord(self.endpoint().link(links).old as u64)),
                Ok(()) => change.written += WORDS_A_CHAIN,
                // A refused write does not keep the compare behind it from taking effect.
                Err(fault) => {
                    let made = is_last && self.endpoint().link(links).status.is_ok();
                    if fault != Fault::Lost && !made {
                        return Err(fault);
                    }
                    change.tainted |= rest > 0;
                    change.lost |= is_last;
                    return Err(Fault::Lost);
                }
            }
        }
    }

    /// Posts the next part of a change: as much as one chain writes, and the compare at the end.
    fn post(&self, change: &mut Change, is_last: bool) -> Posted {
        change.reposted |= change.tainted;
        let block = change.block.map_or(0, |block| block.number);
        let first = self.shape.block_addr(block).plus(change.written as u64 * 8);
        let rest = &change.words[change.written..];
        let parts = rest.chunks(WORDS_MAX).take(CHAIN_MAX - 1).enumerate();
        let mut links: Vec<Link<'_>> = parts
            .map(|(at, data)| {
                let addr = first.plus((at * WORDS_MAX * 8) as u64);
                Verb::Write { addr, data }.into()
            })
            .collect();
        if is_last {
            let (addr, compare, swap) = (change.slot, change.old.0, change.new.0);
            links.push(Verb::Cas64 { addr, compare, swap }.into());
        }
        self.endpoint().post_chain(&links)
    }
}

/// A verdict that could not be reached for another reason than a verb's stays open.
fn or_open(verdict: Result<Verdict, ReadError>) -> Result<Verdict, Fault> {
    match verdict {
        Ok(verdict) => Ok(verdict),
        Err(ReadError::Fabric(fault)) => Err(fault),
        Err(_) => Ok(Verdict::Open),
    }
}
