//! What the handles of a session and its thread share.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Instant;

use farlock_fabric::{Addr, Connection as _, Endpoint as _, EndpointId, Fault, fork_count};
use farlock_locks::blocks::{BlockError, Blocks, LOG_BYTES};
use farlock_locks::shelf::{Entry as ShelfEntry, Shelf};

use super::pool::{Place, Pool, RangePlace};
use super::state::{Entry, Handle, Hub, Inbox, Name, Order, Work};
use super::waiter::{Report, Timed, Wake};
use crate::blocks::RegionMemory;
use crate::connection::{Lane, Region, Unparker};
use crate::directory::{Directory, Located};
use crate::error::{LostReason, Seeing, SessionError};
use crate::inspect::{self, Participant, Sort};
use crate::protocol::{RANGE_KIND, RangeProtocol};
use crate::region::{blocks_behind, range_heap};
use crate::shelf::{SHELF_BYTES, shelf_at};
use crate::system::coarse_tick;

/// Names that are remembered though nobody uses them: where their locks lie is known then.
const NAMES_KEPT: usize = 256;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these mutexes.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    pub(super) fn new(
        region: Region,
        home: EndpointId,
        directory: Directory,
        dates_holds: bool,
    ) -> Self {
        Self {
            is_far: region.is_far(),
            region,
            home,
            directory,
            pool: Pool::default(),
            range_directory: OnceLock::new(),
            range_pool: Pool::default(),
            range_waits: Mutex::default(),
            free_entries: Mutex::default(),
            known_blocks: Mutex::default(),
            clerk: Mutex::default(),
            dates_holds,
            forks: fork_count(),
            ended: OnceLock::new(),
            seen_at: AtomicU64::new(0),
            names: Mutex::default(),
            inbox: Mutex::default(),
            arrived: Condvar::new(),
            unparker: Unparker::default(),
            watchers: AtomicUsize::new(0),
            losses: Mutex::default(),
        }
    }

    /// Whether this is a child of the process that opened the session. It has no place in the
    /// region, and no thread.
    #[inline]
    pub(super) fn is_forked(&self) -> bool {
        fork_count() != self.forks
    }

    // Names.

    /// The handle of a name. In a forked child it is one of its own, of no use: the names may be
    /// locked by a thread that only the parent has.
    pub(super) fn handle(
        self: &Arc<Self>,
        text: &str,
        make: impl Fn(Arc<Name>) -> Handle,
    ) -> Arc<Handle> {
        if self.is_forked() {
            return Arc::new(make(Arc::new(Name::new(Arc::clone(self), text.into()))));
        }
        let mut names = lock(&self.names);
        if let Some(entry) = names.get_mut(text) {
            return entry.handle.upgrade().unwrap_or_else(|| {
                let handle = Arc::new(make(Arc::clone(&entry.name)));
                entry.handle = Arc::downgrade(&handle);
                handle
            });
        }
        let text: Arc<str> = text.into();
        let name = Arc::new(Name::new(Arc::clone(self), Arc::clone(&text)));
        let handle = Arc::new(make(Arc::clone(&name)));
        names.insert(text, Entry { name, handle: Arc::downgrade(&handle) });
        handle
    }

    /// Forgets a name, if nobody uses it any more and there are many.
    pub(super) fn forget(&self, name: &Arc<Name>) {
        let mut names = lock(&self.names);
        if names.len() <= NAMES_KEPT {
            return;
        }
        let Some(entry) = names.get(&name.text) else { return };
        let is_used =
            !Arc::ptr_eq(&entry.name, name) || entry.handle.strong_count() > 0 || name.is_served();
        if !is_used {
            names.remove(&name.text);
            drop(names);
            name.forget_place();
        }
    }

    // The end.

    /// How the session ended, if it has.
    pub(super) fn check(&self) -> Result<(), LostReason> {
        self.ended.get().map_or(Ok(()), |reason| Err(*reason))
    }

    /// Why what was held is held no more, where no fault tells.
    #[cold]
    pub(super) fn taken_over(&self) -> LostReason {
        match self.check() {
            Err(reason) => reason,
            Ok(()) if self.region.is_disconnected() => LostReason::without(&self.region),
            Ok(()) => LostReason::TakenOver,
        }
    }

    /// What a fault of a verb means: places are refused when the session has ended.
    pub(super) fn reason(&self, fault: Fault) -> LostReason {
        match (self.ended.get(), fault) {
            (Some(reason), _) => *reason,
            (None, Fault::Revoked) => LostReason::SessionEnded,
            (None, fault) => LostReason::of(&self.region, fault),
        }
    }

    /// Whether a hold has ended though nobody knows how the verb that was to release it has: its
    /// place is given up, and others take the dead off the lock.
    pub(super) fn ends_hold(&self, fault: Fault) -> bool {
        fault == Fault::Lost && self.check().is_ok() && !self.region.is_disconnected()
    }

    /// The session has ended: tells everybody who holds, waits, or will ask.
    pub(super) fn end(&self, reason: LostReason) {
        if self.ended.set(reason).is_err() {
            return;
        }
        // Who asks from now on finds it ended; who asked before is in this list.
        let names: Vec<Arc<Name>> =
            lock(&self.names).values().map(|entry| Arc::clone(&entry.name)).collect();
        names.iter().for_each(|name| name.end(reason));
        lock(&self.range_waits).values().for_each(Region::unpark);
        let left = std::mem::take(&mut *lock(&self.inbox));
        left.jobs.into_iter().for_each(|job| job.refuse(reason));
        let wakers = std::mem::take(&mut lock(&self.losses).wakers);
        wakers.into_values().for_each(|waker| Wake(Some(waker)).now());
    }

    /// Whether the region's file is there, or was at this tick of the kernel's coarse clock, which
    /// lasts 1 to 10 ms: a look costs as much as several cycles of a lock. Where it is not, others
    /// find another region of that name, and the session has ended.
    #[inline]
    pub(super) fn finds_region(&self) -> bool {
        let tick = coarse_tick();
        let was_seen = tick == self.seen_at.load(Ordering::Relaxed) && self.check().is_ok();
        was_seen || self.look_for_region(tick)
    }

    /// The same of a session that has just been found not to have ended.
    #[inline]
    pub(super) fn still_finds_region(&self) -> bool {
        let tick = coarse_tick();
        tick == self.seen_at.load(Ordering::Relaxed) || self.look_for_region(tick)
    }

    /// The same, whatever was seen at this tick.
    #[cold]
    pub(super) fn finds_region_now(&self) -> bool {
        self.look_for_region(coarse_tick())
    }

    #[cold]
    fn look_for_region(&self, tick: u64) -> bool {
        let is_there = !self.region.is_deleted();
        if is_there {
            self.seen_at.store(tick, Ordering::Relaxed);
        } else {
            self.end(LostReason::without(&self.region));
            // Its thread has not noticed.
            lock(&self.inbox).is_closed = true;
            self.arrived.notify_one();
            Region::unpark(&self.unparker);
        }
        is_there
    }

    /// Has a task woken when the session ends, in place of the waker it left before.
    pub(super) fn watch_end(&self, key: &mut Option<u64>, waker: &Waker) {
        // Wakers are made and dropped outside of the mutex: they may do anything.
        let waker = waker.clone();
        let mut losses = lock(&self.losses);
        let is_new = key.is_none();
        let key = *key.get_or_insert_with(|| {
            losses.made += 1;
            losses.made
        });
        let before = losses.wakers.insert(key, waker);
        drop(losses);
        drop(before);
        if is_new {
            self.watch();
        }
    }

    /// The task watches no more.
    pub(super) fn watch_end_no_more(&self, key: u64) {
        let waker = lock(&self.losses).wakers.remove(&key);
        drop(waker);
        self.watch_no_more();
    }

    /// A caller waits for what the end of the region decides.
    pub(super) fn watch(&self) {
        if self.watchers.fetch_add(1, Ordering::SeqCst) == 0 && !lock(&self.inbox).is_watching {
            self.nudge();
        }
    }

    pub(super) fn watch_no_more(&self) {
        self.watchers.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::SeqCst) > 0
    }

    // The session's thread.

    pub(super) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    pub(super) fn unparker(&self) -> &Unparker {
        &self.unparker
    }

    /// Leaves something for the session's thread.
    fn tell(&self, leave: impl FnOnce(&mut Inbox)) {
        // One that has ended needs to know nothing.
        let _ = self.tell_living(leave);
    }

    /// Has the session's thread look at everything again.
    pub(super) fn nudge(&self) {
        self.tell(|_| {});
    }

    /// Leaves something for the session's thread, unless it has ended: then nobody takes it.
    fn tell_living(&self, leave: impl FnOnce(&mut Inbox)) -> Result<(), LostReason> {
        let mut inbox = self.inbox();
        // Who ends the session takes what was left before.
        self.check()?;
        leave(&mut inbox);
        inbox.is_nudged = true;
        drop(inbox);
        self.arrived.notify_one();
        Region::unpark(&self.unparker);
        Ok(())
    }

    /// Has the session's thread stand in line, or decide an attempt.
    pub(super) fn start(&self, work: impl Into<Work>) {
        let mut job = Some(work.into());
        let told = self.tell_living(|inbox| inbox.jobs.extend(job.take()));
        if let (Err(reason), Some(job)) = (told, job) {
            job.refuse(reason);
        }
    }

    /// The last handle is gone.
    pub(super) fn close(&self) {
        // Names know the hub, which knows them.
        let names = std::mem::take(&mut *lock(&self.names));
        drop(names);
        self.tell(|inbox| inbox.is_closed = true);
        self.region.leave();
    }

    /// Puts a place back that does nothing.
    pub(super) fn give_back(&self, place: Box<Place>) {
        self.let_go(self.pool.put(place));
    }

    /// The same of a place for ranges.
    pub(super) fn give_range_back(&self, place: Box<Place<RangeProtocol>>) {
        self.let_go(self.range_pool.put(place));
    }

    /// The session's thread is to let go of a place.
    fn let_go(&self, id: Option<EndpointId>) {
        if let Some(id) = id {
            self.tell(|inbox| inbox.given_back.push(id));
        }
    }

    /// Has the session's thread make places, and waits until it has.
    pub(super) fn order_places(&self, for_ranges: bool) -> Result<(), SessionError> {
        let (report, reported) = Report::new();
        let order = Order { for_ranges, report };
        if self.tell_living(|inbox| inbox.orders.push(order)).is_err() {
            return Ok(());
        }
        // A thread that ended dropped the order, and the next look finds the session ended.
        reported.block(None).flatten().unwrap_or(Ok(()))
    }

    // Ranges.

    /// The directory of tables of ranges, which is made where there is none.
    pub(super) async fn range_directory(&self, lane: &Lane) -> Result<Directory, SessionError> {
        if let Some(directory) = self.range_directory.get() {
            return Ok(*directory);
        }
        let (base, bytes) = range_heap(&self.region, &self.directory);
        let end = base.offset() + bytes + SHELF_BYTES + LOG_BYTES;
        self.region.lengthen(end - self.region.heap().0.offset())?;
        let directory = Directory::open(lane, (base, bytes), RANGE_KIND).await?;
        Ok(*self.range_directory.get_or_init(|| directory))
    }

    /// Where holds of ranges are written down, once there is the directory of their tables.
    pub(super) fn shelf(&self) -> Shelf {
        let (base, bytes) = range_heap(&self.region, &self.directory);
        shelf_at(base.plus(bytes))
    }

    /// Where tables have what few of them need, once there is the directory of them.
    pub(super) fn blocks(&self) -> Blocks {
        blocks_behind(range_heap(&self.region, &self.directory))
    }

    /// The block of this subtree of a table, at which a place is aimed.
    pub(super) async fn block_of(
        &self,
        lane: &Lane,
        (table, subtree): (Located, u32),
    ) -> Result<u16, BlockError> {
        let known = lock(&self.known_blocks).get(table, subtree);
        if let Some(number) = known {
            return Ok(number);
        }
        let memory = RegionMemory::of(&self.region);
        let number = self.blocks().of(lane, &memory, (table.lock(), subtree)).await?;
        lock(&self.known_blocks).learn(table, subtree, number);
        Ok(number)
    }

    /// An entry of the shelf that nothing stands in; `None` if there is none.
    pub(super) async fn free_entry(&self, lane: &Lane) -> Option<ShelfEntry> {
        let free = lock(&self.free_entries).pop();
        if free.is_some() {
            return free;
        }
        let shelf = self.shelf();
        let block = shelf.take_block(lane, self.home).await.ok().flatten()?;
        let mut free = lock(&self.free_entries);
        free.extend(shelf.entries(block));
        free.pop()
    }

    /// Whether there is a place that releases what is written down; one becomes that, if it can.
    pub(super) fn has_clerk(&self) -> bool {
        let mut clerk = lock(&self.clerk);
        if clerk.is_none() {
            *clerk = self.range_pool.take();
        }
        clerk.is_some()
    }

    /// Does something by the place that releases what is written down.
    pub(super) fn by_clerk<T>(&self, act: impl FnOnce(&mut RangePlace) -> T) -> T {
        let mut clerk = lock(&self.clerk);
        act(clerk.as_mut().expect("there is one before anything is written down"))
    }

    /// Nothing stands in this entry any more.
    pub(super) fn give_entry_back(&self, entry: ShelfEntry) {
        lock(&self.free_entries).push(entry);
    }

    /// What ends the wait of a thread that begins by this lane.
    pub(super) fn begin_range_wait(&self, lane: &Lane) {
        lock(&self.range_waits).insert(lane.id().index, Region::unparker(lane));
    }

    pub(super) fn end_range_wait(&self, lane: &Lane) {
        lock(&self.range_waits).remove(&lane.id().index);
    }

    /// Has a task woken at a time. Returns by what it is called.
    pub(super) fn set_timer(&self, at: Instant, waiter: Arc<dyn Timed>) -> (Instant, u64) {
        let mut inbox = self.inbox();
        inbox.timers_made += 1;
        let key = (at, inbox.timers_made);
        if self.check().is_err() {
            return key;
        }
        inbox.timers.insert(key, waiter);
        // It looks at its timers before it sleeps.
        let is_in_time = inbox.sleeps_until.is_some_and(|until| until <= at);
        drop(inbox);
        if !is_in_time {
            self.nudge();
        }
        key
    }

    pub(super) fn clear_timer(&self, key: (Instant, u64)) {
        self.inbox().timers.remove(&key);
    }

    /// Sleeps until something is left for the session's thread, or until a time.
    pub(super) fn sleep<'h>(
        &self,
        inbox: MutexGuard<'h, Inbox>,
        until: Option<Instant>,
    ) -> MutexGuard<'h, Inbox> {
        match until {
            None => self.arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                let slept = self.arrived.wait_timeout(inbox, left);
                slept.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }
}

impl Seeing for Hub {
    /// Looks by the lane of an idle place, if there is one.
    fn participants(&self, lock: Addr, sort: Sort) -> Option<Vec<Participant>> {
        if self.is_forked() || self.check().is_err() {
            return None;
        }
        let place = self.pool.take()?;
        let seen = inspect::participants(&self.region, place.seat.endpoint(), lock, sort);
        self.give_back(place);
        Some(seen.unwrap_or_default())
    }

    fn owns(&self, id: EndpointId) -> bool {
        id == self.home || self.pool.owns(id) || self.range_pool.owns(id)
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("region", &self.region.name())
            .field("places", &self.pool.places())
            .field("ended", &self.ended.get())
            .finish_non_exhaustive()
    }
}
