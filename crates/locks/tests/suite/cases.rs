//! The cases.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use farlock_fabric::{Addr, Nanos};
use farlock_locks::{AcquireError, Mode};

use crate::Task;
use crate::ledger::Ledger;
use crate::setting::{Actor, Hold, Promise, Setting};

/// Acquires, stays for `hold` nanoseconds, releases; the ledger watches.
async fn cycle(client: &dyn Actor, lock: Addr, mode: Mode, hold: u64, who: u64, ledger: &Ledger) {
    let guard = client.acquire(lock, mode).await.expect("an acquisition succeeds");
    ledger.enter(lock, who, client.judged(mode), guard.token());
    client.sleep(hold).await;
    ledger.leave(lock, who);
    guard.release().await.expect("a release succeeds");
}

const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

/// Readers and writers, many rounds, one lock.
pub(crate) fn exclusion(on: &mut dyn Setting) {
    let promise = on.promise();
    let (word, ledger) = (on.lock(), Ledger::default());
    rounds(on, &[word], &ledger, 6, 20, promise.spec);
}

/// Sixty-four clients on sixteen locks.
pub(crate) fn crowd(on: &mut dyn Setting) {
    let promise = on.promise();
    let words = on.locks(16);
    rounds(on, &words, &Ledger::default(), 64, 12, promise.spec);
}

/// Acquisitions before the counts of [`near_wrap`] wrap.
const STEPS_BEFORE_WRAP: u16 = 7;

/// Every field that counts is about to wrap.
pub(crate) fn near_wrap(on: &mut dyn Setting) {
    let promise = on.promise();
    let Some(word) = on.near_wrap(STEPS_BEFORE_WRAP) else { return };
    // Tokens wrap with the count, so the ledger is not told.
    let ledger = Ledger::default();
    let tasks = (0..5).map(|who| {
        let client = on.client();
        let ledger = ledger.clone();
        Box::pin(async move {
            for round in 0..8 {
                let mode = if (who + round) % 3 == 0 { Mode::Shared } else { Mode::Exclusive };
                let guard = client.acquire(word, mode).await.expect("acquires");
                ledger.enter(word, who, client.judged(mode), None);
                client.sleep(300).await;
                ledger.leave(word, who);
                guard.release().await.expect("releases");
            }
        }) as Task
    });
    let tasks = tasks.collect();
    assert!(on.run(tasks), "{}: somebody waits for ever", promise.spec);
    ledger.assert_clean(promise.spec);
}

/// Six clients on one lock; returns what the judge saw.
pub(crate) fn contend(on: &mut dyn Setting) -> Ledger {
    let ledger = Ledger::default();
    let words = [on.lock()];
    let tasks = contenders(on, &words, &ledger, 6, 100);
    assert!(on.run(tasks), "somebody hangs");
    ledger
}

fn contenders(
    on: &mut dyn Setting,
    words: &[Addr],
    ledger: &Ledger,
    clients: u64,
    rounds: u64,
) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    for who in 0..clients {
        let client = on.client();
        let (words, ledger) = (words.to_vec(), ledger.clone());
        tasks.push(Box::pin(async move {
            for _ in 0..rounds {
                let chance = client.random();
                let word = words[(chance >> 32) as usize % words.len()];
                let mode = if chance & 1 == 0 { Mode::Shared } else { Mode::Exclusive };
                cycle(&*client, word, mode, chance % 700, who, &ledger).await;
                client.sleep(chance >> 8 & 511).await;
            }
        }));
    }
    tasks
}

fn rounds(
    on: &mut dyn Setting,
    words: &[Addr],
    ledger: &Ledger,
    clients: u64,
    rounds: u64,
    context: &str,
) {
    let tasks = contenders(on, words, ledger, clients, rounds);
    assert!(on.run(tasks), "{context}: somebody waits for ever");
    ledger.assert_clean(context);
    let grants: usize = words.iter().map(|word| ledger.grants(*word).len()).sum();
    assert_eq!(grants as u64, clients * rounds, "{context}: every acquisition is granted");
}

/// Readers share, if the lock says so.
pub(crate) fn readers_share(on: &mut dyn Setting) {
    let promise = on.promise();
    let step_ns = on.step_ns();
    let (word, ledger) = (on.lock(), Ledger::default());
    let tasks = (0..3).map(|who| {
        let (client, ledger) = (on.client(), ledger.clone());
        Box::pin(async move {
            cycle(&*client, word, Mode::Shared, 20 * step_ns, who, &ledger).await;
        }) as Task
    });
    let tasks = tasks.collect();
    assert!(on.run(tasks), "{}: somebody waits for ever", promise.spec);
    ledger.assert_clean(promise.spec);
    let together = if promise.shares { 3 } else { 0 };
    assert_eq!(ledger.readers_max(word), together, "{}", promise.spec);
}

/// Two clients hold one lock, and one of them another, which the other one awaits: the release of
/// the first lock waits for nobody, whatever was acquired before.
pub(crate) fn release_waits_for_nobody(on: &mut dyn Setting) {
    let promise = on.promise();
    let step_ns = on.step_ns();
    for before in 0..4 {
        let [outer, inner] = [(); 2].map(|()| on.lock());
        let (first, second) = (pair(on), pair(on));
        let holder = Box::pin(async move {
            let [at_outer, at_inner] = first;
            for _ in 0..before {
                let guard = at_outer.shared(outer).await.expect("a reader is granted");
                guard.release().await.expect("releases");
            }
            at_outer.sleep(4 * step_ns).await;
            let around = at_outer.shared(outer).await.expect("a reader is granted");
            let within = at_inner.exclusive(inner).await.expect("a writer is granted");
            at_outer.sleep(8 * step_ns).await;
            around.release().await.expect("releases");
            within.release().await.expect("releases");
        });
        let waiter = Box::pin(async move {
            let [at_outer, at_inner] = second;
            at_outer.sleep(3 * step_ns).await;
            let around = at_outer.shared(outer).await.expect("a reader is granted");
            at_outer.sleep(5 * step_ns).await;
            let within = at_inner.exclusive(inner).await.expect("a writer is granted");
            within.release().await.expect("releases");
            around.release().await.expect("releases");
        });
        let spec = promise.spec;
        let ends = !promise.shares || on.run(vec![holder, waiter]);
        assert!(ends, "{spec}: with {before} before, somebody waits for ever");
    }
}

/// Clients of two locks, that act as one.
fn pair(on: &mut dyn Setting) -> [Rc<dyn Actor>; 2] {
    [(); 2].map(|()| on.client())
}

/// How many verbs one after another get a client in line at most: two attempts to acquire without,
/// or to pass those who are, and then the one that does.
pub(crate) const IN_LINE_STEPS: Nanos = 4;

/// Gets in line when `next` says so, and lets the next one do so when it is certainly in line.
/// Sleeping for different times would not do: a busy machine gives no such order.
async fn get_in_line<'c>(
    client: &'c dyn Actor,
    (lock, mode): (Addr, Mode),
    step_ns: Nanos,
    next: &Cell<u64>,
    who: u64,
) -> Hold<'c> {
    while next.get() != who {
        client.sleep(step_ns).await;
    }
    let mut acquire = pin!(client.acquire(lock, mode));
    let mut granted = None;
    {
        let mut sleep = pin!(client.sleep(IN_LINE_STEPS * step_ns));
        poll_fn(|cx| {
            if granted.is_none()
                && let Poll::Ready(guard) = acquire.as_mut().poll(cx)
            {
                granted = Some(guard);
            }
            sleep.as_mut().poll(cx)
        })
        .await;
    }
    next.set(who + 1);
    let guard = match granted {
        Some(guard) => guard,
        None => acquire.await,
    };
    guard.expect("an acquisition succeeds")
}

/// Clients that want one lock in these modes get in line one after another; its holder waits until
/// all are in line. In which order were they granted?
fn granted_in_order(on: &mut dyn Setting, modes: &[Mode], spec: &str) -> Vec<u64> {
    let (word, ledger) = (on.lock(), Ledger::default());
    let step_ns = on.step_ns();
    let (next, all) = (Rc::new(Cell::new(0)), modes.len() as u64);
    let tasks = modes.iter().zip(0..).map(|(&mode, who)| {
        let (client, ledger, next) = (on.client(), ledger.clone(), next.clone());
        Box::pin(async move {
            let guard = get_in_line(&*client, (word, mode), step_ns, &next, who).await;
            ledger.enter(word, who, client.judged(mode), guard.token());
            while next.get() != all {
                client.sleep(step_ns).await;
            }
            ledger.leave(word, who);
            guard.release().await.expect("a release succeeds");
        }) as Task
    });
    let tasks = tasks.collect();
    assert!(on.run(tasks), "{spec}: somebody waits for ever");
    ledger.assert_clean(spec);
    ledger.grants(word).iter().map(|(who, _)| *who).collect()
}

/// Writers that got in line one after another are granted in that order.
pub(crate) fn first_come_first_served(on: &mut dyn Setting) {
    let promise = on.promise();
    if promise.fifo {
        let order = granted_in_order(on, &[Mode::Exclusive; 8], promise.spec);
        assert_eq!(order, (0..8).collect::<Vec<_>>(), "{}", promise.spec);
    }
}

/// A reader that comes after a waiting writer is granted after it.
pub(crate) fn writer_preference(on: &mut dyn Setting) {
    let promise = on.promise();
    if promise.writers_before_reader.is_some() {
        let modes = [Mode::Shared, Mode::Exclusive, Mode::Shared];
        let order = granted_in_order(on, &modes, promise.spec);
        assert_eq!(order, [0, 1, 2], "{}", promise.spec);
    }
}

/// While writers come without end, a reader waits for at most the promised number of them.
pub(crate) fn reader_is_not_starved(on: &mut dyn Setting) {
    let promise = on.promise();
    let step_ns = on.step_ns();
    let Some(bound) = promise.writers_before_reader else { return };
    let (word, ledger) = (on.lock(), Ledger::default());
    let stop = Rc::new(Cell::new(false));
    let mut tasks: Vec<Task> = Vec::new();
    for who in 1..=5 {
        let (client, ledger, stop) = (on.client(), ledger.clone(), stop.clone());
        tasks.push(Box::pin(async move {
            while !stop.get() {
                cycle(&*client, word, Mode::Exclusive, step_ns / 4, who, &ledger).await;
            }
        }));
    }
    let (reader, spec) = (on.client(), promise.spec);
    let judge = ledger.clone();
    tasks.push(Box::pin(async move {
        for _ in 0..5 {
            reader.sleep(30 * step_ns).await;
            let mut acquire = pin!(reader.shared(word));
            // From when the opening verb has certainly taken effect.
            let at_once = poll_fn(|cx| Poll::Ready(acquire.as_mut().poll(cx))).await;
            let guard = match at_once {
                Poll::Ready(guard) => guard,
                Poll::Pending => {
                    reader.sleep(step_ns).await;
                    let before = judge.grants(word).len();
                    let guard = acquire.await;
                    let passed = judge.grants(word).len() - before;
                    assert!(passed <= bound, "{spec}: {passed} writers passed a reader");
                    guard
                }
            };
            let guard = guard.expect("a reader is granted");
            judge.enter(word, 0, Mode::Shared, guard.token());
            judge.leave(word, 0);
            guard.release().await.expect("releases");
        }
        stop.set(true);
    }));
    assert!(on.run(tasks), "{}: somebody waits for ever", promise.spec);
    ledger.assert_clean(promise.spec);
}

/// Waits until a hold in this mode that was released keeps nobody out.
async fn until_over(client: &dyn Actor, promise: Promise, mode: Mode) {
    if mode == Mode::Shared {
        client.sleep(promise.lingers_ns + 3 * client.clock_error()).await;
    }
}

/// A try never waits, and leaves no trace where it fails.
pub(crate) fn a_try(on: &mut dyn Setting) {
    let promise = on.promise();
    let word = on.lock();
    let (holder, other) = (on.client(), on.client());
    let spec = promise.spec;
    let task = async move {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let held = holder.try_acquire(word, mode).await.expect("tries");
            let held = held.unwrap_or_else(|| panic!("{spec}: a free lock is granted"));
            for wanted in [Mode::Exclusive, Mode::Shared] {
                let got = other.try_acquire(word, wanted).await.expect("tries");
                let both = promise.shares && mode == Mode::Shared && wanted == Mode::Shared;
                assert_eq!(got.is_some(), both, "{spec}: {wanted:?} beside {mode:?}");
                if let Some(guard) = got {
                    guard.release().await.expect("releases");
                }
            }
            held.release().await.expect("releases");
            until_over(&*holder, promise, mode).await;
        }
        let again = other.try_acquire(word, Mode::Exclusive).await.expect("tries");
        again.expect("the lock is free again").release().await.expect("releases");
    };
    assert!(on.run(vec![Box::pin(task)]), "{spec}: somebody waits for ever");
}

/// A try of a client that has just released the lock to others leaves no trace where it fails,
/// though the word may still be as that client left it.
pub(crate) fn try_after_handover(on: &mut dyn Setting) {
    let promise = on.promise();
    let step_ns = on.step_ns();
    for (held, wanted) in MODES.into_iter().flat_map(|held| MODES.map(|wanted| (held, wanted))) {
        let word = on.lock();
        let (holder, next) = (on.client(), on.client());
        let (held_first, tried) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let (has_held, has_tried, spec) = (held_first.clone(), tried.clone(), promise.spec);
        let tasks: [Task; 2] = [
            Box::pin(async move {
                let guard = holder.acquire(word, held).await.expect("acquires");
                held_first.set(true);
                holder.sleep(4 * step_ns).await;
                guard.release().await.expect("releases");
                for _ in 0..2 {
                    if let Some(guard) = holder.try_acquire(word, wanted).await.expect("tries") {
                        guard.release().await.expect("releases");
                    }
                    holder.sleep(4 * step_ns).await;
                }
                tried.set(true);
                cycle(&*holder, word, Mode::Exclusive, 0, 0, &Ledger::default()).await;
                let events = holder.events();
                assert_eq!((events.repaired, events.restarted), (0, 0), "{spec}: nobody died");
            }),
            Box::pin(async move {
                while !has_held.get() {
                    next.sleep(step_ns).await;
                }
                let guard = next.exclusive(word).await.expect("acquires");
                while !has_tried.get() {
                    next.sleep(step_ns).await;
                }
                guard.release().await.expect("releases");
            }),
        ];
        let ended = on.run(tasks.into());
        assert!(ended, "{spec}: {wanted:?} tried after {held:?} was handed over: hangs");
    }
}

/// Who holds to update keeps everybody out who comes later, until it releases; upgraded, it is
/// alone.
pub(crate) fn update(on: &mut dyn Setting) {
    let promise = on.promise();
    let word = on.lock();
    let (one, other, spec) = (on.client(), on.client(), promise.spec);
    let task = async move {
        for upgrades in [false, true] {
            let early = match promise.updates {
                true => Some(other.shared(word).await.expect("acquires")),
                false => None,
            };
            let held = one.update(word).await.expect("acquires");
            let token = held.token();
            assert_eq!(token.is_some(), promise.has_tokens, "{spec}");
            for mode in [Mode::Shared, Mode::Exclusive] {
                let late = other.try_acquire(word, mode).await.expect("tries");
                assert!(late.is_none(), "{spec}: {mode:?} beside a hold to update");
            }
            if let Some(early) = early {
                early.release().await.expect("releases");
            }
            if upgrades {
                let held = held.upgrade().await.expect("upgrades");
                assert_eq!((held.mode(), held.token()), (Mode::Exclusive, token), "{spec}");
                held.release().await.expect("releases");
            } else {
                held.release().await.expect("releases");
            }
        }
        let again = other.try_acquire(word, Mode::Exclusive).await.expect("tries");
        again.expect("the lock is free again").release().await.expect("releases");
    };
    assert!(on.run(vec![Box::pin(task)]), "{spec}: somebody waits for ever");
}

/// A time-out gives up in time, and delays nobody once it is settled.
pub(crate) fn time_out(on: &mut dyn Setting) {
    let promise = on.promise();
    let step_ns = on.step_ns();
    for (held, wanted) in [
        (Mode::Exclusive, Mode::Exclusive),
        (Mode::Exclusive, Mode::Shared),
        (Mode::Shared, Mode::Exclusive),
    ] {
        let word = on.lock();
        let (holder, other) = (on.client(), on.client());
        let task = async move {
            let guard = holder.acquire(word, held).await.expect("acquires");
            let started = other.now();
            let result = other.acquire_within(word, wanted, 10 * step_ns).await;
            assert_eq!(result.map(drop), Err(AcquireError::TimedOut));
            let waited = other.now() - started;
            assert!(waited >= 10 * step_ns, "gave up after {waited} ns");
            assert!(other.is_unsettled());
            guard.release().await.expect("releases");
            other.settle().await;
            assert!(!other.is_unsettled());
            until_over(&*other, promise, wanted).await;
            let again = holder.try_acquire(word, Mode::Exclusive).await.expect("tries");
            again.expect("settled, so free").release().await.expect("releases");
        };
        let spec = promise.spec;
        assert!(on.run(vec![Box::pin(task)]), "{spec}: {wanted:?} beside {held:?} hangs");
    }
}

/// An acquisition dropped at any of its await points leaks nothing.
pub(crate) fn cancel(on: &mut dyn Setting) {
    let promise = on.promise();
    for mode in [Mode::Exclusive, Mode::Shared] {
        for polls in 0..12 {
            cancel_after(on, promise.spec, mode, polls);
        }
    }
}

/// One client is cancelled after so many polls while another holds and a third waits.
fn cancel_after(on: &mut dyn Setting, spec: &str, mode: Mode, polls: u32) {
    let (word, ledger) = (on.lock(), Ledger::default());
    let step_ns = on.step_ns();
    let parts = [on.client(), on.client(), on.client()];
    let [holder, cancelled, third] = parts;
    let mut tasks: Vec<Task> = Vec::new();
    let judge = ledger.clone();
    tasks.push(Box::pin(async move {
        cycle(&*holder, word, Mode::Exclusive, 8 * step_ns, 0, &judge).await;
    }));
    tasks.push(Box::pin(async move {
        cancelled.sleep(2 * step_ns).await;
        {
            let mut acquire = pin!(cancelled.acquire(word, mode));
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
        cancelled.settle().await;
    }));
    let judge = ledger.clone();
    tasks.push(Box::pin(async move {
        third.sleep(4 * step_ns).await;
        cycle(&*third, word, Mode::Exclusive, 0, 2, &judge).await;
    }));
    assert!(on.run(tasks), "{spec}: {mode:?} cancelled after {polls} polls hangs somebody");
    ledger.assert_clean(spec);
}

/// A client holds several locks, each in a slot of its own, until it has no slot left.
pub(crate) fn several_locks(on: &mut dyn Setting) {
    let promise = on.promise();
    let locks = on.locks(65);
    let (many, other) = (on.client(), on.client());
    let task = async move {
        let slots = usize::from(many.slots().min(64));
        let mut guards = Vec::new();
        for lock in &locks[..slots] {
            guards.push(many.exclusive(*lock).await.expect("a slot is free"));
        }
        let more = many.exclusive(locks[slots]).await;
        assert_eq!(more.map(drop), Err(AcquireError::NoSlot));
        for lock in &locks[..slots] {
            let tried = other.try_acquire(*lock, Mode::Exclusive).await;
            assert!(tried.expect("tries").is_none());
        }
        // Dropped guards are released when their client settles, and so is what was to be.
        drop(guards.pop().expect("there is more than one slot").release());
        guards.truncate(slots / 2);
        many.settle().await;
        for lock in &locks[slots / 2..slots] {
            let tried = other.try_acquire(*lock, Mode::Exclusive).await;
            tried.expect("tries").expect("settled").release().await.expect("releases");
        }
        for guard in guards {
            guard.release().await.expect("releases");
        }
    };
    assert!(on.run(vec![Box::pin(task)]), "{}: hangs", promise.spec);
}

/// Tokens increase with every exclusive grant, across clients.
pub(crate) fn tokens_increase(on: &mut dyn Setting) {
    let promise = on.promise();
    let word = on.lock();
    let clients = [on.client(), on.client()];
    let spec = promise.spec;
    let task = async move {
        let mut last = None;
        for round in 0..20 {
            let client = &clients[round % 2];
            let guard = client.exclusive(word).await.expect("acquires");
            assert_eq!(guard.token().is_some(), promise.has_tokens);
            if let Some(token) = guard.token() {
                assert!(Some(token) > last, "{spec}: {token:?} after {last:?}");
                assert_eq!(token.incarnation(), 1);
                last = Some(token);
            }
            guard.release().await.expect("releases");
        }
    };
    assert!(on.run(vec![Box::pin(task)]), "{spec}: hangs");
}

/// Expands one test per case on the stages that `$stages` makes.
#[macro_export]
macro_rules! every_case {
    ($each:ident) => {
        $each!(exclusion, $crate::cases::exclusion);
        $each!(crowd, $crate::cases::crowd);
        $each!(near_wrap, $crate::cases::near_wrap);
        $each!(readers_share, $crate::cases::readers_share);
        $each!(release_waits_for_nobody, $crate::cases::release_waits_for_nobody);
        $each!(first_come_first_served, $crate::cases::first_come_first_served);
        $each!(writer_preference, $crate::cases::writer_preference);
        $each!(reader_is_not_starved, $crate::cases::reader_is_not_starved);
        $each!(a_try_never_waits, $crate::cases::a_try);
        $each!(who_updates_keeps_later_ones_out, $crate::cases::update);
        $each!(a_try_after_a_handover, $crate::cases::try_after_handover);
        $each!(time_out, $crate::cases::time_out);
        $each!(cancelled_at_every_await_point, $crate::cases::cancel);
        $each!(several_locks, $crate::cases::several_locks);
        $each!(tokens_increase, $crate::cases::tokens_increase);
    };
}
