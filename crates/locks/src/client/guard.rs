//! A held lock, and its release.

use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use farlock_fabric::{Endpoint, Nanos, Park, Slot};

use super::core::{At, Client, Core, InLine};
use crate::lock::Lock;
use crate::promise::Granted;
use crate::token::Token;
use crate::want::{Mode, Want};
use crate::{AcquireError, ReleaseError};

/// A held lock. Release it with [`Guard::release`]; a dropped guard is released by
/// [`Client::settle`].
#[must_use = "a lock is held as long as its guard lives"]
pub struct Guard<'c, E: Endpoint, L: Lock<E>> {
    pub(super) client: &'c Client<E, L>,
    pub(super) index: u8,
}

impl<'c, E: Endpoint, L: Lock<E>> Guard<'c, E, L> {
    /// The fencing token of this grant; `None` if this kind of lock has none.
    #[inline]
    pub fn token(&self) -> Option<Token> {
        self.client.core.slots.token(self.index)
    }

    /// In which mode the lock is held: exclusively wherever this kind of lock has no readers.
    pub fn mode(&self) -> Mode {
        self.client.core.slot(self.index).want.get().mode()
    }

    /// The slot that holds the lock: whose record a service may annotate.
    pub fn slot(&self) -> Slot {
        Slot(self.index)
    }

    /// The generation of the lock in which it was granted.
    pub fn generation(&self) -> u64 {
        self.grant().generation()
    }

    /// When this hold ends by the clock of its client's endpoint, if it ends by itself: whoever
    /// holds it longer has lost it, and must not act on what it protects. `None`: it lasts until it
    /// is released.
    pub fn expires(&self) -> Option<Nanos> {
        self.grant().expires()
    }

    /// Releases the lock. The lock is free when the future resolves; dropped earlier, the release
    /// goes on in [`Client::settle`].
    #[inline(always)]
    pub fn release(self) -> Release<'c, E, L> {
        let this = ManuallyDrop::new(self);
        Release { client: this.client, index: this.index, at: At::Start }
    }

    /// Turns the hold into one in this mode where it stands, if that is another one: see
    /// [`Convert`](crate::lock::Convert). [`Guard::mode`] says whether it could; if not, it is held
    /// as before.
    ///
    /// Dropping the future releases; the release happens in [`Client::settle`]. A crash leaves the
    /// lock as that of a holder does.
    ///
    /// # Errors
    /// A verb failed; nothing is held.
    pub async fn convert(self, mode: Mode) -> Result<Self, AcquireError> {
        if self.mode() == mode {
            return Ok(self);
        }
        let this = ManuallyDrop::new(self);
        let (client, index) = (this.client, this.index);
        client.core.start_converting(index, mode);
        InLine { core: &client.core, index, finished: false }.await?;
        Ok(Guard { client, index })
    }

    /// Lets go of a hold that ends by itself without releasing it, as if this client had died here:
    /// others are granted the lock when they have waited for the lease.
    ///
    /// # Panics
    /// If [`Guard::expires`] is `None`: then they would wait for ever.
    pub fn abandon(self) {
        assert!(self.expires().is_some(), "a hold that does not end by itself is released");
        let this = ManuallyDrop::new(self);
        let core = &this.client.core;
        core.slots.site(this.index).set_successor(None);
        core.slots.give_back(this.index);
        core.set_free(this.index);
    }

    /// The guard of what this slot holds, for whoever has taken it from its guard.
    pub(crate) fn of_slot(client: &'c Client<E, L>, index: u8) -> Self {
        Self { client, index }
    }

    /// Takes the hold from its guard: somebody else will make another.
    pub(crate) fn into_slot(self) -> u8 {
        ManuallyDrop::new(self).index
    }

    #[inline]
    pub(super) fn grant(&self) -> L::Grant {
        self.client.core.slots.grant(self.index)
    }
}

impl<E: Park, L: Lock<E>> Guard<'_, E, L> {
    /// [`Guard::release`], blocking.
    #[inline(always)]
    pub fn unlock(self) -> Result<(), ReleaseError> {
        let this = ManuallyDrop::new(self);
        match this.client.core.release_at_once(this.index) {
            Some(released) => released.map_err(ReleaseError::from),
            None => {
                let released = this.client.block_on_slot(this.index);
                this.client.core.release_result(this.index, released)
            }
        }
    }
}

impl<E: Endpoint, L: Lock<E>> Core<E, L> {
    /// Holds as before if the lock cannot.
    fn start_converting(self: &Rc<Self>, index: u8, mode: Mode) {
        let core = Rc::clone(self);
        let task = async move {
            let slots = &core.slots;
            let (want, site) = (slots.slot(index).want.get(), slots.site(index));
            let Some(conversion) = slots.kind.conversion() else { return Ok(()) };
            match conversion.convert(site, (want, slots.grant(index)), mode).await {
                Ok(Some(grant)) => {
                    let want = want.in_mode(mode);
                    slots.slot(index).want.set(want);
                    slots.hold(index, want, grant);
                    Ok(())
                }
                Ok(None) => Ok(()),
                Err(fault) => {
                    slots.slot(index).grant.set(None);
                    slots.fail(index, fault);
                    Err(core.failed(index, fault))
                }
            }
        };
        self.start_task(index, Box::pin(task));
    }
}

impl<E: Endpoint, L: Lock<E>> fmt::Debug for Guard<'_, E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let site = self.client.core.slots.site(self.index);
        write!(f, "Guard({:?} {:?} by {:?})", self.mode(), site.lock, site.me)
    }
}

impl<E: Endpoint, L: Lock<E>> Drop for Guard<'_, E, L> {
    fn drop(&mut self) {
        self.client.core.leave_to_settle(self.index);
    }
}

/// A release in progress.
#[must_use = "a lock is released by awaiting its release"]
pub struct Release<'c, E: Endpoint, L: Lock<E>> {
    client: &'c Client<E, L>,
    index: u8,
    at: At<'c, E, L>,
}

impl<E: Endpoint, L: Lock<E>> Release<'_, E, L> {
    #[inline(always)]
    fn try_at_once(&mut self) -> Option<Result<(), ReleaseError>> {
        let (core, index) = (&self.client.core, self.index);
        let Some(result) = core.release_at_once(index) else {
            self.at = At::InLine(InLine { core, index, finished: false });
            return None;
        };
        self.at = At::Done;
        Some(result.map_err(ReleaseError::from))
    }

    #[cold]
    fn poll_in_line(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ReleaseError>> {
        let At::InLine(in_line) = &mut self.at else {
            panic!("a finished release is not polled again");
        };
        Pin::new(in_line).poll(cx).map(|result| self.client.core.release_result(self.index, result))
    }
}

impl<E: Endpoint, L: Lock<E>> Future for Release<'_, E, L> {
    type Output = Result<(), ReleaseError>;

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

impl<E: Endpoint, L: Lock<E>> Drop for Release<'_, E, L> {
    #[inline]
    fn drop(&mut self) {
        if let At::Start = self.at {
            self.client.core.leave_to_settle(self.index);
        }
    }
}
