//! Crash points: every verb of every role, as runs show them.
//!
//! Nobody lists verbs by hand. Each client acts through a [`Watched`] endpoint, which sees what it
//! posts, and in which role: as its own slot record says, it opens the lock, waits, holds, or
//! repairs. A verb is told from others by what it is, by what it touches, and by the fields that it
//! compares and changes. So two verbs are one point if nobody could tell them apart from outside.

use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};

use farlock_fabric::hook::Hook;
use farlock_fabric::word::Field;
use farlock_fabric::{
    Addr, Endpoint, HoldBack, Link, Message, Posted, Slot, Verb, Wait, WaitState, Woken,
};
use farlock_locks::record::queue::Note;
use farlock_locks::slot::{self, Phase, SlotWord};
use farlock_locks::{FieldsAt, Mode};
use farlock_sim::{Kind, SimEndpoint};

use crate::layout::Layout;

/// What a verb touches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    /// The lock, so many bytes after its address.
    Lock(u64),
    /// What the lock protects.
    Data,
    /// A slot record.
    Record,
    /// A mailbox.
    Mailbox,
}

/// What a verb does there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Act {
    /// A read or a write.
    Transfer,
    /// A compare-and-swap of a whole word: whether it compares with zero, and stores it.
    Swap { from_zero: bool, to_zero: bool },
    /// The bits that a masked compare-and-swap compares and changes.
    Masked { compares: u128, changes: u128 },
    /// What is added.
    Added(u128),
    /// A message of this kind.
    Message(u8),
}

/// A verb of a role: a place where a client may die.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Point {
    mode: Mode,
    phase: u8,
    name: &'static str,
    place: Place,
    act: Act,
}

impl Point {
    /// The point of this verb, posted in the role that `state` says.
    fn of(state: SlotWord, verb: &Verb<'_>, layout: Layout) -> Self {
        let place = match verb.addr().map(|addr| layout.place(addr)) {
            None => Place::Mailbox,
            Some(None) => Place::Record,
            Some(Some((_, offset))) if layout.is_protected(offset) => Place::Data,
            Some(Some((_, offset))) => Place::Lock(offset),
        };
        let act = match *verb {
            Verb::Read { .. } | Verb::Write { .. } => Act::Transfer,
            Verb::Cas64 { compare, swap, .. } => {
                Act::Swap { from_zero: compare == 0, to_zero: swap == 0 }
            }
            Verb::MaskedCas64 { op, .. } => {
                Act::Masked { compares: op.compare_mask.into(), changes: op.swap_mask.into() }
            }
            Verb::MaskedCas128 { op, .. } => {
                Act::Masked { compares: op.compare_mask, changes: op.swap_mask }
            }
            Verb::Faa64 { add, .. } => Act::Added(add.into()),
            Verb::MaskedFaa64 { op, .. } => Act::Added(op.add.into()),
            Verb::MaskedFaa128 { op, .. } => Act::Added(op.add),
            Verb::Send { message, .. } => Act::Message(kind_of(&message)),
        };
        let mode = if state.mode() == 0 { Mode::Shared } else { Mode::Exclusive };
        Self { mode, phase: state.phase() as u8, name: Kind::of(verb).name(), place, act }
    }

    /// Whether a client repairs the lock with this verb.
    pub fn is_repair(&self) -> bool {
        Phase::from_bits(self.phase.into()) == Some(Phase::Repairing)
    }

    /// The point in words, given the fields of the lock's words:
    /// `writer waiting: masked-cas128 generation -> tail generation`.
    pub fn named(&self, fields_at: FieldsAt) -> impl fmt::Display + use<> {
        let offset = if let Place::Lock(offset) = self.place { offset } else { 0 };
        Named { point: *self, fields: fields_at(offset) }
    }
}

/// What kind of message it is: a note's, or else its first byte.
fn kind_of(message: &Message) -> u8 {
    Note::decode(message).map_or(message[0] as u8, |note| note.kind as u8)
}

struct Named {
    point: Point,
    fields: &'static [Field],
}

impl Named {
    /// The fields that these bits are in.
    fn list(&self, bits: u128) -> String {
        let named = self.fields.iter().filter(|field| field.mask() & bits != 0);
        let names: Vec<&str> = named.map(|field| field.name).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(" ") }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { mode, phase, name, place, act } = self.point;
        f.write_str(if mode == Mode::Shared { "reader " } else { "writer " })?;
        f.write_str(match Phase::from_bits(phase.into()) {
            Some(Phase::Opening) => "opening",
            Some(Phase::Waiting) => "waiting",
            Some(Phase::Held) => "holding",
            Some(Phase::Repairing) => "repairing",
            Some(Phase::Claiming) => "claiming",
            Some(Phase::Leaving) => "leaving",
            Some(Phase::Withdrawn) => "withdrawn",
            Some(Phase::Trying) => "trying",
            Some(Phase::Coming) => "coming",
            Some(Phase::Idle) | None => "idle",
        })?;
        write!(f, ": {name}")?;
        match place {
            Place::Lock(0) if act == Act::Transfer => f.write_str(" lock")?,
            Place::Lock(0) | Place::Mailbox => {}
            Place::Lock(offset) => write!(f, " lock+{offset}")?,
            Place::Data => f.write_str(" data")?,
            Place::Record => f.write_str(" record")?,
        }
        match act {
            Act::Transfer => Ok(()),
            Act::Swap { from_zero, to_zero } => {
                let name = |zero| if zero { "free" } else { "taken" };
                write!(f, " {} -> {}", name(from_zero), name(to_zero))
            }
            Act::Masked { compares, changes } => {
                write!(f, " {} -> {}", self.list(compares), self.list(changes))
            }
            Act::Added(bits) => write!(f, " {}", self.list(bits)),
            Act::Message(kind) => match Note::decode(&[kind.into(), 0, 0, 0]) {
                Some(note) => write!(f, " {:?}", note.kind),
                None => write!(f, " {kind}"),
            },
        }
    }
}

/// Is told of each verb of a client before it is posted and after, by the client's number and the
/// verb's, counted from 0.
pub trait Witness {
    /// Client `who` is about to post its `verb`-th verb.
    fn posts(&self, who: u16, verb: u64, point: Point);

    /// It died as it posted it.
    fn died(&self, who: u16, verb: u64, point: Point);
}

/// Is asked to interfere as clients post certain verbs.
pub trait Alarm {
    /// The first verb of client `who`, from this number on, at which [`Alarm::rings`]; none if
    /// [`u64::MAX`].
    fn next(&self, who: u16, verb: u64) -> u64;

    /// Client `who` is about to post this verb.
    fn rings(&self, who: u16, verb: u64);

    /// Client `who`, which has posted so many verbs, has begun to wait for something else than a
    /// verb.
    fn waits(&self, who: u16, verbs: u64);
}

/// Is told by clients when they begin to acquire, for the first time or again, and when they act.
pub trait ClientObserver {
    /// A record of client `who` says from now on that it opens this lock.
    fn opens(&self, who: u16, lock: Addr);
    /// Client `who` posts verbs with one doorbell of which one may change something of a lock.
    fn acts(&self, who: u16);
}

/// A client's endpoint, whose verbs are noted as they reach the fabric.
pub struct Watched {
    inner: SimEndpoint,
    who: u16,
    witness: Option<Rc<dyn Witness>>,
    alarm: Option<Rc<dyn Alarm>>,
    observer: Option<Rc<dyn ClientObserver>>,
    alarm_at: std::cell::Cell<u64>,
    layout: Layout,
    /// Of the slot that has published last, or, if that does nothing any more, of another one.
    state: std::cell::Cell<SlotWord>,
    /// By slot: what it does.
    states: Box<[std::cell::Cell<SlotWord>]>,
    /// By slot: the lock that it is about.
    aims: Box<[std::cell::Cell<Addr>]>,
    posted: std::cell::Cell<u64>,
    joint: bool,
}

impl Watched {
    /// The endpoint of client `who` at these locks.
    pub fn new(
        inner: SimEndpoint,
        who: u16,
        layout: Layout,
        witness: Option<Rc<dyn Witness>>,
    ) -> Self {
        let aims = (0..inner.slots()).map(|_| std::cell::Cell::new(layout.word(0)));
        Self {
            aims: aims.collect(),
            who,
            witness,
            alarm: None,
            observer: None,
            alarm_at: std::cell::Cell::new(u64::MAX),
            layout,
            states: (0..inner.slots()).map(|_| std::cell::Cell::new(SlotWord::new())).collect(),
            state: std::cell::Cell::new(SlotWord::new()),
            posted: std::cell::Cell::new(0),
            joint: false,
            inner,
        }
    }

    /// The same endpoint for several that act on it in turn: where one of them begins another turn
    /// of a loop, the others are not to be forgotten.
    pub fn joint(mut self, joint: bool) -> Self {
        self.joint = joint;
        self
    }

    /// The same endpoint, with an alarm.
    pub fn alarmed(mut self, alarm: Rc<dyn Alarm>) -> Self {
        self.alarm_at.set(alarm.next(self.who, 0));
        self.alarm = Some(alarm);
        self
    }

    /// The same endpoint, with a observer.
    pub fn observed(self, observer: Rc<dyn ClientObserver>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Tells of verbs that are about to be posted with one doorbell.
    fn tell<'v>(&self, mut verbs: impl Iterator<Item = &'v Verb<'v>>) {
        let Some(observer) = &self.observer else { return };
        let is_read = |verb: &Verb<'_>| matches!(verb, Verb::Read { .. });
        let is_of_lock = |addr| self.layout.is_of_lock(addr);
        if verbs.any(|verb| !is_read(verb) && verb.addr().is_some_and(is_of_lock)) {
            observer.acts(self.who);
        }
    }

    fn posted(&self, verb: &Verb<'_>, post: impl FnOnce() -> Posted) -> Posted {
        self.tell(std::iter::once(verb));
        let point = self.before(verb);
        let posted = post();
        self.after(point);
        posted
    }

    fn before(&self, verb: &Verb<'_>) -> Option<(u64, Point)> {
        let number = self.posted.replace(self.posted.get() + 1);
        if let (Some(alarm), true) = (&self.alarm, number == self.alarm_at.get()) {
            alarm.rings(self.who, number);
            self.alarm_at.set(alarm.next(self.who, number + 1));
        }
        let witness = self.witness.as_ref()?;
        let point = Point::of(self.state.get(), verb, self.layout);
        witness.posts(self.who, number, point);
        Some((number, point))
    }

    fn after(&self, noted: Option<(u64, Point)>) {
        if let (Some(witness), Some((number, point))) = (&self.witness, noted)
            && self.inner.has_crashed()
        {
            witness.died(self.who, number, point);
        }
    }
}

impl Hook for Watched {
    type Inner = SimEndpoint;

    fn inner(&self) -> &SimEndpoint {
        &self.inner
    }

    fn post(&self, verb: Verb<'_>) -> Posted {
        self.posted(&verb, || self.inner.post(verb))
    }

    fn post_patiently(&self, verb: Verb<'_>, hold: HoldBack) -> Posted {
        self.posted(&verb, || self.inner.post_patiently(verb, hold))
    }

    fn post_chain(&self, chain: &[Link<'_>]) -> Posted {
        self.tell(chain.iter().map(|link| &link.verb));
        let points: Vec<_> = chain.iter().map(|link| self.before(&link.verb)).collect();
        let posted = self.inner.post_chain(chain);
        points.into_iter().for_each(|point| self.after(point));
        posted
    }

    fn poll_wait(
        &self,
        wait: &Wait<'_>,
        state: &mut WaitState,
        cx: &mut Context<'_>,
    ) -> Poll<Woken> {
        let begins = !state.begun;
        let polled = self.inner.poll_wait(wait, state, cx);
        if let (true, true, Some(alarm)) = (begins, polled.is_pending(), &self.alarm) {
            alarm.waits(self.who, self.posted.get());
        }
        polled
    }

    fn publish(&self, slot: Slot, word: usize, value: u64) {
        let aim = &self.aims[usize::from(slot.0)];
        if word == slot::LOCK {
            aim.set(slot::lock_of(value));
        }
        if word == slot::STATE {
            self.states[usize::from(slot.0)].set(SlotWord(value));
            let acts = |state: &SlotWord| state.phase() != Phase::Idle as u64;
            let others = || self.states.iter().map(std::cell::Cell::get).find(acts);
            let state = Some(SlotWord(value)).filter(acts).or_else(others);
            self.state.set(state.unwrap_or(SlotWord(value)));
            if let Some(observer) = &self.observer
                && SlotWord(value).phase() == Phase::Opening as u64
            {
                observer.opens(self.who, aim.get());
            }
        }
        self.inner.publish(slot, word, value);
    }

    #[track_caller]
    fn checkpoint(&self, survivors: &[u64]) {
        if !self.joint {
            self.inner.checkpoint(survivors);
        }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watched({:?})", self.inner)
    }
}
