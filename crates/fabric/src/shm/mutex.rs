//! The system's own mutexes between processes: what locks on far memory are measured against.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

use super::layout::LINE;
use crate::endpoint::NotSend;

/// Mutexes of the C library, shared by the processes that open one file; each has a line. They are
/// not robust: one whose holder dies is never free again.
///
/// Whoever may write the file is trusted, as with a region: it belongs to one user.
#[derive(Debug)]
pub struct SystemMutexes {
    base: NonNull<Line>,
    count: usize,
}

#[repr(C, align(64))]
struct Line {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
}

const _: () = assert!(size_of::<Line>() == LINE, "a mutex fits into a line");

/// A mutex that is held. It is released by the thread that acquired it.
#[must_use = "a mutex is held as long as its guard lives"]
#[derive(Debug)]
pub struct SystemGuard<'a> {
    line: &'a Line,
    _thread: NotSend,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

impl SystemMutexes {
    /// Makes a file of so many free mutexes, which must not exist, and opens it.
    ///
    /// # Errors
    /// The file cannot be made or mapped, or the C library makes no such mutexes.
    pub fn create(path: &Path, count: usize) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
        file.set_len((count * LINE) as u64)?;
        let mutexes = Self::map(&file, count)?;
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: the attributes are initialised by the first call before the second uses them.
        let mut failed = unsafe {
            libc::pthread_mutexattr_init(attributes) != 0
                || libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) != 0
        };
        for index in 0..count {
            // SAFETY: the attributes are initialised if nothing failed; nobody else has opened the
            // file, which was made just now, and a line is large and aligned enough for a mutex.
            failed = failed
                || unsafe { libc::pthread_mutex_init(mutexes.line(index).mutex.get(), attributes) }
                    != 0;
        }
        if failed {
            return Err(io::Error::other("the C library makes no mutexes between processes"));
        }
        Ok(mutexes)
    }

    /// Opens a file of so many mutexes that [`SystemMutexes::create`] has made.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, or has another length.
    pub fn open(path: &Path, count: usize) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if file.metadata()?.len() != (count * LINE) as u64 {
            return Err(io::Error::other("a file of another number of mutexes"));
        }
        Self::map(&file, count)
    }

    fn map(file: &File, count: usize) -> io::Result<Self> {
        let (protection, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), count * LINE, protection, shared, file, 0)?
        };
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address zero");
        Ok(Self { base, count })
    }

    fn line(&self, index: usize) -> &Line {
        assert!(index < self.count, "one of the mutexes of this file");
        // SAFETY: so many lines are mapped as long as `self` lives, and what other processes
        // change lies within an `UnsafeCell`.
        unsafe { &*self.base.as_ptr().add(index) }
    }

    /// Acquires a mutex, blocking the thread.
    #[inline(always)]
    pub fn lock(&self, index: usize) -> SystemGuard<'_> {
        let line = self.line(index);
        // SAFETY: the mutex was initialised by `create` and is never moved or destroyed.
        let failed = unsafe { libc::pthread_mutex_lock(line.mutex.get()) };
        assert_eq!(failed, 0, "a mutex that is no mutex");
        SystemGuard { line, _thread: PhantomData }
    }
}

impl Drop for SystemMutexes {
    fn drop(&mut self) {
        // SAFETY: this was mapped by `map`, and guards borrow `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.count * LINE) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}

impl Drop for SystemGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this thread holds the mutex since the guard was made; guards stay on it.
        let failed = unsafe { libc::pthread_mutex_unlock(self.line.mutex.get()) };
        assert_eq!(failed, 0, "the owner of a mutex releases it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_one_file_share_its_mutexes() {
        let path = std::env::temp_dir().join(format!("farlock-mutexes-{}", std::process::id()));
        let made = SystemMutexes::create(&path, 3).unwrap();
        assert!(SystemMutexes::create(&path, 3).is_err(), "there is one already");
        assert!(SystemMutexes::open(&path, 2).is_err(), "there are three");
        let counter = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mutexes = SystemMutexes::open(&path, 3).unwrap();
                    for _ in 0..10_000 {
                        let _held = mutexes.lock(2);
                        let seen = counter.load(std::sync::atomic::Ordering::Relaxed);
                        counter.store(seen + 1, std::sync::atomic::Ordering::Relaxed);
                    }
                });
            }
        });
        let other = made.lock(1);
        assert_eq!(counter.into_inner(), 40_000);
        drop(other);
        drop(made.lock(1));
        std::fs::remove_file(&path).unwrap();
    }
}
