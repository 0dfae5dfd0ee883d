//! Operations of one handle that are under way together.
//!
//! By a server each operation waits for a few round trips, one after the other. Those of different
//! keys need not wait for each other: what they post in one moment goes out together, and is
//! answered together. Of one key there is one under way at a time, in the order in which they came,
//! so that it is as if each had waited for the last.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use farlock_fabric::Park as _;

use super::part::Part;
use crate::connection::Lane;

/// So many are under way at a time.
const AT_ONCE: usize = 32;

/// An operation. It tells by itself what it has come to, and is never dropped before.
pub(super) type Act<'p> = Pin<Box<dyn Future<Output = ()> + 'p>>;

/// Operations on one part of a store, by one handle.
#[derive(Default)]
pub(super) struct Pipeline<'p> {
    /// By keys of which there is one that can begin or has begun: those behind it.
    behind: HashMap<Vec<u8>, VecDeque<Act<'p>>>,
    /// Those that can begin.
    ready: VecDeque<(Vec<u8>, Act<'p>)>,
    under_way: Vec<(Vec<u8>, Act<'p>)>,
    woken: Arc<Woken>,
}

/// Whether any of them is to be polled again: then all are.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl<'p> Pipeline<'p> {
    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.under_way.is_empty()
    }

    /// One more, on this key; an empty one is none, and waits for no other.
    pub(super) fn add(&mut self, key: &[u8], act: impl Future<Output = ()> + 'p) {
        let act: Act<'p> = Box::pin(act);
        if key.is_empty() {
            return self.ready.push_back((Vec::new(), act));
        }
        match self.behind.get_mut(key) {
            Some(behind) => behind.push_back(act),
            None => {
                self.behind.insert(key.to_vec(), VecDeque::new());
                self.ready.push_back((key.to_vec(), act));
            }
        }
    }

    /// Goes on with all of them, which use this lane, as far as they come without waiting. Returns
    /// whether any is left.
    pub(super) fn go_on(&mut self, lane: &Lane) -> bool {
        let waker = Waker::from(Arc::clone(&self.woken));
        let mut cx = Context::from_waker(&waker);
        loop {
            self.woken.0.store(false, Ordering::Relaxed);
            let begins = self.ready.len().min(AT_ONCE - self.under_way.len());
            self.under_way.extend(self.ready.drain(..begins));
            let before = self.under_way.len();
            let (behind, ready) = (&mut self.behind, &mut self.ready);
            lane.defer(|| {
                self.under_way.retain_mut(|(key, act)| {
                    let is_pending = act.as_mut().poll(&mut cx).is_pending();
                    if !is_pending {
                        let key = std::mem::take(key);
                        match behind.get_mut(&key).and_then(VecDeque::pop_front) {
                            Some(next) => ready.push_back((key, next)),
                            None => drop(behind.remove(&key)),
                        }
                    }
                    is_pending
                });
            });
            // Those that have ended may have kept others waiting.
            let has_ended = self.under_way.len() < before;
            if self.is_empty() || !has_ended && !self.woken.0.load(Ordering::Acquire) {
                return !self.is_empty();
            }
        }
    }

    /// Does all of them, blocking this thread.
    pub(super) fn finish(mut self, part: &Part) {
        while self.go_on(part.lane()) {
            part.lane().park();
        }
    }
}
