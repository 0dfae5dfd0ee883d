//! Range locks on an interval tree behind one lock: Lustre's, and the one proposed for Linux.
//!
//! Kogan, Dice, Issa, *Scalable Range Locks* (EuroSys'20), section 3. A request counts the earlier
//! requests that overlap it and conflict, enters the tree, and holds its range when that count is
//! zero. A release leaves the tree and counts down every later request that it was in the way of.
//! So requests are served in their order, and one that could go ahead waits behind one that cannot:
//! what a waiting request overlaps is taken.
//!
//! Every acquisition and every release takes the one lock around the tree, whatever its range.

use std::marker::PhantomData;
use std::sync::Arc;

use super::interval_tree::{Handle, IntervalTree};
use super::waiting::{Guarding, Park, Ticket, Waiting};
use crate::{Range, RawRangeLock, RawRangeRwLock};

/// The right to a range of a tree lock.
#[derive(Debug)]
pub struct TreeToken(Handle);

/// A request in the tree, granted or waiting.
struct Request {
    /// Requests with smaller numbers came earlier.
    number: u64,
    shared: bool,
    /// Earlier requests in the way.
    blockers: u32,
    /// Where it waits, if it had to.
    ticket: Option<Arc<Ticket>>,
}

#[derive(Default)]
struct Requests {
    tree: IntervalTree<Request>,
    /// Tickets without a waiter.
    tickets: Vec<Arc<Ticket>>,
    numbered: u64,
}

impl Requests {
    /// How many requests are in the way.
    fn blockers(&mut self, range: Range, shared: bool) -> u32 {
        let mut blockers = 0;
        self.tree.overlapping(range, |earlier| blockers += u32::from(!(shared && earlier.shared)));
        blockers
    }

    fn enter(&mut self, range: Range, shared: bool) -> (Handle, Option<Arc<Ticket>>) {
        let blockers = self.blockers(range, shared);
        let ticket = (blockers > 0).then(|| self.ticket());
        self.numbered += 1;
        let request = Request { number: self.numbered, shared, blockers, ticket: ticket.clone() };
        (self.tree.insert(range, request), ticket)
    }

    fn ticket(&mut self) -> Arc<Ticket> {
        let ticket = self.tickets.pop().unwrap_or_default();
        ticket.reset();
        ticket
    }

    fn leave(&mut self, handle: Handle) {
        let (range, gone) = self.tree.remove(handle);
        self.tree.overlapping(range, |later| {
            if later.number < gone.number || (later.shared && gone.shared) {
                return;
            }
            later.blockers -= 1;
            if later.blockers == 0 {
                later.ticket.as_ref().expect("a blocked waiter has a ticket").grant();
            }
        });
        self.tickets.extend(gone.ticket);
    }
}

/// A range lock on a tree, in the order of requests. One that `SHARES` has readers.
pub struct TreeLock<W: Waiting, const SHARES: bool> {
    requests: W::Guarding<Requests>,
    waiting: PhantomData<W>,
}

/// Lustre's range lock: exclusive, in the order of requests.
pub type TreeEx<W = Park> = TreeLock<W, false>;

/// The reader-writer range lock proposed for Linux: in the order of requests, readers together.
pub type TreeRw<W = Park> = TreeLock<W, true>;

impl<W: Waiting, const SHARES: bool> Default for TreeLock<W, SHARES> {
    fn default() -> Self {
        Self { requests: W::Guarding::new(Requests::default()), waiting: PhantomData }
    }
}

impl<W: Waiting, const SHARES: bool> TreeLock<W, SHARES> {
    /// How long threads waited for the lock around the tree, in nanoseconds, all together.
    pub fn waited_for_tree_ns(&self) -> u64 {
        self.requests.waited_ns()
    }

    fn lock_as(&self, range: Range, shared: bool) -> TreeToken {
        let (handle, ticket) = self.requests.with(|requests| requests.enter(range, shared));
        if let Some(ticket) = ticket {
            W::wait(&ticket);
        }
        TreeToken(handle)
    }

    fn try_lock_as(&self, range: Range, shared: bool) -> Option<TreeToken> {
        self.requests.with(|requests| {
            let free = requests.blockers(range, shared) == 0;
            free.then(|| TreeToken(requests.enter(range, shared).0))
        })
    }
}

impl<W: Waiting, const SHARES: bool> RawRangeLock for TreeLock<W, SHARES> {
    type Token = TreeToken;
    const NAME: &'static str = if SHARES { W::TREE_RW } else { W::TREE_EX };

    fn lock(&self, range: Range) -> TreeToken {
        self.lock_as(range, false)
    }

    fn try_lock(&self, range: Range) -> Option<TreeToken> {
        self.try_lock_as(range, false)
    }

    fn unlock(&self, token: TreeToken) {
        self.requests.with(|requests| requests.leave(token.0));
    }
}

impl<W: Waiting> RawRangeRwLock for TreeRw<W> {
    fn lock_shared(&self, range: Range) -> TreeToken {
        self.lock_as(range, true)
    }

    fn try_lock_shared(&self, range: Range) -> Option<TreeToken> {
        self.try_lock_as(range, true)
    }
}
