//! Tasks of one thread, run as one future.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Runs these futures together to their ends; their outputs, in the same order. Each poll polls all
/// that have not ended, and again for as long as one of them wakes another: what they wait for
/// besides may be known only to the caller that polls.
pub async fn together<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut parts: Vec<_> =
        futures.into_iter().map(|future| Part::Runs(Box::pin(future))).collect();
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(Arc::clone(&woken));
    poll_fn(|outer| {
        woken.wakes(outer.waker());
        let mut cx = Context::from_waker(&waker);
        loop {
            woken.anybody.store(false, Ordering::Relaxed);
            let running = parts.iter_mut().filter_map(|part| part.go_on(&mut cx)).count();
            if running == 0 {
                return Poll::Ready(());
            }
            if !woken.anybody.load(Ordering::Acquire) {
                return Poll::Pending;
            }
        }
    })
    .await;
    parts.into_iter().map(Part::output).collect()
}

enum Part<F: Future> {
    Runs(Pin<Box<F>>),
    Ended(F::Output),
}

impl<F: Future> Part<F> {
    /// Polls it if it has not ended; `None` if it has now.
    fn go_on(&mut self, cx: &mut Context<'_>) -> Option<()> {
        let Self::Runs(future) = self else { return None };
        match future.as_mut().poll(cx) {
            Poll::Pending => Some(()),
            Poll::Ready(output) => {
                *self = Self::Ended(output);
                None
            }
        }
    }

    fn output(self) -> F::Output {
        match self {
            Self::Ended(output) => output,
            Self::Runs(_) => panic!("all have ended"),
        }
    }
}

/// Whether a future was woken since this was last asked, and who polls all of them.
#[derive(Debug, Default)]
struct Woken {
    anybody: AtomicBool,
    outer: Mutex<Option<Waker>>,
}

impl Woken {
    /// From now on, what wakes one of the futures wakes this.
    fn wakes(&self, outer: &Waker) {
        let mut known = self.outer.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.as_ref().is_some_and(|known| known.will_wake(outer)) {
            *known = Some(outer.clone());
        }
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.anybody.store(true, Ordering::Release);
        let outer = self.outer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(outer) = outer {
            outer.wake();
        }
    }
}
