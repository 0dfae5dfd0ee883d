//! Bounds on waiting.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use farlock_fabric::{Endpoint, Nanos, Waiting};

/// Runs `future` for at most `nanos` nanoseconds of the endpoint's clock. `None` when they have
/// passed: the future was dropped.
pub fn within<E: Endpoint, F: Future>(endpoint: &E, nanos: Nanos, future: F) -> Timeout<'_, E, F> {
    Timeout { sleep: endpoint.sleep(nanos), future: Some(Box::pin(future)) }
}

/// A future with a bound on its time.
#[must_use = "futures do nothing until they are awaited"]
pub struct Timeout<'e, E: Endpoint, F> {
    sleep: Waiting<'e, E>,
    future: Option<Pin<Box<F>>>,
}

impl<E: Endpoint, F: Future> Future for Timeout<'_, E, F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let future = this.future.as_mut().expect("a finished future is not polled again");
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            this.future = None;
            return Poll::Ready(Some(output));
        }
        if Pin::new(&mut this.sleep).poll(cx).is_ready() {
            this.future = None;
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}
