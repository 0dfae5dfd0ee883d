//! The judges of a run, what they are told, and what a client sees of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farlock_fabric::EndpointId;
use farlock_fabric::word::Field;
use farlock_locks::museum::tampered::Tampered;
use farlock_locks::{Options, Token};
use farlock_sim::check::{Access, History, Rounds, Turns};
use farlock_sim::{Effect, Fate, Handle, Kind, Packet, SimEndpoint, mix};

use super::judges::Judges;
use super::stops::Stops;
use super::terms::{Crew, Terms};
use crate::client::{CheckedClient, CheckedLock};
use crate::goods::{Deed, Goods};
use crate::layout::Layout;
use crate::order::Order;
use crate::points::{Watched, Witness};
use crate::scenario::Scenario;
use crate::verdict::{Befell, Promise};
use crate::words::{self, Words};

/// What a run notes besides its verdict.
#[derive(Default)]
pub struct RunLog {
    /// What happened, a line each.
    pub timeline: Option<Vec<String>>,
    /// Who is told of each verb.
    pub witness: Option<Rc<dyn Witness>>,
    /// What holders did with what the lock protects, where that is recorded.
    pub history: History<Deed>,
}

/// What the clients of a run act through: a client of a sound lock makes no mistake with it, so
/// that every lock is compiled for one kind of endpoint.
pub type Actor = Tampered<Watched>;

/// A lock, and how its clients see the fabric.
#[derive(Clone)]
pub struct Subject {
    /// The lock.
    pub lock: Rc<dyn CheckedLock<Actor>>,
    /// Makes an endpoint of a client.
    pub wrap: fn(Watched) -> Actor,
}

impl Subject {
    /// A client that acts there.
    pub(super) fn client(
        &self,
        endpoint: Watched,
        options: Options,
        handovers: u32,
    ) -> ActorClient {
        self.lock.client((self.wrap)(endpoint), options, handovers)
    }
}

/// A client in a run.
pub(super) type ActorClient = Rc<dyn CheckedClient<Actor>>;

/// The judges of one run, and what they are told.
#[derive(Default)]
pub(super) struct Bench {
    /// Of each lock.
    pub(super) locks: Vec<Judges>,
    /// The order that the lock is held to in this run.
    pub(super) order: Order,
    /// How often others pass those that wait, of a lock that is had in parts.
    pub(super) rounds: Rounds,
    /// What the judges know, as a part of the world's state.
    pub(super) ghost: Rc<Cell<u64>>,
    pub(super) clients: u16,
    pub(super) crew: Crew,
    /// Who came back, in the order of the seats that they took then.
    pub(super) came_back: Vec<u16>,
    pub(super) failure: Option<String>,
    pub(super) bypassed: Option<String>,
    /// How often a client found another dead, repaired a lock or began again.
    pub(super) recoveries: u64,
    pub(super) log: RunLog,
    /// Whether a client may be granted the lock when its time is over.
    pub(super) may_be_late: bool,
    /// The fields of the lock's word that count.
    pub(super) counts: Vec<Field>,
    /// Whether the order that the lock promises holds when they have wrapped.
    pub(super) order_outlives_counts: bool,
    pub(super) befell: Befell,
    /// How often clients may still give up.
    pub(super) cancels_left: u32,
    /// How often each of the scenario's mishaps may still befall anybody.
    pub(super) mishaps_left: Vec<u32>,
    /// A bit for each client that settles what it gave up.
    pub(super) settling: u64,
    /// More is asked than exclusion, order and progress.
    pub(super) is_watched: bool,
    /// A bit for each client that has come to its end.
    pub(super) finished: u64,
    pub(super) stops: Stops,
    /// What a newcomer is about to be granted, that acts alone.
    pub(super) visiting: Option<String>,
    /// What was said of the lock that is not so.
    pub(super) untrue: Option<String>,
    /// What its words are called.
    pub(super) words: Words,
}

/// A hold's token, and how often the hold was handed on.
pub(super) type Turned = (Option<Token>, u32);

pub(super) type SharedBench = Rc<RefCell<Bench>>;

impl Bench {
    pub(super) fn new(
        scenario: &Scenario,
        terms: &Terms,
        layout: Layout,
        ghost: Rc<Cell<u64>>,
        log: RunLog,
    ) -> Self {
        // A lease that ends puts everybody in line anew, as a death does, and may a pause.
        let paused_out = scenario.may_pause() && !terms.order_outlives_pauses;
        let in_any_order = scenario.is_deadly() || terms.lease_ns.is_some() || paused_out;
        // A try is in no line, and a client that is stopped in one is passed over: where waits end
        // at any time, everybody seems to be.
        let passed_over = scenario.hasty && terms.declares.passes;
        let in_any_order = in_any_order || scenario.is_watched() || passed_over;
        // Who is granted the first lock of a transaction is known to be when it has all of them.
        let in_any_order = in_any_order || scenario.transacts;
        let others = u32::from(scenario.clients.div_ceil(terms.crew.tasks)) - 1;
        let judges = |_| Judges {
            turns: Turns::of_one_line(terms.order.one_line, scenario.slow),
            goods: Goods::of(terms.register),
            ..Judges::default()
        };
        Self {
            locks: layout.locks().map(judges).collect(),
            order: match in_any_order {
                true => Order::default(),
                false => Order {
                    rounds: terms.order.rounds.filter(|_| waits_are_calm(scenario)),
                    ..terms.order.with_turns_unseen(scenario.cancels()).beside(others)
                },
            },
            rounds: if terms.order.rounds_of_all { Rounds::of_all() } else { Rounds::default() },
            ghost,
            clients: scenario.clients,
            crew: terms.crew,
            is_watched: scenario.is_watched(),
            words: Words { fields: &[], slots: terms.crew.slots(scenario) },
            log,
            ..Self::default()
        }
    }

    pub(super) fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(timeline) = &mut self.log.timeline {
            timeline.push(what());
        }
    }

    /// What the judges know of the past is part of the state, where it can still matter, and so are
    /// the faults to come.
    pub(super) fn remember(&self) {
        let joint = self.crew != Crew::ALONE;
        let faults = self.settling << 8 | u64::from(self.cancels_left);
        let faults = self.mishaps_left.iter().fold(faults, |sum, &left| mix(sum, left.into()));
        let known = self.locks.iter().fold(mix(faults, 0), |mut sum, lock| {
            sum = mix(sum, lock.ghost());
            sum = if self.order.is_of_line() { mix(sum, lock.order_ghost(joint)) } else { sum };
            if self.is_watched { mix(sum, lock.watched_ghost()) } else { sum }
        });
        let watched = if self.is_watched { mix(self.stops.ghost(), self.finished) } else { 0 };
        let known = match self.order.rounds {
            Some(_) => mix(known, self.rounds.ghost()),
            None => known,
        };
        self.ghost.set(mix(known, watched));
    }

    /// A token of `who` at this lock as the judges compare it. Where it may be older than one that
    /// was used, it is taken for the oldest that it can be. Where holds are handed on, the turn
    /// stands below what the hold's token stands for.
    pub(super) fn judged(
        &mut self,
        at: usize,
        who: u16,
        access: Access,
        token: Turned,
    ) -> Option<u64> {
        let (token, turn, shift) = (token.0?, token.1, self.turn_bits());
        let (first, lock) = (self.crew.first(who), &mut self.locks[at]);
        let known = lock.holds.iter().find(|hold| (hold.0, hold.1) == (first, token));
        let hold = match known.filter(|_| turn > 0) {
            Some(hold) => hold.2,
            None => {
                let above = lock.ledger.above(access).filter(|_| !self.may_be_late);
                let hold = lock.count.judged(who, token, above.map(|above| above >> shift));
                if self.crew.handovers_max > 0 {
                    lock.holds.retain(|other| other.0 != first);
                    lock.holds.push((first, token, hold));
                }
                hold
            }
        };
        Some(hold << shift | u64::from(turn))
    }

    /// Bits below a token by which turns are told apart.
    fn turn_bits(&self) -> u32 {
        u32::BITS - self.crew.handovers_max.leading_zeros()
    }

    /// Client `who` is about to change something of the lock.
    pub(super) fn acts_beside_readers(&mut self, who: u16) {
        if self.order.rounds.is_none() {
            return;
        }
        let rounds = self.rounds.acts(who);
        let objection = rounds.and_then(|rounds| self.order.objection_to_rounds(who, rounds));
        if let Some(story) = objection {
            self.tell(|| story.clone());
            self.bypassed.get_or_insert(story);
        }
        self.remember();
    }

    /// The one lock of those who are visited or stopped.
    pub(super) fn only(&mut self) -> &mut Judges {
        &mut self.locks[0]
    }

    /// What a line says of this lock where there are several.
    pub(super) fn named(&self, at: usize) -> String {
        if self.locks.len() == 1 { String::new() } else { format!(" lock {at}") }
    }

    /// Whether no lock was held by two that exclude each other.
    pub(super) fn locks_are_held_apart(&self) -> bool {
        self.locks.iter().all(|lock| lock.ledger.violation().is_none())
    }

    /// What a judge of a lock objects to.
    pub(super) fn violation(&mut self) -> Option<(Promise, String)> {
        let locks = &self.locks;
        let of_lock = |at: usize, story: String| match locks.len() {
            1 => story,
            _ => format!("{story}, at lock {at}"),
        };
        let held = locks.iter().enumerate().find_map(|(at, lock)| {
            lock.ledger.violation().map(|story| of_lock(at, story.to_owned()))
        });
        let held = held.map(|story| (Promise::Exclusion, story));
        let passed = || Some((Promise::Order, self.bypassed.take()?));
        let untrue = || Some((Promise::Said, self.untrue.take()?));
        let goods = |(at, lock): (usize, &Judges)| Some(of_lock(at, lock.goods.violation()?));
        let spoilt = || Some((Promise::Goods, locks.iter().enumerate().find_map(goods)?));
        held.or_else(passed).or_else(untrue).or_else(spoilt)
    }

    /// The dead hold nothing.
    pub(super) fn buries(&mut self, who: u16) {
        self.locks.iter_mut().for_each(|lock| lock.ledger.leave(who));
    }

    /// Something that was said of the lock is not so.
    pub(super) fn objects(&mut self, story: String) {
        self.tell(|| story.clone());
        self.untrue.get_or_insert(story);
    }

    /// Those who act on this seat, where `who` is the first.
    fn crew_at(&self, seat: u16, who: u16) -> std::ops::Range<u16> {
        let alone = who >= self.clients || seat >= self.first_seat_back();
        let tasks = if alone { 1 } else { self.crew.tasks };
        who..(who + tasks).min(self.clients.max(who + 1))
    }

    /// What a holder sent outside arrives there.
    pub(super) fn receives(&mut self, packet: &Packet) {
        let [token, _, at] = packet.words;
        let accepted = self.locks[at as usize].goods.receives(packet);
        let who = self.who(packet.from.index).expect("only clients send packets");
        self.tell(|| {
            let answer = if accepted { "accepted" } else { "refused" };
            format!("client {who}  write outside with token {token}: {answer}")
        });
        self.remember();
    }

    /// The client that sits there; `None` if it is a visitor or a server.
    pub(super) fn who(&self, seat: u16) -> Option<u16> {
        match seat.checked_sub(self.first_seat_back()) {
            None => seat.checked_sub(1).filter(|&who| who < self.clients),
            Some(place) => self.came_back.get(usize::from(place)).copied(),
        }
    }

    /// The first seat of those who come back: the visitor has one before it, and a server.
    pub(super) fn first_seat_back(&self) -> u16 {
        self.clients + 3
    }

    /// A verb took effect. Endpoints are numbered from 1, clients from 0.
    pub(super) fn sees(&mut self, effect: &Effect, layout: Layout) {
        let seat = effect.endpoint.index;
        let Some(who) = self.who(seat).or(seat.checked_sub(1)) else { return };
        let atomic = !matches!(effect.kind, Kind::Read | Kind::Write | Kind::Send);
        let on_word = layout.lock(effect.addr).filter(|_| atomic);
        let crew = self.crew_at(seat, who);
        if effect.old != effect.new && effect.kind != Kind::Send {
            self.stops.sees_change(who, layout.is_of_lock(effect.addr));
        }
        if let Some(at) = on_word {
            for lock in &mut self.locks[layout.counted_with(at)] {
                crew.clone().for_each(|who| lock.count.sees(who, effect.new));
            }
            let changes = effect.old != effect.new;
            if who < self.clients && self.is_watched {
                self.locks[at].acts(crew.clone(), changes);
            }
            if who < self.clients && self.order.gets_in_line(changes) {
                self.locks[at].gets_in_line(crew);
                let wraps = |field: &&Field| field.of(effect.new) < field.of(effect.old);
                self.befell.wraps += self.counts.iter().filter(wraps).count() as u64;
            }
            self.remember();
        }
        if self.log.timeline.is_some() {
            let what = self.words.effect(effect, layout, |seat| self.name(seat));
            let name = self.name(seat);
            self.tell(|| format!("{name}  {what}"));
        }
    }

    /// Something befalls an endpoint.
    pub(super) fn befalls(&mut self, id: EndpointId, fate: Fate) {
        self.befell.deaths += u64::from(fate == Fate::Dies);
        let name = self.name(id.index);
        self.tell(|| format!("{name}  {}", words::fate(fate)));
    }

    /// Who sits there.
    fn name(&self, seat: u16) -> String {
        match self.who(seat) {
            Some(who) => format!("client {who}"),
            None if seat == 0 => "nobody".to_owned(),
            None if seat == self.clients + 1 => "visitor".to_owned(),
            None if seat == self.clients + 2 => "server".to_owned(),
            None => "newcomer".to_owned(),
        }
    }
}

/// Whether nobody looks around because it has waited for long, takes back what others have asked
/// for, or has some of what it wants: rounds of readers are counted where waits end by what others
/// do.
fn waits_are_calm(scenario: &Scenario) -> bool {
    scenario.is_undisturbed() && !scenario.hasty
}

/// What a client sees of its run.
#[derive(Clone)]
pub(super) struct ClientView {
    pub(super) scenario: Rc<Scenario>,
    pub(super) subject: Subject,
    pub(super) terms: Terms,
    pub(super) handle: Handle,
    pub(super) layout: Layout,
    pub(super) bench: SharedBench,
    pub(super) ids: Rc<[Cell<EndpointId>]>,
    /// Where newcomers sit.
    pub(super) newcomer: Option<SimEndpoint>,
}
