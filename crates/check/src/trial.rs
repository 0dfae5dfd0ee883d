//! One run: a world, its clients, its judges, and what they found.

mod bench;
mod contestant;
mod divided;
mod halt;
mod judges;
mod newcomer;
mod ranges;
mod run;
mod stops;
mod terms;
mod transacted;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use farlock_fabric::{Addr, Endpoint, Nanos, Slot};
use farlock_locks::slot::{self, Phase};
use farlock_locks::{FieldsAt, Mode};
use farlock_sim::check::Access;
use farlock_sim::{Choice, Ended, Oracle, Ratio, SimEndpoint};

use crate::client::CheckedClient;
use crate::faults::{Declares, Faults};
use crate::points::Watched;
use crate::scenario::{EVENTS_MAX, Scenario};
use crate::verdict::{Befell, Finding, Objection, Promise, Verdict, message, recoveries};
use halt::{Findings, Halts, Recorder};
use run::Trial;
use terms::MEMORY;

use bench::SharedBench;
pub use bench::{Actor, RunLog, Subject};
pub use terms::{Asks, Crew, Settles, Terms};

/// To the ledger, the visitor that comes when all have left.
const VISITOR: u16 = 63;

/// A subject, ready to play any scenario.
pub struct Player {
    subject: Subject,
    known: Findings,
    /// Whether the lock outlives clients that die; if not, nobody must.
    pub outlives: bool,
    terms: Terms,
}

impl Player {
    /// A player of this lock.
    pub fn new(subject: Subject, terms: Terms) -> Self {
        Self { subject, known: Findings::default(), outlives: terms.outlives, terms }
    }

    /// What may be drawn for this lock.
    pub fn faults(&self, deaths: bool) -> Faults {
        let (lease_ns, holds) = (self.terms.pause_ns, self.terms.lease_ns.is_some());
        let Terms { updates, converts, divides, tunes, declares, .. } = self.terms;
        let timely = self.is_timed();
        let all = Faults { deaths, timely, lease_ns, holds, ..Faults::ALL };
        Faults { updates, converts, divides, tunes, declares, ..all }
    }

    /// Whether its clients take several locks in transactions.
    pub fn transacts(&self) -> bool {
        self.terms.transact()
    }

    /// Whether there is anything in its memory that counts, and wraps.
    pub fn counts(&self) -> bool {
        let kind = self.subject.lock.kind();
        kind.near_wrap(1) != 0 || !kind.near_wrap_behind(1).is_empty()
    }

    /// Whether it is had in parts.
    pub fn is_in_parts(&self) -> bool {
        !self.terms.parts.is_empty()
    }

    /// Whether its holds end by themselves.
    pub fn is_leased(&self) -> bool {
        self.terms.lease_ns.is_some()
    }

    /// Whether what its clients do depends on how long others take.
    pub fn is_timed(&self) -> bool {
        self.terms.waits_out_ns.is_some()
    }

    /// What the lock says of tries, withdrawals and stops.
    pub fn declares(&self) -> Declares {
        self.terms.declares
    }

    /// How long a pause is at least where every schedule is explored: longer than two leases, after
    /// which others take the lock, or than clients wait for others. Where no clock decides, as long
    /// as the schedule likes.
    pub fn pause_anywhere_ns(&self) -> Nanos {
        let waited_out = self.terms.waits_out_ns.map_or(0, |wait_ns| 2 * wait_ns);
        self.terms.lease_ns.map_or(waited_out, |lease_ns| 3 * lease_ns)
    }

    /// The fields of the lock's words.
    pub fn fields_at(&self) -> FieldsAt {
        self.subject.lock.kind().fields_at()
    }

    /// One run.
    pub fn play(&self, scenario: &Scenario, oracle: Box<dyn Oracle>) -> Verdict {
        self.play_noting(scenario, oracle, &mut RunLog::default())
    }

    /// One run, of which more is noted.
    pub fn play_noting(
        &self,
        scenario: &Scenario,
        oracle: Box<dyn Oracle>,
        log: &mut RunLog,
    ) -> Verdict {
        let answers = Rc::default();
        let oracle = Recorder::around(oracle, &answers, scenario);
        let trial = Trial::new(scenario, &self.subject, oracle, self.terms, log);
        trial.play(log, (answers, Rc::clone(&self.known)))
    }
}

impl std::fmt::Debug for Player {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Player")
    }
}

impl Trial {
    fn play(mut self, log: &mut RunLog, known: (halt::Answers, Findings)) -> Verdict {
        self.set_out();
        if self.scenario.may_stop() {
            Halts::new(&self, known).watch();
        }
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let ended = self.run_on();
            if ended == Ended::Finished && self.bench.borrow().locks_are_held_apart() {
                self.look_around();
            }
            ended
        }));
        self.handle.observe_halts(None);
        let verdict = self.judge(ended);
        *log = std::mem::take(&mut self.bench.borrow_mut().log);
        verdict
    }

    /// All have left: records must be idle, mailboxes empty, and the lock free, so that it is
    /// granted to a visitor that tries. After a death the lock may be broken: then it must be
    /// granted to a visitor that asks and waits, and be free when that is over.
    fn look_around(&self) {
        self.handle.crash_anywhere(0, Ratio::NEVER);
        let endpoint = self.handle.endpoint_at(self.scenario.clients + 1);
        let leased = self.terms.lease_ns.is_some();
        let bereaved = self.look_for_the_dead(&endpoint, leased);
        let id = endpoint.id();
        let endpoint = Watched::new(endpoint, VISITOR, self.layout, None);
        let client = self.subject.client(endpoint, self.clone_for_client().options(), 0);
        let (bench, layout) = (Rc::clone(&self.bench), self.layout);
        let order = self.subject.lock.kind().promises().order;
        // Who may pass a line learns nothing of its dead; one in so many must get in line.
        let visits = if bereaved || leased { 1 + order.bypass_max.unwrap_or(0) } else { 0 };
        // A try finds the dead by itself, where the lock says so.
        let tries = self.terms.declares.tries && visits > 0 && !leased;
        let tries = tries && self.handle.happens(Choice::Mishap, Ratio::one_in(2));
        let visits = if tries { 0 } else { visits };
        let task = self.handle.spawn(id, async move {
            for at in layout.locks() {
                for _ in 0..visits {
                    if !visit(&*client, at, layout.word(at), &bench).await {
                        return false;
                    }
                }
                let tried = client.try_acquire(layout.word(at), Mode::Exclusive).await;
                let Ok(Some(guard)) = tried else { return false };
                if guard.release().await.is_err() {
                    return false;
                }
            }
            true
        });
        // What the clients have used up is not the visitor's.
        self.handle.allow_events(EVENTS_MAX);
        let ended = self.world.run();
        if task.take() != Some(true) {
            let what =
                format!("all have left, but the lock is not free: the visit ended as {ended:?}");
            self.bench.borrow_mut().failure.get_or_insert(what);
        }
    }

    /// Buries the dead, and objects to what the living have left in their slots. Whether something
    /// is left to repair.
    fn look_for_the_dead(&self, endpoint: &SimEndpoint, leased: bool) -> bool {
        // What is left of an earlier incarnation is repaired as after a death.
        let mut bereaved = self.handle.incarnation(MEMORY) > 1;
        for (who, id) in self.ids.iter().map(Cell::get).enumerate() {
            if !endpoint.is_alive(id) {
                bereaved = true;
                self.bench.borrow_mut().buries(who as u16);
                continue;
            }
            // Notes on a repair reach even those who have left, and so does a successor's report
            // when the lease has ended before it came.
            // Who is paused in several slots at once may be taken for dead in one of them.
            let several = self.terms.crew.tasks > 1 && self.scenario.may_pause();
            let left_early =
                leased || several || self.scenario.is_deadly() || self.terms.leaves_mail;
            for slot in (0..self.terms.crew.slots(&self.scenario)).map(Slot) {
                let record = endpoint.record(id.index, slot);
                let phase = self.handle.peek(record.plus(slot::STATE as u64 * 8)) & 0xff;
                let mail = if left_early { 0 } else { self.handle.mail(id, slot) };
                if mail != 0 || Phase::from_bits(phase) != Some(Phase::Idle) {
                    let what = format!("client {who} has left with {mail} messages, phase {phase}");
                    self.bench.borrow_mut().failure.get_or_insert(what);
                }
            }
        }
        bereaved
    }

    fn judge(&self, ended: std::thread::Result<Ended>) -> Verdict {
        let mut bench = self.bench.borrow_mut();
        let finding = |objection, promise, story| Some(Finding { objection, promise, story });
        let locks = &bench.locks;
        let mut verdict = Verdict {
            events: self.handle.stats().events,
            recovered: self.scenario.is_deadly() && bench.recoveries > 0,
            rounds_max: bench.rounds.rounds_max(),
            bypass_max: locks.iter().map(|lock| lock.turns.bypass_max()).max().unwrap_or(0),
            befell: Befell {
                stale_refused: locks.iter().map(|lock| lock.goods.refused()).sum(),
                holds_recorded: locks.iter().map(|lock| lock.goods.recorded()).sum(),
                ..bench.befell
            },
            ..Verdict::default()
        };
        if self.scenario.recorded && matches!(ended, Ok(Ended::Finished)) {
            for at in self.layout.locks() {
                let words = self.layout.pair(at).map(|word| self.handle.peek(word));
                bench.locks[at].goods.closes(words);
            }
        }
        let broken = bench.violation();
        let histories = bench.locks.iter_mut().map(|lock| lock.goods.take_history());
        bench.log.history = histories.reduce(|first, _| first).expect("there is a lock");
        verdict.finding = match (broken, bench.failure.take(), ended) {
            (Some((promise, story)), ..) => finding(Objection::Violation, promise, story),
            (_, _, Err(panic)) => finding(Objection::Panic, Promise::Sense, message(&*panic)),
            (_, _, Ok(Ended::Deadlock(tasks))) => {
                let story = format!("nothing can happen, {} wait", tasks.len());
                finding(Objection::Stall, Promise::Progress, bench.stops.told_of(story))
            }
            (_, _, Ok(Ended::Budget(tasks) | Ended::TimeUp(tasks))) => {
                let story = format!("{EVENTS_MAX} events, and {} still wait", tasks.len());
                finding(Objection::Stall, Promise::Progress, bench.stops.told_of(story))
            }
            (_, Some(story), _) => finding(Objection::Leak, Promise::Idle, story),
            (_, None, Ok(Ended::Finished)) => {
                verdict.ended = true;
                None
            }
            (_, None, Ok(Ended::Abandoned)) => None,
        };
        verdict
    }
}

/// A visitor comes last: acquires the lock, however broken, and releases it. Whether it could.
async fn visit(
    client: &dyn CheckedClient<Actor>,
    at: usize,
    word: Addr,
    bench: &SharedBench,
) -> bool {
    let who = client.endpoint().id().index - 1;
    bench.borrow_mut().locks[at].count.opens(who);
    let Ok(guard) = client.acquire(word, Mode::Exclusive).await else { return false };
    {
        let bench = &mut *bench.borrow_mut();
        let token = bench.judged(at, who, Access::Exclusive, (guard.fabric_token(), 0));
        bench.locks[at].ledger.enter(VISITOR, Access::Exclusive, token);
        bench.locks[at].ledger.leave(VISITOR);
    }
    bench.borrow_mut().recoveries += recoveries(client.events());
    guard.release().await.is_ok()
}
