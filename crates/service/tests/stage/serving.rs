//! A server as people start one.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use farlock::{RegionOptions, Session};

use super::Stage;

/// A server, killed when the test ends.
pub(crate) struct Serving {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Serving {
    /// One on a stage of its own.
    pub(crate) fn alone() -> (Stage, Self) {
        let stage = Stage::new();
        let server = Self::on(&stage);
        (stage, server)
    }

    pub(crate) fn on(stage: &Stage) -> Self {
        Self::listening(stage, "127.0.0.1:0", &[])
    }

    pub(crate) fn listening(stage: &Stage, address: &str, options: &[&str]) -> Self {
        Self::started(stage, &[&["--listen", address], options].concat())
    }

    /// It is killed, and another one is started there.
    pub(crate) fn restart(&mut self, stage: &Stage, options: &[&str]) {
        self.kill();
        let address = self.address.clone();
        *self = Self::listening(stage, &address, options);
    }

    /// One that was started with these arguments, and says where it listens.
    pub(crate) fn started(stage: &Stage, arguments: &[&str]) -> Self {
        let mut serve = stage.farlock(&["serve"]);
        let mut child = serve.args(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
        let address = said.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        // Whatever it said, it is ended with the test.
        let serving = Self { child, address };
        assert!(said.contains(" is served "), "{said}");
        serving
    }

    pub(crate) fn options(&self) -> RegionOptions {
        RegionOptions::of_server(&self.address)
    }

    pub(crate) fn session(&self) -> Session {
        Session::open(&self.options()).unwrap()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The process that started this one.
pub(crate) fn parent_of(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').nth(1).unwrap().parse().unwrap()
}
