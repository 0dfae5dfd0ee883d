//! What one endpoint of shared memory sees of itself and its place, in one process.
#![cfg(all(feature = "shm", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

#[path = "shm_support/mod.rs"]
mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use farlock_fabric::shm::{Options, Region};
use farlock_fabric::{Endpoint, Mailbox, Slot, Verb, block_on};
use support::TestDir;

/// A reader takes no place of an endpoint that acts, and needs none of those to be free.
#[test]
fn a_reader_has_places_of_its_own() {
    let dir = TestDir::new("reader-places");
    let options = || Options { endpoints: 2, ..dir.options() };
    let region = Region::open(&options()).unwrap();
    let reading = Region::open(&Options { read_only: true, ..options() }).unwrap();
    let looks = reading.endpoint().unwrap();
    assert!(looks.id().index > 2, "{:?}", looks.id());
    let acting = [region.endpoint().unwrap(), region.endpoint().unwrap()];
    assert!(acting.iter().all(|e| e.id().index <= 2));
    assert!(reading.endpoint().unwrap().id().index > looks.id().index);
}

/// What a read brought stays with the endpoint, and is copied from there.
#[test]
fn words_that_were_read_are_copied() {
    let dir = TestDir::new("copied");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let at = region.heap().0;
    block_on(&e, e.verb(Verb::Write { addr: at, data: &[1, 2, 3] })).unwrap();
    for words in 1..=3_usize {
        block_on(&e, e.verb(Verb::Read { addr: at, words: words as u16 })).unwrap();
        let mut into = [0; 4];
        assert_eq!(e.copy_read(0, &mut into), words);
        assert_eq!(into[..words], [1, 2, 3][..words], "{words} words");
        assert_eq!(e.copy_read(0, &mut into[..1]), 1, "no more than there is room for");
    }
}

/// Mail is unread from when its sender begins to write it until it was received.
#[test]
fn an_empty_mailbox_has_nothing_unread() {
    let dir = TestDir::new("unread");
    let region = dir.region();
    let (a, b) = (region.endpoint().unwrap(), region.endpoint().unwrap());
    assert!(!b.has_unread(Slot(0)));
    let to = Mailbox { endpoint: b.id(), slot: Slot(0) };
    block_on(&a, a.send(to, [1; 4])).unwrap();
    assert!(b.has_unread(Slot(0)) && !b.has_unread(Slot(1)));
    assert!(b.receive(Slot(0)).is_some() && !b.has_unread(Slot(0)));
}

/// What of a race comes to others late.
#[repr(align(128))]
struct Line(AtomicU64);

/// Two that begin each round of a race at one moment.
struct Race {
    rounds: [AtomicU64; 2],
    /// The round that is not played any more: busy machines play few.
    end: AtomicU64,
    begun: Instant,
}

impl Race {
    const ROUNDS_MAX: u64 = 1_000_000;
    const TIME: Duration = Duration::from_secs(3);

    fn new() -> Self {
        let rounds = [const { AtomicU64::new(0) }; 2];
        Self { rounds, end: AtomicU64::new(Self::ROUNDS_MAX), begun: Instant::now() }
    }

    /// False when there is no more.
    fn begins(&self, me: usize, round: u64) -> bool {
        if me == 0 && round.is_multiple_of(64) && self.begun.elapsed() > Self::TIME {
            self.end.store(round, Ordering::SeqCst);
        }
        self.rounds[me].store(round, Ordering::SeqCst);
        let mut spins = 0;
        while self.rounds[1 - me].load(Ordering::SeqCst) < round {
            spins += 1;
            match spins % 1_000 {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
        round < self.end.load(Ordering::SeqCst)
    }
}

/// Of two, of whom one publishes and then reads, and the other writes and then reads what is
/// published, one sees what the other did. A processor that kept the store back while it went on to
/// the read would have both see nothing: some in 100,000 did.
#[test]
fn what_is_published_comes_before_a_later_read() {
    let dir = TestDir::new("before-a-read");
    let region = dir.region();
    let word = region.heap().0;
    let (race, both, record) = (Race::new(), Barrier::new(2), OnceLock::new());
    // What is stored after these waits until the processor has them.
    let busy = [const { Line(AtomicU64::new(0)) }; 32];
    let play = |me: usize| {
        let e = region.endpoint().unwrap();
        if me == 0 {
            record.set(e.record(e.id().index, Slot(0)).plus(8)).unwrap();
        }
        both.wait();
        let addr = [word, *record.get().unwrap()][me];
        let mut saw = Vec::new();
        for round in 1.. {
            if !race.begins(me, round) {
                break;
            }
            if me == 0 {
                busy.iter().for_each(|line| line.0.store(round, Ordering::Relaxed));
                e.publish(Slot(0), 1, round);
            } else {
                (0..round % 16).for_each(|_| std::hint::spin_loop());
                block_on(&e, e.verb(Verb::Write { addr: word, data: &[round] })).unwrap();
            }
            block_on(&e, e.verb(Verb::Read { addr, words: 1 })).unwrap();
            saw.push(e.old() as u64 >= round);
            busy.iter().for_each(|line| {
                line.0.fetch_or(me as u64, Ordering::Relaxed);
            });
        }
        both.wait();
        saw
    };
    let [publisher, writer] = std::thread::scope(|scope| {
        let play = &play;
        [0, 1].map(|me| scope.spawn(move || play(me))).map(|thread| thread.join().unwrap())
    });
    let both_missed = publisher.iter().zip(&writer).filter(|(one, other)| !**one && !**other);
    assert_eq!(both_missed.count(), 0, "of {} rounds", publisher.len());
}
