//! A newcomer, who looks at the lock while others hold it, wait for it, or are stopped.
//!
//! It acts alone: what it does takes no time of the others, and adds no schedule.

use farlock_fabric::Endpoint;
use farlock_locks::Mode;
use farlock_sim::check::Access;
use farlock_sim::{Choice, Ratio, SimEndpoint};

use super::bench::{ActorClient, ClientView};
use super::contestant::Contestant;
use super::run::Trial;
use super::stops::STOPPED_NS_MAX;
use crate::client::Held;
use crate::points::Watched;
use crate::scenario::EVENTS_MAX;
use crate::words;

/// To the ledger.
const NEWCOMER: u16 = 62;

/// A newcomer's client.
pub(super) struct Newcomer {
    trial: ClientView,
    client: ActorClient,
}

impl Newcomer {
    /// One that remembers nothing of others who sat there.
    fn new(trial: ClientView, endpoint: SimEndpoint) -> Self {
        let number = endpoint.id().index - 1;
        let endpoint = Watched::new(endpoint, number, trial.layout, None);
        let client = trial.subject.client(endpoint, trial.options(), 0);
        Self { trial, client }
    }

    /// Tries the lock, and releases it if it gets it. Whether it did; `None` if that went wrong.
    async fn tries(&self, mode: Mode) -> Option<bool> {
        self.begins();
        let tried = self.client.try_acquire(self.trial.layout.word(0), mode).await.ok()?;
        {
            let befell = &mut self.trial.bench.borrow_mut().befell;
            befell.tries += 1;
            befell.tries_refused += u64::from(tried.is_none());
        }
        let Some(guard) = tried else { return Some(false) };
        self.comes_and_goes(mode, guard).await.then_some(true)
    }

    /// Acquires the lock and releases it. Whether that went well.
    async fn acquires(&self, mode: Mode) -> bool {
        self.begins();
        let Ok(guard) = self.client.acquire(self.trial.layout.word(0), mode).await else {
            return false;
        };
        self.comes_and_goes(mode, guard).await
    }

    fn begins(&self) {
        let number = self.client.endpoint().id().index - 1;
        self.trial.bench.borrow_mut().only().count.opens(number);
    }

    async fn comes_and_goes(&self, mode: Mode, guard: Held<'_>) -> bool {
        let number = self.client.endpoint().id().index - 1;
        let shares = mode == Mode::Shared && self.trial.shares();
        let access = if shares { Access::Shared } else { Access::Exclusive };
        {
            let living = self.trial.living();
            let bench = &mut *self.trial.bench.borrow_mut();
            // The dead hold nothing.
            let dead = (0..self.trial.scenario.clients).filter(|who| living >> who & 1 == 0);
            dead.for_each(|who| bench.buries(who));
            let token = bench.judged(0, number, access, (guard.fabric_token(), 0));
            bench.only().ledger.enter(NEWCOMER, access, token);
            bench.only().ledger.leave(NEWCOMER);
            bench.tell(|| format!("newcomer  enters {}", words::grant(access, token)));
            bench.remember();
        }
        guard.release().await.is_ok()
    }
}

impl Contestant {
    /// This client holds, and has stayed until nothing else could happen: now a newcomer tries.
    pub(super) async fn is_visited(&self, access: Access) {
        let trial = &self.trial;
        let Some(endpoint) = trial.newcomer.clone().filter(|_| trial.scenario.visited) else {
            return;
        };
        let (handle, id) = (&trial.handle, endpoint.id());
        let newcomer = Newcomer::new(trial.clone(), endpoint);
        handle.act_alone(Some(id), true);
        trial.bench.borrow_mut().visiting =
            Some("a newcomer tries the lock for ever, with nobody else to act".to_owned());
        let went_well = self.newcomer_looks(&newcomer, access).await;
        trial.bench.borrow_mut().visiting = None;
        handle.act_alone(None, false);
        if !went_well {
            trial.bench.borrow_mut().objects("what a newcomer did failed".to_owned());
        }
    }

    async fn newcomer_looks(&self, newcomer: &Newcomer, access: Access) -> bool {
        let (trial, shares) = (&self.trial, access == Access::Shared && self.trial.shares());
        let declares = trial.terms.declares;
        let alone = self.others_in_the_way() == 0;
        if declares.tries {
            // The ledger objects if it gets it.
            if newcomer.tries(Mode::Exclusive).await.is_none() {
                return false;
            }
            let Some(got) = newcomer.tries(Mode::Shared).await else { return false };
            if !got && shares && alone {
                trial.bench.borrow_mut().objects(format!(
                    "a newcomer tried to share the lock with reader {} and was refused, though \
                     nobody else who lives had it or wanted it",
                    self.who
                ));
            }
        }
        // The dead may have to be awaited by who does more than try.
        let bereaved = self.dead() & !trial.bench.borrow().locks[0].withdrawn != 0;
        if !declares.withdraws || !shares || !alone || bereaved {
            return true;
        }
        trial.bench.borrow_mut().visiting = Some(format!(
            "a newcomer waits to share the lock with reader {}, though nobody else wants it",
            self.who
        ));
        newcomer.acquires(Mode::Shared).await
    }

    /// A bit for each of the others that may be in the way of a reader. Who has withdrawn is not,
    /// unless it could not go.
    fn others_in_the_way(&self) -> u64 {
        let (trial, living) = (&self.trial, self.trial.living());
        let bench = trial.bench.borrow();
        let mut gone = if trial.terms.declares.withdraws { bench.locks[0].withdrawn } else { 0 };
        for (who, id) in trial.ids.iter().enumerate() {
            if trial.handle.is_stopped(id.get()) || trial.handle.is_due(id.get()) {
                gone &= !(1 << who);
            }
        }
        bench.locks[0].tries.in_the_way(self.who, living & !gone)
    }

    fn dead(&self) -> u64 {
        let all = u64::MAX >> (64 - u32::from(self.trial.scenario.clients));
        all & !self.trial.living()
    }
}

impl Trial {
    /// All have come to an end but those who are stopped: a newcomer, who has waited until they are
    /// passed over, gets the lock at once.
    pub(super) fn visits_beside_the_stopped(&self) {
        let declares = self.terms.declares;
        let Some(endpoint) = self.newcomer.clone().filter(|_| declares.tries && declares.passes)
        else {
            return;
        };
        // Who goes on finds the lock as the others left it, or as the newcomer did.
        if !self.handle.happens(Choice::Mishap, Ratio::one_in(2)) {
            return;
        }
        let id = endpoint.id();
        let newcomer = Newcomer::new(self.clone_for_client(), endpoint);
        let task = self.handle.spawn(id, async move {
            newcomer.client.endpoint().sleep(STOPPED_NS_MAX).await;
            for mode in [Mode::Exclusive, Mode::Shared] {
                if newcomer.tries(mode).await != Some(true) {
                    return false;
                }
            }
            true
        });
        self.handle.allow_events(EVENTS_MAX);
        self.handle.act_alone(Some(id), true);
        self.world.run();
        self.handle.act_alone(None, false);
        if task.take() != Some(true) {
            let bench = &mut *self.bench.borrow_mut();
            let story = "a newcomer tried and was refused, though all who live have left";
            let story = bench.stops.told_of(story.to_owned());
            bench.objects(story);
        }
    }
}
