//! The lock that excludes nobody is caught by every command that judges: a judge that never speaks
//! is none.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

use serde_json::Value;

/// The row that this command prints about `none`. It must end well: that the canary is violated
/// is as it should be.
fn row_of_none(arguments: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farlock-lab"));
    let output = command.args(arguments.split_whitespace()).output().expect("the program starts");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments}: {said}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut rows = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.find(|row| row["protocol"] == "none").expect("a row of the canary")
}

fn assert_violated(arguments: &str) {
    let row = row_of_none(arguments);
    assert!(row["violations"].as_u64().unwrap() > 0, "{arguments}: {row}");
}

#[test]
fn the_checker_sees_it() {
    for mode in ["random", "pct", "exhaustive", "crash"] {
        assert_violated(&format!("check --protocol none --mode {mode} --budget 200 --json"));
    }
}

#[test]
fn the_benchmark_sees_it() {
    let size = "--clients 8 --locks 1 --reads 50 --json";
    assert_violated(&format!("bench --locks-kind none --fabric sim --acquisitions 2000 {size}"));
    // Held for a while, so that holders meet even on one core.
    assert_violated(&format!("bench --locks-kind none --seconds 0.2 --hold-ns 2000 {size}"));
}

#[test]
fn the_storm_sees_it() {
    assert_violated("storm --protocol none --locks 1 --kills 60 --json");
}

/// Workers say that they have written what they have not.
#[test]
fn the_storm_sees_that_writes_are_missing() {
    assert_row_has_violations("storm --face kv --kills 20 --stops 20 --canary --json");
    for chosen in ["--workload a --index ordered", "--workload f --parts 2"] {
        let size = "--kills 20 --stops 20 --canary --json";
        assert_row_has_violations(&format!("storm --face kv {chosen} {size}"));
    }
}

/// Everybody says that what it holds goes on to the end.
#[test]
fn the_storm_sees_that_ranges_overlap() {
    let arguments = "storm --protocol citron --locks 1 --kills 60 --exaggerated --json";
    assert_row_has_violations(arguments);
}

fn assert_row_has_violations(arguments: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farlock-lab"));
    let output = command.args(arguments.split_whitespace()).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8(output.stderr).unwrap());
    let row: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(row["violations"].as_u64().unwrap() > 0, "{row}");
}
