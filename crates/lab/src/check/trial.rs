//! One run: a world, its clients, its judges, and what they found.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use farlock_fabric::word::Field;
use farlock_fabric::{Addr, Endpoint, EndpointId, Fault, Nanos, Slot, WideAtomics};
use farlock_locks::slot::{self, Phase};
use farlock_locks::{Client, Mode, Options, RecordLock, ReleaseError, Token};
use farlock_sim::check::{Access, History, Ledger, Register, Turns};
use farlock_sim::{
    Choice, Config, Effect, Ended, Handle, Kind, Mode as WorldMode, NodeId, Oracle, Outcome,
    Packet, Ratio, SimEndpoint, World, mix,
};

use super::goods::{Deed, Goods, use_pair};
use super::mishap::{RATE_PPB_MAX, What};
use super::order::Order;
use super::points::{Alarm, Clerk, Watched, Witness, kind_name, receiver};
use super::scenario::{Faults, Scenario};
use super::tokens::{Granted, Tokens};
use super::verdict::{Befell, Finding, Objection, Verdict, is_due_to, message, recoveries};

/// The word that a holder reads, in bytes after the lock: while it does, others may come in.
const PROTECTED: u64 = 64;
/// The memory node, with all there is.
const MEMORY: NodeId = NodeId(0);
/// Bytes of the lock's region.
const BYTES: u64 = 128;
/// To the ledger, whoever comes when all have left.
const VISITOR: u16 = 63;
/// Where schedules are random and clients may die or give up anywhere, one of so many is the one.
const ANYWHERE_ONE_IN: u32 = 16;
/// A run with more events is a livelock, and so is a visit with as many after it. Repairs of a few
/// clients take some hundred.
pub const EVENTS_MAX: u64 = 20_000;

/// What a run notes besides its verdict.
#[derive(Default)]
pub struct Notes {
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
    /// Clients settle what they gave up, as they must.
    pub settles: bool,
    /// It outlives clients that die.
    pub outlives: bool,
    /// The register outside that exclusive holders write with their tokens.
    pub register: Register,
    /// Clients begin with the incarnation of the memory as it is, not with the first.
    pub looks_at_incarnation: bool,
    /// The order in which it is granted is the same if clients are paused.
    pub order_outlives_pauses: bool,
    /// How long its holders may hold, if not as long as they like.
    pub lease_ns: Option<Nanos>,
    /// Within how long verbs that add take effect, where exclusion rests on it and clocks go as the
    /// contract says.
    pub adds_within_ns: Option<Nanos>,
    /// By what pauses are measured: the lease, if there is one.
    pub pause_ns: Nanos,
}

impl Terms {
    /// Whether the token of a reader tells that its time is over, too, however late verbs are.
    fn readers_tell(&self) -> bool {
        self.adds_within_ns.is_none()
    }
}

/// A subject, ready to play any scenario.
pub struct Player {
    play: Play,
    fields: &'static [Field],
    /// Whether the lock outlives clients that die; if not, nobody must.
    pub outlives: bool,
    terms: Terms,
}

type Play = Box<dyn Fn(&Scenario, Box<dyn Oracle>, &mut Notes) -> Verdict>;

impl Player {
    /// A player of this lock, whose clients act through what `wrap` makes of their endpoints.
    pub fn new<E, L>(lock: L, terms: Terms, wrap: fn(Watched) -> E) -> Self
    where
        E: WideAtomics,
        L: RecordLock<E>,
    {
        let play = move |scenario: &Scenario, oracle: Box<dyn Oracle>, notes: &mut Notes| {
            Trial::new(scenario, oracle, terms, notes).play(&lock, wrap, notes)
        };
        Self { play: Box::new(play), fields: L::FIELDS, outlives: terms.outlives, terms }
    }

    /// What may be drawn for this lock.
    pub fn faults(&self, deaths: bool) -> Faults {
        let (lease_ns, holds) = (self.terms.pause_ns, self.terms.lease_ns.is_some());
        Faults { deaths, lease_ns, holds, ..Faults::ALL }
    }

    /// How long a pause is at least where every schedule is explored: longer than two leases, after
    /// which others take the lock. Where no clock decides, as long as the schedule likes.
    pub fn pause_anywhere_ns(&self) -> Nanos {
        self.terms.lease_ns.map_or(0, |lease_ns| 3 * lease_ns)
    }

    /// The fields of the lock's word.
    pub fn fields(&self) -> &'static [Field] {
        self.fields
    }

    /// One run.
    pub fn play(&self, scenario: &Scenario, oracle: Box<dyn Oracle>) -> Verdict {
        (self.play)(scenario, oracle, &mut Notes::default())
    }

    /// One run, of which more is noted.
    pub fn play_noting(
        &self,
        scenario: &Scenario,
        oracle: Box<dyn Oracle>,
        notes: &mut Notes,
    ) -> Verdict {
        (self.play)(scenario, oracle, notes)
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
    ledger: Ledger,
    goods: Goods,
    turns: Turns,
    /// The order that the lock is held to in this run.
    order: Order,
    /// What the judges know, as a part of the world's state.
    ghost: Rc<Cell<u64>>,
    clients: u16,
    /// Who came back, in the order of the seats that they took then.
    came_back: Vec<u16>,
    failure: Option<String>,
    bypassed: Option<String>,
    /// How often somebody found another dead, repaired a lock or began again.
    recoveries: u64,
    notes: Notes,
    /// Tells what tokens stand for.
    count: Tokens,
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
    /// Who holds until when by its own clock, if holds end by themselves.
    leases: Vec<(u16, Nanos)>,
    /// What was granted, where clocks are not to be trusted.
    granted: Granted,
}

type SharedBench = Rc<RefCell<Bench>>;

impl Bench {
    fn tell(&mut self, what: impl FnOnce(&mut String)) {
        if let Some(timeline) = &mut self.notes.timeline {
            let mut line = String::new();
            what(&mut line);
            timeline.push(line);
        }
    }

    /// What the judges know of the past is part of the state, where it can still matter, and so are
    /// the faults to come.
    fn remember(&self) {
        let turns = if self.order.is_any() { self.turns.ghost() } else { 0 };
        let faults = self.settling << 8 | u64::from(self.cancels_left);
        let faults = self.mishaps_left.iter().fold(faults, |sum, &left| mix(sum, left.into()));
        let held = self.leases.iter().map(|&(who, end)| mix(who.into(), end));
        let known = self.ledger.ghost() ^ self.goods.ghost().rotate_left(1);
        let known = mix(mix(known, self.count.ghost()), self.granted.ghost());
        self.ghost.set(held.fold(known ^ turns ^ mix(faults, 0), mix));
    }

    /// A token of `who` as the judges compare it. Where it may be older than one that was used, it
    /// is taken for the oldest that it can be.
    fn judged(&self, who: u16, access: Access, token: Option<Token>) -> Option<u64> {
        let above = self.ledger.above(access).filter(|_| !self.may_be_late);
        token.map(|token| self.count.judged(who, token, above))
    }

    /// What a holder sent outside arrives there.
    fn receives(&mut self, packet: &Packet) {
        let accepted = self.goods.receives(packet);
        let token = packet.words[0];
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
    fn sees(&mut self, effect: &Effect, word: Addr) {
        let seat = effect.endpoint.index;
        let Some(who) = self.who(seat).or(seat.checked_sub(1)) else { return };
        let atomic = !matches!(effect.kind, Kind::Read | Kind::Write | Kind::Send);
        let on_word = atomic && effect.addr == word;
        if on_word {
            self.count.sees(who, effect.new);
            self.remember();
        }
        if who >= self.clients {
            return;
        }
        if on_word && self.order.gets_in_line(effect.old != effect.new) {
            self.turns.acts(who);
            let wraps = |field: &&Field| field.of(effect.new) < field.of(effect.old);
            self.befell.wraps += self.counts.iter().filter(wraps).count() as u64;
        }
        self.tell(|line| {
            let _ = write!(line, "client {who}  {:<14}", kind_name(effect.kind));
            let _ = match effect.kind {
                Kind::Send => write!(line, "{}", receiver(effect.addr)),
                _ if effect.addr == word => write!(line, "lock"),
                _ if effect.addr.region() == word.region() => {
                    write!(line, "lock+{}", effect.addr.offset() - word.offset())
                }
                _ => write!(line, "record+{}", effect.addr.offset()),
            };
            let _ = match effect.kind {
                Kind::Send => write!(line, "  {:#x}", effect.old),
                _ if effect.old == effect.new => write!(line, "  {:#x}", effect.old),
                _ => write!(line, "  {:#x} -> {:#x}", effect.old, effect.new),
            };
        });
    }
}

/// A run.
struct Trial {
    scenario: Rc<Scenario>,
    terms: Terms,
    handle: Handle,
    world: World,
    word: Addr,
    bench: SharedBench,
    ids: Rc<[Cell<EndpointId>]>,
}

impl Trial {
    fn new(scenario: &Scenario, oracle: Box<dyn Oracle>, terms: Terms, notes: &mut Notes) -> Self {
        let config = Config {
            mode: WorldMode::Explored,
            weakness: scenario.weakness(),
            // One more for the client that looks whether everything is as before, and a server's.
            // Whoever comes back after a restart takes another seat.
            endpoints: scenario.clients * (1 + scenario.restarts()) + 2,
            slots_per_endpoint: 1,
            hasty: scenario.hasty,
            slow_completions: scenario.slow,
            clocks_decide: terms.lease_ns.is_some(),
            adds_within_ns: terms.adds_within_ns.filter(|_| scenario.is_timely()),
            events_max: Some(EVENTS_MAX),
            ..Config::default()
        };
        let world = World::with_oracle(config, oracle);
        let word = world.region(world.node(), BYTES);
        let notes = std::mem::take(notes);
        // A lease that ends puts everybody in line anew, as a death does, and may a pause.
        let paused_out = scenario.may_pause() && !terms.order_outlives_pauses;
        let in_any_order = scenario.is_deadly() || terms.lease_ns.is_some() || paused_out;
        let bench = Rc::new(RefCell::new(Bench {
            order: match in_any_order {
                true => Order::default(),
                false => terms.order.with_turns_unseen(scenario.cancels()),
            },
            ghost: world.ghost(),
            clients: scenario.clients,
            goods: Goods::of(terms.register),
            notes,
            ..Bench::default()
        }));
        let seer = Rc::clone(&bench);
        world.observe(Box::new(move |effect| seer.borrow_mut().sees(effect, word)));
        if scenario.fenced {
            let outside = Rc::clone(&bench);
            world.receive_outside(Box::new(move |packet| outside.borrow_mut().receives(packet)));
        }
        Self {
            scenario: Rc::new(scenario.clone()),
            terms,
            handle: world.handle(),
            world,
            word,
            bench,
            ids: Rc::new([]),
        }
    }

    fn play<E: WideAtomics, L: RecordLock<E>>(
        mut self,
        lock: &L,
        wrap: fn(Watched) -> E,
        notes: &mut Notes,
    ) -> Verdict {
        let endpoints: Vec<_> =
            (0..self.scenario.clients).map(|_| self.handle.endpoint()).collect();
        self.ids = endpoints.iter().map(|endpoint| Cell::new(endpoint.id())).collect();
        let mut lock = lock.clone();
        if L::SERVED {
            self.begin_service(&mut lock, wrap);
        }
        let lock = &lock;
        self.begin_counts(lock);
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
        for (who, endpoint) in (0..).zip(endpoints) {
            let member = Member::new(self.clone_for_client(), lock.clone(), wrap, endpoint, who, 0);
            let id = self.ids[usize::from(who)].get();
            self.handle.spawn(id, member.run());
        }
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let ended = self.world.run();
            if ended == Ended::Finished && self.bench.borrow().ledger.violation().is_none() {
                self.look_around(lock, wrap);
            }
            ended
        }));
        let verdict = self.judge(ended);
        *notes = std::mem::take(&mut self.bench.borrow_mut().notes);
        verdict
    }

    /// Whoever serves the clients begins to.
    fn begin_service<E, L>(&self, lock: &mut L, wrap: fn(Watched) -> E)
    where
        E: WideAtomics,
        L: RecordLock<E>,
    {
        let number = self.scenario.clients + 1;
        let endpoint = self.handle.endpoint_at(number + 1);
        let (id, word) = (endpoint.id(), self.word);
        let endpoint = wrap(Watched::new(endpoint, number, word, word.plus(PROTECTED), None));
        self.handle.spawn_server(id, lock.serve(Rc::new(endpoint)).expect("it is served"));
    }

    /// The lock's counts begin shortly before they wrap, if they are to. It is seen when they do,
    /// where that matters.
    fn begin_counts<E: WideAtomics, L: RecordLock<E>>(&self, lock: &L) {
        let (steps, bench) = (self.scenario.near_wrap, &mut *self.bench.borrow_mut());
        let word = lock.near_wrap(steps);
        bench.may_be_late = lock.lease_ns().is_some() && !self.scenario.is_timely();
        bench.count = Tokens::of(L::FIELDS, if steps > 0 { word } else { 0 });
        let last = lock.near_wrap(1);
        bench.counts = L::FIELDS.iter().filter(|f| f.of(last) != 0).copied().collect();
        bench.order_outlives_counts = L::ORDER_OUTLIVES_COUNTS;
        if steps > 0 {
            bench.tell(|line| *line = format!("counts wrap after {steps} steps"));
            self.handle.poke(self.word, word as u64);
            self.handle.poke(self.word.plus(8), (word >> 64) as u64);
        }
    }

    /// The words that the lock protects.
    fn pair(&self) -> [Addr; 2] {
        pair_of(self.word)
    }

    /// Clients must not keep the world alive, which keeps them.
    fn clone_for_client(&self) -> ClientView {
        ClientView {
            scenario: Rc::clone(&self.scenario),
            terms: self.terms,
            handle: self.handle.clone(),
            word: self.word,
            bench: Rc::clone(&self.bench),
            ids: Rc::clone(&self.ids),
        }
    }

    /// All have left: records must be idle, mailboxes empty, and the lock free, so that it is
    /// granted to whoever tries. After a death the lock may be broken: then it must be granted to
    /// whoever asks and waits, and be free when that is over.
    fn look_around<E: WideAtomics, L: RecordLock<E>>(&self, lock: &L, wrap: fn(Watched) -> E) {
        self.handle.crash_anywhere(0, Ratio::NEVER);
        let word = self.word;
        let endpoint = self.handle.endpoint_at(self.scenario.clients + 1);
        let leased = self.terms.lease_ns.is_some();
        // What is left of an earlier incarnation is repaired as after a death.
        let mut bereaved = self.handle.incarnation(MEMORY) > 1;
        for (who, id) in self.ids.iter().map(Cell::get).enumerate() {
            if !endpoint.is_alive(id) {
                bereaved = true;
                self.bench.borrow_mut().ledger.leave(who as u16);
                continue;
            }
            let record = endpoint.record(id.index, Slot(0));
            let phase = self.handle.peek(record.plus(slot::STATE as u64 * 8)) & 0xff;
            // Notes on a repair reach even those who have left, and so does a successor's report
            // when the lease has ended before it came.
            let left_early = leased || self.scenario.is_deadly();
            let mail = if left_early { 0 } else { self.handle.mail(id, Slot(0)) };
            if mail != 0 || Phase::from_bits(phase) != Some(Phase::Idle) {
                let what = format!("client {who} has left with {mail} messages, phase {phase}");
                self.bench.borrow_mut().failure.get_or_insert(what);
            }
        }
        let id = endpoint.id();
        let endpoint = wrap(Watched::new(endpoint, VISITOR, word, word.plus(PROTECTED), None));
        let client = Client::new(endpoint, lock.clone(), self.clone_for_client().options());
        let bench = Rc::clone(&self.bench);
        // Who may pass a line learns nothing of its dead; one in so many must get in line.
        let visits = if bereaved || leased { 1 + lock.bypass_max().unwrap_or(0) } else { 0 };
        let task = self.handle.spawn(id, async move {
            for _ in 0..visits {
                if !visit(&client, word, &bench).await {
                    return false;
                }
            }
            match client.try_acquire(word, Mode::Exclusive).await {
                Ok(Some(guard)) => guard.release().await.is_ok(),
                _ => false,
            }
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
        let finding = |objection, story: String| Some(Finding { objection, story });
        let mut verdict = Verdict {
            events: self.handle.stats().events,
            recovered: self.scenario.is_deadly() && bench.recoveries > 0,
            bypass_max: bench.turns.bypass_max(),
            befell: Befell {
                stale_refused: bench.goods.refused(),
                holds_recorded: bench.goods.recorded(),
                ..bench.befell
            },
            ..Verdict::default()
        };
        if self.scenario.recorded && matches!(ended, Ok(Ended::Finished)) {
            bench.goods.closes(self.pair().map(|word| self.handle.peek(word)));
        }
        let broken = bench.ledger.violation().map(str::to_owned).or_else(|| bench.bypassed.take());
        let broken = broken.or_else(|| bench.goods.violation());
        bench.notes.history = bench.goods.take_history();
        verdict.finding = match (broken, bench.failure.take(), ended) {
            (Some(story), ..) => finding(Objection::Violation, story),
            (_, _, Err(panic)) => finding(Objection::Panic, message(&*panic)),
            (_, _, Ok(Ended::Deadlock(tasks))) => {
                finding(Objection::Stall, format!("nothing can happen, {} wait", tasks.len()))
            }
            (_, _, Ok(Ended::Budget(tasks) | Ended::TimeUp(tasks))) => {
                let story = format!("{EVENTS_MAX} events, and {} still wait", tasks.len());
                finding(Objection::Stall, story)
            }
            (_, Some(story), _) => finding(Objection::Leak, story),
            (_, None, Ok(Ended::Finished)) => {
                verdict.ended = true;
                None
            }
            (_, None, Ok(Ended::Abandoned)) => None,
        };
        verdict
    }
}

/// The words that this lock protects.
fn pair_of(lock: Addr) -> [Addr; 2] {
    [lock.plus(PROTECTED), lock.plus(PROTECTED + 8)]
}

/// Somebody who comes last: acquires the lock, however broken, and releases it. Whether it could.
async fn visit<E: WideAtomics, L: RecordLock<E>>(
    client: &Client<E, L>,
    word: Addr,
    bench: &SharedBench,
) -> bool {
    let who = client.endpoint().id().index - 1;
    bench.borrow_mut().count.opens(who);
    let Ok(guard) = client.exclusive(word).await else { return false };
    let token = bench.borrow().judged(who, Access::Exclusive, guard.token());
    bench.borrow_mut().ledger.enter(VISITOR, Access::Exclusive, token);
    bench.borrow_mut().ledger.leave(VISITOR);
    bench.borrow_mut().recoveries += recoveries(client.events());
    guard.release().await.is_ok()
}

#[derive(Clone)]
struct ClientView {
    scenario: Rc<Scenario>,
    terms: Terms,
    handle: Handle,
    word: Addr,
    bench: SharedBench,
    ids: Rc<[Cell<EndpointId>]>,
}

/// A client on its way through its acquisitions.
struct Member<E: Endpoint, L: RecordLock<E>> {
    trial: ClientView,
    lock: L,
    wrap: fn(Watched) -> E,
    client: Client<E, L>,
    who: u16,
    /// Its first acquisition in this life.
    first: u16,
    /// The incarnation of the memory to which it is attached.
    incarnation: u32,
}

impl<E: WideAtomics, L: RecordLock<E>> Member<E, L> {
    /// A client at this endpoint, which has some acquisitions behind it if it comes back.
    fn new(
        trial: ClientView,
        lock: L,
        wrap: fn(Watched) -> E,
        endpoint: SimEndpoint,
        who: u16,
        first: u16,
    ) -> Self {
        let (word, data) = (trial.word, trial.word.plus(PROTECTED));
        let witness = trial.bench.borrow().notes.witness.clone();
        let incarnation = trial.handle.incarnation(MEMORY);
        let mut endpoint = Watched::new(endpoint, who, word, data, witness);
        endpoint = endpoint.overseen(Rc::new(trial.clone()));
        // What befalls a verb with a number befalls it in the first life.
        let is_due = incarnation == 1 || trial.scenario.mishaps.is_empty();
        if trial.scenario.has_mishaps() && is_due {
            endpoint = endpoint.alarmed(Rc::new(trial.clone()));
        }
        let client = Client::new(wrap(endpoint), lock.clone(), trial.options());
        Self { trial, lock, wrap, client, who, first, incarnation }
    }

    async fn run(self) {
        for round in self.first..self.trial.scenario.acquisitions {
            self.client.endpoint().checkpoint(&[u64::from(round)]);
            let done = self.cycle(round).await;
            if done.as_ref().is_err_and(|error| is_due_to(error, Fault::Stale)) {
                return self.comes_back(round);
            }
            if self.client.is_broken() || done.as_ref().is_err_and(|e| is_due_to(e, Fault::Lost)) {
                return self.ends();
            }
            if let Err(error) = done {
                let story = format!("client {} failed: {error}", self.who);
                self.trial.bench.borrow_mut().failure.get_or_insert(story);
                return;
            }
        }
        self.trial.bench.borrow_mut().recoveries += recoveries(self.client.events());
    }

    /// The memory that it was attached to is no more. It attaches to the next, as another endpoint,
    /// and goes on where it was.
    fn comes_back(self, round: u16) {
        let (who, trial) = (self.who, self.trial);
        let endpoint = {
            let bench = &mut *trial.bench.borrow_mut();
            bench.tell(|line| *line = format!("client {who}  comes back"));
            bench.befell.came_back += 1;
            bench.came_back.push(who);
            let seat = bench.first_seat_back() + bench.came_back.len() as u16 - 1;
            trial.handle.endpoint_at(seat)
        };
        let (id, handle) = (endpoint.id(), trial.handle.clone());
        trial.ids[usize::from(who)].set(id);
        let member = Self::new(trial, self.lock, self.wrap, endpoint, who, round);
        let life: Pin<Box<dyn Future<Output = ()>>> = Box::pin(member.run());
        handle.spawn(id, life);
    }

    /// It does not know what became of a verb, and lets go of its endpoint, as clients must.
    fn ends(&self) {
        let (who, bench) = (self.who, &mut *self.trial.bench.borrow_mut());
        bench.befell.lost += 1;
        bench.tell(|line| *line = format!("client {who}  does not know, and ends"));
        let id = self.trial.ids[usize::from(who)].get();
        self.trial.handle.kill_with(id, Outcome::Executed);
    }

    async fn cycle(&self, round: u16) -> anyhow::Result<()> {
        let (who, scenario) = (self.who, &self.trial.scenario);
        let mode = scenario.mode(who, round);
        let writer = mode == Mode::Exclusive || !L::SHARES;
        let access = if writer { Access::Exclusive } else { Access::Shared };
        self.trial.bench.borrow_mut().turns.opens(who, access);
        self.trial.bench.borrow_mut().count.opens(who);
        let polls_left = Cell::new(scenario.polls(who, round));
        let gives_up = || self.gives_up(&polls_left);
        let acquire = self.client.acquire(self.trial.word, mode);
        let Some(guard) = unless(acquire, gives_up).await.transpose()? else {
            self.trial.bench.borrow_mut().turns.leaves(who);
            return self.settles().await;
        };
        self.enters(access, guard.token(), guard.expires());
        let mut used = match scenario.recorded {
            true => Some(self.uses(access, round).await?),
            false => {
                let read = self.client.endpoint().read64(self.trial.word.plus(PROTECTED));
                unless(read, gives_up).await.transpose()?
            }
        };
        if scenario.hold_ns > 0 && used.is_some() {
            let stays = self.client.endpoint().sleep(scenario.hold_ns);
            used = unless(stays, gives_up).await.map(|_| ());
        }
        self.leaves();
        if used.is_none() {
            drop(guard);
            return self.settles().await;
        }
        match unless(guard.release(), gives_up).await {
            None => return self.settles().await,
            // Its time was over; nobody minds.
            Some(Err(ReleaseError::Lost)) if self.trial.terms.lease_ns.is_some() => {}
            Some(released) => released?,
        }
        self.trial.bench.borrow_mut().turns.closes(who);
        Ok(())
    }

    /// Reads and writes what the lock protects, and lets it be recorded.
    async fn uses(&self, access: Access, round: u16) -> anyhow::Result<()> {
        // Nobody writes the same value twice, and nobody the first one.
        let value = u64::from(round + 1) << 16 | u64::from(self.who);
        let (bench, words) = (&self.trial.bench, pair_of(self.trial.word));
        let called = bench.borrow_mut().goods.begins(access, value);
        let deed = use_pair(self.client.endpoint(), words, access, value).await?;
        bench.borrow_mut().goods.ends(called, deed);
        Ok(())
    }

    /// Whether this client, which is to wait, gives up instead.
    fn gives_up(&self, polls_left: &Cell<Option<u32>>) -> bool {
        let left = polls_left.get().map(|left| left - 1);
        polls_left.set(left.filter(|&left| left > 0));
        let (handle, bench) = (&self.trial.handle, &self.trial.bench);
        let may = bench.borrow().cancels_left > 0;
        let anywhere = may && handle.happens(Choice::Cancel, Ratio::one_in(ANYWHERE_ONE_IN));
        if left != Some(0) && !anywhere {
            return false;
        }
        let (who, bench) = (self.who, &mut *bench.borrow_mut());
        bench.cancels_left -= u32::from(anywhere);
        bench.settling |= 1 << who;
        bench.befell.given_up += 1;
        bench.tell(|line| *line = format!("client {who}  gives up"));
        bench.remember();
        true
    }

    /// Settles what was given up, as clients must.
    async fn settles(&self) -> anyhow::Result<()> {
        if self.trial.terms.settles {
            self.client.settle().await;
        }
        let bench = &mut *self.trial.bench.borrow_mut();
        bench.settling &= !(1 << self.who);
        bench.turns.closes(self.who);
        bench.remember();
        Ok(())
    }

    fn leaves(&self) {
        let (who, bench) = (self.who, &mut *self.trial.bench.borrow_mut());
        bench.ledger.leave(who);
        bench.leases.retain(|&(other, _)| other != who);
        bench.remember();
        bench.tell(|line| *line = format!("client {who}  leaves"));
    }

    fn enters(&self, access: Access, token: Option<Token>, expires: Option<Nanos>) {
        let (who, trial) = (self.who, &self.trial);
        let bench = &mut *trial.bench.borrow_mut();
        if trial.handle.incarnation(MEMORY) != self.incarnation {
            bench.tell(|line| *line = format!("client {who}  learns of a grant of the old memory"));
            return;
        }
        bench.leases.extend(expires.map(|end| (who, end)));
        if trial.leases_end(bench).contains(&who) {
            bench.remember();
            bench.tell(|line| *line = format!("client {who}  is granted too late"));
            return;
        }
        if trial.scenario.is_deadly() {
            for (other, id) in (0..).zip(trial.ids.iter().map(Cell::get)) {
                if !self.client.endpoint().is_alive(id) {
                    bench.ledger.leave(other);
                    bench.turns.leaves(other);
                }
            }
        }
        let mut passed = bench.turns.enters(who);
        // Whoever gave up is carried to its grant and out again unseen, and may let readers in.
        passed.writer_kept_out = passed.writer_kept_out.filter(|_| !trial.scenario.may_give_up());
        let in_order = bench.order_outlives_counts || bench.befell.wraps == 0;
        if let (true, Some(story)) = (in_order, bench.order.objection(who, passed)) {
            bench.bypassed.get_or_insert(story);
        }
        let mut token = bench.judged(who, access, token);
        if trial.terms.lease_ns.is_some() && !trial.scenario.is_timely() {
            // Nothing is promised but that a holder's token tells whether its time is over; and a
            // reader's not even that where readers' releases may be late.
            bench.ledger.leave_all();
            token = token.filter(|_| access == Access::Exclusive || trial.terms.readers_tell());
            if token.is_some_and(|token| bench.granted.comes_late(access, token)) {
                bench.befell.stale += 1;
                bench.remember();
                bench.tell(|line| *line = format!("client {who}  is too late, token {token:?}"));
                return;
            }
        }
        bench.ledger.enter(who, access, token);
        if let (true, Access::Exclusive, Some(token)) = (trial.scenario.fenced, access, token) {
            bench.goods.sends(trial.ids[usize::from(who)].get(), token, &trial.handle);
        }
        bench.tell(|line| {
            *line = format!("client {who}  enters ({access:?}, token {token:?})");
        });
        bench.remember();
    }
}

impl ClientView {
    /// What a client is made with that begins now.
    fn options(&self) -> Options {
        let looks = self.terms.looks_at_incarnation;
        Options { incarnation: if looks { self.handle.incarnation(MEMORY) as u16 } else { 1 } }
    }

    /// The lock's word as it is now.
    fn whole_word(&self) -> u128 {
        let half = |offset| u128::from(self.handle.peek(self.word.plus(offset)));
        half(0) | half(8) << 64
    }

    /// Something befalls a client that is about to post a verb.
    fn befalls(&self, who: u16, what: What) {
        let (bench, id) = (&mut *self.bench.borrow_mut(), self.ids[usize::from(who)].get());
        bench.tell(|line| *line = format!("client {who}  {what}"));
        match what {
            What::Pause(ns) => {
                self.handle.pause(id, ns);
                bench.befell.pauses += 1;
            }
            What::Jump(ns) => {
                self.handle.jump_clock(id, ns);
                bench.befell.bad_clocks += 1;
            }
            What::Lost(outcome) => self.handle.lose_next(id, outcome),
            What::Save => self.handle.save_node(MEMORY),
            What::Restart(reset) => {
                self.handle.reset_node(MEMORY, reset);
                // Whoever holds has lost it, and learns that when it next posts a verb.
                bench.ledger.leave_all();
                bench.leases.clear();
                bench.count.restarts(self.whole_word());
                bench.befell.restarts += 1;
                bench.remember();
            }
        }
    }

    /// Whoever holds until a time that has come, by its own clock, holds no longer.
    fn leases_end(&self, bench: &mut Bench) -> Vec<u16> {
        let is_over = |(who, end): (u16, Nanos)| {
            let id = self.ids[usize::from(who)].get();
            (self.handle.clock(id) >= end).then_some(who)
        };
        let over: Vec<u16> = bench.leases.iter().copied().filter_map(is_over).collect();
        for &who in &over {
            bench.leases.retain(|&(other, _)| other != who);
            bench.ledger.leave(who);
            bench.befell.overstayed += 1;
            bench.tell(|line| *line = format!("client {who}  has held to the end of its lease"));
        }
        over
    }
}

impl Clerk for ClientView {
    fn opens(&self, who: u16) {
        self.bench.borrow_mut().count.opens(who);
    }
}

impl Alarm for ClientView {
    fn next(&self, who: u16, verb: u64) -> u64 {
        if !self.scenario.mishaps_anywhere.is_empty() {
            return verb;
        }
        let later = self.scenario.mishaps.iter().filter(|m| m.who == who && m.verb >= verb);
        later.map(|mishap| mishap.verb).min().unwrap_or(u64::MAX)
    }

    fn rings(&self, who: u16, verb: u64) {
        let due = self.scenario.mishaps.iter().filter(|m| m.who == who && m.verb == verb);
        due.for_each(|mishap| self.befalls(who, mishap.what));
        for (index, &(_, what)) in self.scenario.mishaps_anywhere.iter().enumerate() {
            let left = self.bench.borrow().mishaps_left[index];
            if left > 0 && self.handle.happens(Choice::Mishap, Ratio::one_in(ANYWHERE_ONE_IN)) {
                self.bench.borrow_mut().mishaps_left[index] = left - 1;
                self.befalls(who, what);
                self.bench.borrow().remember();
            }
        }
    }
}

/// The output of a future, unless its caller gives up when it is pending: then it is dropped.
async fn unless<F: Future>(future: F, gives_up: impl Fn() -> bool) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(move |cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if gives_up() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}
