//! What every lock must do where the tasks of a client hand it on among themselves.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use farlock_fabric::Addr;
use farlock_locks::local::together;
use farlock_locks::{AcquireError, Mode};

use crate::Task;
use crate::cases::IN_LINE_STEPS;
use crate::ledger::Ledger;
use crate::setting::{Setting, Table};

/// How often a hold is handed on here, at most.
const HANDOVERS_MAX: u32 = 3;

/// What came of the grants of a test.
#[derive(Default)]
struct Came {
    /// The most turns of a hold.
    turns_max: Cell<u32>,
    handed_on: Cell<u64>,
}

/// Acquires, stays for `hold` nanoseconds, releases; the ledger watches.
async fn cycle(
    table: &dyn Table,
    lock: Addr,
    mode: Mode,
    (who, hold): (u64, u64),
    ledger: &Ledger,
    came: &Came,
) {
    let guard = table.acquire(lock, mode).await.expect("an acquisition succeeds");
    ledger.enter(lock, who, table.client().judged(mode), guard.token());
    came.turns_max.set(came.turns_max.get().max(guard.turn()));
    came.handed_on.set(came.handed_on.get() + u64::from(guard.turn() > 0));
    table.client().sleep(hold).await;
    ledger.leave(lock, who);
    guard.release().await.expect("a release succeeds");
}

/// Readers and writers, many rounds, one lock; three clients of four tasks each. Tokens increase
/// with every exclusive grant.
pub(crate) fn local_exclusion(on: &mut dyn Setting) {
    let promise = on.promise();
    let (word, ledger) = (on.lock(), Ledger::default());
    let came = Rc::new(Came::default());
    let mut clients: Vec<Task> = Vec::new();
    for number in 0..3 {
        let (table, ledger) = (on.table(HANDOVERS_MAX), ledger.clone());
        let came = Rc::clone(&came);
        clients.push(Box::pin(async move {
            let (table, ledger, came) = (&*table, &ledger, &came);
            together((0..4).map(|task| async move {
                let client = table.client();
                for _ in 0..10 {
                    let chance = client.random();
                    let mode = if chance & 1 == 0 { Mode::Shared } else { Mode::Exclusive };
                    let stay = (4 * number + task, chance % 700);
                    cycle(table, word, mode, stay, ledger, came).await;
                    client.sleep(chance >> 8 & 511).await;
                }
            }))
            .await;
        }));
    }
    let spec = promise.spec;
    assert!(on.run(clients), "{spec}: somebody waits for ever");
    ledger.assert_clean(spec);
    assert_eq!(ledger.grants(word).len(), 120, "{spec}: every acquisition is granted");
    let (most, all) = (came.turns_max.get(), came.handed_on.get());
    assert!(most <= HANDOVERS_MAX, "{spec}: a hold had {most} turns");
    let least = if promise.is_leased { 0 } else { 20 };
    assert!(all >= least, "{spec}: {all} grants were handed on");
}

/// Tasks of one client take the lock from each other without end; another client gets it all the
/// same, and where the lock is first come, first served, sees no more of them than may be passed.
pub(crate) fn remote_is_not_starved(on: &mut dyn Setting) {
    let promise = on.promise();
    // Where counts are reset, a client that comes meanwhile is not in line yet.
    if !promise.fifo || !promise.outlives_counts {
        return;
    }
    passed_while_in_line(on, Mode::Exclusive, promise.spec);
    if promise.writers_before_reader.is_some() {
        passed_while_in_line(on, Mode::Shared, promise.spec);
    }
}

/// Tasks that want the lock in this mode, beside a writer of another client.
fn passed_while_in_line(on: &mut dyn Setting, mode: Mode, spec: &'static str) {
    let (word, ledger) = (on.lock(), Ledger::default());
    let (step_ns, is_punctual) = (on.step_ns(), on.is_punctual());
    let (busy, came) = (on.table(HANDOVERS_MAX), Came::default());
    let (remote, stop) = (on.table(HANDOVERS_MAX), Rc::new(Cell::new(false)));
    let (judge, over) = (ledger.clone(), Rc::clone(&stop));
    let busy = async move {
        let (busy, judge, came, over) = (&*busy, &judge, &came, &over);
        together((1..=4).map(|who| async move {
            while !over.get() {
                cycle(busy, word, mode, (who, step_ns / 4), judge, came).await;
            }
        }))
        .await;
    };
    let judge = ledger.clone();
    let remote = async move {
        let client = remote.client();
        for _ in 0..5 {
            client.sleep(30 * step_ns).await;
            let mut acquire = pin!(remote.acquire(word, Mode::Exclusive));
            let at_once = poll_fn(|cx| Poll::Ready(acquire.as_mut().poll(cx))).await;
            let guard = match at_once {
                Poll::Ready(guard) => guard,
                Poll::Pending => {
                    // From when it is certainly in line, which may take more than one verb.
                    let mut sleep = pin!(client.sleep(IN_LINE_STEPS * step_ns));
                    let granted = poll_fn(|cx| match acquire.as_mut().poll(cx) {
                        Poll::Ready(guard) => Poll::Ready(Some(guard)),
                        Poll::Pending => sleep.as_mut().poll(cx).map(|_| None),
                    });
                    let granted = granted.await;
                    let before = judge.grants(word).len();
                    let guard = match granted {
                        Some(guard) => guard,
                        None => acquire.await,
                    };
                    let passed = judge.grants(word).len() - before;
                    // A holder that the fabric had granted before may not yet have been told on
                    // a busy machine; then it comes first, and its turns after it.
                    let most = HANDOVERS_MAX as usize + usize::from(!is_punctual);
                    assert!(passed <= most, "{spec}, {mode:?}: {passed} passed one in line");
                    guard
                }
            };
            let guard = guard.expect("the remote one is granted");
            judge.enter(word, 0, Mode::Exclusive, guard.token());
            judge.leave(word, 0);
            guard.release().await.expect("releases");
        }
        stop.set(true);
    };
    let tasks: Vec<Task> = vec![Box::pin(busy), Box::pin(remote)];
    assert!(on.run(tasks), "{spec}: somebody waits for ever");
    ledger.assert_clean(spec);
}

/// Readers of one client are inside together, on one hold of it, up to the turns that it has.
pub(crate) fn local_readers_share(on: &mut dyn Setting) {
    let promise = on.promise();
    let (word, spec) = (on.lock(), promise.spec);
    let table = on.table(HANDOVERS_MAX);
    let task = async move {
        let first = table.acquire(word, Mode::Shared).await.expect("acquires");
        if first.mode() == Mode::Exclusive || first.expires().is_some() {
            return first.release().await.expect("releases");
        }
        let mut guards = vec![first];
        for turn in 1..=HANDOVERS_MAX {
            let mut joins = pin!(table.acquire(word, Mode::Shared));
            let at_once = poll_fn(|cx| Poll::Ready(joins.as_mut().poll(cx))).await;
            let Poll::Ready(guard) = at_once else { panic!("{spec}: a reader waits") };
            let guard = guard.expect("acquires");
            assert_eq!(guard.turn(), turn, "{spec}");
            assert_eq!(guard.fabric_token(), guards[0].fabric_token(), "{spec}");
            guards.push(guard);
        }
        let another = table.acquire(word, Mode::Shared).await.expect("acquires");
        assert_eq!(another.turn(), 0, "{spec}: a hold has no more turns");
        guards.push(another);
        // A writer waits for all of them.
        let mut writes = pin!(table.acquire(word, Mode::Exclusive));
        for guard in guards {
            let waits = poll_fn(|cx| Poll::Ready(writes.as_mut().poll(cx).is_pending())).await;
            assert!(waits, "{spec}: a writer is inside with readers");
            guard.release().await.expect("releases");
        }
        writes.await.expect("acquires").release().await.expect("releases");
    };
    assert!(on.run(vec![Box::pin(task)]), "{spec}: hangs");
}

/// A task dropped at any of its await points leaks nothing: neither what it asked the fabric for,
/// nor what it was handed, nor the wish of those behind it.
pub(crate) fn local_cancel(on: &mut dyn Setting) {
    let promise = on.promise();
    for mode in [Mode::Exclusive, Mode::Shared] {
        for polls in 0..12 {
            cancel_after(on, promise.spec, (mode, polls));
        }
    }
}

/// A task is cancelled after so many polls while another one of the same client, or of another,
/// holds; others wait behind it.
fn cancel_after(on: &mut dyn Setting, spec: &str, (mode, polls): (Mode, u32)) {
    let (word, ledger) = (on.lock(), Ledger::default());
    let step_ns = on.step_ns();
    let (here, there) = (on.table(HANDOVERS_MAX), on.table(HANDOVERS_MAX));
    for holder in [here.clone(), there] {
        let (table, judge) = (here.clone(), ledger.clone());
        let hold = async move {
            let came = Came::default();
            cycle(&*holder, word, Mode::Exclusive, (0, 8 * step_ns), &judge, &came).await;
        };
        let cancelled = {
            let table = table.clone();
            async move {
                table.client().sleep(2 * step_ns).await;
                {
                    let mut acquire = pin!(table.acquire(word, mode));
                    let mut left = polls;
                    poll_fn(|cx| {
                        if left == 0 || acquire.as_mut().poll(cx).is_ready() {
                            return Poll::Ready(());
                        }
                        left -= 1;
                        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
                    })
                    .await;
                }
                table.client().settle().await;
            }
        };
        let judge = ledger.clone();
        let behind =
            [(3, Mode::Exclusive), (4, Mode::Shared), (5, Mode::Shared)].map(|(at, mode)| {
                let (table, judge) = (table.clone(), judge.clone());
                async move {
                    table.client().sleep(at * step_ns).await;
                    cycle(&*table, word, mode, (at, 0), &judge, &Came::default()).await;
                }
            });
        let mut tasks: Vec<Task> = vec![Box::pin(hold), Box::pin(cancelled)];
        tasks.extend(behind.map(|task| Box::pin(task) as Task));
        let tasks = async move {
            together(tasks).await;
        };
        assert!(on.run(vec![Box::pin(tasks)]), "{spec}: {mode:?} cancelled after {polls} polls");
        ledger.assert_clean(spec);
    }
}

/// A try joins or takes what is free, and never waits; who gives up in line is out of it.
pub(crate) fn local_try(on: &mut dyn Setting) {
    let promise = on.promise();
    let step_ns = on.step_ns();
    let (word, spec) = (on.lock(), promise.spec);
    let (table, other) = (on.table(HANDOVERS_MAX), on.table(HANDOVERS_MAX));
    let task = async move {
        let held = table.try_acquire(word, Mode::Exclusive).await.expect("tries");
        let held = held.unwrap_or_else(|| panic!("{spec}: a free lock is granted"));
        for mode in [Mode::Exclusive, Mode::Shared] {
            for table in [&table, &other] {
                assert!(table.try_acquire(word, mode).await.expect("tries").is_none(), "{spec}");
            }
            let waited = table.acquire_within(word, mode, 10 * step_ns).await;
            assert_eq!(waited.map(drop), Err(AcquireError::TimedOut), "{spec}");
        }
        held.release().await.expect("releases");
        table.client().settle().await;
        let client = table.client();
        client.sleep(promise.lingers_ns + 3 * client.clock_error()).await;
        let again = other.try_acquire(word, Mode::Exclusive).await.expect("tries");
        again.expect("the lock is free again").release().await.expect("releases");
    };
    assert!(on.run(vec![Box::pin(task)]), "{spec}: hangs");
}

/// Expands one test per case on the stages that `$stages` makes.
#[macro_export]
macro_rules! every_local_case {
    ($each:ident) => {
        $each!(local_exclusion, $crate::local::local_exclusion);
        $each!(local_handover_starves_no_other_client, $crate::local::remote_is_not_starved);
        $each!(local_readers_share, $crate::local::local_readers_share);
        $each!(local_cancelled_at_every_await_point, $crate::local::local_cancel);
        $each!(a_local_try_never_waits, $crate::local::local_try);
    };
}
