//! In containers: it works, or one line says what is missing.

#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod stage;

use std::process::Command;

use stage::ended;

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

#[test]
fn a_container_is_enough_or_told_what_it_lacks() {
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        command.env_remove("FARLOCK_DIR").env_remove("FARLOCK_STATE_DIR").output()
    };
    if !unshare("mount -t tmpfs none /dev/shm").is_ok_and(|output| output.status.success()) {
        println!("SKIP containers: unshare makes none for this user");
        return;
    }
    let farlock = env!("CARGO_BIN_EXE_farlock");
    for (what, set_up, with, status, says) in CONTAINERS {
        let script = format!("{set_up}; {with}{farlock} lock t -- /bin/echo held");
        let (ended_with, printed, said) = ended(unshare(&script).unwrap());
        let is_told = printed.contains(says) || said.contains(says);
        assert!(ended_with == status && is_told, "{what}: {ended_with} {printed}{said}");
        assert!(status == 0 || said.contains("hint: "), "{what}: {said}");
        let lines = said.lines().filter(|line| line.starts_with("farlock: ")).count();
        assert!(lines == usize::from(status != 0), "{what}: {said}");
    }
}
