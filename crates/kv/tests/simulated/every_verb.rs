//! Specification: a client may die at any verb of any operation, with any of the three ends of that
//! verb, lose any completion, be stopped for long, or be dropped between any two; the others go on,
//! and what it left comes back.

use std::ops::Range;
use std::rc::Rc;

use crate::scene::judge::{Answer, Ask, Called, Judge};
use crate::scene::{
    ArrayCider, ArrayOptimistic, Kit, RaceCider, RaceGrowing, RaceOptimistic, Remembering,
    TreeOptimistic, carry_out, of_kit, polled, tree,
};
use farlock_fabric::{Addr, Endpoint, EndpointId};
use farlock_kv::{Index, Scheme, Shape, Store, WriteError};
use farlock_locks::record::mcs::Mcs;
use farlock_locks::{Client, within};
use farlock_sim::{Config, Ended, Handle, Outcome, SimEndpoint, Task, Weakness, World};

/// What befalls the first client at its `verb`-th verb, or after so many polls.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    Dies(u64, Outcome),
    Loses(u64, Outcome),
    IsDropped(u64),
    IsStopped(u64),
}

/// For how long a client is stopped, in nanoseconds.
const STOP_NS: u64 = 50_000_000;

/// How long the others' four operations beside a stopped client may take, in nanoseconds.
const OTHERS_NS_MAX: u64 = 1_000_000;

/// How often it is looked whether a client has posted so many verbs: for 200 microseconds.
const LOOKS_MAX: u32 = 10_000;

/// What the first client does, in a store that has this key or not.
type Story = (&'static str, bool, fn() -> Ask);

const STORIES: [Story; 7] = [
    ("get", true, || Ask::Get),
    ("insert", false, || Ask::Insert(b"inserted".to_vec())),
    ("update", true, || Ask::Update(b"updated".to_vec())),
    ("upsert", false, || Ask::Upsert(b"upserted".to_vec())),
    ("delete", true, || Ask::Delete),
    ("compare-and-set", true, || Ask::CompareAndSet(b"original".to_vec(), b"replaced".to_vec())),
    ("increment", true, || Ask::Increment(5)),
];

/// In what state the index is when a story begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scenery {
    /// It keeps its size.
    Still,
    /// It keeps its size, and all memory has been used for longer pairs, which are gone.
    Reclassed,
    /// It has no slot left for the key, so that an insertion makes the next level.
    Full,
    /// It has a next level, and nothing has moved.
    Growing,
    /// It has, and a client that helped to move it died at its verb with this number: as it copied
    /// slots, or as it marked them.
    HalfMoved(u64),
    /// It is a tree, with keys from this one on and before that one.
    Beside(u64, u64),
    /// It is a tree, with two keys, and a client that replaced their node died at its verb with
    /// this number: as it froze slots, or as it let the new node be named.
    HalfReplaced(u64),
}

type Kept<K> = Rc<crate::scene::Kept<K>>;

struct Stage {
    world: World,
    shape: Shape,
    locks: Addr,
    judge: Judge,
    /// Names of keys beside the one that the story is about.
    fillers: Range<u64>,
}

impl Stage {
    fn new<K: Kit>(seed: u64) -> Self {
        let weakness = Weakness { torn_gap_ns_max: 2_000, ..Weakness::FULL };
        let world = World::new(Config { seed, weakness, endpoints: 8, ..Config::default() });
        let index = K::index();
        let mut shape = Shape {
            base: Addr::from_bits(0),
            chunks: if K::I::GROWTH.is_some() { 60 } else { 8 }.max(K::CHUNKS_MIN),
            chunk_bytes: 128.max(K::CHUNK_BYTES_MIN),
            index_bytes: index.bytes(),
            index_tag: index.tag(),
        };
        shape.base = world.region(world.node(), shape.bytes());
        let locks = world.region(farlock_sim::NodeId(0), 1_024);
        let builder = world.endpoint();
        world.block_on(shape.create(&builder)).expect("verbs do not fail here");
        Self { world, shape, locks, judge: Judge::default(), fillers: 0..0 }
    }

    fn open<K: Kit>(&self, endpoint: SimEndpoint) -> Kept<K> {
        let scheme = K::scheme(endpoint, self.locks);
        let store = self.world.block_on(Store::open(scheme, K::index(), self.shape));
        Rc::new(of_kit::<K>(store.expect("it is")))
    }

    /// Whatever befell one, the others do what they want, and soon.
    fn others_go_on<K: Kit>(&mut self, others: &Kept<K>, about: &str) {
        let begun = self.world.now();
        for ask in [Ask::Get, Ask::Upsert(b"others".to_vec()), Ask::Get, Ask::Delete] {
            let ended = self.calls::<K>(others, ask);
            assert!(!matches!(ended, None | Some(Answer::Nothing)), "{about}: {ended:?}");
        }
        let took = self.world.now() - begun;
        assert!(took < OTHERS_NS_MAX, "{about}: the others took {took} ns");
    }

    /// Brings the index into its state, by the second client and one that dies of it.
    fn prepares<K: Kit>(&mut self, scenery: Scenery, others: &Kept<K>) {
        match scenery {
            Scenery::Still => return,
            Scenery::Reclassed => return self.uses_all_memory::<K>(),
            Scenery::Full => self.fillers = full_beside::<K>(),
            Scenery::Growing | Scenery::HalfMoved(_) => self.fillers = 100..110,
            Scenery::Beside(first, end) => self.fillers = first..end,
            Scenery::HalfReplaced(_) => self.fillers = 100..102,
        }
        for filler in self.fillers.clone() {
            let ended = self.world.block_on(others.insert(&K::name(filler), b"filler"));
            assert_eq!(ended, Ok(()), "there is room");
        }
        if matches!(scenery, Scenery::Growing | Scenery::HalfMoved(_)) {
            assert_eq!(self.world.block_on(others.grow()), Ok(()));
        }
        if let Scenery::HalfMoved(verb) | Scenery::HalfReplaced(verb) = scenery {
            let helper = self.world.endpoint();
            let store = self.open::<K>(helper.clone());
            self.world.crash_at(
                helper.id(),
                self.world.posted(helper.id()) + verb,
                Outcome::Executed,
            );
            self.world.spawn(helper.id(), async move {
                let _ = store.insert(&K::name(99), b"never").await;
            });
            assert_eq!(self.world.run(), Ended::Finished);
            assert!(helper.has_crashed());
        }
    }

    /// All chunks have been used for values that are longer than those of the stories.
    fn uses_all_memory<K: Kit>(&self) {
        let store = self.open::<K>(self.world.endpoint());
        let insert = |key: &u64| self.world.block_on(store.insert(&K::name(*key), &[7; 40]));
        let keys: Vec<u64> = (2..60).take_while(|key| insert(key).is_ok()).collect();
        assert_eq!(insert(&60), Err(WriteError::PoolFull));
        for key in keys {
            assert_eq!(self.world.block_on(store.delete(&K::name(key))), Ok(()));
        }
        assert_eq!(self.world.block_on(store.close()), Ok(()));
    }

    /// An operation of a client that nothing befalls.
    fn calls<K: Kit>(&mut self, store: &Kept<K>, ask: Ask) -> Option<Answer> {
        let called = self.judge.call(&K::name(1), ask.clone());
        let ended = self.world.block_on(carry_out(store, &K::name(1), &ask));
        if let Some(answer) = ended.clone() {
            self.judge.answer(&K::name(1), called, ask, answer);
        }
        ended
    }
}

/// So many keys as the first table has slots, all of which find one.
fn full_beside<K: Kit>() -> Range<u64> {
    let slots = K::index().bytes() / 8;
    let mut sets = (1..100).map(|set| set * 100..set * 100 + slots);
    let all_fit = |fillers: &Range<u64>| {
        let stage = Stage::new::<K>(0);
        let store = stage.open::<K>(stage.world.endpoint());
        let insert =
            |key| stage.world.block_on(store.insert(&K::name(key), b"a value")).expect("room");
        fillers.clone().for_each(insert);
        store.counts().growths == 0
    };
    sets.find(all_fit).expect("there is such a set")
}

/// Plays one story with one fault. Returns how many verbs the operation took, and whether the
/// completion of a change was lost.
fn tell<K: Kit>(scenery: Scenery, story: usize, fault: Fault, seed: u64) -> (u64, bool) {
    let (_, exists, ask) = STORIES[story];
    let mut stage = Stage::new::<K>(seed);
    let (first, second) = (stage.world.endpoint(), stage.world.endpoint());
    let (id, others) = (first.id(), stage.open::<K>(second));
    // It knows of the growth, or it does not.
    let early = (seed % 2 == 1).then(|| stage.open::<K>(first.clone()));
    if exists {
        assert_eq!(
            stage.calls::<K>(&others, Ask::Insert(b"original".to_vec())),
            Some(Answer::Done)
        );
    }
    stage.prepares::<K>(scenery, &others);
    let mine = early.unwrap_or_else(|| stage.open::<K>(first.clone()));
    let before = stage.world.posted(id);
    let ask = ask();
    let called = stage.judge.call(&K::name(1), ask.clone());
    let polls = match fault {
        Fault::IsDropped(polls) => polls,
        _ => u64::MAX,
    };
    befalls(&stage.world, &first, before, fault);
    let task = stage.world.spawn(id, {
        let (mine, ask) = (Rc::clone(&mine), ask.clone());
        async move { polled(async { carry_out(&mine, &K::name(1), &ask).await }, polls).await }
    });
    let about = format!("{} {scenery:?} {fault:?}, seed {seed}", STORIES[story].0);
    let is_stopped = matches!(fault, Fault::IsStopped(_));
    let ended = match is_stopped {
        true => stage.world.run_until(stage.world.now() + 100_000),
        false => stage.world.run(),
    };
    assert!(ended == Ended::Finished || is_stopped, "{about}: {ended:?}");
    let verbs = stage.world.posted(id) - before;
    assert_eq!(first.has_crashed(), matches!(fault, Fault::Dies(..)), "{about}");
    let answered = |stage: &mut Stage| {
        if let Some(Some(Some(answer))) = task.take() {
            stage.judge.answer(&K::name(1), called, ask.clone(), answer);
        }
    };
    answered(&mut stage);
    stage.others_go_on::<K>(&others, &about);
    assert_eq!(stage.world.run(), Ended::Finished, "{about}");
    answered(&mut stage);
    if !first.has_crashed() {
        stage.world.block_on(mine.settle());
        stage.world.block_on(mine.audit()).expect("verbs do not fail any more");
        assert!(!mine.is_unsettled() && mine.census().in_hand == 0, "{about}: {:?}", mine.census());
    }
    let is_reclassed = scenery == Scenery::Reclassed && matches!(fault, Fault::None);
    assert!(!is_reclassed || mine.counts().reclassed == 1, "{about}: {:?}", mine.counts());
    let lost = mine.counts().lost > 0;
    ends::<K>(stage, &[id, others.scheme_id()], &about);
    (verbs, lost)
}

/// Lets a fault befall an endpoint that has posted so many verbs before.
fn befalls(world: &World, endpoint: &SimEndpoint, before: u64, fault: Fault) {
    match fault {
        Fault::Dies(verb, outcome) => world.crash_at(endpoint.id(), before + verb, outcome),
        Fault::Loses(verb, outcome) => {
            at_verb(world, endpoint, before + verb, move |world, id| {
                world.lose_next(id, Some(outcome));
            });
        }
        Fault::IsStopped(verb) => {
            at_verb(world, endpoint, before + verb, |world, id| world.pause(id, STOP_NS));
        }
        Fault::None | Fault::IsDropped(_) => {}
    }
}

/// Does this to an endpoint once it has posted so many verbs.
fn at_verb(
    world: &World,
    endpoint: &SimEndpoint,
    verb: u64,
    act: impl FnOnce(&Handle, EndpointId) + 'static,
) {
    let (handle, endpoint) = (world.handle(), endpoint.clone());
    let id = endpoint.id();
    world.spawn(id, async move {
        for _ in 0..LOOKS_MAX {
            if handle.posted(id) >= verb {
                return act(&handle, id);
            }
            endpoint.sleep(20).await;
        }
    });
}

trait Known {
    fn scheme_id(&self) -> EndpointId;
}

impl<S: Scheme, I: Index> Known for Store<S, I> {
    fn scheme_id(&self) -> EndpointId {
        self.scheme().endpoint().id()
    }
}

/// Everybody is dead, and an heir has it all.
fn ends<K: Kit>(mut stage: Stage, ids: &[EndpointId], about: &str) {
    ids.iter().for_each(|id| stage.world.kill(*id));
    stage.world.run();
    let heir = stage.open::<K>(stage.world.endpoint());
    stage.world.block_on(heir.recover()).expect("verbs do not fail any more");
    stage.calls::<K>(&heir, Ask::Get);
    let census = heir.census();
    let mut named = 0;
    let never = (!stage.fillers.is_empty()).then_some(99);
    for key in [1].into_iter().chain(never).chain(stage.fillers.clone()) {
        let found = stage.world.block_on(heir.get(&K::name(key))).expect("it reads");
        assert!(found.is_some() || key < 100, "{about}: filler {key} is gone");
        named += u64::from(found.is_some());
    }
    if K::I::TREE {
        let (leaves, nodes) = tree::named(|addr| stage.world.peek(addr), stage.shape, |_| true);
        assert_eq!(leaves, named, "{about}");
        named += nodes;
    }
    assert_eq!((census.published, census.in_hand, census.tainted), (named, 0, 0), "{about}");
    assert!(census.free > 0, "{about}");
    stage.judge.verdict().unwrap_or_else(|wrong| panic!("{about}: {wrong}"));
}

/// Every fault at every verb of these stories.
fn all<K: Kit>(scenery: Scenery, stories: &[usize], seeds: u64) -> (u64, u64) {
    let (mut points, mut runs, mut lost) = (0, 0, 0);
    for (&story, seed) in stories.iter().flat_map(|story| (0..seeds).map(move |seed| (story, seed)))
    {
        let (verbs, _) = tell::<K>(scenery, story, Fault::None, seed);
        for at in 0..verbs {
            for outcome in Outcome::ALL {
                tell::<K>(scenery, story, Fault::Dies(at, outcome), seed);
                lost += u64::from(tell::<K>(scenery, story, Fault::Loses(at, outcome), seed).1);
            }
            tell::<K>(scenery, story, Fault::IsDropped(at + 1), seed);
            tell::<K>(scenery, story, Fault::IsStopped(at), seed);
            runs += 8;
        }
        points += verbs;
    }
    println!("{scenery:?}: {points} verbs, {runs} runs, {lost} with a change whose end was lost");
    (points, lost)
}

const ALL: [usize; STORIES.len()] = [0, 1, 2, 3, 4, 5, 6];

#[test]
fn a_pointer_array_survives_every_verb() {
    let (points, lost) = all::<ArrayOptimistic>(Scenery::Still, &ALL, 6);
    assert!(points > 25 * 6 && lost > points / 6, "{points}, {lost}");
}

#[test]
fn race_survives_every_verb() {
    let (points, lost) = all::<RaceOptimistic>(Scenery::Still, &ALL, 6);
    assert!(points > 25 * 6 && lost > points / 6, "{points}, {lost}");
}

#[test]
fn a_chunk_that_gets_another_class_survives_every_verb() {
    let (points, lost) = all::<ArrayOptimistic>(Scenery::Reclassed, &[1, 2, 3, 6], 6);
    assert!(points > 50 * 6 && lost > points / 10, "{points}, {lost}");
    let (points, lost) = all::<Remembering<ArrayCider>>(Scenery::Reclassed, &[1, 2, 3, 6], 3);
    assert!(points > 50 * 3 && lost > points / 10, "{points}, {lost}");
}

#[test]
fn what_is_remembered_survives_every_verb() {
    let (points, lost) = all::<Remembering<RaceOptimistic>>(Scenery::Still, &ALL, 6);
    assert!(points > 25 * 4 && lost > points / 6, "{points}, {lost}");
    let (points, lost) = all::<Remembering<RaceGrowing>>(Scenery::Growing, &ALL, 2);
    assert!(points > 200 && lost > 0, "{points}, {lost}");
}

#[test]
fn an_insertion_that_makes_a_level_survives_every_verb() {
    let (points, lost) = all::<RaceGrowing>(Scenery::Full, &[1], 2);
    assert!(points > 100 && lost > 0, "{points}, {lost}");
}

#[test]
fn a_table_that_is_moving_survives_every_verb() {
    let (points, lost) = all::<RaceGrowing>(Scenery::Growing, &ALL, 2);
    assert!(points > 300 && lost > 0, "{points}, {lost}");
}

#[test]
fn a_group_of_which_some_slots_have_moved_survives_every_verb() {
    for verb in [20, 28, 36] {
        let (points, lost) = all::<RaceGrowing>(Scenery::HalfMoved(verb), &[0, 1, 2, 4], 2);
        assert!(points > 100 && lost > 0, "{points}, {lost}");
    }
}

/// Beside the key there is none; two, whose node has no slot left; two below a node that does not
/// begin as it does; one that begins with it.
#[test]
fn a_tree_survives_every_verb() {
    for keys in [100..100, 100..102, 102..104, 104..105] {
        let scenery = Scenery::Beside(keys.start, keys.end);
        let (points, lost) = all::<TreeOptimistic>(scenery, &ALL, 2);
        assert!(points > 60 && lost > 0, "{points}, {lost}");
    }
}

#[test]
fn a_node_of_which_some_slots_are_frozen_survives_every_verb() {
    for verb in [9, 11, 13, 15, 16] {
        let (points, lost) = all::<TreeOptimistic>(Scenery::HalfReplaced(verb), &[0, 1, 2, 4], 1);
        assert!(points > 30 && lost > 0, "{points}, {lost}");
    }
}

/// Who stands in line, in this order.
const ROLES: [&str; 3] = ["coordinator", "participant", "executor"];

/// After how many polls an operation is dropped, at most.
const POLLS: u64 = 25;

/// A client of a batch: its store, and its operation.
struct Member<K: Kit> {
    endpoint: SimEndpoint,
    store: Kept<K>,
    before: u64,
    ask: Ask,
    called: Called,
    task: Task<Option<Option<Answer>>>,
}

/// What a run of a batch has come to.
struct Batch {
    /// Verbs that each role has posted until nobody had anything left to do.
    verbs: [u64; 3],
    /// Operations that were combined.
    combined: u64,
}

/// Lets three clients stand in line behind a holder, one of which something befalls, and releases.
fn tell_batch<K: Kit>(last: &Ask, role: usize, fault: Fault, seed: u64) -> Batch {
    let mut stage = Stage::new::<K>(seed);
    let others = stage.open::<K>(stage.world.endpoint());
    assert_eq!(stage.calls::<K>(&others, Ask::Insert(b"original".to_vec())), Some(Answer::Done));
    let keeper = Client::new(stage.world.endpoint(), Mcs::default(), Default::default());
    let guard = stage.world.block_on(keeper.exclusive(stage.locks)).expect("it is free");
    let asks = [Ask::Update(b"first".to_vec()), Ask::Upsert(b"second".to_vec()), last.clone()];
    let about = format!("{} {fault:?}, {last:?} last, seed {seed}", ROLES[role]);
    let mut members: Vec<Member<K>> = Vec::new();
    for (at, ask) in asks.into_iter().enumerate() {
        let fault = if at == role { fault } else { Fault::None };
        members.push(gets_in_line(&mut stage, ask, fault));
        stage.world.run_until(stage.world.now() + 15_000);
    }
    // A client that has lost a verb of the lock may be next in line and never say so.
    let _ = stage.world.block_on(within(keeper.endpoint(), STOP_NS / 500, guard.release()));
    stage.world.run_until(stage.world.now() + 100_000);
    answers(&mut stage, &members);
    stage.others_go_on::<K>(&others, &about);
    assert_eq!(stage.world.run(), Ended::Finished, "{about}");
    answers(&mut stage, &members);
    let verbs = |member: &Member<K>| stage.world.posted(member.endpoint.id()) - member.before;
    let verbs = std::array::from_fn(|role| verbs(&members[role]));
    let combined = members.iter().map(|member| member.store.counts().combined).sum();
    for Member { endpoint, store, .. } in &members {
        if !endpoint.has_crashed() {
            // A verb that it never came to is not to come now.
            stage.world.crash_at(endpoint.id(), u64::MAX, Outcome::Never);
            stage.world.block_on(store.settle());
            stage.world.block_on(store.audit()).expect("verbs do not fail any more");
            assert!(!store.is_unsettled() && store.census().in_hand == 0, "{about}");
        }
    }
    let mut ids: Vec<EndpointId> = members.iter().map(|member| member.endpoint.id()).collect();
    ids.extend([others.scheme_id(), keeper.endpoint().id()]);
    ends::<K>(stage, &ids, &about);
    Batch { verbs, combined }
}

/// A client calls an operation, and settles its turns.
fn gets_in_line<K: Kit>(stage: &mut Stage, ask: Ask, fault: Fault) -> Member<K> {
    let endpoint = stage.world.endpoint();
    let (id, store) = (endpoint.id(), stage.open::<K>(endpoint.clone()));
    let before = stage.world.posted(id);
    befalls(&stage.world, &endpoint, before, fault);
    let called = stage.judge.call(&K::name(1), ask.clone());
    let polls = match fault {
        Fault::IsDropped(polls) => polls,
        _ => u64::MAX,
    };
    let task = stage.world.spawn(id, {
        let (store, ask) = (Rc::clone(&store), ask.clone());
        async move { polled(async { carry_out(&store, &K::name(1), &ask).await }, polls).await }
    });
    stage.world.spawn(id, {
        let (store, endpoint) = (Rc::clone(&store), endpoint.clone());
        async move {
            for _ in 0..100 {
                endpoint.sleep(5_000).await;
                store.scheme().settle().await;
            }
        }
    });
    Member { endpoint, store, before, ask, called, task }
}

fn answers<K: Kit>(stage: &mut Stage, members: &[Member<K>]) {
    for member in members {
        if let Some(Some(Some(answer))) = member.task.take() {
            stage.judge.answer(&K::name(1), member.called, member.ask.clone(), answer);
        }
    }
}

/// Every fault at every verb of every role.
fn all_roles<K: Kit>(what: &str, seeds: u64) {
    let (mut runs, mut combined) = (0, 0);
    for last in [Ask::Update(b"third".to_vec()), Ask::Delete] {
        // A participant whose hand-over is late may write for itself.
        let mut calm = (0..4).map(|seed| tell_batch::<K>(&last, 0, Fault::None, seed));
        let calm = calm.find(|batch| batch.combined == 2);
        let calm = calm.expect("coordinator and participant are combined");
        for role in 0..ROLES.len() {
            for at in 0..POLLS.max(calm.verbs[role]) {
                for seed in 0..seeds {
                    // Waits are polled more often than verbs are posted.
                    let mut faults = vec![Fault::IsDropped(at + 1)];
                    if at < calm.verbs[role] {
                        faults.push(Fault::IsStopped(at));
                        for outcome in Outcome::ALL {
                            faults.extend([Fault::Dies(at, outcome), Fault::Loses(at, outcome)]);
                        }
                    }
                    for fault in faults {
                        combined += tell_batch::<K>(&last, role, fault, seed).combined;
                        runs += 1;
                    }
                }
            }
        }
        println!("{what}, {last:?} last: verbs of each role {:?}", calm.verbs);
    }
    println!("{what}: {runs} runs, {combined} operations combined");
    assert!(combined > runs / 3, "what befalls one does not keep all from combining");
}

#[test]
fn every_role_of_a_batch_survives_every_verb() {
    all_roles::<ArrayCider>("pointer array", 6);
    all_roles::<RaceCider>("race", 6);
}
