//! The sign of life of an endpoint: a robust mutex that its thread holds as long as it lives.
//!
//! When a thread ends, however it ends, the kernel walks the robust mutexes it holds, marks their
//! words and wakes one sleeper each. That happens at the start of an exit, before the address space
//! is torn down, so a death shows within microseconds whatever the size of the dead process. The
//! sleeper that the kernel wakes wakes the others (`Beacon::pass_on`).
//!
//! In a thread of the user's the mutex is the C library's own, because a thread has one list of
//! robust mutexes and the C library owns it; a thread of this library has a list of its own
//! (`robust`). Only the futex word is read here: a thread id, never interpreted, so processes of
//! different process namespaces understand each other.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use rustix::thread::futex;

use super::primitive::{AtomicU32, Ordering};
use super::robust::{self, OWNER_MASK};

/// Where in a mutex its futex word lies, in bytes. [`Beacon::light`] checks it.
pub(super) const LOCK_WORD_OFFSET: usize = if cfg!(target_env = "musl") { 4 } else { 0 };

const STORAGE_WORDS: usize = 7;
const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= STORAGE_WORDS * 8);
const _: () = assert!(align_of::<libc::pthread_mutex_t>() <= align_of::<u64>());

/// The number of the calling thread, as futex words have it.
fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32 & OWNER_MASK
}

/// A robust mutex in shared memory.
#[repr(C)]
pub(super) struct Beacon {
    storage: UnsafeCell<[u64; STORAGE_WORDS]>,
}

// SAFETY: other threads and processes touch only the futex word, and that atomically; the rest is
// its owner's and the C library's.
unsafe impl Sync for Beacon {}

/// What failed when lighting a beacon.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotLit(pub(super) &'static str);

impl Beacon {
    pub(super) fn word(&self) -> &AtomicU32 {
        // SAFETY: the offset lies within the storage, is 4-aligned, and every access to these four
        // bytes, the kernel's and the C library's included, is atomic.
        unsafe { &*self.storage.get().byte_add(LOCK_WORD_OFFSET).cast::<AtomicU32>() }
    }

    fn mutex(&self) -> *mut libc::pthread_mutex_t {
        self.storage.get().cast()
    }

    /// Lights the beacon: the calling thread lives as long as it burns.
    ///
    /// The caller owns the place this beacon is in, its former owner is dead or has extinguished
    /// it, and the memory stays where it is until [`Beacon::extinguish`] or the thread's end.
    pub(super) fn light(&self) -> Result<(), NotLit> {
        self.pass_on();
        if robust::keep(self.word(), this_thread()) {
            return Ok(());
        }
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: the attributes are initialised by the first call before the others use them. The
        // mutex storage is large and aligned enough (asserted above), nobody holds the mutex, and
        // the caller promises that the memory stays.
        let failed = unsafe {
            libc::pthread_mutexattr_init(attributes) != 0
                || libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) != 0
                || libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST) != 0
                || libc::pthread_mutex_init(self.mutex(), attributes) != 0
                || libc::pthread_mutexattr_destroy(attributes) != 0
        };
        if failed {
            return Err(NotLit("the C library makes no shared robust mutex"));
        }
        // SAFETY: the mutex was initialised just now.
        if unsafe { libc::pthread_mutex_trylock(self.mutex()) } != 0 {
            return Err(NotLit("a new mutex is not free"));
        }
        if self.word().load(Ordering::Relaxed) & OWNER_MASK != this_thread() {
            self.extinguish();
            return Err(NotLit("the C library keeps the owner of a mutex elsewhere"));
        }
        Ok(())
    }

    /// Ends it. The calling thread lit it.
    pub(super) fn extinguish(&self) {
        if !robust::let_go(self.word(), this_thread()) {
            // SAFETY: the calling thread holds this mutex since it lit the beacon. It fails where
            // the mutex was damaged; then there is nothing left to extinguish.
            unsafe { libc::pthread_mutex_unlock(self.mutex()) };
        }
        self.pass_on();
    }

    /// Whether the thread that lit it lives and has not extinguished it.
    #[inline]
    pub(super) fn is_lit(&self) -> bool {
        let word = self.word().load(Ordering::Acquire);
        word & OWNER_MASK != 0 && word & futex::OWNER_DIED == 0
    }

    /// Asks the kernel to wake a sleeper on this beacon when its owner dies. Returns the futex and
    /// the value to sleep on, or `None` where the owner is dead already.
    pub(super) fn watch(&self) -> Option<(&AtomicU32, u32)> {
        let mut word = self.word().load(Ordering::Acquire);
        loop {
            if word & OWNER_MASK == 0 || word & futex::OWNER_DIED != 0 {
                return None;
            }
            let watched = word | futex::WAITERS;
            let swap =
                self.word().compare_exchange(word, watched, Ordering::SeqCst, Ordering::Acquire);
            match swap {
                Ok(_) => return Some((self.word(), watched)),
                Err(now) => word = now,
            }
        }
    }

    /// Wakes all watchers. A thread that finds a beacon out does this.
    pub(super) fn pass_on(&self) {
        super::primitive::wake_all(self.word());
    }
}

#[cfg(test)]
mod tests {
    use super::super::region::{Options, Region};
    use super::super::testing::TestDir;

    #[test]
    fn a_beacon_is_lit_until_it_is_extinguished() {
        let dir = TestDir::new("beacon");
        let options = Options::new(dir.path(), dir.path().join("state"), "r");
        let region = Region::open(&options).unwrap();
        let beacon = &region.mapping().place(1).unwrap().beacon;
        assert!(!beacon.is_lit());
        beacon.light().unwrap();
        assert!(beacon.is_lit());
        beacon.extinguish();
        assert!(!beacon.is_lit());
    }
}
