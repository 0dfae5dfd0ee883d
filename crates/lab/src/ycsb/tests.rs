use super::*;
use crate::line::arguments;

/// A small run with these arguments.
fn row(more: &str) -> Row {
    let line = format!("--clients 24 --records 200 --operations 3000 {more}");
    measure(&arguments(&line).expect("arguments")).expect("it is measured")
}

#[test]
fn every_scheme_does_every_mix() {
    for index in ["pointer-array", "race", "smart"] {
        for sync in ["optimistic", "cas", "mcs", "cider", "cider-choice", "cider-combining"] {
            for mix in ["wi", "ri", "wo", "c", "f"] {
                let row = row(&format!("--index {index} --sync {sync} --workload {mix}"));
                assert_eq!(row.violations, 0, "{row:?}");
                assert!(row.ops_per_s > 0.0 && row.verbs_per_op.reads >= 1.0, "{row:?}");
                // Few of the writes among many reads meet another one.
                match row.workload {
                    Mix::Wi | Mix::Wo => assert!(row.wc_rate > 0.0, "{row:?}"),
                    Mix::C | Mix::F => assert_eq!(row.wc_rate, 0.0, "{row:?}"),
                    Mix::Ri | Mix::E => {}
                }
                assert!(row.wc_rate >= row.wc_rate_local, "{row:?}");
            }
        }
    }
}

#[test]
fn a_tree_is_scanned_and_nothing_else_is() {
    for sync in ["optimistic", "cider"] {
        let row = row(&format!("--index smart --sync {sync} --workload e"));
        assert_eq!((row.violations, row.wc_rate), (0, 0.0), "{row:?}");
        assert!(row.ops_per_s > 0.0 && row.verbs_per_op.reads > 8.0, "{row:?}");
    }
    let args = arguments("--index race --workload e --records 10").expect("arguments");
    assert!(measure(&args).expect_err("no order").to_string().contains("order"));
}

#[test]
fn what_is_not_combined_locally_is_combined_by_cider_or_absorbed() {
    let rows =
        [("optimistic", false), ("cider-choice", false), ("cider", true), ("absorbing", true)];
    for (sync, combines) in rows {
        let row = row(&format!("--sync {sync} --no-local-combining"));
        assert_eq!((row.wc_rate_local, row.wc_rate > 0.0), (0.0, combines), "{row:?}");
    }
}

#[test]
fn clients_of_a_node_read_together_where_they_are_told_to() {
    for index in ["pointer-array", "race", "smart"] {
        let reads = |more: &str| row(&format!("--index {index} --workload ri {more}"));
        assert_eq!(reads("").delegated_rate, 0.0);
        let together = reads("--read-delegation");
        assert!(together.delegated_rate > 0.0 && together.violations == 0, "{together:?}");
        assert!(together.verbs_per_op.reads < reads("").verbs_per_op.reads, "{together:?}");
    }
}

/// What CIDER's figure 4 counts.
#[test]
fn writes_that_wait_and_are_not_combined_are_counted() {
    let blocked = |more: &str| row(more).blocked_rate;
    for sync in ["optimistic", "absorbing"] {
        assert_eq!(blocked(&format!("--sync {sync} --no-local-combining")), 0.0, "{sync}");
    }
    for sync in ["mcs", "cas", "cider-choice"] {
        let (alone, all) = (format!("--sync {sync} --clients 1"), format!("--sync {sync}"));
        assert_eq!((blocked(&alone), blocked(&all) > 0.0), (0.0, true), "{sync}");
    }
    // A write that comes after its node's leader has begun waits, though no other node writes.
    let one_node = row("--sync mcs --clients 4 --cns 1");
    assert!(one_node.wc_rate > 0.0 && one_node.blocked_rate > 0.0, "{one_node:?}");
    let in_line = row("--sync mcs --no-local-combining");
    assert!(in_line.blocked_rate < in_line.pessimistic_ratio, "{in_line:?}");
}

#[test]
fn the_artifact_retries_more_and_sleeps() {
    let both = |sync: &str| {
        ["fair", "artifact"].map(|setting| row(&format!("--sync {sync} --setting {setting}")))
    };
    for sync in ["optimistic", "mcs"] {
        let [fair, artifact] = both(sync);
        assert!(artifact.retries_per_op > fair.retries_per_op, "{fair:?} {artifact:?}");
    }
    let [fair, artifact] = both("cas");
    assert!(artifact.latency_ns.p999 > fair.latency_ns.p999, "{fair:?} {artifact:?}");
    assert!(artifact.latency_ns.p999 > 50_000, "{artifact:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = || row("--index race --sync cider --seed 7");
    assert_eq!(run(), run());
}

#[test]
fn clients_beyond_what_the_testbed_has_are_refused() {
    let args = arguments("--clients 1000 --cns 1000 --records 10").expect("arguments");
    assert!(measure(&args).expect_err("too many").to_string().contains("compute nodes"));
}
