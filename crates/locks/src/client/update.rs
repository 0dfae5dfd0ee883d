//! A lock held to update: to read what it protects, and to write it later.
//!
//! Such a hold leaves the readers inside that came before it, where the lock can
//! ([`Lock::updates`]), and lets nobody else in. [`UpdateGuard::upgrade`] waits until they
//! have left. Two readers that both want to write would wait for each other for ever; two that come
//! to update cannot, since the second waits for the first to release. It was first told of DSLR
//! (Yoon, Chowdhury, Mozafari, SIGMOD'18, section 5.2).

use std::fmt;
use std::mem::ManuallyDrop;
use std::rc::Rc;

use farlock_fabric::{Addr, Endpoint, Nanos};

use super::core::{Client, Core, InLine};
use super::guard::{Guard, Release};
use crate::event::Event;
use crate::lock::Lock;
use crate::token::Token;
use crate::want::Mode;
use crate::{AcquireError, UpgradeError};

impl<E: Endpoint, L: Lock<E>> Client<E, L> {
    /// Acquires the lock whose word lies at `lock` to update what it protects: to read it now, and
    /// to write it once the hold is upgraded. Where the lock cannot tell such holds from exclusive
    /// ones, and seldom elsewhere, it waits for readers like a writer: who holds the same lock in
    /// another slot waits for itself.
    ///
    /// Dropping the future withdraws; the withdrawal happens in [`Client::settle`]. A crash leaves
    /// the lock to be repaired by its next waiter.
    ///
    /// # Errors
    /// There is no free slot, or a verb failed.
    pub async fn update(&self, lock: Addr) -> Result<UpdateGuard<'_, E, L>, AcquireError> {
        let taken = self.core.take_slot(lock, Mode::Exclusive.into());
        let index = taken.ok_or(AcquireError::NoSlot)?;
        self.core.start_acquiring_to_update(index);
        InLine { core: &self.core, index, finished: false }.await?;
        Ok(UpdateGuard { guard: Guard { client: self, index } })
    }
}

/// A lock held to update. What it protects must not be written before [`UpdateGuard::upgrade`].
/// A dropped guard is released by [`Client::settle`].
#[must_use = "a lock is held as long as its guard lives"]
pub struct UpdateGuard<'c, E: Endpoint, L: Lock<E>> {
    guard: Guard<'c, E, L>,
}

impl<'c, E: Endpoint, L: Lock<E>> UpdateGuard<'c, E, L> {
    /// Waits until the readers that came before have left: the hold is exclusive then, with the
    /// same token.
    ///
    /// Dropping the future releases; the release happens in [`Client::settle`], when the readers
    /// have left. A crash leaves the lock as that of an exclusive holder does.
    ///
    /// # Errors
    /// The lock was lost to another client when the lease had ended, or a verb failed. Nothing is
    /// held then.
    pub async fn upgrade(self) -> Result<Guard<'c, E, L>, UpgradeError> {
        let this = ManuallyDrop::new(self.guard);
        let (client, index) = (this.client, this.index);
        client.core.start_upgrading(index);
        InLine { core: &client.core, index, finished: false }.await?;
        match client.core.slot(index).grant.get() {
            Some(_) => Ok(Guard { client, index }),
            None => Err(UpgradeError::Lost),
        }
    }

    /// The fencing token of this grant; `None` if this kind of lock has none.
    pub fn token(&self) -> Option<Token> {
        self.guard.token()
    }

    /// When this hold ends by the clock of its client's endpoint, if it ends by itself. An upgrade
    /// that had to wait may put it off.
    pub fn expires(&self) -> Option<Nanos> {
        self.guard.expires()
    }

    /// Releases the lock without having written.
    pub fn release(self) -> Release<'c, E, L> {
        self.guard.release()
    }
}

impl<E: Endpoint, L: Lock<E>> fmt::Debug for UpdateGuard<'_, E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UpdateGuard({:?})", self.guard)
    }
}

impl<E: Endpoint, L: Lock<E>> Core<E, L> {
    fn start_acquiring_to_update(self: &Rc<Self>, index: u8) {
        let core = Rc::clone(self);
        let task = async move {
            let slots = &core.slots;
            let site = slots.site(index);
            let acquired = match slots.kind.updates() {
                Some(updates) => updates.acquire_to_update(site).await,
                None => slots.acquire(&site).await,
            };
            match acquired {
                Ok(grant) => {
                    slots.hold(index, slots.slot(index).want.get(), grant);
                    Ok(())
                }
                Err(fault) => {
                    slots.fail(index, fault);
                    Err(core.failed(index, fault))
                }
            }
        };
        self.start_task(index, Box::pin(task));
    }

    /// Leaves the slot without a grant if the lock was lost.
    fn start_upgrading(self: &Rc<Self>, index: u8) {
        let core = Rc::clone(self);
        let task = async move {
            let slots = &core.slots;
            let (site, grant) = (slots.site(index), slots.grant(index));
            let upgraded = match slots.kind.updates() {
                Some(updates) => updates.upgrade(site, grant).await,
                // It is exclusive from the first.
                None => Ok(Some(grant)),
            };
            match upgraded {
                Ok(Some(grant)) => slots.hold(index, slots.slot(index).want.get(), grant),
                Ok(None) => {
                    site.event(Event::Superseded { lock: site.lock });
                    slots.give_back(index);
                    core.set_free(index);
                }
                Err(fault) => {
                    slots.slot(index).grant.set(None);
                    slots.fail(index, fault);
                    return Err(core.failed(index, fault));
                }
            }
            Ok(())
        };
        self.start_task(index, Box::pin(task));
    }
}
