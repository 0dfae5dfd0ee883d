//! Record locks: one word, one lock, shared and exclusive.
//!
//! Each is one file, which begins with the algorithm.

pub mod bakery;
pub mod cas;
pub mod claim;
pub mod drtm;
pub mod dslr;
pub mod dslr_64;
mod letter;
pub mod mcs;
pub mod ncosed;
pub mod none;
pub mod queue;
pub mod retry_on_fail;
pub mod rma_rw;
pub mod rpc;
pub mod shiftlock;
pub mod table;

/// Expands `$callback! { name, type, summary, constructor; ... }` over every record lock, in the
/// order of lists and tables. A lock is its file, its line here, and its page in `docs/protocols`.
/// With some options a name stands for another type of its module (`type or other`), where the
/// first must not pay for them; the other says itself which.
macro_rules! record_locks {
    ($callback:ident) => {
        $callback! {
            "none", none::NoLock, "excludes nobody: the canary", |o| o.none(NoLock);
            "cas", cas::Cas, "compare-and-swap, backoff", |o| o.none(Cas::with_backoff());
            "cas-nb", cas::Cas, "compare-and-swap, no backoff", |o| o.none(Cas::without_backoff());
            "retry-on-fail", retry_on_fail::RetryOnFail, "blind retries", |o| o.none(RetryOnFail);
            "drtm", drtm::DrTm, "compare-and-swap, leased readers", DrTm::from_options;
            "ncosed", ncosed::NCosed, "queue by compare-and-swap", |o| o.none(NCosed::default());
            "rma-rw", rma_rw::RmaRw, "queue of writers, counts of readers", RmaRw::from_options;
            "rpc", rpc::Rpc, "a server, first come, first served", Rpc::in_order;
            "rpc-ro", rpc::Rpc, "a server, readers may pass 10 times", Rpc::reordering;
            "dslr", dslr::Dslr, "tickets, first come, first served", Dslr::from_options;
            "dslr-64", dslr_64::Dslr64 or Leased, "dslr on 64 bits, any NIC",
                Dslr64::from_options;
            "mcs", mcs::Mcs, "queue, handed from client to client", Mcs::from_options;
            "shiftlock", shiftlock::ShiftLock or Extended, "reader-writer handover",
                ShiftLock::from_options;
            "claim", claim::Claim, "reader-writer, grants are claimed in line",
                Claim::from_options;
        }
    };
}
pub(crate) use record_locks;
