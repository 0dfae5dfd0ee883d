//! A store as one session sees it: its region, and the thread that keeps the places of its handles.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farlock_fabric::{
    Addr, ConnectError, Connection as _, Endpoint as _, EndpointId, Fault, HostOptions, block_on,
    fork_count,
};
use farlock_kv::{OpenError, Shape};

use super::error::KvError;
use super::index::{Choice, Index, Store, StoreOptions};
use super::keep::{CHUNK_BYTES, Errand, GROWTH_CHUNKS, Order, keep};
use super::share::Share;
use super::value::Owner;
use crate::RegionOptions;
use crate::connection::{Lane, Region, Unparker};
use crate::session::Report;
use crate::system::coarse_tick;

/// Bytes that a store takes at first.
const BYTES_FIRST: u64 = 8 << 20;

/// Bytes that a store can take: address space of its clients, not memory.
const BYTES_MAX: u64 = 64 << 30;

/// A store that a session has opened. It ends with its last handle.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(super) name: String,
    pub(super) region: Region,
    /// Where that is, for people.
    pub(super) place: String,
    /// Found when it was opened.
    pub(super) choice: Choice,
    orders: Option<Mutex<Sender<Order>>>,
    unparker: Unparker,
    thread: Option<JoinHandle<()>>,
    /// The owner with which pairs end that are to end with this store.
    owning: Mutex<Owning>,
    forks: u64,
    /// When the region was last seen under its name, by the kernel's coarse clock.
    seen_at: AtomicU64,
}

/// The owner with which pairs end, once there is one, and their keys.
#[derive(Debug, Default)]
pub(super) struct Owning {
    pub(super) owner: Option<(Lane, Owner)>,
    /// How often each of them was given a value so, or is being given one.
    pub(super) keys: BTreeMap<Vec<u8>, usize>,
}

/// The region of a store of this name: a file of its own beside the regions of locks, so that it
/// grows and ends by itself.
pub(crate) fn host_options(region: &RegionOptions, name: &str) -> HostOptions {
    let below = |dir: &std::path::Path| dir.join(".stores").join(&region.name);
    let mut options = region.of_host();
    (options.dir, options.state_dir) = (below(&region.dir), below(&region.state_dir));
    name.clone_into(&mut options.name);
    options.slots = 1;
    options.heap_bytes = BYTES_FIRST;
    options.growing_by(BYTES_MAX - BYTES_FIRST)
}

fn connect(options: &RegionOptions, wanted: &StoreOptions) -> Result<Region, ConnectError> {
    options.check_name()?;
    let (name, makes) = (&wanted.name, wanted.create);
    match &options.server {
        Some(server) => {
            let (served, label) = (served_name(options, name), options.shown_as());
            let (tls, names) = (options.tls.as_ref(), (&*served, &*label));
            let connected = Region::connect(server, tls, names, makes);
            // A right is one to the region: by its name people know it.
            connected.map_err(|error| match error {
                ConnectError::Declined { server, why } => {
                    let region = format!("{:?}", options.name);
                    let why = why.replace(&format!("{served:?}"), &region);
                    ConnectError::Declined { server, why }
                }
                ConnectError::Absent { dir, .. } => {
                    ConnectError::Absent { name: name.clone(), dir }
                }
                error => error,
            })
        }
        None => Region::open(&HostOptions { create: makes, ..host_options(options, name) }),
    }
}

/// What a server's clients call the region of a store.
fn served_name(region: &RegionOptions, store: &str) -> String {
    format!("{}{STORE_OF}{store}", region.name)
}

/// Between the names of a region and of a store in it, where a server is asked for the store. A
/// region has no such name.
pub(crate) const STORE_OF: char = '/';

/// Tries again while a server is away, for so long.
pub(super) fn while_away<T>(
    patience: Duration,
    mut attempt: impl FnMut() -> Result<T, KvError>,
) -> Result<T, KvError> {
    /// How long after an attempt the next one is made.
    const AGAIN: Duration = Duration::from_millis(20);
    let until = Instant::now() + patience;
    loop {
        match attempt() {
            Err(error) if error.is_of_server_away() && Instant::now() < until => {
                std::thread::sleep(AGAIN);
            }
            ended => return ended,
        }
    }
}

impl Hub {
    /// Opens a store that is whole in itself, which is created where it is missing.
    pub(super) fn open(options: &RegionOptions, wanted: &StoreOptions) -> Result<Self, KvError> {
        let mut hub = Self::connect(options, wanted)?;
        hub.prepare(Choice { index: wanted.index.unwrap_or_default(), share: None })?;
        hub.admit(wanted.index).map(|()| hub)
    }

    /// Connects to the region of a store, in which nothing is done yet.
    pub(super) fn connect(options: &RegionOptions, wanted: &StoreOptions) -> Result<Self, KvError> {
        let name = &wanted.name;
        wanted.check_name()?;
        let open = |source| KvError::Open { name: name.clone(), source };
        let region = connect(options, wanted).map_err(open)?;
        let (orders, ordered) = channel();
        let unparker = Unparker::default();
        let (kept, parked) = (region.clone(), unparker.clone());
        let thread = std::thread::Builder::new()
            .name("farlock-kv".to_owned())
            .spawn(move || keep(&kept, &ordered, &parked))
            .map_err(KvError::Thread)?;
        Ok(Self {
            name: name.clone(),
            place: options.place(),
            region,
            choice: Choice { index: Index::default(), share: None },
            orders: Some(Mutex::new(orders)),
            unparker,
            thread: Some(thread),
            owning: Mutex::default(),
            forks: fork_count(),
            seen_at: AtomicU64::new(0),
        })
    }

    /// What was chosen for the store, if anything was, and whether all of its parts were made; and
    /// a number that is drawn.
    pub(super) fn found(&self) -> Result<(Option<Choice>, bool, u32), KvError> {
        self.by_a_lane(|lane| {
            block_on(lane, async {
                let found = Choice::at(lane, self.base()).await?;
                let is_whole = found.is_some() && Choice::is_whole(lane, self.base()).await?;
                Ok((found, is_whole, lane.random() as u32))
            })
        })
    }

    /// All parts of the store were made, of which this is one.
    pub(super) fn make_whole(&self) -> Result<(), KvError> {
        self.by_a_lane(|lane| block_on(lane, Choice::make_whole(lane, self.base())))
    }

    /// Makes the store, of this choice, unless there is one.
    pub(super) fn prepare(&mut self, wanted: Choice) -> Result<(), KvError> {
        self.choice = self.by_a_lane(|lane| block_on(lane, wanted.prepare(lane, self.base())))?;
        Ok(())
    }

    fn by_a_lane<T>(&self, act: impl FnOnce(&Lane) -> Result<T, OpenError>) -> Result<T, KvError> {
        let lane = self.attach()?;
        let done = act(&lane);
        self.leave(lane.id());
        done.map_err(|error| match error {
            OpenError::Fabric(fault) => match self.region.fault_in_opening(fault) {
                Some(source) => KvError::Open { name: self.name.clone(), source },
                None => KvError::Fabric(fault),
            },
            _ => KvError::NotAStore { name: self.name.clone() },
        })
    }

    /// Refuses where the store is a part of one, or has another index than is wanted.
    pub(super) fn admit(&self, wanted: Option<Index>) -> Result<(), KvError> {
        if let Some(Share { of, .. }) = self.choice.share {
            let (name, at) = (self.name.clone(), self.place.clone());
            let (has, order) = (Some(of), Vec::new());
            return Err(KvError::OtherPart { name, at, has, wanted: None, order });
        }
        KvError::unless_index(&self.name, self.choice.index, wanted)
    }

    fn base(&self) -> Addr {
        self.region.heap().0
    }

    fn shape(&self) -> Shape {
        self.choice.shape(self.base())
    }

    /// The store as a handle has it, by a place of its own.
    pub(super) fn store(&self) -> Result<Store, KvError> {
        let lane = self.attach()?;
        let store = Store::new(self.choice, lane, self.base(), &self.region);
        store.has_chunks(self.chunks());
        Ok(store)
    }

    /// One more place in the region.
    pub(super) fn attach(&self) -> Result<Lane, KvError> {
        let (report, reported) = Report::new();
        self.order(Order::Attach(report));
        let lane = reported.block(None).flatten();
        let lane = lane.expect("the thread answers as long as the store is open");
        lane.map_err(|source| KvError::Open { name: self.name.clone(), source })
    }

    /// A place is used no more.
    pub(super) fn leave(&self, id: EndpointId) {
        self.order(Order::Leave(id.index));
    }

    /// The thread waits for a task.
    pub(super) fn wait(&self, errand: Errand) {
        self.order(Order::Wait(errand));
    }

    fn order(&self, order: Order) {
        let orders = self.orders.as_ref().expect("it is there until the store ends");
        // Nothing that can panic runs under this mutex.
        let sent = orders.lock().unwrap_or_else(PoisonError::into_inner).send(order);
        sent.expect("the thread takes orders as long as the store is open");
        Region::unpark(&self.unparker);
    }

    pub(super) fn owning(&self) -> MutexGuard<'_, Owning> {
        // Nothing that can panic leaves it half changed.
        self.owning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is a child of the process that opened the store. It has no place there.
    #[inline]
    pub(super) fn is_forked(&self) -> bool {
        fork_count() != self.forks
    }

    /// How many chunks have memory.
    pub(super) fn chunks(&self) -> u32 {
        self.shape().chunks_in(self.bytes())
    }

    /// How many bytes of memory there are.
    pub(super) fn bytes(&self) -> u64 {
        self.region.heap().1
    }

    /// Gives the store memory for so many chunks more, side by side, where a handle knew that it
    /// had `known` and found too few. Another client may have been first, or this store's thread.
    pub(super) fn grow(&self, known: u32, wanted: u32) -> Result<(), KvError> {
        let least = known.saturating_add(wanted);
        if least > self.shape().chunks {
            return Err(KvError::Full { source: None });
        }
        let longer = |chunks| self.region.lengthen(self.bytes_for(chunks));
        // Where there is no room for as much as it should be, there may be for a little.
        let grown = longer(least.max(known + GROWTH_CHUNKS)).or_else(|_| longer(least));
        grown.map_err(|source| KvError::Full { source: Some(source) })
    }

    /// Has the thread give the store memory for so many chunks.
    pub(super) fn reserve(&self, chunks: u32) {
        self.order(Order::Reserve(self.bytes_for(chunks)));
    }

    /// How many bytes of memory there are to be for so many chunks, or as many as there can be.
    fn bytes_for(&self, chunks: u32) -> u64 {
        let (bytes, shape) = (self.bytes(), self.shape());
        let missing = chunks.min(shape.chunks).saturating_sub(shape.chunks_in(bytes));
        bytes + u64::from(missing) * CHUNK_BYTES
    }

    /// Refuses where this handle is of no use any more.
    #[inline]
    pub(super) fn check(&self) -> Result<(), KvError> {
        if self.is_forked() {
            return Err(KvError::Forked);
        }
        let tick = coarse_tick();
        if tick == self.seen_at.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.look(tick)
    }

    /// What an error of an operation says, where that is that the store was removed or its server
    /// is gone: an endpoint learns it before the name is free.
    #[cold]
    pub(super) fn told(&self, error: KvError) -> KvError {
        match error {
            KvError::Fabric(_) if self.region.is_disconnected() => self.without(),
            KvError::Fabric(Fault::Stale) => self.without(),
            error => error,
        }
    }

    /// Why there is no store any more.
    fn without(&self) -> KvError {
        let (name, at) = (self.name.clone(), self.place.clone());
        if !self.region.is_disconnected() {
            KvError::Gone { name, at }
        } else if self.region.has_slept_through() {
            KvError::SleptThrough { name, at }
        } else {
            KvError::Disconnected { name, at }
        }
    }

    #[cold]
    fn look(&self, tick: u64) -> Result<(), KvError> {
        if self.region.is_deleted() {
            return Err(self.without());
        }
        self.seen_at.store(tick, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // A forked child has no such thread.
        if self.is_forked() {
            return;
        }
        // It waits for no server that is gone.
        self.region.leave();
        self.orders = None;
        Region::unpark(&self.unparker);
        // By a waker that drops the last handle it may be that thread itself which ends the store.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}
