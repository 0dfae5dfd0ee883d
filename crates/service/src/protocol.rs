//! The locks that names have.

use std::time::Duration;

use farlock_fabric::tcp::Patience;
use farlock_locks::blocks::Blocks;
use farlock_locks::record::citron::tree::Tree;
use farlock_locks::record::citron_rw::Shared;
use farlock_locks::record::claim::{Claim, ClaimWord};
use farlock_locks::shelf::Shelf;
use farlock_locks::{Extent, LockKind, Token, TokenSource};

use crate::directory::Kind;

/// The kind under which the directory enters locks: the protocol that uses their words.
pub(crate) const LOCK_KIND: Kind = Kind {
    name: "claim",
    count: |word| ClaimWord(word).count(),
    fresh: |count| ClaimWord::new().with(ClaimWord::COUNT, count).0,
    bytes: Protocol::BYTES,
    shelf: None,
};

/// How many newcomers may pass between two writers that wait: what makes a lock that many want
/// fast where they are more than processors, at the price of so short a wait for the others.
const BYPASS: u8 = 64;

/// The type of [`lock_protocol`].
pub(crate) type Protocol = Claim;

/// The lock that every session and command of a region uses: they must agree on its bound. Where a
/// verb takes a round trip a free lock is claimed such that its release can do without one.
pub(crate) fn lock_protocol(is_far: bool) -> Protocol {
    // A look costs a trip there, and takes no processor from the holder.
    let newcomer_yields = is_far.then_some(0);
    Protocol { bypass: BYPASS, outside: is_far.into(), newcomer_yields, ..Protocol::default() }
}

/// For how long a server may hold back the verb by which a thread opens a lock that others hold:
/// longer than many clients take that hold it briefly, one after the other. A client that is
/// stopped within this time may be granted the lock, and then keeps it, as any holder that is
/// stopped.
pub(crate) const HELD_BACK: Duration = Duration::from_millis(10);

/// The same, as a server is told.
pub(crate) const PATIENCE: Patience = Patience::fixed(HELD_BACK.as_nanos() as u64);

/// The lock of a table of ranges.
pub(crate) type RangeProtocol = Shared;

/// Its tree, of 2^28 units: the first 2^18 lie in the table, and as many others each in a block.
const RANGE_TREE: Tree = Tree { crown: 5, ..Tree::LARGEST };

/// Units of a table; the last one stands for all positions behind it too.
pub(crate) const RANGE_UNITS: u64 = RANGE_TREE.last_unit() + 1;

/// So often a waiter for a unit of a table sees others come before it, until newcomers wait for it.
const CALLS_AFTER: u8 = 3;

/// The lock of ranges that every session and command of a region uses.
pub(crate) fn range_protocol(shelf: Shelf, blocks: Blocks) -> RangeProtocol {
    // Callers may hold some ranges and wait for others: those must not meet if they are disjoint.
    // Nor may they wait for one that itself only waits.
    let (is_exact, steps_back_max) = (true, u8::MAX);
    // Of many processes on few processors one that waits is not to starve beside those that run.
    let calls_after = Some(CALLS_AFTER);
    let (shelf, blocks) = (Some(shelf), Some(blocks.base()));
    let Tree { levels, crown, .. } = RANGE_TREE;
    Shared {
        levels,
        crown,
        is_exact,
        steps_back_max,
        calls_after,
        shelf,
        blocks,
        ..Shared::default()
    }
}

/// Of what is asked for, the subtrees at its two ends that have a block.
pub(crate) fn far_ends(extent: Extent) -> [Option<u32>; 2] {
    RANGE_TREE.far_ends(&RANGE_TREE.wanted(extent))
}

/// Bytes of a block: two words for each node below the root of a subtree.
pub(crate) const RANGE_BLOCK_BYTES: u64 = (4_u64.pow(7) - 1) / 3 * 16 - 16;

/// Bytes of the count, of the tree of the first units, and of the upper levels of that of the
/// others.
const RANGE_LOCK_BYTES: u64 =
    (64 + ((4_u64.pow(7) - 1) / 3 + (4_u64.pow(6) - 1) / 3) * 16).next_multiple_of(64);

/// The kind under which the directory enters tables of ranges. The second word of each says how
/// many of its users' positions a unit has, and is written once.
pub(crate) const RANGE_KIND: Kind = Kind {
    name: "citron-rw",
    count: |word| word as u64 & ((1 << Token::COUNT_BITS) - 1),
    fresh: |count| u128::from(count) & ((1 << Token::COUNT_BITS) - 1),
    bytes: RANGE_LOCK_BYTES,
    shelf: Some(RANGE_HEAP_BYTES),
};

/// Where the word lies that says how long a unit is.
pub(crate) const UNIT_AT: u64 = 8;

/// Bytes of the heap for tables of ranges, taken when the first is used: 48 of them, for as many
/// names in use at one time.
pub(crate) const RANGE_HEAP_BYTES: u64 = 81 * (64 << 10);

/// A lock without fencing tokens is none that a service hands out.
const _: () = {
    let tokens = [Protocol::TOKENS, RangeProtocol::TOKENS];
    let [TokenSource::Word, TokenSource::Word] = tokens else {
        panic!("a service needs fencing tokens")
    };
};

#[cfg(test)]
mod tests {
    use farlock_fabric::Addr;

    use super::*;
    use crate::shelf::shelf_at;

    #[test]
    fn a_table_of_ranges_has_room_for_its_tree() {
        let (shelf, log) = (shelf_at(Addr::from_bits(0)), Addr::from_bits(1 << 20));
        let lock = range_protocol(shelf, Blocks::at(log, RANGE_BLOCK_BYTES));
        assert_eq!((lock.bytes(), lock.units()), (RANGE_LOCK_BYTES, Some(RANGE_UNITS)));
        assert_eq!(lock.block_bytes(), RANGE_BLOCK_BYTES);
    }
}
