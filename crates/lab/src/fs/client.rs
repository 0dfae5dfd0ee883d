//! A client of the file system, as laps of the driver loop: it reads and writes records, and each
//! of them is judged.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use farlock_check::client::{AnyClient, named_with_room};
use farlock_fabric::hook::Counts;
use farlock_fabric::{Nanos, SyncedClock, WideAtomics};
use farlock_locks::lock::LocalFuture;
use farlock_locks::registry::{self, SpecError};
use farlock_locks::{Mode, Options};

use super::course::{FsCourse, Role};
use super::judge::{Records, Stamp, filled};
use super::layout::Layout;
use super::system::{File, FileSystem, FsError};
use crate::drive::{Course, Failure, Laps, Pace, Tally};
use crate::judge::Judge;
use crate::subject::{Counting, work};
use crate::workload::Draws;

/// Reads of a machine for which each of its writers writes once, a batch (Filebench's `dbwr`).
const READS_A_BATCH: u64 = 1_000;
/// Writes of a batch.
const BATCH: u64 = 100;
/// Reads of a machine for which its log is written once.
const READS_A_LOG_WRITE: u64 = 3_200;
/// How long a client waits until it looks again whether it may go on, in nanoseconds.
const LOOK_NS: Nanos = 5_000;

/// A client of the file system.
pub(super) struct FsClient<E> {
    system: FileSystem<E>,
    course: FsCourse,
    number: usize,
    files: RefCell<Vec<File>>,
    /// How many records it has written.
    written: Cell<u64>,
    /// Of a process: its next step.
    step: Cell<u64>,
    /// Of a writer: how many writes are left of its batch.
    owed: Cell<u64>,
}

impl<E: WideAtomics + SyncedClock + Counting> FsClient<E> {
    /// The client with this number, of files that lie there under locks of this kind.
    ///
    /// # Errors
    /// The lock's name is not understood.
    pub(super) fn new(
        lock: &str,
        endpoint: E,
        layout: Rc<Layout>,
        course: FsCourse,
        number: usize,
    ) -> Result<Self, SpecError> {
        let in_parts = registry::kind(lock)?.units().is_some() && !course.whole;
        let client = named_with_room(lock)?.client(endpoint, Options::default());
        let system = FileSystem::new(client, layout, in_parts);
        let (files, zero) = (RefCell::default(), Cell::default);
        let (written, step, owed) = (zero(), zero(), zero());
        Ok(Self { system, course, number, files, written, step, owed })
    }

    /// The client of its locks.
    pub(super) fn locks(&self) -> &dyn AnyClient<E> {
        self.system.client()
    }

    async fn go(&self, judge: Judge<'_>, pace: Pace<'_>, tally: &mut Tally) -> Result<(), FsError> {
        if self.files.borrow().is_empty() {
            self.open_all().await?;
        }
        let records = Records::new(judge, self.course.has_bytes);
        let [writes, log] = self.course.gates(self.number).map(|word| judge.word(word as usize));
        let gates = [Gate::new(writes, READS_A_BATCH), Gate::new(log, READS_A_LOG_WRITE)];
        match self.course.role(self.number) {
            Role::Reader => self.read_data(records, gates, pace, tally).await,
            Role::Writer => self.write_batches(records, gates[0], BATCH, pace, tally).await,
            Role::Log => self.write_batches(records, gates[1], 1, pace, tally).await,
            Role::Process => self.process(records, pace, tally).await,
        }
    }

    /// Opens all files, as long as they are at first.
    async fn open_all(&self) -> Result<(), FsError> {
        for number in 0..self.course.files() {
            let file = self.system.open(&self.course.name(number), true).await?;
            let file = file.expect("it was made if it was not there");
            let bytes = self.course.begun_bytes();
            if self.system.size(file).await? < bytes {
                self.system.truncate(file, bytes).await?;
            }
            self.files.borrow_mut().push(file);
        }
        Ok(())
    }

    async fn read_data(
        &self,
        records: Records<'_>,
        gates: [Gate<'_>; 2],
        mut pace: Pace<'_>,
        tally: &mut Tally,
    ) -> Result<(), FsError> {
        let endpoint = self.locks().endpoint();
        while pace.goes_on() {
            let record = self.course.drawn(Role::Reader, endpoint.random());
            self.read(records, record, tally).await?;
            for gate in gates {
                while !gate.opens_one() {
                    if !self.waits(&pace).await {
                        return Ok(());
                    }
                }
            }
            work(endpoint, self.course.think_ns).await;
        }
        Ok(())
    }

    async fn write_batches(
        &self,
        records: Records<'_>,
        gate: Gate<'_>,
        batch: u64,
        mut pace: Pace<'_>,
        tally: &mut Tally,
    ) -> Result<(), FsError> {
        let role = self.course.role(self.number);
        loop {
            while self.owed.get() == 0 {
                match gate.lets_through() {
                    true => self.owed.set(batch),
                    false if self.waits(&pace).await => {}
                    false => return Ok(()),
                }
            }
            if !pace.goes_on() {
                return Ok(());
            }
            self.owed.set(self.owed.get() - 1);
            let record = self.course.drawn(role, self.locks().endpoint().random());
            self.write(records, record, tally).await?;
        }
    }

    async fn process(
        &self,
        records: Records<'_>,
        mut pace: Pace<'_>,
        tally: &mut Tally,
    ) -> Result<(), FsError> {
        while pace.goes_on() {
            let step = self.step.replace(self.step.get() + 1);
            match self.course.row(self.number, step) {
                (record, true) => self.write(records, record, tally).await?,
                (record, false) => self.read(records, record, tally).await?,
            }
        }
        Ok(())
    }

    async fn read(
        &self,
        records: Records<'_>,
        record: u64,
        tally: &mut Tally,
    ) -> Result<(), FsError> {
        let place = self.course.place(record);
        let mut bytes = vec![0; place.bytes as usize];
        let file = self.files.borrow()[place.file];
        let mode = if self.course.shares { Mode::Shared } else { Mode::Exclusive };
        let begun = self.now();
        let hold = self.system.hold(file, place.range(), mode).await?;
        let last = records.last(record);
        let found = hold.read(place.offset, &mut bytes).await?;
        tally.violations += records.read(record, last, &bytes[..found], bytes.len());
        hold.release().await?;
        tally.reads.record(self.now() - begun);
        tally.acquisitions += 1;
        Ok(())
    }

    async fn write(
        &self,
        records: Records<'_>,
        record: u64,
        tally: &mut Tally,
    ) -> Result<(), FsError> {
        let place = self.course.place(record);
        self.written.set(self.written.get() + 1);
        let stamp = Stamp::of(self.number, self.written.get());
        let bytes = filled(record, stamp, place.bytes as usize);
        let file = self.files.borrow()[place.file];
        let begun = self.now();
        let hold = self.system.hold(file, place.range(), Mode::Exclusive).await?;
        records.writes(record, stamp);
        hold.write(place.offset, &bytes).await?;
        tally.violations += records.wrote(record, stamp);
        hold.release().await?;
        tally.latency.record(self.now() - begun);
        tally.acquisitions += 1;
        Ok(())
    }

    /// Waits a little. Whether the phase lasts.
    async fn waits(&self, pace: &Pace<'_>) -> bool {
        if pace.lasts() {
            self.locks().endpoint().sleep(LOOK_NS).await;
        }
        pace.lasts()
    }
}

impl<E: WideAtomics + SyncedClock + Counting> Laps for FsClient<E> {
    fn now(&self) -> Nanos {
        self.locks().endpoint().now()
    }

    fn verbs(&self) -> Counts {
        self.locks().endpoint().verbs()
    }

    fn laps<'a>(
        &'a self,
        judge: Judge<'a>,
        _: &'a mut Draws,
        pace: Pace<'a>,
        _: Course,
        tally: &'a mut Tally,
    ) -> LocalFuture<'a, Result<(), Failure>> {
        let undone = || {
            let events = self.locks().events();
            events.retried + events.aborted
        };
        Box::pin(async move {
            let before = undone();
            self.go(judge, pace, tally).await?;
            tally.aborts += undone() - before;
            Ok(())
        })
    }
}

/// How readers of a machine pace its writers, and are paced by them, as by two of Filebench's
/// semaphores: a writer goes on when so many reads were done, and readers when no more than twice
/// as many are to the good. At first one writer may go on.
#[derive(Clone, Copy)]
struct Gate<'a> {
    /// Reads to the good, less those for one writer: below zero, in two's complement.
    word: &'a AtomicU64,
    reads: u64,
}

impl<'a> Gate<'a> {
    fn new(word: &'a AtomicU64, reads: u64) -> Self {
        Self { word, reads }
    }

    /// One more read was done, unless too many are to the good.
    fn opens_one(self) -> bool {
        self.changes(|good| (good < self.reads as i64).then_some(good + 1))
    }

    /// A writer goes on, if so many reads were done.
    fn lets_through(self) -> bool {
        self.changes(|good| (good >= 0).then_some(good - self.reads as i64))
    }

    fn changes(self, next: impl Fn(i64) -> Option<i64>) -> bool {
        let next = |word: u64| next(word as i64).map(|good| good as u64);
        self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_pace_writers_and_are_paced_by_them() {
        let word = AtomicU64::new(0);
        let gate = Gate::new(&word, 3);
        assert!(gate.lets_through() && !gate.lets_through());
        let opened = (0..10).filter(|_| gate.opens_one()).count();
        assert_eq!(opened, 6, "twice as many as for one writer");
        assert!(gate.lets_through() && gate.opens_one() && gate.lets_through());
        assert!(!gate.lets_through());
    }
}
