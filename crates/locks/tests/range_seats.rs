//! Seats at ranges of a lock in shared memory: waits that are dropped and go on, and withdrawals.

use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use farlock_fabric::shm::{Options, Region, ShmEndpoint};
use farlock_fabric::{Addr, Endpoint, Fault, Verb, Wait, block_on};
use farlock_locks::record::citron::tree::{NODE_BYTES, Tree};
use farlock_locks::record::citron::{Citron, Exclusive, Shared};
use farlock_locks::shelf::{Entry, Shelf};
use farlock_locks::{Attempt, Closed, Extent, Mode, Opened, Seat, Want};

/// Units of a leaf, of a node above leaves, and of all.
const LEAF: u32 = 4;
const NODE: u32 = 4 * LEAF;
const ALL: u32 = 4 * NODE;

type RangeSeat = Seat<ShmEndpoint, Shared>;

struct Ranges {
    region: Region,
    dir: PathBuf,
}

impl Ranges {
    fn new(name: &str) -> Self {
        Self::of(name, 1 << 16)
    }

    fn of(name: &str, bytes: u64) -> Self {
        let dir =
            PathBuf::from(format!("/dev/shm/farlock-range-seats-{name}-{}", std::process::id()));
        let region = Region::open(&Options {
            endpoints: 16,
            heap_bytes: bytes,
            max_bytes: bytes,
            ..Options::new(dir.join("region"), dir.join("state"), "test")
        });
        Self { region: region.expect("a region of its own"), dir }
    }

    fn lock(&self) -> Addr {
        self.region.heap().0
    }

    fn seat(&self) -> RangeSeat {
        let lock = Shared { leaf_units: LEAF as u8, ..Shared::default() };
        let endpoint = self.region.endpoint().expect("a place");
        Seat::new(endpoint, lock, farlock_locks::Options::new(1))
    }
}

impl Drop for Ranges {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// What comes of a wait that is dropped if it does not end at once.
fn polled_once(seat: &RangeSeat) -> Option<bool> {
    match pin!(seat.wait()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(waited) => Some(waited.expect("nothing fails")),
        Poll::Pending => None,
    }
}

fn try_now<const SHARES: bool>(
    seat: &mut Seat<ShmEndpoint, Citron<SHARES>>,
    lock: Addr,
    want: Extent,
) -> bool {
    match seat.try_open(lock, want).expect("nothing fails") {
        Attempt::Held => true,
        Attempt::Busy => false,
        Attempt::Doubtful => block_on(seat.endpoint(), seat.try_beside()).expect("nothing fails"),
    }
}

fn close<const SHARES: bool>(seat: &mut Seat<ShmEndpoint, Citron<SHARES>>) {
    if seat.close().expect("nothing fails") == Closed::InHand {
        assert!(block_on(seat.endpoint(), seat.hand_over()).expect("nothing fails"));
    }
}

fn alone(first: u32, end: u32) -> Extent {
    Extent::new(Mode::Exclusive, first..end)
}

fn shared(first: u32, end: u32) -> Extent {
    Extent::new(Mode::Shared, first..end)
}

/// Whom a waiter waits for, and what it wants: for bits, an owner above, its turn, those below, the
/// last of several nodes.
fn waits() -> [(Extent, Extent); 9] {
    [
        (alone(1, 2), alone(0, 3)),
        (alone(0, ALL), alone(1, 2)),
        (shared(0, ALL), alone(1, 2)),
        (alone(0, NODE), alone(0, NODE)),
        (shared(0, NODE), alone(0, NODE)),
        (alone(1, 2), alone(0, ALL)),
        (shared(1, 2), alone(0, NODE)),
        (alone(NODE, NODE + 1), alone(0, NODE + 2)),
        (alone(NODE, 2 * NODE), alone(0, NODE + 2)),
    ]
}

/// How often others may come before a waiter that looks only while they have the unit.
const PASSES_MAX: u32 = 500;

/// A region in which waiters for a unit call, or do not.
fn seat_that_calls(ranges: &Ranges, calls_after: Option<u8>) -> RangeSeat {
    let lock = Shared { leaf_units: LEAF as u8, calls_after, ..Shared::default() };
    let endpoint = ranges.region.endpoint().expect("a place");
    Seat::new(endpoint, lock, farlock_locks::Options::new(1))
}

/// Begins to acquire, and waits once if that takes more. Whether it has it.
fn has_at_once(seat: &mut RangeSeat, lock: Addr, want: Extent) -> bool {
    match seat.open(lock, want).expect("nothing fails") {
        Opened::Held => true,
        Opened::InLine => polled_once(seat) == Some(true),
    }
}

/// Time passes, by the clock of this seat.
fn pause(seat: &RangeSeat, time: Duration) {
    let interval = Some(time.as_nanos() as u64);
    block_on(seat.endpoint(), seat.endpoint().wait(Wait { interval, ..Wait::default() }));
}

/// A waiter for unit 1, and one that holds it.
fn waiter_and_holder(ranges: &Ranges, calls_after: Option<u8>) -> (RangeSeat, RangeSeat) {
    let seat = || seat_that_calls(ranges, calls_after);
    let (mut waiter, mut holder) = (seat(), seat());
    assert!(has_at_once(&mut holder, ranges.lock(), alone(1, 2)));
    assert!(!has_at_once(&mut waiter, ranges.lock(), alone(1, 2)));
    (waiter, holder)
}

/// What comes of polling a wait once more.
fn poll(wait: Pin<&mut impl Future<Output = Result<bool, Fault>>>) -> Option<bool> {
    match wait.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(waited) => Some(waited.expect("nothing fails")),
        Poll::Pending => None,
    }
}

/// Whether the holder must wait at last that has unit 1 whenever the one that waits for it looks.
fn must_wait(
    ranges: &Ranges,
    mut wait: Pin<&mut impl Future<Output = Result<bool, Fault>>>,
    holder: &mut RangeSeat,
) -> bool {
    (0..PASSES_MAX).any(|_| {
        assert_eq!(poll(wait.as_mut()), None, "the holder has it");
        pause(holder, Duration::from_micros(500));
        close(holder);
        !has_at_once(holder, ranges.lock(), alone(1, 2))
    })
}

#[test]
fn a_waiter_for_a_unit_is_granted_beside_one_that_has_it_whenever_it_looks() {
    let ranges = Ranges::new("passes");
    let (mut waiter, mut newcomer) = waiter_and_holder(&ranges, Some(2));
    let mut wait = Box::pin(waiter.wait());
    assert!(must_wait(&ranges, wait.as_mut(), &mut newcomer), "the waiter is passed for ever");
    let mut beside = seat_that_calls(&ranges, Some(2));
    assert!(has_at_once(&mut beside, ranges.lock(), alone(2, 3)), "nobody waits for that unit");
    close(&mut beside);
    assert_eq!(poll(wait.as_mut()), Some(true), "the unit was free");
    drop(wait);
    assert_eq!(polled_once(&newcomer), None, "it is held");
    close(&mut waiter);
    assert_eq!(polled_once(&newcomer), Some(true), "nobody calls any more");
    close(&mut newcomer);
}

#[test]
fn without_calls_a_waiter_is_passed_for_ever() {
    let ranges = Ranges::new("passed");
    let (waiter, mut holder) = waiter_and_holder(&ranges, None);
    assert!(!must_wait(&ranges, Box::pin(waiter.wait()).as_mut(), &mut holder));
}

#[test]
fn a_caller_that_is_gone_or_stopped_keeps_nobody_out_for_long() {
    for is_gone in [true, false] {
        let ranges = Ranges::new(if is_gone { "caller-gone" } else { "caller-stopped" });
        let (waiter, mut newcomer) = waiter_and_holder(&ranges, Some(2));
        let mut wait = Box::pin(waiter.wait());
        assert!(must_wait(&ranges, wait.as_mut(), &mut newcomer));
        drop(wait);
        let waiter = (!is_gone).then_some(waiter);
        let (mut wait, clock) = (Box::pin(newcomer.wait()), ranges.seat());
        let is_in = (0..PASSES_MAX).any(|_| {
            pause(&clock, Duration::from_millis(1));
            poll(wait.as_mut()) == Some(true)
        });
        assert!(is_in, "the newcomer waits for nobody");
        drop((wait, waiter));
        close(&mut newcomer);
    }
}

#[test]
fn what_is_closed_unasked_is_free() {
    let ranges = Ranges::new("unasked");
    let (lock, mut seat, mut other) = (ranges.lock(), ranges.seat(), ranges.seat());
    // Units of a leaf, a node, two of them with units beside, and more readers of a node than one.
    let wants = [(1, 3), (0, NODE), (NODE - 1, 2 * NODE + 2), (0, ALL), (2 * NODE, 3 * NODE)];
    for (first, end) in wants {
        for want in [alone(first, end), shared(first, end)] {
            assert!(try_now(&mut seat, lock, want));
            assert!(!try_now(&mut other, lock, alone(0, ALL)), "{want:?} is held");
            assert!(seat.close_unasked(), "nothing is left to do");
            assert!(!seat.is_held());
            assert!(try_now(&mut other, lock, alone(0, ALL)), "{want:?} was closed");
            close(&mut other);
        }
    }
}

/// One that is asked for by futures alone, as by an endpoint whose verbs are not waited for.
#[test]
fn an_attempt_that_is_awaited_tells_the_same() {
    let ranges = Ranges::new("awaited");
    let (lock, seat, mut other) = (ranges.lock(), ranges.seat(), ranges.seat());
    let tried = |want| block_on(seat.endpoint(), seat.try_opening(lock, want));
    assert!(try_now(&mut other, lock, alone(0, LEAF)));
    assert_eq!(tried(alone(NODE, 2 * NODE)), Ok(Attempt::Held));
    assert!(seat.close_unasked());
    assert_eq!(tried(shared(0, 1)), Ok(Attempt::Doubtful));
    assert_eq!(block_on(seat.endpoint(), seat.try_beside()), Ok(false));
    close(&mut other);
}

#[test]
fn a_wait_that_was_dropped_goes_on_where_it_was() {
    let ranges = Ranges::new("dropped");
    let (lock, mut holder, mut waiter) = (ranges.lock(), ranges.seat(), ranges.seat());
    for (held, wanted) in waits() {
        assert_eq!(holder.open(lock, held).map(|_| ()), Ok(()));
        if !holder.is_held() {
            assert_eq!(polled_once(&holder), Some(true), "{held:?} of a free lock");
        }
        assert_eq!(waiter.open(lock, wanted), Ok(Opened::InLine));
        for _ in 0..3 {
            assert_eq!(polled_once(&waiter), None, "{wanted:?} beside {held:?}");
        }
        close(&mut holder);
        assert_eq!(block_on(waiter.endpoint(), waiter.wait()), Ok(true), "{wanted:?}");
        assert_eq!(waiter.want(), wanted);
        close(&mut waiter);
        assert!(try_now(&mut holder, lock, alone(0, ALL)), "nothing is left of {wanted:?}");
        close(&mut holder);
    }
}

#[test]
fn a_waiter_that_withdraws_leaves_at_once_and_nothing_behind() {
    let ranges = Ranges::new("withdrawn");
    let (lock, mut holder, mut waiter) = (ranges.lock(), ranges.seat(), ranges.seat());
    let mut next = ranges.seat();
    for (held, wanted) in waits() {
        assert!(try_now(&mut holder, lock, held), "{held:?} of a free lock");
        assert_eq!(waiter.open(lock, wanted), Ok(Opened::InLine));
        assert_eq!(polled_once(&waiter), None, "{wanted:?} beside {held:?}");
        waiter.withdraw(true);
        assert_eq!(polled_once(&waiter), Some(false), "{wanted:?} beside {held:?}");
        assert!(!waiter.is_in_line() && !waiter.is_held());
        // What it would have kept others from, and the holder does not.
        if held.mode() == Mode::Shared {
            assert!(try_now(&mut next, lock, held), "{held:?} after {wanted:?}");
            close(&mut next);
        }
        assert_eq!(next.open(lock, wanted), Ok(Opened::InLine));
        assert_eq!(polled_once(&next), None, "{wanted:?} beside {held:?}");
        close(&mut holder);
        assert_eq!(block_on(next.endpoint(), next.wait()), Ok(true), "{wanted:?}");
        close(&mut next);
        assert!(try_now(&mut holder, lock, alone(0, ALL)), "nothing is left of {wanted:?}");
        close(&mut holder);
    }
}

#[test]
fn a_waiter_may_want_something_else_when_it_goes_on() {
    let ranges = Ranges::new("changed");
    let (lock, mut holder, mut waiter) = (ranges.lock(), ranges.seat(), ranges.seat());
    for (held, wanted) in waits() {
        assert!(try_now(&mut holder, lock, held), "{held:?} of a free lock");
        assert_eq!(waiter.open(lock, wanted), Ok(Opened::InLine));
        assert_eq!(polled_once(&waiter), None, "{wanted:?} beside {held:?}");
        let other = match held.mode() {
            Mode::Shared => shared(0, 2),
            Mode::Exclusive => alone(ALL - 1, ALL),
        };
        waiter.wait_as(other);
        let is_beside = held.mode() == Mode::Shared || !held.units(ALL).contains(&(ALL - 1));
        assert_eq!(polled_once(&waiter), is_beside.then_some(true), "{other:?} beside {held:?}");
        close(&mut holder);
        if !is_beside {
            assert_eq!(block_on(waiter.endpoint(), waiter.wait()), Ok(true), "{other:?}");
        }
        assert_eq!(waiter.want(), other);
        close(&mut waiter);
        assert!(try_now(&mut holder, lock, alone(0, ALL)), "nothing is left of {wanted:?}");
        close(&mut holder);
    }
}

/// A time-out leaves at most a ticket in the line of a node, as long as those are less than half of
/// what tickets tell apart; one compare passes over all of them.
#[test]
fn time_outs_without_end_on_a_held_range_delay_nobody() {
    const TIME_OUTS: u32 = 20_000;
    let ranges = Ranges::new("crowd");
    let (lock, mut holder, mut waiter) = (ranges.lock(), ranges.seat(), ranges.seat());
    assert!(try_now(&mut holder, lock, alone(0, NODE)));
    for _ in 0..TIME_OUTS {
        assert_eq!(waiter.open(lock, alone(0, NODE)), Ok(Opened::InLine));
        assert_eq!(polled_once(&waiter), None);
        waiter.withdraw(true);
        assert_eq!(polled_once(&waiter), Some(false));
    }
    close(&mut holder);
    assert!(try_now(&mut waiter, lock, alone(0, ALL)));
    close(&mut waiter);
}

/// What is known of each unit: how many read it, or one writer; and the highest token there.
struct Unit {
    readers: AtomicU64,
    token: AtomicU64,
}

const WRITER: u64 = 1 << 32;

fn enters(units: &[Unit], want: Extent, token: u64) {
    for unit in want.units(ALL) {
        let unit = &units[unit as usize];
        match want.mode() {
            Mode::Exclusive => {
                assert_eq!(unit.readers.fetch_add(WRITER, Ordering::SeqCst), 0, "{want:?}");
                assert!(unit.token.fetch_max(token, Ordering::SeqCst) < token, "{want:?}");
            }
            Mode::Shared => {
                assert!(unit.readers.fetch_add(1, Ordering::SeqCst) < WRITER, "{want:?}");
                unit.token.fetch_max(token, Ordering::SeqCst);
            }
        }
    }
}

fn leaves(units: &[Unit], want: Extent) {
    let one = if want.mode() == Mode::Exclusive { WRITER } else { 1 };
    for unit in want.units(ALL) {
        units[unit as usize].readers.fetch_sub(one, Ordering::SeqCst);
    }
}

/// A generator that is the same on every machine.
fn draw(state: &mut u64, below: u32) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 33) % u64::from(below)) as u32
}

/// Lets others act.
fn pauses(seat: &RangeSeat) {
    let _ = block_on(seat.endpoint(), seat.endpoint().sleep(1_000));
}

/// Acquires, tries, waits, drops waits, withdraws and changes its mind, as it is drawn.
fn comes_and_goes(seat: &mut RangeSeat, lock: Addr, units: &[Unit], seed: u64, rounds: u32) {
    let mut state = seed;
    for _ in 0..rounds {
        let (first, length) =
            (draw(&mut state, ALL - 1), draw(&mut state, ALL) >> draw(&mut state, 6));
        let mode = if draw(&mut state, 2) == 0 { Mode::Shared } else { Mode::Exclusive };
        let want = Extent::new(mode, first..(first + 1 + length).min(ALL));
        let is_held = if draw(&mut state, 4) == 0 {
            try_now(seat, lock, want)
        } else if seat.open(lock, want).expect("nothing fails") == Opened::Held {
            true
        } else {
            loop {
                match draw(&mut state, 16) {
                    0 => seat.withdraw(true),
                    1 => seat.wait_as(want.in_mode(Mode::Exclusive)),
                    2 => seat.withdraw(false),
                    3 => break block_on(seat.endpoint(), seat.wait()).expect("nothing fails"),
                    _ => pauses(seat),
                }
                if let Some(is_held) = polled_once(seat) {
                    break is_held;
                }
            }
        };
        if is_held {
            let want = seat.want();
            enters(units, want, seat.token().expect("it counts").get());
            if draw(&mut state, 4) == 0 {
                pauses(seat);
            }
            leaves(units, want);
            close(seat);
        }
    }
}

#[test]
fn waits_that_are_dropped_and_withdrawn_leave_ranges_in_order() {
    const THREADS: u64 = 4;
    const ROUNDS: u32 = 2_000;
    let ranges = Ranges::new("storm");
    let unit = |_| Unit { readers: AtomicU64::new(0), token: AtomicU64::new(0) };
    let units: Vec<Unit> = (0..ALL).map(unit).collect();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (ranges, units) = (&ranges, &units);
            scope.spawn(move || {
                comes_and_goes(&mut ranges.seat(), ranges.lock(), units, 1 + thread, ROUNDS);
            });
        }
    });
    let mut last = ranges.seat();
    assert!(try_now(&mut last, ranges.lock(), alone(0, ALL)), "all have left");
    close(&mut last);
}

/// The bits of a leaf are nothing but units, whatever they would be in the word of a node above.
#[test]
fn every_unit_of_a_leaf_is_had_beside_every_other() {
    let ranges = Ranges::new("units");
    let (lock, kind) = (ranges.lock(), Shared::default());
    let seat = || {
        let endpoint = ranges.region.endpoint().expect("a place");
        RangeSeat::new(endpoint, kind.clone(), farlock_locks::Options::new(1))
    };
    let (mut holder, mut other) = (seat(), seat());
    for held in 0..u32::from(kind.leaf_units) {
        let polled = |seat: &mut RangeSeat, want| {
            let opened = seat.open(lock, want).expect("nothing fails");
            opened == Opened::Held || polled_once(seat) == Some(true)
        };
        assert!(polled(&mut holder, alone(held, held + 1)), "nobody has it");
        for unit in (0..u32::from(kind.leaf_units)).filter(|&unit| unit != held) {
            for want in [alone(unit, unit + 1), shared(unit, unit + 1)] {
                assert!(polled(&mut other, want), "{unit} beside {held}");
                close(&mut other);
            }
        }
        close(&mut holder);
    }
}

/// Two that hold ranges, and want others, all disjoint: by two nodes each has what the other wants,
/// until both keep no more than they want.
#[test]
fn what_is_held_beside_what_was_wanted_is_given_up() {
    let ranges = Ranges::new("beside");
    let lock = ranges.lock();
    let seat = || {
        let kind = Shared { leaf_units: 1, ..Shared::default() };
        let endpoint = ranges.region.endpoint().expect("a place");
        RangeSeat::new(endpoint, kind, farlock_locks::Options::new(1))
    };
    for mode in [Mode::Exclusive, Mode::Shared] {
        let held = [Extent::new(mode, 0..3), Extent::new(mode, 9..12)];
        let wanted = [alone(8, 9), alone(3, 4)];
        let (mut first, mut second, mut others) =
            ([seat(), seat()], [seat(), seat()], [seat(), seat()]);
        for (seat, &want) in first.iter_mut().zip(&held) {
            assert!(try_now(seat, lock, want));
        }
        for (seat, &want) in others.iter_mut().zip(&wanted) {
            assert!(!try_now(seat, lock, want), "{want:?}");
        }
        for ((from, to), &want) in first.iter_mut().zip(&mut second).zip(&held) {
            let taken = block_on(to.endpoint(), to.take_part(want, from.holding()));
            assert_eq!(taken, Ok(true));
            assert_eq!(block_on(from.endpoint(), from.leave_to(&[to.holding()])), Ok(()));
        }
        for (seat, &want) in others.iter_mut().zip(&wanted) {
            assert!(try_now(seat, lock, want.refined()), "{want:?}");
        }
        second.iter_mut().chain(&mut others).for_each(close);
        assert!(try_now(&mut first[0], lock, Extent::from(Mode::Exclusive)));
        close(&mut first[0]);
    }
}

/// One whose nodes have more than it wants keeps nobody out while it waits; it goes on where a wait
/// was dropped.
#[test]
fn what_a_waiter_has_is_what_it_wants() {
    let ranges = Ranges::new("waiter");
    let lock = ranges.lock();
    let seat = || {
        let kind = Shared { leaf_units: 1, refines: true, ..Shared::default() };
        let endpoint = ranges.region.endpoint().expect("a place");
        RangeSeat::new(endpoint, kind, farlock_locks::Options::new(1))
    };
    let (mut holder, mut waiter, mut other) = (seat(), seat(), seat());
    for mode in [Mode::Exclusive, Mode::Shared] {
        assert!(try_now(&mut holder, lock, alone(7, 8)));
        // By two nodes 1-8 is 0-8, and 0-4 is had before 7 is waited for.
        assert_eq!(waiter.open(lock, Extent::new(mode, 1..8)), Ok(Opened::InLine));
        for _ in 0..3 {
            assert_eq!(polled_once(&waiter), None);
            assert!(try_now(&mut other, lock, alone(0, 1)), "nobody wants it");
            close(&mut other);
            assert!(!try_now(&mut other, lock, alone(1, 2)), "the waiter has it");
        }
        close(&mut holder);
        assert_eq!(block_on(waiter.endpoint(), waiter.wait()), Ok(true));
        assert!(try_now(&mut other, lock, alone(0, 1)), "nobody has it");
        close(&mut other);
        assert!(!try_now(&mut other, lock, alone(7, 8)), "it has all");
        close(&mut waiter);
        assert!(try_now(&mut other, lock, Extent::from(Mode::Exclusive)));
        close(&mut other);
    }
}

/// Units that are held below one node, every other one.
const HELD: u32 = 50_000;

/// Every entry of a shelf, of blocks that this endpoint takes.
fn entries<'a>(shelf: Shelf, endpoint: &'a ShmEndpoint) -> impl Iterator<Item = Entry> + 'a {
    std::iter::from_fn(move || {
        let block =
            block_on(endpoint, shelf.take_block(endpoint, endpoint.id())).expect("nothing fails");
        block.map(|block| shelf.entries(block))
    })
    .flatten()
}

/// All of them are counted by one node, in whose word as many would have come round before.
#[test]
fn a_node_counts_fifty_thousand_holds_below_it() {
    let tree = Tree::LARGEST;
    let tree_bytes = 64 + u64::from(tree.near_nodes()) * NODE_BYTES;
    let tree_bytes = tree_bytes.next_multiple_of(64);
    let blocks = HELD.div_ceil(16) as u16 + 1;
    let ranges = Ranges::of("many", (tree_bytes + Shelf::bytes(blocks)).next_multiple_of(1 << 16));
    let lock = ranges.lock();
    let shelf = Shelf::new(lock.plus(tree_bytes), blocks);
    let kind = Exclusive { levels: tree.levels, shelf: Some(shelf), ..Exclusive::default() };
    let seat = || {
        let endpoint = ranges.region.endpoint().expect("a place");
        Seat::<ShmEndpoint, Exclusive>::new(endpoint, kind.clone(), farlock_locks::Options::new(1))
    };
    let (mut holder, mut other, shelver) = (seat(), seat(), ranges.region.endpoint());
    let shelver = shelver.expect("a place");
    let one = |seat: &mut Seat<_, _>, want: &Extent| {
        let opened = seat.open(lock, *want).expect("nothing fails");
        opened == Opened::Held || block_on(seat.endpoint(), seat.wait()).expect("nothing fails")
    };
    let held: Vec<_> = (0..HELD)
        .zip(entries(shelf, &shelver))
        .map(|(number, entry)| {
            assert!(one(&mut holder, &alone(2 * number, 2 * number + 1)), "nobody has it");
            block_on(holder.endpoint(), holder.shelve(entry, 0)).expect("nothing fails")
        })
        .collect();
    assert_eq!(held.len(), HELD as usize);
    // A node that has all of them, and the root.
    let high = tree.leaf_of(0).ancestors().nth(7).expect("it has eleven");
    let above = [alone(0, tree.span(high) as u32), Extent::from(Mode::Exclusive)];
    for want in &above {
        assert!(!try_now(&mut other, lock, *want), "{want:?} beside all of them");
    }
    for (number, held) in held.iter().enumerate() {
        assert!(holder.is_on_shelf(held));
        holder.take_down(held);
        close(&mut holder);
        if number + 1 == HELD as usize / 2 {
            assert!(!try_now(&mut other, lock, above[0]), "beside half of them");
        }
    }
    for want in above {
        assert!(try_now(&mut other, lock, want), "{want:?} beside nobody");
        close(&mut other);
    }
}

/// What is divided, and into which parts: units of one leaf, of several, nodes above leaves as they
/// are, some of those below one, and all but what lies in the middle.
fn divisions() -> Vec<(Extent, Vec<(u32, u32)>)> {
    let both = |first: u32, end: u32, parts: &[(u32, u32)]| {
        [Mode::Exclusive, Mode::Shared].map(|mode| (Extent::new(mode, first..end), parts.to_vec()))
    };
    [
        both(0, 3, &[(0, 1)]),
        both(0, 3, &[(0, 1), (2, 3)]),
        both(0, LEAF, &[(1, 2), (2, LEAF)]),
        both(1, 2 * LEAF + 1, &[(2, LEAF + 1)]),
        both(0, NODE, &[(0, 1)]),
        both(0, NODE, &[(0, LEAF), (LEAF + 1, NODE)]),
        both(0, 2 * NODE, &[(0, NODE), (NODE, 2 * NODE)]),
        both(0, 2 * NODE, &[(NODE, 2 * NODE)]),
        both(0, ALL, &[(0, NODE + 1), (ALL - 1, ALL)]),
        both(0, ALL, &[(1, ALL)]),
        both(3, ALL - 3, &[(3, 4), (5, ALL - 4)]),
        both(0, ALL, &[]),
    ]
    .concat()
}

#[test]
fn parts_of_a_hold_are_held_while_the_rest_is_let_go() {
    for is_exact in [true, false] {
        let ranges = Ranges::new(if is_exact { "divided" } else { "refined" });
        let lock = ranges.lock();
        let seat = || {
            let kind = Shared { is_exact, leaf_units: LEAF as u8, ..Shared::default() };
            let endpoint = ranges.region.endpoint().expect("a place");
            RangeSeat::new(endpoint, kind, farlock_locks::Options::new(1))
        };
        let (mut whole, mut parts, mut other) = (seat(), [seat(), seat()], seat());
        for (want, kept) in divisions() {
            assert!(try_now(&mut whole, lock, want), "{want:?} of a free lock");
            let (held, token) = (whole.holding(), whole.token());
            for (seat, &(first, end)) in parts.iter_mut().zip(&kept) {
                let part = Extent::new(want.mode(), first..end);
                let taken = block_on(other.endpoint(), seat.take_part(part, held));
                assert_eq!(taken, Ok(true), "{part:?} of {want:?}");
                assert_eq!((seat.token(), seat.want()), (token, part));
            }
            let holding: Vec<_> = parts[..kept.len()].iter().map(Seat::holding).collect();
            let left = block_on(other.endpoint(), whole.leave_to(&holding));
            assert_eq!(left, Ok(()));
            assert!(!whole.is_held());
            for left in 0..=kept.len() {
                let still = &kept[left..];
                for unit in 0..ALL {
                    let is_kept = still.iter().any(|&(first, end)| (first..end).contains(&unit));
                    let alone = try_now(&mut other, lock, alone(unit, unit + 1));
                    assert_eq!(alone, !is_kept, "{unit} of {want:?} but {still:?}");
                    if alone {
                        close(&mut other);
                    }
                    if is_kept {
                        let reads = try_now(&mut other, lock, shared(unit, unit + 1));
                        assert_eq!(reads, want.mode() == Mode::Shared);
                        if reads {
                            close(&mut other);
                        }
                    }
                }
                let has_all = try_now(&mut other, lock, alone(0, ALL));
                assert_eq!(has_all, still.is_empty(), "beside {still:?} of {want:?}");
                if has_all {
                    close(&mut other);
                }
                if left < kept.len() {
                    close(&mut parts[left]);
                }
            }
        }
    }
}

/// What no lock leaves behind: nodes that are occupied though nobody has a ticket of them, lines
/// and crowds of nobody, calls that nobody makes. Such words were free for those that look and not
/// for those that claim, or were waited for at another word: waits went round for ever.
#[test]
fn a_node_that_was_overwritten_keeps_no_wait_busy_for_ever() {
    const OCCUPIED: u64 = 1;
    const CALLED: u64 = 1 << 1;
    const IN_LINE: u64 = 1 << 29;
    const BELOW: u64 = 1 << 63;
    const NODES: u64 = 32;
    let ranges = &Ranges::new("overwritten");
    let (lock, writer) = (ranges.lock(), ranges.region.endpoint().expect("a place"));
    let words = [OCCUPIED, CALLED, IN_LINE, BELOW, OCCUPIED | IN_LINE, u64::MAX];
    let all = words.iter().flat_map(|&word| (0..NODES).map(move |node| (node, word)));
    for ((node, word), mode) in
        all.flat_map(|one| [Mode::Exclusive, Mode::Shared].map(|m| (one, m)))
    {
        let addr = lock.plus(64 + node * 8);
        let write = |word: u64| {
            let data = [word];
            block_on(&writer, writer.verb(Verb::Write { addr, data: &data })).expect("it is there");
        };
        write(word);
        let (tell, told) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut seat = ranges.seat();
                if let Ok(Opened::InLine) = seat.open(lock, Extent::new(mode, NODE..2 * NODE)) {
                    // It finds out that nobody is there, or waits for others.
                    if polled_once(&seat).is_none() {
                        seat.withdraw(true);
                        assert_eq!(polled_once(&seat), Some(false));
                    }
                }
                tell.send(()).expect("it is listened to");
                if seat.is_held() {
                    close(&mut seat);
                }
            });
            let back = told.recv_timeout(Duration::from_secs(5));
            back.unwrap_or_else(|_| panic!("{mode:?} at node {node}, overwritten by {word:#x}"));
        });
        (0..NODES).for_each(|node| {
            let addr = lock.plus(64 + node * 8);
            block_on(&writer, writer.verb(Verb::Write { addr, data: &[0] })).expect("it is there");
        });
    }
}
