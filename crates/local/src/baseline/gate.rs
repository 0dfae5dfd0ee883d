//! A reader-writer lock in a word, which spins and then sleeps: a piece of the other baselines.
//!
//! Bit 31 says that a writer holds it, bit 30 that a writer waits, which keeps new readers out; the
//! other bits count readers. Sleepers share one condition variable.

use std::hint;

use crate::primitive::{AtomicU32, Condvar, Mutex, Ordering};

const WRITER: u32 = 1 << 31;
const WRITER_WAITS: u32 = 1 << 30;
/// Looks before a waiter sleeps.
const SPINS_MAX: u32 = 200;

/// Fills a cache line, so that neighbours do not disturb each other.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Gate {
    word: AtomicU32,
    /// How many sleep or are about to; changed under the mutex.
    sleepers: AtomicU32,
    mutex: Mutex<()>,
    free: Condvar,
}

impl Gate {
    pub(super) fn lock(&self, shared: bool) {
        for _ in 0..SPINS_MAX {
            if self.try_lock(shared) {
                return;
            }
            hint::spin_loop();
        }
        self.lock_slow(shared);
    }

    pub(super) fn try_lock(&self, shared: bool) -> bool {
        let word = self.word.load(Ordering::SeqCst);
        let new = match shared {
            true if word & (WRITER | WRITER_WAITS) == 0 => word + 1,
            // A waiting writer says so again.
            false if word & !WRITER_WAITS == 0 => WRITER,
            _ => return false,
        };
        self.word.compare_exchange(word, new, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_slow(&self, shared: bool) {
        let mut guard = self.mutex.lock().expect("nothing panics under this lock");
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        loop {
            if !shared {
                self.word.fetch_or(WRITER_WAITS, Ordering::SeqCst);
            }
            // After the announcement: a release from here on finds a sleeper and wakes it.
            let before = self.word.load(Ordering::SeqCst);
            if self.try_lock(shared) {
                break;
            }
            if self.word.load(Ordering::SeqCst) == before {
                guard = self.free.wait(guard).expect("nothing panics under this lock");
            }
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn unlock(&self, shared: bool) {
        let before = match shared {
            true => self.word.fetch_sub(1, Ordering::SeqCst),
            false => self.word.fetch_and(!WRITER, Ordering::SeqCst),
        };
        let held = if shared { before & !(WRITER | WRITER_WAITS) > 0 } else { before & WRITER > 0 };
        assert!(held, "only what is held is released");
        let free = !shared || before & !WRITER_WAITS == 1;
        if free && self.sleepers.load(Ordering::SeqCst) > 0 {
            let _awake = self.mutex.lock().expect("nothing panics under this lock");
            self.free.notify_all();
        }
    }
}
