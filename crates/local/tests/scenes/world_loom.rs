//! What the scenes are played with under loom.

use loom::cell::UnsafeCell;
pub(crate) use loom::sync::{Condvar, Mutex};
pub(crate) use loom::thread;

/// A place that only holders of ranges over it may visit.
pub(crate) struct Place(UnsafeCell<u32>);

// SAFETY: the locks under test order the accesses; loom fails the test where they do not.
unsafe impl Sync for Place {}
// SAFETY: an integer may be sent.
unsafe impl Send for Place {}

impl Place {
    pub(crate) fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    pub(crate) fn write(&self) {
        self.write_while(|| ());
    }

    pub(crate) fn write_while(&self, act: impl FnOnce()) {
        self.0.with_mut(|place| {
            // SAFETY: loom checks that nobody else is here.
            unsafe { *place += 1 };
            act();
        });
    }

    pub(crate) fn read(&self) {
        // SAFETY: loom checks that nobody writes.
        self.0.with(|place| unsafe { assert!(*place <= 8) });
    }
}
