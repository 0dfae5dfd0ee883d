//! The board of a takeover: shared words in which clients say when they were granted, and what
//! stands for the goods that the lock protects.

use std::sync::atomic::{AtomicU64, Ordering};

use farlock_fabric::Nanos;
use farlock_locks::Token;

use crate::storm::ledger::Ledger;

/// Words in a line: each seat and register has a line of its own.
const LINE: usize = 8;

/// The memory of a takeover: a storm's ledger of one lock, two registers, a line for each seat.
#[derive(Clone, Copy, Debug)]
pub struct Board<'a> {
    words: &'a [AtomicU64],
    seats: usize,
}

/// What a seat says.
#[derive(Clone, Copy, Debug)]
enum Field {
    /// How often the client in it has begun to acquire.
    Asked = 0,
    /// When it was granted last, in nanoseconds.
    GrantedAt = 1,
    /// When that grant ends by itself, in nanoseconds; 0 if it does not.
    EndsAt = 2,
}

/// Something outside of the lock that holders write to, each with its token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Register {
    /// It refuses a token that is lower than one it has seen.
    Fenced = 0,
    /// It takes what comes.
    Unfenced = 1,
}

impl<'a> Board<'a> {
    /// Words that so many seats need.
    pub fn words(seats: usize) -> usize {
        Ledger::words(1, seats) + (2 + seats) * LINE
    }

    /// The board in zeroed words.
    pub fn new(words: &'a [AtomicU64], seats: usize) -> Self {
        assert!(words.len() >= Self::words(seats), "room for all seats");
        Self { words, seats }
    }

    /// The judge of overlaps and tokens.
    pub fn ledger(&self) -> Ledger<'a> {
        Ledger::new(self.words, 1, self.seats)
    }

    /// The client in this seat begins to acquire.
    pub fn asks(&self, seat: usize) {
        self.field(seat, Field::Asked).fetch_add(1, Ordering::SeqCst);
    }

    /// How often it has.
    pub fn asked(&self, seat: usize) -> u64 {
        self.field(seat, Field::Asked).load(Ordering::SeqCst)
    }

    /// The client in this seat was granted.
    pub fn granted(&self, seat: usize, at: Nanos, ends_at: Option<Nanos>) {
        self.field(seat, Field::EndsAt).store(ends_at.unwrap_or(0), Ordering::SeqCst);
        self.field(seat, Field::GrantedAt).store(at, Ordering::SeqCst);
    }

    /// When its last grant ends by itself.
    pub fn ends_at(&self, seat: usize) -> Option<Nanos> {
        Some(self.field(seat, Field::EndsAt).load(Ordering::SeqCst)).filter(|at| *at > 0)
    }

    /// When it was, last.
    pub fn granted_at(&self, seat: usize) -> Nanos {
        self.field(seat, Field::GrantedAt).load(Ordering::SeqCst)
    }

    /// Writes to a register. False if it refused.
    pub fn write(&self, register: Register, token: Token) -> bool {
        let word = self.line(register as usize, 0);
        match register {
            Register::Fenced => word.fetch_max(token.get(), Ordering::SeqCst) <= token.get(),
            Register::Unfenced => {
                word.store(token.get(), Ordering::SeqCst);
                true
            }
        }
    }

    /// The token of the last write that a register took.
    pub fn written(&self, register: Register) -> u64 {
        self.line(register as usize, 0).load(Ordering::SeqCst)
    }

    fn field(&self, seat: usize, field: Field) -> &AtomicU64 {
        self.line(2 + seat, field as usize)
    }

    fn line(&self, line: usize, word: usize) -> &AtomicU64 {
        &self.words[Ledger::words(1, self.seats) + line * LINE + word]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_fenced_register_refuses_who_comes_late() {
        let words: Vec<AtomicU64> = (0..Board::words(1)).map(|_| AtomicU64::new(0)).collect();
        let board = Board::new(&words, 1);
        for (register, late) in [(Register::Fenced, false), (Register::Unfenced, true)] {
            assert!(board.write(register, Token::new(1, 7)));
            assert!(board.write(register, Token::new(1, 7)), "a holder writes more than once");
            assert_eq!(board.write(register, Token::new(1, 6)), late, "{register:?}");
        }
        assert_eq!(board.written(Register::Fenced), Token::new(1, 7).get());
        assert_eq!(board.written(Register::Unfenced), Token::new(1, 6).get());
    }
}
