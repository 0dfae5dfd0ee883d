//! Transactions as laps of the driver loop: several locks at once, until they commit.
//!
//! A transaction takes distinct locks, one after the other, as the workload draws them or in the
//! order of their addresses; works; commits. Where it waits too long it aborts and begins again
//! with the same locks. Which they are, and how many, a benchmark of transactions may say
//! ([`Mix`]).

mod mix;

use std::cell::Cell;

use farlock_fabric::hook::Counts;
use farlock_fabric::{Addr, Nanos};
use farlock_locks::lock::LocalFuture;
use farlock_locks::txn::{self, Abort, Txn, transact};
use farlock_locks::{Client, Lock, Mode};
use serde::{Deserialize, Serialize};

use crate::drive::{Course, Failure, Laps, Pace, Tally};
use crate::judge::{Entered, Judge};
use crate::subject::{Counting, Site};
use crate::workload::Draws;
pub use mix::Mix;

/// The most locks of a transaction: each takes a slot, of which an endpoint of shared memory has 8.
const LOCKS_EACH_MAX: i64 = 8;
/// How long it waits for a lock where it may wait in a circle, if nobody says, in nanoseconds: a
/// hundred round trips and more.
const PATIENCE_NS: Nanos = 1_000_000;
/// The default back-off of DSLR's paper (section 4.3 of its appendix), in nanoseconds.
const RESTART_NS: Nanos = 10_000;
/// How often a transaction is tried if nobody says.
const ATTEMPTS_MAX: u32 = 1_000;
/// So many draws for each lock of a transaction; if too few differ, neighbours are taken.
const DRAWS_MAX: usize = 64;

/// In which order a transaction takes its locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// That of their addresses: nobody waits in a circle.
    Sorted,
    /// As drawn: circles end by aborts.
    Drawn,
}

/// What each transaction is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TxnCourse {
    /// How many locks it takes, all different; at most, where a benchmark says which.
    pub locks_each: u8,
    /// If a benchmark says which: that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mix: Option<Mix>,
    /// In which order.
    pub order: Order,
    /// How long it waits for one of them before it aborts, in nanoseconds.
    pub patience_ns: Option<Nanos>,
    /// How often it retries for one of them before it aborts, where a lock retries.
    pub retries_max: Option<u32>,
    /// The bound of the first random pause after an abort, in nanoseconds.
    pub restart_ns: Nanos,
    /// How often it is tried at most.
    pub attempts_max: u32,
}

/// What to ask of transactions.
#[derive(Clone, Debug, clap::Args)]
pub struct TxnArgs {
    /// Each cycle is a transaction that takes so many different locks
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u8).range(1..=LOCKS_EACH_MAX))]
    #[arg(group = "txn")]
    pub txn_locks: Option<u8>,
    /// Each cycle is a transaction of this benchmark, which says what locks there are (sim)
    #[arg(long, value_enum, value_name = "NAME", group = "txn")]
    #[arg(conflicts_with_all = ["locks", "dist", "reads"])]
    pub txn_mix: Option<Mix>,
    /// In which order it takes them
    #[arg(long, value_enum, default_value = "sorted", requires = "txn")]
    pub txn_order: Order,
    /// How long it waits for a lock before it aborts [default: for ever if sorted, else 1000000]
    #[arg(long, value_name = "NS", requires = "txn")]
    pub txn_patience_ns: Option<Nanos>,
    /// How often it retries for a lock before it aborts [default: as often as it takes]
    #[arg(long, value_name = "N", requires = "txn")]
    pub txn_retries: Option<u32>,
    /// The bound of the first random pause after an abort
    #[arg(long, value_name = "NS", default_value_t = RESTART_NS, requires = "txn")]
    pub txn_restart_ns: Nanos,
    /// How often it is tried before it is given up
    #[arg(long, value_name = "N", default_value_t = ATTEMPTS_MAX, requires = "txn")]
    pub txn_attempts: u32,
}

impl TxnArgs {
    /// What each transaction is like; `None` where cycles are none.
    pub fn course(&self) -> Option<TxnCourse> {
        let patience_ns = match self.txn_order {
            Order::Sorted => self.txn_patience_ns,
            Order::Drawn => Some(self.txn_patience_ns.unwrap_or(PATIENCE_NS)),
        };
        Some(TxnCourse {
            locks_each: self.txn_mix.map(Mix::locks_each_max).or(self.txn_locks)?,
            mix: self.txn_mix,
            order: self.txn_order,
            patience_ns,
            retries_max: self.txn_retries,
            restart_ns: self.txn_restart_ns,
            attempts_max: self.txn_attempts,
        })
    }
}

impl TxnCourse {
    fn options(&self) -> txn::Options {
        txn::Options {
            patience_ns: self.patience_ns,
            retries_max: self.retries_max,
            restart_ns: self.restart_ns,
            attempts_max: self.attempts_max,
        }
    }
}

/// A client that runs transactions.
pub struct Transactions<E: Counting, L: Lock<E>> {
    site: Site<E, L>,
    course: TxnCourse,
    /// Which client it is, of how many.
    number: (usize, usize),
}

/// What one transaction met, over all its attempts.
#[derive(Default)]
struct Met {
    attempts: Cell<u64>,
    exclusive: Cell<u64>,
    violations: Cell<u64>,
}

impl<E: Counting, L: Lock<E>> Transactions<E, L> {
    /// A client with this number, of so many, whose locks lie one after the other from `locks` on.
    pub fn new(
        client: Client<E, L>,
        locks: Addr,
        course: TxnCourse,
        number: (usize, usize),
    ) -> Self {
        Self { site: Site { client, locks }, course, number }
    }

    /// What the next transaction takes.
    fn draw(&self, draws: &mut Draws, locks: u64) -> Vec<(u32, Mode)> {
        let (number, clients) = self.number;
        let mut drawn = match self.course.mix {
            Some(mix) => mix.draw(draws.rng(), number, clients),
            None => self.draw_each(draws, locks),
        };
        if self.course.order == Order::Sorted {
            drawn.sort_unstable_by_key(|&(lock, _)| lock);
        }
        drawn
    }

    /// So many as each takes, as the workload draws them.
    fn draw_each(&self, draws: &mut Draws, locks: u64) -> Vec<(u32, Mode)> {
        let wanted = usize::from(self.course.locks_each);
        let mut drawn: Vec<(u32, Mode)> = Vec::with_capacity(wanted);
        for _ in 0..DRAWS_MAX * wanted {
            let (lock, mode) = draws.draw();
            if drawn.iter().all(|&(other, _)| other != lock) {
                drawn.push((lock, mode));
            }
            if drawn.len() == wanted {
                break;
            }
        }
        while drawn.len() < wanted {
            let (mut lock, mode) = drawn[drawn.len() - 1];
            while drawn.iter().any(|&(other, _)| other == lock) {
                lock = (lock + 1) % locks as u32;
            }
            drawn.push((lock, mode));
        }
        drawn
    }

    /// One attempt: whatever it took is left again before its end.
    async fn attempt(
        &self,
        txn: &mut Txn<'_, E, L>,
        wanted: &[(u32, Mode)],
        judge: Judge<'_>,
        hold_ns: Nanos,
        met: &Met,
    ) -> Result<(), Abort> {
        met.attempts.set(met.attempts.get() + 1);
        let mut inside: Vec<(u32, Entered)> = Vec::with_capacity(wanted.len());
        let mut taken = Ok(());
        for &(lock, mode) in wanted {
            taken = txn.lock(self.site.addr(lock), mode).await.map(|_| ());
            if taken.is_err() {
                break;
            }
            inside.push((lock, judge.enter(lock, mode)));
            met.exclusive.set(met.exclusive.get() + mode as u64);
        }
        if taken.is_ok() && hold_ns > 0 {
            self.site.work(hold_ns).await;
        }
        // Who is inside after its lease excludes nobody any more.
        let valid = txn.validate().is_ok();
        let seen: u64 = inside.into_iter().map(|(lock, entered)| judge.leave(lock, entered)).sum();
        if valid {
            met.violations.set(met.violations.get() + seen);
        }
        taken
    }
}

impl<E: Counting, L: Lock<E>> Laps for Transactions<E, L> {
    fn now(&self) -> Nanos {
        self.site.now()
    }

    fn verbs(&self) -> Counts {
        self.site.client.endpoint().verbs()
    }

    fn laps<'a>(
        &'a self,
        judge: Judge<'a>,
        draws: &'a mut Draws,
        pace: Pace<'a>,
        course: Course,
        tally: &'a mut Tally,
    ) -> LocalFuture<'a, Result<(), Failure>> {
        Box::pin(self.transactions(judge, draws, pace, course, tally))
    }
}

impl<E: Counting, L: Lock<E>> Transactions<E, L> {
    async fn transactions(
        &self,
        judge: Judge<'_>,
        draws: &mut Draws,
        mut pace: Pace<'_>,
        course: Course,
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        while pace.goes_on() {
            let (wanted, met) = (self.draw(draws, judge.locks()), Met::default());
            let begun = self.now();
            let body = async |txn: &mut Txn<'_, E, L>| {
                self.attempt(txn, &wanted, judge, course.hold_ns, &met).await
            };
            let committed = transact(&self.site.client, self.course.options(), body).await;
            match committed {
                Ok(()) => {
                    tally.latency.record(self.now() - begun);
                    tally.acquisitions += 1;
                }
                Err(Abort::Late(_)) => tally.lost += 1,
                Err(aborted) if aborted.is_transient() => tally.given_up += 1,
                Err(aborted) => return Err(aborted.into()),
            }
            tally.aborts += met.attempts.get() - u64::from(committed.is_ok());
            tally.exclusive += met.exclusive.get();
            tally.violations += met.violations.get();
            if course.think_ns != 0 {
                self.site.work(course.think_ns).await;
            }
        }
        Ok(())
    }
}
