//! The lock that names have.

use farlock_locks::record::claim::{Claim, ClaimWord};
use farlock_locks::{LockKind, TokenSource};

use crate::directory::Kind;

/// The kind under which the directory enters locks: the protocol that uses their words.
pub(crate) const LOCK_KIND: Kind = Kind {
    name: "claim",
    count: |word| ClaimWord(word).count(),
    fresh: |count| ClaimWord::new().with(ClaimWord::COUNT, count).0,
    bytes: Protocol::BYTES,
};

/// How many newcomers may pass between two writers that wait: what makes a lock that many want
/// fast where they are more than processors, at the price of so short a wait for the others.
const BYPASS: u8 = 64;

/// The type of [`lock_protocol`].
pub(crate) type Protocol = Claim;

/// The lock that every session and command of a region uses: they must agree on its bound.
pub(crate) fn lock_protocol() -> Protocol {
    Protocol { bypass: BYPASS, ..Protocol::default() }
}

/// A lock without fencing tokens is none that a service hands out.
const _: () = {
    let tokens = Protocol::TOKENS;
    assert!(matches!(tokens, TokenSource::Word), "a service needs fencing tokens");
};
