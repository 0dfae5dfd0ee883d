//! What can go wrong outside the verbs: opening a region, attaching to it, making it grow.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a region was not opened, created or removed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The name is empty, longer than 200 bytes, begins with a dot, or contains `/` or NUL.
    #[error("{name:?} is no name for a region: {why}")]
    Name {
        /// The name that was asked for.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A capacity is zero or beyond what addresses can express.
    #[error("a region cannot have {what} = {value}; {bound}")]
    Capacity {
        /// Which capacity.
        what: &'static str,
        /// What was asked for.
        value: u64,
        /// What is allowed.
        bound: &'static str,
    },
    /// This processor has no lock-free 16-byte compare-and-exchange.
    #[error("this processor has no lock-free 128-bit atomics")]
    NoWideAtomics,
    /// There is no region of this name, and [`Options::create`](super::Options) is off.
    #[error("there is no region {name:?} in {dir:?}")]
    Absent {
        /// The region's name.
        name: String,
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// A directory or file is not ours alone: another owner, a symbolic link, or open to others.
    #[error("{path:?} cannot be trusted: {why}")]
    Untrusted {
        /// The directory or file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The file is no region, or was made by a farlock with another layout, or is damaged.
    #[error("{path:?} is no region that this farlock can use: {why}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The first thing found wrong.
        why: Malformed,
    },
    /// The filesystem has no room for the region.
    #[error("no space for {bytes} bytes of {path:?}")]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// How large it was to be, in bytes.
        bytes: u64,
    },
    /// Somebody else, who may be stopped, removes a region, and the time allowed by
    /// [`Options::patience`](super::Options) has passed.
    #[error("{path:?} is locked by somebody who removes a region there")]
    Locked {
        /// The file that is locked.
        path: PathBuf,
    },
    /// The durable incarnation cannot be understood. Drawing another could repeat an old one.
    #[error("{path:?} names no incarnation: {found:?}")]
    IncarnationUnreadable {
        /// The file.
        path: PathBuf,
        /// What its name ends with.
        found: String,
    },
    /// The region was created anew 65,535 times. Tokens cannot increase any further.
    #[error("the region {name:?} has used up its 65535 incarnations")]
    IncarnationsExhausted {
        /// The region's name.
        name: String,
    },
    /// The system refused.
    #[error("cannot {what} {path:?}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What is wrong with a region's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Malformed {
    /// Shorter than a header.
    #[error("it is shorter than a header")]
    Short,
    /// The first bytes are not those of a region.
    #[error("it does not begin as a region does")]
    Magic,
    /// Another version of farlock, another C library, other capacities than the header says.
    #[error("its layout is another one")]
    Layout,
    /// The incarnation is zero or beyond 16 bits.
    #[error("its incarnation is out of range")]
    Incarnation,
    /// A capacity in the header is out of range.
    #[error("a capacity is out of range")]
    Capacity,
    /// The published size is not a size this region can have.
    #[error("its size is out of range")]
    Size,
    /// The file is shorter than the header says.
    #[error("the file is shorter than its header says")]
    Truncated,
}

/// Why an endpoint was not attached.
#[derive(Debug, Error)]
pub enum AttachError {
    /// Every place in the table of endpoints is taken by somebody living.
    #[error("all {endpoints} places for endpoints are taken")]
    Full {
        /// How many places there are.
        endpoints: u16,
    },
    /// The region was removed or reset since it was opened. Open it again.
    #[error("the region was removed or reset; open it again")]
    Stale,
    /// The kernel looks at so many robust mutexes of a thread that ends and at no more, so what
    /// the thread keeps beyond that would never be seen dead. Attach on another thread.
    #[error("this thread keeps {keepers} places already, as many as one thread can")]
    ThreadFull {
        /// How many places the thread keeps.
        keepers: u32,
    },
    /// The C library's robust mutexes are not as expected, so a death could go unnoticed.
    #[error("robust mutexes do not work here: {why}")]
    NoBeacon {
        /// What failed.
        why: &'static str,
    },
    /// The system refused.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a region did not grow.
#[derive(Debug, Error)]
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
    #[error("cannot {what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}
