//! What the acts of the demo share: directories of their own, progress, what was found.

use std::fmt;
use std::io::{IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};

use comfy_table::{Table, presets::NOTHING};
use farlock::RegionOptions;
use rustix::termios::tcgetwinsize;

use crate::cli::report::{Exit, Failure, show};

/// What the demo relies on did not happen.
pub(super) fn demo_failed(what: &str, why: impl fmt::Display) -> Failure {
    let hint = "try again; if it is so again, that is a fault of farlock";
    Failure::new(Exit::SYSTEM, "demo", format!("{what}: {why}"), hint.to_owned())
}

/// A claim and whether it held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Check {
    pub(super) claim: &'static str,
    pub(super) found: String,
    pub(super) holds: bool,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.holds { "ok" } else { "FAILED" };
        write!(f, "{mark}: {}: {}", self.claim, self.found)
    }
}

/// The demo's own directories, removed at its end.
pub(super) struct Stage {
    pub(super) regions: PathBuf,
    pub(super) state: PathBuf,
}

impl Stage {
    pub(super) fn new() -> Result<Self, Failure> {
        let name = format!("farlock-demo-{}", std::process::id());
        let memory = PathBuf::from("/dev/shm");
        let place = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let (regions, state) = (place.join(&name), place.join(format!("{name}-state")));
        for dir in [&regions, &state] {
            std::fs::create_dir(dir)
                .and_then(|()| {
                    use std::os::unix::fs::PermissionsExt;
                    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))
                })
                .map_err(|error| Failure::system(format!("cannot make {dir:?}"), error))?;
        }
        Ok(Self { regions, state })
    }

    pub(super) fn options(&self) -> RegionOptions {
        RegionOptions::new(&self.regions, &self.state).named("demo").labelled("farlock demo")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        remove(&[&self.regions, &self.state]);
    }
}

pub(super) fn remove(dirs: &[&Path]) {
    for dir in dirs {
        // What cannot be removed means nothing: nobody else knows its name.
        let _ = std::fs::remove_dir_all(dir);
    }
}

/// Progress for people: a line that is written anew on a terminal, and one per act elsewhere. No
/// library: the one for it asks for another of the system's, which every start of `farlock` loads.
pub(super) struct Show {
    pub(super) steps: u64,
    pub(super) is_seen: bool,
}

/// Back to the beginning of a terminal's line, and what stands there is wiped out.
const ANEW: &str = "\r\x1b[K";

impl Show {
    pub(super) fn begin(title: &str, steps: u64) -> Self {
        show(title);
        Self { steps, is_seen: stderr().is_terminal() }
    }

    pub(super) fn step(&self, done: u64, message: &str) {
        const WIDTH: usize = 30;
        if self.is_seen {
            let done = (done.min(self.steps) * WIDTH as u64 / self.steps.max(1)) as usize;
            let bar = "█".repeat(done) + &"░".repeat(WIDTH - done);
            let line = format!("  {bar} {message}");
            // A line that wraps cannot be wiped out.
            let width = tcgetwinsize(stderr()).map_or(0, |size| usize::from(size.ws_col));
            let room = if width > 0 { width - 1 } else { usize::MAX };
            let line: String = line.chars().take(room).collect();
            // Nobody looks any more where it fails.
            let _ = write!(stderr(), "{ANEW}{line}");
        }
    }

    pub(super) fn end(self, checks: &[Check]) {
        if self.is_seen {
            let _ = write!(stderr(), "{ANEW}");
        }
        for check in checks {
            show(format_args!("  {check}"));
        }
    }
}

/// What the acts found.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) figures: Vec<(&'static str, String)>,
    pub(super) checks: Vec<Check>,
}

impl Summary {
    pub(super) fn figure(&mut self, name: &'static str, value: String) {
        self.figures.push((name, value));
    }

    pub(super) fn check(&mut self, claim: &'static str, holds: bool, found: String) -> Check {
        let check = Check { claim, found, holds };
        self.checks.push(check.clone());
        check
    }

    pub(super) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(NOTHING);
        for (name, value) in &self.figures {
            table.add_row([*name, value.as_str()]);
        }
        let failed = self.checks.iter().filter(|check| !check.holds).count();
        let verdict = match failed {
            0 => "all hold".to_owned(),
            some => format!("{some} FAILED"),
        };
        let checks = format!("{} checks", self.checks.len());
        table.add_row([checks.as_str(), verdict.as_str()]);
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n") + "\n"
    }
}
