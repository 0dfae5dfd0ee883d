//! Changes with a fencing token.

use std::time::Duration;

use farlock_locks::Token;

use super::Kv;
use super::error::KvError;
use super::value::Term;
use super::wish;

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
    token: Token,
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
        Fenced { kv: self, token }
    }
}

impl Fenced<'_> {
    /// As [`Kv::put`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), KvError> {
        let wish = wish::put(value.as_ref(), Term::default());
        self.kv.change(key.as_ref(), Some(self.token), wish)
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
        let term = self.kv.term(key.as_ref(), time)?;
        self.kv.change(key.as_ref(), Some(self.token), wish::put(value.as_ref(), term))
    }

    /// As [`Kv::insert`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, KvError> {
        let wish = wish::insert(value.as_ref(), Term::default());
        self.kv.change(key.as_ref(), Some(self.token), wish)
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
        let term = self.kv.term(key.as_ref(), time)?;
        self.kv.change(key.as_ref(), Some(self.token), wish::insert(value.as_ref(), term))
    }

    /// As [`Kv::replace`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, KvError> {
        let wish = wish::replace(value.as_ref(), Term::default());
        self.kv.change(key.as_ref(), Some(self.token), wish)
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
        let term = self.kv.term(key.as_ref(), time)?;
        self.kv.change(key.as_ref(), Some(self.token), wish::replace(value.as_ref(), term))
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
        let wish = wish::compare_and_set(expected.as_ref(), value.as_ref());
        self.kv.change(key.as_ref(), Some(self.token), wish)
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
        self.kv.change(key.as_ref(), Some(self.token), wish::update(change))
    }

    /// As [`Kv::add`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn add(&self, key: impl AsRef<[u8]>, by: i64) -> Result<i64, KvError> {
        self.kv.change(key.as_ref(), Some(self.token), wish::add(by))
    }

    /// As [`Kv::remove`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool, KvError> {
        self.kv.change(key.as_ref(), Some(self.token), wish::remove())
    }
}
