//! A skip list whose updates lock one range each: a map and a set of 64-bit keys.
//!
//! Kogan, Dice, Issa, *Scalable Range Locks* (EuroSys'20), section 6, on the lazy list of Herlihy,
//! Lev, Luchangco and Shavit (SIROCCO'07). Searches are wait-free and lock nothing. An update
//! searches, locks, looks again whether what it found still stands, and changes pointers:
//!
//! | update | changes | locks |
//! | --- | --- | --- |
//! | insert `k` | the predecessors of `k`, up to the height of its node | from the highest of them to `k` |
//! | remove `k` | the same, and the node of `k` | the same |
//!
//! The list is sorted, so the lower predecessors lie between the highest and `k`: one range covers
//! them all. Two updates that change the same pointer, or one that changes a pointer of a node
//! which another removes, lock ranges with that node in common. A node therefore needs no lock.
//!
//! What is compared with is the original, a lock in each node (`ByNode`, feature `baseline`): the
//! text is the same, but for what is locked.
//!
//! **Memory.** The thread that marks a node unlinks it and hands it to the epochs, which free it
//! when no search can still see it.
#![allow(unsafe_code)]

use std::alloc::{self, Layout};
use std::fmt;
use std::mem::{MaybeUninit, offset_of};
use std::ops::Deref;
use std::ptr::{self, NonNull};

use crossbeam_epoch::{self as epoch, Guard};

use crate::primitive::{AtomicBool, AtomicPtr, Ordering, thread};
use crate::{IndexedLock, ListEx, ListRw, Range, RawRangeLock};

/// Levels: with every second node going up, enough for 2^24 keys.
const HEIGHT_MAX: usize = 24;

/// Which thread may change which nodes. [`ByRange`] in use, `ByNode` to compare with.
///
/// # Safety
///
/// While a `Held` lives that was given for some nodes, no other `Held` does that was given for one
/// of these nodes, or for a range of keys that has one of their keys.
pub unsafe trait Coordination: Default + Send + Sync {
    /// What each node has for it.
    type InNode: Default + Send + Sync;
    /// The right to change nodes.
    type Held<'a>
    where
        Self: 'a;

    /// Waits for the right to change `nodes`. Their keys lie in `range`; repeated ones are side by
    /// side.
    fn hold<'a>(&'a self, range: Range, nodes: &[&'a Self::InNode]) -> Self::Held<'a>;
}

/// One lock on a range of keys for an update.
#[derive(Default)]
pub struct ByRange<L>(L);

/// A locked range of keys.
pub struct HeldRange<'a, L: RawRangeLock> {
    lock: &'a L,
    token: Option<L::Token>,
}

impl<L: RawRangeLock> Drop for HeldRange<'_, L> {
    fn drop(&mut self) {
        self.token.take().into_iter().for_each(|token| self.lock.unlock(token));
    }
}

/// A lock known to exclude, so that memory may depend on it.
///
/// # Safety
///
/// No two exclusive tokens of overlapping ranges exist at once.
pub unsafe trait Excludes: RawRangeLock + Default {}

// SAFETY: what they are for, and what the models and tests of the lists show.
unsafe impl Excludes for ListEx {}
// SAFETY: as above.
unsafe impl Excludes for ListRw {}
// SAFETY: overlapping ranges compete for one pointer; see the module.
unsafe impl Excludes for IndexedLock {}
// SAFETY: a request holds its range when no earlier one in the tree overlaps it.
#[cfg(feature = "baseline")]
unsafe impl<W: crate::baseline::Waiting> Excludes for crate::baseline::TreeEx<W> {}

// SAFETY: keys of nodes lie in the range, and ranges with a key in common exclude each other.
unsafe impl<L: Excludes> Coordination for ByRange<L> {
    type InNode = ();
    type Held<'a>
        = HeldRange<'a, L>
    where
        L: 'a;

    fn hold<'a>(&'a self, range: Range, _: &[&'a ()]) -> HeldRange<'a, L> {
        HeldRange { lock: &self.0, token: Some(self.0.lock(range)) }
    }
}

/// A lock in each node, as in the original: an update takes one for each predecessor, and a removal
/// that of its node.
#[cfg(feature = "baseline")]
#[derive(Default)]
pub struct ByNode;

// SAFETY: every node is locked, the repeated ones, side by side, once.
#[cfg(feature = "baseline")]
unsafe impl Coordination for ByNode {
    type InNode = crate::primitive::Mutex<()>;
    type Held<'a> = [Option<crate::primitive::MutexGuard<'a, ()>>; HEIGHT_MAX + 1];

    fn hold<'a>(&'a self, _: Range, nodes: &[&'a Self::InNode]) -> Self::Held<'a> {
        let mut held: Self::Held<'a> = std::array::from_fn(|_| None);
        for (index, node) in nodes.iter().enumerate() {
            if index == 0 || !ptr::eq(*node, nodes[index - 1]) {
                held[index] = Some(node.lock().expect("nothing panics under this lock"));
            }
        }
        held
    }
}

/// A key, its value, and `height` pointers behind.
#[repr(C)]
struct Node<V, C: Coordination> {
    key: u64,
    /// Nothing in the head.
    value: MaybeUninit<V>,
    coordination: C::InNode,
    /// Removed: set once, by the thread that unlinks it.
    marked: AtomicBool,
    /// In the list at all its levels.
    linked: AtomicBool,
    height: u8,
    tower: [AtomicPtr<Self>; 0],
}

impl<V, C: Coordination> Node<V, C> {
    fn layout(height: usize) -> Layout {
        let tower = Layout::array::<AtomicPtr<Self>>(height).expect("towers are low");
        let (layout, offset) = Layout::new::<Self>().extend(tower).expect("nodes are small");
        debug_assert_eq!(offset, offset_of!(Self, tower), "the tower ends the node");
        layout.pad_to_align()
    }

    fn allocate(key: u64, value: MaybeUninit<V>, height: usize) -> NonNull<Self> {
        let layout = Self::layout(height);
        // SAFETY: the layout has a key at least.
        let memory = NonNull::new(unsafe { alloc::alloc(layout) });
        let Some(node) = memory.map(NonNull::cast::<Self>) else {
            alloc::handle_alloc_error(layout)
        };
        let header = Self {
            key,
            value,
            coordination: C::InNode::default(),
            marked: AtomicBool::new(false),
            linked: AtomicBool::new(false),
            height: u8::try_from(height).expect("towers are low"),
            tower: [],
        };
        // SAFETY: fresh memory, large enough for the header and `height` pointers behind it.
        unsafe {
            node.write(header);
            let tower = (&raw mut (*node.as_ptr()).tower).cast::<AtomicPtr<Self>>();
            (0..height).for_each(|level| tower.add(level).write(AtomicPtr::new(ptr::null_mut())));
        }
        node
    }

    /// # Safety
    ///
    /// `node` came from [`Self::allocate`], no thread uses it any more, it is freed once, and its
    /// value, where it has one, was dropped.
    unsafe fn free(node: *mut Self) {
        // SAFETY: see above.
        unsafe {
            let layout = Self::layout(usize::from((*node).height));
            node.drop_in_place();
            alloc::dealloc(node.cast(), layout);
        }
    }

    /// The pointer to the next node at a level of `node`.
    ///
    /// # Safety
    ///
    /// `node` lives for `'g`, and is higher than `level`.
    unsafe fn next<'g>(node: *mut Self, level: usize) -> &'g AtomicPtr<Self> {
        // SAFETY: `node` is from `allocate`, whose memory has `height` pointers behind the header;
        // a raw pointer to all of it is kept all along, never one narrowed to the header.
        unsafe { &*(&raw const (*node).tower).cast::<AtomicPtr<Self>>().add(level) }
    }
}

/// Where a key belongs: at each level the last node before it, and the first one not before it.
struct Place<V, C: Coordination> {
    before: [*mut Node<V, C>; HEIGHT_MAX],
    after: [*mut Node<V, C>; HEIGHT_MAX],
    /// The highest level at which `after` has the key.
    found_at: Option<usize>,
}

/// A sorted map from 64-bit keys. Searches are wait-free; an update locks one range of keys.
///
/// ```
/// use farlock_local::skiplist::RangeSkipMap;
///
/// let squares = RangeSkipMap::<u64>::default();
/// assert!(squares.insert(12, 144));
/// assert!(!squares.insert(12, 0), "a key has one value, the first");
/// assert_eq!(squares.get(12).as_deref(), Some(&144));
/// assert!(squares.remove(12));
/// assert!(squares.get(12).is_none());
/// ```
pub struct SkipMap<V, C: Coordination> {
    /// Before all keys, and as high as any.
    head: NonNull<Node<V, C>>,
    coordination: C,
}

/// A map whose updates lock one range of keys.
pub type RangeSkipMap<V, L = ListEx> = SkipMap<V, ByRange<L>>;

/// A set of 64-bit keys. Searches are wait-free; an update locks what `C` says.
///
/// ```
/// use farlock_local::skiplist::RangeSkipSet;
///
/// let primes: RangeSkipSet = RangeSkipSet::default();
/// assert!(primes.insert(7) && !primes.insert(7));
/// assert!(primes.contains(7) && primes.remove(7) && !primes.contains(7));
/// ```
pub struct SkipSet<C: Coordination> {
    keys: SkipMap<(), C>,
}

/// A set whose updates lock one range of keys.
pub type RangeSkipSet<L = ListEx> = SkipSet<ByRange<L>>;

// SAFETY: nodes are shared between threads, which see values and may drop them.
unsafe impl<V: Send + Sync, C: Coordination> Send for SkipMap<V, C> {}
// SAFETY: as above.
unsafe impl<V: Send + Sync, C: Coordination> Sync for SkipMap<V, C> {}

/// A value that was in the map when it was looked for; it stays until this is dropped.
///
/// Keeps memory that was removed in the meantime, everywhere in this program, from being freed.
pub struct Ref<'a, V> {
    value: &'a V,
    _guard: Guard,
}

impl<V> Deref for Ref<'_, V> {
    type Target = V;

    fn deref(&self) -> &V {
        self.value
    }
}

impl<V: fmt::Debug> fmt::Debug for Ref<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        V::fmt(self, f)
    }
}

impl<V, C: Coordination> Default for SkipMap<V, C> {
    fn default() -> Self {
        let head = Node::allocate(0, MaybeUninit::uninit(), HEIGHT_MAX);
        Self { head, coordination: C::default() }
    }
}

impl<V: Send + Sync + 'static, C: Coordination + 'static> SkipMap<V, C> {
    /// The value of a key, if it has one. Wait-free.
    pub fn get(&self, key: u64) -> Option<Ref<'_, V>> {
        let guard = epoch::pin();
        let node = self.search(key, &guard)?;
        // SAFETY: in the list in this epoch, so it is no head and has a value; not freed before the
        // guard goes, nor before the map does.
        let value = unsafe { (*node).value.assume_init_ref() };
        Some(Ref { value, _guard: guard })
    }

    /// Whether a key has a value. Wait-free.
    pub fn contains(&self, key: u64) -> bool {
        self.search(key, &epoch::pin()).is_some()
    }

    /// Gives a key a value, unless it has one: then false, and `value` is dropped.
    pub fn insert(&self, key: u64, value: V) -> bool {
        let height = height_of(key, &raw const value as u64);
        let mut value = Some(value);
        loop {
            let guard = epoch::pin();
            let place = self.place(key, &guard);
            if let Some(level) = place.found_at {
                let found = place.after[level];
                // SAFETY: found in this epoch.
                let (marked, linked) = unsafe { (&(*found).marked, &(*found).linked) };
                if marked.load(Ordering::Acquire) {
                    continue;
                }
                // A thread inserts it: its insertion counts when it is complete.
                while !linked.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                return false;
            }
            let held = self.hold(&place, key, height, None);
            if self.insert_held(&place, key, &mut value, height) {
                drop(held);
                return true;
            }
        }
    }

    /// With the predecessors held: false if they are not what was found any more.
    fn insert_held(
        &self,
        place: &Place<V, C>,
        key: u64,
        value: &mut Option<V>,
        height: usize,
    ) -> bool {
        let stands = |level: usize| {
            let (before, after) = (place.before[level], place.after[level]);
            // SAFETY: both were found in the caller's epoch; `after` may be the end.
            unsafe {
                !(*before).marked.load(Ordering::Acquire)
                    && (after.is_null() || !(*after).marked.load(Ordering::Acquire))
                    && Node::next(before, level).load(Ordering::Acquire) == after
            }
        };
        if !(0..height).all(stands) {
            return false;
        }
        let value = value.take().expect("a value is inserted once");
        let node = Node::<V, C>::allocate(key, MaybeUninit::new(value), height).as_ptr();
        for level in 0..height {
            // SAFETY: the new node is ours, and has this level.
            unsafe { Node::next(node, level) }.store(place.after[level], Ordering::Relaxed);
        }
        for level in 0..height {
            // SAFETY: held, and found in the caller's epoch, at this level.
            unsafe { Node::next(place.before[level], level) }.store(node, Ordering::Release);
        }
        // SAFETY: a removal waits for this flag, so the node is still there.
        unsafe { &(*node).linked }.store(true, Ordering::Release);
        true
    }

    /// Takes a key and its value out; false if it has none.
    pub fn remove(&self, key: u64) -> bool {
        loop {
            let guard = epoch::pin();
            let place = self.place(key, &guard);
            let Some(found_at) = place.found_at else { return false };
            let node = place.after[found_at];
            // SAFETY: found in this epoch.
            let (height, linked, marked) =
                unsafe { (usize::from((*node).height), &(*node).linked, &(*node).marked) };
            if marked.load(Ordering::Acquire) {
                return false;
            }
            // Not yet in the list at all its levels: its insertion is under way, or was when its
            // place was looked for.
            if !linked.load(Ordering::Acquire) || found_at + 1 != height {
                thread::yield_now();
                continue;
            }
            let held = self.hold(&place, key, height, Some(node));
            let removed = self.remove_held(&place, node, height);
            drop(held);
            match removed {
                Removal::Done => {
                    retire(node, &guard);
                    return true;
                }
                Removal::ByAnother => return false,
                Removal::Moved => {}
            }
        }
    }

    /// With the predecessors and the node held.
    fn remove_held(&self, place: &Place<V, C>, node: *mut Node<V, C>, height: usize) -> Removal {
        // SAFETY: found in the caller's epoch, at all levels of the node.
        unsafe {
            if (*node).marked.load(Ordering::Acquire) {
                return Removal::ByAnother;
            }
            let stands = |level: usize| {
                let before = place.before[level];
                !(*before).marked.load(Ordering::Acquire)
                    && Node::next(before, level).load(Ordering::Acquire) == node
            };
            if !(0..height).all(stands) {
                return Removal::Moved;
            }
            // From here on the key is gone.
            (*node).marked.store(true, Ordering::Release);
            for level in (0..height).rev() {
                let after = Node::next(node, level).load(Ordering::Acquire);
                Node::next(place.before[level], level).store(after, Ordering::Release);
            }
        }
        Removal::Done
    }

    /// Holds the predecessors of a key up to a height, and the node of the key if it goes.
    fn hold(
        &self,
        place: &Place<V, C>,
        key: u64,
        height: usize,
        node: Option<*mut Node<V, C>>,
    ) -> C::Held<'_> {
        let highest = place.before[height - 1];
        // SAFETY: found in the caller's epoch; the head is as good as a node with the key 0.
        let range = Range::inclusive(unsafe { (*highest).key }, key);
        let range = range.expect("predecessors come before the key");
        let before = place.before[..height].iter().copied();
        let mut nodes = [ptr::null_mut(); HEIGHT_MAX + 1];
        let all = node.into_iter().chain(before);
        let count = all.zip(&mut nodes).map(|(node, slot)| *slot = node).count();
        // SAFETY: found in the caller's epoch, which lasts longer than what is held.
        let locks = nodes.map(|node| unsafe {
            let node = if node.is_null() { self.head.as_ptr() } else { node };
            &(*node).coordination
        });
        self.coordination.hold(range, &locks[..count])
    }

    /// The node of a key, complete and not removed. Each step goes on, down or ends: wait-free.
    fn search(&self, key: u64, _: &Guard) -> Option<*mut Node<V, C>> {
        let mut before = self.head.as_ptr();
        let mut at = ptr::null_mut();
        for level in (0..HEIGHT_MAX).rev() {
            // SAFETY: reached in this epoch, at a level that it has.
            unsafe {
                at = Node::next(before, level).load(Ordering::Acquire);
                while !at.is_null() && (*at).key < key {
                    before = at;
                    at = Node::next(at, level).load(Ordering::Acquire);
                }
                if !at.is_null() && (*at).key == key {
                    break;
                }
            }
        }
        // SAFETY: as above.
        unsafe {
            let found = !at.is_null()
                && (*at).key == key
                && (*at).linked.load(Ordering::Acquire)
                && !(*at).marked.load(Ordering::Acquire);
            found.then_some(at)
        }
    }

    fn place(&self, key: u64, _: &Guard) -> Place<V, C> {
        let mut place = Place {
            before: [self.head.as_ptr(); HEIGHT_MAX],
            after: [ptr::null_mut(); HEIGHT_MAX],
            found_at: None,
        };
        let mut before = self.head.as_ptr();
        for level in (0..HEIGHT_MAX).rev() {
            // SAFETY: reached in this epoch, at a level that it has.
            unsafe {
                let mut at = Node::next(before, level).load(Ordering::Acquire);
                while !at.is_null() && (*at).key < key {
                    before = at;
                    at = Node::next(at, level).load(Ordering::Acquire);
                }
                if place.found_at.is_none() && !at.is_null() && (*at).key == key {
                    place.found_at = Some(level);
                }
                place.after[level] = at;
            }
            place.before[level] = before;
        }
        place
    }
}

/// How a removal went, with the nodes held.
enum Removal {
    Done,
    /// Another thread removed the node first.
    ByAnother,
    /// Something came between the node and its predecessors.
    Moved,
}

/// Hands a node that no thread can reach any more to the epochs.
fn retire<V: Send + Sync + 'static, C: Coordination + 'static>(
    node: *mut Node<V, C>,
    guard: &Guard,
) {
    // SAFETY: unlinked by the one caller that marked it. Searches that saw it are in epochs that
    // began before. The value is dropped wherever the epoch ends, which `Send` and
    // `'static` allow.
    unsafe {
        guard.defer_unchecked(move || {
            (*node).value.assume_init_drop();
            Node::free(node);
        });
    }
}

impl<V, C: Coordination> Drop for SkipMap<V, C> {
    fn drop(&mut self) {
        let mut at = self.head.as_ptr();
        let mut is_head = true;
        while !at.is_null() {
            // SAFETY: no other thread can reach the map; every node in it is at level 0, once, and
            // has a value unless it is the head.
            unsafe {
                let next = Node::next(at, 0).load(Ordering::Acquire);
                if !is_head {
                    (*at).value.assume_init_drop();
                }
                Node::free(at);
                at = next;
            }
            is_head = false;
        }
    }
}

impl<C: Coordination> Default for SkipSet<C> {
    fn default() -> Self {
        Self { keys: SkipMap::default() }
    }
}

impl<C: Coordination + 'static> SkipSet<C> {
    /// The bytes of a node of this height.
    pub fn node_bytes(height: usize) -> usize {
        Node::<(), C>::layout(height).size()
    }

    /// Whether a key is in. Wait-free.
    pub fn contains(&self, key: u64) -> bool {
        self.keys.contains(key)
    }

    /// Puts a key in; false if it was.
    pub fn insert(&self, key: u64) -> bool {
        self.keys.insert(key, ())
    }

    /// Takes a key out; false if it was not in.
    pub fn remove(&self, key: u64) -> bool {
        self.keys.remove(key)
    }
}

/// Every second node is higher than 1, every fourth higher than 2: a die for each key and place.
fn height_of(key: u64, place: u64) -> usize {
    let mut mixed = (key ^ place.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (1 + (mixed ^ (mixed >> 31)).trailing_zeros() as usize).min(HEIGHT_MAX)
}
