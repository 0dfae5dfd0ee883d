//! Toy runs of the laboratory: every kind of measurement, small enough for every change.
//!
//! A run is a row of [`TOYS`]: a `farlock-lab` command that prints lines of JSON, and what each
//! line must show. Toys prove that the measurements run and judge rightly; they measure nothing.

use serde_json::Value;

/// The package, and the program, that is run.
pub(crate) const LABORATORY: &str = "farlock-lab";

/// One small run.
#[derive(Debug)]
pub(crate) struct Toy {
    /// What it shows.
    pub(crate) title: &'static str,
    /// The arguments of the laboratory, as words between blanks.
    pub(crate) args: &'static str,
    /// What every line it prints must show.
    pub(crate) each: &'static [Expect],
    /// Whether a second run must print the same bytes.
    pub(crate) repeats: bool,
}

/// What a field of a line must be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expect {
    /// A number above nought.
    Positive(&'static str),
    /// No violations, unless it is the canary's line.
    Excludes,
    /// The number that this JSON pointer names is at most this.
    AtMost(&'static str, f64),
}

/// The lock that excludes no holder.
const CANARY: &str = "none";

/// Every toy run.
pub(crate) const TOYS: &[Toy] = &[
    Toy {
        title: "every lock excludes in the simulation, and a seed is a run",
        args: "bench --fabric sim --locks-kind all --clients 4 --locks 2 --acquisitions 400 \
            --seed 1 --json",
        each: &[Expect::Excludes, Expect::Positive("acquisitions")],
        repeats: true,
    },
    Toy {
        title: "every lock excludes between processes",
        args: "bench --fabric shm --locks-kind all --clients 2 --locks 2 --acquisitions 2000 \
            --seed 1 --json",
        each: &[Expect::Excludes, Expect::Positive("acquisitions")],
        repeats: false,
    },
    Toy {
        title: "sessions and commands exclude, as their rivals do",
        args: "bench --faces --clients 2 --locks 2 --reads 30 --acquisitions 200 --seed 1 \
            --placement spread --json",
        each: &[Expect::Excludes, Expect::Positive("acquisitions")],
        repeats: false,
    },
    Toy {
        title: "threads of one session exclude",
        args: "bench --locks-kind session,session-async --threads 1,2 --seconds 0.2 --rounds 3 \
            --json",
        each: &[Expect::Excludes, Expect::Positive("acquisitions")],
        repeats: false,
    },
    Toy {
        title: "a try beside a holder is refused, however many sessions there are",
        args: "bench --tries --attached 1,64 --json",
        each: &[Expect::Excludes, Expect::Positive("tries")],
        repeats: false,
    },
    Toy {
        title: "commands that take no lock are caught",
        args: "storm --face command --kills 20 --canary --json",
        each: &[Expect::Positive("overlaps")],
        repeats: false,
    },
    Toy {
        title: "who never releases loses its lease, and the others go on",
        args: "bench --fabric sim --locks-kind shiftlock:lease=100000,dslr:lease=100000,\
            dslr-64:lease=100000 --clients 4 --locks 2 --reads 50 --skip-release 0.05 \
            --acquisitions 400 --seed 1 --json",
        each: &[Expect::Excludes, Expect::Positive("acquisitions"), Expect::Positive("skipped")],
        repeats: true,
    },
    Toy {
        title: "the canary that excludes nobody is caught",
        args: "bench --fabric sim --locks-kind none --clients 8 --locks 1 --acquisitions 2000 \
            --seed 1 --json",
        each: &[Expect::Positive("violations")],
        repeats: true,
    },
    Toy {
        title: "a waiter is granted when the holder dies, and not woken before",
        args: "takeover --kills 20 --waiters 4 --json",
        each: &[Expect::Excludes, Expect::Positive("kills"), Expect::AtMost("/idle_wakeups", 0.0)],
        repeats: false,
    },
    Toy {
        title: "the simulated world turns, the same twice",
        args: "speed --size 1 --rounds 2 --json",
        each: &[Expect::Positive("count"), Expect::Positive("per_second")],
        repeats: false,
    },
    Toy {
        title: "tasks hand every lock on among themselves",
        args: "bench --fabric sim --locks-kind all --clients 3 --tasks 4 --handovers 8 \
            --acquisitions 600 --seed 1 --json",
        each: &[Expect::Excludes, Expect::Positive("acquisitions")],
        repeats: true,
    },
    Toy {
        title: "transactions that lock in one order commit, over every lock",
        args: "bench --fabric sim --locks-kind all --clients 4 --locks 8 --reads 50 \
            --dist zipf:0.99 --txn-locks 3 --acquisitions 200 --seed 1 --json",
        each: &[Expect::Excludes, Expect::Positive("acquisitions")],
        repeats: true,
    },
    Toy {
        title: "transactions that lock in any order abort, and commit, over every lock",
        args: "bench --fabric sim --locks-kind all --clients 4 --locks 4 --txn-locks 3 \
            --txn-order drawn --txn-patience-ns 100000 --acquisitions 200 --seed 1 --json",
        each: &[Expect::Excludes, Expect::Positive("acquisitions")],
        repeats: true,
    },
    Toy {
        title: "transactions commit between processes",
        args: "bench --fabric shm --locks-kind mcs,shiftlock,dslr,cas --clients 2 --locks 4 \
            --reads 50 --txn-locks 3 --txn-order drawn --acquisitions 500 --seed 1 --json",
        each: &[Expect::Excludes, Expect::Positive("acquisitions")],
        repeats: false,
    },
    Toy {
        title: "ranges of one lock exclude in the simulation, and a seed is a run",
        args: "bench --fabric sim --locks-kind all --range mix --space 4096 --clients 6 \
            --dist zipf:0.9 --acquisitions 600 --seed 1 --json",
        each: &[Expect::Excludes, Expect::Positive("acquisitions")],
        repeats: true,
    },
    Toy {
        title: "ranges of one lock exclude between processes",
        args: "bench --fabric shm --locks-kind all --range 4 --space 64 --clients 2 \
            --acquisitions 2000 --placement spread --seed 1 --json",
        each: &[Expect::Excludes, Expect::Positive("acquisitions")],
        repeats: false,
    },
    Toy {
        title: "files are read and written under locks of any kind, and a seed is a run",
        args: "fs --lock citron,citron-rw,segments,interval-tree,range-btree,linked-list,far-list,\
            mcs --clients 24 --seconds 0.001 --seed 1 --json",
        each: &[Expect::Excludes, Expect::Positive("ops_per_s")],
        repeats: true,
    },
    Toy {
        title: "files are read and written between processes",
        args: "fs --fabric shm --lock citron,citron-rw,segments,mcs --clients 3 \
            --seconds 0.1 --json",
        each: &[Expect::Excludes, Expect::Positive("ops_per_s")],
        repeats: false,
    },
    Toy {
        title: "a table of ranges grows from 2^10 to 2^28 units under load, the same twice",
        args: "spreading --fabric sim --clients 16 --phase-ms 4 --json",
        each: &[Expect::Excludes, Expect::Positive("acquisitions")],
        repeats: true,
    },
    Toy {
        title: "one more range takes its time while others are held",
        args: "figure held --scale toy --json",
        each: &[Expect::Positive("ours")],
        repeats: false,
    },
    Toy {
        title: "every figure is drawn from what is measured, the same twice",
        args: "figure all --scale toy --json",
        each: &[Expect::Excludes],
        repeats: true,
    },
    Toy {
        title: "alone, a cycle takes at most three times what the processor needs",
        args: "bench --locks-kind mcs,shiftlock --seconds 0.5 --json",
        each: &[
            Expect::AtMost("/ratio_to_raw_min/async", 3.0),
            Expect::AtMost("/ratio_to_raw_min/blocking", 3.0),
            Expect::Excludes,
        ],
        repeats: false,
    },
];

impl Expect {
    /// What is wrong with this line; `None` if nothing is.
    fn complaint(self, line: &Value) -> Option<String> {
        let (field, value) = match self {
            Self::Positive(field) => (field, Some(&line[field])),
            Self::Excludes => ("violations", Some(&line["violations"])),
            Self::AtMost(pointer, _) => (pointer, line.pointer(pointer)),
        };
        let Some(number) = value.and_then(Value::as_f64) else {
            return Some(format!("{field} is no number"));
        };
        let right = match self {
            Self::Positive(_) => number > 0.0,
            Self::Excludes => number == 0.0 || line["protocol"] == CANARY,
            Self::AtMost(_, most) => number <= most,
        };
        (!right).then(|| format!("{field} is {number}"))
    }
}

impl Toy {
    /// What is wrong with the lines that a run printed, one complaint a fault.
    pub(crate) fn complaints(&self, printed: &[String]) -> Vec<String> {
        if printed.is_empty() {
            return vec!["nothing was printed".to_owned()];
        }
        let mut complaints = Vec::new();
        for line in printed {
            match serde_json::from_str::<Value>(line) {
                Err(error) => complaints.push(format!("no JSON ({error}): {line}")),
                Ok(value) => {
                    let wrong = self.each.iter().filter_map(|expect| expect.complaint(&value));
                    complaints.extend(wrong.map(|complaint| format!("{complaint}: {line}")));
                }
            }
        }
        complaints
    }
}

/// Whether the laboratory has a program, as `cargo metadata` tells it.
pub(crate) fn is_there(metadata: &Value) -> bool {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    list(&metadata["packages"])
        .iter()
        .flat_map(|package| list(&package["targets"]))
        .any(|target| target["kind"][0] == "bin" && target["name"] == LABORATORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(printed: &[&str]) -> usize {
        let printed: Vec<String> = printed.iter().map(|&line| line.to_owned()).collect();
        TOYS[0].complaints(&printed).len()
    }

    #[test]
    fn a_line_must_show_what_its_toy_expects() {
        assert_eq!(complaints(&[r#"{"violations": 0, "acquisitions": 400}"#]), 0);
        assert_eq!(complaints(&[r#"{"violations": 1, "acquisitions": 0}"#]), 2);
        assert_eq!(complaints(&[r#"{"violations": 0}"#]), 1);
    }

    #[test]
    fn silence_and_other_text_are_faults() {
        assert_eq!(complaints(&[]), 1);
        assert_eq!(complaints(&["all is well"]), 1);
    }

    #[test]
    fn the_laboratory_is_found_by_its_program() {
        let package = |kind: &str| {
            serde_json::json!({"packages": [
                {"name": LABORATORY, "targets": [{"kind": [kind], "name": LABORATORY}]}]})
        };
        assert!(is_there(&package("bin")));
        assert!(!is_there(&package("lib")));
    }
}
