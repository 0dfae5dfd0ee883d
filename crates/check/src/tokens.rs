//! Tokens as judges compare them: with a count that never wraps.
//!
//! Tokens are made of a count in the lock's word, which wraps with its field. The judge watches the
//! word and knows how often it has. Between a client's first verb at the lock, since its record
//! last said that it opens it, and its grant the word has said, or will soon say, what its token
//! says: that tells what the token stands for. Where the count has come all the way round
//! meanwhile, which only a narrow field's does, the judge takes the lowest that the order of grants
//! allows.

use std::collections::BTreeSet;

use farlock_fabric::word::Field;
use farlock_locks::Token;
use farlock_sim::check::Access;
use farlock_sim::mix;

use crate::scenario::{CLIENTS_MAX, EVENTS_MAX};

/// What the field is called of which tokens are made.
const NAME: &str = "count";
/// Where the incarnation begins in a judged token, as it does in a true one of full width.
const INCARNATION_SHIFT: u32 = 48;
/// Where a count travels with the lock, it may be ahead of the word: by less than one part in so
/// many of what the field can tell.
const AHEAD_ONE_IN: u64 = 2;
/// Clients, the visitor, who serves them, and newcomers.
const ACTORS_MAX: usize = CLIENTS_MAX as usize + 3;

/// The count of one lock's word, as if its field had no end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tokens {
    field: Option<Field>,
    /// What the field says.
    says: u64,
    /// By how much it has grown since the beginning.
    grown: u64,
    /// By how much it had when each one's first verb took effect.
    grown_before: [u64; ACTORS_MAX],
    /// A bit for each one whose first verb has not taken effect.
    opening: u64,
}

impl Tokens {
    /// The count among these fields, if there is one, of a lock whose word begins as `word`.
    pub fn of(fields: &[Field], word: u128) -> Self {
        let field = fields.iter().find(|field| field.name == NAME).copied();
        let says = field.map_or(0, |field| field.of(word));
        Self { field, says, ..Self::default() }
    }

    /// `who` is about to acquire.
    pub fn opens(&mut self, who: u16) {
        self.opening |= 1 << who;
    }

    /// An atomic of `who` took effect, and the word is this from now on.
    pub fn sees(&mut self, who: u16, word: u128) {
        let Some(field) = self.field else { return };
        if self.opening >> who & 1 != 0 {
            self.opening &= !(1 << who);
            self.grown_before[usize::from(who)] = self.grown;
        }
        let says = field.of(word);
        self.grown += says.wrapping_sub(self.says) & field.max();
        self.says = says;
    }

    /// The memory of the word has restarted, and the word is this from now on: as it was, or as at
    /// an earlier time, back to the first.
    pub fn restarts(&mut self, word: u128) {
        let Some(field) = self.field else { return };
        let says = field.of(word);
        self.grown = self.grown.saturating_sub(self.says.wrapping_sub(says) & field.max());
        self.says = says;
        self.grown_before = self.grown_before.map(|grown| grown.min(self.grown));
    }

    /// A token of `who`, as if the count had begun at zero and never wrapped. The order of grants
    /// wants it above `above`.
    pub fn judged(&self, who: u16, token: Token, above: Option<u64>) -> u64 {
        let Some(field) = self.field else { return token.get() };
        let ahead_max = field.max() / AHEAD_ONE_IN;
        let behind = self.says.wrapping_add(ahead_max).wrapping_sub(token.count()) & field.max();
        // Above any count that a run comes to, however narrow the field is.
        let first = u64::from(token.incarnation()) << INCARNATION_SHIFT;
        let mut judged = (first + self.grown + ahead_max).saturating_sub(behind);
        let least = first + self.grown_before[usize::from(who)];
        let least = above.map_or(least, |above| least.max(above + 1));
        // No further than to the beginning of its incarnation.
        while judged.saturating_sub(field.max()) > least.max(first) {
            judged -= field.max() + 1;
        }
        judged
    }

    /// What this adds to the state of a world, where a run may bring the count all the way round.
    pub fn ghost(&self) -> u64 {
        if self.field.is_none_or(|field| field.max() > EVENTS_MAX) {
            return 0;
        }
        self.grown_before
            .iter()
            .fold(mix(self.grown, self.opening), |hash, &grown| mix(hash, grown))
    }
}

/// What was granted, where tokens alone tell whose time is over.
#[derive(Clone, Debug, Default)]
pub struct Granted {
    exclusive: BTreeSet<u64>,
    shared: BTreeSet<u64>,
}

impl Granted {
    /// A client is granted the lock with this token. Whether it comes late, and whatever checks
    /// tokens sees that: a client that it excludes has been granted the lock with a higher token,
    /// and no such client with the same.
    pub fn comes_late(&mut self, access: Access, token: u64) -> bool {
        let readers = self.shared.iter().filter(|_| access == Access::Exclusive);
        let excluded = || self.exclusive.iter().chain(readers.clone());
        let late = excluded().any(|&other| other > token) && excluded().all(|&it| it != token);
        match access {
            Access::Exclusive | Access::Update => self.exclusive.insert(token),
            Access::Shared => self.shared.insert(token),
        };
        late
    }

    /// What this adds to the state of a world.
    pub fn ghost(&self) -> u64 {
        let readers = self.shared.iter().fold(0, |hash, &token| mix(hash, token));
        self.exclusive.iter().fold(readers, |hash, &token| mix(hash, token))
    }
}

#[cfg(test)]
mod tests {
    use Access::{Exclusive, Shared};

    use super::*;

    const COUNT: Field = Field { name: NAME, shift: 4, bits: 3 };

    /// A lock of which 30 have been released by client 1, one after the other; client 0's first
    /// verb took effect after so many.
    fn after_30(first: u64) -> Tokens {
        let mut tokens = Tokens::of(&[COUNT], COUNT.place(5));
        tokens.opens(0);
        for released in 0..=30 {
            tokens.sees(1, COUNT.place(5 + released));
            if released == first {
                tokens.sees(0, COUNT.place(5 + released));
            }
        }
        tokens
    }

    fn judged(tokens: Tokens, count: u64, above: Option<u64>) -> u64 {
        tokens.judged(0, Token::new(0, 5 + count), above)
    }

    #[test]
    fn a_token_counts_on_where_its_field_wraps() {
        for count in 26..=33 {
            assert_eq!(judged(after_30(26), count, None), count);
        }
    }

    #[test]
    fn where_a_count_came_round_a_token_is_what_the_order_allows() {
        assert_eq!(judged(after_30(10), 30, None), 14);
        assert_eq!(judged(after_30(10), 30, Some(13)), 14);
        assert_eq!(judged(after_30(10), 30, Some(14)), 22);
        assert_eq!(judged(after_30(10), 30, Some(30)), 30, "to which the ledger objects");
        assert_eq!(judged(after_30(25), 30, Some(30)), 30);
    }

    /// Who comes late has the lower token; what is granted twice is not late, but wrong.
    #[test]
    fn who_comes_late_is_behind_somebody_whom_it_excludes() {
        let late = |before: &[(Access, u64)], access, token| {
            let mut granted = Granted::default();
            for &(access, token) in before {
                granted.comes_late(access, token);
            }
            granted.comes_late(access, token)
        };
        for (before, access) in [(Exclusive, Exclusive), (Exclusive, Shared), (Shared, Exclusive)] {
            assert!(late(&[(before, 7)], access, 6));
            assert!(!late(&[(before, 7)], access, 7));
            assert!(!late(&[(before, 7), (before, 9)], access, 7), "granted twice");
            assert!(!late(&[(before, 7)], access, 8));
        }
        assert!(!late(&[(Shared, 7)], Shared, 6));
        assert!(!late(&[(Shared, 6), (Exclusive, 7)], Exclusive, 6));
    }

    #[test]
    fn without_a_count_a_token_is_what_it_is() {
        let tokens = Tokens::of(&[], 7);
        assert_eq!(tokens.judged(0, Token::new(1, 3), None), Token::new(1, 3).get());
    }
}
