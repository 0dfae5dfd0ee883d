//! What lies beside a value: the token it was written with, and when it ends.
//!
//! ```text
//! data | until 8, if it ends | owner 16, if it ends with one | token 8, if it has one
//!      | what there is 1, if there is anything or the data could be taken for this
//! ```
//!
//! The last byte says what there is if its high half is [`TELLS`]; otherwise there is data alone.
//! No text ends so, and few numbers do. That spares most values a byte, and those a word whose
//! length is a multiple of 8.
//!
//! A key that was written with a token keeps it for good, also when its value is gone or has ended:
//! else a holder that was paused long enough could write after all.

use farlock_fabric::{EndpointId, Nanos};
use farlock_locks::Token;

/// The longest value, in bytes: 1 MiB.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// The high half of a last byte that says what there is; the low half says it.
const TELLS: u8 = 0xe0;
const TELLS_BITS: u8 = 0xf0;
/// It ends: a time stands before the token.
const ENDS: u8 = 1;
/// A token stands before the last byte.
const FENCED: u8 = 2;
/// There is no value, but for the token.
const GONE: u8 = 4;
/// It ends with its owner, which stands before the token.
const OWNED: u8 = 8;

/// Bytes that lie beside the data at most.
pub(super) const BESIDE_MAX: usize = 33;

/// The owner with which a value ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    pub(super) id: EndpointId,
    /// When it came to its place, by the clock of the memory's host: its identity may be used again
    /// after 65,536 others. It stands in the owner's record too.
    pub(super) since: Nanos,
}

/// When a value ends: never, unless this says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Term {
    /// At this time, by the clock of the memory's host.
    pub(super) until: Option<Nanos>,
    /// When this one is dead.
    pub(super) owner: Option<Owner>,
}

/// A value, and what lies beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stored<'a> {
    /// `None`: it was removed, and the token stays.
    data: Option<&'a [u8]>,
    pub(super) term: Term,
    /// The token it was last written with.
    pub(super) token: Option<Token>,
}

impl<'a> Stored<'a> {
    pub(super) fn new(data: &'a [u8], term: Term, token: Option<Token>) -> Self {
        Self { data: Some(data), term, token }
    }

    /// Of a key whose value was removed with this token.
    pub(super) fn gone(token: Token) -> Self {
        Self { data: None, term: Term::default(), token: Some(token) }
    }

    /// What these bytes of a store say; `None` if nothing was stored so.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let told = bytes.split_last().filter(|(last, _)| **last & TELLS_BITS == TELLS);
        let Some((&what, mut rest)) = told else {
            return Some(Self::new(bytes, Term::default(), None));
        };
        let mut word = |is_there: bool| {
            let Some(at) = rest.len().checked_sub(8).filter(|_| is_there) else {
                return if is_there { None } else { Some(None) };
            };
            let (before, word) = rest.split_at(at);
            rest = before;
            Some(Some(u64::from_le_bytes(word.try_into().ok()?)))
        };
        let token = word(what & FENCED != 0)?;
        let since = word(what & OWNED != 0)?;
        let owner = word(what & OWNED != 0)?.map(EndpointId::from_bits);
        let owner = owner.zip(since).map(|(id, since)| Owner { id, since });
        let term = Term { until: word(what & ENDS != 0)?, owner };
        let data = (what & GONE == 0).then_some(rest);
        Some(Self { data, term, token: token.map(Token::from) })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let data = self.data.unwrap_or_default();
        let mut bytes = Vec::with_capacity(data.len() + BESIDE_MAX);
        bytes.extend_from_slice(data);
        let mut what = if self.data.is_none() { GONE } else { 0 };
        if let Some(until) = self.term.until {
            bytes.extend_from_slice(&until.to_le_bytes());
            what |= ENDS;
        }
        if let Some(owner) = self.term.owner {
            bytes.extend_from_slice(&owner.id.bits().to_le_bytes());
            bytes.extend_from_slice(&owner.since.to_le_bytes());
            what |= OWNED;
        }
        if let Some(token) = self.token {
            bytes.extend_from_slice(&token.get().to_le_bytes());
            what |= FENCED;
        }
        if what != 0 || data.last().is_some_and(|last| last & TELLS_BITS == TELLS) {
            bytes.push(TELLS | what);
        }
        bytes
    }

    /// The value, if there is one that has not ended. Only of one that ends is it asked whether it
    /// has.
    #[inline]
    pub(super) fn data(&self, has_ended: impl FnOnce(Term) -> bool) -> Option<&'a [u8]> {
        self.data.filter(|_| self.term.is_endless() || !has_ended(self.term))
    }
}

impl Term {
    #[inline]
    fn is_endless(&self) -> bool {
        self.until.is_none() && self.owner.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_comes_back() {
        let token = Token::new(7, 99);
        let owner = Owner { id: EndpointId { index: 3, incarnation: 9 }, since: 77 };
        for data in [&b""[..], b"x", b"eight...", &[0; 100], &[TELLS], &[TELLS | GONE; 9]] {
            for (until, owner) in
                [(None, None), (Some(0), None), (None, Some(owner)), (Some(u64::MAX), Some(owner))]
            {
                for token in [None, Some(token)] {
                    let term = Term { until, owner };
                    let stored = Stored::new(data, term, token);
                    let bytes = stored.encode();
                    assert!(bytes.len() <= data.len() + BESIDE_MAX);
                    let is_alone = term == Term::default() && token.is_none();
                    let is_plain = is_alone && data.last().is_none_or(|last| last >> 4 != 0xe);
                    assert_eq!(bytes == data, is_plain);
                    assert_eq!(Stored::decode(&bytes), Some(stored));
                    assert_eq!(stored.data(|told| told != term), Some(data));
                    assert_eq!(stored.data(|_| true).is_none(), term != Term::default());
                }
            }
        }
        let gone = Stored::gone(token);
        assert_eq!(Stored::decode(&gone.encode()), Some(gone));
        assert_eq!((gone.data(|_| false), gone.token), (None, Some(token)));
    }

    #[test]
    fn a_value_without_what_it_tells_of_is_none() {
        let tells = |what: u8| TELLS | what;
        for bytes in [&[tells(OWNED)][..], &[1, 2, 3, tells(FENCED)], &[tells(ENDS)]] {
            assert_eq!(Stored::decode(bytes), None, "{bytes:?}");
        }
        let short = [0, 0, 0, 0, 0, 0, 0, 0, 0, tells(ENDS | FENCED)];
        assert_eq!(Stored::decode(&short), None);
    }
}
