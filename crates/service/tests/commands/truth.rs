//! What tries, time-outs and stopped waiters tell and cost those who run commands under locks.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process_group};

use crate::stage::{Stage, ended, is_running, kill, number, pid};

/// A bound on what must be soon on a busy machine too. How soon is measured elsewhere.
const SOON: Duration = Duration::from_secs(2);

/// How the holder of a scene ends.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Releases,
    IsKilled,
}

/// A waiter whose command writes a file when it runs.
fn waiter(stage: &Stage, mode: &str, file: &str) -> Child {
    let touch = format!("echo 1 > {}", stage.file(file).display());
    let command = ["lock", "t", mode, "--", "sh", "-c", &touch];
    let child = stage.farlock(&command).stderr(Stdio::null()).spawn().unwrap();
    stage.until(|| stage.ls().contains(&format!("\"pid\":{},", child.id())));
    child
}

/// Holder, waiters of which one is stopped, and who is granted meanwhile.
fn pass_over(held: &str, is_first: bool, end: End) {
    let story = format!("held {held}, first {is_first}, {end:?}");
    let stage = Stage::new();
    let mut holder = stage.farlock(&["lock", "t", held, "--", "sleep", "100"]).spawn().unwrap();
    stage.until(|| stage.ls().contains(&format!("\"pid\":{},", holder.id())));
    let mut before = (!is_first).then(|| waiter(&stage, "-x", "before"));
    let mut stopped = waiter(&stage, "-x", "stopped");
    let mut second = waiter(&stage, "-x", "second");
    stage.stop(pid(&stopped));
    match end {
        End::Releases => kill(pid(&holder), Signal::TERM),
        End::IsKilled => kill(pid(&holder), Signal::KILL),
    }
    holder.wait().unwrap();
    let ended = Instant::now();
    stage.until(|| stage.file("second").exists());
    let took = ended.elapsed();
    println!("{story}: granted after {} ms", took.as_millis());
    assert!(took < SOON, "{story}: {took:?}");
    assert!(!stage.file("stopped").exists(), "{story}");
    assert!(is_first || stage.file("before").exists(), "{story}: the order holds");
    kill(pid(&stopped), Signal::CONT);
    for child in before.iter_mut().chain([&mut stopped, &mut second]) {
        assert!(child.wait().unwrap().success(), "{story}");
    }
    assert!(stage.file("stopped").exists(), "{story}");
    assert_eq!(stage.run(&["lock", "-n", "t", "true"]).0, 0, "{story}");
}

#[test]
fn a_stopped_waiter_is_passed_over_and_granted_when_it_goes_on() {
    for held in ["-x", "-s"] {
        for is_first in [true, false] {
            for end in [End::Releases, End::IsKilled] {
                pass_over(held, is_first, end);
            }
        }
    }
}

#[test]
fn a_reader_enters_beside_readers_past_a_stopped_writer() {
    let stage = Stage::new();
    let mut holder = stage.farlock(&["lock", "t", "-s", "--", "sleep", "100"]).spawn().unwrap();
    stage.until(|| stage.ls().contains(&format!("\"pid\":{},", holder.id())));
    let mut stopped = waiter(&stage, "-x", "stopped");
    stage.stop(pid(&stopped));
    assert_eq!(stage.run(&["lock", "-s", "-w", "10", "t", "true"]).0, 0);
    kill(pid(&stopped), Signal::CONT);
    kill(pid(&holder), Signal::TERM);
    holder.wait().unwrap();
    assert!(stopped.wait().unwrap().success());
}

#[test]
fn a_try_beside_a_free_lock_passes_over_the_stopped() {
    let stage = Stage::new();
    let mut holder = stage.hold("t", "sleep 100");
    let mut stopped = waiter(&stage, "-x", "stopped");
    stage.stop(pid(&stopped));
    kill(pid(&holder), Signal::TERM);
    holder.wait().unwrap();
    for _ in 0..3 {
        assert_eq!(stage.run(&["lock", "-n", "t", "true"]).0, 0);
    }
    kill(pid(&stopped), Signal::CONT);
    assert!(stopped.wait().unwrap().success());
}

/// Who tries to share the lock with its reader is refused for the sake of a writer that waits, at
/// once, however often it tries; if the writer is stopped, it shares it.
#[test]
fn a_try_to_share_does_not_overtake_a_waiting_writer() {
    let stage = Stage::new();
    let mut holder = stage.farlock(&["lock", "t", "-s", "--", "sleep", "100"]).spawn().unwrap();
    stage.until(|| stage.ls().contains(&format!("\"pid\":{},", holder.id())));
    let mut writer = waiter(&stage, "-x", "written");
    for limit in [["-w", "0"], ["-w", "0.3"], ["-w", "0"]] {
        let (status, _, _) = stage.run(&["lock", "-s", limit[0], limit[1], "t", "true"]);
        assert_eq!(status, 1, "{limit:?}");
    }
    stage.stop(pid(&writer));
    assert_eq!(stage.run(&["lock", "-s", "-n", "t", "true"]).0, 0);
    kill(pid(&writer), Signal::CONT);
    kill(pid(&holder), Signal::TERM);
    holder.wait().unwrap();
    assert!(writer.wait().unwrap().success());
}

/// Kills a holder whose command has said something, and then tries.
fn try_after_a_kill(is_group: bool) {
    let stage = Stage::new();
    for round in 0..10 {
        let file = stage.file(&format!("command-{round}"));
        let line = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 100", file.display());
        let mut command = stage.farlock(&["lock", "b", "--", "sh", "-c", &line]);
        if is_group {
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
        }
        let mut holder = command.spawn().unwrap();
        let child = number(&stage, &file) as i32;
        match is_group {
            true => kill_process_group(pid(&holder), Signal::KILL).unwrap(),
            false => kill(pid(&holder), Signal::KILL),
        }
        holder.wait().unwrap();
        stage.until(|| !is_running(child));
        let (status, _, complaint) =
            ended(stage.farlock(&["lock", "b", "-n", "true"]).output().unwrap());
        // A process that just ended may have a relative that still ends: it is honestly there.
        if status != 0 {
            stage.until(|| stage.run(&["lock", "b", "-n", "true"]).0 == 0);
        }
        assert!(status == 0 || complaint.contains("still runs"), "{round}: {complaint}");
    }
}

/// The guardian that is to kill the command of a killed `farlock` is stopped then, and goes on to
/// do so.
#[test]
fn a_stopped_guardian_does_not_outlast_its_farlock() {
    let stage = Stage::new();
    let mut holder = stage.hold("t", "sleep 100");
    let children = format!("/proc/{0}/task/{0}/children", holder.id());
    let guardians = std::fs::read_to_string(children).unwrap();
    for guardian in guardians.split_whitespace() {
        let guardian = rustix::process::Pid::from_raw(guardian.parse().unwrap()).unwrap();
        stage.stop(guardian);
    }
    kill(pid(&holder), Signal::KILL);
    holder.wait().unwrap();
    assert_eq!(stage.run(&["lock", "-w", "10", "t", "true"]).0, 0);
}

#[test]
fn a_try_after_a_killed_holder_is_granted() {
    try_after_a_kill(false);
}

#[test]
fn a_try_after_a_killed_group_is_granted() {
    try_after_a_kill(true);
}

/// The command that a killed `farlock` leaves is being killed too: a try waits for that moment.
#[test]
fn a_try_in_the_moment_of_a_kill_is_granted() {
    let stage = Stage::new();
    for round in 0..20 {
        let file = stage.file(&format!("begun-{round}"));
        let line = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 100", file.display());
        let mode = if round % 2 == 0 { "-x" } else { "-s" };
        let mut holder = stage.farlock(&["lock", mode, "b", "--", "sh", "-c", &line]);
        let mut holder = holder.spawn().unwrap();
        number(&stage, &file);
        kill(pid(&holder), Signal::KILL);
        let (status, _, said) =
            ended(stage.farlock(&["lock", "b", "-n", "true"]).output().unwrap());
        assert_eq!(status, 0, "{round}: {said}");
        holder.wait().unwrap();
    }
}

#[test]
fn a_writer_that_timed_out_keeps_no_reader_out() {
    let stage = Stage::new();
    let mut holder = stage.farlock(&["lock", "t", "-s", "--", "sleep", "100"]).spawn().unwrap();
    stage.until(|| stage.ls().contains(&format!("\"pid\":{},", holder.id())));
    for _ in 0..5 {
        assert_eq!(stage.run(&["lock", "-w", "0.05", "t", "true"]).0, 1);
        assert_eq!(stage.run(&["lock", "-s", "-n", "t", "true"]).0, 0);
    }
    kill(pid(&holder), Signal::TERM);
    holder.wait().unwrap();
    assert_eq!(stage.run(&["lock", "-n", "t", "true"]).0, 0);
}
