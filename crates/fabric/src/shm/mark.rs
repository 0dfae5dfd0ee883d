//! Marks: by which a process shows that a lane of a place may still be about.
//!
//! A mark is a kernel lock on a byte of the region's file, behind the bytes of the tethers, taken
//! through a descriptor that a region handle opens for its first lane. It keeps nobody alive. The
//! kernel removes it when the process ends, however it ends.

use std::fs::File;
use std::io;

use rustix::fs::OFlags;

use super::latch::Latch;
use super::tether::{open_again, set_lock, would_conflict};

/// Where the bytes of marks begin: behind those of tethers, whose offsets are indices.
const MARKS_AT: i64 = 1 << 16;

/// The marks of the lanes made through one region handle.
#[derive(Debug)]
pub(super) struct Marks {
    file: File,
}

impl Marks {
    /// For the region in this file.
    pub(super) fn new(region_file: &File) -> io::Result<Self> {
        Ok(Self { file: open_again(region_file, OFlags::RDONLY)? })
    }

    /// Marks a place that was seen without a mark under this latch.
    pub(super) fn set(&self, latch: &Latch<'_>) -> io::Result<()> {
        set_lock(&self.file, libc::F_RDLCK, byte_of(latch.index()))
    }

    /// Takes the mark away.
    pub(super) fn clear(&self, index: u16) -> io::Result<()> {
        set_lock(&self.file, libc::F_UNLCK, byte_of(index))
    }
}

/// Whether any process, this one included, has marked the place.
pub(super) fn is_marked(region_file: &File, index: u16) -> io::Result<bool> {
    would_conflict(region_file, byte_of(index))
}

fn byte_of(index: u16) -> i64 {
    MARKS_AT + i64::from(index)
}
