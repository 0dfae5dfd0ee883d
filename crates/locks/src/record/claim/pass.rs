//! From one mode to the other without letting go.

use farlock_fabric::{MaskedCas, WideAtomics};

use super::line::pass_on;
use super::word::{
    Claim, ClaimWord, Grant, HELD_MASK, HOLD_MASK, LINE_MASK, Place, Rank, held_by, matched,
    name_of, next, read_word,
};
use crate::event::Event;
use crate::site::{Outcome, Protocol};

/// How often an upgrade tries again since others changed the word.
const ATTEMPTS_MAX: u64 = 16;

impl<E: WideAtomics> Protocol<'_, E, Claim> {
    /// Makes a writer a reader. Readers may come in beside it from then on, as beside any.
    pub(super) async fn make_shared(self, grant: Grant) -> Outcome<Option<Grant>> {
        if grant.rank == Rank::Reader {
            return Ok(Some(grant));
        }
        let me = Place::of(&self);
        let head = if grant.rank == Rank::Head { me.as_tail() } else { 0 };
        let mut seen = ClaimWord(held_by(&self, grant) | head);
        loop {
            let is_last = grant.rank == Rank::Head && seen.ends_with(me);
            let others_wait = seen.tail() != 0 && !is_last;
            // A count at which the lock is kept for those in line is not skipped.
            let is_kept = others_wait && self.rules.is_closed_at(next(grant.count));
            let count = if is_kept { grant.count } else { next(grant.count) };
            let op = MaskedCas {
                compare: held_by(&self, grant) | seen.0 & LINE_MASK,
                compare_mask: HOLD_MASK | LINE_MASK,
                swap: ClaimWord::COUNT.place(count) | ClaimWord::READERS.place(1),
                swap_mask: HOLD_MASK
                    | ClaimWord::READERS.mask()
                    | if is_last { LINE_MASK } else { 0 },
            };
            let old = self.masked_cas128(op, Some(seen.0)).await?;
            if matched(&op, old) {
                self.left(old & !HELD_MASK);
                // It has said that it holds all the time: whatever its mail says is of before.
                self.set_believed();
                if grant.rank == Rank::Head && !is_last {
                    pass_on(&self).await?;
                }
                return Ok(Some(Grant { count, rank: Rank::Reader, ..grant }));
            }
            if (old ^ op.compare) & HOLD_MASK != 0 {
                self.event(Event::Superseded { lock: self.lock });
                return Ok(None);
            }
            seen = ClaimWord(old);
            self.endpoint.checkpoint(&[seen.watched(), grant.count]);
        }
    }

    /// Makes a reader a writer, if it is the only one inside and nobody's turn comes before.
    pub(super) async fn make_exclusive(self, grant: Grant) -> Outcome<Option<Grant>> {
        if grant.rank != Rank::Reader {
            return Ok(Some(grant));
        }
        let mut seen = read_word(&self).await?;
        for attempt in 0..ATTEMPTS_MAX {
            self.endpoint.checkpoint(&[seen.watched(), seen.count(), attempt]);
            let count = next(seen.count());
            let is_kept = self.rules.is_closed_at(seen.count()) || self.rules.is_closed_at(count);
            if seen.readers() != 1 || seen.holder() != 0 || seen.tail() != 0 && is_kept {
                return Ok(None);
            }
            let mask = HELD_MASK | ClaimWord::COUNT.mask();
            let op = MaskedCas {
                compare: seen.0,
                compare_mask: mask | LINE_MASK,
                swap: ClaimWord::COUNT.place(count)
                    | ClaimWord::HOLDER.place(name_of(self.me.endpoint)),
                swap_mask: mask,
            };
            let old = self.masked_cas128(op, Some(seen.0)).await?;
            if matched(&op, old) {
                self.left(
                    old & !HELD_MASK & !ClaimWord::COUNT.mask() | ClaimWord::COUNT.place(count),
                );
                return Ok(Some(Grant { count, rank: Rank::Passer, ..grant }));
            }
            seen = ClaimWord(old);
        }
        Ok(None)
    }
}
