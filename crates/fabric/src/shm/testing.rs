//! Directories for tests.

use std::path::{Path, PathBuf};

/// A directory of its own for one test, removed with what is in it.
pub(super) struct TestDir(PathBuf);

impl TestDir {
    pub(super) fn new(name: &str) -> Self {
        let unique = format!("farlock-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(unique);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a test can make a directory");
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
