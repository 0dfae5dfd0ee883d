//! What ends the sleep of a thread, wherever it sleeps: on a condition, or on the channel that it
//! reads for all.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::endpoint::Nanos;
use crate::tcp::clock::boot_time;

/// Makes a parked thread of this process return from [`Park::park`](crate::Park::park), or from
/// [`Connection::park_all`](crate::Connection::park_all). Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Unparker(Arc<Bell>);

#[derive(Debug, Default)]
struct Bell {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_rung: bool,
    /// The sleeper reads a channel, and this interrupts it.
    reads: Option<Arc<Interrupt>>,
}

impl Unparker {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this mutex.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the current sleep by this bell, or the next one.
    pub(crate) fn ring(&self) {
        let mut state = self.state();
        if std::mem::replace(&mut state.is_rung, true) {
            return;
        }
        if let Some(interrupt) = &state.reads {
            interrupt.set();
        }
        drop(state);
        self.0.changed.notify_one();
    }

    /// Whether it rang; if so it has been heard.
    pub(super) fn hear(&self) -> bool {
        std::mem::take(&mut self.state().is_rung)
    }

    /// The sleeper is about to read a channel that this interrupts. Returns whether it rang before:
    /// then it is not to sleep.
    pub(super) fn begin_reading(&self, interrupt: &Arc<Interrupt>) -> bool {
        let mut state = self.state();
        state.reads = Some(Arc::clone(interrupt));
        state.is_rung
    }

    pub(super) fn end_reading(&self) {
        self.state().reads = None;
    }

    /// Sleeps until it rings, or until a time of the boot clock.
    pub(super) fn sleep(&self, until: Option<Nanos>) {
        let mut state = self.state();
        while !state.is_rung {
            let Some(until) = until else {
                let woken = self.0.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_sub(boot_time());
            if left == 0 {
                return;
            }
            let woken = self.0.changed.wait_timeout(state, Duration::from_nanos(left));
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A descriptor that can be read once it was set: it ends a poll of others beside it.
#[derive(Debug)]
pub(crate) struct Interrupt(OwnedFd);

impl Interrupt {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn set(&self) {
        // It fails only where it is set more often than 64 bits count, and then it is set.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}
