//! Completions: in posting order per queue pair, kept until a task asks.

use farlock_fabric::{EndpointId, Fault, LinkDone, Ticket};

use crate::config::Mode;
use crate::core::Core;
use crate::flight::NONE;
use crate::history::{Kind, mix};
use crate::seat::Life;

impl Core {
    /// A completion reaches its endpoint. It is seen once those before it are.
    #[inline]
    pub(crate) fn complete(&mut self, head: u32) {
        let flight = self.flights.at_mut(head);
        flight.chain.arrived = true;
        let (owner, pair, queued) = (flight.owner, flight.chain.pair, flight.chain.queued);
        let seat = &mut self.seats[usize::from(owner.index)];
        if !queued || seat.id != owner {
            self.flights.remove(head);
            return;
        }
        let mut oldest = seat.pairs.at_mut(pair).oldest;
        while oldest != NONE && self.flights.at(oldest).chain.arrived {
            let flight = self.flights.at_mut(oldest);
            flight.chain.done = true;
            let (task, behind, abandoned) =
                (flight.task, flight.chain.behind, flight.chain.abandoned);
            if abandoned {
                self.flights.remove(oldest);
            } else {
                self.wake(task);
            }
            let queue = self.seat_mut(owner).pairs.at_mut(pair);
            queue.oldest = behind;
            if behind == NONE {
                queue.newest = NONE;
            }
            oldest = behind;
        }
    }

    /// What became of a chain; `None` while it is on its way. Asked by the task that is polled.
    #[inline]
    pub(crate) fn outcome(
        &mut self,
        owner: EndpointId,
        ticket: Ticket,
    ) -> Option<Result<(), Fault>> {
        let head = self.ticketed(owner, ticket)?;
        let flight = self.flights.at_mut(head);
        if !flight.chain.done {
            flight.task = self.current;
            return None;
        }
        let lost = flight.chain.lost;
        let explored = self.mode == Mode::Explored;
        let mut told = 0;
        let last = &mut self.seats[usize::from(owner.index)].last;
        let (mut index, mut place, mut result) = (head, 0, Ok(()));
        while index != NONE {
            let link = self.flights.at(index);
            let status = if lost { Err(Fault::Lost) } else { link.status };
            let (next, old, kind) = (link.next, link.old, link.kind);
            if status.is_ok() && !matches!(kind, Kind::Write | Kind::Send) {
                last.old = old;
            }
            let brought = last.put(place);
            brought.done = LinkDone { status, old };
            brought.data.clear();
            if status.is_ok() && kind == Kind::Read {
                std::mem::swap(&mut brought.data, &mut self.flights.cargo_mut(index).data);
            }
            if explored {
                told = mix(told, u64::from(status.is_err()));
                told = mix(told ^ old as u64, (old >> 64) as u64);
                told = brought.data.iter().fold(told, |told, &word| mix(told, word));
            }
            result = result.and(status);
            index = next;
            place += 1;
        }
        self.flights.remove(head);
        self.told(told);
        Some(result)
    }

    /// Nobody will ask for this ticket.
    pub(crate) fn abandon(&mut self, owner: EndpointId, ticket: Ticket) {
        let Some(head) = self.ticketed(owner, ticket) else { return };
        if self.flights.at(head).chain.done {
            self.flights.remove(head);
        } else {
            self.flights.at_mut(head).chain.abandoned = true;
        }
    }

    /// The head of this ticket's chain. A crashed endpoint's tickets mean nothing any more.
    #[inline]
    fn ticketed(&self, owner: EndpointId, ticket: Ticket) -> Option<u32> {
        let seat = self.seat(owner);
        if seat.id != owner || seat.life != Life::Alive {
            return None;
        }
        let head = ticket.0 as u32;
        let generation = (ticket.0 >> 32) as u32;
        assert!(self.flights.at(head).generation == generation, "this ticket is spent");
        Some(head)
    }
}
