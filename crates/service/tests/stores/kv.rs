//! Specification of key-value stores at the face that people use: programs, commands, processes
//! that are killed and stopped.

use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use farlock::kv::{KEY_BYTES_MAX, StoreOptions, VALUE_BYTES_MAX};
use farlock::{ConnectError, Kv, KvError, Session, Token};
use rustix::process::Signal;

use crate::stage::serving::Serving;
use crate::stage::{self, Stage, ended, kill, pid};

#[test]
fn values_of_every_length_come_back() {
    let stage = Stage::new();
    let kv = stage.session().kv("t").unwrap();
    for bytes in [0, 1, 8, 63, 64, 65, 4_000, 4_096, 65_536, VALUE_BYTES_MAX] {
        let value: Vec<u8> = (0..bytes).map(|at| (at * 7 + bytes) as u8).collect();
        for key_bytes in [1, 8, KEY_BYTES_MAX] {
            let key = vec![b'k'; key_bytes];
            kv.put(&key, &value).unwrap();
            assert_eq!(kv.get(&key).unwrap().as_deref(), Some(&value[..]), "{bytes} bytes");
        }
    }
    let long = vec![0; VALUE_BYTES_MAX + 1];
    assert!(matches!(kv.put("k", &long), Err(KvError::TooLong { bytes }) if bytes == long.len()));
    for key in [vec![], vec![0; KEY_BYTES_MAX + 1]] {
        assert!(matches!(kv.put(&key, "v"), Err(KvError::BadKey { bytes }) if bytes == key.len()));
        assert!(matches!(kv.get(&key), Err(KvError::BadKey { .. })));
    }
}

/// What an executor leaves with its thread while a task opens a store, or has a handle of it.
#[test]
fn a_store_takes_no_wake_up_of_its_thread() {
    let (stage, serving) = Serving::alone();
    for session in [stage.session(), serving.session()] {
        std::thread::current().unpark();
        let handles: Vec<Kv> = (0..20).map(|_| session.kv("t").unwrap()).collect();
        handles.iter().for_each(|kv| kv.put("k", "v").unwrap());
        drop(handles);
        let begun = Instant::now();
        std::thread::park_timeout(Duration::from_secs(10));
        assert!(begun.elapsed() < Duration::from_secs(5), "the wake-up was taken");
    }
}

/// As it waits for a lock.
#[test]
fn a_session_opens_a_store_while_its_server_is_away() {
    let stage = Stage::new();
    let lease = ["--lease", "3"];
    let mut serving = Serving::listening(&stage, "127.0.0.1:0", &lease);
    let session = serving.session();
    serving.kill();
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| session.kv("t")?.put("k", "v"));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!opened.is_finished());
        serving.restart(&stage, &lease);
        opened.join().unwrap().unwrap();
    });
    // Not for longer than it lives.
    serving.kill();
    let begun = Instant::now();
    assert!(matches!(session.kv("other"), Err(KvError::Open { .. })));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

/// Its lease would last for ten seconds.
#[test]
fn a_store_that_ends_waits_for_no_server_that_is_gone() {
    let (_stage, mut serving) = Serving::alone();
    let kv = serving.session().kv("t").unwrap();
    kv.put("k", "v").unwrap();
    let another = kv.another().unwrap();
    drop(another);
    serving.kill();
    let begun = Instant::now();
    drop(kv);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn each_operation_does_what_its_name_says() {
    let stage = Stage::new();
    let session = stage.session();
    let (kv, other) = (session.kv("t").unwrap(), session.kv("other").unwrap());
    assert_eq!(kv.get("a").unwrap(), None);
    assert!(!kv.replace("a", "1").unwrap() && !kv.remove("a").unwrap());
    assert!(kv.insert("a", "1").unwrap() && !kv.insert("a", "2").unwrap());
    assert!(kv.replace("a", "2").unwrap());
    assert!(!kv.compare_and_set("a", "1", "3").unwrap());
    assert!(kv.compare_and_set("a", "2", "3").unwrap());
    assert_eq!(kv.add("a", -5).unwrap(), -2);
    assert_eq!(kv.add("new", 7).unwrap(), 7);
    kv.put("text", "x").unwrap();
    assert!(matches!(kv.add("text", 1), Err(KvError::NotANumber)));
    kv.put("big", i64::MAX.to_string()).unwrap();
    assert!(matches!(kv.add("big", 1), Err(KvError::Overflow)));
    assert_eq!(kv.get("big").unwrap().unwrap(), i64::MAX.to_string().into_bytes());
    // Every handle and session sees the same; another store has its own.
    let again = stage.session().kv("t").unwrap();
    assert_eq!(again.get("a").unwrap().unwrap(), b"-2");
    assert_eq!(kv.another().unwrap().get("new").unwrap().unwrap(), b"7");
    assert_eq!(other.get("a").unwrap(), None);
    assert!(kv.remove("a").unwrap() && again.get("a").unwrap().is_none());
    assert_eq!(stage.options().store_names().unwrap(), ["other", "t"]);
}

#[test]
fn what_is_amiss_with_one_key_of_a_batch_hides_no_other() {
    let stage = Stage::new();
    let kv = stage.session().kv("t").unwrap();
    kv.put_fenced("fenced", "f", Token::from(5)).unwrap();
    let long = vec![0; VALUE_BYTES_MAX + 1];
    let pairs = [("a", &b"1"[..]), ("", b"2"), ("b", &long), ("fenced", b"3"), ("c", b"4")];
    let put = kv.put_many(pairs);
    assert!(put[0].is_ok() && put[4].is_ok() && put.len() == 5);
    assert!(matches!(put[1], Err(KvError::BadKey { bytes: 0 })));
    assert!(matches!(put[2], Err(KvError::TooLong { .. })));
    assert!(matches!(put[3], Err(KvError::Fenced { .. })));
    let got = kv.get_many(["c", "", "b", "a", "a"]);
    let values: Vec<_> = got.iter().map(|got| got.as_ref().ok().cloned()).collect();
    let value = |text: &str| Some(Some(text.as_bytes().to_vec()));
    assert_eq!(values, [value("4"), None, Some(None), value("1"), value("1")]);
    let removed = kv.remove_many(["a", "fenced", "a", "c"]);
    assert!(matches!(removed[..], [Ok(true), Err(KvError::Fenced { .. }), Ok(false), Ok(true)]));
    // Of a key that is there twice the last value stays; of nothing there is nothing.
    assert!(kv.put_many([("a", "1"), ("a", "2")]).iter().all(Result::is_ok));
    assert_eq!(kv.get("a").unwrap().unwrap(), b"2");
    assert!(kv.get_many::<&str>([]).is_empty());
    // Whatever keeps all from being done is told of each.
    stage.options().remove_store("t").unwrap();
    stage.until(|| kv.get("a").is_err());
    let told = kv.put_many([("a", "1"), ("b", "2")]);
    assert!(matches!(told[..], [Err(KvError::Gone { .. }), Err(KvError::Gone { .. })]));
}

#[test]
fn commands_take_several_keys() {
    let stage = Stage::new();
    let run = |words: &[&str]| stage.run(&[&["kv"], words].concat());
    for (key, value) in [("a", "1"), ("b", "x\ty"), ("c", "3")] {
        assert_eq!(run(&["put", key, value]).0, 0);
    }
    let (status, out, said) = run(&["get", "c", "none", "b", "nor this"]);
    assert_eq!((status, out.as_str()), (1, "c\t3\nb\tx\\ty\n"));
    assert!(said.contains("no key 'none'") && said.contains("no key 'nor this'"), "{said}");
    assert_eq!(run(&["get", "--lines", "a"]), (0, "a\t1\n".into(), String::new()));
    assert_eq!((run(&["get", "--raw", "a", "b"]).0, run(&["get"]).0), (64, 64));
    assert_eq!(run(&["get", "a", "", "none"]).0, 64, "the highest status counts");
    assert_eq!(run(&["put", "--token", "7", "f", "v"]).0, 0);
    let (status, _, said) = run(&["del", "a", "f", "none", "b"]);
    assert!(status == 1 && said.contains("[fenced]") && said.contains("[no-such-key]"), "{said}");
    assert_eq!(run(&["scan"]).1.lines().count(), 2, "those behind them are gone too");
    assert_eq!((run(&["del", "--token", "7", "f", "c"]).0, run(&["scan"]).1), (0, String::new()));
    // A disk that is full ends it at once.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    run(&["put", "a", "1"]);
    let full = stage.farlock(&["kv", "get", "a", "a"]).stdout(full).output().unwrap();
    assert_eq!(full.status.code(), Some(71));
}

#[test]
fn a_value_ends_when_its_time_is_over() {
    let stage = Stage::new();
    let kv = stage.session().kv("t").unwrap();
    kv.put_for("soon", "v", Duration::from_millis(30)).unwrap();
    kv.put_for("late", "1", Duration::from_secs(1000)).unwrap();
    kv.put("never", "v").unwrap();
    let left = |key| kv.time_left(key).unwrap();
    assert!(left("soon").unwrap().unwrap() <= Duration::from_millis(30));
    assert_eq!((left("never"), left("absent")), (Some(None), None));
    stage.until(|| kv.get("soon").unwrap().is_none());
    assert_eq!(left("soon"), None);
    assert!(kv.scan().all(|pair| pair.unwrap().key != b"soon"));
    assert!(kv.insert("soon", "again").unwrap(), "it counts as absent");
    assert_eq!(left("soon"), Some(None));
    // A number keeps its time, and a value that is put has none.
    assert_eq!(kv.add("late", 1).unwrap(), 2);
    assert!(left("late").unwrap().unwrap() > Duration::from_secs(990));
    kv.put("late", "v").unwrap();
    assert_eq!(left("late"), Some(None));
}

#[test]
fn a_fenced_key_refuses_what_is_out_of_date() {
    let stage = Stage::new();
    let kv = stage.session().kv("t").unwrap();
    let token = |number: u64| Token::from(number);
    kv.put("k", "before").unwrap();
    kv.put_fenced("k", "5", token(5)).unwrap();
    let stale = |ended: Result<(), KvError>| match ended {
        Err(KvError::StaleToken { token, seen }) => (token.get(), seen.get()),
        ended => panic!("{ended:?}"),
    };
    let fenced = |ended: Result<bool, KvError>| matches!(ended, Err(KvError::Fenced { .. }));
    assert_eq!(stale(kv.put_fenced("k", "4", token(4))), (4, 5));
    kv.put_fenced("k", "5 again", token(5)).unwrap();
    assert!(matches!(kv.put("k", "no token"), Err(KvError::Fenced { seen }) if seen.get() == 5));
    assert!(fenced(kv.remove("k")) && fenced(kv.insert("k", "v")) && fenced(kv.replace("k", "v")));
    assert_eq!(kv.get("k").unwrap().unwrap(), b"5 again");
    // The token outlives the value.
    assert!(kv.remove_fenced("k", token(7)).unwrap());
    assert_eq!((kv.get("k").unwrap(), kv.token("k").unwrap()), (None, Some(token(7))));
    assert_eq!(stale(kv.put_fenced("k", "6", token(6))), (6, 7));
    assert!(!kv.remove_fenced("k", token(8)).unwrap());
    assert_eq!(stale(kv.put_fenced("k", "7", token(7))), (7, 8));
}

#[test]
fn whatever_changes_a_key_does_so_with_a_token() {
    let stage = Stage::new();
    let kv = stage.session().kv("t").unwrap();
    let [old, now] = [5_u64, 9].map(|number| kv.fenced(Token::from(number)));
    assert!(now.insert("k", "1").unwrap() && !now.insert("k", "x").unwrap());
    assert!(now.replace("k", "2").unwrap() && !now.replace("none", "x").unwrap());
    assert!(now.compare_and_set("k", "2", "3").unwrap());
    assert!(!now.compare_and_set("k", "2", "x").unwrap());
    assert_eq!(now.add("k", 4).unwrap(), 7);
    let stale = |ended: Result<bool, KvError>| {
        matches!(ended, Err(KvError::StaleToken { token, seen })
            if (token.get(), seen.get()) == (5, 9))
    };
    assert!(stale(old.insert("k", "x")) && stale(old.replace("k", "x")) && stale(old.remove("k")));
    assert!(stale(old.compare_and_set("k", "7", "x")) && stale(old.add("k", 1).map(|_| true)));
    assert!(stale(old.put("k", "x").map(|()| true)));
    assert_eq!((kv.get("k").unwrap().unwrap(), kv.token("none").unwrap()), (b"7".to_vec(), None));
    assert!(now.remove("k").unwrap() && !now.remove("k").unwrap());
    assert!(stale(old.insert("k", "x")), "the token outlives the value");

    // A token changes nothing about when a value ends, but that an ephemeral one stays.
    for key in ["timed", "judge"] {
        kv.put_for(key, "1", Duration::from_millis(300)).unwrap();
    }
    assert_eq!(now.add("timed", 1).unwrap(), 2);
    assert!(now.compare_and_set("judge", "1", "2").unwrap());
    kv.another().unwrap().put_ephemeral("owned", "1").unwrap();
    assert!(now.compare_and_set("owned", "1", "2").unwrap());
    let other = stage.session().kv("t").unwrap();
    drop(kv);
    stage.until(|| other.get("judge").unwrap().is_none() && other.get("timed").unwrap().is_none());
    assert_eq!(other.get("owned").unwrap().unwrap(), b"2");
    assert_eq!(other.time_left("owned").unwrap(), Some(None));
}

#[test]
fn a_value_with_a_token_may_end_and_its_token_stays() {
    let stage = Stage::new();
    let kv = stage.session().kv("t").unwrap();
    let [old, now] = [5_u64, 9].map(|number| kv.fenced(Token::from(number)));
    let [short, long] = [Duration::from_millis(200), Duration::from_secs(1000)];
    let is_long = |key: &str| kv.time_left(key).unwrap().unwrap().is_some_and(|left| left > short);
    now.put_for("put", vec![7; 5000], short).unwrap();
    assert!(now.insert_for("inserted", "1", short).unwrap());
    assert!(!now.insert_for("put", "2", long).unwrap());
    kv.put("replaced", "1").unwrap();
    assert!(now.replace_for("replaced", "2", short).unwrap());
    assert!(!now.replace_for("none", "2", short).unwrap());
    assert!(
        kv.insert_for("plain", "1", short).unwrap() && !kv.insert_for("plain", "2", long).unwrap()
    );
    assert!(kv.replace_for("plain", "3", long).unwrap() && is_long("plain"));
    assert!(!kv.replace_for("none", "3", long).unwrap());
    let ended = |key: &&str| kv.get(key).unwrap().is_none();
    stage.until(|| ["put", "inserted", "replaced"].iter().all(ended));
    // Their memory comes back, their tokens do not.
    assert_eq!((kv.sweep().unwrap(), kv.sweep().unwrap()), (3, 0));
    for key in ["put", "inserted", "replaced"] {
        let refused = old.insert_for(key, "late", long);
        assert!(matches!(refused, Err(KvError::StaleToken { .. })), "{key}: {refused:?}");
        assert!(now.insert_for(key, "again", long).unwrap() && is_long(key), "{key}");
    }
}

#[test]
fn a_value_is_made_of_the_one_before() {
    let stage = Stage::new();
    let kv = stage.session().kv("t").unwrap();
    let longer = |old: Option<&[u8]>| Some([old.unwrap_or_default(), b"x"].concat());
    assert_eq!(kv.update_with("k", longer).unwrap().unwrap(), b"x");
    assert_eq!(kv.update_with("k", longer).unwrap().unwrap(), b"xx");
    assert_eq!(kv.update_with("k", |_| None).unwrap(), None);
    assert_eq!((kv.get("k").unwrap(), kv.update_with("k", |_| None).unwrap()), (None, None));
    kv.put_for("k", "y", Duration::from_secs(1000)).unwrap();
    assert_eq!(kv.update_with("k", longer).unwrap().unwrap(), b"yx");
    assert!(kv.time_left("k").unwrap().unwrap().is_some());
    let [old, now] = [5_u64, 9].map(|number| kv.fenced(Token::from(number)));
    assert_eq!(now.update_with("k", longer).unwrap().unwrap(), b"yxx");
    assert!(matches!(old.update_with("k", longer), Err(KvError::StaleToken { .. })));
    // Nothing that others do meanwhile is lost.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let kv = kv.another().unwrap();
            scope.spawn(move || {
                for _ in 0..500 {
                    kv.update_with("long", longer).unwrap();
                }
            });
        }
    });
    assert_eq!(kv.get("long").unwrap().unwrap().len(), 1000);
}

#[test]
fn threads_have_handles_of_their_own() {
    const THREADS: i64 = 4;
    const STEPS: i64 = 5_000;
    let stage = Stage::new();
    let kv = stage.session().kv("t").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let kv = kv.another().unwrap();
            scope.spawn(move || {
                for step in 0..STEPS {
                    kv.add("sum", 1).unwrap();
                    kv.put(format!("{thread}/{step}"), step.to_string()).unwrap();
                }
            });
        }
    });
    assert_eq!(kv.add("sum", 0).unwrap(), THREADS * STEPS);
    let mut seen: Vec<_> = kv.scan().map(|pair| pair.unwrap().key).collect();
    seen.sort();
    assert_eq!(seen.len() as i64, THREADS * STEPS + 1);
    seen.dedup();
    assert_eq!(seen.len() as i64, THREADS * STEPS + 1, "each once");
}

/// Counts up until it is killed, and says how far it is.
#[test]
fn counting_actor() {
    if !stage::is_actor() {
        return;
    }
    let kv = Kv::open(&stage::options_from_environment(), "t").unwrap();
    let own = std::env::var("FARLOCK_TEST_KEY").unwrap();
    let mut out = std::io::stdout();
    loop {
        let number = kv.add(&own, 1).unwrap();
        kv.put(format!("{own}/{}", number % 100), vec![7; number as usize % 3000]).unwrap();
        kv.add("sum", 1).unwrap();
        writeln!(out, "\ncounted {number}").unwrap();
    }
}

fn counter(stage: &Stage, key: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command = stage.actor("kv::counting_actor");
    command.env("FARLOCK_TEST_KEY", key).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    (child, lines)
}

fn heard(lines: &mut BufReader<ChildStdout>) -> i64 {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the actor has ended");
        if let Some(number) = line.trim().strip_prefix("counted ") {
            return number.parse().unwrap();
        }
    }
}

#[test]
fn what_a_killed_process_was_told_is_there() {
    let stage = Stage::new();
    let kv = Kv::open(&stage.options(), "t").unwrap();
    let mut told = [0; 2];
    for kill_number in 0..20 {
        let mut actors = ["one", "two"].map(|key| counter(&stage, key));
        for ((child, lines), told) in actors.iter_mut().zip(&mut told) {
            for _ in 0..1 + 13 * kill_number % 40 {
                *told = heard(lines);
            }
            kill(pid(child), Signal::KILL);
            child.wait().unwrap();
        }
        let (one, two) = (kv.add("one", 0).unwrap(), kv.add("two", 0).unwrap());
        assert!(one >= told[0] && two >= told[1], "{told:?}");
        let sum = kv.add("sum", 0).unwrap();
        // Of each that was killed one addition may be missing.
        assert!(sum <= one + two && sum + 2 * (kill_number + 1) >= one + two);
    }
}

#[test]
fn a_stopped_process_delays_nobody() {
    let stage = Stage::new();
    let kv = Kv::open(&stage.options(), "t").unwrap();
    let (mut child, mut lines) = counter(&stage, "one");
    for round in 0..50 {
        heard(&mut lines);
        stage.stop(pid(&child));
        let begun = Instant::now();
        for _ in 0..100 {
            kv.add("one", 0).unwrap();
            kv.put("one/7", "mine").unwrap();
            kv.add("sum", 0).unwrap();
        }
        // A bound for a busy machine; how long it takes is measured elsewhere.
        assert!(begun.elapsed() < Duration::from_secs(1), "round {round}");
        kill(pid(&child), Signal::CONT);
    }
    kill(pid(&child), Signal::KILL);
    child.wait().unwrap();
}

/// Takes the lock and waits; writes when it is told to.
#[test]
fn fencing_actor() {
    if !stage::is_actor() {
        return;
    }
    let session = Session::open(&stage::options_from_environment()).unwrap();
    let kv = session.kv("t").unwrap();
    let guard = session.lock("l").exclusive().blocking().unwrap();
    println!("\ncounted {}", guard.token());
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let refused = match kv.put_fenced("k", "late", guard.token()) {
        Err(KvError::StaleToken { seen, .. }) => seen.get(),
        ended => panic!("{ended:?}"),
    };
    println!("\ncounted {refused}");
}

#[test]
fn the_late_write_of_a_paused_holder_is_refused() {
    let stage = Stage::new();
    let mut actor = stage.actor("kv::fencing_actor");
    actor.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut actor = actor.spawn().unwrap();
    let mut lines = BufReader::new(actor.stdout.take().unwrap());
    let token = heard(&mut lines);
    stage.stop(pid(&actor));
    // It is not dead, and keeps its lock; a reset of the region gives the lock to others.
    stage.options().reset_region().unwrap();
    let session = stage.session();
    let guard = session.lock("l").exclusive().blocking().unwrap();
    assert!(guard.token().get() > token as u64);
    session.kv("t").unwrap().put_fenced("k", "new", guard.token()).unwrap();
    kill(pid(&actor), Signal::CONT);
    actor.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(heard(&mut lines) as u64, guard.token().get());
    assert!(actor.wait().unwrap().success());
    assert_eq!(session.kv("t").unwrap().get("k").unwrap().unwrap(), b"new");
}

#[test]
fn a_store_that_is_removed_says_so() {
    let stage = Stage::new();
    let session = stage.session();
    let kv = session.kv("t").unwrap();
    kv.put("k", "v").unwrap();
    assert!(stage.options().remove_store("t").unwrap());
    assert!(!stage.options().remove_store("t").unwrap());
    stage.until(|| matches!(kv.get("k"), Err(KvError::Gone { .. })));
    assert!(matches!(kv.put("k", "v"), Err(KvError::Gone { .. })));
    let anew = session.kv("t").unwrap();
    assert_eq!(anew.get("k").unwrap(), None);
}

#[test]
fn names_that_cannot_be_are_refused() {
    let stage = Stage::new();
    let session = stage.session();
    for name in ["", ".hidden", "a/b", "a\0b", &"n".repeat(201)] {
        let refused = session.kv(name).unwrap_err();
        assert_eq!(refused.code(), "bad-name", "{name:?}");
    }
}

#[test]
fn the_command_stores_and_prints() {
    let stage = Stage::new();
    let run = |words: &[&str]| stage.run(&[&["kv"], words].concat());
    let says = |words: &[&str]| run(words).1;
    assert_eq!(run(&["get", "k"]).0, 1);
    assert_eq!(run(&["put", "--replace", "k", "v"]).0, 1);
    assert!(stage.options().store_names().unwrap().is_empty(), "to read makes nothing");
    assert_eq!(run(&["put", "k", "v w"]).0, 0);
    assert_eq!(says(&["get", "k"]), "v w\n");
    assert_eq!(says(&["get", "--raw", "k"]), "v w");
    assert_eq!(run(&["put", "--new", "k", "other"]).0, 1);
    assert_eq!(run(&["put", "--replace", "none", "other"]).0, 1);
    let (status, _, complaint) = run(&["put", "--replace", "--index", "ordered", "k", "other"]);
    assert!(status == 1 && complaint.contains("other-index"), "{complaint}");
    assert_eq!(says(&["get", "k"]), "v w\n");
    assert_eq!((says(&["incr", "n"]), says(&["incr", "n", "-3"])), ("1\n".into(), "-2\n".into()));
    assert_eq!((run(&["cas", "k", "x", "y"]).0, run(&["cas", "k", "v w", "y"]).0), (1, 0));
    assert_eq!(run(&["put", "--ttl", "1000", "t", "v"]).0, 0);
    assert!(says(&["ttl", "t"]).starts_with("999."));
    assert_eq!(run(&["put", "--new", "--ttl", "1000", "t", "v"]).0, 1);
    assert_eq!(run(&["put", "--new", "--ttl", "1000", "once", "v"]).0, 0);
    assert_eq!(run(&["put", "--replace", "--ttl", "1000", "once", "w"]).0, 0);
    assert_eq!(run(&["put", "--token", "7", "--ttl", "1000", "once", "x"]).0, 0);
    assert!(says(&["ttl", "once"]).starts_with("999."));
    assert_eq!(run(&["del", "--token", "7", "once"]).0, 0);
    assert_eq!(says(&["ttl", "k"]), "forever\n");
    assert_eq!(run(&["put", "--token", "9", "f", "v"]).0, 0);
    let (status, _, complaint) = run(&["put", "--token", "8", "f", "v"]);
    assert!(status == 1 && complaint.contains("written with 9"), "{complaint}");
    let tries: [&[&str]; 4] = [
        &["put", "--new", "--token", "9", "f", "v"],
        &["put", "--replace", "--token", "8", "f", "v"],
        &["cas", "--token", "8", "f", "v", "w"],
        &["incr", "--token", "8", "f"],
    ];
    assert!(tries.iter().all(|words| run(words).0 == 1));
    assert_eq!(run(&["cas", "--token", "9", "f", "v", "1"]).0, 0);
    assert_eq!(says(&["incr", "--token", "10", "f", "4"]), "5\n");
    assert_eq!(run(&["put", "--replace", "--token", "10", "f", "v"]).0, 0);
    assert_eq!((run(&["del", "k"]).0, run(&["del", "k"]).0), (0, 1));
    assert_eq!(run(&["put", "a\tb\n", "\\"]).0, 0);
    let mut lines: Vec<String> = says(&["scan"]).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["a\\tb\\n\t\\\\", "f\tv", "n\t-2", "t\tv"]);
    assert_eq!(says(&["scan", "n"]), "n\t-2\n");
    assert_eq!((says(&["ls"]), run(&["drop", "default"]).0), ("default\n".into(), 0));
    assert_eq!((run(&["drop", "default"]).0, run(&["scan"]).0), (1, 1));
    assert_eq!(run(&["put", "--store", ".x", "k", "v"]).0, 64);
}

/// Half of a value would be taken for the value, and what is missing for what never was.
#[test]
fn a_dump_that_was_cut_off_is_refused() {
    let stage = Stage::new();
    for number in 0..9 {
        let pair = [format!("key{number}"), "100000".to_owned()];
        assert_eq!(stage.run(&["kv", "put", "-s", "one", &pair[0], &pair[1]]).0, 0);
    }
    let (whole, cut) = (stage.file("whole"), stage.file("cut"));
    let load = |into: &str| stage.run(&["kv", "load", "-s", into, cut.to_str().unwrap()]);
    assert_eq!(stage.run(&["kv", "dump", "-s", "one", whole.to_str().unwrap()]).0, 0);
    let dump = std::fs::read(&whole).unwrap();
    for length in 0..dump.len() {
        std::fs::write(&cut, &dump[..length]).unwrap();
        let (status, _, said) = load("cut");
        assert_eq!(status, 64, "{length}: {said}");
        assert!(said.contains("[cut-off]") || said.contains("[bad-line]"), "{length}: {said}");
    }
    let (_, listed, _) = stage.run(&["kv", "scan", "-s", "cut"]);
    assert_eq!(listed.lines().count(), 9);
    assert!(listed.lines().all(|line| line.ends_with("\t100000")), "{listed}");
    // Several may follow each other, and each has its end.
    std::fs::write(&cut, dump.repeat(2)).unwrap();
    assert_eq!(load("two").0, 0);
    let text = String::from_utf8(dump).unwrap();
    for bad in [text.replace("pairs=9", "pairs=8"), format!("{text}pairs=0\n")] {
        std::fs::write(&cut, bad).unwrap();
        let (status, _, said) = load("three");
        assert!(status == 64 && said.contains("another number of pairs"), "{said}");
    }
    let (status, _, said) = {
        std::fs::write(&cut, format!("{text}k\tv\n")).unwrap();
        load("behind")
    };
    assert!(status == 64 && said.contains("behind the end of a dump"), "{said}");
    // Dumps of versions before this one say no sum.
    std::fs::write(&cut, without_sum(&text)).unwrap();
    assert_eq!(load("five").0, 0);
    // What is no dump has no end to look for.
    std::fs::write(&cut, "a\t1").unwrap();
    assert_eq!(load("four").0, 0);
}

/// A dump as it would be without what its lines come to.
fn without_sum(dump: &str) -> String {
    let (text, sum) = dump.trim_end().rsplit_once(" sum=").unwrap();
    assert_eq!(sum.len(), 16);
    format!("{text}\n")
}

/// Whichever bit of it is another one, also where a digit of the sum is in another case then.
#[test]
fn a_dump_that_was_damaged_is_not_taken_for_whole() {
    let stage = Stage::new();
    let file = stage.file("dump");
    let run = |words: &[&str]| stage.run(&[&["kv"], words].concat());
    for (key, value) in [("color", "blue"), ("a\tb", "two\nlines"), ("n", "42")] {
        assert_eq!(run(&["put", key, value]).0, 0);
    }
    assert_eq!(run(&["put", "--token", "7", "fenced", "v"]).0, 0);
    let path = file.to_str().unwrap();
    assert_eq!(run(&["dump", path]).0, 0);
    let whole = std::fs::read(&file).unwrap();
    for at in (0..whole.len()).step_by(3) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 7);
        std::fs::write(&file, &damaged).unwrap();
        let (status, _, said) = run(&["load", "-s", "other", path]);
        assert_eq!(status, 64, "byte {at}: {said}");
    }
    let text = String::from_utf8(whole).unwrap();
    let (pairs, sum) = text.rsplit_once(" sum=").unwrap();
    if sum.to_uppercase() != sum {
        std::fs::write(&file, format!("{pairs} sum={}", sum.to_uppercase())).unwrap();
        assert_eq!(run(&["load", "-s", "other", path]).0, 64);
    }
    let damaged = text.replace("blue", "blun");
    std::fs::write(&file, damaged).unwrap();
    let (status, _, said) = run(&["load", "-s", "other", path]);
    assert_eq!((status, said.contains("[damaged-dump]")), (64, true), "{said}");
}

#[test]
fn what_is_dumped_can_be_loaded() {
    let stage = Stage::new();
    let kv = Kv::open(&stage.options(), "one").unwrap();
    for number in 0..3000_u32 {
        kv.put(number.to_le_bytes(), vec![number as u8; number as usize % 50]).unwrap();
    }
    kv.put_for("ends", "v", Duration::from_secs(1000)).unwrap();
    kv.put_fenced("fenced", "v", Token::from(5)).unwrap();
    kv.fenced(Token::from(5)).put_for("both", "v", Duration::from_secs(1000)).unwrap();
    kv.put_fenced("gone", "v", Token::from(5)).unwrap();
    kv.remove_fenced("gone", Token::from(6)).unwrap();
    let file = stage.file("dump");
    let file = file.to_str().unwrap();
    assert_eq!(stage.run(&["kv", "dump", "-s", "one", file]).0, 0);
    let (status, _, said) = stage.run(&["kv", "load", "-s", "two", file]);
    assert!(status == 0 && said.contains("3004 pairs"), "{said}");
    let two = Kv::open(&stage.options(), "two").unwrap();
    let pairs = |kv: &Kv| {
        let mut pairs: Vec<_> = kv
            .scan()
            .map(|pair| pair.unwrap())
            .map(|pair| (pair.key, pair.value, pair.token, pair.time_left.is_some()))
            .collect();
        pairs.sort();
        pairs
    };
    assert_eq!(pairs(&kv), pairs(&two));
    assert!(matches!(two.put_fenced("gone", "v", Token::from(5)), Err(KvError::StaleToken { .. })));
    // What is no dump makes no store.
    std::fs::write(stage.file("bad"), "no pair\n").unwrap();
    let bad = stage.file("bad");
    let (status, _, said) = stage.run(&["kv", "load", "-s", "three", bad.to_str().unwrap()]);
    assert!(status == 64 && said.contains("line 1"), "{said}");
    assert!(!stage.options().store_names().unwrap().contains(&"three".to_owned()));
    // A line that is none stops it, and says where.
    std::fs::write(stage.file("bad"), "a\t1\nb\n").unwrap();
    let (status, _, said) = stage.run(&["kv", "load", stage.file("bad").to_str().unwrap()]);
    assert!(status == 64 && said.contains("line 2"), "{said}");
    assert_eq!(stage.run(&["kv", "get", "a"]).1, "1\n");
    // A file that cannot be written leaves nothing behind.
    assert_eq!(stage.run(&["kv", "dump", "-s", "one", "/dev/full/x"]).0, 71);
}

/// Nor by a server.
#[test]
fn who_reads_makes_no_store() {
    let (stage, serving) = Serving::alone();
    for server in ["", &serving.address] {
        let run = |words: &[&str]| {
            let mut command =
                stage.farlock(&[&["kv", words[0], "-s", "log"], &words[1..]].concat());
            ended(command.env("FARLOCK_SERVER", server).output().unwrap())
        };
        let reads: [&[&str]; 8] = [
            &["get", "k"],
            &["del", "k"],
            &["cas", "k", "v", "w"],
            &["ttl", "k"],
            &["scan"],
            &["dump"],
            &["sweep"],
            &["index"],
        ];
        for words in reads {
            let (status, _, said) = run(words);
            assert_eq!((status, said.contains("no-such-store")), (1, true), "{words:?}: {said}");
        }
        assert_eq!(stage.run(&["kv", "ls"]).1, "");
        assert_eq!(run(&["put", "--index", "ordered", "k", "v"]).0, 0);
        assert_eq!(run(&["index"]).1, "ordered\n");
        assert_eq!(stage.run(&["kv", "drop", "log"]).0, 0);
    }
    let wanted = || StoreOptions::new("log").existing();
    for options in [stage.options(), serving.options()] {
        let absent = Kv::open(&options, wanted()).map(drop);
        let Err(KvError::Open { name, source: ConnectError::Absent { .. } }) = absent else {
            panic!("{absent:?}")
        };
        assert_eq!(name, "log");
    }
}

#[test]
fn an_input_that_is_closed_is_no_empty_value() {
    let stage = Stage::new();
    assert_eq!(stage.run(&["kv", "put", "k", "v"]).0, 0);
    for line in ["kv put k -", "kv load -s other"] {
        let mut shell = stage.program("sh");
        shell.args(["-c", &format!("exec \"$0\" {line} <&-"), env!("CARGO_BIN_EXE_farlock")]);
        let (status, _, said) = ended(shell.output().unwrap());
        assert_eq!((status, said.contains("Bad file descriptor")), (71, true), "{line}: {said}");
    }
    assert_eq!(stage.run(&["kv", "get", "k"]).1, "v\n");
    assert_eq!(stage.run(&["kv", "ls"]).1, "default\n");
}

#[test]
fn a_store_that_was_cut_off_is_dropped_and_its_region_is_not() {
    let stage = Stage::new();
    assert_eq!(stage.run(&["kv", "put", "-s", "cut", "k", "v"]).0, 0);
    let file = stage.dir().join(".stores/default/cut");
    File::options().write(true).open(file).unwrap().set_len(8192).unwrap();
    let (status, _, said) = stage.run(&["kv", "get", "-s", "cut", "k"]);
    assert_eq!((status, said.contains("`farlock kv drop cut` removes it")), (69, true), "{said}");
    assert_eq!(stage.run(&["kv", "drop", "cut"]).0, 0);
    assert_eq!(stage.run(&["kv", "put", "-s", "cut", "k", "v"]).0, 0);
}

#[test]
fn a_dash_is_a_standard_stream() {
    let stage = Stage::new();
    std::fs::write(stage.file("pairs"), "k\tv\n").unwrap();
    let mut load = stage.farlock(&["kv", "load", "-"]);
    load.stdin(File::open(stage.file("pairs")).unwrap()).current_dir(stage.dir());
    assert_eq!(ended(load.output().unwrap()).0, 0);
    let mut dump = stage.farlock(&["kv", "dump", "-"]);
    dump.current_dir(stage.dir());
    let (status, whole, said) = ended(dump.output().unwrap());
    assert_eq!((status, said.as_str()), (0, ""));
    assert_eq!(without_sum(&whole), "counted index=hash\nk\tv\npairs=1\n");
    assert!(!stage.dir().join("-").exists());
}

#[test]
fn a_dump_takes_the_place_of_a_file_and_of_nothing_else() {
    let stage = Stage::new();
    assert_eq!(stage.run(&["kv", "put", "k", "v"]).0, 0);
    let dump = |file: &Path| stage.run(&["kv", "dump", file.to_str().unwrap()]);
    let pipe = stage.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reads = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).unwrap()
    });
    assert_eq!(dump(&pipe).0, 0);
    let whole = "counted index=hash\nk\tv\npairs=1\n";
    assert_eq!(without_sum(&reads.join().unwrap()), whole);
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    // One of its own, for a test that fails must not replace the system's.
    let full = stage.file("full");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    assert_eq!(dump(&full).0, 71);
    let (status, _, said) = dump(stage.state_dir());
    assert_eq!((status, said.contains("that is a directory: name a file in it")), (71, true));
    let (file, link) = (stage.file("file"), stage.file("link"));
    std::fs::write(&file, "old").unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert_eq!(dump(&link).0, 0);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(without_sum(&std::fs::read_to_string(&file).unwrap()), whole);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

/// A million keys are more than the first table of the index has slots for. Beside a key of 8 bytes
/// and its value of 64 there is little memory, all counted: the table that has moved and the chunk
/// ahead of need too.
#[test]
fn a_store_grows_with_what_is_put_there_and_takes_little_beside_it() {
    const KEYS: u64 = 1_000_000;
    const PAIR_BYTES: u64 = 8 + 64;
    const BESIDE_BYTES_MAX: u64 = 48;
    let stage = Stage::new();
    let kv = stage.session().kv("t").unwrap();
    let another = kv.another().unwrap();
    let value = |key: u64| [key.to_le_bytes(); 8].concat();
    let small = kv.bytes();
    for key in 0..KEYS {
        kv.put(key.to_le_bytes(), value(key)).unwrap();
        if key % 16 == 0 {
            another.put((key / 2).to_le_bytes(), value(key / 2)).unwrap();
        }
    }
    let beside = kv.bytes() - KEYS * PAIR_BYTES;
    assert!(kv.bytes() > small && beside <= KEYS * BESIDE_BYTES_MAX, "{beside} bytes");
    for key in (0..KEYS).step_by(7) {
        assert_eq!(another.get(key.to_le_bytes()).unwrap().unwrap(), value(key));
    }
    assert_eq!(another.scan().count() as u64, KEYS);
}

/// What lies in a store is laid out otherwise than before: one that was made so is not misread.
#[test]
fn a_store_of_an_earlier_layout_is_refused() {
    use std::os::unix::fs::FileExt;
    const MAGIC: &[u8] = b"farlkv\0";
    let stage = Stage::new();
    drop(Kv::open(&stage.options(), "t").unwrap());
    let path = stage.dir().join(".stores/default/t");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let layout = bytes.windows(MAGIC.len()).position(|word| word == MAGIC).unwrap() + MAGIC.len();
    file.write_all_at(&[bytes[layout] - 1], layout as u64).unwrap();
    let refused = Kv::open(&stage.options(), "t").unwrap_err();
    assert_eq!(refused.code(), "not-a-store");
    file.write_all_at(&[bytes[layout]], layout as u64).unwrap();
    assert_eq!(Kv::open(&stage.options(), "t").unwrap().get("k").unwrap(), None);
}
