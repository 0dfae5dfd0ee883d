//! What clients of the baselines write each other, and a lock server its clients.
//!
//! A letter names its lock; one about another lock is counted and dropped. Letters carry no
//! generation: the locks that use them are never repaired, and a slot leaves a lock only when every
//! letter about it has been answered.

use farlock_fabric::{Addr, Endpoint, Fault, Mailbox, Message, Nanos, Patience, Slot, Wait};

use super::queue::await_mail;
use crate::event::Event;
use crate::site::{Outcome, Site};

/// How long to wait before sending again to a full mailbox, in nanoseconds: what a NIC calls a
/// receiver that is not ready.
const MAILBOX_FULL_RETRY_NS: Nanos = 5_000;

/// Letters begin with a number that no [`Note`](super::queue::Note) begins with.
const FIRST: u64 = 64;

farlock_fabric::listed! {
    /// What a letter says.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u64)]
    pub(super) enum Subject {
        /// I am the writer behind you; so many readers came between us.
        Writer = FIRST,
        /// I am a reader behind you.
        Reader,
        /// The lock is yours; so many writers in a row have held it.
        Granted,
        /// It is your turn, but readers may be inside.
        ModeChanged,
        /// To a server: I want it in this mode.
        Request,
        /// To a server: I want it in this mode if that needs no waiting.
        Try,
        /// To a server: I leave it, which I had in this mode.
        Release,
        /// From a server: not at once.
        Refused,
    }
}

/// A message about a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Letter {
    /// What it says.
    pub(super) subject: Subject,
    /// The number that belongs to it.
    pub(super) count: u64,
    /// Who says it.
    pub(super) from: Mailbox,
    /// Of which lock.
    pub(super) lock: Addr,
}

impl Letter {
    /// The letter as a message.
    pub(super) fn encode(&self) -> Message {
        [self.subject as u64, self.lock.bits(), self.count, self.from.bits()]
    }

    /// The letter a message holds, if it holds one.
    pub(super) fn decode(message: &Message) -> Option<Self> {
        let subject = Subject::ALL.into_iter().find(|&subject| subject as u64 == message[0])?;
        let (lock, from) = (Addr::from_bits(message[1]), Mailbox::from_bits(message[3]));
        Some(Self { subject, count: message[2], from, lock })
    }
}

/// Writes to a slot from this one.
pub(super) async fn write<E: Endpoint>(
    site: &Site<'_, E>,
    to: Mailbox,
    subject: Subject,
    count: u64,
) -> Outcome<()> {
    let letter = Letter { subject, count, from: site.me, lock: site.lock };
    send(site.endpoint, to, letter.encode()).await
}

/// Sends a message, again and again while the receiver's mailbox is full.
pub(super) async fn send<E: Endpoint>(endpoint: &E, to: Mailbox, message: Message) -> Outcome<()> {
    while let Err(fault) = endpoint.send(to, message).await {
        if fault != Fault::MailboxFull {
            return Err(fault);
        }
        endpoint.checkpoint(&[to.bits(), message[0], message[2]]);
        let (peers, interval) = ([to.endpoint], Some(MAILBOX_FULL_RETRY_NS));
        endpoint.wait(Wait { peers: &peers, interval, ..Wait::default() }).await;
    }
    Ok(())
}

/// The next letter to this slot about its lock, if there is one.
pub(super) fn receive<E: Endpoint>(site: &Site<'_, E>) -> Option<Letter> {
    loop {
        let message = site.endpoint.receive(site.slot())?.message;
        match Letter::decode(&message).filter(|letter| letter.lock == site.lock) {
            Some(letter) => return Some(letter),
            None => site.event(Event::StaleMessage { lock: Addr::from_bits(message[1]) }),
        }
    }
}

/// Waits for the next letter. `survivors` is which of its waits that is to the caller, and what
/// else it remembers.
pub(super) async fn read<E: Endpoint>(site: &Site<'_, E>, survivors: &[u64]) -> Outcome<Letter> {
    loop {
        if let Some(letter) = receive(site) {
            return Ok(letter);
        }
        site.endpoint.checkpoint(survivors);
        await_mail(site, &[], Patience::default()).await?;
    }
}

/// Who a slot is in the 24 bits that the papers' words have for a client: the index of its
/// endpoint, and the slot. An index is never zero.
pub(super) fn short_name(me: Mailbox) -> u64 {
    u64::from(me.endpoint.index) | u64::from(me.slot.0) << 16
}

/// The mailbox of the client that has this short name now; [`Fault::PeerGone`] if none has.
pub(super) fn mailbox_of<E: Endpoint>(endpoint: &E, name: u64) -> Outcome<Mailbox> {
    let endpoint = endpoint.occupant(name as u16).ok_or(Fault::PeerGone)?;
    Ok(Mailbox { endpoint, slot: Slot((name >> 16) as u8) })
}

#[cfg(test)]
mod tests {
    use farlock_fabric::{EndpointId, RegionId};

    use super::super::queue::Note;
    use super::*;

    #[test]
    fn a_letter_survives_the_round_trip_and_is_no_note() {
        let from = Mailbox { endpoint: EndpointId { index: 77, incarnation: 5 }, slot: Slot(3) };
        for subject in Subject::ALL {
            let lock = Addr::new(RegionId(1), 4096);
            let letter = Letter { subject, count: u64::MAX, from, lock };
            assert_eq!(Letter::decode(&letter.encode()), Some(letter));
            assert_eq!(Note::decode(&letter.encode()), None);
        }
        assert_eq!(Letter::decode(&[1, 0, 0, 0]), None);
        assert_eq!(short_name(from), 77 | 3 << 16);
    }
}
