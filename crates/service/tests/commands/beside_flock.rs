//! `farlock lock` beside flock(1): the same scripts, run with either, end alike and print the same.
//!
//! In a script `LOCK` stands for the command, with its options after it, and `NAME` for the lock.
//! What is different on purpose stands in [`DIFFERENT`] with the reason, and must be.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::stage::Stage;
use crate::stage::terminal::{INTERRUPT, SUSPEND, Shell};

/// Which of the two a script is run with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tool {
    Flock,
    Farlock,
}

impl Tool {
    /// The script with this tool in it.
    fn script(self, stage: &Stage, text: &str) -> String {
        let file = stage.file("flocked");
        let (lock, name) = match self {
            Self::Flock => ("/usr/bin/flock".to_owned(), file.display().to_string()),
            Self::Farlock => (format!("{} lock", env!("CARGO_BIN_EXE_farlock")), "t".to_owned()),
        };
        text.replace("MASKS", MASKS)
            .replace("A_WAITER", A_WAITER)
            .replace("LOCK", &lock)
            .replace("NAME", &name)
    }
}

/// How a script ended, and what it printed.
fn outcome(stage: &Stage, tool: Tool, text: &str) -> String {
    let dir = stage.file("work");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).unwrap();
    let mut shell = stage.program("bash");
    shell.args(["-c", &tool.script(stage, text)]).current_dir(dir);
    // What a person has set changes nothing here, nor do signals that the tests' caller ignores.
    shell.env_remove("SHELL");
    let output = limited(&mut shell).output().unwrap();
    let end = output.status.code().map_or_else(
        || format!("signal {}", output.status.signal().unwrap()),
        |code| format!("status {code}"),
    );
    format!("{end}: {}", String::from_utf8_lossy(&output.stdout).trim_end())
}

/// The same program, ended if it takes too long.
fn limited(program: &mut Command) -> Command {
    let mut limited = Command::new("timeout");
    limited.args(["--foreground", "--signal=KILL", "20", "env", "--default-signal"]);
    limited.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.current_dir(program.get_current_dir().unwrap()).stdin(std::process::Stdio::null());
    limited
}

/// What `MASKS` stands for in a script: shows which signals are blocked and ignored.
const MASKS: &str = "grep -E 'Sig(Blk|Ign)' /proc/self/status";

/// What `A_WAITER` stands for: starts one, whose number is `$p`.
const A_WAITER: &str = "env --default-signal LOCK NAME echo in & p=$!; sleep .2";

/// Cases: what they are about, and a script.
type Cases = &'static [(&'static str, &'static str)];

const STATUS: Cases = &[
    ("success", "LOCK NAME true"),
    ("failure", "LOCK NAME false"),
    ("a status", "LOCK NAME sh -c 'exit 7'"),
    ("the highest status", "LOCK NAME sh -c 'exit 255'"),
    ("a shell's line", "LOCK NAME -c 'exit 3'"),
    ("a shell's line after a long option", "LOCK NAME --command 'exit 4'"),
    ("the command's options", "LOCK NAME ls -d /"),
    ("the command's options, like ours", "LOCK NAME printf '%s ' -n -w -s"),
    ("killed by TERM", "LOCK NAME sh -c 'kill -TERM $$'"),
    ("killed by KILL", "LOCK NAME sh -c 'kill -KILL $$'"),
    ("killed by INT", "LOCK NAME sh -c 'kill -INT $$'"),
    ("killed by HUP", "LOCK NAME sh -c 'kill -HUP $$'"),
    ("killed by SEGV", "ulimit -c 0; LOCK NAME sh -c 'kill -SEGV $$'"),
    ("killed by PIPE", "LOCK NAME sh -c 'kill -PIPE $$'"),
    ("no such program", "LOCK NAME /no/such/program"),
    ("no program", "LOCK NAME /dev/null"),
    ("no name of a program", "LOCK NAME ''"),
    ("a script without a first line", "echo 'echo ran $1' > s; chmod +x s; LOCK NAME ./s well"),
    ("a script with one", "printf '#!/bin/sh\necho ran $1' > s; chmod +x s; LOCK NAME ./s well"),
];

const OPTIONS: Cases = &[
    ("-x", "LOCK -x NAME true"),
    ("-e", "LOCK -e NAME true"),
    ("--exclusive", "LOCK --exclusive NAME true"),
    ("-s", "LOCK -s NAME true"),
    ("--shared", "LOCK --shared NAME true"),
    ("-n", "LOCK -n NAME echo in"),
    ("--nb", "LOCK --nb NAME echo in"),
    ("--nonblock", "LOCK --nonblock NAME echo in"),
    ("--nonblocking", "LOCK --nonblocking NAME echo in"),
    ("-w", "LOCK -w 1 NAME echo in"),
    ("-w with a fraction", "LOCK -w 0.5 NAME echo in"),
    ("--wait", "LOCK --wait 1 NAME echo in"),
    ("--timeout", "LOCK --timeout=1 NAME echo in"),
    ("letters together", "LOCK -xn NAME echo in"),
    ("-E", "LOCK -E 9 NAME echo in"),
    ("--conflict-exit-code", "LOCK --conflict-exit-code 9 NAME echo in"),
    ("--verbose", "LOCK --verbose NAME true 2>/dev/null"),
    ("taken", "LOCK NAME sh -c 'LOCK -n NAME echo in; echo $?'"),
    ("taken, -E", "LOCK NAME sh -c 'LOCK -n -E 9 NAME echo in; echo $?'"),
    ("taken, -E 0", "LOCK NAME sh -c 'LOCK -n -E 0 NAME echo in; echo $?'"),
    ("taken, -w", "LOCK NAME sh -c 'LOCK -w 0.1 NAME echo in; echo $?'"),
    ("taken, -w 0", "LOCK NAME sh -c 'LOCK -w 0 NAME echo in; echo $?'"),
    ("two shared", "LOCK -s NAME sh -c 'LOCK -sn NAME echo in; echo $?'"),
    ("alone beside shared", "LOCK -s NAME sh -c 'LOCK -n NAME echo in; echo $?'"),
    ("shared beside alone", "LOCK NAME sh -c 'LOCK -sn NAME echo in; echo $?'"),
    ("free after the end", "LOCK NAME true; LOCK -n NAME echo in"),
    ("free after a kill", "LOCK NAME sh -c 'kill -KILL $$'; LOCK -n NAME echo in"),
    ("in turn", "for i in 1 2 3 4; do LOCK NAME sh -c 'echo b; echo e' & done; wait"),
    ("wrong -w", "LOCK -w x NAME true 2>/dev/null || echo refused"),
    ("wrong option", "LOCK --no-such NAME true 2>/dev/null; echo $?"),
    ("no command", "LOCK 2>/dev/null; echo $?"),
];

const DESCRIPTORS: Cases = &[
    ("input", "echo hi | LOCK NAME cat"),
    ("part of the input", "seq 3 | (LOCK NAME sh -c 'read x; echo got $x'; wc -l > /dev/null)"),
    ("much output", "LOCK NAME seq 100000 | wc -l"),
    ("a reader that leaves", "LOCK NAME seq 100000 | head -1; echo ${PIPESTATUS[0]}"),
    ("full output", "LOCK NAME echo x > /dev/full; echo $?"),
    ("full errors", "LOCK NAME sh -c 'echo x >&2' 2> /dev/full; echo $?"),
    ("taken, full errors", "LOCK NAME sh -c 'LOCK -nE 9 NAME true 2> /dev/full; echo $?'"),
    ("taken, closed errors", "LOCK NAME sh -c 'LOCK -nE 9 NAME true 2>&-; echo $?'"),
    ("--verbose, full errors", "LOCK --verbose NAME echo in 2> /dev/full"),
    ("--verbose, closed errors", "LOCK --verbose NAME echo in 2>&-"),
    ("--verbose, full output", "LOCK --verbose NAME sh -c 'exit 3' > /dev/full 2>/dev/null"),
    ("not found, full errors", "LOCK NAME /no/such 2> /dev/full"),
    ("closed input", "LOCK NAME sh -c 'test -e /dev/fd/0; echo $?' <&-"),
    ("closed output", "LOCK NAME sh -c 'echo x 2>/dev/null || exit 5' >&-"),
    ("closed errors", "LOCK NAME sh -c 'test -e /dev/fd/2; echo $?' 2>&-"),
    ("all closed", "LOCK NAME sh -c 'exit 6' <&- >&- 2>&-"),
    ("one more descriptor", "echo hi > f; LOCK NAME sh -c 'cat <&9' 9< f"),
    ("one more to write", "exec 8> f; LOCK NAME sh -c 'echo hi >&8'; cat f"),
    ("many descriptors", "for i in {10..60}; do eval \"exec $i< /dev/null\"; done; LOCK NAME true"),
    ("few descriptors", "ulimit -n 32; LOCK NAME sh -c 'ulimit -n'"),
];

const SURROUNDINGS: Cases = &[
    ("words", "LOCK NAME printf '%s|' 'a b' '' 'é' '*' $'x\\ny'"),
    ("many words", "LOCK NAME echo $(seq 2000) | wc -w"),
    ("the directory", "mkdir d; cd d; LOCK NAME sh -c 'basename $(pwd)'"),
    ("a directory that is gone", "mkdir d; cd d; rmdir ../d; LOCK NAME echo in"),
    ("the mask of files", "umask 027; LOCK NAME sh -c umask"),
    ("a variable", "A='b c' LOCK NAME sh -c 'echo $A'"),
    ("a variable that is no text", "A=$'\\xff' LOCK NAME sh -c 'echo $A | od -An -tx1'"),
    ("niceness", "nice -n 5 LOCK NAME nice"),
    ("a limit", "ulimit -t 17; LOCK NAME sh -c 'ulimit -t'"),
    ("no HOME", "unset HOME; LOCK NAME echo in"),
    ("no PATH", "unset PATH; LOCK NAME echo in"),
    ("another locale", "LC_ALL=xx_XX LOCK NAME echo in"),
    ("$SHELL", "SHELL=/bin/echo LOCK NAME -c 'exit 3'"),
    ("no $SHELL", "unset SHELL; LOCK NAME -c 'echo $0'"),
    ("an empty $SHELL", "SHELL= LOCK NAME -c 'echo in'"),
    ("what -c sees", "LOCK NAME -c 'echo $#'"),
    (
        "group and session",
        "f() { cut -d' ' -f5,6 /proc/self/stat; }; (f; \
         LOCK NAME cut -d' ' -f5,6 /proc/self/stat) | uniq | wc -l",
    ),
    (
        "left in the background",
        "LOCK NAME sh -c 'sleep .3 >/dev/null & echo on'; LOCK -n NAME echo in",
    ),
];

/// The signals that the command finds ignored and blocked, whatever the caller has.
const SIGNALS: Cases = &[
    ("as they are", "LOCK NAME MASKS"),
    ("HUP ignored", "env --ignore-signal=HUP LOCK NAME MASKS"),
    ("INT ignored", "env --ignore-signal=INT LOCK NAME MASKS"),
    ("QUIT ignored", "env --ignore-signal=QUIT LOCK NAME MASKS"),
    ("PIPE ignored", "env --ignore-signal=PIPE LOCK NAME MASKS"),
    ("TERM ignored", "env --ignore-signal=TERM LOCK NAME MASKS"),
    ("CHLD ignored", "env --ignore-signal=CHLD LOCK NAME MASKS"),
    ("TSTP ignored", "env --ignore-signal=TSTP LOCK NAME MASKS"),
    ("HUP blocked", "env --block-signal=HUP LOCK NAME MASKS"),
    ("INT blocked", "env --block-signal=INT LOCK NAME MASKS"),
    ("TERM blocked", "env --block-signal=TERM LOCK NAME MASKS"),
    ("CHLD blocked", "env --block-signal=CHLD LOCK NAME MASKS"),
    ("all blocked", "env --block-signal LOCK NAME MASKS"),
    ("CHLD blocked, a status", "env --block-signal=CHLD LOCK NAME sh -c 'exit 7'"),
    ("CHLD ignored, a status", "env --ignore-signal=CHLD LOCK NAME sh -c 'exit 7'"),
    (
        "a waiter gets TERM",
        "LOCK NAME bash -c 'A_WAITER; \
         kill -TERM $p; wait $p; echo $?'",
    ),
    (
        "a waiter gets INT",
        "LOCK NAME bash -c 'A_WAITER; \
         kill -INT $p; wait $p; echo $?'",
    ),
    (
        "a waiter gets HUP",
        "LOCK NAME bash -c 'A_WAITER; \
         kill -HUP $p; wait $p; echo $?'",
    ),
    (
        "a waiter gets USR1",
        "LOCK NAME bash -c 'A_WAITER; \
         kill -USR1 $p; wait $p; echo $?'",
    ),
    (
        "a waiter is killed",
        "LOCK NAME bash -c 'LOCK NAME echo in & p=$!; sleep .2; kill -KILL $p; wait $p; \
         echo $?'; LOCK -n NAME echo free",
    ),
    (
        "a waiter ignores INT",
        "(LOCK NAME sleep .5 & sleep .2; env --ignore-signal=INT LOCK NAME echo in & p=$!; \
         sleep .1; kill -INT $p; wait)",
    ),
    (
        "a waiter is stopped for a while",
        "(LOCK NAME sleep .4 & sleep .1; LOCK NAME echo in & p=$!; sleep .1; kill -STOP $p; \
         sleep .1; kill -CONT $p; wait)",
    ),
    (
        "a holder is stopped for a while",
        "LOCK NAME sh -c 'sleep .3; echo done' & p=$!; sleep .1; kill -STOP $p; \
         LOCK -n NAME echo in; kill -CONT $p; wait $p; echo $?",
    ),
    (
        "a holder gets TERM",
        "env --default-signal LOCK NAME sleep 2 & p=$!; sleep .3; kill -TERM $p; wait $p; \
         echo $?; LOCK -n NAME echo free",
    ),
    (
        "a holder gets KILL",
        "LOCK NAME sleep 2 & p=$!; sleep .3; kill -KILL $p; wait $p; LOCK -w .5 NAME echo free",
    ),
    (
        "the group gets TERM",
        "setsid -w bash -c 'trap \"\" USR2; LOCK NAME bash -c \"trap : USR2; sleep .3; \
         echo out\" & sleep .1; trap \"echo term\" TERM; kill -TERM 0; wait; sleep .3; \
         LOCK -n NAME echo free'",
    ),
];

/// What is different, what `farlock` does, and why.
const DIFFERENT: &[(&str, &str, &str)] = &[
    (
        "no such program",
        "status 127: ",
        "as shells tell it, and not that the region is unavailable",
    ),
    ("no name of a program", "status 127: ", "the same"),
    ("no program", "status 126: ", "the same"),
    ("not found, full errors", "status 127: ", "the same"),
    ("closed input", "status 0: 1", "flock's own file takes the place of the closed descriptor"),
    ("closed errors", "status 0: 1", "the same"),
    (
        "left in the background",
        "status 0: on\nin",
        "flock's lock is held until the last of it ends",
    ),
    (
        "a holder gets TERM",
        "status 0: 143\nfree",
        "flock leaves its command behind, which keeps the lock",
    ),
    ("a holder gets KILL", "status 0: free", "the same"),
    ("--verbose", "status 0: ", "what is not the command's goes to standard error"),
    ("--verbose, full errors", "status 0: in", "the same"),
    ("--verbose, closed errors", "status 0: in", "the same"),
    ("--verbose, full output", "status 3: ", "the same"),
];

/// What is typed, and what the terminal then shows.
type Steps = &'static [(&'static str, &'static str)];

/// Ends what is in the foreground, and leaves a dump where it may.
const QUIT: &str = "\u{1c}";

/// Scenes at a terminal. `flock` plays them first: what it shows is what people know.
const SCENES: &[(&str, Steps)] = &[
    (
        "Ctrl-C ends a script's loop",
        &[
            (
                "bash -c 'for i in 1 2 3; do LOCK NAME sh -c \"echo begun; exec sleep 9\"; \
                 done; echo no'\n",
                "begun",
            ),
            (INTERRUPT, ""),
            ("echo status $?\n", "status 130"),
        ],
    ),
    (
        "Ctrl-C ends a script",
        &[
            ("bash -c 'LOCK NAME sh -c \"echo begun; exec sleep 9\"; echo no'\n", "begun"),
            (INTERRUPT, ""),
            ("echo status $?\n", "status 130"),
        ],
    ),
    (
        "Ctrl-\\ ends it",
        &[
            ("ulimit -c 0; LOCK NAME sh -c 'echo begun; exec sleep 9'\n", "begun"),
            (QUIT, ""),
            ("echo status $?\n", "status 131"),
        ],
    ),
    (
        "Ctrl-C ends who waits",
        &[
            ("LOCK NAME sleep 9 & sleep .3; sh -c 'echo begun; exec LOCK NAME echo in'\n", "begun"),
            (INTERRUPT, ""),
            ("echo status $?\n", "status 130"),
        ],
    ),
    (
        "a pager under the lock",
        &[
            (
                "seq 10 | LOCK NAME sh -c 'echo more; read key < /dev/tty; echo key $key; \
                 wc -l'\n",
                "more",
            ),
            ("k\n", "key k"),
            ("", "10"),
        ],
    ),
    (
        "a pager behind it",
        &[
            (
                "LOCK NAME seq 1000 | sh -c 'echo more; read key < /dev/tty; echo key $key; \
                 tail -1'\n",
                "more",
            ),
            ("k\n", "key k"),
            ("", "1000"),
        ],
    ),
    (
        "a password",
        &[
            ("LOCK NAME bash -c 'read -s -p pass: word; echo; echo got $word'\n", "pass:"),
            ("x\n", "got x"),
        ],
    ),
    (
        "Ctrl-Z, then on in the foreground",
        &[
            ("LOCK NAME sh -c 'echo begun; sleep 1; read x; echo it is $x'\n", "begun"),
            (SUSPEND, "topped"),
            ("fg\n", "sh -c"),
            ("y\n", "it is y"),
        ],
    ),
    (
        "Ctrl-Z, then on in the background",
        &[
            ("LOCK NAME sh -c 'echo begun; sleep 1; echo over'\n", "begun"),
            (SUSPEND, "topped"),
            ("bg\n", "over"),
        ],
    ),
    (
        "Ctrl-Z while it waits",
        &[
            ("LOCK NAME sleep 1 & sleep .3; sh -c 'echo begun; exec LOCK NAME echo in'\n", "begun"),
            (SUSPEND, "topped"),
            ("sleep 1; fg %2\n", "in"),
        ],
    ),
    (
        "in the background it may not read",
        &[
            ("LOCK NAME sh -c 'echo begun; read x; echo it is $x' &\n", "begun"),
            ("sleep .3; jobs\n", "topped"),
            ("fg\n", "sh -c"),
            ("z\n", "it is z"),
        ],
    ),
    (
        "two of them in a pipe",
        &[("LOCK NAME seq 3 | cat | tail -1; echo status $?\n", "3"), ("", "status 0")],
    ),
];

/// Whether flock(1) can be asked.
fn is_there() -> bool {
    let version = Command::new("/usr/bin/flock").arg("--version").output();
    let is_there = version.is_ok_and(|said| said.stdout.windows(10).any(|w| w == b"util-linux"));
    if !is_there {
        println!("SKIP beside-flock: /usr/bin/flock is not that of util-linux");
    }
    is_there
}

fn play(tool: Tool, about: &str, steps: Steps) {
    println!("{about}, with {tool:?}");
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    for (keys, shown) in steps {
        shell.types(&tool.script(&stage, keys));
        shell.shows(shown);
    }
}

#[test]
fn a_terminal_is_the_same() {
    for (about, steps) in SCENES.iter().filter(|_| is_there()) {
        play(Tool::Flock, about, steps);
        play(Tool::Farlock, about, steps);
    }
}

fn assert_alike(cases: Cases) {
    if !is_there() {
        return;
    }
    let mut wrong = Vec::new();
    for (about, script) in cases {
        let (flock, farlock) = (Stage::new(), Stage::new());
        let theirs = outcome(&flock, Tool::Flock, script);
        let ours = outcome(&farlock, Tool::Farlock, script);
        let different = DIFFERENT.iter().find(|(known, ..)| known == about);
        let is_right = match different {
            None => ours == theirs,
            Some((_, expected, _)) => ours == *expected && ours != theirs,
        };
        if !is_right {
            wrong.push(format!("{about}: {script}\n  flock    {theirs:?}\n  farlock  {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn commands_end_alike() {
    assert_alike(STATUS);
}

#[test]
fn options_mean_the_same() {
    assert_alike(OPTIONS);
}

#[test]
fn descriptors_are_the_same() {
    assert_alike(DESCRIPTORS);
}

#[test]
fn commands_find_the_same_around_them() {
    assert_alike(SURROUNDINGS);
}

#[test]
fn signals_do_the_same() {
    assert_alike(SIGNALS);
}

#[test]
fn there_are_many_cases_and_each_difference_is_of_one() {
    let all = [STATUS, OPTIONS, DESCRIPTORS, SURROUNDINGS, SIGNALS];
    let titles = all.iter().flat_map(|cases| cases.iter().map(|case| case.0));
    let titles: Vec<&str> = titles.chain(SCENES.iter().map(|scene| scene.0)).collect();
    let distinct: std::collections::BTreeSet<_> = titles.iter().collect();
    assert_eq!(distinct.len(), titles.len(), "titles are distinct");
    assert!(titles.len() >= 80, "{}", titles.len());
    assert!(DIFFERENT.iter().all(|(about, ..)| titles.contains(about)));
    // People find them in the documentation.
    let page = include_str!("../../../../docs/beside-flock.md");
    let unsaid = DIFFERENT.iter().find(|(.., why)| *why != "the same" && !page.contains(why));
    assert_eq!(unsaid, None);
}
