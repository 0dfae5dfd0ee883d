//! Directories for regions that nobody else shall see.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Where regions in memory live.
const MEMORY_DIR: &str = "/dev/shm";

/// A private directory in memory. Removed when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new one, readable by its owner alone.
    pub fn new() -> anyhow::Result<Self> {
        let memory = Path::new(MEMORY_DIR);
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let dir = base.join(format!("farlock-lab-{}-{:x}", std::process::id(), seed.as_nanos()));
        let made = DirBuilder::new().mode(0o700).create(&dir);
        made.with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self(dir))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing can be done about a directory that cannot be removed.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
