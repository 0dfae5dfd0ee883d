//! Lanes whose verbs complete where they are posted.

use std::cell::Cell;

use super::lane::TcpLane;
use crate::endpoint::{HoldBack, Nanos, Posted, Ticket};
use crate::error::Fault;
use crate::hook::Hook;
use crate::tcp::clock::boot_time;
use crate::verb::{Link, Verb};

/// A lane that blocks its thread until a posted verb has completed: one round trip. So what is
/// written for memory at hand runs over TCP as it is. Waits do not block, nor does what is posted
/// aside.
#[derive(Debug)]
pub struct AtOnce {
    lane: TcpLane,
    /// Whether what is posted just now is not waited for.
    defers: Cell<bool>,
}

impl AtOnce {
    /// This lane, but each of its verbs completes within its post.
    pub fn new(lane: TcpLane) -> Self {
        Self { lane, defers: Cell::new(false) }
    }

    /// The lane.
    pub fn lane(&self) -> &TcpLane {
        &self.lane
    }

    /// Does something whose verbs are not waited for: they are pending, as those of the lane are,
    /// and are sent once their completions are asked for. So the tasks of a program have their
    /// verbs under way together.
    pub fn defer<T>(&self, act: impl FnOnce() -> T) -> T {
        self.doing(true, act)
    }

    /// Does something whose verbs complete where they are posted, also within what is deferred.
    pub fn at_once<T>(&self, act: impl FnOnce() -> T) -> T {
        self.doing(false, act)
    }

    fn doing<T>(&self, defers: bool, act: impl FnOnce() -> T) -> T {
        let before = self.defers.replace(defers);
        let done = act();
        self.defers.set(before);
        done
    }

    /// Blocks until a deferred verb has completed.
    pub fn complete(&self, ticket: Ticket) -> Result<(), Fault> {
        match self.lane.complete(Posted::Pending(ticket)) {
            Posted::Done(completed) => completed,
            Posted::Pending(_) => unreachable!("it was waited for"),
        }
    }

    /// Blocks until a deferred verb has completed, for so many nanoseconds at most. `None`: it has
    /// not.
    pub fn complete_within(&self, ticket: Ticket, nanos: Nanos) -> Option<Result<(), Fault>> {
        self.lane.complete_by(ticket, boot_time().saturating_add(nanos))
    }

    fn unless_deferred(&self, posted: Posted) -> Posted {
        if self.defers.get() { posted } else { self.lane.complete(posted) }
    }
}

impl Hook for AtOnce {
    type Inner = TcpLane;

    const COMPLETES_IN_POST: bool = true;

    fn inner(&self) -> &TcpLane {
        &self.lane
    }

    fn post(&self, verb: Verb<'_>) -> Posted {
        self.unless_deferred(crate::Endpoint::post(&self.lane, verb))
    }

    fn post_aside(&self, verb: Verb<'_>) -> Posted {
        let posted = crate::Endpoint::post(&self.lane, verb);
        self.lane.channel().flush_soon();
        posted
    }

    fn post_patiently(&self, verb: Verb<'_>, hold: HoldBack) -> Posted {
        self.unless_deferred(crate::Endpoint::post_patiently(&self.lane, verb, hold))
    }

    fn post_chain(&self, chain: &[Link<'_>]) -> Posted {
        self.unless_deferred(crate::Endpoint::post_chain(&self.lane, chain))
    }
}
