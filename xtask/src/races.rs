//! Data races, by ThreadSanitizer.
//!
//! The tests run once more with every access to memory watched, the standard library's included:
//! it is built anew, for which a nightly toolchain with its source is needed. First a program with
//! a race is run, which must be reported: a sanitizer that is not at work finds nothing either.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::skips::Skip;

const TOOLCHAIN: &str = "nightly";
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Watches memory; and has rustix map it through libc, for the sanitizer must see what is mapped
/// and unmapped, or it takes what was there before for what is there now.
const FLAGS: &str = "-Zsanitizer=thread --cfg=rustix_use_libc";

/// What is tested under a name: the arguments of `cargo test`, command by command.
const SUBJECTS: &[(&str, &[&str])] = &[
    ("races", &["--package=farlock-local --features=baseline --lib --tests"]),
    (
        "races-shm",
        &[
            "--package=farlock-fabric --all-features --lib --tests",
            // One case lets clients arrive in an order by the clock, which a watched program is too
            // slow for.
            "--package=farlock-locks --test=suite -- shm:: --skip=writer_preference",
        ],
    ),
];

/// Two threads count in one word, and neither knows of the other.
const PLANTED: &str = "\
static mut WORD: u64 = 0;
fn count() { for _ in 0..1000 { unsafe { WORD += 1 } } }
fn main() { let other = std::thread::spawn(count); count(); other.join().unwrap(); }
";

/// Runs the subject of this name below `target`, or says why it cannot.
///
/// # Errors
/// There is no such subject, or a program does not start.
pub(crate) fn run(name: &str, root: &Path, target: &Path) -> Result<ExitCode> {
    let Some((_, commands)) = SUBJECTS.iter().find(|(known, _)| *known == name) else {
        bail!("no such subject: {name}");
    };
    if let Some(reason) = missing()? {
        println!("{}", Skip { id: name.to_owned(), reason });
        return Ok(ExitCode::SUCCESS);
    }
    let target = target.join("races");
    a_planted_race_is_found(&target)?;
    for arguments in *commands {
        let status = nightly("cargo")
            .args(["test", "--locked", "-Zbuild-std", "--target", TRIPLE])
            .args(arguments.split_whitespace())
            .env("RUSTFLAGS", FLAGS)
            .env("CARGO_TARGET_DIR", &target)
            .current_dir(root)
            .stdin(Stdio::null())
            .status()
            .context("cargo does not start")?;
        if !status.success() {
            println!("cargo test {arguments}: {status}");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What this machine lacks; `None` if it has everything.
fn missing() -> Result<Option<String>> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Ok(Some(format!("the sanitizer is used on {TRIPLE} alone")));
    }
    let Ok(out) = nightly("rustc").args(["--print", "sysroot"]).output() else {
        return Ok(Some("rustup is not here".to_owned()));
    };
    if !out.status.success() {
        return Ok(Some(format!("there is no {TOOLCHAIN} toolchain")));
    }
    let sysroot = PathBuf::from(String::from_utf8(out.stdout)?.trim());
    let source = sysroot.join("lib/rustlib/src/rust/library/Cargo.lock");
    Ok((!source.is_file()).then(|| format!("the {TOOLCHAIN} toolchain has no rust-src component")))
}

fn a_planted_race_is_found(target: &Path) -> Result<()> {
    std::fs::create_dir_all(target)?;
    let (source, program) = (target.join("planted.rs"), target.join("planted"));
    std::fs::write(&source, PLANTED)?;
    let compiled = nightly("rustc")
        // The library as it comes, unwatched: the race is in the program.
        .args(["--edition=2021", "-Zsanitizer=thread", "-Cunsafe-allow-abi-mismatch=sanitizer"])
        .arg("-o")
        .args([&program, &source])
        .status()?;
    ensure!(compiled.success(), "the planted race does not compile: {compiled}");
    let out = Command::new(&program).output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    let found = !out.status.success() && said.contains("ThreadSanitizer: data race");
    ensure!(found, "the planted race was not found: {}\n{said}", out.status);
    println!("a planted race was found");
    Ok(())
}

/// A program of the nightly toolchain, whichever one runs us.
fn nightly(program: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", TOOLCHAIN, program]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::{CI, NIGHTLY};

    #[test]
    fn every_subject_is_a_step_of_its_name_so_that_its_skip_is_the_step_s() {
        for (name, _) in SUBJECTS {
            let step = CI.iter().chain(NIGHTLY).find(|step| step.name == *name);
            assert_eq!(step.expect("a step").commands, [format!("xtask races {name}")]);
        }
    }
}
