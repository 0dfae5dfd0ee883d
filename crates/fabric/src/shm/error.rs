//! What can go wrong where a region grows.

use std::io;

use thiserror::Error;

/// Why a region did not grow.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GrowError {
    /// The region may not become larger than it was declared at its creation.
    #[error("the region cannot grow beyond {max_bytes} bytes")]
    Limit {
        /// The largest size of the region's file in bytes.
        max_bytes: u64,
    },
    /// The filesystem has no room.
    #[error("no space for {bytes} bytes more")]
    NoSpace {
        /// How much was asked for, in bytes.
        bytes: u64,
    },
    /// The region was removed or reset since it was opened.
    #[error("the region was removed or reset; open it again")]
    Stale,
    /// The system refused.
    #[error("cannot {what}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}
