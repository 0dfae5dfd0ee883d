//! Meetings in which an error would show, played under loom and under shuttle alike.
//!
//! The root beside it has a `world`: the checker's threads, and a place that only holders
//! of ranges over it may visit.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use farlock_local::{
    ListEx, ListRw, Planted, Preference, Range, RangeLocked, RangeMutex, RangeRwLock, RawRangeLock,
    RawRangeRwLock,
};

use super::world::{Condvar, Mutex, Place, thread};

fn range(start: u64, end: u64) -> Range {
    Range::new(start, end).unwrap()
}

/// A time that no test lives to see. Under a checker a wait with a deadline ends before its sleep.
fn much_later() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// The race of the paper's figure 1: a reader inserts before an entry, a writer behind it, and
/// neither notices the other on its way.
pub(crate) fn figure_1(preference: Preference, planted: Planted) {
    let lock = Arc::new(ListRw::planted(preference, planted));
    let place = Arc::new(Place::new());
    let (first, second) = (lock.lock_shared(range(1, 10)), lock.lock_shared(range(20, 25)));
    let writer = thread::spawn({
        let (lock, place) = (lock.clone(), place.clone());
        move || {
            let token = lock.lock(range(30, 35));
            place.write();
            lock.unlock(token);
        }
    });
    let token = lock.lock_shared(range(15, 45));
    place.read();
    lock.unlock(token);
    lock.unlock(first);
    lock.unlock(second);
    writer.join().unwrap();
    let all = lock.try_lock(Range::FULL).expect("everybody has left");
    lock.unlock(all);
}

/// A writer gives way while a third thread unlinks what it left.
pub(crate) fn writer_gives_way(planted: Planted) {
    let lock = Arc::new(ListRw::planted(Preference::Readers, planted));
    let held = lock.lock_shared(range(20, 25));
    let place = Arc::new(Place::new());
    let writer = thread::spawn({
        let (lock, place) = (lock.clone(), place.clone());
        move || {
            let first = lock.lock(range(30, 35));
            let second = lock.lock(range(60, 70));
            place.write();
            lock.unlock(second);
            lock.unlock(first);
        }
    });
    let reader = lock.lock_shared(range(15, 45));
    place.read();
    lock.unlock(reader);
    lock.unlock(held);
    writer.join().unwrap();
    let all = lock.try_lock(Range::FULL).expect("everybody has left");
    lock.unlock(all);
}

/// One thread looks at a link; meanwhile what it leads to is released, and the same entry comes
/// back for another range.
pub(crate) fn an_entry_comes_back(planted: Planted) {
    let lock = Arc::new(ListEx::planted(planted));
    let held = lock.lock(range(0, 1));
    let place = Arc::new(Place::new());
    let late = late_visitor(&lock, &place);
    lock.unlock(lock.lock(range(10, 20)));
    lock.unlock(lock.lock(range(50, 60)));
    let token = lock.lock(range(6, 9));
    place.write_while(|| late.join().unwrap());
    lock.unlock(token);
    lock.unlock(held);
}

/// The same, and the entry comes back by the fast path, which takes it out at once when it is
/// released (paper section 4.5).
pub(crate) fn an_entry_comes_back_alone(planted: Planted) {
    let (lock, elsewhere) = (Arc::new(ListEx::planted(planted)), ListEx::new());
    let place = Arc::new(Place::new());
    let first = lock.lock(range(0, 1));
    let late = late_visitor(&lock, &place);
    lock.unlock(first);
    // Where the late one has made the first entry an ordinary one, this takes it out of the list.
    lock.unlock(lock.lock(range(10, 20)));
    // This takes the entry of the last line, so that the first one is the next at hand.
    let aside = elsewhere.lock(Range::FULL);
    let token = lock.lock(range(5, 9));
    place.write_while(|| late.join().unwrap());
    lock.unlock(token);
    elsewhere.unlock(aside);
    let all = lock.try_lock(Range::FULL).expect("everybody has left");
    lock.unlock(all);
}

/// A reader that has inserted its range before a held one of a writer looks for it behind a third
/// one, which is released and comes back far behind both.
pub(crate) fn an_entry_comes_back_behind_a_reader(planted: Planted) {
    let lock = Arc::new(ListRw::planted(Preference::Readers, planted));
    let place = Arc::new(Place::new());
    let writer = lock.lock(range(10, 12));
    let between = lock.lock_shared(range(8, 9));
    let late = thread::spawn({
        let (lock, place) = (lock.clone(), place.clone());
        move || {
            if let Some(token) = lock.try_lock_shared(range(5, 20)) {
                place.read();
                lock.unlock(token);
            }
        }
    });
    place.write_while(|| {
        lock.unlock(between);
        lock.unlock(lock.lock_shared(range(50, 60)));
        lock.unlock(lock.lock_shared(range(70, 80)));
        late.join().unwrap();
    });
    lock.unlock(writer);
    let all = lock.try_lock(Range::FULL).expect("everybody has left");
    lock.unlock(all);
}

/// A writer that has inserted its range looks from the head on for readers that it overlaps; the
/// entry that it begins at is released, and comes back behind such a reader.
pub(crate) fn an_entry_comes_back_before_a_writer(planted: Planted) {
    let lock = Arc::new(ListRw::planted(Preference::Readers, planted));
    let place = Arc::new(Place::new());
    let first = lock.lock_shared(range(0, 1));
    let far = lock.lock_shared(range(25, 26));
    // Beside the place, which shows those alone that are there at one time.
    let is_read = Arc::new(AtomicBool::new(false));
    let readers = thread::spawn({
        let (lock, place, is_read) = (lock.clone(), place.clone(), is_read.clone());
        move || {
            let reader = lock.try_lock_shared(range(20, 40));
            is_read.store(reader.is_some(), Ordering::SeqCst);
            lock.unlock(first);
            lock.unlock(lock.lock_shared(range(2, 3)));
            let again = lock.lock_shared(range(28, 29));
            if reader.is_some() {
                place.read();
            }
            // They are held beyond the end of this thread.
            (reader, again)
        }
    });
    if let Some(writer) = lock.try_lock(range(30, 35)) {
        place.write();
        assert!(!is_read.load(Ordering::SeqCst), "a reader holds as well");
        lock.unlock(writer);
    }
    let (reader, again) = readers.join().unwrap();
    reader.into_iter().chain([again, far]).for_each(|token| lock.unlock(token));
    let all = lock.try_lock(Range::FULL).expect("everybody has left");
    lock.unlock(all);
}

/// Visits the place if it finds it free, however late it is to take it.
fn late_visitor(lock: &Arc<ListEx>, place: &Arc<Place>) -> thread::JoinHandle<()> {
    let (lock, place) = (lock.clone(), place.clone());
    thread::spawn(move || {
        if let Some(token) = lock.try_lock(range(6, 8)) {
            place.write();
            lock.unlock(token);
        }
    })
}

/// A wait that ends at its deadline takes nothing along, and nobody waits for it.
pub(crate) fn a_deadline_comes(preference: Preference) {
    let lock = Arc::new(RangeRwLock::new(preference));
    let place = Arc::new(Place::new());
    let held = lock.read(range(0, 10));
    let impatient = thread::spawn({
        let (lock, place) = (lock.clone(), place.clone());
        move || {
            if let Some(held) = lock.try_write_until(range(5, 15), much_later()) {
                place.write();
                drop(held);
            }
        }
    });
    place.read();
    drop(held);
    let all = lock.write(range(0, 20));
    place.write();
    drop(all);
    impatient.join().unwrap();
    assert!(lock.try_write(Range::FULL).is_some(), "everybody has left");
}

/// A task that waits is woken, whichever thread is quicker; one that is dropped takes nothing
/// along.
pub(crate) fn a_task_waits_and_another_gives_up() {
    let lock = Arc::new(RangeMutex::new());
    let place = Arc::new(Place::new());
    let held = lock.lock(range(0, 10));
    let tasks = thread::spawn({
        let (lock, place) = (lock.clone(), place.clone());
        move || {
            drop(once(lock.lock_async(range(9, 20))));
            let held = block_on(lock.lock_async(range(5, 15)));
            place.write();
            drop(held);
        }
    });
    place.write();
    drop(held);
    tasks.join().unwrap();
    assert!(lock.try_lock(Range::FULL).is_some(), "everybody has left");
}

/// A reader's and a writer's task that are dropped wherever they are, also between insertion and
/// validation.
pub(crate) fn tasks_of_readers_and_writers_give_up(preference: Preference) {
    let lock = Arc::new(RangeRwLock::new(preference));
    let place = Arc::new(Place::new());
    let tasks = thread::spawn({
        let (lock, place) = (lock.clone(), place.clone());
        move || {
            if let Some(held) = once(lock.write_async(range(0, 10))) {
                place.write();
                drop(held);
            }
            if let Some(held) = once(lock.read_async(range(3, 7))) {
                place.read();
                drop(held);
            }
        }
    });
    let reader = lock.read(range(5, 15));
    place.read();
    drop(reader);
    let writer = block_on(lock.write_async(range(5, 6)));
    place.write();
    drop(writer);
    tasks.join().unwrap();
    assert!(lock.try_write(Range::FULL).is_some(), "everybody has left");
}

/// Parts of a slice, to a thread that waits, one that gives up and a task.
pub(crate) fn parts_are_lent() {
    let slice = Arc::new(RangeLocked::from(vec![Place::new(), Place::new()]));
    let others = thread::spawn({
        let slice = slice.clone();
        move || {
            if let Some(part) = slice.try_write_until(.., much_later()).unwrap() {
                part[1].write();
            }
            block_on(slice.read_async(..)).unwrap()[1].read();
        }
    });
    slice.write(1..).unwrap()[0].write();
    others.join().unwrap();
    assert!(slice.try_write(..).unwrap().is_some(), "everybody has left");
}

/// Polls a future once, and drops it.
fn once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// What wakes a thread that waits for a future.
struct Alarm {
    rung: Mutex<bool>,
    ring: Condvar,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap() = true;
        self.ring.notify_one();
    }
}

/// Waits for a future, asleep: the checker sees it if no thread wakes it.
fn block_on<F: Future>(future: F) -> F::Output {
    let alarm = Arc::new(Alarm { rung: Mutex::new(false), ring: Condvar::new() });
    let waker = Waker::from(alarm.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut rung = alarm.rung.lock().unwrap();
        while !*rung {
            rung = alarm.ring.wait(rung).unwrap();
        }
        *rung = false;
    }
}
