//! What every scheme does.

use farlock_fabric::Endpoint;

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

    /// Waits for a turn at the key with this hash, for a bounded time: then the client goes on
    /// without.
    async fn enter(&self, hash: u64) -> Self::Turn<'_>;

    /// Another client has changed the key first, so many times by now.
    async fn missed(&self, times: u32);

    /// The turn is over.
    async fn leave(&self, turn: Self::Turn<'_>);

    /// Finishes what dropped turns and turns that were waited for in vain have left behind, which
    /// may keep others waiting. One task of a client runs this, again and again; each time it
    /// returns within a bounded time.
    async fn settle(&self);
}
