//! A lock under every judge there is: each effect is shown to them, each grant and each release is
//! told to them.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, ensure};
use farlock_check::client::{AnyLock, named};
use farlock_check::order::Order;
use farlock_fabric::{Addr, Endpoint};
use farlock_locks::{Mode, Options};
use farlock_sim::check::{Access, Ledger, Register, Turns};
use farlock_sim::{Config, Effect, Ended, Kind, Weakness, World};

use super::figure::{Course, Figure, Parameters, Round};
use crate::subject::Simulated;
use crate::workload::{Dist, Workload};

/// As many as a ledger tells apart.
const CLIENTS: u16 = 64;
const LOCKS: u64 = 1_000;
const READS: u8 = 50;
const ACQUISITIONS_PER_CLIENT: u64 = 2_000;

/// Events a second of this lock under every judge.
pub(super) fn judged(subject: &'static str) -> Figure {
    let parameters = Parameters {
        figure: "judged",
        subject,
        unit: "events",
        clients: CLIENTS,
        locks: LOCKS,
        reads: READS,
    };
    Figure { parameters, run: Box::new(move |course| run(subject, course)) }
}

/// The judges of one lock.
#[derive(Clone)]
struct Judges {
    ledger: Ledger,
    turns: Turns,
    register: Register,
    /// What they object to, besides what the ledger keeps.
    objection: Option<String>,
}

impl Judges {
    fn new() -> Self {
        let (ledger, turns) = (Ledger::default(), Turns::default());
        Self { ledger, turns, register: Register::FENCED, objection: None }
    }

    /// `who` holds the lock, and writes with its token what the lock protects.
    fn enter(&mut self, who: u16, access: Access, token: Option<u64>, order: Order) {
        self.ledger.enter(who, access, token);
        if let Some(objection) = order.objection(who, self.turns.enters(who)) {
            self.objection.get_or_insert(objection);
        }
        if access == Access::Exclusive
            && token.is_some_and(|token| self.register.write(token, u64::from(who)).is_err())
        {
            self.objection.get_or_insert_with(|| "a token was stale".to_owned());
        }
    }

    /// `who` has released the lock.
    fn close(&mut self, who: u16) {
        self.turns.closes(who);
    }

    fn verdict(&self) -> Result<(), String> {
        let objection = self.ledger.violation().or(self.objection.as_deref());
        objection.map_or(Ok(()), |objection| Err(objection.to_owned()))
    }
}

type Jury = Rc<RefCell<Vec<Judges>>>;

fn run(subject: &str, course: Course) -> anyhow::Result<Round> {
    let (seed, weakness) = (course.seed, Weakness::NONE);
    let world = World::new(Config { seed, endpoints: CLIENTS, weakness, ..Config::default() });
    let jury: Jury = Rc::new(RefCell::new(vec![Judges::new(); LOCKS as usize]));
    let lock = named(subject)?;
    for who in 0..CLIENTS {
        Member { world: &world, jury: &jury, course, who }.spawn(&*lock);
    }
    let begun = Instant::now();
    let ended = world.run();
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(ended == Ended::Finished, "{subject}: the world ended in {ended:?}");
    for judges in jury.borrow().iter() {
        judges.verdict().map_err(anyhow::Error::msg).with_context(|| subject.to_owned())?;
    }
    Ok(Round { count: world.stats().events, hash: world.trace_hash(), seconds })
}

/// A client of the lock.
struct Member<'a> {
    world: &'a World,
    jury: &'a Jury,
    course: Course,
    who: u16,
}

impl Member<'_> {
    /// Where the locks lie; the first client makes them.
    fn locks(&self, bytes: u64) -> Addr {
        let base = Addr::new(farlock_fabric::RegionId(1), 0);
        if self.who == 0 {
            let region = self.world.region(self.world.node(), LOCKS * bytes);
            assert!(region == base, "the locks are the second region, after the records");
            let jury = Rc::clone(self.jury);
            self.world.observe(Box::new(move |effect| see(&jury, base, bytes, effect)));
        }
        base
    }

    fn spawn(&self, lock: &dyn AnyLock<Simulated>) {
        let (bytes, shares) = (lock.kind().bytes(), lock.kind().shares());
        let (base, who, jury) = (self.locks(bytes), self.who, Rc::clone(self.jury));
        let workload = Workload {
            locks: LOCKS,
            dist: Dist::Uniform,
            reads: READS,
            seed: self.course.seed,
            dealt: 1,
            ranges: None,
        };
        let mut draws = workload.draws(usize::from(who));
        let acquisitions = self.course.scaled(ACQUISITIONS_PER_CLIENT);
        let endpoint = self.world.endpoint();
        let id = endpoint.id();
        let order = Order::promised(lock.kind().promises().order);
        let client = lock.client(Simulated::new(endpoint), Options::new(1));
        self.world.spawn(id, async move {
            for _ in 0..acquisitions {
                let (lock, mode) = draws.draw();
                let mode = if shares { mode } else { Mode::Exclusive };
                let exclusive = mode == Mode::Exclusive;
                let access = if exclusive { Access::Exclusive } else { Access::Shared };
                jury.borrow_mut()[lock as usize].turns.opens(who, access);
                let addr = base.plus(u64::from(lock) * bytes);
                let guard = client.acquire(addr, mode).await.expect("nothing fails here");
                let token = guard.fabric_token().map(|token| token.get());
                jury.borrow_mut()[lock as usize].enter(who, access, token, order);
                client.endpoint().sleep(1).await;
                jury.borrow_mut()[lock as usize].ledger.leave(who);
                guard.release().await.expect("nothing fails here");
                jury.borrow_mut()[lock as usize].close(who);
            }
        });
    }
}

/// An effect took place.
fn see(jury: &Jury, base: Addr, bytes: u64, effect: &Effect) {
    let atomic = !matches!(effect.kind, Kind::Read | Kind::Write | Kind::Send);
    if atomic && effect.addr.region() == base.region() {
        let lock = (effect.addr.offset() / bytes) as usize;
        // Endpoints are numbered from 1, clients from 0.
        jury.borrow_mut()[lock].turns.acts(effect.endpoint.index - 1);
    }
}
