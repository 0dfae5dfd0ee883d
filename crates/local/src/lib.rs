//! Range locks inside one process: lock disjoint parts of one thing at the same time.
#![deny(unsafe_code)]

#[cfg(not(any(loom, shuttle)))]
pub mod address_space;
#[cfg(all(feature = "baseline", not(any(loom, shuttle))))]
pub mod baseline;
mod guard;
#[cfg(not(any(loom, shuttle)))]
mod indexed;
mod list;
mod primitive;
mod range;
mod raw;
#[cfg(not(any(loom, shuttle)))]
pub mod skiplist;
mod slice;

pub use guard::{
    OfTask, OfThread, RangeGuard, RangeMutex, RangeMutexGuard, RangeRwLock, RangeRwLockGuard,
};
#[cfg(not(any(loom, shuttle)))]
pub use indexed::{IndexedLock, IndexedToken};
#[cfg(any(loom, shuttle))]
pub use list::Planted;
pub use list::{ListEx, ListRw, Preference, Token};
pub use range::{Range, RangeError};
pub use raw::{RawRangeLock, RawRangeLockTimed, RawRangeRwLock, RawRangeRwLockTimed};
pub use slice::{PartMut, PartRef, RangeLocked, Sequence, SliceError};
