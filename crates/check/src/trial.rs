//! One run: a world, its clients, its judges, and what they found.

mod contestant;
mod halt;
mod judges;
mod newcomer;
mod ranges;
mod transacted;

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use farlock_fabric::word::Field;
use farlock_fabric::{Addr, Endpoint, EndpointId, Nanos, Slot};
use farlock_locks::local::together;
use farlock_locks::museum::tampered::Tampered;
use farlock_locks::slot::{self, Phase};
use farlock_locks::{Mode, Options, Token};
use farlock_sim::check::{Access, History, Register, Turns};
use farlock_sim::{
    Choice, Config, Effect, Ended, Fate, Handle, Kind, Mode as WorldMode, NodeId, Oracle, Packet,
    Ratio, SimEndpoint, World, mix,
};

use crate::client::{AnyClient, AnyLock};
use crate::faults::{Declares, Faults};
use crate::goods::{Deed, Goods};
use crate::layout::Layout;
use crate::mishap::RATE_PPB_MAX;
use crate::order::Order;
use crate::points::{Watched, Witness};
use crate::scenario::{EVENTS_MAX, Scenario};
use crate::tokens::Tokens;
use crate::verdict::{Befell, Finding, Objection, Promise, Verdict, message, recoveries};
use crate::words::{self, Words};
use contestant::{ClientView, Contestant};
use halt::{Findings, Halts, Recorder, Stops};
use judges::Judges;
pub use transacted::Asks;

/// The memory node, with all there is.
const MEMORY: NodeId = NodeId(0);
/// To the ledger, whoever comes when all have left.
const VISITOR: u16 = 63;
/// Where schedules are random and clients may die or give up anywhere, one of so many is the one.
const ANYWHERE_ONE_IN: u32 = 16;

/// What a run notes besides its verdict.
#[derive(Default)]
pub struct RunLog {
    /// What happened, a line each.
    pub timeline: Option<Vec<String>>,
    /// Who is told of each verb.
    pub witness: Option<Rc<dyn Witness>>,
    /// What holders did with what the lock protects, where that is recorded.
    pub history: History<Deed>,
}

/// What is asked of a lock besides exclusion, growing tokens and progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The order in which it is granted while nobody dies.
    pub order: Order,
    /// What clients settle of what they gave up.
    pub settles: Settles,
    /// It outlives clients that die.
    pub outlives: bool,
    /// The register outside that exclusive holders write with their tokens.
    pub register: Register,
    /// Clients begin with the incarnation of the memory as it is, not with the first.
    pub looks_at_incarnation: bool,
    /// The order in which it is granted is the same if clients are paused.
    pub order_outlives_pauses: bool,
    /// Messages may lie in the mailboxes of those who have left.
    pub leaves_mail: bool,
    /// How long its holders may hold, if not as long as they like.
    pub lease_ns: Option<Nanos>,
    /// Within how long verbs that add take effect, where exclusion rests on it and clocks go as the
    /// contract says.
    pub adds_within_ns: Option<Nanos>,
    /// It is had in parts.
    pub in_parts: bool,
    /// By what pauses are measured: the lease, if there is one.
    pub pause_ns: Nanos,
    /// Which clients of a scenario are tasks of one.
    pub crew: Crew,
    /// Whether holds to update are drawn.
    pub updates: bool,
    /// What it says of tries, withdrawals and stops.
    pub declares: Declares,
    /// What transactions make of the locks that are asked of them.
    pub asks: Asks,
}

/// What a client settles of what it gave up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settles {
    /// All, as it must.
    All,
    /// One slot, and it forgets the others: two exhibits.
    One {
        /// The last one, rather than the first.
        last: bool,
    },
    /// Nothing: another one.
    Nothing,
}

/// Clients of a scenario that act on one endpoint, as its tasks: they live and die together, and
/// hand the lock on among themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crew {
    /// So many, one after the other.
    pub tasks: u16,
    /// How often a hold is handed on, at most.
    pub handovers_max: u32,
    /// Their tokens tell the turns of a hold apart, as they must.
    pub tells_turns: bool,
}

impl Default for Crew {
    fn default() -> Self {
        Self::ALONE
    }
}

impl Crew {
    /// Each client has an endpoint of its own.
    pub const ALONE: Self = Self { tasks: 1, handovers_max: 0, tells_turns: true };

    /// Slots of each endpoint, so that each may hold one lock and await another.
    fn slots(self, scenario: &Scenario) -> u8 {
        let each = if scenario.nests == 0 { 1 } else { 2 };
        self.tasks as u8 * each
    }

    /// The first of those who act together with `who`.
    fn first(self, who: u16) -> u16 {
        who / self.tasks * self.tasks
    }
}

impl Terms {
    /// What is asked in this scenario, whose clients may have several tasks each that do not hand
    /// locks on: of them nothing is asked besides exclusion, growing tokens and progress.
    fn of(self, scenario: &Scenario) -> Self {
        if scenario.tasks < 2 || self.crew != Crew::ALONE {
            return self;
        }
        let crew = Crew { tasks: scenario.tasks, ..Crew::ALONE };
        let (order, declares) = (Order::default(), Declares::NOTHING);
        Self { crew, order, declares, updates: false, ..self }
    }

    /// Whether clients take several locks in transactions. One whose lease ends may be begun again.
    fn transact(&self) -> bool {
        self.crew == Crew::ALONE && self.lease_ns.is_none()
    }

    /// Whether the token of a reader tells that its time is over, too, however late verbs are.
    fn readers_tell(&self) -> bool {
        self.adds_within_ns.is_none()
    }
}

/// What the clients of a run act through: whoever plays a sound lock makes no mistake with it, so
/// that every lock is compiled for one kind of endpoint.
pub type Actor = Tampered<Watched>;

/// A lock, and how its clients see the fabric.
#[derive(Clone)]
pub struct Subject {
    /// The lock.
    pub lock: Rc<dyn AnyLock<Actor>>,
    /// Makes an endpoint of a client.
    pub wrap: fn(Watched) -> Actor,
}

impl Subject {
    /// A client that acts there.
    fn client(&self, endpoint: Watched, options: Options, handovers: u32) -> ActorClient {
        self.lock.client((self.wrap)(endpoint), options, handovers)
    }
}

/// A client in a run.
type ActorClient = Rc<dyn AnyClient<Actor>>;

/// A subject, ready to play any scenario.
pub struct Player {
    subject: Subject,
    known: Findings,
    /// Whether the lock outlives clients that die; if not, nobody must.
    pub outlives: bool,
    terms: Terms,
}

impl Player {
    /// A player of this lock.
    pub fn new(subject: Subject, terms: Terms) -> Self {
        Self { subject, known: Findings::default(), outlives: terms.outlives, terms }
    }

    /// What may be drawn for this lock.
    pub fn faults(&self, deaths: bool) -> Faults {
        let (lease_ns, holds) = (self.terms.pause_ns, self.terms.lease_ns.is_some());
        let (updates, declares) = (self.terms.updates, self.terms.declares);
        Faults { deaths, lease_ns, holds, updates, declares, ..Faults::ALL }
    }

    /// Whether its clients take several locks in transactions.
    pub fn transacts(&self) -> bool {
        self.terms.transact()
    }

    /// Whether its holds end by themselves.
    pub fn is_leased(&self) -> bool {
        self.terms.lease_ns.is_some()
    }

    /// What the lock says of tries, withdrawals and stops.
    pub fn declares(&self) -> Declares {
        self.terms.declares
    }

    /// How long a pause is at least where every schedule is explored: longer than two leases, after
    /// which others take the lock. Where no clock decides, as long as the schedule likes.
    pub fn pause_anywhere_ns(&self) -> Nanos {
        self.terms.lease_ns.map_or(0, |lease_ns| 3 * lease_ns)
    }

    /// The fields of the lock's word.
    pub fn fields(&self) -> &'static [Field] {
        self.subject.lock.kind().fields()
    }

    /// One run.
    pub fn play(&self, scenario: &Scenario, oracle: Box<dyn Oracle>) -> Verdict {
        self.play_noting(scenario, oracle, &mut RunLog::default())
    }

    /// One run, of which more is noted.
    pub fn play_noting(
        &self,
        scenario: &Scenario,
        oracle: Box<dyn Oracle>,
        log: &mut RunLog,
    ) -> Verdict {
        let answers = Rc::default();
        let oracle = Recorder::around(oracle, &answers, scenario);
        let trial = Trial::new(scenario, &self.subject, oracle, self.terms, log);
        trial.play(log, (answers, Rc::clone(&self.known)))
    }
}

impl std::fmt::Debug for Player {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Player")
    }
}

/// The judges of one run, and what they are told.
#[derive(Default)]
struct Bench {
    /// Of each lock.
    locks: Vec<Judges>,
    /// The order that the lock is held to in this run.
    order: Order,
    /// What the judges know, as a part of the world's state.
    ghost: Rc<Cell<u64>>,
    clients: u16,
    crew: Crew,
    /// Who came back, in the order of the seats that they took then.
    came_back: Vec<u16>,
    failure: Option<String>,
    bypassed: Option<String>,
    /// How often somebody found another dead, repaired a lock or began again.
    recoveries: u64,
    log: RunLog,
    /// Whether somebody may be granted the lock when its time is over.
    may_be_late: bool,
    /// The fields of the lock's word that count.
    counts: Vec<Field>,
    /// Whether the order that the lock promises holds when they have wrapped.
    order_outlives_counts: bool,
    befell: Befell,
    /// How often somebody may still give up.
    cancels_left: u32,
    /// How often each of the scenario's mishaps may still befall anybody.
    mishaps_left: Vec<u32>,
    /// A bit for each client that settles what it gave up.
    settling: u64,
    /// More is asked than exclusion, order and progress.
    is_watched: bool,
    /// A bit for each client that has come to its end.
    finished: u64,
    stops: Stops,
    /// What a newcomer is about to be granted, that acts alone.
    visiting: Option<String>,
    /// What was said of the lock that is not so.
    untrue: Option<String>,
    /// What its words are called.
    words: Words,
}

/// A hold's token, and how often the hold was handed on.
type Turned = (Option<Token>, u32);

type SharedBench = Rc<RefCell<Bench>>;

impl Bench {
    fn new(
        scenario: &Scenario,
        terms: &Terms,
        layout: Layout,
        ghost: Rc<Cell<u64>>,
        log: RunLog,
    ) -> Self {
        // A lease that ends puts everybody in line anew, as a death does, and may a pause.
        let paused_out = scenario.may_pause() && !terms.order_outlives_pauses;
        let in_any_order = scenario.is_deadly() || terms.lease_ns.is_some() || paused_out;
        // A try is in no line, and whoever is stopped in one is passed over: where waits end at any
        // time, everybody seems to be.
        let passed_over = scenario.hasty && terms.declares.passes;
        let in_any_order = in_any_order || scenario.is_watched() || passed_over;
        // Who is granted the first lock of a transaction is known to be when it has all of them.
        let in_any_order = in_any_order || scenario.transacts;
        let others = u32::from(scenario.clients.div_ceil(terms.crew.tasks)) - 1;
        let judges = |_| Judges {
            turns: Turns::of_one_line(terms.order.one_line, scenario.slow),
            goods: Goods::of(terms.register),
            ..Judges::default()
        };
        Self {
            locks: layout.locks().map(judges).collect(),
            order: match in_any_order {
                true => Order::default(),
                false => terms.order.with_turns_unseen(scenario.cancels()).beside(others),
            },
            ghost,
            clients: scenario.clients,
            crew: terms.crew,
            is_watched: scenario.is_watched(),
            words: Words { fields: &[], slots: terms.crew.slots(scenario) },
            log,
            ..Self::default()
        }
    }

    fn tell(&mut self, what: impl FnOnce(&mut String)) {
        if let Some(timeline) = &mut self.log.timeline {
            let mut line = String::new();
            what(&mut line);
            timeline.push(line);
        }
    }

    /// What the judges know of the past is part of the state, where it can still matter, and so are
    /// the faults to come.
    fn remember(&self) {
        let joint = self.crew != Crew::ALONE;
        let faults = self.settling << 8 | u64::from(self.cancels_left);
        let faults = self.mishaps_left.iter().fold(faults, |sum, &left| mix(sum, left.into()));
        let known = self.locks.iter().fold(mix(faults, 0), |mut sum, lock| {
            sum = mix(sum, lock.ghost());
            sum = if self.order.is_any() { mix(sum, lock.order_ghost(joint)) } else { sum };
            if self.is_watched { mix(sum, lock.watched_ghost()) } else { sum }
        });
        let watched = if self.is_watched { mix(self.stops.ghost(), self.finished) } else { 0 };
        self.ghost.set(mix(known, watched));
    }

    /// A token of `who` at this lock as the judges compare it. Where it may be older than one that
    /// was used, it is taken for the oldest that it can be. Where holds are handed on, the turn
    /// stands below what the hold's token stands for.
    fn judged(&mut self, at: usize, who: u16, access: Access, token: Turned) -> Option<u64> {
        let (token, turn, shift) = (token.0?, token.1, self.turn_bits());
        let (first, lock) = (self.crew.first(who), &mut self.locks[at]);
        let known = lock.holds.iter().find(|hold| (hold.0, hold.1) == (first, token));
        let hold = match known.filter(|_| turn > 0) {
            Some(hold) => hold.2,
            None => {
                let above = lock.ledger.above(access).filter(|_| !self.may_be_late);
                let hold = lock.count.judged(who, token, above.map(|above| above >> shift));
                if self.crew.handovers_max > 0 {
                    lock.holds.retain(|other| other.0 != first);
                    lock.holds.push((first, token, hold));
                }
                hold
            }
        };
        Some(hold << shift | u64::from(turn))
    }

    /// Bits below a token by which turns are told apart.
    fn turn_bits(&self) -> u32 {
        u32::BITS - self.crew.handovers_max.leading_zeros()
    }

    /// The one lock of those who are visited or stopped.
    fn only(&mut self) -> &mut Judges {
        &mut self.locks[0]
    }

    /// What a line says of this lock where there are several.
    fn named(&self, at: usize) -> String {
        if self.locks.len() == 1 { String::new() } else { format!(" lock {at}") }
    }

    /// Whether no lock was held by two that exclude each other.
    fn locks_are_held_apart(&self) -> bool {
        self.locks.iter().all(|lock| lock.ledger.violation().is_none())
    }

    /// What a judge of a lock objects to.
    fn violation(&mut self) -> Option<(Promise, String)> {
        let locks = &self.locks;
        let of_lock = |at: usize, story: String| match locks.len() {
            1 => story,
            _ => format!("{story}, at lock {at}"),
        };
        let held = locks.iter().enumerate().find_map(|(at, lock)| {
            lock.ledger.violation().map(|story| of_lock(at, story.to_owned()))
        });
        let held = held.map(|story| (Promise::Exclusion, story));
        let passed = || Some((Promise::Order, self.bypassed.take()?));
        let untrue = || Some((Promise::Said, self.untrue.take()?));
        let goods = |(at, lock): (usize, &Judges)| Some(of_lock(at, lock.goods.violation()?));
        let spoilt = || Some((Promise::Goods, locks.iter().enumerate().find_map(goods)?));
        held.or_else(passed).or_else(untrue).or_else(spoilt)
    }

    /// The dead hold nothing.
    fn buries(&mut self, who: u16) {
        self.locks.iter_mut().for_each(|lock| lock.ledger.leave(who));
    }

    /// Something that was said of the lock is not so.
    fn objects(&mut self, story: String) {
        self.tell(|line| line.clone_from(&story));
        self.untrue.get_or_insert(story);
    }

    /// Those who act on this seat, where `who` is the first.
    fn crew_at(&self, seat: u16, who: u16) -> std::ops::Range<u16> {
        let alone = who >= self.clients || seat >= self.first_seat_back();
        let tasks = if alone { 1 } else { self.crew.tasks };
        who..(who + tasks).min(self.clients.max(who + 1))
    }

    /// What a holder sent outside arrives there.
    fn receives(&mut self, packet: &Packet) {
        let [token, _, at] = packet.words;
        let accepted = self.locks[at as usize].goods.receives(packet);
        let who = self.who(packet.from.index).expect("only clients send packets");
        self.tell(|line| {
            let answer = if accepted { "accepted" } else { "refused" };
            *line = format!("client {who}  write outside with token {token}: {answer}");
        });
        self.remember();
    }

    /// The client that sits there; `None` if it is a visitor or a server.
    fn who(&self, seat: u16) -> Option<u16> {
        match seat.checked_sub(self.first_seat_back()) {
            None => seat.checked_sub(1).filter(|&who| who < self.clients),
            Some(place) => self.came_back.get(usize::from(place)).copied(),
        }
    }

    /// The first seat of those who come back: the visitor has one before it, and a server.
    fn first_seat_back(&self) -> u16 {
        self.clients + 3
    }

    /// A verb took effect. Endpoints are numbered from 1, clients from 0.
    fn sees(&mut self, effect: &Effect, layout: Layout) {
        let seat = effect.endpoint.index;
        let Some(who) = self.who(seat).or(seat.checked_sub(1)) else { return };
        let atomic = !matches!(effect.kind, Kind::Read | Kind::Write | Kind::Send);
        let on_word = layout.lock(effect.addr).filter(|_| atomic);
        let crew = self.crew_at(seat, who);
        if effect.old != effect.new && effect.kind != Kind::Send {
            self.stops.sees_change(who, layout.place(effect.addr));
        }
        if let Some(at) = on_word {
            crew.clone().for_each(|who| self.locks[at].count.sees(who, effect.new));
            let changes = effect.old != effect.new;
            if who < self.clients && self.is_watched {
                self.locks[at].acts(crew.clone(), changes);
            }
            if who < self.clients && self.order.gets_in_line(changes) {
                self.locks[at].gets_in_line(crew);
                let wraps = |field: &&Field| field.of(effect.new) < field.of(effect.old);
                self.befell.wraps += self.counts.iter().filter(wraps).count() as u64;
            }
            self.remember();
        }
        if self.log.timeline.is_some() {
            let what = self.words.effect(effect, layout, |seat| self.name(seat));
            let name = self.name(seat);
            self.tell(|line| *line = format!("{name}  {what}"));
        }
    }

    /// Something befalls an endpoint.
    fn befalls(&mut self, id: EndpointId, fate: Fate) {
        let name = self.name(id.index);
        self.tell(|line| *line = format!("{name}  {}", words::fate(fate)));
    }

    /// Who sits there.
    fn name(&self, seat: u16) -> String {
        match self.who(seat) {
            Some(who) => format!("client {who}"),
            None if seat == 0 => "nobody".to_owned(),
            None if seat == self.clients + 1 => "visitor".to_owned(),
            None if seat == self.clients + 2 => "server".to_owned(),
            None => "newcomer".to_owned(),
        }
    }
}

/// Where there is a timeline, it tells what befalls endpoints.
fn show_fates(world: &World, bench: &SharedBench) {
    if bench.borrow().log.timeline.is_some() {
        let seer = Rc::clone(bench);
        world.observe_fates(Box::new(move |id, fate| seer.borrow_mut().befalls(id, fate)));
    }
}

/// The world of a scenario.
fn config(scenario: &Scenario, terms: &Terms) -> Config {
    let newcomers = u16::from(scenario.is_watched());
    Config {
        mode: WorldMode::Explored,
        weakness: scenario.weakness(),
        // One more for the client that looks whether everything is as before, and a server's.
        // Whoever comes back after a restart takes another seat.
        endpoints: scenario.clients * (1 + scenario.restarts()) + 2 + newcomers,
        slots_per_endpoint: terms.crew.slots(scenario),
        hasty: scenario.hasty,
        slow_completions: scenario.slow,
        clocks_decide: terms.lease_ns.is_some(),
        // A try of a lock that is held for long loses patience.
        words_keep: scenario.tries != 0 && scenario.hold_ns > 0,
        adds_within_ns: terms.adds_within_ns.filter(|_| scenario.is_timely()),
        events_max: Some(EVENTS_MAX),
        ..Config::default()
    }
}

/// A run.
struct Trial {
    scenario: Rc<Scenario>,
    subject: Subject,
    terms: Terms,
    handle: Handle,
    world: World,
    layout: Layout,
    bench: SharedBench,
    ids: Rc<[Cell<EndpointId>]>,
    /// Where newcomers sit.
    newcomer: Option<SimEndpoint>,
}

impl Trial {
    fn new(
        scenario: &Scenario,
        subject: &Subject,
        oracle: Box<dyn Oracle>,
        terms: Terms,
        log: &mut RunLog,
    ) -> Self {
        let terms = terms.of(scenario);
        let config = config(scenario, &terms);
        let world = World::with_oracle(config, oracle);
        let region = world.region(world.node(), Layout::bytes(scenario.locks));
        let layout = Layout::new(region, scenario.locks, terms.in_parts);
        let bench = Bench::new(scenario, &terms, layout, world.ghost(), std::mem::take(log));
        let bench = Rc::new(RefCell::new(bench));
        let seer = Rc::clone(&bench);
        show_fates(&world, &bench);
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

    fn play(mut self, log: &mut RunLog, known: (halt::Answers, Findings)) -> Verdict {
        self.set_out();
        if self.scenario.may_stop() {
            Halts::new(&self, known).watch();
        }
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let ended = self.run_on();
            if ended == Ended::Finished && self.bench.borrow().locks_are_held_apart() {
                self.look_around();
            }
            ended
        }));
        self.handle.observe_halts(None);
        let verdict = self.judge(ended);
        *log = std::mem::take(&mut self.bench.borrow_mut().log);
        verdict
    }

    /// Everybody is ready to begin, and the lock is as they have it.
    fn set_out(&mut self) {
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
            match members.len() {
                1 => drop(self.handle.spawn(id, members.remove(0).run())),
                _ => {
                    drop(self.handle.spawn(id, together(members.into_iter().map(Contestant::run))))
                }
            }
        }
    }

    /// Whoever serves the clients begins to.
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
            bench.tell(|line| *line = format!("counts wrap after {steps} steps"));
            for addr in self.layout.locks().map(|at| self.layout.word(at)) {
                self.handle.poke(addr, word as u64);
                self.handle.poke(addr.plus(8), (word >> 64) as u64);
            }
        }
    }

    /// Clients must not keep the world alive, which keeps them.
    fn clone_for_client(&self) -> ClientView {
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

    /// All have left: records must be idle, mailboxes empty, and the lock free, so that it is
    /// granted to whoever tries. After a death the lock may be broken: then it must be granted to
    /// whoever asks and waits, and be free when that is over.
    fn look_around(&self) {
        self.handle.crash_anywhere(0, Ratio::NEVER);
        let endpoint = self.handle.endpoint_at(self.scenario.clients + 1);
        let leased = self.terms.lease_ns.is_some();
        // What is left of an earlier incarnation is repaired as after a death.
        let mut bereaved = self.handle.incarnation(MEMORY) > 1;
        for (who, id) in self.ids.iter().map(Cell::get).enumerate() {
            if !endpoint.is_alive(id) {
                bereaved = true;
                self.bench.borrow_mut().buries(who as u16);
                continue;
            }
            // Notes on a repair reach even those who have left, and so does a successor's report
            // when the lease has ended before it came.
            // Who is paused in several slots at once may be taken for dead in one of them.
            let several = self.terms.crew.tasks > 1 && self.scenario.may_pause();
            let left_early =
                leased || several || self.scenario.is_deadly() || self.terms.leaves_mail;
            for slot in (0..self.terms.crew.slots(&self.scenario)).map(Slot) {
                let record = endpoint.record(id.index, slot);
                let phase = self.handle.peek(record.plus(slot::STATE as u64 * 8)) & 0xff;
                let mail = if left_early { 0 } else { self.handle.mail(id, slot) };
                if mail != 0 || Phase::from_bits(phase) != Some(Phase::Idle) {
                    let what = format!("client {who} has left with {mail} messages, phase {phase}");
                    self.bench.borrow_mut().failure.get_or_insert(what);
                }
            }
        }
        let id = endpoint.id();
        let endpoint = Watched::new(endpoint, VISITOR, self.layout, None);
        let client = self.subject.client(endpoint, self.clone_for_client().options(), 0);
        let (bench, layout) = (Rc::clone(&self.bench), self.layout);
        let order = self.subject.lock.kind().promises().order;
        // Who may pass a line learns nothing of its dead; one in so many must get in line.
        let visits = if bereaved || leased { 1 + order.bypass_max.unwrap_or(0) } else { 0 };
        // A try finds the dead by itself, where the lock says so.
        let tries = self.terms.declares.tries && visits > 0 && !leased;
        let tries = tries && self.handle.happens(Choice::Mishap, Ratio::one_in(2));
        let visits = if tries { 0 } else { visits };
        let task = self.handle.spawn(id, async move {
            for at in layout.locks() {
                for _ in 0..visits {
                    if !visit(&*client, at, layout.word(at), &bench).await {
                        return false;
                    }
                }
                let tried = client.try_acquire(layout.word(at), Mode::Exclusive).await;
                let Ok(Some(guard)) = tried else { return false };
                if guard.release().await.is_err() {
                    return false;
                }
            }
            true
        });
        // What the clients have used up is not the visitor's.
        self.handle.allow_events(EVENTS_MAX);
        let ended = self.world.run();
        if task.take() != Some(true) {
            let what =
                format!("all have left, but the lock is not free: the visit ended as {ended:?}");
            self.bench.borrow_mut().failure.get_or_insert(what);
        }
    }

    fn judge(&self, ended: std::thread::Result<Ended>) -> Verdict {
        let mut bench = self.bench.borrow_mut();
        let finding = |objection, promise, story| Some(Finding { objection, promise, story });
        let locks = &bench.locks;
        let mut verdict = Verdict {
            events: self.handle.stats().events,
            recovered: self.scenario.is_deadly() && bench.recoveries > 0,
            bypass_max: locks.iter().map(|lock| lock.turns.bypass_max()).max().unwrap_or(0),
            befell: Befell {
                stale_refused: locks.iter().map(|lock| lock.goods.refused()).sum(),
                holds_recorded: locks.iter().map(|lock| lock.goods.recorded()).sum(),
                ..bench.befell
            },
            ..Verdict::default()
        };
        if self.scenario.recorded && matches!(ended, Ok(Ended::Finished)) {
            for at in self.layout.locks() {
                let words = self.layout.pair(at).map(|word| self.handle.peek(word));
                bench.locks[at].goods.closes(words);
            }
        }
        let broken = bench.violation();
        let histories = bench.locks.iter_mut().map(|lock| lock.goods.take_history());
        bench.log.history = histories.reduce(|first, _| first).expect("there is a lock");
        verdict.finding = match (broken, bench.failure.take(), ended) {
            (Some((promise, story)), ..) => finding(Objection::Violation, promise, story),
            (_, _, Err(panic)) => finding(Objection::Panic, Promise::Sense, message(&*panic)),
            (_, _, Ok(Ended::Deadlock(tasks))) => {
                let story = format!("nothing can happen, {} wait", tasks.len());
                finding(Objection::Stall, Promise::Progress, bench.stops.told_of(story))
            }
            (_, _, Ok(Ended::Budget(tasks) | Ended::TimeUp(tasks))) => {
                let story = format!("{EVENTS_MAX} events, and {} still wait", tasks.len());
                finding(Objection::Stall, Promise::Progress, bench.stops.told_of(story))
            }
            (_, Some(story), _) => finding(Objection::Leak, Promise::Idle, story),
            (_, None, Ok(Ended::Finished)) => {
                verdict.ended = true;
                None
            }
            (_, None, Ok(Ended::Abandoned)) => None,
        };
        verdict
    }
}

/// Somebody who comes last: acquires the lock, however broken, and releases it. Whether it could.
async fn visit(client: &dyn AnyClient<Actor>, at: usize, word: Addr, bench: &SharedBench) -> bool {
    let who = client.endpoint().id().index - 1;
    bench.borrow_mut().locks[at].count.opens(who);
    let Ok(guard) = client.acquire(word, Mode::Exclusive).await else { return false };
    {
        let bench = &mut *bench.borrow_mut();
        let token = bench.judged(at, who, Access::Exclusive, (guard.fabric_token(), 0));
        bench.locks[at].ledger.enter(VISITOR, Access::Exclusive, token);
        bench.locks[at].ledger.leave(VISITOR);
    }
    bench.borrow_mut().recoveries += recoveries(client.events());
    guard.release().await.is_ok()
}
