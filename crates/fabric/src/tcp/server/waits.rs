//! Which lanes wait, and which of them a change may have ended: a verb is looked up by the words
//! that it changes, so it costs the same beside one lane that waits and beside a thousand.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::guest::Waiting;
use crate::addr::Addr;
use crate::verb::Verb;

/// The first word that a verb may change, and how many there are.
pub(super) fn changed_words(verb: &Verb<'_>) -> Option<(Addr, usize)> {
    match *verb {
        Verb::Read { .. } | Verb::Send { .. } => None,
        Verb::Write { addr, data } => Some((addr, data.len())),
        Verb::Cas64 { addr, .. }
        | Verb::Faa64 { addr, .. }
        | Verb::MaskedCas64 { addr, .. }
        | Verb::MaskedFaa64 { addr, .. } => Some((addr, 1)),
        Verb::MaskedCas128 { addr, .. } | Verb::MaskedFaa128 { addr, .. } => Some((addr, 2)),
    }
}

/// A lane: its guest's number and its own.
pub(super) type LaneOf = (usize, u32);

/// The lanes that wait.
#[derive(Debug, Default)]
pub(super) struct Waits {
    lanes: BTreeSet<LaneOf>,
    /// The words that are waited for, by their addresses, and by which waits.
    words: BTreeSet<(u64, LaneOf, u32)>,
    /// Those to be looked at.
    due: BTreeSet<LaneOf>,
    are_all_due: bool,
}

impl Waits {
    /// All lanes that wait.
    pub(super) fn lanes(&self) -> impl Iterator<Item = LaneOf> {
        self.lanes.iter().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// A lane waits, perhaps for something else beside.
    pub(super) fn begin(&mut self, lane: LaneOf, wait: &Waiting) {
        self.lanes.insert(lane);
        self.words.extend(wait.watch.word.map(|(addr, _)| (addr.bits(), lane, wait.key)));
    }

    /// One of its waits is over; `left` are the others.
    pub(super) fn end(&mut self, lane: LaneOf, wait: &Waiting, left: &[Waiting]) {
        if let Some((addr, _)) = wait.watch.word {
            self.words.remove(&(addr.bits(), lane, wait.key));
        }
        if left.is_empty() {
            self.lanes.remove(&lane);
        }
    }

    /// All of its waits are over. Returns whether there were any.
    pub(super) fn end_all(&mut self, lane: LaneOf, waits: &[Waiting]) -> bool {
        waits.iter().for_each(|wait| self.end(lane, wait, waits));
        self.due.remove(&lane);
        self.lanes.remove(&lane)
    }

    /// A verb was executed that may have changed words.
    pub(super) fn heed(&mut self, verb: &Verb<'_>) {
        // What is sent is forwarded, and its receiver is due then.
        if let Some((addr, count)) = changed_words(verb) {
            self.heed_words(addr, count);
        }
    }

    /// So many words from an address on may have changed.
    pub(super) fn heed_words(&mut self, addr: Addr, count: usize) {
        if self.words.is_empty() {
            return;
        }
        let last = addr.bits().saturating_add(count as u64 * 8 - u64::from(count > 0));
        let (none, any) = ((0, 0), (usize::MAX, u32::MAX));
        let range: RangeInclusive<_> = (addr.bits(), none, 0)..=(last, any, u32::MAX);
        self.due.extend(self.words.range(range).map(|(_, lane, _)| *lane));
    }

    /// A lane got a message.
    pub(super) fn heed_lane(&mut self, lane: LaneOf) {
        if self.lanes.contains(&lane) {
            self.due.insert(lane);
        }
    }

    /// Something happened that may end any wait.
    pub(super) fn heed_all(&mut self) {
        self.are_all_due = true;
    }

    /// Those to be looked at now: all, or those that are due.
    pub(super) fn take_due(&mut self, all: bool) -> Vec<LaneOf> {
        let due = std::mem::take(&mut self.due);
        let all = std::mem::take(&mut self.are_all_due) || all;
        if all { self.lanes().collect() } else { due.into_iter().collect() }
    }
}
