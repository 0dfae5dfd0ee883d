//! Bounded bypass among clients that outnumber processors: when they yield, and how often.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};

use farlock_fabric::hook::{self, Counted, Counts};
use farlock_fabric::{Addr, Endpoint, Nanos, Wait, WaitState, Woken};
use farlock_locks::record::claim::Claim;
use farlock_locks::record::shiftlock::ShiftLock;
use farlock_locks::{Client, Lock, Mode, Options};
use farlock_sim::{Config, Ended, Handle, SimEndpoint, World};

/// How often a newcomer yields here.
const YIELDS: u8 = 3;
/// Releases in a turn: four rounds of the count, with one that may pass in each.
const TURN: u64 = 8;
/// How often a turn is doubled before there are none.
const DOUBLINGS: u32 = 12;
/// More than a newcomer takes to get in line.
const A_WHILE: Nanos = 100_000;
/// Far more than any of this takes, in virtual nanoseconds.
const TIME_NS_MAX: Nanos = 10_000_000_000;

type Counting = Client<Counted<SimEndpoint>, ShiftLock>;

fn client(handle: &Handle) -> Counting {
    let lock = ShiftLock { bypass: 1, newcomer_yields: Some(YIELDS), ..ShiftLock::default() };
    Client::new(Counted::new(handle.endpoint()), lock, Options::new(1))
}

/// Acquires and releases so often. Returns what that cost.
async fn cycles(client: &Counting, word: Addr, times: u64) -> Counts {
    let before = client.endpoint().counts();
    for _ in 0..times {
        let guard = client.exclusive(word).await.expect("it is granted");
        guard.release().await.expect("it is released");
    }
    client.endpoint().counts() - before
}

#[test]
fn a_newcomer_gives_way_so_often_and_then_gets_in_line() {
    let world = World::new(Config { endpoints: 4, ..Config::default() });
    let (handle, word) = (world.handle(), world.region(world.node(), 64));
    let (holder, newcomer) = (client(&handle), client(&handle));
    let cost = Rc::new(Cell::new(Counts::default()));
    let told = Rc::clone(&cost);
    let waiting = world.spawn(newcomer.endpoint().id(), async move {
        newcomer.endpoint().sleep(A_WHILE).await;
        told.set(cycles(&newcomer, word, 1).await);
    });
    world.spawn(holder.endpoint().id(), async move {
        let guard = holder.exclusive(word).await.expect("the lock is free");
        holder.endpoint().sleep(3 * A_WHILE).await;
        guard.release().await.expect("it is released");
    });
    assert_eq!(world.run_until(TIME_NS_MAX), Ended::Finished);
    assert!(waiting.take().is_some());
    let cost = cost.get();
    // It looks after each time that it yielded; then it reports to the holder before.
    assert_eq!((cost.reads, cost.sends), (u64::from(YIELDS), 1));
}

/// An endpoint that counts how often it yields: by waits for no time at all.
struct Yielding {
    inner: SimEndpoint,
    yields: Rc<Cell<u64>>,
}

impl hook::Hook for Yielding {
    type Inner = SimEndpoint;

    fn inner(&self) -> &SimEndpoint {
        &self.inner
    }

    fn poll_wait(
        &self,
        wait: &Wait<'_>,
        state: &mut WaitState,
        cx: &mut Context<'_>,
    ) -> Poll<Woken> {
        let woken = self.inner.poll_wait(wait, state, cx);
        let has_yielded = woken.is_ready() && wait.interval == Some(0);
        self.yields.set(self.yields.get() + u64::from(has_yielded));
        woken
    }
}

/// How often a newcomer yields to a lock that is held until it is in line.
fn yields_of_a_newcomer<L: Lock<Yielding, Want = Mode>>(lock: &L) -> u64 {
    let world = World::new(Config { endpoints: 4, ..Config::default() });
    let (handle, word) = (world.handle(), world.region(world.node(), 64));
    let yields = Rc::new(Cell::new(0));
    for (comes, holds) in [(1, 3 * A_WHILE), (A_WHILE, 1)] {
        let endpoint = Yielding { inner: handle.endpoint(), yields: Rc::clone(&yields) };
        let client = Client::new(endpoint, lock.clone(), Options::new(1));
        world.spawn(client.endpoint().id(), async move {
            client.endpoint().sleep(comes).await;
            let guard = client.exclusive(word).await.expect("it is granted");
            client.endpoint().sleep(holds).await;
            guard.release().await.expect("it is released");
        });
    }
    assert_eq!(world.run_until(TIME_NS_MAX), Ended::Finished);
    yields.get()
}

#[test]
fn a_newcomer_yields_as_often_as_its_lock_was_told() {
    for yields in [0, 1, YIELDS] {
        let newcomer_yields = Some(yields);
        let claim = Claim { bypass: 1, newcomer_yields, ..Claim::default() };
        assert_eq!(yields_of_a_newcomer(&claim), yields.into(), "claim");
        let shiftlock = ShiftLock { bypass: 1, newcomer_yields, ..ShiftLock::default() };
        assert_eq!(yields_of_a_newcomer(&shiftlock), yields.into(), "shiftlock");
    }
}

#[test]
fn who_is_alone_gives_way_ever_more_seldom() {
    let world = World::new(Config { endpoints: 4, ..Config::default() });
    let (handle, word) = (world.handle(), world.region(world.node(), 64));
    let (other, client) = (client(&handle), client(&handle));
    let done = world.spawn(client.endpoint().id(), async move {
        client.endpoint().sleep(A_WHILE).await;
        // The other one holds, so that this one waits and has a turn.
        cycles(&client, word, 1).await;
        let turn = cycles(&client, word, TURN - 1).await;
        assert_eq!((turn.atomics, turn.reads, turn.waits), (2 * (TURN - 1), 0, 0));
        for doubled in 1..=DOUBLINGS {
            // The turn is over: it looks, yields, looks again, and nobody has acquired.
            let turn = cycles(&client, word, TURN << doubled).await;
            assert_eq!((turn.atomics, turn.reads, turn.waits), ((2 * TURN) << doubled, 2, 1));
        }
        let last = cycles(&client, word, 1).await;
        assert_eq!((last.reads, last.waits), (2, 1));
        let alone = cycles(&client, word, TURN << (DOUBLINGS + 2)).await;
        assert_eq!((alone.reads, alone.waits), (0, 0));
    });
    world.spawn(other.endpoint().id(), async move {
        let guard = other.exclusive(word).await.expect("the lock is free");
        other.endpoint().sleep(3 * A_WHILE).await;
        guard.release().await.expect("it is released");
    });
    assert_eq!(world.run_until(TIME_NS_MAX), Ended::Finished);
    assert!(done.take().is_some());
}

#[test]
fn who_is_not_alone_gives_way_in_every_turn() {
    let world = World::new(Config { endpoints: 4, ..Config::default() });
    let (handle, word) = (world.handle(), world.region(world.node(), 64));
    let waits = Rc::new(Cell::new(0));
    for _ in 0..2 {
        let (client, waits) = (client(&handle), Rc::clone(&waits));
        world.spawn(client.endpoint().id(), async move {
            let cost = cycles(&client, word, 40 * TURN).await;
            waits.set(waits.get() + cost.waits);
        });
    }
    assert_eq!(world.run_until(TIME_NS_MAX), Ended::Finished);
    assert!(waits.get() >= 2 * 40, "yielded and waited {} times", waits.get());
}
