//! Threads that sleep on words of shared memory for the executor, which sleeps on its sockets.
//!
//! Each sleeps on as many as the kernel takes at once. When one of them is rung the thread
//! interrupts the executor, and sleeps until it is given others.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::endpoint::Nanos;
use crate::shm::Region;
use crate::shm::serving::{LOOK_AGAIN_NS, Source, sleep, wake_all};
use crate::tcp::client::Interrupt;
use crate::tcp::clock::boot_time;

/// Words that one thread sleeps on, beside its own: what the kernel takes at once.
const SOURCES_EACH: usize = 127;

/// The threads.
#[derive(Debug, Default)]
pub(super) struct Parkers {
    threads: Vec<Parker>,
}

#[derive(Debug)]
struct Parker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    round: Mutex<Round>,
    /// Changes with every round: what the thread sleeps on first.
    number: AtomicU32,
    has_fired: AtomicBool,
    interrupt: Arc<Interrupt>,
}

/// What to sleep on.
#[derive(Debug, Default)]
struct Round {
    sources: Vec<Source>,
    /// They keep the words of the sources mapped.
    regions: Vec<Region>,
    /// When to look again at the latest.
    until: Nanos,
    is_last: bool,
}

impl Parkers {
    /// Sleeps on these words from now on, of these regions, until a time at the latest; what was
    /// slept on before is not any more. `interrupt` is set when one is rung.
    pub(super) fn sleep_on(
        &mut self,
        sources: &[Source],
        regions: &[Region],
        until: Option<Nanos>,
        interrupt: &Arc<Interrupt>,
    ) -> std::io::Result<()> {
        let until = until.unwrap_or(Nanos::MAX);
        let needed = sources.len().div_ceil(SOURCES_EACH);
        while self.threads.len() < needed {
            self.threads.push(Parker::start(interrupt)?);
        }
        let mut chunks = sources.chunks(SOURCES_EACH);
        for parker in &self.threads {
            let sources = chunks.next().unwrap_or_default();
            if sources.is_empty() && parker.is_idle() {
                continue;
            }
            let regions = if sources.is_empty() { &[] } else { regions };
            parker.give(Round {
                sources: sources.to_vec(),
                regions: regions.to_vec(),
                until,
                is_last: false,
            });
        }
        Ok(())
    }

    /// Whether any was rung since this was asked last.
    pub(super) fn have_fired(&self) -> bool {
        let fired = |parker: &Parker| parker.shared.has_fired.swap(false, Ordering::SeqCst);
        self.threads.iter().fold(false, |any, parker| fired(parker) | any)
    }
}

impl Parker {
    fn start(interrupt: &Arc<Interrupt>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            round: Mutex::default(),
            number: AtomicU32::new(0),
            has_fired: AtomicBool::new(false),
            interrupt: Arc::clone(interrupt),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("farlock-parker".to_owned());
        let thread = thread.spawn(move || of_thread.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    fn is_idle(&self) -> bool {
        self.shared.round().sources.is_empty()
    }

    fn give(&self, round: Round) {
        *self.shared.round() = round;
        self.shared.number.fetch_add(1, Ordering::SeqCst);
        wake_all(&self.shared.number);
    }
}

impl Drop for Parker {
    fn drop(&mut self) {
        self.give(Round { is_last: true, ..Round::default() });
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn round(&self) -> MutexGuard<'_, Round> {
        // Nothing that can panic runs under this mutex.
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut sources = Vec::new();
        loop {
            let number = self.number.load(Ordering::SeqCst);
            let own = Source::of(&self.number, number);
            sources.clear();
            sources.push(own);
            // Until the sleep is over these keep the words mapped.
            let (_regions, until) = {
                let round = self.round();
                if round.is_last {
                    return;
                }
                sources.extend(&round.sources);
                (round.regions.clone(), round.until)
            };
            let is_for_others = sources.len() > 1;
            let left = until.saturating_sub(boot_time()).min(LOOK_AGAIN_NS);
            sleep(&sources, if is_for_others { left } else { LOOK_AGAIN_NS });
            if is_for_others && self.number.load(Ordering::SeqCst) == number {
                self.has_fired.store(true, Ordering::SeqCst);
                self.interrupt.set();
                while self.number.load(Ordering::SeqCst) == number {
                    sleep(&[own], LOOK_AGAIN_NS);
                }
            }
        }
    }
}
