//! Names that come, go and come back: more of them than a region has room for at one time.

use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use farlock::{Guard, Session};
use rustix::process::{Pid, Signal};

use crate::stage::{Stage, kill, pid};

/// Names that are used again and again, and so are forgotten and come back.
const COMING_BACK: usize = 20_000;

fn file_bytes(stage: &Stage) -> u64 {
    let files = std::fs::read_dir(stage.dir()).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

fn hold(session: &Session, name: impl AsRef<str>) -> Guard {
    session.lock(name).exclusive().within(Duration::from_secs(20)).blocking().unwrap()
}

/// So many names in turn, and the same ones again: no name runs out, and no token goes back.
fn use_in_turn(count: usize) {
    let stage = Stage::new();
    let session = stage.session();
    let mut tokens = vec![0; COMING_BACK];
    drop(hold(&session, "first"));
    let bytes = file_bytes(&stage);
    for number in 0..count {
        let guard = hold(&session, format!("in turn {number}"));
        guard.release().blocking().unwrap();
        let again = number % COMING_BACK;
        let guard = hold(&session, format!("back {again}"));
        assert!(guard.token().get() > tokens[again], "{again}: {}", guard.token());
        tokens[again] = guard.token().get();
        guard.release().blocking().unwrap();
    }
    assert_eq!(file_bytes(&stage), bytes);
    assert!(stage.ls().lines().count() <= 11_000);
}

/// 100,000 by day; at night a hundred times as many.
#[test]
fn names_without_end_leave_nothing() {
    let more = std::env::var("FARLOCK_MORE_NAMES").map_or(1, |more| more.parse().unwrap());
    use_in_turn(100_000 * more);
}

/// Threads of several sessions use more names than there is room for, and exclude each other.
#[test]
fn names_come_and_go_while_others_use_them() {
    const NAMES: usize = 15_000;
    const HOLDS: usize = 12_000;
    let stage = Stage::new();
    let sessions = [stage.session(), stage.session()];
    let inside: Vec<AtomicU32> = (0..NAMES).map(|_| AtomicU32::new(0)).collect();
    let tokens = Mutex::new(vec![0; NAMES]);
    thread::scope(|scope| {
        for number in 0..4 {
            let (session, inside, tokens) = (&sessions[number % 2], &inside, &tokens);
            scope.spawn(move || {
                let mut next = number;
                for _ in 0..HOLDS {
                    // Each thread in an order of its own, and half of the time at ten names.
                    next = (next * 7919 + 104_729 + number) % NAMES;
                    let name = if next % 2 == 0 { next } else { next % 10 };
                    let guard = hold(session, format!("name {name}"));
                    assert_eq!(inside[name].fetch_add(1, Ordering::SeqCst), 0, "{name}");
                    let mut tokens = tokens.lock().unwrap();
                    assert!(guard.token().get() > tokens[name], "{name}");
                    tokens[name] = guard.token().get();
                    drop(tokens);
                    inside[name].fetch_sub(1, Ordering::SeqCst);
                    guard.release().blocking().unwrap();
                }
            });
        }
    });
}

/// A name is never forgotten while its lock is held or waited for.
#[test]
fn names_in_use_stay_while_others_come_and_go() {
    let stage = Stage::new();
    let holder = stage.farlock(&["lock", "held", "--", "sleep", "100"]).spawn();
    let mut holder = holder.unwrap();
    stage.until(|| stage.ls().contains("\"held\""));
    let waiting = ["lock", "held", "--", "true"];
    let mut waiter = stage.farlock(&waiting).stderr(Stdio::null()).spawn().unwrap();
    stage.until_waiting(1);
    let session = stage.session();
    (0..25_000).for_each(|number| drop(hold(&session, number.to_string())));
    assert_eq!(stage.run(&["lock", "-n", "held", "true"]).0, 1);
    kill(pid(&holder), Signal::KILL);
    holder.wait().unwrap();
    assert!(waiter.wait().unwrap().success());
}

/// The dead leave words that name them; their names are forgotten all the same.
#[test]
fn names_of_the_dead_are_forgotten_and_their_tokens_increase() {
    let stage = Stage::new();
    let holder = stage.farlock(&["lock", "-v", "dead", "--", "sleep", "100"]).spawn();
    let mut holder = holder.unwrap();
    stage.until(|| stage.ls().contains("\"dead\""));
    kill(pid(&holder), Signal::KILL);
    holder.wait().unwrap();
    let session = stage.session();
    let before = hold(&session, "other").token().get();
    (0..25_000).for_each(|number| drop(hold(&session, number.to_string())));
    assert!(!stage.ls().contains("\"dead\""), "{}", stage.ls());
    assert!(hold(&session, "dead").token().get() > before);
}

#[test]
fn commands_that_leave_a_child_behind_use_nothing_up() {
    let stage = Stage::new();
    // Room for eight at one time.
    let keeping = Session::open(&stage.options().with_places(8)).unwrap();
    let pids = stage.file("pids");
    let line = format!("sleep 300 >/dev/null 2>&1 </dev/null & echo $! >> {}", pids.display());
    for number in 0..64 {
        let (status, _, said) =
            stage.run(&["lock", &format!("n{}", number % 3), "--", "sh", "-c", &line]);
        assert_eq!(status, 0, "{number}: {said}");
    }
    let pids = std::fs::read_to_string(pids).unwrap();
    for left in pids.lines() {
        kill(Pid::from_raw(left.parse().unwrap()).unwrap(), Signal::KILL);
    }
    assert_eq!(pids.lines().count(), 64);
    drop(keeping);
}
