//! The operations that people call.

use farlock_fabric::Addr;

use super::absorb::Instead;
use super::change::{Change, Purpose};
use super::core::Store;
use super::find::{Found, Seen};
use super::frees::FREES_MAX;
use super::insert::Rival;
use crate::error::{ReadError, WriteError};
use crate::flaw::Flaw;
use crate::index::{Index, Key};
use crate::key::VALUE_BYTES_MAX;
use crate::sync::{Effect, Ended, Entered, Scheme};
use crate::word::SlotWord;

/// How often an operation tries to change a key that others change.
const ATTEMPTS_MAX: u32 = 100_000;

/// What is to become of a key, seeing its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision<T> {
    /// Nothing: this is the answer.
    Leave(Result<T, WriteError>),
    /// It gets this value, and then this is the answer.
    Put(Vec<u8>, T),
    /// It goes, and then this is the answer. Of a key that is absent: [`WriteError::NotFound`].
    Remove(T),
}

/// What came of giving a key a value.
enum Put {
    Made,
    /// It counts as done right before another one. Others were seen to stand in line, or not.
    Absorbed {
        is_awaited: bool,
    },
    /// Others were first; and this is what they have put there, where that can be tried at once.
    Missed(Option<Box<Found>>),
}

impl Put {
    fn of(made: bool) -> Self {
        if made { Self::Made } else { Self::Missed(None) }
    }
}

impl<S: Scheme, I: Index> Store<S, I> {
    /// The value of a key; `None` if it is absent. It was so at a moment during the call. Two round
    /// trips, and no lock (CIDER, section 4.4).
    ///
    /// # Errors
    /// See [`ReadError`]. Nothing is left behind by a crash or a drop.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        match &self.reads {
            None => self.get_alone(key).await,
            // Boxed: where nothing is delegated it makes no read larger.
            Some(reads) => Box::pin(self.get_among(reads, key)).await,
        }
    }

    /// The same, whatever other tasks read.
    #[inline]
    pub(super) async fn get_alone(&self, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        let key = Key::new(key).ok_or(ReadError::BadKey)?;
        match self.locate(&key).await? {
            Seen::Found(found) if self.overlooks(found.slot) => Ok(None),
            Seen::Found(found) => Ok(Some(found.opened.into_value())),
            Seen::Absent(_) => Ok(None),
        }
    }

    /// Gives a new key a value.
    ///
    /// # Errors
    /// [`WriteError::Exists`], and as for every change: with [`WriteError::Unknown`], a drop of the
    /// future or a crash, it was made once, or will be, or never.
    pub async fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        let decide = |old: Option<&[u8]>| match old {
            None => Decision::Put(value.to_vec(), ()),
            Some(_) => Decision::Leave(Err(WriteError::Exists)),
        };
        self.in_turn(key, Effect::Insert, None, decide).await
    }

    /// Gives a key that exists another value.
    ///
    /// # Errors
    /// [`WriteError::NotFound`], and as for [`Store::insert`].
    pub async fn update(&self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        let decide = |old: Option<&[u8]>| match old {
            Some(_) => Decision::Put(value.to_vec(), ()),
            None => Decision::Leave(Err(WriteError::NotFound)),
        };
        self.overwrite(key, value, decide).await
    }

    /// Gives a key this value, whether or not it exists.
    ///
    /// # Errors
    /// As for [`Store::insert`].
    pub async fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.overwrite(key, value, |_| Decision::Put(value.to_vec(), ())).await
    }

    /// Takes a key away.
    ///
    /// # Errors
    /// [`WriteError::NotFound`], and as for [`Store::insert`].
    pub async fn delete(&self, key: &[u8]) -> Result<(), WriteError> {
        let decide = |old: Option<&[u8]>| match old {
            Some(_) => Decision::Remove(()),
            None => Decision::Leave(Err(WriteError::NotFound)),
        };
        self.in_turn(key, Effect::Delete, None, decide).await
    }

    /// Gives a key another value if it has the one that is expected.
    ///
    /// # Errors
    /// [`WriteError::NotFound`], [`WriteError::Mismatch`], and as for [`Store::insert`].
    pub async fn compare_and_set(
        &self,
        key: &[u8],
        expected: &[u8],
        value: &[u8],
    ) -> Result<(), WriteError> {
        let decide = |old: Option<&[u8]>| match old {
            Some(old) if old == expected => Decision::Put(value.to_vec(), ()),
            Some(_) => Decision::Leave(Err(WriteError::Mismatch)),
            None => Decision::Leave(Err(WriteError::NotFound)),
        };
        self.in_turn(key, Effect::Exact, None, decide).await
    }

    /// Adds to a key's number, wrapping, and returns the sum. A number is 8 bytes, the lowest
    /// first; an absent key counts as 0.
    ///
    /// # Errors
    /// [`WriteError::NotANumber`], and as for [`Store::insert`].
    pub async fn increment(&self, key: &[u8], by: u64) -> Result<u64, WriteError> {
        let decide = |old: Option<&[u8]>| {
            let old = old.map_or(Ok(0), |old| old.try_into().map(u64::from_le_bytes));
            match old.map(|old| old.wrapping_add(by)) {
                Ok(sum) => Decision::Put(sum.to_le_bytes().to_vec(), sum),
                Err(_) => Decision::Leave(Err(WriteError::NotANumber)),
            }
        };
        if self.errs(Flaw::CombinesIncrements) {
            return self.in_turn(key, Effect::Overwrite, Some(by), decide).await;
        }
        self.in_turn(key, Effect::Exact, None, decide).await
    }

    /// A change that does not ask what the value was, and so may be combined. A value that is too
    /// long is refused, and not said to have been there for no time.
    async fn overwrite(
        &self,
        name: &[u8],
        value: &[u8],
        decide: impl FnMut(Option<&[u8]>) -> Decision<()>,
    ) -> Result<(), WriteError> {
        let key = Key::new(name).ok_or(WriteError::BadKey)?;
        let fits = value.len() <= VALUE_BYTES_MAX && self.class(&key, value).is_some();
        let effect = if fits { Effect::Overwrite } else { Effect::Exact };
        self.in_turn(name, effect, Some(()), decide).await
    }

    /// Changes a key as `decide` says, which sees its value, or `None` if it is absent. Nothing
    /// comes between what it saw and the change: if others are first it is asked again, with what
    /// they have written.
    ///
    /// # Errors
    /// What `decide` answers, and as for [`Store::insert`].
    pub async fn modify<T>(
        &self,
        key: &[u8],
        decide: impl FnMut(Option<&[u8]>) -> Decision<T>,
    ) -> Result<T, WriteError> {
        self.in_turn(key, Effect::Exact, None, decide).await
    }

    /// The same. A change that gives the key a value, whatever the value was, may be combined with
    /// others that do so: then it answers what `combined` says.
    ///
    /// # Errors
    /// As for [`Store::modify`].
    pub async fn modify_or_combine<T>(
        &self,
        key: &[u8],
        combined: Option<T>,
        decide: impl FnMut(Option<&[u8]>) -> Decision<T>,
    ) -> Result<T, WriteError> {
        let effect = if combined.is_some() { Effect::Overwrite } else { Effect::Exact };
        self.in_turn(key, effect, combined, decide).await
    }

    /// Changes a key in a turn of the scheme. `combined` is what the operation answers if it is
    /// combined, where it may be.
    async fn in_turn<T>(
        &self,
        key: &[u8],
        effect: Effect,
        combined: Option<T>,
        mut decide: impl FnMut(Option<&[u8]>) -> Decision<T>,
    ) -> Result<T, WriteError> {
        let key = Key::new(key).ok_or(WriteError::BadKey)?;
        self.reap(FREES_MAX).await;
        self.move_some().await;
        let is_read = self.scheme.reads_before();
        let early = match is_read {
            true => Some(self.locate(&key).await?),
            false => self.recalled(&key).map(Seen::Found),
        };
        let hash = if self.errs(Flaw::CombinesAcrossKeys) { 0 } else { key.hash() };
        let mut turn = match self.scheme.enter(hash, effect).await {
            Entered::Turn(turn) => turn,
            Entered::Combined => {
                self.count(|counts| counts.changes += 1);
                self.count(|counts| counts.combined += 1);
                return Ok(combined.expect("only what may be combined is"));
            }
        };
        let mut ended = Ended::default();
        let early = early.map(|seen| (seen, is_read));
        let turns = (Some(&mut turn), &mut ended);
        let answer = self.attempts((&key, effect), early, &mut decide, turns).await;
        ended.replaced |= self.errs(Flaw::FalseSuccess);
        self.scheme.leave(turn, ended).await;
        if ended.replaced && self.errs(Flaw::ExecutesAgain) {
            return self.attempts((&key, effect), None, &mut decide, (None, &mut ended)).await;
        }
        answer
    }

    /// Tries, first with what was seen early, if it was: that was read, or is remembered.
    async fn attempts<'s, T>(
        &'s self,
        (key, effect): (&Key<'_>, Effect),
        mut early: Option<(Seen, bool)>,
        mut decide: impl FnMut(Option<&[u8]>) -> Decision<T>,
        (mut turn, ended): (Option<&mut S::Turn<'s>>, &mut Ended),
    ) -> Result<T, WriteError> {
        let mut rival = Rival::default();
        for attempt in 1..=ATTEMPTS_MAX {
            let (seen, is_read) = match early.take() {
                Some(early) => early,
                None => (self.locate(key).await?, true),
            };
            let exists = matches!(seen, Seen::Found(_));
            let value = match &seen {
                Seen::Found(found) => Some(found.opened.value()),
                Seen::Absent(_) => None,
            };
            let (put, answer) = match (decide(value), seen) {
                (Decision::Leave(answer), _) if is_read || self.errs(Flaw::TrustsMemory) => {
                    return answer;
                }
                // Only a change makes sure of what is remembered.
                (Decision::Leave(_), _) => continue,
                (Decision::Put(value, answer), seen) => {
                    // Those that are combined with it may have been called since it read early.
                    let is_read = is_read && (attempt > 1 || !self.scheme.reads_before());
                    (self.put((key, effect), &value, (seen, is_read), &mut rival).await?, answer)
                }
                (Decision::Remove(answer), Seen::Found(found)) => {
                    self.forget(key);
                    (Put::of(self.remove(&found).await?), answer)
                }
                (Decision::Remove(_), Seen::Absent(_)) => return Err(WriteError::NotFound),
            };
            match put {
                Put::Made | Put::Absorbed { .. } => {
                    let is_absorbed = matches!(put, Put::Absorbed { .. });
                    ended.is_awaited = matches!(put, Put::Absorbed { is_awaited: true });
                    ended.replaced = exists || is_absorbed;
                    self.note_change((key, effect), (attempt, ended.misses), is_absorbed);
                    return Ok(answer);
                }
                Put::Missed(found) => early = found.map(|found| (Seen::Found(*found), true)),
            }
            self.count(|counts| counts.retries += 1);
            if early.is_some() {
                continue;
            }
            ended.misses = attempt;
            if I::TREE {
                Box::pin(self.clear_way(key)).await?;
            }
            match &mut turn {
                Some(turn) => self.scheme.missed_in(turn, attempt).await,
                None => self.scheme.missed(attempt).await,
            }
        }
        Err(WriteError::Busy)
    }

    fn note_change(
        &self,
        (key, effect): (&Key<'_>, Effect),
        (attempt, misses): (u32, u32),
        is_absorbed: bool,
    ) {
        // Where overwrites alone collide the next one is tried at once.
        let absorbs = self.absorbs && effect == Effect::Overwrite;
        let is_contested = if absorbs { misses > 0 } else { attempt > 1 };
        if is_contested {
            self.is_shared(key);
        }
        self.count(|counts| counts.changes += 1);
        self.count(|counts| counts.combined += u64::from(is_absorbed));
    }

    async fn put(
        &self,
        (key, effect): (&Key<'_>, Effect),
        value: &[u8],
        (seen, is_read): (Seen, bool),
        rival: &mut Rival,
    ) -> Result<Put, WriteError> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(WriteError::TooLong);
        }
        match seen {
            Seen::Absent(probe) => self.insert_new(key, value, &probe, rival).await.map(Put::of),
            Seen::Found(found) => {
                let at = (found.slot, found.word);
                let is_blind = effect == Effect::Overwrite;
                let change = self.written(Purpose::Publish, at, key, value, is_blind).await?;
                let (word, block) = (change.new, change.block);
                self.forget(key);
                let made = self.try_make(Change { gone: Some(found.block), ..change }).await?;
                if let Err(says) = made {
                    let is_combined = is_blind && self.absorbs;
                    let at = Some((found.slot, says)).filter(|_| is_combined);
                    return self.missed(key, at, is_read).await;
                }
                if let Some(block) = block {
                    self.remember(key, (found.slot, word), block.generation, value);
                }
                Ok(Put::Made)
            }
        }
    }

    /// Others were first. Where that may count as done right after it, it is looked at what they
    /// have made of its slot.
    async fn missed(
        &self,
        key: &Key<'_>,
        at: Option<(Addr, SlotWord)>,
        is_read: bool,
    ) -> Result<Put, WriteError> {
        let Some(at) = at else { return Ok(Put::Missed(None)) };
        let (instead, is_awaited) = Box::pin(self.instead(key, at, is_read)).await?;
        Ok(match instead {
            Instead::BlindWrite => Put::Absorbed { is_awaited },
            // What was remembered was old, and this is not: while others overwrite the key as well,
            // and do nothing else, it is tried at once, and else its turn is waited for.
            Instead::Value(found) if !is_read && found.opened.is_blind && !is_awaited => {
                Put::Missed(Some(Box::new(found)))
            }
            Instead::Value(_) | Instead::Other => Put::Missed(None),
        })
    }

    async fn remove(&self, found: &Found) -> Result<bool, WriteError> {
        let emptied = found.word.emptied();
        let change = Change::of(Purpose::Remove, found.slot, found.word, emptied);
        let key = if I::TREE { found.opened.key().to_vec() } else { Vec::new() };
        let made = self.make(Change { gone: Some(found.block), key, ..change }).await?;
        Ok(made || self.errs(Flaw::LostDelete))
    }
}
