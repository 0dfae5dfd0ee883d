//! What a session knows of the blocks of tables of ranges, and how it has their memory.

use std::collections::HashMap;

use farlock_fabric::{Addr, ConnectError, Connection};
use farlock_locks::blocks::Memory;

use crate::directory::Located;

/// The blocks of subtrees of tables, as far as they were asked for.
///
/// A block stays its table's, but its memory may go while nobody uses the table. So what was found
/// counts for those that found the table no later.
#[derive(Debug, Default)]
pub(crate) struct KnownBlocks {
    /// The block, and how its table was found then.
    found: HashMap<(Addr, u32), (u16, Located)>,
}

impl KnownBlocks {
    /// The block of a subtree of a table that is kept from being forgotten, and was found so.
    pub(crate) fn get(&self, table: Located, subtree: u32) -> Option<u16> {
        let (number, as_found) = self.found.get(&(table.lock(), subtree))?;
        table.knows(*as_found).then_some(*number)
    }

    /// The block of a subtree of a table, however it was found then: what a client may not go by.
    #[cfg(test)]
    pub(crate) fn get_ever(&self, table: Located, subtree: u32) -> Option<u16> {
        self.found.get(&(table.lock(), subtree)).map(|(number, _)| *number)
    }

    /// Notes the block of a subtree of a table that was found so.
    pub(crate) fn learn(&mut self, table: Located, subtree: u32, number: u16) {
        // What is known since later holds for more.
        if self.get(table, subtree).is_none() {
            self.found.insert((table.lock(), subtree), (number, table));
        }
    }
}

/// The memory of a region, as blocks need it.
#[derive(Debug)]
pub(crate) struct RegionMemory<'r, C> {
    region: &'r C,
    /// Where the heap begins.
    heap: Addr,
}

impl<'r, C: Connection> RegionMemory<'r, C> {
    pub(crate) fn of(region: &'r C) -> Self {
        Self { region, heap: region.heap().0 }
    }
}

impl<C: Connection> Memory for RegionMemory<'_, C> {
    async fn lengthen(&self, end: Addr) -> Result<(), ConnectError> {
        self.region.lengthen(end.offset() - self.heap.offset())
    }

    async fn reserve(&self, addr: Addr, bytes: u64) -> Result<(), ConnectError> {
        self.region.reserve(addr, bytes)
    }
}
