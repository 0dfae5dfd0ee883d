//! Transactions of a client: cycles in which one acquisition is nested in another, of locks that
//! need no tasks.
//!
//! Each asks for its first lock twice, the second time in the mode of the second lock, and so is to
//! have it in the stronger of both modes. The judges are told that mode, whichever it was granted.

use farlock_locks::Mode;
use farlock_locks::txn::Options;
use farlock_sim::check::Access;

use super::contestant::Contestant;

impl Contestant {
    /// A cycle as a transaction.
    pub(super) async fn transacts(
        &self,
        round: u16,
        (next, other): (usize, Mode),
    ) -> anyhow::Result<()> {
        let (who, scenario, layout) = (self.who, &self.trial.scenario, self.trial.layout);
        let (at, mode) = (scenario.lock(who, round), scenario.mode(who, round));
        let access = |mode| match mode {
            Mode::Shared if self.trial.shares() => Access::Shared,
            _ => Access::Exclusive,
        };
        let held = [(at, access(mode.max(other))), (next, access(other))];
        held.into_iter().for_each(|(at, access)| self.trial.opens(at, who, access));

        let asked = [(at, mode), (next, other), (at, other)].map(|(at, m)| (layout.word(at), m));
        let asked = self.trial.terms.asks.made_of(asked.into());
        let options = Options { patience_ns: None, ..Options::default() };
        let mut txn = self.client().begin(options);
        if self.unless(txn.lock_all(&asked)).await.transpose()?.is_none() {
            drop(txn);
            held.into_iter().for_each(|(at, _)| self.is_withdrawn(at));
            for (at, _) in held {
                self.settles(at).await?;
            }
            return Ok(());
        }
        for (at, access) in held {
            let (token, expires) = txn.held(layout.word(at)).expect("all were granted");
            self.enters(at, access, (token, 0), expires);
        }
        let mut used = Some(());
        for (at, access) in held {
            if used.is_some() {
                used = self.looks(at, access, round).await?;
            }
        }
        held.into_iter().for_each(|(at, _)| self.leaves(at));
        let committed = match used {
            None => {
                drop(txn);
                None
            }
            Some(()) => self.unless(txn.commit()).await.transpose()?,
        };
        for (at, _) in held {
            self.parts(at, None, committed.map(Ok)).await?;
        }
        Ok(())
    }
}
