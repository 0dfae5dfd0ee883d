//! A client of any lock, behind one type: for whatever is judged rather than timed.
//!
//! Only this file is compiled once for each lock. Each call of it costs an allocation and an
//! indirection, which a simulated run does not notice; what is measured calls the lock's own
//! client.

use std::convert::identity;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use farlock_fabric::{Addr, Nanos, Park, SyncedClock, WideAtomics};
use farlock_locks::event::EventCounts;
use farlock_locks::local::{self, HandoverTable};
use farlock_locks::lock::{LocalFuture, Server};
use farlock_locks::registry::{self, SpecError, Visitor};
use farlock_locks::txn::{self, Abort, Txn};
use farlock_locks::{
    AcquireError, AnyKind, Client, Lock, Mode, Options, ReleaseError, Token, TuneError, Tuning,
    UpdateGuard, UpgradeError, Want,
};

/// A hold.
pub type Held<'c> = Box<dyn AnyGuard<'c> + 'c>;
/// A hold to update.
pub type HeldToUpdate<'c> = Box<dyn AnyUpdateGuard<'c> + 'c>;

/// An acquisition: of a hold, or of what is said here.
pub type Acquiring<'c, G = Held<'c>> = LocalFuture<'c, Result<G, AcquireError>>;

/// A kind of lock, with its options.
pub trait AnyLock<E> {
    /// What it says of itself.
    fn kind(&self) -> &dyn AnyKind;

    /// A client of it.
    fn client(&self, endpoint: E, options: Options) -> Rc<dyn AnyClient<E>>;
}

/// A kind of lock that is checked.
pub trait CheckedLock<E> {
    /// What it says of itself.
    fn kind(&self) -> &dyn AnyKind;

    /// Whether it tells holds to update from exclusive ones.
    fn updates(&self) -> bool;

    /// Whether holds of it are turned into ones in the other mode.
    fn converts(&self) -> bool;

    /// Whether holds of it are divided.
    fn divides(&self) -> bool;

    /// Whether its parameters are changed while clients use it.
    fn is_tuned(&self) -> bool;

    /// A client of it, whose tasks hand a hold on so often.
    fn client(&self, endpoint: E, options: Options, handovers_max: u32)
    -> Rc<dyn CheckedClient<E>>;

    /// The lock as clients of a server at this endpoint have it, and what the server does.
    fn served(&self, endpoint: Rc<E>) -> (Rc<dyn CheckedLock<E>>, Server);
}

/// A client. Its functions are those of [`Client`].
#[expect(missing_docs, reason = "each function is documented under its name there")]
pub trait AnyClient<E> {
    fn endpoint(&self) -> &E;
    fn events(&self) -> EventCounts;
    fn acquire(&self, lock: Addr, mode: Mode) -> Acquiring<'_>;
    fn acquire_within(&self, lock: Addr, mode: Mode, nanos: Nanos) -> Acquiring<'_>;
    /// Acquires these units of a lock that is had in parts, within a time if one is given.
    fn acquire_part(
        &self,
        lock: Addr,
        mode: Mode,
        units: Range<u32>,
        limit: Option<Nanos>,
    ) -> Acquiring<'_>;
    fn poll_settle(&self, cx: &mut Context<'_>) -> Poll<()>;
}

/// All that a client can do that is checked, with its table of handovers. What is judged elsewhere
/// needs less, and every lock is compiled once more for each of its endpoints.
#[expect(missing_docs, reason = "each function is documented under its name in HandoverTable")]
pub trait CheckedClient<E>: AnyClient<E> {
    fn memory(&self) -> u64;
    fn is_broken(&self) -> bool;
    fn try_acquire(&self, lock: Addr, mode: Mode) -> Acquiring<'_, Option<Held<'_>>>;
    /// Acquires or tries these units of a lock that is had in parts, behind units that are held and
    /// end there: see [`Want::behind`].
    fn acquire_units(
        &self,
        lock: Addr,
        mode: Mode,
        units: Range<u32>,
        held_before: [u32; 2],
        is_try: bool,
    ) -> Acquiring<'_, Option<Held<'_>>>;
    /// The same for a hold that is not handed on among tasks: it may be converted, or divided. And
    /// whether without any units that are not wanted.
    fn acquire_to_convert(
        &self,
        lock: Addr,
        mode: Mode,
        units: Range<u32>,
        is_try: bool,
        refined: bool,
    ) -> Acquiring<'_, Option<Held<'_>>>;
    fn update(&self, lock: Addr) -> Acquiring<'_, HeldToUpdate<'_>>;
    fn begin(&self, options: txn::Options) -> Box<dyn AnyTxn<'_> + '_>;
    fn settle_one(&self, last: bool) -> LocalFuture<'_, ()>;
    fn tune(&self, lock: Addr, to: Tuning) -> LocalFuture<'_, Result<(), TuneError>>;
}

/// What a holder has in its hands.
#[expect(missing_docs, reason = "each function is documented under its name in local::Guard")]
pub trait AnyGuard<'c> {
    fn fabric_token(&self) -> Option<Token>;
    fn turn(&self) -> u32;
    fn mode(&self) -> Mode;
    fn expires(&self) -> Option<Nanos>;
    fn release(self: Box<Self>) -> LocalFuture<'c, Result<(), ReleaseError>>;
    fn abandon(self: Box<Self>);
    fn convert(self: Box<Self>, mode: Mode) -> Acquiring<'c>;
    fn divide(self: Box<Self>, parts: Vec<Range<u32>>) -> Acquiring<'c, Divided<'c>>;
}

/// Parts of what was held, or what is held as before.
pub type Divided<'c> = Result<Vec<Held<'c>>, Held<'c>>;

/// What a holder to update has in its hands.
#[expect(missing_docs, reason = "each function is documented under its name in UpdateGuard")]
pub trait AnyUpdateGuard<'c> {
    fn token(&self) -> Option<Token>;
    fn expires(&self) -> Option<Nanos>;
    fn release(self: Box<Self>) -> LocalFuture<'c, Result<(), ReleaseError>>;
    fn upgrade(self: Box<Self>) -> LocalFuture<'c, Result<Held<'c>, UpgradeError>>;
}

/// An attempt of a transaction.
#[expect(missing_docs, reason = "each function is documented under its name in Txn")]
pub trait AnyTxn<'c> {
    fn lock_all<'t>(&'t mut self, locks: &'t [(Addr, Mode)]) -> LocalFuture<'t, Result<(), Abort>>;
    /// The token of a lock that it holds, and when that hold ends.
    fn held(&self, lock: Addr) -> Option<(Option<Token>, Option<Nanos>)>;
    fn commit(self: Box<Self>) -> LocalFuture<'c, Result<(), Abort>>;
}

/// This lock behind the face of the checked.
pub fn checked<E: WideAtomics, L: Lock<E>>(lock: L) -> Rc<dyn CheckedLock<E>> {
    Rc::new(Known(lock))
}

/// The lock that `spec` names.
///
/// # Errors
/// The name is not understood.
pub fn named<E: WideAtomics + SyncedClock>(spec: &str) -> Result<Rc<dyn AnyLock<E>>, SpecError> {
    registry::visit(spec, Name { has_room: false })
}

/// The same for a lock that lies in memory which was asked for by its own size.
///
/// # Errors
/// The name is not understood.
pub fn named_with_room<E: WideAtomics + SyncedClock>(
    spec: &str,
) -> Result<Rc<dyn AnyLock<E>>, SpecError> {
    registry::visit(spec, Name { has_room: true })
}

struct Name {
    has_room: bool,
}

impl<E: WideAtomics> Visitor<E> for Name {
    type Output = Rc<dyn AnyLock<E>>;

    fn asks_for_size(&self) -> bool {
        self.has_room
    }

    fn visit<L: Lock<E>>(self, lock: L) -> Self::Output {
        Rc::new(Known(lock))
    }
}

/// [`Client::block_on`]: runs a future of this client to its end on this thread, which settles
/// while it waits.
pub fn block_on<E: Park, F: Future>(client: &dyn AnyClient<E>, future: F) -> F::Output {
    let mut future = pin!(future);
    let both = poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() {
            let _ = client.poll_settle(cx);
        }
        polled
    });
    farlock_fabric::block_on(client.endpoint(), both)
}

/// A lock whose type is known.
struct Known<L>(L);

impl<E: WideAtomics, L: Lock<E>> AnyLock<E> for Known<L> {
    fn kind(&self) -> &dyn AnyKind {
        &self.0
    }

    fn client(&self, endpoint: E, options: Options) -> Rc<dyn AnyClient<E>> {
        Rc::new(Client::new(endpoint, self.0.clone(), options))
    }
}

impl<E: WideAtomics, L: Lock<E>> CheckedLock<E> for Known<L> {
    fn kind(&self) -> &dyn AnyKind {
        &self.0
    }

    fn updates(&self) -> bool {
        self.0.updates().is_some()
    }

    fn converts(&self) -> bool {
        self.0.conversion().is_some()
    }

    fn divides(&self) -> bool {
        self.0.division().is_some()
    }

    fn is_tuned(&self) -> bool {
        self.0.tuning().is_some()
    }

    fn client(
        &self,
        endpoint: E,
        options: Options,
        handovers_max: u32,
    ) -> Rc<dyn CheckedClient<E>> {
        let client = Client::new(endpoint, self.0.clone(), options);
        Rc::new(HandoverTable::new(client, handovers_max))
    }

    fn served(&self, endpoint: Rc<E>) -> (Rc<dyn CheckedLock<E>>, Server) {
        let mut lock = self.0.clone();
        let server = lock.server().expect("it is served").serve(endpoint);
        (checked(lock), server)
    }
}

/// A client whose type is known, and how it is had of that type.
macro_rules! any_client {
    ($type:ident, $client:path) => {
        impl<E: WideAtomics, L: Lock<E>> AnyClient<E> for $type<E, L> {
            fn endpoint(&self) -> &E {
                $client(self).endpoint()
            }

            fn events(&self) -> EventCounts {
                $client(self).events()
            }

            fn acquire(&self, lock: Addr, mode: Mode) -> Acquiring<'_> {
                Box::pin(async move { Ok(Box::new(self.acquire(lock, mode).await?) as Held<'_>) })
            }

            fn acquire_within(&self, lock: Addr, mode: Mode, nanos: Nanos) -> Acquiring<'_> {
                let acquire = self.acquire_within(lock, mode, nanos);
                Box::pin(async move { Ok(Box::new(acquire.await?) as Held<'_>) })
            }

            fn acquire_part(
                &self,
                lock: Addr,
                mode: Mode,
                units: Range<u32>,
                limit: Option<Nanos>,
            ) -> Acquiring<'_> {
                let want = L::Want::part(mode, units).expect("it is had in parts");
                Box::pin(async move {
                    let guard = match limit {
                        Some(nanos) => self.acquire_within(lock, want, nanos).await?,
                        None => self.acquire(lock, want).await?,
                    };
                    Ok(Box::new(guard) as Held<'_>)
                })
            }

            fn poll_settle(&self, cx: &mut Context<'_>) -> Poll<()> {
                Pin::new(&mut $client(self).settle()).poll(cx)
            }
        }
    };
}

any_client!(Client, identity);
any_client!(HandoverTable, HandoverTable::client);

impl<E: WideAtomics, L: Lock<E>> CheckedClient<E> for HandoverTable<E, L> {
    fn memory(&self) -> u64 {
        self.client().memory()
    }

    fn is_broken(&self) -> bool {
        self.client().is_broken()
    }

    fn try_acquire(&self, lock: Addr, mode: Mode) -> Acquiring<'_, Option<Held<'_>>> {
        Box::pin(async move {
            Ok(self.try_acquire(lock, mode).await?.map(|guard| Box::new(guard) as Held<'_>))
        })
    }

    fn acquire_units(
        &self,
        lock: Addr,
        mode: Mode,
        units: Range<u32>,
        [held_to, written_to]: [u32; 2],
        is_try: bool,
    ) -> Acquiring<'_, Option<Held<'_>>> {
        let want = L::Want::part(mode, units).expect("it is had in parts");
        let want = want.behind(held_to, written_to);
        Box::pin(async move {
            let guard = match is_try {
                true => self.try_acquire(lock, want).await?,
                false => Some(self.acquire(lock, want).await?),
            };
            Ok(guard.map(|guard| Box::new(guard) as Held<'_>))
        })
    }

    fn acquire_to_convert(
        &self,
        lock: Addr,
        mode: Mode,
        units: Range<u32>,
        is_try: bool,
        refined: bool,
    ) -> Acquiring<'_, Option<Held<'_>>> {
        let want = L::Want::part(mode, units).expect("it is had in parts");
        let want = if refined { want.refined() } else { want };
        Box::pin(async move {
            let guard = match is_try {
                true => self.client().try_acquire(lock, want).await?,
                false => Some(self.client().acquire(lock, want).await?),
            };
            Ok(guard.map(|guard| Box::new(guard) as Held<'_>))
        })
    }

    fn update(&self, lock: Addr) -> Acquiring<'_, HeldToUpdate<'_>> {
        let update = self.client().update(lock);
        Box::pin(async move { Ok(Box::new(update.await?) as HeldToUpdate<'_>) })
    }

    fn begin(&self, options: txn::Options) -> Box<dyn AnyTxn<'_> + '_> {
        Box::new(Txn::begin(self.client(), options))
    }

    fn settle_one(&self, last: bool) -> LocalFuture<'_, ()> {
        Box::pin(self.client().settle_one(last))
    }

    fn tune(&self, lock: Addr, to: Tuning) -> LocalFuture<'_, Result<(), TuneError>> {
        Box::pin(self.client().tune(lock, to))
    }
}

/// A guard whose type is known: its token, how often the hold was handed on, and how it is
/// converted and divided.
macro_rules! any_guard {
    ($guard:path, $token:ident, $turn:expr, $convert:expr, $divide:expr) => {
        impl<'c, E: WideAtomics, L: Lock<E>> AnyGuard<'c> for $guard {
            fn fabric_token(&self) -> Option<Token> {
                self.$token()
            }

            fn turn(&self) -> u32 {
                $turn(self)
            }

            fn mode(&self) -> Mode {
                self.mode()
            }

            fn expires(&self) -> Option<Nanos> {
                self.expires()
            }

            fn release(self: Box<Self>) -> LocalFuture<'c, Result<(), ReleaseError>> {
                Box::pin((*self).release())
            }

            fn abandon(self: Box<Self>) {
                (*self).abandon();
            }

            fn convert(self: Box<Self>, mode: Mode) -> Acquiring<'c> {
                $convert(*self, mode)
            }

            fn divide(self: Box<Self>, parts: Vec<Range<u32>>) -> Acquiring<'c, Divided<'c>> {
                $divide(*self, parts)
            }
        }
    };
}

any_guard!(
    local::Guard<'c, E, L>,
    fabric_token,
    Self::turn,
    |_, _| unreachable!("what is handed on is not converted"),
    |_, _| unreachable!("what is handed on is not divided")
);
any_guard!(
    farlock_locks::Guard<'c, E, L>,
    token,
    |_| 0,
    |guard: Self, mode| {
        let converted = guard.convert(mode);
        Box::pin(async move { Ok(Box::new(converted.await?) as Held<'c>) }) as Acquiring<'c>
    },
    |guard: Self, parts: Vec<Range<u32>>| {
        let mode = guard.mode();
        let parts = parts.into_iter().map(|units| L::Want::part(mode, units));
        let divided = guard.divide(parts.map(|part| part.expect("it is had in parts")).collect());
        Box::pin(async move {
            let held = |guard| Box::new(guard) as Held<'c>;
            Ok(divided.await?.map(|parts| parts.into_iter().map(held).collect()).map_err(held))
        }) as Acquiring<'c, Divided<'c>>
    }
);

impl<'c, E: WideAtomics, L: Lock<E>> AnyUpdateGuard<'c> for UpdateGuard<'c, E, L> {
    fn token(&self) -> Option<Token> {
        self.token()
    }

    fn expires(&self) -> Option<Nanos> {
        self.expires()
    }

    fn release(self: Box<Self>) -> LocalFuture<'c, Result<(), ReleaseError>> {
        Box::pin((*self).release())
    }

    fn upgrade(self: Box<Self>) -> LocalFuture<'c, Result<Held<'c>, UpgradeError>> {
        let upgrade = (*self).upgrade();
        Box::pin(async move { Ok(Box::new(upgrade.await?) as Held<'c>) })
    }
}

impl<'c, E: WideAtomics, L: Lock<E>> AnyTxn<'c> for Txn<'c, E, L> {
    fn lock_all<'t>(&'t mut self, locks: &'t [(Addr, Mode)]) -> LocalFuture<'t, Result<(), Abort>> {
        Box::pin(self.lock_all(locks))
    }

    fn held(&self, lock: Addr) -> Option<(Option<Token>, Option<Nanos>)> {
        self.guard(lock).map(|guard| (guard.token(), guard.expires()))
    }

    fn commit(self: Box<Self>) -> LocalFuture<'c, Result<(), Abort>> {
        Box::pin((*self).commit())
    }
}
