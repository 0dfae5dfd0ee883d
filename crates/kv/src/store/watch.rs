//! Waiting until a key is not what it was.
//!
//! A key that is there has one slot, and whatever changes the key changes that slot's word; so does
//! the growth of the index, when it takes the slot to the next level. A key that is absent may come
//! into any of its slots, or into a heir of one, which is marked before. No slot says the same
//! twice, so that a word which is what it was says that nothing has happened.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use farlock_fabric::{Addr, Endpoint, EndpointId, Nanos, Patience, Wait, Waiting, Woken};
use smallvec::SmallVec;

use super::core::Store;
use super::find::Seen;
use crate::error::{ReadError, WriteError};
use crate::far;
use crate::flaw::Flaw;
use crate::index::{Index, Key};
use crate::sync::Scheme;
use crate::word::SlotWord;

/// What an endpoint that does not watch memory looks at it again after.
const POLL_NS: Nanos = 1_000_000;

/// How long a wait that was woken for nothing cannot be woken, at first and at most. Words share
/// what wakes those that wait for them: where others are changed all the time nobody is to wake at
/// each change, nor to have each writer wake it.
const PAUSE_NS: [Nanos; 2] = [1_000_000, 32_000_000];

/// What was seen of a key, but for its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sight {
    version: Option<SlotWord>,
    /// What is looked at for a change: slots, and what they said.
    slots: SmallVec<[(Addr, SlotWord); 1]>,
}

/// Why waits for some slots have ended.
enum Ended {
    Changed,
    Elapsed,
    /// They were woken, and no slot has changed.
    InVain,
}

impl Sight {
    /// A value that was written has a version, which no other value of its key has: not one with
    /// the same bytes either. `None`: the key was absent.
    pub fn version(&self) -> Option<SlotWord> {
        self.version
    }

    /// Waits until a key may not be any more what was seen of it, or this peer is dead, or so many
    /// nanoseconds have passed. Returns whether it is to be looked at again. What has changed since
    /// it was seen ends the wait at once.
    ///
    /// A waiter costs others nothing but to be woken, and nothing where it is stopped. A crash or a
    /// drop leaves nothing behind.
    pub async fn until_changed<E: Endpoint>(
        &self,
        endpoint: &E,
        peer: Option<EndpointId>,
        interval: Nanos,
    ) -> bool {
        if !E::WATCHES_MEMORY {
            endpoint.sleep(interval.min(POLL_NS)).await;
            return true;
        }
        let until = endpoint.now().saturating_add(interval);
        let [mut pause, pause_max] = PAUSE_NS;
        loop {
            let left = until.saturating_sub(endpoint.now());
            match self.slots_change(endpoint, peer.as_slice(), left).await {
                Ended::Changed => return true,
                Ended::Elapsed => return false,
                Ended::InVain => {
                    let left = until.saturating_sub(endpoint.now());
                    endpoint.sleep(left.min(pause)).await;
                    pause = pause_max.min(2 * pause);
                }
            }
        }
    }

    async fn slots_change<E: Endpoint>(
        &self,
        endpoint: &E,
        peers: &[EndpointId],
        interval: Nanos,
    ) -> Ended {
        let mut waits: SmallVec<[Waiting<'_, E>; 1]> =
            self.waits(endpoint, peers, interval).collect();
        let mut has_slept = false;
        poll_fn(|cx| {
            for wait in &mut waits {
                match Pin::new(wait).poll(cx) {
                    Poll::Ready(Woken::Elapsed) => return Poll::Ready(Ended::Elapsed),
                    Poll::Ready(_) => return Poll::Ready(Ended::Changed),
                    Poll::Pending => {}
                }
            }
            match std::mem::replace(&mut has_slept, true) {
                true => Poll::Ready(Ended::InVain),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// The waits of which one ends when the key may not be any more what was seen of it: for a task
    /// that waits for several keys at once. There are [`Sight::slots`] of them.
    pub fn waits<'e, E: Endpoint>(
        &'e self,
        endpoint: &'e E,
        peers: &'e [EndpointId],
        interval: Nanos,
    ) -> impl Iterator<Item = Waiting<'e, E>> {
        self.slots.iter().map(move |&(slot, word)| {
            let (word, interval) = (Some((slot, word.0)), Some(interval));
            let wait = Wait { word, peers, interval, patience: Patience::PARK, ..Wait::default() };
            endpoint.wait(wait)
        })
    }

    /// How many words are looked at for a change.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Whether the key may not be any more what was seen of it. A fault says that it may not.
    pub async fn has_changed<E: Endpoint>(&self, endpoint: &E) -> bool {
        let places: SmallVec<[(Addr, usize); 32]> =
            self.slots.iter().map(|(slot, _)| (*slot, 1)).collect();
        match far::gather(endpoint, &places).await {
            Ok(words) => words.iter().zip(&self.slots).any(|(word, (_, said))| *word != said.0),
            Err(_) => true,
        }
    }
}
impl<S: Scheme, I: Index> Store<S, I> {
    /// What there is of a key, to be waited for, and its value; as [`Store::get`].
    ///
    /// # Errors
    /// See [`ReadError`]. Nothing is left behind by a crash or a drop.
    pub async fn sight(&self, key: &[u8]) -> Result<(Sight, Option<Vec<u8>>), ReadError> {
        let key = Key::new(key).ok_or(ReadError::BadKey)?;
        if I::TREE {
            return Box::pin(self.sight_in_tree(&key)).await;
        }
        Ok(match self.locate(&key).await? {
            Seen::Found(found) => {
                let slots = [(found.slot, found.word)].into_iter().collect();
                let sight = Sight { version: Some(found.word), slots };
                (sight, Some(found.opened.into_value()))
            }
            Seen::Absent(probe) => {
                let most = if self.errs(Flaw::WatchesOneSlot) { 1 } else { usize::MAX };
                (Sight { version: None, slots: probe.slots().take(most).collect() }, None)
            }
        })
    }

    /// The same in a tree. Nothing is waited for at a slot that is frozen: it says the same for
    /// good. Where there is no memory to replace its node the wait ends at once, and the caller
    /// tries again.
    async fn sight_in_tree(&self, key: &Key<'_>) -> Result<(Sight, Option<Vec<u8>>), ReadError> {
        // Read first, so that it changes if the key comes after it was found absent.
        let place = match self.place_of_absent(key).await {
            Ok(place) => Some(place),
            Err(WriteError::Fabric(fault)) => return Err(fault.into()),
            Err(WriteError::Corrupt) => return Err(ReadError::Corrupt),
            Err(_) => None,
        };
        Ok(match self.locate(key).await? {
            Seen::Found(found) => {
                let slots = [(found.slot, found.word)].into_iter().collect();
                let sight = Sight { version: Some(found.word), slots };
                (sight, Some(found.opened.into_value()))
            }
            Seen::Absent(_) => match place {
                Some(place) => {
                    (Sight { version: None, slots: [place].into_iter().collect() }, None)
                }
                None => return Err(ReadError::Busy),
            },
        })
    }
}
