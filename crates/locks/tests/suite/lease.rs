//! Locks whose holders lose them after a while: those with leases.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;

use farlock_fabric::{Addr, Endpoint, EndpointId, Nanos};
use farlock_locks::TokenSource;
use farlock_locks::registry::{self, Visitor};
use farlock_locks::{Client, Guard, Lock, Mode, Options, ReleaseError};
use farlock_sim::{Config, Ended, Handle, Ratio, SimEndpoint, Weakness, World};

use crate::ledger::Ledger;
use crate::room;

/// The leases here, in nanoseconds: short, since clients wait for many.
pub(crate) const LEASE_NS: Nanos = 100_000;
/// Far more than any story takes, in virtual nanoseconds.
const TIME_NS_MAX: Nanos = 10_000_000_000;

fn world(seed: u64) -> World {
    let weakness = Weakness { lost: Ratio::NEVER, ..Weakness::FULL };
    World::new(Config { seed, weakness, endpoints: 16, ..Config::default() })
}

/// Plays a story with the lock that a name stands for.
trait Story {
    fn play<L: Lock<SimEndpoint>>(self, lock: L);
}

struct Told<S>(S);

impl<S: Story> Visitor<SimEndpoint> for Told<S> {
    type Output = ();

    fn visit<L: Lock<SimEndpoint>>(self, lock: L) {
        self.0.play(lock);
    }
}

fn tell<S: Story>(spec: &str, story: S) {
    registry::visit(spec, Told(story)).expect("the lock is registered");
}

/// Every lock with leases. No verb is late by as much as one.
fn leased() -> Vec<String> {
    let mut leased = vec![format!("dslr-64:max=5:lease={LEASE_NS}")];
    for lock in registry::RECORD_LOCKS {
        let proof = registry::promises(lock.name).expect("it is registered").proof;
        let spec = |options: &&str| format!("{}:lease={LEASE_NS}:{options}", lock.name);
        leased.extend(proof.leased.iter().map(spec));
    }
    leased
}

/// Releases a hold whose lease may have ended.
async fn part<L: Lock<SimEndpoint>>(guard: Guard<'_, SimEndpoint, L>) {
    let released = guard.release().await;
    assert!(matches!(released, Ok(()) | Err(ReleaseError::Lost)), "{released:?}");
}

fn client<L: Lock<SimEndpoint>>(handle: &Handle, lock: &L) -> Client<SimEndpoint, L> {
    Client::new(handle.endpoint(), lock.clone(), Options::new(1))
}

/// A holder sits on the lock. Others get it when its lease is over, with a higher token; the holder
/// knows that it has lost it, and its late release changes nothing for the next one.
struct Overstays(u64, Mode);

impl Story for Overstays {
    fn play<L: Lock<SimEndpoint>>(self, lock: L) {
        let Self(seed, mode) = self;
        let world = world(seed);
        let (handle, word) = (world.handle(), world.region(world.node(), room::<L>()));
        let (sits, waits, next) =
            (client(&handle, &lock), client(&handle, &lock), client(&handle, &lock));
        let posted = world.handle();
        let done = world.spawn(sits.endpoint().id(), async move {
            let stale = sits.acquire(word, mode).await.expect("the lock is free");
            let begun = waits.endpoint().now();
            let guard = waits.exclusive(word).await.expect("the lease is over");
            let waited = waits.endpoint().now() - begun;
            // Reads may be late, each by some leases.
            assert!(waited < 20 * LEASE_NS, "waited {waited} ns");
            assert!(stale.expires().expect("there are leases") <= sits.endpoint().now());
            let has_tokens = L::TOKENS == TokenSource::Word;
            assert_eq!(guard.token() > stale.token(), has_tokens);
            let verbs = posted.stats().verbs();
            assert_eq!(stale.release().await, Err(ReleaseError::Lost));
            assert_eq!(posted.stats().verbs(), verbs, "it is told before it posts anything");
            assert_eq!((sits.events().expired, waits.events().repaired), (1, 1));
            let tried = next.try_acquire(word, Mode::Shared).await.expect("tries");
            assert!(tried.is_none(), "the late release let somebody in");
            guard.release().await.expect("in time");
            let tried = next.try_acquire(word, Mode::Exclusive).await.expect("tries");
            tried.expect("the lock is free").release().await.expect("in time");
        });
        assert_eq!(world.run_until(TIME_NS_MAX), Ended::Finished);
        assert!(done.take().is_some());
    }
}

#[test]
fn who_overstays_loses_the_lock_and_knows() {
    for seed in 0..20 {
        for mode in [Mode::Exclusive, Mode::Shared] {
            leased().iter().for_each(|lock| tell(lock, Overstays(seed, mode)));
        }
    }
}

/// Two clients take two locks in opposite order. Leases resolve it: each gets both in the end, and
/// who holds two locks whose leases have not ended holds them alone.
struct Deadlock(u64);

impl Story for Deadlock {
    fn play<L: Lock<SimEndpoint>>(self, lock: L) {
        let world = world(self.0);
        let (handle, base) = (world.handle(), world.region(world.node(), 2 * room::<L>()));
        let ledger = Ledger::default();
        let mut tasks = Vec::new();
        for who in 0..2 {
            let (client, ledger) = (client(&handle, &lock), ledger.clone());
            let [first, second] = [who, 1 - who].map(|place| base.plus(place * room::<L>()));
            tasks.push(world.spawn(client.endpoint().id(), async move {
                for aborts in 0.. {
                    let one = client.exclusive(first).await.expect("acquires");
                    client.endpoint().sleep(LEASE_NS / 4).await;
                    let two = client.exclusive(second).await.expect("acquires");
                    let ends = one.expires().min(two.expires()).expect("there are leases");
                    let commits = client.endpoint().now() < ends;
                    if commits {
                        for lock in [first, second] {
                            ledger.enter(lock, who, Mode::Exclusive, None);
                            ledger.leave(lock, who);
                        }
                    }
                    part(one).await;
                    part(two).await;
                    if commits {
                        return aborts;
                    }
                    client.endpoint().sleep(client.endpoint().random() % (4 * LEASE_NS)).await;
                }
                unreachable!("it tries until it commits")
            }));
        }
        assert_eq!(world.run_until(TIME_NS_MAX), Ended::Finished);
        ledger.assert_clean("deadlock");
        let aborts: u64 = tasks.iter().map(|task| task.take().expect("it has committed")).sum();
        assert!(aborts > 0, "there was a deadlock to resolve");
    }
}

#[test]
fn a_deadlock_ends_with_the_leases() {
    for seed in 0..20 {
        leased().iter().for_each(|lock| tell(lock, Deadlock(seed)));
    }
}

/// Who is inside, and until when by its own clock: beyond that nobody counts as inside.
#[derive(Clone, Default)]
struct Inside {
    ledger: Ledger,
    leases: Rc<RefCell<Vec<Lease>>>,
}

struct Lease {
    who: u64,
    expires: Nanos,
    clock: Rc<dyn Fn() -> Nanos>,
}

impl Inside {
    fn enter<L: Lock<SimEndpoint>>(
        &self,
        (word, who): (Addr, u64),
        client: &Client<SimEndpoint, L>,
        guard: &Guard<'_, SimEndpoint, L>,
    ) {
        let leases = &mut *self.leases.borrow_mut();
        leases.retain(|lease| {
            let lasts = (lease.clock)() < lease.expires;
            if !lasts {
                self.ledger.leave(word, lease.who);
            }
            lasts
        });
        let (expires, client) = (guard.expires().expect("a lease"), client.clone());
        if client.endpoint().now() < expires {
            self.ledger.enter(word, who, guard.mode(), guard.token());
            let clock = Rc::new(move || client.endpoint().now());
            leases.push(Lease { who, expires, clock });
        }
    }

    fn leave(&self, word: Addr, who: u64) {
        let leases = &mut *self.leases.borrow_mut();
        let before = leases.len();
        leases.retain(|lease| lease.who != who);
        if leases.len() < before {
            self.ledger.leave(word, who);
        }
    }
}

/// Stops one of these now and then, for up to eight leases.
pub(crate) fn stop_now_and_then(world: &World, ids: Vec<EndpointId>, lease_ns: Nanos) {
    let (stopper, handle) = (world.endpoint(), world.handle());
    world.spawn(stopper.id(), async move {
        for _ in 0..40 {
            stopper.sleep(stopper.random() % (4 * lease_ns)).await;
            let who = ids[stopper.random() as usize % ids.len()];
            handle.pause(who, stopper.random() % (8 * lease_ns));
        }
    });
}

/// Clients hold for any time up to two leases, some never release, and now and then one of them is
/// stopped for up to eight leases, wherever it is. Nobody is inside with another while its lease
/// lasts, and tokens go on.
struct Soak(u64);

const SOAKING: u64 = 6;

impl Story for Soak {
    fn play<L: Lock<SimEndpoint>>(self, lock: L) {
        let world = world(self.0);
        let (handle, word) = (world.handle(), world.region(world.node(), room::<L>()));
        let inside = Inside::default();
        let mut ids = Vec::new();
        for who in 0..SOAKING {
            let (client, inside) = (client(&handle, &lock), inside.clone());
            ids.push(client.endpoint().id());
            world.spawn(client.endpoint().id(), async move {
                let endpoint = client.endpoint();
                for _ in 0..30 {
                    let chance = endpoint.random();
                    let mode = if chance & 1 == 0 { Mode::Shared } else { Mode::Exclusive };
                    let guard = client.acquire(word, mode).await.expect("acquires");
                    inside.enter((word, who), &client, &guard);
                    let hold = match chance >> 1 & 15 {
                        0 => (chance >> 8) % (2 * LEASE_NS),
                        _ => (chance >> 8) % (LEASE_NS / 8),
                    };
                    endpoint.sleep(hold).await;
                    inside.leave(word, who);
                    match chance >> 5 & 15 {
                        0 => guard.abandon(),
                        _ => part(guard).await,
                    }
                }
            });
        }
        stop_now_and_then(&world, ids, LEASE_NS);
        assert_eq!(world.run_until(TIME_NS_MAX), Ended::Finished, "seed {}", self.0);
        inside.ledger.assert_clean(&format!("seed {}", self.0));
    }
}

#[test]
fn nobody_is_inside_with_another_while_its_lease_lasts() {
    for seed in 0..200 {
        leased().iter().for_each(|lock| tell(lock, Soak(seed)));
    }
}

/// Plays what every lock with leases does with one that no list has.
pub(crate) fn every_story<L: Lock<SimEndpoint>>(lock: &L, seed: u64) {
    for mode in [Mode::Exclusive, Mode::Shared] {
        Overstays(seed, mode).play(lock.clone());
    }
    Deadlock(seed).play(lock.clone());
    Soak(seed).play(lock.clone());
}

/// One client hands the lock to another that is stopped, and wakes when a third was patient: the
/// third has the lock alone, and the second finds that its message is too old.
struct SleepsThroughItsTurn(u64);

impl Story for SleepsThroughItsTurn {
    fn play<L: Lock<SimEndpoint>>(self, lock: L) {
        // Who comes when is the story, so that no verb is late.
        let config = Config { seed: self.0, weakness: Weakness::NONE, ..Config::default() };
        let world = World::new(config);
        let (handle, word) = (world.handle(), world.region(world.node(), room::<L>()));
        let [gives, sleeps, waits] = std::array::from_fn(|_| client(&handle, &lock));
        let inside = Inside::default();
        let judge = inside.clone();
        let sleeper = sleeps.endpoint().id();
        let (given, slept) = (Rc::new(RefCell::new(false)), world.handle());
        let told = Rc::clone(&given);
        world.spawn(gives.endpoint().id(), async move {
            let guard = gives.exclusive(word).await.expect("the lock is free");
            gives.endpoint().sleep(LEASE_NS / 2).await;
            slept.pause(sleeper, 8 * LEASE_NS);
            part(guard).await;
            *told.borrow_mut() = true;
        });
        let second = world.spawn(sleeper, async move {
            sleeps.endpoint().sleep(LEASE_NS / 8).await;
            let guard = sleeps.exclusive(word).await.expect("acquires");
            inside.enter((word, 1), &sleeps, &guard);
            let left = guard.expires().expect("a lease").saturating_sub(sleeps.endpoint().now());
            sleeps.endpoint().sleep(left / 2).await;
            inside.leave(word, 1);
            part(guard).await;
            sleeps.events().restarted
        });
        let ledger = judge.ledger.clone();
        let third = world.spawn(waits.endpoint().id(), async move {
            waits.endpoint().sleep(LEASE_NS / 4).await;
            // Whenever the second wakes, the third is inside.
            for _ in 0..10 {
                let guard = waits.exclusive(word).await.expect("acquires");
                judge.enter((word, 2), &waits, &guard);
                waits.endpoint().sleep(LEASE_NS * 3 / 4).await;
                judge.leave(word, 2);
                part(guard).await;
            }
            waits.events().repaired
        });
        assert_eq!(world.run_until(TIME_NS_MAX), Ended::Finished, "seed {}", self.0);
        ledger.assert_clean(&format!("seed {}", self.0));
        assert!(*given.borrow(), "the first has released");
        assert_eq!((second.take(), third.take()), (Some(1), Some(1)), "seed {}", self.0);
    }
}

/// ShiftLock with leases, with and without strict releases.
fn handed_over() -> [String; 2] {
    ["", ":strict"].map(|strict| format!("shiftlock:lease={LEASE_NS}{strict}"))
}

#[test]
fn a_grant_that_was_slept_through_is_none() {
    for seed in 0..40 {
        handed_over().iter().for_each(|lock| tell(lock, SleepsThroughItsTurn(seed)));
    }
}

/// One client holds for most of its lease and hands the lock to another, whose own lease begins
/// when it learns of that.
struct HandsOver(u64);

impl Story for HandsOver {
    fn play<L: Lock<SimEndpoint>>(self, lock: L) {
        let config = Config { seed: self.0, weakness: Weakness::NONE, ..Config::default() };
        let world = World::new(config);
        let (handle, word) = (world.handle(), world.region(world.node(), room::<L>()));
        let [gives, takes] = std::array::from_fn(|_| client(&handle, &lock));
        world.spawn(gives.endpoint().id(), async move {
            let guard = gives.exclusive(word).await.expect("the lock is free");
            gives.endpoint().sleep(LEASE_NS * 3 / 4).await;
            guard.release().await.expect("in time");
        });
        let left = world.spawn(takes.endpoint().id(), async move {
            takes.endpoint().sleep(LEASE_NS / 4).await;
            let guard = takes.exclusive(word).await.expect("acquires");
            let left = guard.expires().expect("a lease") - takes.endpoint().now();
            guard.release().await.expect("in time");
            left
        });
        assert_eq!(world.run_until(TIME_NS_MAX), Ended::Finished);
        // Its holder's clock may go wrong by one part in 10,000.
        assert_eq!(left.take(), Some(LEASE_NS - LEASE_NS / 10_000), "seed {}", self.0);
    }
}

#[test]
fn a_lock_that_is_handed_over_is_held_for_a_whole_lease() {
    for seed in 0..20 {
        handed_over().iter().for_each(|lock| tell(lock, HandsOver(seed)));
    }
}

/// The lease of long reads, in nanoseconds. Looking around for the dead, which takes a tenth of it,
/// must not take the eighth slot.
const READ_LEASE_NS: Nanos = 1_000_000;

/// One client reads for seven leases, others write now and then. Returns how many of the long reads
/// were cut short. (Two stories: as one they would be compiled for each pair of locks.)
fn long_reads_cut_short(lock: &str, long: &str) -> usize {
    let world = world(7);
    let mut word = None;
    tell(lock, ShortWrites { world: &world, word: &mut word });
    let mut task = None;
    tell(long, LongReads { world: &world, word: word.expect("told"), task: &mut task });
    assert_eq!(world.run_until(TIME_NS_MAX), Ended::Finished);
    task.and_then(|task| task.take()).expect("it has finished")
}

struct ShortWrites<'s> {
    world: &'s World,
    word: &'s mut Option<Addr>,
}

impl Story for ShortWrites<'_> {
    fn play<L: Lock<SimEndpoint>>(self, lock: L) {
        let word = self.world.region(self.world.node(), room::<L>());
        *self.word = Some(word);
        for _ in 0..3 {
            let client = client(&self.world.handle(), &lock);
            self.world.spawn(client.endpoint().id(), async move {
                for _ in 0..60 {
                    part(client.exclusive(word).await.expect("acquires")).await;
                    client.endpoint().sleep(client.endpoint().random() % READ_LEASE_NS).await;
                }
            });
        }
    }
}

struct LongReads<'s> {
    world: &'s World,
    word: Addr,
    task: &'s mut Option<farlock_sim::Task<usize>>,
}

impl Story for LongReads<'_> {
    fn play<L: Lock<SimEndpoint>>(self, lock: L) {
        let (word, reader) = (self.word, client(&self.world.handle(), &lock));
        *self.task = Some(self.world.spawn(reader.endpoint().id(), async move {
            let mut cut = 0;
            for _ in 0..LONG_READS {
                let guard = reader.shared(word).await.expect("acquires");
                let mut work = pin!(reader.endpoint().sleep(7 * READ_LEASE_NS));
                work.as_mut().await;
                cut += usize::from(guard.expires() <= Some(reader.endpoint().now()));
                part(guard).await;
            }
            cut
        }));
    }
}

const LONG_READS: usize = 20;

/// Section 5.1: a ticket worth several slots makes time for a long read.
#[test]
fn long_reads_take_several_slots() {
    for lock in ["dslr", "dslr-64"] {
        let fixed = format!("{lock}:lease={READ_LEASE_NS}:slots-max=8");
        assert_eq!(long_reads_cut_short(&fixed, &fixed), LONG_READS);
        assert_eq!(long_reads_cut_short(&fixed, &format!("{fixed}:slots=8")), 0);
    }
}
