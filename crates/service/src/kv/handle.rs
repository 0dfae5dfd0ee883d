//! A store's handle: its operations.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use farlock_fabric::{ConnectError, Endpoint as _, Host, Nanos, Slot, block_on};
use farlock_kv::{Decision, WriteError};
use farlock_locks::Token;

use super::error::KvError;
use super::hub::{Hub, host_options};
use super::index::{Index, Store, StoreOptions};
use super::keep::GROWTH_CHUNKS;
use super::value::{Owner, Stored, Term, VALUE_BYTES_MAX};
use crate::RegionOptions;
use crate::connection::{Lane, Region};
use crate::session::Session;

/// A key-value store of a session, as one thread or task uses it at a time.
///
/// It may be sent to another thread; a thread more takes a handle more ([`Kv::another`]), which has
/// a place in the store of its own. Operations are a few memory accesses on the caller's thread and
/// wait for nobody, so that an async task calls them as they are.
///
/// A handle that is dropped gives its free memory back. One whose process dies leaves it to the
/// next client that needs memory; what it was told is stored is stored, and what it was doing was
/// done, or was not.
pub struct Kv {
    pub(super) store: Store,
    pub(super) hub: Arc<Hub>,
    /// For how many chunks of a next level of the index memory was asked.
    reserved: Cell<u32>,
    /// When it last looked for what has ended, since the store was full.
    pub(super) swept_at: Cell<Option<Nanos>>,
}

/// What is to become of a key.
pub(super) enum Wish<'v, T> {
    /// Nothing.
    Leave(T),
    /// It gets this value, which ends so.
    Put(Cow<'v, [u8]>, Term, T),
    /// It has no value any more.
    Remove(T),
}

/// The value of a key, and when it ends.
pub(super) type Live<'a> = (&'a [u8], Term);

impl Session {
    /// The key-value store of this name in the session's region, created where it is missing; a
    /// name, or [`StoreOptions`] that say which index it is to have too. A server that is away is
    /// waited for as long as the session lives without it.
    ///
    /// # Errors
    /// See [`KvError`]. A crash leaves no store, or an empty one.
    pub fn kv(&self, store: impl Into<StoreOptions>) -> Result<Kv, KvError> {
        let wanted = store.into();
        if self.is_forked() {
            return Err(KvError::Forked);
        }
        // Nothing that can panic runs under this mutex.
        let mut stores = self.root.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let open = stores.get(&wanted.name).and_then(std::sync::Weak::upgrade);
        let hub = match open.filter(|hub| hub.check().is_ok()) {
            Some(hub) => hub.admit(wanted.index).map(|()| hub)?,
            None => {
                let hub = Arc::new(self.open_store(&wanted)?);
                stores.insert(wanted.name, Arc::downgrade(&hub));
                hub
            }
        };
        drop(stores);
        Kv::of(hub)
    }

    fn open_store(&self, wanted: &StoreOptions) -> Result<Hub, KvError> {
        /// How long after an attempt the next one is made.
        const AGAIN: Duration = Duration::from_millis(20);
        let valid_for = self.root.valid_for().unwrap_or_default();
        let until = Instant::now() + valid_for;
        loop {
            match Hub::open(&self.root.options, wanted) {
                Err(error) if error.is_of_server_away() && Instant::now() < until => {
                    std::thread::sleep(AGAIN);
                }
                opened => return opened,
            }
        }
    }
}

impl StoreOptions {
    /// Whether a store can have this name.
    ///
    /// # Errors
    /// [`KvError::BadName`]: it cannot.
    pub fn check_name(&self) -> Result<(), KvError> {
        Host::check_name(&self.name).map_err(|error| {
            let name = self.name.clone();
            match error {
                ConnectError::Name { name, why } => KvError::BadName { name, why },
                source => KvError::Open { name, source },
            }
        })
    }
}

impl RegionOptions {
    /// The names of the key-value stores of this region, sorted.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn store_names(&self) -> Result<Vec<String>, ConnectError> {
        self.check_dirs()?;
        self.check_name()?;
        Region::list(&host_options(self, "").dir)
    }

    /// Removes a key-value store with all that is in it. Clients that have it open are told
    /// ([`KvError::Gone`]). Returns whether there was one.
    ///
    /// # Errors
    /// [`KvError::BadName`] and [`KvError::Open`].
    pub fn remove_store(&self, name: &str) -> Result<bool, KvError> {
        StoreOptions::new(name).check_name()?;
        let remove = || {
            self.check_dirs()?;
            self.check_name()?;
            Region::remove(&host_options(self, name).dir, name)
        };
        remove().map_err(|source| KvError::Open { name: name.to_owned(), source })
    }
}

impl Kv {
    /// Opens the store of this name in a region, as [`Session::kv`] does, for a program that needs
    /// no locks.
    ///
    /// # Errors
    /// See [`KvError`]. A crash leaves no store, or an empty one.
    pub fn open(options: &RegionOptions, store: impl Into<StoreOptions>) -> Result<Self, KvError> {
        Self::of(Arc::new(Hub::open(options, &store.into())?))
    }

    fn of(hub: Arc<Hub>) -> Result<Self, KvError> {
        let store = hub.store()?;
        Ok(Self { store, hub, reserved: Cell::new(0), swept_at: Cell::new(None) })
    }

    /// Another handle of the same store, for another thread.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn another(&self) -> Result<Self, KvError> {
        self.hub.check()?;
        Self::of(Arc::clone(&self.hub))
    }

    /// The store's name.
    pub fn name(&self) -> &str {
        &self.hub.name
    }

    /// The index that the store was made with.
    pub fn index(&self) -> Index {
        self.hub.index
    }

    /// How many bytes of memory the store takes, whatever is in it.
    pub fn bytes(&self) -> u64 {
        self.hub.bytes()
    }

    /// The value of a key; `None` if there is none, or it has ended.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, KvError> {
        let key = key.as_ref();
        let Some(mut bytes) = self.stored(key)? else { return Ok(None) };
        let stored = Stored::decode(&bytes).ok_or(KvError::Corrupt)?;
        let length = stored.data(|term| self.has_ended(term)).map(<[u8]>::len);
        Ok(length.map(|length| {
            // What lies beside it stands behind it.
            bytes.truncate(length);
            bytes
        }))
    }

    /// How long a key's value still has; `None` if there is none, `Some(None)` if it does not end.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn time_left(&self, key: impl AsRef<[u8]>) -> Result<Option<Option<Duration>>, KvError> {
        self.read(key.as_ref(), |stored| {
            stored.data(|term| self.has_ended(term))?;
            Some(self.time_to(stored.term))
        })
    }

    /// The highest token that a key was written with.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn token(&self, key: impl AsRef<[u8]>) -> Result<Option<Token>, KvError> {
        self.read(key.as_ref(), |stored| stored.token)
    }

    /// Gives a key this value, whether or not it has one.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), KvError> {
        let value = value.as_ref();
        self.change(key.as_ref(), None, |_| Ok(Wish::Put(value.into(), Term::default(), ())))
    }

    /// The same, for so long: then the key has no value any more. Time is that of the memory's
    /// host, and goes on while the host is suspended.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn put_for(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time: Duration,
    ) -> Result<(), KvError> {
        let value = value.as_ref();
        let time = Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX);
        let until = Some(self.now().saturating_add(time));
        let term = Term { until, owner: None };
        self.change(key.as_ref(), None, |_| Ok(Wish::Put(value.into(), term, ())))
    }

    /// The same as [`Kv::put`], unless the key was written with a later token: then this is refused
    /// ([`KvError::StaleToken`]). So a holder of a lock that was paused while others had the lock
    /// writes nothing more: the token is looked at and the value is written in one act.
    ///
    /// The key is *fenced* from then on: it is changed with a token only, and keeps the highest for
    /// good, also when its value is removed.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn put_fenced(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        token: Token,
    ) -> Result<(), KvError> {
        let value = value.as_ref();
        self.change(key.as_ref(), Some(token), |_| Ok(Wish::Put(value.into(), Term::default(), ())))
    }

    /// Gives a key that has no value this one. Returns whether it had none.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, KvError> {
        let value = value.as_ref();
        self.change(key.as_ref(), None, |old| {
            Ok(match old {
                None => Wish::Put(value.into(), Term::default(), true),
                Some(_) => Wish::Leave(false),
            })
        })
    }

    /// Gives a key that has a value another one. Returns whether it had one.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, KvError> {
        let value = value.as_ref();
        self.change(key.as_ref(), None, |old| {
            Ok(match old {
                Some(_) => Wish::Put(value.into(), Term::default(), true),
                None => Wish::Leave(false),
            })
        })
    }

    /// Gives a key another value if it has the one that is expected; when it ends stays. Returns
    /// whether it had that.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<bool, KvError> {
        let (expected, value) = (expected.as_ref(), value.as_ref());
        self.change(key.as_ref(), None, |old| {
            Ok(match old {
                Some((old, term)) if old == expected => Wish::Put(value.into(), term, true),
                _ => Wish::Leave(false),
            })
        })
    }

    /// Adds to a key's number and returns the sum; when it ends stays. A number is decimal text,
    /// from -2^63 to 2^63 - 1; a key that has no value counts as 0.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn add(&self, key: impl AsRef<[u8]>, by: i64) -> Result<i64, KvError> {
        self.change(key.as_ref(), None, |old| {
            let none = (Some(0), Term::default());
            let (old, term) = old.map_or(none, |(old, term)| (number(old), term));
            let sum = old.and_then(|old| old.checked_add(by)).ok_or(KvError::NotANumber)?;
            Ok(Wish::Put(sum.to_string().into_bytes().into(), term, sum))
        })
    }

    /// Takes a key's value away. Returns whether it had one.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool, KvError> {
        self.change(key.as_ref(), None, |old| Ok(Wish::Remove(old.is_some())))
    }

    /// The same with a token, as [`Kv::put_fenced`] writes with one.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn remove_fenced(&self, key: impl AsRef<[u8]>, token: Token) -> Result<bool, KvError> {
        self.change(key.as_ref(), Some(token), |old| Ok(Wish::Remove(old.is_some())))
    }

    pub(super) fn lane(&self) -> &Lane {
        self.store.lane()
    }

    pub(super) fn now(&self) -> Nanos {
        self.lane().now()
    }

    /// Whether what ends so has ended.
    pub(super) fn has_ended(&self, term: Term) -> bool {
        term.until.is_some_and(|until| until <= self.now())
            || term.owner.is_some_and(|owner| !self.lives(owner))
    }

    /// Whether an owner lives. One that is dead is so for good.
    fn lives(&self, owner: Owner) -> bool {
        let lane = self.lane();
        // First that: of an owner that has left its place the record may be another's.
        if !lane.is_alive(owner.id) {
            return false;
        }
        let record = lane.record(owner.id.index, Slot(0));
        // What cannot be read says nothing of it. By a server it is known to be dead when its
        // record was read.
        let is_read = block_on(lane, lane.read64(record)).is_ok();
        !is_read || lane.old() as Nanos == owner.since && lane.is_alive(owner.id)
    }

    /// How long it is until what ends so does, if that is known.
    pub(super) fn time_to(&self, term: Term) -> Option<Duration> {
        let until = term.until?;
        Some(Duration::from_nanos(until.saturating_sub(self.now())))
    }

    /// What is stored under a key.
    fn stored(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.hub.check()?;
        let found = block_on(self.lane(), self.store.get(key));
        found.map_err(|error| self.hub.told(KvError::of_read(error, key)))
    }

    /// What is to be known of what is stored under a key, if anything is.
    fn read<T>(
        &self,
        key: &[u8],
        tell: impl FnOnce(Stored<'_>) -> Option<T>,
    ) -> Result<Option<T>, KvError> {
        let Some(bytes) = self.stored(key)? else { return Ok(None) };
        Ok(tell(Stored::decode(&bytes).ok_or(KvError::Corrupt)?))
    }

    /// Changes a key as `wish` says, which sees its value, with this token.
    pub(super) fn change<'v, T>(
        &self,
        key: &[u8],
        token: Option<Token>,
        mut wish: impl FnMut(Option<Live<'_>>) -> Result<Wish<'v, T>, KvError>,
    ) -> Result<T, KvError> {
        self.hub.check()?;
        let mut is_last = false;
        loop {
            let decide = |old: Option<&[u8]>| self.decide(old, token, &mut wish);
            match block_on(self.lane(), self.store.modify(key, decide)) {
                Ok(answer) => {
                    if self.store.is_crowded() || self.store.is_short() {
                        self.foresee();
                    }
                    return answer;
                }
                Err(WriteError::PoolFull) => match self.grow(1) {
                    // What others have left was not looked through.
                    Err(_) if !is_last => {
                        self.store.has_all_chunks();
                        is_last = true;
                    }
                    Err(error) => self.sweep_once_full(error)?,
                    Ok(()) => self.reserve_ahead(),
                },
                Err(WriteError::IndexFull) => {
                    let wanted = self.store.growth_chunks();
                    let grown = match wanted {
                        Some(wanted) => self.grow(wanted),
                        None => Err(KvError::Full { source: None }),
                    };
                    grown.or_else(|error| self.sweep_once_full(error))?;
                }
                Err(error) => return Err(self.hub.told(KvError::of_write(error, key))),
            }
        }
    }

    /// The store will soon need memory: has it given, before an operation finds none.
    #[cold]
    fn foresee(&self) {
        if self.store.is_short() {
            match self.grow(1) {
                Ok(()) => self.reserve_ahead(),
                // Then all is looked through that others have left.
                Err(_) => self.store.has_all_chunks(),
            }
        }
        let index = self.store.growth_chunks().filter(|_| self.store.is_crowded());
        if index.is_some_and(|wanted| wanted > self.reserved.replace(wanted)) {
            self.reserve_ahead();
        }
    }

    /// Has the store's thread give it memory for what is needed next.
    fn reserve_ahead(&self) {
        let index = self.store.growth_chunks().filter(|_| self.store.is_crowded());
        self.hub.reserve(self.store.chunks() + GROWTH_CHUNKS + index.unwrap_or(0));
    }

    /// Gives the store room for so many chunks more than this handle knows of. It is to know of no
    /// more than it needs, for others are kept for the index.
    #[cold]
    pub(super) fn grow(&self, wanted: u32) -> Result<(), KvError> {
        let known = self.store.chunks();
        self.hub.grow(known, wanted)?;
        let needed = known + wanted.max(GROWTH_CHUNKS);
        self.store.has_chunks(needed.min(self.hub.chunks()));
        Ok(())
    }

    fn decide<'v, T>(
        &self,
        old: Option<&[u8]>,
        token: Option<Token>,
        wish: impl FnOnce(Option<Live<'_>>) -> Result<Wish<'v, T>, KvError>,
    ) -> Decision<Result<T, KvError>> {
        let old = match old.map(Stored::decode) {
            Some(None) => return Decision::Leave(Err(WriteError::Corrupt)),
            old => old.flatten(),
        };
        let refused = |error| Decision::Leave(Ok(Err(error)));
        match (old.and_then(|old| old.token), token) {
            (Some(seen), None) => return refused(KvError::Fenced { seen }),
            (Some(seen), Some(token)) if token < seen => {
                return refused(KvError::StaleToken { token, seen });
            }
            _ => {}
        }
        let live = old.and_then(|old| Some((old.data(|term| self.has_ended(term))?, old.term)));
        match (wish(live), token) {
            (Err(error), _) => refused(error),
            (Ok(Wish::Put(value, ..)), _) if value.len() > VALUE_BYTES_MAX => {
                refused(KvError::TooLong { bytes: value.len() })
            }
            (Ok(Wish::Put(value, term, answer)), token) => {
                Decision::Put(Stored::new(&value, term, token).encode(), Ok(answer))
            }
            (Ok(Wish::Remove(answer)), Some(token)) => {
                Decision::Put(Stored::gone(token).encode(), Ok(answer))
            }
            (Ok(Wish::Remove(answer)), None) if old.is_some() => Decision::Remove(Ok(answer)),
            (Ok(Wish::Leave(answer) | Wish::Remove(answer)), _) => Decision::Leave(Ok(Ok(answer))),
        }
    }
}

/// The number that a value is.
fn number(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

impl Drop for Kv {
    fn drop(&mut self) {
        if self.hub.is_forked() {
            return;
        }
        // A store that ends waits for no server that is gone.
        if Arc::strong_count(&self.hub) == 1 {
            self.hub.region.leave();
        }
        if self.hub.check().is_ok() {
            self.remove_own();
            // What is not given back now is taken over by clients that need it.
            let _ = block_on(self.lane(), self.store.close());
        }
        self.hub.leave(self.lane().id());
    }
}

impl fmt::Debug for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kv").field(&self.name()).finish()
    }
}

/// A handle may go from thread to thread.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<Kv>();
};
