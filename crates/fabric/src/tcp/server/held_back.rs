//! Verbs that are held back: a client that would post a comparison again and again until it holds
//! posts it once, and is answered when it has.
//!
//! So a lock that many clients want is handed from one to the next in two trips instead of four. A
//! verb that is held back has not begun: it is slow, as any verb may be, and takes effect before
//! what its lane says next. It is executed when others have changed the word such that its
//! comparison holds, of several the one that came first, and in any case after a time that is short
//! enough for a client that is stopped meanwhile: granted a lock, it would keep that. It is
//! executed at once where an endpoint dies, and where processes of this host act in the region,
//! whose verbs nobody here sees.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::waits::{LaneOf, changed_words};
use crate::endpoint::Nanos;
use crate::verb::{MaskedCas, Verb};

/// A word: its address and its region's number.
pub(super) type Word = (u64, usize);

/// A verb that is held back.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) lane: LaneOf,
    pub(super) ticket: u32,
    pub(super) op: MaskedCas<u128>,
    pub(super) until: Nanos,
    /// The fields that say what it is.
    pub(super) link: Vec<u8>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct HeldBack {
    /// In the order in which they came.
    words: BTreeMap<Word, VecDeque<Held>>,
    lanes: HashMap<LaneOf, Word>,
    /// Words that were changed since they were looked at.
    changed: Vec<Word>,
    /// A time before which none has been held back for long enough.
    pub(super) until: Nanos,
}

impl Default for HeldBack {
    fn default() -> Self {
        let (words, lanes, changed) = Default::default();
        Self { words, lanes, changed, until: Nanos::MAX }
    }
}

impl HeldBack {
    pub(super) fn add(&mut self, word: Word, held: Held) {
        self.until = self.until.min(held.until);
        self.lanes.insert(held.lane, word);
        self.words.entry(word).or_default().push_back(held);
    }

    pub(super) fn has(&self, lane: LaneOf) -> bool {
        !self.lanes.is_empty() && self.lanes.contains_key(&lane)
    }

    pub(super) fn take(&mut self, lane: LaneOf) -> Option<(Word, Held)> {
        let word = self.lanes.remove(&lane)?;
        let queue = self.words.get_mut(&word).expect("a lane's word has a queue");
        let at = queue.iter().position(|held| held.lane == lane).expect("it is in its queue");
        let held = queue.remove(at).expect("it was found there");
        if queue.is_empty() {
            self.words.remove(&word);
        }
        Some((word, held))
    }

    /// These lanes are gone, or their clients are: nothing of theirs takes effect.
    pub(super) fn forget(&mut self, is_gone: impl Fn(LaneOf) -> bool) {
        if self.lanes.is_empty() {
            return;
        }
        let gone: Vec<LaneOf> = self.lanes.keys().copied().filter(|lane| is_gone(*lane)).collect();
        for lane in gone {
            self.take(lane);
        }
    }

    /// The one for this word behind so many others.
    pub(super) fn behind(&self, word: Word, others: usize) -> Option<&Held> {
        self.words.get(&word)?.get(others)
    }

    /// A word that was changed since they were looked at.
    pub(super) fn take_changed(&mut self) -> Option<Word> {
        self.changed.pop()
    }

    /// A verb was executed that may have changed words.
    pub(super) fn heed(&mut self, verb: &Verb<'_>) {
        if self.words.is_empty() {
            return;
        }
        let Some((addr, count)) = changed_words(verb) else { return };
        // A word is two of those that are counted.
        let first = addr.bits().saturating_sub(8);
        let last = addr.bits().saturating_add(count as u64 * 8 - u64::from(count > 0));
        let changed = self.words.range((first, 0)..=(last, usize::MAX));
        self.changed.extend(changed.map(|(word, _)| *word));
    }

    /// All of a region are executed soon, whatever they find.
    pub(super) fn hurry(&mut self, region: usize) {
        let of_region = self.words.iter_mut().filter(|((_, of), _)| *of == region);
        for held in of_region.flat_map(|(_, queue)| queue) {
            (held.until, self.until) = (0, 0);
        }
    }

    /// Those that were held back for long enough.
    pub(super) fn take_due(&mut self, now: Nanos) -> Vec<(Word, Held)> {
        let all = || self.words.values().flatten();
        let due: Vec<LaneOf> = all().filter(|h| h.until <= now).map(|held| held.lane).collect();
        let due = due.into_iter().filter_map(|lane| self.take(lane)).collect();
        let until = self.words.values().flatten().map(|held| held.until);
        self.until = until.min().unwrap_or(Nanos::MAX);
        due
    }
}
