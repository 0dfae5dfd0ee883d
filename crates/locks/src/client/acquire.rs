//! Acquiring, in each of a client's faces.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use farlock_fabric::{Addr, Endpoint, Nanos, Park, Slot};

use super::core::{At, Client, InLine};
use super::guard::Guard;
use crate::AcquireError;
use crate::lock::{Lock, true_want};
use crate::site::Site;
use crate::wait::within;
use crate::want::{Mode, Want};

impl<E: Endpoint, L: Lock<E>> Client<E, L> {
    /// Acquires the lock whose word lies at `lock`.
    ///
    /// Dropping the future withdraws; the withdrawal happens in [`Client::settle`]. A crash leaves
    /// the lock to be repaired by its next waiter.
    #[inline]
    pub fn acquire(&self, lock: Addr, want: impl Into<L::Want>) -> Acquire<'_, E, L> {
        let want = true_want::<E, L>(want.into());
        Acquire { client: self, lock, want, slot: 0, at: At::Start }
    }

    /// Acquires the lock alone.
    #[inline]
    pub fn exclusive(&self, lock: Addr) -> Acquire<'_, E, L> {
        self.acquire(lock, Mode::Exclusive)
    }

    /// Acquires the lock together with other shared holders.
    #[inline(always)]
    pub fn shared(&self, lock: Addr) -> Acquire<'_, E, L> {
        self.acquire(lock, Mode::Shared)
    }

    /// Acquires the lock, or gives up with [`AcquireError::TimedOut`] after `nanos` nanoseconds.
    pub async fn acquire_within(
        &self,
        lock: Addr,
        want: impl Into<L::Want>,
        nanos: Nanos,
    ) -> Result<Guard<'_, E, L>, AcquireError> {
        let acquired = within(self.endpoint(), nanos, self.acquire(lock, want)).await;
        acquired.unwrap_or(Err(AcquireError::TimedOut))
    }

    /// Acquires the lock if that needs no waiting; `None` if another holder has it. Leaves no trace
    /// where it fails. Under many shared holders that come and go, a shared attempt may give up
    /// after 64 rounds though nobody holds the lock alone.
    pub async fn try_acquire(
        &self,
        lock: Addr,
        want: impl Into<L::Want>,
    ) -> Result<Option<Guard<'_, E, L>>, AcquireError> {
        let want = true_want::<E, L>(want.into());
        let index = self.core.take_slot(lock, want).ok_or(AcquireError::NoSlot)?;
        match self.core.try_at_once(index) {
            Some(result) => result?,
            None => InLine { core: &self.core, index, finished: false }.await?,
        }
        let held = self.core.slot(index).grant.get().is_some();
        Ok(held.then(|| Guard { client: self, index }))
    }
}

impl<E: Park, L: Lock<E>> Client<E, L> {
    /// [`Client::acquire`], blocking.
    #[inline(always)]
    pub fn lock(
        &self,
        lock: Addr,
        want: impl Into<L::Want>,
    ) -> Result<Guard<'_, E, L>, AcquireError> {
        // One branch at the door, not one at every step.
        let want = true_want::<E, L>(want.into());
        match want.mode() {
            Mode::Exclusive => self.lock_as(lock, want.in_mode(Mode::Exclusive)),
            Mode::Shared => self.lock_as(lock, want.in_mode(Mode::Shared)),
        }
    }

    #[inline(always)]
    fn lock_as(&self, lock: Addr, want: L::Want) -> Result<Guard<'_, E, L>, AcquireError> {
        let Some(index) = self.core.take_slot(lock, want) else {
            return Err(AcquireError::NoSlot);
        };
        match self.core.open_at_once(index, lock, want) {
            Some(Ok(())) => {}
            Some(Err(fault)) => return Err(fault.into()),
            None => self.block_on_slot(index)?,
        }
        Ok(Guard { client: self, index })
    }
}

/// An acquisition in progress.
#[must_use = "a lock is acquired by awaiting its acquisition"]
pub struct Acquire<'c, E: Endpoint, L: Lock<E>> {
    client: &'c Client<E, L>,
    lock: Addr,
    want: L::Want,
    slot: u8,
    at: At<'c, E, L>,
}

impl<'c, E: Endpoint, L: Lock<E>> Acquire<'c, E, L> {
    /// The slot that waits for the lock, once the acquisition was polled and is pending: whose
    /// record a service may annotate.
    pub fn slot(&self) -> Slot {
        Slot(self.slot)
    }

    /// Where it waits; `None` before it waits and once it has ended.
    pub(super) fn site(&self) -> Option<Site<'_, E>> {
        matches!(self.at, At::InLine(_)).then(|| self.client.core.slots.site(self.slot))
    }

    /// The part that needs no waiting; `None` if there is more to do.
    #[inline(always)]
    fn try_at_once(&mut self) -> Option<Result<Guard<'c, E, L>, AcquireError>> {
        let client = self.client;
        let Some(index) = client.core.take_slot(self.lock, self.want) else {
            self.at = At::Done;
            return Some(Err(AcquireError::NoSlot));
        };
        self.slot = index;
        let Some(result) = client.core.open_at_once(index, self.lock, self.want) else {
            self.at = At::InLine(InLine { core: &client.core, index, finished: false });
            return None;
        };
        self.at = At::Done;
        Some(result.map(|()| Guard { client, index }).map_err(AcquireError::from))
    }

    #[cold]
    fn poll_in_line(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Guard<'c, E, L>, AcquireError>> {
        let At::InLine(in_line) = &mut self.at else {
            panic!("a finished acquisition is not polled again");
        };
        let polled = Pin::new(in_line).poll(cx);
        polled.map(|result| {
            self.at = At::Done;
            let guard = result.map(|()| Guard { client: self.client, index: self.slot });
            guard.map_err(AcquireError::from)
        })
    }
}

impl<'c, E: Endpoint, L: Lock<E>> Future for Acquire<'c, E, L> {
    type Output = Result<Guard<'c, E, L>, AcquireError>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let At::Start = this.at
            && let Some(result) = this.try_at_once()
        {
            return Poll::Ready(result);
        }
        this.poll_in_line(cx)
    }
}
