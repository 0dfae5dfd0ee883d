//! An exclusive range lock whose list has an index: acquisition in O(log n) of the held ranges.
//!
//! The list of Kogan, Dice, Issa (*Scalable Range Locks*, EuroSys'20, section 4.1) finds its place
//! by walking from the head. Its authors leave an index for future work (section 3); this is one.
//!
//! ```text
//! level 2  head ------------------------> [40,50) ----------------> end
//! level 1  head -----------> [20,30) ---> [40,50) ----------------> end
//! level 0  head -> [0,10) -> [20,30) ---> [40,50) ---> [60,70) ---> end
//! ```
//!
//! Level 0 is the paper's list, and alone decides: a range is held from the moment its node enters
//! level 0 until its next pointer there is marked. The levels above only save steps.
//!
//! **Exclusive**, because live nodes of level 0 are sorted and disjoint. A search ends between a
//! node that ends before the range and one that does not; one compare-and-swap on the pointer
//! between them enters the range, and fails if anything came in between or the former is marked.
//! Overlapping ranges compete for the same pointer.
//!
//! **A node is built and taken apart by its owner only.** It is linked at every level, upwards,
//! before `lock` returns, and marked at every level, downwards, by `unlock`: so what is unmarked at
//! one level was linked at all levels below, and what is marked at level 0 is marked everywhere.
//! A walk that passes a marked node unlinks it.
//!
//! **Memory.** A node counts its links, its owner and its sleepers. The thread that takes the last
//! of them hands it to the epochs, which free it when no search can still see it. A sleeper is in
//! no epoch.
//!
//! Lock-free in the absence of conflicts, and not fair: a range may be overtaken for ever.
#![allow(unsafe_code)]

use std::hint;
use std::time::Instant;

use crossbeam_epoch::{self as epoch, Atomic, Guard, Owned, Shared};

use crate::primitive::{AtomicBool, AtomicU32, Condvar, Mutex, Ordering};
use crate::{Range, RawRangeLock, RawRangeLockTimed};

/// Levels: with every fourth node going up, enough for 4^12 ranges.
const HEIGHT_MAX: usize = 12;
/// The tag of a pointer whose node is released.
const MARK: usize = 1;
/// Looks at a range in the way before its waiter sleeps: some microseconds.
const SPINS_MAX: u32 = 200;
/// Sleepers are woken by the node they wait for, up to collisions among so many.
const BEDS: usize = 16;

type Tower = [Atomic<Node>; HEIGHT_MAX];

/// A range, held until its level 0 is marked.
struct Node {
    range: Range,
    /// Links, the owner, sleepers.
    references: AtomicU32,
    /// A waiter sleeps for it, or is about to.
    awaited: AtomicBool,
    height: usize,
    tower: Tower,
}

impl Node {
    fn new(range: Range) -> Owned<Self> {
        let mut node = Owned::new(Self {
            range,
            references: AtomicU32::new(2),
            awaited: AtomicBool::new(false),
            height: 1,
            tower: Tower::default(),
        });
        // Addresses and starts differ enough; a thread needs no state for its dice.
        let dice = scramble(range.start() ^ (&raw const *node as u64).rotate_left(32));
        node.height = (1 + dice.trailing_zeros() as usize / 2).min(HEIGHT_MAX);
        node
    }

    fn is_released(&self, guard: &Guard) -> bool {
        self.tower[0].load(Ordering::SeqCst, guard).tag() == MARK
    }

    /// One more reference, unless there is none left to copy.
    fn hold(&self) -> bool {
        let more = |held| (held > 0).then(|| held + 1);
        self.references.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

/// The right to a range of a [`IndexedLock`].
pub struct IndexedToken {
    node: *const Node,
}

// SAFETY: the node lives until the token's reference is given back, and all its fields that change
// are atomic; any thread may give it back.
unsafe impl Send for IndexedToken {}

/// An exclusive range lock, O(log n) in the ranges that are held.
///
/// ```
/// use farlock_local::{IndexedLock, Range, RawRangeLock};
///
/// let lock = IndexedLock::default();
/// let left = lock.lock(Range::new(0, 10)?);
/// let right = lock.lock(Range::new(10, 20)?);
/// assert!(lock.try_lock(Range::FULL).is_none());
/// lock.unlock(left);
/// lock.unlock(right);
/// # Ok::<(), farlock_local::RangeError>(())
/// ```
#[derive(Default)]
pub struct IndexedLock {
    head: Tower,
    beds: [Bed; BEDS],
}

#[derive(Default)]
struct Bed {
    mutex: Mutex<()>,
    awake: Condvar,
}

/// Where a range belongs: at each level the last pointer before it, and the node that it points to.
struct Place<'g> {
    before: [&'g Atomic<Node>; HEIGHT_MAX],
    after: [Shared<'g, Node>; HEIGHT_MAX],
}

/// How long to wait for a range.
#[derive(Clone, Copy)]
enum Patience {
    None,
    Until(Instant),
    Endless,
}

impl RawRangeLock for IndexedLock {
    type Token = IndexedToken;
    const NAME: &'static str = "skip-ex";

    fn lock(&self, range: Range) -> IndexedToken {
        self.acquire(range, Patience::Endless).expect("endless patience ends with the range")
    }

    fn try_lock(&self, range: Range) -> Option<IndexedToken> {
        self.acquire(range, Patience::None)
    }

    fn unlock(&self, token: IndexedToken) {
        let guard = &epoch::pin();
        let node = Shared::from(token.node);
        // SAFETY: the token's reference is given back only at the end of this function.
        let held = unsafe { node.deref() };
        for level in (0..held.height).rev() {
            held.tower[level].fetch_or(MARK, Ordering::SeqCst, guard);
        }
        // Marked first, asked second; a sleeper announces itself first and looks second.
        if held.awaited.load(Ordering::SeqCst) {
            let bed = self.bed(node);
            let _asleep_or_not_yet = bed.mutex.lock().expect("nothing panics under this lock");
            bed.awake.notify_all();
        }
        self.place(held.range, guard);
        give_back(node, guard);
    }
}

impl RawRangeLockTimed for IndexedLock {
    fn lock_until(&self, range: Range, deadline: Instant) -> Option<IndexedToken> {
        self.acquire(range, Patience::Until(deadline))
    }
}

impl IndexedLock {
    /// Without a node yet, so that a thread that only waits allocates nothing.
    fn acquire(&self, range: Range, patience: Patience) -> Option<IndexedToken> {
        let mut node = None;
        loop {
            let guard = epoch::pin();
            let place = self.place(range, &guard);
            let blocker = place.after[0];
            // SAFETY: found in this epoch, so not freed before it ends.
            let held = unsafe { blocker.as_ref() };
            if let Some(held) = held.filter(|held| held.range.overlaps(range)) {
                let patient = !matches!(patience, Patience::None);
                if held.is_released(&guard) || (patient && spin(held, &guard)) {
                    continue;
                }
                if !patient {
                    return None;
                }
                let asleep = held.hold().then(|| blocker.as_raw());
                drop(guard);
                if asleep.is_some_and(|blocker| !self.sleep(blocker, patience)) {
                    return None;
                }
                continue;
            }
            let new = node.take().unwrap_or_else(|| Node::new(range));
            match self.enter(new, &place, &guard) {
                Ok(token) => return Some(token),
                Err(new) => node = Some(new),
            }
        }
    }

    /// Links a node at every level, or gives it back if level 0 changed since it was searched.
    fn enter(
        &self,
        node: Owned<Node>,
        place: &Place<'_>,
        guard: &Guard,
    ) -> Result<IndexedToken, Owned<Node>> {
        for level in 0..node.height {
            node.tower[level].store(place.after[level], Ordering::Relaxed);
        }
        let (at, after) = (place.before[0], place.after[0]);
        let entered = at.compare_exchange(after, node, Ordering::AcqRel, Ordering::Relaxed, guard);
        let node = entered.map_err(|failed| failed.new)?;
        // SAFETY: ours, and its owner's reference is not yet given away.
        let held = unsafe { node.deref() };
        for level in 1..held.height {
            self.link(node, held, level, place, guard);
        }
        Ok(IndexedToken { node: node.as_raw() })
    }

    fn link(
        &self,
        node: Shared<'_, Node>,
        held: &Node,
        level: usize,
        place: &Place<'_>,
        guard: &Guard,
    ) {
        held.references.fetch_add(1, Ordering::Relaxed);
        let linked = |at: &Atomic<Node>, after| {
            let (done, failed) = (Ordering::AcqRel, Ordering::Relaxed);
            at.compare_exchange(after, node, done, failed, guard).is_ok()
        };
        if linked(place.before[level], place.after[level]) {
            return;
        }
        loop {
            let place = self.place(held.range, guard);
            held.tower[level].store(place.after[level], Ordering::Relaxed);
            if linked(place.before[level], place.after[level]) {
                return;
            }
        }
    }

    /// Finds where a range belongs, and unlinks the marked nodes on the way.
    fn place<'g>(&'g self, range: Range, guard: &'g Guard) -> Place<'g> {
        loop {
            if let Some(place) = self.descend(range, guard) {
                return place;
            }
        }
    }

    /// None if a pointer on the way changed, or belongs to a node that was released meanwhile.
    fn descend<'g>(&'g self, range: Range, guard: &'g Guard) -> Option<Place<'g>> {
        let mut tower = &self.head;
        let mut place = Place {
            before: std::array::from_fn(|level| &tower[level]),
            after: [Shared::null(); HEIGHT_MAX],
        };
        for level in (0..HEIGHT_MAX).rev() {
            let mut at = tower[level].load(Ordering::Acquire, guard);
            if at.tag() == MARK {
                return None;
            }
            // SAFETY: linked when this epoch had begun, so not freed before it ends.
            while let Some(node) = unsafe { at.as_ref() } {
                let next = node.tower[level].load(Ordering::Acquire, guard);
                if next.tag() == MARK {
                    let next = next.with_tag(0);
                    let (done, failed) = (Ordering::AcqRel, Ordering::Relaxed);
                    tower[level].compare_exchange(at, next, done, failed, guard).ok()?;
                    give_back(at, guard);
                    at = next;
                } else if node.range.last() < range.start() {
                    tower = &node.tower;
                    at = next;
                } else {
                    break;
                }
            }
            place.before[level] = &tower[level];
            place.after[level] = at;
        }
        Some(place)
    }

    /// Sleeps outside any epoch until a node is released, and gives back the caller's reference to
    /// it. False if patience ended first.
    fn sleep(&self, raw: *const Node, patience: Patience) -> bool {
        let bed = self.bed(Shared::from(raw));
        // SAFETY: the caller's reference keeps the node.
        let node = unsafe { &*raw };
        let mut asleep = bed.mutex.lock().expect("nothing panics under this lock");
        node.awaited.store(true, Ordering::SeqCst);
        let released = loop {
            if node.is_released(&epoch::pin()) {
                break true;
            }
            let Patience::Until(deadline) = patience else {
                asleep = bed.awake.wait(asleep).expect("nothing panics under this lock");
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break false;
            }
            let woken = bed.awake.wait_timeout(asleep, left);
            asleep = woken.expect("nothing panics under this lock").0;
        };
        drop(asleep);
        give_back(Shared::from(raw), &epoch::pin());
        released
    }

    fn bed(&self, node: Shared<'_, Node>) -> &Bed {
        &self.beds[scramble(node.as_raw() as u64) as usize % BEDS]
    }
}

impl Drop for IndexedLock {
    /// Frees every node but those whose tokens are still out: they are freed when given back.
    fn drop(&mut self) {
        // SAFETY: no other thread can reach this lock any more, so no search is under way in it.
        let guard = unsafe { epoch::unprotected() };
        for level in 0..HEIGHT_MAX {
            let mut at = self.head[level].load(Ordering::Acquire, guard);
            // SAFETY: each link is a reference, and this one is given back after its use.
            while let Some(node) = unsafe { at.as_ref() } {
                let next = node.tower[level].load(Ordering::Acquire, guard).with_tag(0);
                give_back(at, guard);
                at = next;
            }
        }
    }
}

/// Looks for a while whether a range is released.
fn spin(held: &Node, guard: &Guard) -> bool {
    (0..SPINS_MAX).any(|_| {
        hint::spin_loop();
        held.is_released(guard)
    })
}

/// Gives back one reference to a node, and the node with the last one.
fn give_back(node: Shared<'_, Node>, guard: &Guard) {
    // SAFETY: the reference given back has kept the node so far.
    let left = unsafe { node.deref() }.references.fetch_sub(1, Ordering::AcqRel);
    if left == 1 {
        // SAFETY: no link leads to it any more, and no thread can make one: links are made by
        // owners, and the owner's reference is gone. Searches that saw it are in epochs that began
        // before.
        unsafe { guard.defer_destroy(node.with_tag(0)) };
    }
}

/// A bijection that leaves no order in what it is given (the finaliser of splitmix64).
fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
