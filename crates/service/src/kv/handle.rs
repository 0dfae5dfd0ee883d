//! A store's handle: its operations.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use farlock_locks::Token;

use super::error::KvError;
use super::hub::Hub;
use super::index::Index;
use super::part::Part;
use super::spread::{Several, Spread};
use super::wish::Wishes;

/// A key-value store of a session, as one thread uses it at a time.
///
/// It may be sent to another thread; a thread more takes a handle more ([`Kv::another`]), which has
/// a place in the store of its own. Operations are a few memory accesses on the caller's thread and
/// wait for nobody; by a server each blocks it for some round trips. Tasks have another face:
/// [`Kv::into_async`].
///
/// A handle that is dropped gives its free memory back. One whose process dies leaves it to the
/// next client that needs memory; what it was told is stored is stored, and what it was doing was
/// done, or was not.
///
/// A store may be over several regions ([`Kv::over`]): a handle then has a place in each of them.
pub struct Kv {
    parts: Parts,
}

/// What a store lies in.
#[expect(clippy::large_enum_variant, reason = "most are of one, and reached without a detour")]
enum Parts {
    /// One region, whole.
    One(Part),
    /// Several.
    Several(Several),
}

/// What handles of a store are made of.
pub(super) enum Source {
    One(Arc<Hub>),
    Several(Arc<Spread>),
}

impl Source {
    /// A handle.
    pub(super) fn handle(&self) -> Result<Kv, KvError> {
        match self {
            Self::One(hub) => {
                hub.check()?;
                Kv::of(Arc::clone(hub))
            }
            Self::Several(spread) => Several::of(spread).map(Kv::of_several),
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::One(hub) => &hub.name,
            Self::Several(spread) => spread.name(),
        }
    }
}

impl Kv {
    pub(super) fn of(hub: Arc<Hub>) -> Result<Self, KvError> {
        Ok(Self { parts: Parts::One(Part::of(hub)?) })
    }

    pub(super) fn of_several(several: Several) -> Self {
        Self { parts: Parts::Several(several) }
    }

    /// Another handle of the same store, for another thread.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn another(&self) -> Result<Self, KvError> {
        self.source().handle()
    }

    /// What other handles are made of.
    pub(super) fn source(&self) -> Source {
        match &self.parts {
            Parts::One(part) => Source::One(Arc::clone(&part.hub)),
            Parts::Several(several) => Source::Several(Arc::clone(&several.spread)),
        }
    }

    /// The store's name.
    pub fn name(&self) -> &str {
        match &self.parts {
            Parts::One(part) => &part.hub.name,
            Parts::Several(several) => several.spread.name(),
        }
    }

    /// The index that the store was made with.
    pub fn index(&self) -> Index {
        match &self.parts {
            Parts::One(part) => part.hub.choice.index,
            Parts::Several(several) => several.spread.index,
        }
    }

    /// Over how many regions the store is: [`Kv::over`].
    pub fn parts(&self) -> usize {
        match &self.parts {
            Parts::One(_) => 1,
            Parts::Several(several) => several.count(),
        }
    }

    /// How many bytes of memory the store takes, whatever is in it; of parts that were away since
    /// it was opened nothing is counted.
    pub fn bytes(&self) -> u64 {
        match &self.parts {
            Parts::One(part) => part.hub.bytes(),
            Parts::Several(several) => several.bytes(),
        }
    }

    /// The value of a key; `None` if there is none, or it has ended.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, KvError> {
        let key = key.as_ref();
        let part = self.part_of(key)?;
        part.value_now(key)
    }

    /// How long a key's value still has; `None` if there is none, `Some(None)` if it does not end.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn time_left(&self, key: impl AsRef<[u8]>) -> Result<Option<Option<Duration>>, KvError> {
        let key = key.as_ref();
        let part = self.part_of(key)?;
        part.block(part.time_left(key))
    }

    /// The highest token that a key was written with.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn token(&self, key: impl AsRef<[u8]>) -> Result<Option<Token>, KvError> {
        let key = key.as_ref();
        let part = self.part_of(key)?;
        part.block(part.token(key))
    }

    /// Gives a key this value, whether or not it has one. Of several that do so at one time some
    /// may count as done right before another one, which is carried out: nobody could have read
    /// them.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), KvError> {
        self.plain().put(key, value)
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
        self.plain().put_for(key, value, time)
    }

    /// Gives a key that has no value this one. Returns whether it had none.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, KvError> {
        self.plain().insert(key, value)
    }

    /// The same, for so long, as [`Kv::put_for`]: of many that ask one has it, and for that time.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn insert_for(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time: Duration,
    ) -> Result<bool, KvError> {
        self.plain().insert_for(key, value, time)
    }

    /// Gives a key that has a value another one. Returns whether it had one.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, KvError> {
        self.plain().replace(key, value)
    }

    /// The same, for so long, as [`Kv::put_for`]: also of one that was to end sooner or later.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn replace_for(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time: Duration,
    ) -> Result<bool, KvError> {
        self.plain().replace_for(key, value, time)
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
        self.plain().compare_and_set(key, expected, value)
    }

    /// Gives a key what `change` makes of its value, and returns that: `None` is no value, before
    /// or after. When it ends stays. Where others change the key meanwhile, `change` is called
    /// again with what they have made of it; what it returned last is what the key gets. So it
    /// should do nothing else, and nothing by this handle.
    ///
    /// Of a key that many change, it is told the value when it is this client's turn: a loop of
    /// [`Kv::get`] and [`Kv::compare_and_set`] has read before, and may miss for ever.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), farlock::KvError> {
    /// # let jobs = farlock::Kv::open(&farlock::RegionOptions::for_user(), "jobs")?;
    /// let longer = |list: Option<&[u8]>| Some([list.unwrap_or_default(), b"one more\n"].concat());
    /// jobs.update_with("waiting", longer)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn update_with(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, KvError> {
        self.plain().update_with(key, change)
    }

    /// Adds to a key's number and returns the sum; when it ends stays. A number is decimal text,
    /// from -2^63 to 2^63 - 1; a key that has no value counts as 0.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn add(&self, key: impl AsRef<[u8]>, by: i64) -> Result<i64, KvError> {
        self.plain().add(key, by)
    }

    /// Takes a key's value away. Returns whether it had one.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool, KvError> {
        self.plain().remove(key)
    }

    /// The part that has this key.
    #[inline]
    pub(super) fn part_of(&self, key: &[u8]) -> Result<&Part, KvError> {
        match &self.parts {
            Parts::One(part) => Ok(part),
            Parts::Several(several) => several.part_of(key),
        }
    }

    /// Whether verbs take a round trip, of one of its parts at least.
    pub(super) fn is_far(&self) -> bool {
        (0..self.parts()).any(|index| self.is_far_in(index))
    }

    /// Whether they do in the part with this number.
    pub(super) fn is_far_in(&self, index: usize) -> bool {
        match &self.parts {
            Parts::One(part) => part.hub.region.is_far(),
            Parts::Several(several) => several.spread.is_far_in(index),
        }
    }

    /// The part with this number.
    pub(super) fn part(&self, index: usize) -> Result<&Part, KvError> {
        match &self.parts {
            Parts::One(part) => Ok(part),
            Parts::Several(several) => several.part(index),
        }
    }

    /// All parts, each opened where it was not yet.
    pub(super) fn all_parts(&self) -> impl Iterator<Item = Result<&Part, KvError>> {
        (0..self.parts()).map(|index| self.part(index))
    }

    /// Changes a key as `wish` says, which sees its value, with this token.
    #[inline]
    pub(super) fn change<'v, T>(
        &self,
        key: &[u8],
        token: Option<Token>,
        wish: impl Wishes<'v, T>,
    ) -> Result<T, KvError> {
        self.part_of(key)?.change_now(key, token, wish)
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
