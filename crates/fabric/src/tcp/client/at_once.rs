//! Lanes whose verbs complete where they are posted.

use super::lane::TcpLane;
use crate::endpoint::Posted;
use crate::hook::Hook;
use crate::verb::{Link, Verb};

/// A lane that blocks its thread until a posted verb has completed: one round trip. So what is
/// written for memory at hand runs over TCP as it is. Waits do not block, nor does what is posted
/// aside.
#[derive(Debug)]
pub struct AtOnce(TcpLane);

impl AtOnce {
    /// This lane, but each of its verbs completes within its post.
    pub fn new(lane: TcpLane) -> Self {
        Self(lane)
    }

    /// The lane.
    pub fn lane(&self) -> &TcpLane {
        &self.0
    }
}

impl Hook for AtOnce {
    type Inner = TcpLane;

    const COMPLETES_IN_POST: bool = true;

    fn inner(&self) -> &TcpLane {
        &self.0
    }

    fn post(&self, verb: Verb<'_>) -> Posted {
        self.0.complete(crate::Endpoint::post(&self.0, verb))
    }

    fn post_aside(&self, verb: Verb<'_>) -> Posted {
        let posted = crate::Endpoint::post(&self.0, verb);
        self.0.channel().flush_soon();
        posted
    }

    fn post_chain(&self, chain: &[Link<'_>]) -> Posted {
        self.0.complete(crate::Endpoint::post_chain(&self.0, chain))
    }
}
