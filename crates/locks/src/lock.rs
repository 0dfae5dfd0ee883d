//! A lock as its clients run it: what every protocol has to say, and what some can.
//!
//! A protocol is split where its price is: the *opening* verb that acquires an uncontended lock,
//! the *closing* verb that releases one, each judged by a pure function, and the slow paths, async
//! functions over the endpoint. [`Client`](crate::Client) runs the pieces, so that an uncontended
//! cycle neither allocates nor builds a future, and a cancelled acquisition goes on by itself.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use farlock_fabric::{Addr, Endpoint, Nanos, Posted, Verb};

use crate::error::TuneError;
#[cfg(doc)]
use crate::promise::Promises;
use crate::promise::{Granted, LockKind};
use crate::shelf::{Entry, Shelved};
use crate::site::{Outcome, Site};
use crate::want::{Mode, Want};

/// How an attempt that never waits went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tried<G> {
    /// The lock is held.
    Granted(G),
    /// Another client has it; nothing was changed.
    Busy,
    /// The word was not as expected; try with what is now known of it.
    Again(u128),
}

/// The whole word that an attempt compares: as an earlier one found it, or as this slot left it, if
/// an opening verb would acquire the lock there; else a free one. It may have been left to others,
/// who do not change it.
#[inline]
pub(crate) fn expected_word<E: Endpoint, L: Lock<E>>(
    lock: &L,
    site: &Site<'_, E>,
    want: L::Want,
    seen: Option<u128>,
) -> u128 {
    let seen = seen.or(site.hint()).unwrap_or(0);
    if lock.opened(site, want, seen).is_some() { seen } else { 0 }
}

/// A future of a protocol, made by an ability that a lock may or may not have.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What a lock server does, for as long as there are clients. It never ends.
pub type Server = LocalFuture<'static, ()>;

/// The ability to hold a lock so that shared holders that came before stay: to read what it
/// protects, and to write it later. Holds to update exclude each other.
pub trait Update<E: Endpoint, G> {
    /// Acquires the lock beside the shared holders that came before, but beside no other client
    /// that may write. Later ones wait. It is released like an exclusive hold.
    ///
    /// A crash leaves behind what that of an exclusive client does.
    fn acquire_to_update<'a>(&'a self, site: Site<'a, E>) -> LocalFuture<'a, Outcome<G>>;

    /// Waits until the shared holders have left that were let stay: then the hold is exclusive.
    /// `None` if others have taken the lock away meanwhile.
    fn upgrade<'a>(&'a self, site: Site<'a, E>, grant: G) -> LocalFuture<'a, Outcome<Option<G>>>;
}

/// The ability to be granted by a server, which clients ask by messages.
pub trait Serve<E: Endpoint> {
    /// Makes this endpoint the server that clients of this value ask, and says what it does.
    fn serve(&mut self, endpoint: Rc<E>) -> Server;
}

/// The ability to hand a hold on among the tasks of its holder, by a verb.
pub trait Renew<E: Endpoint>: Lock<E> {
    /// Begins an exclusive hold anew for another task of its holder, as if it had been released and
    /// acquired by the task that runs: one release later, with the next token. `None`, and nothing
    /// has changed: others come first.
    async fn renew(&self, site: &Site<'_, E>, grant: Self::Grant) -> Outcome<Option<Self::Grant>>;
}

/// The ability to turn a hold into one in the other mode where it stands, without letting go.
pub trait Convert<E: Endpoint>: Lock<E> {
    /// Makes an exclusive hold a shared one, at once. `None`, and nothing has changed: it cannot,
    /// or not yet.
    async fn downgrade(
        &self,
        site: &Site<'_, E>,
        want: Self::Want,
        grant: Self::Grant,
    ) -> Outcome<Option<Self::Grant>>;

    /// Makes a shared hold an exclusive one if nobody else has any of it, with a token above all
    /// before. `None`, and nothing has changed: there is another, or one that waits comes first.
    async fn try_upgrade(
        &self,
        site: &Site<'_, E>,
        want: Self::Want,
        grant: Self::Grant,
    ) -> Outcome<Option<Self::Grant>>;
}

/// [`Convert`] of a lock that may or may not have it.
pub trait Conversion<E: Endpoint, W, G> {
    /// Turns a hold of this into one in this mode, which is not its own. `None`: it cannot.
    fn convert<'a>(
        &'a self,
        site: Site<'a, E>,
        held: (W, G),
        mode: Mode,
    ) -> LocalFuture<'a, Outcome<Option<G>>>;
}

impl<E: Endpoint, L: Convert<E>> Conversion<E, L::Want, L::Grant> for L {
    fn convert<'a>(
        &'a self,
        site: Site<'a, E>,
        (want, grant): (L::Want, L::Grant),
        mode: Mode,
    ) -> LocalFuture<'a, Outcome<Option<L::Grant>>> {
        Box::pin(async move {
            match mode {
                Mode::Shared => self.downgrade(&site, want, grant).await,
                Mode::Exclusive => self.try_upgrade(&site, want, grant).await,
            }
        })
    }
}

/// The ability to hold parts of what is held, and to let go of the rest.
pub trait Divide<E: Endpoint>: Lock<E> {
    /// Holds a part of what another slot of this client's holds, by this slot as well, under the
    /// same token. `None`, and this slot has nothing: it is none, or not to be had just now, since
    /// another client was about to come.
    ///
    /// Those whose deaths others see apart must not take parts of each other's holds, unless they
    /// end together.
    async fn take_part(
        &self,
        site: &Site<'_, E>,
        part: Self::Want,
        whole: (Self::Want, Self::Grant),
    ) -> Outcome<Option<Self::Grant>>;

    /// Releases what this slot holds but for what these parts of it have, of which each is held by
    /// a slot of its own, whose record says so. Without any it releases all.
    async fn leave_to(
        &self,
        site: &Site<'_, E>,
        whole: (Self::Want, Self::Grant),
        parts: &[(Self::Want, Self::Grant)],
    ) -> Outcome<()>;
}

/// [`Divide`] of a lock that may or may not have it.
pub trait Division<E: Endpoint, W, G> {
    /// [`Divide::take_part`].
    fn take_part<'a>(
        &'a self,
        site: Site<'a, E>,
        part: W,
        whole: (W, G),
    ) -> LocalFuture<'a, Outcome<Option<G>>>;

    /// [`Divide::leave_to`].
    fn leave_to<'a>(
        &'a self,
        site: Site<'a, E>,
        whole: (W, G),
        parts: &'a [(W, G)],
    ) -> LocalFuture<'a, Outcome<()>>;
}

impl<E: Endpoint, L: Divide<E>> Division<E, L::Want, L::Grant> for L {
    fn take_part<'a>(
        &'a self,
        site: Site<'a, E>,
        part: L::Want,
        whole: (L::Want, L::Grant),
    ) -> LocalFuture<'a, Outcome<Option<L::Grant>>> {
        Box::pin(async move { Divide::take_part(self, &site, part, whole).await })
    }

    fn leave_to<'a>(
        &'a self,
        site: Site<'a, E>,
        whole: (L::Want, L::Grant),
        parts: &'a [(L::Want, L::Grant)],
    ) -> LocalFuture<'a, Outcome<()>> {
        Box::pin(async move { Divide::leave_to(self, &site, whole, parts).await })
    }
}

/// The ability to write a hold down on a shelf, so that the slot by which it was had is free for
/// another one.
pub trait Shelve<E: Endpoint>: Lock<E> {
    /// What is written down of a hold.
    fn shelved(
        &self,
        site: &Site<'_, E>,
        want: Self::Want,
        grant: Self::Grant,
        token: u64,
        since_us: u64,
    ) -> Shelved;

    /// Writes it down there. By the grant that it returns any slot may release it, which strikes it
    /// out. If the entry's owner dies, what it held is mended as if it had had slots for all.
    async fn shelve(
        &self,
        site: &Site<'_, E>,
        grant: Self::Grant,
        entry: Entry,
        shelved: Shelved,
    ) -> Outcome<Self::Grant>;
}

/// Parameters of a lock whose clients meet in the middle and wait for time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// m: how many levels lie at most between a client that notifies those above it and one that
    /// looks for those below it.
    pub distance: u8,
    /// For how long the owner of a node waits before it looks below, in nanoseconds.
    pub wait_ns: Nanos,
}

/// The ability to have its parameters changed while clients use it.
pub trait Tune<E: Endpoint> {
    /// Changes the parameters of the lock that lies there, in two phases (Gao et al., *Citron*,
    /// FAST'23, section 3.5.5): prepares the change, waits until no living client has anything
    /// there by what was before, and commits it. No client waits for this. It waits for each that
    /// holds or awaits the lock now, so the client that runs it must have nothing of the lock,
    /// or go on with that meanwhile. If another change is prepared it first sees that one through.
    ///
    /// If the future is dropped, or its client crashes, in the middle, then either nothing has
    /// changed, or the change is prepared: clients go on, by what is right beside old and new
    /// parameters, and the next call commits it first.
    ///
    /// # Errors
    /// [`TuneError`].
    fn tune<'a>(
        &'a self,
        endpoint: &'a E,
        lock: Addr,
        to: Tuning,
    ) -> LocalFuture<'a, Result<(), TuneError>>;
}

/// A lock of far memory, as the client runs it. It lies at an address, where a client wants it in a
/// mode, or a part of it.
///
/// The value is the protocol's parameters and its state of one client (a backoff, say).
///
/// A crash leaves behind what each protocol's page says; [`repair`](crate::repair) mends it.
pub trait Lock<E: Endpoint>: LockKind {
    /// What is wanted of it: a [`Mode`] of one that is had as a whole.
    type Want: Want;

    /// What a holder remembers.
    type Grant: Granted;

    /// The ability to hold it to update; where there is none such a hold is exclusive from the
    /// first.
    fn updates(&self) -> Option<&dyn Update<E, Self::Grant>> {
        None
    }

    /// The ability to turn a hold into one in the other mode.
    fn conversion(&self) -> Option<&dyn Conversion<E, Self::Want, Self::Grant>> {
        None
    }

    /// The ability to hold parts of what is held.
    fn division(&self) -> Option<&dyn Division<E, Self::Want, Self::Grant>> {
        None
    }

    /// The ability to have its parameters changed while clients use it.
    fn tuning(&self) -> Option<&dyn Tune<E>> {
        None
    }

    /// The ability to be served, where that is how it is granted ([`Promises::served`]).
    fn server(&mut self) -> Option<&mut dyn Serve<E>> {
        None
    }

    /// The opening verb did not acquire the lock, or the hold that it gave is not
    /// [believed](Lock::is_believed): says so in the slot's record, where that matters.
    #[inline(always)]
    fn kept_out(&self, site: &Site<'_, E>, want: Self::Want) {
        let _ = (site, want);
    }

    /// Whether a slot that was granted the lock, and whose record says so by now, holds it. If not
    /// it has nothing to release, and acquires anew.
    #[inline(always)]
    fn is_believed(&self, site: &Site<'_, E>, want: Self::Want) -> bool {
        let _ = (site, want);
        true
    }

    /// A slot is about to ask for the lock: which of its acquisitions this is, for its record,
    /// where the lock tells them apart.
    #[inline(always)]
    fn begin(&self, site: &Site<'_, E>, want: Self::Want) -> u32 {
        let _ = (site, want);
        0
    }

    /// The verb that acquires the lock if it is free, and gets in line if another client has it.
    fn opening(&self, site: &Site<'_, E>, want: Self::Want) -> Verb<'static>;

    /// Posts the opening verb. A lock with two ways in posts each where it is made: what both have
    /// in common would be computed on a fabric that executes verbs at once, what one has is a
    /// constant.
    #[inline(always)]
    fn open(&self, site: &Site<'_, E>, want: Self::Want) -> Posted {
        site.endpoint.post(self.opening(site, want))
    }

    /// The grant, if the opening verb that found `old` acquired the lock.
    fn opened(&self, site: &Site<'_, E>, want: Self::Want, old: u128) -> Option<Self::Grant>;

    /// Waits for the lock after an opening verb that did not acquire it.
    fn wait_in_line(
        &self,
        site: &Site<'_, E>,
        want: Self::Want,
        old: u128,
    ) -> impl Future<Output = Outcome<Self::Grant>>;

    /// The same for who may withdraw while it waits ([`Site::is_withdrawn`]); `None` if it did and
    /// has left. Where the lock [withdraws](Promises::withdraws) the future may be dropped at
    /// any of its waits, and another one goes on where it was: then there is no `old` word.
    async fn wait_or_leave(
        &self,
        site: &Site<'_, E>,
        want: Self::Want,
        old: Option<u128>,
    ) -> Outcome<Option<Self::Grant>> {
        let old = old.expect("only a lock that withdraws goes on with a wait that was dropped");
        self.wait_in_line(site, want, old).await.map(Some)
    }

    /// The verb that releases the lock if nobody waits; `None` if a waiter is known.
    fn closing(
        &self,
        site: &Site<'_, E>,
        want: Self::Want,
        grant: Self::Grant,
    ) -> Option<Verb<'static>>;

    /// Posts the closing verb, as [`Lock::open`] does the opening one.
    #[inline(always)]
    fn close(&self, site: &Site<'_, E>, want: Self::Want, grant: Self::Grant) -> Option<Posted> {
        self.closing(site, want, grant).map(|verb| site.endpoint.post(verb))
    }

    /// The closing verb of a hold that it ends whatever it finds, with nothing left to do: a holder
    /// that does not ask how its release went need not wait for it. `None`: [`Lock::close`]. And
    /// whether it may take effect some milliseconds late, for nobody is known to wait for the lock.
    fn closing_unasked(
        &self,
        site: &Site<'_, E>,
        want: Self::Want,
        grant: Self::Grant,
    ) -> Option<(Verb<'static>, bool)> {
        let _ = (site, want, grant);
        None
    }

    /// Posts it unsignalled, as [`Lock::close`] does the closing verb. `false`: there is none.
    fn close_unasked(&self, site: &Site<'_, E>, want: Self::Want, grant: Self::Grant) -> bool {
        let Some((verb, may_lie)) = self.closing_unasked(site, want, grant) else { return false };
        site.endpoint.post_unsignalled(verb, may_lie);
        true
    }

    /// Whether the closing verb that found `old` released the lock.
    fn closed(&self, site: &Site<'_, E>, want: Self::Want, grant: Self::Grant, old: u128) -> bool;

    /// Passes the lock on where the closing verb could not release it. `old` is what that verb
    /// found, `None` if there was no such verb. Nothing is left to do where the closing verb always
    /// releases, or a hold without one ends by itself.
    fn hand_over(
        &self,
        site: &Site<'_, E>,
        want: Self::Want,
        grant: Self::Grant,
        old: Option<u128>,
    ) -> impl Future<Output = Outcome<()>> {
        let _ = (site, want, grant, old);
        std::future::ready(Ok(()))
    }

    /// The verb of an attempt that leaves no trace where it fails. `seen` is what an earlier
    /// attempt found. `None`: it takes more than a verb, see [`Lock::attempt`].
    fn trying(
        &self,
        site: &Site<'_, E>,
        want: Self::Want,
        seen: Option<u128>,
    ) -> Option<Verb<'static>>;

    /// An attempt that never waits for other clients, where no one verb makes it; `None` if another
    /// client has the lock.
    async fn attempt(&self, site: &Site<'_, E>, want: Self::Want) -> Outcome<Option<Self::Grant>> {
        let _ = (site, want);
        unreachable!("a verb makes an attempt of this lock")
    }

    /// How that attempt went, whose verb found `old`. Mostly it acquires what an opening verb does,
    /// if the whole word is as expected.
    #[inline]
    fn tried(
        &self,
        site: &Site<'_, E>,
        want: Self::Want,
        seen: Option<u128>,
        old: u128,
    ) -> Tried<Self::Grant> {
        match self.opened(site, want, old) {
            None => Tried::Busy,
            Some(_) if old != expected_word(self, site, want, seen) => Tried::Again(old),
            Some(grant) => Tried::Granted(grant),
        }
    }

    /// What an attempt does that found the lock taken, before it fails: a lock whose tries tell the
    /// truth looks whether those who have it live. `old` is what the attempt found.
    async fn try_beside(
        &self,
        site: &Site<'_, E>,
        want: Self::Want,
        old: u128,
    ) -> Outcome<Option<Self::Grant>> {
        let _ = (site, want, old);
        Ok(None)
    }
}

/// A lock that is had as a whole, in a mode: one record's.
pub trait RecordLock<E: Endpoint>: Lock<E, Want = Mode> {}

impl<E: Endpoint, L: Lock<E, Want = Mode>> RecordLock<E> for L {}

/// How a lock of this kind is truly held when this is asked for. Slot records say this, and repair
/// counts on it.
#[inline(always)]
pub(crate) fn true_want<E: Endpoint, L: Lock<E>>(want: L::Want) -> L::Want {
    if L::SHARES { want } else { want.in_mode(Mode::Exclusive) }
}
