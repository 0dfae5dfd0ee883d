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
//! A block is not given back. The record of a name that was forgotten keeps its blocks for the next
//! name, as it keeps its words: what the dead have left there is mended as anywhere else.
//!
//! | died | what is left |
//! | --- | --- |
//! | after the memory was lengthened for a block | memory that the next one takes |
//! | after its word was written | a block, as any other |

use farlock_fabric::{Addr, ConnectError, Endpoint, Fault, Verb, WORDS_MAX};
use thiserror::Error;

/// How many there may be: one table of all its units takes half of them.
const BLOCKS: u16 = 2048;

/// Bytes of the log: a multiple of those by which a heap grows.
pub const LOG_BYTES: u64 = 64 << 10;

const WORD_BYTES: u64 = 8;
const _: () = assert!(BLOCKS as u64 * WORD_BYTES <= LOG_BYTES);

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

impl Blocks {
    /// Those whose log lies here.
    pub const fn at(log: Addr, block_bytes: u64) -> Self {
        Self { log, block_bytes }
    }

    /// Where the first one lies.
    pub const fn base(self) -> Addr {
        self.log.plus(LOG_BYTES)
    }

    /// The block of this subtree of a table, which takes the next one where it has none. `lengthen`
    /// makes the region's memory reach to an address, if it does not yet; what comes to it is zero.
    ///
    /// # Errors
    /// See [`BlockError`].
    pub async fn of<E: Endpoint>(
        self,
        endpoint: &E,
        lengthen: impl AsyncFn(Addr) -> Result<(), ConnectError>,
        (lock, subtree): (Addr, u32),
    ) -> Result<u16, BlockError> {
        let own = owner(lock, subtree);
        let mut number = 0;
        while number < BLOCKS {
            let words = usize::from(BLOCKS - number).min(WORDS_MAX);
            let mut owners = [0; WORDS_MAX];
            endpoint.verb(Verb::Read { addr: self.word(number), words: words as u16 }).await?;
            let read = endpoint.copy_read(0, &mut owners[..words]);
            for &owner in &owners[..read] {
                let found = match owner {
                    0 => self.take(endpoint, &lengthen, number, own).await?,
                    owner => owner,
                };
                if found == own {
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

    /// Takes a block that nobody had, or finds whose it is by now.
    async fn take<E: Endpoint>(
        self,
        endpoint: &E,
        lengthen: &impl AsyncFn(Addr) -> Result<(), ConnectError>,
        number: u16,
        own: u64,
    ) -> Result<u64, BlockError> {
        let end = self.base().plus((u64::from(number) + 1) * self.block_bytes);
        lengthen(end).await.map_err(BlockError::Memory)?;
        endpoint.cas64(self.word(number), 0, own).await?;
        let found = endpoint.old() as u64;
        Ok(if found == 0 { own } else { found })
    }

    const fn word(self, number: u16) -> Addr {
        self.log.plus(number as u64 * WORD_BYTES)
    }
}

/// The word of the block of this subtree of a table. It is never zero: the first subtree has none.
const fn owner(lock: Addr, subtree: u32) -> u64 {
    lock.offset() << 16 | subtree as u64
}
