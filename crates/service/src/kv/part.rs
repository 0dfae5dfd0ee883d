//! A part of a store as a handle has it; of most stores that is all there is. What is done with a
//! key is done here.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use farlock_fabric::{Endpoint as _, Nanos, Slot, block_on};
use farlock_kv::{Decision, WriteError};
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
        let is_read = block_on(lane, lane.read64(record)).is_ok();
        !is_read || lane.old() as Nanos == owner.since && lane.is_alive(owner.id)
    }

    /// How long it is until what ends so does, if that is known.
    pub(super) fn time_to(&self, term: Term) -> Option<Duration> {
        let until = term.until?;
        Some(Duration::from_nanos(until.saturating_sub(self.now())))
    }

    /// What is stored under a key.
    pub(super) fn stored(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.hub.check()?;
        let found = block_on(self.lane(), self.store.get(key));
        found.map_err(|error| self.hub.told(KvError::of_read(error, key)))
    }

    /// What is to be known of what is stored under a key, if anything is.
    pub(super) fn read<T>(
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
        mut wish: impl Wishes<'v, T>,
    ) -> Result<T, KvError> {
        self.hub.check()?;
        let mut is_last = false;
        loop {
            // Where a token counts, so does that of the value before.
            let blind = wish.blind().filter(|_| token.is_none());
            let decide = |old: Option<&[u8]>| self.decide(old, token, &mut wish);
            let change = self.store.modify_or_combine(key, blind.map(Ok), decide);
            match block_on(self.lane(), change) {
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
