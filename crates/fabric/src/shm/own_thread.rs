//! Threads of this library, whose deaths a list of their own shows ([`robust`](super::robust)).

use std::io;

use super::place::Place;
use super::region::Region;
use super::robust;
use crate::endpoint::NotSend;

const _: () = assert!(size_of::<Place>() == robust::STRIDE, "a list goes from place to place");

/// While this lives, the deaths of the calling thread's endpoints of one region are seen by a list
/// in private memory.
#[derive(Debug)]
pub struct OwnThread {
    _not_send: NotSend,
}

impl Region {
    /// Registers a list in private memory for the calling thread, which keeps endpoints of this
    /// region alone, and locks no robust mutexes of the C library. Its keepers are to be dropped
    /// before what is returned.
    ///
    /// # Errors
    /// What the system says; then the C library's list serves.
    ///
    /// # Panics
    /// If the thread has one.
    pub fn own_thread(&self) -> io::Result<OwnThread> {
        let mapping = self.mapping();
        let places = usize::from(mapping.layout().capacity.places());
        let first = mapping.place(1).expect("a region has a place").beacon.word();
        robust::register(first, places, Box::new(self.clone()))?;
        Ok(OwnThread { _not_send: NotSend::default() })
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        robust::unregister();
    }
}
