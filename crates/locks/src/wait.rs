//! Bounds on waiting.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use farlock_fabric::{Endpoint, Nanos};

/// Runs `future` for at most `nanos` nanoseconds of the endpoint's clock. `None` when they have
/// passed: the future was dropped.
pub async fn within<E: Endpoint, F: Future>(
    endpoint: &E,
    nanos: Nanos,
    future: F,
) -> Option<F::Output> {
    let mut sleep = endpoint.sleep(nanos);
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Pin::new(&mut sleep).poll(cx).map(|_| None),
    })
    .await
}
