//! The *shelf*: where clients write down what they hold that has no slot of its own.
//!
//! A client that holds many ranges needs slots for those alone that it asks for. It owns blocks of
//! the shelf, as many as it fills; when it dies they are anybody's, and what stands in them means
//! nothing. A hold is written down before its slot says anything else, and struck out after the
//! verbs that give it back. So a client that reads slots first and the shelf after finds every hold
//! of the living in the one or in the other.
//!
//! ```text
//! 0      reach    one word: as many blocks have been used; then its line is unused
//! 64     owners   a word for each block: who has it
//!        blocks   of each, 16 entries of 4 words: the lock, its units, the token, the hold
//! ```

use farlock_fabric::{Addr, Endpoint, EndpointId, Fault, Link, Verb, word};

use crate::want::Mode;

/// Entries of a block.
const ENTRIES: u16 = 16;
/// Words of an entry.
const ENTRY_WORDS: usize = 4;
/// Which of them says what is held of a lock, and is written last.
const HOLD: usize = 3;
const WORD_BYTES: u64 = 8;
const ENTRY_BYTES: u64 = ENTRY_WORDS as u64 * WORD_BYTES;
const BLOCK_WORDS: usize = ENTRIES as usize * ENTRY_WORDS;
const BLOCK_BYTES: u64 = BLOCK_WORDS as u64 * WORD_BYTES;
/// How many owners one verb reads.
const OWNERS_READ: usize = 32;
/// Where the owners begin.
const OWNERS: u64 = 64;

word! {
    /// Who has a block. Zero is nobody.
    struct OwnerWord: u64 {
        /// An endpoint, as [`EndpointId::bits`] has it.
        OWNER owner: 32,
        /// Whether what stands in the block is its owner's: a new one strikes out first what the
        /// last has left.
        IN_USE in_use: 1,
        /// Nothing.
        SPARE spare: 31,
    }
}

word! {
    /// What is held. Zero is nothing.
    struct HoldWord: u64 {
        /// That something is.
        IS_HELD is_held: 1,
        /// In which mode: 0 shared, 1 exclusive.
        MODE mode: 1,
        /// Since when, in microseconds of the clock of the client; 0 where nobody looked.
        SINCE since: 62,
    }
}

/// Where a shelf lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shelf {
    base: Addr,
    blocks: u16,
}

/// A place on a shelf for one hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    addr: Addr,
}

/// What is written down of a hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shelved {
    /// At which lock.
    pub lock: Addr,
    /// Which part of it, as [`PART`](crate::slot::PART) of a slot's record says.
    pub part: u64,
    /// In which mode.
    pub mode: Mode,
    /// By which token.
    pub token: u64,
    /// Since when, in microseconds of the clock of its client; 0 where nobody looked.
    pub since_us: u64,
}

impl Shelved {
    fn words(&self) -> [u64; ENTRY_WORDS] {
        let hold = HoldWord::new()
            .with(HoldWord::IS_HELD, 1)
            .with(HoldWord::MODE, self.mode as u64)
            .with(HoldWord::SINCE, self.since_us);
        [self.lock.bits(), self.part, self.token, hold.0]
    }

    fn decode(words: &[u64]) -> Option<Self> {
        let hold = HoldWord(words[HOLD]);
        let mode = if hold.mode() == 0 { Mode::Shared } else { Mode::Exclusive };
        let lock = Addr::from_bits(words[0]);
        let (part, token, since_us) = (words[1], words[2], hold.since());
        (hold.is_held() != 0).then_some(Self { lock, part, mode, token, since_us })
    }
}

impl Entry {
    /// Writes a hold down: what it is of before that it is one.
    pub(crate) async fn put<E: Endpoint>(
        self,
        endpoint: &E,
        shelved: Shelved,
    ) -> Result<(), Fault> {
        let words = shelved.words();
        let what = Verb::Write { addr: self.addr, data: &words[..HOLD] };
        let hold = Verb::Write { addr: self.hold(), data: &words[HOLD..] };
        endpoint.chain(&[Link::from(what), Link::from(hold)]).await
    }

    /// The verb that strikes a hold out.
    pub(crate) const fn striking_out(self) -> Verb<'static> {
        Verb::Write { addr: self.hold(), data: &[0] }
    }

    const fn hold(self) -> Addr {
        self.addr.plus(HOLD as u64 * WORD_BYTES)
    }

    /// Whether this stands there.
    pub(crate) async fn says<E: Endpoint>(
        self,
        endpoint: &E,
        shelved: Shelved,
    ) -> Result<bool, Fault> {
        endpoint.verb(Verb::Read { addr: self.addr, words: ENTRY_WORDS as u16 }).await?;
        let mut words = [0; ENTRY_WORDS];
        endpoint.copy_read(0, &mut words);
        Ok(words == shelved.words())
    }
}

impl Shelf {
    /// One of so many blocks.
    pub const fn new(base: Addr, blocks: u16) -> Self {
        Self { base, blocks }
    }

    /// How long it is.
    pub const fn bytes(blocks: u16) -> u64 {
        Self::first_block(blocks) + blocks as u64 * BLOCK_BYTES
    }

    const fn first_block(blocks: u16) -> u64 {
        OWNERS + (blocks as u64 * WORD_BYTES).next_multiple_of(OWNERS)
    }

    const fn owner(&self, block: u16) -> Addr {
        self.base.plus(OWNERS + block as u64 * WORD_BYTES)
    }

    const fn block(&self, block: u16) -> Addr {
        self.base.plus(Self::first_block(self.blocks) + block as u64 * BLOCK_BYTES)
    }

    /// The entries of a block.
    pub fn entries(&self, block: u16) -> impl Iterator<Item = Entry> + use<> {
        let block = self.block(block);
        (0..u64::from(ENTRIES)).map(move |number| Entry { addr: block.plus(number * ENTRY_BYTES) })
    }

    /// Takes a block that nobody alive has, for this endpoint; `None` if there is none. If its
    /// owner dies it is anybody's again.
    ///
    /// # Errors
    /// A verb failed; if a block was taken, it is lost as long as its owner lives.
    pub async fn take_block<E: Endpoint>(
        &self,
        endpoint: &E,
        owner: EndpointId,
    ) -> Result<Option<u16>, Fault> {
        let own = OwnerWord::new().with(OwnerWord::OWNER, owner.bits());
        let mut block = 0;
        while block < self.blocks {
            let mut owners = [0; OWNERS_READ];
            let owners = self.read_owners(endpoint, block..self.blocks, &mut owners).await?;
            for &owner in owners {
                if !is_alive(endpoint, OwnerWord(owner)) {
                    endpoint.cas64(self.owner(block), owner, own.0).await?;
                    if endpoint.old() as u64 == owner {
                        self.clear(endpoint, block, own).await?;
                        return Ok(Some(block));
                    }
                }
                block += 1;
            }
        }
        Ok(None)
    }

    /// Strikes out what the last owner of a block has left, and has others look at it.
    async fn clear<E: Endpoint>(
        &self,
        endpoint: &E,
        block: u16,
        own: OwnerWord,
    ) -> Result<(), Fault> {
        let nothing = Verb::Write { addr: self.block(block), data: &[0; BLOCK_WORDS] };
        endpoint.verb(nothing).await?;
        let least = u64::from(block) + 1;
        endpoint.read64(self.base).await?;
        while (endpoint.old() as u64) < least {
            let seen = endpoint.old() as u64;
            endpoint.checkpoint(&[seen, least]);
            endpoint.cas64(self.base, seen, least).await?;
            if endpoint.old() as u64 == seen {
                break;
            }
        }
        let data = &[own.with(OwnerWord::IN_USE, 1).0];
        endpoint.verb(Verb::Write { addr: self.owner(block), data }).await
    }

    /// The block of this endpoint that comes first, or one that it takes.
    pub(crate) async fn own_block<E: Endpoint>(&self, endpoint: &E) -> Result<Option<u16>, Fault> {
        let id = endpoint.id().bits();
        for block in 0..self.blocks {
            endpoint.read64(self.owner(block)).await?;
            if OwnerWord(endpoint.old() as u64).owner() == id {
                return Ok(Some(block));
            }
        }
        self.take_block(endpoint, endpoint.id()).await
    }

    /// Reads who has the first of these blocks, as many as one verb reads.
    async fn read_owners<'a, E: Endpoint>(
        &self,
        endpoint: &E,
        blocks: std::ops::Range<u16>,
        into: &'a mut [u64; OWNERS_READ],
    ) -> Result<&'a [u64], Fault> {
        let words = blocks.len().min(OWNERS_READ);
        let addr = self.owner(blocks.start);
        endpoint.verb(Verb::Read { addr, words: words as u16 }).await?;
        let read = endpoint.copy_read(0, &mut into[..words]);
        Ok(&into[..read])
    }

    /// Tells each hold of a living client that is written down, and whose it is. Records of slots
    /// must be read before. Costs a read where nothing ever was.
    ///
    /// # Errors
    /// A verb failed.
    pub async fn for_each<E: Endpoint>(
        &self,
        endpoint: &E,
        mut tell: impl FnMut(EndpointId, Shelved),
    ) -> Result<(), Fault> {
        endpoint.read64(self.base).await?;
        match (endpoint.old() as u64).min(self.blocks.into()) as u16 {
            0 => Ok(()),
            // What few need takes no room in every wait.
            reach => Box::pin(self.for_each_within(endpoint, reach, &mut tell)).await,
        }
    }

    /// The same of the first so many blocks.
    async fn for_each_within<E: Endpoint>(
        &self,
        endpoint: &E,
        reach: u16,
        tell: &mut impl FnMut(EndpointId, Shelved),
    ) -> Result<(), Fault> {
        let mut block = 0;
        while block < reach {
            let mut owners = [0; OWNERS_READ];
            let owners = self.read_owners(endpoint, block..reach, &mut owners).await?;
            for &owner in owners {
                let owner = OwnerWord(owner);
                if owner.in_use() != 0 && is_alive(endpoint, owner) {
                    let addr = self.block(block);
                    endpoint.verb(Verb::Read { addr, words: BLOCK_WORDS as u16 }).await?;
                    let mut words = [0; BLOCK_WORDS];
                    endpoint.copy_read(0, &mut words);
                    let entries = words.chunks(ENTRY_WORDS).filter_map(Shelved::decode);
                    entries.for_each(|shelved| tell(id_of(owner), shelved));
                }
                block += 1;
            }
        }
        Ok(())
    }
}

fn id_of(owner: OwnerWord) -> EndpointId {
    EndpointId::from_bits(owner.owner())
}

/// Whether the owner of a block lives.
fn is_alive<E: Endpoint>(endpoint: &E, owner: OwnerWord) -> bool {
    let id = id_of(owner);
    endpoint.occupant(id.index) == Some(id)
}
