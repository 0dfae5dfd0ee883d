//! Every schedule of a few operations on one key, in a store as small as it can be.
//!
//! ```text
//! quiet   the store is made, the key is there or gone, every client has a block in hand
//! loud    each client reads a word, calls its operation, and again: here everything is tried
//! quiet   the living settle, all die, an heir takes all over: memory and history are judged
//! ```
//!
//! A call may come before or after any answer, which the read before it sees to. A client that has
//! answered keeps its task, so that what it knows stays a part of the state until it has settled.

use std::hash::{DefaultHasher, Hash, Hasher};

use farlock_fabric::Nanos;
use farlock_sim::schedule::{Director, Exhaustive, Replay, Trail};
use farlock_sim::{Candidates, mix};

use super::*;

/// An operation on the key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Deed {
    Get,
    Insert,
    Update,
    Delete,
    Cas,
    Increment,
}

impl Deed {
    /// All that differ in what they ask of the key.
    pub const ALL: [Self; 6] =
        [Self::Get, Self::Insert, Self::Update, Self::Delete, Self::Cas, Self::Increment];

    /// Whether it gives an absent key a value.
    pub fn inserts(self) -> bool {
        matches!(self, Self::Insert | Self::Increment)
    }

    /// What the client with this number asks in this step; no two values are the same.
    fn ask(self, who: usize, step: usize) -> Ask {
        let value = || name((who as u64 + 1) << 32 | step as u64);
        match self {
            Self::Get => Ask::Get,
            Self::Insert => Ask::Insert(value()),
            Self::Update => Ask::Update(value()),
            Self::Delete => Ask::Delete,
            Self::Cas => Ask::CompareAndSet(name(FIRST), value()),
            Self::Increment => Ask::Increment(1 << (8 * who)),
        }
    }
}

/// The key's value, if it has one, when the clients begin.
const FIRST: u64 = 7 << 48;

/// What may befall one of the clients, at any of its verbs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mishap {
    Nothing,
    /// It dies, and the verb has any of its three ends. That it is dead is known at any time.
    Dies,
    /// It does nothing any more, and nobody ever learns that.
    Stops,
}

/// As good as no bound of how often a client begins anew: where there is an end, none comes near.
const ANEW_UNBOUND: u64 = 64;

/// What is explored.
#[derive(Clone, Debug)]
pub struct Small {
    /// What each client does, one after the other.
    pub deeds: Vec<Vec<Deed>>,
    /// Whether the key has a value at first.
    pub exists: bool,
    pub mishap: Mishap,
    /// A read in a chain may be served after what stands behind it.
    pub overtaken: bool,
    /// A client learns that a verb has ended later than it took effect: it may have mail by then.
    pub slow: bool,
    /// A run in which a client has begun anew more often than this is cut off.
    pub anew_max: u64,
    #[cfg(feature = "museum")]
    pub flaw: Option<farlock_kv::Flaw>,
}

impl Small {
    pub fn new(deeds: &[Vec<Deed>]) -> Self {
        Self {
            deeds: deeds.to_vec(),
            exists: true,
            mishap: Mishap::Nothing,
            overtaken: false,
            slow: false,
            anew_max: ANEW_UNBOUND,
            #[cfg(feature = "museum")]
            flaw: None,
        }
    }

    fn play(&self) -> Play {
        Play {
            mode: Mode::Explored,
            hasty: false,
            clients: self.deeds.len() as u16,
            keys: 1,
            chunks: 3 * self.deeds.len() as u32 + 2,
            // A chunk is a block, so that one that is free is used again at once.
            chunk_bytes: 64,
            value_bytes: 8,
            weakness: Weakness {
                overtaken: if self.overtaken { Ratio::one_in(2) } else { Ratio::NEVER },
                // A verb of the dead that comes late may do so at any time, as in any mode.
                detection_ns_min: 1,
                detection_ns_max: 1,
                ..Weakness::NONE
            },
            #[cfg(feature = "museum")]
            flaw: self.flaw,
            ..Play::CALM
        }
    }
}

/// What an exploration came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Explored {
    /// Runs, most of them only to reach a state that was not seen.
    pub schedules: u64,
    /// Different states.
    pub states: u64,
    /// Runs that came to a new end, each of which was judged.
    pub ends: u64,
    /// Runs that were cut off, since a client had begun anew too often.
    pub cut: u64,
    /// Of the ends, those in which a client died or was stopped.
    pub befallen: u64,
    /// The most choices of one run.
    pub depth_max: u64,
    /// Operations that were answered by another client's.
    pub combined: u64,
}

impl Explored {
    pub fn plus(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.states += other.states;
        self.ends += other.ends;
        self.cut += other.cut;
        self.befallen += other.befallen;
        self.depth_max = self.depth_max.max(other.depth_max);
        self.combined += other.combined;
    }
}

/// Something is wrong with a run, or there are more runs than were to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wrong {
    Found { schedules: u64, trail: Trail, what: String },
    TooMany(Explored),
}

/// All schedules, each state once; at most so many runs.
pub fn explore<K: Kit>(small: &Small, schedules_max: u64) -> Result<Explored, Wrong> {
    let director = Director::new(Exhaustive::new());
    let mut explored = Explored::default();
    while let Some(oracle) = director.begin() {
        explored.schedules += 1;
        let found = |what| {
            let (schedules, trail) = (explored.schedules, director.trail());
            Wrong::Found { schedules, trail, what }
        };
        match run::<K>(small, oracle).map_err(found)? {
            Came::Back => {}
            Came::TooFar => {
                director.with(Exhaustive::ended);
                explored.cut += 1;
            }
            Came::ToAnEnd { befallen, report } => {
                director.with(Exhaustive::ended);
                explored.ends += 1;
                explored.befallen += u64::from(befallen);
                explored.combined += report.combined;
            }
        }
        explored.states = director.with(|schedule| schedule.states());
        explored.depth_max = director.with(|schedule| schedule.depth_max()) as u64;
        if explored.schedules >= schedules_max {
            return Err(Wrong::TooMany(explored));
        }
    }
    let doomed = director.with(|schedule| schedule.doomed());
    assert_eq!(doomed, [], "no schedule leads from these states to an end: {small:?}");
    Ok(explored)
}

/// How far a run came.
pub enum Came {
    /// To a state from which everything was tried.
    Back,
    /// A client has begun anew too often.
    TooFar,
    /// Whether something befell a client, and what else there is to say.
    ToAnEnd { befallen: bool, report: Report },
}

/// One run by this schedule.
pub fn run<K: Kit>(small: &Small, oracle: Box<dyn Oracle>) -> Result<Came, String> {
    let loud = Rc::new(Cell::new(false));
    let mut scene = Scene::<K>::small(small, Box::new(Quiet { oracle, loud: Rc::clone(&loud) }));
    scene.prepares(small);
    loud.set(true);
    let came = scene.explores(small);
    loud.set(false);
    match came? {
        Came::ToAnEnd { befallen, .. } => Ok(Came::ToAnEnd { befallen, report: scene.end()? }),
        came => Ok(came),
    }
}

/// Asks another oracle only where it is loud; else everything is as plain as it can be.
struct Quiet {
    oracle: Box<dyn Oracle>,
    loud: Rc<Cell<bool>>,
}

impl Oracle for Quiet {
    fn next(&mut self, candidates: &Candidates<'_>) -> Option<u32> {
        if self.loud.get() { self.oracle.next(candidates) } else { Some(0) }
    }

    fn pick(&mut self, choice: Choice, n: u32) -> u32 {
        if self.loud.get() { self.oracle.pick(choice, n) } else { 0 }
    }

    fn chance(&mut self, choice: Choice, ratio: Ratio) -> bool {
        self.loud.get() && ratio.is_possible() && self.oracle.chance(choice, ratio)
    }

    fn jitter(&mut self, _: u32) -> Nanos {
        0
    }
}

impl<K: Kit> Scene<K> {
    fn small(small: &Small, oracle: Box<dyn Oracle>) -> Self {
        let play = small.play();
        let config = Config {
            mode: play.mode,
            hasty: play.hasty,
            weakness: play.weakness,
            endpoints: play.clients + 2,
            slots_per_endpoint: 2,
            // Nobody is told of a client that is stopped: what waits for it ends by the clock.
            words_keep: small.mishap == Mishap::Stops,
            slow_completions: small.slow,
            events_max: Some(100_000),
            ..Config::default()
        };
        Self::set(World::with_oracle(config, oracle), play)
    }

    /// Every client has its store and a block in hand, and the key is as it is to be. The first
    /// client owns what the key's slot names.
    fn prepares(&mut self, small: &Small) {
        let key = K::name(0);
        for who in 0..small.deeds.len() {
            let endpoint = self.world.endpoint();
            let opens = Self::open(endpoint.clone(), self.locks, self.shape, self.play);
            let store = Rc::new(self.world.block_on(opens));
            let before = self.world.block_on(async {
                let other = K::name(1 + who as u64);
                store.insert(&other, &name(0)).await?;
                store.delete(&other).await?;
                if who > 0 {
                    return Ok(());
                }
                store.insert(&key, &name(FIRST)).await?;
                if small.exists { Ok(()) } else { store.delete(&key).await }
            });
            assert_eq!(before, Ok(()), "nothing is in the way");
            self.settles(&store).expect("nothing is in hand");
            let place = Place { store: RefCell::new(Some(store)), tasks_left: Cell::new(1) };
            self.clients.push((endpoint, Rc::new(place)));
        }
        let before = [Some(Ask::Insert(name(FIRST))), (!small.exists).then_some(Ask::Delete)];
        for ask in before.into_iter().flatten() {
            let called = self.judge.borrow_mut().call(&key, ask.clone());
            self.judge.borrow_mut().answer(&key, called, ask, Answer::Done);
        }
    }

    /// Everything that may happen happens.
    fn explores(&mut self, small: &Small) -> Result<Came, String> {
        let crew = Rc::new(Crew {
            ghost: self.world.ghost(),
            returned: Cell::new(0),
            stops_left: Cell::new(u32::from(small.mishap == Mishap::Stops)),
            is_too_far: Cell::new(false),
            anew_max: small.anew_max,
            has_ended: small.deeds.iter().map(|_| Cell::new(false)).collect(),
        });
        for (who, deeds) in small.deeds.iter().enumerate() {
            let member = Member::<K> {
                who,
                deeds: deeds.clone(),
                endpoint: self.clients[who].0.clone(),
                world: self.world.handle(),
                place: Rc::clone(&self.clients[who].1),
                judge: Rc::clone(&self.judge),
                crew: Rc::clone(&crew),
                start: self.locks,
            };
            self.world.spawn(self.clients[who].0.id(), member.acts());
        }
        let deaths = u32::from(small.mishap == Mishap::Dies);
        self.world.crash_anywhere(deaths, Ratio::one_in(2));
        match self.world.run() {
            Ended::Abandoned if crew.is_too_far.get() => return Ok(Came::TooFar),
            Ended::Abandoned => return Ok(Came::Back),
            Ended::Finished | Ended::Deadlock(_) => {}
            ended => return Err(format!("the run ended as {ended:?}")),
        }
        let is_stopped = crew.stops_left.get() == 0 && small.mishap == Mishap::Stops;
        let mut stuck = Vec::new();
        for (who, (endpoint, _)) in self.clients.iter().enumerate() {
            if !endpoint.has_crashed() && !crew.has_ended[who].get() {
                stuck.push(who);
                self.world.kill(endpoint.id());
            }
        }
        if stuck.len() > usize::from(is_stopped) {
            return Err(format!("of the clients {stuck:?} some wait for ever"));
        }
        self.world.run();
        let befallen = self.clients.iter().any(|(endpoint, _)| endpoint.has_crashed());
        Ok(Came::ToAnEnd { befallen, report: Report::default() })
    }
}

/// What the clients of a run have in common.
struct Crew {
    /// What the judge knows, as a part of the state: of each call which operations had returned,
    /// and each answer.
    ghost: Rc<Cell<u64>>,
    /// A bit for each operation that has returned.
    returned: Cell<u64>,
    stops_left: Cell<u32>,
    is_too_far: Cell<bool>,
    anew_max: u64,
    has_ended: Vec<Cell<bool>>,
}

impl Crew {
    fn notes(&self, what: u64) {
        self.ghost.set(self.ghost.get().wrapping_add(mix(what, 1)));
    }
}

/// A client of an exploration.
struct Member<K: Kit> {
    who: usize,
    deeds: Vec<Deed>,
    endpoint: SimEndpoint,
    world: Handle,
    place: Rc<Place<K>>,
    judge: Rc<RefCell<Judge>>,
    crew: Rc<Crew>,
    /// A word that nobody changes.
    start: Addr,
}

impl<K: Kit> Member<K> {
    async fn acts(self) {
        let (world, crew, who) = (self.world.clone(), Rc::clone(&self.crew), self.who);
        let store = self.place.store.borrow().clone().expect("it is open");
        let anew = || {
            let counts = store.counts();
            counts.retries + counts.rivals + counts.rereads
        };
        let before = anew();
        let goes_too_far = || anew() - before > crew.anew_max;
        stoppable(self.carries_out(&store), &world, &crew, goes_too_far).await;
        crew.has_ended[who].set(true);
        std::future::pending::<()>().await;
    }

    async fn carries_out(&self, store: &Kept<K>) {
        let key = K::name(0);
        for (step, deed) in self.deeds.iter().enumerate() {
            self.endpoint.read64(self.start).await.expect("the word exists");
            let (ask, number) = (deed.ask(self.who, step), self.who * 8 + step);
            self.crew.notes(mix(number as u64, self.crew.returned.get()));
            let called = self.judge.borrow_mut().call(&key, ask.clone());
            if let Some(answer) = carry_out(store, &key, &ask).await {
                let mut hasher = DefaultHasher::new();
                format!("{number} {answer:?}").hash(&mut hasher);
                self.crew.notes(hasher.finish());
                self.crew.returned.set(self.crew.returned.get() | 1 << number);
                self.judge.borrow_mut().answer(&key, called, ask, answer);
            }
        }
        store.scheme().settle().await;
    }
}

/// A future whose client may be stopped for good at any of its verbs. The run is cut off where it
/// goes too far.
async fn stoppable<F: Future>(
    future: F,
    world: &Handle,
    crew: &Crew,
    goes_too_far: impl Fn() -> bool,
) -> F::Output {
    let mut future = pin!(future);
    let mut is_stopped = false;
    std::future::poll_fn(|cx| {
        if is_stopped {
            return Poll::Pending;
        }
        let polled = future.as_mut().poll(cx);
        if goes_too_far() {
            crew.is_too_far.set(true);
            world.abandon();
            return Poll::Pending;
        }
        let may_stop = polled.is_pending() && crew.stops_left.get() > 0;
        if may_stop && world.happens(Choice::Mishap, Ratio::one_in(2)) {
            is_stopped = true;
            crew.stops_left.set(0);
            crew.notes(u64::MAX);
        }
        polled
    })
    .await
}

/// What is found by the schedule that this trail is of.
pub fn again<K: Kit>(small: &Small, trail: Trail) -> Option<String> {
    let director = Director::new(Replay::new(trail));
    let oracle = director.begin().expect("a trail is one run");
    run::<K>(small, oracle).err()
}
