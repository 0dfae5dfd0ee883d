//! Fencing tokens.

use std::fmt;

use crate::width;

/// A number that grows with every exclusive grant of a lock.
///
/// A resource that remembers the highest token it has seen and refuses lower ones never accepts a
/// write of a holder whose time is over. A shared grant's token lies between its neighbours'.
///
/// The upper 16 bits are the durable incarnation of the memory the lock lives in, the lower 48
/// count the lock's releases, so a lock that is created anew goes on above where it was. The count
/// wraps after 2^48 releases of one lock (nine months at ten million a second).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// Bits of the count.
    pub const COUNT_BITS: u32 = width::COUNT;

    /// Bits that tell the turns of a hold apart which tasks hand on among themselves.
    pub const TURN_BITS: u32 = width::TURN;

    /// The token of a grant: the memory's incarnation and the count in the lock's word.
    #[inline]
    pub const fn new(incarnation: u16, count: u64) -> Self {
        Self((incarnation as u64) << Self::COUNT_BITS | count & ((1 << Self::COUNT_BITS) - 1))
    }

    /// The token of a grant by local handover, where this is that of the hold which is handed on:
    /// the turn stands below the count, whose upper bits make room. So tokens increase from turn to
    /// turn, and from the last turn to the next hold's first, which is turn 0; the count wraps
    /// [`Token::TURN_BITS`] bits earlier.
    pub const fn at_turn(self, turn: u32) -> Self {
        assert!(turn >> Self::TURN_BITS == 0, "a token has room for each turn");
        Self::new(self.incarnation(), self.count() << Self::TURN_BITS | turn as u64)
    }

    /// The token as a number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The incarnation of the memory.
    pub const fn incarnation(self) -> u16 {
        (self.0 >> Self::COUNT_BITS) as u16
    }

    /// The count of releases.
    pub const fn count(self) -> u64 {
        self.0 & ((1 << Self::COUNT_BITS) - 1)
    }
}

/// The token that [`Token::get`] or [`Display`](fmt::Display) has made a number of.
impl From<u64> for Token {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_incarnation_outranks_every_count_of_the_old() {
        assert!(Token::new(2, 0) > Token::new(1, u64::MAX));
        assert_eq!(Token::new(3, 5).incarnation(), 3);
        assert_eq!(Token::new(3, 5).count(), 5);
    }

    #[test]
    fn turns_lie_between_one_hold_and_the_next() {
        let last = (1 << Token::TURN_BITS) - 1;
        let tokens = [
            Token::new(1, 1).at_turn(0),
            Token::new(1, 1).at_turn(last),
            Token::new(1, 2).at_turn(0),
            Token::new(2, 0).at_turn(0),
        ];
        assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
        assert!(tokens.iter().all(|token| (1..=2).contains(&token.incarnation())));
    }
}
