//! Regions of their own for tests, and unrelated processes that use them.
//!
//! A test binary executes itself: the child runs one test, `child`, which plays the part named in
//! its environment, speaks in lines on its standard output and listens on its standard input.
#![allow(dead_code, clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use farlock_fabric::shm::{Options, Region};

const PART: &str = "FARLOCK_TEST_PART";
const DIR: &str = "FARLOCK_TEST_DIR";
const WORD: &str = "said: ";

/// A directory of its own, removed with all that is in it.
pub(crate) struct TestDir(PathBuf);

impl TestDir {
    pub(crate) fn new(name: &str) -> Self {
        let base = Path::new("/dev/shm");
        let base = if base.is_dir() { base.to_owned() } else { std::env::temp_dir() };
        let path = base.join(format!("farlock-test-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Small, so that tests do not fill the memory.
    pub(crate) fn options(&self) -> Options {
        options(&self.0)
    }

    pub(crate) fn region(&self) -> Region {
        Region::open(&self.options()).unwrap()
    }

    /// Starts a child of this binary in this part.
    pub(crate) fn child(&self, part: &str) -> Peer {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(PART, part)
            .env(DIR, &self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Peer { child, input, output }
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options(dir: &Path) -> Options {
    let mut options = Options::new(dir.join("shm"), dir.join("state"), "test");
    options.endpoints = 80;
    options.heap_bytes = 64 << 10;
    options.max_bytes = 64 << 20;
    options
}

/// Another process. Killed when dropped.
pub(crate) struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it says next.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the child fell silent");
            // The harness prints the test's name before the first word, on the same line.
            if let Some((_, said)) = line.trim_end().split_once(WORD) {
                return said.to_owned();
            }
        }
    }

    pub(crate) fn tell(&mut self, what: &str) {
        writeln!(self.input, "{what}").unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Kills it and waits until the system has forgotten it.
    pub(crate) fn kill_and_reap(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until the system has forgotten it, however it ended.
    pub(crate) fn wait_for_end(&mut self) {
        self.child.wait().unwrap();
    }

    pub(crate) fn wait(&mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a child: its part and the options of the region. `None` in the test run itself.
pub(crate) fn part() -> Option<(String, Options)> {
    let part = std::env::var(PART).ok()?;
    Some((part, options(Path::new(&std::env::var_os(DIR).unwrap()))))
}

/// In a child: says a line.
pub(crate) fn say(what: impl std::fmt::Display) {
    println!("{WORD}{what}");
}

/// In a child: waits for a line; ends the process where its parent is gone.
pub(crate) fn listen() -> String {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).unwrap() == 0 {
        std::process::exit(0);
    }
    line.trim_end().to_owned()
}
