//! Transactions: two-phase locking over locks of one kind.
//!
//! A transaction takes locks as it goes and gives all of them back at its end. In an order that all
//! transactions share ([`Txn::lock_all`]) they cannot wait for each other in a circle. In any other
//! order they can: who waits for a lock longer than its patience gives up everything, pauses for a
//! random time, and begins again. Nobody looks for circles, and nobody is chosen: a transaction
//! that is merely slow may be aborted as well.
//!
//! Who reads a record, and writes it later, takes its lock to update ([`Txn::update`]): two that
//! do so cannot wait for each other there, as two readers that both want to write would. In the end
//! it locks it exclusively, which is an upgrade.
//!
//! Locks with leases may be gone before the transaction ends. [`Txn::validate`] says whether all
//! are still held, and a transaction writes only after that. If a lease ends while it writes, its
//! end says so ([`Abort::Late`]); what is written then is refused only by who looks at tokens
//! ([`Txn::guard`]).
//!
//! ```
//! use farlock_fabric::{Endpoint, Verb};
//! use farlock_locks::record::mcs::Mcs;
//! use farlock_locks::txn::{Options, transact};
//! use farlock_locks::{Client, Mode};
//! use farlock_sim::{Config, World};
//!
//! let world = World::new(Config::default());
//! let region = world.region(world.node(), 256);
//! let (locks, accounts) = ([region, region.plus(64)], [region.plus(128), region.plus(192)]);
//! world.poke(accounts[0], 100);
//! let client = Client::new(world.endpoint(), Mcs::default(), Default::default());
//! world.block_on(async {
//!     transact(&client, Options::default(), async |txn| {
//!         txn.lock(locks[1], Mode::Exclusive).await?;
//!         txn.lock(locks[0], Mode::Exclusive).await?;
//!         let endpoint = client.endpoint();
//!         endpoint.read64(accounts[0]).await?;
//!         let rest = endpoint.old() as u64 - 30;
//!         txn.validate()?;
//!         endpoint.verb(Verb::Write { addr: accounts[0], data: &[rest] }).await?;
//!         endpoint.verb(Verb::Write { addr: accounts[1], data: &[30] }).await?;
//!         Ok(())
//!     })
//!     .await
//!     .expect("nobody else is there");
//! });
//! assert_eq!((world.peek(accounts[0]), world.peek(accounts[1])), (70, 30));
//! ```

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use farlock_fabric::{Addr, Endpoint, Fault, Nanos};
use thiserror::Error;

#[cfg(doc)]
use crate::event::Event;
use crate::{
    AcquireError, Client, Guard, Lock, Mode, Release, ReleaseError, UpdateGuard, UpgradeError,
    Want, within,
};

/// A restart's pause is doubled so many times at most.
const RESTART_DOUBLINGS_MAX: u32 = 10;

/// How transactions behave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// How long to wait for one lock before everything is given up, in nanoseconds. `None`: for
    /// ever, which only those may do who all lock in one order.
    pub patience_ns: Option<Nanos>,
    /// How often a lock may be asked for again, having been refused, before everything is given up
    /// ([`Event::Retried`]): the time-out of locks that retry. `None`: as often as it takes. The
    /// retries of a client are counted, of all that it awaits.
    pub retries_max: Option<u32>,
    /// A first restart comes after a random time below this; each further one doubles the bound, up
    /// to 1,024 times.
    pub restart_ns: Nanos,
    /// How often a transaction is tried at most.
    pub attempts_max: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            patience_ns: Some(10_000_000),
            retries_max: None,
            restart_ns: 100_000,
            attempts_max: 1_000,
        }
    }
}

/// Why an attempt ended without a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Abort {
    /// A lock was not granted in time: maybe two transactions wait for each other.
    #[error("the lock at {0:?} was not granted in time")]
    TimedOut(Addr),
    /// The lease of a lock had ended when the transaction validated.
    #[error("the lease of the lock at {0:?} has ended")]
    Expired(Addr),
    /// The lease of a lock has ended between the transaction's validation and its end: what it
    /// wrote may have met with what others did. It is not begun again, for it has been done.
    #[error("the lease of the lock at {0:?} ended before the transaction did")]
    Late(Addr),
    /// The transaction itself wants to begin again.
    #[error("the transaction begins again")]
    Again,
    /// A lock could not be acquired.
    #[error("a lock was not acquired")]
    Acquire(#[source] AcquireError),
    /// A lock could not be released.
    #[error("a lock was not released")]
    Release(#[source] ReleaseError),
    /// A verb of the transaction failed.
    #[error("the fabric failed")]
    Fabric(#[from] Fault),
}

impl Abort {
    /// Whether another attempt may end better.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::TimedOut(_) | Self::Expired(_) | Self::Again)
    }
}

/// How a lock came to be held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locked {
    /// It was acquired.
    New,
    /// It was held already, in this mode or a stronger one.
    Already,
    /// It was held to update, and is held exclusively: nobody has written since.
    Upgraded,
    /// It was held to read, given back, and acquired to write: others may have written in between,
    /// and what was read under it must be read again.
    Anew,
}

/// How a transaction holds a lock.
#[derive(Debug)]
enum Hold<'c, E: Endpoint, L: Lock<E>> {
    Guard(Guard<'c, E, L>),
    ToUpdate(UpdateGuard<'c, E, L>),
}

impl<'c, E: Endpoint, L: Lock<E>> Hold<'c, E, L> {
    fn is_shared(&self) -> bool {
        matches!(self, Self::Guard(guard) if guard.mode() == Mode::Shared)
    }

    fn expires(&self) -> Option<Nanos> {
        match self {
            Self::Guard(guard) => guard.expires(),
            Self::ToUpdate(guard) => guard.expires(),
        }
    }

    fn release(self) -> Release<'c, E, L> {
        match self {
            Self::Guard(guard) => guard.release(),
            Self::ToUpdate(guard) => guard.release(),
        }
    }
}

/// A lock, or a part of one, whatever the mode.
type Key<E, L> = (Addr, <L as Lock<E>>::Want);

/// The key of what is wanted of a lock.
fn key<E: Endpoint, L: Lock<E>>(lock: Addr, want: L::Want) -> Key<E, L> {
    (lock, want.in_mode(Mode::Exclusive))
}

/// An attempt of a transaction. Dropped, it leaves its locks to [`Client::settle`].
#[derive(Debug)]
pub struct Txn<'c, E: Endpoint, L: Lock<E>> {
    client: &'c Client<E, L>,
    options: Options,
    held: Vec<(Key<E, L>, Hold<'c, E, L>)>,
}

impl<'c, E: Endpoint, L: Lock<E>> Txn<'c, E, L> {
    /// A transaction that holds nothing yet.
    pub fn begin(client: &'c Client<E, L>, options: Options) -> Self {
        Self { client, options, held: Vec::new() }
    }

    /// Takes a lock until the end of the transaction. What is held to update is upgraded: that
    /// waits for the readers that came before. No kind of lock here can turn a shared hold into an
    /// exclusive one: where that is asked for, the lock is released and acquired anew.
    ///
    /// # Errors
    /// It was not granted in time, it was lost before it was upgraded, or the fabric failed: the
    /// attempt is over.
    pub async fn lock(&mut self, lock: Addr, want: impl Into<L::Want>) -> Result<Locked, Abort> {
        let want: L::Want = want.into();
        let (key, mode) = (key::<E, L>(lock, want), want.mode());
        let place = self.held.iter().position(|(held, _)| *held == key);
        let locked = match place.map(|place| (place, &self.held[place].1)) {
            None => Locked::New,
            Some((place, Hold::ToUpdate(_))) if mode == Mode::Exclusive => {
                return self.upgrade(place).await;
            }
            Some((place, hold)) if mode == Mode::Exclusive && hold.is_shared() => {
                self.give_back(place).await?;
                Locked::Anew
            }
            Some(_) => return Ok(Locked::Already),
        };
        let guard = self.patiently(lock, self.client.acquire(lock, want)).await?;
        self.held.push((key, Hold::Guard(guard.map_err(Abort::Acquire)?)));
        Ok(locked)
    }

    /// Takes a lock to read what it protects now, and to write it later, if at all: beside readers
    /// that came before, where this kind of lock can, but alone of those that may write. Before it
    /// writes it asks for the lock exclusively ([`Txn::lock`]). A shared hold is given back first.
    ///
    /// # Errors
    /// It was not granted in time, or the fabric failed: the attempt is over.
    pub async fn update(&mut self, lock: Addr) -> Result<Locked, Abort> {
        let key = key::<E, L>(lock, Mode::Exclusive.into());
        let place = self.held.iter().position(|(held, _)| *held == key);
        let locked = match place {
            None => Locked::New,
            Some(place) if self.held[place].1.is_shared() => {
                self.give_back(place).await?;
                Locked::Anew
            }
            Some(_) => return Ok(Locked::Already),
        };
        let guard = self.patiently(lock, self.client.update(lock)).await?;
        self.held.push((key, Hold::ToUpdate(guard.map_err(Abort::Acquire)?)));
        Ok(locked)
    }

    /// Gives a shared hold back, to acquire the lock anew.
    async fn give_back(&mut self, place: usize) -> Result<(), Abort> {
        let ((lock, _), shared) = self.held.swap_remove(place);
        shared.release().await.map_err(|error| match error {
            ReleaseError::Lost => Abort::Expired(lock),
            error => Abort::Release(error),
        })
    }

    /// Makes a hold to update exclusive. One that gives up goes on in [`Client::settle`], and is
    /// released when the readers that came before have left.
    async fn upgrade(&mut self, place: usize) -> Result<Locked, Abort> {
        let (key, hold) = self.held.swap_remove(place);
        let Hold::ToUpdate(guard) = hold else {
            panic!("only what is held to update is upgraded");
        };
        let upgraded = self.patiently(key.0, guard.upgrade()).await?;
        let guard = upgraded.map_err(|error| match error {
            UpgradeError::Lost => Abort::Expired(key.0),
            UpgradeError::Fabric(fault) => Abort::Fabric(fault),
        })?;
        self.held.push((key, Hold::Guard(guard)));
        Ok(Locked::Upgraded)
    }

    /// Takes these locks in the order of their addresses, each once and in the strongest mode that
    /// is asked for. Parts of one lock must not overlap unless they are the same.
    ///
    /// # Errors
    /// As [`Txn::lock`].
    pub async fn lock_all(
        &mut self,
        locks: &[(Addr, impl Into<L::Want> + Copy)],
    ) -> Result<(), Abort> {
        let mut sorted: Vec<(Addr, L::Want)> =
            locks.iter().map(|&(lock, want)| (lock, want.into())).collect();
        let first = |want: L::Want| want.units(u32::MAX).start;
        sorted.sort_by_key(|&(lock, want)| (lock, first(want), std::cmp::Reverse(want.mode())));
        sorted.dedup_by_key(|&mut (lock, want)| key::<E, L>(lock, want));
        for (lock, want) in sorted {
            self.lock(lock, want).await?;
        }
        Ok(())
    }

    /// Waits for a lock as long as the options allow.
    async fn patiently<T>(&self, lock: Addr, granted: impl Future<Output = T>) -> Result<T, Abort> {
        let in_time = async {
            match self.options.patience_ns {
                Some(nanos) => within(self.client.endpoint(), nanos, granted).await,
                None => Some(granted.await),
            }
        };
        let in_retries = match self.options.retries_max {
            None => in_time.await,
            Some(most) => self.in_retries(most, in_time).await,
        };
        in_retries.ok_or(Abort::TimedOut(lock))
    }

    /// `None` once the client was refused so often: the future was dropped.
    async fn in_retries<T>(&self, most: u32, wait: impl Future<Output = Option<T>>) -> Option<T> {
        let retried = || self.client.events().retried;
        let last = retried() + u64::from(most);
        let mut wait = pin!(wait);
        poll_fn(|cx| match wait.as_mut().poll(cx) {
            Poll::Pending if retried() > last => Poll::Ready(None),
            polled => polled,
        })
        .await
    }

    /// The guard of a lock that this transaction holds, with its token; `None` of one that it holds
    /// to update.
    pub fn guard(&self, lock: Addr) -> Option<&Guard<'c, E, L>> {
        self.held.iter().find_map(|(held, hold)| match hold {
            Hold::Guard(guard) if held.0 == lock => Some(guard),
            _ => None,
        })
    }

    /// Whether all locks are still held: now is the time to write.
    ///
    /// # Errors
    /// The lease of one has ended.
    pub fn validate(&self) -> Result<(), Abort> {
        let leased =
            self.held.iter().filter_map(|((lock, _), hold)| Some((*lock, hold.expires()?)));
        let Some((lock, first)) = leased.min_by_key(|&(_, end)| end) else { return Ok(()) };
        if self.client.endpoint().now() < first { Ok(()) } else { Err(Abort::Expired(lock)) }
    }

    /// Ends the transaction: validates, then releases everything.
    ///
    /// # Errors
    /// The lease of a lock ended too early, or the fabric failed. Everything is given back all the
    /// same.
    pub async fn commit(self) -> Result<(), Abort> {
        let valid = self.validate().map_err(|aborted| match aborted {
            Abort::Expired(lock) => Abort::Late(lock),
            aborted => aborted,
        });
        let released = self.release().await;
        valid.and(released)
    }

    /// Gives everything back, and what it has waited for in vain.
    ///
    /// # Errors
    /// The fabric failed.
    pub async fn abort(self) -> Result<(), Abort> {
        let client = self.client;
        let released = match self.release().await {
            // It has written nothing.
            Err(Abort::Late(_)) => Ok(()),
            released => released,
        };
        client.settle().await;
        released
    }

    /// The last lock first: a client that waits for several finds the earlier ones taken still.
    async fn release(self) -> Result<(), Abort> {
        let mut released = Ok(());
        for ((lock, _), hold) in self.held.into_iter().rev() {
            released = released.and(hold.release().await.map_err(|error| match error {
                ReleaseError::Lost => Abort::Late(lock),
                error => Abort::Release(error),
            }));
        }
        released
    }
}

/// Runs `body` in a transaction: until it commits, fails for good, or has been tried as often as
/// the options allow. The output is that of the attempt that has committed.
///
/// # Errors
/// What ended the last attempt.
pub async fn transact<'c, E: Endpoint, L: Lock<E>, T>(
    client: &'c Client<E, L>,
    options: Options,
    mut body: impl AsyncFnMut(&mut Txn<'c, E, L>) -> Result<T, Abort>,
) -> Result<T, Abort> {
    let mut attempt = 0;
    loop {
        client.endpoint().checkpoint(&[attempt.into()]);
        let mut txn = Txn::begin(client, options);
        let aborted = match body(&mut txn).await {
            Ok(output) => match txn.commit().await {
                Ok(()) => return Ok(output),
                Err(aborted) => aborted,
            },
            Err(aborted) => {
                txn.abort().await?;
                aborted
            }
        };
        attempt += 1;
        if !aborted.is_transient() || attempt >= options.attempts_max {
            return Err(aborted);
        }
        let bound = options.restart_ns << attempt.min(RESTART_DOUBLINGS_MAX);
        client.endpoint().sleep(client.endpoint().random() % bound.max(1)).await;
    }
}
