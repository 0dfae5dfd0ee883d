//! Changes, with a fencing token and without.

use std::time::Duration;

use farlock_locks::Token;

use super::Kv;
use super::error::KvError;
use super::value::Term;
use super::wish::{self, Wishes};

/// A store as the holder of a lock changes it: with the lock's token, which is looked at and
/// written in one act with the value.
///
/// A key that was written with a later token is not changed: [`KvError::StaleToken`]. One that is
/// changed is *fenced* from then on, and keeps the highest token for good: without one it is not
/// changed any more. An ephemeral value that is changed is none any more, and stays. An operation
/// that changes nothing, as the insertion of what is there, leaves the token that the key had.
#[derive(Clone, Copy, Debug)]
pub struct Fenced<'k> {
    kv: &'k Kv,
    /// None changes what was never written with one: so [`Kv`] itself does.
    token: Option<Token>,
}

impl Kv {
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
        self.fenced(token).put(key, value)
    }

    /// The same with a token, as [`Kv::put_fenced`] writes with one.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn remove_fenced(&self, key: impl AsRef<[u8]>, token: Token) -> Result<bool, KvError> {
        self.fenced(token).remove(key)
    }

    /// The same store, changed with this token: what [`Kv::put_fenced`] says holds of all that
    /// [`Fenced`] does.
    ///
    /// ```no_run
    /// # use farlock::{RegionOptions, Session};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let session = Session::open(&RegionOptions::for_user())?;
    /// let (guard, jobs) = (session.lock("jobs").exclusive().blocking()?, session.kv("jobs")?);
    /// let number = jobs.fenced(guard.token()).add("last", 1)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fenced(&self, token: Token) -> Fenced<'_> {
        Fenced { kv: self, token: Some(token) }
    }

    /// The same store, changed without one.
    #[inline]
    pub(super) fn plain(&self) -> Fenced<'_> {
        Fenced { kv: self, token: None }
    }
}

impl Fenced<'_> {
    /// Gives a key this value as such a wish says, for so long.
    #[inline]
    fn give<'v, T, W: Wishes<'v, T>>(
        &self,
        key: &[u8],
        value: &'v [u8],
        time: Option<Duration>,
        wish: impl FnOnce(&'v [u8], Term) -> W,
    ) -> Result<T, KvError> {
        let term = match time {
            Some(time) => self.kv.part_of(key)?.term(time),
            None => Term::default(),
        };
        self.change(key, wish(value, term))
    }

    #[inline]
    fn change<'v, T>(&self, key: &[u8], wish: impl Wishes<'v, T>) -> Result<T, KvError> {
        self.kv.change(key, self.token, wish)
    }

    /// As [`Kv::put`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), KvError> {
        self.give(key.as_ref(), value.as_ref(), None, wish::put)
    }

    /// As [`Kv::put_for`]: what it gets ends, the token stays.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn put_for(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time: Duration,
    ) -> Result<(), KvError> {
        self.give(key.as_ref(), value.as_ref(), Some(time), wish::put)
    }

    /// As [`Kv::insert`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, KvError> {
        self.give(key.as_ref(), value.as_ref(), None, wish::insert)
    }

    /// As [`Kv::insert_for`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn insert_for(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time: Duration,
    ) -> Result<bool, KvError> {
        self.give(key.as_ref(), value.as_ref(), Some(time), wish::insert)
    }

    /// As [`Kv::replace`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, KvError> {
        self.give(key.as_ref(), value.as_ref(), None, wish::replace)
    }

    /// As [`Kv::replace_for`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn replace_for(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time: Duration,
    ) -> Result<bool, KvError> {
        self.give(key.as_ref(), value.as_ref(), Some(time), wish::replace)
    }

    /// As [`Kv::compare_and_set`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<bool, KvError> {
        self.change(key.as_ref(), wish::compare_and_set(expected.as_ref(), value.as_ref()))
    }

    /// As [`Kv::update_with`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn update_with(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, KvError> {
        self.change(key.as_ref(), wish::update(change))
    }

    /// As [`Kv::add`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn add(&self, key: impl AsRef<[u8]>, by: i64) -> Result<i64, KvError> {
        self.change(key.as_ref(), wish::add(by))
    }

    /// As [`Kv::remove`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool, KvError> {
        self.change(key.as_ref(), wish::remove())
    }
}
