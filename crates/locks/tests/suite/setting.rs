//! A lock on a stage as a case sees it. Which lock that is, and on which fabric, no case knows: so
//! each is compiled once, and of a lock on a stage only what stands here.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use farlock_fabric::{Addr, Endpoint, Nanos, SyncedClock};
use farlock_locks::event::EventCounts;
use farlock_locks::local::{self, HandoverTable};
use farlock_locks::registry::{self, Visitor};
use farlock_locks::{
    AcquireError, Client, Guard, Lock, Mode, Options, ReleaseError, Token, TokenSource,
    UpdateGuard, UpgradeError,
};

use crate::{Stage, Task, room, specs};

/// What is promised of a lock beyond exclusion and liveness; the lock itself says so.
#[derive(Clone, Copy)]
pub(crate) struct Promise {
    pub(crate) spec: &'static str,
    /// Readers share it.
    pub(crate) shares: bool,
    /// An exclusive grant has a token.
    pub(crate) has_tokens: bool,
    /// A holder to update stands beside the readers that were there before.
    pub(crate) updates: bool,
    /// Holds end by a lease.
    pub(crate) is_leased: bool,
    /// Writers are granted in the order in which they got in line.
    pub(crate) fifo: bool,
    /// Clients stay in line while its counts are reset.
    pub(crate) outlives_counts: bool,
    /// A waiting writer keeps later readers out, and a reader waits for at most so many writers.
    pub(crate) writers_before_reader: Option<usize>,
    /// How long a shared hold may keep writers out after its release, where clocks agree.
    pub(crate) lingers_ns: Nanos,
}

/// A lock on a stage.
pub(crate) trait Setting {
    fn promise(&self) -> Promise;

    /// [`Stage::STEP_NS`].
    fn step_ns(&self) -> Nanos;

    /// [`Stage::PUNCTUAL`].
    fn is_punctual(&self) -> bool;

    /// So many locks that are free, one behind the other.
    fn locks(&mut self, count: u64) -> Vec<Addr>;

    /// One.
    fn lock(&mut self) -> Addr {
        self.locks(1)[0]
    }

    /// One whose counts wrap after so many acquisitions, if it has any.
    fn near_wrap(&mut self, steps: u16) -> Option<Addr>;

    fn client(&mut self) -> Rc<dyn Actor>;

    /// A client whose tasks hand a hold on among themselves, so often at most.
    fn table(&mut self, handovers_max: u32) -> Rc<dyn Table>;

    /// [`Stage::run`].
    fn run(&mut self, tasks: Vec<Task>) -> bool;
}

/// A lock of this kind on this stage.
pub(crate) struct On<'s, S, L> {
    pub(crate) stage: &'s mut S,
    pub(crate) lock: L,
    pub(crate) spec: &'static str,
}

impl<S: Stage, L: Lock<S::Endpoint>> On<'_, S, L> {
    fn new_client(&mut self) -> Client<S::Endpoint, L> {
        Client::new(self.stage.endpoint(), self.lock.clone(), Options::new(1))
    }
}

impl<S: Stage, L: Lock<S::Endpoint>> Setting for On<'_, S, L> {
    fn promise(&self) -> Promise {
        let promises = self.lock.promises();
        Promise {
            spec: self.spec,
            shares: L::SHARES,
            has_tokens: L::TOKENS == TokenSource::Word,
            updates: self.lock.updates().is_some(),
            is_leased: promises.lease_ns.is_some(),
            fifo: promises.order.bypass_max == Some(0),
            outlives_counts: promises.order.outlives_counts,
            writers_before_reader: promises.order.writers_before_reader.map(usize::from),
            lingers_ns: promises.lingers_ns,
        }
    }

    fn step_ns(&self) -> Nanos {
        S::STEP_NS
    }

    fn is_punctual(&self) -> bool {
        S::PUNCTUAL
    }

    fn locks(&mut self, count: u64) -> Vec<Addr> {
        let base = self.stage.memory(count * room::<L>());
        (0..count).map(|number| base.plus(number * room::<L>())).collect()
    }

    fn near_wrap(&mut self, steps: u16) -> Option<Addr> {
        let near_wrap = self.lock.near_wrap(steps);
        (near_wrap != 0).then(|| {
            let word = self.lock();
            self.stage.poke(word, near_wrap as u64);
            self.stage.poke(word.plus(8), (near_wrap >> 64) as u64);
            word
        })
    }

    fn client(&mut self) -> Rc<dyn Actor> {
        Rc::new(self.new_client())
    }

    fn table(&mut self, handovers_max: u32) -> Rc<dyn Table> {
        Rc::new(HandoverTable::new(self.new_client(), handovers_max))
    }

    fn run(&mut self, tasks: Vec<Task>) -> bool {
        self.stage.run(tasks)
    }
}

/// A case: what is played with one lock on one stage.
pub(crate) type Case = fn(&mut dyn Setting);

/// Plays a case with every lock but the canary, each on a stage of its own.
pub(crate) fn play<S: Stage>(stage: impl Fn() -> S, case: Case) {
    specs().for_each(|spec| {
        let player = Player { stage: &mut stage(), spec, case };
        registry::visit(spec, player).expect("the suite names locks of the registry");
    });
}

pub(crate) struct Player<'s, S> {
    pub(crate) stage: &'s mut S,
    pub(crate) spec: &'static str,
    pub(crate) case: Case,
}

impl<S: Stage> Visitor<S::Endpoint> for Player<'_, S> {
    type Output = ();

    fn visit<L: Lock<S::Endpoint>>(self, mut lock: L) {
        let promises = lock.promises();
        if !promises.excludes || (promises.lease_ns.is_some() && !S::PUNCTUAL) {
            return;
        }
        if let Some(server) = lock.server() {
            let served = server.serve(Rc::new(self.stage.endpoint()));
            self.stage.serve(served);
        }
        (self.case)(&mut On { stage: self.stage, lock, spec: self.spec });
    }
}

/// What is known later.
pub(crate) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A client of a lock.
pub(crate) trait Actor {
    fn acquire(&self, lock: Addr, mode: Mode) -> Later<'_, Result<Hold<'_>, AcquireError>>;

    fn exclusive(&self, lock: Addr) -> Later<'_, Result<Hold<'_>, AcquireError>> {
        self.acquire(lock, Mode::Exclusive)
    }

    fn shared(&self, lock: Addr) -> Later<'_, Result<Hold<'_>, AcquireError>> {
        self.acquire(lock, Mode::Shared)
    }

    fn acquire_within(
        &self,
        lock: Addr,
        mode: Mode,
        time: Nanos,
    ) -> Later<'_, Result<Hold<'_>, AcquireError>>;

    fn try_acquire(
        &self,
        lock: Addr,
        mode: Mode,
    ) -> Later<'_, Result<Option<Hold<'_>>, AcquireError>>;

    fn update(&self, lock: Addr) -> Later<'_, Result<Box<dyn HeldToUpdate + '_>, AcquireError>>;

    fn settle(&self) -> Later<'_, ()>;

    fn is_unsettled(&self) -> bool;

    fn events(&self) -> EventCounts;

    fn sleep(&self, time: Nanos) -> Later<'_, ()>;

    fn now(&self) -> Nanos;

    fn clock_error(&self) -> Nanos;

    fn random(&self) -> u64;

    fn slots(&self) -> u8;

    /// In which mode the ledger judges a hold: a lock without readers excludes them like writers.
    fn judged(&self, mode: Mode) -> Mode;
}

/// A hold, whatever it is of.
pub(crate) trait Held {
    fn token(&self) -> Option<Token>;

    fn mode(&self) -> Mode;

    fn release<'h>(self: Box<Self>) -> Later<'h, Result<(), ReleaseError>>
    where
        Self: 'h;
}

pub(crate) type Hold<'c> = Box<dyn Held + 'c>;

/// A hold that is to become exclusive, or not.
pub(crate) trait HeldToUpdate {
    fn token(&self) -> Option<Token>;

    fn upgrade<'h>(self: Box<Self>) -> Later<'h, Result<Hold<'h>, UpgradeError>>
    where
        Self: 'h;

    fn release<'h>(self: Box<Self>) -> Later<'h, Result<(), ReleaseError>>
    where
        Self: 'h;
}

/// A client whose tasks hand a hold on among themselves.
pub(crate) trait Table {
    fn client(&self) -> &dyn Actor;

    fn acquire(&self, lock: Addr, mode: Mode) -> Later<'_, Result<Shared<'_>, AcquireError>>;

    fn acquire_within(
        &self,
        lock: Addr,
        mode: Mode,
        time: Nanos,
    ) -> Later<'_, Result<Shared<'_>, AcquireError>>;

    fn try_acquire(
        &self,
        lock: Addr,
        mode: Mode,
    ) -> Later<'_, Result<Option<Shared<'_>>, AcquireError>>;
}

/// A hold of one of its tasks.
pub(crate) trait HeldByTask: Held {
    fn fabric_token(&self) -> Option<Token>;

    fn turn(&self) -> u32;

    fn expires(&self) -> Option<Nanos>;
}

pub(crate) type Shared<'t> = Box<dyn HeldByTask + 't>;

/// What is had, as a case sees it.
macro_rules! boxed {
    ($future:expr) => {{
        let future = $future;
        Box::pin(async move { Ok(Box::new(future.await?) as Box<_>) })
    }};
}

macro_rules! boxed_if_any {
    ($future:expr) => {{
        let future = $future;
        Box::pin(async move { Ok(future.await?.map(|hold| Box::new(hold) as Box<_>)) })
    }};
}

/// How clients and tables acquire such a hold.
macro_rules! acquisitions {
    ($hold:ident) => {
        fn acquire(&self, lock: Addr, mode: Mode) -> Later<'_, Result<$hold<'_>, AcquireError>> {
            boxed!(Self::acquire(self, lock, mode))
        }

        fn acquire_within(
            &self,
            lock: Addr,
            mode: Mode,
            time: Nanos,
        ) -> Later<'_, Result<$hold<'_>, AcquireError>> {
            boxed!(Self::acquire_within(self, lock, mode, time))
        }

        fn try_acquire(
            &self,
            lock: Addr,
            mode: Mode,
        ) -> Later<'_, Result<Option<$hold<'_>>, AcquireError>> {
            boxed_if_any!(Self::try_acquire(self, lock, mode))
        }
    };
}

impl<E: SyncedClock, L: Lock<E>> Actor for Client<E, L> {
    acquisitions!(Hold);

    fn update(&self, lock: Addr) -> Later<'_, Result<Box<dyn HeldToUpdate + '_>, AcquireError>> {
        boxed!(Self::update(self, lock))
    }

    fn settle(&self) -> Later<'_, ()> {
        Box::pin(Self::settle(self))
    }

    fn is_unsettled(&self) -> bool {
        Self::is_unsettled(self)
    }

    fn events(&self) -> EventCounts {
        Self::events(self)
    }

    fn sleep(&self, time: Nanos) -> Later<'_, ()> {
        Box::pin(async move {
            self.endpoint().sleep(time).await;
        })
    }

    fn now(&self) -> Nanos {
        self.endpoint().now()
    }

    fn clock_error(&self) -> Nanos {
        self.endpoint().clock_error()
    }

    fn random(&self) -> u64 {
        self.endpoint().random()
    }

    fn slots(&self) -> u8 {
        self.endpoint().slots()
    }

    fn judged(&self, mode: Mode) -> Mode {
        if L::SHARES { mode } else { Mode::Exclusive }
    }
}

/// A guard as a hold.
macro_rules! held {
    ($guard:ty) => {
        impl<E: Endpoint, L: Lock<E>> Held for $guard {
            fn token(&self) -> Option<Token> {
                Self::token(self)
            }

            fn mode(&self) -> Mode {
                Self::mode(self)
            }

            fn release<'h>(self: Box<Self>) -> Later<'h, Result<(), ReleaseError>>
            where
                Self: 'h,
            {
                Box::pin(Self::release(*self))
            }
        }
    };
}

held!(Guard<'_, E, L>);

impl<E: Endpoint, L: Lock<E>> HeldToUpdate for UpdateGuard<'_, E, L> {
    fn token(&self) -> Option<Token> {
        Self::token(self)
    }

    fn upgrade<'h>(self: Box<Self>) -> Later<'h, Result<Hold<'h>, UpgradeError>>
    where
        Self: 'h,
    {
        boxed!(Self::upgrade(*self))
    }

    fn release<'h>(self: Box<Self>) -> Later<'h, Result<(), ReleaseError>>
    where
        Self: 'h,
    {
        Box::pin(Self::release(*self))
    }
}

impl<E: SyncedClock, L: Lock<E>> Table for HandoverTable<E, L> {
    fn client(&self) -> &dyn Actor {
        Self::client(self)
    }

    acquisitions!(Shared);
}

held!(local::Guard<'_, E, L>);

impl<E: Endpoint, L: Lock<E>> HeldByTask for local::Guard<'_, E, L> {
    fn fabric_token(&self) -> Option<Token> {
        Self::fabric_token(self)
    }

    fn turn(&self) -> u32 {
        Self::turn(self)
    }

    fn expires(&self) -> Option<Nanos> {
        Self::expires(self)
    }
}
