//! Bounded fuzzing, as tests: sound inputs are changed at random, and what takes them must
//! answer or refuse, within a bound on memory.
//!
//! A run is decided by its seed and its count, so what it finds it finds again. It never waits for
//! anything and reads no clock.

use allocation_counter::measure;

/// Numbers at which decoders go wrong.
const EDGES: [u64; 14] = [
    0,
    1,
    0x3f,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    (1 << 48) - 8,
    1 << 48,
    i64::MAX as u64,
    u64::MAX,
];

/// Changes made to one input at most.
const CHANGES_MAX: usize = 4;

/// Pieces put into one input at most.
const PIECES_MAX: usize = 4;

/// How many executions a test has: so many in a run of all tests, `FARLOCK_MORE_FUZZ` times as many
/// at night.
pub(crate) fn executions(usual: u64) -> u64 {
    let more = std::env::var("FARLOCK_MORE_FUZZ").ok().and_then(|more| more.parse::<u64>().ok());
    usual * more.unwrap_or(1)
}

/// Has an input taken, which may need at most so many bytes more than it had at any time.
pub(crate) fn within<T>(bytes_max: u64, input: &[u8], take: impl FnOnce() -> T) -> T {
    let mut taken = None;
    let info = measure(|| taken = Some(take()));
    assert!(info.bytes_max <= bytes_max, "{} bytes for {input:02x?}", info.bytes_max);
    taken.expect("it was taken")
}

/// Where chance comes from: xorshift, so that a seed decides everything.
pub(crate) struct Fuzzer(u64);

impl Fuzzer {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// One of so many, from 0 on.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        (self.number() % count.max(1) as u64) as usize
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// Some pieces of a corpus, one behind the other, each behind its length in four bytes. Most
    /// lengths are right, so that what lies behind them is looked at.
    pub(crate) fn frames(&mut self, corpus: &[Vec<u8>], into: &mut Vec<u8>) {
        into.clear();
        for _ in 0..=self.below(PIECES_MAX) {
            let mut piece = corpus[self.below(corpus.len())].clone();
            if !self.one_in(3) {
                self.change(&mut piece, corpus);
            }
            into.extend_from_slice(&(piece.len() as u32).to_le_bytes());
            into.extend_from_slice(&piece);
        }
        if self.one_in(16) {
            self.change(into, corpus);
        }
    }

    /// Changes something: bits, numbers, lengths, order.
    pub(crate) fn change(&mut self, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        for _ in 0..=self.below(CHANGES_MAX) {
            let at = self.below(bytes.len());
            let end = at + self.below(bytes.len() - at + 1).min(64);
            match self.below(9) {
                _ if bytes.is_empty() => bytes.push(self.number() as u8),
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.number() as u8,
                2..=4 => self.put_number(&mut bytes[at..]),
                5 => bytes.truncate(at),
                6 => drop(bytes.drain(at..end)),
                7 => {
                    let again = bytes[at..end].to_vec();
                    bytes.splice(at..at, again);
                }
                _ => {
                    let other = &corpus[self.below(corpus.len())];
                    let from = self.below(other.len());
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[from..]);
                }
            }
        }
    }

    /// A number at an edge, or near one, in some width.
    fn put_number(&mut self, bytes: &mut [u8]) {
        let edge = EDGES[self.below(EDGES.len())];
        let number = if self.one_in(2) { edge } else { edge.wrapping_add(self.number() % 17) };
        let width = bytes.len().min(1 << self.below(4));
        bytes[..width].copy_from_slice(&number.to_le_bytes()[..width]);
    }
}
