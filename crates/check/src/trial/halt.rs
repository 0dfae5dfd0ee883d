//! Clients that are stopped for good: whether they hold, and what follows for the others.
//!
//! Who is stopped before it is granted the lock must not keep it from the others for long. Who
//! holds may, and is only paused. Which of the two it is the client itself does not know: the verb
//! with which it was stopped may have acquired the lock. So the run is played once more, as far as
//! that verb's end, and there the client goes on, alone. It held if it is granted the lock without
//! a change of it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use farlock_fabric::{EndpointId, Nanos};
use farlock_sim::{Candidates, Choice, Ended, Oracle, Ratio, mix};

use super::bench::{ClientView, RunLog};
use super::run::Trial;
use super::stops::{Probe, STOPPED_NS_MAX};
use crate::mishap::What;
use crate::scenario::{EVENTS_MAX, Scenario};

/// For how long a holder is paused that was to be stopped.
const HOLDER_NS: Nanos = 2 * STOPPED_NS_MAX;

/// What an oracle has answered so far in a run.
pub(super) type Answers = Rc<RefCell<Vec<u64>>>;
/// Of each state of a scenario in which a client was stopped: whether it held.
pub(super) type Findings = Rc<RefCell<Found>>;

/// A state tells apart the runs of one scenario alone.
#[derive(Default)]
pub(super) struct Found {
    scenario: Option<Rc<Scenario>>,
    holds: HashMap<u64, bool>,
}

impl Found {
    /// What is known of this scenario; what was known of another one is forgotten.
    fn of(&mut self, scenario: &Rc<Scenario>) -> &mut HashMap<u64, bool> {
        if self.scenario.as_ref() != Some(scenario) {
            self.holds.clear();
            self.scenario = Some(Rc::clone(scenario));
        }
        &mut self.holds
    }
}

impl ClientView {
    /// A bit for each client that lives, for all that anybody knows.
    pub(super) fn living(&self) -> u64 {
        let ids = (0..).zip(self.ids.iter());
        let living = ids.filter(|(_, id)| self.handle.is_alive(id.get()));
        living.fold(0, |all, (who, _): (u16, _)| all | 1 << who)
    }

    /// A bit for each client that may be the reason for which a try fails.
    pub(super) fn counting(&self) -> u64 {
        let passed_over = match self.terms.declares.passes {
            true => self.bench.borrow().stops.overdue(self.handle.now()),
            false => 0,
        };
        self.living() & !passed_over
    }

    /// Whether another living client is inside and excludes `who`: so that `who` surely does not
    /// hold.
    fn is_excluded(&self, who: u16) -> bool {
        let bench = self.bench.borrow();
        let lock = &bench.locks[0];
        let inside = lock.ledger.excluding(lock.access(who));
        inside & self.living() & !(1 << who) != 0
    }

    /// A client is stopped for good, as it posts a verb or in a wait; if it holds, it is paused.
    pub(super) fn stops(&self, who: u16, what: What) {
        let (id, bit) = (self.ids[usize::from(who)].get(), 1_u64 << who);
        let (holds, withdrawn) = {
            let bench = self.bench.borrow();
            (bench.locks[0].inside & bit != 0, bench.settling & bit != 0)
        };
        // A client that settles in a wait may have been granted the lock meanwhile, and pass it on.
        let may_hold = what == What::StopInWait && withdrawn && !self.is_excluded(who);
        let bench = &mut *self.bench.borrow_mut();
        if holds || may_hold {
            bench.befell.pauses += 1;
            self.handle.pause(id, self.holder_ns());
            return;
        }
        if bench.stops.stopped & bit != 0 {
            return;
        }
        bench.befell.stops += 1;
        bench.stops.stopped |= bit;
        if what == What::Stop {
            bench.stops.undecided |= bit;
        }
        bench.stops.since.retain(|&(other, _)| other != who);
        bench.stops.since.push((who, self.handle.now()));
        self.handle.stop(id);
    }

    /// How long a holder is paused: where every schedule is explored, as long as that likes.
    fn holder_ns(&self) -> Nanos {
        if self.scenario.mishaps_anywhere.is_empty() { HOLDER_NS } else { 0 }
    }

    /// A client that was stopped for good goes on.
    fn goes_on(&self, who: u16) {
        let bench = &mut *self.bench.borrow_mut();
        bench.tell(|| format!("client {who}  goes on"));
        bench.stops.stopped &= !(1 << who);
        bench.stops.undecided &= !(1 << who);
        bench.locks.iter_mut().for_each(|lock| lock.tries.goes_on(who));
        bench.remember();
    }
}

/// Finds out who of the stopped holds.
pub(super) struct Halts {
    trial: ClientView,
    answers: Answers,
    findings: Findings,
}

impl Halts {
    pub(super) fn new(trial: &Trial, (answers, findings): (Answers, Findings)) -> Self {
        Self { trial: trial.clone_for_client(), answers, findings }
    }

    /// From now on.
    pub(super) fn watch(self) {
        let handle = self.trial.handle.clone();
        handle.observe_halts(Some(Box::new(move |id| self.halted(id))));
    }

    /// The verb with which a client was stopped for good has ended.
    fn halted(&self, id: EndpointId) {
        let trial = &self.trial;
        let Some(who) = trial.ids.iter().position(|other| other.get() == id) else { return };
        let (who, bit) = (who as u16, 1_u64 << who);
        if trial.bench.borrow().stops.undecided & bit == 0 {
            return;
        }
        let Some(holds) = self.holds(who) else {
            // It shows whether it does.
            let stops = &mut trial.bench.borrow_mut().stops;
            stops.probe = Some(Probe { who, changes: false, granted: false });
            trial.handle.act_alone(Some(id), false);
            trial.handle.go_on(id);
            return;
        };
        if holds {
            trial.bench.borrow_mut().befell.pauses += 1;
            trial.goes_on(who);
            trial.handle.go_on_after(id, trial.holder_ns());
        }
        let bench = &mut *trial.bench.borrow_mut();
        bench.stops.undecided &= !bit;
        bench.remember();
    }

    /// Whether a client that is stopped holds; `None` if it is this run that is to show that.
    fn holds(&self, who: u16) -> Option<bool> {
        let trial = &self.trial;
        if trial.is_excluded(who) {
            return Some(false);
        }
        if trial.bench.borrow().settling >> who & 1 != 0 {
            // Nobody is told whether what it gave up was granted: it may have to pass it on.
            return Some(true);
        }
        {
            let stops = &mut trial.bench.borrow_mut().stops;
            if let Some(told) = stops.told {
                let found = stops.found.get(told).copied()?;
                stops.told = Some(told + 1);
                return Some(found);
            }
        }
        let state = mix(trial.handle.state_hash(), who.into());
        let known = self.findings.borrow_mut().of(&trial.scenario).get(&state).copied();
        let holds = known.unwrap_or_else(|| self.finds_out());
        self.findings.borrow_mut().of(&trial.scenario).insert(state, holds);
        trial.bench.borrow_mut().stops.found.push(holds);
        Some(holds)
    }

    /// Plays the run once more, as far as it has come, and lets the client go on alone.
    fn finds_out(&self) -> bool {
        let answers = self.answers.borrow().clone();
        let oracle = Box::new(Playback { answers, at: 0 });
        let (scenario, log) = (&*self.trial.scenario, &mut RunLog::default());
        let mut again = Trial::new(scenario, &self.trial.subject, oracle, self.trial.terms, log);
        let found = self.trial.bench.borrow().stops.found.clone();
        {
            let stops = &mut again.bench.borrow_mut().stops;
            (stops.found, stops.told) = (found, Some(0));
        }
        again.set_out();
        let known = (Answers::default(), Findings::default());
        Self::new(&again, known).watch();
        again.run_on();
        again.handle.observe_halts(None);
        let living = again.clone_for_client().living();
        let bench = again.bench.borrow();
        let probe = bench.stops.probe.as_ref().expect("the same answers lead to the same stop");
        // Who comes to its end there, since it cannot know what became of its verb, may hold.
        probe.granted || !living >> probe.who & 1 != 0 || bench.finished >> probe.who & 1 != 0
    }
}

impl Trial {
    /// Lets everything happen. Who is stopped for good goes on when all others have come to an end.
    pub(super) fn run_on(&self) -> Ended {
        let view = self.clone_for_client();
        loop {
            let ended = self.world.run();
            let visiting = self.bench.borrow_mut().visiting.take();
            if let Some(story) = visiting {
                self.bench.borrow_mut().objects(story);
            }
            let stopped = self.bench.borrow().stops.stopped & view.living();
            let left = !self.bench.borrow().finished & view.living();
            let calm = matches!(ended, Ended::Deadlock(_)) && stopped != 0 && left == stopped;
            if !calm || self.bench.borrow().untrue.is_some() {
                return ended;
            }
            self.visits_beside_the_stopped();
            let mut who = (0..64).filter(|who| stopped >> who & 1 != 0);
            let mut next = who.next().expect("somebody is stopped");
            while let Some(other) = who.next()
                && self.handle.happens(Choice::Mishap, Ratio::one_in(2))
            {
                next = other;
            }
            view.goes_on(next);
            self.handle.go_on(self.ids[usize::from(next)].get());
            self.handle.allow_events(EVENTS_MAX);
        }
    }
}

/// An oracle whose answers are kept.
pub(super) struct Recorder {
    inner: Box<dyn Oracle>,
    answers: Answers,
}

impl Recorder {
    /// Keeps the answers of this oracle, if they may be needed.
    pub(super) fn around(
        inner: Box<dyn Oracle>,
        answers: &Answers,
        scenario: &Scenario,
    ) -> Box<dyn Oracle> {
        match scenario.may_stop() {
            true => Box::new(Self { inner, answers: Rc::clone(answers) }),
            false => inner,
        }
    }

    fn keep<T: Copy + Into<u64>>(&self, answer: T) -> T {
        self.answers.borrow_mut().push(answer.into());
        answer
    }
}

impl Oracle for Recorder {
    fn next(&mut self, candidates: &Candidates<'_>) -> Option<u32> {
        let answer = self.inner.next(candidates)?;
        Some(self.keep(answer))
    }

    fn pick(&mut self, choice: Choice, n: u32) -> u32 {
        let answer = self.inner.pick(choice, n);
        self.keep(answer)
    }

    fn chance(&mut self, choice: Choice, ratio: Ratio) -> bool {
        let answer = self.inner.chance(choice, ratio);
        self.keep(answer)
    }

    fn jitter(&mut self, mean_ns: u32) -> Nanos {
        let answer = self.inner.jitter(mean_ns);
        self.keep(answer)
    }
}

/// Gives the same answers again, then none that change anything.
struct Playback {
    answers: Vec<u64>,
    at: usize,
}

impl Playback {
    fn answer(&mut self) -> Option<u64> {
        let answer = self.answers.get(self.at).copied();
        self.at += 1;
        answer
    }
}

impl Oracle for Playback {
    fn next(&mut self, _: &Candidates<'_>) -> Option<u32> {
        self.answer().map(|answer| answer as u32)
    }

    fn pick(&mut self, _: Choice, _: u32) -> u32 {
        self.answer().unwrap_or(0) as u32
    }

    fn chance(&mut self, _: Choice, _: Ratio) -> bool {
        self.answer().is_some_and(|answer| answer != 0)
    }

    fn jitter(&mut self, _: u32) -> Nanos {
        self.answer().unwrap_or(0)
    }
}
