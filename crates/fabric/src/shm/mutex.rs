//! The system's own locks between processes: what locks on far memory are measured against.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

use super::layout::LINE;
use crate::endpoint::NotSend;

/// Which of its locks between processes the C library is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SystemKind {
    /// A mutex. One whose holder dies is never free again.
    Mutex,
    /// A robust mutex: one whose holder dies is the next one's.
    Robust,
    /// A reader-writer lock. One whose holder dies is never free again.
    ReaderWriter,
}

/// Locks of the C library, shared by the processes that open one file; each has a line.
///
/// Every process that may write the file is trusted, as with a region: it belongs to one user.
#[derive(Debug)]
pub struct SystemMutexes {
    base: NonNull<Line>,
    count: usize,
    kind: SystemKind,
}

#[repr(C, align(64))]
struct Line {
    lock: UnsafeCell<Lock>,
}

#[repr(C)]
union Lock {
    mutex: ManuallyDrop<libc::pthread_mutex_t>,
    rwlock: ManuallyDrop<libc::pthread_rwlock_t>,
}

impl Line {
    fn mutex(&self) -> *mut libc::pthread_mutex_t {
        self.lock.get().cast()
    }

    fn rwlock(&self) -> *mut libc::pthread_rwlock_t {
        self.lock.get().cast()
    }
}

const _: () = assert!(size_of::<Line>() == LINE, "a lock fits into a line");

/// A lock that is held. It is released by the thread that acquired it.
#[must_use = "a lock is held as long as its guard lives"]
#[derive(Debug)]
pub struct SystemGuard<'a> {
    line: &'a Line,
    kind: SystemKind,
    _thread: NotSend,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

impl SystemMutexes {
    /// Makes a file of so many free locks, which must not exist, and opens it.
    ///
    /// # Errors
    /// The file cannot be made or mapped, or the C library makes no such locks.
    pub fn create(path: &Path, count: usize, kind: SystemKind) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
        file.set_len((count * LINE) as u64)?;
        let locks = Self::map(&file, count, kind)?;
        let made = match kind {
            SystemKind::Mutex | SystemKind::Robust => locks.make_mutexes(),
            SystemKind::ReaderWriter => locks.make_rwlocks(),
        };
        if !made {
            return Err(io::Error::other("the C library makes no such locks between processes"));
        }
        Ok(locks)
    }

    /// Makes the lines of a file that nobody else has opened mutexes. Whether that went well.
    fn make_mutexes(&self) -> bool {
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        let robust = match self.kind {
            SystemKind::Robust => libc::PTHREAD_MUTEX_ROBUST,
            SystemKind::Mutex | SystemKind::ReaderWriter => libc::PTHREAD_MUTEX_STALLED,
        };
        // SAFETY: the attributes are initialised by the first call before the others use them.
        let made = unsafe {
            libc::pthread_mutexattr_init(attributes) == 0
                && libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) == 0
                && libc::pthread_mutexattr_setrobust(attributes, robust) == 0
        };
        made && (0..self.count).all(|index| {
            let mutex = self.line(index).mutex();
            // SAFETY: the attributes are initialised; nobody else has opened the file, which was
            // made just now, and a line is large and aligned enough for a mutex.
            unsafe { libc::pthread_mutex_init(mutex, attributes) == 0 }
        })
    }

    /// The same with reader-writer locks.
    fn make_rwlocks(&self) -> bool {
        let mut attributes = MaybeUninit::<libc::pthread_rwlockattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: the attributes are initialised by the first call before the second uses them.
        let made = unsafe {
            libc::pthread_rwlockattr_init(attributes) == 0
                && libc::pthread_rwlockattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED)
                    == 0
        };
        made && (0..self.count).all(|index| {
            let rwlock = self.line(index).rwlock();
            // SAFETY: the attributes are initialised; nobody else has opened the file, which was
            // made just now, and a line is large and aligned enough for a lock.
            unsafe { libc::pthread_rwlock_init(rwlock, attributes) == 0 }
        })
    }

    /// Opens a file of so many locks that [`SystemMutexes::create`] has made, of the same kind.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, or has another length.
    pub fn open(path: &Path, count: usize, kind: SystemKind) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if file.metadata()?.len() != (count * LINE) as u64 {
            return Err(io::Error::other("a file of another number of locks"));
        }
        Self::map(&file, count, kind)
    }

    fn map(file: &File, count: usize, kind: SystemKind) -> io::Result<Self> {
        let (protection, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), count * LINE, protection, shared, file, 0)?
        };
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address zero");
        Ok(Self { base, count, kind })
    }

    fn line(&self, index: usize) -> &Line {
        assert!(index < self.count, "one of the locks of this file");
        // SAFETY: so many lines are mapped as long as `self` lives, and what other processes
        // change lies within an `UnsafeCell`.
        unsafe { &*self.base.as_ptr().add(index) }
    }

    /// Acquires a lock alone, blocking the thread.
    #[inline(always)]
    pub fn lock(&self, index: usize) -> SystemGuard<'_> {
        let line = self.line(index);
        let failed = match self.kind {
            // SAFETY: the mutex was initialised by `create` and is never moved or destroyed.
            SystemKind::Mutex | SystemKind::Robust => unsafe {
                libc::pthread_mutex_lock(line.mutex())
            },
            // SAFETY: the lock was initialised by `create` and is never moved or destroyed.
            SystemKind::ReaderWriter => unsafe { libc::pthread_rwlock_wrlock(line.rwlock()) },
        };
        self.guard(line, failed)
    }

    /// Acquires a lock together with other readers, blocking the thread. A mutex knows none: there
    /// this is [`SystemMutexes::lock`].
    #[inline(always)]
    pub fn lock_shared(&self, index: usize) -> SystemGuard<'_> {
        if self.kind != SystemKind::ReaderWriter {
            return self.lock(index);
        }
        let line = self.line(index);
        // SAFETY: the lock was initialised by `create` and is never moved or destroyed.
        let failed = unsafe { libc::pthread_rwlock_rdlock(line.rwlock()) };
        self.guard(line, failed)
    }

    #[inline(always)]
    fn guard<'a>(&self, line: &'a Line, failed: libc::c_int) -> SystemGuard<'a> {
        if failed != 0 {
            inherit(line, self.kind, failed);
        }
        SystemGuard { line, kind: self.kind, _thread: PhantomData }
    }
}

/// A robust mutex whose holder died is the caller's, who vouches for what it protects.
#[cold]
#[inline(never)]
fn inherit(line: &Line, kind: SystemKind, failed: libc::c_int) {
    assert!(failed == libc::EOWNERDEAD && kind == SystemKind::Robust, "a lock that is none");
    // SAFETY: the mutex was initialised by `create`, and this thread holds it.
    let failed = unsafe { libc::pthread_mutex_consistent(line.mutex()) };
    assert_eq!(failed, 0, "who inherits a mutex may vouch for it");
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
        let failed = match self.kind {
            // SAFETY: this thread holds the mutex since the guard was made; guards stay on it.
            SystemKind::Mutex | SystemKind::Robust => unsafe {
                libc::pthread_mutex_unlock(self.line.mutex())
            },
            // SAFETY: this thread holds the lock since the guard was made; guards stay on it.
            SystemKind::ReaderWriter => unsafe { libc::pthread_rwlock_unlock(self.line.rwlock()) },
        };
        assert_eq!(failed, 0, "the owner of a lock releases it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [SystemKind; 3] =
        [SystemKind::Mutex, SystemKind::Robust, SystemKind::ReaderWriter];

    fn path(name: &str, kind: SystemKind) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("farlock-{name}-{kind:?}-{}", std::process::id()))
    }

    #[test]
    fn mappings_of_one_file_share_its_locks() {
        KINDS.into_iter().for_each(share);
    }

    fn share(kind: SystemKind) {
        let path = path("shared", kind);
        let made = SystemMutexes::create(&path, 3, kind).unwrap();
        assert!(SystemMutexes::create(&path, 3, kind).is_err(), "there is one already");
        assert!(SystemMutexes::open(&path, 2, kind).is_err(), "there are three");
        let counter = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mutexes = SystemMutexes::open(&path, 3, kind).unwrap();
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

    #[test]
    fn a_robust_mutex_outlives_its_holder_and_readers_share() {
        let path = path("robust", SystemKind::Robust);
        let made = SystemMutexes::create(&path, 1, SystemKind::Robust).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // What the robust list of a dying thread names must still be mapped.
                let theirs = SystemMutexes::open(&path, 1, SystemKind::Robust).unwrap();
                let theirs: &'static SystemMutexes = Box::leak(Box::new(theirs));
                let _held = ManuallyDrop::new(theirs.lock(0));
            });
        });
        drop(made.lock(0));
        drop(made.lock_shared(0));
        std::fs::remove_file(&path).unwrap();
        let path = self::path("readers", SystemKind::ReaderWriter);
        let made = SystemMutexes::create(&path, 1, SystemKind::ReaderWriter).unwrap();
        let two = (made.lock_shared(0), made.lock_shared(0));
        drop(two);
        drop(made.lock(0));
        std::fs::remove_file(&path).unwrap();
    }
}
