//! The session's thread: keeps its places alive, and goes on with what no other thread does.
//!
//! ```text
//! keepers    of every place: they belong to one thread, the places to callers that acquire
//! jobs       asking for tasks, and leaving lines that a waiter that gave up could not; by a server
//!            all of what tasks ask of ranges
//! timers     of tasks that wait for so long
//! the end    of the region, for those who wait for something else
//! ```
//!
//! Its executor is a list of tasks, one per job, all of which are polled on every turn: parking
//! wakes every wait anyway. With nothing to do the thread sleeps on a condition variable and costs
//! nothing.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farlock_fabric::{
    Addr, ConnectError, Connection as _, Endpoint, Nanos, Patience, Wait, block_on,
    keep_signals_out,
};

use super::pool::{AnyCell, HasLane, Place, PlaceCell};
use super::state::{Hub, Inbox, Job, Name, Order, RangeAsking, RangeJob, Work};
use super::waiter::{Outcome, Report, Timed, Waiter};
use crate::connection::{Keeper, Lane, Region};
use crate::directory::Directory;
use crate::error::LostReason;
use crate::protocol::{LOCK_KIND, PATIENCE, lock_protocol, range_protocol};
use crate::{AcquireError, SessionError};

/// How long the thread of a session by a server takes in what comes when nobody waits any more: a
/// task that was woken posts its next verb by then, and need not wake the thread.
const LINGER: Duration = Duration::from_millis(1);

/// How often a waiter looks whether the region's file is still there, in nanoseconds.
pub(super) const LOOK_FOR_REGION_NS: Nanos = 50_000_000;

/// So many acquisitions of a table of ranges that were given up may be under way by a server when
/// the next one begins. To undo one takes some trips: tasks that give up again and again would have
/// the thread undo ever more of them, and leave no place to the others.
const LEAVING_MAX: usize = 16;

/// Places made at one time.
const PLACES_AT_ONCE: usize = 2;

impl Job {
    /// To ask for the waiter of `Asking::Session`.
    pub(super) fn new(name: &Arc<Name>, place: Option<Box<Place>>) -> Self {
        Self { name: Arc::clone(name), place, sent: None, attempt: None }
    }

    fn refuse(self, reason: LostReason) {
        match self.attempt {
            None => self.name.end(reason),
            Some(waiter) => drop(Deciding { name: self.name, waiter }),
        }
    }
}

impl Inbox {
    /// When the first timer ends.
    fn next_timer(&self) -> Option<Instant> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }
}

impl From<Job> for Work {
    fn from(job: Job) -> Self {
        Self::Name(job)
    }
}

impl From<RangeJob> for Work {
    fn from(job: RangeJob) -> Self {
        Self::Range(job)
    }
}

impl Work {
    /// The session has ended before it began.
    pub(super) fn refuse(self, reason: LostReason) {
        match self {
            Self::Name(job) => job.refuse(reason),
            Self::Range(job) => job.refuse(reason),
        }
    }
}

/// An attempt under way: who made it is told if it is not decided.
pub(super) struct Deciding {
    pub(super) name: Arc<Name>,
    pub(super) waiter: Arc<Waiter>,
}

impl Drop for Deciding {
    fn drop(&mut self) {
        let reason = self.name.hub.check().err().unwrap_or(LostReason::SessionEnded);
        if let Ok(wake) = self.waiter.offer_last(Outcome::Failed(self.name.lost(reason))) {
            wake.now();
        }
    }
}

/// Whether its guards have tethers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tether {
    Tied,
    Free,
}

/// Starts the thread of a session. It has its first places when this returns.
pub(super) fn start(
    region: Region,
    tether: Tether,
) -> Result<(Arc<Hub>, JoinHandle<()>), SessionError> {
    let (report, reported) = Report::new();
    let thread = std::thread::Builder::new()
        .name("farlock".to_owned())
        .spawn(move || {
            keep_signals_out();
            let _own = region.own_thread();
            match Worker::new(region, tether) {
                Ok(mut worker) => {
                    let ending = Ending(Arc::clone(&worker.hub));
                    report.send(Ok(Arc::clone(&worker.hub)));
                    worker.run();
                    // Everybody is told before the places die.
                    drop(ending);
                }
                Err(error) => report.send(Err(error)),
            }
        })
        .map_err(SessionError::Thread)?;
    let mut early = None;
    stay_awake(|| {
        early = reported.outcome();
        early.is_some()
    });
    let report = match early {
        Some(report) => report,
        None => reported.block(None).flatten(),
    };
    Ok((report.expect("the thread reports before it ends")?, thread))
}

/// Lets others run until something is done that takes a thread some tens of microseconds, or for so
/// long at most: to sleep and be woken takes as long again.
pub(super) fn stay_awake(mut is_done: impl FnMut() -> bool) {
    const YIELDS: u32 = 500;
    for _ in 0..YIELDS {
        if is_done() {
            return;
        }
        std::thread::yield_now();
    }
}

/// Tells everybody that the session has ended, however its thread did.
struct Ending(Arc<Hub>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(LostReason::SessionEnded);
    }
}

/// The thread's own state.
struct Worker {
    hub: Arc<Hub>,
    tether: Tether,
    tasks: Vec<Task>,
    /// Acquisitions of ranges that have not begun: see [`LEAVING_MAX`].
    queued: VecDeque<RangeJob>,
    /// By which the thread sleeps and looks whether the region has ended.
    home: Lane,
    keepers: HashMap<u16, Keeper>,
    /// Until when it takes in what comes by a server, also for nobody.
    lingers_until: Option<Instant>,
    /// Dropped last: the home's.
    _keeper: Keeper,
}

struct Task {
    /// Whose place in line this is; that of a range is nobody's but the task's.
    name: Option<Arc<Name>>,
    future: Pin<Box<dyn Future<Output = ()>>>,
    /// What is asked for by it, if that is a range of a server's.
    asking: Option<RangeAsking>,
    /// Where the place lies by which it stands in line.
    cell: Rc<dyn AnyCell>,
}

impl Worker {
    fn new(region: Region, tether: Tether) -> Result<Self, SessionError> {
        let (home, keeper) = region.lane(false)?;
        let opened = block_on(&home, Directory::open(&home, region.heap(), LOCK_KIND));
        let directory = opened.map_err(|error| SessionError::of_names(&region, error))?;
        let hub = Arc::new(Hub::new(region, home.id(), directory, tether == Tether::Tied));
        let mut worker = Self {
            hub,
            tether,
            tasks: Vec::new(),
            queued: VecDeque::new(),
            home,
            keepers: HashMap::new(),
            lingers_until: None,
            _keeper: keeper,
        };
        // Where places are few an idle session has no more than its own.
        if worker.is_tied() || !worker.hub.region.has_few_places() {
            worker.make_places(false)?;
        }
        Ok(worker)
    }

    fn run(&mut self) {
        let (hub, head) = (Arc::clone(&self.hub), self.hub.directory.head());
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            if !self.take_in() {
                return;
            }
            if let Some(reason) = self.look(head) {
                return hub.end(reason);
            }
            let begun = self.tasks.len();
            self.tasks.retain_mut(|task| {
                let is_pending = task.future.as_mut().poll(&mut cx).is_pending();
                if let (false, Some(name)) = (is_pending, &task.name) {
                    hub.forget(name);
                }
                is_pending
            });
            let is_next = self.tasks.len() < begun && !self.queued.is_empty();
            if is_next {
                continue;
            }
            if !self.tasks.is_empty() || hub.is_watched() || self.lingers() {
                self.park(head);
            }
        }
    }

    /// Takes what was left in the inbox; sleeps while there is nothing at all to do. `false`: the
    /// end.
    fn take_in(&mut self) -> bool {
        let hub = Arc::clone(&self.hub);
        let mut inbox = hub.inbox();
        loop {
            inbox.is_nudged = false;
            // A withdrawal under way does not keep the session: others pass over the dead.
            if inbox.is_closed {
                return false;
            }
            let due = take_due(&mut inbox);
            let jobs = std::mem::take(&mut inbox.jobs);
            let given_back = std::mem::take(&mut inbox.given_back);
            let orders = std::mem::take(&mut inbox.orders);
            if hub.is_watched() && hub.is_far {
                self.lingers_until = Some(Instant::now() + LINGER);
            }
            let is_busy = !self.tasks.is_empty() || !jobs.is_empty() || !self.queued.is_empty();
            inbox.is_watching = is_busy || hub.is_watched() || self.lingers();
            let is_awake = inbox.is_watching || !due.is_empty() || !orders.is_empty();
            if !is_awake && given_back.is_empty() {
                let until = inbox.next_timer();
                inbox.sleeps_until = until;
                inbox = hub.sleep(inbox, until);
                continue;
            }
            drop(inbox);
            due.into_iter().for_each(|waiter| waiter.nudge().now());
            for id in given_back {
                self.keepers.remove(&id.index);
            }
            for Order { for_ranges, report } in orders {
                // Who ordered may have ended meanwhile.
                report.send(self.make_places(for_ranges));
            }
            for work in jobs {
                match work {
                    Work::Name(job) => self.begin(job),
                    Work::Range(job) if job.asking().is_some() => self.queued.push_back(job),
                    Work::Range(job) => self.begin_range(job),
                }
            }
            self.begin_queued();
            return true;
        }
    }

    fn begin(&mut self, job: Job) {
        let Job { name, place, sent, attempt } = job;
        let place = match place.map_or_else(|| self.a_place(), Ok) {
            Ok(place) => place,
            Err(error) => {
                let error = too_many(&name.text, &self.hub, error);
                return name.fail_asker(None, error);
            }
        };
        let cell = Rc::new(PlaceCell::new(place));
        let (served, own) = (Arc::clone(&name), Rc::clone(&cell));
        let future: Pin<Box<dyn Future<Output = ()>>> = match attempt {
            None => Box::pin(served.serve(own, sent)),
            Some(waiter) => Box::pin(served.decide(own, waiter)),
        };
        self.tasks.push(Task { name: Some(name), future, asking: None, cell });
    }

    /// Begins acquisitions of ranges in the order in which they came, but for those that were given
    /// up by now, of tables of which not too many are being undone.
    fn begin_queued(&mut self) {
        if self.queued.is_empty() {
            return;
        }
        let mut leaving: HashMap<String, usize> = HashMap::new();
        for table in self.tasks.iter().filter_map(|task| task.asking.as_ref()?.left()) {
            *leaving.entry(table.to_owned()).or_default() += 1;
        }
        for job in std::mem::take(&mut self.queued) {
            if job.asking().is_some_and(|asking| asking.left().is_some()) {
                job.forget();
            } else if leaving.get(&*job.table.text).is_some_and(|left| *left >= LEAVING_MAX) {
                self.queued.push_back(job);
            } else {
                self.begin_range(job);
            }
        }
    }

    fn begin_range(&mut self, mut job: RangeJob) {
        while !job.has_place() {
            if let Err(error) = self.make_places(true) {
                let error = too_many(&job.table.text, &self.hub, error);
                return job.fail(error);
            }
        }
        let asking = job.asking();
        let (cell, future) = job.begin();
        self.tasks.push(Task { name: None, future, asking, cell });
    }

    fn a_place(&mut self) -> Result<Box<Place>, SessionError> {
        loop {
            if let Some(place) = self.hub.pool.take() {
                return Ok(place);
            }
            self.make_places(false)?;
        }
    }

    fn lingers(&self) -> bool {
        self.lingers_until.is_some_and(|until| Instant::now() < until)
    }

    fn is_tied(&self) -> bool {
        self.tether == Tether::Tied
    }

    /// Makes places for the pool of locks or that of ranges: more than one, if the region has room.
    fn make_places(&mut self, for_ranges: bool) -> Result<(), SessionError> {
        let region = &self.hub.region;
        let is_tied = self.is_tied();
        // Each that is tied is a file and two descriptors more.
        let at_once = if is_tied || region.has_few_places() { 1 } else { PLACES_AT_ONCE };
        for made in 0..at_once {
            let (lane, keeper) = match region.lane(is_tied) {
                Ok(both) => both,
                Err(ConnectError::Full { .. }) if made > 0 => break,
                Err(error) => return Err(error.into()),
            };
            let tether = Region::tether(&keeper)
                .map_err(|source| ConnectError::System { what: "share a tether", source })?;
            let (id, origin) = (lane.id(), region.origin());
            self.keepers.insert(id.index, keeper);
            if for_ranges {
                lane.be_patient(PATIENCE);
                self.hub.range_pool.admit(id);
                let kind = range_protocol(self.hub.shelf(), self.hub.blocks());
                self.hub.give_range_back(Box::new(Place::new(lane, kind, origin, tether)));
            } else {
                self.hub.pool.admit(id);
                let kind = lock_protocol(region.is_far());
                self.hub.give_back(Box::new(Place::new(lane, kind, origin, tether)));
            }
        }
        Ok(())
    }

    /// How the region has ended, if it has. A server tells of that by itself, and a look at memory
    /// would wait for the server.
    fn look(&self, head: Addr) -> Option<LostReason> {
        let region = &self.hub.region;
        if region.is_far() {
            let refusal = self.home.refusal().map(|fault| LostReason::of(region, fault));
            return region.is_deleted().then(|| LostReason::without(region)).or(refusal);
        }
        let looked = block_on(&self.home, self.home.read64(head));
        let looked = looked.err().map(|fault| LostReason::of(&self.hub.region, fault));
        let is_found = looked.is_some() || self.hub.finds_region();
        looked.or_else(|| (!is_found).then(|| LostReason::without(region)))
    }

    /// Sleeps until anything happens that a task, the end of the region or a timer waits for.
    fn park(&self, head: Addr) {
        let hub = &self.hub;
        let mut inbox = hub.inbox();
        if inbox.is_nudged {
            return;
        }
        let mut until = inbox.next_timer();
        inbox.sleeps_until = until;
        drop(inbox);
        if self.tasks.is_empty() && !hub.is_watched() {
            until = until.into_iter().chain(self.lingers_until).min();
        } else if !hub.is_far {
            // A file that is deleted rings no bell.
            until = until
                .into_iter()
                .chain(Some(Instant::now() + Duration::from_nanos(LOOK_FOR_REGION_NS)))
                .min();
        }
        let left = until.map(|at| at.saturating_duration_since(Instant::now()));
        if self.watch(left) {
            return;
        }
        let interval = left.map(|left| u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
        // A word that never changes: the end of a region wakes everybody who waits on any.
        let word = Some((head, self.home.old() as u64));
        let wait = Wait { word, interval, patience: Patience::PARK, ..Wait::default() };
        let mut end = std::pin::pin!(self.home.wait(wait));
        if end.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        let places = self.places_in_use();
        Region::park_all(self.lanes(&places), hub.unparker());
    }

    /// The same by a server. It takes in meanwhile what comes for tasks that wait for their own
    /// verbs. `false`: the region is of this host.
    fn watch(&self, limit: Option<Duration>) -> bool {
        if !self.hub.is_far {
            return false;
        }
        let places = self.places_in_use();
        self.hub.region.watch(self.lanes(&places), self.hub.unparker(), limit)
    }

    /// The places by which tasks wait.
    fn places_in_use(&self) -> Vec<Rc<dyn HasLane>> {
        self.tasks.iter().filter_map(|task| task.cell.look_at_lane()).collect()
    }

    /// The lanes of these places, and the thread's own.
    fn lanes<'l>(
        &'l self,
        places: &'l [Rc<dyn HasLane>],
    ) -> impl Iterator<Item = &'l Lane> + Clone {
        places.iter().map(|place| place.lane()).chain(std::iter::once(&self.home))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let reason = self.hub.check().err().unwrap_or(LostReason::SessionEnded);
        self.queued.drain(..).for_each(|job| job.refuse(reason));
    }
}

/// Why no place could be made, in the words of the caller that asked for a lock.
pub(super) fn too_many(name: &str, hub: &Hub, error: SessionError) -> AcquireError {
    let name = name.to_owned();
    match error {
        SessionError::Connect(ConnectError::Full { .. }) => {
            AcquireError::TooMany { name, places: hub.region.places() }
        }
        SessionError::Connect(ConnectError::Stale) => {
            AcquireError::Lost { name, reason: LostReason::RegionGone }
        }
        error => AcquireError::NoPlace { name, source: Arc::new(error) },
    }
}

/// The tasks whose time has come.
fn take_due(inbox: &mut Inbox) -> Vec<Arc<dyn Timed>> {
    let now = match inbox.timers.first_key_value() {
        None => return Vec::new(),
        Some(_) => Instant::now(),
    };
    let later = inbox.timers.split_off(&(now, u64::MAX));
    std::mem::replace(&mut inbox.timers, later).into_values().collect()
}
