//! Tells the program which commit it is built from.

use std::process::Command;

fn main() {
    let head = git(&["rev-parse", "--short=12", "HEAD"]);
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    let mark = if changed.as_deref().is_some_and(|changes| !changes.is_empty()) { "+" } else { "" };
    let commit = head.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=FARLOCK_LAB_COMMIT={commit}{mark}");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../..");
    if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])
        && std::path::Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
}

/// What git says; nothing where there is no git or no repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
