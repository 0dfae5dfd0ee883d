//! Seats: one place in line, by hand, with the lock of sessions in shared memory.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use farlock_fabric::shm::{Options, Region, ShmEndpoint};
use farlock_fabric::{Addr, Endpoint, Verb, block_on};
use farlock_locks::record::citron;
use farlock_locks::record::claim::{Claim, ClaimWord};
use farlock_locks::record::declock::DecLock;
use farlock_locks::slot::{self, Phase, SlotRecord, SlotWord};
use farlock_locks::{Attempt, Client, Closed, Extent, Lock, Mode, Opened, Seat};

use Mode::{Exclusive, Shared};

type ClaimSeat = Seat<ShmEndpoint, Claim>;

/// A region of its own, which goes with it.
struct Room {
    region: Region,
    dir: PathBuf,
}

impl Room {
    fn new() -> Self {
        static ROOMS: AtomicU32 = AtomicU32::new(0);
        let number = ROOMS.fetch_add(1, Ordering::Relaxed);
        let dir = PathBuf::from(format!("/dev/shm/farlock-seats-{}-{number}", std::process::id()));
        let region = Region::open(&Options {
            endpoints: 8,
            heap_bytes: 1 << 16,
            max_bytes: 1 << 16,
            ..Options::new(dir.join("region"), dir.join("state"), "test")
        });
        Self { region: region.expect("a region of its own"), dir }
    }

    fn seat(&self) -> ClaimSeat {
        self.seat_of(0)
    }

    /// A seat for locks that so many newcomers may pass by the line to.
    fn seat_of(&self, bypass: u8) -> ClaimSeat {
        let endpoint = self.region.endpoint().expect("a place");
        let lock = Claim { bypass, ..Claim::default() };
        Seat::new(endpoint, lock, farlock_locks::Options::new(1))
    }

    fn lock(&self) -> Addr {
        self.region.heap().0
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.dir).expect("the region's files");
    }
}

/// More often than a newcomer yields.
const YIELDS_MAX: u32 = 1000;

/// Polls once.
fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs to its end.
fn run<T>(seat: &ClaimSeat, future: impl Future<Output = T>) -> T {
    block_on(seat.endpoint(), future)
}

/// Acquires a lock that no other has, or that others share, wherever the first verb found it.
fn acquire(seat: &mut ClaimSeat, lock: Addr, mode: Mode) {
    if seat.open(lock, mode) == Ok(Opened::InLine) {
        assert_eq!(run(seat, seat.wait()), Ok(true));
    }
    assert!(seat.is_held());
}

/// Releases, and hands over where others wait.
fn release(seat: &mut ClaimSeat) {
    if seat.close() == Ok(Closed::InHand) {
        assert_eq!(run(seat, seat.hand_over()), Ok(true));
    }
    assert!(!seat.is_held());
}

#[test]
fn a_seat_holds_and_releases_and_its_tokens_increase() {
    let room = Room::new();
    let mut seat = room.seat();
    let mut last = None;
    for _ in 0..3 {
        assert_eq!(seat.open(room.lock(), Exclusive), Ok(Opened::Held));
        assert!(seat.is_held() && !seat.is_in_line() && seat.is_seen_to_hold());
        assert_eq!((seat.mode(), seat.lock()), (Exclusive, room.lock()));
        assert!(seat.token() > last, "after {last:?}");
        last = seat.token();
        assert_eq!(seat.close(), Ok(Closed::Free));
        assert!(!seat.is_held() && !seat.is_in_line());
    }
}

#[test]
fn a_try_beside_the_living_is_busy_and_beside_the_dead_holds() {
    let room = Room::new();
    let (mut holder, mut other) = (room.seat(), room.seat());
    assert_eq!(holder.open(room.lock(), Exclusive), Ok(Opened::Held));
    for mode in [Shared, Exclusive] {
        assert_eq!(other.try_open(room.lock(), mode), Ok(Attempt::Doubtful));
        assert_eq!(run(&other, other.try_beside()), Ok(false), "its holder lives");
        assert!(!other.is_held() && !other.is_in_line());
    }
    assert!(holder.is_held());
    drop(holder);
    assert_eq!(other.try_open(room.lock(), Exclusive), Ok(Attempt::Doubtful));
    assert_eq!(run(&other, other.try_beside()), Ok(true), "its holder is dead");
    assert!(other.is_held() && other.is_seen_to_hold());
    assert_eq!(other.close(), Ok(Closed::Free));
    assert_eq!(other.try_open(room.lock(), Shared), Ok(Attempt::Held));
    assert_eq!(other.close(), Ok(Closed::Free));
}

#[test]
fn a_try_beside_living_readers_is_busy() {
    let room = Room::new();
    let (mut reader, mut writer) = (room.seat(), room.seat());
    assert_eq!(reader.open(room.lock(), Shared), Ok(Opened::Held));
    assert_eq!(writer.try_open(room.lock(), Exclusive), Ok(Attempt::Doubtful));
    assert_eq!(run(&writer, writer.try_beside()), Ok(false), "they live");
    let endpoint = room.region.endpoint().expect("a place");
    let client = Client::new(endpoint, Claim::default(), farlock_locks::Options::new(1));
    let tried = client.block_on(client.try_acquire(room.lock(), Exclusive));
    assert!(tried.expect("no verb fails").is_none());
    assert_eq!((client.events().peers_died, client.events().repaired), (0, 0), "nobody died");
    release(&mut reader);
    assert_eq!(writer.try_open(room.lock(), Exclusive), Ok(Attempt::Held));
    release(&mut writer);
}

#[test]
fn a_try_to_share_passes_over_no_waiter_that_lives() {
    let room = Room::new();
    let mut reader = room.seat();
    assert_eq!(reader.open(room.lock(), Shared), Ok(Opened::Held));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut writer = room.seat();
            acquire(&mut writer, room.lock(), Exclusive);
            release(&mut writer);
        });
        // Until the writer is in line, readers come in beside the first one.
        let mut other = room.seat();
        while other.try_open(room.lock(), Shared) == Ok(Attempt::Held) {
            release(&mut other);
            run(&other, other.endpoint().sleep(1_000));
        }
        assert_eq!(run(&other, other.try_beside()), Ok(false), "the writer comes before");
        release(&mut reader);
        waits.join().expect("the writer is granted");
    });
}

#[test]
fn a_hold_is_seen_as_long_as_its_record_says_so() {
    let room = Room::new();
    let mut seat = room.seat();
    assert!(!seat.is_seen_to_hold(), "it holds nothing");
    assert_eq!(seat.open(room.lock(), Shared), Ok(Opened::Held));
    assert!(seat.is_seen_to_hold());
    let publish = |word, value| seat.endpoint().publish(seat.slot(), word, value);
    publish(slot::LOCK, room.lock().plus(64).bits());
    assert!(!seat.is_seen_to_hold(), "its record names another lock");
    publish(slot::LOCK, room.lock().bits() | slot::IN_PARTS);
    assert!(!seat.is_seen_to_hold(), "its record names a part of it, of no words");
    publish(slot::LOCK, room.lock().bits());
    assert!(seat.is_seen_to_hold());
    publish(slot::STATE, 0);
    assert!(!seat.is_seen_to_hold(), "its record says nothing");
    seat.forsake();
    assert!(!seat.is_held());
}

#[test]
fn a_waiter_that_withdraws_has_nothing_when_its_turn_comes() {
    let room = Room::new();
    let (mut holder, mut waiter) = (room.seat(), room.seat());
    assert_eq!(holder.open(room.lock(), Exclusive), Ok(Opened::Held));
    assert_eq!(waiter.open(room.lock(), Exclusive), Ok(Opened::InLine));
    assert!(waiter.is_in_line());
    // Each of these waits is dropped, and the next one goes on where it was.
    assert_eq!(poll(waiter.wait()), Poll::Pending);
    waiter.withdraw(true);
    assert_eq!(poll(waiter.wait()), Poll::Pending, "the holder is before it in line");
    release(&mut holder);
    assert_eq!(run(&waiter, waiter.wait()), Ok(false), "it has left");
    assert!(!waiter.is_in_line() && !waiter.is_held());
    acquire(&mut holder, room.lock(), Exclusive);
    release(&mut holder);
}

#[test]
fn a_waiter_changes_its_mode_where_it_stands() {
    let room = Room::new();
    let (mut holder, mut waiter) = (room.seat(), room.seat());
    assert_eq!(holder.open(room.lock(), Shared), Ok(Opened::Held));
    assert_eq!(waiter.open(room.lock(), Exclusive), Ok(Opened::InLine));
    assert_eq!(poll(waiter.wait()), Poll::Pending);
    waiter.wait_as(Shared);
    assert_eq!(run(&waiter, waiter.wait()), Ok(true), "it shares");
    assert_eq!((waiter.mode(), waiter.is_held()), (Shared, true));
    release(&mut holder);
    release(&mut waiter);
}

#[test]
fn a_hold_becomes_another_where_it_stands() {
    let room = Room::new();
    let (mut seat, mut other) = (room.seat(), room.seat());
    assert_eq!(seat.open(room.lock(), Exclusive), Ok(Opened::Held));
    let first = seat.token();
    assert_eq!(seat.renew(), Ok(true), "nobody waits");
    let second = seat.token();
    assert!(second > first);
    assert_eq!(seat.downgrade(), Ok(true));
    assert_eq!(seat.mode(), Shared);
    assert!(seat.token() > second);
    acquire(&mut other, room.lock(), Shared);
    assert_eq!(seat.try_upgrade(), Ok(false), "another reads");
    assert_eq!(seat.mode(), Shared);
    assert_eq!(other.close(), Ok(Closed::Free));
    assert_eq!(seat.try_upgrade(), Ok(true));
    assert_eq!(seat.mode(), Exclusive);
    assert_eq!(other.try_open(room.lock(), Shared), Ok(Attempt::Doubtful));
    assert_eq!(run(&other, other.try_beside()), Ok(false));
    assert_eq!(seat.close(), Ok(Closed::Free));
}

/// A word that says that others have taken its holders off it, certain that they were dead.
fn take_off_all(room: &Room) {
    for (number, word) in room.region.words()[..2].iter().enumerate() {
        let held = ClaimWord::READERS.mask() | ClaimWord::HOLDER.mask();
        word.fetch_and(!((held >> (64 * number)) as u64), Ordering::SeqCst);
    }
}

#[test]
fn a_reader_that_was_taken_for_dead_leaves_the_word_to_others() {
    let room = Room::new();
    let (mut reader, mut writer) = (room.seat(), room.seat());
    assert_eq!(reader.open(room.lock(), Shared), Ok(Opened::Held));
    take_off_all(&room);
    assert_eq!(reader.close(), Ok(Closed::InHand), "it finds no reader to take off");
    assert_eq!(run(&reader, reader.hand_over()), Ok(false), "it did not hold any more");
    assert_eq!(writer.open(room.lock(), Exclusive), Ok(Opened::Held), "nobody reads");
    release(&mut writer);
}

#[test]
fn a_writer_that_was_taken_for_dead_becomes_no_reader() {
    let room = Room::new();
    let (mut dead, mut writer) = (room.seat(), room.seat());
    assert_eq!(dead.open(room.lock(), Exclusive), Ok(Opened::Held));
    take_off_all(&room);
    acquire(&mut writer, room.lock(), Exclusive);
    assert_eq!(dead.downgrade(), Ok(false));
    assert!(writer.is_held());
    release(&mut writer);
}

/// A waiter that came after a writer's last look at the word still keeps newcomers out.
#[test]
fn a_writer_that_becomes_a_reader_lets_no_newcomer_past_those_in_line() {
    let room = Room::new();
    let (mut seat, mut waiter, mut newcomer) = (room.seat(), room.seat(), room.seat());
    assert_eq!(seat.open(room.lock(), Exclusive), Ok(Opened::Held));
    assert_eq!(waiter.open(room.lock(), Exclusive), Ok(Opened::InLine));
    assert_eq!(poll(waiter.wait()), Poll::Pending);
    assert_eq!(seat.downgrade(), Ok(true));
    assert_eq!(newcomer.open(room.lock(), Shared), Ok(Opened::InLine));
    assert_eq!(poll(newcomer.wait()), Poll::Pending, "the waiter comes before");
    release(&mut seat);
    for seat in [&mut waiter, &mut newcomer] {
        assert_eq!(run(seat, seat.wait()), Ok(true));
        release(seat);
    }
}

/// A waiter in line is passed by as many grants as the lock lets, and by no more.
#[test]
fn a_hold_begins_anew_beside_a_line_as_often_as_newcomers_may_pass() {
    for bypass in [0, 4] {
        let room = Room::new();
        let (mut holder, mut waiter) = (room.seat_of(bypass), room.seat_of(bypass));
        assert_eq!(holder.open(room.lock(), Exclusive), Ok(Opened::Held));
        assert_eq!(waiter.open(room.lock(), Exclusive), Ok(Opened::InLine));
        // A newcomer yields before it gets in line.
        let mut wait = Box::pin(waiter.wait());
        for _ in 0..YIELDS_MAX {
            assert_eq!(poll(wait.as_mut()), Poll::Pending);
        }
        drop(wait);
        let (mut last, mut renewed) = (holder.token(), 0);
        while holder.renew() == Ok(true) {
            assert!(holder.token() > last);
            (last, renewed) = (holder.token(), renewed + 1);
            assert!(renewed <= bypass, "the waiter is passed by too often");
        }
        assert_eq!(renewed > 0, bypass > 0, "of {bypass}: {renewed}");
        assert!(holder.is_held() && holder.is_seen_to_hold(), "a hold that is not renewed stays");
        release(&mut holder);
        assert_eq!(run(&waiter, waiter.wait()), Ok(true));
        assert!(waiter.token() > last);
        release(&mut waiter);
    }
}

/// A seat knows how it left a lock, and so needs one verb where that is still so.
#[test]
fn a_reader_that_comes_back_beside_another_is_in_at_once() {
    let room = Room::new();
    let (mut reader, mut other) = (room.seat(), room.seat());
    assert_eq!(other.open(room.lock(), Shared), Ok(Opened::Held));
    acquire(&mut reader, room.lock(), Shared);
    release(&mut reader);
    for _ in 0..3 {
        assert_eq!(reader.open(room.lock(), Shared), Ok(Opened::Held));
        release(&mut reader);
    }
    release(&mut other);
}

/// What others read of a seat.
fn record(seat: &ClaimSeat) -> Option<SlotRecord> {
    let endpoint = seat.endpoint();
    let addr = endpoint.record(endpoint.id().index, seat.slot());
    let read = Verb::Read { addr, words: slot::WORDS as u16 };
    block_on(endpoint, endpoint.verb(read)).expect("it is its own");
    let mut words = [0; slot::WORDS];
    endpoint.copy_read(0, &mut words);
    SlotRecord::decode(&words)
}

/// By it others know whether a name is in use.
#[test]
fn a_seat_that_is_aimed_names_its_lock_and_does_nothing() {
    let room = Room::new();
    let seat = room.seat();
    seat.aim(room.lock());
    assert_eq!(seat.lock(), room.lock());
    let record = record(&seat).expect("a record");
    assert_eq!((record.phase, record.lock), (Phase::Idle, room.lock()));
}

/// A repairer of the lock knows by it that the first verb gave the seat nothing.
#[test]
fn a_seat_that_found_the_lock_held_says_that_it_comes() {
    let room = Room::new();
    let (mut holder, mut seat) = (room.seat(), room.seat());
    for mode in [Exclusive, Shared] {
        assert_eq!(holder.open(room.lock(), Exclusive), Ok(Opened::Held));
        assert_eq!(seat.open(room.lock(), mode), Ok(Opened::InLine));
        let record = record(&seat).expect("a record");
        assert_eq!((record.phase, record.mode, record.lock), (Phase::Coming, mode, room.lock()));
        release(&mut holder);
        assert_eq!(run(&seat, seat.wait()), Ok(true));
        release(&mut seat);
    }
}

/// The ticket that a seat's record names.
fn ticket<L: Lock<ShmEndpoint>>(seat: &Seat<ShmEndpoint, L>) -> u64 {
    let state = seat.endpoint().record(seat.endpoint().id().index, seat.slot());
    let state = state.plus(8 * slot::STATE as u64);
    block_on(seat.endpoint(), seat.endpoint().read64(state)).expect("it is its own");
    SlotWord(seat.endpoint().old() as u64).ticket()
}

/// Those that look on tell clients in line by it.
#[test]
fn a_client_has_one_position_while_it_waits_and_while_it_holds() {
    let room = Room::new();
    let mut seats = [(); 3].map(|()| {
        let endpoint = room.region.endpoint().expect("a place");
        Seat::new(endpoint, DecLock::default(), farlock_locks::Options::new(1))
    });
    for (position, seat) in (0..).zip(&mut seats) {
        let opened = if position == 0 { Opened::Held } else { Opened::InLine };
        assert_eq!(seat.open(room.lock(), Exclusive), Ok(opened));
    }
    let [mut first, second, third] = seats;
    let mut waits = [&second, &third].map(|seat| Box::pin(seat.wait()));
    assert!(waits.iter_mut().all(|wait| poll(wait.as_mut()).is_pending()));
    assert_eq!([&first, &second, &third].map(ticket), [0, 1, 2]);
    assert_eq!(first.close(), Ok(Closed::InHand));
    assert_eq!(block_on(first.endpoint(), first.hand_over()), Ok(true));
    assert_eq!(block_on(second.endpoint(), waits[0].as_mut()), Ok(true));
    assert_eq!([&second, &third].map(ticket), [1, 2]);
}

/// Bits of a leaf are cleared by the repairer that occupies the node above, in every leaf of that.
#[test]
fn a_range_that_a_dead_client_had_is_free_in_every_leaf() {
    fn every_leaf<L: Lock<ShmEndpoint, Want = Extent>>(lock: L) {
        let room = Room::new();
        let client = || {
            let endpoint = room.region.endpoint().expect("a place");
            Client::new(endpoint, lock.clone(), farlock_locks::Options::new(1))
        };
        for unit in [0, 65, 130, 255, 256] {
            let want = Extent::new(Exclusive, unit..unit + 1);
            let dying = client();
            let _held = ManuallyDrop::new(dying.lock(room.lock(), want).expect("it is free"));
            drop(dying);
            let next = client();
            let guard = next.lock(room.lock(), want).expect("its holder is dead");
            assert!(next.events().repaired > 0, "of unit {unit}");
            guard.unlock().expect("it is held");
        }
    }
    every_leaf(citron::Exclusive::default());
    every_leaf(citron::Shared::default());
}
