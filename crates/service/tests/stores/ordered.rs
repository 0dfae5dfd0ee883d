//! Specification of the index of a store, as people choose it, and of scans in the order of keys:
//! programs, commands, processes that are killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::ops::Bound;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use farlock::kv::{Index, Pair, Scan, StoreOptions};
use farlock::{Kv, KvError, RegionOptions, Token};
use rustix::process::Signal;

use crate::stage::serving::Serving;
use crate::stage::{self, Stage, kill, pid};

fn of_index(index: Index) -> StoreOptions {
    StoreOptions::new("t").with_index(index)
}

fn ordered(options: &RegionOptions) -> Kv {
    Kv::open(options, of_index(Index::Ordered)).unwrap()
}

fn keys(scan: Scan<'_>) -> Vec<String> {
    scan.map(|pair| String::from_utf8(pair.unwrap().key).unwrap()).collect()
}

#[test]
fn a_store_has_the_index_that_it_was_made_with() {
    for (index, other) in [(Index::Hash, Index::Ordered), (Index::Ordered, Index::Hash)] {
        let stage = Stage::new();
        let session = stage.session();
        let kv = session.kv(of_index(index)).unwrap();
        kv.put("k", "v").unwrap();
        let refused = |opened: Result<Kv, KvError>| match opened {
            Err(KvError::OtherIndex { name, has, wanted }) => {
                (name.as_str(), has, wanted) == ("t", index, other)
            }
            opened => panic!("{opened:?}"),
        };
        // In the same session, in another one while the first is there, and when all are gone.
        assert!(refused(session.kv(of_index(other))));
        assert!(refused(stage.session().kv(of_index(other))));
        assert_eq!(session.kv("t").unwrap().index(), index);
        drop((kv, session));
        assert!(refused(Kv::open(&stage.options(), of_index(other))));
        let again = Kv::open(&stage.options(), "t").unwrap();
        assert_eq!((again.index(), again.get("k").unwrap().unwrap()), (index, b"v".to_vec()));
        assert!(Kv::open(&stage.options(), of_index(index)).is_ok());
    }
    let stage = Stage::new();
    assert_eq!(stage.session().kv("plain").unwrap().index(), Index::Hash);
}

/// However they come together, all have one index, and what each has put is there.
#[test]
fn sessions_that_make_a_store_at_once_agree_on_its_index() {
    let mut made = Vec::new();
    for round in 0..30 {
        let stage = Stage::new();
        let options = stage.options();
        let opened: Vec<_> = std::thread::scope(|scope| {
            let open = |at: usize| {
                let (index, options) = (Index::ALL[(at + round) % 2], &options);
                scope.spawn(move || match Kv::open(options, of_index(index)) {
                    Ok(kv) => kv.put(at.to_string(), "v").map(|()| kv.index()),
                    Err(KvError::OtherIndex { has, .. }) => Ok(has),
                    Err(error) => Err(error),
                })
            };
            let threads: Vec<_> = (0..4).map(open).collect();
            threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
        });
        let kv = Kv::open(&options, "t").unwrap();
        assert!(opened.iter().all(|index| *index == kv.index()), "{opened:?}");
        assert_eq!(kv.scan().count(), 2, "of each index two have come");
        made.push(kv.index());
    }
    assert!(Index::ALL.iter().all(|index| made.contains(index)), "{made:?}");
}

#[test]
fn a_hash_store_has_no_order_and_says_what_to_do() {
    let stage = Stage::new();
    let kv = stage.session().kv("t").unwrap();
    kv.put("k", "v").unwrap();
    let reversed = [kv.scan_range_reversed(..).err(), kv.scan_prefix_reversed("k").err()];
    for refused in
        [kv.scan_range("a"..).err(), kv.scan_prefix("k").err()].into_iter().chain(reversed)
    {
        let refused = refused.unwrap();
        assert_eq!(refused.code(), "other-index");
        assert!(refused.hint().contains("--index ordered"), "{}", refused.hint());
    }
    assert_eq!(keys(kv.scan()), ["k"]);
}

#[test]
fn a_scan_goes_from_any_key_to_any_other_in_order() {
    let stage = Stage::new();
    let kv = ordered(&stage.options());
    let mut model = BTreeMap::new();
    for number in 0..3_000_u32 {
        let draw = number.wrapping_mul(0x9e37_79b1) >> 8;
        let key = match number % 3 {
            0 => format!("p{:05}", draw % 100_000).into_bytes(),
            1 => vec![draw as u8, (draw >> 8) as u8],
            _ => [&b"p\xff"[..], &draw.to_be_bytes()[..draw as usize % 4]].concat(),
        };
        kv.put(&key, number.to_le_bytes()).unwrap();
        model.insert(key, number.to_le_bytes().to_vec());
    }
    let all = |scan: Scan<'_>| -> Vec<(Vec<u8>, Vec<u8>)> {
        scan.map(Result::unwrap).map(|pair: Pair| (pair.key, pair.value.unwrap())).collect()
    };
    let of_model = |range: (Bound<Vec<u8>>, Bound<Vec<u8>>)| -> Vec<(Vec<u8>, Vec<u8>)> {
        model.range(range).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    assert_eq!(all(kv.scan()), of_model((Bound::Unbounded, Bound::Unbounded)));
    let names: Vec<Vec<u8>> = model.keys().step_by(41).cloned().collect();
    for pair in names.windows(7) {
        let (from, until) = (pair[0].clone(), [&pair[6][..], b"\0"].concat());
        for range in [
            (Bound::Included(from.clone()), Bound::Excluded(until.clone())),
            (Bound::Excluded(from.clone()), Bound::Included(pair[6].clone())),
            (Bound::Unbounded, Bound::Excluded(until)),
            (Bound::Excluded(from), Bound::Unbounded),
        ] {
            let mut expected = of_model(range.clone());
            assert_eq!(all(kv.scan_range(range.clone()).unwrap()), expected);
            expected.reverse();
            assert_eq!(all(kv.scan_range_reversed(range).unwrap()), expected);
        }
    }
    for prefix in [&b""[..], b"p", b"p1", b"p\xff", b"\xff", b"none"] {
        let mut expected: Vec<_> =
            model.clone().into_iter().filter(|(key, _)| key.starts_with(prefix)).collect();
        assert_eq!(all(kv.scan_prefix(prefix).unwrap()), expected);
        expected.reverse();
        assert_eq!(all(kv.scan_prefix_reversed(prefix).unwrap()), expected);
    }
    assert_eq!(kv.scan_range("z".."a").unwrap().count(), 0, "that is no range of keys");
    assert_eq!(kv.scan_range_reversed("z".."a").unwrap().count(), 0, "nor that");
    let mut names: Vec<Vec<u8>> = model.into_keys().collect();
    assert_eq!(in_parts(&kv, false), names);
    names.reverse();
    assert_eq!(in_parts(&kv, true), names);
}

/// Every key, by a caller that takes 37 and goes on behind the last one.
fn in_parts(kv: &Kv, is_reversed: bool) -> Vec<Vec<u8>> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    loop {
        let last = found.last().map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        let scan = match is_reversed {
            false => kv.scan_range((last, Bound::Unbounded)).unwrap(),
            true => kv.scan_range_reversed((Bound::Unbounded, last)).unwrap(),
        };
        let before = found.len();
        found.extend(scan.take(37).map(|pair| pair.unwrap().key));
        if found.len() == before {
            return found;
        }
    }
}

#[test]
fn a_scan_in_order_tells_what_lies_beside_a_value_and_passes_over_what_has_ended() {
    let stage = Stage::new();
    let kv = ordered(&stage.options());
    kv.put_for("a", "v", Duration::from_millis(20)).unwrap();
    kv.put_for("b", "v", Duration::from_secs(1000)).unwrap();
    kv.put_fenced("c", "v", Token::from(5)).unwrap();
    kv.put_fenced("d", "v", Token::from(5)).unwrap();
    kv.remove_fenced("d", Token::from(6)).unwrap();
    kv.put("e", "v").unwrap();
    assert!(kv.remove("e").unwrap());
    let other = ordered(&stage.options());
    other.put_ephemeral("f", "v").unwrap();
    kv.put("g", vec![7; 1 << 20]).unwrap();
    stage.until(|| kv.get("a").unwrap().is_none());
    let found: Vec<Pair> = kv.scan_range("a"..="g").unwrap().map(Result::unwrap).collect();
    let names: Vec<&[u8]> = found.iter().map(|pair| &pair.key[..]).collect();
    assert_eq!(names, [b"b", b"c", b"d", b"f", b"g"]);
    assert!(found[0].time_left.unwrap() > Duration::from_secs(990));
    assert_eq!((found[1].token, found[2].token), (Some(Token::from(5)), Some(Token::from(6))));
    assert!(found[2].value.is_none() && found[3].is_ephemeral);
    assert_eq!(found[4].value.as_ref().unwrap().len(), 1 << 20);
    drop(other);
    assert_eq!((keys(kv.scan_prefix("f").unwrap()).len(), kv.sweep().unwrap()), (0, 1));
}

/// Puts keys of its own, one after the other, until it is killed, and says how far it is.
#[test]
fn putting_actor() {
    if !stage::is_actor() {
        return;
    }
    let variable = |name| std::env::var(name).unwrap();
    let options = match &variable("FARLOCK_TEST_SERVER")[..] {
        "" => stage::options_from_environment(),
        server => RegionOptions::of_server(server),
    };
    let (kv, own) = (ordered(&options), variable("FARLOCK_TEST_KEY"));
    let begun = kv.scan_prefix(&own).unwrap().count();
    let mut out = std::io::stdout();
    for number in begun.. {
        kv.put(name(&own, number), value(number)).unwrap();
        // Such lines fill the pipe, so that it is no more than some hundred keys ahead.
        writeln!(out, "\nput {number} {:200}", "").unwrap();
    }
}

/// Numbers whose keys do not come in their order, so that nodes get slots everywhere.
fn name(own: &str, number: usize) -> String {
    format!("{own}/{:08x}", (number as u32).reverse_bits())
}

fn value(number: usize) -> Vec<u8> {
    vec![number as u8; number % 300]
}

fn putter(stage: &Stage, server: &str, own: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command = stage.actor("ordered::putting_actor");
    command.env("FARLOCK_TEST_KEY", own).env("FARLOCK_TEST_SERVER", server);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    (child, lines)
}

/// How many it was told are there, once they are so many more.
fn heard(lines: &mut BufReader<ChildStdout>, more: usize) -> usize {
    let mut told = lines.lines().filter_map(|line| {
        line.unwrap().trim().strip_prefix("put ").map(|number| number.parse::<usize>().unwrap())
    });
    told.nth(more).expect("the actor goes on") + 1
}

/// What of an actor's is there: as many as it was told of, in order, and at most one more. Returns
/// how many there are.
fn judged(kv: &Kv, own: &str, told: usize) -> usize {
    let pairs: Vec<Pair> = kv.scan_prefix(own).unwrap().map(Result::unwrap).collect();
    assert!(pairs.is_sorted_by(|one, other| one.key < other.key), "in order, each once");
    let found: BTreeMap<Vec<u8>, Vec<u8>> =
        pairs.into_iter().map(|pair| (pair.key, pair.value.unwrap())).collect();
    let there = |number: usize| found.get(name(own, number).as_bytes()) == Some(&value(number));
    assert!((0..told).all(there), "{own}: of {told} some are missing");
    assert!((0..found.len()).all(there), "{own}: what was not put is there");
    found.len()
}

/// Two processes put keys and are killed, again and again, and each time all are there, in order;
/// also while they are at it.
fn killed_in_the_middle(stage: &Stage, server: &str, kv: &Kv, rounds: usize) {
    for round in 0..rounds {
        let mut actors = ["one", "two"].map(|own| (own, putter(stage, server, own)));
        for (own, (_, lines)) in &mut actors {
            let told = heard(lines, 17 * round % 150);
            let pairs = kv.scan_prefix(*own).unwrap().map(Result::unwrap);
            let found: Vec<Vec<u8>> = pairs.map(|pair| pair.key).collect();
            assert!(found.is_sorted_by(|one, other| one < other) && found.len() >= told);
            let all_of = |found: &[Vec<u8>]| {
                let is_there =
                    |number| found.binary_search(&name(own, number).into_bytes()).is_ok();
                assert!((0..told).all(is_there), "a key that was there all the time is missing");
            };
            all_of(&found);
            let pairs = kv.scan_prefix_reversed(*own).unwrap().map(Result::unwrap);
            let mut back: Vec<Vec<u8>> = pairs.map(|pair| pair.key).collect();
            assert!(back.is_sorted_by(|one, other| one > other));
            back.reverse();
            all_of(&back);
        }
        for (own, (mut child, mut lines)) in actors {
            let told = heard(&mut lines, round % 7);
            kill(pid(&child), Signal::KILL);
            child.wait().unwrap();
            let rest = lines.lines().map_while(Result::ok).filter(|line| line.starts_with("put "));
            // The last line may have been cut.
            judged(kv, own, told + rest.count().saturating_sub(1));
        }
    }
    assert_eq!(kv.scan().count(), judged(kv, "one", 1) + judged(kv, "two", 1));
}

#[test]
fn what_killed_processes_have_put_is_there_in_order() {
    let stage = Stage::new();
    let kv = ordered(&stage.options());
    killed_in_the_middle(&stage, "", &kv, 20);
}

#[test]
fn a_store_is_in_order_from_both_sides_of_a_server() {
    let (stage, server) = Serving::alone();
    let there = ordered(&server.options());
    killed_in_the_middle(&stage, &server.address, &there, 5);
    let here = Kv::open(&stage.options(), "t").unwrap();
    assert_eq!(here.index(), Index::Ordered);
    let range = |kv: &Kv| keys(kv.scan_range("one/3".."two/8").unwrap());
    assert_eq!(range(&here), range(&there));
    let refused = Kv::open(&server.options(), of_index(Index::Hash));
    assert!(matches!(refused, Err(KvError::OtherIndex { .. })), "{refused:?}");
}

#[test]
fn what_is_damaged_is_told_and_the_rest_is_in_order() {
    use std::os::unix::fs::FileExt;
    const KEYS: u32 = 2_000;
    let stage = Stage::new();
    let kv = ordered(&stage.options());
    let name = |key: u32| format!("key {key:05}");
    for key in 0..KEYS {
        kv.put(name(key), [key as u8 | 1; 100]).unwrap();
    }
    let path = stage.dir().join(".stores/default/t");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let is_damaged = |key: u32| key.is_multiple_of(100) || (500..540).contains(&key);
    for key in (0..KEYS).filter(|key| is_damaged(*key)) {
        let stored = [name(key).as_bytes(), &[key as u8 | 1; 100]].concat();
        let at = bytes.windows(stored.len()).position(|window| window == stored).unwrap();
        file.write_all_at(b"damage", at as u64 + 50).unwrap();
    }
    let (mut whole, mut damaged) = (Vec::new(), 0);
    for pair in kv.scan_prefix("key ").unwrap() {
        match pair {
            Ok(pair) => whole.push(String::from_utf8(pair.key).unwrap()),
            Err(KvError::Corrupt) => damaged += 1,
            Err(error) => panic!("{error}"),
        }
    }
    let expected: Vec<_> = (0..KEYS).filter(|key| !is_damaged(*key)).map(name).collect();
    assert_eq!((whole.len() + damaged, whole), (KEYS as usize, expected));
    let (status, listed, said) = stage.run(&["kv", "scan", "-s", "t", "--from", "key 00490"]);
    assert!(status == 69 && said.contains("at 54 places"), "{status} {said}");
    assert!(listed.starts_with("key 00490\t"), "{listed}");
    assert_eq!(listed.lines().count(), 2_000 - 490 - 54);
}

#[test]
fn the_command_scans_in_order() {
    let stage = Stage::new();
    let run = |words: &[&str]| stage.run(&[&["kv"], words].concat());
    let says = |words: &[&str]| run(&[&["scan"], words].concat()).1;
    for key in ["b", "a2", "c", "a1", "a\u{ff}"] {
        assert_eq!(run(&["put", "--index", "ordered", key, "v"]).0, 0);
    }
    assert_eq!(says(&[]), "a1\tv\na2\tv\na\u{ff}\tv\nb\tv\nc\tv\n");
    assert_eq!(says(&["--from", "a2", "--limit", "2"]), "a2\tv\na\u{ff}\tv\n");
    assert_eq!(says(&["--after", "a\u{ff}"]), "b\tv\nc\tv\n");
    assert_eq!(says(&["a", "--after", "a1"]), "a2\tv\na\u{ff}\tv\n");
    assert_eq!(says(&["--prefix", "b"]), "b\tv\n");
    assert_eq!(says(&["b", "--from", "a"]), "b\tv\n");
    assert_eq!((says(&["b", "--from", "c"]), says(&["--limit", "0"])), Default::default());
    assert_eq!(says(&["--reverse"]), "c\tv\nb\tv\na\u{ff}\tv\na2\tv\na1\tv\n");
    assert_eq!(says(&["--reverse", "--limit", "2"]), "c\tv\nb\tv\n");
    assert_eq!(says(&["--reverse", "--after", "b", "--limit", "1"]), "a\u{ff}\tv\n");
    assert_eq!(says(&["--reverse", "--from", "b", "--limit", "1"]), "b\tv\n");
    assert_eq!(says(&["--reverse", "--from", "ab"]), "a2\tv\na1\tv\n");
    assert_eq!(says(&["--reverse", "a", "--after", "a2"]), "a1\tv\n");
    assert_eq!(says(&["--reverse", "a", "--from", "b"]), "a\u{ff}\tv\na2\tv\na1\tv\n");
    assert_eq!(says(&["--reverse", "b", "--from", "a9"]), "");
    assert_eq!(says(&["--reverse", "b", "--after", "b"]), "");
    assert_eq!(run(&["scan", "a", "--prefix", "b"]).0, 64);
    assert_eq!(run(&["scan", "--from", "a", "--after", "b"]).0, 64);
    // Without an order there is none, and the rest of it is as ever.
    assert_eq!(run(&["put", "-s", "h", "k", "v"]).0, 0);
    let (status, _, said) = run(&["scan", "-s", "h", "--from", "a"]);
    assert!(status == 1 && said.contains("[other-index]"), "{status} {said}");
    let (status, _, said) = run(&["scan", "-s", "h", "--reverse"]);
    assert!(status == 1 && said.contains("[other-index]"), "{status} {said}");
    assert_eq!(says(&["-s", "h", "--limit", "1", "--json", "k"]), says(&["-s", "h", "--json"]));
    // Copied into a store that has an order it has one.
    let dump = stage.file("dump");
    let dump = dump.to_str().unwrap();
    assert_eq!(run(&["dump", "-s", "h", dump]).0, 0);
    assert_eq!(run(&["load", "-s", "o", "--index", "ordered", dump]).0, 0);
    assert_eq!(says(&["-s", "o", "--from", "a"]), "k\tv\n");
}

/// Keys as they hurt: what is no text, what lines show otherwise, what looks like an option.
fn hostile_keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..=255).map(|byte| vec![b'k', byte]).collect();
    let more =
        [&b"\t"[..], b"\t\n", b"\\", b"\\t", b"\\x41", b"A", b"-", b"--after", b"end\n", b"\0"];
    keys.extend(more.map(<[u8]>::to_vec));
    keys.extend([b"\xc2\x9b".to_vec(), "größe".into(), b"\xff\xff".to_vec(), b" a ".to_vec()]);
    keys.sort_unstable();
    keys
}

/// A page begins behind the last line of the one before, whose key is used as it is printed.
const PAGES: &str = r#"
    tab=$(printf '\t')
    page=$("$FARLOCK" kv scan $WAY --limit 3)
    while [ -n "$page" ]; do
        printf '%s\n' "$page"
        line=$(printf '%s\n' "$page" | tail -n 1)
        page=$("$FARLOCK" kv scan $WAY --escaped --limit 3 --after "${line%%"$tab"*}")
    done
"#;

#[test]
fn a_script_pages_through_a_store_whatever_its_keys_are() {
    let stage = Stage::new();
    let default = StoreOptions::new("default").with_index(Index::Ordered);
    let kv = Kv::open(&stage.options(), default).unwrap();
    for key in hostile_keys() {
        kv.put(&key, &key).unwrap();
    }
    let (status, whole, said) = stage.run(&["kv", "scan"]);
    assert_eq!((status, &said[..], whole.lines().count()), (0, "", hostile_keys().len()));
    let reversed = whole.lines().rev().map(|line| format!("{line}\n")).collect();
    for (way, expected) in [("", whole), ("--reverse", reversed)] {
        let mut script = stage.program("sh");
        script.args(["-c", PAGES]).env("WAY", way).env("FARLOCK", env!("CARGO_BIN_EXE_farlock"));
        assert_eq!(stage::ended(script.output().unwrap()), (0, expected, String::new()));
    }
}

/// Whatever a line shows is taken as it is shown: by every command that has a key, and as a value.
#[test]
fn commands_take_keys_and_values_as_lines_show_them() {
    let stage = Stage::new();
    let run = |words: &[&str]| stage.run(&[&["kv"], words].concat());
    let done = |words: &[&str]| {
        let (status, out, said) = run(words);
        assert_eq!((status, &said[..]), (0, ""), "{words:?}");
        out
    };
    let kv = Kv::open(&stage.options(), StoreOptions::new("default").with_index(Index::Ordered));
    let kv = kv.unwrap();
    for key in hostile_keys() {
        kv.put(&key, &key).unwrap();
    }
    for line in done(&["scan"]).lines() {
        let key = line.split('\t').next().unwrap();
        assert_eq!(done(&["get", "--escaped", "--lines", "--", key]), format!("{line}\n"));
        let first = done(&["scan", "--escaped", "--limit", "1", "--from", key]);
        assert_eq!(first, format!("{line}\n"));
        assert!(done(&["scan", "--escaped", "--prefix", key]).starts_with(line));
    }
    let key = r"a\tb\\\x00";
    done(&["put", "--escaped", key, r"1\n"]);
    assert_eq!(kv.get(b"a\tb\\\0").unwrap().unwrap(), b"1\n");
    done(&["cas", "--escaped", key, r"1\n", r"\x32"]);
    assert_eq!(done(&["incr", "--escaped", key, "5"]), "7\n");
    assert_eq!(done(&["ttl", "--escaped", key]), "forever\n");
    let watched = done(&["watch", "--escaped", key, "--count", "1"]);
    assert_eq!(watched, format!("{key}\t7\n"));
    // A dash alone stands for standard input, an escaped one for itself.
    done(&["put", "--escaped", key, r"\x2d"]);
    assert_eq!(kv.get(b"a\tb\\\0").unwrap().unwrap(), b"-");
    done(&["del", "--escaped", key]);
    assert_eq!(kv.get(b"a\tb\\\0").unwrap(), None);
    // Without it a backslash is a backslash.
    done(&["put", r"\t", "raw"]);
    assert_eq!(done(&["get", r"\t"]), "raw\n");
    assert_eq!(kv.get(b"\t").unwrap().unwrap(), b"\t");
}

/// A dump says which index its store has, and a store that is made of it has the same.
#[test]
fn a_store_that_is_loaded_has_the_index_of_the_one_that_was_dumped() {
    let stage = Stage::new();
    let run = |words: &[&str]| stage.run(&[&["kv"], words].concat());
    let index = |store: &str| run(&["index", "-s", store]).1;
    let (hash, ordered, file) = (stage.file("hash"), stage.file("ordered"), stage.file("file"));
    let files = [("hash", &hash), ("ordered", &ordered)].map(|(name, path)| {
        assert_eq!(run(&["put", "-s", name, "--index", name, "a\tb", "v"]).0, 0);
        assert_eq!(run(&["dump", "-s", name, path.to_str().unwrap()]).0, 0);
        let whole = std::fs::read_to_string(path).unwrap();
        let begins = format!("counted index={name}\na\\tb\tv\npairs=1 sum=");
        assert!(whole.starts_with(&begins), "{whole}");
        path.to_str().unwrap()
    });
    for (name, path, other) in [("hash", files[0], files[1]), ("ordered", files[1], files[0])] {
        let made = format!("made-{name}");
        let (status, _, said) = run(&["load", "-s", &made, path]);
        assert_eq!((status, index(&made)), (0, format!("{name}\n")));
        assert_eq!(said, format!("farlock: 1 pair was stored in '{made}'\n"));
        // In one that is there with another index the pairs are the same, and that is said.
        let (status, _, said) = run(&["load", "-s", &made, other]);
        assert!(status == 0 && said.contains(&format!("'{made}' is {name}, and that")), "{said}");
        assert_eq!(index(&made), format!("{name}\n"));
        assert_eq!(run(&["get", "-s", &made, "a\tb"]).1, "v\n");
        // What is asked for counts: to copy one into another is no accident.
        let asked = format!("asked-{name}");
        let (status, _, said) = run(&["load", "-s", &asked, "--index", name, other]);
        assert_eq!((status, index(&asked), said.lines().count()), (0, format!("{name}\n"), 1));
        assert_eq!(run(&["load", "-s", &made, "--index", name, other]).0, 0);
    }
    assert_eq!(run(&["load", "-s", "made-hash", "--index", "ordered", files[1]]).0, 1);
    let file = file.to_str().unwrap();
    let load = |text: &str, store: &str| {
        std::fs::write(file, text).unwrap();
        run(&["load", "-s", store, file])
    };
    // Dumps of before say nothing, and several may stand in one file. A pair has a tab.
    for (store, text, made, pairs) in [
        ("old", "k\tv\n", "hash\n", 1),
        ("two", "index=ordered\nk\tv\nindex=hash\nl\tv\n", "ordered\n", 2),
        ("none", "index=ordered\n", "ordered\n", 0),
        ("key", "index=ordered\tv\n", "hash\n", 1),
        ("no end", "index=ordered", "ordered\n", 0),
    ] {
        let (status, _, said) = load(text, store);
        assert!(status == 0 && said.contains(&format!(" {pairs} pair")), "{store}: {said}");
        assert_eq!(index(store), made, "{store}");
    }
    // An index that there is not makes no store.
    let (status, _, said) = load("index=tree\nk\tv\n", "other");
    assert!(status == 64 && said.contains("line 1") && said.contains("[bad-line]"), "{said}");
    assert!(said.contains("nothing is stored"), "{said}");
    assert_eq!(run(&["get", "-s", "other", "k"]).0, 1);
    let (status, _, said) = load("k\tv\nindex=tree\n", "other");
    assert!(status == 64 && said.contains("line 2"), "{said}");
}
