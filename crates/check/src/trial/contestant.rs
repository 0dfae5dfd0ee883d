//! A client on its way through its acquisitions, and what befalls it.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use farlock_fabric::{Addr, Endpoint, Fault, Nanos};
use farlock_locks::lock::LocalFuture;
use farlock_locks::{Mode, Options, ReleaseError, UpgradeError};
use farlock_sim::check::Access;
use farlock_sim::{Choice, Outcome, Ratio, SimEndpoint};

use super::super::goods::use_pair;
use super::super::mishap::{Mishap, What};
use super::super::points::{Alarm, ClientObserver, Watched};
use super::super::verdict::{is_due_to, recoveries};
use super::bench::{Actor, ActorClient, Bench, ClientView, Turned};
use super::judges::Judges;
use super::terms::{ANYWHERE_ONE_IN, Crew, MEMORY, Settles};
use crate::client::{CheckedClient, Held};
use crate::words;

/// A client on its way through its acquisitions.
pub(super) struct Contestant {
    pub(super) trial: ClientView,
    client: ActorClient,
    pub(super) who: u16,
    /// Its first acquisition in this life.
    first: u16,
    /// The incarnation of the memory to which it is attached.
    incarnation: u32,
    /// How often it may still find that it has to wait in this round, before it gives up.
    polls_left: Cell<Option<u32>>,
}

impl Contestant {
    /// The clients that act on this endpoint.
    pub(super) fn crew(trial: ClientView, endpoint: SimEndpoint, whos: Range<u16>) -> Vec<Self> {
        let first = Self::new(trial, endpoint, whos.clone(), 0);
        let others = whos.skip(1).map(|who| first.beside(who)).collect::<Vec<_>>();
        std::iter::once(first).chain(others).collect()
    }

    /// The first of these clients at this endpoint, which has some acquisitions behind it if it
    /// comes back.
    fn new(trial: ClientView, endpoint: SimEndpoint, whos: Range<u16>, first: u16) -> Self {
        let witness = trial.bench.borrow().log.witness.clone();
        let incarnation = trial.handle.incarnation(MEMORY);
        let (who, handovers_max) = (whos.start, trial.terms.crew.handovers_max);
        let endpoint = Watched::new(endpoint, who, trial.layout, witness);
        let mut endpoint = endpoint.joint(whos.len() > 1);
        if whos.len() == 1 {
            endpoint = endpoint.observed(Rc::new(trial.clone()));
        }
        // What befalls a verb with a number befalls it in the first life.
        let is_due = incarnation == 1 || trial.scenario.mishaps.is_empty();
        if trial.scenario.has_mishaps() && is_due {
            endpoint = endpoint.alarmed(Rc::new(trial.clone()));
        }
        let client = trial.subject.client(endpoint, trial.options(), handovers_max);
        Self { trial, client, who, first, incarnation, polls_left: Cell::new(None) }
    }

    /// Another client at the same endpoint.
    fn beside(&self, who: u16) -> Self {
        let (trial, client) = (self.trial.clone(), Rc::clone(&self.client));
        Self { trial, client, who, polls_left: Cell::new(None), ..*self }
    }

    pub(super) fn client(&self) -> &dyn CheckedClient<Actor> {
        &*self.client
    }

    pub(super) async fn run(self) {
        let (who, bench) = (self.who, Rc::clone(&self.trial.bench));
        self.comes_and_goes().await;
        let bench = &mut *bench.borrow_mut();
        bench.finished |= 1 << who;
        bench.remember();
    }

    async fn comes_and_goes(self) {
        for round in self.first..self.trial.scenario.acquisitions {
            self.polls_left.set(self.trial.scenario.polls(self.who, round));
            let client = self.client();
            client.endpoint().checkpoint(&[u64::from(round), client.memory()]);
            let done = match self.transaction(round) {
                _ if self.trial.scenario.tune(self.who, round).is_some() => self.tunes(round).await,
                _ if self.is_in_parts() => self.ranges(round).await,
                Some(nested) => self.transacts(round, nested).await,
                None if self.is_to_update(round) => self.updates(round).await,
                None => self.cycle(round).await,
            };
            if done.as_ref().is_err_and(|error| is_due_to(error, Fault::Stale)) {
                return self.comes_back(round);
            }
            if self.client().is_broken() || done.as_ref().is_err_and(|e| is_due_to(e, Fault::Lost))
            {
                return self.ends();
            }
            if let Err(error) = done {
                let story = format!("client {} failed: {error:#}", self.who);
                self.trial.bench.borrow_mut().failure.get_or_insert(story);
                return;
            }
        }
        let events = self.client().events();
        let bench = &mut *self.trial.bench.borrow_mut();
        bench.recoveries += recoveries(events);
        bench.befell.aborts += events.aborted;
    }

    /// The memory that it was attached to is no more. It attaches to the next, as another endpoint,
    /// and goes on where it was.
    fn comes_back(self, round: u16) {
        let (who, trial) = (self.who, self.trial);
        let endpoint = {
            let bench = &mut *trial.bench.borrow_mut();
            bench.tell(|| format!("client {who}  comes back"));
            bench.befell.came_back += 1;
            bench.came_back.push(who);
            let seat = bench.first_seat_back() + bench.came_back.len() as u16 - 1;
            trial.handle.endpoint_at(seat)
        };
        let (id, handle) = (endpoint.id(), trial.handle.clone());
        trial.ids[usize::from(who)].set(id);
        let member = Self::new(trial, endpoint, who..who + 1, round);
        let life: Pin<Box<dyn Future<Output = ()>>> = Box::pin(member.run());
        handle.spawn(id, life);
    }

    /// It does not know what became of a verb, and lets go of its endpoint, as clients must.
    fn ends(&self) {
        {
            let (who, bench) = (self.who, &mut *self.trial.bench.borrow_mut());
            bench.befell.lost += 1;
            bench.tell(|| format!("client {who}  does not know, and ends"));
        }
        let id = self.trial.ids[usize::from(self.who)].get();
        self.trial.handle.kill_with(id, Outcome::Executed);
    }

    /// Changes the lock's parameters instead of acquiring it.
    async fn tunes(&self, round: u16) -> anyhow::Result<()> {
        let Some(to) = self.trial.scenario.tune(self.who, round) else { return Ok(()) };
        let tuned = self.client().tune(self.trial.layout.word(0), to);
        match self.unless(tuned).await {
            None => self.settles(0).await,
            Some(tuned) => {
                tuned?;
                let (who, bench) = (self.who, &mut *self.trial.bench.borrow_mut());
                bench.befell.tunes += 1;
                bench.tell(|| format!("client {who}  has changed the parameters"));
                Ok(())
            }
        }
    }

    async fn cycle(&self, round: u16) -> anyhow::Result<()> {
        let (who, scenario) = (self.who, &self.trial.scenario);
        let (at, mode) = (scenario.lock(who, round), scenario.mode(who, round));
        let is_try = scenario.is_try(who, round);
        let Some((guard, access)) = self.comes(at, mode, is_try).await? else {
            return Ok(());
        };
        let used = self.looks(at, access, round).await?;
        let used = self.nests(round, used).await?;
        self.goes(at, guard.expires(), || guard.release(), used).await
    }

    /// Acquires and releases another lock within a hold, if it is to, and was not given up.
    async fn nests(&self, round: u16, used: Option<()>) -> anyhow::Result<Option<()>> {
        let nested = self.trial.scenario.nested(self.who, round);
        let (Some(()), Some((at, mode))) = (used, nested) else { return Ok(used) };
        let mut used = used;
        self.trial.handle.another_part();
        if let Some((guard, access)) = self.comes(at, mode, false).await? {
            used = self.looks(at, access, round).await?;
            self.goes(at, guard.expires(), || guard.release(), used).await?;
        }
        self.trial.handle.another_part();
        Ok(used)
    }

    /// Acquires a lock, or tries it; `None` if that was given up or in vain.
    async fn comes(
        &self,
        at: usize,
        mode: Mode,
        is_try: bool,
    ) -> anyhow::Result<Option<(Held<'_>, Access)>> {
        let (who, word) = (self.who, self.trial.layout.word(at));
        let writer = mode == Mode::Exclusive || !self.trial.shares();
        let access = if writer { Access::Exclusive } else { Access::Shared };
        self.trial.opens(at, who, access);
        let granted = match is_try {
            true => {
                self.tries(at, access);
                self.unless(self.client.try_acquire(word, mode)).await.transpose()?
            }
            false => {
                let acquire = self.client.acquire(word, mode);
                self.unless(acquire).await.transpose()?.map(Some)
            }
        };
        match granted {
            None => self.withdraws(at).await?,
            Some(None) => self.is_refused(at..at + 1, &[], access),
            Some(Some(guard)) => {
                self.enters(at, access, (guard.fabric_token(), guard.turn()), guard.expires());
                return Ok(Some((guard, access)));
            }
        }
        Ok(None)
    }

    /// Releases a hold until then, or lets go of it if what it did with it was given up.
    async fn goes<'h>(
        &self,
        at: usize,
        expires: Option<Nanos>,
        release: impl FnOnce() -> LocalFuture<'h, Result<(), ReleaseError>>,
        used: Option<()>,
    ) -> anyhow::Result<()> {
        self.leaves(at);
        if used.is_none() {
            drop(release);
            return self.settles(at).await;
        }
        self.parts(at, expires, self.unless(release()).await).await
    }

    /// The release of a hold that ended by itself at this time came to this, or was given up.
    pub(super) async fn parts(
        &self,
        at: usize,
        expires: Option<Nanos>,
        released: Option<Result<(), ReleaseError>>,
    ) -> anyhow::Result<()> {
        match released {
            None => return self.settles(at).await,
            Some(Err(ReleaseError::Lost)) if expires.is_some() => self.is_told_of_a_loss(expires),
            Some(released) => released?,
        }
        let bench = &mut *self.trial.bench.borrow_mut();
        bench.locks[at].closes(self.who);
        bench.remember();
        Ok(())
    }

    /// It was told that it lost the lock. Where clocks go as they should its time is over then, by
    /// its own clock, or the memory is another one.
    fn is_told_of_a_loss(&self, expires: Option<Nanos>) {
        let (who, trial) = (self.who, &self.trial);
        let now = trial.handle.clock(trial.ids[usize::from(who)].get());
        let is_explained = expires.is_none_or(|end| now >= end)
            || !trial.scenario.is_timely()
            || trial.scenario.restarts() > 0;
        if !is_explained {
            trial.bench.borrow_mut().objects(format!(
                "client {who} was told that it lost the lock, though its lease has not ended and \
                 nothing befell the memory"
            ));
        }
    }

    /// Whether it acquires some units of the lock.
    fn is_in_parts(&self) -> bool {
        self.trial.layout.is_in_parts() || !self.trial.scenario.ranges.is_empty()
    }

    /// What else a transaction acquires, if it acquires in one.
    fn transaction(&self, round: u16) -> Option<(usize, Mode)> {
        let scenario = &self.trial.scenario;
        let may = scenario.transacts && self.trial.terms.transact();
        scenario.nested(self.who, round).filter(|_| may)
    }

    /// Whether it acquires to update. Where clocks do not decide as they should, tokens alone tell
    /// whose time is over; those of such holds do not tell what they did.
    fn is_to_update(&self, round: u16) -> bool {
        let (scenario, leased) = (&self.trial.scenario, self.trial.terms.lease_ns.is_some());
        scenario.is_to_update(self.who, round) && (!leased || scenario.is_timely())
    }

    /// A cycle of a client that reads, and then writes, if it is not to share.
    async fn updates(&self, round: u16) -> anyhow::Result<()> {
        let (who, scenario) = (self.who, &self.trial.scenario);
        let access = if self.trial.terms.updates { Access::Update } else { Access::Exclusive };
        let at = scenario.lock(who, round);
        self.trial.opens(at, who, access);
        let update = self.client().update(self.trial.layout.word(at));
        let Some(guard) = self.unless(update).await.transpose()? else {
            return self.withdraws(at).await;
        };
        let in_time = self.enters(at, access, (guard.token(), 0), guard.expires());
        let looked = self.looks(at, Access::Update, round).await?;
        let looked = self.nests(round, looked).await?;
        let expires = guard.expires();
        if looked.is_none() || scenario.mode(who, round) == Mode::Shared {
            return self.goes(at, expires, || guard.release(), looked).await;
        }
        let Some(upgraded) = self.unless(guard.upgrade()).await else {
            self.leaves(at);
            return self.settles(at).await;
        };
        let guard = match upgraded {
            Err(UpgradeError::Lost) if expires.is_some() => {
                self.is_told_of_a_loss(expires);
                self.leaves(at);
                self.trial.bench.borrow_mut().locks[at].closes(who);
                return Ok(());
            }
            upgraded => upgraded?,
        };
        if in_time {
            self.upgrades(at, guard.expires());
        } else {
            // What was granted too late may last again: nobody came in between.
            self.enters(at, Access::Exclusive, (guard.fabric_token(), 0), guard.expires());
        }
        let used = self.looks(at, Access::Exclusive, round).await?;
        self.goes(at, guard.expires(), || guard.release(), used).await
    }

    /// Stays inside, and uses what the lock protects where that is recorded. `None` if it gives up.
    pub(super) async fn looks(
        &self,
        at: usize,
        access: Access,
        round: u16,
    ) -> anyhow::Result<Option<()>> {
        let (scenario, endpoint) = (&self.trial.scenario, self.client().endpoint());
        let used = match scenario.recorded {
            true => Some(self.uses(at, access, round).await?),
            false => {
                let read = endpoint.read64(self.trial.layout.pair(at)[0]);
                self.unless(read).await.transpose()?
            }
        };
        if scenario.hold_ns == 0 || used.is_none() {
            return Ok(used);
        }
        let stayed = self.unless(endpoint.sleep(scenario.hold_ns)).await.map(|_| ());
        if stayed.is_some() {
            self.is_visited(access).await;
        }
        Ok(stayed)
    }

    /// Reads and writes what the lock protects, and lets it be recorded.
    async fn uses(&self, at: usize, access: Access, round: u16) -> anyhow::Result<()> {
        // Nobody writes the same value twice, and nobody the first one.
        let value = u64::from(round + 1) << 16 | u64::from(self.who);
        let (bench, words) = (&self.trial.bench, self.trial.layout.pair(at));
        let called = bench.borrow_mut().locks[at].goods.begins(access, value);
        let deed = use_pair(self.client().endpoint(), words, access, value).await?;
        bench.borrow_mut().locks[at].goods.ends(called, deed);
        Ok(())
    }

    /// The output of a future, unless this client gives up when it is pending: then it is dropped.
    pub(super) async fn unless<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        poll_fn(move |cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.gives_up() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Whether this client, which is to wait, gives up instead.
    fn gives_up(&self) -> bool {
        let left = self.polls_left.get().map(|left| left - 1);
        self.polls_left.set(left.filter(|&left| left > 0));
        let (handle, bench) = (&self.trial.handle, &self.trial.bench);
        let may = bench.borrow().cancels_left > 0;
        let anywhere = may && handle.happens(Choice::Cancel, Ratio::one_in(ANYWHERE_ONE_IN));
        if left != Some(0) && !anywhere {
            return false;
        }
        let (who, bench) = (self.who, &mut *bench.borrow_mut());
        bench.cancels_left -= u32::from(anywhere);
        bench.settling |= 1 << who;
        bench.befell.given_up += 1;
        bench.tell(|| format!("client {who}  gives up"));
        bench.remember();
        true
    }

    /// It gave up while it waited for the lock.
    async fn withdraws(&self, at: usize) -> anyhow::Result<()> {
        self.is_withdrawn(at);
        self.settles(at).await
    }

    /// It is in line no more, or leaves it while it settles.
    pub(super) fn is_withdrawn(&self, at: usize) {
        let bench = &mut *self.trial.bench.borrow_mut();
        bench.locks[at].turns.leaves(self.who);
        bench.locks[at].leaves_line(self.who);
        bench.locks[at].withdrawn |= 1 << self.who;
        bench.remember();
    }

    /// It tries the lock from now on.
    pub(super) fn tries(&self, at: usize, access: Access) {
        let counting = self.trial.counting();
        let bench = &mut *self.trial.bench.borrow_mut();
        bench.locks[at].turns.leaves(self.who);
        bench.locks[at].tries.tries(self.who, access == Access::Shared, counting);
        bench.befell.tries += 1;
        bench.remember();
    }

    /// Its try was in vain, of these locks at once, and of parts that others cannot have beside it.
    pub(super) fn is_refused(&self, all: Range<usize>, beside: &[usize], access: Access) {
        let (who, bench) = (self.who, &mut *self.trial.bench.borrow_mut());
        bench.befell.tries_refused += 1;
        bench.tell(|| format!("client {who}  is refused, {}", words::access(access)));
        let places = || all.clone().chain(beside.iter().copied());
        if places().any(|at| bench.locks[at].tries.is_excused(who)) {
            places().for_each(|at| bench.locks[at].tries.excuses(who));
        }
        let mut fails = |at: usize| bench.locks[at].tries.fails(who);
        let had_reason = places().filter(|&at| fails(at)).count();
        if had_reason == 0 && self.trial.terms.declares.tries {
            bench.objects(format!(
                "client {who} tried ({access:?}) and was refused, though nobody who lives had the \
                 lock or wanted it"
            ));
        }
        all.for_each(|at| bench.locks[at].closes(who));
        beside.iter().for_each(|&at| bench.locks[at].tries.closes(who));
        bench.remember();
    }

    /// Settles what was given up, as clients must, or lets go of its endpoint.
    pub(super) async fn settles(&self, at: usize) -> anyhow::Result<()> {
        if self.trial.scenario.quits && self.trial.terms.outlives {
            let id = self.trial.ids[usize::from(self.who)].get();
            self.trial.bench.borrow_mut().tell(|| format!("client {}  quits", self.who));
            self.trial.handle.kill_with(id, Outcome::Executed);
            // This task is dropped where it stands.
            return std::future::pending().await;
        }
        match self.trial.terms.settles {
            Settles::All => poll_fn(|cx| self.client().poll_settle(cx)).await,
            Settles::One { last } => self.client().settle_one(last).await,
            Settles::Nothing => {}
        }
        let bench = &mut *self.trial.bench.borrow_mut();
        bench.settling &= !(1 << self.who);
        match self.client().is_broken() {
            // What became of its verb, and so whether it has left, is known when it is dead.
            true => bench.locks[at].turns.closes(self.who),
            false => bench.locks[at].closes(self.who),
        }
        bench.remember();
        Ok(())
    }

    pub(super) fn leaves(&self, at: usize) {
        let (who, bench) = (self.who, &mut *self.trial.bench.borrow_mut());
        let lock = &mut bench.locks[at];
        lock.ledger.leave(who);
        lock.tries.leaves(who);
        lock.leases.retain(|&(other, _)| other != who);
        bench.remember();
        let place = bench.named(at);
        bench.tell(|| format!("client {who}  leaves{place}"));
    }

    /// Whether the memory is the one to which it is attached: else it has lost what it holds.
    pub(super) fn is_in_its_memory(&self) -> bool {
        self.trial.handle.incarnation(MEMORY) == self.incarnation
    }

    /// It holds exclusively from now on, if its time is not over.
    fn upgrades(&self, at: usize, expires: Option<Nanos>) {
        let (who, trial) = (self.who, &self.trial);
        let bench = &mut *trial.bench.borrow_mut();
        if !self.is_in_its_memory() {
            return;
        }
        bench.locks[at].leases.retain(|&(other, _)| other != who);
        bench.locks[at].leases.extend(expires.map(|end| (who, end)));
        if !trial.leases_end(bench).contains(&(at, who)) {
            self.buries(bench);
            bench.locks[at].ledger.upgrade(who);
            bench.locks[at].tries.leaves(who);
            bench.tell(|| format!("client {who}  upgrades"));
        }
        bench.remember();
    }

    /// The dead hold nothing.
    pub(super) fn buries(&self, bench: &mut Bench) {
        if !self.trial.scenario.is_deadly() {
            return;
        }
        for (other, id) in (0..).zip(self.trial.ids.iter().map(Cell::get)) {
            if !self.client().endpoint().is_alive(id) {
                bench.buries(other);
                bench.locks.iter_mut().for_each(|lock| lock.turns.leaves(other));
            }
        }
    }

    /// It is granted the lock before others that are in line: whether the lock says that it may.
    fn passes(&self, at: usize, bench: &mut Bench) {
        if bench.crew != Crew::ALONE {
            // It passes all of whom it is sure that they are in line.
            bench.locks[at].turns.acts(self.who);
        }
        let mut passed = bench.locks[at].turns.enters(self.who);
        // A waiter that gave up is carried to its grant and out unseen, and may let readers in.
        passed.writer_kept_out =
            passed.writer_kept_out.filter(|_| !self.trial.scenario.may_give_up());
        let in_order = bench.order_outlives_counts || bench.befell.wraps == 0;
        if let (true, Some(story)) = (in_order, bench.order.objection(self.who, passed)) {
            bench.bypassed.get_or_insert(story);
        }
    }

    /// It is granted the lock, with the token of a hold that was handed on so often.
    /// Whether it learns that in time.
    pub(super) fn enters(
        &self,
        at: usize,
        access: Access,
        token: Turned,
        expires: Option<Nanos>,
    ) -> bool {
        let (who, trial) = (self.who, &self.trial);
        let bench = &mut *trial.bench.borrow_mut();
        bench.locks[at].inside |= 1 << who;
        if bench.stops.is_granted(who) {
            trial.handle.abandon();
        }
        if trial.handle.incarnation(MEMORY) != self.incarnation {
            bench.tell(|| format!("client {who}  learns of a grant of the old memory"));
            return false;
        }
        bench.locks[at].leases.extend(expires.map(|end| (who, end)));
        if trial.leases_end(bench).contains(&(at, who)) {
            bench.remember();
            bench.tell(|| format!("client {who}  is granted too late"));
            return false;
        }
        self.buries(bench);
        self.passes(at, bench);
        let turn = if bench.crew.tells_turns { token.1 } else { 0 };
        let mut token = bench.judged(at, who, access, (token.0, turn));
        if trial.terms.lease_ns.is_some() && !trial.scenario.is_timely() {
            // Nothing is promised but that a holder's token tells whether its time is over; and a
            // reader's not even that where readers' releases may be late.
            bench.locks[at].ledger.leave_all();
            token = token.filter(|_| access == Access::Exclusive || trial.terms.readers_tell());
            if token.is_some_and(|token| bench.locks[at].granted.comes_late(access, token)) {
                bench.befell.stale += 1;
                bench.remember();
                bench
                    .tell(|| format!("client {who}  is too late, {}", words::grant(access, token)));
                return false;
            }
        }
        bench.locks[at].ledger.enter(who, access, token);
        let overtaken = bench.locks[at].tries.overtaken(who);
        bench.locks[at].leaves_line(who);
        if overtaken != 0 && trial.lets_nobody_wait_for_nothing() {
            bench.objects(passes_those_that_run(who, access, overtaken));
        }
        bench.locks[at].tries.enters(who, access == Access::Shared);
        if let (true, Access::Exclusive, Some(token)) = (trial.scenario.fenced, access, token) {
            let id = trial.ids[usize::from(who)].get();
            bench.locks[at].goods.sends(id, at, token, &trial.handle);
        }
        let place = bench.named(at);
        bench.tell(|| format!("client {who}  enters{place} {}", words::grant(access, token)));
        bench.remember();
        true
    }
}

/// What is said of a try that got the lock before these clients.
fn passes_those_that_run(who: u16, access: Access, overtaken: u64) -> String {
    format!(
        "client {who} tried ({access:?}) and got the lock, though others that run ({}) were in \
         line before it did",
        members(overtaken)
    )
}

/// These clients, by their numbers.
fn members(mask: u64) -> String {
    let members: Vec<_> =
        (0..64).filter(|who| mask >> who & 1 != 0).map(|who| who.to_string()).collect();
    members.join(", ")
}

impl ClientView {
    /// Whether those in line do what they can before waits end by the clock: nobody is stopped or
    /// dead, and time passes only when nothing else can happen.
    fn lets_nobody_wait_for_nothing(&self) -> bool {
        let scenario = &self.scenario;
        let is_calm = !scenario.hasty && !scenario.is_deadly() && !scenario.may_pause();
        is_calm && self.terms.declares.tries && self.terms.declares.passes
    }

    /// Whether shared holders really share.
    pub(super) fn shares(&self) -> bool {
        self.subject.lock.kind().shares()
    }

    /// What a client is made with that begins now.
    pub(super) fn options(&self) -> Options {
        let looks = self.terms.looks_at_incarnation;
        Options::new(if looks { self.handle.incarnation(MEMORY) as u16 } else { 1 })
    }

    /// `who` wants a lock.
    pub(super) fn opens(&self, at: usize, who: u16, access: Access) {
        let bench = &mut *self.bench.borrow_mut();
        bench.locks[at].opens(who, access);
        bench.remember();
    }

    /// A lock's word as it is now.
    fn whole_word(&self, at: usize) -> u128 {
        let word = self.layout.word(at);
        let half = |offset| u128::from(self.handle.peek(word.plus(offset)));
        half(0) | half(8) << 64
    }

    /// Something befalls a client that is about to post a verb.
    fn befalls(&self, who: u16, what: What) {
        // Who is to show whether it holds does so undisturbed.
        if self.bench.borrow().stops.is_probing() {
            return;
        }
        if matches!(what, What::Stop | What::StopInWait) {
            self.bench.borrow_mut().tell(|| format!("client {who}  {what}"));
            self.stops(who, what);
            self.bench.borrow().remember();
            return;
        }
        let (bench, id) = (&mut *self.bench.borrow_mut(), self.ids[usize::from(who)].get());
        bench.tell(|| format!("client {who}  {what}"));
        match what {
            What::Pause(ns) => {
                self.handle.pause(id, ns);
                bench.befell.pauses += 1;
            }
            What::Stop | What::StopInWait => {}
            What::Jump(ns) => {
                self.handle.jump_clock(id, ns);
                bench.befell.bad_clocks += 1;
            }
            What::Lost(outcome) => self.handle.lose_next(id, outcome),
            What::Save => self.handle.save_node(MEMORY),
            What::Restart(reset) => {
                self.handle.reset_node(MEMORY, reset);
                // Every holder has lost the lock, and learns that when it next posts a verb.
                for (at, lock) in bench.locks.iter_mut().enumerate() {
                    lock.ledger.leave_all();
                    lock.leases.clear();
                    lock.count.restarts(self.whole_word(at));
                }
                bench.befell.restarts += 1;
                bench.remember();
            }
        }
    }

    /// A holder whose lease is over, by its own clock, holds no longer: which lock, and who.
    fn leases_end(&self, bench: &mut Bench) -> Vec<(usize, u16)> {
        let is_over =
            |end: Nanos, who: u16| self.handle.clock(self.ids[usize::from(who)].get()) >= end;
        let leases = |(at, lock): (usize, &Judges)| {
            let over = lock.leases.iter().filter(|&&(who, end)| is_over(end, who));
            over.map(|&(who, _)| (at, who)).collect::<Vec<_>>()
        };
        let over: Vec<_> = bench.locks.iter().enumerate().flat_map(leases).collect();
        for &(at, who) in &over {
            bench.locks[at].leases.retain(|&(other, _)| other != who);
            bench.locks[at].ledger.leave(who);
            bench.befell.overstayed += 1;
            let place = bench.named(at);
            bench.tell(|| format!("client {who}  has held{place} to the end of its lease"));
        }
        over
    }
}

impl ClientObserver for ClientView {
    fn opens(&self, who: u16, lock: Addr) {
        let at = self.layout.lock(lock).expect("clients open locks");
        let counted = self.layout.counted_with(at);
        self.bench.borrow_mut().locks[counted].iter_mut().for_each(|lock| lock.count.opens(who));
    }

    fn acts(&self, who: u16) {
        self.bench.borrow_mut().acts_beside_readers(who);
    }
}

impl Alarm for ClientView {
    fn next(&self, who: u16, verb: u64) -> u64 {
        if !self.scenario.mishaps_anywhere.is_empty() {
            return verb;
        }
        let is_mine = |m: &&Mishap| self.terms.crew.first(m.who) == who;
        let later = self.scenario.mishaps.iter().filter(is_mine).filter(|m| m.verb >= verb);
        later.map(|mishap| mishap.verb).min().unwrap_or(u64::MAX)
    }

    fn rings(&self, who: u16, verb: u64) {
        let is_mine = |m: &&Mishap| self.terms.crew.first(m.who) == who;
        let due = self.scenario.mishaps.iter().filter(is_mine).filter(|m| m.verb == verb);
        let due = due.filter(|mishap| mishap.what != What::StopInWait);
        due.for_each(|mishap| self.befalls(who, mishap.what));
        self.anything_befalls(who, false);
    }

    fn waits(&self, who: u16, verbs: u64) {
        for (index, mishap) in self.scenario.mishaps.iter().enumerate() {
            let is_due = mishap.what == What::StopInWait && mishap.verb < verbs;
            if is_due && mishap.who == who && self.bench.borrow_mut().stops.is_first(index) {
                self.befalls(who, mishap.what);
            }
        }
        self.anything_befalls(who, true);
    }
}

impl ClientView {
    /// Whatever may befall anybody anywhere, if the schedule says so.
    fn anything_befalls(&self, who: u16, waits: bool) {
        for (index, &(_, what)) in self.scenario.mishaps_anywhere.iter().enumerate() {
            // Who holds may keep what it has, and is paused elsewhere.
            let bench = self.bench.borrow();
            let holds = bench.locks.iter().any(|lock| lock.inside >> who & 1 != 0);
            let left = bench.mishaps_left[index];
            drop(bench);
            if waits && what != What::Stop || holds && what == What::Stop {
                continue;
            }
            if left > 0 && self.handle.happens(Choice::Mishap, Ratio::one_in(ANYWHERE_ONE_IN)) {
                self.bench.borrow_mut().mishaps_left[index] = left - 1;
                self.befalls(who, if waits { What::StopInWait } else { what });
                self.bench.borrow().remember();
            }
        }
    }
}
