//! A list of robust futexes whose pointers lie in private memory: for threads of this library.
//!
//! When a thread ends the kernel walks the list that it registered, and marks the futex words that
//! lie at a fixed distance from the list's nodes. The C library keeps the nodes beside the words,
//! inside of its mutexes: of those in shared memory any peer could aim them elsewhere, and have
//! this process write there. A thread that runs nothing but this library's code can register a list
//! of its own. Its nodes lie in an array that has the stride of a region's places: so the distance
//! is the same for all of them, and in the region lies nothing but the words.
//!
//! A thread has one list. While it has this one, a robust mutex of the C library that it locks is
//! not seen by the kernel; so this is for threads that lock none.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering, compiler_fence};

use rustix::thread::futex;

use super::primitive::AtomicU32;

/// Bits of the futex word that name its owner's thread; the kernel's `FUTEX_TID_MASK`.
pub(super) const OWNER_MASK: u32 = !(futex::WAITERS | futex::OWNER_DIED);

/// Bytes from one word that a list keeps to the next.
pub(super) const STRIDE: usize = 256;

/// A node of the list. Nobody but its thread and, after that one's end, the kernel looks at it.
#[repr(C)]
struct Node {
    next: AtomicPtr<Self>,
    /// The node before, or the head.
    before: AtomicPtr<Self>,
    _stride: [u64; (STRIDE - 16) / 8],
}

const _: () = assert!(size_of::<Node>() == STRIDE);

/// What the kernel is told of: its `struct robust_list_head`.
#[repr(C)]
struct Head {
    /// The first node, or the head itself.
    next: AtomicPtr<Node>,
    /// From a node to its futex word, in bytes.
    distance: isize,
    /// The node that is being put into the list, or taken out.
    pending: AtomicPtr<Node>,
}

/// The list of the calling thread.
struct List {
    head: NonNull<Head>,
    nodes: NonNull<Node>,
    places: usize,
    /// What the C library had registered: a head, and its size.
    before: (usize, usize),
    /// Dropped last: keeps the words that the list is about.
    _kept: Box<dyn Any>,
}

thread_local! {
    static OWN: RefCell<Option<List>> = const { RefCell::new(None) };
}

/// Registers a list of the calling thread's own, for so many words from `first` on, [`STRIDE`]
/// bytes apart, in memory that `kept` keeps.
///
/// # Panics
/// If the thread has one.
pub(super) fn register(first: &AtomicU32, places: usize, kept: Box<dyn Any>) -> io::Result<()> {
    OWN.with_borrow_mut(|own| {
        assert!(own.is_none(), "a thread has one list");
        *own = Some(List::register(first, places, kept)?);
        Ok(())
    })
}

/// Ends the calling thread's own list.
pub(super) fn unregister() {
    OWN.with_borrow_mut(|own| {
        if let Some(list) = own.take() {
            list.unregister();
        }
    });
}

/// Has the calling thread's own list keep this word, which says its number from now on. `false`:
/// it has none for this word.
pub(super) fn keep(word: &AtomicU32, thread: u32) -> bool {
    OWN.with_borrow(|own| {
        let node = own.as_ref().and_then(|list| Some((list, list.node(word)?)));
        node.inspect(|(list, node)| list.insert(node, word, thread)).is_some()
    })
}

/// Has the calling thread's own list let go of this word, which no longer says its number from now
/// on. `false`: it has none for this word.
pub(super) fn let_go(word: &AtomicU32, thread: u32) -> bool {
    // A thread that is nearly over has none any more.
    let found = OWN.try_with(|own| {
        let own = own.borrow();
        let node = own.as_ref().and_then(|list| Some((list, list.node(word)?)));
        node.inspect(|(list, node)| list.remove(node, word, thread)).is_some()
    });
    found.unwrap_or(false)
}

fn layout_of(places: usize) -> Layout {
    Layout::array::<Node>(places).expect("a table of places has a size")
}

impl List {
    fn register(first: &AtomicU32, places: usize, kept: Box<dyn Any>) -> io::Result<Self> {
        let before = registered()?;
        let layout = layout_of(places);
        // SAFETY: the layout is not empty. Zeros are a value of every node.
        let nodes = NonNull::new(unsafe { alloc_zeroed(layout) }.cast::<Node>());
        let nodes = nodes.unwrap_or_else(|| handle_alloc_error(layout));
        let distance = (std::ptr::from_ref(first) as isize).wrapping_sub(nodes.as_ptr() as isize);
        let head =
            Box::new(Head { next: AtomicPtr::default(), distance, pending: AtomicPtr::default() });
        let head = NonNull::from(Box::leak(head));
        let list = Self { head, nodes, places, before, _kept: kept };
        list.head().next.store(head.as_ptr().cast(), Ordering::Relaxed);
        set((head.as_ptr() as usize, size_of::<Head>())).inspect_err(|_| list.free())?;
        Ok(list)
    }

    fn head(&self) -> &Head {
        // SAFETY: it was leaked when the list was made, and is freed with it.
        unsafe { self.head.as_ref() }
    }

    /// The node of a futex word, if it is the word of one of the region's places.
    fn node(&self, word: &AtomicU32) -> Option<&Node> {
        let at = (std::ptr::from_ref(word) as isize).wrapping_sub(self.head().distance);
        let number = usize::try_from(at).ok()?.checked_sub(self.nodes.as_ptr() as usize)?;
        let (number, rest) = (number / size_of::<Node>(), number % size_of::<Node>());
        // SAFETY: one of the nodes, which live as long as the list.
        (number < self.places && rest == 0).then(|| unsafe { self.nodes.add(number).as_ref() })
    }

    /// Within this the thread may end anywhere: the kernel looks at the pending node too.
    fn with_pending(&self, node: &Node, change: impl FnOnce()) {
        let pending = &self.head().pending;
        pending.store(std::ptr::from_ref(node).cast_mut(), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        change();
        compiler_fence(Ordering::SeqCst);
        pending.store(std::ptr::null_mut(), Ordering::Relaxed);
    }

    fn insert(&self, node: &Node, word: &AtomicU32, thread: u32) {
        let own = std::ptr::from_ref(node).cast_mut();
        self.with_pending(node, || {
            word.store(thread, Ordering::SeqCst);
            compiler_fence(Ordering::SeqCst);
            let (next, head) =
                (self.head().next.load(Ordering::Relaxed), self.head.as_ptr().cast());
            node.next.store(next, Ordering::Relaxed);
            node.before.store(head, Ordering::Relaxed);
            self.set_before(next, own);
            compiler_fence(Ordering::SeqCst);
            self.head().next.store(own, Ordering::Relaxed);
        });
    }

    fn remove(&self, node: &Node, word: &AtomicU32, thread: u32) {
        self.with_pending(node, || {
            let (next, before) =
                (node.next.load(Ordering::Relaxed), node.before.load(Ordering::Relaxed));
            if before == self.head.as_ptr().cast() {
                self.head().next.store(next, Ordering::Relaxed);
            } else {
                // SAFETY: a node of this list, which lives as long as it.
                unsafe { &*before }.next.store(next, Ordering::Relaxed);
            }
            self.set_before(next, before);
            compiler_fence(Ordering::SeqCst);
            // What another stands in was damaged: it is not this thread's any more.
            let owner = |word: u32| word & OWNER_MASK;
            let free = |found| (owner(found) == owner(thread)).then_some(0);
            let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, free);
        });
    }

    fn set_before(&self, node: *mut Node, before: *mut Node) {
        if node != self.head.as_ptr().cast() {
            // SAFETY: a node of this list, which lives as long as it.
            unsafe { &*node }.before.store(before, Ordering::Relaxed);
        }
    }

    fn unregister(self) {
        let is_empty = self.head().next.load(Ordering::Relaxed) == self.head.as_ptr().cast();
        // A keeper that was forgotten is kept until the thread ends, and so is its list.
        if is_empty && set(self.before).is_ok() {
            self.free();
        } else {
            let _ = ManuallyDrop::new(self);
        }
    }

    fn free(&self) {
        // SAFETY: both were allocated like this when the list was made; the kernel knows of it no
        // more, and nobody uses it from here on.
        unsafe {
            drop(Box::from_raw(self.head.as_ptr()));
            dealloc(self.nodes.as_ptr().cast(), layout_of(self.places));
        }
    }
}

/// What list the calling thread has registered: the address of its head, and its size.
fn registered() -> io::Result<(usize, usize)> {
    let (mut head, mut size) = (0_usize, 0_usize);
    // SAFETY: the kernel writes two words to two locals.
    let failed =
        unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut size) };
    if failed == 0 { Ok((head, size)) } else { Err(io::Error::last_os_error()) }
}

/// Registers a list for the calling thread.
fn set((head, size): (usize, usize)) -> io::Result<()> {
    // SAFETY: a head that lives until another is registered, or the one that the C library had.
    let failed = unsafe { libc::syscall(libc::SYS_set_robust_list, head, size) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::super::region::{Options, Region};
    use super::super::testing::TestDir;
    use super::*;

    /// What the kernel finds: the nodes from the head on, and back.
    fn listed() -> usize {
        OWN.with_borrow(|own| {
            let list = own.as_ref().unwrap();
            let head: *mut Node = list.head.as_ptr().cast();
            let (mut before, mut node) = (head, list.head().next.load(Ordering::Relaxed));
            let mut nodes = 0;
            while node != head {
                // SAFETY: a node of this list, which lives as long as it.
                let found = unsafe { &*node };
                assert_eq!(found.before.load(Ordering::Relaxed), before);
                (before, node) = (node, found.next.load(Ordering::Relaxed));
                nodes += 1;
            }
            nodes
        })
    }

    #[test]
    fn an_owner_is_what_the_kernel_takes_for_one() {
        assert_eq!(OWNER_MASK, libc::FUTEX_TID_MASK);
    }

    #[test]
    fn words_come_and_go_in_any_order() {
        let dir = TestDir::new("robust");
        let options = Options::new(dir.path(), dir.path().join("state"), "r");
        let region = Region::open(&options).unwrap();
        let own = region.own_thread().unwrap();
        let word = |index| region.mapping().place(index).unwrap().beacon.word();
        let (one, two, three) = (word(1), word(2), word(3));
        for order in [[one, two, three], [three, two, one], [two, one, three], [two, three, one]] {
            for kept in [one, two, three] {
                assert!(keep(kept, 77));
                assert_eq!(kept.load(Ordering::Relaxed), 77);
            }
            for (left, others) in order.into_iter().zip([2, 1, 0]) {
                assert!(let_go(left, 77));
                assert_eq!((left.load(Ordering::Relaxed), listed()), (0, others));
            }
        }
        let elsewhere = AtomicU32::new(5);
        assert!(!keep(&elsewhere, 77) && !let_go(&elsewhere, 77));
        assert!(keep(one, 77));
        // Another thread's now.
        one.store(78, Ordering::Relaxed);
        assert!(let_go(one, 77) && one.load(Ordering::Relaxed) == 78);
        drop(own);
        assert!(!keep(one, 77) && !let_go(one, 77));
    }
}
