//! One run: a world, its clients, its judges, and what they found.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::Poll;

use farlock_fabric::word::Field;
use farlock_fabric::{Addr, Endpoint, EndpointId, Slot, WideAtomics};
use farlock_locks::event::EventCounts;
use farlock_locks::slot::{self, Phase};
use farlock_locks::{Client, Mode, Options, RecordLock};
use farlock_sim::check::{Access, History, Ledger, Register, Turns};
use farlock_sim::{
    Choice, Config, Effect, Ended, Handle, Kind, Mode as WorldMode, Oracle, Packet, Ratio, World,
};

use super::goods::{Deed, Goods, use_pair};
use super::order::Order;
use super::points::{Watched, Witness};
use super::scenario::Scenario;

/// The word that a holder reads, in bytes after the lock: while it does, others may come in.
const PROTECTED: u64 = 64;
/// Bytes of the lock's region.
const BYTES: u64 = 128;
/// To the ledger, whoever comes when all have left.
const VISITOR: u16 = 63;
/// Where schedules are random and clients may die or give up anywhere, one of so many is the one.
const ANYWHERE_ONE_IN: u32 = 16;
/// A run with more events is a livelock, and so is a visit with as many after it. Repairs of a few
/// clients take some hundred.
const EVENTS_MAX: u64 = 20_000;

/// What a judge objects to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Objection {
    /// Two were inside who exclude each other, or tokens did not grow, or somebody was passed.
    Violation,
    /// Somebody waits for ever.
    Stall,
    /// All have left, but not everything is as before.
    Leak,
    /// The protocol found itself in a state that it holds to be impossible.
    Panic,
}

/// What was found in a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What kind of thing it is.
    pub objection: Objection,
    /// What happened, in a line.
    pub story: String,
}

/// What befell a run besides deaths, or several runs together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Befell {
    /// Counts in the lock's word that wrapped or were reset.
    pub wraps: u64,
    /// Acquisitions and releases that were given up.
    pub given_up: u64,
    /// Writes with stale tokens that the register outside refused.
    pub stale_refused: u64,
    /// Holds in the histories that were judged.
    pub holds_recorded: u64,
}

impl Befell {
    /// This run as well.
    pub fn add(&mut self, other: Self) {
        self.wraps += other.wraps;
        self.given_up += other.given_up;
        self.stale_refused += other.stale_refused;
        self.holds_recorded += other.holds_recorded;
    }
}

/// How a run went.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// What was found, if anything was.
    pub finding: Option<Finding>,
    /// Everybody came to an end; if not, the schedule wanted no more of the run.
    pub ended: bool,
    /// Clients found another one dead, and went on.
    pub recovered: bool,
    /// Events that happened.
    pub events: u64,
    /// How often a waiter was passed at most.
    pub bypass_max: u32,
    /// What befell it.
    pub befell: Befell,
}

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
}

/// A subject, ready to play any scenario.
pub struct Player {
    play: Play,
    fields: &'static [Field],
    /// Whether the lock outlives clients that die; if not, nobody must.
    pub outlives: bool,
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
        Self { play: Box::new(play), fields: L::FIELDS, outlives: terms.outlives }
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
    failure: Option<String>,
    bypassed: Option<String>,
    /// How often somebody found another dead, repaired a lock or began again.
    recoveries: u64,
    notes: Notes,
    /// The fields of the lock's word that count, where it matters that they wrap.
    counts: Vec<Field>,
    /// Whether the order that the lock promises holds when they have wrapped.
    order_outlives_counts: bool,
    befell: Befell,
    /// How often somebody may still give up.
    cancels_left: u32,
    /// A bit for each client that settles what it gave up.
    settling: u64,
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
        let known = self.ledger.ghost() ^ self.goods.ghost().rotate_left(1);
        self.ghost.set(known ^ turns ^ faults.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }

    /// What a holder sent outside arrives there.
    fn receives(&mut self, packet: &Packet) {
        let accepted = self.goods.receives(packet);
        let (who, token) = (packet.from.index - 1, packet.words[0]);
        self.tell(|line| {
            let answer = if accepted { "accepted" } else { "refused" };
            *line = format!("client {who}  write outside with token {token}: {answer}");
        });
        self.remember();
    }

    /// A verb took effect. Endpoints are numbered from 1, clients from 0.
    fn sees(&mut self, effect: &Effect, word: Addr) {
        let Some(who) = effect.endpoint.index.checked_sub(1) else { return };
        if who >= self.clients {
            return;
        }
        let atomic = !matches!(effect.kind, Kind::Read | Kind::Write | Kind::Send);
        if atomic && effect.addr == word && self.order.gets_in_line(effect.old != effect.new) {
            self.turns.acts(who);
            let wraps = |field: &&Field| field.of(effect.new) < field.of(effect.old);
            self.befell.wraps += self.counts.iter().filter(wraps).count() as u64;
            self.remember();
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

fn receiver(addr: Addr) -> String {
    let to = farlock_fabric::Mailbox::from_bits(addr.bits());
    format!("to client {}", to.endpoint.index.wrapping_sub(1))
}

/// What a kind of verb is called.
pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::Cas64 => "cas64",
        Kind::Faa64 => "faa64",
        Kind::MaskedCas64 => "masked-cas64",
        Kind::MaskedFaa64 => "masked-faa64",
        Kind::MaskedCas128 => "masked-cas128",
        Kind::MaskedFaa128 => "masked-faa128",
        Kind::Send => "send",
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
    ids: Rc<[EndpointId]>,
}

impl Trial {
    fn new(scenario: &Scenario, oracle: Box<dyn Oracle>, terms: Terms, notes: &mut Notes) -> Self {
        let config = Config {
            mode: WorldMode::Explored,
            weakness: scenario.weakness(),
            // One more for the client that looks whether everything is as before.
            endpoints: scenario.clients + 1,
            slots_per_endpoint: 1,
            hasty: scenario.hasty,
            slow_completions: scenario.slow,
            events_max: Some(EVENTS_MAX),
            ..Config::default()
        };
        let world = World::with_oracle(config, oracle);
        let word = world.region(world.node(), BYTES);
        let notes = std::mem::take(notes);
        let bench = Rc::new(RefCell::new(Bench {
            order: if scenario.is_deadly() {
                Order::default()
            } else {
                terms.order.with_turns_unseen(scenario.cancels())
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
        self.ids = endpoints.iter().map(Endpoint::id).collect();
        self.begin_counts(lock);
        // Of two deaths of one client the first is written last, and counts.
        for death in self.scenario.deaths.iter().rev() {
            if let Some(&id) = self.ids.get(usize::from(death.who)) {
                self.handle.crash_at(id, death.verb, death.outcome);
            }
        }
        self.bench.borrow_mut().cancels_left = self.scenario.cancel_anywhere;
        self.bench.borrow().remember();
        self.handle.crash_anywhere(self.scenario.anywhere, Ratio::one_in(ANYWHERE_ONE_IN));
        for (who, endpoint) in (0..).zip(endpoints) {
            let witness = self.bench.borrow().notes.witness.clone();
            let (word, data) = (self.word, self.word.plus(PROTECTED));
            let endpoint = Watched::new(endpoint, who, word, data, witness);
            let client = Client::new(wrap(endpoint), lock.clone(), Options { incarnation: 1 });
            let member = Member { trial: self.clone_for_client(), client, who };
            self.handle.spawn(self.ids[usize::from(who)], member.run());
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

    /// The lock's counts begin shortly before they wrap, if they are to. It is seen when they do,
    /// where that matters.
    fn begin_counts<E: WideAtomics, L: RecordLock<E>>(&self, lock: &L) {
        let (steps, bench) = (self.scenario.near_wrap, &mut *self.bench.borrow_mut());
        let word = lock.near_wrap(steps);
        if steps > 0 || !L::ORDER_OUTLIVES_COUNTS {
            let last = lock.near_wrap(1);
            bench.counts = L::FIELDS.iter().filter(|f| f.of(last) != 0).copied().collect();
        }
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
        let mut bereaved = false;
        for (who, &id) in self.ids.iter().enumerate() {
            if !endpoint.is_alive(id) {
                bereaved = true;
                self.bench.borrow_mut().ledger.leave(who as u16);
                continue;
            }
            let record = endpoint.record(id.index, Slot(0));
            let phase = self.handle.peek(record.plus(slot::STATE as u64 * 8)) & 0xff;
            // Notes on a repair reach even those who have left.
            let mail = if self.scenario.is_deadly() { 0 } else { self.handle.mail(id, Slot(0)) };
            if mail != 0 || Phase::from_bits(phase) != Some(Phase::Idle) {
                let what = format!("client {who} has left with {mail} messages, phase {phase}");
                self.bench.borrow_mut().failure.get_or_insert(what);
            }
        }
        let id = endpoint.id();
        let endpoint = wrap(Watched::new(endpoint, VISITOR, word, word.plus(PROTECTED), None));
        let client = Client::new(endpoint, lock.clone(), Options { incarnation: 1 });
        let (scenario, bench) = (Rc::clone(&self.scenario), Rc::clone(&self.bench));
        // Who may pass a line learns nothing of its dead; one in so many must get in line.
        let visits = if bereaved { 1 + lock.bypass_max().unwrap_or(0) } else { 0 };
        let task = self.handle.spawn(id, async move {
            for _ in 0..visits {
                if !visit(&client, word, &scenario, &bench).await {
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
    scenario: &Scenario,
    bench: &SharedBench,
) -> bool {
    let Ok(guard) = client.exclusive(word).await else { return false };
    let token = guard.token().map(|token| scenario.judged(token));
    bench.borrow_mut().ledger.enter(VISITOR, Access::Exclusive, token);
    bench.borrow_mut().ledger.leave(VISITOR);
    bench.borrow_mut().recoveries += recoveries(client.events());
    guard.release().await.is_ok()
}

fn recoveries(events: EventCounts) -> u64 {
    events.peers_died + events.repaired + events.restarted
}

/// What a panic says.
fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

struct ClientView {
    scenario: Rc<Scenario>,
    terms: Terms,
    handle: Handle,
    word: Addr,
    bench: SharedBench,
    ids: Rc<[EndpointId]>,
}

/// A client on its way through its acquisitions.
struct Member<E: Endpoint, L: RecordLock<E>> {
    trial: ClientView,
    client: Client<E, L>,
    who: u16,
}

impl<E: WideAtomics, L: RecordLock<E>> Member<E, L> {
    async fn run(self) {
        for round in 0..self.trial.scenario.acquisitions {
            self.client.endpoint().checkpoint(&[u64::from(round)]);
            if let Err(error) = self.cycle(round).await {
                let story = format!("client {} failed: {error}", self.who);
                self.trial.bench.borrow_mut().failure.get_or_insert(story);
                return;
            }
        }
        self.trial.bench.borrow_mut().recoveries += recoveries(self.client.events());
    }

    async fn cycle(&self, round: u16) -> anyhow::Result<()> {
        let (who, scenario) = (self.who, &self.trial.scenario);
        let mode = scenario.mode(who, round);
        let writer = mode == Mode::Exclusive || !L::SHARES;
        let access = if writer { Access::Exclusive } else { Access::Shared };
        self.trial.bench.borrow_mut().turns.opens(who, access);
        let polls_left = Cell::new(scenario.polls(who, round));
        let gives_up = || self.gives_up(&polls_left);
        let acquire = self.client.acquire(self.trial.word, mode);
        let Some(guard) = unless(acquire, gives_up).await.transpose()? else {
            self.trial.bench.borrow_mut().turns.leaves(who);
            return self.settles().await;
        };
        let token = guard.token().map(|token| scenario.judged(token));
        self.enters(access, token);
        let used = match scenario.recorded {
            true => Some(self.uses(access, round).await?),
            false => {
                let read = self.client.endpoint().read64(self.trial.word.plus(PROTECTED));
                unless(read, gives_up).await.transpose()?
            }
        };
        self.leaves();
        if used.is_none() {
            drop(guard);
            return self.settles().await;
        }
        let released = unless(guard.release(), gives_up).await.transpose()?;
        if released.is_none() {
            return self.settles().await;
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
        bench.remember();
        bench.tell(|line| *line = format!("client {who}  leaves"));
    }

    fn enters(&self, access: Access, token: Option<u64>) {
        let (who, trial) = (self.who, &self.trial);
        let bench = &mut *trial.bench.borrow_mut();
        if trial.scenario.is_deadly() {
            for (other, &id) in (0..).zip(trial.ids.iter()) {
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
        bench.ledger.enter(who, access, token);
        if let (true, Access::Exclusive, Some(token)) = (trial.scenario.fenced, access, token) {
            bench.goods.sends(trial.ids[usize::from(who)], token, &trial.handle);
        }
        bench.tell(|line| {
            *line = format!("client {who}  enters ({access:?}, token {token:?})");
        });
        bench.remember();
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
