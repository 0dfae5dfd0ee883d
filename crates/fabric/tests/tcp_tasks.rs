//! Tasks of executors that know nothing of a connection: each is polled when it was woken.
#![cfg(all(feature = "tcp", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

mod tcp_support;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use farlock_fabric::tcp::{AtOnce, Remote, TcpLane, TcpUnparker};
use farlock_fabric::{Addr, Connection, Endpoint, Park, Posted, Ticket, Verb, block_on};
use tcp_support::Both;

/// Far longer than anything here takes.
const NEVER: Duration = Duration::from_secs(20);

const ROUNDS: u64 = 200;

/// Wakes one task of a thread's executor.
struct Alarm {
    is_due: AtomicBool,
    wakes: AtomicUsize,
    executor: Thread,
}

impl Alarm {
    fn new() -> Arc<Self> {
        let (is_due, wakes) = (AtomicBool::new(true), AtomicUsize::new(0));
        Arc::new(Self { is_due, wakes, executor: thread::current() })
    }

    fn wakes(&self) -> usize {
        self.wakes.load(Ordering::SeqCst)
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.is_due.store(true, Ordering::SeqCst);
        self.executor.unpark();
    }
}

fn post(lane: &TcpLane, addr: Addr) -> Ticket {
    match lane.post(Verb::Faa64 { addr, add: 1 }) {
        Posted::Pending(ticket) => ticket,
        Posted::Done(_) => panic!("it takes a round trip"),
    }
}

/// One thread whose tasks add to a word each, as often as they are answered. One of them thinks for
/// long now and then, and the executor with it.
fn run(remote: &Remote, words: &[Addr], thinks: Option<Duration>) {
    let lanes: Vec<_> = words.iter().map(|_| remote.lane(false).unwrap()).collect();
    let mut tasks: Vec<_> = lanes
        .iter()
        .zip(words)
        .map(|((lane, _), word)| (lane, *word, post(lane, *word), 1, Alarm::new()))
        .collect();
    let begun = Instant::now();
    while tasks.iter().any(|(.., done, _)| *done <= ROUNDS) {
        let mut is_idle = true;
        for (lane, word, ticket, done, alarm) in &mut tasks {
            if *done > ROUNDS || !alarm.is_due.swap(false, Ordering::SeqCst) {
                continue;
            }
            is_idle = false;
            let waker = Waker::from(Arc::clone(alarm));
            if let Poll::Ready(ended) = lane.poll_posted(*ticket, &mut Context::from_waker(&waker))
            {
                ended.unwrap();
                *done += 1;
                if *done > ROUNDS {
                    continue;
                }
                *ticket = post(lane, *word);
                alarm.is_due.store(true, Ordering::SeqCst);
                if *done % 64 == 0 {
                    thinks.into_iter().for_each(thread::sleep);
                }
            }
        }
        if is_idle {
            thread::park_timeout(NEVER);
            assert!(begun.elapsed() < NEVER, "a task is woken once it is answered");
        }
    }
}

/// Executors of some threads, beside the thread that reads where no task does.
fn run_beside_each_other(name: &str, threads: usize, tasks: usize, thinks: Option<Duration>) {
    let both = Both::new(name);
    let remote = both.connect(&both.address).unwrap();
    let (is_over, unparker) = (AtomicBool::new(false), TcpUnparker::default());
    let words: Vec<_> = (1..=threads * tasks).map(|word| both.word(word as u64)).collect();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                remote.watch(std::iter::empty(), &unparker, Some(NEVER));
            }
        });
        let executors: Vec<_> = words
            .chunks(tasks)
            .map(|words| (scope, words))
            .map(|(scope, words)| scope.spawn(|| run(&remote, words, thinks)))
            .collect();
        executors.into_iter().for_each(|executor| executor.join().unwrap());
        is_over.store(true, Ordering::SeqCst);
        Remote::unpark(&unparker);
        reader.join().unwrap();
    });
    let here = both.here();
    for word in words {
        let read = block_on(&here, here.read64(word));
        read.unwrap();
        assert_eq!(here.old() as u64, ROUNDS);
    }
}

#[test]
fn a_task_alone_is_answered() {
    run_beside_each_other("tcp-task", 1, 1, None);
}

#[test]
fn tasks_of_one_executor_are_answered() {
    run_beside_each_other("tcp-tasks", 1, 16, None);
}

#[test]
fn tasks_of_executors_that_think_are_answered() {
    run_beside_each_other("tcp-thinkers", 3, 4, Some(Duration::from_millis(2)));
}

/// The last task to post looks for the answers of all: one that is not polled again does not keep
/// theirs from others.
#[test]
fn a_task_that_is_not_polled_again_keeps_no_other() {
    let both = Both::new("tcp-sleeper");
    let remote = both.connect(&both.address).unwrap();
    let [(one, _one), (other, _other)] = [(); 2].map(|()| remote.lane(false).unwrap());
    let (alarm, forgotten) = (Alarm::new(), Alarm::new());
    let wakers = [&alarm, &forgotten].map(|alarm| Waker::from(Arc::clone(alarm)));
    let [mut cx, mut other_cx] = wakers.each_ref().map(Context::from_waker);
    for turn in 0..20 {
        let ticket = post(&one, both.word(1));
        let of_other = post(&other, both.word(2));
        let begun = Instant::now();
        assert!(one.poll_posted(ticket, &mut cx).is_pending());
        assert!(other.poll_posted(of_other, &mut other_cx).is_pending());
        // It is woken for another turn of its own at most, and then by the answer.
        while one.poll_posted(ticket, &mut cx).is_pending() {
            let woken = alarm.wakes();
            remote.watch(std::iter::empty(), &TcpUnparker::default(), Some(Duration::from_secs(5)));
            assert!(alarm.wakes() > woken || begun.elapsed() < NEVER / 10, "turn {turn}");
        }
        assert!(begun.elapsed() < NEVER / 10, "turn {turn}");
        while other.poll_posted(of_other, &mut other_cx).is_pending() {}
    }
}

/// A task that gives up a verb for which it looked leaves the looking to others.
#[test]
fn a_task_that_gives_up_keeps_no_other() {
    let both = Both::new("tcp-giver-up");
    let remote = both.connect(&both.address).unwrap();
    let [(one, _one), (other, _other)] = [(); 2].map(|()| remote.lane(false).unwrap());
    let (alarm, given_up) = (Alarm::new(), Alarm::new());
    let wakers = [&alarm, &given_up].map(|alarm| Waker::from(Arc::clone(alarm)));
    let [mut cx, mut other_cx] = wakers.each_ref().map(Context::from_waker);
    for _ in 0..20 {
        let ticket = post(&one, both.word(1));
        let of_other = post(&other, both.word(2));
        let begun = Instant::now();
        assert!(one.poll_posted(ticket, &mut cx).is_pending());
        assert!(other.poll_posted(of_other, &mut other_cx).is_pending());
        other.abandon(of_other);
        while one.poll_posted(ticket, &mut cx).is_pending() {
            remote.watch(std::iter::empty(), &TcpUnparker::default(), Some(Duration::from_secs(5)));
        }
        assert!(begun.elapsed() < NEVER / 10);
    }
}

/// What a thread has waited for is no news: it sleeps until there is some.
#[test]
fn a_thread_that_had_its_answers_sleeps() {
    let both = Both::new("tcp-answered");
    let remote = both.connect(&both.address).unwrap();
    let (lane, _keeper) = remote.lane(false).unwrap();
    let lane = AtOnce::new(lane);
    for turn in 0..10 {
        block_on(&lane, lane.read64(both.word(1))).unwrap();
        let (interval, begun) = (Duration::from_millis(100), Instant::now());
        let mut wait = pin!(lane.sleep(interval.as_nanos() as u64));
        assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        lane.lane().park();
        // That it was attached was news.
        assert!(turn == 0 || begun.elapsed() >= interval / 2, "{turn}: {:?}", begun.elapsed());
    }
}
