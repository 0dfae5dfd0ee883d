//! What the scenes are played with under shuttle.

use shuttle::sync::atomic::{AtomicI32, Ordering};
pub(crate) use shuttle::sync::{Condvar, Mutex};
pub(crate) use shuttle::thread;

const WRITER: i32 = -100;

/// A place that only holders of ranges over it may visit: readers inside, or a writer.
pub(crate) struct Place(AtomicI32);

impl Place {
    pub(crate) fn new() -> Self {
        Self(AtomicI32::new(0))
    }

    pub(crate) fn write(&self) {
        self.write_while(|| ());
    }

    pub(crate) fn write_while(&self, act: impl FnOnce()) {
        assert_eq!(self.0.fetch_add(WRITER, Ordering::SeqCst), 0, "they met");
        act();
        self.0.fetch_sub(WRITER, Ordering::SeqCst);
    }

    pub(crate) fn read(&self) {
        assert!(self.0.fetch_add(1, Ordering::SeqCst) >= 0, "they met");
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
