//! The notes of the queue locks, MCS and ShiftLock.
//!
//! A note names its lock and the generation it was sent in. One that matches nothing the receiving
//! slot awaits is counted and dropped, never acted on: a slot serves many locks in its life, and a
//! repaired lock begins anew while old notes are still under way.

use farlock_fabric::{Addr, Endpoint, Envelope, Mailbox, Message, word};

use crate::event::Event;
use crate::site::Site;
use crate::width;

word! {
    /// The first word of a note.
    pub struct Head: u64 {
        /// A [`Kind`].
        KIND kind: 7,
        /// The lock's epoch after the sender's release.
        EPOCH epoch: 1,
        /// How many writers in a row have held the lock, the sender included.
        STREAK streak: 16,
        /// Who sends it: a packed mailbox.
        FROM from: 40,
    }
}

word! {
    /// The count of a lock's releases with the generation they belong to: the upper half of every
    /// queue lock's word, and the third word of a note.
    pub struct Released: u64 {
        /// Releases since the lock was made.
        COUNT count: 48 => width::COUNT,
        /// How often the lock was repaired.
        GENERATION generation: 16 => width::GENERATION,
    }
}

impl Released {
    /// The upper half of a lock's word that has so many releases and no repair to go.
    pub(crate) const fn near_wrap(steps: u16) -> u128 {
        let last = Self::new().with(Self::GENERATION, u64::MAX);
        (last.with(Self::COUNT, (steps as u64).wrapping_neg()).0 as u128) << 64
    }
}

/// What a note says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// I am behind you in the queue.
    Successor = 1,
    /// The lock is yours.
    Handover = 2,
    /// The lock is yours when the readers in it have left, which the count will show.
    ModeChanged = 3,
    /// The lock was repaired; begin again.
    Reset = 4,
    /// You are the first in line: the lock is yours as soon as the word says that it is open.
    First = 5,
    /// The lock is yours, and the last in line has done what this word names.
    Combined = 32,
    /// From a holder to the last in line: do what this word names, for all of us.
    Asked = 33,
    /// The answer: it was done.
    Done = 34,
    /// The answer: it was not.
    Refused = 35,
}

/// A message between clients of a queue lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Note {
    /// What it says.
    pub kind: Kind,
    /// Who says it.
    pub from: Mailbox,
    /// Of which lock.
    pub lock: Addr,
    /// The count of releases as the sender left it (or will, for [`Kind::ModeChanged`]), and the
    /// generation. What is asked, and its answer, have the number of the question instead.
    pub released: Released,
    /// The epoch as the sender left it.
    pub epoch: u64,
    /// How many writers in a row have held the lock. Saturates.
    pub streak: u16,
    /// What the clients in line want done: see [`errand`](super::errand).
    pub word: u64,
}

impl Note {
    /// A note that carries no grant.
    pub fn new(kind: Kind, from: Mailbox, lock: Addr, generation: u64) -> Self {
        let released = Released::new().with(Released::GENERATION, generation);
        Self { kind, from, lock, released, epoch: 0, streak: 0, word: 0 }
    }

    /// The note as a message.
    pub fn encode(&self) -> Message {
        let head = Head::new()
            .with(Head::KIND, self.kind as u64)
            .with(Head::EPOCH, self.epoch)
            .with(Head::STREAK, u64::from(self.streak))
            .with(Head::FROM, self.from.bits());
        [head.0, self.lock.bits(), self.released.0, self.word]
    }

    /// The note a message holds, if it holds one.
    pub fn decode(message: &Message) -> Option<Self> {
        let head = Head(message[0]);
        let kind = match head.kind() {
            1 => Kind::Successor,
            2 => Kind::Handover,
            3 => Kind::ModeChanged,
            4 => Kind::Reset,
            5 => Kind::First,
            32 => Kind::Combined,
            33 => Kind::Asked,
            34 => Kind::Done,
            35 => Kind::Refused,
            _ => return None,
        };
        Some(Self {
            kind,
            from: Mailbox::from_bits(head.from()),
            lock: Addr::from_bits(message[1]),
            released: Released(message[2]),
            epoch: head.epoch(),
            streak: head.streak() as u16,
            word: message[3],
        })
    }
}

/// The generation after this one.
pub const fn next_generation(generation: u64) -> u64 {
    (generation + 1) & Released::GENERATION.max()
}

/// Whether generation `a` comes after `b`. Generations wrap.
pub const fn is_newer(a: u64, b: u64) -> bool {
    Released::GENERATION.ahead(a, b) > 0
}

/// The next note for this slot that concerns `generation` of its lock. Drops what does not, and
/// keeps with the site a successor's report, a question and an answer.
///
/// Of a [`Kind::Reset`] only one that announces a later generation counts: a late one would make a
/// client leave a queue in which others stand behind it.
#[inline(always)]
pub fn next_note<E: Endpoint>(site: &Site<'_, E>, generation: u64) -> Option<Note> {
    // An uncontended release finds no mail, and keeps its site in registers.
    site.endpoint.receive(site.slot()).and_then(|first| sort(*site, generation, first))
}

/// The first note among the mail from `first` on.
#[cold]
#[inline(never)]
fn sort<E: Endpoint>(site: Site<'_, E>, generation: u64, first: Envelope) -> Option<Note> {
    let mut next = Some(first);
    while let Some(envelope) = next.take().or_else(|| site.endpoint.receive(site.slot())) {
        let note = Note::decode(&envelope.message).filter(|note| note.lock == site.lock);
        let Some(note) = note else {
            let lock = Addr::from_bits(envelope.message[1]);
            site.event(Event::StaleMessage { lock });
            continue;
        };
        let same = note.released.generation() == generation;
        match note.kind {
            Kind::Reset if is_newer(note.released.generation(), generation) => return Some(note),
            Kind::Successor if same => site.set_successor(Some(note.from)),
            Kind::Asked | Kind::Done | Kind::Refused if same => {
                site.kept.keep(site.slot(), note.kind as u8, note.encode());
            }
            Kind::Handover | Kind::ModeChanged | Kind::First | Kind::Combined if same => {
                return Some(note);
            }
            _ => site.event(Event::StaleMessage { lock: site.lock }),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use farlock_fabric::{EndpointId, RegionId, Slot};

    #[test]
    fn a_note_survives_the_round_trip() {
        let from = Mailbox { endpoint: EndpointId { index: 77, incarnation: 5 }, slot: Slot(3) };
        let mut note = Note::new(Kind::ModeChanged, from, Addr::new(RegionId(1), 4096), 0xffff);
        note.released = note.released.with(Released::COUNT, (1 << 48) - 1);
        note.epoch = 1;
        note.streak = u16::MAX;
        note.word = u64::MAX - 1;
        assert_eq!(Note::decode(&note.encode()), Some(note));
        for kind in [Kind::Combined, Kind::Asked, Kind::Done, Kind::Refused] {
            let note = Note { kind, ..note };
            assert_eq!(Note::decode(&note.encode()), Some(note));
        }
    }

    #[test]
    fn an_unknown_kind_is_no_note() {
        assert_eq!(Note::decode(&[0; 4]), None);
        assert_eq!(Note::decode(&[6, 0, 0, 0]), None);
    }

    #[test]
    fn the_next_generation_is_newer_across_the_wrap() {
        let last = Released::GENERATION.max();
        for generation in [0, 1, last / 2, last - 1, last] {
            let next = next_generation(generation);
            assert!(is_newer(next, generation) && !is_newer(generation, next), "{generation}");
            assert!(!is_newer(generation, generation), "{generation}");
        }
        assert_eq!(next_generation(last), 0);
    }
}
