//! In containers: it works, or one line says what is missing.

use std::process::{Child, Command};

use crate::stage::serving::Serving;
use crate::stage::{Stage, ended};

/// What is done to a container of its own, what is run in it, its status, and what it says.
const CONTAINERS: [(&str, &str, &str, i32, &str); 9] = [
    ("64 MiB of shared memory", "mount -t tmpfs -o size=64m none /dev/shm", "", 0, "held"),
    ("1 MiB of it", "mount -t tmpfs -o size=1m none /dev/shm", "", 69, "no space for"),
    ("none that can be written", "mount -t tmpfs -o ro none /dev/shm", "", 69, "Read-only"),
    ("256 MiB of addresses", "mount -t tmpfs none /dev/shm; ulimit -v 262144", "", 0, "held"),
    ("little of them", "mount -t tmpfs none /dev/shm; ulimit -v 65536", "", 0, "held"),
    (
        "no /proc",
        "mount -t tmpfs none /dev/shm; mount -t tmpfs none /proc",
        "",
        69,
        "/proc is needed",
    ),
    (
        "a root that is read only",
        "mount -t tmpfs none /dev/shm; mount -o remount,bind,ro /",
        "",
        0,
        "held",
    ),
    ("no home", "mount -t tmpfs none /dev/shm", "env -u HOME -u XDG_STATE_HOME ", 0, "held"),
    ("no environment", "mount -t tmpfs none /dev/shm", "env -i ", 0, "held"),
];

/// What a script says and how it ends that has mounts of its own and is root there; `None` where
/// this user may not have any.
fn unshared(script: &str) -> Option<(i32, String, String)> {
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        command.env_remove("FARLOCK_DIR").env_remove("FARLOCK_STATE_DIR").output()
    };
    if !unshare("mount -t tmpfs none /dev/shm").is_ok_and(|output| output.status.success()) {
        println!("SKIP containers: unshare makes none for this user");
        return None;
    }
    Some(ended(unshare(script).unwrap()))
}

#[test]
fn a_container_is_enough_or_told_what_it_lacks() {
    let farlock = env!("CARGO_BIN_EXE_farlock");
    for (what, set_up, with, status, says) in CONTAINERS {
        let script = format!("{set_up}; {with}{farlock} lock t -- /bin/echo held");
        let Some((ended_with, printed, said)) = unshared(&script) else { return };
        let is_told = printed.contains(says) || said.contains(says);
        assert!(ended_with == status && is_told, "{what}: {ended_with} {printed}{said}");
        assert!(status == 0 || said.contains("hint: "), "{what}: {said}");
        let lines = said.lines().filter(|line| line.starts_with("farlock: ")).count();
        assert!(lines == usize::from(status != 0), "{what}: {said}");
    }
}

/// Tokens were kept there, and a next region could not keep its own.
#[test]
fn a_state_directory_that_became_read_only_is_said() {
    let farlock = env!("CARGO_BIN_EXE_farlock");
    let script = format!(
        "mount -t tmpfs none /dev/shm; mount -t tmpfs none /mnt; mkdir -m 700 /mnt/state; \
         export FARLOCK_STATE_DIR=/mnt/state; {farlock} lock t -- /bin/echo before; \
         mount -o remount,ro /mnt; {farlock} lock t -- /bin/echo after"
    );
    let Some((status, printed, said)) = unshared(&script) else { return };
    assert_eq!((status, printed.as_str()), (0, "before\nafter\n"), "{said}");
    assert_eq!(said.matches("FARLOCK_STATE_DIR keeps nothing").count(), 1, "{said}");
    assert!(said.contains("Read-only"), "{said}");
}

/// A host of its own, as far as its name and its processes go, or this one; ended with the test.
struct Container(Child);

impl Container {
    /// One in which a command is run that holds a lock; `None` where this user may not have any.
    fn holding(stage: &Stage, host: &str, lock: &str) -> Option<Self> {
        let inside = |script: &str| {
            let mut command = stage.program("unshare");
            command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
            command.args(["--uts", "--mount-proc", "sh", "-c"]);
            command.arg(format!("echo {host} >/proc/sys/kernel/hostname && {script}"));
            command
        };
        if !inside("true").output().is_ok_and(|output| output.status.success()) {
            println!("SKIP containers: unshare makes none for this user");
            return None;
        }
        let farlock = env!("CARGO_BIN_EXE_farlock");
        let hold = format!("exec {farlock} lock {lock} -- sleep 60");
        Some(Self(inside(&hold).spawn().unwrap()))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// By a server, and by memory that a container shares with its host: the process number of a
/// holder elsewhere was shown as if it were one of a process here.
#[test]
fn a_holder_elsewhere_is_shown_with_its_host() {
    let (stage, server) = Serving::alone();
    let by_server = format!("--server {} far", server.address);
    let Some(_far) = Container::holding(&stage, "web1", &by_server) else { return };
    let Some(_near) = Container::holding(&stage, "box2", "near") else { return };
    let _here = Container(stage.hold("here", "sleep 60"));
    stage.until(|| stage.ls().matches("\"holders\":[{").count() == 3);
    // A server under load may take longer than a short limit.
    let by_server = ["--server", &server.address];
    for (at, limits) in [(&[][..], &[&["-n"][..], &["-w", "0.1"]][..]), (&by_server, &[&["-n"]])] {
        let (_, json, _) = stage.run(&[&["ls", "--json"], at].concat());
        let line = |lock: &str| {
            json.lines().find(|line| line.contains(&format!("\"name\":\"{lock}\""))).unwrap()
        };
        assert!(line("far").contains("\"host\":\"web1\""), "{json}");
        assert!(line("near").contains("\"host\":\"box2\""), "{json}");
        assert!(!line("here").contains("\"host\""), "{json}");
        let (_, table, _) = stage.run(&[&["ls"], at].concat());
        assert!(table.contains(" HOST ") && table.contains(" web1 "), "{table}");
        for (lock, says) in [("far", " on web1 ("), ("near", " on box2 ("), ("here", " (sh -c")] {
            for limit in limits {
                let tried = stage.run(&[&["lock", lock], at, limit, &["--", "true"]].concat());
                assert_eq!(tried.0, 1, "{tried:?}");
                assert!(tried.2.contains(says), "{says}: {}", tried.2);
                assert!(lock != "here" || !tried.2.contains(" on "), "{}", tried.2);
            }
        }
    }
}
