//! Licences, sources and duplicates of dependencies, held to what `deny.toml` says.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};

use crate::skips::Skip;
use crate::tools::{self, DENY};

/// The step, and the skip where the tool cannot be had.
const STEP: &str = "deny";

/// Checks the workspace.
///
/// # Errors
/// A program does not start.
pub(crate) fn run(root: &Path, target: &Path) -> Result<ExitCode> {
    let Some(program) = tools::require(DENY, target)? else {
        let reason = format!("{} cannot be installed here", DENY.name);
        println!("{}", Skip { id: STEP.to_owned(), reason });
        return Ok(ExitCode::SUCCESS);
    };
    let status = Command::new(program)
        .args(["check", "bans", "licenses", "sources"])
        .current_dir(root)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("{} does not start", DENY.name))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
