//! The tether: a second sign of life that the children of an endpoint's owner share.
//!
//! A kernel lock on an empty file of its own, beside the region's file, taken through a descriptor
//! that only reads. The lock belongs to the open file description, so every process that has the
//! descriptor holds it, and it is released with the last of them. A command that runs under a lock
//! holds its tether: while it runs, even orphaned, the endpoint does not count as dead.
//!
//! The descriptor is good for nothing else: there is nothing to read, it may not write,
//! opening the file anew takes the region's user, and a lock on it concerns this one place. So a
//! program that gave up its user's rights may keep it.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};

use super::file::{PrivateDir, io_error};
use crate::connection::Origin;
use crate::error::ConnectError;

/// The byte of the file that is locked.
const BYTE: i64 = 0;

/// Where the tethers of a region lie.
#[derive(Debug)]
pub(super) struct Tethers {
    dir: PrivateDir,
    /// How the names of their files begin: hidden, and no other region's.
    prefix: String,
}

impl Tethers {
    /// Those of the region of this name and origin in this directory.
    pub(super) fn new(dir: &PrivateDir, name: &str, origin: Origin) -> io::Result<Self> {
        let Origin { incarnation, first_count } = origin;
        let prefix = format!("{}{incarnation}-{first_count}-", prefix_of(name));
        Ok(Self { dir: dir.try_clone()?, prefix })
    }

    /// The directory in which they lie, and the region.
    pub(super) fn dir(&self) -> &PrivateDir {
        &self.dir
    }

    fn open(&self, index: u16, flags: OFlags) -> io::Result<Option<File>> {
        let opened = self.dir.open_file(&format!("{}{index}", self.prefix), flags);
        opened.map_err(io::Error::other)
    }

    /// Takes the tether of place `index`, for a caller that has the place's latch. `None` where
    /// it is still held: by a child of a former owner. Children do not inherit it yet.
    pub(super) fn take(&self, index: u16) -> io::Result<Option<Tether>> {
        let opened = self.open(index, OFlags::RDONLY | OFlags::CREATE)?;
        let file = opened.ok_or(io::ErrorKind::NotFound)?;
        if would_conflict(&file, BYTE)? {
            return Ok(None);
        }
        set_lock(&file, libc::F_RDLCK, BYTE)?;
        Ok(Some(Tether { file }))
    }

    /// Whether anybody holds the tether of place `index`.
    pub(super) fn is_held(&self, index: u16) -> io::Result<bool> {
        self.open(index, OFlags::RDONLY)?.map_or(Ok(false), |file| would_conflict(&file, BYTE))
    }

    /// Removes the file of a tether that is not held, for the place's owner.
    pub(super) fn remove(&self, index: u16) {
        // One that stays is in nobody's way: the next owner finds it free.
        let _ = self.dir.remove_file(&format!("{}{index}", self.prefix));
    }
}

/// Removes the files of all tethers of regions of this name that were. The caller holds the
/// directory's lock.
pub(super) fn remove_all(dir: &PrivateDir, name: &str) -> Result<(), ConnectError> {
    let prefix = prefix_of(name);
    for file in dir.names()? {
        if file.starts_with(&prefix) {
            dir.remove_file(&file)?;
        }
    }
    Ok(())
}

/// Whether a command holds a tether of any region of this name.
pub(super) fn is_any_held(dir: &PrivateDir, name: &str) -> Result<bool, ConnectError> {
    let prefix = prefix_of(name);
    for file in dir.names()?.into_iter().filter(|file| file.starts_with(&prefix)) {
        if let Some(opened) = dir.open_file(&file, OFlags::RDONLY)?
            && would_conflict(&opened, BYTE)
                .map_err(|source| io_error("examine", &dir.path_of(&file), source))?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn prefix_of(name: &str) -> String {
    format!(".{name}.tether-")
}

/// A held tether.
#[derive(Debug)]
pub(super) struct Tether {
    file: File,
}

impl Tether {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Whether children inherit the descriptor when they execute another program.
    pub(super) fn set_inherited(&self, inherited: bool) -> io::Result<()> {
        let flags = if inherited { FdFlags::empty() } else { FdFlags::CLOEXEC };
        Ok(rustix::io::fcntl_setfd(&self.file, flags)?)
    }

    /// Lets go of it, and of what children have of it: the endpoint leaves in order.
    pub(super) fn release(self) {
        set_lock(&self.file, libc::F_UNLCK, BYTE).expect("a lock on an open file can be released");
    }
}

/// Opens a region's file once more. A descriptor of its own has locks of its own, and
/// the magic link names the very file that is mapped, whatever lies under its name by now.
pub(super) fn open_again(region_file: &File, flags: OFlags) -> io::Result<File> {
    let link = format!("/proc/self/fd/{}", region_file.as_raw_fd());
    let fd = match rustix::fs::open(link, flags | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => return Err(io::Error::other("/proc is needed, and not mounted here")),
        opened => opened?,
    };
    let opened = File::from(fd);
    if opened.metadata()?.ino() != region_file.metadata()?.ino() {
        return Err(io::Error::other("/proc names another file"));
    }
    Ok(opened)
}

/// Sets a lock of this kind on a byte, for this description.
pub(super) fn set_lock(file: &File, kind: i32, byte: i64) -> io::Result<()> {
    fcntl_lock(file, libc::F_OFD_SETLK, kind, byte).map(|_| ())
}

/// Whether another description has a lock on this byte.
pub(super) fn would_conflict(file: &File, byte: i64) -> io::Result<bool> {
    let found = fcntl_lock(file, libc::F_OFD_GETLK, libc::F_WRLCK, byte)?;
    Ok(found != libc::F_UNLCK)
}

/// Sets, or asks about, the lock on a byte. Returns the kind of lock found.
fn fcntl_lock(file: &File, command: i32, kind: i32, byte: i64) -> io::Result<i32> {
    // SAFETY: an all-zero `flock` is a valid value of this plain structure.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = byte;
    lock.l_len = 1;
    // SAFETY: the descriptor is open and the structure lives across the call.
    let failed = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if failed == -1 { Err(io::Error::last_os_error()) } else { Ok(lock.l_type.into()) }
}
