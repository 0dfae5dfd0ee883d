//! What can go wrong with a store, in words people can act on.

use std::time::Duration;

use farlock_fabric::{ConnectError, Fault};
use farlock_kv::{KEY_BYTES_MAX, ReadError, WriteError};
use farlock_locks::Token;
use thiserror::Error;

use super::index::Index;
use super::share::{PARTS_MAX, PartOf, said};
use super::value::VALUE_BYTES_MAX;
use crate::error::{code_of_server, hint_of};
use crate::text::shown;

/// Why a store was not opened, or an operation not carried out. But for [`KvError::Unknown`] the
/// store is as if the operation had not been called.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KvError {
    /// No store can have such a name: it is empty, longer than 200 bytes, begins with a dot, or
    /// contains `/` or a control character.
    #[error("'{}' is no name for a store: {why}", shown(.name))]
    BadName {
        /// The name that was asked for.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Its memory could not be opened or created, or has no place for this process.
    #[error("the store '{}' cannot be used", shown(.name))]
    Open {
        /// The store.
        name: String,
        /// Why not.
        source: ConnectError,
    },
    /// What lies under this name is no store of this version.
    #[error("the store '{}' is damaged, or of another version", shown(.name))]
    NotAStore {
        /// The store.
        name: String,
    },
    /// The store has another index than was asked for.
    #[error("the index of the store '{}' is {has}, not {wanted}", shown(.name))]
    OtherIndex {
        /// The store.
        name: String,
        /// The index that it was made with.
        has: Index,
        /// The one that is needed for what was asked.
        wanted: Index,
    },
    /// What lies under this name is another part of a store than it was named as, or a store by
    /// itself. Nothing was written.
    #[error("the store '{}' at {at} is {}, not {}", shown(.name), said(*.has), said(*.wanted))]
    OtherPart {
        /// The store.
        name: String,
        /// The server or region.
        at: String,
        /// What it is; `None`: a store by itself.
        has: Option<PartOf>,
        /// As what it was named.
        wanted: Option<PartOf>,
        /// The servers or regions that were named, in the order in which they have their parts;
        /// empty where the store has others.
        order: Vec<String>,
    },
    /// What lies under this name is a part of another store of the same name, which has other
    /// memory nodes. Nothing was written.
    #[error("the store '{}' at {at} is a part of another store of this name", shown(.name))]
    ForeignPart {
        /// The store.
        name: String,
        /// The server or region.
        at: String,
    },
    /// A part of the store is not there, and was not to be made.
    #[error("of the store '{}' {of} is not there, at {at}", shown(.name))]
    NoPart {
        /// The store.
        name: String,
        /// The server or region.
        at: String,
        /// The part.
        of: PartOf,
    },
    /// No store can lie over these memory nodes.
    #[error("no store can be over these servers or regions: {why}")]
    BadParts {
        /// What is wrong with them.
        why: &'static str,
    },
    /// The system gave no thread.
    #[error("the thread that keeps the store's places could not be started")]
    Thread(#[source] std::io::Error),
    /// The store was removed while it was open, or a part of it.
    #[error("the store '{}' at {at} was removed", shown(.name))]
    Gone {
        /// The store.
        name: String,
        /// The server or region.
        at: String,
    },
    /// The connection to the server is over, and no other was to be had before the lease ended.
    #[error(
        "the server {at} of the store '{}' was not heard of any more before the lease ended",
        shown(.name)
    )]
    Disconnected {
        /// The store.
        name: String,
        /// The server.
        at: String,
    },
    /// This process did not run, so the server was not asked for another lease in time: it was
    /// stopped, or its host stood still.
    #[error(
        "this process did not run until its lease by the server {at} of the store '{}' had ended: \
         it was stopped, or its host stood still",
        shown(.name)
    )]
    SleptThrough {
        /// The store.
        name: String,
        /// The server.
        at: String,
    },
    /// This process was forked from the one that opened the store.
    #[error("the store belongs to the parent process")]
    Forked,
    /// The key is empty or too long.
    #[error("a key has 1 to {KEY_BYTES_MAX} bytes, and this one has {bytes}")]
    BadKey {
        /// Its length.
        bytes: usize,
    },
    /// The value is too long.
    #[error("a value has at most {VALUE_BYTES_MAX} bytes, and this one has {bytes}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The key was written with a later token: whose token this is does not hold the lock any more.
    #[error("the token {token} is out of date: the key was written with {seen}")]
    StaleToken {
        /// The one that was refused.
        token: Token,
        /// The highest that the key was written with.
        seen: Token,
    },
    /// The key was written with a token, and is not changed without.
    #[error("the key is fenced: it was written with the token {seen}")]
    Fenced {
        /// The highest token that it was written with.
        seen: Token,
    },
    /// The value is not a decimal number.
    #[error("the value is not a number from -2^63 to 2^63 - 1")]
    NotANumber,
    /// The sum has no room in 64 bits. The number stays as it is.
    #[error("the sum would not be a number from -2^63 to 2^63 - 1")]
    Overflow,
    /// There is no memory for the pair. Nothing is lost.
    #[error("the store is full")]
    Full {
        /// Why it did not grow.
        #[source]
        source: Option<ConnectError>,
    },
    /// Too many keys have the hash of this one: they were made so. Nothing is lost.
    #[error("too many keys of the store have the same hash as this one")]
    Collides,
    /// Others changed the key each time before this client could, too often.
    #[error("the key changes too often")]
    Busy,
    /// The key was for so long what it was.
    #[error("the key has not changed within {} s", .limit.as_secs_f64())]
    TimedOut {
        /// How long that was to be.
        limit: Duration,
    },
    /// Whether the operation was carried out is not known.
    #[error("whether the operation was carried out is unknown")]
    Unknown,
    /// The memory was damaged.
    #[error("the store's memory was damaged at this key")]
    Corrupt,
    /// The fabric failed.
    #[error("the fabric failed")]
    Fabric(#[source] Fault),
}

impl KvError {
    /// A stable name of what happened.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::BadName { .. } => "bad-name",
            Self::Open { source, .. } => match code_of_server(source) {
                Some(code) => code,
                None => "store-open",
            },
            Self::NotAStore { .. } => "not-a-store",
            Self::OtherIndex { .. } => "other-index",
            Self::OtherPart { .. } => "other-part",
            Self::ForeignPart { .. } => "foreign-part",
            Self::NoPart { .. } => "no-part",
            Self::BadParts { .. } => "bad-parts",
            Self::Thread(_) => "thread",
            Self::Gone { .. } => "store-gone",
            Self::Disconnected { .. } => "disconnected",
            Self::SleptThrough { .. } => "slept-through",
            Self::Forked => "forked",
            Self::BadKey { .. } => "bad-key",
            Self::TooLong { .. } => "value-too-long",
            Self::StaleToken { .. } => "stale-token",
            Self::Fenced { .. } => "fenced",
            Self::NotANumber => "not-a-number",
            Self::Overflow => "overflow",
            Self::Full { .. } => "store-full",
            Self::Collides => "keys-collide",
            Self::Busy => "busy",
            Self::TimedOut { .. } => "timed-out",
            Self::Unknown => "unknown",
            Self::Corrupt => "corrupt",
            Self::Fabric(_) => "fabric",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::BadName { .. } => "use 1 to 200 bytes without a slash, not beginning with a dot",
            Self::Open { source: ConnectError::Absent { name, .. }, .. } => {
                return format!("`farlock kv put --store {name} KEY VALUE` creates it");
            }
            Self::NotAStore { name }
            | Self::Open { name, source: ConnectError::Malformed { .. } } => {
                return format!(
                    "`farlock kv drop {name}` removes it; a dump of it can be loaded anew"
                );
            }
            Self::Open { source, .. } => return hint_of(source),
            Self::Full { source: Some(source) } => {
                return format!("{}; or {REMOVED_MAKES_ROOM}", hint_of(source));
            }
            Self::Full { source: None } => {
                return format!("use another store; or {REMOVED_MAKES_ROOM}");
            }
            Self::OtherIndex { name, wanted, .. } => return hint_of_index(name, *wanted),
            Self::OtherPart { has, order, .. } => return hint_of_part(*has, order),
            Self::ForeignPart { .. } => {
                "name the servers that the store was made with, or use another name"
            }
            Self::NoPart { .. } => {
                "name the servers, or regions, that it was made with; if that part's memory is \
                 gone, `farlock kv put --remake` makes it anew, empty. Others are as they were"
            }
            Self::BadParts { .. } => {
                return format!("name 1 to {PARTS_MAX} servers or regions, each of them once");
            }
            Self::Corrupt => "other keys can still be read; `farlock kv drop` removes the store",
            Self::Thread(_) => "raise the limit on processes (ulimit -u)",
            Self::Gone { .. } => "open it again: it is created anew, empty",
            Self::Disconnected { .. } => {
                "see that `farlock serve` runs there, and open the store again: what was stored is \
                 there as long as the region is. Of a change under way, read the key: it tells"
            }
            Self::SleptThrough { .. } => {
                "open the store again: what was stored is there as long as the region is"
            }
            Self::Forked => "open the store after the fork",
            Self::BadKey { .. } => "use another key",
            Self::TooLong { .. } => "store it in parts, under keys of their own",
            Self::StaleToken { .. } => "acquire the lock again: another holder has had it since",
            Self::Fenced { .. } => "write it with the token of the lock that guards it",
            Self::NotANumber => "write a decimal number first, to which this can be added",
            Self::Overflow => "add less, or begin anew: `kv put` writes another number",
            Self::Collides => "use other keys: whatever makes these keys makes them alike",
            Self::Busy => "try again",
            Self::TimedOut { .. } => "wait longer, or ask again: no change is missed in between",
            Self::Unknown => "read the key: it tells",
            Self::Fabric(Fault::Lost) => {
                "open the store again; of a change, read the key first: it may have been made"
            }
            Self::Fabric(_) => "open the store again",
        }
        .to_owned()
    }

    /// Refuses where the store of this name has another index than is wanted.
    pub(super) fn unless_index(name: &str, has: Index, wanted: Option<Index>) -> Result<(), Self> {
        match wanted.filter(|wanted| *wanted != has) {
            None => Ok(()),
            Some(wanted) => Err(Self::OtherIndex { name: name.to_owned(), has, wanted }),
        }
    }

    /// Whether a store was not opened because its server is away, and may be back soon.
    pub(super) fn is_of_server_away(&self) -> bool {
        matches!(self, Self::Open { source, .. } if source.is_of_server_away())
    }

    pub(super) fn of_read(error: ReadError, key: &[u8]) -> Self {
        Self::of_write(error.into(), key)
    }

    pub(super) fn of_write(error: WriteError, key: &[u8]) -> Self {
        match error {
            WriteError::BadKey => Self::BadKey { bytes: key.len() },
            WriteError::PoolFull | WriteError::IndexFull => Self::Full { source: None },
            WriteError::Collides => Self::Collides,
            WriteError::Busy => Self::Busy,
            WriteError::Unknown => Self::Unknown,
            WriteError::Corrupt => Self::Corrupt,
            WriteError::Fabric(fault) => Self::Fabric(fault),
            _ => unreachable!("this face asks for nothing that is answered so: {error}"),
        }
    }
}

/// What is said of a store that is full. What a client has free is nobody else's while it lives;
/// nodes of an ordered store stay, and the index takes only memory that was never used.
const REMOVED_MAKES_ROOM: &str = "remove pairs: that makes room, which other clients may have \
                                  until they end; to have all of it, dump, drop and load the store";

/// What to do where a store has another index than this.
fn hint_of_index(name: &str, wanted: Index) -> String {
    match wanted {
        Index::Ordered => format!(
            "copy it into one that is: `farlock kv dump --store {name} FILE`, then `farlock kv \
             load --index ordered --store OTHER FILE`"
        ),
        Index::Hash => {
            "ask for no index: an ordered store does all that a hash store does".to_owned()
        }
    }
}

/// What to do where a store is this, and was named as another part.
fn hint_of_part(has: Option<PartOf>, order: &[String]) -> String {
    match has {
        None => {
            "name its server alone; to have it over several, dump it, and load the dump into a \
                 store of another name"
                .to_owned()
        }
        Some(_) if !order.is_empty() => format!("name them in this order: {}", order.join(", ")),
        Some(PartOf { part, parts }) => {
            format!("name all {parts} servers or regions in their order, this one as number {part}")
        }
    }
}
