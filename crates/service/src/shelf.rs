//! The shelf of a region, where sessions write down what they hold of tables of ranges beyond what
//! they have places for.

use farlock_fabric::Addr;
use farlock_locks::shelf::Shelf;

/// Its blocks: there is room for 65,536 holds.
const BLOCKS: u16 = 4096;

/// How long it is.
pub(crate) const SHELF_BYTES: u64 = Shelf::bytes(BLOCKS).next_multiple_of(64 << 10);

/// The one that lies there.
pub(crate) fn shelf_at(base: Addr) -> Shelf {
    Shelf::new(base, BLOCKS)
}
