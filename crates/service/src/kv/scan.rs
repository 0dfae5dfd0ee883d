//! Going through a store.

use std::fmt;
use std::time::Duration;

use farlock_fabric::block_on;
use farlock_kv::{Cursor, ReadError};
use farlock_locks::Token;

use super::Kv;
use super::error::KvError;
use super::value::{Stored, Term};

/// A key of a store, and what lies there.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Pair {
    /// The key.
    pub key: Vec<u8>,
    /// Its value; `None` if it was removed or has ended, and its token stays.
    pub value: Option<Vec<u8>>,
    /// How long it still has its value, if that ends.
    pub time_left: Option<Duration>,
    /// The highest token it was written with.
    pub token: Option<Token>,
    /// Whether it ends with its owner: [`Kv::put_ephemeral`].
    pub is_ephemeral: bool,
}

/// The pairs of a store, in no order: [`Kv::scan`].
#[must_use = "iterators do nothing until they are asked"]
pub struct Scan<'k> {
    kv: &'k Kv,
    /// Those that were read, the next one last.
    pairs: Vec<Result<farlock_kv::Pair, ReadError>>,
    next: Next,
}

/// Where a scan goes on.
enum Next {
    First,
    At(Cursor),
    None,
}

impl Kv {
    /// Every pair of the store. A key that is there all the time is seen, once, as it was at some
    /// moment meanwhile; one that comes or goes meanwhile may be. In place of a pair whose memory
    /// was damaged there is [`KvError::Corrupt`], and the scan goes on.
    pub fn scan(&self) -> Scan<'_> {
        Scan { kv: self, pairs: Vec::new(), next: Next::First }
    }
}

impl Scan<'_> {
    fn pair(&self, (key, bytes): farlock_kv::Pair) -> Result<Option<Pair>, KvError> {
        let stored = Stored::decode(&bytes).ok_or(KvError::Corrupt)?;
        let value = stored.data(|term| self.kv.has_ended(term)).map(<[u8]>::to_vec);
        let term = value.as_ref().map_or(Term::default(), |_| stored.term);
        let (time_left, is_ephemeral) = (self.kv.time_to(term), term.owner.is_some());
        let is_there = value.is_some() || stored.token.is_some();
        let token = stored.token;
        Ok(is_there.then_some(Pair { key, value, time_left, token, is_ephemeral }))
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<Pair, KvError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some(pair) = self.pairs.pop() {
                let pair = pair.map_err(|error| KvError::of_read(error, b""));
                if let Some(pair) = pair.and_then(|pair| self.pair(pair)).transpose() {
                    return Some(pair);
                }
            }
            let from = match std::mem::replace(&mut self.next, Next::None) {
                Next::First => None,
                Next::At(cursor) => Some(cursor),
                Next::None => return None,
            };
            if let Err(error) = self.kv.hub.check() {
                return Some(Err(error));
            }
            match block_on(self.kv.lane(), self.kv.store.scan(from)) {
                Ok((pairs, next)) => {
                    self.pairs = pairs;
                    self.next = next.map_or(Next::None, Next::At);
                }
                Err(error) => {
                    return Some(Err(self.kv.hub.told(KvError::of_read(error, b""))));
                }
            }
        }
    }
}

impl fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("store", &self.kv.name()).finish_non_exhaustive()
    }
}
