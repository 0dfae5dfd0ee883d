//! Every schedule of a few operations on a few keys, in a store as small as it can be.
//!
//! ```text
//! quiet   the store is made, the key is there or gone, every client has a block in hand; where the
//!         index is to move, the last client has made levels, of which the others do not know
//! loud    each client reads a word, calls its operation, and again: here everything is tried
//! quiet   the living settle, all die, an heir takes all over: memory and history are judged
//! ```
//!
//! A call may come before or after any answer, which the read before it sees to. A client that has
//! answered keeps its task, so that what it knows stays a part of the state until it has settled.

use std::hash::{DefaultHasher, Hash, Hasher};

use farlock_fabric::{Nanos, Waiting};
use farlock_sim::schedule::{Director, Exhaustive, Replay, Trail};
use farlock_sim::{Candidates, mix};

use super::*;

/// An operation on a key, or something else that a client does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Deed {
    Get,
    Insert,
    Update,
    Delete,
    Cas,
    Increment,
    /// Waits until the key is not as it was before the clients began.
    Watch,
    /// Goes through the whole store.
    Scan,
    /// Makes the index larger.
    Grow,
}

/// A deed, and at which key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Act {
    pub key: u64,
    pub deed: Deed,
}

impl Deed {
    /// The deed at another key than the first.
    pub const fn at(self, key: u64) -> Act {
        Act { key, deed: self }
    }

    /// All that differ in what they ask of the key.
    pub const ALL: [Self; 6] =
        [Self::Get, Self::Insert, Self::Update, Self::Delete, Self::Cas, Self::Increment];

    /// Whether it gives an absent key a value.
    pub fn inserts(self) -> bool {
        matches!(self, Self::Insert | Self::Increment)
    }

    /// What the client with this number asks in this step; no two values are the same.
    fn ask(self, who: usize, step: usize, small: &Small) -> Option<Ask> {
        let bytes = small.value_bytes;
        let longer = if small.scarce && step.is_multiple_of(2) { bytes + 8 } else { bytes };
        let value = || padded((who as u64 + 1) << 32 | step as u64, longer);
        Some(match self {
            Self::Watch | Self::Scan | Self::Grow => return None,
            Self::Get => Ask::Get,
            Self::Insert => Ask::Insert(value()),
            Self::Update => Ask::Update(value()),
            Self::Delete => Ask::Delete,
            Self::Cas => Ask::CompareAndSet(padded(FIRST, bytes), value()),
            Self::Increment => Ask::Increment(1 << (8 * who)),
        })
    }
}

/// The key's value, if it has one, when the clients begin.
const FIRST: u64 = 7 << 48;

/// A value of so many bytes, at least eight, of which the first are this number's.
fn padded(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = name(number);
    value.resize(bytes.max(value.len()), 0);
    value
}

/// What may befall one of the clients, at any of its verbs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mishap {
    Nothing,
    /// It dies, and the verb has any of its three ends. That it is dead is known at any time.
    Dies,
    /// It does nothing any more, and nobody ever learns that.
    Stops,
    /// The completion of one of its chains is lost, which takes effect, or does not, or does later.
    Loses,
}

/// For how long a watcher waits: as good as for ever.
const WATCH_NS: Nanos = 1 << 60;

/// As good as no bound of how often a client begins anew: where there is an end, none comes near.
const ANEW_UNBOUND: u64 = 64;

/// What is explored.
#[derive(Clone, Debug)]
pub struct Small {
    /// What each client does, one after the other.
    pub acts: Vec<Vec<Act>>,
    /// Whether the first key has a value at first.
    pub exists: bool,
    /// Other keys that have one.
    pub beside: Vec<u64>,
    /// Levels that the last client has made before.
    pub levels: u32,
    /// The others know of them.
    pub informed: bool,
    /// It has also moved what it could, by changes of a key of its own.
    pub moved: bool,
    /// Chunks beyond those that the pairs take.
    pub room: u32,
    /// How long values are.
    pub value_bytes: usize,
    /// There is a chunk for each client, and one more for each pair; all have been used, and every
    /// second value that a client puts is longer than what they have room for.
    pub scarce: bool,
    pub mishap: Mishap,
    /// Reads and writes of 2 to so many words may be torn, between any two words.
    pub torn_words_max: u32,
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
    /// All at the first key.
    pub fn new(deeds: &[Vec<Deed>]) -> Self {
        let at_first = |deeds: &Vec<Deed>| deeds.iter().map(|deed| deed.at(0)).collect();
        Self::of(deeds.iter().map(at_first).collect())
    }

    pub fn of(acts: Vec<Vec<Act>>) -> Self {
        Self {
            acts,
            exists: true,
            beside: Vec::new(),
            levels: 0,
            informed: false,
            moved: false,
            room: 0,
            value_bytes: 8,
            scarce: false,
            mishap: Mishap::Nothing,
            torn_words_max: 0,
            overtaken: false,
            slow: false,
            anew_max: ANEW_UNBOUND,
            #[cfg(feature = "museum")]
            flaw: None,
        }
    }

    /// How many keys there are: all up to the last one that is spoken of.
    fn keys(&self) -> u64 {
        let keys = self.acts.iter().flatten().map(|act| act.key);
        keys.chain(self.beside.iter().copied()).max().map_or(1, |last| last + 1)
    }

    /// The keys that have a value at first.
    fn there(&self) -> impl Iterator<Item = u64> {
        self.exists.then_some(0).into_iter().chain(self.beside.iter().copied())
    }

    fn play(&self) -> Play {
        let clients = self.acts.len() as u32;
        let pairs = match self.scarce {
            true => clients + 1 + self.beside.len() as u32,
            false => 3 * clients + 2 + self.beside.len() as u32,
        };
        Play {
            mode: Mode::Explored,
            hasty: false,
            clients: self.acts.len() as u16,
            keys: self.keys(),
            chunks: pairs + self.room,
            // A chunk is a block, so that one that is free is used again at once.
            chunk_bytes: 64,
            value_bytes: self.value_bytes as u64,
            weakness: Weakness {
                overtaken: if self.overtaken { Ratio::one_in(2) } else { Ratio::NEVER },
                torn: if self.torn_words_max > 1 { Ratio::one_in(2) } else { Ratio::NEVER },
                lost: if self.mishap == Mishap::Loses { Ratio::one_in(2) } else { Ratio::NEVER },
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
    /// Chunks that got another class.
    pub reclassed: u64,
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
        self.reclassed += other.reclassed;
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
                explored.reclassed += report.reclassed;
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
    let (loud, ghost) = (Rc::new(Cell::new(false)), Rc::default());
    let torn_words_max = small.torn_words_max;
    let losses_left = Rc::new(Cell::new(u32::from(small.mishap == Mishap::Loses)));
    let quiet = Quiet {
        oracle,
        loud: Rc::clone(&loud),
        torn_words_max,
        tear: Tear::Begun,
        is_beside: false,
        losses_left: Rc::clone(&losses_left),
        ghost: Rc::clone(&ghost),
    };
    let mut scene = Scene::<K>::small(small, Box::new(quiet));
    ghost.set(Some(scene.world.ghost()));
    scene.prepares(small);
    loud.set(true);
    let came = scene.explores(small);
    loud.set(false);
    match came? {
        Came::ToAnEnd { befallen, .. } => {
            let has_lost = small.mishap == Mishap::Loses && losses_left.get() == 0;
            Ok(Came::ToAnEnd { befallen: befallen || has_lost, report: scene.end()? })
        }
        came => Ok(came),
    }
}

/// Asks another oracle only where it is loud; else everything is as plain as it can be.
struct Quiet {
    oracle: Box<dyn Oracle>,
    loud: Rc<Cell<bool>>,
    torn_words_max: u32,
    tear: Tear,
    /// Something else could have happened instead of what happens now.
    is_beside: bool,
    losses_left: Rc<Cell<u32>>,
    /// Once there is a world, what is added to its state.
    ghost: Rc<Ghost>,
}

type Ghost = Cell<Option<Rc<Cell<u64>>>>;

/// What is asked next of a read or write that is torn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tear {
    /// The first of its words.
    First,
    /// In which direction the others follow.
    Way,
    /// How many come at once: one, for what comes of larger pieces comes of those as well.
    Begun,
    /// The same of one that is too long to be torn: all.
    Whole,
}

impl Quiet {
    /// One that was lost is a part of the state.
    fn loses(&mut self) {
        self.losses_left.set(self.losses_left.get() - 1);
        let ghost = self.ghost.take().expect("there is a world");
        ghost.set(ghost.get().wrapping_add(mix(u64::MAX, 2)));
        self.ghost.set(Some(ghost));
    }

    fn tears(&mut self, choice: Choice, n: u32) -> u32 {
        match self.tear {
            Tear::First if n > self.torn_words_max => {
                self.tear = Tear::Whole;
                0
            }
            Tear::First => {
                // Of two words the second follows the first, whichever that is.
                self.tear = if n == 2 { Tear::Begun } else { Tear::Way };
                self.oracle.pick(choice, n)
            }
            Tear::Way => {
                self.tear = Tear::Begun;
                self.oracle.pick(choice, n)
            }
            Tear::Begun => 0,
            Tear::Whole if n == 2 => 0,
            Tear::Whole => {
                self.tear = Tear::Begun;
                n - 1
            }
        }
    }
}

impl Oracle for Quiet {
    fn next(&mut self, candidates: &Candidates<'_>) -> Option<u32> {
        self.is_beside = true;
        if self.loud.get() { self.oracle.next(candidates) } else { Some(0) }
    }

    fn pick(&mut self, choice: Choice, n: u32) -> u32 {
        match (self.loud.get(), choice) {
            (false, _) => 0,
            (true, Choice::TearPiece) => self.tears(choice, n),
            (true, _) => self.oracle.pick(choice, n),
        }
    }

    fn chance(&mut self, choice: Choice, ratio: Ratio) -> bool {
        let may = match choice {
            // With nobody there to see it, it is as if it were not.
            Choice::Tear => std::mem::take(&mut self.is_beside),
            Choice::Lose => self.losses_left.get() > 0,
            _ => true,
        };
        let is_loud = self.loud.get() && ratio.is_possible();
        let happens = may && is_loud && self.oracle.chance(choice, ratio);
        match choice {
            Choice::Tear if happens => self.tear = Tear::First,
            Choice::Lose if happens => self.loses(),
            _ => {}
        }
        happens
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

    /// Every client has its store and a block in hand, and the keys are as they are to be. What
    /// their slots name is the first client's.
    fn prepares(&mut self, small: &Small) {
        for who in 0..small.acts.len() {
            let endpoint = self.world.endpoint();
            let opens = Self::open(endpoint.clone(), self.locks, self.shape, self.play);
            let store = Rc::new(self.world.block_on(opens));
            self.comes_and_goes(&store, self.play.keys + who as u64, small);
            if who == 0 {
                self.puts(&store, small);
            }
            if who == 0 && small.scarce {
                self.comes_and_goes(&store, self.play.keys, small);
            }
            self.settles(&store).expect("nothing is in hand");
            let place = Place { store: RefCell::new(Some(store)), tasks_left: Cell::new(1) };
            self.clients.push((endpoint, Rc::new(place)));
        }
        let last = self.clients.last().and_then(|(_, place)| place.store.borrow().clone());
        let last = last.expect("there is a client");
        for _ in 0..small.levels {
            assert_eq!(self.world.block_on(last.grow()), Ok(()), "there are chunks");
        }
        for (_, place) in self.clients.iter().filter(|_| small.informed && small.levels > 0) {
            // One that does not know of the last level makes none.
            let store = place.store.borrow().clone().expect("it is open");
            if !Rc::ptr_eq(&store, &last) {
                assert_eq!(self.world.block_on(store.grow()), Ok(()), "it is there");
            }
        }
        for _ in 0..if small.moved { 2 << small.levels } else { 0 } {
            self.comes_and_goes(&last, self.play.keys + small.acts.len() as u64 - 1, small);
        }
        self.settles(&last).expect("nothing is in hand");
    }

    /// A key is inserted and deleted again.
    fn comes_and_goes(&self, store: &Kept<K>, key: u64, small: &Small) {
        let key = K::name(key);
        let ended = self.world.block_on(async {
            store.insert(&key, &padded(0, small.value_bytes)).await?;
            store.delete(&key).await
        });
        assert_eq!(ended, Ok(()), "nothing is in the way");
    }

    fn puts(&self, store: &Kept<K>, small: &Small) {
        let absent = (!small.exists).then_some(0);
        let first = padded(FIRST, small.value_bytes);
        for key in absent.into_iter().chain(small.there()) {
            let is_there = small.there().any(|there| there == key);
            let key = K::name(key);
            let asks = [Some(Ask::Insert(first.clone())), (!is_there).then_some(Ask::Delete)];
            for ask in asks.into_iter().flatten() {
                let called = self.judge.borrow_mut().call(&key, ask.clone());
                let answer = self.world.block_on(carry_out(store, &key, &ask));
                assert_eq!(answer, Some(Answer::Done), "nothing is in the way");
                self.judge.borrow_mut().answer(&key, called, ask, Answer::Done);
            }
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
            has_ended: small.acts.iter().map(|_| Cell::new(false)).collect(),
        });
        for (who, acts) in small.acts.iter().enumerate() {
            let member = Member::<K> {
                who,
                acts: acts.clone(),
                small: small.clone(),
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
    acts: Vec<Act>,
    small: Small,
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
        for (step, act) in self.acts.iter().enumerate() {
            while self.endpoint.read64(self.start).await.is_err() {}
            let (key, number) = (K::name(act.key), self.who * 8 + step);
            self.crew.notes(mix(number as u64, self.crew.returned.get()));
            match act.deed.ask(self.who, step, &self.small) {
                Some(ask) => self.asks(store, &key, ask, number).await,
                None if act.deed == Deed::Watch => self.watches(store, act.key, number).await,
                None if act.deed == Deed::Scan => self.scans(store, number).await,
                None => {
                    let made = store.grow().await;
                    self.returns(number, &made);
                }
            }
        }
        store.scheme().settle().await;
    }

    async fn asks(&self, store: &Kept<K>, key: &[u8], ask: Ask, number: usize) {
        let called = self.judge.borrow_mut().call(key, ask.clone());
        if let Some(answer) = carry_out(store, key, &ask).await {
            self.returns(number, &answer);
            self.judge.borrow_mut().answer(key, called, ask, answer);
        }
    }

    /// What has returned is a part of the state.
    fn returns(&self, number: usize, answer: &impl std::fmt::Debug) {
        let mut hasher = DefaultHasher::new();
        format!("{number} {answer:?}").hash(&mut hasher);
        self.crew.notes(hasher.finish());
        self.crew.returned.set(self.crew.returned.get() | 1 << number);
    }

    /// Each look is a read of the key. Where another client changes the key for good, one that does
    /// not see that waits for ever.
    async fn watches(&self, store: &Kept<K>, key: u64, number: usize) {
        let first = self
            .small
            .there()
            .any(|there| there == key)
            .then(|| padded(FIRST, self.small.value_bytes));
        let key = K::name(key);
        loop {
            let called = self.judge.borrow_mut().call(&key, Ask::Get);
            self.crew.notes(mix(!number as u64, self.crew.returned.get()));
            let Ok((sight, value)) = store.sight(&key).await else { continue };
            self.returns(number, &value);
            let is_other = value != first;
            self.judge.borrow_mut().answer(&key, called, Ask::Get, Answer::Value(value));
            if is_other {
                return;
            }
            // As a client does whose endpoint watches memory.
            let mut waits: Vec<_> = sight.waits(&self.endpoint, &[], WATCH_NS).collect();
            std::future::poll_fn(|cx| {
                let ends = |wait: &mut Waiting<'_, _>| Pin::new(wait).poll(cx).is_ready();
                if waits.iter_mut().any(ends) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }

    /// A read of each key; where one is met again, in place of what was removed, another read.
    async fn scans(&self, store: &Kept<K>, number: usize) {
        let names: Vec<Vec<u8>> = (0..self.small.keys()).map(K::name).collect();
        let calls = || names.iter().map(|key| self.judge.borrow_mut().call(key, Ask::Get));
        let (first, again): (Vec<_>, Vec<_>) = (calls().collect(), calls().collect());
        let (mut from, mut pairs) = (None, Vec::new());
        loop {
            let (found, next) = match store.scan(from).await {
                Ok(found) => found,
                Err(ReadError::Corrupt) => (vec![Err(ReadError::Corrupt)], None),
                Err(_) => return,
            };
            pairs.extend(found);
            match next {
                Some(_) => from = next,
                None => break,
            }
        }
        self.returns(number, &pairs);
        let is_damaged = pairs.iter().any(Result::is_err);
        for (key, (first, again)) in names.iter().zip(first.into_iter().zip(again)) {
            let of_key = pairs.iter().flatten().filter(|(found, _)| found == key);
            let mut values: Vec<_> = of_key.map(|(_, value)| Some(value.clone())).collect();
            assert!(values.len() <= if K::I::TREE { 1 } else { 2 }, "{pairs:?}");
            if values.is_empty() {
                values.push(None);
            }
            for (called, value) in [first, again].into_iter().zip(values) {
                let answer = match is_damaged {
                    true => Answer::No(WriteError::Corrupt),
                    false => Answer::Value(value),
                };
                self.judge.borrow_mut().answer(key, called, Ask::Get, answer);
            }
        }
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

/// Plants a bug, which is found by so many runs at most, and again by the trail of that run.
#[cfg(feature = "museum")]
pub fn find<K: Kit>(flaw: farlock_kv::Flaw, small: &Small, schedules_max: u64) {
    let planted = Small { flaw: Some(flaw), ..small.clone() };
    let found = explore::<K>(&planted, schedules_max);
    let Err(Wrong::Found { schedules, trail, what }) = found else {
        panic!("{flaw:?} is not found: {found:?}");
    };
    let story = what.lines().next().unwrap_or("");
    println!("{flaw:?}: found by schedule {schedules}, {trail}: {story}");
    assert_eq!(again::<K>(&planted, trail), Some(what));
}

/// What is found by the schedule that this trail is of.
pub fn again<K: Kit>(small: &Small, trail: Trail) -> Option<String> {
    let director = Director::new(Replay::new(trail));
    let oracle = director.begin().expect("a trail is one run");
    run::<K>(small, oracle).err()
}
