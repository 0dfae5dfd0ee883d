//! Optimistic: compare and swap, and again with what is found where that fails (CIDER, section
//! 2.2).

use farlock_fabric::Endpoint;

use super::backoff::Backoff;
use super::scheme::{Effect, Ended, Entered, Scheme};

/// No turns: the first client has changed the key, and the others try again.
#[derive(Clone, Copy, Debug)]
pub struct Optimistic<E> {
    endpoint: E,
    backoff: Backoff,
}

impl<E: Endpoint> Optimistic<E> {
    /// Over this endpoint, waiting so after a miss.
    pub fn new(endpoint: E, backoff: Backoff) -> Self {
        Self { endpoint, backoff }
    }
}

impl<E: Endpoint> Scheme for Optimistic<E> {
    type Endpoint = E;
    type Turn<'s> = ();

    fn endpoint(&self) -> &E {
        &self.endpoint
    }

    async fn enter(&self, _: u64, _: Effect) -> Entered<()> {
        Entered::Turn(())
    }

    async fn missed(&self, times: u32) {
        self.backoff.wait(&self.endpoint, times).await;
    }

    async fn leave(&self, _: Self::Turn<'_>, _: Ended) {}

    async fn settle(&self) {}
}
