//! `farlock lock` as people and scripts use it: flock(1)'s behaviour, tokens, deaths.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use farlock::{AcquireError, Session};
use rustix::process::{Pid, Signal, kill_process};

use crate::stage::{Stage, ended, is_running, kill, now_ns, number, pid};

/// `farlock lock` that notes its time into a file as soon as it holds the lock.
fn note_when_granted(stage: &Stage, name: &str, file: &str) -> Child {
    let line = format!("cat /proc/uptime > {}", stage.file(file).display());
    stage.farlock(&["lock", name, "--", "sh", "-c", &line]).spawn().unwrap()
}

/// The guardian of a running `farlock lock`: its only child.
fn guardian(of: &Child) -> Pid {
    let children = format!("/proc/{0}/task/{0}/children", of.id());
    let children = std::fs::read_to_string(children).unwrap();
    Pid::from_raw(children.trim().parse().unwrap()).unwrap()
}

/// Those that look found places of their own by giving up those of the dead: a holder that had died
/// was shown for a few looks, and then the lock as if nobody had it.
#[test]
fn a_dead_holder_is_shown_however_often_it_is_looked_at() {
    let stage = Stage::new();
    let mut holder = stage.hold("a", "sleep 60");
    holder.kill().unwrap();
    holder.wait().unwrap();
    stage.until(|| stage.ls().contains("\"state\":\"dead\""));
    for look in 0..30 {
        assert!(stage.ls().contains("\"state\":\"dead\""), "look {look}: {}", stage.ls());
    }
    assert_eq!(stage.run(&["lock", "-n", "a", "true"]).0, 0);
}

/// Waiting for a holder that is stopped was the advice, which may be for ever.
#[test]
fn how_a_stopped_holder_goes_on_is_said() {
    let stage = Stage::new();
    let mut hold = stage.farlock(&["lock", "a", "--", "sleep", "60"]);
    let mut holder = hold.process_group(0).spawn().unwrap();
    stage.until(|| stage.ls().contains(&format!("\"pid\":{},", holder.id())));
    let try_it = |limit: &[&str]| stage.run(&[&["lock", "a"], limit, &["--", "true"]].concat());
    assert!(try_it(&["-n"]).2.contains("hint: wait for it"));
    stage.stop(pid(&holder));
    for limit in [&["-n"][..], &["-w", "0.1"]] {
        let (status, _, said) = try_it(limit);
        let command = format!("`kill -CONT -{}`", holder.id());
        assert!(status == 1 && said.contains(&command), "{said}");
    }
    // It is the command of a shell, and does what is said of it.
    let sent = Command::new("sh").arg("-c").arg(format!("kill -CONT -{}", holder.id())).status();
    assert!(sent.unwrap().success());
    stage.until(|| try_it(&["-n"]).2.contains("hint: wait for it"));
    holder.kill().unwrap();
    holder.wait().unwrap();
}

/// A command that asks for the lock under which it runs was told to wait for it, which is for ever.
#[test]
fn a_command_is_told_that_it_runs_under_the_holder() {
    let stage = Stage::new();
    let program = env!("CARGO_BIN_EXE_farlock");
    // Under another shell's holder one is to wait.
    let mut holder = stage.hold("b", "sleep 60");
    for limit in [&["-n"][..], &["-w", "0.1"]] {
        let inner = [&[program, "lock", "a"], limit, &["--", "true"]].concat();
        let outer = [&["lock", "a", "--"], &inner[..]].concat();
        let (status, _, said) = stage.run(&outer);
        assert!(status == 1 && said.contains("hint: this runs under process"), "{said}");
        let (status, _, said) = stage.run(&[&["lock", "b"], limit, &["--", "true"]].concat());
        assert!(status == 1 && said.contains("hint: wait"), "{said}");
    }
    holder.kill().unwrap();
    holder.wait().unwrap();
}

/// And one that waits for ever said nothing.
#[test]
fn a_command_that_waits_for_the_holder_above_it_says_so() {
    let stage = Stage::new();
    let inner = [env!("CARGO_BIN_EXE_farlock"), "lock", "a", "--", "true"];
    let mut outer = stage.farlock(&[&["lock", "a", "--"], &inner[..]].concat());
    let mut outer = outer.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(outer.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let holder = format!("hint: this runs under process {}", outer.id());
    assert!(said.contains("the lock 'a' is waited for") && said.contains(&holder), "{said}");
    kill(pid(&outer), Signal::TERM);
    outer.wait().unwrap();
}

#[test]
fn the_status_of_the_command_is_returned() {
    let stage = Stage::new();
    let rows: [(&[&str], i32); 9] = [
        (&["lock", "t", "--", "true"], 0),
        (&["lock", "t", "sh", "-c", "exit 7"], 7),
        (&["lock", "t", "-c", "exit 3"], 3),
        (&["lock", "-x", "t", "--", "sh", "-c", "kill -TERM $$"], 128 + 15),
        (&["lock", "-s", "t", "--", "sh", "-c", "kill -KILL $$"], 128 + 9),
        (&["lock", "t", "--", "/no/such/program"], 127),
        (&["lock", "t", "--", "/dev/null"], 126),
        (&["lock", "t"], 64),
        (&["lock", "", "true"], 64),
    ];
    for (arguments, status) in rows {
        assert_eq!(stage.run(arguments).0, status, "{arguments:?}");
    }
    assert!(!stage.ls().contains("pid"), "nothing is left behind");
}

#[test]
fn conflicts_end_as_with_flock() {
    let stage = Stage::new();
    let mut holder = stage.hold("t", "sleep 10");
    let rows: [(&[&str], i32); 6] = [
        (&["lock", "-n", "t", "true"], 1),
        (&["lock", "t", "-n", "-E", "9", "true"], 9),
        (&["lock", "--nb", "-s", "t", "true"], 1),
        (&["lock", "-w", "0", "t", "true"], 1),
        (&["lock", "-w", "0.2", "-E", "42", "t", "true"], 42),
        (&["lock", "-n", "other", "true"], 0),
    ];
    for (arguments, status) in rows {
        assert_eq!(stage.run(arguments).0, status, "{arguments:?}");
    }
    let begun = Instant::now();
    let (status, _, said) = stage.run(&["lock", "-w", "0.3", "t", "true"]);
    let waited = begun.elapsed();
    assert_eq!(status, 1);
    assert!(waited >= Duration::from_millis(300) && waited < Duration::from_secs(3), "{waited:?}");
    let holder_named = format!("process {} (sh -c sleep 10), alone", holder.id());
    assert!(said.contains("'t'") && said.contains(&holder_named), "{said}");
    assert!(said.contains("hint:"), "{said}");
    let (status, _, said) = stage.run(&["lock", "-n", "-q", "t", "true"]);
    assert_eq!((status, said.as_str()), (1, ""));
    kill(pid(&holder), Signal::TERM);
    assert_eq!(holder.wait().unwrap().signal(), Some(15));
}

#[test]
fn shared_holders_run_together_and_exclude_writers() {
    let stage = Stage::new();
    let meet = |me: &str, other: &str| {
        let (me, other) = (stage.file(me), stage.file(other));
        let line = format!(
            "touch {}; for i in $(seq 500); do [ -e {} ] && exit 0; sleep .01; done; exit 1",
            me.display(),
            other.display()
        );
        stage.farlock(&["lock", "-s", "t", "--", "sh", "-c", &line]).spawn().unwrap()
    };
    let (mut one, mut two) = (meet("one", "two"), meet("two", "one"));
    assert!(one.wait().unwrap().success() && two.wait().unwrap().success());
    let mut reader = stage.farlock(&["lock", "-s", "t", "--", "sleep", "10"]).spawn().unwrap();
    stage.until(|| stage.ls().contains("shared"));
    assert_eq!(stage.run(&["lock", "-n", "-s", "t", "true"]).0, 0);
    assert_eq!(stage.run(&["lock", "-n", "-x", "t", "true"]).0, 1);
    kill(pid(&reader), Signal::INT);
    assert_eq!(reader.wait().unwrap().signal(), Some(2));
}

#[test]
fn the_command_finds_name_and_token() {
    let stage = Stage::new();
    let mut command = stage.farlock(&["lock", "a b", "--", "sh", "-c"]);
    command.arg("echo \"$FARLOCK_NAME\" ${FARLOCK_DEADLINE-none} $FARLOCK_TOKEN");
    command.env("FARLOCK_DEADLINE", "of somebody else");
    let (status, printed, _) = ended(command.output().unwrap());
    assert_eq!(status, 0);
    assert!(printed.starts_with("a b none "), "{printed}");
}

#[test]
fn tokens_increase_also_where_the_region_is_deleted_in_between() {
    let stage = Stage::new();
    let token = || -> u64 {
        let (status, printed, said) =
            stage.run(&["lock", "t", "--", "sh", "-c", "echo $FARLOCK_TOKEN"]);
        assert_eq!(status, 0, "{said}");
        printed.trim().parse().unwrap()
    };
    let mut last = token();
    for turn in 0..8 {
        match turn {
            2 => std::fs::remove_file(stage.dir().join("default")).unwrap(),
            4 => assert_eq!(stage.run(&["region", "reset", "default"]).0, 0),
            6 => assert_eq!(stage.run(&["region", "remove", "default"]).0, 0),
            _ => {}
        }
        let next = token();
        assert!(next > last, "turn {turn}: {next} after {last}");
        last = next;
    }
}

/// A file that a command writes when it begins, another that it waits for, and its line.
fn until_told(stage: &Stage) -> (PathBuf, PathBuf, String) {
    let (begun, go) = (stage.file("begun"), stage.file("go"));
    let (begins, waits) = (begun.display(), go.display());
    let line = format!("echo 1 > {begins}; while [ ! -e {waits} ]; do sleep .01; done");
    (begun, go, line)
}

#[test]
fn a_holder_whose_region_is_deleted_is_told() {
    let stage = Stage::new();
    let (begun, go, line) = until_told(&stage);
    let line = format!("{line}; exit 3");
    let mut holder = stage.farlock(&["lock", "t", "-c", &line]);
    let holder = holder.stderr(Stdio::piped()).spawn().unwrap();
    number(&stage, &begun);
    std::fs::remove_file(stage.dir().join("default")).unwrap();
    std::fs::write(go, "").unwrap();
    let (status, _, said) = ended(holder.wait_with_output().unwrap());
    assert_eq!(status, 3);
    assert!(said.contains("the lock 't' was lost while the command ran"), "{said}");
    assert!(said.contains("[lost]\n   hint: others may have had it too"), "{said}");
}

/// Who opens a region of this name would find another one.
#[test]
fn a_holder_whose_region_is_moved_is_told() {
    let stage = Stage::new();
    let (begun, go, line) = until_told(&stage);
    let mut holder = stage.farlock(&["lock", "t", "-c", &line]);
    let holder = holder.stderr(Stdio::piped()).spawn().unwrap();
    number(&stage, &begun);
    std::fs::rename(stage.dir().join("default"), stage.dir().join("moved")).unwrap();
    assert_eq!(stage.run(&["lock", "-n", "t", "true"]).0, 0, "another region");
    std::fs::write(go, "").unwrap();
    let (_, _, said) = ended(holder.wait_with_output().unwrap());
    assert!(said.contains("the lock 't' was lost while the command ran"), "{said}");
}

/// Of each place that such a command had, an empty file stayed.
#[test]
fn what_killed_commands_leave_of_tethers_is_removed_by_the_next() {
    let stage = Stage::new();
    let tethers = || {
        let names = std::fs::read_dir(stage.dir()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains(".tether-")).count()
    };
    let holders: Vec<_> = ["a", "b", "c"]
        .map(|name| {
            let file = stage.file(name);
            let line = format!("echo $$ > {}; exec sleep 60", file.display());
            let mut lock = stage.farlock(&["lock", name, "-c", &line]);
            let holder = lock.process_group(0).spawn().unwrap();
            number(&stage, &file);
            holder
        })
        .into();
    assert_eq!(tethers(), holders.len());
    for mut holder in holders {
        rustix::process::kill_process_group(pid(&holder), Signal::KILL).unwrap();
        holder.wait().unwrap();
    }
    // Those that run below it end a little later.
    stage.until(|| stage.run(&["lock", "d", "true"]).0 == 0 && tethers() == 0);
}

/// A region is not taken from those who use it by a slip of the hand.
#[test]
fn a_region_in_use_is_removed_by_force_alone() {
    let stage = Stage::new();
    let (begun, go, line) = until_told(&stage);
    let mut holder = stage.farlock(&["lock", "t", "-c", &line]);
    let holder = holder.stderr(Stdio::piped()).spawn().unwrap();
    number(&stage, &begun);
    for action in ["remove", "reset"] {
        let (status, _, said) = stage.run(&["region", action, "default"]);
        assert_eq!(status, 1, "{said}");
        let whose = format!("at its lock 't' is process {}", holder.id());
        assert!(said.contains(&whose) && said.contains("--force"), "{said}");
    }
    assert_eq!(stage.run(&["lock", "-n", "t", "true"]).0, 1, "it is still held");
    assert_eq!(stage.run(&["region", "remove", "--force", "default"]).0, 0);
    std::fs::write(go, "").unwrap();
    let (_, _, said) = ended(holder.wait_with_output().unwrap());
    assert!(said.contains("the lock 't' was lost while the command ran"), "{said}");
}

/// They may ask for a lock at any moment.
#[test]
fn a_region_whose_sessions_hold_nothing_is_in_use_too() {
    let stage = Stage::new();
    let session = stage.session();
    for action in ["remove", "reset"] {
        let (status, _, said) = stage.run(&["region", action, "default"]);
        let whose = format!("by process {}", std::process::id());
        assert!(status == 1 && said.contains(&whose) && said.contains("[region-in-use]"), "{said}");
    }
    session.lock("t").exclusive().blocking().unwrap().release().blocking().unwrap();
    drop(session);
    assert_eq!(stage.run(&["region", "remove", "default"]).0, 0);
}

/// A waiter that was killed is in nobody's way, and listed with `--all` alone.
#[test]
fn a_waiter_that_died_is_not_listed() {
    let stage = Stage::new();
    let _holder = stage.session().lock("t").exclusive().blocking().unwrap();
    let mut waiter = stage.farlock(&["lock", "t", "true"]).spawn().unwrap();
    stage.until_waiting(1);
    waiter.kill().unwrap();
    waiter.wait().unwrap();
    let listed = |words: &[&str]| stage.run(words).1;
    let (shown, json) = (listed(&["ls"]), listed(&["ls", "--json"]));
    assert!(shown.contains("holds") && !shown.contains("left over"), "{shown}");
    assert!(json.contains("\"waiters\":[]"), "{json}");
    let all = listed(&["ls", "--all"]);
    assert!(all.contains("left over"), "{all}");
}

/// What is printed for a program is whole.
#[test]
fn long_names_are_cut_for_terminals_alone() {
    let stage = Stage::new();
    let (region, name) = ("r".repeat(200), "n".repeat(255));
    let run = |words: &[&str]| stage.run(words).1;
    let line = format!("\"$0\" ls --region {region}");
    let words = ["lock", "--region", &region, &name, "--", "sh", "-c", &line];
    let listed = run(&[&words[..], &[env!("CARGO_BIN_EXE_farlock")]].concat());
    assert!(listed.contains(&name), "{listed}");
    assert_eq!(run(&["region", "list"]), format!("{region}\n"));
}

/// By a relative directory, what is locked would depend on where one is.
#[test]
fn a_relative_directory_is_refused() {
    let stage = Stage::new();
    for variable in ["FARLOCK_DIR", "FARLOCK_STATE_DIR"] {
        let mut command = stage.farlock(&["lock", "t", "true"]);
        let (status, _, said) = ended(command.env(variable, "here").output().unwrap());
        assert_eq!(status, 64, "{said}");
        assert!(said.contains(variable) && said.contains("absolute"), "{said}");
    }
}

/// The kernel would send a signal for a file that is larger than allowed.
#[test]
fn a_limit_on_files_is_an_error() {
    let stage = Stage::new();
    let line = "ulimit -f 1000; exec \"$0\" lock t true";
    let mut command = stage.program("sh");
    command.args(["-c", line, env!("CARGO_BIN_EXE_farlock")]);
    let (status, _, said) = ended(command.output().unwrap());
    assert!(status == 69 && said.contains("no space"), "{status} {said}");
}

/// Others may hold the lock meanwhile: the end of the command is too late to hear of that.
#[test]
fn a_holder_is_told_of_a_deleted_region_while_its_command_runs() {
    let stage = Stage::new();
    let (begun, go, line) = until_told(&stage);
    let mut holder = stage.farlock(&["lock", "t", "-c", &line]);
    let mut holder = holder.stderr(Stdio::piped()).spawn().unwrap();
    number(&stage, &begun);
    std::fs::remove_file(stage.dir().join("default")).unwrap();
    let mut said = String::new();
    let mut errors = std::io::BufReader::new(holder.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut errors, &mut said).unwrap();
    assert!(said.contains("the lock 't' is lost, and others may be granted it"), "{said}");
    std::fs::write(go, "").unwrap();
    assert!(holder.wait().unwrap().success());
}

/// It would run its command beside those that found the next region.
#[test]
fn a_waiter_whose_region_is_deleted_does_not_run_its_command() {
    let stage = Stage::new();
    let (begun, go, line) = until_told(&stage);
    let mut holder = stage.farlock(&["lock", "t", "-c", &line]).spawn().unwrap();
    number(&stage, &begun);
    let mut waiter = stage.farlock(&["lock", "t", "--", "echo", "ran"]);
    let waiter = waiter.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    stage.until_waiting(1);
    std::fs::remove_file(stage.dir().join("default")).unwrap();
    std::fs::write(go, "").unwrap();
    let (status, printed, said) = ended(waiter.wait_with_output().unwrap());
    assert_eq!((status, printed.as_str()), (69, ""), "{said}");
    assert!(said.contains("its region was removed"), "{said}");
    holder.wait().unwrap();
}

/// Neither a place that holds no files nor a full device is a reason to panic or to be silent.
#[test]
fn what_cannot_be_written_is_said() {
    let stage = Stage::new();
    let in_proc = |variable: &str| {
        let mut command = stage.farlock(&["lock", "t", "true"]);
        ended(command.env(variable, "/proc").output().unwrap())
    };
    assert_eq!(in_proc("FARLOCK_DIR").0, 69);
    let (status, _, said) = in_proc("FARLOCK_STATE_DIR");
    assert_eq!(status, 0, "tokens have a floor from the clock");
    assert!(said.contains("FARLOCK_STATE_DIR keeps nothing") && said.contains("hint: "), "{said}");
    let (status, _, said) = stage.run(&["lock", "t", "true"]);
    assert_eq!((status, said.as_str()), (0, ""), "nothing is said of one that can be used");
    let file = stage.file("a file");
    std::fs::write(&file, "").unwrap();
    for (variable, status) in [("FARLOCK_DIR", 69), ("FARLOCK_STATE_DIR", 69)] {
        let mut command = stage.farlock(&["lock", "t", "true"]);
        let ended = ended(command.env(variable, &file).output().unwrap());
        assert_eq!(ended.0, status, "{variable}: {ended:?}");
        let lines = ended.2.lines().count();
        assert!(ended.2.contains("is no directory") && lines == 2, "{ended:?}");
    }
    for listing in [&["ls", "--all"][..], &["region", "list"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let (status, _, said) = ended(
            stage
                .farlock(listing)
                .stdout(full)
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
                .wait_with_output()
                .unwrap(),
        );
        assert_eq!(status, 71, "{said}");
        assert!(said.contains("standard output"), "{said}");
    }
    for asked in ["ls", "--help"] {
        let mut shell = stage.program("sh");
        let farlock = env!("CARGO_BIN_EXE_farlock");
        shell.args(["-c", "exec \"$@\" >&-", "sh", farlock, asked]);
        let (status, _, said) = ended(shell.output().unwrap());
        assert!(status == 71 && said.contains("standard output"), "{asked}: {status} {said}");
    }
}

/// As a service and as a person, before and after a reboot, on a fresh disk: the region's file is
/// gone each time, and what is kept is another, none, or out of reach.
#[test]
fn tokens_increase_whatever_the_environment() {
    let stage = Stage::new();
    let region = format!("test-{}", std::process::id());
    let homes = [stage.file("one"), stage.file("two")];
    let environments: [&[(&str, &std::path::Path)]; 6] = [
        &[("HOME", &homes[0])],
        &[("HOME", &homes[1])],
        &[("XDG_STATE_HOME", &homes[0]), ("HOME", &homes[1])],
        &[],
        &[("XDG_STATE_HOME", &homes[1])],
        &[("HOME", std::path::Path::new("/proc"))],
    ];
    let mut last = 0;
    for turn in 0..30_usize {
        let mut command = stage.farlock(&["lock", "--region", &region, "t", "-c"]);
        command.arg("echo $FARLOCK_TOKEN").env_remove("FARLOCK_STATE_DIR");
        command.env_remove("HOME").env_remove("XDG_STATE_HOME");
        // In every order.
        command.envs(environments[turn * (1 + turn / 6) % 6].iter().copied());
        let (status, printed, said) = ended(command.output().unwrap());
        assert_eq!(status, 0, "{said}");
        let token = printed.trim().parse::<u64>().unwrap();
        assert!(token > last, "turn {turn}: {token} after {last}");
        last = token;
        std::fs::remove_file(stage.dir().join(&region)).unwrap();
        if turn % 7 == 0 {
            let _ = std::fs::remove_dir_all(&homes[turn % 2]);
        }
    }
    let of_user = format!("/var/tmp/farlock-{}", rustix::process::getuid().as_raw());
    for kept in std::fs::read_dir(of_user).unwrap().map(|entry| entry.unwrap().path()) {
        if kept.to_string_lossy().contains(&format!("/{region}.incarnation.")) {
            std::fs::remove_file(kept).unwrap();
        }
    }
}

#[test]
fn a_region_is_created_once_by_many_at_a_time() {
    let stage = Stage::new();
    let counter = stage.file("counter");
    std::fs::write(&counter, "0\n").unwrap();
    let line = format!("read n < {0}; echo $((n + 1)) > {0}", counter.display());
    let start = |_| stage.farlock(&["lock", "t", "--", "sh", "-c", &line]).spawn().unwrap();
    let mut children: Vec<Child> = (0..24).map(start).collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(number(&stage, &counter), 24);
}

#[test]
fn a_full_region_is_listed() {
    let stage = Stage::new();
    let session = Session::open(&stage.options().with_places(3)).unwrap();
    let names = ["a", "b", "c", "d"];
    let held = names.map(|name| session.lock(name).exclusive().at_once().blocking());
    assert!(matches!(held.last(), Some(Err(AcquireError::TooMany { .. }))), "{held:?}");
    let (status, listed, said) = stage.run(&["ls"]);
    assert!(status == 0 && listed.contains("holds"), "{listed}{said}");
    let (status, _, said) = stage.run(&["lock", "t", "true"]);
    assert!(status == 69 && said.contains("region-full"), "{status} {said}");
}

/// A region's file that is cut short under those who use it: a status of its own, not a signal.
/// At whichever instruction of its start a command is: what a thread does with its signals must not
/// keep out the one that tells.
#[test]
fn a_region_cut_short_under_who_starts_ends_that_with_a_status() {
    const TRIALS: u64 = 120;
    for trial in 0..TRIALS {
        let stage = Stage::new();
        assert_eq!(stage.run(&["lock", "t", "true"]).0, 0);
        let file = std::fs::File::options().write(true).open(stage.dir().join("default")).unwrap();
        let mut starting = stage.farlock(&["lock", "t", "-w", "1", "true"]);
        let child = starting.stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(trial * 5_000 / TRIALS));
        file.set_len([0, 4096, 8192][trial as usize % 3]).unwrap();
        let Output { status, stderr, .. } = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&stderr);
        assert!(matches!(status.code(), Some(0 | 69 | 70)), "trial {trial}: {status}: {said}");
    }
}

#[test]
fn a_region_cut_short_ends_commands_with_a_status() {
    let stage = Stage::new();
    let holding = ["lock", "t", "--", "sleep", "100"];
    let mut holder = stage.farlock(&holding).stderr(Stdio::piped()).spawn().unwrap();
    stage.until(|| stage.ls().contains(&format!("\"pid\":{},", holder.id())));
    let waiting = ["lock", "t", "--", "true"];
    let mut waiter = stage.farlock(&waiting).stderr(Stdio::piped()).spawn().unwrap();
    stage.until_waiting(1);
    let file = std::fs::File::options().write(true).open(stage.dir().join("default")).unwrap();
    file.set_len(8192).unwrap();
    kill(pid(&holder), Signal::TERM);
    for child in [&mut holder, &mut waiter] {
        while child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    for child in [holder, waiter] {
        let (status, _, said) = ended(child.wait_with_output().unwrap());
        assert!(status == 70 && said.contains("[region-damaged]\n   hint: "), "{status} {said}");
    }
    let (status, _, said) = stage.run(&["lock", "t", "true"]);
    assert!(status == 69 && said.contains("hint:"), "{status} {said}");
    assert_eq!(stage.run(&["region", "reset", "default"]).0, 0);
    assert_eq!(stage.run(&["lock", "t", "true"]).0, 0);
}

/// What flock(1) does with files is refused with what to do instead.
#[test]
fn what_there_is_not_is_refused_with_a_reason() {
    let stage = Stage::new();
    let rows: [&[&str]; 6] = [
        &["-u", "t"],
        &["-u", "9"],
        &["-o", "t", "true"],
        &["-F", "t", "true"],
        &["9"],
        &["-n", "9"],
    ];
    for arguments in rows {
        let (status, _, said) = stage.run(&[&["lock"], arguments].concat());
        assert_eq!(status, 64, "{arguments:?}");
        assert!(said.contains("[usage]\n   hint: "), "{said}");
    }
}

/// A process that removes a region is stopped in the middle. Where none does, nobody is waited for.
#[test]
fn limits_are_kept_while_others_remove_the_region() {
    let stage = Stage::new();
    let limited = |arguments: &[&str], status: i32, limit_ms: u64| {
        let begun = Instant::now();
        let (code, _, said) = stage.run(arguments);
        assert_eq!(code, status, "{arguments:?}: {said}");
        assert!(begun.elapsed() < Duration::from_millis(limit_ms), "{:?}", begun.elapsed());
        said
    };
    let locks = [stage.dir(), stage.state_dir()].map(|dir| {
        let mut options = std::fs::File::options();
        let options = options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(dir.join(".lock")).unwrap();
        lock.lock().unwrap();
        lock
    });
    limited(&["lock", "-n", "t", "true"], 0, 3000);
    limited(&["ls"], 0, 1000);
    // Retired, and not yet removed: the word at 56.
    let region = std::fs::File::options().write(true).open(stage.dir().join("default")).unwrap();
    region.write_all_at(&[1], 56).unwrap();
    let said = limited(&["lock", "-n", "-E", "9", "t", "true"], 9, 3000);
    assert!(said.contains("region-locked") && said.contains("hint:"), "{said}");
    limited(&["lock", "-w", "0.2", "t", "true"], 1, 1500);
    limited(&["ls"], 0, 1000);
    drop(locks);
    limited(&["lock", "-n", "t", "true"], 0, 3000);
}

/// Whenever it comes: before there is a command, while that is forked, and when it runs.
#[test]
fn a_signal_to_the_group_is_not_lost_while_the_command_starts() {
    const TRIALS: u64 = 150;
    let stage = Stage::new();
    for trial in 0..TRIALS {
        let mut command = stage.farlock(&["lock", "t", "--", "sleep", "0.3"]);
        let mut begun = command.process_group(0).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(trial * 6_000 / TRIALS));
        // Those that nobody ignores who runs tests.
        let signal = [Signal::TERM, Signal::USR1, Signal::ALARM][trial as usize % 3];
        rustix::process::kill_process_group(pid(&begun), signal).unwrap();
        let status = begun.wait().unwrap();
        assert_eq!(status.signal(), Some(signal.as_raw()), "after {trial} of {TRIALS}: {status}");
    }
}

#[test]
fn signals_reach_the_command() {
    let stage = Stage::new();
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::USR1, "USR1"), (Signal::HUP, "HUP")] {
        let ready = stage.file(name);
        let line = format!(
            "trap 'exit 5' {name}; echo 1 > {}; while :; do sleep .01; done",
            ready.display()
        );
        // Not ignored, whatever the caller of the tests has ignored: the shell could not trap it.
        let mut command = stage.program("env");
        command.arg(format!("--default-signal={name}")).arg(env!("CARGO_BIN_EXE_farlock"));
        let mut child = command.args(["lock", "t", "-c", &line]).spawn().unwrap();
        number(&stage, &ready);
        kill(pid(&child), signal);
        assert_eq!(child.wait().unwrap().code(), Some(5), "{name}");
    }
}

/// SIGTERM ends `farlock` though its command ignores it, and what that started goes along.
#[test]
fn a_command_that_ignores_its_end_is_killed_after_a_grace() {
    let stage = Stage::new();
    let ready = stage.file("ready");
    let line = format!("trap '' TERM; sleep 60 & echo $! > {}; wait; wait", ready.display());
    let mut holder = stage.farlock(&["lock", "t", "--", "sh", "-c", &line]).spawn().unwrap();
    let below = number(&stage, &ready) as i32;
    let begun = Instant::now();
    kill(pid(&holder), Signal::TERM);
    assert_eq!(holder.wait().unwrap().code(), Some(128 + 9));
    assert!(begun.elapsed() >= Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(!is_running(below));
    assert_eq!(stage.run(&["lock", "-n", "t", "true"]).0, 0);
}

#[test]
fn what_was_ignored_at_the_start_stays_ignored() {
    // As nohup does: the command must survive a hang-up like one that runs without farlock.
    let stage = Stage::new();
    let ready = stage.file("ready");
    let line = format!("echo 1 > {}; sleep .3; echo survived", ready.display());
    let farlock = env!("CARGO_BIN_EXE_farlock");
    let mut nohup = stage.program("sh");
    nohup.args(["-c", "trap '' HUP; exec \"$0\" lock t -- sh -c \"$1\"", farlock, &line]);
    let child = nohup.stdout(Stdio::piped()).spawn().unwrap();
    number(&stage, &ready);
    kill(pid(&child), Signal::HUP);
    let (status, printed, _) = ended(child.wait_with_output().unwrap());
    assert_eq!((status, printed.as_str()), (0, "survived\n"));
}

/// A command that notes its own number and its child's, and ends neither.
fn family(stage: &Stage) -> (String, [std::path::PathBuf; 2]) {
    let files = [stage.file("parent"), stage.file("child")];
    let line = format!(
        "sleep 100 & echo $! > {1}.new; mv {1}.new {1}; echo $$ > {0}; wait",
        files[0].display(),
        files[1].display()
    );
    (line, files)
}

#[test]
fn a_killed_holder_takes_its_command_along_before_the_next_is_granted() {
    let stage = Stage::new();
    let (line, files) = family(&stage);
    let mut holder = stage.farlock(&["lock", "t", "--", "sh", "-c", &line]).spawn().unwrap();
    let pids = files.map(|file| number(&stage, &file) as i32);
    let check = format!("kill -0 {} 2>/dev/null && echo 1 || echo 0", pids[0]);
    let mut next = stage.farlock(&["lock", "t", "--", "sh", "-c", &check]);
    let next = next.stdout(Stdio::piped()).spawn().unwrap();
    stage.until_waiting(1);
    kill(pid(&holder), Signal::KILL);
    let (status, still_there, _) = ended(next.wait_with_output().unwrap());
    // A dead process whose new parent has not yet reaped it can still be named.
    assert!(status == 0 && (still_there == "0\n" || !is_running(pids[0])), "{still_there}");
    assert!(pids.iter().all(|pid| !is_running(*pid)), "{pids:?}");
    assert_eq!(holder.wait().unwrap().signal(), Some(9));
}

#[test]
fn a_killed_guardian_takes_the_command_along_too() {
    let stage = Stage::new();
    let (line, files) = family(&stage);
    let mut holder = stage.farlock(&["lock", "t", "--", "sh", "-c", &line]).spawn().unwrap();
    let pids = files.map(|file| number(&stage, &file) as i32);
    let mut next = note_when_granted(&stage, "t", "granted");
    stage.until_waiting(1);
    kill(guardian(&holder), Signal::KILL);
    assert!(next.wait().unwrap().success());
    assert!(pids.iter().all(|pid| !is_running(*pid)), "{pids:?}");
    assert_eq!(holder.wait().unwrap().code(), Some(128 + 9));
}

#[test]
fn a_waiter_whose_guardian_was_killed_says_that_nothing_was_run() {
    let stage = Stage::new();
    let mut holder = stage.hold("t", "sleep 100");
    let mut waiter = stage.farlock(&["lock", "t", "--", "touch"]);
    let waiter = waiter.arg(stage.file("begun")).stderr(Stdio::piped()).spawn().unwrap();
    stage.until_waiting(1);
    let guardian = guardian(&waiter);
    kill(guardian, Signal::KILL);
    // One that is still dying may be told to run it, as far as `farlock` knows.
    let stat = format!("/proc/{}/stat", guardian.as_raw_nonzero());
    stage.until(|| !std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")));
    kill(pid(&holder), Signal::TERM);
    holder.wait().unwrap();
    let (status, _, said) = ended(waiter.wait_with_output().unwrap());
    assert_eq!((status, said.contains("nothing was run")), (71, true), "{said}");
    assert!(!stage.file("begun").exists());
    assert_eq!(stage.run(&["lock", "-n", "t", "true"]).0, 0);
}

/// A command whose child leaves its group and session, and notes its number.
fn escaping(stage: &Stage) -> (String, std::path::PathBuf) {
    let file = stage.file("escaped");
    (format!("setsid sh -c 'echo $$ > {}; exec sleep 100' & wait", file.display()), file)
}

#[test]
fn a_killed_holder_takes_those_along_that_left_its_group() {
    let stage = Stage::new();
    let (line, file) = escaping(&stage);
    let mut holder = stage.farlock(&["lock", "t", "--", "sh", "-c", &line]).spawn().unwrap();
    let escaped = number(&stage, &file) as i32;
    kill(pid(&holder), Signal::KILL);
    holder.wait().unwrap();
    assert_eq!(stage.run(&["lock", "-w", "10", "t", "true"]).0, 0);
    assert!(!is_running(escaped));
}

/// The guardian cannot leave what the command left running before the lock is released.
#[test]
fn a_killed_holder_takes_those_along_whose_command_dies_with_it() {
    for trial in 0..30 {
        let stage = Stage::new();
        let (line, file) = escaping(&stage);
        let mut holder = stage.farlock(&["lock", "t", "--", "sh", "-c", &line]).spawn().unwrap();
        let escaped = number(&stage, &file) as i32;
        let command = guardian(&holder);
        let command = std::fs::read_to_string(format!("/proc/{command}/task/{command}/children"));
        let command = command.unwrap().split_whitespace().next().unwrap().parse().unwrap();
        let command = Pid::from_raw(command).unwrap();
        if trial % 2 == 0 {
            // Stopped, it cannot release the lock as after a command that ended by itself, whose
            // children may go on.
            stage.stop(pid(&holder));
            kill(command, Signal::TERM);
            kill(pid(&holder), Signal::KILL);
        } else {
            kill(pid(&holder), Signal::KILL);
            // The guardian may have been quicker.
            let _ = kill_process(command, Signal::TERM);
        }
        holder.wait().unwrap();
        assert_eq!(stage.run(&["lock", "-w", "5", "t", "true"]).0, 0, "trial {trial}");
        assert!(!is_running(escaped), "trial {trial}");
    }
}

#[test]
fn nobody_is_granted_beside_an_orphan() {
    // Nobody is left to kill what the command started: while it runs, the lock stays taken.
    let stage = Stage::new();
    let (line, file) = escaping(&stage);
    let mut holder = stage.farlock(&["lock", "t", "--", "sh", "-c", &line]).spawn().unwrap();
    let escaped = Pid::from_raw(number(&stage, &file) as i32).unwrap();
    let guardian = guardian(&holder);
    stage.stop(pid(&holder));
    kill(guardian, Signal::KILL);
    kill(pid(&holder), Signal::KILL);
    holder.wait().unwrap();
    assert_eq!(stage.run(&["lock", "-w", "0.3", "t", "true"]).0, 1);
    assert!(stage.ls().contains("\"orphaned\""), "{}", stage.ls());
    kill(escaped, Signal::KILL);
    assert_eq!(stage.run(&["lock", "-w", "10", "t", "true"]).0, 0);
}

/// What a command leaves running holds nothing, not even a place.
#[test]
fn what_is_left_in_the_background_uses_nothing_up() {
    let stage = Stage::new();
    let file = stage.file("left");
    let line = format!("sleep 100 > /dev/null 2>&1 & echo $! >> {}", file.display());
    for _ in 0..10 {
        assert_eq!(stage.run(&["lock", "t", "-c", &line]).0, 0);
    }
    assert_eq!(stage.ls(), "");
    let left = std::fs::read_to_string(&file).unwrap();
    let left: Vec<i32> = left.lines().map(|pid| pid.parse().unwrap()).collect();
    assert!(left.len() == 10 && left.iter().all(|pid| is_running(*pid)));
    left.iter().for_each(|pid| kill(Pid::from_raw(*pid).unwrap(), Signal::KILL));
    let hidden = std::fs::read_dir(stage.dir()).unwrap();
    let names: Vec<_> = hidden.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("tether")), "{names:?}");
}

#[test]
fn a_killed_waiter_is_passed_over() {
    let stage = Stage::new();
    let mut holder = stage.hold("t", "sleep 100");
    let mut dying = note_when_granted(&stage, "t", "never");
    stage.until_waiting(1);
    let mut next = note_when_granted(&stage, "t", "granted");
    stage.until_waiting(2);
    kill(pid(&dying), Signal::KILL);
    dying.wait().unwrap();
    kill(pid(&holder), Signal::TERM);
    holder.wait().unwrap();
    assert!(next.wait().unwrap().success());
    assert!(!stage.file("never").exists() && stage.file("granted").exists());
}

#[test]
fn a_dead_holder_is_marked_until_somebody_takes_over() {
    let stage = Stage::new();
    let mut holder = stage.hold("t", "sleep 100");
    kill(pid(&holder), Signal::KILL);
    holder.wait().unwrap();
    stage.until(|| stage.ls().contains("\"dead\""));
    assert!(stage.ls().contains(&format!("\"pid\":{}", holder.id())));
    assert_eq!(stage.run(&["lock", "-w", "10", "t", "true"]).0, 0);
    assert_eq!(stage.ls(), "");
}

#[test]
fn take_over_is_a_matter_of_milliseconds() {
    let stage = Stage::new();
    let mut took_ms: Vec<f64> = (0..15)
        .map(|_| {
            let mut holder = stage.hold("t", "sleep 100");
            let next = stage
                .farlock(&["lock", "t", "--", "cat", "/proc/self/stat"])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            stage.until_waiting(1);
            let killed = now_ns();
            kill(pid(&holder), Signal::KILL);
            assert!(next.wait_with_output().unwrap().status.success());
            let took = (now_ns() - killed) as f64 / 1e6;
            holder.wait().unwrap();
            took
        })
        .collect();
    took_ms.sort_by(f64::total_cmp);
    let (median, worst) = (took_ms[7], took_ms[14]);
    println!("kill to the end of the waiter's command: median {median:.1} ms, worst {worst:.1} ms");
    assert!(median < 30.0, "{took_ms:?}");
}
