//! A trial: one subject, measured once; and the memory it is measured in.

use std::sync::atomic::{AtomicU64, Ordering};

use farlock_fabric::{Addr, Nanos};
use farlock_locks::local::together;
use farlock_locks::registry::{self, SpecError};
use serde::{Deserialize, Serialize};

use crate::drive::{Control, Course, Failure, Laps, Tally, drive};
use crate::fs::{self, FsCourse};
use crate::judge::Judge;
use crate::rival::rival;
use crate::transactions::TxnCourse;
use crate::workload::Workload;

/// Which face of a client is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Face {
    /// Acquisitions are awaited.
    Async,
    /// Acquisitions block the thread.
    Blocking,
}

/// When a trial ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Span {
    /// After so many nanoseconds.
    Nanos(Nanos),
    /// After so many cycles of all clients together.
    Acquisitions(u64),
}

/// What is measured, and how.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// The subject, as the command line names it.
    pub subject: String,
    /// Through which face.
    pub face: Face,
    /// Whether verbs are counted.
    pub counted: bool,
    /// How many clients.
    pub clients: usize,
    /// How many tasks each has, on one endpoint.
    pub tasks: usize,
    /// How many threads each has, on one session.
    pub threads: usize,
    /// How often they hand a hold on among themselves, at most.
    pub handovers_max: u32,
    /// What they ask for.
    pub workload: Workload,
    /// What their cycles are like.
    pub course: Course,
    /// How long they run unmeasured, in nanoseconds.
    pub warm_up_ns: Nanos,
    /// How long they are measured.
    pub span: Span,
    /// If cycles are transactions: what they are like.
    pub txn: Option<TxnCourse>,
    /// If clients read and write files: what they do.
    pub fs: Option<FsCourse>,
    /// After so many acquisitions of a lock its counts wrap or are reset, if it begins near that.
    pub near_wrap: Option<u16>,
}

impl Trial {
    /// The budget that the tasks of all clients share, with their number.
    fn budget(&self) -> Option<(u64, usize)> {
        match self.span {
            Span::Nanos(_) => None,
            Span::Acquisitions(cycles) => Some((cycles, self.clients * self.tasks * self.threads)),
        }
    }

    /// Runs the tasks of this client to their end; their common account.
    ///
    /// # Errors
    /// One of them could not acquire or release.
    pub async fn drive(
        &self,
        laps: &dyn Laps,
        client: usize,
        judge: Judge<'_>,
        control: Control<'_>,
    ) -> Result<Tally, Failure> {
        let (course, budget) = (self.course, self.budget());
        let task = |number: usize| async move {
            let mut draws = self.workload.draws(number);
            drive(laps, judge, &mut draws, control, course, budget).await
        };
        if self.tasks == 1 {
            return task(client).await;
        }
        let first = client * self.tasks;
        let tallies = together((first..first + self.tasks).map(task)).await;
        tallies.into_iter().try_fold(Tally::default(), |all, tally| Ok(all.beside(&tally?)))
    }
}

/// What is known of a lock by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockFacts {
    /// Bytes of its word.
    pub bytes: u64,
    /// Whether holds end by themselves.
    pub leased: bool,
    /// What a free one's word is near its wrap.
    pub near_wrap: u128,
}

/// The facts of this lock, with its counts so many acquisitions before their wrap.
pub fn facts(lock: &str, steps: u16) -> Result<LockFacts, SpecError> {
    let kind = registry::kind(lock)?;
    let leased = kind.promises().lease_ns.is_some();
    Ok(LockFacts { bytes: kind.bytes(), leased, near_wrap: kind.near_wrap(steps) })
}

/// What came of a trial.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Each client's own account.
    pub tallies: Vec<Tally>,
    /// Stores of the judge that were lost, each a violation that no client saw.
    pub lost: u64,
}

impl Outcome {
    /// Measured cycles of all clients.
    pub fn acquisitions(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.acquisitions).sum()
    }

    /// Seconds in which they were done: the longest of all clients' measured times.
    pub fn seconds(&self) -> f64 {
        let longest = self.tallies.iter().map(|tally| tally.elapsed_ns).max();
        longest.unwrap_or(0) as f64 / 1e9
    }

    /// Cycles a second.
    pub fn goodput(&self) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 { self.acquisitions() as f64 / seconds } else { 0.0 }
    }

    /// What one client needs for a cycle, in nanoseconds.
    pub fn cycle_ns(&self) -> f64 {
        self.seconds() * 1e9 * self.tallies.len() as f64 / self.acquisitions().max(1) as f64
    }

    /// Jain's index of the clients' cycles: 1 where all did as many, 1/n where one did all.
    pub fn fairness(&self) -> f64 {
        let counts = || self.tallies.iter().map(|tally| tally.acquisitions as f64);
        let squares: f64 = counts().map(|count| count * count).sum();
        let sum: f64 = counts().sum();
        if squares == 0.0 { 1.0 } else { sum * sum / (squares * self.tallies.len() as f64) }
    }

    /// Everything that was seen to overlap, and what was lost unseen.
    pub fn violations(&self) -> u64 {
        self.lost + self.tallies.iter().map(|tally| tally.violations).sum::<u64>()
    }
}

/// The memory of trials: words that tell the phase, the words of the judge, the locks.
#[derive(Clone, Copy, Debug)]
pub struct Arena {
    locks: u64,
    /// Words that each of them takes.
    lock_words: usize,
    /// Lines of the judge: of the locks, or of those that ask for ranges of one.
    judged: u64,
}

/// Words that a rival takes.
const RIVAL_WORDS: usize = 2;

impl Arena {
    /// An arena for the locks of this trial.
    pub fn of(trial: &Trial) -> Self {
        if let Some(course) = &trial.fs {
            let (lock_words, judged) = (fs::words(&trial.subject, course), course.judged());
            return Self { locks: 1, lock_words, judged };
        }
        let kind = registry::kind(&trial.subject);
        let lock_words = kind.map_or(RIVAL_WORDS, |kind| kind.bytes() as usize / 8);
        let locks = trial.workload.locks;
        let judged = trial.workload.ranges.map_or(locks, |_| trial.clients as u64);
        Self { locks, lock_words, judged }
    }

    /// Words of the whole arena.
    pub fn words(self) -> usize {
        self.words_before_locks() + self.locks as usize * self.lock_words
    }

    /// Words of it that are no verbs' business.
    pub fn words_before_locks(self) -> usize {
        // Locks begin with a line.
        (Control::WORDS + Judge::words(self.judged)).next_multiple_of(8)
    }

    /// Everything zero: all locks free, nobody judged, phase [`Ready`](crate::drive::Phase::Ready).
    pub fn clear(self, words: &[AtomicU64]) {
        words[..self.words()].iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// What the words of the locks must be at first, by their place among them: what is left out
    /// is zero.
    pub fn begun(self, trial: &Trial) -> anyhow::Result<impl Iterator<Item = (usize, u64)>> {
        let steps = trial.near_wrap.filter(|_| rival(&trial.subject).is_none());
        let facts = steps.map(|steps| facts(&trial.subject, steps)).transpose()?;
        let words = facts.map_or(0, |facts| facts.bytes as usize / 8);
        let word = facts.map_or(0, |facts| facts.near_wrap);
        let halves = [word as u64, (word >> 64) as u64];
        let all = self.locks as usize * words;
        Ok((0..all).map(move |place| (place, halves.get(place % words).copied().unwrap_or(0))))
    }

    /// The words through which director and clients agree.
    pub fn control(self, words: &[AtomicU64]) -> Control<'_> {
        Control::new(words)
    }

    /// The judge.
    pub fn judge(self, words: &[AtomicU64]) -> Judge<'_> {
        Judge::new(&words[Control::WORDS..self.words_before_locks()], self.judged)
    }

    /// Where the locks begin, if the arena begins at `base`.
    pub fn lock_words(self, base: Addr) -> Addr {
        base.plus(self.words_before_locks() as u64 * 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(counts: &[u64]) -> Outcome {
        let tally = |count: &u64| Tally {
            acquisitions: *count,
            elapsed_ns: 2_000_000_000,
            ..Tally::default()
        };
        Outcome { tallies: counts.iter().map(tally).collect(), lost: 0 }
    }

    #[test]
    fn fairness_is_jains_index() {
        assert_eq!(outcome(&[7, 7, 7]).fairness(), 1.0);
        assert_eq!(outcome(&[9, 0, 0]).fairness(), 1.0 / 3.0);
        assert_eq!(outcome(&[0, 0]).fairness(), 1.0);
    }

    #[test]
    fn rates_are_of_all_clients() {
        let outcome = outcome(&[1_000, 3_000]);
        assert_eq!((outcome.goodput(), outcome.cycle_ns()), (2_000.0, 1_000_000.0));
    }

    #[test]
    fn the_parts_of_an_arena_do_not_overlap() {
        let arena = Arena { locks: 3, lock_words: 2, judged: 3 };
        let words: Vec<AtomicU64> = (0..arena.words()).map(|_| AtomicU64::new(1)).collect();
        arena.clear(&words);
        let locks = arena.lock_words(Addr::from_bits(0)).offset() as usize / 8;
        words[locks..locks + 6].iter().for_each(|word| word.store(9, Ordering::Relaxed));
        assert!(arena.control(&words).is_in(crate::drive::Phase::Ready));
        assert_eq!(arena.judge(&words).lost(0), 0);
    }
}
