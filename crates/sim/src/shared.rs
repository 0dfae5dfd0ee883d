//! What a world, its handles and its endpoints share.

use std::cell::{Cell, RefCell, RefMut};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

use crate::config::Mode;
use crate::core::Core;
use crate::flight::NONE;
use crate::queue::{Event, FOR_GOOD};

pub(crate) type BoxedFuture = Pin<Box<dyn Future<Output = ()>>>;

/// What a world, its handles and its endpoints share.
pub(crate) struct Shared {
    pub(crate) core: RefCell<Core>,
    /// By task. Empty while the task is polled, and once it has ended.
    pub(crate) futures: RefCell<Vec<Option<BoxedFuture>>>,
    pub(crate) nodes_named: Cell<u16>,
}

impl Shared {
    /// Polls a task, unless it is gone or paused.
    #[inline]
    pub(crate) fn poll<'s>(&'s self, mut shared: RefMut<'s, Core>, task: u32) -> RefMut<'s, Core> {
        let core = &mut *shared;
        let meta = &mut core.tasks[task as usize];
        meta.queued = false;
        let resume = core.seats[usize::from(meta.endpoint.index)].paused_until;
        if resume > if core.mode == Mode::Explored { 0 } else { core.now } {
            if !std::mem::replace(&mut meta.wakes, true) {
                if resume == FOR_GOOD {
                    core.halted.push(task);
                } else {
                    core.push(resume, Event::Wake(task));
                }
            }
            return shared;
        }
        let Some(mut future) = self.futures.borrow_mut()[task as usize].take() else {
            return shared;
        };
        core.current = task;
        core.history.stats.polls += 1;
        drop(shared);
        let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let mut core = self.core.borrow_mut();
        core.current = NONE;
        let live = &mut core.tasks[task as usize].live;
        *live &= polled.is_pending();
        if *live {
            self.futures.borrow_mut()[task as usize] = Some(future);
            return core;
        }
        // What the future holds may act as it is dropped.
        drop(core);
        drop(future);
        self.core.borrow_mut()
    }

    /// Takes note that the visitor is about to be polled.
    pub(crate) fn is_visited(&self, visitor: u32) -> bool {
        let mut core = self.core.borrow_mut();
        core.history.stats.polls += 1;
        let meta = &mut core.tasks[visitor as usize];
        meta.queued = false;
        meta.live
    }

    /// Drops the tasks of endpoints that crashed. Their destructors may post verbs, of which
    /// nothing comes. A task that is being polled is dropped after that.
    pub(crate) fn bury(&self) {
        let mut dropped = Vec::new();
        {
            let mut core = self.core.borrow_mut();
            let unburied = std::mem::take(&mut core.unburied);
            let mut futures = self.futures.borrow_mut();
            for (task, meta) in core.tasks.iter_mut().enumerate() {
                if meta.live && unburied.contains(&meta.endpoint) {
                    meta.live = false;
                    dropped.extend(futures[task].take());
                }
            }
        }
        drop(dropped);
    }
}
