//! Giving back to the system what a region has for tables of ranges that nobody uses.
//!
//! | died | what is left |
//! | --- | --- |
//! | at any instruction | names of before; one that is forgotten, or a record that the next newcomer takes; blocks that are reserved before they are used |

use std::cell::Cell;
use std::panic::resume_unwind;
use std::thread;

use farlock_fabric::shm::ShmEndpoint;
use farlock_fabric::{Addr, Connection as _, Host, HostOptions, block_on};
use farlock_locks::blocks::{BlockError, Blocks, LOG_BYTES};

use crate::directory::{Directory, DirectoryError, Emptier};
use crate::error::SessionError;
use crate::protocol::{LOCK_KIND, RANGE_KIND};
use crate::region::{RegionOptions, blocks_behind, range_heap};
use crate::shelf::SHELF_BYTES;

/// What a region has given back.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Trimmed {
    /// How many tables of ranges nobody used that had memory for far units.
    pub tables: u32,
    /// How many bytes of memory went back to the system.
    pub bytes: u64,
}

impl RegionOptions {
    /// Gives the memory that tables of ranges have for far units back to the system, where nobody
    /// uses them now. Tokens of their names go on; a table that is used again takes memory again,
    /// and where there is none is [`AcquireError::NoUnits`](crate::AcquireError::NoUnits). One that
    /// is in use keeps all it has: a session uses it as long as it has a
    /// [`RangeLock`](crate::session::RangeLock) by which it asked for something, or a guard.
    ///
    /// The region may be a server's, on the server's host: it goes on meanwhile, and so do all
    /// others. One table at a time counts as in use for the time that it takes.
    ///
    /// A crash leaves nothing that is in anybody's way.
    ///
    /// # Errors
    /// See [`SessionError`]: [`Absent`](crate::ConnectError::Absent) where there is no such region,
    /// [`SessionError::NotHere`] where these options name a server.
    pub fn trim_region(&self) -> Result<Trimmed, SessionError> {
        if let Some(server) = &self.server {
            return Err(SessionError::NotHere { server: server.clone() });
        }
        self.check_name()?;
        self.check_dirs()?;
        let host = Host::open(&HostOptions { create: false, ..self.of_host() })?;
        // A thread whose death is that of its endpoint, which has the records that are emptied.
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("farlock trim".to_owned());
            let trimming = thread.spawn_scoped(scope, || trim(&host));
            let trimmed = trimming.map_err(SessionError::Thread)?.join();
            trimmed.unwrap_or_else(|panic| resume_unwind(panic))
        })
    }
}

fn trim(host: &Host) -> Result<Trimmed, SessionError> {
    let _own = host.own_thread();
    let endpoint = host.endpoint()?;
    block_on(&endpoint, async {
        let Some(directory) = Directory::existing(&endpoint, host.heap(), LOCK_KIND).await? else {
            return Ok(Trimmed::default());
        };
        let (base, bytes) = range_heap(host, &directory);
        let (heap, length) = host.heap();
        if heap.plus(length) < base.plus(bytes + SHELF_BYTES + LOG_BYTES) {
            return Ok(Trimmed::default());
        }
        let Some(tables) = Directory::existing(&endpoint, (base, bytes), RANGE_KIND).await? else {
            return Ok(Trimmed::default());
        };
        let blocks = blocks_behind((base, bytes));
        let emptying = Emptying { host, endpoint: &endpoint, blocks, bytes: Cell::new(0) };
        let tables = tables.trim(&endpoint, RANGE_KIND, &emptying).await?;
        Ok(Trimmed { tables, bytes: emptying.bytes.get() })
    })
}

/// Gives back the memory of blocks, by the thread of an endpoint.
struct Emptying<'h> {
    host: &'h Host,
    endpoint: &'h ShmEndpoint,
    blocks: Blocks,
    /// How many bytes went.
    bytes: Cell<u64>,
}

impl Emptier<SessionError> for Emptying<'_> {
    async fn is_full(&self, lock: Addr) -> Result<bool, SessionError> {
        self.blocks.has_memory(self.endpoint, lock).await.map_err(of_blocks)
    }

    async fn empty(&self, lock: Addr) -> Result<(), SessionError> {
        let discard = async |addr, bytes| self.host.discard(addr, bytes);
        let gone = self.blocks.discard(self.endpoint, discard, lock).await.map_err(of_blocks)?;
        self.bytes.set(self.bytes.get() + gone);
        Ok(())
    }
}

fn of_blocks(error: BlockError) -> SessionError {
    match error {
        BlockError::Fabric(fault) => DirectoryError::Fabric(fault).into(),
        BlockError::Memory(error) => error.into(),
    }
}
