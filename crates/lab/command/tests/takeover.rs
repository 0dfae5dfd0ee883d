//! What people rely on when they run `farlock-lab takeover`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Output};

use serde_json::Value;

fn takeover(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farlock-lab"));
    command.arg("takeover").args(arguments.split_whitespace());
    command.output().expect("the program starts")
}

fn rows(arguments: &str) -> Vec<Value> {
    let output = takeover(&format!("{arguments} --json"));
    let (out, err) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    assert!(output.status.success(), "{arguments}: {}", err.unwrap());
    out.unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_waiter_is_granted_when_the_holder_dies_and_is_not_woken_before() {
    let rows = rows("--kills 5 --waiters 3 --resident 4");
    let protocols: Vec<&str> = rows.iter().map(|row| row["protocol"].as_str().unwrap()).collect();
    assert!(protocols.contains(&"mcs") && protocols.contains(&"shiftlock"), "{protocols:?}");
    assert!(!protocols.contains(&"none") && !protocols.contains(&"cas"), "{protocols:?}");
    for row in &rows {
        assert_eq!((&row["kills"], &row["violations"]), (&5.into(), &0.into()), "{row}");
        assert_eq!(row["idle_wakeups"], 0, "{row}");
        let nanos = |which: &str, at: &str| row[which][at].as_u64().unwrap();
        assert!(nanos("takeover_ns", "p50") > 0, "{row}");
        assert!(nanos("all_granted_ns", "max") >= nanos("takeover_ns", "max"), "{row}");
    }
}

#[test]
fn who_is_stopped_past_its_lease_writes_in_vain_where_tokens_are_looked_at() {
    let rows = rows("--protocol dslr:lease=20000000 --kills 0 --stops 5");
    assert_eq!(rows[0]["late_refused"], 5, "{}", rows[0]);
    assert_eq!(rows[0]["late_unfenced"], 5, "{}", rows[0]);
}

#[test]
fn a_lock_without_leases_and_one_that_polls_are_refused_in_words() {
    for (arguments, because) in
        [("--protocol mcs --kills 0 --stops 1", "no leases"), ("--protocol nosuch", "nosuch")]
    {
        let output = takeover(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(because), "{arguments}: {error}");
    }
}
