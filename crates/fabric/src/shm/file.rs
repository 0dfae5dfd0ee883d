//! Directories and files that belong to this user alone.
//!
//! A directory is opened once, without following a link, and checked by its descriptor; everything
//! in it is reached through that descriptor. So nothing can be exchanged between check and use.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Access, AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags};

use crate::error::ConnectError;

/// Permission bits that let others change something.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Permission bits of anybody but the owner.
const OTHERS: u32 = 0o077;

/// A directory that this user owns and nobody else can write to.
#[derive(Debug)]
pub(super) struct PrivateDir {
    fd: OwnedFd,
    path: PathBuf,
}

impl PrivateDir {
    /// Opens the directory; makes it (and, with mode 0700, its parents) where it is missing.
    pub(super) fn open(path: &Path) -> Result<Self, ConnectError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|source| closed(path).unwrap_or(io_error("create", path, source)))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
            rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP => {
                untrusted(path, "it is not a directory, or a symbolic link")
            }
            other => closed(path).unwrap_or(io_error("open", path, other.into())),
        })?;
        let stat = rustix::fs::fstat(&fd).map_err(|e| io_error("examine", path, e.into()))?;
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(untrusted(path, "another user owns it"));
        }
        if stat.st_mode & WRITABLE_BY_OTHERS != 0 {
            return Err(untrusted(path, "others can write to it"));
        }
        path.ancestors().skip(1).try_for_each(check_above)?;
        // It is looked for later too, wherever this process is by then.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Ok(Self { fd, path })
    }

    /// Another handle of the same directory.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, path: self.path.clone() })
    }

    /// Whether files can be made in it, by its rights and its mount. Its disk may be full.
    pub(super) fn check_writable(&self) -> Result<(), ConnectError> {
        rustix::fs::accessat(&self.fd, ".", Access::WRITE_OK, AtFlags::empty())
            .map_err(|error| io_error("write to", &self.path, error.into()))
    }

    /// The names of all that is in it, but for those that are no text.
    pub(super) fn names(&self) -> Result<Vec<String>, ConnectError> {
        let failed = |error: rustix::io::Errno| io_error("list", &self.path, error.into());
        let entries = rustix::fs::Dir::read_from(&self.fd).map_err(failed)?;
        let name = |entry: rustix::fs::DirEntry| Some(entry.file_name().to_str().ok()?.to_owned());
        let names = entries.map(|entry| entry.map(name).map_err(failed));
        Ok(names.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    /// The full path of something in it, for messages.
    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The directory's own descriptor.
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Opens a file with these flags and checks that it is a regular file of ours alone. `None`
    /// where it does not exist.
    pub(super) fn open_file(
        &self,
        name: &str,
        flags: OFlags,
    ) -> Result<Option<File>, ConnectError> {
        let path = self.path_of(name);
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = match rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o600)) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(rustix::io::Errno::LOOP) => return Err(untrusted(&path, "it is a symbolic link")),
            Err(other) => return Err(io_error("open", &path, other.into())),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|e| io_error("examine", &path, e.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(untrusted(&path, "it is not a regular file"));
        }
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(untrusted(&path, "another user owns it"));
        }
        if stat.st_mode & OTHERS != 0 {
            return Err(untrusted(&path, "others have rights to it"));
        }
        Ok(Some(File::from(fd)))
    }

    /// Makes a new empty file. `None` where there is something of this name.
    pub(super) fn create_file(&self, name: &str) -> Result<Option<File>, ConnectError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        match self.open_file(name, flags) {
            Err(ConnectError::Io { source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists =>
            {
                Ok(None)
            }
            made => Ok(Some(made?.ok_or_else(|| self.cannot_hold(name))?)),
        }
    }

    /// The device and the inode of what has this name, if there is something.
    pub(super) fn inode(&self, name: &str) -> Result<Option<(u64, u64)>, ConnectError> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some((stat.st_dev, stat.st_ino))),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(io_error("look for", &self.path_of(name), error.into())),
        }
    }

    /// The same by the directory's path: of what others find by that, if they find anything.
    pub(super) fn inode_by_path(&self, name: &str) -> Option<(u64, u64)> {
        let stat = rustix::fs::lstat(self.path_of(name)).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }

    /// Removes a file, if it is there. Returns whether it was.
    pub(super) fn remove_file(&self, name: &str) -> Result<bool, ConnectError> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(io_error("remove", &self.path_of(name), error.into())),
        }
    }

    /// Gives a file a name in one step, unless there is something of that name, or the file is
    /// gone. Returns whether it did.
    pub(super) fn rename_new(&self, from: &str, to: &str) -> Result<bool, ConnectError> {
        match rustix::fs::renameat_with(&self.fd, from, &self.fd, to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::EXIST | rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(io_error("rename", &self.path_of(from), error.into())),
        }
    }

    /// The directory was removed meanwhile, or is of a kind that holds no files of ours.
    fn cannot_hold(&self, name: &str) -> ConnectError {
        io_error("create", &self.path_of(name), io::ErrorKind::NotFound.into())
    }

    /// Takes the directory's lock, which lasts until the guard is dropped or its process dies.
    /// Waits for it until a time, if there is one.
    pub(super) fn lock(&self, until: Option<Instant>) -> Result<DirLock, ConnectError> {
        const LOCK_FILE: &str = ".lock";
        let file = self.open_file(LOCK_FILE, OFlags::RDWR | OFlags::CREATE)?;
        let file = file.ok_or_else(|| self.cannot_hold(LOCK_FILE))?;
        let failed = |source| io_error("lock", &self.path_of(LOCK_FILE), source);
        match until {
            None => lock_whole(&file).map_err(failed)?,
            Some(until) => {
                if !lock_whole_until(&file, until).map_err(failed)? {
                    return Err(ConnectError::Locked { path: self.path_of(LOCK_FILE) });
                }
            }
        }
        Ok(DirLock { _file: file })
    }
}

/// The lock on a directory: closing its file releases it.
#[derive(Debug)]
pub(super) struct DirLock {
    _file: File,
}

/// Takes the exclusive lock on a whole file, through signals.
pub(super) fn lock_whole(file: &File) -> io::Result<()> {
    rustix::io::retry_on_intr(|| rustix::fs::flock(file, FlockOperation::LockExclusive))?;
    Ok(())
}

/// The same, at once or not at all. Returns whether it did.
pub(super) fn try_lock_whole(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The same, unless another holder has it until a time. The system has no such wait, so this asks
/// again, less and less often.
fn lock_whole_until(file: &File, until: Instant) -> io::Result<bool> {
    const PAUSE: Duration = Duration::from_micros(200);
    const PAUSE_MAX: Duration = Duration::from_millis(10);
    let mut pause = PAUSE;
    loop {
        if try_lock_whole(file)? {
            return Ok(true);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Releases what [`lock_whole`] took.
pub(super) fn unlock_whole(file: &File) -> io::Result<()> {
    rustix::fs::flock(file, FlockOperation::Unlock)?;
    Ok(())
}

pub(super) fn io_error(what: &'static str, path: &Path, source: io::Error) -> ConnectError {
    ConnectError::Io { what, path: path.to_owned(), source }
}

/// What to say where this directory, or one above it, is another user's, who lets this one not in.
fn closed(path: &Path) -> Option<ConnectError> {
    let above = path.ancestors().find(|dir| rustix::fs::stat(*dir).is_ok())?;
    let enters = rustix::fs::accessat(rustix::fs::CWD, above, Access::EXEC_OK, AtFlags::EACCESS);
    let owner = rustix::fs::stat(above).ok()?.st_uid;
    let is_foreign = owner != rustix::process::geteuid().as_raw();
    (enters.is_err() && is_foreign).then(|| untrusted(above, "another user owns it"))
}

/// Where anybody may move a directory away, two find different regions by its name.
fn check_above(dir: &Path) -> Result<(), ConnectError> {
    const BY_ALL: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    // What cannot be examined was passed through all the same.
    let mode = rustix::fs::stat(dir).map_or(0, |stat| stat.st_mode);
    match mode & BY_ALL != 0 && mode & STICKY == 0 {
        true => Err(untrusted(dir, "everybody can move away what is below it")),
        false => Ok(()),
    }
}

fn untrusted(path: &Path, why: &'static str) -> ConnectError {
    ConnectError::Untrusted { path: path.to_owned(), why }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_of_others_is_waited_for_until_a_time() {
        let path = std::env::temp_dir().join(format!("farlock-whole-{}", std::process::id()));
        let one = File::create(&path).unwrap();
        let other = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let soon = || Instant::now() + Duration::from_millis(2);
        assert!(lock_whole_until(&one, Instant::now()).unwrap());
        assert!(!lock_whole_until(&other, soon()).unwrap(), "the first has it");
        unlock_whole(&one).unwrap();
        assert!(lock_whole_until(&other, soon()).unwrap());
        assert!(!try_lock_whole(&one).unwrap());
    }
}
