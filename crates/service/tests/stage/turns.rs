//! Waiters beside others that hold what they want, one after the other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use farlock::Session;
use farlock::session::{RangeLock, RangeRequest};

/// How often holders that follow each other are granted before a waiter is.
const TURNS_MAX: u64 = 500;

/// How long each of them holds.
const HOLD: Duration = Duration::from_millis(3);

/// What is asked for at a table in a round, or by the holder of a number.
pub(crate) type Ask<'a> = dyn Fn(&RangeLock, u64) -> RangeRequest + Sync + 'a;

/// Three holders, each of what it says for its number, come one after the other, or so that there
/// is always one: what else is wanted is granted five times nevertheless. Turns are counted, not
/// time: beside busy processors both take longer.
pub(crate) fn is_had_beside_holders(
    session: impl Fn() -> Session,
    hold: &Ask<'_>,
    waiter: &Session,
    want: &Ask<'_>,
) {
    let (is_over, turns) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for number in 0..3 {
            let (table, is_over, turns) = (session().range("t"), &is_over, &turns);
            scope.spawn(move || {
                thread::sleep(number * HOLD / 3);
                while !is_over.load(Ordering::Relaxed) {
                    let held = hold(&table, number.into()).blocking().unwrap();
                    turns.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(HOLD);
                    drop(held);
                }
            });
        }
        thread::sleep(10 * HOLD);
        let table = waiter.range("t");
        let turns_beside = |round| {
            let before = turns.load(Ordering::Relaxed);
            let granted = want(&table, round).within(Duration::from_secs(60)).blocking();
            granted.map(|_| turns.load(Ordering::Relaxed) - before)
        };
        let granted: Vec<_> = (0..5).map(turns_beside).collect();
        is_over.store(true, Ordering::Relaxed);
        println!("granted after so many turns of others: {granted:?}");
        let is_soon = |turns: &Result<u64, _>| turns.as_ref().is_ok_and(|&turns| turns < TURNS_MAX);
        assert!(granted.iter().all(is_soon), "{granted:?}");
    });
}
