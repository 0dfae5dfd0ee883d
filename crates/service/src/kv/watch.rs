//! Watching a key.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use farlock_fabric::{ConnectError, Endpoint as _, EndpointId, Nanos, block_on};
use farlock_kv::{KEY_BYTES_MAX, ReadError, Sight, SlotWord};

use super::Kv;
use super::error::KvError;
use super::index::Index;
use super::keep::Errand;
use super::part::Part;
use super::value::{Stored, Term};
use crate::session::Fate;

/// After so long a watch looks whether its store is still there.
const LOOK_NS: Nanos = 1_000_000_000;

/// A key that is watched: [`Kv::watch`].
///
/// It has a place in the store of its own, as a handle has, and may be sent to another thread. One
/// that is stopped, or dies, delays nobody and leaves nothing behind.
pub struct Watch {
    part: Part,
    key: Vec<u8>,
    /// What the key was when it was last returned: its version, if it had a value.
    seen: Option<Option<SlotWord>>,
    /// What to wait for, as long as that has not changed.
    sight: Option<Sight>,
    /// When the value that was seen ends.
    term: Term,
    /// What the store's thread waits for, for a task.
    asked: Option<Asked>,
}

/// A limit, and when it is over.
type GivesUp = (Duration, Nanos);

/// What a wait that the store's thread was asked for has come to, and until when it lasts.
type Asked = (Arc<Fate<Result<bool, ConnectError>>>, Nanos);

/// What a look at a key says.
enum Turn {
    Found(Option<Vec<u8>>),
    WaitsUntil(Nanos),
}

/// A wait of a watch: [`Watch::next`].
#[must_use = "a watch waits when it is told to block, or awaited"]
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
        self.part_of(key)?.watch(key)
    }
}

impl Part {
    /// See [`Kv::watch`].
    pub(super) fn watch(&self, key: &[u8]) -> Result<Watch, KvError> {
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(KvError::BadKey { bytes: key.len() });
        }
        Ok(Watch {
            part: self.another()?,
            key: key.to_vec(),
            seen: None,
            sight: None,
            term: Term::default(),
            asked: None,
        })
    }

    /// What there is of a key, to be waited for. Where a node of a tree was to be replaced and its
    /// client died, that is done first, and takes memory.
    fn sight(&self, key: &[u8]) -> Result<(Sight, Option<Vec<u8>>), KvError> {
        let look = || block_on(self.lane(), self.store.sight(key));
        let found = match look() {
            Err(ReadError::Busy) if self.hub.choice.index == Index::Ordered => {
                self.grow(1)?;
                look()
            }
            found => found,
        };
        found.map_err(|error| self.hub.told(KvError::of_read(error, key)))
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
        let gives_up = self.gives_up(limit);
        loop {
            let until = match self.turn(gives_up)? {
                Turn::Found(found) => return Ok(found),
                Turn::WaitsUntil(until) => until,
            };
            let (lane, owner) = (self.part.lane(), self.owner());
            let interval = until.saturating_sub(lane.now());
            if let Some(sight) = &self.sight
                && block_on(lane, sight.until_changed(lane, owner, interval))
            {
                self.sight = None;
            }
        }
    }

    /// The same wait for a task: the store's thread sleeps.
    fn poll(
        &mut self,
        gives_up: Option<GivesUp>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Vec<u8>>, KvError>> {
        loop {
            if let Some((fate, until)) = &self.asked {
                match fate.poll(cx) {
                    // It may be that of a future that was dropped, and then last too long.
                    Poll::Pending if gives_up.is_none_or(|(_, at)| *until <= at) => {
                        return Poll::Pending;
                    }
                    Poll::Pending | Poll::Ready(Ok(false)) => {}
                    Poll::Ready(Ok(true)) => self.sight = None,
                    Poll::Ready(Err(source)) => {
                        self.asked = None;
                        let name = self.part.hub.name.clone();
                        return Poll::Ready(Err(KvError::Open { name, source }));
                    }
                }
                self.asked = None;
            }
            match self.turn(gives_up) {
                Ok(Turn::Found(found)) => return Poll::Ready(Ok(found)),
                Ok(Turn::WaitsUntil(until)) => self.ask(until),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn ask(&mut self, until: Nanos) {
        let (fate, owner) = (Arc::new(Fate::default()), self.owner());
        let interval = until.saturating_sub(self.part.now());
        if let Some(sight) = self.sight.clone() {
            let told = Arc::clone(&fate);
            self.part.hub.wait(Errand { sight, owner, interval, fate: told });
            self.asked = Some((fate, until));
        }
    }

    fn owner(&self) -> Option<EndpointId> {
        self.term.owner.map(|owner| owner.id)
    }

    fn gives_up(&self, limit: Option<Duration>) -> Option<GivesUp> {
        let limit = limit?;
        let nanos = Nanos::try_from(limit.as_nanos()).unwrap_or(Nanos::MAX);
        Some((limit, self.part.now().saturating_add(nanos)))
    }

    /// Looks once, and says until when to wait then.
    fn turn(&mut self, gives_up: Option<GivesUp>) -> Result<Turn, KvError> {
        self.part.hub.check()?;
        if let Some(found) = self.look()? {
            return Ok(Turn::Found(found));
        }
        let now = self.part.now();
        if let Some((limit, _)) = gives_up.filter(|(_, at)| *at <= now) {
            // It may have changed since it was seen, where there was no time to wait for that.
            self.sight = None;
            return self.look()?.map(Turn::Found).ok_or(KvError::TimedOut { limit });
        }
        let looks = Some(now.saturating_add(LOOK_NS));
        let ends = [looks, gives_up.map(|(_, at)| at), self.term.until];
        Ok(Turn::WaitsUntil(ends.into_iter().flatten().min().unwrap_or(now)))
    }

    /// What the key is now, if that is not what was seen.
    fn look(&mut self) -> Result<Option<Option<Vec<u8>>>, KvError> {
        if self.sight.is_some() {
            let has_ended = self.part.has_ended(self.term);
            return Ok(has_ended.then(|| self.sees(None, None)));
        }
        let (sight, bytes) = self.part.sight(&self.key)?;
        let mut live = None;
        if let Some(mut bytes) = bytes {
            let stored = Stored::decode(&bytes).ok_or(KvError::Corrupt)?;
            if let Some(length) = stored.data(|term| self.part.has_ended(term)).map(<[u8]>::len) {
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

impl<'w> IntoFuture for Next<'w> {
    type Output = Result<Option<Vec<u8>>, KvError>;
    type IntoFuture = Changed<'w>;

    fn into_future(self) -> Changed<'w> {
        Changed { watch: self.watch, limit: self.limit, gives_up: None }
    }
}

/// A wait of a watch as a future. Dropped, it is as if it had not begun: no change is missed.
///
/// Its task is woken by the thread of the store, which sleeps for all tasks of a session that watch
/// keys of it. It can sleep on 96 words: a key that has a value takes one, and one that has none
/// 32. Of more it looks 10 to 30 times a second.
#[must_use = "futures do nothing until they are awaited"]
#[derive(Debug)]
pub struct Changed<'w> {
    watch: &'w mut Watch,
    limit: Option<Duration>,
    /// Once it was polled.
    gives_up: Option<GivesUp>,
}

impl Future for Changed<'_> {
    type Output = Result<Option<Vec<u8>>, KvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.gives_up.is_none() {
            this.gives_up = this.watch.gives_up(this.limit);
        }
        this.watch.poll(this.gives_up, cx)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("store", &self.part.hub.name).finish_non_exhaustive()
    }
}

/// A watch and its waits may go from thread to thread.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<Watch>();
    is_send::<Changed<'_>>();
};
