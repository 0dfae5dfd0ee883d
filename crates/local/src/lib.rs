//! Range locks inside one process: lock disjoint parts of one thing at the same time.
#![deny(unsafe_code)]

mod primitive;
mod range;
mod raw;

pub use range::{Range, RangeError};
pub use raw::{RawRangeLock, RawRangeLockTimed, RawRangeRwLock, RawRangeRwLockTimed};
