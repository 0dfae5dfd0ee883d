//! Specification: commands under a lock of a server whose `farlock` or guardian is stopped, and so
//! learns of nothing. No other is granted the lock while such a command runs.
#![allow(clippy::unwrap_used)]

mod stage;

use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use stage::serving::{Serving, parent_of};
use stage::{Stage, is_running, kill, number, pid};

const LEASE: [&str; 2] = ["--lease", "0.5"];
const BEYOND_LEASE: Duration = Duration::from_millis(1000);

/// A command under the lock `a`, in a group of its own.
struct Holder {
    farlock: Child,
    command: i32,
}

impl Holder {
    fn by(stage: &Stage, server: &Serving, command: &str) -> Self {
        let file = stage.file("pid");
        let shell = format!("echo $$ > {0}.new; mv {0}.new {0}; {command}", file.display());
        let words = ["lock", "--server", &server.address, "a", "--", "sh", "-c", &shell];
        let mut lock = stage.farlock(&words);
        let farlock = lock.process_group(0).stderr(Stdio::piped()).spawn().unwrap();
        let command = number(stage, &file) as i32;
        Self { farlock, command }
    }

    fn guardian(&self) -> Pid {
        Pid::from_raw(parent_of(self.command)).unwrap()
    }

    /// Another one gets the lock, and the command is gone by then. What remains of this one says
    /// that it lost it. Returns after how long.
    fn loses(self, stage: &Stage) -> Duration {
        let begun = Instant::now();
        let granted = stage.session().lock("a").exclusive().within(Duration::from_secs(20));
        let guard = granted.blocking().unwrap();
        let elapsed = begun.elapsed();
        assert!(!is_running(self.command), "two have the lock: token {}", guard.token());
        kill(pid(&self.farlock), Signal::CONT);
        let (status, _, said) = stage::ended(self.farlock.wait_with_output().unwrap());
        assert_eq!((status, said.contains("[lost]")), (137, true), "{said}");
        assert_eq!(said.matches("[lost]").count(), 1, "{said}");
        elapsed
    }
}

/// Whether a process has a connection to this server that stands.
fn is_tied_to(server: &Serving, process: Pid) -> bool {
    const ESTABLISHED: &str = "01";
    let port: u16 = server.address.rsplit(':').next().unwrap().parse().unwrap();
    let there = format!(":{port:04X}");
    let connections = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let sockets: Vec<String> = connections
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields[2].ends_with(&there) && fields[3] == ESTABLISHED)
        .map(|fields| format!("socket:[{}]", fields[9]))
        .collect();
    let fds = format!("/proc/{}/fd", process.as_raw_nonzero());
    let links = std::fs::read_dir(fds).unwrap().flatten();
    let mut targets = links.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    targets.any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
}

#[test]
fn nobody_looks_after_a_command_when_its_server_is_killed() {
    for (is_late, is_back) in [(false, false), (false, true), (true, false), (true, true)] {
        let stage = Stage::new();
        let mut server = Serving::listening(&stage, "127.0.0.1:0", &LEASE);
        let holder = Holder::by(&stage, &server, "exec sleep 60");
        stage.stop(pid(&holder.farlock));
        if is_late {
            std::thread::sleep(BEYOND_LEASE);
            assert!(is_running(holder.command), "its server sees that it is there");
        }
        server.kill();
        if is_back {
            server.restart(&stage, &LEASE);
        }
        let elapsed = holder.loses(&stage);
        // However long it was silent, there is time to kill a command.
        assert!(elapsed > Duration::from_millis(100), "{is_late} {is_back}: {elapsed:?}");
    }
}

/// What a server knows of tethers the next one is told. So it goes on as ever: who is killed has
/// the lock no longer than its command, and no lease must end before.
#[test]
fn a_server_that_took_over_frees_the_lock_of_a_killed_holder_at_once() {
    const LEASE: [&str; 2] = ["--lease", "60"];
    let stage = Stage::new();
    let mut server = Serving::listening(&stage, "127.0.0.1:0", &LEASE);
    let mut holder = Holder::by(&stage, &server, "exec sleep 60");
    let mut waiter = stage.farlock(&["lock", "--server", &server.address, "a", "--", "true"]);
    let mut waiter = waiter.process_group(0).spawn().unwrap();
    stage.until_waiting(1);
    for _ in 0..2 {
        server.restart(&stage, &LEASE);
        stage.until(|| is_tied_to(&server, holder.guardian()));
    }
    std::thread::sleep(Duration::from_millis(500));
    // One in line has run nothing that could have its tether.
    kill(pid(&waiter), Signal::KILL);
    waiter.wait().unwrap();
    stage.until(|| stage.ls().contains("\"waiters\":[]"));
    kill(pid(&holder.farlock), Signal::KILL);
    let begun = Instant::now();
    let granted = stage.session().lock("a").exclusive().within(Duration::from_secs(20)).blocking();
    assert!(granted.is_ok() && !is_running(holder.command), "after {:?}", begun.elapsed());
    holder.farlock.wait().unwrap();
}

/// Of the end of a connection it believes nothing, so its lease alone counts.
#[test]
fn nobody_looks_after_a_command_when_its_lease_ends() {
    let stage = Stage::new();
    let doubting = [&LEASE[..], &["--closed", "doubt"]].concat();
    let server = Serving::listening(&stage, "127.0.0.1:0", &doubting);
    let holder = Holder::by(&stage, &server, "exec sleep 60");
    stage.stop(pid(&holder.farlock));
    holder.loses(&stage);
}

/// What it started goes with it.
#[test]
fn all_that_a_command_started_is_gone_when_its_lease_ends() {
    let stage = Stage::new();
    let mut server = Serving::listening(&stage, "127.0.0.1:0", &LEASE);
    let file = stage.file("below");
    let shell = format!("setsid sh -c 'echo $$ > {}; exec sleep 60' & wait", file.display());
    let holder = Holder::by(&stage, &server, &shell);
    let below = number(&stage, &file) as i32;
    stage.stop(pid(&holder.farlock));
    server.kill();
    holder.loses(&stage);
    assert!(!is_running(below));
}

#[test]
fn a_stopped_guardian_does_not_outlast_the_lease() {
    let stage = Stage::new();
    let mut server = Serving::listening(&stage, "127.0.0.1:0", &LEASE);
    let holder = Holder::by(&stage, &server, "exec sleep 60");
    stage.stop(holder.guardian());
    server.kill();
    holder.loses(&stage);
}

/// As by Ctrl-Z: on the server's host a job keeps its lock however long it is stopped, by another
/// server than that which granted it too.
#[test]
fn a_stopped_job_keeps_its_lock_while_its_server_lives() {
    for is_restarted in [false, true] {
        let stage = Stage::new();
        let mut server = Serving::listening(&stage, "127.0.0.1:0", &LEASE);
        let go = stage.file("go");
        let shell = format!("until test -e {}; do sleep 0.02; done; exit 5", go.display());
        let holder = Holder::by(&stage, &server, &shell);
        if is_restarted {
            server.restart(&stage, &LEASE);
            stage.until(|| is_tied_to(&server, holder.guardian()));
        }
        for of_all in [holder.command, parent_of(holder.command), holder.farlock.id() as i32] {
            stage.stop(Pid::from_raw(of_all).unwrap());
        }
        std::thread::sleep(BEYOND_LEASE);
        let tried = stage.session().lock("a").exclusive().at_once().blocking();
        assert!(tried.is_err(), "restarted: {is_restarted}");
        let group = Pid::from_child(&holder.farlock);
        rustix::process::kill_process_group(group, Signal::CONT).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(is_running(holder.command), "restarted: {is_restarted}");
        std::fs::write(&go, "").unwrap();
        let (status, _, said) = stage::ended(holder.farlock.wait_with_output().unwrap());
        assert_eq!((status, said.as_str()), (5, ""), "restarted: {is_restarted}");
    }
}
