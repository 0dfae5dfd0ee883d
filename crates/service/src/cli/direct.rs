//! A region used by this thread alone, without a session's progress thread: what a command needs
//! that takes one lock and then waits for a process.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use farlock::directory::Directory;
use farlock::{AcquireError, LOCK_KIND, Mode, RegionOptions, SessionError, inspect, lock_protocol};
use farlock_fabric::shm::{Region, ShmEndpoint};
use farlock_fabric::{Addr, Endpoint, block_on};
use farlock_locks::record::shiftlock::ShiftLock;
use farlock_locks::{AcquireError as Cause, Client, Guard, Options};

/// How long to wait for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Patience {
    /// Until it is granted.
    Endless,
    /// Not at all.
    None,
    /// So long.
    For(Duration),
}

/// A held lock.
pub(super) type Held<'c> = Guard<'c, ShmEndpoint, ShiftLock>;

/// This thread's endpoint and its locks.
pub(super) struct Direct {
    client: Client<ShmEndpoint, ShiftLock>,
    directory: Directory,
}

impl Direct {
    /// Joins a region, which is created where it is missing. Whoever inherits the descriptors of a
    /// `tethered` process keeps what it holds from others when it dies.
    pub(super) fn open(options: &RegionOptions, tethered: bool) -> Result<Self, SessionError> {
        let region = Region::open(&options.to_shm())?;
        let endpoint = if tethered { region.endpoint_tethered() } else { region.endpoint() }?;
        let directory = block_on(&endpoint, Directory::open(&endpoint, region.heap()))?;
        let options = Options { incarnation: region.incarnation() };
        let client = Client::new(endpoint, lock_protocol(), options);
        Ok(Self { client, directory })
    }

    pub(super) fn endpoint(&self) -> &ShmEndpoint {
        self.client.endpoint()
    }

    /// The word of the lock of this name.
    pub(super) fn find(&self, name: &str) -> Result<Addr, AcquireError> {
        let enter = self.directory.enter(self.endpoint(), name, LOCK_KIND);
        block_on(self.endpoint(), enter)
            .map_err(|source| AcquireError::Directory { name: name.to_owned(), source })
    }

    /// Acquires the lock of this name.
    pub(super) fn acquire(
        &self,
        name: &str,
        mode: Mode,
        patience: Patience,
    ) -> Result<Held<'_>, AcquireError> {
        let lock = self.find(name)?;
        self.acquire_at(name, lock, mode, patience)
    }

    /// Acquires the lock whose word lies here.
    pub(super) fn acquire_at(
        &self,
        name: &str,
        lock: Addr,
        mode: Mode,
        patience: Patience,
    ) -> Result<Held<'_>, AcquireError> {
        let client = &self.client;
        let acquired = match patience {
            Patience::None => match client.block_on(client.try_acquire(lock, mode)) {
                Ok(Some(guard)) => Ok(guard),
                Ok(None) => {
                    let holders = self.holders(lock);
                    return Err(AcquireError::Busy { name: name.to_owned(), holders });
                }
                Err(cause) => Err(cause),
            },
            Patience::Endless => client.block_on(self.in_line(lock, mode, None)),
            Patience::For(limit) => client.block_on(self.in_line(lock, mode, Some(limit))),
        };
        let guard = acquired.map_err(|cause| self.failure(name, lock, patience, cause))?;
        inspect::note(self.endpoint(), guard.slot());
        Ok(guard)
    }

    async fn in_line(
        &self,
        lock: Addr,
        mode: Mode,
        limit: Option<Duration>,
    ) -> Result<Held<'_>, Cause> {
        let mut acquire = self.client.acquire(lock, mode);
        let nanos = |limit: Duration| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let mut sleep = limit.map(|limit| self.endpoint().sleep(nanos(limit)));
        let mut is_noted = false;
        poll_fn(|cx| {
            if let Poll::Ready(acquired) = Pin::new(&mut acquire).poll(cx) {
                return Poll::Ready(acquired);
            }
            if !std::mem::replace(&mut is_noted, true) {
                inspect::note(self.endpoint(), acquire.slot());
            }
            let elapsed = sleep.as_mut().is_some_and(|sleep| Pin::new(sleep).poll(cx).is_ready());
            if elapsed { Poll::Ready(Err(Cause::TimedOut)) } else { Poll::Pending }
        })
        .await
    }

    fn failure(&self, name: &str, lock: Addr, patience: Patience, cause: Cause) -> AcquireError {
        let name = name.to_owned();
        match cause {
            Cause::NoSlot => AcquireError::TooMany { name, slots: self.endpoint().slots() },
            Cause::Fabric(fault) => AcquireError::Lost { name, reason: fault.into() },
            Cause::TimedOut => {
                let seconds = match patience {
                    Patience::For(limit) => limit.as_secs_f64(),
                    Patience::Endless | Patience::None => 0.0,
                };
                AcquireError::TimedOut { name, seconds, holders: self.holders(lock) }
            }
        }
    }

    /// Who holds a lock, for an error: a picture, and none where the region is gone.
    fn holders(&self, lock: Addr) -> Vec<inspect::Participant> {
        inspect::participants(self.endpoint(), lock).map(inspect::holders).unwrap_or_default()
    }
}
