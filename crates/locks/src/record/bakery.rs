//! The bakery: how clients of DSLR wait for their tickets to be served, whatever word holds the
//! counters (Yoon, Chowdhury, Mozafari: DSLR, SIGMOD'18, sections 4.3 to 4.6).
//!
//! There are tickets of two kinds. A client's ticket says how many of each kind were taken before
//! it; a counter of each kind says how many were given back. A writer's turn is when all before it
//! were given back, a reader's when all exclusive ones were. Who comes to update has an exclusive
//! ticket, and its turn as early as a reader's: it waits once more before it writes (section 5.2).
//! If it gives back without that, it has passed the readers before it; they see that their turn is
//! over, and take that for their turn.
//!
//! For the dead, others give back. A client publishes that it *opens* a lock before it takes a
//! ticket, and the ticket itself before it waits or holds. So if the counters are read first and
//! the records of the living after, then a ticket that was taken and that no living client has
//! belongs to the dead, unless a living one still opens. Nobody is ever taken for dead for being
//! slow, everybody keeps the ticket it has, and a client that gives back for the dead compares the
//! counters: of two that do it at once, one succeeds.

use farlock_fabric::{Addr, Endpoint, EndpointId, Nanos, Patience, Verb, Wait, Woken};

use crate::prelude::*;
pub use crate::promise::LEASE_NS;
use crate::repair::{self, Participant, SecondLook};
use crate::width;

/// The pause between two reads for each ticket ahead, in nanoseconds: a round trip, as ShiftLock's
/// artifact has it. The paper's 5 us are for slower hardware.
pub const OMEGA_NS: Nanos = 1_862;
/// How long those ahead are trusted where looking around costs no round trips, in nanoseconds.
const TRUST_NS: Nanos = 100_000;
/// How long they are then trusted if there are too many to watch, in nanoseconds.
const TRUST_AGAIN_NS: Nanos = 10_000_000;
/// Clocks go apart by at most one part in so many.
pub(crate) const DRIFT_ONE_IN: u64 = 10_000;
/// The bounds of the random pause of those who begin again (section A.3: R and L), in nanoseconds.
const BACKOFF_NS: (Nanos, Nanos) = (10_000, 10_000_000);
/// After so many doublings the bound is the highest.
pub(crate) const BACKOFF_TIMES_MAX: u64 = 10;
/// The most peers watched in one wait.
const WATCHED_MAX: usize = 64;

/// The largest count of tickets of one kind. Counts wrap.
const COUNT_MAX: u16 = u16::MAX >> (u16::BITS - width::TICKETS);

/// Of so many exclusive tickets in a row the holder of one passes no reader. By less than that is a
/// reader passed, so that counts tell whether its turn is over or yet to come; half of what they
/// tell must be above that and those in line together.
const PASSING: u16 = 1 << width::PASSING;

/// How many tickets were counted between `earlier` and `count`.
const fn between(earlier: u16, count: u16) -> u16 {
    count.wrapping_sub(earlier) & COUNT_MAX
}

/// A number of tickets of each kind. Counts wrap.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tickets {
    /// Exclusive ones.
    pub x: u16,
    /// Shared ones.
    pub s: u16,
}

impl Tickets {
    /// As a slot record holds it.
    #[inline]
    pub const fn bits(self) -> u32 {
        (self.x as u32) << 16 | self.s as u32
    }

    /// Out of a slot record.
    pub const fn from_bits(bits: u32) -> Self {
        Self { x: (bits >> 16) as u16, s: bits as u16 }
    }

    /// After so many more were taken or given back in this mode.
    #[inline]
    pub const fn plus(self, mode: Mode, slots: u16) -> Self {
        match mode {
            Mode::Exclusive => Self { x: self.x.wrapping_add(slots) & COUNT_MAX, ..self },
            Mode::Shared => Self { s: self.s.wrapping_add(slots) & COUNT_MAX, ..self },
        }
    }
}

/// A place in line: a ticket, and how the lock is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// How the lock is wanted.
    pub mode: Mode,
    /// Whether the turn of an exclusive ticket comes when only readers are left before it: its
    /// holder reads beside them, until it has waited once more.
    pub beside_readers: bool,
    /// What was taken before.
    pub ticket: Tickets,
    /// The generation in which it was taken.
    pub generation: u64,
}

impl Place {
    /// The place of a client that comes to update, with a ticket worth so many slots. It is beside
    /// the readers before it, unless it is the last of its row, that passes nobody.
    pub(crate) const fn to_update(ticket: Tickets, slots: u16, generation: u64) -> Self {
        let row_ends_after = (PASSING - 1).wrapping_sub(ticket.x) % PASSING;
        let beside_readers = row_ends_after >= slots;
        Self { mode: Mode::Exclusive, beside_readers, ticket, generation }
    }

    /// Publishes what the slot is doing at this place.
    fn publish<E: Endpoint>(&self, site: &Site<'_, E>, phase: Phase) {
        site.publish_ticket(phase, self.mode, self.generation, self.ticket.bits());
    }

    /// Whether it is this place's turn when so many were given back.
    #[inline]
    pub fn is_served(&self, served: Tickets) -> bool {
        match self.mode {
            // Some who held to update beside this reader may have released before it looked.
            Mode::Shared => between(self.ticket.x, served.x) < PASSING,
            Mode::Exclusive => {
                served.x == self.ticket.x && (self.beside_readers || served.s == self.ticket.s)
            }
        }
    }

    /// Whether it does not wait for readers.
    fn passes_readers(&self) -> bool {
        self.mode == Mode::Shared || self.beside_readers
    }

    /// For how many others it waits.
    fn ahead(&self, served: Tickets) -> u32 {
        let exclusive = between(served.x, self.ticket.x);
        match self.passes_readers() {
            true => u32::from(exclusive),
            false => u32::from(exclusive) + u32::from(between(served.s, self.ticket.s)),
        }
    }

    /// How many slots the tickets ahead are worth at most.
    fn slots(&self, served: Tickets) -> u32 {
        let ahead = |served, mine| u32::from(between(served, mine));
        ahead(served.x, self.ticket.x) + ahead(served.s, self.ticket.s)
    }

    /// Whether `other` took its ticket earlier, if either is a writer. Exclusive tickets tell: who
    /// comes after a writer finds one more of them taken. Shared ones do not, since any number of
    /// readers may come and go while one holds.
    fn is_behind(&self, other: &Self) -> bool {
        let later = between(other.ticket.x, self.ticket.x);
        later <= COUNT_MAX / 2 && (other.mode == Mode::Shared || later > 0)
    }

    /// What was served once the dead before this place have given back. `living` are the places of
    /// all others that live.
    ///
    /// A dead writer's ticket is given back when the readers before it have left, as if it had held
    /// after them: those as well that holders to update have passed. Dead readers' tickets are
    /// given back by the writer after them, when no living reader is left before it.
    pub fn without_the_dead(&self, mut served: Tickets, living: &[Self]) -> Tickets {
        let living = || living.iter().filter(|p| p.generation == self.generation);
        let keeps = |x: u16| {
            let dead = Self { mode: Mode::Exclusive, ticket: Tickets { x, s: 0 }, ..*self };
            let before = |p: &Self| p.mode == Mode::Shared && dead.is_behind(p);
            living().any(|place| place.ticket.x == x || before(place))
        };
        while served.x != self.ticket.x && !keeps(served.x) {
            served = served.plus(Mode::Exclusive, 1);
        }
        let readers_left = living().any(|p| p.mode == Mode::Shared && self.is_behind(p));
        if self.mode == Mode::Exclusive && served.x == self.ticket.x && !readers_left {
            served.s = self.ticket.s;
        }
        served
    }
}

/// How the counters lie in a lock's word.
pub trait Counters {
    /// How many were given back, of the word's first eight bytes.
    fn served(word: u64) -> Tickets;

    /// The generation of the counters; 0 where there is none.
    fn generation(word: u64) -> u64;

    /// Whether the ticket of this place is void.
    fn is_void(word: u64, place: Place) -> bool;

    /// Whether the word tells that only for a while: until counters that go back to zero have come
    /// as far again. They do so no sooner than two leases after tickets became void.
    const FORGETS: bool;

    /// The bits of `seen` that [`Counters::serve`] and [`Counters::reset`] compare.
    const SERVE_MASK: u64;

    /// The verb that changes how many were given back, if they still are what they were in `seen`.
    fn serve(lock: Addr, seen: u64, served: Tickets) -> Verb<'static>;

    /// The verb that makes all tickets void, if the same holds.
    fn reset(lock: Addr, seen: u64) -> Verb<'static>;
}

/// A bound on how long anybody holds (section 4.7). All clients of a lock must agree on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// For each slot that a ticket is worth, in nanoseconds.
    pub ns: Nanos,
    /// How many slots a ticket may be worth (section 5.1).
    pub slots_max: u16,
}

impl Lease {
    /// When a hold ends that was certainly not granted before `since`, by the holder's own clock.
    fn end(self, since: Nanos, slots: u16) -> Nanos {
        let ns = self.ns.saturating_mul(slots.into());
        since.saturating_add(ns - ns / DRIFT_ONE_IN)
    }

    /// How long nothing must change before those ahead have certainly lost the lock: twice the
    /// lease of the longest ticket among so many slots. The second half is for what the holder
    /// posted at the last moment.
    pub(crate) fn stall_ns(self, slots_ahead: u32) -> Nanos {
        let slots = slots_ahead.clamp(1, self.slots_max.into());
        self.ns.saturating_mul(2 * Nanos::from(slots))
    }

    /// How long counters in which nobody counts stay as they are before they go back to zero.
    pub(crate) fn memory_ns(self) -> Nanos {
        self.stall_ns(1)
    }

    /// Whether what was last known `since` may have been forgotten by `now`.
    fn may_be_forgotten(self, since: Nanos, now: Nanos) -> bool {
        let memory_ns = self.memory_ns();
        now.saturating_sub(since) >= memory_ns - memory_ns / DRIFT_ONE_IN
    }
}

/// The shortest lease, in nanoseconds: some round trips.
const LEASE_NS_MIN: Nanos = 10_000;
/// The most slots that a ticket may be worth: with 16 clients a quarter of a counter's range.
const SLOTS_MAX: u16 = 1_024;

impl Lease {
    /// `lease=NANOS`: how long a holder may hold before others take the lock away;
    /// `slots-max=COUNT`: how many leases any client may take at once, 1 if not given;
    /// `slots=COUNT`: how many this client takes.
    pub(crate) fn option<'l>(
        lease: &'l mut Option<Self>,
        slots: &'l mut u16,
        name: &str,
    ) -> Option<Setting<'l>> {
        let none_yet = Self { ns: 0, slots_max: 1 };
        match name {
            "lease" => Some(Setting::nanos(&mut lease.get_or_insert(none_yet).ns, LEASE_NS_MIN)),
            "slots-max" => {
                let lease = lease.get_or_insert(none_yet);
                Some(Setting::count(&mut lease.slots_max, 1..=SLOTS_MAX))
            }
            "slots" => Some(Setting::count(slots, 1..=SLOTS_MAX)),
            _ => None,
        }
    }

    /// What is wrong with these options together.
    pub(crate) fn conflict(
        lease: Option<Self>,
        slots: u16,
    ) -> Option<(&'static str, &'static str)> {
        if lease.is_some_and(|lease| lease.ns == 0) {
            return Some(("slots-max", "only with a lease"));
        }
        let too_many = slots > lease.map_or(1, |lease| lease.slots_max);
        too_many.then_some(("slots", "at most slots-max"))
    }
}

/// What came of waiting for a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// It came, and the word is as `seen`. Until `since`, by the waiter's clock, it certainly had
    /// not.
    Mine { since: Nanos, seen: u64 },
    /// The ticket became void, or may have.
    Void,
}

/// How a waiter spends its time.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// The pause between two reads, for each ticket ahead, in nanoseconds.
    pub omega_ns: Nanos,
    /// The pause whatever is ahead, in nanoseconds, if not `None`.
    pub fixed_ns: Option<Nanos>,
    /// After how long others may take the lock away; never from the living if `None`.
    pub lease: Option<Lease>,
    /// How waits spend their time where the back end has a choice.
    pub patience: Patience,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { omega_ns: OMEGA_NS, fixed_ns: None, lease: None, patience: Patience::DEFAULT }
    }
}

impl Waiting {
    /// `omega=NANOS`: the pause between two reads for each ticket ahead; `fixed=NANOS`: the pause
    /// whatever is ahead; `spins=COUNT`, `yields=COUNT`.
    pub(crate) fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        match name {
            "omega" => Some(Setting::nanos(&mut self.omega_ns, 1)),
            "fixed" => Some(Setting::nanos(self.fixed_ns.get_or_insert(0), 1)),
            _ => Setting::patience(&mut self.patience, name),
        }
    }

    /// The pause before the next read: in proportion to those ahead, at most a quarter of the lease
    /// (section 4.6 has no bound: with 2,000 tickets ahead it would be a lease).
    pub(crate) fn pause_ns(&self, ahead: u32) -> Nanos {
        let dynamic = self.omega_ns.saturating_mul(Nanos::from(ahead.max(1)));
        let lease_ns = self.lease.map_or(LEASE_NS, |lease| lease.ns);
        self.fixed_ns.unwrap_or(dynamic.min(lease_ns / 4))
    }

    /// When a waiter asks whether it is its turn, as far as that matters.
    pub(crate) fn asks<E: Endpoint>(&self, endpoint: &E) -> Nanos {
        self.lease.map_or(0, |_| endpoint.now())
    }

    /// When a hold ends that was not granted before `since`.
    pub(crate) fn expires(&self, since: Nanos, slots: u16) -> Nanos {
        self.lease.map_or(Nanos::MAX, |lease| lease.end(since, slots))
    }

    /// Whether the word has not been seen for so long that it may have forgotten who lost it.
    fn may_be_forgotten<C: Counters, E: Endpoint>(&self, endpoint: &E, since: Nanos) -> bool {
        let lease = self.lease.filter(|_| C::FORGETS);
        lease.is_some_and(|lease| lease.may_be_forgotten(since, endpoint.now()))
    }
}

impl<E: Endpoint> Protocol<'_, E, Waiting> {
    /// Waits for the turn of `place`, which had not come `since`.
    pub(crate) async fn turn<C: Counters>(self, place: Place, mut since: Nanos) -> Outcome<Turn> {
        place.publish(&self, Phase::Waiting);
        let lease_ns = self.rules.lease.map_or(LEASE_NS, |lease| lease.ns);
        let (mut doubt, mut stall) = (Doubt::of::<E>(lease_ns), Stall::default());
        let mut is_late = false;
        loop {
            let asked = self.rules.asks(self.endpoint);
            let seen = self.read().await?;
            if C::is_void(seen, place) {
                return Ok(Turn::Void);
            }
            // Who looks late no longer trusts its turn, but keeps its place until all are void: if
            // all who are late left their tickets in the way, nobody would ever lose patience.
            is_late |= self.rules.may_be_forgotten::<C, E>(self.endpoint, since);
            let served = C::served(seen);
            // Who comes later renews no trust in those ahead.
            doubt.sees(served.bits().into());
            if place.is_served(served) {
                return Ok(if is_late { Turn::Void } else { Turn::Mine { since, seen } });
            }
            since = asked;
            if is_late {
                // Of a later round it cannot tell whom it would help.
                doubt = Doubt::of::<E>(lease_ns);
            } else if doubt.is_due() {
                place.publish(&self, Phase::Repairing);
                let helped = self.helps::<C>(&mut doubt, place, seen).await?;
                place.publish(&self, Phase::Waiting);
                if helped {
                    continue;
                }
            }
            let left_ns =
                self.rules.lease.map(|l| stall.left_ns(served, l.stall_ns(place.slots(served))));
            if left_ns == Some(0) {
                match self.resets::<C>(seen).await? {
                    true => return Ok(Turn::Void),
                    false => continue,
                }
            }
            let late = u64::from(is_late);
            self.endpoint.checkpoint(&[seen, doubt.hash(), stall.quiet_ns, since, late]);
            let pause_ns = (!E::WATCHES_MEMORY).then(|| self.rules.pause_ns(place.ahead(served)));
            // Soon enough to look again before the word forgets.
            let lease_ns = self.rules.lease.filter(|_| C::FORGETS).map(|lease| lease.ns);
            let interval = [pause_ns, left_ns, lease_ns].into_iter().flatten().min();
            let passed_ns = doubt.wait(&self, seen, interval, self.rules.patience).await;
            if self.rules.lease.is_some() {
                stall.quiet_ns += passed_ns;
            }
        }
    }

    /// Makes all tickets void, unless one was given back since `seen`. Whether it did.
    pub(crate) async fn resets<C: Counters>(self, seen: u64) -> Outcome<bool> {
        let is_reset =
            (self.verb(C::reset(self.lock, seen)).await? as u64 ^ seen) & C::SERVE_MASK == 0;
        if is_reset {
            let generation = C::generation(seen);
            self.event(Event::Repaired { lock: self.lock, generation, dead_readers: 0 });
        }
        Ok(is_reset)
    }

    /// Looks around, and gives back for the dead. Whether the word may have changed.
    async fn helps<C: Counters>(self, doubt: &mut Doubt, place: Place, seen: u64) -> Outcome<bool> {
        let served = C::served(seen);
        let matters = |p: &Participant| is_ahead::<C>(p, place, seen);
        let Some(present) = doubt.look_around(&self, matters).await? else { return Ok(false) };
        let living: Vec<Place> = present.iter().filter_map(|p| place_of::<C>(p, seen)).collect();
        let without_the_dead = place.without_the_dead(served, &living);
        if without_the_dead == served {
            // That a writer has released the word tells, if its ticket is known; of readers, and of
            // those that hold more than this word, it does not.
            let may_have_left = |p: &Participant| {
                let record = &p.record;
                record.phase == Phase::Held
                    && (record.mode == Mode::Shared || record.part.is_some())
            };
            if present.iter().any(may_have_left) {
                doubt.trust_for_a_while();
            }
            return Ok(false);
        }
        self.give_back::<C>(seen, without_the_dead).await?;
        doubt.trust_again();
        Ok(true)
    }

    /// Gives back for the dead. The loser of this race reads again, and looks again where it must.
    async fn give_back<C: Counters>(self, seen: u64, served: Tickets) -> Outcome<()> {
        if (self.verb(C::serve(self.lock, seen, served)).await? as u64 ^ seen) & C::SERVE_MASK == 0
        {
            let dead_readers = u64::from(between(C::served(seen).s, served.s));
            let generation = C::generation(seen);
            self.peer_died(EndpointId::NOBODY);
            self.event(Event::Repaired { lock: self.lock, generation, dead_readers });
        }
        Ok(())
    }
}

/// How long nothing has changed.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Stall {
    served: Tickets,
    /// At least so long, in nanoseconds: the pauses between reads that all saw the same, and so
    /// less than from the completion of the first to the posting of the last. That neither counter
    /// has changed is what counts: where readers come and go, one of them always does. Counted only
    /// where there are leases, and no further than to their end.
    pub(crate) quiet_ns: Nanos,
}

impl Stall {
    /// How long nothing must change any more until nothing has changed for `limit_ns`.
    pub(crate) fn left_ns(&mut self, served: Tickets, limit_ns: Nanos) -> Nanos {
        if std::mem::replace(&mut self.served, served) != served {
            self.quiet_ns = 0;
        }
        limit_ns.saturating_sub(self.quiet_ns)
    }
}

/// What a client thinks of those it waits for. It trusts them for a while, then looks around for
/// those who live, and from then on watches them.
#[derive(Debug)]
pub(crate) struct Doubt {
    /// How long it trusts where something has changed, in nanoseconds.
    fresh_ns: Nanos,
    /// How long it still trusts, in nanoseconds; for ever if `None`.
    trust_ns: Option<Nanos>,
    /// What it saw last, as far as it tells of those it waits for; a change renews the trust.
    seen: u64,
    watched: Vec<EndpointId>,
    /// Whether one of those watched died.
    gone: bool,
    second_look: SecondLook,
}

impl Doubt {
    pub(crate) fn new<E: Endpoint>() -> Self {
        Self::of::<E>(LEASE_NS)
    }

    /// Of clients with this lease. Where looking around costs round trips, two leases are waited
    /// first (section 4.6).
    fn of<E: Endpoint>(lease_ns: Nanos) -> Self {
        let fresh_ns = if E::LOOKS_AROUND_CHEAPLY { TRUST_NS } else { lease_ns.saturating_mul(2) };
        let trust_ns = Some(fresh_ns);
        let (watched, second_look) = (Vec::new(), SecondLook::new());
        Self { fresh_ns, trust_ns, seen: 0, watched, gone: false, second_look }
    }

    /// Looks around again before long, whatever was seen.
    pub(crate) fn trust_again(&mut self) {
        self.trust_ns = Some(self.fresh_ns);
    }

    /// Looks around again some time though nothing changes: a client that seems to hold may have
    /// left.
    pub(crate) fn trust_for_a_while(&mut self) {
        if self.trust_ns.is_none() {
            self.trust_ns = Some(self.second_look.wait_ns());
        }
    }

    /// Looks around again after so long at the latest.
    pub(crate) fn trust_at_most(&mut self, most_ns: Nanos) {
        self.trust_ns = Some(self.trust_ns.map_or(most_ns, |ns| ns.min(most_ns)));
    }

    /// Takes note of what is there now.
    pub(crate) fn sees(&mut self, now: u64) {
        if std::mem::replace(&mut self.seen, now) != now {
            self.trust_again();
            self.second_look = SecondLook::new();
        }
    }

    /// Whether it is time to look around.
    pub(crate) const fn is_due(&self) -> bool {
        self.gone || matches!(self.trust_ns, Some(0))
    }

    /// Whether one of those watched has died since it looked around.
    pub(crate) const fn has_lost_one(&self) -> bool {
        self.gone
    }

    /// All clients that live at the lock, and have a ticket or none for certain; the word was read
    /// before. `None` if a client is just taking one: look again. Watches those that matter from
    /// now on.
    pub(crate) async fn look_around<E: Endpoint>(
        &mut self,
        site: &Site<'_, E>,
        matters: impl Fn(&Participant) -> bool,
    ) -> Outcome<Option<Vec<Participant>>> {
        let present = self.look(site, matters).await?;
        let somebody_opens = present.iter().any(|p| p.record.phase == Phase::Opening);
        Ok((!somebody_opens).then_some(present))
    }

    /// The same with those who are just taking a ticket.
    pub(crate) async fn look<E: Endpoint>(
        &mut self,
        site: &Site<'_, E>,
        matters: impl Fn(&Participant) -> bool,
    ) -> Outcome<Vec<Participant>> {
        let present = repair::participants(site.endpoint, site.lock, site.slot()).await?;
        let somebody_opens = present.iter().any(|p| p.record.phase == Phase::Opening);
        let matter = present.iter().filter(|&p| matters(p)).map(|p| p.endpoint);
        self.watch::<E>(matter, somebody_opens);
        Ok(present)
    }

    /// It has looked around. Watches these from now on, and looks around again before long if that
    /// was `vague`.
    pub(crate) fn watch<E: Endpoint>(
        &mut self,
        peers: impl Iterator<Item = EndpointId>,
        vague: bool,
    ) {
        self.gone = false;
        self.watched.clear();
        self.watched.extend(peers.take(WATCHED_MAX));
        // Where memory is watched, no change of the word goes unseen, and none is looked for.
        self.trust_ns = match (E::WATCHES_MEMORY, vague) {
            (true, false) => (self.watched.len() == WATCHED_MAX).then_some(TRUST_AGAIN_NS),
            _ => Some(self.fresh_ns),
        };
    }

    /// Waits until the word is no more as `seen`, one of those watched dies, or time passes.
    /// Returns how much of it has certainly passed.
    pub(crate) async fn wait<E: Endpoint>(
        &mut self,
        site: &Site<'_, E>,
        seen: u64,
        interval: Option<Nanos>,
        patience: Patience,
    ) -> Nanos {
        let interval = interval.into_iter().chain(self.trust_ns).min();
        let woken = site.endpoint.wait(self.wait_for(site, seen, interval, patience)).await;
        self.woken(site, woken, interval)
    }

    /// The same, until the slot is withdrawn from what it waits for. Of the word some bits do not
    /// count.
    pub(crate) async fn wait_or_withdraw<E: Endpoint>(
        &mut self,
        site: &Site<'_, E>,
        (seen, ignoring): (u64, u64),
        interval: Option<Nanos>,
        patience: Patience,
    ) {
        let interval = interval.into_iter().chain(self.trust_ns).min();
        let wait = Wait { ignoring, ..self.wait_for(site, seen, interval, patience) };
        if let Some(woken) = site.wait_or_withdraw(wait, false).await {
            self.woken(site, woken, interval);
        }
    }

    fn wait_for<E: Endpoint>(
        &self,
        site: &Site<'_, E>,
        seen: u64,
        interval: Option<Nanos>,
        patience: Patience,
    ) -> Wait<'_> {
        let (word, peers) = (Some((site.lock, seen)), &self.watched);
        Wait { word, peers, interval, patience, ..Wait::default() }
    }

    /// How much time has certainly passed in a wait of this interval.
    fn woken<E: Endpoint>(
        &mut self,
        site: &Site<'_, E>,
        woken: Woken,
        interval: Option<Nanos>,
    ) -> Nanos {
        match woken {
            Woken::PeerGone(peer) => {
                site.peer_died(peer);
                self.gone = true;
                0
            }
            Woken::Elapsed => {
                let passed_ns = interval.unwrap_or(0);
                self.trust_ns = self.trust_ns.map(|ns| ns.saturating_sub(passed_ns));
                passed_ns
            }
            Woken::Changed | Woken::Mail => 0,
        }
    }

    /// What an explorer has to tell apart besides, where it [trusts](Self::trust_for_a_while) those
    /// who seem to hold.
    pub(crate) const fn patience(&self) -> u64 {
        self.second_look.survivor()
    }

    /// What an explorer has to tell apart.
    pub(crate) fn hash(&self) -> u64 {
        let watched = self.watched.iter().fold(0, |hash: u64, id| hash.rotate_left(7) ^ id.bits());
        watched ^ (self.trust_ns.unwrap_or(Nanos::MAX) << 1 | u64::from(self.gone))
    }
}

/// A random pause below a bound that doubles each time (section A.3).
pub(crate) fn backoff_ns(times: u64, random: u64) -> Nanos {
    let (least, most) = BACKOFF_NS;
    random % (least << times.min(BACKOFF_TIMES_MAX)).min(most)
}

/// The place of a client that waits or holds, at a word that was `seen` so. Those of earlier
/// generations are void.
///
/// The record of a part says of the words that the client has only that it holds them: its turn
/// came when all exclusive tickets before its own were given back, and its own was not.
fn place_of<C: Counters>(participant: &Participant, seen: u64) -> Option<Place> {
    let record = &participant.record;
    let (ticket, generation) = match record.part {
        Some(_) => (C::served(seen), C::generation(seen)),
        None => (Tickets::from_bits(record.ticket), record.generation),
    };
    matches!(record.phase, Phase::Waiting | Phase::Held | Phase::Repairing).then(|| Place {
        mode: record.mode,
        beside_readers: false,
        ticket,
        generation,
    })
}

/// Whether this is a client whose turn comes before that of `place`.
fn is_ahead<C: Counters>(participant: &Participant, place: Place, seen: u64) -> bool {
    let other = place_of::<C>(participant, seen);
    other.is_some_and(|p| p.generation == place.generation && place.is_behind(&p))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(mode: Mode, x: u16, s: u16) -> Place {
        Place { mode, beside_readers: false, ticket: Tickets { x, s }, generation: 0 }
    }

    #[test]
    fn a_writer_waits_for_everybody_and_a_reader_for_writers() {
        let served = Tickets { x: 2, s: 3 };
        assert!(place(Mode::Exclusive, 2, 3).is_served(served));
        assert!(!place(Mode::Exclusive, 2, 5).is_served(served));
        assert!(place(Mode::Shared, 2, 5).is_served(served));
        assert_eq!(place(Mode::Exclusive, 4, 5).ahead(served), 4);
        assert_eq!(place(Mode::Shared, 4, 5).ahead(served), 2);
    }

    #[test]
    fn who_comes_to_update_waits_for_writers_alone() {
        let updater = Place::to_update(Tickets { x: 2, s: 5 }, 1, 0);
        assert!(updater.is_served(Tickets { x: 2, s: 3 }));
        assert!(!updater.is_served(Tickets { x: 1, s: 5 }));
        assert_eq!(updater.ahead(Tickets { x: 0, s: 3 }), 2);
    }

    /// However many slots tickets are worth, one in a row waits for readers: none is passed by as
    /// many tickets as a row has.
    #[test]
    fn one_in_a_row_that_comes_to_update_passes_no_reader() {
        for slots in [1, 3, PASSING - 1, PASSING] {
            let mut x = 0;
            let mut passed = 0;
            for _ in 0..3 * u32::from(COUNT_MAX) {
                let next = Tickets { x, s: 0 }.plus(Mode::Exclusive, slots);
                let beside_readers = Place::to_update(Tickets { x, s: 0 }, slots, 0).beside_readers;
                passed = if beside_readers { passed + slots } else { 0 };
                assert!(passed < PASSING, "{slots} slots at {x}");
                x = next.x;
            }
        }
    }

    #[test]
    fn a_reader_sees_that_it_was_passed() {
        let reader = place(Mode::Shared, COUNT_MAX, 0);
        let at = |x: u16| Tickets { x: x & COUNT_MAX, s: 0 };
        assert!(reader.is_served(at(COUNT_MAX.wrapping_add(PASSING - 1))));
        assert!(!reader.is_served(at(COUNT_MAX.wrapping_add(PASSING))), "none is passed so often");
        assert!(!reader.is_served(at(COUNT_MAX - 1)));
        assert!(!reader.is_served(at(COUNT_MAX - 3)));
    }

    /// A reader that has been passed holds, and all tickets since are of the dead.
    #[test]
    fn the_dead_wait_for_readers_that_were_passed() {
        let served = Tickets { x: 1, s: 0 };
        let (me, passed) = (place(Mode::Exclusive, 2, 1), place(Mode::Shared, 0, 0));
        assert_eq!(me.without_the_dead(served, &[passed]), served);
        assert_eq!(me.without_the_dead(served, &[]), me.ticket);
    }

    #[test]
    fn counts_wrap() {
        let served = Tickets { x: u16::MAX, s: 0 };
        let me = place(Mode::Exclusive, 1, 0);
        assert_eq!(me.ahead(served), 2);
        assert!(me.is_behind(&place(Mode::Exclusive, u16::MAX, 7)));
        assert_eq!(me.without_the_dead(served, &[]), me.ticket);
        assert_eq!(Tickets::from_bits(served.bits()), served);
    }

    /// A dead writer is counted as gone only when the readers that came before it have left.
    #[test]
    fn the_dead_give_back_in_order() {
        let served = Tickets { x: 0, s: 0 };
        let me = place(Mode::Exclusive, 2, 2);
        let reader_before = place(Mode::Shared, 0, 1);
        let reader_between = place(Mode::Shared, 1, 1);
        let writer_before = place(Mode::Exclusive, 1, 1);
        assert_eq!(me.without_the_dead(served, &[reader_before]), served);
        assert_eq!(me.without_the_dead(served, &[reader_between]), Tickets { x: 1, s: 0 });
        assert_eq!(me.without_the_dead(served, &[writer_before]), Tickets { x: 1, s: 0 });
        assert_eq!(me.without_the_dead(served, &[place(Mode::Shared, 3, 2)]), me.ticket);
    }

    /// A reader held while 32,768 others came and went. To a writer that looked around, it had
    /// come later: the writer gave back for it and held beside it.
    #[test]
    fn a_reader_that_holds_is_seen_however_many_come_and_go() {
        for others in [1, COUNT_MAX / 2 + 1, COUNT_MAX - 1] {
            let (me, served) = (place(Mode::Exclusive, 0, others + 1), Tickets { x: 0, s: others });
            assert_eq!(me.without_the_dead(served, &[place(Mode::Shared, 0, 0)]), served);
        }
    }

    /// Only a writer knows how many readers came before it.
    #[test]
    fn a_reader_gives_back_for_writers_alone() {
        let me = place(Mode::Shared, 1, 4);
        let served = Tickets { x: 0, s: 2 };
        assert_eq!(me.without_the_dead(served, &[]), Tickets { x: 1, s: 2 });
    }

    #[test]
    fn pauses_before_beginning_again_double_up_to_their_bound() {
        assert_eq!(backoff_ns(0, 9_999), 9_999);
        assert_eq!(backoff_ns(0, 10_000), 0);
        assert_eq!(backoff_ns(3, 79_999), 79_999);
        assert_eq!(backoff_ns(BACKOFF_TIMES_MAX - 1, 5_119_999), 5_119_999);
        assert_eq!(backoff_ns(u64::MAX, 9_999_999), 9_999_999);
        assert_eq!(backoff_ns(u64::MAX, 10_000_000), 0);
    }

    /// Line 11 of algorithm 2 can be read so that a steady stream of readers makes a writer reset a
    /// healthy lock, since nX does not change.
    #[test]
    fn readers_that_come_and_go_are_no_stall() {
        let mut stall = Stall::default();
        for s in 0..10 {
            assert_eq!(stall.left_ns(Tickets { x: 0, s }, 20), 20);
            stall.quiet_ns += 19;
        }
        assert_eq!(stall.left_ns(Tickets { x: 0, s: 9 }, 20), 1);
    }

    #[test]
    fn a_lease_ends_early_for_its_holder_and_late_for_others() {
        let lease = Lease { ns: 10_000, slots_max: 4 };
        assert_eq!(lease.end(7, 1), 7 + 9_999);
        assert_eq!(lease.end(7, 3), 7 + 29_997);
        assert_eq!(
            [0, 1, 3, 9].map(|ahead| lease.stall_ns(ahead)),
            [20_000, 20_000, 60_000, 80_000]
        );
    }

    /// A reader waits for writers alone, and yet the readers ahead may keep these waiting.
    #[test]
    fn all_tickets_ahead_may_be_worth_slots() {
        let served = Tickets { x: 2, s: 3 };
        assert_eq!(place(Mode::Exclusive, 4, 5).slots(served), 4);
        assert_eq!(place(Mode::Shared, 4, 5).slots(served), 4);
        assert_eq!(place(Mode::Shared, 2, 3).slots(served), 0);
    }

    #[test]
    fn what_was_known_is_trusted_for_less_than_the_counters_stay() {
        let lease = Lease { ns: 50_000, slots_max: 4 };
        assert_eq!(lease.memory_ns(), 100_000);
        let forgotten = |now| lease.may_be_forgotten(7, now);
        assert_eq!(
            [7, 7 + 99_989, 7 + 99_990, 7 + 100_000].map(forgotten),
            [false, false, true, true]
        );
        assert!(!lease.may_be_forgotten(7, 3));
    }

    #[test]
    fn the_pause_grows_with_the_queue_up_to_a_quarter_of_the_lease() {
        let waiting = Waiting::default();
        assert_eq!(waiting.pause_ns(0), OMEGA_NS);
        assert_eq!(waiting.pause_ns(7), 7 * OMEGA_NS);
        assert_eq!(waiting.pause_ns(u32::MAX), LEASE_NS / 4);
        let fixed = Waiting { fixed_ns: Some(5_000), ..waiting };
        assert_eq!(fixed.pause_ns(1_000), 5_000);
    }
}
