//! What a range costs when nobody is in the way, beside the least two atomics cost on this machine.
//!
//! `cargo bench -p farlock-local`. All rows take turns in every round, so that a machine that
//! speeds up or slows down treats them alike; the table shows medians and their ratio to the floor.
//! The last rows are the part of an acquisition and release that memory reclamation takes, by three
//! ways to do it, each with nobody else about.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hint::{self, black_box};
use std::mem;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use farlock_local::{ListEx, ListRw, Preference, Range, RawRangeLock, RawRangeRwLock};

const ROUNDS: usize = 31;
const CYCLES: u32 = 50_000;

#[repr(align(128))]
struct Line(AtomicU64);

struct Row {
    name: &'static str,
    cycle: Box<dyn Fn(u32)>,
    ns: Vec<f64>,
}

fn row(name: &'static str, cycle: impl Fn() + 'static) -> Row {
    let many = move |cycles| (0..cycles).for_each(|_| cycle());
    Row { name, cycle: Box::new(many), ns: Vec::new() }
}

fn floor() -> Row {
    let (first, second) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    row("floor: compare-and-swap + fetch-and-add", move || {
        let seen = first.0.load(Ordering::Relaxed);
        let _ = black_box(first.0.compare_exchange(
            seen,
            seen + 1,
            Ordering::SeqCst,
            Ordering::Relaxed,
        ));
        black_box(second.0.fetch_add(1, Ordering::SeqCst));
    })
}

/// `held` disjoint ranges are held before the one that is taken: the ordinary path.
fn exclusive(name: &'static str, held: u64) -> Row {
    let lock = ListEx::new();
    for at in 0..held {
        let _held_for_ever = lock.lock(Range::one(at));
    }
    let range = Range::new(1 << 40, (1 << 40) + 10).expect("not empty");
    row(name, move || lock.unlock(lock.lock(black_box(range))))
}

fn shared(name: &'static str, held: u64, write: bool) -> Row {
    let lock = ListRw::new(Preference::Readers);
    for at in 0..held {
        let _held_for_ever = lock.lock_shared(Range::one(at));
    }
    let range = Range::new(1 << 40, (1 << 40) + 10).expect("not empty");
    row(name, move || {
        let range = black_box(range);
        lock.unlock(if write { lock.lock(range) } else { lock.lock_shared(range) });
    })
}

fn map() -> Row {
    let map = Mutex::new(BTreeMap::new());
    row("a BTreeMap in a Mutex", move || {
        map.lock().expect("no panic").insert(black_box(5_u64), 9_u64);
        map.lock().expect("no panic").remove(&5);
    })
}

/// What the lists do: an entry from the thread's own stock, its version counted, and back.
#[allow(clippy::vec_box, reason = "entries keep their addresses")]
fn versions() -> Row {
    let stock = RefCell::new((0..64).map(|_| Box::new(AtomicU64::new(0))).collect::<Vec<_>>());
    row("reclaiming: versions (ours)", move || {
        let entry = stock.borrow_mut().pop().expect("each goes back");
        let version = entry.load(Ordering::Relaxed) + (1 << 24);
        entry.store(version, Ordering::Release);
        stock.borrow_mut().push(black_box(entry));
    })
}

/// The paper's section 4.4: a thread's counter is odd while it walks; nodes come from its active
/// pool and go to its reclaimed one; when the first is empty they change places, after a wait until
/// every thread has been seen outside.
fn epochs_with_pools() -> Row {
    #[allow(clippy::vec_box, reason = "nodes keep their addresses")]
    struct Pools {
        active: Vec<Box<AtomicU64>>,
        reclaimed: Vec<Box<AtomicU64>>,
    }
    let full = (0..128).map(|_| Box::new(AtomicU64::new(0))).collect();
    let pools = RefCell::new(Pools { active: full, reclaimed: Vec::new() });
    let counters: Vec<Line> = (0..16).map(|_| Line(AtomicU64::new(0))).collect();
    row("reclaiming: epochs with pools (section 4.4)", move || {
        let mut pools = pools.borrow_mut();
        if pools.active.is_empty() {
            let pools = &mut *pools;
            mem::swap(&mut pools.active, &mut pools.reclaimed);
            for counter in &counters {
                while !counter.0.load(Ordering::SeqCst).is_multiple_of(2) {
                    hint::spin_loop();
                }
            }
        }
        let node = pools.active.pop().expect("filled above");
        // Nothing read inside may be read before the others see this thread inside.
        counters[0].0.fetch_add(1, Ordering::SeqCst);
        node.store(black_box(5), Ordering::Relaxed);
        let inside = counters[0].0.load(Ordering::Relaxed);
        counters[0].0.store(inside + 1, Ordering::Release);
        pools.reclaimed.push(node);
    })
}

/// A node allocated, a pin while it is inserted, and its freeing left to the epochs.
fn crossbeam_epochs() -> Row {
    row("reclaiming: crossbeam-epoch", || {
        let node = Box::new([AtomicU64::new(black_box(5)), const { AtomicU64::new(0) }]);
        let guard = crossbeam_epoch::pin();
        guard.defer(move || drop(node));
    })
}

fn main() {
    let mut rows = vec![
        floor(),
        exclusive("list-ex, fast path", 0),
        exclusive("list-ex, ordinary path (1 range held)", 1),
        exclusive("list-ex, 4 held", 4),
        exclusive("list-ex, 16 held", 16),
        exclusive("list-ex, 1000 held", 1000),
        shared("list-rw, fast path, exclusive", 0, true),
        shared("list-rw, fast path, shared", 0, false),
        shared("list-rw, ordinary path, exclusive", 1, true),
        shared("list-rw, ordinary path, shared", 1, false),
        map(),
        versions(),
        epochs_with_pools(),
        crossbeam_epochs(),
    ];
    for _ in 0..ROUNDS {
        for row in &mut rows {
            let cycles = if row.name.contains("1000") { CYCLES / 50 } else { CYCLES };
            let start = Instant::now();
            (row.cycle)(cycles);
            row.ns.push(start.elapsed().as_nanos() as f64 / f64::from(cycles));
        }
    }
    let median = |ns: &mut Vec<f64>| {
        ns.sort_by(f64::total_cmp);
        ns[ns.len() / 2]
    };
    let floor = median(&mut rows[0].ns);
    println!("acquire + release, ns; medians of {ROUNDS} interleaved rounds");
    for row in &mut rows {
        let ns = median(&mut row.ns);
        println!("{:44} {ns:8.1} {:6.2} x", row.name, ns / floor);
    }
}
