//! The tables of what is run: everything `cargo xtask ci` and `cargo xtask nightly` do.
//!
//! A new check is a new entry here, and nothing else. The caps say what we promise about time:
//! on two cores, from nothing, a run ends within [`WHOLE_MINUTES`], and on slower ones than those
//! of [`crate::pace`] in proportion.

use std::time::Duration;

/// What a whole `ci` run may take, in minutes. The caps of its steps add up to no more.
pub(crate) const WHOLE_MINUTES: u64 = 45;

/// A step: commands that pass or fail together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// What people type.
    pub(crate) name: &'static str,
    /// What it shows, in a few words.
    pub(crate) title: &'static str,
    /// The whole step is killed after this many minutes, and fails; up to two later where those
    /// before it have left that of theirs.
    pub(crate) cap_minutes: u64,
    /// Environment of all its commands.
    pub(crate) env: &'static [(&'static str, &'static str)],
    /// The commands, in order, as words between blanks; the first that fails ends the step. `xtask`
    /// is this program.
    pub(crate) commands: &'static [&'static str],
    /// And then those that find the same beside others: one for each core at a time. What keeps one
    /// core busy, or is as long as it is whatever the clock says.
    pub(crate) side_by_side: &'static [&'static str],
}

impl Step {
    /// Its cap, as it is written.
    pub(crate) fn cap(&self) -> Duration {
        Duration::from_secs(60 * self.cap_minutes)
    }

    #[cfg(test)]
    fn all(&self) -> impl Iterator<Item = &str> {
        self.commands.iter().chain(self.side_by_side).copied()
    }
}

/// A command of the laboratory, optimised as shipped. With `--package` cargo would build it anew,
/// with the features that this package alone asks of its dependencies.
macro_rules! lab {
    ($arguments:literal) => {
        concat!("cargo run --release --quiet --bin farlock-lab -- ", $arguments)
    };
}

/// A run of the checker: its mode, and what else it is told.
macro_rules! check {
    ($arguments:literal) => {
        concat!(lab!("check --json --mode "), $arguments)
    };
}

/// Every schedule of clients of which each wants these units, and then what else there is to say.
macro_rules! range {
    ($arguments:literal) => {
        concat!(check!("exhaustive --acquisitions 1 --ranges "), $arguments)
    };
}

/// Every schedule of two clients of this lock where a verb is lost and one is paused twice.
macro_rules! beside_faults {
    ($protocol:literal) => {
        concat!(
            check!("exhaustive --clients 2 --acquisitions 1 --losses 1 --pauses 2 --protocol "),
            $protocol
        )
    };
}

/// The same where one dies, a verb is lost and one gives up.
macro_rules! many_faults {
    ($protocol:literal) => {
        concat!(
            check!("exhaustive --clients 2 --acquisitions 1 --crashes 1 --losses 1 --cancels 1"),
            " --protocol ",
            $protocol
        )
    };
}

/// The same where each client holds one lock and awaits another.
macro_rules! two_locks {
    ($protocol:literal) => {
        concat!(many_faults!($protocol), " --locks 2")
    };
}

/// A run of the checker over locks whose counts hold so few bits that they come all the way round.
/// Built apart, and in less time: what it runs is not timed.
macro_rules! narrow {
    ($arguments:literal) => {
        concat!(
            "cargo run --profile proof --quiet -p farlock-check --target-dir=target/narrow -- \
             check --json --mode ",
            $arguments
        )
    };
}

/// The environment of every command that builds them.
const NARROW: &[(&str, &str)] = &[("RUSTFLAGS", "--cfg=farlock_narrow")];

const PLAIN: Step =
    Step { name: "", title: "", cap_minutes: 1, env: &[], commands: &[], side_by_side: &[] };

/// What every change must pass.
pub(crate) const CI: &[Step] = &[
    Step {
        name: "lint",
        title: "the text is as rustfmt lays it out, the house rules hold, and nothing warns",
        cap_minutes: 2,
        commands: &[
            "cargo fmt --all --check",
            "xtask tidy",
            "cargo clippy --workspace --all-targets --all-features -- --deny=warnings",
        ],
        ..PLAIN
    },
    Step {
        name: "build",
        title: "everything builds, tests and release",
        cap_minutes: 12,
        commands: &[
            "cargo test --workspace --exclude=farlock-lab-command --all-features --no-run",
            // Of both default packages, for their features together: as `lab!` runs it.
            "cargo build --release --bin=farlock-lab",
            "cargo test --release --package=farlock-lab-command --no-run",
            // As those build it that follow the README.
            "cargo build --release --package=farlock",
        ],
        ..PLAIN
    },
    Step {
        name: "api",
        title: "the documentation builds without warnings; what users of the libraries can name is \
                as listed, and those build no command line; the programs in examples/ run",
        cap_minutes: 2,
        env: &[("RUSTDOCFLAGS", "--deny=warnings")],
        commands: &[
            "cargo doc --workspace --all-features --no-deps",
            "xtask examples",
            "xtask api",
        ],
        ..PLAIN
    },
    Step {
        name: "suites",
        title: "unit, integration and documentation tests, and histories of the key-value store \
                under faults at every verb",
        cap_minutes: 10,
        // At night the seeds of properties are new ones.
        env: &[("PROPTEST_RNG_SEED", "1")],
        // What a passing test prints is shown, for a test may announce a skip. All packages at
        // once: by itself one asks for other features of what all depend on, which is built anew.
        commands: &[
            "cargo test --workspace --exclude=farlock-lab-command --all-features --no-fail-fast \
             -- --show-output",
            // The laboratory's program is there already as people have it; another one takes as
            // long to build as all that it is made of.
            "cargo test --release --package=farlock-lab-command --no-fail-fast -- --show-output",
        ],
        ..PLAIN
    },
    Step {
        name: "models",
        title: "range locks in every order of two or three threads; they, and sleeping in shared \
                memory, in many orders of a few",
        cap_minutes: 2,
        commands: &[
            "env RUSTFLAGS=--cfg=loom cargo test --release --package=farlock-local --test=loom \
                --target-dir=target/loom",
            "env RUSTFLAGS=--cfg=shuttle cargo test --release --package=farlock-local \
                --package=farlock-fabric --package=farlock-locks --test=shuttle \
                --target-dir=target/shuttle",
        ],
        ..PLAIN
    },
    Step {
        name: "races",
        title: "range locks under ThreadSanitizer",
        cap_minutes: 1,
        commands: &["xtask races races"],
        ..PLAIN
    },
    Step {
        name: "figures",
        title: "every kind of measurement runs, and judges rightly; what the README and the \
                proving ground show is what happens",
        cap_minutes: 1,
        commands: &[
            "xtask transcripts README.md docs/proving-ground.md",
            "xtask figures",
            lab!("spreading --phase-ms 30 --json"),
            lab!(
                "served --systems served,redis,memory,memory-served --seconds 0.05 \
                 --rounds 1 --json"
            ),
        ],
        ..PLAIN
    },
    Step {
        name: "storm",
        title: "processes are killed at their verbs, sessions, commands and ranges anywhere",
        cap_minutes: 2,
        commands: &[
            lab!("storm --kills 10000 --json"),
            lab!("storm --face command --kills 200 --stops 200 --json"),
            lab!("storm --face session --kills 2000 --stops 2000 --json"),
            lab!("storm --face range-command --kills 60 --stops 60 --json"),
            lab!("storm --face range --kills 600 --stops 600 --json"),
            lab!("storm --face session --threads 4 --served --kills 200 --stops 200 --json"),
            lab!("storm --face range --served --kills 200 --stops 200 --json"),
            lab!(
                "storm --face session --served --tls --kills 60 --stops 40 --restarts 60 --cuts 40 \
                 --json"
            ),
            lab!("storm --face kv --kills 200 --stops 200 --json"),
            lab!("storm --face kv --parts 3 --kills 50 --stops 50 --json"),
            lab!(
                "storm --face kv --served --index ordered --kills 150 --stops 150 --restarts 30 \
                 --cuts 6 --json"
            ),
        ],
        ..PLAIN
    },
    Step {
        name: "checker",
        title: "every schedule in the small, faults without end in the large, planted bugs found",
        cap_minutes: 5,
        commands: &[
            check!("exhaustive --acquisitions 1 --stops 1 --budget 6s --partial"),
            check!("exhaustive --acquisitions 1 --stops 2 --budget 6s --partial"),
            check!("exhaustive --clients 2 --stops 2 --budget 6s --partial"),
            check!("exhaustive --acquisitions 1 --cancels 2 --visits --budget 6s --partial"),
            check!("exhaustive --clients 2 --cancels 2 --visits --budget 6s --partial"),
            check!("exhaustive --acquisitions 1 --crashes 1 --tries --budget 6s --partial"),
            check!(
                "exhaustive --acquisitions 1 --crashes 1 --tries --visits --budget 6s --partial"
            ),
            check!("mixed --budget 55s"),
        ],
        side_by_side: &[
            check!("museum"),
            // What takes longest of locks on ranges is in the step `ranges`.
            check!("exhaustive --but rma-rw --but segments"),
            check!("exhaustive --clients 2 --protocol rma-rw"),
            check!("exhaustive --acquisitions 1 --crashes 1"),
            check!("exhaustive --acquisitions 1 --cancels 1"),
            check!("exhaustive --acquisitions 1 --losses 1"),
            check!("exhaustive --clients 2 --acquisitions 1 --restarts 1"),
            check!("exhaustive --clients 2 --acquisitions 3 --crashes 1"),
            check!("exhaustive --clients 2 --crashes 1 --cancels 1"),
            check!(
                "exhaustive --clients 2 --acquisitions 1 --losses 1 --pauses 2 --but claim \
                 --but claim:bypass=1 --but claim:bypass=1:outside=2 --but segments --but citron \
                 --but citron-rw"
            ),
            check!(
                "exhaustive --clients 2 --acquisitions 1 --crashes 1 --losses 1 --cancels 1 \
                 --but segments --but citron --but citron-rw"
            ),
            check!("exhaustive --clients 2 --acquisitions 1 --crashes 1 --cancels 1 --near-wrap 1"),
            check!("exhaustive --protocol dslr --updates"),
            // Long enough for turns to be over.
            check!(
                "exhaustive --clients 2 --acquisitions 8 \
                 --protocol shiftlock:bypass=1:newcomer-yields=1"
            ),
            check!("exhaustive --acquisitions 1 --updates --crashes 1 --protocol dslr"),
            check!("exhaustive --acquisitions 1 --updates --cancels 1 --protocol dslr"),
            check!("exhaustive --clients 2 --protocol rma-rw:writers=2:readers=2"),
            check!("pct --protocol rma-rw:writers=2:readers=2 --budget 5s"),
            // Three clients of the lock that sessions use.
            check!("exhaustive --protocol claim:bypass=1 --acquisitions 1 --crashes 1"),
            check!(
                "exhaustive --protocol claim:bypass=1 --acquisitions 1 --cancels 1 --budget 10s \
                 --partial"
            ),
            // Tries, withdrawals and stops, of locks that say something of them.
            check!("exhaustive --clients 2 --acquisitions 1 --stops 2"),
            check!("exhaustive --clients 2 --acquisitions 1 --stops 1 --crashes 1"),
            check!("exhaustive --clients 2 --acquisitions 1 --cancels 2 --visits"),
            check!("exhaustive --clients 2 --acquisitions 1 --cancels 1 --visits --quits"),
            check!("exhaustive --clients 2 --crashes 1 --tries --but citron --but citron-rw"),
        ],
        ..PLAIN
    },
    Step {
        name: "worlds",
        title: "every verb of every role is a death, with each of its ends, and so are pairs; \
                clients that hold one lock and await another, and that use several slots at once",
        cap_minutes: 3,
        commands: &[
            // Without drtm: who waits there by a clock that goes a hundred times slower than a
            // holder's polls for longer than a run has events.
            check!("mixed --clients 4 --locks 2 --but drtm --budget 8s"),
            check!("mixed --clients 6 --tasks 2 --locks 3 --but drtm --budget 10s"),
            check!("mixed --clients 8 --tasks 2 --locks 2 --but drtm --budget 10s"),
            check!("exhaustive --acquisitions 1 --tries shared --visits --budget 6s --partial"),
        ],
        side_by_side: &[
            check!("crash"),
            check!("exhaustive --clients 2 --acquisitions 2 --locks 2 --crashes 1"),
            // Ranges of a tree have two steps of their own.
            check!(
                "exhaustive --clients 2 --acquisitions 1 --locks 2 --crashes 1 --losses 1 \
                 --cancels 1 --but claim --but citron --but citron-rw"
            ),
            check!(
                "exhaustive --clients 2 --acquisitions 1 --locks 2 --transactions --crashes 1 \
                 --cancels 1"
            ),
            // Holds to update, with others in them.
            check!(
                "exhaustive --clients 2 --acquisitions 2 --locks 2 --updates --crashes 1 \
                 --protocol dslr"
            ),
            // Beside many looks and long waits. Of one acquisition claim does the same, however
            // many may pass.
            check!(
                "exhaustive --clients 2 --acquisitions 1 --losses 1 --pauses 2 \
                 --protocol claim:bypass=1 --budget 15s --partial"
            ),
        ],
        ..PLAIN
    },
    Step {
        name: "ranges",
        title: "ranges of a tree: above, below and beside each other, of readers and of the dead",
        cap_minutes: 3,
        side_by_side: &[
            range!("0-64,0-16,1-2 --protocol citron:levels=4:leaf=1:tokens=no"),
            range!("0-64,0-1,0-1 --protocol citron:levels=4:leaf=1:tokens=no"),
            // Of two nodes and an ancestor of both, where the paper's text deadlocks.
            range!("0-5,3-8,0-64 --protocol citron:levels=4:leaf=1:tokens=no"),
            // Of clients that wait for a time: any verb may take longer.
            range!("0-16,2-3,2-3 --protocol citron:leaf=1:tokens=no:wait=15000:m=2"),
            range!("0-16,2-3 --crashes 1 --protocol citron:leaf=1:wait=15000"),
            range!("0-4,1-2 --cancels 1 --protocol citron:leaf=1:wait=15000"),
            range!("0-4,1-2 --divides --protocol citron:leaf=1:wait=15000"),
            range!("0-16,2-3 --tries --protocol citron:leaf=1:wait=15000"),
            // Of a node whose leaves are taken with it.
            range!("0-4,2-3 --crashes 1 --protocol citron:leaf=1:wait=15000"),
            range!("0-4,2-3 --tries --protocol citron:leaf=1:wait=15000"),
            check!("mixed --locks 4 --protocol citron:leaf=1:wait=15000 --budget 5s"),
            // Of a manager, the last client, that changes m and the time to wait under way.
            range!(
                "0-16,2-3 --tunes 1:30000 --crashes 1 --protocol \
                 citron:leaf=1:tokens=no:wait=15000:tuned=yes:m=2"
            ),
            range!(
                "0-16,2-3,2-3 --tunes 1:5000 --protocol \
                 citron:leaf=1:tokens=no:wait=15000:tuned=yes:m=2 --budget 4s --partial"
            ),
            check!("mixed --locks 4 --protocol citron:leaf=1:wait=15000:tuned=yes:m=2 --budget 5s"),
            // Two grants that are counted late, below and above one that is not.
            range!("0-16,4-8,4-5 --protocol citron:leaf=1 --budget 4s --partial"),
            range!("0-16,4-8,4-5 --protocol citron-rw:leaf=1 --budget 4s --partial"),
            range!("0-16,0-1,4-8 --protocol citron-rw:leaf=1"),
            range!("0-1,1-2,0-8 --protocol citron-rw:leaf=2 --budget 4s --partial"),
            // Of two trees, and of the second one's crown and a block.
            range!("0-64,16-17,20-21 --protocol citron:levels=4:crown=2:leaf=1:tokens=no"),
            range!("0-64,20-21 --crashes 1 --protocol citron-rw:levels=4:crown=1:leaf=1"),
            // A reader of a leaf asks for more of it, whose bits a writer has that waits for it.
            range!("0-3,0-1s++2-3 --protocol citron-rw:leaf=4:tokens=no:exact=yes:back=1"),
            // Of one that holds and one that only waits, each has what the other wants.
            range!("4-6+0-1,0-7 --crashes 1 --protocol citron:leaf=1:tokens=no:exact=yes:back=1"),
            // Disjoint ranges that are held while others are awaited, and a reader beside a writer.
            range!("0-3+8-9,9-12+3-4 --crashes 1 --protocol citron:leaf=1:tokens=no:exact=yes"),
            range!(
                "0-3+8-9,9-12+3-4 --refines --protocol citron:leaf=1:tokens=no --budget 4s \
                 --partial"
            ),
            range!("0-1+15-16,1-15 --refines --protocol citron:leaf=1:tokens=no:refine=yes"),
            range!(
                "0-1+5-6,4-5+1-2 --crashes 1 --tries --protocol \
                 citron-rw:leaf=4:tokens=no:exact=yes --budget 4s --partial"
            ),
            // Those that are asked for together: a waiter for the first does not keep out the next.
            range!("0-1++3-4,0-16 --crashes 1 --protocol citron:leaf=1:tokens=no:exact=yes"),
            range!("0-1s++3-4,0-16s --crashes 1 --protocol citron-rw:leaf=1:tokens=no:exact=yes"),
            range!(
                "0-1s++3-4,0-16s,2-3 --protocol citron-rw:leaf=1:tokens=no:exact=yes --budget 3s \
                 --partial"
            ),
            range!("0-1,1-2 --crashes 1 --tries --protocol citron-rw:leaf=2:tokens=no"),
            range!("2-5,0-16 --crashes 1 --pauses 1 --protocol citron:leaf=1:tokens=no"),
            // Tries that meet: one of them is granted.
            range!("0-5,3-8 --tries all --protocol citron:levels=4:leaf=1:tokens=no"),
            range!("0-16,4-8 --tries all --protocol citron-rw:leaf=1:tokens=no"),
            range!("2-8,3-4 --crashes 1 --pauses 1 --protocol citron-rw:leaf=1:tokens=no"),
            // Tries beside the dead: at a node, above it, at bits, and beside a cleaner of bits.
            check!("exhaustive --clients 2 --acquisitions 1 --crashes 1 --tries --protocol citron"),
            range!("0-4,2-3 --crashes 1 --tries --protocol citron:leaf=1:tokens=no"),
            range!("1-2,1-3 --crashes 1 --tries --protocol citron:leaf=2:tokens=no"),
            range!("0-16,0-4 --crashes 1 --tries --protocol citron-rw:leaf=1:tokens=no"),
            range!(
                "1-2,1-2,0-1 --crashes 1 --tries --protocol citron:leaf=2:tokens=no --budget 4s \
                 --partial"
            ),
            // Holds that are written down, of the living and of the dead.
            range!("0-1,0-4 --crashes 1 --protocol citron:leaf=1:tokens=no:shelf=2"),
            range!(
                "0-1,1-2 --crashes 1 --tries --protocol citron-rw:leaf=2:tokens=no:shelf=2 \
                 --budget 4s --partial"
            ),
            range!("0-4,2-3 --crashes 1 --protocol citron-rw:leaf=1:tokens=no:shelf=2"),
            range!(
                "0-1+2-3,0-4 --crashes 1 --protocol citron:leaf=1:tokens=no:exact=yes:shelf=2 \
                 --budget 4s --partial"
            ),
            // Units of a leaf that are taken one by one, by writers and by readers.
            range!("0-2,1-2 --crashes 1 --protocol citron-rw:leaf=2:tokens=no:outrun=0"),
            range!("0-2,1-4 --crashes 1 --tries --protocol citron:leaf=2:tokens=no:outrun=0"),
            range!("0-2,0-16 --crashes 1 --tries --protocol citron-rw:leaf=2:tokens=no:outrun=0"),
            range!("0-3,1-4,0-16 --protocol citron-rw:leaf=4:outrun=0 --budget 4s --partial"),
            // Units for which a waiter calls.
            range!("0-1,0-1 --crashes 1 --tries --protocol citron-rw:leaf=2:tokens=no:call=0"),
            range!("0-2,1-2 --crashes 1 --protocol citron-rw:leaf=2:tokens=no:outrun=0:call=0"),
            range!("0-1s,0-1 --crashes 1 --protocol citron-rw:leaf=2:tokens=no:call=0"),
            range!("0-1,0-1 --cancels 2 --protocol citron:leaf=2:tokens=no:call=0"),
            range!("0-1,0-1,0-2 --protocol citron:leaf=2:tokens=no:call=0 --budget 3s --partial"),
            check!(
                "mixed --clients 4 --acquisitions 4 --locks 2 --budget 6000 \
                 --protocol citron:leaf=16:call=0"
            ),
            check!(
                "mixed --clients 3 --acquisitions 4 --locks 2 --budget 6000 \
                 --protocol citron-rw:leaf=16:call=0"
            ),
            // Units that are asked for while others have them, by writers and by readers.
            range!("0-2,1-2 --crashes 1 --protocol citron-rw:leaf=2:tokens=no:eager=yes"),
            range!("0-2,1-4 --crashes 1 --tries --protocol citron:leaf=2:tokens=no:eager=yes"),
            range!("0-4,1-3 --crashes 1 --protocol citron:leaf=4:tokens=no:outrun=0:eager=yes"),
            // Holds that are divided, and let go of in parts.
            range!("0-4,2-3 --divides --protocol citron-rw:leaf=1:tokens=no"),
            range!("0-2,0-4 --divides --protocol citron:leaf=1:tokens=no"),
            range!("0-4,0-4 --divides --protocol citron-rw:leaf=1:tokens=no --budget 5s --partial"),
            // One above looks when a hold has its first node alone, of which others are kept.
            range!("3-5,0-16 --divides --protocol citron:leaf=1:tokens=no"),
            range!(
                "3-5,0-16 --divides --protocol citron-rw:leaf=1:tokens=no --budget 12s --partial"
            ),
            range!("0-2,1-2 --crashes 1 --divides --protocol citron:leaf=2:tokens=no"),
            range!("0-3,1-2 --crashes 1 --divides --protocol citron-rw:leaf=4:tokens=no"),
            range!(
                "0-12,8-12 --crashes 1 --divides --protocol citron:leaf=1:tokens=no --budget 4s \
                 --partial"
            ),
            range!(
                "0-16,0-4 --divides --converts --tries --protocol citron-rw:leaf=1:tokens=no \
                 --budget 4s --partial"
            ),
            // Tickets that are lost.
            range!("0-16,0-4 --cancels 2 --crashes 1 --protocol citron-rw:leaf=1:tokens=no"),
            range!(
                "0-16,0-16,0-1 --cancels 2 --protocol citron:leaf=1:tokens=no --budget 4s --partial"
            ),
            check!("exhaustive --protocol segments"),
            beside_faults!("segments"),
            many_faults!("segments"),
            beside_faults!("citron --budget 4s --partial"),
            many_faults!("citron --budget 4s --partial"),
            beside_faults!("citron-rw --budget 4s --partial"),
            many_faults!("citron-rw --budget 4s --partial"),
            two_locks!("citron --budget 4s --partial"),
            two_locks!("citron-rw --budget 4s --partial"),
        ],
        ..PLAIN
    },
    Step {
        name: "narrow",
        title: "locks whose counts come all the way round within ten acquisitions",
        cap_minutes: 2,
        env: NARROW,
        commands: &[
            "cargo test --profile proof -p farlock-check --test=narrow --target-dir=target/narrow",
        ],
        side_by_side: &[
            narrow!("exhaustive --acquisitions 3 --protocol mcs"),
            narrow!("exhaustive --acquisitions 3 --protocol dslr"),
            narrow!(
                "exhaustive --clients 2 --acquisitions 5 --protocol dslr --updates --crashes 1"
            ),
            narrow!("exhaustive --acquisitions 1 --crashes 2 --protocol mcs"),
            narrow!("pct --acquisitions 4 --protocol claim:bypass=1 --budget 6s"),
            narrow!("pct --acquisitions 4 --protocol mcs --budget 6s"),
            narrow!("pct --acquisitions 4 --protocol shiftlock --budget 6s"),
            narrow!("pct --acquisitions 4 --protocol dslr --budget 6s"),
        ],
    },
];

/// What runs at night, after all of [`CI`].
pub(crate) const NIGHTLY: &[Step] = &[
    Step {
        name: "suites-release",
        title: "the tests again, optimised as shipped",
        cap_minutes: 20,
        commands: &["cargo test --release --workspace --all-features -- --show-output"],
        ..PLAIN
    },
    Step {
        name: "loom-deep",
        title: "range locks in every order with one more preemption",
        cap_minutes: 60,
        env: &[("RUSTFLAGS", "--cfg=loom"), ("FARLOCK_MORE_PREEMPTIONS", "1")],
        commands: &[
            "cargo test --release --package=farlock-local --test=loom --target-dir=target/loom",
        ],
        ..PLAIN
    },
    Step {
        name: "deny",
        title: "licences, sources and duplicates of dependencies are as we want them",
        cap_minutes: 20,
        commands: &["xtask deny"],
        ..PLAIN
    },
    Step {
        name: "races-shm",
        title: "shared memory and the locks on it under ThreadSanitizer",
        cap_minutes: 20,
        commands: &["xtask races races-shm"],
        ..PLAIN
    },
    Step {
        name: "ranges-long",
        title: "every schedule of range locks that takes too long for every change",
        cap_minutes: 20,
        side_by_side: &[
            range!("0-64,0-16,1-2 --protocol citron:levels=4:leaf=1"),
            range!("0-64,0-1,0-1 --protocol citron:levels=4:leaf=1"),
            range!("0-16,2-3,2-3 --protocol citron:leaf=1:wait=15000:m=1"),
            range!("0-16,0-4,3-4 --protocol citron:leaf=1:wait=15000:m=1"),
            range!("0-16,2-3,2-3 --protocol citron:leaf=1:wait=15000:m=4"),
            range!("0-16,0-4,3-4 --protocol citron:leaf=1:wait=15000:m=4"),
            range!("0-8,2-3 --crashes 1 --protocol citron:leaf=1:tokens=no:wait=15000"),
            range!("0-8,4-5 --crashes 1 --protocol citron:leaf=1:tokens=no:wait=15000"),
            range!(
                "0-4,2-3,2-3 --protocol citron:leaf=1:tokens=no:wait=15000 --budget 60s --partial"
            ),
            range!(
                "0-16,0-4,2-3 --protocol citron:leaf=1:tokens=no:wait=15000 --budget 60s --partial"
            ),
            check!("crash --locks 4 --protocol citron:leaf=1:wait=15000 --budget 60s --partial"),
            range!(
                "0-16,2-3,2-3 --tunes 1:15000 --protocol \
                 citron:leaf=1:tokens=no:wait=15000:tuned=yes:m=2"
            ),
            range!(
                "0-16,2-3,2-3 --tunes 2:5000 --protocol \
                 citron:leaf=1:tokens=no:wait=15000:tuned=yes:m=1 --budget 120s --partial"
            ),
            range!(
                "0-16,2-3,2-3 --tunes 2:30000 --crashes 1 --protocol \
                 citron:leaf=1:tokens=no:wait=15000:tuned=yes:m=1 --budget 60s --partial"
            ),
            range!("0-64,0-1,0-1 --protocol citron:levels=4:crown=1:leaf=1:tokens=no"),
            range!("0-64,0-1,0-1 --protocol citron:levels=4:crown=2:leaf=1:tokens=no"),
            range!("0-20,17-18,4-64 --protocol citron:levels=4:crown=2:leaf=1:tokens=no"),
            range!(
                "14-18,0-64 --crashes 1 --divides --protocol \
                 citron-rw:levels=4:crown=1:leaf=1:tokens=no:exact=yes"
            ),
            range!(
                "0-64,20-21 --crashes 1 --pauses 1 --protocol \
                 citron:levels=4:crown=1:leaf=1:tokens=no"
            ),
            range!(
                "0-3,0-1s++2-3 --crashes 1 --protocol citron-rw:leaf=4:tokens=no:exact=yes:back=1"
            ),
            range!("0-5,3-8,0-64 --protocol citron:levels=4:leaf=1"),
            range!("0-16,4-8,4-5 --protocol citron:leaf=1"),
            range!("0-16,4-8,4-5 --protocol citron-rw:leaf=1"),
            range!("1-2,1-2,0-1 --crashes 1 --tries --protocol citron:leaf=2:tokens=no"),
            range!("0-16,0-16,0-1 --cancels 2 --protocol citron:leaf=1:tokens=no"),
            range!("0-1,1-2,0-8 --protocol citron-rw:leaf=2"),
            range!(
                "1-2,0-2 --crashes 1 --cancels 2 --protocol citron-rw:leaf=2:tokens=no:outrun=0"
            ),
            range!(
                "0-3,1-4 --crashes 1 --pauses 1 \
                 --protocol citron:leaf=2:tokens=no:exact=yes:outrun=0"
            ),
            range!("0-2,1-2,0-1 --protocol citron:leaf=2:tokens=no:eager=yes"),
            range!(
                "0-4,2-3 --crashes 1 --cancels 1 --protocol \
                 citron-rw:leaf=4:tokens=no:outrun=0:eager=yes"
            ),
            range!(
                "0-1+5-6,4-5+1-2 --crashes 1 --tries --protocol \
                 citron-rw:leaf=4:tokens=no:exact=yes"
            ),
            range!("0-1,1-2 --crashes 1 --tries --protocol citron-rw:leaf=2:tokens=no:shelf=2"),
            range!("3-5,0-16 --divides --protocol citron-rw:leaf=1:tokens=no"),
            range!("0-2,1-2,0-1 --protocol citron:leaf=2:tokens=no:outrun=1"),
            range!("0-1,0-1,0-1 --protocol citron:leaf=2:tokens=no:call=0 --budget 600s --partial"),
            range!("0-1,0-1 --crashes 1 --pauses 1 --protocol citron:leaf=2:tokens=no:call=0"),
            range!(
                "0-1,0-1,0-2 --protocol citron-rw:leaf=2:tokens=no:outrun=0:call=0 --budget 600s \
                 --partial"
            ),
            range!(
                "0-1++2-4,0-16,1-2++4-5 --protocol citron:leaf=4:tokens=no:exact=yes:call=0 \
                 --budget 600s --partial"
            ),
            range!("0-3+8-9,9-12+3-4 --refines --protocol citron:leaf=1:tokens=no"),
            range!(
                "0-1+15-16,1-15 --crashes 1 --refines \
                 --protocol citron:leaf=1:tokens=no:refine=yes"
            ),
            range!("0-3,1-4,0-16 --protocol citron-rw:leaf=4:tokens=no:outrun=0"),
            range!("0-1++3-4,0-16,2-3++5-6 --protocol citron:leaf=1:tokens=no:exact=yes"),
            range!("0-1s++3-4,0-16s,2-3 --protocol citron-rw:leaf=1:tokens=no:exact=yes"),
            range!("0-1++3-4,0-16,3-4++5-6 --protocol citron-rw:leaf=1:tokens=no:exact=yes"),
            range!("0-1++2-4,0-16,1-2++4-5 --protocol citron:leaf=4:tokens=no:exact=yes"),
            range!(
                "0-1s++4-8,0-16s --crashes 1 --pauses 1 \
                 --protocol citron-rw:leaf=1:tokens=no:exact=yes"
            ),
            beside_faults!("citron"),
            many_faults!("citron"),
            beside_faults!("citron-rw"),
            many_faults!("citron-rw"),
            two_locks!("citron"),
            two_locks!("citron-rw"),
            check!(
                "exhaustive --clients 2 --acquisitions 2 --locks 2 --crashes 1 --protocol citron"
            ),
            check!(
                "exhaustive --clients 2 --acquisitions 2 --locks 2 --crashes 1 \
                 --protocol citron-rw"
            ),
        ],
        ..PLAIN
    },
    Step {
        name: "store-long",
        title: "every schedule of two or three operations on one key that takes too long for every \
                change",
        cap_minutes: 30,
        env: &[("FARLOCK_MORE_SCHEDULES", "1")],
        commands: &["cargo test --release --package=farlock-kv --features=museum \
                     --test=simulated every_schedule -- --show-output"],
        ..PLAIN
    },
    Step {
        name: "names-long",
        title: "ten million names in turn in one region",
        cap_minutes: 20,
        env: &[("FARLOCK_MORE_NAMES", "100")],
        commands: &["cargo test --release --package=farlock --test=sessions names_without_end \
             -- --nocapture"],
        ..PLAIN
    },
    Step {
        name: "time-outs-long",
        title: "a hundred thousand time-outs of a millisecond on a held lock leave nothing",
        cap_minutes: 10,
        env: &[("FARLOCK_MORE_TIME_OUTS", "20")],
        commands: &[
            "cargo test --release --package=farlock --test=sessions -- time_outs_without_end",
        ],
        ..PLAIN
    },
    Step {
        name: "damage-long",
        title: "3,000 regions overwritten at random under six processes",
        cap_minutes: 20,
        env: &[("FARLOCK_MORE_DAMAGE", "30")],
        commands: &[
            "cargo test --release --package=farlock --test=commands damage:: -- --nocapture",
        ],
        ..PLAIN
    },
    Step {
        name: "connections",
        title: "10,000 connections that say nothing and 1,000 that do cost a server what they may; \
                restarts under 500 sessions",
        cap_minutes: 6,
        commands: &[lab!("connections --json"), lab!("restarts --json")],
        ..PLAIN
    },
    Step {
        name: "fuzz-long",
        title: "what servers, clients and openers of regions take is changed 100 million times",
        cap_minutes: 40,
        env: &[("FARLOCK_MORE_FUZZ", "100")],
        commands: &["cargo test --release --package=farlock-fabric --all-features --lib -- fuzz"],
        ..PLAIN
    },
    Step {
        name: "storm-long",
        title: "the storm with twenty times as many deaths, the faces with five to ten times",
        cap_minutes: 40,
        commands: &[
            lab!("storm --kills 200000 --clients 12 --seed 2 --json"),
            "cargo build --release --quiet --bin farlock",
            lab!("storm --face command --kills 2000 --stops 2000 --seed 2 --json"),
            lab!("storm --face session --kills 10000 --stops 10000 --seed 2 --json"),
            lab!("storm --face session --threads 8 --kills 2000 --stops 2000 --seed 4 --json"),
            lab!(
                "storm --face session --threads 8 --served --kills 2000 --stops 2000 --seed 4 \
                 --json"
            ),
            lab!(
                "storm --face session --served --kills 500 --stops 500 --restarts 500 --cuts 500 \
                 --seed 2 --json"
            ),
            lab!(
                "storm --face session --served --tls --kills 500 --stops 500 --restarts 500 \
                 --cuts 500 --seed 3 --json"
            ),
            lab!("storm --face range-command --kills 2000 --stops 2000 --seed 2 --json"),
            lab!("storm --face range --kills 10000 --stops 10000 --seed 2 --json"),
            lab!("storm --face kv --kills 5000 --stops 5000 --seed 2 --json"),
            lab!("storm --face kv --parts 3 --kills 2000 --stops 2000 --seed 3 --json"),
            lab!(
                "storm --face kv --served --workload a --kills 1500 --stops 500 --restarts 500 \
                 --seed 2 --json"
            ),
            lab!(
                "storm --face kv --served --kills 500 --stops 500 --restarts 200 --cuts 200 \
                 --seed 2 --json"
            ),
            lab!(
                "storm --face kv --served --tls --kills 500 --stops 500 --restarts 200 --cuts 200 \
                 --seed 3 --json"
            ),
            lab!(
                "storm --face kv --served --workload f --index ordered --kills 2000 --stops 2000 \
                 --seed 2 --json"
            ),
            lab!("storm --protocol segments:n=64:units=16 --kills 10000 --seed 2 --json"),
        ],
        ..PLAIN
    },
    Step {
        name: "growing",
        title: "a store is filled to ten million keys while another client uses it; none is lost",
        cap_minutes: 20,
        commands: &[lab!("growing --json")],
        ..PLAIN
    },
    Step {
        name: "takeover",
        title: "the times of takeover: one waiter, a line of 16, much memory, stopped holders",
        cap_minutes: 20,
        commands: &[
            lab!("takeover --json"),
            lab!("takeover --waiters 16 --json"),
            lab!("takeover --kills 100 --resident 256 --json"),
            lab!("takeover --protocol dslr:lease=20000000 --kills 0 --stops 1000 --json"),
        ],
        ..PLAIN
    },
    Step {
        name: "soak",
        title: "a hundred million acquisitions past every wrap; a year of leases; long reads",
        cap_minutes: 30,
        commands: &[
            lab!(
                "bench --fabric sim --clients 16 --locks 64 --reads 50 --near-wrap 1000 \
                 --acquisitions 100000000 --locks-kind shiftlock,dslr,dslr-64 --json"
            ),
            lab!(
                "bench --fabric shm --clients 4 --locks 64 --reads 50 --near-wrap 1000 \
                 --acquisitions 100000000 --locks-kind shiftlock,dslr,dslr-64 --json"
            ),
            lab!("drift --json"),
            lab!("long-reads --json"),
        ],
        ..PLAIN
    },
    Step {
        name: "shuttle-million",
        title: "the same in a million orders",
        cap_minutes: 60,
        env: &[
            ("RUSTFLAGS", "--cfg=shuttle"),
            ("FARLOCK_SCHEDULES", "1000000"),
            ("FARLOCK_SEED", "2"),
        ],
        commands: &["cargo test --release --package=farlock-local --package=farlock-fabric \
                --package=farlock-locks --test=shuttle --target-dir=target/shuttle"],
        ..PLAIN
    },
    Step {
        name: "checker-deep",
        title: "more clients, more acquisitions, more deaths, more schedules",
        cap_minutes: 240,
        commands: &[
            check!(
                "exhaustive --clients 2 --acquisitions 1 --crashes 1 --restarts 1 --budget 1500s \
                 --partial"
            ),
            check!("exhaustive --protocol rma-rw"),
            check!("exhaustive --protocol rma-rw:writers=2:readers=2 --budget 900s --partial"),
            check!("exhaustive --protocol claim:bypass=1 --budget 1500s --partial"),
            check!(
                "exhaustive --clients 2 --acquisitions 1 --losses 1 --pauses 2 \
                 --protocol claim:bypass=1"
            ),
            beside_faults!("claim:bypass=1:outside=2"),
            check!("exhaustive --protocol claim:bypass=1 --acquisitions 1 --cancels 1"),
            check!("exhaustive --clients 3 --acquisitions 3 --budget 1500s --partial"),
            check!("exhaustive --clients 4 --acquisitions 1 --budget 1500s --partial"),
            check!("exhaustive --crashes 1 --budget 1500s --partial"),
            check!("exhaustive --acquisitions 1 --crashes 2 --budget 1500s --partial"),
            check!("exhaustive --cancels 1 --budget 1500s --partial"),
            check!("exhaustive --acquisitions 1 --pauses 1 --budget 1500s --partial"),
            check!("exhaustive --losses 1 --budget 1500s --partial"),
            check!("exhaustive --protocol dslr-64:lease=10000000 --acquisitions 1 --crashes 1"),
            check!("exhaustive --protocol dslr-64:lease=10000000 --acquisitions 1 --losses 1"),
            check!(
                "exhaustive --protocol dslr-64:lease=10000000 --clients 2 --acquisitions 1 \
                 --restarts 1"
            ),
            check!("exhaustive --acquisitions 1 --stops 2 --budget 1500s --partial"),
            check!("exhaustive --clients 2 --stops 1 --crashes 1 --budget 1500s --partial"),
            check!("exhaustive --acquisitions 1 --cancels 2 --visits --budget 1500s --partial"),
            check!("exhaustive --acquisitions 1 --crashes 1 --tries --budget 1500s --partial"),
            check!("pct --clients 5 --acquisitions 3 --budget 1800s"),
            check!("crash --clients 4 --acquisitions 2 --budget 1800s"),
        ],
        ..PLAIN
    },
    Step {
        name: "narrow-deep",
        title: "the same with more acquisitions, deaths and schedules",
        cap_minutes: 120,
        env: NARROW,
        commands: &[
            narrow!("exhaustive --acquisitions 4 --budget 1500s --partial"),
            narrow!("exhaustive --crashes 1 --budget 1500s --partial"),
            narrow!(
                "exhaustive --acquisitions 1 --crashes 2 --near-wrap 1 --budget 900s --partial"
            ),
            narrow!("pct --acquisitions 6 --protocol mcs --budget 600s"),
            narrow!("pct --acquisitions 6 --protocol shiftlock --budget 600s"),
            narrow!("pct --acquisitions 6 --protocol dslr --budget 600s"),
            narrow!("crash --acquisitions 3 --protocol dslr --budget 300s"),
            narrow!("crash --acquisitions 3 --protocol shiftlock --budget 300s"),
        ],
        ..PLAIN
    },
    Step {
        name: "mutants",
        title: "small changes of the locks do not pass their tests unnoticed",
        cap_minutes: 600,
        commands: &["xtask mutants"],
        ..PLAIN
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caps_keep_the_promise_about_time() {
        let sum: u64 = CI.iter().map(|step| step.cap_minutes).sum();
        assert!(sum <= WHOLE_MINUTES, "{sum} minutes");
    }

    #[test]
    fn every_step_has_its_own_name_a_title_and_something_to_do() {
        let mut names = std::collections::BTreeSet::new();
        for step in CI.iter().chain(NIGHTLY) {
            assert!(names.insert(step.name), "{} twice", step.name);
            assert!(!step.title.is_empty() && step.all().count() > 0, "{}", step.name);
            assert!(step.all().all(|command| !command.trim().is_empty()), "{}", step.name);
        }
    }
}
