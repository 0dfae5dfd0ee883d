//! The tether: a second sign of life that the children of an endpoint's owner share.
//!
//! A kernel lock on one byte of the region's file, taken through a descriptor of its own that only
//! reads. The lock belongs to the open file description, so every process that inherits the
//! descriptor holds it, and it is released with the last of them. A command that runs under a lock
//! holds its tether: while it runs, even orphaned, the endpoint does not count as dead.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;

/// A held tether.
#[derive(Debug)]
pub(super) struct Tether {
    fd: OwnedFd,
}

impl Tether {
    /// Takes the tether of place `index` of the region in `region_file`. `None` where somebody
    /// still holds it: a child of a former owner.
    pub(super) fn take(region_file: &File, index: u16) -> io::Result<Option<Self>> {
        let opened = open_again(region_file)?;
        if is_held(&opened, index)? {
            return Ok(None);
        }
        set_lock(&opened, libc::F_RDLCK, index.into())?;
        let tether = Self { fd: opened.into() };
        tether.set_inherited(true)?;
        Ok(Some(tether))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.fd)
    }

    /// Whether children inherit the descriptor when they execute another program.
    pub(super) fn set_inherited(&self, inherited: bool) -> io::Result<()> {
        let flags = if inherited { FdFlags::empty() } else { FdFlags::CLOEXEC };
        Ok(rustix::io::fcntl_setfd(&self.fd, flags)?)
    }
}

/// Whether anybody holds the tether of place `index`, through another description than `file`'s.
pub(super) fn is_held(file: &File, index: u16) -> io::Result<bool> {
    would_conflict(file, index.into())
}

/// Opens a region's file once more, for reading. A descriptor of its own has locks of its own, and
/// the magic link names the very file that is mapped, whatever lies under its name by now.
pub(super) fn open_again(region_file: &File) -> io::Result<File> {
    let link = format!("/proc/self/fd/{}", region_file.as_raw_fd());
    let fd = rustix::fs::open(link, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
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
