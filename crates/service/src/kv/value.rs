//! What lies beside a value: the token it was written with, and when it ends.
//!
//! ```text
//! data | until 8, if it ends | owner 16, if it ends with one | token 8, if it has one
//!      | what there is 1
//! ```
//!
//! A key that was written with a token keeps it for good, also when its value is gone or has ended:
//! else a holder that was paused long enough could write after all.

use farlock_fabric::{EndpointId, Nanos};
use farlock_locks::Token;

/// The longest value, in bytes: 1 MiB.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

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
        let (&what, mut rest) = bytes.split_last()?;
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
        let is_known = what & !(ENDS | FENCED | GONE | OWNED) == 0;
        let data = (what & GONE == 0).then_some(rest);
        is_known.then_some(Self { data, term, token: token.map(Token::from) })
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
        bytes.push(what);
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
        for data in [&b""[..], b"x", b"eight...", &[0; 100]] {
            for (until, owner) in
                [(None, None), (Some(0), None), (None, Some(owner)), (Some(u64::MAX), Some(owner))]
            {
                for token in [None, Some(token)] {
                    let term = Term { until, owner };
                    let stored = Stored::new(data, term, token);
                    let bytes = stored.encode();
                    assert!(bytes.len() <= data.len() + BESIDE_MAX);
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
    fn other_bytes_are_no_value() {
        for bytes in
            [&b""[..], &[16], &[OWNED], &[255], &[1, 2, 3, FENCED], &[0; 15][..14], &[ENDS]]
        {
            let is_one = bytes.last() == Some(&0);
            assert_eq!(Stored::decode(bytes).is_some(), is_one, "{bytes:?}");
        }
        let short = [0, 0, 0, 0, 0, 0, 0, 0, 0, ENDS | FENCED];
        assert_eq!(Stored::decode(&short), None);
    }
}
