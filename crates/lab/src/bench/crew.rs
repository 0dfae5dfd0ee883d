//! The director of clients that are processes: starts them, gives the signals, collects accounts.
//!
//! The processes share a region in a private directory, which is removed as soon as all of them
//! have opened it; a bench that is killed leaves nothing behind. Where faces are measured it stays
//! to the end: sessions and commands open their region by its name. A worker that dies or keeps
//! silent ends the bench with an error; the others are ended by their process ids.

use std::future::poll_fn;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use farlock_fabric::shm::{self, Region, ShmEndpoint};
use farlock_fabric::{Endpoint, EndpointId, Nanos, block_on};
use farlock_locks::registry;

use super::orders::{Answer, Order, region_options};
use super::placement::core_of;
use super::trial::{Arena, Outcome, Span, Trial};
use crate::drive::{Phase, Tally};
use crate::fs;
use crate::rival::{FLOCKS_MAX, MUTEXES_MAX, Mutexes, Rival, SYSTEM_KINDS, rival};
use crate::scratch::Scratch;
use crate::subject::ServeAt;
use crate::{child, face};

/// How long a worker may keep silent when it has something to say.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The same for a whole trial of a given number of acquisitions.
const TRIAL_MAX: Duration = Duration::from_secs(3600);

/// Workers that wait for orders.
pub struct Crew {
    region: Region,
    workers: Vec<Worker>,
    said: Receiver<(usize, anyhow::Result<Answer>)>,
    cores: Vec<usize>,
    /// Where the faces' region is, if they are measured.
    faces: Option<Scratch>,
}

/// A process of ours. Ended when dropped.
struct Worker {
    child: Child,
    orders: ChildStdin,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself; what counts is that it is gone and reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Crew {
    /// Starts `clients` workers that share `locks` locks, or whatever else lies in an arena of so
    /// many words, and run on these cores in turn. Whether they use `faces` as well must be known
    /// from the beginning.
    pub fn start(
        clients: usize,
        locks: u64,
        arena_words: usize,
        cores: Vec<usize>,
        faces: bool,
    ) -> anyhow::Result<Self> {
        let scratch = Scratch::new()?;
        let bytes = arena_words as u64 * 8;
        let options = shm::Options {
            create: true,
            heap_bytes: bytes,
            max_bytes: bytes.max(1 << 30),
            endpoints: u16::try_from(clients + 2).context("too many clients")?,
            ..region_options(scratch.path())
        };
        let region = Region::open(&options).context("cannot create the region")?;
        let (say, said) = channel();
        let mut crew = Self { region, workers: Vec::new(), said, cores, faces: None };
        let flocks = if locks <= FLOCKS_MAX { locks } else { 0 };
        let mutexes = locks.min(MUTEXES_MAX);
        for kind in SYSTEM_KINDS {
            Mutexes::create(scratch.path(), mutexes, kind).context("cannot make mutexes")?;
        }
        for number in 0..clients {
            let files = (flocks, mutexes);
            let worker = crew.start_worker(number, scratch.path(), files, say.clone())?;
            crew.workers.push(worker);
        }
        for _ in 0..clients {
            match crew.hear(SILENCE_MAX)? {
                (_, Answer::Ready) => {}
                (number, other) => bail!("worker {number} began with {other:?}"),
            }
        }
        crew.faces = faces.then_some(scratch);
        Ok(crew)
    }

    fn start_worker(
        &self,
        number: usize,
        dir: &Path,
        (flocks, mutexes): (u64, u64),
        say: Sender<(usize, anyhow::Result<Answer>)>,
    ) -> anyhow::Result<Worker> {
        let mut command = child::command("worker")?;
        command.arg("--dir").arg(dir);
        command.args(["--flocks", &flocks.to_string(), "--mutexes", &mutexes.to_string()]);
        if let Some(core) = core_of(&self.cores, number) {
            command.args(["--core", &core.to_string()]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a worker")?;
        let orders = child.stdin.take().expect("its input is a pipe");
        let answers = child.stdout.take().expect("its output is a pipe");
        std::thread::spawn(move || listen(number, answers, &say));
        Ok(Worker { child, orders })
    }

    /// Runs a trial.
    pub fn run(&mut self, trial: &Trial) -> anyhow::Result<Outcome> {
        let region = self.region.clone();
        let words = region.words();
        let arena = Arena::of(trial);
        let control = arena.control(words);
        arena.clear(words);
        let locks = &words[arena.words_before_locks()..];
        for (place, word) in arena.begun(trial)? {
            locks[place].store(word, Ordering::Relaxed);
        }
        if let Span::Acquisitions(cycles) = trial.span {
            control.set_budget(cycles);
        }
        let subject = rival(&trial.subject);
        let processes = if subject == Some(Rival::ParkingLot) { 1 } else { trial.clients };
        if let Some(dir) = self.checked(trial) {
            face::clear_check(dir, trial.workload.locks)?;
        }
        let service = Service::start(&self.region, &trial.subject, subject.is_none())?;
        let trial = &Trial {
            subject: registry::served_by(
                &trial.subject,
                service.as_ref().map(|service| service.id),
            ),
            ..trial.clone()
        };
        for client in 0..processes {
            self.order(trial, client)?;
        }
        for _ in 0..processes {
            match self.hear(SILENCE_MAX)? {
                (_, Answer::Ready) => {}
                (number, other) => bail!("worker {number} began its trial with {other:?}"),
            }
        }
        control.begin(Phase::WarmUp);
        self.pass(Duration::from_nanos(trial.warm_up_ns))?;
        control.begin(Phase::Measured);
        let mut patience = TRIAL_MAX;
        if let Span::Nanos(nanos) = trial.span {
            self.pass(Duration::from_nanos(nanos))?;
            control.begin(Phase::Over);
            patience = SILENCE_MAX;
        }
        let tallies = self.collect(processes, patience)?;
        let exclusive = tallies.iter().map(|tally| tally.exclusive).sum();
        let lost = self.lost(trial, exclusive)?;
        Ok(Outcome { tallies, lost })
    }

    /// What was lost unseen, when all clients have ended.
    fn lost(&self, trial: &Trial, exclusive: u64) -> anyhow::Result<u64> {
        let (arena, words) = (Arena::of(trial), self.region.words());
        if let Some(course) = &trial.fs {
            let files = &words[arena.words_before_locks()..];
            let judge = arena.judge(words);
            return Ok(fs::lost_between_processes(&trial.subject, course, judge, files)?);
        }
        Ok(match rival(&trial.subject) {
            // The lines of `raw` are private; their owners have judged them.
            Some(Rival::Raw) => 0,
            Some(Rival::Command(_)) => match self.checked(trial) {
                Some(dir) => face::lost(dir, trial.workload.locks, exclusive)?,
                None => 0,
            },
            _ => arena.judge(words).lost(exclusive),
        })
    }

    /// Where the check words of commands are, if this trial judges some.
    fn checked(&self, trial: &Trial) -> Option<&Path> {
        let commands = matches!(rival(&trial.subject), Some(Rival::Command(_)));
        self.faces.as_ref().filter(|_| commands && trial.counted).map(Scratch::path)
    }

    fn order(&mut self, trial: &Trial, client: usize) -> anyhow::Result<()> {
        let order = Order { trial: trial.clone(), client, cores: self.cores.clone() };
        let mut line = serde_json::to_string(&order)?;
        line.push('\n');
        let orders = &mut self.workers[client].orders;
        orders.write_all(line.as_bytes()).with_context(|| format!("worker {client} is gone"))
    }

    fn collect(&self, processes: usize, patience: Duration) -> anyhow::Result<Vec<Tally>> {
        let mut accounts: Vec<Vec<Tally>> = vec![Vec::new(); processes];
        for _ in 0..processes {
            match self.hear(patience)? {
                (number, Answer::Done(tallies)) => accounts[number] = tallies,
                (number, other) => bail!("worker {number} said {other:?}"),
            }
        }
        Ok(accounts.concat())
    }

    /// Lets time pass; nobody has anything to say meanwhile.
    fn pass(&self, duration: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + duration;
        match self.said.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok((number, Ok(said))) => bail!("worker {number} said {said:?} before the end"),
            Ok((number, Err(error))) => Err(error.context(format!("worker {number}"))),
            Err(RecvTimeoutError::Disconnected) => bail!("all workers are gone"),
        }
    }

    fn hear(&self, patience: Duration) -> anyhow::Result<(usize, Answer)> {
        match self.said.recv_timeout(patience) {
            Ok((number, Ok(Answer::Failed(why)))) => bail!("worker {number}: {why}"),
            Ok((number, Ok(said))) => Ok((number, said)),
            Ok((number, Err(error))) => Err(error.context(format!("worker {number}"))),
            Err(_) => bail!("no worker said anything for {} s", patience.as_secs()),
        }
    }
}

/// Passes on what a worker says, until it says no more.
fn listen(number: usize, answers: ChildStdout, say: &Sender<(usize, anyhow::Result<Answer>)>) {
    for line in BufReader::new(answers).lines() {
        let answer = line
            .map_err(anyhow::Error::from)
            .and_then(|line| serde_json::from_str(&line).context("an answer that is no answer"));
        if say.send((number, answer)).is_err() {
            return;
        }
    }
    // A caller that ends the crew is not interested any more.
    let _ = say.send((number, Err(anyhow!("it died"))));
}

/// A thread of this process that serves locks which need a server. Ends when dropped.
struct Service {
    id: EndpointId,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// How often a server looks whether its trial is over.
const SERVICE_CHECK_NS: Nanos = 1_000_000;

impl Service {
    /// The server of this lock; `None` if it needs none.
    fn start(region: &Region, subject: &str, is_lock: bool) -> anyhow::Result<Option<Self>> {
        if !is_lock || !registry::promises(subject)?.served {
            return Ok(None);
        }
        let (region, subject, over) = (region.clone(), subject.to_owned(), Arc::default());
        let (tell, told) = channel();
        let thread = std::thread::spawn({
            let over = Arc::clone(&over);
            move || {
                let endpoint = region.endpoint().expect("the region has a place for a server");
                tell.send(endpoint.id()).expect("who starts a server waits for its name");
                serve(&subject, endpoint, &over);
            }
        });
        let id = told.recv().context("the lock server did not start")?;
        Ok(Some(Self { id, over, thread: Some(thread) }))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the lock server panicked");
        }
    }
}

/// Serves this lock until that is over.
fn serve(subject: &str, endpoint: ShmEndpoint, over: &AtomicBool) {
    let endpoint = Rc::new(endpoint);
    let server = registry::visit(subject, ServeAt(Rc::clone(&endpoint)));
    let mut server = server.expect("the name was understood before");
    let mut sleep = endpoint.sleep(SERVICE_CHECK_NS);
    let until_over = poll_fn(|cx| {
        assert!(server.as_mut().poll(cx).is_pending(), "a server never ends");
        while Pin::new(&mut sleep).poll(cx).is_ready() {
            if over.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            sleep = endpoint.sleep(SERVICE_CHECK_NS);
        }
        Poll::Pending
    });
    block_on(&*endpoint, until_over);
}
