//! What every scheme does.

use farlock_fabric::{Addr, Endpoint};

/// What an operation is to others that change its key at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// What it makes of the key, or what it answers, depends on the value that it finds.
    Exact,
    /// It gives a new key a value.
    Insert,
    /// It gives the key a value, whatever the value was. If the key exists it may be answered
    /// without being carried out, as if another operation had come right behind it.
    Overwrite,
    /// It takes the key away, whatever the value was.
    Delete,
}

impl Effect {
    /// Whether overwrites right before it leave no trace, if it finds the key.
    pub(super) fn hides_overwrites(self) -> bool {
        matches!(self, Self::Overwrite | Self::Delete)
    }
}

/// What came of waiting for a turn.
#[derive(Debug)]
pub enum Entered<T> {
    /// It is this client's turn.
    Turn(T),
    /// The operation, an [`Effect::Overwrite`], is done: since it was called and before now another
    /// overwrite or a deletion of that key, which existed, was carried out, and counts as right
    /// behind it.
    Combined,
}

/// How a turn went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ended {
    /// The key existed, and was given the value, or was taken away. Never so of an operation whose
    /// end is in doubt.
    pub replaced: bool,
    /// How often others were first.
    pub misses: u32,
    /// Others were seen to have a turn at the key, or to wait for one, though none is needed here.
    pub is_awaited: bool,
}

/// How writers of one key take turns.
pub trait Scheme {
    /// What it works over.
    type Endpoint: Endpoint;

    /// That it is this client's turn. Dropping it gives the turn up by the next
    /// [`Scheme::settle`].
    type Turn<'s>
    where
        Self: 's;

    /// The endpoint.
    fn endpoint(&self) -> &Self::Endpoint;

    /// Whether a client reads the key before it enters, and first tries with what it found there:
    /// by then others may have changed it.
    fn reads_before(&self) -> bool {
        false
    }

    /// Waits for a turn at the key with this hash, for a bounded time: then the client goes on
    /// without. Nothing of the operation has been carried out yet, and nothing is before this
    /// returns.
    async fn enter(&self, hash: u64, effect: Effect) -> Entered<Self::Turn<'_>>;

    /// Another client has changed the key first, so many times by now.
    async fn missed(&self, times: u32);

    /// The same in this turn, for which the client may wait after all.
    async fn missed_in<'s>(&'s self, turn: &mut Self::Turn<'s>, times: u32) {
        let _ = turn;
        self.missed(times).await;
    }

    /// Where two words stand by which [`Scheme::is_line`] tells whether others stand in line for
    /// the key with this hash. A client that needs no turn reads them beside what it reads anyhow.
    fn line(&self, hash: u64) -> Option<Addr> {
        let _ = hash;
        None
    }

    /// Whether others have a turn where these words stand, or wait for one.
    fn is_line(&self, words: [u64; 2]) -> bool {
        let _ = words;
        false
    }

    /// The turn is over.
    async fn leave(&self, turn: Self::Turn<'_>, ended: Ended);

    /// Finishes what dropped turns and turns that were waited for in vain have left behind, which
    /// may keep others waiting. One task of a client runs this, again and again; each time it
    /// returns within a bounded time.
    async fn settle(&self);
}
