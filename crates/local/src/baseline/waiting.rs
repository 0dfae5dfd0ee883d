//! Two ways to wait, for the tree and for a range: spin, or spin and then sleep.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::hint;
use std::time::Instant;

use crate::primitive::{AtomicBool, AtomicU64, Mutex, Ordering, thread};

/// Looks before a waiter of [`Park`] sleeps: some microseconds, a few critical sections.
const SPINS_MAX: u32 = 200;

/// How threads wait for a tree lock.
pub trait Waiting: Send + Sync + 'static {
    /// What protects the tree.
    type Guarding<T: Send>: Guarding<T>;
    /// The name of the exclusive tree lock that waits like this.
    const TREE_EX: &'static str;
    /// The name of the reader-writer tree lock that waits like this.
    const TREE_RW: &'static str;

    /// Waits for a range.
    fn wait(ticket: &Ticket);
}

/// Mutual exclusion around a value.
pub trait Guarding<T>: Send + Sync {
    /// Around this value.
    fn new(value: T) -> Self;
    /// Runs `act` alone.
    fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R;
    /// How long callers waited for each other, in nanoseconds, where that is counted.
    fn waited_ns(&self) -> u64;
}

/// A waiter's place: the holder that grants the range says so here.
#[derive(Default)]
pub struct Ticket {
    granted: AtomicBool,
    asleep: Mutex<Option<thread::Thread>>,
}

impl Ticket {
    /// Makes a used ticket fresh. Only while no thread waits with it.
    pub(super) fn reset(&self) {
        self.granted.store(false, Ordering::Relaxed);
        *self.asleep.lock().expect("nothing panics under this lock") = None;
    }

    /// Ends the wait.
    pub(super) fn grant(&self) {
        self.granted.store(true, Ordering::Release);
        let asleep = self.asleep.lock().expect("nothing panics under this lock").take();
        if let Some(thread) = asleep {
            thread.unpark();
        }
    }

    fn is_granted(&self) -> bool {
        self.granted.load(Ordering::Acquire)
    }
}

/// Waiters spin for ever, as in the paper's measurements in user space.
#[derive(Debug)]
pub struct Spin;

impl Waiting for Spin {
    type Guarding<T: Send> = SpinLock<T>;
    const TREE_EX: &'static str = "tree-ex";
    const TREE_RW: &'static str = "tree-rw";

    fn wait(ticket: &Ticket) {
        while !ticket.is_granted() {
            hint::spin_loop();
        }
    }
}

/// Waiters spin a little, then sleep, for the tree as for a range.
#[derive(Debug)]
pub struct Park;

impl Waiting for Park {
    type Guarding<T: Send> = ParkLock<T>;
    const TREE_EX: &'static str = "tree-ex-park";
    const TREE_RW: &'static str = "tree-rw-park";

    fn wait(ticket: &Ticket) {
        for _ in 0..SPINS_MAX {
            if ticket.is_granted() {
                return;
            }
            hint::spin_loop();
        }
        // Before the last look: a later grant finds this thread, an earlier one is seen.
        *ticket.asleep.lock().expect("nothing panics under this lock") = Some(thread::current());
        while !ticket.is_granted() {
            thread::park();
        }
    }
}

/// A test-and-test-and-set lock that counts how long it was waited for.
pub struct SpinLock<T> {
    held: AtomicBool,
    waited_ns: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: `held` lets one thread at a time reach the value, which may go to any thread.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T: Send> Guarding<T> for SpinLock<T> {
    fn new(value: T) -> Self {
        Self {
            held: AtomicBool::new(false),
            waited_ns: AtomicU64::new(0),
            value: UnsafeCell::new(value),
        }
    }

    fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        if self.held.swap(true, Ordering::Acquire) {
            self.acquire_slow();
        }
        let _held = Held(&self.held);
        // SAFETY: this thread set `held`, and no other thread touches the value until it is
        // cleared.
        act(unsafe { &mut *self.value.get() })
    }

    fn waited_ns(&self) -> u64 {
        self.waited_ns.load(Ordering::Relaxed)
    }
}

impl<T> SpinLock<T> {
    #[cold]
    fn acquire_slow(&self) {
        let began = Instant::now();
        loop {
            while self.held.load(Ordering::Relaxed) {
                hint::spin_loop();
            }
            if !self.held.swap(true, Ordering::Acquire) {
                break;
            }
        }
        self.waited_ns.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

/// Frees the spin lock, also when its user panics.
struct Held<'a>(&'a AtomicBool);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The standard library's mutex, which spins and then sleeps, and how long it was waited for.
pub struct ParkLock<T> {
    value: Mutex<T>,
    waited_ns: AtomicU64,
}

impl<T: Send> Guarding<T> for ParkLock<T> {
    fn new(value: T) -> Self {
        Self { value: Mutex::new(value), waited_ns: AtomicU64::new(0) }
    }

    fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        let mut value = match self.value.try_lock() {
            Ok(value) => value,
            Err(_) => {
                let began = Instant::now();
                let value = self.value.lock().expect("nothing panics under this lock");
                let waited = began.elapsed().as_nanos() as u64;
                self.waited_ns.fetch_add(waited, Ordering::Relaxed);
                value
            }
        };
        act(&mut value)
    }

    fn waited_ns(&self) -> u64 {
        self.waited_ns.load(Ordering::Relaxed)
    }
}
