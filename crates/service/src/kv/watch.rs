//! Watching a key.

use std::fmt;
use std::time::Duration;

use farlock_fabric::{Nanos, block_on};
use farlock_kv::{KEY_BYTES_MAX, Sight, SlotWord};

use super::Kv;
use super::error::KvError;
use super::value::{Stored, Term};

/// After so long a watch looks whether its store is still there.
const LOOK_NS: Nanos = 1_000_000_000;

/// A key that is watched: [`Kv::watch`].
///
/// It has a place in the store of its own, as a handle has, and may be sent to another thread. One
/// that is stopped, or dies, delays nobody and leaves nothing behind.
pub struct Watch {
    kv: Kv,
    key: Vec<u8>,
    /// What the key was when it was last returned: its version, if it had a value.
    seen: Option<Option<SlotWord>>,
    /// What to wait for, as long as that has not changed.
    sight: Option<Sight>,
    /// When the value that was seen ends.
    term: Term,
}

/// A wait of a watch: [`Watch::next`].
#[must_use = "a watch waits when it is told to block"]
#[derive(Debug)]
pub struct Next<'w> {
    watch: &'w mut Watch,
    limit: Option<Duration>,
}

impl Kv {
    /// Watches a key: [`Watch::next`] waits until it is not any more what it was.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn watch(&self, key: impl AsRef<[u8]>) -> Result<Watch, KvError> {
        let key = key.as_ref();
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(KvError::BadKey { bytes: key.len() });
        }
        let kv = self.another()?;
        Ok(Watch { kv, key: key.to_vec(), seen: None, sight: None, term: Term::default() })
    }
}

impl Watch {
    /// Waits until the key's value differs from what this watch returned last, or was written
    /// again, was removed or has ended; and returns what it is now. The first time it returns at
    /// once.
    ///
    /// A change between two waits is seen by the next one. Of changes that come quicker only the
    /// last may be seen, and of a value that came and went meanwhile nothing.
    ///
    /// The wait sleeps until the key's memory changes; each second it looks whether the store is
    /// still there. To wake it costs a writer of the key some microseconds. Now and then a writer
    /// of other keys wakes it too; where these are many a change may be told 32 ms late.
    #[expect(clippy::should_implement_trait, reason = "it waits as a lock is asked for")]
    pub fn next(&mut self) -> Next<'_> {
        Next { watch: self, limit: None }
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    fn wait(&mut self, limit: Option<Duration>) -> Result<Option<Vec<u8>>, KvError> {
        let nanos = |limit: Duration| Nanos::try_from(limit.as_nanos()).unwrap_or(Nanos::MAX);
        let gives_up = limit.map(|limit| (limit, self.kv.now().saturating_add(nanos(limit))));
        loop {
            self.kv.hub.check()?;
            if let Some(found) = self.look()? {
                return Ok(found);
            }
            let now = self.kv.now();
            if let Some((limit, _)) = gives_up.filter(|(_, at)| *at <= now) {
                return Err(KvError::TimedOut { limit });
            }
            let ends = [gives_up.map(|(_, at)| at), self.term.until].into_iter().flatten().min();
            let left = ends.map_or(LOOK_NS, |at| LOOK_NS.min(at.saturating_sub(now)));
            let owner = self.term.owner.map(|owner| owner.id);
            if let Some(sight) = &self.sight
                && block_on(self.kv.lane(), self.kv.store.until_changed(sight, owner, left))
            {
                self.sight = None;
            }
        }
    }

    /// What the key is now, if that is not what was seen.
    fn look(&mut self) -> Result<Option<Option<Vec<u8>>>, KvError> {
        if self.sight.is_some() {
            let has_ended = self.kv.has_ended(self.term);
            return Ok(has_ended.then(|| self.sees(None, None)));
        }
        let found = block_on(self.kv.lane(), self.kv.store.sight(&self.key));
        let (sight, bytes) = found.map_err(|error| KvError::of_read(error, &self.key))?;
        let mut live = None;
        if let Some(mut bytes) = bytes {
            let stored = Stored::decode(&bytes).ok_or(KvError::Corrupt)?;
            if let Some(length) = stored.data(|term| self.kv.has_ended(term)).map(<[u8]>::len) {
                let term = stored.term;
                bytes.truncate(length);
                live = Some((bytes, term));
            }
        }
        let version = sight.version().filter(|_| live.is_some());
        self.sight = Some(sight);
        let is_new = self.seen != Some(version);
        Ok(is_new.then(|| self.sees(version, live)))
    }

    fn sees(
        &mut self,
        version: Option<SlotWord>,
        live: Option<(Vec<u8>, Term)>,
    ) -> Option<Vec<u8>> {
        let (value, term) = live.unzip();
        self.seen = Some(version);
        self.term = term.unwrap_or_default();
        value
    }
}

impl Next<'_> {
    /// Gives up with [`KvError::TimedOut`] when so long has passed since it was asked for.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Waits, blocking this thread, and returns the key's value; `None` if there is none.
    ///
    /// # Errors
    /// See [`KvError`]. The watch may be asked again.
    pub fn blocking(self) -> Result<Option<Vec<u8>>, KvError> {
        self.watch.wait(self.limit)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("store", &self.kv.name()).finish_non_exhaustive()
    }
}

/// A watch may go from thread to thread.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<Watch>();
};
