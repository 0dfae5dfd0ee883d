//! The areas of an address space: a treap by address, and a list through its nodes.
//!
//! Two kinds of change. *Structural* ones insert and remove nodes; their caller is alone in the
//! whole space. *Others* move the border between two neighbours or change a protection, while
//! searches for addresses elsewhere pass through the same nodes: so bounds are atomic, and a border
//! only moves within addresses that no other thread looks for. Nodes are never freed, so that an
//! index from before a structural change leads to a node, if maybe another one.

use std::sync::OnceLock;

use super::protection::Protection;
use crate::Range;
use crate::primitive::{AtomicU32, AtomicU64, Mutex, Ordering};

/// No node.
const NIL: u32 = u32::MAX;
/// Nodes of the first chunk; each chunk after has twice as many.
const CHUNK_FIRST: usize = 64;
/// Chunks: enough for 2^26 nodes.
const CHUNKS: usize = 20;

/// Names an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Id(u32);

/// What is known of an area at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    pub(super) start: u64,
    /// The address after the last.
    pub(super) end: u64,
    pub(super) protection: Protection,
}

/// A reader or writer of one of these has a range lock that orders what matters, so all are
/// relaxed.
struct Node {
    start: AtomicU64,
    end: AtomicU64,
    protection: AtomicU32,
    left: AtomicU32,
    right: AtomicU32,
    previous: AtomicU32,
    next: AtomicU32,
}

impl Default for Node {
    fn default() -> Self {
        let nil = || AtomicU32::new(NIL);
        Self {
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            protection: AtomicU32::new(0),
            left: nil(),
            right: nil(),
            previous: nil(),
            next: nil(),
        }
    }
}

/// Slots of nodes without an area.
#[derive(Default)]
struct Free {
    slots: Vec<u32>,
    used: u32,
}

pub(super) struct Areas {
    chunks: [OnceLock<Box<[Node]>>; CHUNKS],
    root: AtomicU32,
    free: Mutex<Free>,
}

impl Default for Areas {
    fn default() -> Self {
        let chunks = std::array::from_fn(|_| OnceLock::new());
        Self { chunks, root: AtomicU32::new(NIL), free: Mutex::default() }
    }
}

impl Areas {
    /// The first area that ends after an address.
    pub(super) fn find(&self, address: u64) -> Option<Id> {
        let (mut at, mut best) = (get(&self.root), NIL);
        while at != NIL {
            let node = self.node(at);
            if node.end.load(Ordering::Relaxed) > address {
                best = at;
                at = get(&node.left);
            } else {
                at = get(&node.right);
            }
        }
        id(best)
    }

    pub(super) fn see(&self, Id(at): Id) -> Seen {
        let node = self.node(at);
        Seen {
            start: node.start.load(Ordering::Relaxed),
            end: node.end.load(Ordering::Relaxed),
            protection: Protection(node.protection.load(Ordering::Relaxed) as u8),
        }
    }

    pub(super) fn previous(&self, Id(at): Id) -> Option<Id> {
        id(get(&self.node(at).previous))
    }

    pub(super) fn next(&self, Id(at): Id) -> Option<Id> {
        id(get(&self.node(at).next))
    }

    pub(super) fn protect(&self, Id(at): Id, protection: Protection) {
        self.node(at).protection.store(protection.0.into(), Ordering::Relaxed);
    }

    pub(super) fn set_end(&self, Id(at): Id, end: u64) {
        self.node(at).end.store(end, Ordering::Relaxed);
    }

    pub(super) fn set_start(&self, Id(at): Id, start: u64) {
        self.node(at).start.store(start, Ordering::Relaxed);
    }

    /// Adds an area where there is none. Structural.
    pub(super) fn insert(&self, range: Range, protection: Protection) -> Id {
        let next = self.find(range.start()).map_or(NIL, |Id(at)| at);
        let previous = if next == NIL { self.last() } else { get(&self.node(next).previous) };
        let slot = self.slot();
        let node = self.node(slot);
        node.start.store(range.start(), Ordering::Relaxed);
        node.end.store(range.last() + 1, Ordering::Relaxed);
        node.protection.store(protection.0.into(), Ordering::Relaxed);
        set(&node.left, NIL);
        set(&node.right, NIL);
        self.chain(previous, slot);
        self.chain(slot, next);
        set(&self.root, self.insert_below(get(&self.root), slot));
        Id(slot)
    }

    /// Removes an area. Structural.
    pub(super) fn remove(&self, Id(gone): Id) {
        set(&self.root, self.remove_below(get(&self.root), gone));
        let node = self.node(gone);
        let (previous, next) = (get(&node.previous), get(&node.next));
        self.chain(previous, next);
        self.free.lock().expect("nothing panics under this lock").slots.push(gone);
    }

    fn chain(&self, previous: u32, next: u32) {
        if previous != NIL {
            set(&self.node(previous).next, next);
        }
        if next != NIL {
            set(&self.node(next).previous, previous);
        }
    }

    fn last(&self) -> u32 {
        let (mut at, mut last) = (get(&self.root), NIL);
        while at != NIL {
            last = at;
            at = get(&self.node(at).right);
        }
        last
    }

    fn slot(&self) -> u32 {
        let mut free = self.free.lock().expect("nothing panics under this lock");
        if let Some(slot) = free.slots.pop() {
            return slot;
        }
        let slot = free.used;
        let (chunk, _) = place(slot);
        assert!(chunk < CHUNKS, "an address space has fewer areas");
        free.used += 1;
        let nodes = || (0..CHUNK_FIRST << chunk).map(|_| Node::default()).collect();
        self.chunks[chunk].get_or_init(nodes);
        // What is left of an earlier area on both sides is overwritten by `insert`.
        slot
    }

    fn node(&self, slot: u32) -> &Node {
        let (chunk, index) = place(slot);
        &self.chunks[chunk].get().expect("nodes are used once their chunk is there")[index]
    }

    fn insert_below(&self, at: u32, new: u32) -> u32 {
        if at == NIL {
            return new;
        }
        let node = self.node(at);
        if priority(new) > priority(at) {
            let (left, right) = self.split(at, self.start(new));
            set(&self.node(new).left, left);
            set(&self.node(new).right, right);
            return new;
        }
        let side = if self.start(new) < self.start(at) { &node.left } else { &node.right };
        set(side, self.insert_below(get(side), new));
        at
    }

    fn remove_below(&self, at: u32, gone: u32) -> u32 {
        assert!(at != NIL, "what is removed is in the tree");
        let node = self.node(at);
        if at == gone {
            return self.merge(get(&node.left), get(&node.right));
        }
        let side = if self.start(gone) < self.start(at) { &node.left } else { &node.right };
        set(side, self.remove_below(get(side), gone));
        at
    }

    /// Two trees: what starts before `start`, and what does not.
    fn split(&self, at: u32, start: u64) -> (u32, u32) {
        if at == NIL {
            return (NIL, NIL);
        }
        let node = self.node(at);
        if self.start(at) < start {
            let (near, far) = self.split(get(&node.right), start);
            set(&node.right, near);
            (at, far)
        } else {
            let (far, near) = self.split(get(&node.left), start);
            set(&node.left, near);
            (far, at)
        }
    }

    /// One tree of two, all of `left` before all of `right`.
    fn merge(&self, left: u32, right: u32) -> u32 {
        if left == NIL || right == NIL {
            return if left == NIL { right } else { left };
        }
        if priority(left) > priority(right) {
            let side = &self.node(left).right;
            set(side, self.merge(get(side), right));
            left
        } else {
            let side = &self.node(right).left;
            set(side, self.merge(left, get(side)));
            right
        }
    }

    fn start(&self, slot: u32) -> u64 {
        self.node(slot).start.load(Ordering::Relaxed)
    }
}

fn id(slot: u32) -> Option<Id> {
    (slot != NIL).then_some(Id(slot))
}

fn get(link: &AtomicU32) -> u32 {
    link.load(Ordering::Relaxed)
}

fn set(link: &AtomicU32, slot: u32) {
    link.store(slot, Ordering::Relaxed);
}

/// Parents have larger ones. Which slot an area gets says nothing of its address.
fn priority(slot: u32) -> u64 {
    let mixed = (u64::from(slot) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// The chunk of a slot, and where in it.
fn place(slot: u32) -> (usize, usize) {
    let number = slot as usize / CHUNK_FIRST + 1;
    let chunk = number.ilog2() as usize;
    (chunk, slot as usize - CHUNK_FIRST * ((1 << chunk) - 1))
}
