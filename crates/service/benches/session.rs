//! What an uncontended cycle costs at each face: bare instructions, a client, a session, blocking
//! and async, by a lock at hand and by its name.
//!
//! Rounds of all subjects are interleaved, so that whatever disturbs the machine disturbs all of
//! them. The minimum says what the code costs, the median what the machine did to it.

use std::error::Error;
use std::future::{Future, IntoFuture};
use std::hint::black_box;
use std::path::Path;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use farlock::{Guard, Lock, Mode, RegionOptions, Session};
use farlock_fabric::Addr;
use farlock_fabric::shm::{self, Region, ShmEndpoint, Wide};
use farlock_locks::record::claim::Claim;
use farlock_locks::{Client, Options};

const ROUNDS: usize = 301;
/// Few enough that a round fits between two turns of a busy processor.
const CYCLES: u32 = 5_000;
/// How long two threads of one session run beside each other.
const BESIDE: Duration = Duration::from_millis(300);

/// How many processes contend for one lock, and for how long.
const CONTENDERS: usize = 8;
const CONTENTION: Duration = Duration::from_secs(1);
/// The argument that makes this program one of them.
const CONTEND: &str = "--contend-in";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == CONTEND) {
        return contend(Path::new(&arguments[at + 1]));
    }
    let dir = Path::new("/dev/shm").join(format!("farlock-bench-{}", std::process::id()));
    let options = options(&dir);
    let session = Session::open(&options)?;
    let other = Session::open(&options)?;
    let held = other.lock("taken").exclusive().blocking()?;
    cycles(&session, &options)?;
    held.release().blocking()?;
    beside(&session);
    contention(&dir)?;
    drop(session);
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

/// Acquires and releases what nobody else wants, in several ways.
fn cycles(session: &Session, options: &RegionOptions) -> Result<(), Box<dyn Error>> {
    type Subject<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let region = Region::open(&shm::Options::new(&options.dir, &options.state_dir, &options.name))?;
    // As sessions have it.
    let claim = Claim { bypass: 64, ..Claim::default() };
    let client = Client::new(region.endpoint()?, claim, Options::new(region.incarnation()));
    // The last line of the heap: no lock of a name lies there.
    let (heap, bytes) = region.heap();
    let (word, lock) = (heap.plus(bytes - 64), session.lock("bench"));
    let taken = session.lock("taken");
    let subjects: [Subject<'_>; 7] = [
        ("two bare 16-byte exchanges", Box::new(bare)),
        ("client, blocking", Box::new(|| direct(&client, word))),
        ("session, blocking", Box::new(|| blocking(&lock))),
        ("session, blocking, shared", Box::new(|| shared(&lock))),
        ("session, async", Box::new(|| awaited(&lock))),
        ("session, blocking, by name", Box::new(|| by_name(session))),
        ("session, a try that fails", Box::new(|| refused(&taken))),
    ];
    let mut nanos = vec![Vec::new(); subjects.len()];
    for _ in 0..ROUNDS {
        for ((_, subject), nanos) in subjects.iter().zip(&mut nanos) {
            let begun = Instant::now();
            subject();
            nanos.push(begun.elapsed().as_secs_f64() * 1e9 / f64::from(CYCLES));
        }
    }
    let floor = summary(&mut nanos[0]).0;
    println!("{:32} {:>9} {:>9} {:>9}", "uncontended cycle", "min ns", "median ns", "x bare");
    for ((name, _), nanos) in subjects.iter().zip(&mut nanos) {
        let (least, median) = summary(nanos);
        println!("{name:32} {least:9.1} {median:9.1} {:9.2}", least / floor);
    }
    Ok(())
}

fn summary(nanos: &mut [f64]) -> (f64, f64) {
    nanos.sort_by(f64::total_cmp);
    (nanos[0], nanos[nanos.len() / 2])
}

fn bare() {
    let word = Wide::new(0);
    for _ in 0..CYCLES {
        assert!(black_box(&word).compare_exchange(0, 1).is_ok());
        assert!(black_box(&word).compare_exchange(1, 0).is_ok());
    }
}

fn direct(client: &Client<ShmEndpoint, Claim>, word: Addr) {
    for _ in 0..CYCLES {
        let guard = client.lock(black_box(word), Mode::Exclusive).expect("nobody else wants it");
        guard.unlock().expect("it is held");
    }
}

fn blocking(lock: &Lock) {
    for _ in 0..CYCLES {
        let guard = black_box(lock).exclusive().blocking().expect("nobody else wants it");
        guard.release().blocking().expect("it is held");
    }
}

fn shared(lock: &Lock) {
    for _ in 0..CYCLES {
        let guard = black_box(lock).shared().blocking().expect("nobody else wants it");
        guard.release().blocking().expect("it is held");
    }
}

fn awaited(lock: &Lock) {
    for _ in 0..CYCLES {
        let guard: Guard =
            now(black_box(lock).exclusive().into_future()).expect("nobody else wants it");
        now(guard.release()).expect("it is held");
    }
}

fn by_name(session: &Session) {
    for _ in 0..CYCLES {
        let guard = black_box(session).lock("by name").exclusive().blocking();
        guard.expect("nobody else wants it").release().blocking().expect("it is held");
    }
}

fn refused(lock: &Lock) {
    for _ in 0..CYCLES {
        assert!(black_box(lock).exclusive().at_once().blocking().is_err());
    }
}

/// The output of a future that need not wait.
fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("nobody else wants it"),
    }
}

/// One thread, and two threads of one session with a lock each.
fn beside(session: &Session) {
    let rate = |threads: u32| {
        let begun = Instant::now();
        let cycles: u64 = std::thread::scope(|scope| {
            let run = |number: u32| {
                let lock = session.lock(format!("beside {number}"));
                let mut cycles = 0;
                while begun.elapsed() < BESIDE {
                    for _ in 0..1000 {
                        let guard = lock.exclusive().blocking().expect("nobody else wants it");
                        guard.release().blocking().expect("it is held");
                    }
                    cycles += 1000;
                }
                cycles
            };
            let threads: Vec<_> =
                (0..threads).map(|number| scope.spawn(move || run(number))).collect();
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum()
        });
        cycles as f64 / begun.elapsed().as_secs_f64() / 1e6
    };
    let (one, two) = (rate(1), rate(2));
    println!("\none thread {one:.2} M/s, two with a lock each {two:.2} M/s, {:.2} x", two / one);
}

fn options(dir: &Path) -> RegionOptions {
    RegionOptions::new(dir.join("shm"), dir.join("state"))
}

/// Processes that acquire and release one lock, without anything in between.
fn contention(dir: &Path) -> Result<(), Box<dyn Error>> {
    let contenders: Vec<_> = (0..CONTENDERS)
        .map(|_| {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg(CONTEND).arg(dir).stdout(Stdio::piped()).spawn()
        })
        .collect::<Result<_, _>>()?;
    let mut counts = Vec::new();
    for contender in contenders {
        let said = contender.wait_with_output()?.stdout;
        counts.push(String::from_utf8(said)?.trim().parse::<u64>()?);
    }
    let rate = counts.iter().sum::<u64>() as f64 / CONTENTION.as_secs_f64() / 1e6;
    println!("{CONTENDERS} processes contend: {rate:.2} M/s, each {counts:?}");
    Ok(())
}

/// Is one of them.
fn contend(dir: &Path) -> Result<(), Box<dyn Error>> {
    let lock = Session::open(&options(dir))?.lock("contended");
    let begun = Instant::now();
    let mut cycles: u64 = 0;
    while begun.elapsed() < CONTENTION {
        for _ in 0..100 {
            lock.exclusive().blocking()?.release().blocking()?;
        }
        cycles += 100;
    }
    println!("{cycles}");
    Ok(())
}
