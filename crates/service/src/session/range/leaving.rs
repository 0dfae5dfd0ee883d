//! Ranges that are released by a server, for a caller that asks how that goes.

use std::fmt;
use std::mem::{ManuallyDrop, take};
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::session::state::{Errand, HeldBy, Released, Table};
use crate::session::waiter::Fate;

/// Held until it is asked: a thread releases them itself, for a task the session's thread does. If
/// nobody asks they are let go of.
pub(in crate::session) struct Leaving {
    table: Arc<Table>,
    /// Until it is asked.
    held: Vec<HeldBy>,
    /// How it goes, for a task.
    fate: Option<Arc<Fate<Released>>>,
}

impl Leaving {
    pub(super) fn new(table: Arc<Table>, held: Vec<HeldBy>) -> Self {
        Self { table, held, fate: None }
    }

    /// How it went, or the task is woken when that is known.
    pub(in crate::session) fn poll(&mut self, cx: &Context<'_>) -> Poll<Released> {
        if self.table.hub().is_forked() {
            return Poll::Ready(self.release());
        }
        self.fate.get_or_insert_with(|| begin(&self.table, take(&mut self.held))).poll(cx)
    }

    /// How it went, blocking this thread.
    pub(in crate::session) fn block(mut self) -> Released {
        match &self.fate {
            Some(fate) => fate.block(None).expect("it ends at some time"),
            None => self.release(),
        }
    }

    /// Releases them, blocking this thread.
    fn release(&mut self) -> Released {
        let released = take(&mut self.held).into_iter().map(|by| self.table.release(by));
        released.fold(Ok(()), Result::and)
    }
}

/// Has the session's thread release them.
fn begin(table: &Arc<Table>, held: Vec<HeldBy>) -> Arc<Fate<Released>> {
    let fate = Arc::<Fate<Released>>::default();
    table.hub().watch();
    table.start(Errand::Release { held, fate: Some(Arc::clone(&fate)) });
    fate
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let held = take(&mut self.held);
        // A forked child waits for nothing, and its parent goes on.
        if self.table.hub().is_forked() {
            let _ = ManuallyDrop::new(held);
            return;
        }
        held.into_iter().for_each(|by| self.table.let_go(by));
        if self.fate.is_some() {
            self.table.hub().watch_no_more();
        }
    }
}

impl fmt::Debug for Leaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaving").field("table", &self.table.name()).finish_non_exhaustive()
    }
}
