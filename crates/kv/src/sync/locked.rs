//! Pessimistic: a writer holds the lock of its key, any of the record locks.
//!
//! Locks lie in a table of their own, and a key has the one that its hash says. With `cas` this is
//! the spin lock with truncated backoff of the disaggregated indexes, with `mcs` or `shiftlock` the
//! queue of CIDER, section 2.3, without its combining.

use farlock_fabric::{Addr, Endpoint, Nanos};
use farlock_locks::{Client, Guard, Mode, RecordLock, within};

use super::backoff::Backoff;
use super::scheme::{Effect, Ended, Entered, Scheme};

/// Turns by a lock. A client that waits longer than it has patience, or whose lock fails, goes on
/// without: the compare of the slot keeps order, and a holder that is stopped delays nobody for
/// longer than that.
///
/// A waiter that gives up leaves it to [`Scheme::settle`] to withdraw, and until then keeps others
/// waiting as long as they have patience. So does a client that is broken, for as long as its
/// endpoint lives ([`Client::is_broken`]): it takes no more turns, and should end.
#[derive(Debug)]
pub struct Locked<E: Endpoint, L: RecordLock<E>> {
    client: Client<E, L>,
    table: Addr,
    locks: u64,
    patience_ns: Nanos,
    backoff: Backoff,
    reads_before: bool,
}

impl<E: Endpoint, L: RecordLock<E>> Locked<E, L> {
    /// By `locks` locks that lie one after the other from `table` on, in zeroed memory of which
    /// each takes its kind's `BYTES`. A client waits up to `patience_ns`
    /// nanoseconds for one.
    ///
    /// # Panics
    /// If there are no locks.
    pub fn new(client: Client<E, L>, table: Addr, locks: u64, patience_ns: Nanos) -> Self {
        assert!(locks > 0, "a table has locks");
        let (backoff, reads_before) = (Backoff::DEFAULT, false);
        Self { client, table, locks, patience_ns, backoff, reads_before }
    }

    /// As CIDER's artifact has it: reads the key before it takes the lock, so that the first
    /// compare fails if another was first, and then tries again at once.
    #[must_use]
    pub fn reading_before(self) -> Self {
        Self { backoff: Backoff::NONE, reads_before: true, ..self }
    }
}

impl<E: Endpoint, L: RecordLock<E>> Scheme for Locked<E, L> {
    type Endpoint = E;
    type Turn<'s>
        = Option<Guard<'s, E, L>>
    where
        Self: 's;

    fn endpoint(&self) -> &E {
        self.client.endpoint()
    }

    fn reads_before(&self) -> bool {
        self.reads_before
    }

    async fn enter(&self, hash: u64, _: Effect) -> Entered<Self::Turn<'_>> {
        if self.client.is_broken() {
            return Entered::Turn(None);
        }
        let lock = self.table.plus(hash % self.locks * L::BYTES);
        let acquired = self.client.acquire_within(lock, Mode::Exclusive, self.patience_ns).await;
        Entered::Turn(acquired.ok())
    }

    /// Only a client that goes on without a turn is in the way of a holder.
    async fn missed(&self, times: u32) {
        self.backoff.wait(self.client.endpoint(), times).await;
    }

    async fn leave(&self, turn: Self::Turn<'_>, _: Ended) {
        if let Some(guard) = turn {
            // A lock that was lost, or whose release is in doubt, is not this client's to repair. A
            // release that waits for a successor to report goes on in `settle`.
            let _ = within(self.client.endpoint(), self.patience_ns, guard.release()).await;
        }
    }

    async fn settle(&self) {
        within(self.client.endpoint(), self.patience_ns, self.client.settle()).await;
    }
}
