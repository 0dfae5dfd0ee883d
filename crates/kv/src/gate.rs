//! What one task of a client does at a time.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use farlock_fabric::{Endpoint, Nanos};
use farlock_locks::within;

/// How long a task waits to be woken before it looks by itself: wakers may do nothing.
const BETWEEN_LOOKS_NS: Nanos = 20_000;

/// So often it looks. Then it waits no more: who is inside may never be polled again.
const LOOKS: u32 = 100;

/// Lets one task in at a time, in whichever order they come to be polled.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_shut: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

/// A task is inside, until this is dropped.
pub(crate) struct Inside<'g>(&'g Gate);

impl Gate {
    /// Comes in; or goes on without, where another task stays inside for 2 ms.
    pub(crate) async fn enter<E: Endpoint>(&self, endpoint: &E) -> Option<Inside<'_>> {
        for _ in 0..LOOKS {
            let inside = within(endpoint, BETWEEN_LOOKS_NS, self.opens()).await;
            if inside.is_some() {
                return inside;
            }
        }
        None
    }

    async fn opens(&self) -> Inside<'_> {
        poll_fn(|cx| {
            if !self.is_shut.replace(true) {
                return Poll::Ready(Inside(self));
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|known| known.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}

impl Drop for Inside<'_> {
    /// All are woken: the first of them may be dropped before it comes in.
    fn drop(&mut self) {
        self.0.is_shut.set(false);
        let waiting = self.0.waiting.take();
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    #[test]
    fn one_is_inside_at_a_time_and_those_that_are_dropped_keep_nobody_out() {
        let gate = Gate::default();
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = Box::pin(gate.opens());
        let Poll::Ready(inside) = first.as_mut().poll(&mut cx) else { panic!("nobody is inside") };
        let mut waits = Box::pin(gate.opens());
        let mut also = pin!(gate.opens());
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        assert!(also.as_mut().poll(&mut cx).is_pending());
        drop(waits);
        drop(inside);
        assert!(also.as_mut().poll(&mut cx).is_ready());
    }
}
