//! `farlock lock` at a terminal, under a shell with job control.

use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::stage::terminal::{INTERRUPT, SUSPEND, Shell};
use crate::stage::{Stage, kill, number};

/// A command that says it has begun, and then repeats two lines.
const PARROT: &str = "sh -c 'echo begun; for i in 1 2; do read line; echo \"it is $line\"; done'";

impl Shell {
    /// Runs this line under the lock, until its command says it has begun.
    fn lock(&mut self, command: &str) {
        self.types(&format!("\"$FARLOCK\" lock t -- {command}\n"));
        self.shows("begun");
    }

    /// Waits until the shell has the terminal, which it only reads in the foreground.
    fn is_back(&mut self, status: i32) {
        self.types("echo status $?\n");
        self.shows(&format!("status {status}"));
    }
}

fn assert_held(stage: &Stage, held: bool) {
    assert_eq!(stage.run(&["lock", "-n", "t", "true"]).0, i32::from(held));
}

/// The `farlock lock` that holds.
fn holder(stage: &Stage) -> Pid {
    let ls = stage.ls();
    let pid = ls.split_once("\"pid\":").unwrap().1;
    Pid::from_raw(pid.split(',').next().unwrap().parse().unwrap()).unwrap()
}

fn is_stopped(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with('T')
}

#[test]
fn control_c_ends_the_command_and_releases() {
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    shell.lock("sh -c 'echo begun; exec sleep 1000'");
    assert_held(&stage, true);
    shell.types(INTERRUPT);
    shell.is_back(128 + 2);
    assert_held(&stage, false);
}

#[test]
fn a_stopped_command_keeps_the_lock_and_goes_on_in_the_foreground() {
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    shell.lock(PARROT);
    for line in ["one", "two"] {
        shell.types(SUSPEND);
        shell.shows("topped");
        assert_held(&stage, true);
        shell.types("echo \"the shell's\"\n");
        shell.shows("the shell's");
        shell.types("fg\n");
        // What the shell says when the command goes on: its next line is the command's.
        shell.shows("lock t");
        shell.types(&format!("{line}\n"));
        shell.shows(&format!("it is {line}"));
    }
    shell.is_back(0);
    assert_held(&stage, false);
}

/// What was asked of the guardian before it was stopped again was answered when that had stopped,
/// and was read when it went on: so `farlock` stopped itself.
#[test]
fn a_command_that_is_stopped_again_at_once_goes_on_in_the_foreground() {
    let stage = Stage::new();
    let (mut shell, file) = (Shell::new(&stage), stage.file("pid"));
    let repeat = "echo begun; while read -r line; do echo \"it is $line\"; done";
    shell.lock(&format!("sh -c 'echo $$ >{}; {repeat}'", file.display()));
    let command = Pid::from_raw(number(&stage, &file) as i32).unwrap();
    for turn in 0..100_u64 {
        std::thread::sleep(Duration::from_micros(15_000 + turn * 100));
        shell.types(SUSPEND);
        // Both are said of the job.
        shell.shows("topped");
        shell.shows("lock t");
        // Until then it may read what is typed for the shell.
        stage.until(|| is_stopped(command));
        shell.types("fg\n");
        shell.shows("lock t");
        shell.types(&format!("{turn}\n"));
        shell.shows(&format!("it is {turn}"));
    }
}

/// As pagers and editors do. Nobody but `farlock` can tell the shell.
#[test]
fn a_command_that_stops_itself_alone_gives_the_shell_back() {
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    shell.lock("sh -c 'echo begun; kill -STOP $$; echo on'");
    shell.shows("topped");
    assert_held(&stage, true);
    shell.types("fg\n");
    shell.shows("lock t");
    shell.shows("on\r\n");
    shell.is_back(0);
    assert_held(&stage, false);
}

/// Started in the background it was never to get the terminal: brought to the foreground it stopped
/// again at its first read.
#[test]
fn what_began_in_the_background_reads_the_terminal_in_the_foreground() {
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    shell.lock(&format!("{PARROT} &"));
    let holder = holder(&stage);
    stage.until(|| is_stopped(holder));
    shell.types("fg\n");
    shell.shows("lock t");
    for line in ["one", "two"] {
        shell.types(&format!("{line}\n"));
        shell.shows(&format!("it is {line}"));
    }
    shell.is_back(0);
    assert_held(&stage, false);
}

/// The lock that a script held in the background took the script's terminal away: the script was
/// stopped when it read its next line.
#[test]
fn a_script_keeps_its_terminal_while_it_holds_a_lock_in_the_background() {
    let stage = Stage::new();
    let script = stage.file("script");
    let holding = "\"$FARLOCK\" lock t -- sh -c 'echo begun; exec sleep 1000' &";
    std::fs::write(&script, format!("{holding}\nread line\necho \"it is $line\"\nkill $!\nwait\n"))
        .unwrap();
    let mut shell = Shell::new(&stage);
    shell.types(&format!("sh {}\n", script.display()));
    shell.shows("begun");
    shell.types("mine\n");
    shell.shows("it is mine");
    shell.is_back(0);
    assert_held(&stage, false);
}

/// Its input is a file, so the terminal stays with `farlock`, which passes on what is typed there.
#[test]
fn without_the_terminal_as_input_it_stops_and_ends_from_there_as_well() {
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    let says_when_it_goes_on = "trap \"echo on\" CONT; echo begun; while :; do sleep .1; done";
    shell.lock(&format!("sh -c '{says_when_it_goes_on}' < /dev/null"));
    shell.types(SUSPEND);
    shell.shows("topped");
    assert_held(&stage, true);
    shell.types("fg\n");
    shell.shows("lock t");
    shell.shows("on\r\n");
    shell.types(INTERRUPT);
    shell.is_back(128 + 2);
    assert_held(&stage, false);
}

#[test]
fn a_killed_farlock_leaves_the_terminal_to_the_shell() {
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    shell.lock("sh -c 'echo begun; exec sleep 1000'");
    kill(holder(&stage), Signal::KILL);
    shell.is_back(128 + 9);
    // The lock is free when the last of what ran under it is gone.
    assert_eq!(stage.run(&["lock", "t", "true"]).0, 0);
}
