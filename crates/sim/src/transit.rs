//! The way of a verb: posted, arrived, its turn, served, complete.
//!
//! ```text
//! post ─way there─▶ arrive ─▶ turn ─NIC─▶ serve ─way back─▶ complete ─▶ task is polled
//!                              ▲           │ once per piece, if torn
//!                              └ next link ┘ (before it, if the link is an overtaken read)
//! ```
//!
//! A link's turn comes when every earlier link of its chain has been served, but for reads that are
//! overtaken. An idle NIC serves a verb the moment it arrives, so that most verbs are two events.

use farlock_fabric::verb::CHAIN_MAX;
use farlock_fabric::{EndpointId, Fault, Link, Nanos, Posted, Publication, Ticket, Verb};

use crate::config::Mode;
use crate::core::Core;
use crate::fault::{Outcome, Ratio};
use crate::flight::NONE;
use crate::history::{Fate, Kind};
use crate::memory::NodeId;
use crate::oracle::Choice;
use crate::queue::Event;

/// The ticket of a verb that a crashed endpoint posted: it never completes.
const NEVER: Posted = Posted::Pending(Ticket(u64::MAX));

/// The queue pair of messages.
pub(crate) const MESSAGES: u16 = 0;

/// The queue pair of a memory node.
const fn pair_of(node: NodeId) -> u16 {
    node.0 + 1
}

impl Core {
    #[inline]
    pub(crate) fn post(&mut self, owner: EndpointId, verb: &Verb<'_>) -> Posted {
        if !self.seat(owner).is_acting(owner) {
            return NEVER;
        }
        let pair = self.pair(verb).unwrap_or(MESSAGES);
        let head = self.flights.add(owner, self.current, verb);
        if let Some(addr) = verb.addr() {
            self.memory.prefetch(addr);
        }
        self.launch(owner, head, pair, |core, owner| core.flights.add(owner, NONE, verb))
    }

    /// The same, of one that nobody here holds back, and that may be slow as any other.
    pub(crate) fn post_patiently(
        &mut self,
        owner: EndpointId,
        verb: &Verb<'_>,
        otherwise: Option<Publication>,
    ) -> Posted {
        if !self.seat(owner).is_acting(owner) {
            return NEVER;
        }
        let pair = self.pair(verb).unwrap_or(MESSAGES);
        let add = |core: &mut Self, task| {
            let flight = core.flights.add(owner, task, verb);
            core.flights.at_mut(flight).otherwise = otherwise;
            flight
        };
        let head = add(self, self.current);
        self.launch(owner, head, pair, |core, _| add(core, NONE))
    }

    pub(crate) fn post_chain(&mut self, owner: EndpointId, links: &[Link<'_>]) -> Posted {
        if !(1..=CHAIN_MAX).contains(&links.len()) {
            return Posted::Done(Err(Fault::Unsupported));
        }
        if !self.seat(owner).is_acting(owner) {
            return NEVER;
        }
        let mut pairs = links.iter().filter_map(|link| self.pair(&link.verb));
        let pair = pairs.next().unwrap_or(MESSAGES);
        assert!(pairs.all(|other| other == pair), "a chain goes to one memory node");
        let head = self.chain(owner, links);
        self.launch(owner, head, pair, |core, owner| core.chain(owner, links))
    }

    fn chain(&mut self, owner: EndpointId, links: &[Link<'_>]) -> u32 {
        let (mut head, mut last) = (NONE, NONE);
        for link in links {
            let index = self.flights.add(owner, self.current, &link.verb);
            self.flights.at_mut(index).fence = link.fence;
            if head == NONE {
                head = index;
            } else {
                self.flights.at_mut(index).head = head;
                self.flights.at_mut(last).next = index;
            }
            last = index;
        }
        self.flights.at_mut(head).chain.unserved = links.len() as u16;
        head
    }

    /// Which queue pair a verb is posted to; a message in a chain goes with the rest.
    #[inline]
    fn pair(&self, verb: &Verb<'_>) -> Option<u16> {
        // A region that does not exist is refused by the first node.
        verb.addr().map(|addr| pair_of(self.memory.node_of(addr).unwrap_or(NodeId(0))))
    }

    /// Sends a chain on its way. `copy` makes another one of the same verbs.
    #[inline]
    fn launch(
        &mut self,
        owner: EndpointId,
        head: u32,
        pair: u16,
        copy: impl FnOnce(&mut Self, EndpointId) -> u32,
    ) -> Posted {
        self.enqueue(owner, head, pair);
        let seat = &mut self.seats[usize::from(owner.index)];
        let first = seat.posted;
        seat.posted += u64::from(self.flights.at(head).chain.unserved);
        let verbs = first..seat.posted;
        let crash = self.fate(owner, verbs);
        let ticket = u64::from(self.flights.at(head).generation) << 32 | u64::from(head);
        let loses = self.seat_mut(owner).loses.take();
        let lost = self.weakness.lost;
        if loses.is_some() || lost.is_possible() && self.oracle.chance(Choice::Lose, lost) {
            self.lose(owner, head, pair, loses.flatten(), copy);
        }
        self.depart(head, pair, 0);
        if let Some(outcome) = crash {
            self.seat_mut(owner).crashed_at = Some(self.flights.at(head).kind);
            self.crash(owner, Some(outcome));
        }
        Posted::Pending(Ticket(ticket))
    }

    /// Whether an endpoint crashes as it posts its verbs with these numbers, and what then becomes
    /// of them.
    #[inline]
    fn fate(&mut self, owner: EndpointId, verbs: std::ops::Range<u64>) -> Option<Outcome> {
        let told = self.seat(owner).crash_at.filter(|(at, _)| verbs.contains(at));
        if told.is_some() || self.crashes_left == 0 || self.alone.is_some() {
            return told.map(|(_, outcome)| outcome);
        }
        self.oracle.chance(Choice::Crash, self.crash_ratio).then(|| {
            self.crashes_left -= 1;
            Outcome::ALL[self.oracle.pick(Choice::CrashOutcome, 3) as usize]
        })
    }

    /// Takes its place in the order of completions.
    #[inline]
    fn enqueue(&mut self, owner: EndpointId, head: u32, pair: u16) {
        let queue = self.seat_mut(owner).pairs.at_mut(pair);
        let newest = std::mem::replace(&mut queue.newest, head);
        if newest == NONE {
            queue.oldest = head;
        } else {
            self.flights.at_mut(newest).chain.behind = head;
        }
        self.flights.at_mut(head).chain.queued = true;
    }

    /// The completion of this chain is lost.
    fn lose(
        &mut self,
        owner: EndpointId,
        head: u32,
        pair: u16,
        outcome: Option<Outcome>,
        copy: impl FnOnce(&mut Self, EndpointId) -> u32,
    ) {
        self.flights.at_mut(head).chain.lost = true;
        const OUTCOMES: [Outcome; 3] = [Outcome::Executed, Outcome::Late, Outcome::Never];
        let outcome =
            outcome.unwrap_or_else(|| OUTCOMES[self.oracle.pick(Choice::LostOutcome, 3) as usize]);
        self.history.tell(owner, Fate::Loses(outcome));
        if outcome == Outcome::Executed {
            return;
        }
        self.cancel(head);
        if outcome == Outcome::Late {
            let ghost = copy(self, owner);
            self.flights.at_mut(ghost).chain.abandoned = true;
            let after = self.weakness.lost_after_ns.saturating_add(self.weakness.late_ns_max);
            let delay = self.oracle.pick(Choice::LostOutcome, after.saturating_add(1));
            self.depart(ghost, pair, delay);
        }
    }

    /// Nothing of this chain takes effect any more.
    pub(crate) fn cancel(&mut self, head: u32) {
        let mut index = head;
        while index != NONE {
            let link = self.flights.at_mut(index);
            link.cancelled = true;
            index = link.next;
        }
    }

    /// Puts a chain on the wire.
    #[inline]
    fn depart(&mut self, head: u32, pair: u16, late_ns: u32) {
        let (mut index, mut rtt) = (head, 0);
        while index != NONE {
            let link = self.flights.at(index);
            self.history.stats.posted[link.kind as usize] += 1;
            rtt = rtt.max(self.nic.rtt_ns(link.kind));
            let (kind, owner, next) = (link.kind, link.owner, link.next);
            if kind == Kind::Send {
                self.seat_mut(owner).sends.push(index);
            }
            if self.adds_within_ns.is_some() && kind.adds() {
                self.flights.cargo_mut(index).posted = self.now;
            }
            index = next;
        }
        rtt += self.crowding_ns;
        let there = if pair == MESSAGES { self.nic.message_ns } else { rtt - rtt / 2 };
        let chain = &mut self.flights.at_mut(head).chain;
        chain.pair = pair;
        chain.reply_ns = rtt - there;
        let verbs = self.flights.at(head).chain.unserved;
        let owner = self.flights.at(head).owner.index;
        let node = self.machines.node_of(owner).and_then(|node| self.nodes.get_mut(node));
        let nic = node.map(|node| &mut node.nic);
        let queued = self.machines.leave(nic, self.now, owner, verbs);
        let lateness = self.lateness() + queued;
        let arrival = self.now + u64::from(there) + u64::from(late_ns) + lateness;
        if self.flights.at(head).kind == Kind::Send && self.flights.at(head).next == NONE {
            self.schedule_message(head, arrival);
        } else {
            self.push(arrival, Event::Arrive(head));
        }
    }

    /// How much longer than the least possible the way there takes.
    #[inline]
    pub(crate) fn lateness(&mut self) -> Nanos {
        if self.mode == Mode::Explored {
            return 0;
        }
        let jitter = self.oracle.jitter(self.nic.jitter_mean_ns);
        jitter + self.sometimes(Choice::Late, self.weakness.late, self.weakness.late_ns_max)
    }

    /// Now and then up to so many nanoseconds, otherwise none.
    #[inline]
    fn sometimes(&mut self, choice: Choice, ratio: Ratio, ns_max: u32) -> Nanos {
        if !ratio.is_possible() || !self.oracle.chance(choice, ratio) {
            return 0;
        }
        u64::from(self.oracle.pick(choice, ns_max.saturating_add(1)))
    }

    /// A chain reaches its node.
    #[inline]
    pub(crate) fn arrive(&mut self, head: u32) {
        if !self.is_held(head, Event::Arrive(head)) {
            self.turns(head);
        }
    }

    /// Whether this chain is to be late, since its endpoint crashed; then `event` comes once more.
    #[inline]
    pub(crate) fn is_held(&mut self, head: u32, event: Event) -> bool {
        let held = self.flights.at(head).chain.hold_ns != 0;
        if held {
            self.hold(head, event);
        }
        held
    }

    #[cold]
    fn hold(&mut self, head: u32, event: Event) {
        let hold = std::mem::take(&mut self.flights.at_mut(head).chain.hold_ns);
        self.push(self.now + u64::from(hold), event);
    }

    /// It is this link's turn, and that of those after it as far as they can be served at once.
    #[inline]
    pub(crate) fn turns(&mut self, mut index: u32) {
        while index != NONE {
            if self.flights.at(index).fence && !self.passes_fence(index) {
                return;
            }
            if self.flights.at(index).kind == Kind::Read && self.is_overtaken(index) {
                let gap = self.oracle.pick(Choice::Overtake, self.weakness.overtaken_ns_max + 1);
                self.push(self.now + u64::from(gap), Event::Serve(index));
            } else {
                let Some(start) = self.admit(index) else { return };
                if start > self.now {
                    self.push(start, Event::Serve(index));
                    return;
                }
                if !self.serve(index) {
                    return;
                }
            }
            // The chain is still there: what frees it is its completion, which comes later.
            index = self.flights.at(index).next;
            if self.mode == Mode::Explored && index != NONE {
                // Between two links of a chain, anything may happen.
                self.push(self.now, Event::Turn(index));
                return;
            }
        }
    }

    /// Whether the reads before this fence were served and the requester knows it. If not, the
    /// link's turn comes again when it does.
    #[cold]
    fn passes_fence(&mut self, index: u32) -> bool {
        let head = self.flights.at(index).head;
        let chain = &mut self.flights.at_mut(head).chain;
        if !chain.read {
            return true;
        }
        if chain.open_reads > 0 {
            chain.fenced = index;
        } else {
            self.open_fence(head, index);
        }
        false
    }

    /// The requester learns that all reads were served, and goes on.
    #[cold]
    pub(crate) fn open_fence(&mut self, head: u32, index: u32) {
        self.flights.at_mut(head).chain.read = false;
        let rtt = u64::from(self.nic.read_rtt_ns);
        self.push(self.now + rtt, Event::Turn(index));
    }

    /// Whether later verbs of the chain overtake this read.
    #[inline(never)]
    fn is_overtaken(&mut self, index: u32) -> bool {
        let flight = self.flights.at(index);
        let (head, last) = (flight.head, flight.next == NONE);
        self.flights.at_mut(head).chain.read = true;
        let ratio = self.weakness.overtaken;
        if last || !ratio.is_possible() || !self.oracle.chance(Choice::Overtake, ratio) {
            return false;
        }
        self.flights.at_mut(index).overtaken = true;
        self.flights.at_mut(head).chain.open_reads += 1;
        true
    }
}
