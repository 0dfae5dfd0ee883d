//! The insides of a world: everything that changes, and what each event does to it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use farlock_fabric::{EndpointId, Nanos};

use crate::config::{Config, Mode};
use crate::fault::{Ratio, Weakness};
use crate::flight::{Flights, NONE};
use crate::history::{HaltObserver, History};
use crate::memory::{Memory, Node};
use crate::nic::{MachinesState, Nic};
use crate::oracle::{Candidate, Candidates, Nobody, Oracle, StepKind};
use crate::packet::Outside;
use crate::queue::{Event, Queue};
use crate::seat::Seat;
use crate::told::TaskMemory;
use crate::watch::Watches;

/// What the world knows of a task; the future itself is elsewhere.
pub(crate) struct TaskMeta {
    /// Whose crash kills it.
    pub(crate) endpoint: EndpointId,
    /// It has neither finished nor been killed.
    pub(crate) live: bool,
    /// It is about to be polled.
    pub(crate) queued: bool,
    /// It serves the others: no run waits for its end.
    pub(crate) serves: bool,
    /// It goes on when the pause of its endpoint is over.
    pub(crate) wakes: bool,
}

pub(crate) struct Core {
    pub(crate) now: Nanos,
    pub(crate) mode: Mode,
    pub(crate) seed: u64,
    pub(crate) slots: u8,
    pub(crate) mailbox_cells: usize,
    pub(crate) poll_interval_ns: Nanos,
    pub(crate) events_max: u64,
    pub(crate) weakness: Weakness,
    pub(crate) nic: Nic,
    /// What the number of endpoints adds to each round trip.
    pub(crate) crowding_ns: u32,
    pub(crate) machines: MachinesState,
    pub(crate) oracle: Box<dyn Oracle>,
    queue: Queue,
    /// Explored mode: everything that can happen next, in the order in which it was pushed.
    pub(crate) pending: Vec<(Nanos, Event)>,
    /// Explored mode, where time passes only when nothing else can happen: the timers.
    pub(crate) timers: Vec<(Nanos, Event)>,
    pub(crate) hasty: bool,
    pub(crate) slow_completions: bool,
    /// The same as the oracle sees it, while it is asked.
    pub(crate) candidates: Vec<Candidate>,
    /// Whose event happened last.
    pub(crate) last: u16,
    /// The oracle has ended this run.
    pub(crate) abandoned: bool,
    /// An endpoint has crashed or was paused, or a mailbox was full: from now on waits on words end
    /// by the clock too, if nothing else can happen.
    pub(crate) disturbed: bool,
    /// Explored mode: the time is part of the state.
    pub(crate) clocks_decide: bool,
    /// Explored mode, while the oracle is asked: ends of waits and pauses that cannot come before a
    /// verb that adds has taken effect.
    pub(crate) later: Vec<(Nanos, Event)>,
    /// Explored mode: within how long verbs that add take effect, if not at any time.
    pub(crate) adds_within_ns: Option<Nanos>,
    /// Tasks of endpoints that are stopped for good, which would be polled now.
    pub(crate) halted: Vec<u32>,
    /// Is told of them.
    pub(crate) on_halt: Option<HaltObserver>,
    /// Explored mode: whose events alone happen, and whether the ends of its waits do.
    pub(crate) alone: Option<(u16, bool)>,
    /// Explored mode: room for the waits that may end by the clock.
    waits: Vec<(Nanos, Event)>,
    /// How many endpoints may still crash at any verb, and how often one does.
    pub(crate) crashes_left: u32,
    pub(crate) crash_ratio: Ratio,
    /// What a judge adds to the state of the world. It may be told of an effect, while the core is
    /// at work.
    pub(crate) ghost: Rc<Cell<u64>>,
    pub(crate) memory: Memory,
    pub(crate) nodes: Vec<Node>,
    pub(crate) flights: Flights,
    /// Explored mode: chains whose completion reaches their endpoint within this event.
    pub(crate) completed: Vec<u32>,
    /// By index; nobody sits in the first.
    pub(crate) seats: Vec<Seat>,
    /// The highest index that ever was occupied.
    pub(crate) occupied: u16,
    /// Counts endpoints and resets, to tell which came first.
    pub(crate) stamp: u32,
    /// How many endpoints have had an effect that others can see.
    pub(crate) shown: u32,
    /// Endpoints that crashed and whose tasks are still there.
    pub(crate) unburied: Vec<EndpointId>,
    pub(crate) watches: Watches,
    pub(crate) outside: Outside,
    pub(crate) tasks: Vec<TaskMeta>,
    /// Explored mode, by task: what it has been told since its last checkpoint, and where that was.
    pub(crate) memories: Vec<TaskMemory>,
    pub(crate) ready: VecDeque<u32>,
    /// The task that is being polled.
    pub(crate) current: u32,
    pub(crate) history: History,
}

impl Core {
    pub(crate) fn new(config: Config, oracle: Box<dyn Oracle>) -> Self {
        assert!(config.mailbox_cells >= 4, "a mailbox has at least 4 cells");
        assert!(config.endpoints >= 1, "a world has endpoints");
        Self {
            now: 0,
            mode: config.mode,
            seed: config.seed,
            slots: config.slots_per_endpoint,
            mailbox_cells: config.mailbox_cells,
            poll_interval_ns: config.poll_interval_ns.max(1),
            events_max: config.events_max.unwrap_or(u64::MAX),
            weakness: config.weakness,
            nic: config.nic,
            crowding_ns: 0,
            machines: MachinesState::new(config.machines, config.endpoints),
            oracle,
            queue: Queue::new(config.mode == Mode::Timed),
            pending: Vec::new(),
            timers: Vec::new(),
            later: Vec::new(),
            hasty: config.hasty,
            slow_completions: config.slow_completions,
            candidates: Vec::new(),
            last: 0,
            abandoned: false,
            disturbed: config.words_keep,
            clocks_decide: config.clocks_decide,
            adds_within_ns: config.adds_within_ns,
            halted: Vec::new(),
            on_halt: None,
            alone: None,
            waits: Vec::new(),
            crashes_left: 0,
            crash_ratio: Ratio::NEVER,
            ghost: Rc::default(),
            memory: Memory::default(),
            nodes: Vec::new(),
            flights: Flights::default(),
            completed: Vec::new(),
            seats: (0..=config.endpoints).map(Seat::vacant).collect(),
            occupied: 0,
            stamp: 0,
            shown: 0,
            unburied: Vec::new(),
            watches: Watches::default(),
            outside: Outside::default(),
            tasks: Vec::new(),
            memories: Vec::new(),
            ready: VecDeque::new(),
            current: crate::flight::NONE,
            history: History::new(config.seed),
        }
    }

    pub(crate) fn add_task(&mut self, endpoint: EndpointId, live: bool) -> u32 {
        let id = u32::try_from(self.tasks.len()).expect("a world has fewer than 2^32 tasks");
        let meta = TaskMeta { endpoint, live, queued: false, serves: false, wakes: false };
        self.tasks.push(meta);
        self.memories.push(TaskMemory::default());
        id
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, time: Nanos, event: Event) {
        match self.mode {
            Mode::Timed => self.queue.push(self.now, time, event),
            Mode::Explored => self.make_possible(time, event),
        }
    }

    /// Explored mode: this can happen from now on.
    #[inline(never)]
    fn make_possible(&mut self, time: Nanos, event: Event) {
        match event {
            Event::Timer(..) if !self.hasty => self.timers.push((time, event)),
            _ => self.pending.push((time, event)),
        }
    }

    /// Lets the next event not after `limit` happen. Returns whether there was one.
    #[inline]
    pub(crate) fn step(&mut self, limit: Nanos) -> bool {
        let (time, event) = match self.mode {
            Mode::Timed => loop {
                match self.queue.pop(self.now, limit) {
                    None => return false,
                    // The timer of a wait that has ended: time does not pass for it.
                    Some((_, Event::Timer(index, generation)))
                        if !self.is_current(index, generation) => {}
                    Some(next) => break next,
                }
            },
            Mode::Explored => match self.choose(limit) {
                None => return false,
                Some(next) => next,
            },
        };
        self.now = time;
        self.history.stats.events += 1;
        self.happen(event);
        true
    }

    /// Whether nothing can happen any more.
    pub(crate) fn is_idle(&self) -> bool {
        match self.mode {
            Mode::Timed => self.queue.is_empty(),
            Mode::Explored => self.pending.is_empty() && self.timers.is_empty(),
        }
    }

    /// Explored mode: any pending event may be next; time follows.
    fn choose(&mut self, limit: Nanos) -> Option<(Nanos, Event)> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain(|(_, event)| match *event {
            Event::Timer(index, generation) => self.is_current(index, generation),
            _ => true,
        });
        self.pending = pending;
        if self.abandoned || self.now >= limit {
            return None;
        }
        if let Some((owner, waits)) = self.alone {
            return self.choose_alone(owner, waits);
        }
        let due = self.additions_due();
        if due == Nanos::MAX {
            return self.choose_until(due);
        }
        let is_later = |(time, event): &mut (Nanos, Event)| event.is_of_time() && *time > due;
        self.later = self.pending.extract_if(.., is_later).collect();
        let next = self.choose_until(due);
        self.pending.append(&mut self.later);
        next
    }

    /// Explored mode: the next event of this owner, without asking the oracle. The soonest end of
    /// its waits, if those count, where there is no other.
    fn choose_alone(&mut self, owner: u16, waits: bool) -> Option<(Nanos, Event)> {
        let is_own = |core: &Self, event: Event| core.candidate(event).owner == owner;
        let acts = |&(_, event): &(Nanos, Event)| !event.is_of_time() && is_own(self, event);
        if let Some(index) = self.pending.iter().position(acts) {
            let (time, event) = self.pending.remove(index);
            self.last = owner;
            return Some((self.not_before(time, event), event));
        }
        if !waits {
            return None;
        }
        self.forget_old_timers();
        let ends = self.pending.iter().filter(|(_, event)| event.is_of_time());
        let ends = ends.chain(&self.timers).copied().chain(self.watches.patient());
        let own = ends.filter(|&(_, event)| is_own(self, event));
        let (time, event) = own.min_by_key(|&(time, _)| time)?;
        self.pending.retain(|&(_, other)| other != event);
        self.timers.retain(|&(_, other)| other != event);
        self.last = owner;
        Some((self.not_before(time, event), event))
    }

    /// Explored mode: until when time may pass before a verb that adds takes effect.
    fn additions_due(&self) -> Nanos {
        let Some(within) = self.adds_within_ns else { return Nanos::MAX };
        let posted = self.pending.iter().filter_map(|&(_, event)| self.addition_posted(event));
        posted.map(|posted| posted.saturating_add(within)).min().unwrap_or(Nanos::MAX)
    }

    /// When a chain was posted that is on its way and adds, where that matters.
    pub(crate) fn addition_posted(&self, event: Event) -> Option<Nanos> {
        self.adds_within_ns?;
        let (Event::Arrive(mut index) | Event::Turn(mut index) | Event::Serve(mut index)) = event
        else {
            return None;
        };
        while index != NONE {
            let flight = self.flights.at(index);
            if flight.kind.adds() {
                return Some(self.flights.cargo(index).posted);
            }
            index = flight.next;
        }
        None
    }

    /// The same, but no wait and no pause ends later than `due`.
    fn choose_until(&mut self, due: Nanos) -> Option<(Nanos, Event)> {
        // For what is on its way to the outside time does not stand still.
        let passes =
            |event: &Event| matches!(event, Event::Timer(..) | Event::Wake(_) | Event::Reach(_));
        let impatient = self.hasty && self.disturbed && !self.pending.is_empty();
        if impatient || self.pending.iter().all(|(_, event)| passes(event)) {
            return self.let_time_pass(due);
        }
        let chosen = match self.pending.len() {
            0 => return None,
            1 => 0,
            _ => self.ask()?,
        };
        let (time, event) = self.pending.remove(chosen);
        self.last = self.candidate(event).owner;
        Some((self.not_before(time, event), event))
    }

    /// Lets the oracle choose among several events. `None` if it wants no more of this run.
    fn ask(&mut self) -> Option<usize> {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        candidates.extend(self.pending.iter().map(|&(_, event)| self.candidate(event)));
        self.candidates = candidates;
        // A box of nothing allocates nothing; meanwhile the oracle may look at everything else.
        let mut oracle = std::mem::replace(&mut self.oracle, Box::new(Nobody));
        let chosen =
            oracle.next(&Candidates { list: &self.candidates, last: self.last, world: self });
        self.oracle = oracle;
        self.abandoned = chosen.is_none();
        let chosen = chosen? as usize;
        assert!(chosen < self.pending.len(), "an oracle chooses one of the candidates");
        Some(chosen)
    }

    /// Timers of waits that have ended by something else are no events any more.
    fn forget_old_timers(&mut self) {
        let mut timers = std::mem::take(&mut self.timers);
        timers.retain(|(_, event)| match *event {
            Event::Timer(index, generation) => self.is_current(index, generation),
            _ => true,
        });
        self.timers = timers;
    }

    /// Explored mode: time may pass, since nothing else can happen, or since waits are hasty. Then
    /// any wait may be the next to end by the clock, since no duration decides anything: one whose
    /// timer is pending or held back, or, where an endpoint has died or is paused, or a mailbox was
    /// full, so that it may help, one on a word. A paused endpoint goes on when all waits that end
    /// before have ended, unless waits are hasty.
    fn let_time_pass(&mut self, due: Nanos) -> Option<(Nanos, Event)> {
        self.forget_old_timers();
        let held_back = self.timers.iter().copied().filter(|(time, _)| *time <= due);
        let patient = self.disturbed.then(|| self.watches.patient()).into_iter().flatten();
        let patient = patient.filter(|(time, _)| *time <= due);
        let mut waits = std::mem::take(&mut self.waits);
        waits.extend(held_back.chain(patient));
        let mut asleep = self.asleep(&waits);
        // Most often nothing is pending then.
        let kept = self.pending.clone();
        self.pending.append(&mut waits);
        self.waits = waits;
        self.soonest_first();
        let chosen = match self.pending.len() {
            0 | 1 => (!self.pending.is_empty()).then_some(0),
            _ => self.ask(),
        };
        let next = chosen.map(|index| self.pending[index]);
        self.pending = kept;
        let is_next = |event: &(Nanos, Event)| Some(*event) == next;
        match self.pending.iter().position(is_next) {
            Some(index) => drop(self.pending.remove(index)),
            None => self.timers.retain(|timer| !is_next(timer)),
        }
        self.pending.append(&mut asleep);
        let (time, event) = next?;
        self.last = self.candidate(event).owner;
        Some((self.not_before(time, event), event))
    }

    /// Of several waits of one owner that may end the soonest comes first, in the places that they
    /// have: a schedule that knows owners alone would starve the others.
    fn soonest_first(&mut self) {
        for end in 1..self.pending.len() {
            let mut at = end;
            while let Some(other) = self.same_before(at)
                && self.pending[at].0 < self.pending[other].0
            {
                self.pending.swap(at, other);
                at = other;
            }
        }
    }

    /// Where the last wait before this one stands that is of the same owner.
    fn same_before(&self, at: usize) -> Option<usize> {
        let is_end = |event: Event| matches!(event, Event::Timer(..) | Event::Elapse(_));
        let owner = |event: Event| self.candidate(event).owner;
        let own = self.pending[at].1;
        let is_same = |event: Event| is_end(event) && owner(event) == owner(own);
        is_end(own)
            .then(|| self.pending[..at].iter().rposition(|&(_, event)| is_same(event)))
            .flatten()
    }

    /// Takes out the tasks that are paused beyond the time at which one of these waits ends by the
    /// clock: how long a pause is decides what others do meanwhile. Where waits are hasty, none.
    fn asleep(&mut self, waits: &[(Nanos, Event)]) -> Vec<(Nanos, Event)> {
        let soonest = waits.iter().map(|&(time, _)| time.max(self.now)).min();
        let Some(soonest) = soonest.filter(|_| !self.hasty) else { return Vec::new() };
        let is_later =
            |(time, event): &mut (Nanos, Event)| matches!(event, Event::Wake(_)) && *time > soonest;
        self.pending.extract_if(.., is_later).collect()
    }

    /// Explored mode: when an event happens that may happen from this time on. Each has a time of
    /// its own; but where clocks decide, time passes in waits and pauses alone.
    fn not_before(&self, time: Nanos, event: Event) -> Nanos {
        match (self.clocks_decide, event) {
            (false, _) => time.max(self.now + 1),
            (true, event) if event.is_of_time() => time.max(self.now),
            (true, _) => self.now,
        }
    }

    pub(crate) fn candidate(&self, event: Event) -> Candidate {
        let (owner, kind) = match event {
            Event::Arrive(flight) | Event::Turn(flight) | Event::Serve(flight) => {
                (self.flights.at(flight).owner, StepKind::Verb)
            }
            Event::Complete(flight) => (self.flights.at(flight).owner, StepKind::Verb),
            Event::Timer(watch, _) | Event::Elapse(watch) => {
                (self.watches.owner(watch), StepKind::Timer)
            }
            Event::Wake(task) => (self.tasks[task as usize].endpoint, StepKind::Wake),
            Event::Reach(packet) => (self.outside.packet(packet).from, StepKind::Packet),
            Event::Announce(bits) => (EndpointId::from_bits(bits.into()), StepKind::Death),
        };
        Candidate { owner: owner.index, kind }
    }

    #[inline]
    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(flight) => self.arrive(flight),
            Event::Turn(flight) => self.turns(flight),
            Event::Serve(flight) => self.served(flight),
            Event::Complete(flight) => self.complete(flight),
            Event::Timer(watch, _) => self.timer(watch),
            Event::Elapse(watch) => self.elapse(watch),
            Event::Wake(task) => self.go_on(task),
            Event::Reach(packet) => self.reach(packet),
            Event::Announce(bits) => self.announce(EndpointId::from_bits(bits.into())),
        }
        while let Some(head) = self.completed.pop() {
            self.complete(head);
        }
    }
}
