//! The directory: which name has which lock's word.
//!
//! Unrelated processes that know nothing of each other but a name must end up at the same 16 bytes
//! of far memory, and two names never at the same. The directory is a hash table in the region's
//! heap, changed by verbs alone; nobody waits for anybody.
//!
//! ```text
//! index        records
//! chain 0 ---> 7 "a" ---> 2 "orders" ---> 0
//! chain 1 ---> 0                               free, staged, or taken out of a chain: 1, 3, 4, ...
//! chain 2 ---> 5 "b" ---> 0                    ^ hand: where a record is looked for
//! ```
//!
//! A *record* is a lock's word, its name, and a *link*: one word that says what the record is, what
//! follows it in its chain, and how often that was changed. A new name's record is prepared where
//! nobody sees it, and becomes the first of its chain by a compare-and-swap of the chain's word.
//! That fails if anything was put into the chain since it was searched, so no name is there twice.
//! Until then the record looks like one of the chain's to a client whose search was there when it
//! was another's: so who finds a name sees that the chain's word has not changed meanwhile.
//!
//! A name that nobody uses is forgotten when its record is needed: it becomes `Leaving`, then
//! `Dead`, is taken out of its chain, and becomes another name's. In use it is as long as a slot
//! record of a living client has its lock's address, whatever else that says. So a client that
//! enters a name first *aims* a slot at it and then compares the link with what was found: either
//! that has changed, or the client that forgets the name finds the slot. The two work together
//! like hazard pointers (Michael 2004); the chains are lists like Harris's (2001), in which only
//! the front grows.
//!
//! | died | what is left |
//! | --- | --- |
//! | while it prepared a record | a staged record, which others take when they see its owner dead |
//! | before the record was in its chain | a record that is found to be nobody's, and forgotten |
//! | while it forgot a name | a name as good as any: entered again, or forgotten |
//!
//! Tokens of a name that is forgotten and comes back increase: a lock begins above the highest
//! count of any lock that was forgotten before.
//!
//! Everything read here may have been written by a process gone mad; it is checked before it is
//! used as a size or a place. What decides which record is whose is *sealed*: a word that was
//! overwritten is seen, and ends in an error, for a name that is not found would get a second lock.

mod emptier;
mod error;
mod facts;
mod forget;
mod layout;

use farlock_fabric::verb;
use farlock_fabric::{Addr, Endpoint, Fault, MaskedCas, Verb, WORDS_MAX, WideAtomics};

pub(crate) use emptier::Emptier;
pub use error::DirectoryError;
pub use facts::check_name;
use facts::{Facts, Wanted};
use layout::{Chain, FACT_WORDS, Layout, Link, Staged, State, seal, steps, unseal};

/// A name in the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// The name.
    pub(crate) name: String,
    /// The kind of lock.
    pub(crate) kind: String,
    /// Where the lock's word lies: at the beginning of a cache line of its own.
    pub(crate) lock: Addr,
}

/// What the directory must know of a kind of lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// The name of its protocol: 1 to 16 ASCII characters.
    pub(crate) name: &'static str,
    /// The highest count that a token of a lock with this word may have.
    pub(crate) count: fn(u128) -> u64,
    /// The word of a lock that nobody holds or awaits, and whose next token has this count. All
    /// else of such a lock is zero.
    pub(crate) fresh: fn(u64) -> u128,
    /// How many bytes a lock takes. Its word are the first 16.
    pub(crate) bytes: u64,
    /// Where the shelf lies on which holds of these locks are written down, if they are, in bytes
    /// from the directory's beginning.
    pub(crate) shelf: Option<u64>,
}

/// Where a name's lock was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Located {
    lock: Addr,
    record: u64,
    link: Link,
}

impl Located {
    /// Where the lock's word lies: at the beginning of a cache line of its own.
    pub(crate) const fn lock(self) -> Addr {
        self.lock
    }

    /// Whether what was found out about its lock while it was found as `other` was is true of it
    /// now: its record has been this name's all the time. For a client that keeps it from being
    /// forgotten, since before it was found so.
    pub(crate) fn knows(self, other: Self) -> bool {
        other.link.is_not_before(self.link)
    }
}

/// The directory of a region. A plain value: threads may have one each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Directory {
    layout: Layout,
}

impl Directory {
    /// The directory at the beginning of a heap of so many bytes, for locks of this kind; a heap of
    /// zeros becomes an empty one. A crash leaves a heap of zeros or an empty directory.
    ///
    /// # Errors
    /// [`DirectoryError::TooSmall`], [`DirectoryError::Damaged`], [`DirectoryError::Fabric`].
    pub(crate) async fn open<E: Endpoint>(
        endpoint: &E,
        heap: (Addr, u64),
        kind: Kind,
    ) -> Result<Self, DirectoryError> {
        if let Some(directory) = Self::existing(endpoint, heap, kind).await? {
            return Ok(directory);
        }
        let layout = Layout::largest(heap, kind.bytes);
        let layout = layout.ok_or(DirectoryError::TooSmall { bytes: heap.1 })?;
        endpoint.cas64(heap.0, 0, layout.head_word().0).await?;
        // Another client may have been first; then the directory is as that one made it.
        let made = Self::existing(endpoint, heap, kind).await?;
        made.ok_or(DirectoryError::Damaged { what: "its first word went back to zero" })
    }

    /// The directory at the beginning of a heap, if a client made it one. Changes nothing.
    ///
    /// # Errors
    /// [`DirectoryError::Damaged`], [`DirectoryError::Fabric`].
    pub(crate) async fn existing<E: Endpoint>(
        endpoint: &E,
        heap: (Addr, u64),
        kind: Kind,
    ) -> Result<Option<Self>, DirectoryError> {
        endpoint.read64(heap.0).await?;
        let head = layout::Head(endpoint.old() as u64);
        if head.0 == 0 {
            return Ok(None);
        }
        let layout = Layout::of_head(heap, kind.bytes, head);
        let layout =
            layout.ok_or(DirectoryError::Damaged { what: "it does not begin as one does" })?;
        Ok(Some(Self { layout }))
    }

    /// How many names it has room for that are in use at one time.
    pub(crate) fn capacity(&self) -> u32 {
        self.layout.records
    }

    /// How many bytes it takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.layout.bytes()
    }

    /// Where its first word lies, which never changes while the region lives.
    pub(crate) fn head(&self) -> Addr {
        self.layout.head()
    }

    /// The lock of this name, which is entered if it is new. However many processes enter a name
    /// at once, all get the same lock.
    ///
    /// `aim` has a slot's record, of this endpoint or another of this process, name a lock. It may
    /// be called several times; what it named last is returned, and stays this name's as long as
    /// that slot's record names it and its endpoint lives.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub(crate) async fn enter<E: WideAtomics>(
        &self,
        endpoint: &E,
        name: &str,
        kind: Kind,
        aim: impl Fn(Addr),
    ) -> Result<Located, DirectoryError> {
        let wanted = Wanted::new(name, kind.name)?;
        let mut staged = None;
        let entered = self.enter_or_stage(endpoint, &wanted, kind, aim, &mut staged).await;
        if let Some(staged) = staged {
            self.give_back(endpoint, staged).await?;
        }
        entered
    }

    async fn enter_or_stage<E: WideAtomics>(
        &self,
        endpoint: &E,
        wanted: &Wanted<'_>,
        kind: Kind,
        aim: impl Fn(Addr),
        staged: &mut Option<Staged>,
    ) -> Result<Located, DirectoryError> {
        let number = wanted.chain(&self.layout);
        loop {
            endpoint.checkpoint(&staged.map_or([0; 2], Staged::survivors));
            match self
                .walk(endpoint, number, |record, link, facts| {
                    Ok(wanted.is_of(facts)?.then_some((record, link)))
                })
                .await?
            {
                Walk::Found((record, link)) => {
                    let lock = self.layout.lock(record);
                    let found = Located { lock, record, link };
                    if let Some(found) = self.stay(endpoint, found, &aim).await? {
                        return Ok(found);
                    }
                }
                Walk::End(chain) => {
                    let mine = match staged.take() {
                        Some(mine) => mine,
                        None => self.stage(endpoint, wanted, kind).await?,
                    };
                    // Else another client might forget the name before it is used.
                    aim(self.layout.lock(mine.record));
                    *staged = self.put_first(endpoint, number, chain, mine, kind).await?;
                }
                Walk::Moved => {}
            }
        }
    }

    /// Aims a slot at a lock that was found before, if it still is what it was. `false`: enter the
    /// name again. Two verbs' time less than that.
    ///
    /// # Errors
    /// [`DirectoryError::Fabric`].
    pub(crate) async fn aim_again<E: WideAtomics>(
        &self,
        endpoint: &E,
        found: Located,
        aim: impl Fn(Addr),
    ) -> Result<bool, DirectoryError> {
        Ok(self.stay(endpoint, found, &aim).await? == Some(found))
    }

    /// Aims a slot at a lock that was found. `None`: something has become of its record.
    async fn stay<E: WideAtomics>(
        &self,
        endpoint: &E,
        mut found: Located,
        aim: &impl Fn(Addr),
    ) -> Result<Option<Located>, DirectoryError> {
        aim(found.lock);
        // Named again, if a client was about to forget it. An atomic in any case: what was
        // published before it is seen by a client that changes the link after it.
        let named = match found.link.what() {
            Some(State::Leaving) => found.link.turned(State::Named),
            _ => found.link,
        };
        let is_there = self.change(endpoint, found.record, found.link, named).await?;
        found.link = named;
        Ok(is_there.then_some(found))
    }

    /// Every name there is, sorted.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub(crate) async fn list<E: Endpoint>(
        &self,
        endpoint: &E,
    ) -> Result<Vec<Entry>, DirectoryError> {
        let mut entries = Vec::new();
        let mut words = [0; WORDS_MAX];
        let mut first = 0;
        while first < self.layout.chains {
            let count = (self.layout.chains - first).min(WORDS_MAX as u64 / 2);
            let addr = self.layout.chain(first);
            endpoint.verb(Verb::Read { addr, words: 2 * count as u16 }).await?;
            endpoint.copy_read(0, &mut words);
            for (number, word) in (first..first + count).zip(words.chunks_exact(2)) {
                if word != [0, 0] {
                    entries.append(&mut self.list_chain(endpoint, number).await?);
                }
            }
            first += count;
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    async fn list_chain<E: Endpoint>(
        &self,
        endpoint: &E,
        number: u64,
    ) -> Result<Vec<Entry>, DirectoryError> {
        loop {
            let mut entries = Vec::new();
            let walk = self.walk(endpoint, number, |record, _, facts| {
                let (name, kind) = (facts.name()?, facts.kind()?);
                let name = String::from_utf8_lossy(&name).into_owned();
                entries.push(Entry { name, kind, lock: self.layout.lock(record) });
                Ok(None::<()>)
            });
            if let Walk::End(chain) = walk.await?
                && self.is_still(endpoint, number, chain).await?
            {
                return Ok(entries);
            }
        }
    }

    /// Walks along a chain and looks at every name there, until one is found.
    async fn walk<E: Endpoint, T>(
        &self,
        endpoint: &E,
        number: u64,
        mut look: impl FnMut(u64, Link, &Facts) -> Result<Option<T>, DirectoryError>,
    ) -> Result<Walk<T>, DirectoryError> {
        let chain = self.chain(endpoint, number).await?;
        let mut record = chain.first();
        for _ in 0..=self.layout.records {
            if record == 0 {
                return Ok(Walk::End(chain));
            }
            let Record { link, facts, then, chain: chain_then } =
                self.record(endpoint, record, number).await?;
            match link.what() {
                Some(State::Named | State::Leaving) => {
                    // Facts are written while a record is staged: these are the link's.
                    if then != link {
                        return Ok(Walk::Moved);
                    }
                    facts.are_sound()?;
                    if let Some(found) = look(record, link, &facts)? {
                        // Else the record may be another's since, who is about to put it here and
                        // takes it back where that fails.
                        let is_in = !steps().looks_again || chain_then == chain;
                        return Ok(if is_in { Walk::Found(found) } else { Walk::Moved });
                    }
                }
                Some(State::Dead) => {}
                _ => break,
            }
            record = link.next();
        }
        // It led astray: a record was used anew meanwhile, and before that the chain was changed.
        match self.is_still(endpoint, number, chain).await? {
            true => Err(DirectoryError::Damaged { what: "a chain does not end" }),
            false => Ok(Walk::Moved),
        }
    }

    async fn is_still<E: Endpoint>(
        &self,
        endpoint: &E,
        number: u64,
        chain: Chain,
    ) -> Result<bool, DirectoryError> {
        Ok(self.chain(endpoint, number).await? == chain)
    }

    async fn chain<E: Endpoint>(&self, endpoint: &E, number: u64) -> Result<Chain, DirectoryError> {
        Ok(Chain(read_sealed(endpoint, self.layout.chain(number)).await?))
    }

    async fn link<E: Endpoint>(&self, endpoint: &E, record: u64) -> Result<Link, DirectoryError> {
        if !self.layout.has_record(record) {
            return Err(DirectoryError::Damaged { what: "a link names a record there is not" });
        }
        Ok(Link(read_sealed(endpoint, self.layout.link(record)).await?))
    }

    /// What a record says, and after that its chain's word: in one trip, where verbs take some.
    async fn record<E: Endpoint>(
        &self,
        endpoint: &E,
        record: u64,
        number: u64,
    ) -> Result<Record, DirectoryError> {
        if self.layout.has_record(record) {
            let (link, chain) = (self.layout.link(record), self.layout.chain(number));
            let facts = (self.layout.facts(record), FACT_WORDS as u16);
            let reads = [(link, 2), facts, (link, 2), (chain, 2)];
            let verbs = reads.map(|(addr, words)| verb::Link::fenced(Verb::Read { addr, words }));
            endpoint.chain(&verbs).await?;
            let word = |index: usize| unseal(reads[index].0, endpoint.link(index).old);
            if let (Some(link), Some(then), Some(chain)) = (word(0), word(2), word(3)) {
                let mut facts = Facts([0; FACT_WORDS]);
                endpoint.copy_read(1, &mut facts.0);
                let (link, then, chain) = (Link(link), Link(then), Chain(chain));
                return Ok(Record { link, facts, then, chain });
            }
        }
        // A word was read while it was changed, or it is damaged.
        let link = self.link(endpoint, record).await?;
        let facts = self.facts(endpoint, record).await?;
        let then = self.link(endpoint, record).await?;
        Ok(Record { link, facts, then, chain: self.chain(endpoint, number).await? })
    }

    /// Changes a link, if it still is what it was.
    async fn change<E: WideAtomics>(
        &self,
        endpoint: &E,
        record: u64,
        from: Link,
        to: Link,
    ) -> Result<bool, DirectoryError> {
        Ok(change_sealed(endpoint, self.layout.link(record), from.0, to.0).await?)
    }

    async fn facts<E: Endpoint>(&self, endpoint: &E, record: u64) -> Result<Facts, DirectoryError> {
        let addr = self.layout.facts(record);
        endpoint.verb(Verb::Read { addr, words: FACT_WORDS as u16 }).await?;
        let mut facts = Facts([0; FACT_WORDS]);
        endpoint.copy_read(0, &mut facts.0);
        Ok(facts)
    }
}

/// What a sealed word says.
async fn read_sealed<E: Endpoint>(endpoint: &E, addr: Addr) -> Result<u64, DirectoryError> {
    let mut last = None;
    loop {
        endpoint.verb(Verb::Read { addr, words: 2 }).await?;
        let found = endpoint.old();
        if let Some(value) = unseal(addr, found) {
            return Ok(value);
        }
        // Its halves may have been read before and after a change: then the next look differs.
        if last.replace(found) == Some(found) {
            return Err(DirectoryError::Damaged { what: "a word of it was overwritten" });
        }
    }
}

/// Changes a sealed word, if it still says `from`.
async fn change_sealed<E: WideAtomics>(
    endpoint: &E,
    addr: Addr,
    from: u64,
    to: u64,
) -> Result<bool, Fault> {
    let (compare, all) = (seal(addr, from), u128::MAX);
    let op = MaskedCas { compare, compare_mask: all, swap: seal(addr, to), swap_mask: all };
    endpoint.masked_cas128(addr, op, Some(compare)).await?;
    Ok(endpoint.old() == compare)
}

/// What a record says.
struct Record {
    link: Link,
    facts: Facts,
    /// The link after the facts were read.
    then: Link,
    /// The word of a chain, after that.
    chain: Chain,
}

/// What a walk along a chain came to.
enum Walk<T> {
    /// What was looked for.
    Found(T),
    /// It was not there, if the chain's word still is this.
    End(Chain),
    /// The chain was changed meanwhile: walk again.
    Moved,
}

#[cfg(test)]
mod tests;
