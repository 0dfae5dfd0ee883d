//! Specification of giving memory back: what nobody uses goes, and nothing is taken from a user.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use farlock::session::RangeLock;
use farlock::{ConnectError, Session, SessionError, Trimmed};

use crate::stage::serving::Serving;
use crate::stage::{self, Stage, ended, is_actor, options_from_environment};

/// Units that share a block.
const BLOCK_UNITS: u64 = 1 << 18;

/// Bytes of a block, but for what shares a page with others.
const BLOCK_BYTES: u64 = 80_000;

/// The bytes of memory that the region's file takes.
fn taken(stage: &Stage) -> u64 {
    File::open(stage.dir().join("default")).unwrap().metadata().unwrap().blocks() * 512
}

/// Has and lets go of a unit in each of so many blocks. Returns the last token.
fn touch(table: &RangeLock, blocks: u64) -> u64 {
    let mut token = 0;
    for block in 1..=blocks {
        let unit = block * BLOCK_UNITS + block;
        let held = table.exclusive(unit..unit + 1).blocking().unwrap();
        assert!(token < held.token().get(), "block {block}");
        token = held.token().get();
        held.release().blocking().unwrap();
    }
    token
}

fn trimmed(stage: &Stage) -> Trimmed {
    stage.options().trim_region().unwrap()
}

#[test]
fn a_table_that_nobody_uses_gives_its_memory_back_and_has_it_again() {
    const BLOCKS: u64 = 40;
    let stage = Stage::new();
    let session = stage.session();
    let kept = session.range("kept");
    touch(&kept, 2);
    let before = taken(&stage);
    let table = session.range("t");
    let last = touch(&table, BLOCKS);
    let grown = taken(&stage);
    assert!(grown >= before + BLOCKS * BLOCK_BYTES, "{before} to {grown} bytes");
    // Both are in use, as long as a place is kept for them.
    assert_eq!((trimmed(&stage).tables, taken(&stage)), (0, grown));
    drop(table);
    let went = trimmed(&stage);
    assert_eq!((went.tables, went.bytes), (1, grown - taken(&stage)));
    assert!(went.bytes >= BLOCKS * BLOCK_BYTES, "{went:?}");
    assert_eq!(trimmed(&stage).tables, 0);
    // The session knows where the blocks are, not that they have memory.
    assert!(touch(&session.range("t"), BLOCKS) > last, "a token went back");
    assert_eq!(taken(&stage), grown, "it has the blocks that it had");
    touch(&kept, 2);
    drop((kept, session));
    assert_eq!(trimmed(&stage).tables, 2);
    assert!(taken(&stage) <= before);
}

#[test]
fn a_region_says_what_it_gave_back() {
    let stage = Stage::new();
    let absent = stage.run(&["region", "trim", "default"]);
    assert!(absent.0 == 1 && absent.2.contains("region-absent"), "{absent:?}");
    let said = |tables: &str| {
        let (status, said, failed) = stage.run(&["region", "trim", "default"]);
        let begins = format!("region 'default': {tables} of ranges that nobody used, ");
        assert!(status == 0 && said.starts_with(&begins), "{said}{failed}");
        let bytes: u64 = said[begins.len()..].split(' ').next().unwrap().parse().unwrap();
        bytes
    };
    let session = stage.session();
    session.lock("l").exclusive().blocking().unwrap().release().blocking().unwrap();
    assert_eq!(said("0 tables"), 0);
    touch(&session.range("t"), 3);
    assert!(said("1 table") >= 3 * BLOCK_BYTES);
    assert_eq!(said("0 tables"), 0);
}

/// It is trimmed on its host, and its clients have their blocks' memory by the server.
#[test]
fn a_servers_region_is_trimmed_while_it_serves() {
    const BLOCKS: u64 = 10;
    let (stage, server) = Serving::alone();
    let session = server.session();
    let length = || File::open(stage.dir().join("default")).unwrap().metadata().unwrap().len();
    touch(&session.range("t"), BLOCKS);
    let (grown, long) = (taken(&stage), length());
    stage.until(|| trimmed(&stage).tables == 1);
    assert!(taken(&stage) + BLOCKS * BLOCK_BYTES <= grown);
    touch(&session.range("t"), BLOCKS);
    assert_eq!((taken(&stage), length()), (grown, long));
    let refused = server.options().trim_region();
    assert!(matches!(refused, Err(SessionError::NotHere { .. })), "{refused:?}");
    let (status, _, said) = stage.run(&["region", "--server", &server.address, "trim", "default"]);
    assert!(status == 64 && said.contains("on its host"), "{said}");
    let absent = stage.options().named("other").trim_region();
    assert!(matches!(absent, Err(SessionError::Connect(ConnectError::Absent { .. }))));
}

/// Has a unit of a table alone: nobody else has a file of its name then.
fn alone(session: &Session, dir: &Path, name: &str, unit: u64) {
    let table = session.range(name);
    let held = table.exclusive(unit..unit + 2).blocking().unwrap();
    let path = dir.join(format!("{name}-{unit}"));
    OpenOptions::new().write(true).create_new(true).open(&path).expect("another has it");
    std::thread::yield_now();
    std::fs::remove_file(&path).unwrap();
    held.release().blocking().unwrap();
}

/// Uses tables for a moment each, for good.
#[test]
fn actor_that_comes_and_goes() {
    if !is_actor() {
        return;
    }
    let options = options_from_environment();
    let dir = options.state_dir.join("judge");
    let session = Session::open(&options).unwrap();
    let turns = File::create(options.state_dir.join(format!("{TURNS}{}", std::process::id())));
    let (turns, mut drawn) = (turns.unwrap(), u64::from(std::process::id()));
    for turn in 1.. {
        drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let (table, block, unit) = (drawn >> 60, drawn >> 50 & 7, drawn >> 40 & 1);
        alone(&session, &dir, &format!("t{}", table % 3), (block + 1) * BLOCK_UNITS + unit);
        turns.set_len(turn).unwrap();
    }
}

/// How the names of files begin whose lengths say how many turns a user had.
const TURNS: &str = "turns-";

/// Trims for good.
#[test]
fn actor_that_trims() {
    if !is_actor() {
        return;
    }
    loop {
        options_from_environment().trim_region().unwrap();
    }
}

fn is_running(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_none()
}

/// And those that trim are killed at any instruction.
#[test]
fn no_user_loses_a_block_while_others_trim_and_die() {
    const FOR: Duration = Duration::from_secs(6);
    let stage = Stage::new();
    std::fs::create_dir(stage.file("judge")).unwrap();
    drop(stage.session());
    let start = |test: &str| stage.actor(test).stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut users: Vec<Child> = (0..3).map(|_| start("trim::actor_that_comes_and_goes")).collect();
    let mut trimmers: Vec<Child> = (0..2).map(|_| start("trim::actor_that_trims")).collect();
    let (begun, mut kills) = (Instant::now(), 0_u64);
    while begun.elapsed() < FOR {
        std::thread::sleep(Duration::from_millis(20 + kills * 7 % 60));
        let number = kills as usize % trimmers.len();
        assert!(is_running(&mut trimmers[number]), "a trimmer has failed");
        trimmers[number].kill().unwrap();
        trimmers[number].wait().unwrap();
        trimmers[number] = start("trim::actor_that_trims");
        kills += 1;
        assert!(users.iter_mut().all(is_running), "a user has failed");
    }
    for user in &users {
        let turns = stage.file(&format!("{TURNS}{}", user.id())).metadata().unwrap().len();
        println!("{turns} turns of a user");
        assert!(turns > 100, "{turns} turns");
    }
    // One that is killed while it holds leaves the file of its unit to the next holder.
    users.iter().for_each(|user| stage::kill(stage::pid(user), rustix::process::Signal::STOP));
    for child in users.iter_mut().chain(&mut trimmers) {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    println!("{kills} trimmers killed");
    // Nothing is in anybody's way, and all of it goes.
    let session = stage.session();
    let names = ["t0", "t1", "t2"];
    names.iter().for_each(|name| _ = touch(&session.range(name), 8));
    drop(session);
    assert_eq!(trimmed(&stage).tables, 3);
    assert_eq!(trimmed(&stage), Trimmed::default());
}

/// What was given back and cannot be had again is an error, and no signal.
#[test]
fn where_memory_is_full_by_then_a_block_is_refused() {
    let farlock = env!("CARGO_BIN_EXE_farlock");
    let far = format!("{}:1", 9 * BLOCK_UNITS);
    let script = format!(
        "mount -t tmpfs -o size=48m none /dev/shm || exit 99; \
         lock() {{ {farlock} lock t --range {far} -- true; }}; \
         lock && {farlock} region trim default || exit 98; \
         cat /dev/zero >/dev/shm/full 2>/dev/null; \
         lock; echo \"full: $?\"; {farlock} lock t --range 5:1 -- true; echo \"near: $?\"; \
         rm /dev/shm/full; lock; echo \"free: $?\""
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    unshare.env_remove("FARLOCK_DIR").env_remove("FARLOCK_STATE_DIR").env_remove("HOME");
    let Ok(output) = unshare.output() else { return println!("SKIP full: there is no unshare") };
    let (status, printed, said) = ended(output);
    if status == 99 || printed.is_empty() && said.contains("unshare") {
        return println!("SKIP full: unshare makes no mounts for this user");
    }
    assert!(printed.contains("full: 69\nnear: 0\nfree: 0\n"), "{status}: {printed}{said}");
    assert!(said.contains("no space for") && said.contains("hint: "), "{said}");
}
