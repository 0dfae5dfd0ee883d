//! A planted bug on its whole way: the checker finds it, shrinks the run, prints it as a line, and
//! the line shows the same objection again.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

use serde_json::Value;

/// What a run says that ends with this status.
fn lab(status: i32, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_farlock-lab")).args(arguments).output();
    let output = output.expect("the program starts");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Two waiters look around for the dead at once, and each gives the other's ticket back. It takes a
/// death, two who wait for it, and a preemption between a look and what follows from it.
#[test]
fn a_bug_is_found_shrunk_printed_and_replayed() {
    let row = lab(0, &["check", "--mode", "museum", "--protocol", "repairer-overlooked", "--json"]);
    let row: Value = serde_json::from_str(&row).unwrap();
    assert_eq!(row["found"], true, "{row}");
    let (line, story) = (row["line"].as_str().unwrap(), row["story"].as_str().unwrap());
    let parts: Vec<&str> = line.split('/').collect();
    assert_eq!(parts[..2], ["museum:repairer-overlooked", "3x1"], "what it takes: {line}");
    let deaths: Vec<_> = parts.iter().filter(|part| part.starts_with('d')).collect();
    assert!(deaths.len() == 1 && !deaths[0].contains('+'), "one death: {line}");
    let shown = lab(1, &["replay", line]);
    let last: Vec<&str> = shown.lines().rev().take(2).collect();
    assert_eq!(last[1], story, "{line}");
    assert!(last[0].starts_with("broken: exclusion"), "{shown}");
    assert!(shown.contains("'s record: "), "verb by verb: {shown}");
}
