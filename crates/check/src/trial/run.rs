//! A run as it is set up: its world, its judges, its clients.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farlock_fabric::{Endpoint, EndpointId};
use farlock_locks::local::together;
use farlock_sim::{Config, Handle, Mode as WorldMode, Oracle, Ratio, SimEndpoint, World};

use super::bench::{Bench, ClientView, RunLog, SharedBench, Subject};
use super::contestant::Contestant;
use super::terms::{ANYWHERE_ONE_IN, Crew, Terms};
use crate::layout::Layout;
use crate::mishap::RATE_PPB_MAX;
use crate::points::Watched;
use crate::scenario::{EVENTS_MAX, Scenario};
use crate::tokens::Tokens;

/// The world of a scenario.
fn config(scenario: &Scenario, terms: &Terms) -> Config {
    let newcomers = u16::from(scenario.is_watched());
    Config {
        mode: WorldMode::Explored,
        weakness: scenario.weakness(),
        // One more for the client that looks whether everything is as before, and a server's.
        // A client that comes back after a restart takes another seat.
        endpoints: scenario.clients * (1 + scenario.restarts()) + 2 + newcomers,
        slots_per_endpoint: terms.crew.slots(scenario),
        hasty: scenario.hasty,
        slow_completions: scenario.slow,
        clocks_decide: terms.lease_ns.is_some() || terms.waits_out_ns.is_some(),
        words_keep: words_keep(scenario, terms),
        adds_within_ns: terms.adds_within_ns.filter(|_| scenario.is_timely()),
        events_max: Some(EVENTS_MAX),
        ..Config::default()
    }
}

/// Whether those who wait for a word to change must look at a clock as well: a lease ends though
/// the word that tells of it is as before, and a try of a lock that is held for long loses
/// patience.
fn words_keep(scenario: &Scenario, terms: &Terms) -> bool {
    let outlasts_tries = scenario.tries != 0 && scenario.hold_ns > 0;
    terms.lease_ns.is_some() || outlasts_tries || scenario.nests_ranges()
}

/// A run.
pub(super) struct Trial {
    pub(super) scenario: Rc<Scenario>,
    pub(super) subject: Subject,
    pub(super) terms: Terms,
    pub(super) handle: Handle,
    pub(super) world: World,
    pub(super) layout: Layout,
    pub(super) bench: SharedBench,
    pub(super) ids: Rc<[Cell<EndpointId>]>,
    /// Where newcomers sit.
    pub(super) newcomer: Option<SimEndpoint>,
}

impl Trial {
    pub(super) fn new(
        scenario: &Scenario,
        subject: &Subject,
        oracle: Box<dyn Oracle>,
        terms: Terms,
        log: &mut RunLog,
    ) -> Self {
        let terms = terms.of(scenario);
        let config = config(scenario, &terms);
        let world = World::with_oracle(config, oracle);
        let parted = (!terms.parts.is_empty()).then(|| subject.lock.kind().bytes());
        let layout = Layout::new(scenario.locks, parted);
        let layout = layout.at(world.region(world.node(), layout.bytes()));
        let bench = Bench::new(scenario, &terms, layout, world.ghost(), std::mem::take(log));
        let bench = Rc::new(RefCell::new(bench));
        let seer = Rc::clone(&bench);
        world.observe_fates(Box::new(move |id, fate| seer.borrow_mut().befalls(id, fate)));
        let seer = Rc::clone(&bench);
        world.observe(Box::new(move |effect| seer.borrow_mut().sees(effect, layout)));
        if scenario.fenced {
            let outside = Rc::clone(&bench);
            world.receive_outside(Box::new(move |packet| outside.borrow_mut().receives(packet)));
        }
        Self {
            scenario: Rc::new(scenario.clone()),
            subject: subject.clone(),
            terms,
            handle: world.handle(),
            world,
            layout,
            bench,
            ids: Rc::new([]),
            newcomer: None,
        }
    }

    /// Everybody is ready to begin, and the lock is as they have it.
    pub(super) fn set_out(&mut self) {
        let (clients, crew) = (self.scenario.clients, self.terms.crew);
        let firsts = (0..clients).step_by(usize::from(crew.tasks));
        // The visitor, a server and those who come back find their seats by the number of clients.
        let endpoints: Vec<_> =
            firsts.clone().map(|first| self.handle.endpoint_at(first + 1)).collect();
        let id = |who: u16| Cell::new(endpoints[usize::from(who / crew.tasks)].id());
        self.ids = (0..clients).map(id).collect();
        if self.subject.lock.kind().promises().served {
            self.begin_service();
        }
        let steady = self.scenario.restarts() == 0 && self.terms.lease_ns.is_none();
        let one = self.scenario.locks == 1 && crew == Crew::ALONE;
        if self.scenario.is_watched() && steady && one {
            self.newcomer = Some(self.handle.endpoint_at(clients + 3));
        }
        self.begin_counts();
        // Of two deaths of one client the first is written last, and counts.
        for death in self.scenario.deaths.iter().rev() {
            if let Some(id) = self.ids.get(usize::from(death.who)) {
                self.handle.crash_at(id.get(), death.verb, death.outcome);
            }
        }
        for clock in self.scenario.clocks.iter() {
            if let Some(id) = self.ids.get(usize::from(clock.who)) {
                self.handle.set_clock_rate(id.get(), clock.ppb);
                let is_bad = clock.ppb.abs() > RATE_PPB_MAX;
                self.bench.borrow_mut().befell.bad_clocks += u64::from(is_bad);
            }
        }
        let anywhere = self.scenario.mishaps_anywhere.iter().map(|(times, _)| *times);
        self.bench.borrow_mut().mishaps_left = anywhere.collect();
        self.bench.borrow_mut().cancels_left = self.scenario.cancel_anywhere;
        self.bench.borrow().remember();
        self.handle.crash_anywhere(self.scenario.anywhere, Ratio::one_in(ANYWHERE_ONE_IN));
        for (first, endpoint) in firsts.zip(endpoints) {
            let id = self.ids[usize::from(first)].get();
            let whos = first..(first + crew.tasks).min(clients);
            let mut members = Contestant::crew(self.clone_for_client(), endpoint, whos);
            if members.len() == 1 {
                self.handle.spawn(id, members.remove(0).run());
            } else {
                self.handle.spawn(id, together(members.into_iter().map(Contestant::run)));
            }
        }
    }

    /// The server begins to serve the clients.
    fn begin_service(&mut self) {
        let number = self.scenario.clients + 1;
        let endpoint = self.handle.endpoint_at(number + 1);
        let id = endpoint.id();
        let endpoint = (self.subject.wrap)(Watched::new(endpoint, number, self.layout, None));
        let (lock, server) = self.subject.lock.served(Rc::new(endpoint));
        self.subject.lock = lock;
        self.handle.spawn_server(id, server);
    }

    /// The lock's counts begin shortly before they wrap, if they are to. It is seen when they do,
    /// where that matters.
    fn begin_counts(&self) {
        let kind = self.subject.lock.kind();
        let (steps, bench) = (self.scenario.near_wrap, &mut *self.bench.borrow_mut());
        let word = kind.near_wrap(steps);
        bench.may_be_late = self.terms.lease_ns.is_some() && !self.scenario.is_timely();
        bench.words.fields = kind.fields();
        let count = Tokens::of(kind.fields(), if steps > 0 { word } else { 0 });
        bench.locks.iter_mut().for_each(|lock| lock.count = count);
        let last = kind.near_wrap(1);
        bench.counts = kind.fields().iter().filter(|f| f.of(last) != 0).copied().collect();
        bench.order_outlives_counts = kind.promises().order.outlives_counts;
        if steps > 0 {
            bench.tell(|| format!("counts wrap after {steps} steps"));
            for addr in self.layout.locks().map(|at| self.layout.word(at)) {
                self.handle.poke(addr, word as u64);
                self.handle.poke(addr.plus(8), (word >> 64) as u64);
                for (offset, word) in kind.near_wrap_behind(steps) {
                    self.handle.poke(addr.plus(offset), word);
                }
            }
        }
    }

    /// Clients must not keep the world alive, which keeps them.
    pub(super) fn clone_for_client(&self) -> ClientView {
        ClientView {
            scenario: Rc::clone(&self.scenario),
            subject: self.subject.clone(),
            terms: self.terms,
            handle: self.handle.clone(),
            layout: self.layout,
            bench: Rc::clone(&self.bench),
            ids: Rc::clone(&self.ids),
            newcomer: self.newcomer.clone(),
        }
    }
}
