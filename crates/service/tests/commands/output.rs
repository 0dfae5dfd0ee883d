//! Specification: what a command prints arrives, or its status says that it did not. A reader that
//! went away has seen enough.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;

use farlock::Kv;
use rustix::process::Signal;

use crate::stage::serving::Serving;
use crate::stage::{self, Stage};

/// Every command that prints, on a stage that has a lock, a key and an authority; those that change
/// something change it each time.
fn commands(stage: &Stage) -> Vec<(String, &'static str)> {
    let authority = stage.file("tls").to_str().unwrap().to_owned();
    let new = |name: &str| stage.file(name).to_str().unwrap().to_owned();
    let mut commands: Vec<(String, &str)> = [
        "ls",
        "ls --json",
        "ls --all",
        "kv get k",
        "kv get --raw k",
        "kv get k k",
        "kv scan",
        "kv dump",
        "kv ttl k",
        "kv incr n",
        "kv watch --count 1 k",
        "kv sweep",
        "kv ls",
        "region list",
        "region reset --force spare",
        "--version",
        "--help",
        "lock --help",
    ]
    .map(|line| (line.to_owned(), ""))
    .into();
    commands.push((format!("tls init {}", new("another")), "another"));
    commands.push((format!("tls client web1 --region default --dir {authority}"), "tls/web1"));
    commands
}

fn stage() -> Stage {
    let stage = Stage::new();
    for line in ["lock a -- true", "lock --region spare a -- true", "kv put k v", "tls init DIR"] {
        let authority = stage.file("tls").to_str().unwrap().to_owned();
        let words: Vec<String> =
            line.split(' ').map(|word| word.replace("DIR", &authority)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(stage.run(&words).0, 0, "{line}");
    }
    stage
}

/// How a command ends, and what it says, whose standard output is this of a shell.
fn ended(stage: &Stage, line: &str, output: &str) -> (i32, String) {
    let line = format!("exec {} {line} {output}", env!("CARGO_BIN_EXE_farlock"));
    let run = stage.program("sh").args(["-c", &line]).output().unwrap();
    let (status, _, said) = stage::ended(run);
    (status, said)
}

/// Some had ended with status 0.
#[test]
fn what_cannot_be_written_is_an_error() {
    let stage = stage();
    let server = Serving::on(&stage);
    let _guard = stage.session().lock("held").exclusive().blocking().unwrap();
    let mut wrong = Vec::new();
    for output in [">/dev/full", ">&-", "1</dev/null"] {
        let by_server = (format!("ls --server {}", server.address), "");
        for (line, made) in commands(&stage).into_iter().chain([by_server]) {
            let (status, said) = ended(&stage, &line, output);
            if (status, said.contains("[output]")) != (71, true) {
                wrong.push(format!("farlock {line} {output}: {status} {said}"));
            }
            // What it was to tell of is there.
            if !made.is_empty() {
                std::fs::remove_dir_all(stage.file(made)).expect(&line);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `| head -1` is no failure, and nothing is said of it. But a dump without its end is none.
#[test]
fn a_reader_that_goes_away_has_seen_enough() {
    let stage = stage();
    for (line, _) in commands(&stage) {
        let words: Vec<&str> = line.split(' ').collect();
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let run = stage.farlock(&words).stdout(writer).output().unwrap();
        let (status, _, said) = stage::ended(run);
        if line == "kv dump" {
            assert_eq!((status, said.contains("[output]")), (71, true), "{said}");
        } else {
            assert_eq!((status, said.as_str()), (0, ""), "farlock {line}");
        }
    }
}

/// What prints nothing needs nowhere to print to.
#[test]
fn a_command_that_prints_nothing_needs_no_output() {
    let stage = stage();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for line in ["kv put k v", "lock a -- true"] {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(stage.farlock(&words).stdout(full()).status().unwrap().success(), "{line}");
        let (status, said) = ended(&stage, line, ">&-");
        assert_eq!((status, said.as_str()), (0, ""), "farlock {line}");
    }
}

/// The system kills a dump that exceeds the limit of its files.
#[test]
fn a_dump_that_is_killed_leaves_what_was_there_and_nothing_else() {
    let stage = Stage::new();
    let kv = Kv::open(&stage.options(), "default").unwrap();
    (0..100_u8).for_each(|key| kv.put([key], vec![key; 1_000]).unwrap());
    let dir = stage.file("dumps");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("dump"), "old").unwrap();
    let mut dump = stage.program("sh");
    let script = format!("ulimit -f 64; exec {} kv dump dump", env!("CARGO_BIN_EXE_farlock"));
    let status = dump.args(["-c", &script]).current_dir(&dir).status().unwrap();
    assert_eq!(status.signal(), Some(Signal::XFSZ.as_raw()), "{status}");
    assert_eq!(std::fs::read_to_string(dir.join("dump")).unwrap(), "old");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
    assert_eq!(stage.run(&["kv", "dump", dir.join("dump").to_str().unwrap()]).0, 0);
    assert!(std::fs::metadata(dir.join("dump")).unwrap().len() > 100_000);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
}

#[test]
fn a_dump_goes_to_where_its_path_leads() {
    let stage = Stage::new();
    Kv::open(&stage.options(), "default").unwrap().put("key", "value").unwrap();
    let dir = stage.file("dumps");
    std::fs::create_dir_all(dir.join("far")).unwrap();
    let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    // To nothing yet, by two links.
    std::os::unix::fs::symlink("far/link", at("link")).unwrap();
    std::os::unix::fs::symlink("dump", at("far/link")).unwrap();
    assert_eq!(stage.run(&["kv", "dump", &at("link")]).0, 0);
    assert!(dir.join("link").is_symlink() && dir.join("far/link").is_symlink());
    assert!(std::fs::metadata(at("far/dump")).unwrap().len() > 0);
    // As long as a name may be.
    let longest = "n".repeat(255);
    assert_eq!(stage.run(&["kv", "dump", &at(&longest)]).0, 0);
    let (status, _, error) = stage.run(&["kv", "dump", &at(&"n".repeat(256))]);
    assert!(status == 71 && error.contains("choose a shorter name"), "{status}: {error}");
    std::os::unix::fs::symlink("round", at("round")).unwrap();
    let (status, _, error) = stage.run(&["kv", "dump", &at("round")]);
    assert_eq!(status, 71, "{error}");
    let mut left: Vec<_> =
        std::fs::read_dir(&dir).unwrap().map(|f| f.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["far", "link", &longest, "round"]);
}
