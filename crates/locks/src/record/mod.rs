//! Record locks: one word, one lock, shared and exclusive.
//!
//! Each is one file, which begins with the algorithm.

pub mod bakery;
mod barging;
pub mod cas;
pub mod citron;
pub mod citron_rw;
pub mod claim;
pub mod declock;
pub mod drtm;
pub mod dslr;
pub mod dslr_64;
pub mod errand;
pub mod far_list;
pub mod interval_tree;
mod letter;
pub mod linked_list;
pub mod mcs;
pub mod ncosed;
pub mod none;
pub mod note;
pub mod queue;
pub mod range_btree;
pub mod range_server;
pub mod retry_on_fail;
pub mod rma_rw;
pub mod rpc;
pub mod segments;
pub mod shiftlock;

/// Expands `$callback! { name, module, value, summary; ... }` over every lock, in the order of
/// lists and tables: a lock is its file, its line here, and its page in `docs/protocols`. The value
/// is a name in its module, to which options are applied. With some options another type of the
/// module stands in for it (`or type`), where the first must not pay for them.
macro_rules! locks {
    ($callback:ident) => {
        $callback! {
            "none", none, NoLock, "excludes nobody: the canary";
            "cas", cas, Cas::with_backoff(), "compare-and-swap, backoff";
            "cas-nb", cas, Cas::without_backoff(), "compare-and-swap, no backoff";
            "retry-on-fail", retry_on_fail, RetryOnFail, "blind retries";
            "drtm", drtm, DrTm::default(), "compare-and-swap, leased readers";
            "ncosed", ncosed, NCosed::default(), "queue by compare-and-swap";
            "rma-rw", rma_rw, RmaRw::default(), "queue of writers, counts of readers";
            "rpc", rpc, Rpc::IN_ORDER, "a server, first come, first served";
            "rpc-ro", rpc, Rpc::REORDERING, "a server, readers may pass 10 times";
            "dslr", dslr, Dslr::default(), "tickets, first come, first served";
            "dslr-64", dslr_64, Dslr64::default(), or leased::Leased, "dslr on 64 bits, any NIC";
            "mcs", mcs, Mcs::default(), "queue, handed from client to client";
            "shiftlock", shiftlock, ShiftLock::default(), or extended::Extended,
                "reader-writer handover";
            "declock", declock, DecLock::default(), "a header and a ring, told by messages";
            "segments", segments, Segments::default(), "ranges: a dslr a segment, in order";
            "citron", citron, Exclusive::default(), "ranges: a segment tree, exclusive";
            "citron-rw", citron_rw, Shared::default(), "ranges: a segment tree with readers";
            "interval-tree", interval_tree, INTERVAL_TREE, "ranges: a server with an interval tree";
            "range-btree", range_btree, RANGE_BTREE, "ranges: a server with a tree of 16 slots";
            "linked-list", linked_list, LINKED_LIST, "ranges: a server with a sorted list";
            "far-list", far_list, FarList::default(), "ranges: a sorted list by verbs";
            "claim", claim, Claim::default(), "reader-writer, grants are claimed in line";
        }
    };
}
pub(crate) use locks;
