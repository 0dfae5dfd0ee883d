//! The latch of a place: its holder may move in, or note that the place is vacant.
//!
//! A kernel lock on a byte of the region's file, behind the bytes of the marks, taken through the
//! descriptor that the region handle maps. Nobody waits for one: an attacher that finds it taken
//! goes on to another place. So a process that is stopped while it attaches keeps one place from
//! others, and nobody from attaching. The kernel takes it away when the process ends: to the holder
//! of its latch, what a place says that is *being claimed* is what a crashed attacher left.
//!
//! The threads that attach through one handle share its description and so its latches: they take
//! turns ([`Region::attaching`](super::region::Region::attaching)).

use std::fs::File;
use std::io;

use super::tether::set_lock;

/// Where the bytes of latches begin: behind those of tethers and of marks.
const LATCHES_AT: i64 = 2 << 16;

/// A held latch.
#[derive(Debug)]
pub(super) struct Latch<'f> {
    file: &'f File,
    index: u16,
}

impl<'f> Latch<'f> {
    /// Takes the latch of place `index`, unless another handle has it.
    pub(super) fn try_take(region_file: &'f File, index: u16) -> io::Result<Option<Self>> {
        match set_lock(region_file, libc::F_WRLCK, byte_of(index)) {
            Ok(()) => Ok(Some(Self { file: region_file, index })),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The place whose latch it is.
    pub(super) fn index(&self) -> u16 {
        self.index
    }
}

impl Drop for Latch<'_> {
    fn drop(&mut self) {
        set_lock(self.file, libc::F_UNLCK, byte_of(self.index))
            .expect("a lock on an open file can be released");
    }
}

fn byte_of(index: u16) -> i64 {
    LATCHES_AT + i64::from(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::testing::TestDir;

    #[test]
    fn one_description_at_a_time_has_a_latch() {
        let dir = TestDir::new("latch");
        let path = dir.path().join("file");
        let open = || {
            let mut options = std::fs::OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).open(&path).unwrap()
        };
        let (one, other) = (open(), open());
        let latch = Latch::try_take(&one, 7).unwrap().unwrap();
        assert!(Latch::try_take(&other, 7).unwrap().is_none());
        assert!(Latch::try_take(&other, 8).unwrap().is_some());
        drop(latch);
        assert!(Latch::try_take(&other, 7).unwrap().is_some());
    }
}
