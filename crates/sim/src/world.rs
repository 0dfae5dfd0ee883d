//! A world: memory nodes, endpoints, tasks, and the loop that lets events happen.
//!
//! Tasks are futures on this thread. An event knows whose it is, so tasks are polled directly and
//! wakers do nothing. Between two events every task that can go on has gone on as far as it can;
//! computing takes no virtual time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Waker};

use farlock_fabric::endpoint::RECORD_WORDS;
use farlock_fabric::{Addr, EndpointId, Nanos, RegionId, Slot};

use crate::config::Config;
use crate::core::Core;
use crate::fabric::SimEndpoint;
use crate::fault::{Outcome, Ratio};
use crate::flight::NONE;
use crate::history::{FateObserver, Kind, Observer, Stats};
use crate::memory::{Node, NodeId, RECORDS, Reset};
use crate::nic::NicState;
use crate::oracle::{Choice, Oracle, Seeded};
use crate::packet::{Packet, Receiver};
use crate::seat::Life;
use crate::shared::{BoxedFuture, Shared};

/// A task, in the order in which tasks were spawned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskId(pub u32);

/// How a run ended. The tasks named have neither finished nor been killed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Every task has finished or was killed, and nothing is pending.
    Finished,
    /// Nothing is pending, and these tasks wait for ever.
    Deadlock(Vec<TaskId>),
    /// The time is up; something is still pending. These tasks are unfinished.
    TimeUp(Vec<TaskId>),
    /// `Config::events_max` events have happened. These tasks are unfinished.
    Budget(Vec<TaskId>),
    /// The oracle wanted no more of this run.
    Abandoned,
}

/// A spawned task and, once it has finished, its result. Dropping this does not end the task.
pub struct Task<T> {
    id: TaskId,
    result: Rc<Cell<Option<T>>>,
}

impl<T> Task<T> {
    /// Which task this is.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// The result, once: `None` while the task is unfinished, if it was killed, or if the result
    /// was taken already.
    pub fn take(&self) -> Option<T> {
        self.result.take()
    }
}

impl<T> std::fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Task").field(&self.id.0).finish()
    }
}

/// A world. Dropping it drops its tasks; endpoints that are left do nothing more.
///
/// Everything that needs no ownership is on [`Handle`], to which this dereferences.
pub struct World {
    handle: Handle,
}

impl World {
    /// A world with one memory node, on which the records of all endpoints lie, and no task.
    ///
    /// # Panics
    /// If a bound that [`Config`] states is broken.
    pub fn new(config: Config) -> Self {
        Self::with_oracle(config, Box::new(Seeded::new(config.seed)))
    }

    /// As [`World::new`], with every choice made by this oracle.
    pub fn with_oracle(config: Config, oracle: Box<dyn Oracle>) -> Self {
        let mut core = Core::new(config, oracle);
        core.nodes.push(Node::new(&config.nic));
        let records = (u64::from(config.endpoints) + 1) * u64::from(config.slots_per_endpoint);
        let bytes = records * RECORD_WORDS as u64 * 8;
        let region = core.memory.add(NodeId(0), bytes, bytes);
        assert!(region == RECORDS, "the records are the first region");
        let futures = RefCell::new(Vec::new());
        let shared = Shared { core: RefCell::new(core), futures, nodes_named: Cell::new(0) };
        Self { handle: Handle { shared: Rc::new(shared) } }
    }

    /// Lets everything happen until nothing is pending.
    pub fn run(&self) -> Ended {
        let stop = self.advance(Nanos::MAX, NONE, || false);
        self.ended(stop)
    }

    /// Lets things happen until this future has finished. It stands outside the world: no crash
    /// kills it, and it may borrow. What is pending then stays pending.
    ///
    /// # Panics
    /// If it cannot finish: nothing is pending, or the budget of events is spent.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut output = None;
        let stop = self.visited(pin!(async { output = Some(future.await) }));
        output.unwrap_or_else(|| panic!("the future cannot finish: {:?}", self.ended(stop)))
    }

    /// Runs the world until this future, which is no task of it, has finished. Compiled once.
    fn visited(&self, mut future: Pin<&mut dyn Future<Output = ()>>) -> Stop {
        let visitor = {
            let mut core = self.shared.core.borrow_mut();
            let visitor = core.add_task(EndpointId::NOBODY, true);
            self.shared.futures.borrow_mut().push(None);
            core.wake(visitor);
            visitor
        };
        let stop = self.advance(Nanos::MAX, visitor, || {
            self.shared.core.borrow_mut().current = visitor;
            let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            self.shared.core.borrow_mut().current = NONE;
            polled.is_ready()
        });
        self.shared.core.borrow_mut().tasks[visitor as usize].live = false;
        stop
    }

    /// Lets everything happen that happens until this time, which then it is.
    pub fn run_until(&self, time: Nanos) -> Ended {
        let stop = self.advance(time, NONE, || false);
        let ended = self.ended(stop);
        let mut core = self.shared.core.borrow_mut();
        core.now = core.now.max(time);
        ended
    }

    /// Lets events happen until none is left before the limit. `visit` polls the task that is no
    /// task of the world; it returns whether that has finished.
    fn advance(&self, limit: Nanos, visitor: u32, mut visit: impl FnMut() -> bool) -> Stop {
        let shared = &*self.shared;
        let mut core = shared.core.borrow_mut();
        assert!(core.current == NONE, "a task cannot run its own world");
        loop {
            while let Some(task) = core.ready.pop_front() {
                if task != visitor {
                    core = shared.poll(core, task);
                    continue;
                }
                drop(core);
                if shared.is_visited(task) && visit() {
                    return Stop::Visitor;
                }
                core = shared.core.borrow_mut();
            }
            if !core.unburied.is_empty() {
                drop(core);
                shared.bury();
                core = shared.core.borrow_mut();
            } else if !core.halted.is_empty() {
                drop(core);
                self.handle.tells_of_halt();
                core = shared.core.borrow_mut();
            } else if core.history.stats.events >= core.events_max {
                return Stop::Budget;
            } else if !core.step(limit) {
                return Stop::Idle;
            }
        }
    }

    fn ended(&self, stop: Stop) -> Ended {
        let core = self.shared.core.borrow();
        let live = core.tasks.iter().enumerate().filter(|(_, task)| task.live && !task.serves);
        let unfinished: Vec<_> = live.map(|(id, _)| TaskId(id as u32)).collect();
        match stop {
            Stop::Idle if core.abandoned => Ended::Abandoned,
            Stop::Budget => Ended::Budget(unfinished),
            Stop::Visitor => Ended::TimeUp(unfinished),
            Stop::Idle if !core.is_idle() => Ended::TimeUp(unfinished),
            Stop::Idle if unfinished.is_empty() => Ended::Finished,
            Stop::Idle => Ended::Deadlock(unfinished),
        }
    }
}

/// Why events stopped happening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    /// None is left before the limit.
    Idle,
    Budget,
    /// The visitor has finished.
    Visitor,
}

impl Deref for World {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Tasks hold endpoints, and endpoints hold what holds the tasks: break the circle. A task's
        // destructors may still post verbs; nothing will come of them.
        let futures = std::mem::take(&mut *self.shared.futures.borrow_mut());
        drop(futures);
    }
}

/// What may be done to a world by the holder of this handle: a test, a task that injects faults.
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Rc<Shared>,
}

impl Handle {
    /// Another handle, for a task.
    pub fn handle(&self) -> Self {
        self.clone()
    }

    /// A memory node. The first call names the one with the records, each later one makes another.
    pub fn node(&self) -> NodeId {
        let id = NodeId(self.shared.nodes_named.get());
        self.shared.nodes_named.set(id.0 + 1);
        let mut core = self.shared.core.borrow_mut();
        if usize::from(id.0) == core.nodes.len() {
            let nic = core.nic;
            core.nodes.push(Node::new(&nic));
        }
        id
    }

    /// A new region of zeroed memory; returns the address of its first byte. Memory that nobody
    /// touches costs nothing.
    pub fn region(&self, node: NodeId, bytes: u64) -> Addr {
        self.growing_region(node, bytes, bytes)
    }

    /// As [`Handle::region`], with room to grow to `bytes_max`.
    pub fn growing_region(&self, node: NodeId, bytes: u64, bytes_max: u64) -> Addr {
        let mut core = self.shared.core.borrow_mut();
        assert!(usize::from(node.0) < core.nodes.len(), "there is no such node");
        Addr::new(core.memory.add(node, bytes, bytes_max), 0)
    }

    /// A new region of which lengths alone count: a write is forgotten, a read finds zeros, an
    /// atomic is [`Fault::Unsupported`](farlock_fabric::Fault). Transfers take as long as others,
    /// and the region takes no memory.
    pub fn hollow_region(&self, node: NodeId, bytes: u64) -> Addr {
        let mut core = self.shared.core.borrow_mut();
        assert!(usize::from(node.0) < core.nodes.len(), "there is no such node");
        Addr::new(core.memory.add_hollow(node, bytes), 0)
    }

    /// Adds `bytes` to a region.
    ///
    /// # Panics
    /// If the region was not created with room for that.
    pub fn grow(&self, region: RegionId, bytes: u64) {
        self.shared.core.borrow_mut().memory.grow(region, bytes);
    }

    /// A new endpoint in the first seat that nobody ever had, or else in the first whose occupant
    /// is known to be dead.
    ///
    /// # Panics
    /// If every seat is taken.
    pub fn endpoint(&self) -> SimEndpoint {
        let index = {
            let core = self.shared.core.borrow();
            let unused = core.seats.iter().skip(1).find(|seat| seat.id.incarnation == 0);
            let dead = || core.seats.iter().skip(1).find(|seat| seat.life == Life::Dead);
            unused.or_else(dead).expect("all seats of this world are taken").id.index
        };
        self.endpoint_at(index)
    }

    /// Every endpoint is told of all that have come.
    pub fn introduce(&self) {
        let mut core = self.shared.core.borrow_mut();
        for place in 1..core.seats.len() {
            let id = core.seats[place].id;
            core.show(id);
        }
        let shown = core.shown;
        core.seats.iter_mut().for_each(|seat| seat.knows = shown);
    }

    /// A new endpoint in this seat.
    ///
    /// # Panics
    /// If an endpoint sits there that is not known to be dead.
    pub fn endpoint_at(&self, index: u16) -> SimEndpoint {
        let id = self.shared.core.borrow_mut().seat_endpoint(index);
        SimEndpoint::new(Rc::clone(&self.shared), id)
    }

    /// Starts a task that dies with this endpoint. It is first polled by the next run.
    pub fn spawn<F>(&self, endpoint: EndpointId, future: F) -> Task<F::Output>
    where
        F: Future + 'static,
    {
        let result = Rc::new(Cell::new(None));
        let into = Rc::clone(&result);
        let id = self.begin(endpoint, Box::pin(async move { into.set(Some(future.await)) }));
        Task { id, result }
    }

    fn begin(&self, endpoint: EndpointId, future: BoxedFuture) -> TaskId {
        let mut core = self.shared.core.borrow_mut();
        let live = core.seat(endpoint).is_acting(endpoint);
        let id = core.add_task(endpoint, live);
        self.shared.futures.borrow_mut().push(live.then_some(future));
        core.wake(id);
        TaskId(id)
    }

    /// Starts a task that serves others and dies with this endpoint. A run whose other tasks have
    /// finished has finished.
    pub fn spawn_server<F: Future<Output = ()> + 'static>(&self, endpoint: EndpointId, future: F) {
        let task = self.spawn(endpoint, future);
        self.shared.core.borrow_mut().tasks[task.id.0 as usize].serves = true;
    }

    /// Crashes an endpoint: its tasks are gone, and what becomes of each of its verbs in flight is
    /// for the oracle to decide. Its death becomes known after the time that
    /// [`Weakness`](crate::Weakness) states.
    pub fn kill(&self, id: EndpointId) {
        self.shared.core.borrow_mut().crash(id, None);
        self.shared.bury();
    }

    /// As [`Handle::kill`], with one outcome for every verb in flight.
    pub fn kill_with(&self, id: EndpointId, outcome: Outcome) {
        self.shared.core.borrow_mut().crash(id, Some(outcome));
        self.shared.bury();
    }

    /// Lets an endpoint crash as it posts its `verb`-th verb, counted from zero over its life; that
    /// verb and all others in flight have this outcome.
    pub fn crash_at(&self, id: EndpointId, verb: u64, outcome: Outcome) {
        let mut core = self.shared.core.borrow_mut();
        if core.seat(id).is_acting(id) {
            core.seat_mut(id).crash_at = Some((verb, outcome));
        }
    }

    /// Loses the completion of the next verb that an endpoint posts, or chain of verbs: it ends
    /// with `Fault::Lost`, and has this outcome, or one for the oracle to decide. The endpoint
    /// lives on.
    pub fn lose_next(&self, id: EndpointId, outcome: Option<Outcome>) {
        self.shared.core.borrow_mut().seat_mut(id).loses = Some(outcome);
    }

    /// Lets up to `most` endpoints crash from now on, each at any verb: whether one does as it
    /// posts it, so often, and what then becomes of the verb, is for the oracle to decide.
    pub fn crash_anywhere(&self, most: u32, ratio: Ratio) {
        let mut core = self.shared.core.borrow_mut();
        (core.crashes_left, core.crash_ratio) = (most, ratio);
    }

    /// Whether something happens that has this probability and that only the injector of faults
    /// knows of. If it does, it is part of what the task that is being polled was told.
    pub fn happens(&self, choice: Choice, ratio: Ratio) -> bool {
        let mut core = self.shared.core.borrow_mut();
        let happens = ratio.is_possible() && core.oracle.chance(choice, ratio);
        if happens {
            core.told(choice as u64);
        }
        happens
    }

    /// How many verbs an endpoint has posted: the bound of the crash points above.
    pub fn posted(&self, id: EndpointId) -> u64 {
        self.shared.core.borrow().seat(id).posted
    }

    /// Stops an endpoint's tasks for so many nanoseconds. Its verbs in flight go on. In explored
    /// mode it goes on at any later time, but then at least so much time has passed.
    pub fn pause(&self, id: EndpointId, interval: Nanos) {
        let mut core = self.shared.core.borrow_mut();
        core.disturbed = true;
        let until = core.now.saturating_add(interval);
        let seat = core.seat_mut(id);
        seat.paused_until = seat.paused_until.max(until);
    }

    /// The kind of the verb with which this endpoint crashed, if it did with one.
    pub fn crashed_at(&self, id: EndpointId) -> Option<Kind> {
        self.shared.core.borrow().seat(id).crashed_at
    }

    /// Drops a task where it stands, as a caller does who gives up; its endpoint lives on.
    pub fn cancel(&self, task: TaskId) {
        self.shared.core.borrow_mut().tasks[task.0 as usize].live = false;
        let future = self.shared.futures.borrow_mut()[task.0 as usize].take();
        drop(future);
    }

    /// The task that is being polled is about to enter loops in which it was before, in the same
    /// turn of its outermost one: what it was told there is not forgotten at their
    /// [`checkpoint`](farlock_fabric::Endpoint::checkpoint)s.
    pub fn another_part(&self) {
        self.shared.core.borrow_mut().another_part();
    }

    /// Lets so many more events happen, whatever [`Config::events_max`] says, before a run ends.
    pub fn allow_events(&self, more: u64) {
        let mut core = self.shared.core.borrow_mut();
        core.events_max = core.history.stats.events.saturating_add(more);
    }

    /// Restarts a memory node: what its memory holds then is for `reset` to say; every endpoint
    /// that exists gets [`Fault::Stale`](farlock_fabric::Fault) from it for ever, and every wait
    /// ends. If it is the first node, where records and mailboxes lie, those endpoints are dead to
    /// all that come later.
    pub fn reset_node(&self, node: NodeId, reset: Reset) {
        let mut core = self.shared.core.borrow_mut();
        core.stamp += 1;
        let (stamp, now, nic) = (core.stamp, core.now, core.nic);
        let state = &mut core.nodes[usize::from(node.0)];
        state.reset_stamp = stamp;
        state.incarnation += 1;
        state.nic = NicState::new(&nic);
        core.history.note(now, u64::from(node.0) << 48);
        match reset {
            Reset::Zeroed => core.memory.clear(node),
            Reset::Kept => {}
            Reset::Saved => core.memory.restore(node),
        }
        core.disturbed = true;
        core.end_waits();
    }

    /// Remembers what a memory node's memory holds, for [`Reset::Saved`].
    pub fn save_node(&self, node: NodeId) {
        self.shared.core.borrow_mut().memory.save(node);
    }

    /// A node's incarnation: 1 at first, one more after each reset.
    pub fn incarnation(&self, node: NodeId) -> u32 {
        self.shared.core.borrow().nodes[usize::from(node.0)].incarnation
    }

    /// From now on an endpoint's clock goes this much faster than the world's time, in parts per
    /// billion, or slower. The contract's bound between two clocks is 100,000.
    ///
    /// # Panics
    /// If it would stand still or go back.
    pub fn set_clock_rate(&self, id: EndpointId, rate_ppb: i64) {
        let mut core = self.shared.core.borrow_mut();
        let now = core.now;
        core.seat_mut(id).clock.set(now, Some(rate_ppb), 0);
    }

    /// An endpoint's clock jumps by so many nanoseconds. If that is back, it stands still until it
    /// shows more than it did. No contract allows that.
    pub fn jump_clock(&self, id: EndpointId, by_ns: i64) {
        let mut core = self.shared.core.borrow_mut();
        let now = core.now;
        core.seat_mut(id).clock.set(now, None, by_ns);
    }

    /// What an endpoint's clock shows.
    pub fn clock(&self, id: EndpointId) -> Nanos {
        let core = self.shared.core.borrow();
        core.seat(id).clock.read(core.now)
    }

    /// The world's time. Endpoints' clocks may show another.
    pub fn now(&self) -> Nanos {
        self.shared.core.borrow().now
    }

    /// A word as it is now.
    ///
    /// # Panics
    /// If there is no such word.
    pub fn peek(&self, addr: Addr) -> u64 {
        let core = self.shared.core.borrow();
        core.memory.read(core.memory.place(addr, 1, 8).expect("this word exists"))
    }

    /// Sets a word, by no verb.
    ///
    /// # Panics
    /// If there is no such word.
    pub fn poke(&self, addr: Addr, value: u64) {
        let mut core = self.shared.core.borrow_mut();
        let place = core.memory.place(addr, 1, 8).expect("this word exists");
        *core.memory.word(place, 0) = value;
        core.changed(addr);
    }

    /// Shows every effect from now on to this observer.
    pub fn observe(&self, observer: Observer) {
        self.shared.core.borrow_mut().history.observer = Some(observer);
    }

    /// Shows what befalls endpoints from now on to this observer.
    pub fn observe_fates(&self, observer: FateObserver) {
        self.shared.core.borrow_mut().history.fate_observer = Some(observer);
    }

    /// An endpoint sends a packet to what is outside of the world. It arrives at any later time,
    /// whatever becomes of its sender.
    pub fn send_outside(&self, packet: Packet) {
        self.shared.core.borrow_mut().send_outside(packet);
    }

    /// Shows every packet that arrives outside from now on to this receiver.
    pub fn receive_outside(&self, receiver: Receiver) {
        self.shared.core.borrow_mut().outside.receiver = Some(receiver);
    }

    /// A hash of every effect so far: equal for equal runs, on every machine.
    pub fn trace_hash(&self) -> u64 {
        self.shared.core.borrow().history.hash()
    }

    /// A hash of everything on which the rest of a run in explored mode depends: memory,
    /// mailboxes, verbs in flight, who lives, and for each task what it was told since its last
    /// [`checkpoint`](farlock_fabric::Endpoint::checkpoint), not the time and not the chance that
    /// its endpoint has drawn. In explored mode a duration decides nothing, so a protocol may draw
    /// one at random.
    pub fn state_hash(&self) -> u64 {
        self.shared.core.borrow().state_hash()
    }

    /// A number that is part of the state: what a judge knows of the past that still matters. An
    /// observer may set it too.
    pub fn ghost(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.shared.core.borrow().ghost)
    }

    /// How many messages lie in this slot's mailbox.
    pub fn mail(&self, id: EndpointId, slot: Slot) -> usize {
        let core = self.shared.core.borrow();
        core.seat(id).mailboxes.get(usize::from(slot.0)).map_or(0, VecDeque::len)
    }

    /// Counts of what has happened so far.
    pub fn stats(&self) -> Stats {
        self.shared.core.borrow().history.stats
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.handle.fmt(f)
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("now", &self.now()).finish_non_exhaustive()
    }
}
