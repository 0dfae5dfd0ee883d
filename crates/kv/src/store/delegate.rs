//! A store whose tasks read together what they read of one key at once.

use farlock_fabric::Nanos;
use farlock_locks::within;

use super::core::Store;
use crate::flaw::Flaw;
use crate::index::Index;
use crate::reads::{Answer, Fate, Reads};
use crate::sync::Scheme;

impl<S: Scheme, I: Index> Store<S, I> {
    /// The same, but tasks that read one key at once read it together: those that come while one
    /// reads wait for the next round, in which one reads for all of them. A task that waits longer
    /// than `patience_ns` nanoseconds reads by itself.
    ///
    /// Tasks wake each other by the wakers that they are polled with. Where those do nothing, run
    /// them [`together`](farlock_locks::local::together).
    #[must_use]
    pub fn delegating(self, patience_ns: Nanos) -> Self {
        Self { reads: Some(Reads::new(patience_ns)), ..self }
    }

    /// The value of a key, by a task of several.
    pub(super) async fn get_among(&self, reads: &Reads, key: &[u8]) -> Answer {
        let lead = match reads.join(key) {
            Ok(lead) => lead,
            Err(waiting) => {
                match within(self.endpoint(), reads.patience_ns, waiting.told()).await {
                    Some(Fate::Answered(answer)) => {
                        self.count(|counts| counts.delegated += 1);
                        return answer;
                    }
                    Some(Fate::Leads) => reads.lead(key),
                    None => return self.get_alone(key).await,
                }
            }
        };
        let answer = self.get_alone(key).await;
        lead.ends(&answer, self.errs(Flaw::DelegatesLate));
        answer
    }
}
