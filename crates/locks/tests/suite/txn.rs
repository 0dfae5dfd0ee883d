//! Transactions: deadlocks end, money is neither made nor lost, and leases are looked at.

use std::cell::Cell;
use std::rc::Rc;

use farlock_fabric::shm::Region;
use farlock_fabric::{Addr, Endpoint, Fault, Link, Nanos, Verb, block_on};
use farlock_locks::registry::{self, Visitor};
use farlock_locks::txn::{Abort, Locked, Options, Txn, transact};
use farlock_locks::{Client, Lock, Mode};
use farlock_sim::{Config, Ended, Outcome, Ratio, SimEndpoint, Weakness, World};

use crate::region::Dir;

/// Far more than any story takes, in virtual nanoseconds.
const TIME_NS_MAX: Nanos = 60_000_000_000;
const OPTIONS: Options = Options {
    patience_ns: Some(200_000),
    retries_max: None,
    restart_ns: 20_000,
    attempts_max: 1_000,
};

fn world(seed: u64) -> World {
    let weakness = Weakness { lost: Ratio::NEVER, ..Weakness::FULL };
    World::new(Config { seed, weakness, endpoints: 16, slots_per_endpoint: 8, ..Config::default() })
}

fn client<E: Endpoint, L: Lock<E>>(endpoint: E, lock: &L) -> Client<E, L> {
    Client::new(endpoint, lock.clone(), farlock_locks::Options::new(1))
}

/// A story of one lock in one world.
trait Story {
    fn play<L: Lock<SimEndpoint>>(self, world: &World, lock: L);
}

struct Told<'w, S>(&'w World, S);

impl<S: Story> Visitor<SimEndpoint> for Told<'_, S> {
    type Output = ();

    fn visit<L: Lock<SimEndpoint>>(self, lock: L) {
        self.1.play(self.0, lock);
    }
}

fn tell<S: Story>(spec: &str, world: &World, story: S) {
    registry::visit(spec, Told(world, story)).expect("the lock is registered");
}

/// Two transactions take two locks in opposite order, each its first before either its second.
struct Deadlock(Rc<Cell<u32>>, Options);

impl Story for Deadlock {
    fn play<L: Lock<SimEndpoint>>(self, world: &World, lock: L) {
        let base = world.region(world.node(), 128);
        let tasks: Vec<_> = (0..2)
            .map(|who| {
                let (client, attempts) = (client(world.endpoint(), &lock), Rc::clone(&self.0));
                let options = self.1;
                let order = [base.plus(who * 64), base.plus((1 - who) * 64)];
                world.spawn(client.endpoint().id(), async move {
                    let body = async |txn: &mut Txn<'_, _, _>| {
                        attempts.set(attempts.get() + 1);
                        txn.lock(order[0], Mode::Exclusive).await?;
                        client.endpoint().sleep(100_000).await;
                        txn.lock(order[1], Mode::Exclusive).await.map(|_| ())
                    };
                    transact(&client, options, body).await
                })
            })
            .collect();
        assert_eq!(world.run_until(TIME_NS_MAX), Ended::Finished);
        assert!(tasks.iter().all(|task| task.take() == Some(Ok(()))));
    }
}

#[test]
fn two_that_wait_for_each_other_give_up_and_begin_again() {
    for spec in ["cas", "retry-on-fail", "ncosed", "rma-rw", "mcs", "dslr", "shiftlock"] {
        let attempts = Rc::new(Cell::new(0));
        for seed in 0..20 {
            tell(spec, &world(seed), Deadlock(Rc::clone(&attempts), OPTIONS));
        }
        assert!(attempts.get() > 60, "{spec}: {} attempts of 40", attempts.get());
    }
}

/// Of a lock that retries, so many retries are a time-out.
#[test]
fn two_that_retry_for_each_other_give_up_and_begin_again() {
    let options = Options { patience_ns: None, retries_max: Some(16), ..OPTIONS };
    for spec in ["cas", "cas-nb", "retry-on-fail", "drtm"] {
        let attempts = Rc::new(Cell::new(0));
        for seed in 0..20 {
            tell(spec, &world(seed), Deadlock(Rc::clone(&attempts), options));
        }
        assert!(attempts.get() > 60, "{spec}: {} attempts of 40", attempts.get());
    }
}

const ACCOUNTS: u64 = 5;
const MONEY: u64 = 1_000;

/// Where an account's lock lies, and the account.
fn lock_of(base: Addr, account: u64) -> Addr {
    base.plus(account * 128)
}

fn account_at(base: Addr, account: u64) -> Addr {
    lock_of(base, account).plus(64)
}

async fn balance<E: Endpoint>(endpoint: &E, base: Addr, account: u64) -> Result<u64, Fault> {
    endpoint.read64(account_at(base, account)).await?;
    Ok(endpoint.old() as u64)
}

/// Moves some money between two accounts, locked in whatever order they come.
async fn transfer<E: Endpoint, L: Lock<E>>(client: &Client<E, L>, base: Addr) -> Result<(), Abort> {
    let endpoint = client.endpoint();
    let chance = endpoint.random();
    let (from, to) = (chance % ACCOUNTS, (chance >> 20) % ACCOUNTS);
    transact(client, OPTIONS, async |txn| {
        txn.lock(lock_of(base, from), Mode::Exclusive).await?;
        txn.lock(lock_of(base, to), Mode::Exclusive).await?;
        let has = balance(endpoint, base, from).await?;
        let amount = (chance >> 40) % (has + 1);
        if from == to {
            return Ok(());
        }
        let gets = balance(endpoint, base, to).await? + amount;
        txn.validate()?;
        let (rest, gets) = ([has - amount], [gets]);
        // In one chain: a client that dies has moved all of it or nothing.
        let write = |account, data| Verb::Write { addr: account_at(base, account), data };
        let both: [Link<'_>; 2] = [write(from, &rest).into(), write(to, &gets).into()];
        Ok(endpoint.chain(&both).await?)
    })
    .await
}

/// All the money, read under all locks.
async fn audit<E: Endpoint, L: Lock<E>>(client: &Client<E, L>, base: Addr) -> Result<u64, Abort> {
    transact(client, OPTIONS, async |txn| {
        let all: Vec<_> = (0..ACCOUNTS).map(|i| (lock_of(base, i), Mode::Shared)).collect();
        txn.lock_all(&all).await?;
        let mut sum = 0;
        for account in 0..ACCOUNTS {
            sum += balance(client.endpoint(), base, account).await?;
        }
        txn.validate()?;
        Ok(sum)
    })
    .await
}

/// Clients move money and audit; some die at some verb.
struct Bank {
    seed: u64,
    deaths: u64,
}

impl Story for Bank {
    fn play<L: Lock<SimEndpoint>>(self, world: &World, lock: L) {
        let base = world.region(world.node(), ACCOUNTS * 128);
        (0..ACCOUNTS).for_each(|account| world.poke(account_at(base, account), MONEY));
        let tasks: Vec<_> = (0..5)
            .map(|who| {
                let client = client(world.endpoint(), &lock);
                let id = client.endpoint().id();
                if who < self.deaths {
                    let verb = self.seed * 7 % 40 + who * 11;
                    world.crash_at(id, verb, Outcome::ALL[(self.seed % 3) as usize]);
                }
                world.spawn(id, async move {
                    for round in 0..6 {
                        if (who + round) % 3 == 0 {
                            let sum = audit(&client, base).await.expect("an audit commits");
                            assert_eq!(sum, ACCOUNTS * MONEY);
                        } else {
                            transfer(&client, base).await.expect("a transfer commits");
                        }
                    }
                })
            })
            .collect();
        let ended = world.run_until(TIME_NS_MAX);
        assert_eq!(ended, Ended::Finished, "seed {}", self.seed);
        let done = tasks.iter().filter(|task| task.take().is_some()).count() as u64;
        assert!(done >= 5 - self.deaths, "seed {}: {done} are done", self.seed);
        let sum: u64 = (0..ACCOUNTS).map(|account| world.peek(account_at(base, account))).sum();
        assert_eq!(sum, ACCOUNTS * MONEY, "seed {}", self.seed);
    }
}

#[test]
fn money_is_neither_made_nor_lost() {
    for spec in ["cas", "retry-on-fail", "ncosed", "rma-rw", "mcs", "dslr", "shiftlock"] {
        for seed in 0..20 {
            tell(spec, &world(seed), Bank { seed, deaths: 0 });
        }
    }
}

#[test]
fn money_outlives_those_who_die_with_locks_in_their_hands() {
    for spec in ["cas", "mcs", "dslr", "shiftlock"] {
        for seed in 0..60 {
            tell(spec, &world(seed), Bank { seed, deaths: 1 + seed % 2 });
        }
    }
}

/// A transaction outlasts the lease of its first lock: it must not commit.
struct Overlong;

impl Story for Overlong {
    fn play<L: Lock<SimEndpoint>>(self, world: &World, lock: L) {
        let base = world.region(world.node(), 128);
        let client = client(world.endpoint(), &lock);
        world.block_on(async {
            let mut sleeps = [2_000_000, 0].into_iter();
            let mut ends = Vec::new();
            let committed = transact(&client, OPTIONS, async |txn| {
                txn.lock(base, Mode::Exclusive).await?;
                client.endpoint().sleep(sleeps.next().unwrap_or(0)).await;
                txn.lock(base.plus(64), Mode::Exclusive).await?;
                ends.push(txn.validate());
                txn.validate()
            });
            assert_eq!(committed.await, Ok(()));
            assert_eq!(ends[0], Err(Abort::Expired(base)));
            assert_eq!(ends.last(), Some(&Ok(())));
            let committed = transact(&client, OPTIONS, async |txn| {
                txn.lock(base, Mode::Exclusive).await?;
                txn.validate()?;
                client.endpoint().sleep(2_000_000).await;
                Ok(())
            });
            assert_eq!(committed.await, Err(Abort::Late(base)));
        });
    }
}

#[test]
fn who_has_lost_a_lease_does_not_commit() {
    tell("dslr:lease=1000000", &world(1), Overlong);
}

/// A reader becomes a writer only by leaving: another client may write in between, and the reader
/// is told.
struct Upgrade;

impl Story for Upgrade {
    fn play<L: Lock<SimEndpoint>>(self, world: &World, lock: L) {
        let word = world.region(world.node(), 64);
        let (one, other) = (client(world.endpoint(), &lock), client(world.endpoint(), &lock));
        world.block_on(async {
            let mut txn = Txn::begin(&one, OPTIONS);
            assert_eq!(txn.lock(word, Mode::Shared).await, Ok(Locked::New));
            assert_eq!(txn.lock(word, Mode::Shared).await, Ok(Locked::Already));
            assert_eq!(txn.lock(word, Mode::Exclusive).await, Ok(Locked::Anew));
            assert_eq!(txn.lock(word, Mode::Shared).await, Ok(Locked::Already));
            let tried = other.try_acquire(word, Mode::Shared).await.expect("tries");
            assert!(tried.is_none(), "it is held alone");
            txn.commit().await.expect("nothing fails");
            let tried = other.try_acquire(word, Mode::Exclusive).await.expect("tries");
            tried.expect("all is given back").release().await.expect("releases");
        });
    }
}

#[test]
fn an_upgrade_is_told() {
    for spec in ["retry-on-fail", "dslr", "shiftlock"] {
        tell(spec, &world(2), Upgrade);
    }
}

/// Each reads a record, thinks about it, and writes it, while others read. Two readers that both
/// became writers would wait for each other until their patience ends.
struct ReadsThenWrites(Rc<Cell<u32>>);

const WRITERS: u64 = 4;
const WRITES: u64 = 8;

impl Story for ReadsThenWrites {
    fn play<L: Lock<SimEndpoint>>(self, world: &World, lock: L) {
        let base = world.region(world.node(), 128);
        let (word, record) = (base, base.plus(64));
        let patient = Options { patience_ns: Some(TIME_NS_MAX / 2), ..OPTIONS };
        let mut tasks = Vec::new();
        for who in 0..2 * WRITERS {
            let (client, attempts) = (client(world.endpoint(), &lock), Rc::clone(&self.0));
            let id = client.endpoint().id();
            tasks.push(world.spawn(id, async move {
                let endpoint = client.endpoint();
                for _ in 0..WRITES {
                    let body = async |txn: &mut Txn<'_, _, _>| {
                        attempts.set(attempts.get() + 1);
                        if who >= WRITERS {
                            txn.lock(word, Mode::Shared).await?;
                            endpoint.sleep(20_000).await;
                            return Ok(());
                        }
                        assert_eq!(txn.update(word).await?, Locked::New);
                        assert_eq!(txn.update(word).await?, Locked::Already);
                        assert_eq!(txn.lock(word, Mode::Shared).await?, Locked::Already);
                        assert!(txn.guard(word).is_none(), "it may not write yet");
                        endpoint.read64(record).await?;
                        let value = endpoint.old() as u64;
                        endpoint.sleep(10_000).await;
                        assert_eq!(txn.lock(word, Mode::Exclusive).await?, Locked::Upgraded);
                        assert_eq!(txn.update(word).await?, Locked::Already);
                        assert!(txn.guard(word).is_some(), "it may write");
                        txn.validate()?;
                        endpoint.verb(Verb::Write { addr: record, data: &[value + 1] }).await?;
                        Ok(())
                    };
                    transact(&client, patient, body).await?;
                }
                Ok::<(), Abort>(())
            }));
        }
        assert_eq!(world.run_until(TIME_NS_MAX), Ended::Finished);
        assert!(tasks.iter().all(|task| task.take() == Some(Ok(()))));
        assert_eq!(world.peek(record), WRITERS * WRITES, "no write is lost");
    }
}

#[test]
fn who_reads_then_writes_the_same_record_aborts_nobody() {
    for spec in ["dslr", "dslr-64", "mcs", "shiftlock", "cas"] {
        let attempts = Rc::new(Cell::new(0));
        for seed in 0..10 {
            tell(spec, &world(seed), ReadsThenWrites(Rc::clone(&attempts)));
        }
        assert_eq!(u64::from(attempts.get()), 10 * 2 * WRITERS * WRITES, "{spec}");
    }
}

/// Leases of what is held to update count as those of any hold, and an upgrade behind a reader that
/// overstays is lost: the transaction begins again.
struct UpdatesTooLong;

impl Story for UpdatesTooLong {
    fn play<L: Lock<SimEndpoint>>(self, world: &World, lock: L) {
        let word = world.region(world.node(), 64);
        let (one, other) = (client(world.endpoint(), &lock), client(world.endpoint(), &lock));
        world.block_on(async {
            let mut txn = Txn::begin(&one, OPTIONS);
            assert_eq!(txn.update(word).await, Ok(Locked::New));
            assert_eq!(txn.validate(), Ok(()));
            one.endpoint().sleep(2_000_000).await;
            assert_eq!(txn.validate(), Err(Abort::Expired(word)));
            assert_eq!(txn.abort().await, Ok(()));
            let reader = other.shared(word).await.expect("acquires");
            let attempts = Cell::new(0);
            let options = Options { patience_ns: None, ..OPTIONS };
            let committed = transact(&one, options, async |txn| {
                attempts.set(attempts.get() + 1);
                txn.update(word).await?;
                txn.lock(word, Mode::Exclusive).await.map(|_| ())
            });
            assert_eq!(committed.await, Ok(()));
            assert_eq!(attempts.get(), 2);
            assert!(reader.release().await.is_err(), "it has overstayed");
        });
    }
}

#[test]
fn who_updates_too_long_begins_again() {
    tell("dslr:lease=1000000", &world(3), UpdatesTooLong);
}

/// A reader that comes to update leaves first, as one does that comes to write.
#[test]
fn a_reader_that_comes_to_update_is_told_that_it_left() {
    struct Leaves;
    impl Story for Leaves {
        fn play<L: Lock<SimEndpoint>>(self, world: &World, lock: L) {
            let word = world.region(world.node(), 64);
            let client = client(world.endpoint(), &lock);
            world.block_on(async {
                let mut txn = Txn::begin(&client, OPTIONS);
                assert_eq!(txn.lock(word, Mode::Shared).await, Ok(Locked::New));
                assert_eq!(txn.update(word).await, Ok(Locked::Anew));
                assert_eq!(txn.commit().await, Ok(()));
            });
        }
    }
    tell("dslr", &world(4), Leaves);
}

/// The bank on shared memory, each client a thread.
#[test]
fn threads_move_money_on_shared_memory() {
    let (_dir, options) = Dir::new();
    let region = Region::open(&options).expect("a region can be created");
    let base = region.heap().0;
    let own = region.endpoint().expect("the region is empty");
    for account in 0..ACCOUNTS {
        let verb = Verb::Write { addr: account_at(base, account), data: &[MONEY] };
        block_on(&own, own.verb(verb)).expect("memory is written");
    }
    std::thread::scope(|scope| {
        for who in 0..4 {
            let region = region.clone();
            scope.spawn(move || {
                let endpoint = region.endpoint().expect("there is a place");
                let lock = farlock_locks::record::shiftlock::ShiftLock::default();
                let client = client(endpoint, &lock);
                for round in 0..200 {
                    if (who + round) % 8 == 0 {
                        let sum = client.block_on(audit(&client, base));
                        assert_eq!(sum, Ok(ACCOUNTS * MONEY));
                    } else {
                        client.block_on(transfer(&client, base)).expect("a transfer commits");
                    }
                }
            });
        }
    });
}
