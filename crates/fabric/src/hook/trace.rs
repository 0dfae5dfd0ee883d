//! Tracing: what an endpoint did, verb by verb, as typed records.
//!
//! A verb's record is made when it completes and says when it was posted. A record prints as one
//! line, so a trace reads as a timeline of one endpoint; sort by [`Record::at`] to merge several.
//! Tracing allocates where the sink does, and for verbs on their way.

use std::cell::{Ref, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::task::{Context, Poll};

use super::Hook;
use crate::addr::{Addr, EndpointId, Slot};
use crate::endpoint::{Endpoint, Envelope, Nanos, Posted, Ticket, Wait, WaitState, Woken};
use crate::error::Fault;
use crate::verb::{CHAIN_MAX, Link, Verb};

/// Something an endpoint did, or that befell it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// When: for a verb, when it was posted. By the endpoint's clock.
    pub at: Nanos,
    /// Whose record it is.
    pub by: EndpointId,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A verb completed or was given up.
    Verb {
        /// Which.
        verb: Summary,
        /// Its place in its chain, from 0; `None` for a single verb.
        place: Option<u8>,
        /// Nanoseconds from post to completion.
        took: Nanos,
        /// How it ended.
        outcome: Outcome,
    },
    /// A chain was refused as a whole.
    ChainRefused {
        /// How many verbs it had.
        verbs: usize,
        /// Why.
        fault: Fault,
    },
    /// A message was taken out of a mailbox.
    Received {
        /// The slot's.
        slot: Slot,
        /// What was in it.
        envelope: Envelope,
    },
    /// A wait began.
    Waits {
        /// The word it watches, and the value that must change.
        word: Option<(Addr, u64)>,
        /// The mailbox it watches.
        mail: Option<Slot>,
        /// How many peers it watches.
        peers: usize,
        /// When it ends at the latest, in nanoseconds.
        interval: Option<Nanos>,
    },
    /// A wait ended.
    Woken(Woken),
    /// A wait was dropped before it ended.
    WaitDropped,
    /// A word of its own record was stored.
    Published {
        /// Which record.
        slot: Slot,
        /// Which word of it.
        word: usize,
        /// The new value.
        value: u64,
    },
    /// A peer was revoked, or could not be.
    Revoked {
        /// Who.
        peer: EndpointId,
        /// Whether it worked.
        result: Result<(), Fault>,
    },
}

/// A verb without its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Summary {
    /// A write: how many words, and the first of them.
    Write {
        /// The first word's address.
        addr: Addr,
        /// How many words.
        words: usize,
        /// The first word, 0 if there is none.
        first: u64,
    },
    /// Any other verb.
    Verb(Verb<'static>),
}

impl From<&Verb<'_>> for Summary {
    fn from(verb: &Verb<'_>) -> Self {
        Self::Verb(match *verb {
            Verb::Write { addr, data } => {
                let first = data.first().copied().unwrap_or(0);
                return Self::Write { addr, words: data.len(), first };
            }
            Verb::Read { addr, words } => Verb::Read { addr, words },
            Verb::Cas64 { addr, compare, swap } => Verb::Cas64 { addr, compare, swap },
            Verb::Faa64 { addr, add } => Verb::Faa64 { addr, add },
            Verb::MaskedCas64 { addr, op } => Verb::MaskedCas64 { addr, op },
            Verb::MaskedFaa64 { addr, op } => Verb::MaskedFaa64 { addr, op },
            Verb::MaskedCas128 { addr, op, hint } => Verb::MaskedCas128 { addr, op, hint },
            Verb::MaskedFaa128 { addr, op, hint } => Verb::MaskedFaa128 { addr, op, hint },
            Verb::Send { to, message } => Verb::Send { to, message },
        })
    }
}

/// How a verb ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It took effect and brought no word back: a write or a message.
    Done,
    /// It took effect; its old word, or the first one or two words of a read.
    Old(u128),
    /// It ended with this fault.
    Fault(Fault),
    /// Nobody asked for its end.
    Abandoned,
}

/// Where records go. Any `FnMut(Record)` is a sink. A sink must not use the endpoint it listens to.
pub trait Sink: 'static {
    /// Takes one record, in the order of completion.
    fn take(&mut self, record: Record);
}

impl<F: FnMut(Record) + 'static> Sink for F {
    fn take(&mut self, record: Record) {
        self(record);
    }
}

/// The last records, so many at most.
#[derive(Clone, Debug)]
pub struct Ring {
    records: VecDeque<Record>,
    capacity: usize,
    dropped: u64,
}

impl Ring {
    /// An empty ring for `capacity` records; where more come, the oldest go.
    pub fn new(capacity: usize) -> Self {
        Self { records: VecDeque::with_capacity(capacity), capacity, dropped: 0 }
    }

    /// The records, oldest first.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.iter()
    }

    /// How many records went to make room.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl Sink for Ring {
    fn take(&mut self, record: Record) {
        if self.records.len() >= self.capacity {
            self.dropped += 1;
            if self.records.pop_front().is_none() {
                return;
            }
        }
        self.records.push_back(record);
    }
}

/// The timeline: a line per record, oldest first.
impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dropped > 0 {
            writeln!(f, "({} earlier records are gone)", self.dropped)?;
        }
        self.records.iter().try_for_each(|record| writeln!(f, "{record}"))
    }
}

/// An endpoint that records what it does.
#[derive(Debug)]
pub struct Traced<E, S> {
    inner: E,
    sink: RefCell<S>,
    flying: RefCell<Vec<Flight>>,
}

/// A post on its way.
#[derive(Debug)]
struct Flight {
    ticket: Ticket,
    at: Nanos,
    verbs: Vec<Summary>,
    chain: bool,
}

impl<E: Endpoint, S: Sink> Traced<E, S> {
    /// Records everything in `sink`.
    pub fn new(inner: E, sink: S) -> Self {
        Self { inner, sink: RefCell::new(sink), flying: RefCell::default() }
    }

    /// The sink, to look at; no verb may be posted meanwhile.
    pub fn sink(&self) -> Ref<'_, S> {
        self.sink.borrow()
    }

    fn note(&self, at: Nanos, event: Event) {
        self.sink.borrow_mut().take(Record { at, by: self.inner.id(), event });
    }

    fn note_now(&self, event: Event) {
        self.note(self.inner.now(), event);
    }

    fn note_verb(&self, at: Nanos, verb: Summary, place: Option<u8>, outcome: Outcome) {
        let took = self.inner.now().saturating_sub(at);
        self.note(at, Event::Verb { verb, place, took, outcome });
    }

    fn note_chain(&self, at: Nanos, verbs: &[Summary], result: Result<(), Fault>) {
        if let Err(fault) = result
            && !(1..=CHAIN_MAX).contains(&verbs.len())
        {
            return self.note(at, Event::ChainRefused { verbs: verbs.len(), fault });
        }
        for (place, &verb) in (0..).zip(verbs) {
            let done = self.inner.link(usize::from(place));
            self.note_verb(at, verb, Some(place), outcome(&verb, done.status, done.old));
        }
    }

    fn land(&self, ticket: Ticket) -> Option<Flight> {
        let mut flying = self.flying.borrow_mut();
        let at = flying.iter().position(|flight| flight.ticket == ticket)?;
        Some(flying.swap_remove(at))
    }
}

fn outcome(verb: &Summary, result: Result<(), Fault>, old: u128) -> Outcome {
    match (result, verb) {
        (Err(fault), _) => Outcome::Fault(fault),
        (Ok(()), Summary::Write { .. } | Summary::Verb(Verb::Send { .. })) => Outcome::Done,
        (Ok(()), Summary::Verb(_)) => Outcome::Old(old),
    }
}

impl<E: Endpoint, S: Sink> Hook for Traced<E, S> {
    type Inner = E;

    fn inner(&self) -> &E {
        &self.inner
    }

    fn post(&self, verb: Verb<'_>) -> Posted {
        let (at, summary) = (self.inner.now(), Summary::from(&verb));
        let posted = self.inner.post(verb);
        match posted {
            Posted::Done(result) => {
                self.note_verb(at, summary, None, outcome(&summary, result, self.inner.old()));
            }
            Posted::Pending(ticket) => {
                let flight = Flight { ticket, at, verbs: vec![summary], chain: false };
                self.flying.borrow_mut().push(flight);
            }
        }
        posted
    }

    fn post_chain(&self, chain: &[Link<'_>]) -> Posted {
        let at = self.inner.now();
        let verbs: Vec<_> = chain.iter().map(|link| Summary::from(&link.verb)).collect();
        let posted = self.inner.post_chain(chain);
        match posted {
            Posted::Done(result) => self.note_chain(at, &verbs, result),
            Posted::Pending(ticket) => {
                self.flying.borrow_mut().push(Flight { ticket, at, verbs, chain: true });
            }
        }
        posted
    }

    fn poll_posted(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let polled = self.inner.poll_posted(ticket, cx);
        if let Poll::Ready(result) = polled
            && let Some(flight) = self.land(ticket)
        {
            if flight.chain {
                self.note_chain(flight.at, &flight.verbs, result);
            } else {
                let verb = flight.verbs[0];
                self.note_verb(flight.at, verb, None, outcome(&verb, result, self.inner.old()));
            }
        }
        polled
    }

    fn abandon(&self, ticket: Ticket) {
        if let Some(flight) = self.land(ticket) {
            for (place, &verb) in (0..).zip(&flight.verbs) {
                let place = flight.chain.then_some(place);
                self.note_verb(flight.at, verb, place, Outcome::Abandoned);
            }
        }
        self.inner.abandon(ticket);
    }

    fn receive(&self, slot: Slot) -> Option<Envelope> {
        let envelope = self.inner.receive(slot)?;
        self.note_now(Event::Received { slot, envelope });
        Some(envelope)
    }

    fn poll_wait(
        &self,
        wait: &Wait<'_>,
        state: &mut WaitState,
        cx: &mut Context<'_>,
    ) -> Poll<Woken> {
        if !state.begun {
            let Wait { word, mail, peers, interval, patience: _ } = *wait;
            self.note_now(Event::Waits { word, mail, peers: peers.len(), interval });
        }
        let polled = self.inner.poll_wait(wait, state, cx);
        if let Poll::Ready(woken) = polled {
            self.note_now(Event::Woken(woken));
        }
        polled
    }

    fn end_wait(&self, state: &mut WaitState) {
        self.note_now(Event::WaitDropped);
        self.inner.end_wait(state);
    }

    fn publish(&self, slot: Slot, word: usize, value: u64) {
        self.note_now(Event::Published { slot, word, value });
        self.inner.publish(slot, word, value);
    }

    fn revoke(&self, peer: EndpointId) -> Result<(), Fault> {
        let result = self.inner.revoke(peer);
        self.note_now(Event::Revoked { peer, result });
        result
    }
}

/// `   12345 ns  e1.1  cas64 0+0x40: 0x0 -> 0x1, old 0x0, 2000 ns`
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12} ns  {:?}  {}", self.at, self.by, self.event)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verb { verb, place, took, outcome } => {
                if let Some(place) = place {
                    write!(f, "[{place}] ")?;
                }
                write!(f, "{verb}, {outcome}, {took} ns")
            }
            Self::ChainRefused { verbs, fault } => write!(f, "chain of {verbs}, {fault}"),
            Self::Received { slot, envelope: Envelope { from, arrived, message } } => {
                write!(f, "received in slot {} from {from:?}: {message:x?}, ", slot.0)?;
                write!(f, "arrived at {arrived} ns")
            }
            Self::Waits { word, mail, peers, interval } => {
                f.write_str("waits for")?;
                if let Some((addr, value)) = word {
                    write!(f, " {addr:?} to leave {value:#x};")?;
                }
                if let Some(slot) = mail {
                    write!(f, " mail in slot {};", slot.0)?;
                }
                if *peers > 0 {
                    write!(f, " the death of one of {peers};")?;
                }
                interval.map_or(Ok(()), |interval| write!(f, " {interval} ns"))
            }
            Self::Woken(Woken::PeerGone(peer)) => write!(f, "woken: {peer:?} is gone"),
            Self::Woken(woken) => write!(f, "woken: {woken:?}"),
            Self::WaitDropped => f.write_str("wait dropped"),
            Self::Published { slot, word, value } => {
                write!(f, "publishes slot {} word {word} = {value:#x}", slot.0)
            }
            Self::Revoked { peer, result: Ok(()) } => write!(f, "revoked {peer:?}"),
            Self::Revoked { peer, result: Err(fault) } => write!(f, "revokes {peer:?}: {fault}"),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self {
            Self::Write { addr, words, first } => {
                return write!(f, "write {addr:?}: {words} words, first {first:#x}");
            }
            Self::Verb(verb) => verb,
        };
        f.write_str(verb.name())?;
        match verb {
            Verb::Read { addr, words } => write!(f, " {addr:?}: {words} words"),
            Verb::Cas64 { addr, compare, swap } => {
                write!(f, " {addr:?}: {compare:#x} -> {swap:#x}")
            }
            Verb::Faa64 { addr, add } => write!(f, " {addr:?}: + {add:#x}"),
            Verb::MaskedCas64 { addr, op } => {
                write!(f, " {addr:?}: {:#x}/{:#x}", op.compare, op.compare_mask)?;
                write!(f, " -> {:#x}/{:#x}", op.swap, op.swap_mask)
            }
            Verb::MaskedCas128 { addr, op, hint: _ } => {
                write!(f, " {addr:?}: {:#x}/{:#x}", op.compare, op.compare_mask)?;
                write!(f, " -> {:#x}/{:#x}", op.swap, op.swap_mask)
            }
            Verb::MaskedFaa64 { addr, op } => {
                write!(f, " {addr:?}: + {:#x}/{:#x}", op.add, op.boundary)
            }
            Verb::MaskedFaa128 { addr, op, hint: _ } => {
                write!(f, " {addr:?}: + {:#x}/{:#x}", op.add, op.boundary)
            }
            Verb::Send { to, message } => write!(f, " to {to:?}: {message:x?}"),
            Verb::Write { .. } => Ok(()), // a write has a summary of its own
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Old(old) => write!(f, "old {old:#x}"),
            Self::Fault(fault) => write!(f, "{fault}"),
            Self::Abandoned => f.write_str("abandoned"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::{Event, Outcome, Record, Ring, Traced};
    use crate::addr::{Mailbox, Slot};
    use crate::endpoint::{Endpoint, Wait, block_on};
    use crate::hook::{Delay, Delayed};
    use crate::model::World;
    use crate::verb::{MaskedCas, Verb};

    #[test]
    fn a_trace_reads_as_a_timeline() {
        let world = World::new();
        let inner = Delayed::new(world.endpoint(), Delay::Fixed(1000));
        let e = Traced::new(inner, Ring::new(100));
        let addr = world.scratch(64);
        let (id, at) = (e.id(), format!("{addr:?}"));
        block_on(&e, async {
            e.cas64(addr, 0, 5).await.unwrap();
            let op = MaskedCas { compare: 5, compare_mask: 0xff, swap: 7, swap_mask: 0xf };
            e.verb(Verb::MaskedCas64 { addr, op }).await.unwrap();
            let chain =
                [Verb::Write { addr, data: &[1, 2] }.into(), Verb::Read { addr, words: 2 }.into()];
            e.chain(&chain).await.unwrap();
            drop(e.faa64(addr, 1));
            e.send(Mailbox { endpoint: id, slot: Slot(1) }, [1, 2, 3, 4]).await.unwrap();
            e.wait(Wait { mail: Some(Slot(1)), interval: Some(9), ..Wait::default() }).await;
            let _ = e.receive(Slot(1));
            let _ = e.chain(&[]).await;
        });
        let expected = format!(
            "           0 ns  {id:?}  cas64 {at}: 0x0 -> 0x5, old 0x0, 1000 ns
        1000 ns  {id:?}  masked-cas64 {at}: 0x5/0xff -> 0x7/0xf, old 0x5, 1000 ns
        2000 ns  {id:?}  [0] write {at}: 2 words, first 0x1, done, 1000 ns
        2000 ns  {id:?}  [1] read {at}: 2 words, old 0x20000000000000001, 1000 ns
        3000 ns  {id:?}  faa64 {at}: + 0x1, abandoned, 0 ns
        3000 ns  {id:?}  send to {id:?}/1: [1, 2, 3, 4], done, 1000 ns
        4000 ns  {id:?}  waits for mail in slot 1; 9 ns
        4000 ns  {id:?}  woken: Mail
        4000 ns  {id:?}  received in slot 1 from {id:?}: [1, 2, 3, 4], arrived at 4000 ns
        4000 ns  {id:?}  chain of 0, this fabric cannot do this
"
        );
        assert_eq!(e.sink().to_string(), expected);
    }

    #[test]
    fn a_ring_keeps_the_last_records_and_a_closure_takes_all() {
        let world = World::new();
        let all = Rc::new(RefCell::new(Vec::new()));
        let sink = {
            let all = Rc::clone(&all);
            move |record: Record| all.borrow_mut().push(record)
        };
        let e = Traced::new(Traced::new(world.endpoint(), Ring::new(2)), sink);
        let word = world.scratch(64);
        block_on(&e, async {
            for _ in 0..5 {
                e.faa64(word, 1).await.unwrap();
            }
        });
        let olds: Vec<_> = all
            .borrow()
            .iter()
            .map(|record| match record.event {
                Event::Verb { outcome: Outcome::Old(old), .. } => old,
                other => panic!("{other}"),
            })
            .collect();
        assert_eq!(olds, [0, 1, 2, 3, 4]);
        assert_eq!(all.borrow().len(), 5);
    }
}
