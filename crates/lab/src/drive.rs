//! The one driver loop: every lock on every fabric, and every rival, goes through it.
//!
//! A client is a [`Subject`], a stream of requests and a place to be judged. The loop is
//! monomorphic over the subject; it allocates nothing and reads no clock but for one acquisition
//! in [`Course::sample`]. Phases are told by a word that all clients of a run share, so that all
//! begin and end together and the warm-up is not measured.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use farlock_fabric::Nanos;
use farlock_fabric::hook::Counts;
use farlock_locks::lock::LocalFuture;
use farlock_locks::txn::Abort;
use farlock_locks::{AcquireError, Mode, ReleaseError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::clock;
use crate::fs::FsError;
use crate::judge::{Entered, Judge};
use crate::latency::Latency;
use crate::workload::Draws;

/// Cycles that a client takes from a shared budget at a time, at most.
const BUDGET_SHARE_MAX: u64 = 64;

/// Something that is acquired and released: a lock over a fabric, or a rival.
#[allow(async_fn_in_trait, reason = "a subject stays on its thread")]
pub trait Subject {
    /// What a holder has in its hands.
    type Held<'s>
    where
        Self: 's;

    /// The time, in nanoseconds: the machine's, where there is no endpoint to ask.
    #[inline]
    fn now(&self) -> Nanos {
        clock::now()
    }

    /// Acquires the lock with this number.
    async fn acquire(&self, lock: u32, mode: Mode) -> Result<Self::Held<'_>, Failure>;

    /// Releases it.
    async fn release<'s>(&'s self, held: Self::Held<'s>) -> Result<(), Failure>;

    /// When what is held ends by itself, if it does.
    fn expires(&self, held: &Self::Held<'_>) -> Option<Nanos> {
        let _ = held;
        None
    }

    /// Lets go of it without releasing it, as if this client had died here. Asked only of what has
    /// leases.
    fn abandon<'s>(&'s self, held: Self::Held<'s>) {
        drop(held);
        panic!("nobody else would ever get it");
    }

    /// Lets so much time pass as if working.
    async fn work(&self, nanos: Nanos) {
        clock::work(nanos);
    }

    /// Verbs posted so far; a rival posts none.
    fn verbs(&self) -> Counts {
        Counts::default()
    }
}

/// What a client does again and again. Asked once a phase, so that what is about the laps is
/// compiled once, and each of them for its subject.
pub trait Laps {
    /// The time, in nanoseconds.
    fn now(&self) -> Nanos;

    /// Verbs posted so far.
    fn verbs(&self) -> Counts;

    /// Does it as long as the pace allows.
    fn laps<'a>(
        &'a self,
        judge: Judge<'a>,
        draws: &'a mut Draws,
        pace: Pace<'a>,
        course: Course,
        tally: &'a mut Tally,
    ) -> LocalFuture<'a, Result<(), Failure>>;
}

/// Why a client stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    /// It could not acquire.
    #[error("a lock was not acquired")]
    Acquire(#[from] AcquireError),
    /// It could not release.
    #[error("a lock was not released")]
    Release(#[from] ReleaseError),
    /// A file was not read or written.
    #[error("a request to a file failed")]
    File(#[from] FsError),
    /// A transaction could neither commit nor begin again.
    #[error("a transaction failed")]
    Transaction(#[from] Abort),
    /// The system refused a rival.
    #[error("the system refused: error {0}")]
    System(i32),
    /// A session refused, by the stable name of its error.
    #[error("the session refused: {0}")]
    Session(&'static str),
    /// A command could not be run, or ended with this status; -1 where it has none.
    #[error("a command ended with status {0}")]
    Command(i32),
}

/// What each cycle is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Course {
    /// Work inside the critical section, in nanoseconds.
    pub hold_ns: Nanos,
    /// Work between two cycles, in nanoseconds.
    pub think_ns: Nanos,
    /// One acquisition in so many is timed.
    pub sample: u32,
    /// How many of [`Course::CERTAIN`] acquisitions are never released.
    pub skip_release: u32,
}

impl Course {
    /// So many acquisitions are all.
    pub const CERTAIN: f64 = (1_u64 << 32) as f64;
}

/// Where a run stands. The values are those of the phase word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Phase {
    /// Clients get ready.
    Ready = 0,
    /// Clients run unmeasured.
    WarmUp = 1,
    /// Clients are measured.
    Measured = 2,
    /// Clients stop.
    Over = 3,
}

/// The words through which a run's director and its clients agree.
#[derive(Clone, Copy, Debug)]
pub struct Control<'a> {
    phase: &'a AtomicU64,
    budget: &'a AtomicU64,
}

impl<'a> Control<'a> {
    /// Words that a control needs: a line each.
    pub const WORDS: usize = 16;

    /// A control over these words.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        assert!(words.len() >= Self::WORDS, "a line for each word");
        Self { phase: &words[0], budget: &words[8] }
    }

    /// Begins a phase.
    pub fn begin(&self, phase: Phase) {
        self.phase.store(phase as u64, Ordering::Release);
    }

    /// Whether the run is in this phase.
    #[inline(always)]
    pub fn is_in(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Acquire) == phase as u64
    }

    /// How many measured cycles all clients do together.
    pub fn set_budget(&self, cycles: u64) {
        self.budget.store(cycles, Ordering::Release);
    }

    /// Takes up to `share` cycles from the budget.
    fn take(&self, share: u64) -> u64 {
        let left = |budget: u64| Some(budget.saturating_sub(share));
        let before = self.budget.fetch_update(Ordering::AcqRel, Ordering::Acquire, left);
        before.unwrap_or(0).min(share)
    }
}

/// How far a client goes: as long as the phase lasts, and as long as there is budget.
pub struct Pace<'a> {
    control: Control<'a>,
    phase: Phase,
    left: u64,
    share: u64,
}

impl<'a> Pace<'a> {
    fn unlimited(control: Control<'a>, phase: Phase) -> Self {
        Self { control, phase, left: u64::MAX, share: 0 }
    }

    fn shared(control: Control<'a>, phase: Phase, share: u64) -> Self {
        Self { control, phase, left: 0, share }
    }

    /// Whether the phase lasts: a client that waits for others between two laps goes on waiting.
    pub fn lasts(&self) -> bool {
        self.control.is_in(self.phase)
    }

    /// Whether there is another lap.
    #[inline(always)]
    pub fn goes_on(&mut self) -> bool {
        if self.left == 0 {
            self.left = self.control.take(self.share);
            if self.left == 0 {
                return false;
            }
        }
        self.left -= 1;
        self.control.is_in(self.phase)
    }
}

/// What one client did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Measured cycles.
    pub acquisitions: u64,
    /// Exclusive cycles, warm-up included: what the judge's words must add up to.
    pub exclusive: u64,
    /// Violations this client saw, warm-up included.
    pub violations: u64,
    /// Measured cycles that ended without a release.
    pub skipped: u64,
    /// Measured cycles whose release came after the end of their lease.
    pub lost: u64,
    /// Measured attempts of transactions that ended without a commit; claims of ranges that were
    /// undone or refused.
    pub aborts: u64,
    /// Claims of ranges among these that took longer than others wait for them.
    pub late: u64,
    /// Measured requests of ranges that met others' covers, and nobody's units, when they began.
    pub false_conflicts: u64,
    /// Measured transactions that were given up for good.
    pub given_up: u64,
    /// How long it was measured, in nanoseconds.
    pub elapsed_ns: Nanos,
    /// Atomics, reads, writes and sends it posted while measured.
    pub verbs: [u64; 4],
    /// How long acquisitions took; of clients of files, whole writes.
    pub latency: Latency,
    /// Of clients of files: how long whole reads took.
    pub reads: Latency,
}

impl Tally {
    /// The account of two tasks of one client, which count the verbs of both.
    #[must_use]
    pub fn beside(mut self, other: &Self) -> Self {
        self.acquisitions += other.acquisitions;
        self.exclusive += other.exclusive;
        self.violations += other.violations;
        self.skipped += other.skipped;
        self.lost += other.lost;
        self.aborts += other.aborts;
        self.late += other.late;
        self.false_conflicts += other.false_conflicts;
        self.given_up += other.given_up;
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.verbs = std::array::from_fn(|kind| self.verbs[kind].max(other.verbs[kind]));
        self.latency.add(&other.latency);
        self.reads.add(&other.reads);
        self
    }
}

/// Runs one client through the warm-up and the measured phase. `budget` is how many measured
/// cycles all clients do together; `None` for as many as the phase has time for.
pub async fn drive(
    laps: &dyn Laps,
    judge: Judge<'_>,
    draws: &mut Draws,
    control: Control<'_>,
    course: Course,
    budget: Option<(u64, usize)>,
) -> Result<Tally, Failure> {
    let mut warm_up = Tally::default();
    let pace = Pace::unlimited(control, Phase::WarmUp);
    laps.laps(judge, draws, pace, course, &mut warm_up).await?;

    let mut tally = Tally::default();
    let pace = match budget {
        None => Pace::unlimited(control, Phase::Measured),
        Some((cycles, clients)) => {
            // Small enough that no client is left with the last share for long.
            let share = (cycles / (16 * clients as u64)).clamp(1, BUDGET_SHARE_MAX);
            Pace::shared(control, Phase::Measured, share)
        }
    };
    let (begun, before) = (laps.now(), laps.verbs());
    laps.laps(judge, draws, pace, course, &mut tally).await?;
    tally.elapsed_ns = laps.now() - begun;
    let spent = laps.verbs() - before;
    tally.verbs = [spent.atomics, spent.reads, spent.writes, spent.sends];
    tally.exclusive += warm_up.exclusive;
    tally.violations += warm_up.violations;
    Ok(tally)
}

/// A subject acquired and released, one lock at a time.
#[derive(Debug)]
pub struct Cycles<S>(pub S);

impl<S: Deref<Target: Subject + Sized>> Laps for Cycles<S> {
    fn now(&self) -> Nanos {
        self.0.now()
    }

    fn verbs(&self) -> Counts {
        self.0.verbs()
    }

    fn laps<'a>(
        &'a self,
        judge: Judge<'a>,
        draws: &'a mut Draws,
        pace: Pace<'a>,
        course: Course,
        tally: &'a mut Tally,
    ) -> LocalFuture<'a, Result<(), Failure>> {
        Box::pin(cycles(&*self.0, judge, draws, pace, course, tally))
    }
}

/// A judge of the loop: of locks with numbers, or of what numbers stand for.
pub trait Judging {
    /// What a holder found when it entered.
    type Entered;

    /// The caller is about to ask for this lock. Whether it meets others there without need.
    fn asks(&self, lock: u32, mode: Mode) -> bool;

    /// The caller has acquired it.
    fn enter(&self, lock: u32, mode: Mode) -> Self::Entered;

    /// The caller is about to release it. Returns how many violations it has seen: 0 or 1.
    fn leave(&self, lock: u32, mode: Mode, entered: Self::Entered) -> u64;
}

impl Judging for Judge<'_> {
    type Entered = Entered;

    #[inline(always)]
    fn asks(&self, _: u32, _: Mode) -> bool {
        false
    }

    #[inline(always)]
    fn enter(&self, lock: u32, mode: Mode) -> Entered {
        Judge::enter(self, lock, mode)
    }

    #[inline(always)]
    fn leave(&self, lock: u32, _: Mode, entered: Entered) -> u64 {
        Judge::leave(self, lock, entered)
    }
}

/// The loop.
#[inline(always)]
pub(crate) async fn cycles<S: Subject, J: Judging>(
    subject: &S,
    judge: J,
    draws: &mut Draws,
    mut pace: Pace<'_>,
    course: Course,
    tally: &mut Tally,
) -> Result<(), Failure> {
    // The first is timed, so that even a short run tells how long it takes.
    let mut until_sample = 1;
    while pace.goes_on() {
        let (lock, mode) = draws.draw();
        until_sample -= 1;
        tally.false_conflicts += u64::from(judge.asks(lock, mode));
        let begun = if until_sample == 0 { Some(subject.now()) } else { None };
        let held = subject.acquire(lock, mode).await?;
        let entered = judge.enter(lock, mode);
        if let Some(begun) = begun {
            tally.latency.record(subject.now() - begun);
            until_sample = course.sample;
        }
        if course.hold_ns != 0 {
            subject.work(course.hold_ns).await;
        }
        let violations = judge.leave(lock, mode, entered);
        // Who is inside after its lease excludes nobody any more.
        if violations > 0 && subject.expires(&held).is_none_or(|end| subject.now() < end) {
            tally.violations += violations;
        }
        if course.skip_release != 0 && draws.chance() < course.skip_release {
            subject.abandon(held);
            tally.skipped += 1;
        } else {
            match subject.release(held).await {
                Err(Failure::Release(ReleaseError::Lost)) => tally.lost += 1,
                released => released?,
            }
        }
        tally.acquisitions += 1;
        tally.exclusive += mode as u64;
        if course.think_ns != 0 {
            subject.work(course.think_ns).await;
        }
    }
    Ok(())
}
