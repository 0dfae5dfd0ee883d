//! The suite on shared memory. Interleavings within a verb are the benchmark's and the storm's
//! business; here every wait, message and wake-up is the real one.

use std::cell::Cell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Mutex;
use std::task::{Context, Waker};

use farlock_fabric::shm::Host;
use farlock_fabric::{Endpoint, Slot, Verb};
use farlock_locks::record::mcs::Mcs;
use farlock_locks::registry::{self, Visitor};
use farlock_locks::{Client, Lock, Mode, Options, slot};

use crate::region::{Dir, RegionStage};
use crate::setting::play;
use crate::{Stage, every_case, every_local_case, room, specs};

type ShmStage = RegionStage<Host, (), 100_000>;

impl ShmStage {
    fn new() -> Self {
        let (dir, options) = Dir::new();
        Self::on(Host::open(&options).expect("a region can be created"), (), dir)
    }

    /// One that lets others play while its clients wait for time to pass: of cases in which it does
    /// not matter if they wake late.
    fn among_others() -> Self {
        let mut stage = Self::new();
        stage.yields = true;
        stage
    }
}

macro_rules! on_shm {
    ($name:ident, $case:path) => {
        #[test]
        fn $name() {
            play(ShmStage::new, $case);
        }
    };
}

every_case!(on_shm);
every_local_case!(on_shm);

/// A client that is dropped in the middle of waiting is as good as dead, and its peers must see
/// that: what it waited for must not keep its endpoint.
#[test]
fn a_client_dropped_while_it_waits_lets_go_of_its_endpoint() {
    let mut stage = ShmStage::new();
    let word = stage.memory(64);
    let mut client = || Client::new(stage.endpoint(), Mcs::default(), Options::new(1));
    let (holder, waiter) = (client(), client());
    let id = waiter.endpoint().id();
    let mut cx = Context::from_waker(Waker::noop());
    let mut held = pin!(holder.exclusive(word));
    assert!(held.as_mut().poll(&mut cx).is_ready(), "nobody has it");
    let mut waits = Box::pin(waiter.exclusive(word));
    assert!(waits.as_mut().poll(&mut cx).is_pending(), "it is held");
    drop(waits);
    assert!(holder.endpoint().is_alive(id), "it has yet to settle");
    drop(waiter);
    assert!(!holder.endpoint().is_alive(id), "nobody is left to settle");
}

/// A client has released and is stopped before its record says so, and another dies holding: a
/// waiter that looks around for the dead takes the living one for a holder. When the record has
/// changed it looks again.
struct LateRecord(&'static str);

impl Visitor<<ShmStage as Stage>::Endpoint> for LateRecord {
    type Output = ();

    fn visit<L: Lock<<ShmStage as Stage>::Endpoint>>(self, lock: L) {
        let promises = lock.promises();
        if !promises.excludes || promises.lease_ns.is_some() || !promises.outlives_clients {
            return;
        }
        for mode in [Mode::Shared, Mode::Exclusive] {
            if L::SHARES || mode == Mode::Exclusive {
                let ended = stage_late_record(&mut ShmStage::among_others(), &lock, mode);
                assert!(ended, "{}: {mode:?} holds: the next one waits for ever", self.0);
            }
        }
    }
}

fn stage_late_record<L: Lock<<ShmStage as Stage>::Endpoint>>(
    stage: &mut ShmStage,
    lock: &L,
    mode: Mode,
) -> bool {
    let word = stage.memory(room::<L>());
    let [dead, late, next] =
        std::array::from_fn(|_| Client::new(stage.endpoint(), lock.clone(), Options::new(1)));
    let granted = Rc::new(Cell::new(false));
    let is_granted = Rc::clone(&granted);
    stage.run(vec![
        Box::pin(async move {
            let guard = late.acquire(word, mode).await.expect("acquires");
            let endpoint = late.endpoint();
            let addr = endpoint.record(endpoint.id().index, Slot(0));
            endpoint.verb(Verb::Read { addr, words: 1 }).await.expect("reads");
            let mut held = [0];
            endpoint.copy_read(0, &mut held);
            guard.release().await.expect("releases");
            let _ = ManuallyDrop::new(dead.acquire(word, mode).await.expect("acquires"));
            drop(dead);
            endpoint.publish(Slot(0), slot::STATE, held[0]);
            endpoint.sleep(100 * ShmStage::STEP_NS).await;
            endpoint.publish(Slot(0), slot::STATE, 0);
            while !is_granted.get() {
                endpoint.sleep(10 * ShmStage::STEP_NS).await;
            }
        }),
        Box::pin(async move {
            next.endpoint().sleep(10 * ShmStage::STEP_NS).await;
            let guard = next.exclusive(word).await.expect("acquires");
            granted.set(true);
            guard.release().await.expect("releases");
        }),
    ])
}

/// So many locks at once are played: they wait for time to pass.
const PLAYED_AT_ONCE: usize = 8;

#[test]
fn a_record_that_is_late() {
    let specs = Mutex::new(specs());
    let next = || specs.lock().expect("nobody panics with it").next();
    std::thread::scope(|scope| {
        for _ in 0..PLAYED_AT_ONCE {
            scope.spawn(|| {
                while let Some(spec) = next() {
                    registry::visit(spec, LateRecord(spec)).expect("it is of the registry");
                }
            });
        }
    });
}
