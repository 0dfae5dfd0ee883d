//! What a manager does: one change of the parameters, and whatever change it finds prepared.
//!
//! Nothing of it is in the memory of the manager alone: what another one has begun it goes on with.

use farlock_fabric::{Addr, MaskedCas, Nanos, Patience, Verb, Wait, WideAtomics};

use super::course::Plan;
use super::living::{Living, beside};
use super::tuning::{TuningWord, read, word_of};
use crate::lock::Tuning;
use crate::site::Outcome;

/// A manager that waits for others looks at them again after so long, in nanoseconds, if nothing
/// tells it to look sooner.
const LOOK_AGAIN_NS: Nanos = 100_000;

/// A change to be made.
#[derive(Debug)]
pub(super) struct Change {
    /// How the nodes of the lock are found, and its first parameters.
    pub(super) plan: Plan,
    pub(super) first: Tuning,
    pub(super) to: Tuning,
    /// Whether it comes into force when nobody works any more by what was before.
    pub(super) awaits_older: bool,
    pub(super) patience: Patience,
}

impl Change {
    /// Makes it. Ends when it is in force, or was and others have changed the parameters again.
    pub(super) async fn make<E: WideAtomics>(&self, endpoint: &E, lock: Addr) -> Outcome<()> {
        let mut own = None;
        loop {
            let word = read(endpoint, lock).await?;
            endpoint.checkpoint(&[word.0, own.map_or(0, |own: TuningWord| own.0)]);
            if own.is_some_and(|own| own != word) {
                return Ok(());
            }
            if word.is_preparing() {
                self.commit(endpoint, lock, word).await?;
                continue;
            }
            if word.newest(self.first) == self.to {
                return Ok(());
            }
            let prepared = word.prepared(self.first, self.to);
            if write(endpoint, lock, (word, prepared)).await? {
                own = Some(prepared);
            }
        }
    }

    /// Commits this change, which is prepared, unless another manager has.
    async fn commit<E: WideAtomics>(
        &self,
        endpoint: &E,
        lock: Addr,
        prepared: TuningWord,
    ) -> Outcome<()> {
        if self.awaits_older {
            self.await_older(endpoint, lock, prepared).await?;
        }
        write(endpoint, lock, (prepared, prepared.committed())).await?;
        Ok(())
    }

    /// Waits until every request and every hold of a living client is by this change.
    async fn await_older<E: WideAtomics>(
        &self,
        endpoint: &E,
        lock: Addr,
        prepared: TuningWord,
    ) -> Outcome<()> {
        loop {
            let living = beside(endpoint, None, self.plan, lock).await?;
            let is_older = |other: &&Living| other.course.plan.change != prepared.change();
            let Some(older) = living.iter().find(is_older) else { return Ok(()) };
            let state = |state| (endpoint.record(older.who.endpoint.index, older.who.slot), state);
            endpoint.checkpoint(&[prepared.0, older.who.bits(), older.state.unwrap_or(0)]);
            let (word, peers) = (older.state.map(state), &[older.who.endpoint][..]);
            let (interval, patience) = (Some(LOOK_AGAIN_NS), self.patience);
            endpoint.wait(Wait { word, peers, interval, patience, ..Wait::default() }).await;
        }
    }
}

/// Writes the parameters if they are as they were. Whether they were.
async fn write<E: WideAtomics>(
    endpoint: &E,
    lock: Addr,
    (was, word): (TuningWord, TuningWord),
) -> Outcome<bool> {
    let all = u64::MAX;
    let op = MaskedCas { compare: was.0, swap: word.0, compare_mask: all, swap_mask: all };
    endpoint.verb(Verb::MaskedCas64 { addr: word_of(lock), op }).await?;
    Ok(endpoint.old() as u64 == was.0)
}
