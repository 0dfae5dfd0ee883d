//! What people rely on when they storm and measure the faces: sessions and commands.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Once;

use serde_json::Value;

/// The laboratory, beside which the command `farlock` is: built here where only this package was.
fn lab(arguments: &str) -> Output {
    static FARLOCK: Once = Once::new();
    let lab = Path::new(env!("CARGO_BIN_EXE_farlock-lab"));
    FARLOCK.call_once(|| {
        if !lab.with_file_name("farlock").exists() {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["build", "--quiet", "--package=farlock", "--bin=farlock"]);
            cargo.args((!cfg!(debug_assertions)).then_some("--release"));
            assert!(cargo.status().unwrap().success());
        }
    });
    Command::new(lab).args(arguments.split_whitespace()).output().expect("the program starts")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// How often a storm begins anew that says it judged no times, since it stood still itself.
const STOOD_STILL_MAX: usize = 3;

fn rows(arguments: &str) -> Vec<Value> {
    let run = || {
        let output = lab(&format!("{arguments} --json"));
        (output.status, text(output.stdout), text(output.stderr))
    };
    let has_judged = |err: &str| !err.contains("the storm itself stood still");
    let mut last = run();
    for _ in 1..STOOD_STILL_MAX {
        if last.0.code() != Some(3) || has_judged(&last.2) {
            break;
        }
        last = run();
    }
    let (status, out, err) = last;
    assert!(status.success(), "{arguments}: {err}");
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn row<'r>(rows: &'r [Value], protocol: &str) -> &'r Value {
    let found = rows.iter().find(|row| row["protocol"] == protocol);
    found.unwrap_or_else(|| panic!("no row of {protocol}"))
}

fn number(row: &Value, pointer: &str) -> f64 {
    row.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} of {row}"))
}

#[test]
fn every_face_is_measured_beside_its_rivals_and_excludes() {
    let rows = rows("bench --faces --clients 3 --locks 2 --reads 30 --seconds 0.3 --rounds 3");
    for (name, at) in [
        ("session", "session"),
        ("session-async", "session"),
        ("command", "command"),
        ("pthread-robust", "system"),
        ("pthread-rw", "system"),
        ("raw", "system"),
        ("flock", "system"),
    ] {
        let row = row(&rows, name);
        assert_eq!((&row["measured_at"], &row["violations"]), (&at.into(), &0.into()), "{row}");
        assert!(number(row, "/acquisitions") > 0.0 && number(row, "/ratio_to_flock") > 0.0);
        assert!(number(row, "/p25/goodput_per_s") <= number(row, "/goodput_per_s"), "{row}");
    }
}

#[test]
fn alone_a_face_is_set_against_the_floor_and_commands_are_judged() {
    let rows = rows("bench --locks-kind session,session-async,command,flock --seconds 0.5");
    for row in &rows {
        assert!(number(row, "/ratio_to_raw/blocking") > 1.0, "{row}");
        assert_eq!(row["violations"], 0, "{row}");
    }
}

#[test]
fn threads_of_one_session_have_locks_of_their_own_or_share_one() {
    for locks in [1, 4] {
        let options = format!("--threads 1,2 --locks {locks} --seconds 0.1 --rounds 3");
        let rows = rows(&format!("bench --locks-kind session,session-async {options}"));
        assert_eq!(rows.len(), 4);
        for row in &rows {
            assert_eq!(row["violations"], 0, "{row}");
            assert_eq!(row["threads"] == 2, row["speedup"].is_number(), "{row}");
        }
    }
}

#[test]
fn a_refused_try_has_a_price() {
    let rows = rows("bench --tries --attached 1,8");
    assert_eq!(rows.len(), 4);
    for row in &rows {
        assert!(number(row, "/tries") > 0.0 && number(row, "/try_ns/p50") > 0.0, "{row}");
        assert_eq!(row["violations"], 0, "{row}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    for (arguments, reason) in [
        ("bench --faces --fabric sim", "use --fabric shm"),
        ("bench --locks-kind flock --threads 2", "shares no session"),
        ("bench --locks-kind session --locks 20000", "at most 10000 names"),
        ("storm --canary", "--face"),
        ("storm --face session --protocol mcs", "cannot be used with"),
        ("storm --face session --exaggerated", "had as a whole"),
        ("storm --face range-command --reference", "no command that locks ranges"),
        ("storm --face session --workload a", "are for --face kv"),
        ("storm --face range --index ordered", "are for --face kv"),
        ("storm --face session --parts 2", "are for --face kv"),
        ("storm --face kv --parts 2 --served", "cannot be used with"),
        ("storm --workload a", "--face"),
        ("storm --face kv --restarts 1", "--served"),
    ] {
        let output = lab(arguments);
        let said = text(output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{arguments}: {said}");
    }
}

#[test]
fn who_takes_no_lock_is_found_out_and_the_kernels_locks_are_not() {
    for face in ["session", "command", "range", "range-command"] {
        let canary = &rows(&format!("storm --face {face} --kills 20 --canary"))[0];
        assert!(number(canary, "/overlaps") > 0.0, "{canary}");
    }
    for face in ["session", "command", "range"] {
        let reference = &rows(&format!("storm --face {face} --kills 40 --reference"))[0];
        for objection in ["overlaps", "refused_wrongly", "delayed", "stalled", "failures"] {
            assert_eq!(reference[objection], 0, "{objection}: {reference}");
        }
    }
}

#[test]
fn who_takes_less_than_it_says_is_found_out() {
    for face in ["range", "range-command"] {
        let row = &rows(&format!("storm --face {face} --kills 60 --exaggerated"))[0];
        assert!(number(row, "/overlaps") > 0.0, "{row}");
    }
}

#[test]
fn a_storm_over_a_face_excludes_and_tokens_grow() {
    for face in ["session", "command", "range", "range-command"] {
        let output = lab(&format!("storm --face {face} --kills 40 --json"));
        let row: Value = serde_json::from_str(&text(output.stdout)).unwrap();
        assert!(number(&row, "/granted") > 0.0 && number(&row, "/kills") >= 40.0, "{row}");
        assert_eq!((&row["overlaps"], &row["token_errors"]), (&0.into(), &0.into()), "{row}");
    }
}

#[test]
fn a_storm_over_a_store_says_of_which_workload_and_index_it_is() {
    for (workload, index, served) in
        [("a", "hash", false), ("f", "ordered", false), ("a", "ordered", true), ("f", "hash", true)]
    {
        let by_server = if served { "--served" } else { "" };
        let size = format!("--kills 30 --stops 30 {by_server}");
        let asked = format!("storm --face kv --workload {workload} --index {index} {size}");
        let row = &rows(&asked)[0];
        let named = (&row["workload"], &row["index"], &row["served"]);
        assert_eq!(named, (&workload.into(), &index.into(), &served.into()), "{row}");
        assert_eq!((&row["violations"], &row["failed"]), (&0.into(), &0.into()), "{row}");
        let refused = number(row, "/refused");
        assert!(workload == "f" || refused == 0.0, "who only updates is refused nothing: {row}");
    }
    let row = &rows("storm --face kv --parts 3 --kills 30 --stops 30")[0];
    assert_eq!(
        (&row["parts"], &row["violations"], &row["failed"]),
        (&3.into(), &0.into(), &0.into())
    );
    let said = text(lab("storm --face kv --kills 5 --index ordered").stdout);
    for told in ["both", "ordered", "nobody"] {
        assert!(said.contains(told), "{told}: {said}");
    }
}
