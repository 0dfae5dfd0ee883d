//! A held lock, and its release.

use std::cell::Cell;
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
use crate::site::Outcome;
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

    /// When this hold ends by the clock of its client's endpoint, if it ends by itself: a client
    /// that holds the lock longer has lost it, and must not act on what it protects. `None`: it
    /// lasts until it is released.
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

    /// Holds these parts of it, each by a guard of its own and under the same token, and lets go of
    /// the rest: see [`Divide`](crate::lock::Divide). The guard itself, and all is held as before,
    /// if it cannot be divided just now, or this client has no slots left.
    ///
    /// Dropping the future releases all; the release happens in [`Client::settle`]. A crash leaves
    /// the lock as that of a holder does.
    ///
    /// # Errors
    /// A verb failed; nothing is held.
    pub async fn divide(
        self,
        parts: Vec<L::Want>,
    ) -> Result<Result<Vec<Self>, Self>, AcquireError> {
        let (client, index) = (self.client, self.index);
        let core = &client.core;
        let lock = core.slot(index).lock.get();
        let taken = parts.iter().map_while(|&part| core.take_slot(lock, part));
        let taken: Vec<u8> = taken.collect();
        if taken.len() < parts.len() {
            core.put_back(&taken);
            return Ok(Err(self));
        }
        let this = ManuallyDrop::new(self);
        let abandoned = Abandoned::default();
        core.start_dividing(index, taken.clone(), Rc::clone(&abandoned.0));
        InLine { core, index, finished: false }.await?;
        Ok(match core.slot(index).grant.get() {
            None => Ok(taken.into_iter().map(|index| Guard { client, index }).collect()),
            Some(_) => Err(ManuallyDrop::into_inner(this)),
        })
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

    /// The guard of what this slot holds, once the hold was taken from its guard.
    pub(crate) fn of_slot(client: &'c Client<E, L>, index: u8) -> Self {
        Self { client, index }
    }

    /// Takes the hold from its guard: another guard will be made of the slot.
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

/// Whether the owner of a division has lost interest. It says so when it is dropped.
#[derive(Default)]
struct Abandoned(Rc<Cell<bool>>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

impl<E: Endpoint, L: Lock<E>> Core<E, L> {
    /// These slots have nothing.
    fn put_back(&self, slots: &[u8]) {
        for &index in slots {
            self.slots.give_back(index);
            self.set_free(index);
        }
    }

    /// The slots of the parts hold, and that of the whole is free, or they are and it holds. All
    /// are free if it was abandoned.
    fn start_dividing(self: &Rc<Self>, index: u8, parts: Vec<u8>, abandoned: Rc<Cell<bool>>) {
        let core = Rc::clone(self);
        let task = async move {
            let divided = core.divide(index, &parts).await;
            let divided = match divided {
                Ok(true) if abandoned.get() => core.leave(&parts).await.map(|()| true),
                divided => divided,
            };
            match divided {
                Ok(true) => {
                    core.put_back(&[index]);
                    Ok(())
                }
                Ok(false) => {
                    core.put_back(&parts);
                    Ok(())
                }
                Err(fault) => {
                    let all = parts.iter().copied().chain([index]);
                    all.for_each(|index| {
                        core.slot(index).grant.set(None);
                        core.slots.fail(index, fault);
                        core.failed(index, fault);
                    });
                    Err(fault)
                }
            }
        };
        self.start_task(index, Box::pin(task));
    }

    /// Takes all parts, and lets go of what they have not.
    async fn divide(&self, index: u8, parts: &[u8]) -> Outcome<bool> {
        let (slots, whole) = (&self.slots, self.held(index));
        let Some(division) = slots.kind.division() else { return Ok(false) };
        for (taken, &part) in (0..).zip(parts) {
            let want = slots.slot(part).want.get();
            match division.take_part(slots.site(part), want, whole).await? {
                Some(grant) => slots.hold(part, want, grant),
                None => {
                    for &part in &parts[..taken] {
                        division.leave_to(slots.site(part), self.held(part), &[whole]).await?;
                    }
                    return Ok(false);
                }
            }
        }
        let kept: Vec<_> = parts.iter().map(|&part| self.held(part)).collect();
        division.leave_to(slots.site(index), whole, &kept).await?;
        Ok(true)
    }

    /// Releases these parts.
    async fn leave(&self, parts: &[u8]) -> Outcome<()> {
        let Some(division) = self.slots.kind.division() else { return Ok(()) };
        for &part in parts {
            division.leave_to(self.slots.site(part), self.held(part), &[]).await?;
        }
        self.put_back(parts);
        Ok(())
    }

    fn held(&self, index: u8) -> (L::Want, L::Grant) {
        (self.slot(index).want.get(), self.slots.grant(index))
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
