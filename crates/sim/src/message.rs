//! Messages: in order per pair of endpoints, into mailboxes with few cells.
//!
//! Only the oldest message of a pair has an event in the queue; its delivery schedules the next.

use farlock_fabric::{Addr, EndpointId, Envelope, Fault, Mailbox, Message, Nanos};

use crate::core::Core;
use crate::flight::{Action, Due};
use crate::history::{Effect, Kind};
use crate::queue::Event;

impl Core {
    /// A message is due at its mailbox then, unless an older one to the same endpoint is not there
    /// yet.
    #[inline]
    pub(crate) fn schedule_message(&mut self, index: u32, due: Nanos) {
        let flight = self.flights.at(index);
        let (owner, to) = (flight.owner, receiver(&flight.action));
        let older = self.next_message(owner, to);
        let due = if older.is_none_or(|older| older == index) {
            self.push(due, Event::Serve(index));
            Due::Scheduled
        } else {
            Due::Behind(due)
        };
        self.flights.cargo_mut(index).due = due;
    }

    /// The oldest message on its way from one endpoint to another.
    #[inline]
    fn next_message(&self, from: EndpointId, to: EndpointId) -> Option<u32> {
        let sends = &self.seat(from).sends;
        sends.iter().copied().find(|&other| {
            let other = self.flights.at(other);
            other.owner == from && receiver(&other.action) == to
        })
    }

    /// A message reaches its mailbox, or does not.
    #[inline(never)]
    pub(crate) fn deliver(
        &mut self,
        index: u32,
        to: Mailbox,
        message: Message,
    ) -> Result<(), Fault> {
        let from = self.flights.at(index).owner;
        self.seat_mut(from).sends.retain(|&other| other != index);
        if let Some(next) = self.next_message(from, to.endpoint)
            && let Due::Behind(due) = self.flights.cargo(next).due
        {
            self.flights.cargo_mut(next).due = Due::Scheduled;
            self.push(due.max(self.now), Event::Serve(next));
        }
        self.verdict(index)?;
        if !self.is_alive(to.endpoint) {
            return Err(Fault::PeerGone);
        }
        let (now, cells, shown) = (self.now, self.mailbox_cells, self.shown);
        let seat = self.seat_mut(to.endpoint);
        seat.knows = shown;
        let arrived = seat.clock.read(now);
        let mailbox = seat.mailboxes.get_mut(usize::from(to.slot.0)).ok_or(Fault::OutOfBounds)?;
        if mailbox.len() >= cells {
            return Err(Fault::MailboxFull);
        }
        mailbox.push_back(Envelope { from, arrived, message });
        // A receiver that finds its mailbox full may take more for lost, and leave behind what
        // waits for others find.
        self.disturbed |= self.seat(to.endpoint).mailboxes[usize::from(to.slot.0)].len() == cells;
        self.history.record(&Effect {
            time: now,
            endpoint: from,
            kind: Kind::Send,
            addr: Addr::from_bits(to.bits()),
            old: message[0].into(),
            new: message[0].into(),
        });
        self.wake_receivers(to.endpoint, to.slot);
        Ok(())
    }
}

/// Who a message goes to.
fn receiver(action: &Action) -> EndpointId {
    match action {
        Action::Send { to, .. } => to.endpoint,
        _ => unreachable!("only messages are asked for their receiver"),
    }
}
