//! A shell with job control at a terminal of its own, as a person has it.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::{LIMIT, Stage};

pub(crate) const INTERRUPT: &str = "\u{3}";
pub(crate) const SUSPEND: &str = "\u{1a}";

/// The person's side of the terminal, and the shell on the other. Nothing that is typed is echoed.
pub(crate) struct Shell {
    person: File,
    shell: Child,
    /// What the terminal shows and nobody has looked for yet.
    shown: String,
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Without the terminal the whole session is hung up.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

impl Shell {
    pub(crate) fn new(stage: &Stage) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let person = openpt(flags).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = File::from(rustix::fs::open(name, flags, Mode::empty()).unwrap());
        let side = || Stdio::from(terminal.try_clone().unwrap());
        // A leader of a session, whose terminal this becomes. Shells would go on ignoring the
        // signals that the caller of the tests ignores, as callers in the background do.
        let mut command = stage.program("env");
        command.args(["--default-signal", "setsid", "--ctty", "--wait", "sh", "-i"]);
        command.stdin(side()).stdout(side()).stderr(side());
        command.env("PS1", "").env_remove("ENV").env("FARLOCK", env!("CARGO_BIN_EXE_farlock"));
        let shell = command.spawn().unwrap();
        let mut shell = Self { person: person.into(), shell, shown: String::new() };
        shell.types("stty -echo; echo rea''dy\n");
        shell.shows("ready");
        shell
    }

    /// A person types.
    pub(crate) fn types(&mut self, keys: &str) {
        self.person.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the terminal shows `text`, and answers with what it showed before.
    pub(crate) fn shows(&mut self, text: &str) -> String {
        let begun = Instant::now();
        loop {
            if let Some((before, after)) = self.shown.split_once(text) {
                let (before, after) = (before.to_owned(), after.to_owned());
                self.shown = after;
                return before;
            }
            let left = LIMIT.saturating_sub(begun.elapsed());
            let left = Timespec::try_from(left).unwrap();
            let mut news = [PollFd::new(&self.person, PollFlags::IN)];
            let count = poll(&mut news, Some(&left)).unwrap();
            assert!(count > 0, "'{text}' is not shown, but: {}", self.shown);
            let mut bytes = [0; 1024];
            let count = self.person.read(&mut bytes).unwrap();
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }
}
