//! The directory: which name has which lock's word.
//!
//! Unrelated processes that know nothing of each other but a name must end up at the same 16 bytes
//! of far memory, and two names never at the same. The directory is a hash table in the region's
//! heap, changed by verbs alone.
//!
//! Whoever needs a new name takes a *record* that nobody else can see, writes the whole name into
//! it, and only then puts the record into the first empty *place* of the name's probe sequence with
//! one compare-and-swap. So what can be found is always whole, nobody ever waits for anybody, and
//! two who bring the same name at once meet at the same place: the second finds the first one's
//! record there, uses it, and gives its own back.
//!
//! | died | what is left |
//! | --- | --- |
//! | with a record in hand | that record is lost until the region is created anew |
//! | after the compare-and-swap | the name, whole |
//!
//! Entries are never removed while the region lives: a lock's word means its name until the
//! region's incarnation ends. Everything read here may have been written by a process gone mad; it
//! is checked before it is used as a size or a place.

mod layout;

pub use layout::{KIND_BYTES_MAX, NAME_BYTES_MAX};

use farlock_fabric::{Addr, Endpoint, Fault, Verb, WORDS_MAX};
use layout::{FACT_WORDS, Free, KIND, LENGTH, LINK, Layout, NAME, Place};
use thiserror::Error;

use crate::inspect::shown;

/// Why a name was not found, or not entered.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum DirectoryError {
    /// No lock can have this name: it is empty, longer than 255 bytes, or contains NUL.
    #[error("'{}' is no name for a lock: {why}", shown(.name))]
    Name {
        /// The name that was asked for.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The name stands for a lock of another kind, whose word means something else.
    #[error("the lock '{}' is a {found:?}, not a {wanted:?}", shown(.name))]
    Kind {
        /// The name.
        name: String,
        /// The kind it was entered with.
        found: String,
        /// The kind that was asked for.
        wanted: String,
    },
    /// There is no room for another name.
    #[error("the directory is full: it has room for {names} names")]
    Full {
        /// How many names it has room for.
        names: u32,
    },
    /// The heap is too small for a directory.
    #[error("a heap of {bytes} bytes has no room for a directory")]
    TooSmall {
        /// Bytes of the heap.
        bytes: u64,
    },
    /// What lies in the directory makes no sense. Something else wrote there.
    #[error("the directory is damaged: {what}")]
    Damaged {
        /// What was found.
        what: &'static str,
    },
    /// A verb failed.
    #[error("the fabric failed: {0}")]
    Fabric(#[from] Fault),
}

/// A name in the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// The kind of lock.
    pub kind: String,
    /// Where the lock's word lies: at the beginning of a cache line of its own.
    pub lock: Addr,
}

/// The directory of a region. A plain value: threads may have one each.
///
/// ```no_run
/// # async fn example<E: farlock_fabric::Endpoint>(
/// #     endpoint: &E, heap: (farlock_fabric::Addr, u64),
/// # ) -> Result<(), farlock::directory::DirectoryError> {
/// use farlock::directory::Directory;
///
/// let directory = Directory::open(endpoint, heap).await?;
/// let lock = directory.enter(endpoint, "reports/2026", "shiftlock").await?;
/// assert_eq!(directory.find(endpoint, "reports/2026", "shiftlock").await?, Some(lock));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Directory {
    layout: Layout,
}

impl Directory {
    /// The directory at the beginning of a heap of so many bytes; a heap of zeros becomes an empty
    /// one. A crash leaves a heap of zeros or an empty directory.
    ///
    /// # Errors
    /// [`DirectoryError::TooSmall`], [`DirectoryError::Damaged`], [`DirectoryError::Fabric`].
    pub async fn open<E: Endpoint>(
        endpoint: &E,
        (base, bytes): (Addr, u64),
    ) -> Result<Self, DirectoryError> {
        if let Some(directory) = Self::existing(endpoint, (base, bytes)).await? {
            return Ok(directory);
        }
        let layout = Layout::largest(base, bytes).ok_or(DirectoryError::TooSmall { bytes })?;
        endpoint.cas64(base, 0, layout.head_word().0).await?;
        // Somebody else may have been first; then the directory is as they made it.
        let made = Self::existing(endpoint, (base, bytes)).await?;
        made.ok_or(DirectoryError::Damaged { what: "its first word went back to zero" })
    }

    /// The directory at the beginning of a heap, if somebody made it one. Changes nothing.
    ///
    /// # Errors
    /// [`DirectoryError::Damaged`], [`DirectoryError::Fabric`].
    pub async fn existing<E: Endpoint>(
        endpoint: &E,
        (base, bytes): (Addr, u64),
    ) -> Result<Option<Self>, DirectoryError> {
        endpoint.read64(base).await?;
        let head = layout::Head(endpoint.old() as u64);
        if head.0 == 0 {
            return Ok(None);
        }
        let layout = Layout::of_head(base, head, bytes);
        let layout =
            layout.ok_or(DirectoryError::Damaged { what: "it does not begin as one does" })?;
        Ok(Some(Self { layout }))
    }

    /// How many names it has room for.
    pub fn capacity(&self) -> u32 {
        self.layout.records
    }

    /// Where its first word lies, which never changes while the region lives.
    pub fn head(&self) -> Addr {
        self.layout.head()
    }

    /// The lock of this name, if the name was entered. A few verbs, whatever the number of names.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub async fn find<E: Endpoint>(
        &self,
        endpoint: &E,
        name: &str,
        kind: &str,
    ) -> Result<Option<Addr>, DirectoryError> {
        let wanted = Wanted::new(name, kind)?;
        for place in wanted.places(&self.layout) {
            endpoint.read64(self.layout.place(place)).await?;
            let found = Place(endpoint.old() as u64);
            if found.0 == 0 {
                break;
            }
            if let Some(lock) = self.compare(endpoint, found, &wanted).await? {
                return Ok(Some(lock));
            }
        }
        Ok(None)
    }

    /// The lock of this name, which is entered if it is new. However many processes enter a name
    /// at once, all get the same lock.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub async fn enter<E: Endpoint>(
        &self,
        endpoint: &E,
        name: &str,
        kind: &str,
    ) -> Result<Addr, DirectoryError> {
        let wanted = Wanted::new(name, kind)?;
        let mut staged = None;
        for place in wanted.places(&self.layout) {
            let at = self.layout.place(place);
            endpoint.read64(at).await?;
            let mut found = Place(endpoint.old() as u64);
            if found.0 == 0 {
                let record = match staged {
                    Some(record) => record,
                    None => self.stage(endpoint, &wanted).await?,
                };
                staged = Some(record);
                endpoint.cas64(at, 0, wanted.place_word(record).0).await?;
                found = Place(endpoint.old() as u64);
                if found.0 == 0 {
                    return Ok(self.layout.lock(record));
                }
            }
            let compared = self.compare(endpoint, found, &wanted).await;
            if let Ok(None) = compared {
                continue;
            }
            if let Some(record) = staged {
                self.give_back(endpoint, record).await?;
            }
            return compared.map(|lock| lock.expect("a name that differs was passed over"));
        }
        if let Some(record) = staged {
            self.give_back(endpoint, record).await?;
        }
        Err(DirectoryError::Full { names: self.capacity() })
    }

    /// Every name there is, sorted.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub async fn list<E: Endpoint>(&self, endpoint: &E) -> Result<Vec<Entry>, DirectoryError> {
        let mut entries = Vec::new();
        let mut words = [0; WORDS_MAX];
        let mut first = 0;
        while first < self.layout.places {
            let count = (self.layout.places - first).min(WORDS_MAX as u64);
            let addr = self.layout.place(first);
            endpoint.verb(Verb::Read { addr, words: count as u16 }).await?;
            endpoint.copy_read(0, &mut words);
            for word in words.iter().take(count as usize).filter(|word| **word != 0) {
                let record = Place(*word).record();
                let facts = self.facts(endpoint, record).await?;
                let (name, kind) = (facts.name()?, facts.kind()?);
                let name = String::from_utf8_lossy(&name).into_owned();
                entries.push(Entry { name, kind, lock: self.layout.lock(record) });
            }
            first += count;
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// The lock behind a place, if its name is the one wanted.
    async fn compare<E: Endpoint>(
        &self,
        endpoint: &E,
        place: Place,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Addr>, DirectoryError> {
        if place.tag() != wanted.tag() {
            return Ok(None);
        }
        let facts = self.facts(endpoint, place.record()).await?;
        if facts.name()? != wanted.name.as_bytes() {
            return Ok(None);
        }
        let found = facts.kind()?;
        if found != wanted.kind {
            let (name, wanted) = (wanted.name.to_owned(), wanted.kind.to_owned());
            return Err(DirectoryError::Kind { name, found, wanted });
        }
        Ok(Some(self.layout.lock(place.record())))
    }

    async fn facts<E: Endpoint>(&self, endpoint: &E, record: u64) -> Result<Facts, DirectoryError> {
        if !self.layout.has_record(record) {
            return Err(DirectoryError::Damaged { what: "a place names a record there is not" });
        }
        let addr = self.layout.facts(record);
        endpoint.verb(Verb::Read { addr, words: FACT_WORDS as u16 }).await?;
        let mut facts = Facts([0; FACT_WORDS]);
        endpoint.copy_read(0, &mut facts.0);
        Ok(facts)
    }

    /// Takes a record and writes the name into it. Nobody else can see it yet.
    async fn stage<E: Endpoint>(
        &self,
        endpoint: &E,
        wanted: &Wanted<'_>,
    ) -> Result<u64, DirectoryError> {
        let record = match self.take_free(endpoint).await? {
            Some(record) => record,
            None => self.take_new(endpoint).await?,
        };
        let facts = Facts::of(wanted);
        let addr = self.layout.facts(record);
        endpoint.verb(Verb::Write { addr, data: &facts.0 }).await?;
        Ok(record)
    }

    async fn take_new<E: Endpoint>(&self, endpoint: &E) -> Result<u64, DirectoryError> {
        let full = DirectoryError::Full { names: self.capacity() };
        // A look first, so that a full directory's counter does not run away.
        endpoint.read64(self.layout.next()).await?;
        if !self.layout.has_record((endpoint.old() as u64).saturating_add(1)) {
            return Err(full);
        }
        endpoint.faa64(self.layout.next(), 1).await?;
        let record = (endpoint.old() as u64).saturating_add(1);
        if self.layout.has_record(record) { Ok(record) } else { Err(full) }
    }

    /// Takes the first free record. Lock-free: a turn is repeated only because somebody else took
    /// or gave back one.
    async fn take_free<E: Endpoint>(&self, endpoint: &E) -> Result<Option<u64>, DirectoryError> {
        endpoint.read64(self.layout.free()).await?;
        let mut free = Free(endpoint.old() as u64);
        loop {
            if free.record() == 0 {
                return Ok(None);
            }
            if !self.layout.has_record(free.record()) {
                return Err(DirectoryError::Damaged { what: "a free record there is not" });
            }
            let link = self.layout.facts(free.record()).plus(LINK as u64 * 8);
            endpoint.read64(link).await?;
            // Meaningless if the record was taken meanwhile; then the comparison fails.
            let next = free.followed_by(endpoint.old() as u64);
            endpoint.cas64(self.layout.free(), free.0, next.0).await?;
            let found = Free(endpoint.old() as u64);
            if found == free {
                return Ok(Some(free.record()));
            }
            endpoint.checkpoint(&[found.0]);
            free = found;
        }
    }

    /// Gives back a record that was never put into a place. Lock-free like [`Self::take_free`].
    async fn give_back<E: Endpoint>(
        &self,
        endpoint: &E,
        record: u64,
    ) -> Result<(), DirectoryError> {
        let link = self.layout.facts(record).plus(LINK as u64 * 8);
        endpoint.read64(self.layout.free()).await?;
        let mut free = Free(endpoint.old() as u64);
        loop {
            endpoint.verb(Verb::Write { addr: link, data: &[free.record()] }).await?;
            let next = free.followed_by(record);
            endpoint.cas64(self.layout.free(), free.0, next.0).await?;
            let found = Free(endpoint.old() as u64);
            if found == free {
                return Ok(());
            }
            endpoint.checkpoint(&[found.0]);
            free = found;
        }
    }
}

impl Free {
    /// The list's next word when `record` becomes its first.
    fn followed_by(self, record: u64) -> Self {
        Self::new().with(Self::TAG, self.tag() + 1).with(Self::RECORD, record)
    }
}

/// A name that is looked for.
struct Wanted<'a> {
    name: &'a str,
    kind: &'a str,
    hash: u64,
}

impl<'a> Wanted<'a> {
    fn new(name: &'a str, kind: &'a str) -> Result<Self, DirectoryError> {
        check_name(name)?;
        assert!(
            !kind.is_empty() && kind.len() <= KIND_BYTES_MAX && kind.is_ascii(),
            "a kind is named by its program, in 1 to 16 ASCII characters"
        );
        Ok(Self { name, kind, hash: hash(name.as_bytes()) })
    }

    fn tag(&self) -> u64 {
        self.hash >> (u64::BITS - Place::TAG.bits)
    }

    fn place_word(&self, record: u64) -> Place {
        Place::new().with(Place::TAG, self.tag()).with(Place::RECORD, record)
    }

    /// The places where this name may be, in order.
    fn places(&self, layout: &Layout) -> impl Iterator<Item = u64> + use<> {
        let (places, first) = (layout.places, self.hash % layout.places);
        (0..places).map(move |step| (first + step) % places)
    }
}

/// Whether this can be the name of a lock: 1 to 255 bytes of UTF-8 without NUL.
///
/// # Errors
/// [`DirectoryError::Name`].
pub fn check_name(name: &str) -> Result<(), DirectoryError> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > NAME_BYTES_MAX {
        "it is longer than 255 bytes"
    } else if name.contains('\0') {
        "it contains NUL"
    } else {
        return Ok(());
    };
    Err(DirectoryError::Name { name: name.to_owned(), why })
}

/// FNV-1a, then a finaliser that spreads it over all bits. The same on every machine.
fn hash(name: &[u8]) -> u64 {
    let fnv = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mixed = (fnv ^ fnv >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The words of a record after its lock's line, as somebody wrote them.
struct Facts([u64; FACT_WORDS]);

impl Facts {
    fn of(wanted: &Wanted<'_>) -> Self {
        let mut facts = Self([0; FACT_WORDS]);
        facts.0[LENGTH] = wanted.name.len() as u64;
        facts.put(KIND, wanted.kind.as_bytes());
        facts.put(NAME, wanted.name.as_bytes());
        facts
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (word, chunk) in self.0[at..].iter_mut().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(padded);
        }
    }

    fn bytes(&self, at: usize, length: usize) -> Vec<u8> {
        let words = self.0[at..].iter().flat_map(|word| word.to_le_bytes());
        words.take(length).collect()
    }

    fn name(&self) -> Result<Vec<u8>, DirectoryError> {
        match self.0[LENGTH] {
            length @ 1..=255 => Ok(self.bytes(NAME, length as usize)),
            _ => Err(DirectoryError::Damaged { what: "a name's length is out of range" }),
        }
    }

    fn kind(&self) -> Result<String, DirectoryError> {
        let bytes = self.bytes(KIND, KIND_BYTES_MAX);
        let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        if length == 0 || !bytes[..length].is_ascii() {
            return Err(DirectoryError::Damaged { what: "a kind's name is none" });
        }
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }
}

#[cfg(test)]
mod tests;
