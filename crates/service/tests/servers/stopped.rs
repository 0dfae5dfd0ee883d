//! Specification: commands under a lock of a server whose `farlock` or guardian is stopped, and so
//! learns of nothing. No other is granted the lock while such a command runs.

use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farlock::{AcquireError, Mode};
use rustix::process::{Pid, Signal};

use crate::stage::serving::{Serving, parent_of};
use crate::stage::{self, Stage, is_running, kill, number, pid};

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

/// A tunnel on this host that passes on what is said, and never that a client has ended.
fn tunnel_to(server: &Serving) -> String {
    let entrance = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, onward) = (entrance.local_addr().unwrap().to_string(), server.address.clone());
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for client in entrance.incoming() {
            let (mut client, server) = (client.unwrap(), TcpStream::connect(&onward).unwrap());
            let (mut back, mut there) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            kept.push((back.try_clone().unwrap(), server.try_clone().unwrap()));
            std::thread::spawn(move || std::io::copy(&mut client, &mut there));
            std::thread::spawn(move || std::io::copy(&mut { server }, &mut back));
        }
    });
    address
}

/// The tunnel's end of the connection stands for nothing: the lease decides.
#[test]
fn a_client_by_a_tunnel_that_is_killed_or_stopped_keeps_others_out_for_a_lease() {
    let stage = Stage::new();
    let server = Serving::listening(&stage, "127.0.0.1:0", &["--lease", "2"]);
    let (address, here) = (tunnel_to(&server), stage.session());
    for signal in [Signal::KILL, Signal::STOP] {
        let lock = ["lock", "--server", &address, "a", "--", "sleep", "60"];
        let mut holder = stage.farlock(&lock).spawn().unwrap();
        stage.until(|| stage.run(&["ls"]).1.contains(" holds "));
        kill(pid(&holder), signal);
        drop(here.lock("a").exclusive().within(Duration::from_secs(8)).blocking().unwrap());
        kill(pid(&holder), Signal::KILL);
        holder.wait().unwrap();
    }
}

/// A server that is stopped answers nothing; a caller that asks with a limit learns that within it,
/// and what shows an error does not wait for the server.
#[test]
fn a_server_that_falls_silent_keeps_no_caller_beyond_its_limit() {
    const SOON: Duration = Duration::from_secs(4);
    let (_stage, server) = Serving::alone();
    let session = server.session();
    let table = session.range("t");
    drop(table.exclusive(0..9).blocking().unwrap());
    kill(pid(&server.child), Signal::STOP);
    let begun = Instant::now();
    let limit = Duration::from_millis(200);
    let asks: [&dyn Fn() -> AcquireError; 3] = [
        &|| stage::block_on(table.exclusive(0..9).within(limit).acquire()).unwrap_err(),
        &|| table.exclusive(0..9).within(limit).blocking().unwrap_err(),
        &|| table.together([(Mode::Exclusive, 0..9)]).within(limit).blocking().unwrap_err(),
    ];
    for ask in asks {
        let error = ask();
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert!(matches!(error, AcquireError::TimedOut { .. }), "{error:?}");
        assert!(error.to_string().contains("'t'"), "{error}");
        assert!(begun.elapsed() < SOON, "{:?} to show it", begun.elapsed());
    }
    kill(pid(&server.child), Signal::CONT);
    drop(table.exclusive(0..9).within(Duration::from_secs(20)).blocking().unwrap());
}

/// Its lease went on for as long as the command ran: it was not lost meanwhile.
#[test]
fn a_command_that_ended_before_its_lease_has_lost_nothing() {
    let stage = Stage::new();
    let mut server = Serving::listening(&stage, "127.0.0.1:0", &["--lease", "3"]);
    let go = stage.file("go");
    let shell = format!("while ! test -e {}; do sleep 0.02; done", go.display());
    let holder = Holder::by(&stage, &server, &shell);
    server.kill();
    std::fs::write(&go, "").unwrap();
    let (status, _, said) = stage::ended(holder.farlock.wait_with_output().unwrap());
    assert_eq!((status, said.contains("[lost]")), (0, true), "{said}");
    assert!(said.contains("was held until the command had ended, and could not be"), "{said}");
    // One that goes on for longer is killed.
    [go, stage.file("pid")].iter().for_each(|file| std::fs::remove_file(file).unwrap());
    server = Serving::listening(&stage, &server.address.clone(), &["--lease", "1"]);
    let holder = Holder::by(&stage, &server, &shell);
    server.kill();
    let (status, _, said) = stage::ended(holder.farlock.wait_with_output().unwrap());
    assert_eq!(
        (status, said.contains("is lost, and its command is killed")),
        (137, true),
        "{said}"
    );
}

/// A thread that asks a silent server for a lock that it had before gives up when it said it would.
/// What its verb brings about later is undone.
#[test]
fn a_limit_is_kept_while_the_server_is_silent() {
    let (_stage, serving) = Serving::alone();
    let (session, other) = (serving.session(), serving.session());
    drop(session.lock("known").exclusive().blocking().unwrap());
    let is_back = AtomicBool::new(false);
    let server = pid(&serving.child);
    kill(server, Signal::STOP);
    std::thread::scope(|scope| {
        let (ended, is_over) = std::sync::mpsc::channel::<()>();
        let is_back = &is_back;
        scope.spawn(move || {
            // A client that does not keep its limit is not to wait for ever.
            let _ = is_over.recv_timeout(Duration::from_secs(4));
            is_back.store(true, Ordering::Relaxed);
            kill(server, Signal::CONT);
        });
        let limit = Duration::from_millis(100);
        let ended_so = session.lock("known").exclusive().within(limit).blocking();
        assert!(matches!(ended_so, Err(AcquireError::TimedOut { .. })), "{ended_so:?}");
        assert!(!is_back.load(Ordering::Relaxed), "it waited for the server");
        drop(ended);
    });
    drop(other.lock("known").exclusive().within(Duration::from_secs(10)).blocking().unwrap());
    drop(session.lock("known").exclusive().blocking().unwrap());
}

/// A server has refused it by then, and says so to others. Nearly always: one that is stopped in
/// the round trip in which it looks whether to ask keeps the units of the dead.
#[test]
fn a_waiter_that_is_stopped_as_it_asks_for_a_range_keeps_no_unit_of_the_dead() {
    let stage = Stage::new();
    let server = Serving::listening(&stage, "127.0.0.1:0", &[]);
    let rounds = ["t0", "t1", "t2", "t3", "t4", "t5"];
    let is_granted = |table: &str| {
        let lock = |words: &[&str]| {
            let unit = ["lock", "--server", &server.address, "-r", "0:1", table];
            stage.farlock(&[&unit, words].concat())
        };
        let mut holder = lock(&["--", "sleep", "60"]).spawn().unwrap();
        stage.until(|| stage.run(&["ls"]).1.contains(" holds "));
        let mut waiter = lock(&["--", "true"]).spawn().unwrap();
        stage.until(|| stage.run(&["ls"]).1.contains(" waits "));
        kill(pid(&waiter), Signal::STOP);
        // One that is granted what it asks for just now is a stopped holder.
        std::thread::sleep(Duration::from_millis(200));
        kill(pid(&holder), Signal::KILL);
        holder.wait().unwrap();
        let next = lock(&["-w", "5", "--", "true"]).status().unwrap();
        kill(pid(&waiter), Signal::KILL);
        waiter.wait().unwrap();
        next.success()
    };
    let granted = rounds.into_iter().filter(|table| is_granted(table)).count();
    assert!(granted >= 2, "{granted} of {}", rounds.len());
}

/// What it was waiting for when it was stopped has come by the time it goes on. It took the time in
/// which it did not run for silence of the server, gave its connection up, and was lost with that;
/// and the server, which saw only that the connection had ended, kept its place for a lease.
#[test]
fn a_waiter_that_was_stopped_for_long_goes_on() {
    /// Longer than a client waits for an answer.
    const LONG: Duration = Duration::from_millis(10_500);
    const WAITERS: usize = 12;
    let stage = Stage::new();
    let server = Serving::listening(&stage, "127.0.0.1:0", &[]);
    let tables: Vec<String> = (0..WAITERS).map(|number| format!("t{number}")).collect();
    let session = server.session();
    let held = tables.iter().map(|table| session.range(table).exclusive(0..10).blocking().unwrap());
    let held: Vec<_> = held.collect();
    let waiters = tables.iter().map(|table| {
        let words = ["lock", "--server", &server.address, "-r", "0:10", table, "--", "true"];
        stage.farlock(&words).stderr(Stdio::piped()).spawn().unwrap()
    });
    let waiters: Vec<Child> = waiters.collect();
    stage.until_waiting(WAITERS);
    // Many of them are stopped while they await an answer: they ask again and again.
    waiters.iter().for_each(|waiter| stage.stop(pid(waiter)));
    std::thread::sleep(LONG);
    drop(held);
    waiters.iter().for_each(|waiter| kill(pid(waiter), Signal::CONT));
    for waiter in waiters {
        let (status, _, said) = stage::ended(waiter.wait_with_output().unwrap());
        assert_eq!((status, said.as_str()), (0, ""));
    }
}
