//! Blocks whose use is over: their counts are on the way, and nobody waits for them.
//!
//! `count: generation - 1 -> generation` says that this use is over, by any client and however
//! often. So what was lost is posted again, and two clients that both find a block unused do no
//! harm.

use std::future::poll_fn;
use std::task::{Context, Poll};

use farlock_fabric::{Endpoint, Fault, Posted, Verb};

use super::core::Store;
use crate::index::Index;
use crate::shape::Block;
use crate::sync::Scheme;

/// How many may be on their way before an operation waits for one.
pub(super) const FREES_MAX: usize = 16;

/// How many one call waits for.
const REAPED_MAX: u32 = 4096;

impl<S: Scheme, I: Index> Store<S, I> {
    /// The use of a block is over: no slot names it, nor will again.
    pub(super) fn retire(&self, block: Block) {
        match self.post_free(block) {
            Posted::Done(Ok(())) => self.pool.borrow_mut().freed(block),
            Posted::Done(Err(fault)) if fault != Fault::Lost => {}
            posted => self.frees.borrow_mut().push_back((block, posted)),
        }
    }

    fn post_free(&self, block: Block) -> Posted {
        let Some(addr) = self.state_of(block) else { return Posted::Done(Err(Fault::OutOfBounds)) };
        let before = block.generation.wrapping_sub(1);
        let (compare, swap) = (before.into(), block.generation.into());
        self.endpoint().post_aside(Verb::Cas64 { addr, compare, swap })
    }

    /// Looks at every free once, then waits until no more than so many are on their way. Where a
    /// look may send what is to travel with the next verbs, it looks only if they are more.
    pub(super) async fn reap(&self, most: usize) {
        if S::Endpoint::COMPLETES_IN_POST && self.frees.borrow().len() <= most {
            return;
        }
        poll_fn(|cx| {
            self.look_at_frees(cx);
            Poll::Ready(())
        })
        .await;
        for _ in 0..REAPED_MAX {
            if self.frees.borrow().len() <= most {
                break;
            }
            self.await_one().await;
        }
    }

    /// Looks at each once. What is still on its way stays.
    fn look_at_frees(&self, cx: &mut Context<'_>) {
        let count = self.frees.borrow().len();
        for _ in 0..count {
            let Some((block, posted)) = self.frees.borrow_mut().pop_front() else { break };
            match self.poll_free(posted, cx) {
                Poll::Pending => self.frees.borrow_mut().push_back((block, posted)),
                Poll::Ready(ended) => self.has_ended(block, ended),
            }
        }
    }

    /// Waits for the oldest. It is nobody else's meanwhile, so that its completion wakes this task.
    async fn await_one(&self) {
        let Some(free) = self.frees.borrow_mut().pop_front() else { return };
        let mut waiting = Waiting { store: self, free: Some(free) };
        let ended = poll_fn(|cx| self.poll_free(free.1, cx)).await;
        waiting.free = None;
        self.has_ended(free.0, ended);
    }

    fn poll_free(&self, posted: Posted, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        match posted {
            Posted::Done(ended) => Poll::Ready(ended),
            Posted::Pending(ticket) => self.endpoint().poll_posted(ticket, cx),
        }
    }

    fn has_ended(&self, block: Block, ended: Result<(), Fault>) {
        match ended {
            Ok(()) => self.pool.borrow_mut().freed(block),
            Err(Fault::Lost) => {
                let posted = self.post_free(block);
                self.frees.borrow_mut().push_back((block, posted));
            }
            // Refused: a repairer that takes the chunk over finds that nothing points to the block.
            Err(_) => {}
        }
    }
}

/// A free that a task waits for. Dropped before its end it goes back to the others.
struct Waiting<'s, S: Scheme, I: Index> {
    store: &'s Store<S, I>,
    free: Option<(Block, Posted)>,
}

impl<S: Scheme, I: Index> Drop for Waiting<'_, S, I> {
    fn drop(&mut self) {
        self.store.frees.borrow_mut().extend(self.free.take());
    }
}
