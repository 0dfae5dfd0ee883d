//! Specification of a store over several memory nodes at the face that people use: where pairs lie,
//! what is refused, and what goes on while a node is away.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use farlock::kv::{Index, PartOf, StoreOptions};
use farlock::{ConnectError, Kv, KvError, RegionOptions, Session, Token};
use rustix::process::Signal;

use crate::stage::serving::Serving;
use crate::stage::{self, Stage, block_on, kill, pid};

/// Regions of these names, of one host.
fn regions(stage: &Stage, names: &[&str]) -> Vec<RegionOptions> {
    names.iter().map(|name| stage.options().named(*name)).collect()
}

/// The store "t" over these regions.
fn over(stage: &Stage, names: &[&str]) -> Result<Kv, KvError> {
    Kv::open_over(&regions(stage, names), "t")
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("key{number:04}")).collect()
}

/// The keys for which an operation fails.
fn failing(kv: &Kv, keys: &[String]) -> Vec<String> {
    keys.iter().filter(|key| kv.get(key).is_err()).cloned().collect()
}

#[test]
fn each_operation_does_what_it_does_in_one_region() {
    let stage = Stage::new();
    let sessions = ["a", "b", "c"].map(|name| Session::open(&stage.options().named(name)).unwrap());
    let kv = Kv::over(&sessions, "t").unwrap();
    assert_eq!((kv.parts(), kv.name(), kv.index()), (3, "t", Index::Hash));
    for (number, key) in keys(60).iter().enumerate() {
        assert!(kv.get(key).unwrap().is_none() && !kv.replace(key, "1").unwrap());
        assert!(kv.insert(key, "1").unwrap() && !kv.insert(key, "2").unwrap());
        assert!(kv.compare_and_set(key, "1", number.to_string()).unwrap());
        assert_eq!(kv.add(key, 1).unwrap(), number as i64 + 1);
    }
    let again = kv.another().unwrap();
    let same = Kv::over(&sessions, "t").unwrap();
    for (number, key) in keys(60).iter().enumerate() {
        let value = Some((number + 1).to_string().into_bytes());
        assert_eq!((again.get(key).unwrap(), same.get(key).unwrap()), (value.clone(), value));
        again.put_for(key, "v", Duration::from_secs(1000)).unwrap();
        assert!(kv.time_left(key).unwrap().unwrap().unwrap() > Duration::from_secs(990));
        kv.put_fenced(key, "f", Token::from(5)).unwrap();
        assert_eq!(same.token(key).unwrap(), Some(Token::from(5)));
        assert!(matches!(again.put(key, "v"), Err(KvError::Fenced { .. })));
        assert!(same.remove_fenced(key, Token::from(6)).unwrap());
    }
    let names: Vec<String> = keys(40).into_iter().map(|key| key + "/many").collect();
    assert!(kv.put_many(names.iter().map(|key| (key, key))).iter().all(Result::is_ok));
    for (key, got) in names.iter().zip(kv.get_many(&names)) {
        assert_eq!(got.unwrap().as_deref(), Some(key.as_bytes()));
    }
    assert!(kv.remove_many(&names).iter().all(|removed| matches!(removed, Ok(true))));
    for key in keys(9) {
        kv.put_for(key + "/soon", "v", Duration::ZERO).unwrap();
    }
    assert_eq!(kv.sweep().unwrap(), 9);
    for key in ["", &"k".repeat(1025)] {
        assert!(matches!(kv.put(key, "v"), Err(KvError::BadKey { .. })));
    }
    assert_eq!(stage.options().named("b").store_names().unwrap(), ["t"]);
}

#[test]
fn each_part_has_its_share_and_ends_by_itself() {
    let stage = Stage::new();
    let kv = over(&stage, &["a", "b", "c"]).unwrap();
    let keys = keys(600);
    keys.iter().for_each(|key| kv.put(key, key).unwrap());
    assert!(stage.options().named("b").remove_store("t").unwrap());
    stage.until(|| !failing(&kv, &keys).is_empty());
    let gone = failing(&kv, &keys);
    assert!((130..270).contains(&gone.len()), "{} of 600", gone.len());
    assert!(gone.iter().all(|key| matches!(kv.get(key), Err(KvError::Gone { .. }))));
    // A client that opens it is told what is missing, until one has it made anew, empty.
    let reader =
        Kv::open_over(&regions(&stage, &["a", "b", "c"]), StoreOptions::new("t").existing());
    let reader = reader.unwrap();
    assert_eq!(failing(&reader, &keys), gone);
    let missing = reader.get(&gone[0]);
    let of_two = PartOf { part: 2, parts: 3 };
    assert!(matches!(&missing, Err(KvError::NoPart { of, .. }) if *of == of_two), "{missing:?}");
    assert!(reader.scan().any(|pair| matches!(pair, Err(KvError::NoPart { .. }))));
    let writer = over(&stage, &["a", "b", "c"]).unwrap();
    assert!(matches!(writer.put(&gone[0], "v"), Err(KvError::NoPart { .. })));
    writer.put(keys.iter().find(|key| !gone.contains(*key)).unwrap(), "v").unwrap();
    assert_eq!(stage.options().named("b").store_names().unwrap(), [""; 0]);
    // Also beside a handle for which none is made.
    let remaking = StoreOptions::new("t").remaking();
    let writer = Kv::open_over(&regions(&stage, &["a", "b", "c"]), remaking).unwrap();
    let there: Vec<_> = keys.iter().filter(|key| writer.get(key).unwrap().is_some()).collect();
    assert_eq!(there.len() + gone.len(), 600);
    // It is there for all by now.
    assert_eq!(reader.get(&gone[0]).unwrap(), None);
}

#[test]
fn scans_have_all_parts_in_order() {
    let stage = Stage::new();
    let ordered = StoreOptions::new("t").with_index(Index::Ordered);
    let kv = Kv::open_over(&regions(&stage, &["a", "b", "c"]), ordered).unwrap();
    let all = keys(500);
    all.iter().for_each(|key| kv.put(key, "v").unwrap());
    let text = |pair: Result<farlock::kv::Pair, KvError>| String::from_utf8(pair.unwrap().key);
    let read = |scan: farlock::kv::Scan<'_>| -> Vec<String> {
        scan.map(|pair| text(pair).unwrap()).collect()
    };
    let reversed = |keys: &[String]| keys.iter().rev().cloned().collect::<Vec<_>>();
    assert_eq!(read(kv.scan()), all);
    assert_eq!(read(kv.scan_range("key0100".."key0223").unwrap()), all[100..223]);
    assert_eq!(read(kv.scan_prefix("key03").unwrap()), all[300..400]);
    assert_eq!(read(kv.scan_prefix_reversed("key03").unwrap()), reversed(&all[300..400]));
    let down = kv.scan_range_reversed("key0100"..="key0223").unwrap();
    assert_eq!(read(down), reversed(&all[100..=223]));
    assert_eq!(read(kv.scan_range("x"..).unwrap()), [""; 0]);
    // Of a table each is there once.
    let hash = Kv::open_over(&regions(&stage, &["a", "b", "c"]), "h").unwrap();
    all.iter().for_each(|key| hash.put(key, "v").unwrap());
    let mut found = read(hash.scan());
    found.sort();
    assert_eq!(found, all);
    assert!(matches!(hash.scan_prefix("k"), Err(KvError::OtherIndex { .. })));
    // All of it has one index, which is decided with its first part.
    let names = regions(&stage, &["a", "b", "c"]);
    let other = Kv::open_over(&names, StoreOptions::new("h").with_index(Index::Ordered));
    assert!(matches!(other, Err(KvError::OtherIndex { .. })));
}

#[test]
fn keys_are_watched_and_end_with_their_owner() {
    let stage = Stage::new();
    let sessions = ["a", "b"].map(|name| Session::open(&stage.options().named(name)).unwrap());
    let (kv, other) = (Kv::over(&sessions, "t").unwrap(), over(&stage, &["a", "b"]).unwrap());
    for key in keys(8) {
        let mut watch = other.watch(&key).unwrap();
        assert_eq!(watch.next().blocking().unwrap(), None);
        kv.put_ephemeral(&key, "1").unwrap();
        assert_eq!(watch.next().blocking().unwrap().as_deref(), Some(&b"1"[..]));
        kv.add(&key, 1).unwrap();
        assert_eq!(block_on(watch.next().into_future()).unwrap().as_deref(), Some(&b"2"[..]));
    }
    let another = kv.another().unwrap();
    drop(kv);
    assert!(keys(8).iter().all(|key| other.get(key).unwrap().is_some()));
    drop(another);
    assert!(keys(8).iter().all(|key| other.get(key).unwrap().is_none()));
}

/// Each names a store that is made over a, b and c, or by itself in d, in another way.
#[test]
fn what_is_another_part_is_refused_and_nothing_is_written() {
    let stage = Stage::new();
    over(&stage, &["a", "b", "c"]).unwrap().put("k", "v").unwrap();
    Kv::open(&stage.options().named("d"), "t").unwrap().put("k", "v").unwrap();
    over(&stage, &["e", "f", "g"]).unwrap().put("k", "v").unwrap();
    let code = |names: &[&str]| over(&stage, names).map_or_else(|error| error.code(), |_| "");
    let rows: &[(&[&str], &str)] = &[
        (&["b", "a", "c"], "other-part"),
        (&["a", "c", "b"], "other-part"),
        (&["a", "b"], "other-part"),
        (&["b", "c"], "other-part"),
        (&["a", "b", "c", "new"], "other-part"),
        (&["new", "b", "c", "a"], "other-part"),
        (&["new", "a", "b"], "other-part"),
        (&["a"], "other-part"),
        (&["d", "new"], "other-part"),
        (&["a", "b", "d"], "other-part"),
        (&["a", "b", "g"], "foreign-part"),
        (&["e", "b", "new"], "foreign-part"),
        (&["a", "a"], "bad-parts"),
        (&[], "bad-parts"),
        (&["a", "b", "c"], ""),
        (&["e", "f", "g"], ""),
        (&["d"], ""),
    ];
    for (names, expected) in rows {
        assert_eq!(code(names), *expected, "{names:?}");
        let read = Kv::open_over(&regions(&stage, names), StoreOptions::new("t").existing());
        assert_eq!(read.map_or_else(|error| error.code(), |_| ""), *expected, "{names:?}");
    }
    assert!(stage.options().named("new").store_names().unwrap().is_empty());
    let Err(error) = over(&stage, &["b", "c", "a"]) else { panic!("it is refused") };
    let said = "the store 't' at region 'b' is part 2 of 3, not part 1 of 3";
    assert_eq!(error.to_string(), said);
    let hint = "name them in this order: region 'a', region 'b', region 'c'";
    assert_eq!(error.hint(), hint);
    let session = Session::open(&stage.options().named("c")).unwrap();
    let Err(error) = session.kv("t") else { panic!("it is refused") };
    let said = "the store 't' at region 'c' is part 3 of 3, not a store by itself";
    assert_eq!(error.to_string(), said);
    let nowhere = Kv::open_over(&regions(&stage, &["x", "y"]), StoreOptions::new("t").existing());
    let absent = |error| matches!(error, KvError::Open { source: ConnectError::Absent { .. }, .. });
    assert!(nowhere.is_err_and(absent));
}

/// Two that make it at once, or one that is killed meanwhile, leave one store.
#[test]
fn who_opens_it_next_makes_what_is_missing() {
    let stage = Stage::new();
    for round in 0..20_u64 {
        let name = format!("t{round}");
        let options = || regions(&stage, &["a", "b", "c"]);
        let words = ["kv", "put", "-s", &name, "--region", "a", "--region", "b", "--region", "c"];
        let put = |key| [&words[..], &[key, "v"]].concat();
        let mut actors: Vec<Child> = ["one", "two"]
            .map(|key| stage.farlock(&put(key)).stderr(Stdio::null()).spawn().unwrap())
            .into();
        std::thread::sleep(Duration::from_micros(700 * round));
        kill(pid(&actors[0]), Signal::KILL);
        actors[0].wait().unwrap();
        if round % 2 == 0 {
            kill(pid(&actors[1]), Signal::KILL);
        }
        let is_put = actors[1].wait().unwrap().success();
        let kv = Kv::open_over(&options(), name.as_str()).unwrap();
        assert!(!is_put || kv.get("two").unwrap().is_some());
        for key in keys(20) {
            assert!(kv.insert(&key, "v").unwrap());
        }
        assert_eq!(kv.scan().filter(|pair| pair.as_ref().unwrap().key.len() == 7).count(), 20);
    }
    let opened = std::thread::scope(|scope| {
        let open = || over(&stage, &["a", "b", "c"]).unwrap().add("opened", 1).unwrap();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).max()
    });
    assert_eq!(opened, Some(8));
}

/// Three servers, each on a stage of its own: of several hosts, as far as a test can have them.
struct Servers {
    stages: [Stage; 3],
    servers: [Serving; 3],
}

const LEASE: [&str; 2] = ["--lease", "3"];

impl Servers {
    fn new() -> Self {
        let stages = [Stage::new(), Stage::new(), Stage::new()];
        let servers =
            [0, 1, 2].map(|number| Serving::listening(&stages[number], "127.0.0.1:0", &LEASE));
        Self { stages, servers }
    }

    fn options(&self) -> Vec<RegionOptions> {
        self.servers.iter().map(Serving::options).collect()
    }

    fn named(&self, these: &[usize]) -> String {
        let addresses = these.iter().map(|number| self.servers[*number].address.as_str());
        addresses.collect::<Vec<_>>().join(",")
    }

    fn restart(&mut self, number: usize) {
        self.servers[number].restart(&self.stages[number], &LEASE);
    }

    /// `farlock kv`, on a stage that has none of the stores.
    fn kv(&self, stage: &Stage, these: &[usize], words: &[&str]) -> (i32, String, String) {
        stage.run(&[&["kv"], words, &["--server", &self.named(these)]].concat())
    }
}

#[test]
fn a_server_that_is_down_takes_its_own_keys_along_and_no_more() {
    let mut servers = Servers::new();
    let sessions: Vec<Session> = servers.servers.iter().map(Serving::session).collect();
    let kv = Kv::over(&sessions, "t").unwrap();
    let keys = keys(90);
    keys.iter().for_each(|key| kv.put(key, key).unwrap());
    let waits = kv.another().unwrap();
    servers.servers[1].kill();
    // What is opened now does without it.
    let opened = Kv::open_over(&servers.options(), "t").unwrap();
    let away = failing(&opened, &keys);
    assert!((15..45).contains(&away.len()), "{} of 90", away.len());
    assert!(opened.get(&away[0]).is_err_and(|error| error.code() == "server-unreachable"));
    // Of those that were open the others go on at once, though this one is waited for.
    let others: Vec<&String> = keys.iter().filter(|key| !away.contains(key)).collect();
    let begun = Instant::now();
    others.iter().for_each(|key| kv.put(key, "2").unwrap());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let another = kv.another().unwrap();
    assert!(another.get(others[0]).unwrap().is_some());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    std::thread::scope(|scope| {
        let key = &away[0];
        let waiting = scope.spawn(move || waits.put(key, "2"));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished());
        servers.restart(1);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(opened.get(&away[0]).unwrap().as_deref(), Some(&b"2"[..]));
    // Beyond its lease it is told, of each key.
    servers.servers[1].kill();
    let is_told = |put: &Result<(), KvError>| {
        let is_it = |at: &String| *at == servers.servers[1].address;
        matches!(put, Err(KvError::Disconnected { at, .. }) if is_it(at))
    };
    let put = kv.put_many(keys.iter().map(|key| (key, "3")));
    for (key, put) in keys.iter().zip(put) {
        // What was on its way may have been done.
        let may_be = matches!(put, Err(KvError::Unknown)) || is_told(&put);
        assert!(if away.contains(key) { may_be } else { put.is_ok() }, "{key}: {put:?}");
    }
    for key in &away {
        let put = kv.put(key, "3");
        assert!(is_told(&put), "{key}: {put:?}");
    }
    // It is opened anew.
    servers.restart(1);
    let again = Kv::open_over(&servers.options(), "t").unwrap();
    assert_eq!(failing(&again, &keys), [""; 0]);
}

#[test]
fn commands_take_several_servers() {
    let mut servers = Servers::new();
    let (stage, all) = (Stage::new(), [0, 1, 2]);
    let refused = servers.kv(&stage, &all, &["get", "k"]);
    assert!(refused.0 == 1 && refused.2.contains("[no-such-store]"), "{refused:?}");
    for number in 0..30 {
        let key = format!("k{number:02}");
        assert_eq!(servers.kv(&stage, &all, &["put", &key, "v", "--index", "ordered"]).0, 0);
    }
    let scanned = servers.kv(&stage, &all, &["scan", "--after", "k10", "--limit", "2"]);
    assert_eq!(scanned.1, "k11\tv\nk12\tv\n");
    assert_eq!(servers.kv(&stage, &all, &["incr", "n", "7"]).1, "7\n");
    assert_eq!(servers.kv(&stage, &all, &["cas", "n", "7", "8"]).0, 0);
    assert_eq!(servers.kv(&stage, &all, &["get", "n"]).1, "8\n");
    assert_eq!(servers.kv(&stage, &all, &["ttl", "n"]).1, "forever\n");
    assert_eq!(servers.kv(&stage, &all, &["index"]).1, "ordered\n");
    assert_eq!(servers.kv(&stage, &all, &["sweep"]).1, "0\n");
    assert_eq!(servers.kv(&stage, &all, &["watch", "n", "--count", "1"]).1, "n\t8\n");
    assert_eq!(servers.kv(&stage, &all, &["del", "n"]).0, 0);
    let refused = servers.kv(&stage, &[2, 0, 1], &["get", "k01"]);
    let order = servers.named(&all).replace(',', ", ");
    assert!(refused.0 == 1 && refused.2.contains("is part 3 of 3, not part 1 of 3"), "{refused:?}");
    assert!(refused.2.contains(&format!("name them in this order: {order}")), "{refused:?}");
    // The variable names several too.
    let mut get = stage.farlock(&["kv", "get", "k07"]);
    let got = stage::ended(get.env("FARLOCK_SERVER", servers.named(&all)).output().unwrap());
    assert_eq!(got, (0, "v\n".into(), String::new()));
    for number in 0..4 {
        let key = format!("held{number}");
        let words = ["kv", "hold", &key, "v", "--server", &servers.named(&all)];
        let mut holder = stage.farlock(&words).spawn().unwrap();
        stage.until(|| servers.kv(&stage, &all, &["get", &key]).0 == 0);
        kill(pid(&holder), Signal::KILL);
        holder.wait().unwrap();
        stage.until(|| servers.kv(&stage, &all, &["get", &key]).0 == 1);
    }
    // Without one of them its keys are named, and the others are printed.
    servers.servers[0].kill();
    let names: Vec<String> = (0..30).map(|number| format!("k{number:02}")).collect();
    let words: Vec<&str> = ["get"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let (status, out, said) = servers.kv(&stage, &all, &words);
    let is_told = |key: &String| {
        out.contains(&format!("{key}\tv\n")) != said.contains(&format!("the key '{key}': "))
    };
    assert!(status == 69 && names.iter().all(is_told), "{out}{said}");
    assert!((5..30).contains(&out.lines().count()), "{out}");
    assert_eq!(servers.kv(&stage, &all, &["scan"]).0, 69);
}

/// So a store gets another number of parts.
#[test]
fn a_dump_of_three_parts_is_loaded_into_two_and_into_one() {
    let servers = Servers::new();
    let (stage, all) = (Stage::new(), [0, 1, 2]);
    let kv =
        Kv::open_over(&servers.options(), StoreOptions::new("default").with_index(Index::Ordered));
    let kv = kv.unwrap();
    keys(300).iter().for_each(|key| kv.put(key, key).unwrap());
    kv.put_for("ends", "v", Duration::from_secs(1000)).unwrap();
    kv.put_fenced("fenced", "v", Token::from(5)).unwrap();
    kv.put_ephemeral("mine", "v").unwrap();
    let file = stage.file("dump");
    let file = file.to_str().unwrap();
    assert_eq!(servers.kv(&stage, &all, &["dump", file]).0, 0);
    let loaded = servers.kv(&stage, &[2, 1], &["load", "-s", "two", file]);
    assert!(loaded.0 == 0 && loaded.2.contains("302 pairs were stored in 'two'"), "{loaded:?}");
    let again = stage.file("again");
    let again = again.to_str().unwrap();
    assert_eq!(servers.kv(&stage, &[2, 1], &["dump", "-s", "two", again]).0, 0);
    assert_eq!(servers.kv(&stage, &[0], &["load", "-s", "one", again]).0, 0);
    let pairs = |these: &[usize], name| {
        let (status, out, said) = servers.kv(&stage, these, &["scan", "-s", name]);
        assert_eq!(status, 0, "{said}");
        out
    };
    let two = pairs(&[2, 1], "two");
    assert_eq!(two.lines().count(), 302);
    assert!(two == pairs(&[0], "one") && two == pairs(&all, "default").replace("mine\tv\n", ""));
    let fenced = servers.kv(&stage, &[0], &["put", "-s", "one", "fenced", "v", "--token", "4"]);
    assert!(fenced.0 == 1 && fenced.2.contains("[stale-token]"), "{fenced:?}");
}

/// Does something again of which nobody knows whether it was done: a server was killed just then.
fn until_known<T>(act: impl Fn() -> Result<T, KvError>) -> T {
    loop {
        match act() {
            Err(KvError::Unknown) => {}
            done => return done.unwrap(),
        }
    }
}

/// Counts its own keys up until it is killed, and says what it was told is stored, and of how many
/// additions it was told that nobody knows.
#[test]
fn storming_actor() {
    if !stage::is_actor() {
        return;
    }
    let variable = |name| std::env::var(name).unwrap();
    let (own, addresses) = (variable("FARLOCK_TEST_KEY"), variable("FARLOCK_TEST_SERVERS"));
    let connect = |address: &str| Session::connect(address).unwrap();
    let sessions: Vec<Session> = addresses.split(',').map(connect).collect();
    let kv = Kv::over(&sessions, "storm").unwrap();
    let (mut out, mut unknown) = (std::io::stdout(), 0_u64);
    for number in 1_u64.. {
        let key = format!("{own}/{}", number % 31);
        match number % 3 {
            0 => drop(until_known(|| kv.remove(&key))),
            _ => until_known(|| kv.put(&key, number.to_string())),
        }
        match kv.add("sum", 1) {
            Err(KvError::Unknown) => unknown += 1,
            added => drop(added.unwrap()),
        }
        writeln!(out, "\nstored {number} {unknown}").unwrap();
    }
}

fn storm(stage: &Stage, servers: &Servers, own: &str) -> (Child, Receiver<(u64, u64)>) {
    let mut command = stage.actor("spread::storming_actor");
    command.env("FARLOCK_TEST_KEY", own).env("FARLOCK_TEST_SERVERS", servers.named(&[0, 1, 2]));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (told, heard) = channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if let Some((number, unknown)) =
                line.strip_prefix("stored ").and_then(|numbers| numbers.split_once(' '))
            {
                let _ = told.send((number.parse().unwrap(), unknown.parse().unwrap()));
            }
        }
    });
    (child, heard)
}

/// What an actor's keys are once it has done so many operations.
fn expected(own: &str, done: u64) -> BTreeMap<String, Option<String>> {
    let mut keys = BTreeMap::new();
    for number in 1..=done {
        let value = (number % 3 != 0).then(|| number.to_string());
        keys.insert(format!("{own}/{}", number % 31), value);
    }
    keys
}

#[test]
fn nothing_that_was_told_is_lost_though_servers_are_killed() {
    let mut servers = Servers::new();
    let stage = Stage::new();
    let names = ["one", "two", "three"];
    let mut actors = names.map(|own| storm(&stage, &servers, own));
    let heard: Vec<(u64, u64)> = actors
        .iter()
        .map(|(_, heard)| heard.recv_timeout(Duration::from_secs(20)).unwrap())
        .collect();
    assert!(heard.iter().all(|(number, _)| *number >= 1));
    for number in [0, 1, 2, 1] {
        std::thread::sleep(Duration::from_millis(250));
        servers.restart(number);
    }
    std::thread::sleep(Duration::from_millis(500));
    let (mut told, mut unknown) = ([0; 3], 0);
    for ((child, heard), told) in actors.iter_mut().zip(&mut told) {
        assert!(child.try_wait().unwrap().is_none(), "the actor has ended");
        kill(pid(child), Signal::KILL);
        child.wait().unwrap();
        // Until its end.
        let last = heard.iter().last().unwrap();
        (*told, unknown) = (last.0, unknown + last.1);
        assert!(*told > 10, "{told}");
    }
    let kv = Kv::open_over(&servers.options(), "storm").unwrap();
    let sum = kv.add("sum", 0).unwrap() as u64;
    // Each may have done one operation more than it could say, or half of it.
    let all = told.iter().sum::<u64>();
    assert!((all - unknown..=all + 3).contains(&sum), "{sum} {told:?}, {unknown} unknown");
    // A kill cuts one verb of each at most.
    assert!(unknown <= 4 * 3, "{unknown} unknown");
    for (own, told) in names.iter().zip(told) {
        let states = [expected(own, told), expected(own, told + 1)];
        for key in states[1].keys() {
            let value = kv.get(key).unwrap().map(|value| String::from_utf8(value).unwrap());
            let could = states.each_ref().map(|state| state.get(key).cloned().flatten());
            assert!(could.contains(&value), "{key} is {value:?}, not {could:?}");
        }
    }
}

/// A wrong server would have keys that are somewhere else, and none of both would be refused.
#[test]
fn a_place_that_has_no_part_of_a_store_that_was_made_gets_none() {
    let stage = Stage::new();
    let kv = over(&stage, &["a", "b", "c"]).unwrap();
    let keys = keys(60);
    keys.iter().for_each(|key| kv.put(key, "right").unwrap());
    drop(kv);
    for wrong in [["a", "b", "d"], ["a", "d", "c"], ["d", "b", "c"]] {
        let at = wrong.iter().position(|place| *place == "d").unwrap();
        let astray = over(&stage, &wrong).unwrap();
        let (mut refused, mut stored) = (0, 0);
        for key in &keys {
            match astray.put(key, "right") {
                Ok(()) => stored += 1,
                Err(KvError::NoPart { of, .. }) if usize::from(of.part) == at + 1 => refused += 1,
                Err(error) => panic!("{wrong:?}: {error:?}"),
            }
        }
        assert!(refused > 5 && stored > 20, "{wrong:?}: {refused}, {stored}");
        let put = [
            "kv", "put", "-s", "t", "--region", wrong[0], "--region", wrong[1], "--region",
            wrong[2],
        ];
        let said: Vec<_> = keys
            .iter()
            .map(|key| stage.run(&[&put[..], &[key.as_str(), "right"]].concat()))
            .filter(|(status, ..)| *status != 0)
            .collect();
        assert_eq!(said.len(), refused, "{wrong:?}");
        assert!(said.iter().all(|(_, _, said)| said.contains("--remake")), "{:?}", said[0]);
    }
    let names = stage.options().named("d").store_names();
    assert!(names.is_err() || names.unwrap().is_empty());
    let kv = over(&stage, &["a", "b", "c"]).unwrap();
    assert!(keys.iter().all(|key| kv.get(key).unwrap().is_some_and(|value| value == b"right")));
}

/// Handles of one store share what they have open, but not what they are to make.
#[test]
fn a_part_is_made_anew_beside_a_handle_that_makes_none() {
    let stage = Stage::new();
    let sessions: Vec<_> = ["a", "b", "c"]
        .map(|name| farlock::Session::open(&stage.options().named(name)).unwrap())
        .into();
    let keys = keys(60);
    let kv = Kv::over(&sessions, "t").unwrap();
    keys.iter().for_each(|key| kv.put(key, "v").unwrap());
    drop(kv);
    assert!(stage.options().named("b").remove_store("t").unwrap());
    let reader = Kv::over(&sessions, StoreOptions::new("t").existing()).unwrap();
    let kv = Kv::over(&sessions, "t").unwrap();
    let gone = failing(&kv, &keys);
    assert!(gone.len() > 5 && failing(&reader, &keys) == gone);
    let remaking = Kv::over(&sessions, StoreOptions::new("t").remaking()).unwrap();
    assert!(failing(&remaking, &keys).is_empty());
    assert!(failing(&kv, &keys).is_empty(), "it is there for all by now");
}
