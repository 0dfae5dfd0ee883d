//! Why an operation of the store did not do what was asked.

use farlock_fabric::Fault;
use thiserror::Error;

/// Why a value was not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The key is empty, too long, or none that this index has slots for.
    #[error("this index has no place for such a key")]
    BadKey,
    /// Others changed the key each time that it was read, too often.
    #[error("the key changed too often to be read")]
    Busy,
    /// A slot points to a block that is none: the memory was damaged.
    #[error("a slot points to what is no block")]
    Corrupt,
    /// A verb failed.
    #[error("the fabric failed")]
    Fabric(#[from] Fault),
}

/// Why a pair was not written. But for [`WriteError::Unknown`] the store is as if the operation had
/// not been called.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The key is empty, too long, or none that this index has slots for.
    #[error("this index has no place for such a key")]
    BadKey,
    /// The value is too long, or longer than what fits in a chunk of this store.
    #[error("the value is too long for this store")]
    TooLong,
    /// There is such a key already.
    #[error("the key exists")]
    Exists,
    /// There is no such key.
    #[error("there is no such key")]
    NotFound,
    /// The value is not the one that was expected.
    #[error("the value is not as expected")]
    Mismatch,
    /// The value is not a number of 8 bytes.
    #[error("the value is no number")]
    NotANumber,
    /// No memory is left for a value of this size.
    #[error("the store has no memory left for a value of this size")]
    PoolFull,
    /// Every slot that the key may have is another key's, and the index cannot grow: it keeps its
    /// size, or no run of chunks is left for another level.
    #[error("the index has no slot left for this key")]
    IndexFull,
    /// Every slot that the key may have is another key's, in an index that is far from full: keys
    /// that were made to have the same slots, which an index that grows would not part.
    #[error("too many keys have the same hash")]
    Collides,
    /// Others changed the key each time before this client could, too often.
    #[error("the key changed too often to be written")]
    Busy,
    /// A completion was lost, and what was found later does not tell: the operation may have been
    /// carried out, once, or may yet be, or not at all.
    #[error("whether the operation was carried out is unknown")]
    Unknown,
    /// A slot points to a block that is none: the memory was damaged.
    #[error("a slot points to what is no block")]
    Corrupt,
    /// A verb failed, and nothing was changed.
    #[error("the fabric failed")]
    Fabric(#[from] Fault),
}

impl From<ReadError> for WriteError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::BadKey => Self::BadKey,
            ReadError::Busy => Self::Busy,
            ReadError::Corrupt => Self::Corrupt,
            ReadError::Fabric(fault) => Self::Fabric(fault),
        }
    }
}

/// Why a store was not created or opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no store here, or it was created with another shape or index.
    #[error("there is no store of this shape here")]
    OtherShape,
    /// A verb failed.
    #[error("the fabric failed")]
    Fabric(#[from] Fault),
}
