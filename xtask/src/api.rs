//! What users of the published libraries can name, held to the listings in `docs/api`.
//!
//! rustdoc describes a crate as data by an option that is not stable; the toolchain at hand is
//! asked for it all the same. The form of the data changes now and then: one that the reader does
//! not know is a skip, said aloud.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::skips::Skip;

/// The step, and the skip where the reader does not know what rustdoc writes.
const STEP: &str = "api";

/// The published libraries, by package and crate, as a program has them that asks for no features.
const LIBRARIES: [(&str, &str); 3] = [
    ("farlock", "farlock"),
    ("farlock-locks", "farlock_locks"),
    ("farlock-local", "farlock_local"),
];

/// The form that `public-api` reads.
const FORMAT: u64 = 57;

/// What only the command line needs: a program that uses the library alone builds none of it.
const OF_THE_COMMAND: [&str; 8] = [
    "clap",
    "comfy-table",
    "rcgen",
    "rustls",
    "serde",
    "serde_json",
    "signal-hook",
    "unicode-width",
];

/// Compares the libraries with their listings, or writes these anew. Builds below `target`.
///
/// # Errors
/// A program does not start, or a listing cannot be read or written.
pub(crate) fn run(root: &Path, target: &Path, writes: bool) -> Result<ExitCode> {
    let mut is_good = stands_alone(root)?;
    for (package, name) in LIBRARIES {
        let Some(found) = listing(root, &target.join(STEP), package, name)? else {
            let reason = format!("rustdoc of this toolchain writes no data of form {FORMAT}");
            println!("{}", Skip { id: STEP.to_owned(), reason });
            break;
        };
        let path = root.join("docs/api").join(package).with_extension("txt");
        if writes {
            std::fs::write(&path, found).with_context(|| path.display().to_string())?;
            continue;
        }
        let listed = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        for line in differences(&listed, &found) {
            println!("{package}: {line}");
            is_good = false;
        }
    }
    if !is_good {
        println!("if that is meant: `cargo xtask api --write`");
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether the library of the service builds nothing that only its command needs.
fn stands_alone(root: &Path) -> Result<bool> {
    let tree = "tree --package=farlock --no-default-features --edges=normal --prefix=none";
    let tree = Command::new("cargo").args(tree.split(' ')).current_dir(root).output()?;
    ensure!(tree.status.success(), "cargo tree failed: {}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8_lossy(&tree.stdout);
    let built: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    let extra: Vec<_> = OF_THE_COMMAND.iter().filter(|name| built.contains(*name)).collect();
    extra.iter().for_each(|name| println!("farlock builds {name} without its command too"));
    Ok(extra.is_empty())
}

/// The listing of a library; `None` where its description has another form.
fn listing(root: &Path, target: &Path, package: &str, name: &str) -> Result<Option<String>> {
    let status = Command::new("cargo")
        .args(["rustdoc", "--quiet", "--lib", "--no-default-features", "--package", package, "--"])
        .args(["-Zunstable-options", "--output-format=json", "--cap-lints=allow"])
        // Asks a stable toolchain too for what is not stable.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", target)
        .current_dir(root)
        .stdin(Stdio::null())
        .status()
        .context("cargo does not start")?;
    ensure!(status.success(), "rustdoc describes {package} with {status}");
    let path = target.join("doc").join(name).with_extension("json");
    let data: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    if data["format_version"].as_u64() != Some(FORMAT) {
        return Ok(None);
    }
    let api = public_api::Builder::from_rustdoc_json(path)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    Ok(Some(api.items().map(|item| format!("{item}\n")).collect()))
}

/// The lines that stand in one of both, each with where.
fn differences(listed: &str, found: &str) -> Vec<String> {
    let (listed, found): (BTreeSet<_>, BTreeSet<_>) =
        (listed.lines().collect(), found.lines().collect());
    let gone = listed.difference(&found).map(|line| format!("is gone: {line}"));
    let new = found.difference(&listed).map(|line| format!("is not listed: {line}"));
    gone.chain(new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::CI;

    #[test]
    fn what_came_and_went_is_told() {
        assert!(differences("a\nb\n", "b\na\n").is_empty());
        assert_eq!(differences("a\nb\n", "b\nc\n"), ["is gone: a", "is not listed: c"]);
    }

    #[test]
    fn its_step_has_the_name_of_its_skip() {
        let step = CI.iter().find(|step| step.name == STEP).expect("a step");
        assert_eq!(step.commands.last(), Some(&format!("xtask {STEP}").as_str()));
    }
}
