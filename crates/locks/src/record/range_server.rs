//! A server of ranges: clients ask it by messages, and what it knows lies in a structure of its own
//! ("type I" of Citron, FAST'23, section 4.1 and table 1).
#![doc = include_str!("../../../../docs/protocols/range-server.md")]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use farlock_fabric::{
    Addr, Endpoint, EndpointId, Envelope, Mailbox, Nanos, Posted, Slot, Verb, Wait, Waiting,
};

use super::letter::{self, Letter, Subject};
use crate::local::together;
use crate::lock::{Serve, Server};
use crate::prelude::*;
use crate::want::{Extent, Want};

/// The most cores of a server. It serves with as many as its endpoint has slots, at most.
const CORES_MAX: u8 = 64;
/// The pause before a client asks again, and before a core without work looks again, in
/// nanoseconds: a round trip.
const POLL_NS: Nanos = 1_862;
/// The longest a request may take, in nanoseconds.
const COST_NS_MAX: Nanos = 1_000_000;

/// Ranges of which none have units in common. Each function says how many of its entries or nodes
/// it has looked at.
pub trait RangeSet {
    /// Enters these units, unless some of them are there. Whether it has.
    fn enter(&mut self, units: &Range<u32>) -> (bool, u32);

    /// Takes out the range that begins there.
    fn leave(&mut self, start: u32) -> u32;

    /// Whether there are none.
    fn is_empty(&self) -> bool;

    /// All ranges, in order.
    fn ranges(&self) -> Vec<Range<u32>>;
}

/// Makes an empty set.
pub type MakeSet = fn() -> Box<dyn RangeSet>;

/// How requests wait that cannot be granted at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// In line at the server, which answers when it grants.
    InLine,
    /// At the server, whose core looks again and again.
    AtCore,
    /// At the client, which asks again and again.
    AtClient,
}

/// What requests cost where computing takes no time by itself, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Costs {
    /// To receive a message and answer.
    pub message_ns: Nanos,
    /// To enter or leave the structure.
    pub entry_ns: Nanos,
    /// To look at one of its entries or nodes.
    pub step_ns: Nanos,
    /// To look at a request in line.
    pub waiter_ns: Nanos,
}

/// A range lock that a server grants.
#[derive(Clone, Debug)]
pub struct RangeServer {
    pub(super) make: MakeSet,
    /// Whether one core at a time may use the structure.
    pub is_guarded: bool,
    /// The server that grants it; nobody's until there is one.
    pub server: EndpointId,
    /// How many cores serve.
    pub cores: u8,
    /// How requests wait.
    pub waits: Waits,
    /// The pause before a client asks or a core looks again, in nanoseconds.
    pub poll_ns: Nanos,
    /// What requests cost.
    pub costs: Costs,
}

impl RangeServer {
    /// One core that keeps ranges in such a structure.
    pub const fn new(make: MakeSet, is_guarded: bool) -> Self {
        Self {
            make,
            is_guarded,
            server: EndpointId::NOBODY,
            cores: 1,
            waits: Waits::InLine,
            poll_ns: POLL_NS,
            costs: Costs { message_ns: 0, entry_ns: 0, step_ns: 0, waiter_ns: 0 },
        }
    }

    /// An empty structure of the kind that it keeps its ranges in.
    pub fn structure(&self) -> Box<dyn RangeSet> {
        (self.make)()
    }

    fn waits_setting(&mut self) -> Setting<'_> {
        Setting::choice(
            &mut self.waits,
            &[("line", Waits::InLine), ("core", Waits::AtCore), ("client", Waits::AtClient)],
        )
    }
}

impl<E: Endpoint> Protocol<'_, E, RangeServer> {
    /// Where the server takes this client's letters about this lock, in the order in which it
    /// writes them: those of one core.
    fn counter(self) -> Mailbox {
        let slots = u64::from(self.endpoint.slots());
        let number = match u64::from(self.rules.cores).min(slots) {
            1 => self.lock.offset() / 8 % slots,
            cores => u64::from(self.endpoint.id().index) % cores,
        };
        Mailbox { endpoint: self.rules.server, slot: Slot(number as u8) }
    }

    async fn write(self, subject: Subject, units: Range<u32>) -> Outcome<()> {
        letter::write(&self, self.counter(), subject, packed(&units)).await
    }

    /// Asks for the units, and waits for the answer.
    async fn request(self, subject: Subject, units: Range<u32>) -> Outcome<Subject> {
        self.write(subject, units).await?;
        Ok(letter::read(&self, &[subject as u64]).await?.subject)
    }
}

/// Units in a number.
fn packed(units: &Range<u32>) -> u64 {
    u64::from(units.end) << 32 | u64::from(units.start)
}

const fn unpacked(number: u64) -> Range<u32> {
    number as u32..(number >> 32) as u32
}

impl LockKind for RangeServer {
    const BYTES: u64 = 8;
    const SHARES: bool = false;
    const TOKENS: TokenSource = TokenSource::Nowhere;

    fn units(&self) -> Option<u64> {
        Some(u32::MAX.into())
    }

    /// `server=BITS`: the server's [`EndpointId::bits`]; `cores=COUNT`; `waits=line`, `core` or
    /// `client`; `poll=NANOS` between two looks; `message=NANOS`, `entry=NANOS`, `step=NANOS`,
    /// `waiter=NANOS`: what the server takes. It has any `space=COUNT`.
    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        let cost = |cost| Some(Setting::count(cost, 0..=COST_NS_MAX));
        match name {
            "server" => Some(Setting::endpoint(&mut self.server)),
            "cores" => Some(Setting::count(&mut self.cores, 1..=CORES_MAX)),
            "waits" => Some(self.waits_setting()),
            "poll" => Some(Setting::nanos(&mut self.poll_ns, 1)),
            "message" => cost(&mut self.costs.message_ns),
            "entry" => cost(&mut self.costs.entry_ns),
            "step" => cost(&mut self.costs.step_ns),
            "waiter" => cost(&mut self.costs.waiter_ns),
            "space" => Some(Setting::space(|units| units <= u32::MAX.into())),
            _ => None,
        }
    }

    fn promises(&self) -> Promises {
        Promises {
            outlives_clients: false,
            served: true,
            proof: Proof {
                variants: &["waits=core", "waits=client"],
                patient: "poll=2500000",
                hurried: "poll=50000",
                in_parts: &[0, 1, 2, 3, 4],
                ..Proof::SLEEPER
            },
            ..Promises::EXCLUSION
        }
    }
}

impl<E: Endpoint> Lock<E> for RangeServer {
    type Want = Extent;
    type Grant = ();

    fn server(&mut self) -> Option<&mut dyn Serve<E>> {
        Some(self)
    }

    fn opening(&self, _: &Site<'_, E>, _: Extent) -> Verb<'static> {
        unreachable!("no verb opens it")
    }

    /// Nothing is posted: a client must be able to ask again, where the server has no room.
    fn open(&self, _: &Site<'_, E>, _: Extent) -> Posted {
        Posted::Done(Ok(()))
    }

    fn opened(&self, _: &Site<'_, E>, _: Extent, _: u128) -> Option<()> {
        None
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, want: Extent, _: u128) -> Outcome<()> {
        site.publish(Phase::Waiting, want.mode(), 0);
        let (units, server) = (want.units(u32::MAX), self.server);
        while site.by(self).request(Subject::Request, units.clone()).await? != Subject::Granted {
            site.event(Event::Retried { lock: site.lock });
            site.endpoint.checkpoint(&[packed(&units)]);
            let wait = Wait { peers: &[server], interval: Some(self.poll_ns), ..Wait::default() };
            site.endpoint.wait(wait).await;
        }
        Ok(())
    }

    fn closing(&self, _: &Site<'_, E>, _: Extent, (): ()) -> Option<Verb<'static>> {
        None
    }

    fn closed(&self, _: &Site<'_, E>, _: Extent, (): (), _: u128) -> bool {
        unreachable!("no verb closes it")
    }

    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        want: Extent,
        (): (),
        _: Option<u128>,
    ) -> Outcome<()> {
        site.by(self).write(Subject::Release, want.units(u32::MAX)).await
    }

    fn trying(&self, _: &Site<'_, E>, _: Extent, _: Option<u128>) -> Option<Verb<'static>> {
        None
    }

    async fn attempt(&self, site: &Site<'_, E>, want: Extent) -> Outcome<Option<()>> {
        let answer = site.by(self).request(Subject::Try, want.units(u32::MAX)).await?;
        Ok((answer == Subject::Granted).then_some(()))
    }
}

impl<E: Endpoint> Serve<E> for RangeServer {
    fn serve(&mut self, endpoint: Rc<E>) -> Server {
        self.server = endpoint.id();
        let cores = self.cores.min(endpoint.slots());
        let (rules, tables) = (self.clone(), RefCell::default());
        let desk = Rc::new(Desk { endpoint, rules, tables, guarded_until: Cell::new(0) });
        if cores == 1 {
            return Box::pin(desk.serve(0, 1));
        }
        let core = move |number| Rc::clone(&desk).serve(number, cores);
        Box::pin(async move {
            together((0..cores).map(core)).await;
        })
    }
}

/// What the cores of a server share.
struct Desk<E> {
    endpoint: Rc<E>,
    rules: RangeServer,
    /// The locks of which some units are held or awaited.
    tables: RefCell<BTreeMap<Addr, Table>>,
    /// Until when a core uses the structures.
    guarded_until: Cell<Nanos>,
}

impl<E: Endpoint> Desk<E> {
    /// One core, which answers its clients for ever.
    async fn serve(self: Rc<Self>, core: u8, cores: u8) {
        let slots = (core..self.endpoint.slots()).step_by(cores.into()).map(Slot);
        let slots: Vec<Slot> = slots.collect();
        let mut again = VecDeque::new();
        loop {
            for &slot in &slots {
                while let Some(Envelope { message, .. }) = self.endpoint.receive(slot) {
                    let Some(letter) = Letter::decode(&message) else { continue };
                    self.computes(self.rules.costs.message_ns).await;
                    again.extend(self.answer(letter).await);
                }
            }
            for _ in 0..again.len() {
                let waiting = again.pop_front().expect("nobody else takes from it");
                again.extend(self.answer(waiting).await);
            }
            self.endpoint.checkpoint(&self.survivors(&again));
            let interval = (!again.is_empty()).then_some(self.rules.poll_ns);
            any_mail(&*self.endpoint, &slots, interval).await;
        }
    }

    /// Does what a letter asks, and answers. The letter, if this core is to look at it again.
    async fn answer(&self, letter: Letter) -> Option<Letter> {
        let done = self.take(&letter);
        let Costs { message_ns, entry_ns, step_ns, waiter_ns } = self.rules.costs;
        let looks = u64::from(done.steps) * step_ns + u64::from(done.waiters) * waiter_ns;
        self.uses(entry_ns + looks).await;
        for (number, (to, subject)) in (0..).zip(done.answers) {
            if number > 0 || letter.subject == Subject::Release {
                self.computes(message_ns).await;
            }
            let from = Mailbox { endpoint: self.endpoint.id(), slot: Slot(0) };
            let message = Letter { subject, from, ..letter }.encode();
            // A client has room for its only answer. If it is gone, nobody asks for it.
            if let Posted::Pending(sent) = self.endpoint.post(Verb::Send { to, message }) {
                self.endpoint.abandon(sent);
            }
        }
        done.looks_again.then_some(letter)
    }

    fn take(&self, letter: &Letter) -> Done {
        let mut tables = self.tables.borrow_mut();
        let table = tables.entry(letter.lock).or_insert_with(|| Table::new(self.rules.make));
        let done = table.take(letter, self.rules.waits);
        if table.is_empty() {
            tables.remove(&letter.lock);
        }
        done
    }

    /// A core computes for so long.
    async fn computes(&self, nanos: Nanos) {
        if nanos > 0 {
            self.endpoint.sleep(nanos).await;
        }
    }

    /// A core uses the structure for so long, after those that came before it.
    async fn uses(&self, nanos: Nanos) {
        if nanos == 0 || !self.rules.is_guarded {
            return self.computes(nanos).await;
        }
        let now = self.endpoint.now();
        let until = self.guarded_until.get().max(now) + nanos;
        self.guarded_until.set(until);
        self.computes(until - now).await;
    }

    /// All that it knows, as numbers.
    fn survivors(&self, again: &VecDeque<Letter>) -> Vec<u64> {
        let mut all: Vec<u64> = again.iter().flat_map(Letter::encode).collect();
        for (lock, table) in self.tables.borrow().iter() {
            all.push(lock.bits());
            all.extend(table.set.ranges().iter().map(packed));
            all.extend(
                table.line.iter().flat_map(|asked| [asked.client.bits(), packed(&asked.units)]),
            );
        }
        all
    }
}

/// Waits until a message lies in one of these mailboxes, or so long.
async fn any_mail<E: Endpoint>(endpoint: &E, slots: &[Slot], interval: Option<Nanos>) {
    let wait = |&slot| endpoint.wait(Wait { mail: Some(slot), interval, ..Wait::default() });
    let mut waits: Vec<Waiting<'_, E>> = slots.iter().map(wait).collect();
    poll_fn(|cx| {
        let woken = waits.iter_mut().any(|wait| Pin::new(wait).poll(cx).is_ready());
        if woken { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// What the server knows of a lock.
struct Table {
    set: Box<dyn RangeSet>,
    line: VecDeque<Asked>,
}

/// A request in line.
struct Asked {
    client: Mailbox,
    units: Range<u32>,
}

/// What came of a letter.
#[derive(Debug, Default, PartialEq, Eq)]
struct Done {
    answers: Vec<(Mailbox, Subject)>,
    /// Entries and nodes that were looked at.
    steps: u32,
    /// Requests in line that were looked at.
    waiters: u32,
    /// Whether the core is to look at the letter again.
    looks_again: bool,
}

impl Table {
    fn new(make: MakeSet) -> Self {
        Self { set: make(), line: VecDeque::new() }
    }

    fn is_empty(&self) -> bool {
        self.line.is_empty() && self.set.is_empty()
    }

    fn take(&mut self, letter: &Letter, waits: Waits) -> Done {
        let (units, client, mut done) = (unpacked(letter.count), letter.from, Done::default());
        match letter.subject {
            Subject::Request | Subject::Try if self.enters(&units, &mut done) => {
                done.answers.push((client, Subject::Granted));
            }
            Subject::Request if waits == Waits::InLine => {
                self.line.push_back(Asked { client, units });
            }
            Subject::Request if waits == Waits::AtCore => done.looks_again = true,
            Subject::Request | Subject::Try => done.answers.push((client, Subject::Refused)),
            Subject::Release => {
                done.steps += self.set.leave(units.start);
                self.grant(&units, &mut done);
            }
            // Not a server's business.
            _ => {}
        }
        done
    }

    /// Enters units that nobody has, and nobody awaits. Whether it has.
    fn enters(&mut self, units: &Range<u32>, done: &mut Done) -> bool {
        done.waiters += self.line.len() as u32;
        if self.line.iter().any(|asked| meet(&asked.units, units)) {
            return false;
        }
        let (entered, looked) = self.set.enter(units);
        done.steps += looked;
        entered
    }

    /// Lets those in line in that waited for these units, and for nobody before them.
    fn grant(&mut self, freed: &Range<u32>, done: &mut Done) {
        let mut stay: VecDeque<Asked> = VecDeque::with_capacity(self.line.len());
        for asked in self.line.drain(..) {
            done.waiters += 1;
            let before = |other: &Asked| meet(&other.units, &asked.units);
            let may_enter = meet(&asked.units, freed) && !stay.iter().any(before);
            let (entered, looked) =
                if may_enter { self.set.enter(&asked.units) } else { (false, 0) };
            done.steps += looked;
            if entered {
                done.answers.push((asked.client, Subject::Granted));
            } else {
                stay.push_back(asked);
            }
        }
        self.line = stay;
    }
}

/// Whether these have units in common.
pub(super) const fn meet(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
pub(super) mod tests {
    use farlock_fabric::RegionId;

    use super::*;

    /// A structure does what a list of ranges does, whatever comes and goes.
    pub(crate) fn behaves(make: MakeSet) {
        let (mut set, mut known, mut chance) = (make(), Vec::<Range<u32>>::new(), 1_u64);
        for round in 0..20_000 {
            chance = chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let (start, length) = ((chance >> 40) as u32 % 500, (chance >> 60) as u32 + 1);
            let leaves = chance >> 33 & 1 == 1 && !known.is_empty();
            if leaves {
                let gone = known.remove(start as usize % known.len());
                assert!(set.leave(gone.start) > 0, "it looks at what it takes out");
            } else {
                let units = start..start + length;
                let is_free = known.iter().all(|other| !meet(other, &units));
                assert_eq!(set.enter(&units).0, is_free, "{units:?} among {known:?}");
                known.extend(is_free.then_some(units));
            }
            if round % 64 == 0 {
                known.sort_by_key(|units| units.start);
                assert_eq!(set.ranges(), known);
            }
        }
        for units in known {
            set.leave(units.start);
        }
        assert!(set.is_empty() && set.ranges().is_empty());
    }

    fn client(index: u16) -> Mailbox {
        Mailbox { endpoint: EndpointId { index, incarnation: 1 }, slot: Slot(0) }
    }

    /// What a table answers to these letters, one after the other.
    fn told(waits: Waits, said: &[(u16, Subject, Range<u32>)]) -> Vec<(u16, Subject)> {
        let mut table = Table::new(super::super::linked_list::LINKED_LIST.make);
        let mut told = Vec::new();
        for (index, subject, units) in said.iter().cloned() {
            let lock = Addr::new(RegionId(1), 64);
            let letter = Letter { subject, count: packed(&units), from: client(index), lock };
            let answers = table.take(&letter, waits).answers;
            told.extend(answers.into_iter().map(|(to, subject)| (to.endpoint.index, subject)));
        }
        told
    }

    use Subject::{Granted, Refused, Release, Request, Try};

    /// A request waits for those that hold its units and for those that came before it, and keeps
    /// out nobody else.
    #[test]
    fn those_in_line_are_granted_in_order_where_they_meet() {
        let said = [
            (1, Request, 0..4),
            (2, Request, 3..8),
            (3, Request, 7..9),
            (4, Request, 9..10),
            (5, Try, 7..9),
            (1, Release, 0..4),
            (2, Release, 3..8),
        ];
        let expected = [(1, Granted), (4, Granted), (5, Refused), (2, Granted), (3, Granted)];
        assert_eq!(told(Waits::InLine, &said), expected);
    }

    #[test]
    fn without_a_line_who_comes_when_the_units_are_free_has_them() {
        let said = [(1, Request, 0..4), (2, Request, 3..8), (1, Release, 0..4), (3, Request, 3..5)];
        assert_eq!(told(Waits::AtClient, &said), [(1, Granted), (2, Refused), (3, Granted)]);
        assert_eq!(told(Waits::AtCore, &said), [(1, Granted), (3, Granted)]);
    }
}
