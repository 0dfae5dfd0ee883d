//! Specification of pairs that end with their owner: however that ends, nobody sees them from then
//! on, and what they leave is freed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use farlock::{Kv, KvError, Token};
use rustix::process::Signal;

use crate::stage::serving::Serving;
use crate::stage::{self, Stage, kill, pid};

fn store(stage: &Stage) -> Kv {
    Kv::open(&stage.options(), "default").unwrap()
}

fn value(kv: &Kv, key: &str) -> Option<String> {
    kv.get(key).unwrap().map(|value| String::from_utf8(value).unwrap())
}

#[test]
fn a_pair_ends_with_the_last_handle_of_its_store() {
    let stage = Stage::new();
    let other = store(&stage);
    let session = stage.session();
    let kv = session.kv("default").unwrap();
    kv.put_ephemeral("k", "v").unwrap();
    kv.another().unwrap().put_ephemeral("k2", "v").unwrap();
    assert_eq!(
        (value(&other, "k").as_deref(), value(&other, "k2").as_deref()),
        (Some("v"), Some("v"))
    );
    assert_eq!(other.time_left("k").unwrap(), Some(None));
    let pairs: Vec<_> = other.scan().map(Result::unwrap).collect();
    assert!(pairs.len() == 2 && pairs.iter().all(|pair| pair.is_ephemeral));
    // Handles of one session are one owner, and others are not.
    drop(kv.another().unwrap());
    drop(session.kv("default").unwrap());
    drop(stage.session().kv("default").unwrap());
    assert_eq!(value(&other, "k").as_deref(), Some("v"));
    let watch = kv.watch("k").unwrap();
    drop(kv);
    assert_eq!(value(&other, "k").as_deref(), Some("v"), "a watch is a handle too");
    drop(watch);
    assert_eq!((value(&other, "k"), value(&other, "k2")), (None, None));
    assert_eq!(other.scan().count(), 0);
    assert_eq!(other.sweep().unwrap(), 0, "they were taken away");
    assert!(!other.remove("k").unwrap() && other.insert("k", "x").unwrap());
}

#[test]
fn what_others_do_to_an_ephemeral_pair_is_theirs() {
    let stage = Stage::new();
    let (kv, other) = (store(&stage), store(&stage));
    for key in ["put", "cas", "add", "removed", "timed", "fenced", "taken"] {
        kv.put_ephemeral(key, "1").unwrap();
    }
    other.put("put", "2").unwrap();
    assert!(other.compare_and_set("cas", "1", "2").unwrap());
    assert_eq!(other.add("add", 1).unwrap(), 2);
    assert!(other.remove("removed").unwrap());
    other.put_for("timed", "2", Duration::from_secs(1000)).unwrap();
    other.put_fenced("fenced", "2", Token::from(3)).unwrap();
    other.put_ephemeral("taken", "2").unwrap();
    assert!(matches!(kv.put_ephemeral("fenced", "3"), Err(KvError::Fenced { .. })));
    kv.put_for("was timed", "1", Duration::from_millis(1)).unwrap();
    kv.put_ephemeral("was timed", "2").unwrap();
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(value(&other, "was timed").as_deref(), Some("2"));
    drop(kv);
    for key in ["put", "timed", "fenced", "taken"] {
        assert_eq!(value(&other, key).as_deref(), Some("2"), "{key} is another's by now");
    }
    for key in ["cas", "add", "removed", "was timed"] {
        assert_eq!(value(&other, key), None, "{key} kept whom it ends with");
    }
}

/// Of clients that all say that they do something one does, and then another.
#[test]
fn one_of_many_has_put_what_was_to_be_new() {
    let stage = Stage::new();
    let mut clients: Vec<Kv> = (0..4).map(|_| store(&stage)).collect();
    let judge = store(&stage);
    while !clients.is_empty() {
        let names: Vec<String> = (0..clients.len()).map(|number| number.to_string()).collect();
        let tries = std::thread::scope(|scope| {
            let tries: Vec<_> = std::mem::take(&mut clients)
                .into_iter()
                .zip(&names)
                .map(|(kv, name)| scope.spawn(move || (kv.insert_ephemeral("leader", name), kv)))
                .collect();
            tries.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
        });
        let (mut leaders, mut others) = (Vec::new(), Vec::new());
        for (name, (won, kv)) in names.iter().zip(tries) {
            if won.unwrap() { leaders.push((name, kv)) } else { others.push(kv) }
        }
        let [(name, leader)] = <[_; 1]>::try_from(leaders).unwrap();
        assert_eq!(value(&judge, "leader").as_ref(), Some(name));
        // Who has lost takes nothing along.
        others.pop();
        assert_eq!(value(&judge, "leader").as_ref(), Some(name));
        drop(leader);
        assert_eq!(value(&judge, "leader"), None);
        clients = others;
    }
    judge.put_fenced("fenced", "1", Token::from(1)).unwrap();
    assert!(!judge.insert_ephemeral("fenced", "2").unwrap_or(false));
}

/// Has a pair, and many that it leaves, and waits to be killed.
#[test]
fn owning_actor() {
    if !stage::is_actor() {
        return;
    }
    let kv = Kv::open(&stage::options_from_environment(), "default").unwrap();
    for key in 0..1_000_u32 {
        kv.put_ephemeral(key.to_le_bytes(), vec![7; 100]).unwrap();
    }
    kv.put_ephemeral("k", "v").unwrap();
    println!("\nhas it");
    std::thread::sleep(Duration::from_secs(60));
}

fn owner(stage: &Stage) -> Child {
    let mut child = stage.actor("ephemeral::owning_actor").stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "has it"));
    child
}

#[test]
fn a_pair_of_a_killed_process_is_gone_at_once() {
    let stage = Stage::new();
    let kv = store(&stage);
    for _ in 0..5 {
        let mut owner = owner(&stage);
        assert_eq!(value(&kv, "k").as_deref(), Some("v"));
        // One that is stopped lives.
        stage.stop(pid(&owner));
        assert_eq!(value(&kv, "k").as_deref(), Some("v"));
        let mut watch = kv.watch("k").unwrap();
        assert!(watch.next().blocking().unwrap().is_some());
        let begun = Instant::now();
        kill(pid(&owner), Signal::KILL);
        assert_eq!(watch.next().blocking().unwrap(), None, "nobody writes, and the watch is told");
        assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
        assert_eq!(value(&kv, "k"), None);
        assert!(!kv.replace("k", "x").unwrap() && !kv.compare_and_set("k", "v", "x").unwrap());
        owner.wait().unwrap();
        assert_eq!(kv.scan().count(), 0);
        assert_eq!(kv.sweep().unwrap(), 1_001);
        assert_eq!(kv.sweep().unwrap(), 0);
    }
}

/// No server is told of processes of its own host that die.
#[test]
fn a_pair_of_a_killed_process_is_gone_for_clients_of_a_server_too() {
    let (stage, serving) = Serving::alone();
    let served = || Kv::open(&serving.options(), "default").unwrap();
    let (kv, sees) = (served(), || value(&served(), "k"));
    for _ in 0..5 {
        let mut owner = owner(&stage);
        assert_eq!((value(&kv, "k").as_deref(), sees().as_deref()), (Some("v"), Some("v")));
        kill(pid(&owner), Signal::KILL);
        owner.wait().unwrap();
        assert_eq!((sees(), value(&kv, "k")), (None, None));
        assert!(served().insert("k", "next").unwrap());
    }
}

/// The memory of the dead serves the next ones, if a store is full too.
#[test]
fn full_actor() {
    if !stage::is_actor() {
        return;
    }
    let kv = Kv::open(&stage::options_from_environment(), "default").unwrap();
    // Keys that come once, and whose time is over: more of them than there is room for.
    for key in 0..30_000_u32 {
        kv.put_for(key.to_le_bytes(), vec![1; 4_000], Duration::from_millis(1)).unwrap();
    }
    println!("\nhas it");
}

#[test]
fn a_store_that_is_full_frees_what_has_ended() {
    let stage = Stage::new();
    let mut shell = stage.program("sh");
    // Files may have 64 MiB, in blocks of 512 bytes.
    shell.args(["-c", "ulimit -f 131072; trap '' XFSZ; exec \"$0\" \"$@\""]);
    shell.arg(std::env::current_exe().unwrap());
    shell.args(["ephemeral::full_actor", "--exact", "--nocapture"]).env("FARLOCK_TEST_ACTOR", "1");
    let output = shell.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("has it"), "{said}");
}

/// Whether this process ignores a signal, and so do those that it starts.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(ignored.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn the_command_holds_a_value_until_it_ends() {
    use std::os::unix::process::ExitStatusExt;
    let stage = Stage::new();
    let kv = store(&stage);
    let hold = || {
        // New is also what a killed one has left.
        let mut command = stage.farlock(&["kv", "hold", "--new", "k", "v"]);
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        stage.until(|| value(&kv, "k").as_deref() == Some("v"));
        child
    };
    // What its caller ignores, as `nohup` ignores HUP, the command ignores too.
    let signals = [Signal::TERM, Signal::INT, Signal::HUP, Signal::KILL];
    for signal in signals.into_iter().filter(|signal| !is_ignored(*signal)) {
        let mut child = hold();
        let dump = stage.run(&["kv", "dump"]);
        let is_empty = dump.1.starts_with("counted index=hash\npairs=0 sum=");
        assert_eq!((dump.0, is_empty), (0, true), "it is of no use to another time: {}", dump.1);
        kill(pid(&child), signal);
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
        assert_eq!(value(&kv, "k"), None);
    }
    assert_eq!(stage.run(&["kv", "sweep"]).1, "1\n", "what was killed could not");
    // Another client takes the key; one that wants a new one does not.
    let child = hold();
    let (status, _, said) = stage.run(&["kv", "hold", "--new", "k", "mine"]);
    assert!(status == 1 && said.contains("[key-exists]"), "{said}");
    assert_eq!(value(&kv, "k").as_deref(), Some("v"));
    kv.put("k", "mine").unwrap();
    let (status, _, said) = stage::ended(child.wait_with_output().unwrap());
    assert!(status == 1 && said.contains("[key-changed]"), "{said}");
    assert_eq!(value(&kv, "k").as_deref(), Some("mine"));
    assert_eq!(stage.run(&["kv", "hold", "", "v"]).0, 64);
}
