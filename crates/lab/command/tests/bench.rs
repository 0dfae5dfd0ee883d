//! What people rely on when they run `farlock-lab bench`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn bench(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farlock-lab"));
    command.arg("bench").args(arguments.split_whitespace());
    command.output().expect("the program starts")
}

fn rows(arguments: &str) -> Vec<Value> {
    let output = bench(&format!("{arguments} --json"));
    let (out, err) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    assert!(output.status.success(), "{arguments}: {}", err.unwrap());
    out.unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn row<'r>(rows: &'r [Value], protocol: &str) -> &'r Value {
    let found = rows.iter().find(|row| row["protocol"] == protocol);
    found.unwrap_or_else(|| panic!("no row of {protocol}"))
}

fn number(row: &Value, pointer: &str) -> f64 {
    row.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} of {row}"))
}

/// Only `none` lets holders overlap.
fn assert_judged(rows: &[Value]) {
    for row in rows {
        let violations = number(row, "/violations");
        match row["protocol"].as_str() {
            Some("none") => assert!(violations > 0.0, "the canary lives: {row}"),
            _ => assert_eq!(violations, 0.0, "{row}"),
        }
        assert!(number(row, "/acquisitions") > 0.0, "{row}");
    }
}

#[test]
fn in_a_simulation_a_seed_is_a_run() {
    let run = |seed: u32| {
        let common = "--fabric sim --clients 6 --locks 20 --dist zipf:0.99 --reads 30 --json";
        let output = bench(&format!("{common} --acquisitions 2000 --seed {seed}"));
        assert!(output.status.success());
        output.stdout
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn in_a_simulation_every_lock_but_the_canary_excludes() {
    let rows = rows("--fabric sim --clients 8 --reads 50 --seconds 0.005");
    assert_judged(&rows);
    assert!(number(row(&rows, "shiftlock"), "/fairness_jain") >= 0.95);
    for row in &rows {
        // A client is measured from the end of its last unmeasured cycle to that of its last one.
        assert!((0.0045..0.006).contains(&number(row, "/seconds")), "virtual time: {row}");
    }
}

#[test]
fn between_processes_every_lock_and_rival_but_the_canary_excludes() {
    for placement in ["spread", "one"] {
        // So many, not so long: on a busy machine a lock server does nothing for a while.
        let options = format!("--clients 8 --reads 50 --acquisitions 8000 --placement {placement}");
        // Held for a while, so that the canary's holders meet even on one core.
        let rows = rows(&format!("{options} --hold-ns 2000"));
        assert_judged(&rows);
        for rival in ["raw", "flock", "ofd", "pthread", "parking_lot"] {
            row(&rows, rival);
        }
    }
}

#[test]
fn the_blocking_face_excludes_too() {
    // Holds are long enough that all are there before the first one has done them all.
    assert_judged(&rows(
        "--clients 3 --reads 50 --locks 2 --acquisitions 3000 --face blocking --hold-ns 2000 \
         --placement spread",
    ));
}

#[test]
fn alone_a_cycle_is_two_atomics_and_is_set_against_the_floor() {
    let rows = rows("--locks-kind mcs,shiftlock --seconds 0.1");
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert_eq!(number(row, "/per_acquisition/atomics"), 2.0);
        for verb in ["reads", "writes", "sends"] {
            assert_eq!(number(row, &format!("/per_acquisition/{verb}")), 0.0, "{verb}");
        }
        for face in ["async", "blocking"] {
            assert!(number(row, &format!("/ratio_to_raw/{face}")) > 0.5);
            assert!(number(row, &format!("/cycle_ns/{face}")) > 1.0);
        }
    }
}

#[test]
fn a_row_has_these_fields_in_this_order() {
    let output = bench("--fabric sim --locks-kind shiftlock:n=4 --acquisitions 100 --json");
    let line = String::from_utf8(output.stdout).unwrap();
    let fields = [
        "protocol",
        "fabric",
        "clients",
        "locks",
        "dist",
        "reads",
        "seconds",
        "acquisitions",
        "goodput_per_s",
        "acquire_ns",
        "per_acquisition",
        "fairness_jain",
        "violations",
        "seed",
    ];
    let places = fields.map(|field| line.find(&format!("\"{field}\":")).expect(field));
    assert!(places.is_sorted(), "{line}");
    let row: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(row["protocol"], "shiftlock:n=4");
    assert_eq!(number(&row, "/acquisitions"), 100.0);
    for quantile in ["mean", "p50", "p90", "p99", "p999", "max"] {
        assert!(number(&row, &format!("/acquire_ns/{quantile}")) > 1000.0, "{quantile}");
    }
    for text in ["commit", "cpu", "placement", "face"] {
        assert!(row[text].is_string(), "{text}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    for (arguments, reason) in [
        ("--locks-kind nosuch", "there is no lock named 'nosuch'"),
        ("--locks-kind shiftlock:n=0", "a number from 1"),
        ("--fabric sim --locks-kind flock", "use --fabric shm"),
        ("--fabric sim --face blocking", "async face alone"),
        ("--dist normal", "zipf"),
        ("--reads 101", "101"),
        ("--seconds 1 --acquisitions 1", "cannot be used with"),
    ] {
        let output = bench(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(reason), "{arguments}: {said}");
    }
}

/// Of ranges that are drawn alike, segments of 64 units keep out requests that meet no units, and
/// what covers exactly what is asked does not. Claims that are undone are counted.
#[test]
fn ranges_are_judged_by_their_units_and_false_conflicts_are_counted() {
    let common = "--fabric sim --range 1 --space 4096 --dist zipf:0.9 --clients 12 \
        --acquisitions 3000 --locks-kind segments,segments:units=64,citron,far-list,interval-tree";
    let rows = rows(common);
    assert_judged(&rows);
    for row in &rows {
        assert_eq!((number(row, "/space"), number(row, "/align")), (4096.0, 1.0), "{row}");
        assert_eq!(row["range"], "1", "{row}");
    }
    let false_conflicts = |protocol| number(row(&rows, protocol), "/false_conflicts");
    assert!(false_conflicts("segments:units=64") > 100.0);
    for exact in ["segments", "citron", "far-list", "interval-tree"] {
        assert_eq!(false_conflicts(exact), 0.0, "{exact}");
    }
    for undone in ["far-list", "citron"] {
        assert!(number(row(&rows, undone), "/aborts") > 0.0, "{undone}");
    }
    assert_eq!(number(row(&rows, "interval-tree"), "/aborts"), 0.0);
}

/// A third of the clients each want 1, 16 and 256 units, on the machines of a publication.
#[test]
fn every_range_lock_excludes_on_a_testbed() {
    let rows = rows(
        "--fabric sim --locks-kind all --range mix --space 4096 --align 8 --testbed citron \
         --dist zipf:0.9 --clients 9 --acquisitions 1000",
    );
    assert!(rows.len() >= 7, "{} rows", rows.len());
    assert_judged(&rows);
}

#[test]
fn ranges_exclude_between_processes() {
    let common = "--fabric shm --clients 2 --placement spread --acquisitions 2000";
    let locks = "--locks-kind citron,far-list,linked-list";
    assert_judged(&rows(&format!("{common} {locks} --range 4 --space 64")));
}

#[test]
fn what_has_no_ranges_and_no_testbed_is_refused() {
    for (arguments, reason) in [
        ("--locks-kind mcs --range 1", "'mcs' has no ranges"),
        ("--locks-kind citron --range 65 --space 64", "no range of 65 units lies in 64"),
        ("--locks-kind citron --range 1 --testbed citron", "--fabric sim"),
        ("--fabric sim --locks-kind mcs --testbed nowhere", "no testbed named 'nowhere'"),
        ("--fabric sim --locks-kind citron --range 1 --locks 2", "ranges are of one lock"),
    ] {
        let output = bench(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(reason), "{arguments}: {said}");
    }
}

#[test]
fn a_worker_that_dies_ends_the_bench_and_nothing_is_left_behind() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_farlock-lab"))
        .args(["bench", "--clients", "2", "--locks-kind", "shiftlock", "--seconds", "30"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let children = format!("/proc/{0}/task/{0}/children", bench.id());
    let patience = Instant::now() + Duration::from_secs(20);
    let worker = loop {
        assert!(Instant::now() < patience, "two workers start");
        let list = std::fs::read_to_string(&children).unwrap();
        let pids: Vec<i32> = list.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        // Until the directory is gone some worker may not have opened the region.
        if pids.len() == 2 && !left_behind(bench.id()) {
            std::thread::sleep(Duration::from_millis(100));
            break rustix::process::Pid::from_raw(pids[0]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    rustix::process::kill_process(worker, rustix::process::Signal::KILL).unwrap();
    let killed = Instant::now();
    assert!(!bench.wait().unwrap().success());
    assert!(killed.elapsed() < Duration::from_secs(10), "it does not wait for the end");
    assert!(!left_behind(bench.id()));
}

fn left_behind(pid: u32) -> bool {
    let prefix = format!("farlock-lab-{pid}-");
    let entries = std::fs::read_dir(Path::new("/dev/shm")).unwrap();
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
}
