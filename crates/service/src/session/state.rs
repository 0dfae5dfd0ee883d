//! What a session is made of: its handles, its names, and what they leave for its thread.
//!
//! All of it knows each other: a handle keeps the session, the session knows its names, and a name
//! asks by the session's places. What each does stands in a file of its own.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farlock_fabric::shm::Biased;
use farlock_fabric::{EndpointId, Ticket};
use farlock_locks::shelf::Entry as ShelfEntry;
use farlock_locks::{Extent, Lock, OnShelf, Token};

use super::pool::{Place, Pool, RangePlace};
use super::waiter::{Fate, Report, Timed, Waiter, Who};
use crate::RegionOptions;
use crate::blocks::KnownBlocks;
use crate::connection::{Lane, Region, Unparker};
use crate::directory::{Directory, Located};
use crate::error::{AcquireError, Holders, LostReason, ReleaseError, SessionError};
use crate::kv::hub::Hub as StoreHub;
use crate::kv::spread::Spread;
use crate::protocol::RangeProtocol;

/// Keeps a session. Dropped by the last of its handles.
pub(crate) struct Root {
    pub(super) hub: Arc<Hub>,
    pub(super) thread: Option<JoinHandle<()>>,
    /// Where its region lies.
    pub(crate) options: RegionOptions,
    /// The key-value stores that are open, by their names.
    pub(crate) stores: Mutex<HashMap<String, Weak<StoreHub>>>,
    /// Those that are over the regions of several sessions, of which this one was named first.
    pub(crate) spreads: Mutex<HashMap<String, Weak<Spread>>>,
}

/// A name and the session it is used in. On lines of its own, since every acquisition counts it:
/// threads that use different names then do not meet.
#[repr(align(128))]
pub(super) struct Handle {
    pub(super) name: Arc<Name>,
    pub(super) root: Arc<Root>,
}

/// A session, but for the handles that keep it.
pub(crate) struct Hub {
    pub(crate) region: Region,
    /// Whether each verb takes a round trip: what the region says, where a cycle has it at hand.
    pub(super) is_far: bool,
    /// The endpoint of the session's thread, which has what is the session's as a whole.
    pub(super) home: EndpointId,
    pub(super) directory: Directory,
    pub(super) pool: Pool,
    /// The directory of tables of ranges, once one was used.
    pub(super) range_directory: OnceLock<Directory>,
    pub(super) range_pool: Pool<RangeProtocol>,
    /// What ends the waits of threads for ranges, by their places.
    pub(super) range_waits: Mutex<BTreeMap<u16, Unparker>>,
    /// Entries of the shelf that are this session's, and in which nothing stands.
    pub(super) free_entries: Mutex<Vec<ShelfEntry>>,
    pub(super) known_blocks: Mutex<KnownBlocks>,
    /// The place by which what is written down is released.
    pub(super) clerk: Mutex<Option<Box<RangePlace>>>,
    /// Whether records of holds say since when. It costs a look at the clock.
    pub(super) dates_holds: bool,
    /// How often this process was forked when the session was opened.
    pub(super) forks: u64,
    /// How the session ended, if it has.
    pub(super) ended: OnceLock<LostReason>,
    /// At which tick the region's file was last seen to be there; 0 is never.
    pub(super) seen_at: AtomicU64,
    pub(super) names: Mutex<HashMap<Arc<str>, Entry>>,
    pub(super) inbox: Mutex<Inbox>,
    pub(super) arrived: Condvar,
    pub(super) unparker: Unparker,
    /// How many wait for something that the end of the region decides.
    pub(super) watchers: AtomicUsize,
    pub(super) losses: Mutex<Losses>,
}

/// A name that is used, or was.
pub(super) struct Entry {
    pub(super) name: Arc<Name>,
    pub(super) handle: Weak<Handle>,
}

/// What handles leave for the session's thread.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) jobs: Vec<Work>,
    /// Places whose keepers are to let go of them.
    pub(super) given_back: Vec<EndpointId>,
    pub(super) orders: Vec<Order>,
    /// Tasks to wake when their time has passed.
    pub(super) timers: BTreeMap<(Instant, u64), Arc<dyn Timed>>,
    pub(super) timers_made: u64,
    /// Until when the thread sleeps at the latest, if it does: a timer for later wakes it not.
    pub(super) sleeps_until: Option<Instant>,
    pub(super) is_nudged: bool,
    /// The last handle is gone.
    pub(super) is_closed: bool,
    /// Whether the thread sleeps where the end of the region wakes it.
    pub(super) is_watching: bool,
}

/// Who is to be told when the session ends.
#[derive(Default)]
pub(super) struct Losses {
    pub(super) wakers: BTreeMap<u64, Waker>,
    pub(super) made: u64,
}

/// A name that this session uses. On lines of its own, as a [`Handle`].
#[repr(align(128))]
pub(super) struct Name {
    pub(super) hub: Arc<Hub>,
    pub(super) text: Arc<str>,
    pub(super) line: Biased<Line>,
}

/// What this session does about a lock.
pub(super) struct Line {
    /// Where the lock's word lies, once a caller asked. It may have been forgotten since, unless a
    /// place of this session is aimed at it.
    pub(super) found: Option<Located>,
    pub(super) hold: Hold,
    /// By which the lock is held; or idle, and kept for the next acquisition.
    pub(super) place: Option<Box<Place>>,
    /// By which it is held too, by shared holders that were not let in without a verb. Fewer than
    /// there are holders.
    pub(super) more: Vec<Box<Place>>,
    pub(super) asking: Asking,
    /// By ticket: first come, first served. Some only where a holder has the lock alone or hands it
    /// over, or where it is asked for.
    pub(super) waiters: BTreeMap<u64, Arc<Waiter>>,
    pub(super) tickets: u64,
    /// Whether its idle place is among those that names may keep.
    pub(super) keeps: bool,
}

/// What this session holds of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    Nothing,
    Alone,
    /// So many hold it together.
    Shared(u32),
}

/// Who of this session stands in line.
pub(super) enum Asking {
    Nobody,
    /// A thread, by its own place.
    Thread(Unparker),
    /// A caller whose verb is under way.
    Task,
    /// The session's thread, for this waiter; for nobody where it could not leave the line.
    Session(Option<Arc<Waiter>>),
}

/// A caller waits for places to be made, for ranges or for locks.
pub(super) struct Order {
    pub(super) for_ranges: bool,
    pub(super) report: Report<Result<(), SessionError>>,
}

/// Something for the session's thread to do.
pub(super) enum Work {
    Name(Job),
    Range(RangeJob),
}

/// To ask for a waiter of this name.
pub(super) struct Job {
    pub(super) name: Arc<Name>,
    /// By which it stands in line; `None` if there was none.
    pub(super) place: Option<Box<Place>>,
    /// The verb of that place that is on its way, which a caller left.
    pub(super) sent: Option<Ticket>,
    /// Whose attempt is to be decided, if it is one: in no line.
    pub(super) attempt: Option<Arc<Waiter>>,
}

/// How long an acquisition waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Patience {
    /// Until it is granted.
    Endless,
    /// Not at all.
    None,
    /// So long from when it was asked for.
    For(Duration),
}

impl Patience {
    /// When it ends, if it begins now. A limit beyond what the clock can express is none.
    pub(super) fn deadline(self) -> Option<Instant> {
        match self {
            Self::For(limit) => Instant::now().checked_add(limit),
            Self::Endless | Self::None => None,
        }
    }

    /// Why what these hold was not granted in time.
    pub(super) fn refused(self, name: &str, holders: Holders) -> AcquireError {
        let name = name.to_owned();
        match self {
            Self::For(limit) => AcquireError::TimedOut { name, limit, holders },
            Self::Endless | Self::None => AcquireError::Busy { name, holders },
        }
    }

    /// The thread that waits so.
    #[inline]
    pub(super) fn of_thread(self) -> Who {
        match self {
            Self::For(limit) => Who::Thread { limit: Some(limit) },
            Self::Endless | Self::None => Who::Thread { limit: None },
        }
    }
}

// Ranges.

/// A table of ranges, and the session it is used in.
pub(super) struct Table {
    pub(super) root: Arc<Root>,
    pub(super) text: Arc<str>,
    /// How many positions a unit has.
    pub(super) unit: u64,
    pub(super) spot: Mutex<Spot>,
}

/// Where the table lies.
#[derive(Default)]
pub(super) struct Spot {
    /// Once a caller asked. It may have been forgotten since, unless a place of this session is
    /// aimed at it.
    pub(super) found: Option<Located>,
    /// Places that do nothing, and are aimed at it.
    pub(super) idle: Vec<Box<RangePlace>>,
}

/// A range is held.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) by: HeldBy,
    pub(super) token: Token,
}

/// What the lock remembers of a range that is held.
pub(super) type RangeGrant = <RangeProtocol as Lock<Lane>>::Grant;

/// By what a range is held.
#[derive(Debug)]
pub(super) enum HeldBy {
    /// A place of its own.
    Place(Box<RangePlace>),
    /// What is written down on the region's shelf.
    Shelf(Box<OnShelf<Extent, RangeGrant>>),
}

/// What becomes of an acquisition that the session's thread goes on with; `None`: it is busy.
pub(super) type Ending = Result<Option<Grant>, AcquireError>;

/// What becomes of a release by the session's thread.
pub(super) type Released = Result<(), ReleaseError>;

/// An acquisition of a range by a server, which the session's thread goes on with.
pub(super) struct RangeAsking {
    pub(super) table: Arc<Table>,
    pub(super) fate: Arc<Fate<Ending>>,
}

/// Something about ranges for the session's thread to do.
pub(super) struct RangeJob {
    pub(super) table: Arc<Table>,
    pub(super) errand: Errand,
}

/// What it is.
pub(super) enum Errand {
    /// An acquisition of a task by a server.
    Acquire {
        want: Extent,
        /// Whether it is an attempt that does not wait.
        tries: bool,
        /// By which it is done, once there is one.
        place: Option<Box<RangePlace>>,
        fate: Arc<Fate<Ending>>,
    },
    /// To go on with a wait, or with an attempt in doubt.
    Wait {
        place: Box<RangePlace>,
        /// The task that waits; `None`: the thread that waited has given up.
        fate: Option<Arc<Fate<Ending>>>,
        tries: bool,
    },
    /// A release by a server.
    Release {
        held: Vec<HeldBy>,
        /// The task that waits; `None`: nobody asks how it goes.
        fate: Option<Arc<Fate<Released>>>,
    },
}
