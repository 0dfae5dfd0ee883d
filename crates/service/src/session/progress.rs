//! The progress thread: owns the endpoint, acquires, holds, releases, withdraws.
//!
//! Its executor is a list of tasks, at most one per slot of the endpoint, that are all polled on
//! every turn: parking wakes every wait anyway. With nothing to do the thread sleeps on a condition
//! variable and costs nothing; otherwise it parks in the endpoint, from where a grant, a death, a
//! handle's nudge or the end of the region wakes it.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Instant;

use farlock_fabric::shm::{Region, ShmEndpoint, Unparker};
use farlock_fabric::{Addr, Endpoint, Park, Patience as Spin, Wait, block_on};
use farlock_locks::record::shiftlock::ShiftLock;
use farlock_locks::{AcquireError as Failure, Client, Guard, Options};

use super::Patience;
use super::ask::Ask;
use crate::directory::{Directory, DirectoryError};
use crate::error::LostReason;
use crate::{AcquireError, LOCK_KIND, SessionError, inspect, lock_protocol};

type Locks = Client<ShmEndpoint, ShiftLock>;

/// Handles' side of the progress thread. Dropping it ends the thread, once it has released what
/// handles let go of.
pub(super) struct Progress {
    region: Region,
    inbox: Arc<Inbox>,
    unparker: Unparker,
    thread: Option<JoinHandle<()>>,
}

/// What handles leave for the thread.
#[derive(Default)]
struct Inbox {
    state: Mutex<Asks>,
    arrived: Condvar,
}

#[derive(Default)]
struct Asks {
    asks: VecDeque<Arc<Ask>>,
    closed: bool,
    /// Why the thread ended before it was told to.
    broken: Option<LostReason>,
}

impl Progress {
    pub(super) fn start(region: Region) -> Result<Self, SessionError> {
        let inbox = Arc::<Inbox>::default();
        let (report, reported) = mpsc::sync_channel(1);
        let (theirs, thread_region) = (Arc::clone(&inbox), region.clone());
        let thread = std::thread::Builder::new()
            .name("farlock".to_owned())
            .spawn(move || match Worker::new(&thread_region, theirs) {
                Ok(mut worker) => {
                    // The opener waits for this message.
                    let _ = report.send(Ok(worker.client.endpoint().unparker()));
                    worker.run();
                }
                Err(error) => {
                    let _ = report.send(Err(error));
                }
            })
            .map_err(SessionError::Thread)?;
        let unparker = reported.recv().expect("the thread reports before it ends")?;
        Ok(Self { region, inbox, unparker, thread: Some(thread) })
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// Has the progress thread acquire.
    pub(super) fn ask(&self, ask: Arc<Ask>) {
        let mut state = self.inbox.state();
        if let Some(reason) = state.broken {
            drop(state);
            return ask.lose(reason);
        }
        state.asks.push_back(ask);
        drop(state);
        self.inbox.arrived.notify_one();
        self.unparker.unpark();
    }

    /// Has the progress thread look at its asks again.
    pub(super) fn nudge(&self) {
        self.unparker.unpark();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.inbox.state().closed = true;
        self.inbox.arrived.notify_one();
        self.unparker.unpark();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, Asks> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's own state.
struct Worker {
    inbox: Arc<Inbox>,
    client: Rc<Locks>,
    places: Rc<Places>,
    tasks: Vec<Task>,
}

struct Task {
    ask: Arc<Ask>,
    future: Pin<Box<dyn Future<Output = ()>>>,
}

/// Where locks lie, as far as this session has asked.
struct Places {
    directory: Directory,
    known: Cell<HashMap<String, Addr>>,
}

impl Worker {
    fn new(region: &Region, inbox: Arc<Inbox>) -> Result<Self, SessionError> {
        let endpoint = region.endpoint()?;
        let directory = block_on(&endpoint, Directory::open(&endpoint, region.heap()))?;
        let options = Options { incarnation: region.incarnation() };
        let client = Rc::new(Client::new(endpoint, lock_protocol(), options));
        let places = Rc::new(Places { directory, known: Cell::default() });
        Ok(Self { inbox, client, places, tasks: Vec::new() })
    }

    fn run(&mut self) {
        let ended = Rc::clone(&self.client);
        let ended = ended_region(&ended, self.places.directory.head());
        let mut ended = std::pin::pin!(ended);
        let mut cx = Context::from_waker(Waker::noop());
        while self.take_asks() {
            if let Poll::Ready(reason) = ended.as_mut().poll(&mut cx) {
                return self.break_off(reason);
            }
            // What is withdrawn or left is settled in the same turn.
            self.tasks.retain_mut(|task| task.future.as_mut().poll(&mut cx).is_pending());
            let settle = std::pin::pin!(self.client.settle());
            let unsettled = settle.poll(&mut cx).is_pending();
            if !self.tasks.is_empty() || unsettled {
                self.client.endpoint().park();
            }
        }
    }

    /// Turns new asks into tasks; sleeps while there is nothing at all to do. `false`: the end.
    fn take_asks(&mut self) -> bool {
        let mut state = self.inbox.state();
        loop {
            let asks = std::mem::take(&mut state.asks);
            let is_idle = asks.is_empty() && self.tasks.is_empty() && !self.client.is_unsettled();
            if !asks.is_empty() {
                drop(state);
                asks.into_iter().for_each(|ask| self.start(ask));
                return true;
            }
            // A withdrawal under way does not keep the session: others pass over the dead.
            if state.closed && self.tasks.is_empty() {
                return false;
            }
            if !is_idle {
                return true;
            }
            state = self.inbox.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn start(&mut self, ask: Arc<Ask>) {
        let (client, places) = (Rc::clone(&self.client), Rc::clone(&self.places));
        let theirs = Arc::clone(&ask);
        let future = Box::pin(async move { serve(&client, &places, &theirs).await });
        self.tasks.push(Task { ask, future });
    }

    /// The region has ended: tells everybody who holds, waits, or will ask.
    fn break_off(&mut self, reason: LostReason) {
        let asks = {
            let mut state = self.inbox.state();
            state.broken = Some(reason);
            std::mem::take(&mut state.asks)
        };
        asks.iter().for_each(|ask| ask.lose(reason));
        self.tasks.iter().for_each(|task| task.ask.lose(reason));
    }
}

/// Resolves when the region was removed, created anew, or does not let this session in any more.
/// Waits on a word that never changes: the end of a region wakes everybody who waits on any.
async fn ended_region(client: &Locks, head: Addr) -> LostReason {
    let endpoint = client.endpoint();
    loop {
        if let Err(fault) = endpoint.read64(head).await {
            return fault.into();
        }
        let word = Some((head, endpoint.old() as u64));
        endpoint.wait(Wait { word, patience: Spin::PARK, ..Wait::default() }).await;
    }
}

/// One acquisition from its request to its release.
async fn serve(client: &Locks, places: &Places, ask: &Ask) {
    let guard = match acquire(client, places, ask).await {
        Ok(Some(guard)) => guard,
        // Nobody wants it any more; dropping the acquisition has withdrawn it.
        Ok(None) => return,
        Err(error) => return ask.refuse(error),
    };
    inspect::note(client.endpoint(), guard.slot());
    let token = guard.token().expect("this kind of lock has tokens");
    if ask.grant(token) {
        poll_fn(|_| if ask.is_wanted() { Poll::Pending } else { Poll::Ready(()) }).await;
    }
    let released = guard.release().await.map_err(|error| match error {
        farlock_locks::ReleaseError::Fabric(fault) => fault.into(),
        farlock_locks::ReleaseError::Lost => unreachable!("the service's locks have no leases"),
    });
    ask.end(released);
}

async fn acquire<'c>(
    client: &'c Locks,
    places: &Places,
    ask: &Ask,
) -> Result<Option<Guard<'c, ShmEndpoint, ShiftLock>>, AcquireError> {
    let endpoint = client.endpoint();
    let lock = places.find(endpoint, &ask.name).await?;
    let name = || ask.name.clone();
    let holders = || holders(endpoint, lock);
    let acquired = match ask.patience {
        Patience::None => match client.try_acquire(lock, ask.mode).await {
            Ok(Some(guard)) => Ok(guard),
            Ok(None) => return Err(AcquireError::Busy { name: name(), holders: holders() }),
            Err(failure) => Err(failure),
        },
        Patience::Endless | Patience::Until(..) => match in_line(client, ask, lock).await {
            Some(acquired) => acquired,
            None => return Ok(None),
        },
    };
    acquired.map(Some).map_err(|failure| match (failure, ask.patience) {
        (Failure::NoSlot, _) => AcquireError::TooMany { name: name(), slots: endpoint.slots() },
        (Failure::TimedOut, Patience::Until(_, limit)) => {
            let seconds = limit.as_secs_f64();
            AcquireError::TimedOut { name: name(), seconds, holders: holders() }
        }
        (Failure::TimedOut, _) => panic!("only an acquisition with a limit times out"),
        (Failure::Fabric(fault), _) => AcquireError::Lost { name: name(), reason: fault.into() },
    })
}

/// Acquires for as long as somebody wants it. `None`: withdrawn.
async fn in_line<'c>(
    client: &'c Locks,
    ask: &Ask,
    lock: Addr,
) -> Option<Result<Guard<'c, ShmEndpoint, ShiftLock>, Failure>> {
    let endpoint = client.endpoint();
    let mut acquire = client.acquire(lock, ask.mode);
    let mut sleep = match ask.patience {
        Patience::Until(deadline, _) => {
            let left = deadline.saturating_duration_since(Instant::now());
            Some(endpoint.sleep(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)))
        }
        Patience::Endless | Patience::None => None,
    };
    let mut is_noted = false;
    poll_fn(|cx| {
        if !ask.is_wanted() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(acquired) = Pin::new(&mut acquire).poll(cx) {
            return Poll::Ready(Some(acquired));
        }
        if !std::mem::replace(&mut is_noted, true) {
            inspect::note(endpoint, acquire.slot());
        }
        let elapsed = sleep.as_mut().is_some_and(|sleep| Pin::new(sleep).poll(cx).is_ready());
        if elapsed { Poll::Ready(Some(Err(Failure::TimedOut))) } else { Poll::Pending }
    })
    .await
}

/// Who holds a lock, for an error: a picture, and none where the region is gone.
fn holders(endpoint: &ShmEndpoint, lock: Addr) -> Vec<inspect::Participant> {
    inspect::participants(endpoint, lock).map(inspect::holders).unwrap_or_default()
}

impl Places {
    async fn find(&self, endpoint: &ShmEndpoint, name: &str) -> Result<Addr, AcquireError> {
        let mut known = self.known.take();
        if let Some(lock) = known.get(name).copied() {
            self.known.set(known);
            return Ok(lock);
        }
        let found = self.directory.enter(endpoint, name, LOCK_KIND).await;
        if let Ok(lock) = found {
            known.insert(name.to_owned(), lock);
        }
        self.known.set(known);
        found.map_err(|source| match source {
            DirectoryError::Fabric(fault) => {
                AcquireError::Lost { name: name.to_owned(), reason: fault.into() }
            }
            source => AcquireError::Directory { name: name.to_owned(), source },
        })
    }
}
