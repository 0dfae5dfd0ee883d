//! A part of a store as a handle has it; of most stores that is all there is. What is done with a
//! key is done here.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use farlock_fabric::{Endpoint as _, Nanos, Slot, block_on};
use farlock_kv::{Decision, ReadError, WriteError};
use farlock_locks::Token;

use super::error::KvError;
use super::hub::Hub;
use super::index::Store;
use super::keep::GROWTH_CHUNKS;
use super::value::{Owner, Stored, Term, VALUE_BYTES_MAX};
use super::wish::{Wish, Wishes};
use crate::connection::Lane;

/// A part of a store, by a place of its own.
pub(super) struct Part {
    pub(super) store: Store,
    pub(super) hub: Arc<Hub>,
    /// For how many chunks of a next level of the index memory was asked.
    reserved: Cell<u32>,
    /// When it last looked for what has ended, since the store was full.
    pub(super) swept_at: Cell<Option<Nanos>>,
}

impl Part {
    pub(super) fn of(hub: Arc<Hub>) -> Result<Self, KvError> {
        let store = hub.store()?;
        Ok(Self { store, hub, reserved: Cell::new(0), swept_at: Cell::new(None) })
    }

    /// The same by another place, for another thread.
    pub(super) fn another(&self) -> Result<Self, KvError> {
        self.hub.check()?;
        Self::of(Arc::clone(&self.hub))
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
        let is_read = block_on(lane, lane.at_once(lane.read64(record))).is_ok();
        !is_read || lane.old() as Nanos == owner.since && lane.is_alive(owner.id)
    }

    /// How long it is until what ends so does, if that is known.
    pub(super) fn time_to(&self, term: Term) -> Option<Duration> {
        let until = term.until?;
        Some(Duration::from_nanos(until.saturating_sub(self.now())))
    }

    /// Does something on this thread, which waits for it.
    pub(super) fn block<T>(&self, act: impl Future<Output = T>) -> T {
        block_on(self.lane(), act)
    }

    /// What is stored under a key.
    async fn stored(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.hub.check()?;
        self.found(key, self.store.get(key).await)
    }

    fn found(
        &self,
        key: &[u8],
        read: Result<Option<Vec<u8>>, ReadError>,
    ) -> Result<Option<Vec<u8>>, KvError> {
        read.map_err(|error| self.hub.told(KvError::of_read(error, key)))
    }

    /// The value that a key has.
    pub(super) async fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.live(self.stored(key).await?)
    }

    /// The same, blocking this thread: it polls the store's own future, for in memory of this host
    /// a get is so short that one around it counts.
    pub(super) fn value_now(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.hub.check()?;
        let read = self.block(self.store.get(key));
        self.live(self.found(key, read)?)
    }

    /// The value among the bytes that are stored, if it has not ended.
    fn live(&self, stored: Option<Vec<u8>>) -> Result<Option<Vec<u8>>, KvError> {
        let Some(mut bytes) = stored else { return Ok(None) };
        let stored = Stored::decode(&bytes).ok_or(KvError::Corrupt)?;
        let length = stored.data(|term| self.has_ended(term)).map(<[u8]>::len);
        Ok(length.map(|length| {
            // What lies beside it stands behind it.
            bytes.truncate(length);
            bytes
        }))
    }

    /// How long a key's value still has, if it has one.
    pub(super) async fn time_left(&self, key: &[u8]) -> Result<Option<Option<Duration>>, KvError> {
        let Some(bytes) = self.stored(key).await? else { return Ok(None) };
        let stored = Stored::decode(&bytes).ok_or(KvError::Corrupt)?;
        let is_there = stored.data(|term| self.has_ended(term)).is_some();
        Ok(is_there.then(|| self.time_to(stored.term)))
    }

    /// The highest token that a key was written with.
    pub(super) async fn token(&self, key: &[u8]) -> Result<Option<Token>, KvError> {
        let Some(bytes) = self.stored(key).await? else { return Ok(None) };
        Ok(Stored::decode(&bytes).ok_or(KvError::Corrupt)?.token)
    }

    /// When a value ends that is put now and stays for so long.
    pub(super) fn term(&self, time: Duration) -> Term {
        let time = Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX);
        Term { until: Some(self.now().saturating_add(time)), owner: None }
    }

    /// Changes a key as `wish` says, which sees its value, with this token.
    pub(super) async fn change<'v, T>(
        &self,
        key: &[u8],
        token: Option<Token>,
        mut wish: impl Wishes<'v, T>,
    ) -> Result<T, KvError> {
        self.hub.check()?;
        let mut is_last = false;
        loop {
            let known = self.store.chunks();
            let combined = combined(token, &wish);
            let decide = |old: Option<&[u8]>| self.decide(old, token, &mut wish);
            match self.store.modify_or_combine(key, combined, decide).await {
                Ok(answer) => return self.done(answer),
                Err(error) => self.make_room(error, key, known, &mut is_last).await?,
            }
        }
    }

    /// The same, blocking this thread: see [`Part::value_now`].
    pub(super) fn change_now<'v, T>(
        &self,
        key: &[u8],
        token: Option<Token>,
        mut wish: impl Wishes<'v, T>,
    ) -> Result<T, KvError> {
        self.hub.check()?;
        let mut is_last = false;
        loop {
            let known = self.store.chunks();
            let combined = combined(token, &wish);
            let decide = |old: Option<&[u8]>| self.decide(old, token, &mut wish);
            match self.block(self.store.modify_or_combine(key, combined, decide)) {
                Ok(answer) => return self.done(answer),
                Err(error) => self.block(self.make_room(error, key, known, &mut is_last))?,
            }
        }
    }

    #[inline]
    fn done<T>(&self, answer: Result<T, KvError>) -> Result<T, KvError> {
        if self.store.is_crowded() || self.store.is_short() {
            self.foresee();
        }
        answer
    }

    /// An operation that knew of so many chunks was refused: where that is for want of memory it
    /// may be tried again.
    #[cold]
    async fn make_room(
        &self,
        refused: WriteError,
        key: &[u8],
        known: u32,
        is_last: &mut bool,
    ) -> Result<(), KvError> {
        let wanted = match refused {
            // Another operation of this handle has got some meanwhile.
            WriteError::PoolFull | WriteError::IndexFull if self.store.chunks() > known => {
                return Ok(());
            }
            WriteError::PoolFull => {
                self.pass_claimed(key).await?;
                // Of operations that were all refused one gets more.
                if self.store.chunks() > known {
                    return Ok(());
                }
                1
            }
            WriteError::IndexFull => self.store.growth_chunks().unwrap_or(u32::MAX),
            error => return Err(self.hub.told(KvError::of_write(error, key))),
        };
        match (self.grow(wanted), refused) {
            // What others have left was not looked through.
            (Err(_), WriteError::PoolFull) if !*is_last => {
                self.store.has_all_chunks();
                *is_last = true;
            }
            // Boxed: to free what has ended is a change too.
            (Err(error), _) => Box::pin(self.sweep_once_full(error)).await?,
            (Ok(()), WriteError::PoolFull) => self.reserve_ahead(),
            (Ok(()), _) => {}
        }
        Ok(())
    }

    /// Knows of the chunks that others have claimed meanwhile.
    async fn pass_claimed(&self, key: &[u8]) -> Result<(), KvError> {
        let claimed = self.store.chunks_claimed(self.hub.chunks()).await;
        let claimed = claimed.map_err(|error| self.hub.told(KvError::of_read(error, key)))?;
        if claimed > self.store.chunks() {
            self.store.has_chunks(claimed);
        }
        Ok(())
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
        wish: &mut impl Wishes<'v, T>,
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
        match (wish.wish(live), token) {
            (Err(error), _) => refused(error),
            (Ok(Wish::Put(value, ..)), _) if value.len() > VALUE_BYTES_MAX => {
                refused(KvError::TooLong { bytes: value.len() })
            }
            (Ok(Wish::Put(value, term, answer)), token) => {
                // A key with a token outlives whatever it was to end with.
                let owner = term.owner.filter(|_| token.is_none());
                let term = Term { owner, ..term };
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

/// The answer of a change that is not carried out since another came right behind it. Where a token
/// counts, so does that of the value before.
fn combined<'v, T>(token: Option<Token>, wish: &impl Wishes<'v, T>) -> Option<Result<T, KvError>> {
    wish.blind().filter(|_| token.is_none()).map(Ok)
}

impl Drop for Part {
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
