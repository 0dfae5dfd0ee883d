//! What those in line tell each other: four kinds of message, and a word of the slot record.

use farlock_fabric::{Addr, Envelope, Mailbox, Message, WideAtomics, word};

use super::word::{Place, turn_of};
use crate::event::Event;
use crate::site::{Site, number_of};

word! {
    /// The first word of a message. Its kinds are those that no other lock's messages have.
    struct Head: u64 {
        /// A [`Kind`].
        KIND kind: 8,
        /// Which of the receiver's places in line it concerns; of a doubt, which acquisition.
        TO to: 6,
        /// Which of the sender's places in line it concerns.
        SENT sent: 6,
        /// Zero.
        REST rest: 4,
        /// The sender: a packed mailbox.
        FROM from: 40,
    }
}

word! {
    /// What a waiter publishes of its place in line, so that those behind it can do without it.
    pub(super) struct Published: u64 {
        /// The one before it: a packed mailbox, or nobody.
        BEFORE before: 40,
        /// Which of its places in line that is.
        BEFORE_TURN before_turn: 6,
        /// Which of its owner's this is.
        TURN turn: 6,
        /// The low bits of its owner's incarnation.
        INCARNATION incarnation: 12,
    }
}

impl Published {
    /// Of this waiter, behind this one or behind nobody.
    pub(super) fn of(me: Place, before: Option<Place>) -> Self {
        let published = Self::new()
            .with(Self::TURN, me.turn)
            .with(Self::INCARNATION, me.mailbox.endpoint.incarnation.into());
        match before {
            None => published,
            Some(before) => published
                .with(Self::BEFORE, before.mailbox.bits())
                .with(Self::BEFORE_TURN, before.turn),
        }
    }

    /// Whether it is of this waiter.
    pub(super) fn is_of(self, who: Place) -> bool {
        self.turn() == who.turn
            && self.incarnation()
                == u64::from(who.mailbox.endpoint.incarnation) & Self::INCARNATION.max()
    }

    /// The one before.
    pub(super) fn place_before(self) -> Option<Place> {
        let mailbox = Mailbox::from_bits(self.before());
        let turn = self.before_turn();
        mailbox.endpoint.is_somebody().then_some(Place { mailbox, turn })
    }
}

/// What a message says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// I am behind you.
    Behind = 6,
    /// You are the first in line.
    First = 7,
    /// You do not hold the lock by that acquisition, if you have not said so by now.
    Doubt = 8,
    /// I am not in line. Give a sign of life.
    Ask = 9,
}

/// A message of this kind from one place in line to another.
pub(super) fn message(kind: Kind, lock: Addr, from: Place, to: Place) -> Message {
    let head = Head::new()
        .with(Head::KIND, kind as u64)
        .with(Head::TO, to.turn)
        .with(Head::SENT, from.turn)
        .with(Head::FROM, from.mailbox.bits());
    [head.0, lock.bits(), 0, 0]
}

/// A message that doubts this acquisition of its receiver.
pub(super) fn doubt_of(lock: Addr, from: Place, ticket: u32) -> Message {
    let head = Head::new()
        .with(Head::KIND, Kind::Doubt as u64)
        .with(Head::TO, number_of(ticket).into())
        .with(Head::SENT, from.turn)
        .with(Head::FROM, from.mailbox.bits());
    [head.0, lock.bits(), 0, 0]
}

/// The fewest messages that fill a mailbox, by the contract.
const CELLS_MIN: u32 = 4;

/// What the mail of a slot said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Mail {
    /// This one is the first in line.
    pub(super) is_first: bool,
    /// One behind it has reported.
    pub(super) is_followed: bool,
    /// That one, or another, asks for a sign of life.
    pub(super) is_asked: bool,
    /// The mailbox was full, or nearly: what else was sent may have found no room.
    pub(super) was_full: bool,
}

/// Takes all mail of this slot. Remembers who is behind; drops what concerns another lock, another
/// place in line or another acquisition.
#[inline(always)]
pub(super) fn sort_mail<E: WideAtomics>(site: &Site<'_, E>) -> Mail {
    // An uncontended release finds no mail, and keeps its site in registers.
    site.endpoint.receive(site.slot()).map_or(Mail::default(), |first| sort(*site, first))
}

#[cold]
#[inline(never)]
fn sort<E: WideAtomics>(site: Site<'_, E>, first: Envelope) -> Mail {
    let mut mail = Mail::default();
    let (mut next, mut letters) = (Some(first), 0);
    while let Some(envelope) = next.take().or_else(|| site.endpoint.receive(site.slot())) {
        letters += 1;
        mail.was_full = letters >= CELLS_MIN;
        let [head, lock, ..] = envelope.message;
        let (head, lock) = (Head(head), Addr::from_bits(lock));
        let acquisition = site.acquisition();
        let concerns = lock == site.lock && head.to() == turn_of(acquisition);
        let number = u64::from(number_of(acquisition)) & Head::TO.max();
        let doubts = lock == site.lock && head.to() == number;
        match head.kind() {
            kind if kind == Kind::First as u64 && concerns => mail.is_first = true,
            kind if kind == Kind::Doubt as u64 && doubts => site.set_doubted(),
            kind if kind == Kind::Behind as u64 && concerns => {
                // Of two the later: the earlier one has left.
                let place = Place { mailbox: Mailbox::from_bits(head.from()), turn: head.sent() };
                site.set_behind(place.bits());
                (mail.is_followed, mail.is_asked) = (true, true);
            }
            kind if kind == Kind::Ask as u64 && concerns => mail.is_asked = true,
            _ => site.event(Event::StaleMessage { lock }),
        }
    }
    // A doubt that found no room is one all the same.
    if mail.was_full || site.endpoint.has_unread(site.slot()) {
        site.set_doubted();
    }
    mail
}

impl Place {
    /// As a number that is never zero.
    pub(super) fn bits(self) -> u64 {
        self.mailbox.bits() | self.turn << Mailbox::BITS
    }

    /// Out of that number.
    pub(super) fn from_bits(bits: u64) -> Self {
        let turn = bits >> Mailbox::BITS & super::word::ClaimWord::TURN.max();
        Self { mailbox: Mailbox::from_bits(bits), turn }
    }
}

#[cfg(test)]
mod tests {
    use farlock_fabric::{EndpointId, Slot};

    use super::*;

    #[test]
    fn a_place_survives_every_round_trip() {
        let endpoint = EndpointId { index: 0xfffe, incarnation: 0xabcd };
        let place = Place { mailbox: Mailbox { endpoint, slot: Slot(0xee) }, turn: 63 };
        assert_eq!(Place::from_bits(place.bits()), place);
        let other = Place { mailbox: Mailbox { endpoint, slot: Slot(1) }, turn: 1 };
        let published = Published::of(other, Some(place));
        assert_eq!(published.place_before(), Some(place));
        assert!(published.is_of(other) && !published.is_of(place));
        assert_eq!(Published::of(other, None).place_before(), None);
    }
}
