//! A change of a slot, as a value: it outlives the operation that began it.

use farlock_fabric::{Addr, Posted};

use crate::shape::Block;
use crate::word::SlotWord;

/// What a change is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// A block becomes the value of its key, in the slot of an older value or in an empty one that
    /// is this key's alone.
    Publish,
    /// A block is put into an empty slot, pending.
    Announce,
    /// A pending block of this client becomes the value of its key.
    Commit,
    /// A pending block is taken off its slot, by its own client or another one.
    Withdraw,
    /// A value is taken out of its slot.
    Remove,
    /// Of a tree: a node takes the place of what it has below it, or of the node that it replaces.
    Install,
}

/// A change of a slot, from a word that was read to one that was never there.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) purpose: Purpose,
    pub(super) slot: Addr,
    pub(super) old: SlotWord,
    pub(super) new: SlotWord,
    /// What `new` names.
    pub(super) block: Option<Block>,
    /// What `old` names.
    pub(super) gone: Option<Block>,
    /// Of a tree: the key, or a node's prefix.
    pub(super) key: Vec<u8>,
    /// What is to be written into the block first.
    pub(super) words: Vec<u64>,
    /// How many of those words are written, whole chains of them.
    pub(super) written: usize,
    /// The chain on its way.
    pub(super) posted: Option<Posted>,
    /// A completion of a write was lost.
    pub(super) tainted: bool,
    /// Since then something was written again, so that the first write may come after the second.
    pub(super) reposted: bool,
    /// A completion of the compare was lost.
    pub(super) lost: bool,
}

impl Change {
    /// A change without a block that is to be written.
    pub(super) fn of(purpose: Purpose, slot: Addr, old: SlotWord, new: SlotWord) -> Self {
        Self {
            purpose,
            slot,
            old,
            new,
            block: None,
            gone: None,
            key: Vec::new(),
            words: Vec::new(),
            written: 0,
            posted: None,
            tainted: false,
            reposted: false,
            lost: false,
        }
    }

    /// Takes a pending block off its slot.
    pub(super) fn withdraw(slot: Addr, pending: SlotWord, block: Option<Block>) -> Self {
        let withdraw = Self::of(Purpose::Withdraw, slot, pending, pending.emptied());
        Self { gone: block, ..withdraw }
    }

    /// Whether nobody else could have made this very change.
    pub(super) fn is_ours_alone(&self) -> bool {
        self.block.is_some()
    }
}

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It was made, once.
    Made,
    /// It was not made and never will be; the slot has this word.
    Failed(SlotWord),
    /// The slot has moved on to this word, and it is unknown whether by way of this change. It will
    /// not be made any more.
    Unknown(SlotWord),
    /// It may yet be made: completions were lost time after time.
    Open,
}
