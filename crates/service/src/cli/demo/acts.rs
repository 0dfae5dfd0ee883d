//! The acts of the demo.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use farlock::Observer;

use super::actor::{self, Role};
use super::stage::{Check, Show, Stage, Summary, demo_failed};
use crate::cli::report::Failure;

/// Processes that contend.
const COUNTERS: usize = 4;
/// Processes that read together, beside one that writes.
const READERS: usize = 4;
/// Holders that are killed.
const KILLS: usize = 20;
/// How long a process may stay silent.
const PATIENCE: Duration = Duration::from_secs(15);

/// Processes of the demo, and what they say.
struct Actors {
    children: Vec<Child>,
    lines: Receiver<(usize, Vec<u64>)>,
    send: mpsc::Sender<(usize, Vec<u64>)>,
}

impl Actors {
    fn new() -> Self {
        let (send, lines) = mpsc::channel();
        Self { children: Vec::new(), lines, send }
    }

    /// Starts a process; its lines arrive as numbers, with its number. A word is an empty line.
    fn start(&mut self, stage: &Stage, role: Role, time: Duration) -> Result<usize, Failure> {
        let mut child = Command::new("/proc/self/exe")
            .args(actor::arguments(role, &stage.options(), time))
            .stdout(Stdio::piped())
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::system("a process could not be started", error))?;
        let number = self.children.len();
        let out = child.stdout.take().expect("its output was asked for");
        let send = self.send.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let numbers = line.split(' ').filter_map(|word| word.parse().ok()).collect();
                if send.send((number, numbers)).is_err() {
                    break;
                }
            }
        });
        self.children.push(child);
        Ok(number)
    }

    /// The next line that one of these processes says.
    fn hear(&self) -> Result<(usize, Vec<u64>), Failure> {
        self.lines
            .recv_timeout(PATIENCE)
            .map_err(|_| demo_failed("the demo came to a halt", "a process says nothing any more"))
    }

    /// Calls `each` with every line until all processes have ended.
    fn hear_all(&mut self, mut each: impl FnMut(usize, &[u64])) -> Result<(), Failure> {
        let mut heard = Instant::now();
        loop {
            match self.lines.recv_timeout(Duration::from_millis(20)) {
                Ok((number, numbers)) => {
                    heard = Instant::now();
                    each(number, &numbers);
                }
                Err(RecvTimeoutError::Timeout) if heard.elapsed() > PATIENCE => {
                    return self.hear().map(|_| ());
                }
                Err(_) => {
                    if self.children.iter_mut().all(|a| matches!(a.try_wait(), Ok(Some(_)))) {
                        // What was said last is on its way through its thread.
                        while let Ok((number, numbers)) =
                            self.lines.recv_timeout(Duration::from_millis(50))
                        {
                            each(number, &numbers);
                        }
                        return Ok(());
                    }
                }
            }
        }
    }
}

impl Drop for Actors {
    fn drop(&mut self) {
        for child in &mut self.children {
            // One that has ended is only reaped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Processes increment a counter under one lock, by a plain load and a plain store.
pub(super) fn contention(
    stage: &Stage,
    time: Duration,
    summary: &mut Summary,
) -> Result<(), Failure> {
    let failed = |error| Failure::system("the counter cannot be used", error);
    let path = actor::counter(&stage.options());
    std::fs::write(&path, [0; 16]).map_err(failed)?;
    let title = format!("1. {COUNTERS} processes contend for one lock, for {} s", time.as_secs());
    let show = Show::begin(&title, time.as_millis() as u64);
    let mut actors = Actors::new();
    for _ in 0..COUNTERS {
        actors.start(stage, Role::Count, time)?;
    }
    let begun = Instant::now();
    let (mut counts, mut disordered) = ([0_u64; COUNTERS], [0_u64; COUNTERS]);
    actors.hear_all(|number, numbers| {
        if let [count, out_of_order] = *numbers {
            (counts[number], disordered[number]) = (count, out_of_order);
        }
        let rate = counts.iter().sum::<u64>() as f64 / begun.elapsed().as_secs_f64() / 1e3;
        show.step(begun.elapsed().as_millis() as u64, &format!("{rate:.0} k/s, each {counts:?}"));
    })?;
    let sum: u64 = counts.iter().sum();
    let bytes = std::fs::read(&path).map_err(failed)?;
    let total = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let rate = sum as f64 / time.as_secs_f64();
    summary.figure("contended cycles per second", format!("{rate:.0}"));
    let least = counts.iter().min().copied().unwrap_or(0) as f64;
    let most = counts.iter().max().copied().unwrap_or(0) as f64;
    summary.figure("least / most of a process", format!("{:.2}", least / most.max(1.0)));
    let one = summary.check(
        "no increment was lost",
        total == sum && sum > 0,
        format!("{sum} made, {total} counted"),
    );
    let out_of_order: u64 = disordered.iter().sum();
    let two = summary.check(
        "every token was above the one before",
        out_of_order == 0,
        format!("{sum} tokens, {out_of_order} of them not"),
    );
    show.end(&[one, two]);
    Ok(())
}

/// Readers hold a lock together; a writer holds it alone.
pub(super) fn sharing(stage: &Stage, time: Duration, summary: &mut Summary) -> Result<(), Failure> {
    let title =
        format!("2. {READERS} readers and a writer share one lock, for {} s", time.as_secs());
    let show = Show::begin(&title, time.as_millis() as u64);
    let mut actors = Actors::new();
    for _ in 0..READERS {
        actors.start(stage, Role::Read, time)?;
    }
    let writer = actors.start(stage, Role::Write, time)?;
    let begun = Instant::now();
    let mut held: Vec<Held> = Vec::new();
    actors.hear_all(|number, numbers| {
        if let [from, to] = *numbers {
            held.push(Held { from, to, alone: number == writer });
        }
        let message = format!("{} times held", held.len());
        show.step(begun.elapsed().as_millis() as u64, &message);
    })?;
    let (together, violations) = overlaps(&held);
    let writes = held.iter().filter(|held| held.alone).count();
    summary.figure("readers at one time, at most", together.to_string());
    let checks: [Check; 3] = [
        summary.check("readers shared", together > 1, format!("{together} at one time")),
        summary.check("the writer was alone", violations == 0, format!("{violations} overlaps")),
        summary.check("the writer got its turns", writes > 0, format!("{writes} turns")),
    ];
    show.end(&checks);
    Ok(())
}

/// From when to when a holder had a lock, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    from: u64,
    to: u64,
    alone: bool,
}

/// How many held together at most, and how often a holder was there beside one that holds alone.
fn overlaps(held: &[Held]) -> (usize, usize) {
    let during = |moment: u64| held.iter().filter(move |h| h.from <= moment && moment < h.to);
    let together = held.iter().map(|h| during(h.from).count()).max().unwrap_or(0);
    let violation = |h: &&Held| {
        let there = during(h.from);
        let (count, alone) = there.fold((0, false), |(n, alone), h| (n + 1, alone || h.alone));
        count > 1 && alone
    };
    (together, held.iter().filter(violation).count())
}

/// Holders are killed; a waiter takes over.
pub(super) fn take_over(stage: &Stage, summary: &mut Summary) -> Result<(), Failure> {
    let title = format!("3. {KILLS} holders are killed, one after the other, while another waits");
    let show = Show::begin(&title, KILLS as u64);
    let mut actors = Actors::new();
    let unseen = |what: &str| demo_failed("the lock cannot be observed", what);
    let clock = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    let mut holder = actors.start(stage, Role::Hold, PATIENCE)?;
    let mut tokens: Vec<u64> = Vec::new();
    let mut took_us: Vec<f64> = Vec::new();
    let mut killed = None;
    // Each process says that it waits, and then when it was granted, with which token.
    while took_us.len() < KILLS {
        let (number, numbers) = actors.hear()?;
        let [granted, token] = *numbers else { continue };
        assert!(killed.is_none() || number != holder, "a dead process says nothing");
        tokens.push(token);
        if let Some(killed) = killed {
            took_us.push(granted.saturating_sub(killed) as f64 / 1e3);
            let last = took_us.last().copied().unwrap_or_default();
            show.step(took_us.len() as u64, &format!("taken over {last:.0} µs after the kill"));
        }
        holder = number;
        let observer = Observer::open(&stage.options())?;
        actors.start(stage, Role::Hold, PATIENCE)?;
        let begun = Instant::now();
        while !is_awaited(&observer)? {
            if begun.elapsed() > PATIENCE {
                return Err(unseen("nobody waits for it"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        killed = Some(clock());
        let _ = actors.children[holder].kill();
        let _ = actors.children[holder].wait();
    }
    took_us.sort_by(f64::total_cmp);
    let (median, worst) = (took_us[KILLS / 2], took_us[KILLS - 1]);
    summary.figure("take-over after a kill, median", format!("{median:.0} µs"));
    summary.figure("take-over after a kill, slowest", format!("{worst:.0} µs"));
    let one = summary.check(
        "every lock of a killed process was taken over",
        took_us.len() == KILLS,
        format!("{KILLS} of {KILLS}, median {median:.0} µs"),
    );
    let increased = tokens.windows(2).all(|pair| pair[0] < pair[1]);
    let two = summary.check(
        "tokens increased across deaths",
        increased,
        format!("{} tokens", tokens.len()),
    );
    show.end(&[one, two]);
    Ok(())
}

/// Whether a client waits for the lock.
fn is_awaited(observer: &Observer) -> Result<bool, Failure> {
    let locks = observer.locks()?;
    Ok(locks.iter().flat_map(|lock| &lock.participants).any(|somebody| !somebody.is_holder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_counted() {
        let held = |from, to, alone| Held { from, to, alone };
        let good = [held(0, 10, false), held(5, 15, false), held(15, 20, true)];
        assert_eq!(overlaps(&good), (2, 0));
        let bad = [held(0, 10, false), held(9, 12, true)];
        assert_eq!(overlaps(&bad), (2, 1));
        assert_eq!(overlaps(&[]), (0, 0));
    }
}
