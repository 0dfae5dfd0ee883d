//! The blocks of a region, in which [tables of ranges](crate::record::citron) have what few of them
//! need.
//!
//! A table has its first units where it lies, and a block more for each further subtree of its tree
//! that anybody has asked for units of. Where the memory comes from is the caller's matter.
//!
//! A *log* says whose the blocks are: one word for each, which is written once. It grows at its end
//! alone, and nobody writes there who has not read all before it: so no subtree has two blocks, and
//! what was found once is known for good.
//!
//! A block stays its table's, but its memory need not stay: that of a table which nobody uses is
//! *discarded*, and *reserved* when the block is wanted again. Beside the log a *state* says which
//! it is, a count for each block that is odd while its memory may be missing. Who discards counts
//! first, and who reserves counts after; nobody touches a block of which it does not know that its
//! state was even, since the table had its name. What comes again is zero, or as it was: what the
//! dead have left there is mended as anywhere else.
//!
//! | died | what is left |
//! | --- | --- |
//! | after the memory was lengthened for a block | memory that the next one takes |
//! | after its word was written | a block, as any other |
//! | after it was counted as discarded | a block that is reserved once too often |
//! | after it was discarded, or reserved | a block that is reserved before it is used |

use std::ops::Range;

use farlock_fabric::{Addr, ConnectError, Endpoint, Fault, Verb, WORDS_MAX};
use thiserror::Error;

/// How many there may be: one table of all its units takes half of them.
const BLOCKS: u16 = 2048;

/// Bytes of the log: a multiple of those by which a heap grows.
pub const LOG_BYTES: u64 = 64 << 10;

const WORD_BYTES: u64 = 8;
/// Where the states begin, behind the log's words.
const STATES_AT: u64 = BLOCKS as u64 * WORD_BYTES;
const _: () = assert!(STATES_AT + BLOCKS as u64 * WORD_BYTES <= LOG_BYTES);

/// For so many blocks at most is memory had at once. Who finds that others were first asks for
/// more each time: so many that come together need not take turns at it.
const AT_ONCE_MAX: u64 = 16;
/// How many times as many each time.
const AT_ONCE_STEP: u64 = 4;

/// By how many bytes a region may grow for blocks of so many bytes.
pub const fn bytes(block_bytes: u64) -> u64 {
    (BLOCKS as u64 * block_bytes).next_multiple_of(LOG_BYTES)
}

/// The blocks of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    log: Addr,
    block_bytes: u64,
}

/// Why a subtree has no block.
#[derive(Debug, Error)]
pub enum BlockError {
    /// A verb failed.
    #[error("the log of blocks could not be read or written")]
    Fabric(#[from] Fault),
    /// There is no memory.
    #[error("there is no memory for a block")]
    Memory(#[source] ConnectError),
}

/// What blocks need of the owner of the region's memory.
pub trait Memory {
    /// Makes it reach to an address, if it does not yet; what comes to it is zero.
    fn lengthen(&self, end: Addr) -> impl Future<Output = Result<(), ConnectError>>;

    /// Gives these bytes their memory again where they have none, and leaves what they have.
    fn reserve(&self, addr: Addr, bytes: u64) -> impl Future<Output = Result<(), ConnectError>>;
}

/// The block that is asked for, by a client that knows so much of the memory.
struct Sought {
    own: u64,
    /// How many of the blocks are known to have memory.
    reached: u64,
    /// For how many memory is asked for at once.
    at_once: u64,
}

impl Blocks {
    /// Those whose log lies here.
    pub const fn at(log: Addr, block_bytes: u64) -> Self {
        Self { log, block_bytes }
    }

    /// Where the first one lies.
    pub const fn base(self) -> Addr {
        self.log.plus(LOG_BYTES)
    }

    /// The block of this subtree of a table, which takes the next one where it has none. It has
    /// its memory then, for as long as the table is used.
    ///
    /// # Errors
    /// See [`BlockError`].
    pub async fn of<E: Endpoint>(
        self,
        endpoint: &E,
        memory: &impl Memory,
        (lock, subtree): (Addr, u32),
    ) -> Result<u16, BlockError> {
        let mut sought = Sought { own: owner(lock, subtree), reached: 0, at_once: 1 };
        let mut number = 0;
        let mut owners = [0; WORDS_MAX];
        while number < BLOCKS {
            let read = self.read(endpoint, number, &mut owners).await?;
            for &owner in &owners[..read] {
                let found = match owner {
                    0 => self.take(endpoint, memory, number, &mut sought).await?,
                    owner => owner,
                };
                if found == sought.own {
                    self.fill(endpoint, memory, number).await?;
                    return Ok(number);
                }
                number += 1;
            }
        }
        Err(BlockError::Memory(ConnectError::Capacity {
            what: "blocks of 262,144 units behind the first ones of its tables",
            value: u64::from(BLOCKS) + 1,
            bound: "all that there may be are in use",
        }))
    }

    /// Has the memory of a table's blocks discarded, by what is given: how many bytes went it
    /// says, and their sum is returned.
    ///
    /// It is the caller's matter that nobody uses the table, and that nobody begins to while this
    /// goes on.
    ///
    /// # Errors
    /// See [`BlockError`]. Blocks may have their memory then that are said to have none.
    pub async fn discard<E: Endpoint>(
        self,
        endpoint: &E,
        discard: impl AsyncFn(Addr, u64) -> Result<u64, ConnectError>,
        lock: Addr,
    ) -> Result<u64, BlockError> {
        let numbers = self.of_table(endpoint, lock).await?;
        for &number in &numbers {
            self.empty(endpoint, number).await?;
        }
        let mut gone = 0;
        // Neighbours together: what shares a page goes if both do.
        for run in runs(&numbers) {
            let bytes = u64::from(run.end - run.start) * self.block_bytes;
            let discarded = discard(self.block(run.start), bytes).await;
            gone += discarded.map_err(BlockError::Memory)?;
        }
        Ok(gone)
    }

    /// Whether a table has blocks that were not discarded.
    ///
    /// # Errors
    /// [`BlockError::Fabric`].
    pub async fn has_memory<E: Endpoint>(
        self,
        endpoint: &E,
        lock: Addr,
    ) -> Result<bool, BlockError> {
        for number in self.of_table(endpoint, lock).await? {
            endpoint.read64(self.state(number)).await?;
            if endpoint.old().is_multiple_of(2) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The blocks of a table, in the order in which they lie.
    async fn of_table<E: Endpoint>(self, endpoint: &E, lock: Addr) -> Result<Vec<u16>, BlockError> {
        let (mut numbers, mut number) = (Vec::new(), 0);
        let mut owners = [0; WORDS_MAX];
        while number < BLOCKS {
            let read = self.read(endpoint, number, &mut owners).await?;
            for &owner in &owners[..read] {
                if owner == 0 {
                    return Ok(numbers);
                }
                numbers.extend((table(owner) == lock.offset()).then_some(number));
                number += 1;
            }
        }
        Ok(numbers)
    }

    /// Reads the log from this block's word on. Returns how many words.
    async fn read<E: Endpoint>(
        self,
        endpoint: &E,
        number: u16,
        owners: &mut [u64; WORDS_MAX],
    ) -> Result<usize, Fault> {
        let words = usize::from(BLOCKS - number).min(WORDS_MAX);
        endpoint.verb(Verb::Read { addr: self.word(number), words: words as u16 }).await?;
        Ok(endpoint.copy_read(0, &mut owners[..words]))
    }

    /// Takes a block that nobody had, or finds whose it is by now.
    async fn take<E: Endpoint>(
        self,
        endpoint: &E,
        memory: &impl Memory,
        number: u16,
        sought: &mut Sought,
    ) -> Result<u64, BlockError> {
        let least = u64::from(number) + 1;
        if sought.reached < least {
            let most = least.next_multiple_of(sought.at_once).min(BLOCKS.into());
            let to = |blocks| memory.lengthen(self.base().plus(blocks * self.block_bytes));
            sought.reached = match to(most).await {
                // There may be memory for one.
                Err(_) if most > least => to(least).await.map(|()| least),
                lengthened => lengthened.map(|()| most),
            }
            .map_err(BlockError::Memory)?;
        }
        endpoint.cas64(self.word(number), 0, sought.own).await?;
        let found = endpoint.old() as u64;
        sought.at_once = (sought.at_once * AT_ONCE_STEP).min(AT_ONCE_MAX);
        Ok(if found == 0 { sought.own } else { found })
    }

    /// Has a block have its memory.
    async fn fill<E: Endpoint>(
        self,
        endpoint: &E,
        memory: &impl Memory,
        number: u16,
    ) -> Result<(), BlockError> {
        endpoint.read64(self.state(number)).await?;
        let state = endpoint.old() as u64;
        if state.is_multiple_of(2) {
            return Ok(());
        }
        let reserved = memory.reserve(self.block(number), self.block_bytes).await;
        reserved.map_err(BlockError::Memory)?;
        // Others may have been first. A state never comes back: so this is about that discarding.
        endpoint.cas64(self.state(number), state, state + 1).await?;
        Ok(())
    }

    /// Counts a block as discarded: also where it is counted so, for what one that reserved it and
    /// died may still do to its state is then about a discarding before.
    async fn empty<E: Endpoint>(self, endpoint: &E, number: u16) -> Result<(), Fault> {
        let at = self.state(number);
        endpoint.read64(at).await?;
        loop {
            let state = endpoint.old() as u64;
            endpoint.cas64(at, state, (state + 1) | 1).await?;
            if endpoint.old() as u64 == state {
                return Ok(());
            }
        }
    }

    const fn word(self, number: u16) -> Addr {
        self.log.plus(number as u64 * WORD_BYTES)
    }

    const fn state(self, number: u16) -> Addr {
        self.log.plus(STATES_AT + number as u64 * WORD_BYTES)
    }

    const fn block(self, number: u16) -> Addr {
        self.base().plus(number as u64 * self.block_bytes)
    }
}

/// The word of the block of this subtree of a table. It is never zero: the first subtree has none.
const fn owner(lock: Addr, subtree: u32) -> u64 {
    lock.offset() << SUBTREE_BITS | subtree as u64
}

/// Where the table lies that this word names.
const fn table(owner: u64) -> u64 {
    owner >> SUBTREE_BITS
}

/// Bits of a subtree's number in a word of the log.
const SUBTREE_BITS: u32 = 16;

/// Numbers that follow each other.
fn runs(numbers: &[u16]) -> impl Iterator<Item = Range<u16>> {
    let follows = |one: &u16, next: &u16| one + 1 == *next;
    numbers.chunk_by(follows).map(|run| run[0]..run[0] + run.len() as u16)
}
