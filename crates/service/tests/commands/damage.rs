//! A region whose memory is overwritten: what can be seen to be damaged is an error, no limit
//! is ignored, nobody crashes, and of holds that overlap at most one ends well.
//!
//! Six processes use a region while words of it are overwritten at random. They are judged by what
//! they wrote down, and by how they ended.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use farlock::{RegionOptions, Session};

use crate::stage::{self, Stage, kill, now_ns, pid};

/// How long the actors use a region.
const ROUND: Duration = Duration::from_millis(90);
/// When it is damaged, after they began.
const DAMAGED: Duration = Duration::from_millis(30);
/// How long an acquisition may wait.
const LIMIT: Duration = Duration::from_millis(100);
/// By when an actor must have come back from a round: its last acquisition has a limit.
const LATE: Duration = Duration::from_secs(5);
const ACTORS: usize = 6;

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Uses locks of a region for a while, and prints of each hold from when to when it was, and
/// whether its release was well.
fn use_locks(options: &RegionOptions, seed: u64) {
    let (begun, mut chance) = (Instant::now(), Chance(seed));
    let mut session = None;
    while begun.elapsed() < ROUND {
        let open = match &session {
            Some(open) => open,
            None => match Session::open(&options.clone().within(LIMIT)) {
                Ok(open) => session.insert(open),
                Err(error) => {
                    println!("error {}", error.code());
                    thread::sleep(Duration::from_millis(5));
                    continue;
                }
            },
        };
        let name = format!("n{}", chance.below(3));
        let asked = Instant::now();
        let shares = chance.below(3) == 0;
        let lock = open.lock(&name);
        let request = if shares { lock.shared() } else { lock.exclusive() };
        let request = match chance.below(4) {
            0 => request.at_once(),
            _ => request.within(LIMIT),
        };
        let granted = request.blocking();
        assert!(asked.elapsed() < LATE, "a limit is kept");
        match granted {
            Ok(guard) => {
                let from = now_ns();
                if chance.below(8) == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
                let to = now_ns();
                let well = match guard.release().blocking() {
                    Ok(()) => "well",
                    Err(error) => error.code(),
                };
                let how = if shares { "shared" } else { "alone" };
                println!("{name} {how} {from} {to} {well}");
            }
            Err(error) => {
                let code = error.code();
                if !matches!(code, "busy" | "timed-out") {
                    println!("error {code}");
                    session = None;
                }
            }
        }
    }
}

#[test]
fn damaged_actor() {
    if !stage::is_actor() {
        return;
    }
    let options = stage::options_from_environment();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let (region, seed) = line.split_once(' ').unwrap();
        use_locks(&options.clone().named(region), seed.parse().unwrap());
        println!("done");
    }
}

/// A process that uses locks.
struct Actor {
    child: Child,
    lines: Receiver<String>,
}

impl Actor {
    fn start(stage: &Stage) -> Self {
        let mut command = stage.actor("damage::damaged_actor");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let read = move |out: ChildStdout| {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        };
        let out = child.stdout.take().unwrap();
        thread::spawn(move || read(out));
        Self { child, lines }
    }

    fn begin(&mut self, region: &str, seed: u64) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{region} {seed}").unwrap();
    }

    /// What it did, and how it ended if it has.
    fn end(&mut self) -> (Vec<Hold>, Option<String>) {
        let (mut holds, begun) = (Vec::new(), Instant::now());
        loop {
            let left = (ROUND + LATE).saturating_sub(begun.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) if line == "done" => return (holds, None),
                Ok(line) => holds.extend(Hold::read(&line)),
                Err(RecvTimeoutError::Timeout) => {
                    kill(pid(&self.child), rustix::process::Signal::KILL);
                    self.child.wait().unwrap();
                    return (holds, Some("hangs".to_owned()));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().unwrap();
                    let how = status.signal().map(|signal| format!("signal {signal}"));
                    return (holds, Some(how.unwrap_or_else(|| status.to_string())));
                }
            }
        }
    }
}

/// A hold of a lock.
#[derive(Clone, Debug)]
struct Hold {
    name: String,
    alone: bool,
    from: u64,
    to: u64,
    well: bool,
}

impl Hold {
    fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let &[name, how, from, to, end] = words.as_slice() else { return None };
        let (from, to) = (from.parse().ok()?, to.parse().ok()?);
        Some(Self { name: name.to_owned(), alone: how == "alone", from, to, well: end == "well" })
    }
}

/// The region's file.
fn file_of(stage: &Stage, region: &str) -> Option<PathBuf> {
    let path = stage.dir().join(region);
    path.exists().then_some(path)
}

/// Overwrites some words, most of them in use. Returns what.
fn damage(stage: &Stage, region: &str, chance: &mut Chance) -> Vec<(u64, u64, u64)> {
    let Some(path) = file_of(stage, region) else { return Vec::new() };
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let word = |at: u64| {
        let at = at as usize * 8;
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    };
    let words = bytes.len() as u64 / 8;
    let used: Vec<u64> = (0..words).filter(|at| word(*at) != 0).collect();
    let mut done = Vec::new();
    for _ in 0..=chance.below(8) {
        let at = match chance.below(10) {
            0 => chance.below(words),
            _ => used[chance.below(used.len() as u64) as usize],
        };
        let old = word(at);
        let new = match chance.below(6) {
            0 => 0,
            1 => u64::MAX,
            2 => chance.next(),
            3 => old ^ 1 << chance.below(64),
            4 => old.wrapping_add(1),
            _ => word(used[chance.below(used.len() as u64) as usize]),
        };
        file.write_all_at(&new.to_le_bytes(), at * 8).unwrap();
        done.push((at * 8, old, new));
    }
    done
}

/// Of holds that overlap, and do not share, at most one ended well.
fn overlapping(holds: &[Hold]) -> Option<(Hold, Hold)> {
    let mut well: Vec<&Hold> = holds.iter().filter(|hold| hold.well).collect();
    well.sort_by_key(|hold| (hold.name.clone(), hold.from));
    // The one that ended last of those before: of all, and of those that held alone.
    let (mut last, mut last_alone): (Option<&Hold>, Option<&Hold>) = (None, None);
    for hold in well {
        let meets = |other: &&Hold| other.name == hold.name && hold.from < other.to;
        let other = if hold.alone { last } else { last_alone };
        if let Some(other) = other.filter(meets) {
            return Some((other.clone(), hold.clone()));
        }
        let later =
            |before: Option<&Hold>| before.is_none_or(|b| b.name != hold.name || b.to < hold.to);
        if later(last) {
            last = Some(hold);
        }
        if hold.alone && later(last_alone) {
            last_alone = Some(hold);
        }
    }
    None
}

/// The end of a session waits for its verbs to end, and not for what only looks like one: that took
/// a second for each of its places, and a thousand yields where others keep the processors busy.
/// The quickest of some counts.
#[test]
fn a_session_of_an_overwritten_region_ends_soon() {
    for pattern in [u64::MAX, 1 << 32 | 1, 0] {
        let is_soon = |_| end_of_an_overwritten_session(pattern) < Duration::from_millis(800);
        assert!((0..8).any(is_soon), "{pattern:#x}");
    }
}

/// How long a session takes to end after its region was overwritten.
fn end_of_an_overwritten_session(pattern: u64) -> Duration {
    let stage = Stage::new();
    let session = stage.session();
    session.lock("t").exclusive().blocking().unwrap().release().blocking().unwrap();
    let file = File::options().write(true).open(file_of(&stage, "default").unwrap()).unwrap();
    let words = file.metadata().unwrap().len() as usize / 8;
    file.write_all_at(&pattern.to_le_bytes().repeat(words), 0).unwrap();
    let begun = Instant::now();
    drop(session);
    begun.elapsed()
}

/// 100 by day; at night thirty times as many.
#[test]
fn a_region_overwritten_at_random_ends_in_errors_alone() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse().unwrap());
    let trials = 100 * number("FARLOCK_MORE_DAMAGE").unwrap_or(1_u64);
    let first = number("FARLOCK_SEED").unwrap_or(1_u64);
    let stage = Stage::new();
    let mut actors: Vec<Actor> = (0..ACTORS).map(|_| Actor::start(&stage)).collect();
    let (mut objections, mut holds_in_all, mut lost) = (Vec::new(), 0, 0);
    for trial in first..first + trials {
        let region = format!("r{trial}");
        let mut chance = Chance(trial);
        for actor in &mut actors {
            actor.begin(&region, chance.next());
        }
        thread::sleep(DAMAGED);
        let what = damage(&stage, &region, &mut chance);
        let mut holds = Vec::new();
        for actor in &mut actors {
            let (theirs, ended) = actor.end();
            holds.extend(theirs);
            if let Some(how) = ended {
                objections.push(format!("trial {trial}: {how} after {what:x?}"));
                *actor = Actor::start(&stage);
            }
        }
        holds_in_all += holds.len();
        lost += holds.iter().filter(|hold| !hold.well).count();
        if let Some(pair) = overlapping(&holds) {
            objections.push(format!("trial {trial}: both well: {pair:?} after {what:x?}"));
        }
        let _ = std::fs::remove_file(stage.dir().join(&region));
    }
    println!("{trials} trials, {holds_in_all} holds, {lost} lost, {} objections", objections.len());
    assert!(holds_in_all > trials as usize * 10, "{holds_in_all}");
    assert!(objections.is_empty(), "{}", objections.join("\n"));
    for actor in &mut actors {
        drop(actor.child.stdin.take());
        assert!(actor.child.wait().unwrap().success());
    }
}
