//! Cargo's own further commands, installed into the build folder where they are missing.
//!
//! Their versions are fixed here: what a linter finds must not depend on the day.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// A package whose program cargo runs as a command of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    /// The package, and its program.
    pub(crate) name: &'static str,
    /// The version that is installed.
    pub(crate) version: &'static str,
}

/// Looks after licences, sources and duplicates of dependencies.
pub(crate) const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };
/// Changes the program and sees whether a test notices.
pub(crate) const MUTANTS: Tool = Tool { name: "cargo-mutants", version: "27.1.0" };

/// The tool's program below `target`, installed first if it is not there. `None` if this machine
/// cannot install it; cargo has said why.
///
/// # Errors
/// cargo does not start.
pub(crate) fn require(tool: Tool, target: &Path) -> Result<Option<PathBuf>> {
    let root = target.join("tools").join(tool.version);
    let program = root.join("bin").join(tool.name);
    if program.is_file() {
        return Ok(Some(program));
    }
    let Tool { name, version } = tool;
    println!("installing {name} {version} into {}", root.display());
    let status = Command::new("cargo")
        .args(["install", "--locked", "--version", version, name, "--root"])
        .arg(&root)
        .stdin(Stdio::null())
        .status()
        .context("cargo does not start")?;
    Ok(status.success().then_some(program))
}
