//! Specification: two hosts, as network namespaces that a cable joins, whose boot clocks differ.
//! One has the region and serves it; commands of both use it, and the cable is pulled.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::stage::{Stage, kill, pid};

const LEASE: Duration = Duration::from_secs(2);
/// How much the judge grants to processes that have to run.
const SLACK: Duration = Duration::from_millis(250);

/// Which way of the cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Both,
    ToServer,
    ToClient,
}

/// The host of the server, and another one.
struct Hosts {
    stage: Stage,
    names: [String; 2],
    server: Option<Child>,
}

const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const SERVER: &str = "10.77.0.1:4747";
/// A host that nobody is.
const NOBODY: &str = "02:00:00:00:00:77";

fn ip(arguments: &str) -> bool {
    let mut ip = Command::new("ip");
    ip.args(arguments.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
    ip.status().is_ok_and(|status| status.success())
}

impl Hosts {
    /// `None`, and why, where this user may not have any.
    fn new(test: &str) -> Option<Self> {
        let names = ["a", "b"].map(|host| format!("fl{}{test}{host}", std::process::id()));
        let mut hosts = Self { stage: Stage::new(), names, server: None };
        let [a, b] = hosts.names.clone();
        let is_there = ip(&format!("netns add {a}"))
            && ip(&format!("netns add {b}"))
            && ip(&format!("link add {a} netns {a} type veth peer name {b} netns {b}"));
        if !is_there {
            println!("SKIP network-namespaces: this user may not have any, or ip(8) is missing");
            return None;
        }
        for (name, address) in hosts.names.iter().zip(ADDRESSES) {
            assert!(ip(&format!("-n {name} addr add {address}/24 dev {name}")));
            assert!(ip(&format!("-n {name} link set {name} up")));
        }
        let lease = LEASE.as_secs().to_string();
        let mut serve = hosts.at_server(&["serve", "--listen", SERVER, "--plaintext"]);
        serve.args(["--lease", &lease]).stderr(Stdio::piped());
        let mut server = serve.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(server.stderr.take().unwrap()).read_line(&mut said).unwrap();
        assert!(said.contains(SERVER), "{said}");
        hosts.server = Some(server);
        Some(hosts)
    }

    /// `farlock` on the server's host.
    fn at_server(&self, arguments: &[&str]) -> Command {
        let mut command = self.stage.program("ip");
        command.args(["netns", "exec", &self.names[0], env!("CARGO_BIN_EXE_farlock")]);
        command.args(arguments);
        command
    }

    /// `farlock lock` on the other host, whose clock has run for longer, with a directory of
    /// regions of its own.
    fn at_client(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[1]]);
        command.args(["unshare", "--time", "--boottime", "100000"]);
        command.args([env!("CARGO_BIN_EXE_farlock"), "lock", "--server", SERVER]);
        command.args(arguments).stdin(Stdio::null());
        command.env("FARLOCK_DIR", "/nowhere").env("FARLOCK_STATE_DIR", "/nowhere");
        command
    }

    /// What one host sends does not arrive, or does again.
    fn set_way(&self, way: Way, is_cut: bool) {
        for (host, other, cut) in [(0, 1, Way::ToClient), (1, 0, Way::ToServer)] {
            if way != cut && way != Way::Both {
                continue;
            }
            let (name, address) = (&self.names[host], ADDRESSES[other]);
            let neighbour = format!("-n {name} neigh");
            if is_cut {
                let replace = format!("{neighbour} replace {address} lladdr {NOBODY}");
                assert!(ip(&format!("{replace} dev {name} nud permanent")));
            } else {
                assert!(ip(&format!("{neighbour} del {address} dev {name}")));
            }
        }
    }

    /// All connections of a host end, as by a forged reset.
    fn reset(&self, host: usize) {
        let mut ss = Command::new("ip");
        ss.args(["netns", "exec", &self.names[host], "ss", "-Kt"]).stdout(Stdio::null());
        assert!(ss.status().unwrap().success());
    }

    /// A command on the other host that holds the lock, and says all the time that it runs.
    fn holder(&self, alive: &Path) -> Child {
        let _ = std::fs::remove_file(alive);
        let alive_now = alive.display();
        let line = format!(
            "while :; do date +%s%N > {alive_now}.new; mv {alive_now}.new {alive_now}; \
             sleep 0.01; done"
        );
        let mut holder = self.at_client(&["a", "--", "sh", "-c", &line]);
        let holder = holder.stderr(Stdio::piped()).spawn().unwrap();
        self.stage.until(|| alive.exists());
        holder
    }

    /// A command of the server's host that waits for the lock, and says when it had it.
    fn waiter(&self) -> Child {
        let mut waiter = self.at_server(&["lock", "a", "--", "date", "+%s%N"]);
        let waiter = waiter.stdout(Stdio::piped()).spawn().unwrap();
        self.stage.until_waiting(1);
        waiter
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
        for name in &self.names {
            ip(&format!("netns del {name}"));
        }
    }
}

fn nanoseconds(text: &str) -> u64 {
    text.trim().parse().unwrap()
}

fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now.as_nanos() as u64
}

#[test]
fn commands_of_two_hosts_exclude_each_other() {
    let Some(hosts) = Hosts::new("x") else { return };
    let count = hosts.stage.file("count");
    std::fs::write(&count, "0\n").unwrap();
    let line = format!("n=$(cat {0}); sleep 0.001; echo $((n+1)) > {0}", count.display());
    let own = ["lock", "a", "--", "sh", "-c", &line];
    let commands = (0..60).map(|number| match number % 2 {
        0 => hosts.at_server(&own).spawn().unwrap(),
        _ => hosts.at_client(&own[1..]).spawn().unwrap(),
    });
    let commands: Vec<Child> = commands.collect();
    for mut command in commands {
        assert!(command.wait().unwrap().success());
    }
    assert_eq!(std::fs::read_to_string(count).unwrap(), "60\n");
}

/// The holder's command is stopped before a waiter is granted, whichever way was cut.
#[test]
fn a_cable_that_stays_pulled_ends_a_hold_before_the_next_begins() {
    let Some(hosts) = Hosts::new("p") else { return };
    let alive = hosts.stage.file("alive");
    for way in [Way::Both, Way::ToServer, Way::ToClient] {
        let mut holder = hosts.holder(&alive);
        let waiter = hosts.waiter();
        hosts.set_way(way, true);
        let pulled = now();
        let granted = waiter.wait_with_output().unwrap().stdout;
        let granted = nanoseconds(&String::from_utf8(granted).unwrap());
        let last = nanoseconds(&std::fs::read_to_string(&alive).unwrap());
        assert!(last < granted, "{way:?}: it ran {} us too long", (last - granted) / 1000);
        let lasted = Duration::from_nanos(granted - pulled);
        println!(
            "{way:?}: {lasted:?} after the pull, {} us after the holder",
            (granted - last) / 1000
        );
        assert!(lasted < LEASE + SLACK, "{way:?}: {lasted:?}");
        hosts.set_way(way, false);
        assert_eq!(holder.wait().unwrap().code(), Some(137), "{way:?}: its command was killed");
        let last_of_all = nanoseconds(&std::fs::read_to_string(&alive).unwrap());
        assert_eq!(last, last_of_all, "{way:?}");
    }
}

/// What comes back within the lease has lost nothing: pulled cables and forged resets.
#[test]
fn a_connection_that_comes_back_within_the_lease_has_lost_nothing() {
    let Some(hosts) = Hosts::new("r") else { return };
    let alive = hosts.stage.file("alive");
    let mut holder = hosts.holder(&alive);
    let mut waiter = hosts.waiter();
    for way in [Way::Both, Way::ToServer, Way::ToClient] {
        hosts.set_way(way, true);
        std::thread::sleep(LEASE / 4);
        hosts.set_way(way, false);
        std::thread::sleep(LEASE);
    }
    for host in [0, 1] {
        for _ in 0..5 {
            hosts.reset(host);
            std::thread::sleep(LEASE / 10);
        }
    }
    assert_eq!(waiter.try_wait().unwrap(), None, "it still waits");
    let before = nanoseconds(&std::fs::read_to_string(&alive).unwrap());
    hosts.stage.until(|| nanoseconds(&std::fs::read_to_string(&alive).unwrap()) > before);
    let ended = now();
    kill(pid(&holder), Signal::TERM);
    let granted = waiter.wait_with_output().unwrap().stdout;
    assert!(nanoseconds(&String::from_utf8(granted).unwrap()) > ended);
    holder.wait().unwrap();
}
