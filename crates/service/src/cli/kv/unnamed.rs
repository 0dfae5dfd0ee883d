//! Files that have their names once they are whole: what had such a name before is not lost. Of one
//! whose writer is killed nothing is left, but in the moment in which it gets its name, and where
//! the file system makes no files without one.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

/// A file that is being written.
pub(super) struct Unnamed {
    pub(super) file: File,
    /// The name that it is to have.
    path: PathBuf,
    /// The name that it has until then: where the file system makes no files without one, and for
    /// the moment in which it replaces another.
    new: PathBuf,
    is_new: bool,
}

impl Unnamed {
    /// Begins the file of this path. One that is named by a link is replaced where it lies.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize().or_else(|_| end_of_links(path))?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        // Whatever the file's own name, this is short enough.
        let new = dir.join(format!(".farlock-dump.{}.new", std::process::id()));
        let (file, is_new) = match nameless(dir) {
            Some(file) => (file, false),
            None => (File::create_new(&new)?, true),
        };
        Ok(Self { file, path, new, is_new })
    }

    /// Gives it its name.
    pub(super) fn name(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if !self.is_new {
            rustix::fs::linkat(CWD, of(&self.file), CWD, &self.new, AtFlags::SYMLINK_FOLLOW)?;
            self.is_new = true;
        }
        std::fs::rename(&self.new, &self.path)?;
        self.is_new = false;
        Ok(())
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        if self.is_new {
            // What is half written is of no use.
            let _ = std::fs::remove_file(&self.new);
        }
    }
}

/// Where a path leads to at which there is nothing yet.
fn end_of_links(path: &Path) -> io::Result<PathBuf> {
    /// As many as the system follows.
    const LINKS_MAX: u32 = 40;
    let mut end = path.to_owned();
    for _ in 0..LINKS_MAX {
        match end.read_link() {
            Ok(to) => end = end.parent().unwrap_or(Path::new("")).join(to),
            Err(_) => return Ok(end),
        }
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// A file without a name, where it can be made and can be given one.
fn nameless(dir: &Path) -> Option<File> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(dir, flags, Mode::from_raw_mode(0o666)).ok()?);
    of(&file).exists().then_some(file)
}

/// How the system finds an open file.
fn of(file: &File) -> PathBuf {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}
