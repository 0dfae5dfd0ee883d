//! Verbs that are held back: a client that would post a comparison again and again until it holds
//! posts it once, and is answered when it has.
//!
//! So a lock that many clients want is handed from one to the next in two trips instead of four. A
//! verb that is held back has not begun: it is slow, as any verb may be, and takes effect before
//! what its lane says next. It is executed when others have changed the word such that its
//! comparison holds, of several the one that came first, and in any case when its client has no
//! more patience ([`Patience`]): that is short, for a client that is stopped meanwhile, and granted
//! a lock, would keep it. It is executed at once where an endpoint dies, and where processes of
//! this host act in the region, whose verbs nobody here sees.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::waits::{LaneOf, changed_words};
use crate::endpoint::{Nanos, Publication};
use crate::tcp::wire::Patience;
use crate::verb::{MaskedCas, Verb};

/// A word: its address and its region's number.
pub(super) type Word = (u64, usize);

/// Verbs of a lane that were understood.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) lane: u32,
    pub(super) ticket: u32,
    /// The links of a chain; 0 if it is a single verb.
    pub(super) count: u8,
    pub(super) is_signalled: bool,
    pub(super) only_reads: bool,
    /// What the lane's record says if the comparison of a single verb fails.
    pub(super) otherwise: Option<Publication>,
}

/// A verb that is held back.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) lane: LaneOf,
    pub(super) asked: Asked,
    pub(super) op: MaskedCas<u128>,
    /// When it came.
    pub(super) since: Nanos,
    pub(super) patience: Patience,
    /// The fields that say what it is.
    pub(super) link: Vec<u8>,
}

impl Held {
    /// When it has been held back for long enough, if the last of its word was granted then.
    fn until(&self, moved: Nanos) -> Nanos {
        self.ends().min(self.since.max(moved).saturating_add(self.patience.still))
    }

    /// When it has in any case.
    fn ends(&self) -> Nanos {
        self.since.saturating_add(self.patience.at_most)
    }
}

/// Those that are held back for one word.
#[derive(Default, Debug)]
struct Line {
    /// In the order in which they came.
    held: VecDeque<Held>,
    /// When one of them was granted last, or had been held back for long enough.
    moved: Nanos,
    /// How often that was the case since one was granted.
    stalls: u32,
}

impl Line {
    /// When each of them has been held back for long enough.
    fn until(&self) -> impl Iterator<Item = Nanos> {
        self.held.iter().map(|held| held.until(self.moved))
    }

    /// Those that have been held back for long enough. Where the word is not handed on those that
    /// came first are, and twice as many each time: all at once would be in each other's way, and
    /// in that of the one that is to hand it on.
    fn due(&mut self, now: Nanos) -> Vec<LaneOf> {
        let (moved, mut left) =
            (self.moved, 1_usize.checked_shl(self.stalls).unwrap_or(usize::MAX));
        let is_due = |held: &&Held| {
            let is_due = now >= held.until(moved) && (left > 0 || now >= held.ends());
            left = left.saturating_sub(is_due.into());
            is_due
        };
        let due: Vec<LaneOf> = self.held.iter().filter(is_due).map(|held| held.lane).collect();
        if !due.is_empty() {
            (self.moved, self.stalls) = (now, self.stalls + 1);
        }
        due
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct HeldBack {
    words: BTreeMap<Word, Line>,
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
        self.until = self.until.min(held.until(0));
        self.lanes.insert(held.lane, word);
        self.words.entry(word).or_default().held.push_back(held);
    }

    pub(super) fn has(&self, lane: LaneOf) -> bool {
        !self.lanes.is_empty() && self.lanes.contains_key(&lane)
    }

    pub(super) fn take(&mut self, lane: LaneOf) -> Option<(Word, Held)> {
        let word = self.lanes.remove(&lane)?;
        let queue = &mut self.words.get_mut(&word).expect("a lane's word has a line").held;
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
        self.words.get(&word)?.held.get(others)
    }

    /// One of those for this word is granted what it waits for.
    pub(super) fn moved(&mut self, word: Word, now: Nanos) {
        if let Some(line) = self.words.get_mut(&word) {
            (line.moved, line.stalls) = (now, 0);
        }
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
        for held in of_region.flat_map(|(_, line)| &mut line.held) {
            (held.patience, self.until) = (Patience::default(), 0);
        }
    }

    /// Those that were held back for long enough.
    pub(super) fn take_due(&mut self, now: Nanos) -> Vec<(Word, Held)> {
        let due: Vec<LaneOf> = self.words.values_mut().flat_map(|line| line.due(now)).collect();
        let due = due.into_iter().filter_map(|lane| self.take(lane)).collect();
        self.until = self.words.values().flat_map(Line::until).min().unwrap_or(Nanos::MAX);
        due
    }
}
