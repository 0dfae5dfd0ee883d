//! What people rely on when they run `farlock-lab storm`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Output};

use serde_json::Value;

fn storm(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farlock-lab"));
    command.arg("storm").args(arguments.split_whitespace());
    command.output().expect("the program starts")
}

fn rows(arguments: &str) -> Vec<Value> {
    let output = storm(&format!("{arguments} --json"));
    let (out, err) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    assert!(output.status.success(), "{arguments}: {}", err.unwrap());
    out.unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap_or_else(|| panic!("{field} of {row}"))
}

fn at_boundaries(row: &Value) -> u64 {
    row["kills_at"].as_object().unwrap().values().map(|kills| kills.as_u64().unwrap()).sum()
}

#[test]
fn survivors_are_granted_and_nobody_overlaps_the_dead() {
    let rows = rows("--kills 200");
    assert!(rows.iter().map(|row| number(row, "kills")).sum::<u64>() >= 200);
    for row in &rows {
        assert_eq!(number(row, "violations") > 0, row["protocol"] == "none", "{row}");
        assert_eq!(number(row, "stalls"), 0, "{row}");
        assert!(number(row, "longest_wait_ns") > 0 && number(row, "stops") > 0, "{row}");
        let at_boundaries = at_boundaries(row);
        assert!(at_boundaries > 0 && at_boundaries <= number(row, "kills"), "{row}");
    }
}

#[test]
fn clients_die_at_moments_of_every_kind() {
    let rows = rows("--protocol shiftlock --kills 400");
    for moment in ["any", "atomic", "send", "receive", "publish", "wait", "repair", "hold"] {
        assert!(number(&rows[0]["kills_at"], moment) > 0, "{moment}: {}", rows[0]);
    }
}

#[test]
fn parts_of_locks_are_held_beside_each_other_and_the_dead() {
    for protocol in ["citron", "citron-rw", "segments:n=64:units=16"] {
        let row = &rows(&format!("--protocol {protocol} --kills 100"))[0];
        assert_eq!((number(row, "violations"), number(row, "stalls")), (0, 0), "{row}");
        assert!(number(row, "parts") > 0, "{row}");
    }
    assert!(rows("--protocol mcs --kills 5")[0]["parts"].is_null());
}

#[test]
fn without_json_it_is_a_table() {
    let output = storm("--protocol mcs --kills 5");
    assert!(output.status.success());
    let table = String::from_utf8(output.stdout).unwrap();
    for word in ["in repair", "longest wait", "mcs"] {
        assert!(table.contains(word), "{table}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    for (arguments, reason) in [
        ("--protocol nosuch", "there is no lock named 'nosuch'"),
        ("--clients 1", "1 is not in 2..=64"),
        ("--kills 0", "0 is not in 1.."),
        ("--protocol mcs --exaggerated", "mcs is not had in parts"),
    ] {
        let output = storm(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(reason), "{arguments}: {said}");
    }
}
