//! Directories for regions that nobody else shall see, and that nobody finds afterwards.
//!
//! A program that ends removes its own, also where Ctrl-C, a hang-up or `kill` ends it; all that it
//! has started ends before. One that is killed leaves its own behind, and the next one of the same
//! user removes that.

use std::fs::{DirBuilder, File, read_dir, remove_dir_all};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::Context;
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, geteuid, test_kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::child;

/// Where regions in memory live.
const MEMORY_DIR: &str = "/dev/shm";
/// How their names begin; behind it come the process and the time.
const PREFIX: &str = "farlock-lab-";
/// Children may still make files while their directory is removed: it is tried so often.
const REMOVALS: usize = 3;

/// Those of this process.
static OWN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A private directory in memory. Removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
    /// Locked by the kernel as long as this process lives: that is how others know.
    _lived_in: File,
}

impl Scratch {
    /// A new one, readable by its owner alone.
    pub fn new() -> anyhow::Result<Self> {
        static SWEPT: Once = Once::new();
        let memory = Path::new(MEMORY_DIR);
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        SWEPT.call_once(|| sweep(&base));
        remove_at_signals()?;
        let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let dir = base.join(format!("{PREFIX}{}-{:x}", std::process::id(), seed.as_nanos()));
        let made = DirBuilder::new().mode(0o700).create(&dir);
        made.with_context(|| format!("cannot create {}", dir.display()))?;
        OWN.lock().push(dir.clone());
        let lived_in =
            File::open(&dir).with_context(|| format!("cannot open {}", dir.display()))?;
        flock(&lived_in, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { dir, _lived_in: lived_in })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing can be done about a directory that cannot be removed.
        let _ = remove_dir_all(&self.dir);
        OWN.lock().retain(|other| *other != self.dir);
    }
}

/// What ends this program removes its directories first.
fn remove_at_signals() -> anyhow::Result<()> {
    static WATCHED: Mutex<bool> = Mutex::new(false);
    let mut watched = WATCHED.lock();
    if *watched {
        return Ok(());
    }
    let ignored = ignored();
    let heard = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| !ignored(*signal));
    let mut signals = Signals::new(heard).context("cannot await signals")?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            child::end_all();
            let own = OWN.lock();
            for _ in 0..REMOVALS {
                let gone = |dir: &PathBuf| remove_dir_all(dir).is_ok() || !dir.exists();
                if own.iter().filter(|dir| !gone(dir)).count() == 0 {
                    break;
                }
            }
            // It does not fail for a signal that ends programs.
            let _ = emulate_default_handler(signal);
        }
    })?;
    *watched = true;
    Ok(())
}

/// Whether this process was started with a signal ignored, as under `nohup`: it stays so.
fn ignored() -> impl Fn(i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    move |signal| mask >> (signal - 1) & 1 == 1
}

/// Removes what was left behind by those of this user that were killed.
fn sweep(base: &Path) {
    let Ok(entries) = read_dir(base) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        let Some(owner) = owner.and_then(|owner| Pid::from_raw(owner.parse().ok()?)) else {
            continue;
        };
        let is_ours = entry.metadata().is_ok_and(|data| data.uid() == geteuid().as_raw());
        if is_ours && test_kill_process(owner) == Err(Errno::SRCH) {
            remove_if_left(&entry.path());
        }
    }
}

/// Its process may be out of sight and alive: then it is locked.
fn remove_if_left(dir: &Path) {
    let Ok(left) = File::open(dir) else { return };
    if flock(&left, FlockOperation::NonBlockingLockExclusive).is_ok() {
        let _ = remove_dir_all(dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dead_left_is_removed_and_nothing_that_is_lived_in() {
        let base = Scratch::new().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let (dead, living) = (child.id(), std::process::id());
        let dir = |name: String| {
            let dir = base.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("region"), "left").unwrap();
            dir
        };
        let left = dir(format!("{PREFIX}{dead}-1"));
        let lived_in = dir(format!("{PREFIX}{dead}-2"));
        let own = dir(format!("{PREFIX}{living}-3"));
        let other = dir(format!("farlock-{dead}-4"));
        let lock = File::open(&lived_in).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        sweep(base.path());
        let kept = [&left, &lived_in, &own, &other].map(|dir| dir.exists());
        assert_eq!(kept, [false, true, true, true]);
    }
}
