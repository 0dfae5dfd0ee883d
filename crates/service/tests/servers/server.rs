//! Specification: a memory server. Sessions and commands of other hosts, here of the same one over
//! its loopback address, use a region beside those of its own host.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farlock::{AcquireError, Kv, LostReason, ReleaseError, Session};
use rustix::process::Signal;

use crate::stage::serving::{Serving, kill_holder, parent_of};
use crate::stage::{self, Stage, is_actor, is_running, kill, number, pid};

#[test]
fn local_and_remote_holders_exclude_each_other() {
    let (stage, server) = Serving::alone();
    let (here, there, elsewhere) = (stage.session(), server.session(), server.session());
    let mut last = None;
    for turn in 0..20 {
        let order = [&here, &there, &elsewhere];
        let (holder, others) = (order[turn % 3], [order[(turn + 1) % 3], order[(turn + 2) % 3]]);
        let guard = holder.lock("a").exclusive().blocking().unwrap();
        assert!(last < Some(guard.token()), "tokens increase across hosts");
        last = Some(guard.token());
        for other in others {
            let tried = other.lock("a").exclusive().at_once().blocking();
            let Err(AcquireError::Busy { holders, .. }) = tried else { panic!("{tried:?}") };
            // A remote holder's record follows its grant within milliseconds.
            stage.until(|| holders.list().len() == 1);
            let limited = other.lock("a").shared().within(Duration::from_millis(5)).blocking();
            assert!(matches!(limited, Err(AcquireError::TimedOut { .. })), "{limited:?}");
        }
        guard.release().blocking().unwrap();
    }
    let shared = [&here, &there, &elsewhere].map(|s| s.lock("a").shared().blocking().unwrap());
    assert!(there.lock("a").exclusive().at_once().blocking().is_err());
    for guard in shared {
        guard.release().blocking().unwrap();
    }
}

/// Each adds to a number that a lock alone protects.
#[test]
fn a_lock_is_handed_between_hosts_without_loss() {
    const EACH: u64 = 300;
    let (stage, server) = Serving::alone();
    let options = [stage.options(), server.options(), stage.options(), server.options()];
    let total = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for options in &options {
            let total = &total;
            scope.spawn(move || {
                let lock = Session::open(options).unwrap().lock("sum");
                for _ in 0..EACH {
                    let guard = lock.exclusive().blocking().unwrap();
                    stage::add_one(total);
                    guard.release().blocking().unwrap();
                }
            });
        }
    });
    assert_eq!(total.into_inner(), EACH * options.len() as u64);
}

#[test]
fn ranges_of_both_sides_exclude_where_they_overlap() {
    let (stage, server) = Serving::alone();
    let (here, there) = (stage.session(), server.session());
    let guard = there.range("t").exclusive(100..200).blocking().unwrap();
    assert!(here.range("t").exclusive(150..160).at_once().blocking().is_err());
    let beside = here.range("t").exclusive(200..300).at_once().blocking().unwrap();
    guard.release().blocking().unwrap();
    let again = here.range("t").exclusive(100..200).at_once().blocking().unwrap();
    drop((beside, again));
}

#[test]
fn a_store_is_the_same_from_both_sides() {
    let (stage, server) = Serving::alone();
    let here = Kv::open(&stage.options(), "s").unwrap();
    let there = Kv::open(&server.options(), "s").unwrap();
    for number in 0..200_u64 {
        let (key, value) = (format!("key {number}"), vec![number as u8; number as usize * 40 + 1]);
        let (writer, reader) = if number % 2 == 0 { (&here, &there) } else { (&there, &here) };
        writer.put(key.as_bytes(), &value).unwrap();
        assert_eq!(reader.get(key.as_bytes()).unwrap(), Some(value));
        assert_eq!(writer.add(b"count", 1).unwrap(), number as i64 + 1);
    }
    assert!(there.remove(b"key 7").unwrap());
    assert_eq!(here.get(b"key 7").unwrap(), None);
}

#[test]
fn commands_use_a_server_that_is_named() {
    let (stage, server) = Serving::alone();
    let at = ["--server", &server.address];
    let (status, output, _) =
        stage.run(&["lock", at[0], at[1], "a", "--", "sh", "-c", "echo $FARLOCK_TOKEN"]);
    assert_eq!((status, output.trim().is_empty()), (0, false));
    assert_eq!(stage.run(&["kv", "put", at[0], at[1], "k", "v"]).0, 0);
    assert_eq!(stage.run(&["kv", "get", "k"]).1, "v\n", "it is the host's own store");
    let mut get = stage.farlock(&["kv", "get", "k"]);
    let output = get.env("FARLOCK_SERVER", format!("tcp://{}", server.address)).output().unwrap();
    assert_eq!(stage::ended(output).1, "v\n");
    let mut holder = stage.hold("a", "sleep 60");
    let (status, _, said) = stage.run(&["lock", at[0], at[1], "-n", "a", "--", "true"]);
    assert_eq!((status, said.contains("[busy]")), (1, true), "{said}");
    let (_, listed, _) = stage.run(&["ls", at[0], at[1], "--json"]);
    assert!(listed.contains(&format!("\"pid\":{},", holder.id())), "{listed}");
    kill(pid(&holder), Signal::TERM);
    holder.wait().unwrap();
}

/// The thread that reads from the server took them before, and ended `farlock` there and then.
#[test]
fn signals_reach_the_command_of_a_lock_of_a_server() {
    let (stage, server) = Serving::alone();
    let script = "trap 'sleep 0.2; echo trapped; exit 3' TERM; echo up; sleep 60 & wait";
    for _ in 0..5 {
        let mut lock = stage.farlock(&["lock", "--server", &server.address, "a", "--", "sh", "-c"]);
        let mut child = lock.arg(script).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "up");
        kill(pid(&child), Signal::TERM);
        assert_eq!(lines.next().map(Result::unwrap).as_deref(), Some("trapped"));
        assert_eq!(child.wait().unwrap().code(), Some(3));
        // Its lock is free at once, whatever its lease.
        drop(stage.session().lock("a").exclusive().at_once().blocking().unwrap());
    }
}

/// What an environment says to all commands harms none that names no server.
#[test]
fn variables_that_name_no_server_mean_this_host() {
    let stage = Stage::new();
    for (server, tls) in [("", ""), ("", "nowhere")] {
        let mut lock = stage.farlock(&["lock", "a", "--", "true"]);
        lock.env("FARLOCK_SERVER", server).env("FARLOCK_TLS", tls);
        let (status, _, said) = stage::ended(lock.output().unwrap());
        assert_eq!((status, said.as_str()), (0, ""), "{server:?} {tls:?}");
        let mut list = stage.farlock(&["kv", "ls"]);
        list.env("FARLOCK_SERVER", server).env("FARLOCK_TLS", tls);
        assert!(list.output().unwrap().status.success());
    }
}

/// A service manager starts the next one as soon as the last is told to end.
#[test]
fn a_server_waits_for_the_last_one_to_be_gone() {
    let (stage, mut last) = Serving::alone();
    let address = last.address.clone();
    let serve = |limit: u64| {
        let mut serve = stage.farlock(&["serve", "--listen", &address]);
        let child = serve.stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(limit));
        child
    };
    let mut next = serve(300);
    last.kill();
    let mut said = String::new();
    BufReader::new(next.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("is served at"), "{said}");
    // One that stays is named: the same region has a server, or the address another program.
    let (status, _, said) = stage::ended(serve(0).wait_with_output().unwrap());
    assert_eq!((status, said.contains("[region-served]")), (69, true), "{said}");
    next.kill().unwrap();
    next.wait().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = taken.local_addr().unwrap().to_string();
    let (status, _, said) = stage.run(&["serve", "--listen", &there]);
    assert_eq!((status, said.contains("[listen]")), (69, true), "{said}");
    assert!(said.contains(&format!("cannot listen at {there}")), "{said}");
    assert!(said.contains("--listen elsewhere"), "{said}");
}

/// Its server was blamed for that, which lived and was heard by all others.
#[test]
fn a_client_that_was_stopped_beyond_its_lease_is_told_so() {
    let stage = Stage::new();
    let server =
        Serving::listening(&stage, "127.0.0.1:0", &["--lease", "0.5", "--closed", "doubt"]);
    let at = ["lock", "--server", &server.address, "a"];
    let mut hold = stage.farlock(&[&at[..], &["--", "sleep", "60"]].concat());
    let holder = hold.stderr(Stdio::piped()).spawn().unwrap();
    stage.until(|| stage.ls().contains(&format!("\"pid\":{},", holder.id())));
    stage.stop(pid(&holder));
    // It is shown as one that is dead.
    stage.until(|| stage.ls().contains("\"state\":\"dead\""));
    kill(pid(&holder), Signal::CONT);
    let (_, _, said) = stage::ended(holder.wait_with_output().unwrap());
    assert!(said.contains("this process did not run until its lease had ended"), "{said}");
}

/// The same of a store: a watch that slept through its lease was told that its server was gone.
#[test]
fn a_client_of_a_store_that_was_stopped_beyond_its_lease_is_told_so() {
    let stage = Stage::new();
    let server =
        Serving::listening(&stage, "127.0.0.1:0", &["--lease", "0.5", "--closed", "doubt"]);
    assert_eq!(stage.run(&["kv", "put", "k", "v"]).0, 0);
    let mut watch = stage.farlock(&["kv", "watch", "--server", &server.address, "k"]);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut seen = [0; 4];
    watch.stdout.as_mut().unwrap().read_exact(&mut seen).unwrap();
    stage.stop(pid(&watch));
    std::thread::sleep(Duration::from_millis(1500));
    kill(pid(&watch), Signal::CONT);
    let (status, _, said) = stage::ended(watch.wait_with_output().unwrap());
    assert_eq!((status, said.contains("[slept-through]")), (69, true), "{said}");
    assert!(said.contains("it was stopped, or its host stood still"), "{said}");
}

/// Its lease does not end, for it is seen to be there; a waiter was not told how it goes on.
#[test]
fn a_stopped_client_of_the_servers_host_is_shown_with_what_to_do() {
    let stage = Stage::new();
    let server = Serving::listening(&stage, "127.0.0.1:0", &["--lease", "0.5"]);
    let at = ["--server", &server.address];
    let mut hold = stage.farlock(&["lock", at[0], at[1], "a", "--", "sleep", "60"]);
    let mut holder = hold.process_group(0).spawn().unwrap();
    stage.until(|| stage.ls().contains(&format!("\"pid\":{},", holder.id())));
    stage.stop(pid(&holder));
    std::thread::sleep(Duration::from_secs(1));
    for at in [&at[..], &[]] {
        for limit in [&["-n"][..], &["-w", "0.2"]] {
            let words = [&["lock"], at, limit, &["a", "--", "true"]].concat();
            let (status, _, said) = stage.run(&words);
            assert_eq!(status, 1, "{said}");
            assert!(said.contains(&format!("`kill -CONT -{}`, or `fg`", holder.id())), "{said}");
        }
        let (_, listed, _) = stage.run(&[&["ls"], at].concat());
        assert!(listed.contains("holds, stopped"), "{listed}");
    }
    kill(pid(&holder), Signal::CONT);
    kill(pid(&holder), Signal::TERM);
    holder.wait().unwrap();
}

/// A limit is one for the server too.
#[test]
fn a_stopped_server_is_waited_for_no_longer_than_for_the_lock() {
    let (stage, server) = Serving::alone();
    let at = ["lock", "--server", &server.address, "a"];
    assert_eq!(stage.run(&[&at[..], &["-w", "5", "--", "true"]].concat()).0, 0);
    stage.stop(pid(&server.child));
    for (limit, seconds) in [(&["-w", "0.2"][..], 0.2), (&["-n"], 2.0)] {
        let begun = Instant::now();
        let words = [&at[..], limit, &["-E", "9", "--", "true"]].concat();
        let (status, _, said) = stage.run(&words);
        assert_eq!((status, said.contains("[server-silent]")), (9, true), "{said}");
        assert!(said.contains(&format!("within {seconds} s")), "to the second: {said}");
        assert!(begun.elapsed() < Duration::from_secs_f64(seconds + 2.0), "{limit:?}");
    }
    kill(pid(&server.child), Signal::CONT);
}

/// A loop of a shell failed while its server was restarted.
#[test]
fn a_server_that_is_away_is_waited_for_with_a_limit_alone() {
    let (stage, mut server) = Serving::alone();
    server.kill();
    let address = server.address.clone();
    let at = ["lock", "--server", &address, "a"];
    // It is tried to the end of the time, and no longer.
    let begun = Instant::now();
    let (status, _, said) = stage.run(&[&at[..], &["-w", "0.5", "--", "true"]].concat());
    assert!(begun.elapsed() >= Duration::from_millis(500), "{said}");
    assert_eq!((status, said.contains("[server-unreachable]")), (69, true), "{said}");
    assert!(said.contains("tried again for 0.5 s") && !said.contains("-w SECONDS"), "{said}");
    // Without a limit, and where nothing is waited for, it ends at once and says how it would not.
    for limit in [&[][..], &["-n"]] {
        let (status, _, said) = stage.run(&[&at[..], limit, &["--", "true"]].concat());
        assert_eq!((status, said.contains("[server-unreachable]")), (69, true), "{said}");
        assert!(said.contains("; -w SECONDS goes on trying"), "{said}");
    }
    let words = [&at[..], &["-w", "30", "--", "echo", "in"]].concat();
    let waiter = stage.farlock(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    std::thread::sleep(Duration::from_millis(400));
    server.restart(&stage, &[]);
    let ended = stage::ended(waiter.unwrap().wait_with_output().unwrap());
    assert_eq!(ended, (0, "in\n".to_owned(), String::new()));
}

/// A waiter whose lease has ended meanwhile gets in line anew.
#[test]
fn a_waiter_with_a_limit_outlasts_a_server_that_is_away_for_long() {
    let stage = Stage::new();
    let lease = ["--lease", "0.5"];
    let mut server = Serving::listening(&stage, "127.0.0.1:0", &lease);
    let guard = stage.session().lock("a").exclusive().blocking().unwrap();
    let at = ["lock", "--server", &server.address.clone(), "-w", "60", "a", "--", "echo", "in"];
    let mut waiter = stage.farlock(&at);
    let waiter = waiter.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    stage.until_waiting(1);
    server.kill();
    std::thread::sleep(Duration::from_millis(1500));
    server.restart(&stage, &lease);
    stage.until_waiting(1);
    guard.release().blocking().unwrap();
    let ended = stage::ended(waiter.wait_with_output().unwrap());
    assert_eq!(ended, (0, "in\n".to_owned(), String::new()));
}

/// What no waiting mends is said at once, whatever the limit.
#[test]
fn what_no_waiting_mends_is_not_waited_for() {
    let (stage, server) = Serving::alone();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let speaks = other.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(b"-ERR unknown command\r\n");
    });
    let begun = Instant::now();
    for (server, region, word) in [
        ("nohost.invalid:1", "default", "server-unreachable"),
        (&speaks, "default", "server-other"),
        (&server.address, "other", "server-declined"),
    ] {
        let at = ["lock", "--server", server, "--region", region, "-w", "600", "a", "--", "true"];
        let (status, _, said) = stage.run(&at);
        assert_eq!((status, said.contains(&format!("[{word}]"))), (69, true), "{said}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60));
    answering.join().unwrap();
}

/// What the README shows of a server, which is at a port there that need not be free.
#[test]
fn what_the_readme_shows_across_hosts_happens() {
    let page = include_str!("../../../../README.md");
    let mut blocks = page.split("```console\n");
    let block = blocks.find(|block| block.starts_with("$ farlock serve &")).unwrap();
    let (stage, server) = Serving::alone();
    // As a block before it leaves it.
    assert_eq!(stage.run(&["kv", "incr", "visits", "3"]).1, "3\n");
    let (mut script, mut shown) = (String::new(), Vec::new());
    // Behind the start of the server and its line.
    for line in block.split("```").next().unwrap().lines().skip(2) {
        match line.strip_prefix("$ ") {
            Some(words) => {
                // Of this server the test takes care.
                let words = words.replace("; kill $!", "");
                script += &words.replace("127.0.0.1:4747", &server.address);
                script.push('\n');
            }
            None => shown.push(line),
        }
    }
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_farlock")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = stage.program("sh").args(["-ec", &script]).env("PATH", path).output().unwrap();
    let (status, printed, said) = stage::ended(output);
    assert_eq!((status, said.as_str()), (0, ""));
    assert_eq!(printed.lines().count(), shown.len(), "{printed}");
    for (line, shown) in printed.lines().zip(shown) {
        let (known, rest) = shown.split_once("[..]").unwrap_or((shown, ""));
        let is_same = line == shown || known != shown && line.starts_with(known);
        assert!(is_same && line.ends_with(rest), "{line}: {shown}");
    }
}

/// A line for each, of those that come within a second one.
#[test]
fn a_server_says_what_it_refuses() {
    let stage = Stage::new();
    let mut serve = stage.farlock(&["serve", "--listen", "127.0.0.1:0"]);
    let mut child = serve.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut heard = || {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        line
    };
    let address = heard().trim().rsplit(' ').next().unwrap().to_owned();
    let list = |region: &str| stage.run(&["ls", "--server", &address, "--region", region]).0;
    for _ in 0..3 {
        assert_eq!(list("other"), 69);
    }
    let said = heard();
    assert!(said.contains("a client asked for 'other' and was refused"), "{said}");
    assert_eq!(list("default"), 0);
    assert_eq!(stage.run(&["region", "remove", "--force", "default"]).0, 0);
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(list("default"), 0);
    let said = heard();
    assert!(said.contains("the region 'default' was removed"), "{said}");
    assert!(said.contains("(2 lines before this were left out)"), "{said}");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// As the README shows it: what of its lines is code is looked for there.
#[test]
fn a_program_chooses_a_region_of_a_server_by_its_name() {
    let page = include_str!("../../../../README.md");
    assert!(page.contains("RegionOptions::of_server(\"db1:4747\").named(\"reports\")"));
    let stage = Stage::new();
    let server = Serving::listening(&stage, "127.0.0.1:0", &["--region", "reports"]);
    let named = farlock::RegionOptions::of_server(&server.address).named("reports");
    let session = Session::open(&named).unwrap();
    let guard = session.lock("a").exclusive().blocking().unwrap();
    let here = Session::open(&stage.options().named("reports")).unwrap();
    assert!(here.lock("a").exclusive().at_once().blocking().is_err(), "it is that region");
    drop(guard);
    let refused = Session::open(&server.options()).unwrap_err();
    assert_eq!(refused.code(), "server-declined", "it serves no other");
}

/// What a server declines is said in the words of the client that asked.
#[test]
fn what_a_server_does_not_serve_is_said_by_its_name() {
    let (stage, server) = Serving::alone();
    for command in [&["lock", "a"][..], &["kv", "get", "k"]] {
        let at = ["--server", &server.address, "--region", "other"];
        let (status, _, said) = stage.run(&[command, &at[..], &["--", "true"][..]].concat()[..]);
        assert_eq!((status, said.contains("[server-declined]")), (69, true), "{said}");
        let why = "\"other\" was asked for, and this server serves \"default\"";
        assert!(said.contains(why) && said.contains("say its name by --region"), "{said}");
    }
}

/// Holds a lock of the server that the environment names until it is killed.
#[test]
fn actor_holds_and_waits() {
    if !is_actor() {
        return;
    }
    let address = std::env::var("FARLOCK_TEST_SERVER").unwrap();
    let session = Session::connect(address).unwrap();
    let _guard = session.lock("a").exclusive().blocking().unwrap();
    println!("\nholds");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn what_a_killed_client_held_is_granted_at_once() {
    let (stage, server) = Serving::alone();
    let (here, there) = (stage.session(), server.session());
    for waiter in [&here, &there, &here] {
        let mut actor = stage.actor("server::actor_holds_and_waits");
        kill_holder(actor.env("FARLOCK_TEST_SERVER", &server.address), waiter);
    }
}

/// The command that a killed `farlock` leaves is being killed too: a try waits for that moment.
#[test]
fn a_try_by_a_server_in_the_moment_of_a_kill_is_granted() {
    let (stage, server) = Serving::alone();
    let at = ["lock", "--server", &server.address];
    for round in 0..20 {
        let file = stage.file(&format!("begun-{round}"));
        let line = format!("echo $$ > {}; exec sleep 100", file.display());
        let mode = if round % 2 == 0 { "-x" } else { "-s" };
        let held = [at[0], at[1], at[2], mode, "b", "--", "sh", "-c", &line];
        let mut holder = stage.farlock(&held).spawn().unwrap();
        number(&stage, &file);
        kill(pid(&holder), Signal::KILL);
        // In turn one of the server's host, and one by the server.
        let tries = [&["lock", "b", "-n", "true"][..], &[at[0], at[1], at[2], "b", "-n", "true"]];
        let (status, _, said) = stage::ended(stage.farlock(tries[round / 2 % 2]).output().unwrap());
        assert_eq!(status, 0, "{round}: {said}");
        holder.wait().unwrap();
    }
}

#[test]
fn a_command_keeps_its_lock_where_its_farlock_is_killed_with_its_guardian() {
    let (stage, server) = Serving::alone();
    let (at, file) = (["--server", &server.address], stage.file("pid"));
    let shell = format!("echo $$ > {}; exec sleep 60", file.display());
    let mut lock = stage.farlock(&["lock", at[0], at[1], "a", "--", "sh", "-c", &shell]);
    let mut child =
        std::os::unix::process::CommandExt::process_group(&mut lock, 0).spawn().unwrap();
    let command = number(&stage, &file) as i32;
    // The whole group at once, but for the command, which is in it too: so that one leaves it.
    let guardian = parent_of(command);
    for pid in [guardian, child.id() as i32] {
        kill(rustix::process::Pid::from_raw(pid).unwrap(), Signal::STOP);
    }
    for pid in [guardian, child.id() as i32] {
        kill(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
    child.wait().unwrap();
    let here = stage.session();
    if is_running(command) {
        let tried = here.lock("a").exclusive().within(Duration::from_millis(300)).blocking();
        assert!(tried.is_err() || !is_running(command), "the command still runs");
        drop(tried);
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_raw(command).unwrap(),
            Signal::KILL,
        );
    }
    drop(here.lock("a").exclusive().within(Duration::from_secs(5)).blocking().unwrap());
}

#[test]
fn who_held_by_a_killed_server_is_told() {
    let stage = Stage::new();
    let mut server = Serving::listening(&stage, "127.0.0.1:0", &["--lease", "1"]);
    let there = server.session();
    let guard = there.lock("a").exclusive().blocking().unwrap();
    let remaining = guard.remaining().unwrap();
    assert!(remaining > Duration::ZERO && remaining < Duration::from_secs(1), "{remaining:?}");
    let file = stage.file("pid");
    let shell = format!("echo $$ > {}; exec sleep 60", file.display());
    let mut lock =
        stage.farlock(&["lock", "--server", &server.address, "b", "--", "sh", "-c", &shell]);
    let lock = lock.stderr(Stdio::piped()).spawn().unwrap();
    let command = number(&stage, &file) as i32;
    let watches = ["kv", "watch", "--server", &server.address, "k"];
    assert_eq!(stage.run(&["kv", "put", "k", "v"]).0, 0);
    let mut watch = stage.farlock(&watches);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut seen = [0; 4];
    watch.stdout.as_mut().unwrap().read_exact(&mut seen).unwrap();
    assert_eq!(&seen, b"k\tv\n");
    let waits = std::thread::spawn(move || {
        let other = there.lock("c");
        let held = other.exclusive().blocking().unwrap();
        let lost = stage::block_on(held.lost());
        (lost, other.exclusive().within(Duration::from_secs(5)).blocking().map(drop))
    });
    std::thread::sleep(Duration::from_millis(50));
    server.kill();
    let (lost, asked) = waits.join().unwrap();
    assert_eq!(lost, LostReason::Disconnected);
    assert!(matches!(asked, Err(AcquireError::Lost { .. })), "{asked:?}");
    stage.until(|| guard.lost_reason() == Some(LostReason::Disconnected));
    let released = guard.release().blocking();
    assert!(matches!(released, Err(ReleaseError::Lost { .. })), "{released:?}");
    let (status, _, said) = stage::ended(lock.wait_with_output().unwrap());
    assert_eq!((status, is_running(command)), (137, false), "its command is killed: {said}");
    assert!(said.contains("its command is killed") && said.contains("[lost]"), "{said}");
    assert!(said.contains("hint: others may have the lock now"), "{said}");
    assert_eq!(said.matches("the lock 'b'").count(), 1, "it is said once: {said}");
    let (status, _, said) = stage::ended(watch.wait_with_output().unwrap());
    assert_eq!((status, said.contains("[disconnected]")), (69, true), "{said}");
    let here = stage.session();
    for name in ["a", "b", "c"] {
        drop(here.lock(name).exclusive().within(Duration::from_secs(2)).blocking().unwrap());
    }
    // Another server has nothing left to go on with.
    let again = Serving::listening(&stage, &server.address, &[]);
    let guard = again.session().lock("a").exclusive().blocking().unwrap();
    guard.release().blocking().unwrap();
}

#[test]
fn a_server_that_ends_in_order_leaves_locks_to_the_next() {
    let stage = Stage::new();
    let mut server = Serving::listening(&stage, "127.0.0.1:0", &["--lease", "3"]);
    let there = server.session();
    let guard = there.lock("a").exclusive().blocking().unwrap();
    kill(pid(&server.child), Signal::TERM);
    assert!(server.child.wait().unwrap().success());
    let here = stage.session();
    assert!(here.lock("a").exclusive().at_once().blocking().is_err(), "it is held");
    assert_eq!(guard.lost_reason(), None);
    server.restart(&stage, &["--lease", "3"]);
    assert!(here.lock("a").exclusive().at_once().blocking().is_err(), "it is held still");
    guard.release().blocking().unwrap();
    drop(here.lock("a").exclusive().at_once().blocking().unwrap());
    // Where none comes the lease ends, and its holder knows that first.
    let guard = there.lock("a").exclusive().blocking().unwrap();
    server.kill();
    let killed = Instant::now();
    let taken = here.lock("a").exclusive().within(Duration::from_secs(6)).blocking().unwrap();
    assert_eq!(guard.lost_reason(), Some(LostReason::Disconnected));
    assert!(taken.token() > guard.token());
    let lasted = killed.elapsed();
    assert!(lasted > Duration::from_secs(2) && lasted < Duration::from_secs(4), "{lasted:?}");
}

#[test]
fn a_command_runs_on_where_the_server_is_restarted() {
    let stage = Stage::new();
    let lease = ["--lease", "2"];
    let mut server = Serving::listening(&stage, "127.0.0.1:0", &lease);
    let (file, go) = (stage.file("pid"), stage.file("go"));
    let line = format!(
        "echo $$ > {}; while [ ! -e {} ]; do sleep 0.02; done; exit 7",
        file.display(),
        go.display()
    );
    let arguments = ["lock", "--server", &server.address.clone(), "a", "--", "sh", "-c", &line];
    let lock = stage.farlock(&arguments).stderr(Stdio::piped()).spawn().unwrap();
    number(&stage, &file);
    for _ in 0..3 {
        server.restart(&stage, &lease);
        let tried = stage.session().lock("a").exclusive().at_once().blocking();
        assert!(tried.is_err(), "it is held");
    }
    std::fs::write(&go, "").unwrap();
    let (status, _, said) = stage::ended(lock.wait_with_output().unwrap());
    assert_eq!((status, said.as_str()), (7, ""));
    drop(stage.session().lock("a").exclusive().at_once().blocking().unwrap());

    // Killed after that, it does not leave the lock to others before its command is gone.
    for path in [&file, &go] {
        std::fs::remove_file(path).unwrap();
    }
    let mut lock = stage.farlock(&arguments).spawn().unwrap();
    let command = number(&stage, &file) as i32;
    server.restart(&stage, &lease);
    stage.until(|| stage.run(&["ls", "--server", &server.address]).1.contains(" a "));
    kill(pid(&lock), Signal::KILL);
    let here = stage.session();
    let guard = here.lock("a").exclusive().within(Duration::from_secs(6)).blocking().unwrap();
    assert!(!is_running(command), "nobody runs beside");
    drop(guard);
    lock.wait().unwrap();
}

/// Whatever they were at, sessions go on where they were; each adds to a number that a lock alone
/// protects, and none loses it.
#[test]
fn a_server_that_is_killed_and_restarted_loses_nothing() {
    const RESTARTS: usize = 12;
    let (stage, mut server) = Serving::alone();
    let (total, added) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..12 {
            let (total, added, is_over) = (&total, &added, &is_over);
            let options = if number % 4 == 0 { stage.options() } else { server.options() };
            // A client that comes while there is no server is told so.
            let session = Session::open(&options).unwrap();
            scope.spawn(move || {
                let (lock, own) = (session.lock("shared"), session.lock(format!("own-{number}")));
                let mut last = None;
                while !is_over.load(Ordering::Relaxed) {
                    let held = own.shared().blocking().unwrap();
                    let guard = lock.exclusive().blocking().unwrap();
                    assert!(last < Some(guard.token()), "tokens increase");
                    last = Some(guard.token());
                    stage::add_one(total);
                    added.fetch_add(1, Ordering::Relaxed);
                    guard.release().blocking().unwrap();
                    held.release().blocking().unwrap();
                }
            });
        }
        server.restart_among(&stage, &added, RESTARTS);
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(total.into_inner(), added.into_inner());
}

/// Each holds a lock of its own; then each has its own still, and the next one comes soon.
#[test]
fn hundreds_of_sessions_outlive_their_server() {
    const SESSIONS: usize = 150;
    let stage = Stage::new();
    // A session has a place of its own, and some for its locks.
    drop(Session::open(&stage.options().with_places(600)).unwrap());
    let mut server = Serving::on(&stage);
    let sessions: Vec<Session> = (0..SESSIONS).map(|_| server.session()).collect();
    let mut guards: Vec<_> = sessions
        .iter()
        .enumerate()
        .map(|(number, session)| {
            session.lock(format!("own-{number}")).exclusive().blocking().unwrap()
        })
        .collect();
    for _ in 0..3 {
        let begun = Instant::now();
        server.restart(&stage, &[]);
        let restarted = begun.elapsed();
        for (number, session) in sessions.iter().enumerate() {
            let next = session.lock(format!("own-{}", (number + 1) % SESSIONS));
            assert!(next.exclusive().at_once().blocking().is_err(), "it is held");
        }
        println!("restarted in {restarted:?}, all are back after {:?}", begun.elapsed());
        guards = guards
            .into_iter()
            .zip(&sessions)
            .enumerate()
            .map(|(number, (guard, session))| {
                let token = guard.token();
                guard.release().blocking().unwrap();
                let own = session.lock(format!("own-{number}"));
                let again = own.exclusive().at_once().blocking().unwrap();
                assert!(again.token() > token, "tokens go on");
                again
            })
            .collect();
    }
}

#[test]
fn what_is_not_possible_is_said() {
    let (stage, server) = Serving::alone();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let speaks = other.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        for stream in other.incoming().take(1) {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(b"-ERR unknown command\r\n");
        }
    });
    let taken = &server.address;
    for (arguments, status, word) in [
        (vec!["lock", "--server", &nobody, "a", "--", "true"], 69, "server-unreachable"),
        (vec!["lock", "--server", "nohost.invalid:1", "a", "--", "true"], 69, "server-unreachable"),
        (vec!["lock", "--server", "127.0.0.1", "a", "--", "true"], 64, "usage"),
        (vec!["lock", "--server", &speaks, "a", "--", "true"], 69, "server-other"),
        (
            vec!["lock", "--server", taken, "--region", "other", "a", "--", "true"],
            69,
            "server-declined",
        ),
        (vec!["kv", "ls", "--server", taken], 64, "usage"),
        (vec!["kv", "drop", "--server", taken, "--store", "s"], 64, "usage"),
        (vec!["serve", "--listen", taken], 69, "region-served"),
        (vec!["serve", "--listen", "127.0.0.1:0"], 69, "region-served"),
        (vec!["serve", "--listen", "0.0.0.0:0"], 64, "usage"),
        (vec!["serve", "--listen", "[::]:0"], 64, "usage"),
        (vec!["serve", "--listen", "nowhere"], 64, "usage"),
        (vec!["serve", "--listen", "nowhere.invalid:4747"], 69, "listen"),
    ] {
        let (ended, _, said) = stage.run(&arguments);
        assert_eq!(ended, status, "{arguments:?}: {said}");
        assert!(said.contains(&format!("[{word}]")), "{arguments:?}: {said}");
        assert!(said.contains("hint: "), "{arguments:?}: {said}");
    }
    answering.join().unwrap();
    drop(server.session().lock("a").exclusive().at_once().blocking().unwrap());
}

/// Connections that begin a greeting and never end it are bounded in what they cost, and end.
/// Who waits for a server, as `systemd` does, is told when clients are served, and when they are no
/// more; one that is not there keeps it from nothing.
#[test]
fn a_service_manager_is_told_when_clients_are_served() {
    let stage = Stage::new();
    let name = format!("farlock-test-{}", std::process::id());
    let places = [
        (
            UnixDatagram::bind(stage.file("manager")).unwrap(),
            stage.file("manager").into_os_string(),
        ),
        (
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
            format!("@{name}").into(),
        ),
    ];
    for (manager, place) in places {
        manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let hears = || {
            let mut said = [0; 100];
            let length = manager.recv(&mut said).unwrap();
            String::from_utf8_lossy(&said[..length]).into_owned()
        };
        let mut serve = stage.farlock(&["serve", "--listen", "127.0.0.1:0"]);
        let mut child = serve.env("NOTIFY_SOCKET", place).stderr(Stdio::piped()).spawn().unwrap();
        assert_eq!(hears(), "READY=1");
        let mut said = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
        drop(Session::connect(said.trim().rsplit(' ').next().unwrap()).unwrap());
        kill(pid(&child), Signal::TERM);
        assert_eq!(hears(), "STOPPING=1");
        assert!(child.wait().unwrap().success());
    }
    for place in ["/nowhere/at all", "@nobody listens", "\u{1}"] {
        let mut serve = stage.farlock(&["serve", "--listen", "127.0.0.1:0"]);
        let mut child = serve.env("NOTIFY_SOCKET", place).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.next().unwrap().rsplit(' ').next().unwrap().to_owned();
        let said = lines.next().unwrap();
        assert!(said.contains("the service manager cannot be told READY=1"), "{said}");
        drop(Session::connect(&address).unwrap());
        kill(pid(&child), Signal::TERM);
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn greetings_that_never_end_cost_little() {
    const CONNECTIONS: usize = 800;
    /// Of the server's own memory.
    const BYTES_MAX: u64 = 2 << 20;
    let (_stage, server) = Serving::alone();
    let own = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id()));
        let status = status.unwrap();
        let own = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        own.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    };
    let there = server.session();
    let guard = there.lock("a").exclusive().blocking().unwrap();
    let before = own();
    let begun = [&60_000_u32.to_le_bytes()[..], &[1; 1000]].concat();
    let greeting = || {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(&begun).unwrap();
        stream
    };
    let mut greetings: Vec<_> = (0..CONNECTIONS).map(|_| greeting()).collect();
    drop(there.lock("b").exclusive().at_once().blocking().unwrap());
    let grown = own().saturating_sub(before);
    assert!(grown <= BYTES_MAX, "{grown} bytes");
    // A byte more than a greeting has ends it.
    let last = greetings.last_mut().unwrap();
    last.write_all(&[1; 100]).unwrap();
    assert!(matches!(last.read(&mut [0]), Ok(0) | Err(_)));
    guard.release().blocking().unwrap();
}

/// What is no frame ends the connection that it came by, and disturbs no other.
#[test]
fn noise_ends_its_own_connection_alone() {
    let (stage, server) = Serving::alone();
    let guard = server.session().lock("a").exclusive().blocking().unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..300 {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let bytes: Vec<u8> = (0..random() % 200).map(|_| random() as u8).collect();
        // Half of them begin as frames do.
        let length = (bytes.len() as u32).to_le_bytes();
        if random() % 2 == 0 {
            let _ = stream.write_all(&length);
        }
        let _ = stream.write_all(&bytes);
    }
    let idle: Vec<_> = (0..100).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    assert!(stage.session().lock("a").exclusive().at_once().blocking().is_err(), "it is held");
    guard.release().blocking().unwrap();
    drop(idle);
}

/// What stands between may close a connection on this host too: its end is believed of a process
/// that is seen to be gone.
#[test]
fn a_local_client_whose_proxy_dies_loses_nothing() {
    let (stage, server) = Serving::alone();
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, onward) = (proxy.local_addr().unwrap().to_string(), server.address.clone());
    let (closers, closing) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for client in proxy.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(&onward).unwrap());
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
            closers.send(client).unwrap();
        }
    });
    let go = stage.file("go");
    let wait = format!("while ! test -e {}; do sleep 0.02; done", go.display());
    let lock = ["lock", "--server", &address, "a", "--", "sh", "-c", &wait];
    let mut holder = stage.farlock(&lock).stderr(Stdio::piped()).spawn().unwrap();
    stage.until(|| stage.run(&["ls"]).1.contains(" a "));
    let here = stage.session();
    for _ in 0..3 {
        // Its connection and those of its tethers.
        closing.try_iter().for_each(|c| c.shutdown(std::net::Shutdown::Both).unwrap_or(()));
        let tried = here.lock("a").exclusive().within(Duration::from_millis(300)).blocking();
        assert!(matches!(tried, Err(AcquireError::TimedOut { .. })), "{tried:?}");
    }
    std::fs::write(&go, "").unwrap();
    drop(here.lock("a").exclusive().within(Duration::from_secs(5)).blocking().unwrap());
    let output = holder.wait_with_output();
    let (status, _, said) = stage::ended(output.unwrap());
    assert_eq!((status, said.as_str()), (0, ""));
    // Where it is gone that is believed at once.
    std::fs::remove_file(&go).unwrap();
    holder = stage.farlock(&lock).spawn().unwrap();
    stage.until(|| stage.run(&["ls"]).1.contains(" a "));
    kill(pid(&holder), Signal::KILL);
    drop(here.lock("a").exclusive().within(Duration::from_secs(3)).blocking().unwrap());
    holder.wait().unwrap();
}
