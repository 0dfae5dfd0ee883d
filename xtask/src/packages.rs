//! Debian packages a step needs.
//!
//! Where we are root and apt-get exists, what is missing gets installed, and the run says so.
//! Anywhere else the step is skipped, loudly. Nothing is ever removed or upgraded.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// What to do about the packages of a step.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// All are there.
    Ready,
    /// These are missing and can be installed.
    Install(Vec<String>),
    /// These are missing and cannot be installed, for the reason given.
    Skip(String),
}

/// What this machine can do about a missing package.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Powers {
    /// We run as root.
    pub(crate) root: bool,
    /// apt-get is on this machine.
    pub(crate) apt: bool,
}

/// Makes sure that `packages` are installed, installing what is missing where that is possible.
/// The answer is the reason to skip, or `None` when all are there.
///
/// # Errors
/// apt-get failed: then it is the step that fails, for a skip would hide a broken machine.
pub(crate) fn require_packages(packages: &[&str]) -> Result<Option<String>> {
    let powers = Powers {
        root: rustix::process::geteuid().is_root(),
        apt: Path::new("/usr/bin/apt-get").exists(),
    };
    match decide(packages, installed, powers) {
        Decision::Ready => Ok(None),
        Decision::Skip(reason) => Ok(Some(reason)),
        Decision::Install(missing) => {
            println!("installing with apt-get: {}", missing.join(" "));
            let status = Command::new("apt-get")
                .env("DEBIAN_FRONTEND", "noninteractive")
                .args(["install", "--yes", "--no-install-recommends"])
                .args(&missing)
                .stdin(Stdio::null())
                .status()
                .context("apt-get does not start")?;
            ensure!(status.success(), "apt-get could not install {}", missing.join(" "));
            Ok(None)
        }
    }
}

/// The decision alone: nothing is touched.
fn decide(packages: &[&str], installed: impl Fn(&str) -> bool, powers: Powers) -> Decision {
    let missing: Vec<String> =
        packages.iter().filter(|p| !installed(p)).map(|&p| p.to_owned()).collect();
    if missing.is_empty() {
        return Decision::Ready;
    }
    match powers {
        Powers { root: true, apt: true } => Decision::Install(missing),
        Powers { apt: false, .. } => {
            Decision::Skip(format!("{} missing and no apt-get here", missing.join(" ")))
        }
        Powers { root: false, .. } => {
            Decision::Skip(format!("{} missing and only root may install", missing.join(" ")))
        }
    }
}

/// Whether dpkg knows `package` as installed. A machine without dpkg has none.
fn installed(package: &str) -> bool {
    let answer = Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output();
    answer.is_ok_and(|out| out.status.success() && out.stdout == b"installed")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Powers = Powers { root: true, apt: true };

    fn only_bash(package: &str) -> bool {
        package == "bash"
    }

    #[test]
    fn nothing_is_done_when_all_is_there() {
        let nobody = Powers { root: false, apt: false };
        assert_eq!(decide(&[], only_bash, nobody), Decision::Ready);
        assert_eq!(decide(&["bash"], only_bash, nobody), Decision::Ready);
    }

    #[test]
    fn root_installs_exactly_what_is_missing() {
        let decision = decide(&["bash", "qemu-system-x86"], only_bash, ROOT);
        assert_eq!(decision, Decision::Install(vec!["qemu-system-x86".to_owned()]));
    }

    #[test]
    fn without_root_or_apt_the_step_is_skipped_with_the_reason() {
        for powers in [Powers { root: false, ..ROOT }, Powers { apt: false, ..ROOT }] {
            let decision = decide(&["qemu-system-x86"], only_bash, powers);
            assert!(matches!(decision, Decision::Skip(why) if why.contains("qemu-system-x86")));
        }
    }
}
