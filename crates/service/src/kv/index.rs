//! Which index a store has. It is chosen when the store is made, and its tag lies in the store's
//! header, by which a client that opens the store later has the same.
//!
//! This is the one place that knows of several: a new index is its variant and its lines here. What
//! handles, scans and watches do with a store is said once, over [`Store`].

use std::fmt;
use std::ops::Bound;

use farlock_fabric::{Addr, Connection as _, Endpoint};
use farlock_kv::index::{Race, Smart};
use farlock_kv::{
    Cursor, Decision, Index as _, OpenError, Pair, ReadError, Scheme as _, Shape, Sight, WriteError,
};

use super::keep::CHUNK_BYTES;
use super::share::{ChoiceWord, Share};
use super::turn::Turns;
use crate::connection::{Lane, Region};

/// Chunks that a store can have.
const CHUNKS: u32 = 30 << 10;

/// The table as it begins: two chunks and a half, room for 580,000 keys. Its levels then fill whole
/// chunks. It takes most of the memory that a store has at first anyway, and an index that grew
/// less often has left fewer tables behind.
const RACE: Race = Race::new(5 * CHUNK_BYTES / 2 / Race::GROUP_BYTES);

const SMART: Smart = Smart::new();

/// How a store finds its keys: chosen when it is made ([`StoreOptions`]), for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Index {
    /// By a hash table: the quickest for single keys. A scan has no order.
    #[default]
    Hash,
    /// By a tree that has the keys in the order of their bytes: what a hash store does, and scans
    /// from any key to any other ([`Kv::scan_range`](super::Kv::scan_range)).
    Ordered,
}

impl Index {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Hash, Self::Ordered];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Ordered => "ordered",
        }
    }

    /// How many bytes it takes at first, and its tag.
    fn measures(self) -> (u64, u64) {
        match self {
            Self::Hash => (RACE.bytes(), RACE.tag()),
            Self::Ordered => (SMART.bytes(), SMART.tag()),
        }
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the maker of a store chooses for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Choice {
    pub(super) index: Index,
    /// Which part it is, if it is one.
    pub(super) share: Option<Share>,
}

impl Choice {
    /// What lies where in a store that begins there. It is the same in all stores of this index,
    /// however long they are.
    pub(super) fn shape(self, base: Addr) -> Shape {
        let (index_bytes, _) = self.index.measures();
        let index_tag = self.word().0;
        Shape { base, chunks: CHUNKS, chunk_bytes: CHUNK_BYTES, index_bytes, index_tag }
    }

    /// What was chosen for the store there; `None`: nothing yet. It is never another one later.
    pub(super) async fn at<E: Endpoint>(
        endpoint: &E,
        base: Addr,
    ) -> Result<Option<Self>, OpenError> {
        let Some(word) = Shape::tag_at(endpoint, base).await?.map(ChoiceWord) else {
            return Ok(None);
        };
        let has = |index: &Index| index.measures().1 == word.index();
        let index = Index::ALL.iter().copied().find(has);
        let found = index.zip(word.share()).map(|(index, share)| Self { index, share });
        found.map(Some).ok_or(OpenError::OtherShape)
    }

    /// What was chosen for the store there. What is none yet becomes one, of this choice if no
    /// other client has begun to make it one of another.
    pub(super) async fn prepare<E: Endpoint>(
        self,
        endpoint: &E,
        base: Addr,
    ) -> Result<Self, OpenError> {
        loop {
            let found = Self::at(endpoint, base).await?;
            let choice = found.unwrap_or(self);
            match choice.shape(base).create(endpoint).await {
                // Another client was first; and what was chosen stays.
                Err(OpenError::OtherShape)
                    if found.is_none() && Self::at(endpoint, base).await?.is_some() => {}
                ended => return ended.map(|()| choice),
            }
        }
    }

    /// Whether all parts of the store there were made, as who made them has said.
    pub(super) async fn is_whole<E: Endpoint>(endpoint: &E, base: Addr) -> Result<bool, OpenError> {
        Shape::is_marked(endpoint, base).await
    }

    /// Says that all parts of the store there were made.
    pub(super) async fn make_whole<E: Endpoint>(endpoint: &E, base: Addr) -> Result<(), OpenError> {
        Shape::mark(endpoint, base).await
    }

    fn word(self) -> ChoiceWord {
        ChoiceWord::of(self.index.measures().1, self.share)
    }
}

/// Which store, and how it is made where it is missing. A name alone stands for the store as it is,
/// or for a new one of the default index.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StoreOptions {
    /// The store's name: 1 to 200 bytes of UTF-8, not beginning with a dot, without slash and
    /// control characters.
    pub name: String,
    /// The index that it is to have; `None`: any.
    pub index: Option<Index>,
    /// Whether a store that is not there is made.
    pub create: bool,
    /// Whether a part that is missing of a store that has several is made anew, empty.
    pub remake: bool,
}

impl StoreOptions {
    /// The store of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), index: None, create: true, remake: false }
    }

    /// The same with this index. A store that has another one is refused
    /// ([`KvError::OtherIndex`](super::KvError::OtherIndex)).
    #[must_use]
    pub fn with_index(self, index: Index) -> Self {
        Self { index: Some(index), ..self }
    }

    /// The same, if it is there: one that is missing is not made, and opening it fails
    /// ([`KvError::Open`](super::KvError::Open), of which the source is
    /// [`Absent`](crate::ConnectError::Absent)).
    #[must_use]
    pub fn existing(self) -> Self {
        Self { create: false, ..self }
    }

    /// The same, but a part that is missing of a store that has several, all of which were made, is
    /// made anew, empty: its memory is gone. Without this its keys are refused
    /// ([`KvError::NoPart`](super::KvError::NoPart)), for another server may have it, and a wrong
    /// one was named.
    #[must_use]
    pub fn remaking(self) -> Self {
        Self { remake: true, ..self }
    }
}

impl<N: AsRef<str>> From<N> for StoreOptions {
    fn from(name: N) -> Self {
        Self::new(name.as_ref())
    }
}

type Client<I> = farlock_kv::Store<Turns, I>;

/// The store under a handle.
pub(super) enum Store {
    Hash(Client<Race>),
    Ordered(Client<Smart>),
}

/// Where a scan goes on.
#[derive(Clone)]
pub(super) enum Next {
    /// In a hash store: at this slot, or at the first one.
    Slot(Option<Cursor>),
    /// In an ordered one: from this key on.
    Key(Bound<Vec<u8>>),
    /// In an ordered one, in reverse: from this key down.
    Down(Bound<Vec<u8>>),
    End,
}

/// What a part of a scan has brought.
pub(super) type Pairs = Vec<Result<Pair, ReadError>>;

/// The same expression over whichever store it is.
macro_rules! of_each {
    ($self:expr, $store:ident => $does:expr) => {
        match $self {
            Store::Hash($store) => $does,
            Store::Ordered($store) => $does,
        }
    };
}

impl Store {
    /// The store that [`Choice::prepare`] has found. It remembers its keys if each verb takes a
    /// round trip.
    pub(super) fn new(choice: Choice, lane: Lane, base: Addr, region: &Region) -> Self {
        let shape = choice.shape(base);
        let (origin, is_far) = (region.origin(), region.is_far());
        let turns = Turns::new(lane, shape, origin, is_far);
        fn client<I: farlock_kv::Index>(
            turns: Turns,
            index: I,
            shape: Shape,
            is_far: bool,
        ) -> Client<I> {
            let store = Client::new(turns, index, shape).absorbing();
            if is_far { store.remembering() } else { store }
        }
        match choice.index {
            Index::Hash => Self::Hash(client(turns, RACE, shape, is_far)),
            Index::Ordered => Self::Ordered(client(turns, SMART, shape, is_far)),
        }
    }

    pub(super) fn lane(&self) -> &Lane {
        of_each!(self, store => store.scheme().endpoint())
    }

    pub(super) async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        of_each!(self, store => store.get(key).await)
    }

    pub(super) async fn sight(&self, key: &[u8]) -> Result<(Sight, Option<Vec<u8>>), ReadError> {
        of_each!(self, store => store.sight(key).await)
    }

    pub(super) async fn modify_or_combine<T>(
        &self,
        key: &[u8],
        combined: Option<T>,
        decide: impl FnMut(Option<&[u8]>) -> Decision<T>,
    ) -> Result<T, WriteError> {
        of_each!(self, store => store.modify_or_combine(key, combined, decide).await)
    }

    pub(super) async fn close(&self) -> Result<(), ReadError> {
        of_each!(self, store => store.close().await)
    }

    /// Some pairs from there on, of an ordered store at most so many up to this end, and where the
    /// next ones are.
    pub(super) async fn page(
        &self,
        from: &Next,
        end: Bound<&[u8]>,
        most: usize,
    ) -> Result<(Pairs, Next), ReadError> {
        match (self, from) {
            (Self::Hash(store), Next::Slot(cursor)) => {
                let (pairs, next) = store.scan(*cursor).await?;
                Ok((pairs, next.map_or(Next::End, |cursor| Next::Slot(Some(cursor)))))
            }
            (Self::Ordered(store), Next::Key(from)) => {
                let from = from.as_ref().map(Vec::as_slice);
                let pairs = store.scan_in_order(from, end, most).await?;
                let last = last_of(&pairs, most).map_or(Next::End, Next::Key);
                Ok((pairs, last))
            }
            (Self::Ordered(store), Next::Down(from)) => {
                let from = from.as_ref().map(Vec::as_slice);
                let pairs = store.scan_in_reverse(end, from, most).await?;
                let last = last_of(&pairs, most).map_or(Next::End, Next::Down);
                Ok((pairs, last))
            }
            (_, Next::End) => Ok((Vec::new(), Next::End)),
            _ => unreachable!("a scan goes on as its store has begun it"),
        }
    }

    pub(super) fn has_chunks(&self, chunks: u32) {
        of_each!(self, store => store.has_chunks(chunks));
    }

    pub(super) fn has_all_chunks(&self) {
        of_each!(self, store => store.has_all_chunks());
    }

    pub(super) fn chunks(&self) -> u32 {
        of_each!(self, store => store.chunks())
    }

    pub(super) async fn chunks_claimed(&self, chunks: u32) -> Result<u32, ReadError> {
        of_each!(self, store => store.chunks_claimed(chunks).await)
    }

    pub(super) fn growth_chunks(&self) -> Option<u32> {
        of_each!(self, store => store.growth_chunks())
    }

    pub(super) fn is_crowded(&self) -> bool {
        of_each!(self, store => store.is_crowded())
    }

    pub(super) fn is_short(&self) -> bool {
        of_each!(self, store => store.is_short())
    }
}

/// Beyond which key there may be more, where so many were asked for.
fn last_of(pairs: &Pairs, most: usize) -> Option<Bound<Vec<u8>>> {
    let found = || pairs.iter().flatten();
    let last = found().next_back().filter(|_| found().count() >= most);
    last.map(|(key, _)| Bound::Excluded(key.clone()))
}
