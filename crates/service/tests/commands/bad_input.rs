//! Specification: what is wrong is refused by name, with a hint and a status, and leaves nothing
//! behind: on the command line, in the environment, in a region's file, and on the wire.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farlock::{Guard, RegionOptions, Server, Session};
use farlock_fabric::tcp::{self, Limits, Remote, Stopper};
use farlock_fabric::{ConnectError, Connection as _, Endpoint as _, Host, HostOptions, block_on};

use crate::stage::{Stage, ended};
use crate::wire::rows::{Far, ROWS, Region, sound};
use crate::wire::{self, Then, Wire, framed};

/// A line of words between blanks; the status, and the code of what is said.
type Row = (&'static str, i32, &'static str);

/// What is wrong with the words alone. `NAME` stands for what cannot stand in a line.
const COMMAND_LINES: &[Row] = &[
    ("", 64, ""),
    ("nothing", 64, "usage"),
    ("--nothing", 64, "usage"),
    ("help nothing", 64, "usage"),
    ("--region x lock a true", 64, "usage"),
    // Locks.
    ("lock", 64, "usage"),
    ("lock a", 64, "usage"),
    ("lock a --", 64, "usage"),
    ("lock -- true", 64, "usage"),
    ("lock EMPTY -- true", 64, "bad-name"),
    ("lock LONG -- true", 64, "bad-name"),
    ("lock BYTES -- true", 64, "usage"),
    ("lock a --nothing -- true", 64, "usage"),
    ("lock a -w -1 -- true", 64, "usage"),
    ("lock a -w -0.001 -- true", 64, "usage"),
    ("lock a -w NaN -- true", 64, "usage"),
    ("lock a -w inf -- true", 64, "usage"),
    ("lock a -w 1e300 -- true", 64, "usage"),
    ("lock a -w 1s -- true", 64, "usage"),
    ("lock a -w EMPTY -- true", 64, "usage"),
    ("lock a -n -w 1 -- true", 64, "usage"),
    ("lock a -q -v -- true", 64, "usage"),
    ("lock a -E 256 -- true", 64, "usage"),
    ("lock a -E -1 -- true", 64, "usage"),
    ("lock a -E x -- true", 64, "usage"),
    ("lock a -c true -- true", 64, "usage"),
    ("lock a -c", 64, "usage"),
    ("lock -u 9", 64, "usage"),
    ("lock 9", 64, "usage"),
    ("lock a -r 5 -- true", 64, "usage"),
    ("lock a -r 5: -- true", 64, "usage"),
    ("lock a -r :5 -- true", 64, "usage"),
    ("lock a -r EMPTY -- true", 64, "usage"),
    ("lock a -r=-1:5 -- true", 64, "usage"),
    ("lock a -r 1:-5 -- true", 64, "usage"),
    ("lock a -r 1:2:3 -- true", 64, "usage"),
    ("lock a -r 0x1:2 -- true", 64, "usage"),
    ("lock a -r 18446744073709551615:2 -- true", 64, "usage"),
    ("lock a -r 18446744073709551614:2 -- true", 64, "usage"),
    ("lock a -r 1:18446744073709551615 -- true", 64, "usage"),
    ("lock a -r 1:18446744073709551616 -- true", 64, "usage"),
    ("lock a -r 18446744073709551615:0 -- true", 64, "usage"),
    ("lock EMPTY -r 0:1 -- true", 64, "bad-name"),
    ("lock LONG -r 0:1 -- true", 64, "bad-name"),
    ("lock a -r 0:1 --unit 0 -- true", 64, "usage"),
    ("lock a -r 0:1 --unit=-1 -- true", 64, "usage"),
    ("lock a -r 0:1 --unit 18446744073709551616 -- true", 64, "usage"),
    ("lock a --unit 4 -- true", 64, "usage"),
    ("lock a --region EMPTY -- true", 64, "region-open"),
    ("lock a --region .a -- true", 64, "region-open"),
    ("lock a --region .. -- true", 64, "region-open"),
    ("lock a --region a/b -- true", 64, "region-open"),
    ("lock a --region LONG -- true", 64, "region-open"),
    ("lock a --region CONTROL -- true", 64, "region-open"),
    ("lock a --server EMPTY -- true", 64, "usage"),
    ("lock a --server x -- true", 64, "usage"),
    ("lock a --server :1 -- true", 64, "usage"),
    ("lock a --server localhost -- true", 64, "usage"),
    ("lock a --server 127.0.0.1 -- true", 64, "usage"),
    ("lock a --server 127.0.0.1: -- true", 64, "usage"),
    ("lock a --server 127.0.0.1:0 -- true", 64, "usage"),
    ("lock a --server 127.0.0.1:-1 -- true", 64, "usage"),
    ("lock a --server 127.0.0.1:65536 -- true", 64, "usage"),
    ("lock a --server 127.0.0.1:4747x -- true", 64, "usage"),
    ("lock a --server [::1:1 -- true", 64, "usage"),
    ("lock a --server ::1:1 -- true", 64, "usage"),
    ("lock a --server http://127.0.0.1:1 -- true", 64, "usage"),
    ("lock a --server tls://127.0.0.1:1 -- true", 64, "usage"),
    ("lock a --server tcp://127.0.0.1:1 --tls x -- true", 64, "usage"),
    ("lock a --server 127.0.0.1:1 -- true", 69, "server-unreachable"),
    ("lock a --server CONTROL:1 -- true", 69, "server-unreachable"),
    ("lock a --server LONG:1 -- true", 69, "server-unreachable"),
    ("lock a --tls x -- true", 64, "usage"),
    ("lock --tls x a -- true", 64, "usage"),
    ("lock a --tls EMPTY -- true", 64, "usage"),
    ("lock a --server 127.0.0.1:1 --tls EMPTY -- true", 64, "usage"),
    ("lock a --server 127.0.0.1:1 --tls x -- true", 69, "tls-file"),
    // Lists, and regions.
    ("ls x", 64, "usage"),
    ("ls --region EMPTY", 64, "region-open"),
    ("ls --region a/b", 64, "region-open"),
    ("ls --region LONG", 64, "region-open"),
    ("ls --server 127.0.0.1:65536", 64, "usage"),
    ("ls --server EMPTY", 64, "usage"),
    ("ls --tls x", 64, "usage"),
    ("region", 64, ""),
    ("region nothing", 64, "usage"),
    ("region list x", 64, "usage"),
    ("region remove", 64, "usage"),
    ("region remove a", 1, "region-absent"),
    ("region remove a b", 64, "usage"),
    ("region remove EMPTY", 64, "region-open"),
    ("region remove ../a", 64, "region-open"),
    ("region remove LONG", 64, "region-open"),
    ("region remove -f a", 1, "region-absent"),
    ("region reset a", 1, "region-absent"),
    ("region reset EMPTY", 64, "region-open"),
    ("region reset a/b", 64, "region-open"),
    // Servers.
    ("serve x", 64, "usage"),
    ("serve --listen", 64, "usage"),
    ("serve --listen EMPTY", 64, "usage"),
    ("serve --listen nowhere", 64, "usage"),
    ("serve --listen 4747", 64, "usage"),
    ("serve --listen 127.0.0.1", 64, "usage"),
    ("serve --listen 127.0.0.1:x", 64, "usage"),
    ("serve --listen 127.0.0.1:-1", 64, "usage"),
    ("serve --listen 127.0.0.1:65536", 64, "usage"),
    ("serve --listen nowhere.invalid:1", 69, "listen"),
    ("serve --listen 0.0.0.0:0", 64, "usage"),
    ("serve --listen [::]:0", 64, "usage"),
    ("serve --listen 203.0.113.1:0", 64, "usage"),
    ("serve --listen 203.0.113.1:0 --plaintext", 69, "listen"),
    ("serve --listen 127.0.0.1:0 --region EMPTY", 64, "region-open"),
    ("serve --listen 127.0.0.1:0 --region a/b", 64, "region-open"),
    ("serve --listen 127.0.0.1:0 --region LONG", 64, "region-open"),
    // Stores.
    ("kv", 64, ""),
    ("kv nothing", 64, "usage"),
    ("kv put", 64, "usage"),
    ("kv put k", 64, "usage"),
    ("kv put k v w", 64, "usage"),
    ("kv put EMPTY v", 64, "bad-key"),
    ("kv put LONGKEY v", 64, "bad-key"),
    ("kv put k v --ttl -1", 64, "usage"),
    ("kv put k v --ttl NaN", 64, "usage"),
    ("kv put k v --ttl 1e300", 64, "usage"),
    ("kv put k v --ttl 1e12", 64, "usage"),
    ("kv put k v --ttl x", 64, "usage"),
    ("kv put k v --new --replace", 64, "usage"),
    ("kv put k v --token x", 64, "usage"),
    ("kv put k v --token=-1", 64, "usage"),
    ("kv put k v --store EMPTY", 64, "bad-name"),
    ("kv put k v --store a/b", 64, "bad-name"),
    ("kv put k v --store LONG", 64, "bad-name"),
    ("kv put k v --region EMPTY", 64, "store-open"),
    ("kv put k v --region a/b", 64, "store-open"),
    ("kv put k v --server 127.0.0.1:65536", 64, "usage"),
    ("kv put k v --server EMPTY", 64, "usage"),
    ("kv put k v --server 127.0.0.1:1", 69, "server-unreachable"),
    ("kv put k v --server 127.0.0.1:1 --tls x", 69, "tls-file"),
    ("kv put k v --tls x", 64, "usage"),
    // A store over several.
    ("kv put k v --server 127.0.0.1:1,127.0.0.1:65536", 64, "usage"),
    ("kv put k v --server 127.0.0.1:1,", 64, "usage"),
    ("kv put k v --server 127.0.0.1:1 --server EMPTY", 64, "usage"),
    ("kv put k v --server 127.0.0.1:1,127.0.0.1:1", 64, "bad-parts"),
    ("kv put k v --server 127.0.0.1:1,127.0.0.1:2", 69, "server-unreachable"),
    ("kv get k --server 127.0.0.1:1 --server 127.0.0.1:2", 69, "server-unreachable"),
    ("kv put k v --server 127.0.0.1:1,127.0.0.1:2 --tls x", 69, "tls-file"),
    ("kv put k v --server 127.0.0.1:1,127.0.0.1:2 --store a/b", 64, "bad-name"),
    ("kv put k v --region a --region a", 64, "bad-parts"),
    ("kv get k --region a --region b --region a", 64, "bad-parts"),
    ("kv get k --region a --region b", 1, "no-such-store"),
    ("kv put k v --region a --region EMPTY", 64, "store-open"),
    ("kv get k --region a --region b/c", 64, "region-open"),
    ("kv get k --region a --region b --server 127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", 64, "usage"),
    ("kv ls --server 127.0.0.1:1,127.0.0.1:2", 64, "usage"),
    ("kv drop s --region a --region b", 64, "usage"),
    ("lock a --server 127.0.0.1:1,127.0.0.1:2 -- true", 64, "usage"),
    ("kv get", 64, "usage"),
    ("kv get k", 1, "no-such-store"),
    ("kv get EMPTY", 64, "bad-key"),
    ("kv get k -s a/b", 64, "bad-name"),
    ("kv get k -s EMPTY", 64, "bad-name"),
    ("kv get k -s CONTROL", 64, "bad-name"),
    ("kv get k --region a/b", 64, "region-open"),
    ("kv del k -s .a", 64, "bad-name"),
    ("kv scan -s LONG", 64, "bad-name"),
    ("kv dump -s ..", 64, "bad-name"),
    ("kv index -s a/b", 64, "bad-name"),
    ("kv get --escaped \\", 64, "usage"),
    ("kv get --escaped a b\\q", 64, "usage"),
    ("kv get --escaped EMPTY", 64, "bad-key"),
    ("kv put --escaped k\\x4 v", 64, "usage"),
    ("kv put --escaped k v\\", 64, "usage"),
    ("kv scan --escaped --after \\xzz", 64, "usage"),
    ("kv del", 64, "usage"),
    ("kv del k", 1, "no-such-store"),
    ("kv incr k x", 64, "usage"),
    ("kv incr k 9223372036854775808", 64, "usage"),
    ("kv incr EMPTY 1", 64, "bad-key"),
    ("kv cas k", 64, "usage"),
    ("kv ttl", 64, "usage"),
    ("kv watch k --count -1", 64, "usage"),
    ("kv watch k --count x", 64, "usage"),
    ("kv watch k -w -1", 64, "usage"),
    ("kv watch EMPTY", 64, "bad-key"),
    ("kv watch k -w 0", 1, "timed-out"),
    ("kv watch k -s s -w 0.1", 1, "timed-out"),
    ("kv watch k -s a/b", 64, "bad-name"),
    ("kv load /tmp", 71, "system"),
    ("kv load /nonexistent", 71, "system"),
    ("kv dump", 1, "no-such-store"),
    ("kv drop", 64, "usage"),
    ("kv drop s", 1, "no-such-store"),
    ("kv drop EMPTY", 64, "bad-name"),
    ("kv drop a/b", 64, "bad-name"),
    ("kv drop s --region ..", 64, "store-open"),
    ("kv put k v --region ..", 64, "store-open"),
    ("kv ls --region a/b", 64, "region-open"),
    ("kv ls x", 64, "usage"),
    ("kv ls --server 127.0.0.1:1", 64, "usage"),
    ("tls client w9 --region x --dir nope", 69, "tls-file"),
    ("tls server nope", 69, "tls-file"),
    ("tls server --dir nope", 69, "tls-file"),
    ("tls server nope --dir nope", 64, "usage"),
    ("demo --seconds x", 64, "usage"),
    ("demo --seconds=-1", 64, "usage"),
    ("demo x", 64, "usage"),
];

/// The words of a line.
fn words(line: &str) -> Vec<OsString> {
    let long = "n".repeat(256);
    let word = |word: &str| match word {
        "EMPTY" => OsString::new(),
        "LONG" => long.clone().into(),
        "LONGKEY" => "k".repeat(1025).into(),
        "CONTROL" => "a\n\u{1b}[31m".into(),
        "BYTES" => OsString::from_vec(vec![b'a', 0xff, 0xfe]),
        word => {
            word.replace("LONG:", &format!("{long}:")).replace("CONTROL:", "\u{1b}[31m:").into()
        }
    };
    line.split(' ').filter(|word| !word.is_empty()).map(word).collect()
}

/// Everything below a directory, with its length and when it was written.
fn files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap())
        .flat_map(|entry| {
            let metadata = entry.metadata().unwrap();
            let mut found =
                vec![(entry.path(), if metadata.is_dir() { 0 } else { metadata.len() })];
            if metadata.is_dir() {
                found.extend(files(&entry.path()));
            }
            found
        })
        .collect();
    files.sort();
    files
}

fn files_of(stage: &Stage) -> Vec<(PathBuf, u64)> {
    [files(stage.dir()), files(stage.state_dir())].concat()
}

/// What is wrong with how a command ended, if anything is.
fn judge(output: std::process::Output, (line, status, code): Row) -> Option<String> {
    let (found, printed, said) = ended(output);
    let is_named = code.is_empty() || said.contains(&format!("[{code}]"));
    let has_hint = code.is_empty() || said.contains("\n   hint: ");
    let is_clean = !said.chars().any(|c| c.is_control() && c != '\n');
    let is_brief = said.lines().count() <= 3 || code.is_empty();
    let good = found == status && is_named && has_hint && is_clean && is_brief;
    let silent = printed.is_empty() || code.is_empty();
    (!good || !silent).then(|| format!("`{line}`: {found}, not {status} [{code}]: {said}{printed}"))
}

#[test]
fn words_that_make_no_sense_are_refused_and_leave_nothing() {
    let stage = Stage::new();
    let before = files_of(&stage);
    let mut wrong = Vec::new();
    for row in COMMAND_LINES {
        let mut command = stage.farlock(&[]);
        command.args(words(row.0)).env_remove("FARLOCK_SERVER").env_remove("FARLOCK_TLS");
        wrong.extend(judge(command.output().unwrap(), *row));
        let after = files_of(&stage);
        if after != before {
            wrong.push(format!("`{}` leaves {after:?}", row.0));
            for (path, _) in after.iter().rev() {
                let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), COMMAND_LINES.len(), wrong.join("\n"));
}

/// A line, and what its hint is to say.
const HINTS: &[(&str, &str)] = &[
    ("kv put a", "`farlock kv put --help`"),
    ("kv incr v x", "`farlock kv incr --help`"),
    ("region remove", "`farlock region remove --help`"),
    ("tls client", "`farlock tls client --help`"),
    ("lock a", "`farlock lock --help`"),
    ("--region x lock a true", "options stand behind the command"),
    ("lock a -- nowhere-to-be-found", "no directory of PATH has it"),
    ("lock a -- ./nowhere", "see that the path is right"),
    ("lock a -- /", "`ls -l` shows"),
    ("kv load /nonexistent", "see that the path is right"),
    ("kv load /tmp", "name a file"),
    ("tls client w9 --region x --dir nope", "say by --dir where it is"),
    ("lock a --server db1 -- true", "4747"),
    ("lock --unit 64 -r 0:64 table -- true", "`--unit 1`"),
    ("kv put fenced v", "--token TOKEN"),
    ("kv del fenced", "--token TOKEN"),
];

#[test]
fn hints_say_what_can_be_typed() {
    let stage = Stage::new();
    for made in ["lock -r 0:1 table -- true", "kv put --token 5 fenced v"] {
        assert!(stage.farlock(&[]).args(words(made)).output().unwrap().status.success());
    }
    for (line, hint) in HINTS {
        let (_, _, said) = ended(stage.farlock(&[]).args(words(line)).output().unwrap());
        let given = said.split_once("\n   hint: ").map(|(_, given)| given);
        assert!(given.is_some_and(|given| given.contains(hint)), "{line}: {said}");
    }
}

/// Who loads writes lines, and has no option for a token.
#[test]
fn a_line_without_a_token_is_told_how_it_has_one() {
    let stage = Stage::new();
    assert_eq!(stage.run(&["kv", "put", "--token", "5", "fenced", "v"]).0, 0);
    let pairs = stage.file("pairs");
    let load = || stage.run(&["kv", "load", pairs.to_str().unwrap()]);
    std::fs::write(&pairs, "a\tb\nfenced\tw\n").unwrap();
    let (exit, _, said) = load();
    assert_eq!(exit, 1, "{said}");
    assert!(said.contains("line 2: ") && said.contains("<tab>token=TOKEN"), "{said}");
    std::fs::write(&pairs, "a\tb\nfenced\tw\ttoken=6\n").unwrap();
    assert_eq!(load().0, 0);
    assert_eq!(stage.run(&["kv", "get", "fenced"]).1, "w\n");
}

/// A name that is none is told as what it was to name: a store, or the region that it is in.
#[test]
fn a_bad_name_is_told_as_what_it_was_to_name() {
    let stage = Stage::new();
    for action in ["put k v", "get k", "watch k", "scan", "load"] {
        for (place, told) in [("-s", "'a/b' is no name for a store: "), ("--region", "a region: ")]
        {
            let said = stage.run(&words_of(&format!("kv {action} {place} a/b"))).2;
            assert!(said.contains(told), "{action} {place}: {said}");
        }
    }
    let said = stage.run(&["kv", "drop", "a/b"]).2;
    assert!(
        said.starts_with("farlock: 'a/b' is no name for a store: it contains a slash"),
        "{said}"
    );
}

fn words_of(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// What a version has to have in common with others is said by the program itself.
#[test]
fn the_version_says_which_protocol_is_spoken() {
    let (status, said, _) = Stage::new().run(&["--version"]);
    let spoken = format!("\nprotocol {}: ", u16::from_le_bytes(wire::VERSION));
    assert!(status == 0 && said.contains(&spoken) && said.contains("\nlayout "), "{said}");
    let (status, said, _) = Stage::new().run(&["-V"]);
    assert!(status == 0 && said.lines().count() == 1, "for scripts: {said}");
}

/// Variables, the line, the status and the code.
const ENVIRONMENTS: &[(&str, &str, Row)] = &[
    ("FARLOCK_DIR", "here", ("lock a -- true", 64, "usage")),
    ("FARLOCK_DIR", "./here", ("ls", 64, "usage")),
    ("FARLOCK_DIR", "here", ("region list", 64, "usage")),
    ("FARLOCK_DIR", "here", ("serve --listen 127.0.0.1:0", 64, "usage")),
    ("FARLOCK_DIR", "here", ("kv put k v", 64, "usage")),
    ("FARLOCK_STATE_DIR", "here", ("lock a -- true", 64, "usage")),
    ("FARLOCK_STATE_DIR", "../here", ("region list", 64, "usage")),
    ("FARLOCK_DIR", "/nonexistent/x", ("lock a -- true", 64, "usage")),
    ("FARLOCK_DIR", "/nonexistent/x", ("kv put k v", 64, "usage")),
    ("FARLOCK_DIR", "/dev/null", ("lock a -- true", 69, "region-open")),
    ("FARLOCK_DIR", "/dev/null/a", ("lock a -- true", 69, "region-open")),
    ("FARLOCK_DIR", "/proc/a", ("lock a -- true", 69, "region-open")),
    ("FARLOCK_DIR", "/sys/kernel", ("lock a -- true", 69, "region-open")),
    ("FARLOCK_DIR", "/sys/kernel", ("kv put k v", 69, "store-open")),
    ("FARLOCK_DIR", "/tmp", ("lock a -- true", 69, "region-open")),
    ("FARLOCK_DIR", "/dev/null", ("serve --listen 127.0.0.1:0", 69, "region-open")),
    ("FARLOCK_DIR", "/dev/null", ("region list", 69, "region-open")),
    ("FARLOCK_DIR", "/dev/null", ("region remove a", 69, "region-open")),
    ("FARLOCK_SERVER", "nowhere", ("lock a -- true", 64, "usage")),
    ("FARLOCK_SERVER", "127.0.0.1:65536", ("ls", 64, "usage")),
    ("FARLOCK_SERVER", "tcp://", ("ls", 64, "usage")),
    ("FARLOCK_SERVER", "http://127.0.0.1:1", ("lock a -- true", 64, "usage")),
    ("FARLOCK_SERVER", "", ("lock a --tls x -- true", 64, "usage")),
    ("FARLOCK_TLS", "x", ("lock a --server tcp://127.0.0.1:1 -- true", 64, "usage")),
    ("FARLOCK_SERVER", "127.0.0.1:1", ("kv put k v", 69, "server-unreachable")),
    ("FARLOCK_SERVER", "127.0.0.1:1", ("kv drop s", 64, "usage")),
    ("FARLOCK_SERVER", "127.0.0.1:1", ("region list", 64, "usage")),
    ("FARLOCK_SERVER", "127.0.0.1:1", ("region remove a", 64, "usage")),
    ("FARLOCK_SERVER", "127.0.0.1:1", ("region reset a", 64, "usage")),
];

#[test]
fn environments_that_make_no_sense_are_refused_and_leave_nothing() {
    let stage = Stage::new();
    let before = files_of(&stage);
    let mut wrong = Vec::new();
    for (variable, value, row) in ENVIRONMENTS {
        let mut command = stage.farlock(&[]);
        command.args(words(row.0)).env(variable, value).current_dir(stage.state_dir());
        wrong.extend(judge(command.output().unwrap(), *row).map(|it| format!("{value}: {it}")));
        assert_eq!(files_of(&stage), before, "{variable}={value} {}", row.0);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is done to a region's file, of these bytes, at this path.
type Damage = fn(&Path, Vec<u8>);

fn overwrite(path: &Path, bytes: &[u8]) {
    fs::File::create(path).unwrap().write_all(bytes).unwrap();
}

/// With one word of the header replaced.
fn with_word(path: &Path, mut bytes: Vec<u8>, word: usize, value: u64) {
    bytes[word * 8..word * 8 + 8].copy_from_slice(&value.to_le_bytes());
    overwrite(path, &bytes);
}

const DAMAGES: &[(&str, Damage)] = &[
    ("empty", |path, _| overwrite(path, b"")),
    ("one byte", |path, _| overwrite(path, b"f")),
    ("shorter than a header", |path, bytes| overwrite(path, &bytes[..103])),
    ("a header alone", |path, bytes| overwrite(path, &bytes[..4096])),
    ("a byte short", |path, bytes| overwrite(path, &bytes[..bytes.len() - 1])),
    ("a text", |path, _| overwrite(path, &b"what people write\n".repeat(1000))),
    ("zeroes", |path, bytes| overwrite(path, &vec![0; bytes.len()])),
    ("ones", |path, bytes| overwrite(path, &vec![0xff; bytes.len()])),
    ("another magic", |path, bytes| with_word(path, bytes, 0, u64::from_le_bytes(*b"farlock2"))),
    ("another layout", |path, bytes| with_word(path, bytes, 1, 7)),
    ("an origin of no incarnation", |path, bytes| with_word(path, bytes, 2, 1)),
    ("no endpoints", |path, bytes| with_word(path, bytes, 3, 0)),
    ("too many endpoints", |path, bytes| with_word(path, bytes, 3, 16_377)),
    ("endpoints beyond 16 bits", |path, bytes| with_word(path, bytes, 3, 1 << 16)),
    ("no slots", |path, bytes| with_word(path, bytes, 4, 0)),
    ("too many slots", |path, bytes| with_word(path, bytes, 4, 65)),
    ("too large", |path, bytes| with_word(path, bytes, 5, u64::MAX)),
    ("another size", |path, bytes| with_word(path, bytes, 5, 1 << 30)),
    ("no bytes", |path, bytes| with_word(path, bytes, 6, 0)),
    ("half a block", |path, bytes| with_word(path, bytes, 6, (1 << 22) + 8)),
    ("more bytes than there are", |path, bytes| with_word(path, bytes, 6, 1 << 29)),
    ("a floor of no incarnation", |path, bytes| with_word(path, bytes, 10, 1)),
    ("a link", |path, bytes| {
        let other = path.with_file_name("other");
        overwrite(&other, &bytes);
        fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(path).unwrap();
        symlink(other, path).unwrap();
    }),
    ("a directory", |path, _| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    }),
    ("open to others", |path, _| {
        fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    }),
];

#[test]
fn files_that_are_no_regions_are_refused_and_left_as_they_are() {
    let stage = Stage::new();
    drop(stage.session());
    let path = stage.dir().join("default");
    let whole = fs::read(&path).unwrap();
    let rows: [Row; 4] = [
        ("lock a -- true", 69, "region-open"),
        ("lock a -r 0:5 -- true", 69, "region-open"),
        ("ls", 69, "region-open"),
        ("serve --listen 127.0.0.1:0", 69, "region-open"),
    ];
    let mut wrong = Vec::new();
    for (what, damage) in DAMAGES {
        damage(&path, whole.clone());
        let before = (files_of(&stage), fs::read(&path).ok());
        for row in rows {
            let output = stage.farlock(&[]).args(words(row.0)).output().unwrap();
            wrong.extend(judge(output, row).map(|it| format!("{what}: {it}")));
        }
        if (files_of(&stage), fs::read(&path).ok()) != before {
            wrong.push(format!("{what}: it is not as it was"));
        }
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        let _ = fs::remove_file(path.with_file_name("other"));
        overwrite(&path, &whole);
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(stage.run(&["lock", "a", "--", "true"]).0, 0, "the whole one is a region");
}

/// One more than there is room for: of places, and of connections.
#[test]
fn beyond_capacity_is_refused_by_name() {
    let stage = Stage::new();
    let session = Session::open(&stage.options().with_places(2)).unwrap();
    let guard = session.lock("a").exclusive().blocking().unwrap();
    let rows: [Row; 2] =
        [("lock b -- true", 69, "region-full"), ("lock b -r 0:1 -- true", 69, "region-full")];
    for row in rows {
        let output = stage.farlock(&[]).args(words(row.0)).output().unwrap();
        assert_eq!(judge(output, row), None);
    }
    let refused = session.lock("b").exclusive().at_once().blocking().unwrap_err();
    assert_eq!(refused.code(), "too-many-locks");
    assert!(!refused.hint().is_empty());
    let server = Server::bind("127.0.0.1:0", &stage.options()).unwrap();
    let (address, stopper) = (server.address().unwrap().to_string(), server.stopper());
    let serving = std::thread::spawn(move || server.run().unwrap());
    let line = ["lock", "b", "--server", &address, "--", "true"];
    let output = stage.farlock(&line).output().unwrap();
    assert_eq!(judge(output, ("lock b", 69, "server-declined")), None);
    stopper.stop();
    serving.join().unwrap();
    guard.release().blocking().unwrap();
}

#[test]
fn commands_by_a_server_that_make_no_sense_disturb_none_of_its_clients() {
    let stage = Stage::new();
    let server = Server::bind("127.0.0.1:0", &stage.options()).unwrap();
    let (address, stopper) = (server.address().unwrap().to_string(), server.stopper());
    let serving = std::thread::spawn(move || server.run().unwrap());
    let there = Session::open(&RegionOptions::of_server(&address)).unwrap();
    let guard = there.lock("held").exclusive().blocking().unwrap();
    let before = files_of(&stage);
    let rows: &[Row] = &[
        ("lock held -n -- true", 1, "busy"),
        ("lock held -w 0.5 -- true", 1, "timed-out"),
        ("lock EMPTY -- true", 64, "bad-name"),
        ("lock LONG -- true", 64, "bad-name"),
        ("lock a -r 1:18446744073709551615 -- true", 64, "usage"),
        ("lock a --region other -- true", 69, "server-declined"),
        ("lock a --region EMPTY -- true", 64, "region-open"),
        ("lock a --region a/b -- true", 64, "region-open"),
        ("ls --region other", 69, "server-declined"),
        ("ls --region LONG", 64, "region-open"),
        ("kv put EMPTY v", 64, "bad-key"),
        ("kv put k v --store a/b", 64, "bad-name"),
        ("kv put k v --store LONG", 64, "bad-name"),
        ("kv put k v --region other", 69, "server-declined"),
        ("kv ls", 64, "usage"),
        ("kv drop s", 64, "usage"),
    ];
    let mut wrong = Vec::new();
    for row in rows {
        let mut command = stage.farlock(&[]);
        command.args(words(row.0)).env("FARLOCK_SERVER", &address);
        wrong.extend(judge(command.output().unwrap(), *row));
        assert_eq!(files_of(&stage), before, "{}", row.0);
        assert_eq!(guard.lost_reason(), None, "{}", row.0);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(stage.session().lock("held").exclusive().within(Duration::ZERO).blocking().is_err());
    guard.release().blocking().unwrap();
    stopper.stop();
    serving.join().unwrap();
}

/// Connections that a strict server has at one time.
const CONNECTIONS: usize = 8;

/// A server that allows little, and an established client of it.
struct Strict {
    address: String,
    stopper: Stopper,
    serving: Option<JoinHandle<()>>,
    session: Session,
    guard: Guard,
    /// Adds to a word of the heap, the last one.
    lane: farlock_fabric::tcp::TcpEndpoint,
    remote: Remote,
    count: u64,
    stage: Stage,
}

impl Strict {
    fn new() -> Self {
        let stage = Stage::new();
        drop(stage.session());
        let mut limits = Limits::default();
        (limits.lanes, limits.waits, limits.connections) = (4, 4, CONNECTIONS);
        // What is held when the server ends waits so long for another one.
        limits.lease = Duration::from_secs(1);
        limits.greeting = Duration::from_millis(300);
        let options = HostOptions::new(stage.dir(), stage.state_dir(), "default");
        let open = move |name: &str| match name {
            "default" => Host::open(&options),
            _ => {
                let name = name.to_owned();
                Err(ConnectError::Name { name, why: "another region is served here" })
            }
        };
        let server = tcp::Server::bind("127.0.0.1:0", open, limits).unwrap();
        let (address, stopper) = (server.address().unwrap().to_string(), server.stopper());
        let serving = Some(std::thread::spawn(move || server.run().unwrap()));
        let session = Session::open(&RegionOptions::of_server(&address)).unwrap();
        let guard = session.lock("held").exclusive().blocking().unwrap();
        let remote = Remote::connect(&address, "default", "counter").unwrap();
        let lane = remote.endpoint().unwrap();
        Self { address, stopper, serving, session, guard, lane, remote, count: 0, stage }
    }

    /// Whether the established clients have what they had.
    fn check(&mut self, row: &str) {
        assert_eq!(self.guard.lost_reason(), None, "{row}");
        let (heap, bytes) = self.remote.heap();
        let word = heap.plus(bytes - 8);
        block_on(&self.lane, self.lane.faa64(word, 1)).unwrap();
        assert_eq!(self.lane.old() as u64, self.count, "{row}");
        self.count += 1;
        let tried = self.session.lock("held").exclusive().at_once().blocking();
        assert_eq!(tried.unwrap_err().code(), "busy", "{row}");
    }

    fn region(&self) -> Region {
        let mut wire = Wire::to(&self.address);
        wire.say(&framed(&wire::hello("default")));
        Region::of(&wire.hear().unwrap())
    }

    fn wire(&self, far: Far) -> Wire {
        match far {
            Far::Fresh => Wire::to(&self.address),
            Far::Greeted => Wire::greeted(&self.address),
            Far::Seated => Wire::seated(&self.address),
        }
    }
}

impl Drop for Strict {
    fn drop(&mut self) {
        self.stopper.stop();
        let serving = self.serving.take().unwrap().join();
        assert!(serving.is_ok() || std::thread::panicking(), "the server panicked");
    }
}

#[test]
fn frames_that_make_no_sense_end_their_own_connection_alone() {
    let mut strict = Strict::new();
    let region = strict.region();
    let before = (files_of(&strict.stage), places(&strict));
    let mut wrong = Vec::new();
    for (what, far, bytes, then) in ROWS {
        let mut wire = strict.wire(*far);
        wire.say(&bytes(&region));
        wrong.extend(wire.sees(*then).err().map(|found| format!("{what}: {found}")));
        drop(wire);
        strict.check(what);
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), ROWS.len(), wrong.join("\n"));
    strict.stage.until(|| (files_of(&strict.stage), places(&strict)) == before);
}

/// Of each kind of frame as much as there is, cut at every byte, behind a length that is right.
#[test]
fn frames_that_are_cut_short_are_hung_up_on() {
    let mut strict = Strict::new();
    let frames = sound(&strict.region());
    let mut cuts = 0;
    for whole in &frames {
        let far =
            if matches!(whole[0], wire::HELLO | wire::TETHER) { Far::Fresh } else { Far::Seated };
        for length in 1..whole.len() {
            let mut wire = strict.wire(far);
            wire.say(&framed(&whole[..length]));
            let found = wire.sees(Then::HangsUp);
            assert!(found.is_ok(), "{length} bytes of {whole:02x?}: {found:?}");
            cuts += 1;
        }
        strict.check("a frame that is cut short");
        // Whole but for its last byte, and then over: nothing of it takes effect.
        let mut wire = strict.wire(far);
        wire.say(&framed(whole)[..whole.len() + 3]);
        drop(wire);
        // Byte by byte it is what it is at once.
        let mut wire = strict.wire(far);
        let mut other = strict.wire(far);
        framed(whole).iter().for_each(|byte| wire.say(&[*byte]));
        other.say(&framed(whole));
        if matches!(whole[0], wire::HELLO | wire::TETHER) {
            assert_eq!(wire.hear().map(|body| body[0]), other.hear().map(|body| body[0]));
        }
        strict.check("a frame byte by byte");
    }
    assert!(cuts > 400, "{cuts}");
}

/// A client that says its greeting too slowly, or half of it, or nothing.
#[test]
fn connections_that_never_say_what_they_want_are_closed() {
    let mut strict = Strict::new();
    let hello = framed(&wire::hello("default"));
    let begun = Instant::now();
    let mut slow = Wire::to(&strict.address);
    let mut half = Wire::to(&strict.address);
    let mut none = Wire::to(&strict.address);
    half.say(&hello[..hello.len() - 1]);
    for byte in &hello {
        slow.say(&[*byte]);
        std::thread::sleep(Duration::from_millis(40));
    }
    for wire in [&mut slow, &mut half, &mut none] {
        assert_eq!(wire.sees(Then::HangsUp), Ok(()));
    }
    assert!(begun.elapsed() >= Duration::from_millis(300));
    strict.check("slow greetings");
    // Once it is greeted a client may take its time.
    let mut idle = strict.wire(Far::Greeted);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(idle.sees(Then::SaysNothing), Ok(()));
}

/// A secret is for one tether of its own lane, and for as long as that lane is there.
#[test]
fn secrets_of_tethers_are_used_once() {
    let mut strict = Strict::new();
    let secret = |wire: &mut Wire, lane: u8| {
        wire.say(&framed(&wire::body(wire::CALL, &[&[5; 4], &[4, lane, 0, 0, 0]])));
        wire.hear_of(wire::ANSWER).unwrap()[5..21].to_vec()
    };
    let tether = |strict: &Strict, secret: &[u8]| {
        let mut wire = Wire::to(&strict.address);
        wire.say(&framed(&wire::body(wire::TETHER, &[wire::MAGIC, &wire::VERSION, secret])));
        wire
    };
    let mut owner = strict.wire(Far::Seated);
    let first = secret(&mut owner, 0);
    let mut tied = tether(&strict, &first);
    assert_eq!(tied.sees(Then::Answers(wire::ANSWER)), Ok(()));
    let again = tether(&strict, &first).sees(Then::Declines("no such tether"));
    assert_eq!(again, Ok(()), "it is replayed");
    let of_none = secret(&mut owner, 3);
    let refused = tether(&strict, &of_none).sees(Then::Declines("no such tether"));
    assert_eq!(refused, Ok(()), "there is no such lane");
    // By a tether nothing can be done.
    tied.say(&framed(&wire::verb(1, &[&[0; 8], &[1, 0]])));
    assert_eq!(tied.sees(Then::HangsUp), Ok(()));
    let late = secret(&mut owner, 0);
    drop(owner);
    strict.stage.until(|| tether(&strict, &late).sees(Then::Declines("no such tether")).is_ok());
    strict.check("secrets");
}

/// One connection more than there may be, by a client of the product.
#[test]
fn a_connection_too_many_is_refused_by_name() {
    let mut strict = Strict::new();
    // Beside the two that are established.
    let crowd: Vec<_> = (2..CONNECTIONS).map(|_| strict.wire(Far::Greeted)).collect();
    let output = strict.stage.farlock(&["ls", "--server", &strict.address]).output().unwrap();
    assert_eq!(judge(output, ("ls", 69, "server-declined")), None);
    strict.check("too many connections");
    drop(crowd);
    let stage = &strict.stage;
    stage.until(|| stage.run(&["ls", "--server", &strict.address]).0 == 0);
}

/// How many endpoints there are.
fn places(strict: &Strict) -> usize {
    strict.remote.peers().len()
}
