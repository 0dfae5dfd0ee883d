//! An independent judge of exclusion, inside the critical section.
//!
//! Beside each lock lies a word that no lock knows. An exclusive holder loads it and stores it with
//! one more, separately; before it releases it looks again and stores one more. So an odd word says
//! that a holder is inside alone, and a word that changed under a holder says that another was. In
//! the end the words must add up to two for every exclusive acquisition: where two holders
//! overlapped unseen, one's store was lost.
//!
//! The accesses are relaxed on purpose: what orders them must be the lock. Nothing here waits.

use std::sync::atomic::{AtomicU64, Ordering};

use farlock_locks::Mode;

/// A line's words: with few locks each check word has a line of its own.
const LINE_WORDS: usize = 8;
/// Up to so many locks are few.
const APART_MAX: u64 = 4096;

/// The check words of some locks.
#[derive(Clone, Copy, Debug)]
pub struct Judge<'a> {
    words: &'a [AtomicU64],
    stride: usize,
}

/// What a holder found when it entered.
#[derive(Clone, Copy, Debug)]
pub struct Entered {
    word: u64,
    mode: Mode,
}

impl<'a> Judge<'a> {
    /// Words that the judge of so many locks needs.
    pub const fn words(locks: u64) -> usize {
        locks as usize * Self::stride(locks)
    }

    const fn stride(locks: u64) -> usize {
        if locks <= APART_MAX { LINE_WORDS } else { 1 }
    }

    /// A judge over zeroed words.
    pub fn new(words: &'a [AtomicU64], locks: u64) -> Self {
        assert!(words.len() >= Self::words(locks), "a check word for each lock");
        Self { words, stride: Self::stride(locks) }
    }

    /// How many locks are judged.
    pub fn locks(&self) -> u64 {
        (self.words.len() / self.stride) as u64
    }

    /// The caller has acquired this lock.
    #[inline(always)]
    pub fn enter(&self, lock: u32, mode: Mode) -> Entered {
        let place = self.place(lock);
        let word = place.load(Ordering::Relaxed);
        if mode == Mode::Exclusive {
            place.store(word.wrapping_add(1), Ordering::Relaxed);
        }
        Entered { word, mode }
    }

    /// The caller is about to release this lock. Returns how many violations it has seen: 0 or 1.
    #[inline(always)]
    pub fn leave(&self, lock: u32, entered: Entered) -> u64 {
        let place = self.place(lock);
        let expected = entered.word.wrapping_add(entered.mode as u64);
        let found = place.load(Ordering::Relaxed);
        if entered.mode == Mode::Exclusive {
            place.store(expected.wrapping_add(1), Ordering::Relaxed);
        }
        u64::from(entered.word & 1 != 0 || found != expected)
    }

    /// Stores that are missing, or too many, when all holders have left: each lost one was a
    /// violation.
    pub fn lost(&self, exclusive: u64) -> u64 {
        let sum = self
            .words
            .iter()
            .step_by(self.stride)
            .fold(0_u64, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)));
        sum.abs_diff(exclusive * 2).div_ceil(2)
    }

    /// The words of this lock, of few: the judge's own comes first.
    pub(crate) fn line(&self, lock: usize) -> &[AtomicU64] {
        assert!(self.stride == LINE_WORDS, "of few, each has a line");
        &self.words[lock * LINE_WORDS..(lock + 1) * LINE_WORDS]
    }

    /// The judge's word of this lock, or of what else has its number.
    pub(crate) fn word(&self, lock: usize) -> &'a AtomicU64 {
        &self.words[lock * self.stride]
    }

    #[inline(always)]
    fn place(&self, lock: u32) -> &AtomicU64 {
        &self.words[lock as usize * self.stride]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Vec<AtomicU64> {
        (0..Judge::words(2)).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn one_after_another_is_no_violation() {
        let words = words();
        let judge = Judge::new(&words, 2);
        for mode in [Mode::Exclusive, Mode::Shared, Mode::Exclusive] {
            let entered = judge.enter(1, mode);
            assert_eq!(judge.leave(1, entered), 0);
        }
        let (first, second) = (judge.enter(0, Mode::Shared), judge.enter(0, Mode::Shared));
        assert_eq!(judge.leave(0, first) + judge.leave(0, second), 0);
        assert_eq!((judge.lost(2), judge.lost(3)), (0, 1));
    }

    #[test]
    fn an_overlap_with_a_writer_is_seen() {
        for (outer, inner) in [
            (Mode::Exclusive, Mode::Exclusive),
            (Mode::Exclusive, Mode::Shared),
            (Mode::Shared, Mode::Exclusive),
        ] {
            let words = words();
            let judge = Judge::new(&words, 2);
            let first = judge.enter(0, outer);
            let second = judge.enter(0, inner);
            let seen = judge.leave(0, second) + judge.leave(0, first);
            assert!(seen > 0, "{inner:?} within {outer:?}");
        }
    }
}
