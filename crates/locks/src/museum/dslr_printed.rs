//! DSLR's conflict handling as printed (SIGMOD'18, algorithm 2), and with the order of its tests
//! changed, as its artifact has it. Either is wrong.
//!
//! As printed, a waiter fails when either counter has passed its ticket (line 3), before it looks
//! whether its turn has come (line 6). Two readers wait behind one writer. It leaves; the second
//! reader enters and leaves, so that nS has passed the first one's ticket; the first one looks,
//! fails, and takes a new ticket without having given the old one back. The next writer waits for
//! a ticket that nobody has.
//!
//! With the turn tested first that cannot happen. But a reader that waits in vain sets nX to its X
//! and nS to its S + 1 (line 13). A writer died; two readers wait behind it, and a writer behind
//! them. The second reader's time is up first: the writer finds itself admitted, and so does the
//! first reader, whose ticket the reset has counted as given back, and who gives it back again.

use farlock_fabric::{Endpoint, Verb, Wait, Woken};

use crate::prelude::*;
use crate::record::bakery::{LEASE_NS, Tickets};
use crate::record::dslr_64::{Dslr64, Dslr64Word, Grant};

/// DSLR whose waiters do what algorithm 2 says.
#[derive(Clone, Debug)]
pub struct DslrPrinted {
    /// The lock whose wait is not used.
    pub sound: Dslr64,
    /// Whether a waiter looks for its turn before it looks whether it was passed.
    pub turn_first: bool,
}

impl<E: Endpoint> Protocol<'_, E, DslrPrinted> {
    /// Algorithm 2. False: it failed.
    async fn handle_conflict(self, mode: Mode, ticket: Tickets) -> Outcome<bool> {
        let mut stalled = false;
        loop {
            let seen = Dslr64Word(self.read().await?);
            let served = seen.served();
            let turn = served.x == ticket.x && (mode == Mode::Shared || served.s == ticket.s);
            let passed = ticket.x < served.x || ticket.s < served.s;
            if turn && (self.rules.turn_first || !passed) {
                return Ok(true);
            }
            if passed {
                return Ok(false);
            }
            if stalled {
                let reset = ticket.plus(mode, 1);
                if self.cas64(seen.0, seen.with_served(reset).0).await? == seen.0 {
                    return Ok(false);
                }
            }
            self.endpoint.checkpoint(&[seen.0]);
            let (word, interval) = (Some((self.lock, seen.0)), Some(2 * LEASE_NS));
            let woken = self.endpoint.wait(Wait { word, interval, ..Wait::default() }).await;
            stalled = woken == Woken::Elapsed;
        }
    }
}

kind_as_sound!(DslrPrinted, Dslr64);

impl<E: Endpoint> Lock<E> for DslrPrinted {
    type Want = Mode;
    as_sound!(Dslr64);

    async fn wait_in_line(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Outcome<Grant> {
        let mut old = old;
        loop {
            let prev = Dslr64Word(old as u64);
            site.publish(Phase::Waiting, mode, 0);
            if site.by(self).handle_conflict(mode, prev.taken()).await? {
                return Ok(Dslr64::grant(prev));
            }
            site.publish(Phase::Opening, mode, 0);
            site.endpoint.checkpoint(&[]);
            old = site.verb(self.opening(site, mode)).await?;
            if let Some(grant) = self.opened(site, mode, old) {
                return Ok(grant);
            }
        }
    }
}
