//! A server as people start one.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farlock::{RegionOptions, Session};
use rustix::process::Signal;

use super::{Stage, kill, pid};

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

    /// It is restarted so often while clients count, each time and at last when they go on.
    pub(crate) fn restart_among(&mut self, stage: &Stage, count: &AtomicU64, restarts: usize) {
        for turn in 0..=restarts {
            let before = count.load(Ordering::Relaxed);
            stage.until(|| count.load(Ordering::Relaxed) > before + 100);
            if turn < restarts {
                self.restart(stage, &[]);
            }
        }
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

/// Kills an actor that holds the lock "a": one that waits for it has it at once.
pub(crate) fn kill_holder(actor: &mut Command, waiter: &Session) {
    let mut actor = actor.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(actor.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "holds"));
    assert!(waiter.lock("a").exclusive().at_once().blocking().is_err());
    let granted = std::thread::scope(|scope| {
        let waits = scope.spawn(|| waiter.lock("a").exclusive().blocking());
        std::thread::sleep(Duration::from_millis(50));
        let killed = Instant::now();
        kill(pid(&actor), Signal::KILL);
        waits.join().unwrap().unwrap().release().blocking().unwrap();
        killed.elapsed()
    });
    assert!(granted < Duration::from_secs(2), "{granted:?}");
    actor.wait().unwrap();
}

/// The process that started this one.
pub(crate) fn parent_of(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').nth(1).unwrap().parse().unwrap()
}
