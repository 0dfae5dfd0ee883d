//! Moving slots from one level of the index to the next, while both are in use.
//!
//! A slot has two heirs at the next level, and they are nobody else's. To move it takes three
//! steps: read its heirs and then the slot; copy what it says to its heirs, each by a compare with
//! what was read there; then compare the slot with what was copied, and mark it as moved. A heir is
//! no key's slot before its own is marked, and a mark stays.
//!
//! What a slot says for its heirs: the word of a value goes to the heir that is its key's, and the
//! other one learns that it passed by; the word of an empty slot goes to both, and so does a
//! pending one, emptied, whose insertion then finds itself taken off; that nothing ever was there
//! needs no copy. Where a slot points to what is no block, the memory is damaged, and both get its
//! word.
//!
//! Why no copy is an old one: the heirs were read before the slot, so they say what the slot said
//! earlier, or the same, and go forward with each copy; a slot never says the same twice, and so
//! neither does a heir. A compare that is served late fails once another copy was made. That is why
//! an empty slot is copied too: a client that read a value there before may be about to copy that.
//!
//! Why nothing is lost: the mark is put by a compare with the word that was copied. A change that
//! comes before makes it fail, and the slot is copied again; one that comes after it fails.

use farlock_fabric::{Addr, Endpoint};
use smallvec::SmallVec;

use super::change::Change;
use super::core::Store;
use crate::error::ReadError;
use crate::far;
use crate::flaw::Flaw;
use crate::index::{Growth, Index, Key};
use crate::shape::LEVEL_WORDS;
use crate::sync::Scheme;
use crate::word::SlotWord;

/// How often a group is looked at while others change its slots.
const TURNS_MAX: u32 = 10_000;

/// Of how many groups a client that helps takes one, so that several that help do not all move the
/// same. They are read at once.
const WINDOW: u64 = 16;

/// A slot that has not moved yet.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    slot: Addr,
    word: SlotWord,
    /// Each heir, what it says, and what it is to say.
    heirs: [(Addr, SlotWord, SlotWord); 2],
}

impl Leaving {
    /// What its heirs are to say, where no value is here.
    fn leaves_no_value(&mut self) {
        if self.word != SlotWord(0) {
            self.heirs.iter_mut().for_each(|heir| heir.2 = self.word.emptied());
        }
    }

    /// What they are to say, where a slot points to what is no block. Nobody can say which of them
    /// is its key's, and neither shall say that the key is absent.
    fn leaves_damage(&mut self) {
        self.heirs.iter_mut().for_each(|heir| heir.2 = self.word);
    }

    /// What they are to say, where a value is here that goes to one of them.
    fn leaves_value(&mut self, to: usize) {
        self.heirs.iter_mut().for_each(|heir| heir.2 = self.word.passed_by());
        self.heirs[to].2 = self.word;
    }
}

impl<S: Scheme, I: Index> Store<S, I> {
    /// Moves one group where an index is growing, so that it has moved long before it is full
    /// again. What fails is left to the next change.
    pub(super) async fn move_some(&self) {
        if self.levels.borrow().is_growing() {
            let _ = self.move_one_of_a_few().await;
        }
    }

    /// Moves one of the first groups that have not moved, and counts those that have.
    async fn move_one_of_a_few(&self) -> Result<(), ReadError> {
        let group_words = Self::growth().group;
        let (level, first, count, table) = {
            let levels = self.levels.borrow();
            let (level, first) = (levels.lowest(), levels.moved());
            let count = WINDOW.min(levels.groups(level) - first);
            let table = levels.addr(level, first * group_words as u64 * 8);
            (level, first, count, table.ok_or(ReadError::Corrupt)?)
        };
        let places = [(self.shape.levels(), LEVEL_WORDS), (table, count as usize * group_words)];
        let found = far::read_many(self.endpoint(), &places).await?;
        self.levels.borrow_mut().learn(&found[0]);
        let has_moved = |words: &[u64]| words.iter().all(|&word| SlotWord(word).is_moved());
        let moved: Vec<bool> = found[1].chunks(group_words).map(has_moved).collect();
        let through = moved.iter().take_while(|moved| **moved).count() as u64;
        if through > 0 && self.levels.borrow().lowest() == level {
            let addr = self.shape.moved_word(level);
            let known = self.levels.borrow().moved();
            if known < first + through {
                far::swap_once(self.endpoint(), addr, known, first + through).await?;
                self.learn_levels().await?;
            }
        }
        let rest: Vec<u64> =
            (first..).zip(moved).filter_map(|(at, is)| (!is).then_some(at)).collect();
        match rest.len() as u64 {
            0 => Ok(()),
            groups => {
                let group = rest[(self.endpoint().random() % groups) as usize];
                self.move_group(level, group).await
            }
        }
    }

    /// Moves every slot that a key may have at a level, where those of the levels below have moved.
    pub(super) async fn move_key(&self, key: &Key<'_>, level: u32) -> Result<(), ReadError> {
        let group_bytes = Self::growth().group as u64 * 8;
        let buckets = self.index.buckets(key, level).ok_or(ReadError::BadKey)?;
        let mut groups: SmallVec<[u64; 2]> =
            buckets.iter().map(|bucket| bucket.offset / group_bytes).collect();
        groups.dedup();
        for group in groups {
            self.move_group(level, group).await?;
        }
        Ok(())
    }

    /// Moves every slot of a group to the next level, which this client knows. The slots that this
    /// group comes from have moved. Any number of clients may do so at once. A crash leaves slots
    /// that have moved, and slots that another client moves.
    async fn move_group(&self, level: u32, group: u64) -> Result<(), ReadError> {
        // The slots that pointed to what was no block when they were last read.
        let mut suspects: Vec<(Addr, SlotWord)> = Vec::new();
        for _ in 0..TURNS_MAX {
            let mut leaving = self.leaving(level, group).await?;
            if leaving.is_empty() {
                return Ok(());
            }
            let unsure = self.decide(level, &mut leaving).await?;
            leaving.retain_mut(|leaving| {
                let slot = (leaving.slot, leaving.word);
                // Twice the same slot says that this was its block all the time between.
                let is_damaged = suspects.contains(&slot);
                match unsure.contains(&slot) {
                    true if is_damaged => leaving.leaves_damage(),
                    true => return false,
                    false => {}
                }
                true
            });
            suspects = unsure;
            if self.errs(Flaw::MovedBeforeCopied) {
                self.mark(&leaving).await?;
            }
            self.copy(&mut leaving).await?;
            self.mark(&leaving).await?;
        }
        Err(ReadError::Busy)
    }

    /// The slots of a group that have not moved, as they are now, and before that their heirs.
    async fn leaving(&self, level: u32, group: u64) -> Result<Vec<Leaving>, ReadError> {
        let Growth { group: slots, heirs } = Self::growth();
        let first = group * slots as u64 * 8;
        let addr =
            |level, offset| self.levels.borrow().addr(level, offset).ok_or(ReadError::Corrupt);
        let (old, new) = (addr(level, first)?, addr(level + 1, 2 * first)?);
        let mut new_words = far::read(self.endpoint(), new, 2 * slots).await?;
        let old_words = far::read(self.endpoint(), old, slots).await?;
        if self.errs(Flaw::HeirsReadLate) {
            new_words = far::read(self.endpoint(), new, 2 * slots).await?;
        }
        let unmoved = old_words.iter().enumerate().filter(|(_, word)| !SlotWord(**word).is_moved());
        let leaving: Vec<Leaving> = unmoved
            .map(|(at, &word)| {
                let heir = |at: usize| {
                    let says = SlotWord(new_words[at]);
                    (new.plus(at as u64 * 8), says, says)
                };
                let slot = old.plus(at as u64 * 8);
                Leaving { slot, word: SlotWord(word), heirs: heirs(at).map(heir) }
            })
            .collect();
        // A heir moves after its slot has.
        let is_amiss =
            leaving.iter().flat_map(|leaving| leaving.heirs).any(|heir| heir.1.is_moved());
        if is_amiss { Err(ReadError::Corrupt) } else { Ok(leaving) }
    }

    /// Decides what the heirs of these slots are to say. Returns the slots which pointed to what
    /// was no block.
    async fn decide(
        &self,
        level: u32,
        leaving: &mut [Leaving],
    ) -> Result<Vec<(Addr, SlotWord)>, ReadError> {
        let words: Vec<SlotWord> =
            leaving.iter().map(|leaving| leaving.word).filter(|word| word.is_committed()).collect();
        let mut blocks = self.read_blocks(&words).await?.into_iter();
        let mut unsure = Vec::new();
        for leaving in leaving {
            if !leaving.word.is_committed() {
                if self.errs(Flaw::PendingMoves) && leaving.word.is_taken() {
                    leaving.leaves_damage();
                } else if !self.errs(Flaw::EmptyMovesAlone) {
                    leaving.leaves_no_value();
                }
                continue;
            }
            match blocks.next().expect("each block was read") {
                None => unsure.push((leaving.slot, leaving.word)),
                Some((_, opened)) => {
                    let key = Key::new(opened.key()).ok_or(ReadError::Corrupt)?;
                    let to = self.heir_of(&key, level, leaving)?;
                    leaving.leaves_value(to);
                    if self.errs(Flaw::OtherHeirForgotten) {
                        leaving.heirs[1 - to].2 = leaving.heirs[1 - to].1;
                    }
                }
            }
        }
        Ok(unsure)
    }

    /// Which of the heirs of a slot is this key's: the first, if both are.
    fn heir_of(&self, key: &Key<'_>, level: u32, leaving: &Leaving) -> Result<usize, ReadError> {
        let buckets = self.index.buckets(key, level + 1).ok_or(ReadError::Corrupt)?;
        let levels = self.levels.borrow();
        let is_of_key = |(heir, ..): &(Addr, SlotWord, SlotWord)| {
            let Some((_, offset)) = levels.place(*heir) else { return false };
            let is_in = |bucket: &crate::index::Bucket| {
                (bucket.offset..bucket.offset + u64::from(bucket.slots) * 8).contains(&offset)
            };
            buckets.iter().any(is_in)
        };
        leaving.heirs.iter().position(is_of_key).ok_or(ReadError::Corrupt)
    }

    /// Copies what slots say to their heirs. Those stay of which the heirs now say it.
    async fn copy(&self, leaving: &mut Vec<Leaving>) -> Result<(), ReadError> {
        let heirs = leaving.iter().flat_map(|leaving| leaving.heirs);
        let swaps: Vec<(Addr, u64, u64)> = heirs
            .filter(|(_, says, wanted)| says != wanted)
            .map(|(addr, says, wanted)| (addr, says.0, wanted.0))
            .collect();
        let found = far::swap_many(self.endpoint(), &swaps).await?;
        let mut failed = swaps.iter().zip(found).filter(|((_, says, wanted), found)| {
            // Another client that moves the slot may have made this very copy.
            found != says && found != wanted && !self.errs(Flaw::CopyUnchecked)
        });
        let failed: Vec<Addr> = failed.by_ref().map(|((addr, ..), _)| *addr).collect();
        leaving.retain(|leaving| leaving.heirs.iter().all(|(addr, ..)| !failed.contains(addr)));
        Ok(())
    }

    /// Marks slots whose words were copied as moved, if they still say that.
    async fn mark(&self, leaving: &[Leaving]) -> Result<(), ReadError> {
        let swaps: Vec<(Addr, u64, u64)> = leaving
            .iter()
            .map(|leaving| (leaving.slot, leaving.word.0, SlotWord::MOVED.0))
            .collect();
        let found = far::swap_many(self.endpoint(), &swaps).await?;
        let made = swaps.iter().zip(found).filter(|((_, says, _), found)| found == says).count();
        self.count(|counts| counts.moves += made as u64);
        Ok(())
    }

    /// The heirs of a slot at the next level.
    pub(super) fn heirs_of(&self, slot: Addr) -> Result<[Addr; 2], ReadError> {
        let Growth { group, heirs } = Self::growth();
        let levels = self.levels.borrow();
        let (level, offset) = levels.place(slot).ok_or(ReadError::Corrupt)?;
        let number = offset / 8;
        let (of, at) = (number / group as u64, number % group as u64);
        let [one, other] = heirs(at as usize).map(|heir| {
            let number = 2 * of * group as u64 + heir as u64;
            levels.addr(level + 1, number * 8).ok_or(ReadError::Corrupt)
        });
        Ok([one?, other?])
    }

    /// What the slot of a change says, or where it has moved, what its heirs and theirs do. One
    /// that was made before the slot moved is among them, or was changed since.
    pub(super) async fn inherited(&self, change: &Change) -> Result<Vec<SlotWord>, ReadError> {
        let (mut moved, mut found) = (vec![change.slot], Vec::new());
        while !moved.is_empty() {
            let places: Vec<(Addr, usize)> = moved.iter().map(|&slot| (slot, 1)).collect();
            let words = far::read_many(self.endpoint(), &places).await?;
            let slots = moved.into_iter().zip(words.iter().map(|words| SlotWord(words[0])));
            let (on, stay): (Vec<_>, Vec<_>) = slots.partition(|(_, word)| word.is_moved());
            found.extend(stay.into_iter().map(|(_, word)| word));
            moved = Vec::with_capacity(2 * on.len());
            for (slot, _) in on {
                let level = self.levels.borrow().place(slot).map(|(level, _)| level);
                if level == Some(self.levels.borrow().highest()) {
                    self.learn_levels().await?;
                }
                moved.extend(self.heirs_of(slot)?);
            }
        }
        Ok(found)
    }

    fn growth() -> Growth {
        I::GROWTH.expect("only an index that grows has levels")
    }
}
