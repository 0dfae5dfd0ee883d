//! Why the directory could not be used.

use farlock_fabric::Fault;
use thiserror::Error;

use crate::text::shown;

/// Why a name was not found, or not entered.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
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
    /// There is no room for another name: so many are in use at this moment.
    #[error("the directory is full: it has room for {names} names in use at one time")]
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
    #[error("the fabric failed")]
    Fabric(#[from] Fault),
}
